"""Wrappers for the single environment; `env.spec` records them like Gymnasium's own wrappers."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.utils import RecordConstructorArgs
from gymnasium.wrappers import Autoreset

from routing_gym.envs.single import RoutingEnv
from routing_gym.wrappers import transforms

ONLY_LANE = np.zeros(1, dtype=np.intp)


class RoutingWrapper(gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Base class of the wrappers: applies a transform to a single environment as one lane.

    Raises:
        TypeError: The environment is not a `RoutingEnv`, or lacks the observations that the wrapper changes.
        ValueError: The order of the wrappers is invalid.
    """

    transform_type: ClassVar[type[transforms.Transform]]

    def __init__(self, env: gym.Env[Any, Any], **arguments: Any) -> None:
        RecordConstructorArgs.__init__(self, **arguments)
        super().__init__(env)
        if not isinstance(env.unwrapped, RoutingEnv):
            raise TypeError(
                f"{type(self).__name__}: expected a RoutingEnv, got {type(env.unwrapped).__name__}; "
                "use a wrapper of gymnasium.wrappers instead"
            )
        inner = env
        while isinstance(inner, gym.Wrapper):
            if isinstance(inner, Autoreset):
                raise ValueError(
                    f"{type(self).__name__}: apply it before gymnasium.wrappers.Autoreset, whose resets it would miss"
                )
            inner = inner.env
        self.transform = self.transform_type(env.unwrapped, env.observation_space, 1, **arguments)
        self.observation_space = self.transform.space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        self.transform.begin(ONLY_LANE, only_row(observation))
        return self._observe(observation), info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        changed = self.transform.reward(np.array([reward], dtype=np.float64))
        return self._observe(observation), float(changed[0]), terminated, truncated, info

    def _observe(self, observation: Any) -> Any:
        return transforms.row(self.transform.observe(only_row(observation), ONLY_LANE), 0)

    def action_masks(self) -> npt.NDArray[np.bool_]:
        """Return the mask of the legal actions, see `RoutingEnv.action_masks`."""
        env: Any = self.unwrapped
        return np.asarray(env.action_masks())


def only_row(observation: Any) -> Any:
    """Return an observation as a batch of one row."""
    if isinstance(observation, dict):
        return {key: np.asarray(value)[None] for key, value in observation.items()}
    return observation[None]


class FlattenObservation(RoutingWrapper):
    """Wrapper that joins the observations into one vector, for networks with a vector as input.

    The vector is that of `gymnasium.spaces.flatten`, in float32: keys in the order of the space, nodes
    one-hot, so that `gymnasium.spaces.unflatten` inverts it. It includes the mask, which is the only observation of
    the visited nodes. The mask is also in `info["action_mask"]` and `action_masks()`. Gymnasium's wrapper of this name
    returns float64; its vector version loops over the lanes and does not support autoreset in the same step.
    """

    transform_type = transforms.FlattenObservation


class RescaleCoordinates(RoutingWrapper):
    """Wrapper that moves the nodes' bounding box to the origin and scales its longer side to 1.

    Use it for instances that fill only a part of the unit square. Observed lengths and times
    (`Problem.length_observations`, such as OP's `remaining_length`) and matrices are divided by the same factor, so the
    optimal tour stays optimal. Rewards and costs keep the original unit, which is no longer observed; with
    `ScaleReward`, rewards do not depend on it. A box smaller than 1e-6 is moved but not scaled.
    """

    transform_type = transforms.RescaleCoordinates


class RelativeCoordinates(RoutingWrapper):
    """Wrapper that makes coordinates relative to the current node, which is at (0, 0); they are in [-1, 1].

    Before the first action of a TSP, the current node is city 0. Apply this wrapper after RescaleCoordinates and
    RandomSymmetry.
    """

    transform_type = transforms.RelativeCoordinates


class RandomSymmetry(RoutingWrapper):
    """Wrapper that transforms each episode's coordinates by a random symmetry of the unit square (one of eight).

    Distances, rewards and costs do not change, nor does `env.unwrapped.instance`. The symmetry is drawn at the start of
    the episode, from `env.np_random` after the instance, so `reset(seed=...)` determines both. From the second episode
    on, the instances therefore differ from those without the wrapper.
    """

    transform_type = transforms.RandomSymmetry


class ScaleReward(RoutingWrapper):
    """Wrapper that divides the rewards by the cost of a solver's tour of the episode's instance; OP: by its prize.

    Returns are then comparable across instances and sizes: -1 is as good as the solver, -0.9 a tenth better; OP: 1
    and 1.1. `info["cost"]` keeps its unit. If the solver's cost is 0, the reward is not changed.

    Each episode starts with a call of the solver in this process; in a vectorised environment, this takes longer than
    the steps. With a randomised solver, such as random-insertion, the tour depends on a lane's position among the lanes
    that start an episode in the same step.

    Args:
        env: The environment.
        solver: Name of the solver, a key of `routing_gym.solvers.SOLVERS`.
        **settings: Settings of the solver, such as `time_limit`.

    Raises:
        ValueError: The solver is unknown or does not solve the problem.
        TypeError: The solver does not have a given setting.
        ImportError: The solver's package is missing.
        RuntimeError: The solver found no tour. Raised by `reset` and, if lanes are reset, by `step`.
    """

    transform_type = transforms.ScaleReward

    def __init__(self, env: gym.Env[Any, Any], solver: str = "nearest-neighbour", **settings: Any) -> None:
        super().__init__(env, solver=solver, **settings)
