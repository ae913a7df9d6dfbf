"""The wrappers for the single environment, recorded in `env.spec` as Gymnasium's own are."""

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
    """Brings a transform to one environment, as the only one of its lanes.

    Raises:
        TypeError: Not a `RoutingEnv`, or one without the observations that the wrapper changes.
        ValueError: Applied in an order that cannot work.
    """

    transform_type: ClassVar[type[transforms.Transform]]

    def __init__(self, env: gym.Env[Any, Any], **arguments: Any) -> None:
        RecordConstructorArgs.__init__(self, **arguments)
        super().__init__(env)
        if not isinstance(env.unwrapped, RoutingEnv):
            raise TypeError(f"{type(self).__name__}: expected a RoutingEnv, got {type(env.unwrapped).__name__}")
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
        """Return the legal actions, as `RoutingEnv.action_masks`."""
        env: Any = self.unwrapped
        return np.asarray(env.action_masks())


def only_row(observation: Any) -> Any:
    """Return an observation as the only row of a batch."""
    if isinstance(observation, dict):
        return {key: np.asarray(value)[None] for key, value in observation.items()}
    return observation[None]


class FlattenObservation(RoutingWrapper):
    """Joins the observations into one vector, for networks that take nothing else.

    The vector is that of `gymnasium.spaces.flatten`, in float32: keys in the order of the space, nodes
    one-hot, so that `gymnasium.spaces.unflatten` undoes it. The mask is a part of it, for it alone says which
    nodes are visited, and stays in `info["action_mask"]` and `action_masks()`. Gymnasium's wrapper of this name
    gives float64; its vector version goes lane by lane and refuses autoreset in the same step.
    """

    transform_type = transforms.FlattenObservation


class RescaleCoordinates(RoutingWrapper):
    """Moves the nodes' bounding box to the origin and scales its longer side to 1.

    For instances that fill a part of the unit square. Observed lengths and times (`Problem.length_observations`, such
    as OP's `remaining_length`) and matrices are divided by the same factor, so the optimal tour stays optimal. Rewards
    and costs keep the original unit, which is no longer observed; with `ScaleReward`, rewards do not depend on it.
    A box smaller than 1e-6 is only moved.
    """

    transform_type = transforms.RescaleCoordinates


class RelativeCoordinates(RoutingWrapper):
    """Gives the coordinates as seen from the current node, which is at (0, 0); in [-1, 1].

    Before the first city of a TSP that is city 0. Apply it after RescaleCoordinates and RandomSymmetry.
    """

    transform_type = transforms.RelativeCoordinates


class RandomSymmetry(RoutingWrapper):
    """Shows each episode's coordinates through one of the eight symmetries of the square, drawn at its beginning.

    No distance changes, so neither do rewards and costs; `env.unwrapped.instance` stays as it was. The draw
    comes from `env.np_random` after the instance's, so that `reset(seed=...)` fixes both; from the second
    episode on, the instances are therefore others than without the wrapper.
    """

    transform_type = transforms.RandomSymmetry


class ScaleReward(RoutingWrapper):
    """Divides the rewards by the cost of a solver's tour of the episode's instance; OP: by its prize.

    Returns are then comparable across instances and sizes: -1 is as good as the solver, -0.9 a tenth better; OP: 1
    and 1.1. `info["cost"]` keeps its unit. Where the solver's cost is 0, the reward stays as it is.

    Each episode starts with a call of the solver in this process; in a vector environment, this takes longer than the
    steps. With a randomised solver, such as random-insertion, the tour depends on a lane's position among the lanes
    that start an episode in the same step.

    Args:
        env: The environment.
        solver: A key of `routing_gym.solvers.SOLVERS`.
        **settings: The solver's own, such as `time_limit`.

    Raises:
        ValueError: Unknown solver, or one that does not solve the problem.
        TypeError: A setting that the solver does not have.
        ImportError: The solver's package is missing.
        RuntimeError: From `reset` (and, where lanes start anew, `step`): the solver found no tour.
    """

    transform_type = transforms.ScaleReward

    def __init__(self, env: gym.Env[Any, Any], solver: str = "nearest-neighbour", **settings: Any) -> None:
        super().__init__(env, solver=solver, **settings)
