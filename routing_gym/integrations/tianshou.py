"""Tianshou: environments with the observations `{"obs": ..., "mask": ...}`; all lanes are stepped at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.error import InvalidAction, ResetNeeded
from gymnasium.vector import AutoresetMode

from routing_gym.envs.vector import RoutingVectorEnv
from routing_gym.integrations.masked import FlatLayout, Library, MaskedEnv, Observation
from routing_gym.integrations.vector_env import lane_attributes, make_vector_env
from routing_gym.optional import explain_missing

with explain_missing("Tianshou", "tianshou"):
    from tianshou.data import Batch
    from tianshou.env import BaseVectorEnv

Lanes = int | Sequence[int] | npt.NDArray[np.integer[Any]] | None
Array = npt.NDArray[Any]

TIANSHOU = Library(
    name="Tianshou",
    observation_key="obs",
    mask_key="mask",
    mask_dtype=np.bool_,
    autoreset_mode=AutoresetMode.DISABLED,
    advice="DQN and its kin choose legal actions only; PPO leaves that to the actor, as in examples/tianshou_ppo.py.",
)


class TianshouEnv(MaskedEnv):
    """Wrapper with observations `{"obs": ..., "mask": bool (A,)}`, for DummyVectorEnv and so on. See `MaskedEnv`.

    DummyVectorEnv's own `observation_space` is that of the unwrapped environment.
    """

    library = TIANSHOU


class TianshouVectorEnv(BaseVectorEnv):  # type: ignore[misc]  # Tianshou is not there where mypy runs
    """Vectorised environment of one routing problem for Tianshou; steps all lanes at once.

    `Collector(policy, TianshouVectorEnv("routing/TSP-20", num_envs=64), buffer)`. It is equivalent to a DummyVectorEnv
    over `TianshouEnv`: the same seeds and actions give the same observations, rewards and episode ends.
    Differences:

    - Observations are a `Batch`, not an array of dictionaries. Infos contain `cost` and `illegal_action`
      in addition to `env_id`; the mask is in the observations.
    - A lane omitted from `step(actions, id)` must be reset before it is stepped again. Tianshou's Collector does so.
    - `reset` takes `options={"instance": instance}` with `num_envs` instances, and gives lanes different seeds.

    Attributes:
        vector_env: The underlying `RoutingVectorEnv`.

    Args:
        env: An id, such as "routing/TSP-50", or a `RoutingVectorEnv` on NumPy with
            `autoreset_mode="Disabled"` and `copy=True`.
        num_envs: Number of lanes; only with an id.
        flat: See `TianshouEnv`.
        **settings: Further arguments of `RoutingVectorEnv`, such as `num_nodes`; only with an id.

    Raises:
        TypeError: `env` is neither an id nor a `RoutingVectorEnv`, `num_envs` is missing, or `num_envs` or settings
            are given with a `RoutingVectorEnv`.
        ValueError: Tianshou cannot use the environment, or an argument is invalid.
    """

    def __init__(
        self, env: str | RoutingVectorEnv, num_envs: int | None = None, *, flat: bool = True, **settings: Any
    ) -> None:
        # super().__init__() would create one worker per environment. Its other attributes are set here.
        self.vector_env = make_vector_env("TianshouVectorEnv", TIANSHOU.name, env, num_envs, settings, TIANSHOU.needs)
        self.env_num = self.vector_env.num_envs
        self.is_async = self.is_closed = False
        self.layout = FlatLayout(TIANSHOU, self.vector_env.single_observation_space, flat)
        self._ended = np.zeros(self.env_num, dtype=np.bool_)
        self._left_out = np.zeros(self.env_num, dtype=np.bool_)  # lanes left out of a step since their last reset

    def seed(self, seed: int | Sequence[int | None] | None = None) -> list[Any]:
        """Seed and reset the lanes; with an integer, lane i gets seed + i."""
        self._begin(np.arange(self.env_num), seed, None)
        return list(self.vector_env.np_random_seed)

    def reset(
        self,
        env_id: Lanes = None,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Any, Array]:
        """Start an episode in some lanes, or in all; with an integer `seed`, lane i gets seed + i.

        Raises:
            TypeError: The instance is not of the problem's instance class.
            ValueError: An option is unknown, or the instance is invalid.
        """
        lanes = self._lanes(env_id)
        observations, info = self._begin(lanes, seed, options)
        return self._batch(observations, lanes), tianshou_infos(info, lanes)

    def step(self, action: Any, id: Lanes = None) -> tuple[Any, Array, Array, Array, Array]:  # noqa: A002
        """Visit a node in some lanes, or in all. Lanes whose episode has ended need a `reset`.

        Returns:
            Observations (a `Batch`), rewards (float64), terminated, truncated and infos of these lanes.

        Raises:
            InvalidAction: The actions are not one integer per lane, or one is not a node, or illegal with
                `on_illegal="raise"`.
            ResetNeeded: The episode of a lane has ended, or a step left the lane out since its last reset.
        """
        lanes = self._lanes(id)
        wrong = lanes[(self._ended | self._left_out)[lanes]]
        if len(wrong):
            raise ResetNeeded(
                f"lane {wrong[0]}: its episode has ended, or a step left it out; call reset([{wrong[0]}])"
            )
        with TIANSHOU.explain_illegal():
            observations, rewards, terminated, truncated, info = self.vector_env.step(self._fill(action, lanes))
        self._ended = terminated
        self._left_out |= self._others(lanes)
        picked = (array[lanes] for array in (rewards, terminated, truncated))
        return self._batch(observations, lanes), *picked, tianshou_infos(info, lanes)

    def _fill(self, action: Any, lanes: Array) -> Array:
        """Add legal actions for the lanes that are left out; those that have ended restart on the same instance."""
        given = np.asarray(action)
        if given.shape != lanes.shape:
            raise InvalidAction(f"action: expected shape {lanes.shape}, one per lane; got {given.shape}")
        actions = np.zeros(self.env_num, dtype=given.dtype)
        if len(lanes) < self.env_num:
            others = self._others(lanes)
            if self._ended[others].any():
                again = {"reset_mask": others & self._ended, "instance": self.vector_env.instance}
                self.vector_env.reset(options=again)
            actions[others] = self.vector_env.action_masks().argmax(axis=1)[others]
        actions[lanes] = given
        return actions

    def _begin(self, lanes: Array, seed: Any, options: dict[str, Any] | None) -> tuple[Observation, dict[str, Any]]:
        """Start an episode in some lanes; return the observations and infos of all."""
        options = dict(options or {})
        if len(lanes) < self.env_num:
            options["reset_mask"] = ~self._others(lanes)
        result = self.vector_env.reset(seed=seed, options=options)
        self._ended = self._ended & self._others(lanes)
        self._left_out[lanes] = False
        return result

    def _others(self, lanes: Array) -> npt.NDArray[np.bool_]:
        others = np.ones(self.env_num, dtype=np.bool_)
        others[lanes] = False
        return others

    def _lanes(self, given: Lanes) -> Array:
        return np.arange(self.env_num) if given is None else np.atleast_1d(np.asarray(given))

    def _batch(self, observations: Observation, lanes: Array) -> Any:
        return Batch(self.layout.arrange(observations))[lanes]

    def get_env_attr(self, key: str, id: Lanes = None) -> list[Any]:  # noqa: A002
        """Return an attribute of each lane, such as `action_space`."""
        lanes = self._lanes(id).tolist()
        if key == "observation_space":
            return [self.layout.single_space()] * len(lanes)
        return lane_attributes(self.vector_env, key, lanes)

    def set_env_attr(self, key: str, value: Any, id: Lanes = None) -> None:  # noqa: A002
        """Raise an error, because the lanes share one environment.

        Raises:
            AttributeError: Always.
        """
        raise AttributeError(f"set_env_attr: make another TianshouVectorEnv, with another {key}")

    def render(self) -> list[Any]:
        """Draw each lane's instance and tour so far, according to the `render_mode`."""
        return list(self.vector_env.render() or [None] * self.env_num)

    def close(self) -> None:
        self.vector_env.close()
        self.is_closed = True


def tianshou_infos(info: dict[str, Any], lanes: Array) -> Array:
    """Return the infos of some lanes, one dictionary each."""
    rows = zip(lanes.tolist(), info["illegal_action"][lanes].tolist(), info["cost"][lanes].tolist(), strict=True)
    return np.array([{"env_id": lane, "illegal_action": illegal, "cost": cost} for lane, illegal, cost in rows])
