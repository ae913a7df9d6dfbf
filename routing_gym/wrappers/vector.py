"""Wrappers for the vectorised environment; each lane gets the same results as a wrapped single environment.

Gymnasium's VectorObservationWrapper does not support autoreset in the same step; these wrappers do, and transform
`final_obs` too.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from array_api_compat import array_namespace
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space

from routing_gym.arrays import Array, to_numpy
from routing_gym.envs.lanes import AnyVectorEnv
from routing_gym.envs.vector import RoutingVectorEnv
from routing_gym.wrappers import transforms


class RoutingVectorWrapper(VectorWrapper):  # not generic before Gymnasium 1.3
    """Base class of the wrappers: applies a transform to all lanes at once, on NumPy and torch, in all autoreset modes.

    Raises:
        TypeError: The environment is not a `RoutingVectorEnv`, or lacks the observations that the wrapper changes.
        ValueError: The order of the wrappers is invalid.
    """

    transform_type: ClassVar[type[transforms.Transform]]

    def __init__(self, env: AnyVectorEnv, **arguments: Any) -> None:
        super().__init__(env)
        name = type(self).__name__
        if not isinstance(env.unwrapped, RoutingVectorEnv):
            remedy = "use a wrapper of gymnasium.wrappers.vector instead"
            if isinstance(env.unwrapped, SyncVectorEnv | AsyncVectorEnv):
                remedy = (
                    "wrap its single environments instead, as in "
                    f'gym.make_vec(..., vectorization_mode="sync", wrappers=[routing_gym.wrappers.{name}])'
                )
            raise TypeError(f"{name}: expected a RoutingVectorEnv, got {type(env.unwrapped).__name__}; {remedy}")
        self.transform = self.transform_type(env.unwrapped, env.single_observation_space, env.num_envs, **arguments)
        self.single_observation_space = self.transform.space
        self.observation_space = batch_space(self.transform.space, env.num_envs)
        self._autoreset_mode = env.metadata["autoreset_mode"]
        self._lanes = np.arange(env.num_envs)
        self._to_reset = np.zeros(env.num_envs, dtype=np.bool_)  # ended in the last step; NEXT_STEP resets them

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observations, infos = self.env.reset(seed=seed, options=options)
        mask = (options or {}).get("reset_mask")
        lanes = self._lanes if mask is None else np.flatnonzero(to_numpy(mask))
        self._to_reset[lanes] = False
        self.transform.begin(lanes, observations)
        return self.transform.observe(observations, self._lanes), infos

    def step(self, actions: Any) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        rewards = self.transform.reward(rewards)
        ended, begun = to_numpy(terminated), self._to_reset
        if self._autoreset_mode is AutoresetMode.NEXT_STEP:
            self._to_reset = ended.copy()
        elif self._autoreset_mode is AutoresetMode.SAME_STEP:
            begun = ended
            if ended.any():
                infos = {**infos, "final_obs": self._observe_final(infos["final_obs"], np.flatnonzero(ended))}
        if begun.any():
            self.transform.begin(np.flatnonzero(begun), observations)
        return self.transform.observe(observations, self._lanes), rewards, terminated, truncated, infos

    def _observe_final(self, final: Any, lanes: transforms.Lanes) -> Any:
        """Return the transformed last observations of the episodes that ended in some lanes; `final` is object (B,)."""
        if not self.transform.needs:
            return final
        xp = array_namespace(final[lanes[0]]["action_mask"])
        rows = {key: xp.stack([final[lane][key] for lane in lanes]) for key in final[lanes[0]]}
        changed, observed = np.full_like(final, None), self.transform.observe(rows, lanes)
        for place, lane in enumerate(lanes):
            changed[lane] = transforms.row(observed, place)
        return changed

    def action_masks(self) -> Array:
        """Return the mask of the legal actions, see `RoutingVectorEnv.action_masks`."""
        env: Any = self.unwrapped
        return env.action_masks()


class FlattenObservation(RoutingVectorWrapper):
    """See `routing_gym.wrappers.FlattenObservation`."""

    transform_type = transforms.FlattenObservation


class RescaleCoordinates(RoutingVectorWrapper):
    """See `routing_gym.wrappers.RescaleCoordinates`."""

    transform_type = transforms.RescaleCoordinates


class RelativeCoordinates(RoutingVectorWrapper):
    """See `routing_gym.wrappers.RelativeCoordinates`."""

    transform_type = transforms.RelativeCoordinates


class RandomSymmetry(RoutingVectorWrapper):
    """See `routing_gym.wrappers.RandomSymmetry`; each lane uses its own random number generator."""

    transform_type = transforms.RandomSymmetry


class ScaleReward(RoutingVectorWrapper):
    """See `routing_gym.wrappers.ScaleReward`; instances of lanes that begin in the same step are solved together."""

    transform_type = transforms.ScaleReward

    def __init__(self, env: AnyVectorEnv, solver: str = "nearest-neighbour", **settings: Any) -> None:
        super().__init__(env, solver=solver, **settings)
