"""Stable-Baselines3 and sb3-contrib: many lanes of a routing problem as one `VecEnv`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.error import InvalidAction

from routing_gym.arrays import concatenate
from routing_gym.envs.arguments import check_generator, check_options
from routing_gym.envs.vector import RoutingVectorEnv
from routing_gym.integrations.vector_env import lane_attributes, make_vector_env
from routing_gym.optional import explain_missing
from routing_gym.problems.geometry import match_fields

with explain_missing("Stable-Baselines3", "sb3"):
    from stable_baselines3.common.vec_env import VecEnv
    from stable_baselines3.common.vec_env.base_vec_env import VecEnvIndices

Observation = dict[str, npt.NDArray[Any]]
Info = dict[str, Any]

METHODS = ("action_masks", "render")  # methods that env_method can call
NEEDS = {"backend": "numpy", "autoreset_mode": "SameStep", "copy": True}  # SB3 keeps observations until the next step


class RoutingVecEnv(VecEnv):
    """Vectorised environment of one routing problem for Stable-Baselines3 and sb3-contrib; steps all lanes at once.

    `MaskablePPO("MultiInputPolicy", VecMonitor(RoutingVecEnv("routing/TSP-20", num_envs=64)))`. It is equivalent to a
    `DummyVecEnv` over `num_envs` single environments: the same seeds and actions give the same
    observations, rewards (float32) and dones. Differences, for speed:

    - `step` fills only the infos of lanes whose episode has ended: `terminal_observation`,
      `TimeLimit.truncated` (always False), and `cost`, `illegal_action` and `action_mask` of the episode that has
      ended. `VecMonitor(env, info_keywords=("cost", "illegal_action"))` logs `cost` and `illegal_action`.
    - `env_method` can call only `action_masks` and `render`; `set_attr` can set only `generator`, in all lanes.

    Algorithms without masks, such as PPO, choose illegal actions. They need `on_illegal="terminate"`,
    the default, which ends the episode with a return below that of every legal tour.

    Attributes:
        vector_env: The underlying `RoutingVectorEnv`. Call `seed`, `set_options` and `reset` on this object instead.

    Args:
        env: An id, such as "routing/TSP-50", or a `RoutingVectorEnv` on NumPy with
            `autoreset_mode="SameStep"` and `copy=True`.
        num_envs: Number of lanes; only with an id.
        **settings: Further arguments of `RoutingVectorEnv`, such as `num_nodes`; only with an id.

    Raises:
        TypeError: `env` is neither an id nor a `RoutingVectorEnv`, `num_envs` is missing, or `num_envs` or settings
            are given with a `RoutingVectorEnv`.
        ValueError: Stable-Baselines3 cannot use the environment, or an argument is invalid.
    """

    def __init__(self, env: str | RoutingVectorEnv, num_envs: int | None = None, **settings: Any) -> None:
        self.vector_env = make_vector_env("RoutingVecEnv", "Stable-Baselines3", env, num_envs, settings, NEEDS)
        space = self.vector_env.single_observation_space
        super().__init__(self.vector_env.num_envs, space, self.vector_env.single_action_space)
        self.metadata = self.vector_env.metadata

    def reset(self) -> Observation:
        """Start an episode in every lane. Seeds and options from `seed` and `set_options` are used once.

        Raises:
            TypeError: An instance is not of the problem's instance class.
            ValueError: An option is unknown, an instance is invalid, or only some lanes have an instance.
        """
        observations, info = self.vector_env.reset(seed=self._seeds, options=self._batch_options())
        self._reset_seeds()
        self._reset_options()
        self.reset_infos = single_infos(info, np.arange(self.num_envs))
        return observations

    def step_async(self, actions: npt.NDArray[Any]) -> None:
        self._actions = actions

    def step_wait(self) -> tuple[Observation, npt.NDArray[Any], npt.NDArray[Any], list[Info]]:
        """Apply the actions of `step_async`; lanes whose episode ends are reset.

        Raises:
            InvalidAction: The actions are not one integer per lane, or one is not a node, or illegal with
                `on_illegal="raise"`.
            ResetNeeded: Before the first reset.
        """
        try:
            observations, rewards, dones, _, info = self.vector_env.step(self._actions)
        except InvalidAction as error:
            if self.vector_env.on_illegal == "raise":
                error.add_note(
                    'An algorithm that knows no masks (PPO, DQN) needs on_illegal="terminate"; '
                    "sb3_contrib.MaskablePPO chooses legal actions only (in predict, with action_masks=)."
                )
            raise
        infos: list[Info] = [{} for _ in range(self.num_envs)]
        if "final_obs" in info:
            ended = np.flatnonzero(dones)
            rows = zip(ended.tolist(), single_infos(info["final_info"], ended), single_infos(info, ended), strict=True)
            for lane, final, begun in rows:
                observation = info["final_obs"][lane]
                infos[lane] = {**final, "TimeLimit.truncated": False, "terminal_observation": observation}
                self.reset_infos[lane] = begun
        return observations, rewards.astype(np.float32), dones, infos

    def _batch_options(self) -> dict[str, Any]:
        """Merge the lanes' options, with one instance each, into the options of `RoutingVectorEnv.reset`."""
        if not any(self._options):
            return {}
        problem = self.vector_env.problem
        rows = [check_options(options, problem, 1, ["instance"]).get("instance") for options in self._options]
        if len(rows) != self.num_envs or any(row is None for row in rows):
            given = sum(row is not None for row in rows)
            raise ValueError(f"set_options: give an instance to each of the {self.num_envs} lanes, not to {given}")
        return {"instance": concatenate(match_fields(rows))}

    def has_attr(self, attr_name: str) -> bool:
        """Return whether a lane has an attribute or a method that `env_method` can call."""
        if callable(getattr(RoutingVectorEnv, attr_name, None)):
            return attr_name in METHODS
        return hasattr(RoutingVectorEnv, attr_name) or attr_name in vars(self.vector_env)

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        """Return an attribute of each lane, in the form of `RoutingEnv`: `instance`, `tour`, `problem` and so on.

        Raises:
            AttributeError: The attribute does not exist, or it is a method.
        """
        if callable(getattr(RoutingVectorEnv, attr_name, None)):
            raise AttributeError(f"get_attr: {attr_name} is a method; env_method calls {' and '.join(METHODS)}")
        return lane_attributes(self.vector_env, attr_name, list(self._get_indices(indices)))

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        """Set `generator` for the following episodes.

        Raises:
            AttributeError: The attribute is not `generator`.
            TypeError: The generator is not a function.
            ValueError: `indices` selects only some lanes.
        """
        if attr_name != "generator":
            raise AttributeError(f"set_attr: only generator can be changed; make another RoutingVecEnv for {attr_name}")
        if set(self._get_indices(indices)) != set(range(self.num_envs)):
            raise ValueError("set_attr: all lanes share one generator; leave indices out")
        self.vector_env.generator = check_generator(value)

    def env_method(
        self, method_name: str, *method_args: Any, indices: VecEnvIndices = None, **method_kwargs: Any
    ) -> list[Any]:
        """Call `action_masks` (bool (A,) per lane) or `render`, once for all lanes.

        Raises:
            AttributeError: The method is another one.
            TypeError: Arguments are given; neither method takes any.
        """
        if method_name not in METHODS:
            raise AttributeError(
                f"env_method: expected {' or '.join(METHODS)}, got {method_name!r}; call others on vector_env"
            )
        results = getattr(self.vector_env, method_name)(*method_args, **method_kwargs)
        if results is None:  # nothing to render
            results = [None] * self.num_envs
        return list(results) if indices is None else [results[lane] for lane in self._get_indices(indices)]

    def env_is_wrapped(
        self, wrapper_class: type[gym.Wrapper[Any, Any, Any, Any]], indices: VecEnvIndices = None
    ) -> list[bool]:
        """Return False for each lane. Wrap the `VecEnv` instead, as in `VecMonitor(env)`."""
        return [False for _ in self._get_indices(indices)]

    def get_images(self) -> Sequence[npt.NDArray[np.uint8] | None]:
        return self.env_method("render")

    def close(self) -> None:
        self.vector_env.close()


def single_infos(info: Info, lanes: npt.NDArray[np.intp]) -> list[Info]:
    """Return the infos of some lanes, one dictionary each, in the form of `RoutingEnv`."""
    rows = zip(
        info["action_mask"][lanes], info["illegal_action"][lanes].tolist(), info["cost"][lanes].tolist(), strict=True
    )
    return [{"action_mask": mask, "illegal_action": illegal, "cost": cost} for mask, illegal, cost in rows]
