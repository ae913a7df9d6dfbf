"""Lanes side by side, each in an episode of its own: what the environments of problems and of games share."""

from __future__ import annotations

from collections.abc import Sequence
from operator import methodcaller
from typing import Any

import numpy as np
import numpy.typing as npt
from array_api_compat import array_namespace
from gymnasium import logger, spaces
from gymnasium.error import ResetNeeded
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from routing_gym.arrays import Array, converter, map_arrays, select, to_numpy
from routing_gym.env_arguments import Generator, check_options, check_render_mode, draw_instances

Lanes = npt.NDArray[np.intp]
Observation = dict[str, Any]
Info = dict[str, Any]


class LaneArrays:
    """The arrays of B lanes on their backend.

    Attributes:
        shape: (B,), or () for a single environment.
        move: Brings an array to the backend and device.
        xp: The backend's array-API namespace.
        copy: Copies an array.
        started: Whether the lanes have been reset.
    """

    def __init__(self, shape: tuple[()] | tuple[int], backend: str, device: str | None) -> None:
        self.shape = shape
        self.backend = backend
        self.device = device
        self.copy = methodcaller("clone" if backend == "torch" else "copy")
        self.started = False
        self.connect()

    def connect(self) -> None:
        """Look up the backend: how to move an array to it, and its array-API namespace.

        Raises:
            ValueError: The backend is JAX, whose arrays cannot be written to, or there is no such backend or device.
        """
        if self.backend == "jax":
            raise ValueError('backend="jax": environments write to their arrays; use routing_gym.integrations.jax')
        self.move = converter(self.backend, self.device)
        self.xp = array_namespace(self.move(np.zeros(0)))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("move", "xp")}  # cannot be pickled

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.connect()

    @property
    def batch_size(self) -> int:
        return self.shape[0] if self.shape else 1

    def where(self, lanes: Array, first: Array, second: Array) -> Array:
        """Pick the first array's rows in the lanes marked by bool (B,), else the second's."""
        return self.xp.where(self.xp.reshape(lanes, (self.batch_size, *(1,) * (second.ndim - 1))), first, second)

    def require_start(self, use: str) -> None:
        """Raise ResetNeeded before the first reset; `use` is what asks, such as "step()"."""
        if not self.started:
            raise ResetNeeded(f"call reset() before {use}")

    def own(self, batch: Any) -> Any:
        """Copy a batch to the backend."""
        return map_arrays(lambda x: self.copy(self.move(x)), batch)

    def place(self, lane: int) -> str:
        """Say which lane an error is about, where there are several."""
        return f"lane {lane}: " if self.shape else ""


def write(target: Array, index: Array, rows: Array) -> Array:
    """Overwrite some rows of an array in place, and return it."""
    target[index] = rows
    return target


class LaneVectorEnv(VectorEnv[Observation, Array, Array]):
    """Resets, steps and seeds lanes as Gymnasium's vector environments do.

    Args:
        episodes: The lanes, with a `problem` (or game) whose instances they play.
        single_observation_space: Of one lane.
        single_action_space: Of one lane.
        autoreset_mode: As `RoutingVectorEnv`'s.
        copy: As `RoutingVectorEnv`'s.
        generator: As `RoutingVectorEnv`'s.
        render_mode: One that the class's metadata name, or None.
    """

    def __init__(
        self,
        episodes: Any,
        single_observation_space: spaces.Space[Any],
        single_action_space: spaces.Space[Any],
        autoreset_mode: str | AutoresetMode,
        copy: bool,
        generator: Generator | None,
        render_mode: str | None,
    ) -> None:
        self.num_envs = episodes.batch_size
        self.backend, self.device = episodes.backend, episodes.device
        try:
            self.autoreset_mode = AutoresetMode(autoreset_mode)
        except ValueError:
            modes = ", ".join(mode.value for mode in AutoresetMode)
            raise ValueError(f"autoreset_mode must be one of {modes}; got {autoreset_mode!r}") from None
        self.metadata = {**type(self).metadata, "autoreset_mode": self.autoreset_mode}
        self.render_mode = check_render_mode(type(self), render_mode)
        self.copy = copy
        self.generator = generator
        self.single_action_space = single_action_space
        self.single_observation_space = single_observation_space
        self.action_space = batch_space(single_action_space, self.num_envs)
        self.observation_space = batch_space(single_observation_space, self.num_envs)
        self._episodes = episodes
        self._everyone = self._flags(np.arange(self.num_envs))
        self._nobody = ~self._everyone
        self._generators: list[np.random.Generator] = []  # one per lane
        self._seeds: list[int] = []

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Observation, Info]:
        """Begin an episode in every lane, or in some; see "Reset options" in the class.

        Args:
            seed: Lane i gets `seed + i`, or its entry of a sequence; None goes on with the generators there are.
            options: Left unchanged.

        Raises:
            ResetNeeded: A `reset_mask` before the first reset.
            TypeError: The instance is not of the problem's instance class, or the seed is of a wrong type.
            ValueError: An unknown option, an invalid instance, mask or number of seeds.
        """
        given = check_options(options, self._episodes.problem, self.num_envs, ["instance", "reset_mask"])
        lanes = np.flatnonzero(given["reset_mask"]) if "reset_mask" in given else np.arange(self.num_envs)
        if len(lanes) < self.num_envs:
            self._episodes.require_start("reset(options={'reset_mask': ...})")
        self._seed(seed, lanes)
        instance = select(given["instance"], lanes) if "instance" in given else self._draw(lanes)
        self._episodes.restart(lanes, instance)
        self._episodes.refresh_mask()
        info = self._episodes.info(self.copy)
        if len(lanes) < self.num_envs:
            index = self._episodes.move(lanes)
            return self._episodes.observe(self.copy), self._fill({k: v[index] for k, v in info.items()}, lanes)
        return self._episodes.observe(self.copy), self._mark(info)

    def step(self, actions: Any) -> tuple[Observation, Array, Array, Array, Info]:
        """Act in every lane; lanes whose episode ends start anew as the autoreset mode says.

        Raises:
            InvalidAction: Of a wrong shape or type, one that does not exist, or illegal where that is to raise.
            ResetNeeded: Before the first reset, or, with autoreset disabled, in a lane whose episode has ended.
        """
        episodes = self._episodes
        episodes.require_start("step()")
        finished = np.flatnonzero(to_numpy(episodes.finished))
        if len(finished) and self.autoreset_mode is AutoresetMode.DISABLED:
            raise ResetNeeded(
                f"lane {finished[0]}: the episode has ended; autoreset is disabled, so call "
                "reset(options={'reset_mask': terminated}) first"
            )
        rewards = episodes.step(actions, idle=finished)
        terminated = episodes.copy(episodes.finished)
        infos: Info = {}
        if self.autoreset_mode is AutoresetMode.SAME_STEP:
            finished = np.flatnonzero(to_numpy(terminated))
            infos = self._final(finished) if len(finished) else {}
        elif len(finished):
            index = episodes.move(finished)
            rewards[index] = 0.0
            terminated[index] = False
        if len(finished):
            episodes.restart(finished, self._draw(finished))
        episodes.refresh_mask()
        infos |= self._mark(episodes.info(self.copy))
        return episodes.observe(self.copy), rewards, terminated, episodes.copy(self._nobody), infos

    def _draw(self, lanes: Lanes) -> Any:
        return draw_instances(self._episodes.problem, [self._generators[lane] for lane in lanes], self.generator)

    def _final(self, lanes: Lanes) -> Info:
        """Return `final_obs` and `final_info` of lanes that have ended and are about to start anew."""
        observations, info = self._episodes.observe_final(lanes)
        final_obs = np.full(self.num_envs, None, dtype=object)
        for row, lane in enumerate(lanes):
            final_obs[lane] = {key: value[row] for key, value in observations.items()}
        return {
            "final_obs": final_obs,
            "_final_obs": self._flags(lanes),
            "final_info": self._fill(info, lanes),
            "_final_info": self._flags(lanes),
        }

    def _flags(self, lanes: Lanes) -> Array:
        """Mark some lanes: bool (B,)."""
        flags = np.zeros(self.num_envs, dtype=np.bool_)
        flags[lanes] = True
        return self._episodes.move(flags)

    def _mark(self, info: Info) -> Info:
        """Add Gymnasium's `_key`, which says who has a `key`: every lane."""
        return info | {f"_{key}": self._episodes.copy(self._everyone) for key in info}

    def _fill(self, info: Info, lanes: Lanes) -> Info:
        """Put the rows of some lanes among zeros, and add `_key`, which marks them."""
        xp, index, filled = self._episodes.xp, self._episodes.move(lanes), {}
        for key, rows in info.items():
            filled[key] = xp.zeros((self.num_envs, *rows.shape[1:]), dtype=rows.dtype, device=rows.device)
            filled[key][index] = rows
            filled[f"_{key}"] = self._flags(lanes)
        return filled

    def _seed(self, seed: int | Sequence[int | None] | None, lanes: Lanes) -> None:
        """Give the lanes their random generators."""
        seeds: Sequence[int | None]
        if seed is None:
            seeds = [None] * self.num_envs
        elif isinstance(seed, int):
            seeds = [seed + lane for lane in range(self.num_envs)]
        elif hasattr(seed, "__len__"):
            seeds = list(seed)
        else:
            raise TypeError(f"seed: expected an integer or one per lane, got {type(seed).__name__}")
        if len(seeds) != self.num_envs:
            raise ValueError(f"seed: expected {self.num_envs} seeds, one per lane, got {len(seeds)}")
        if not self._generators:
            self._generators, self._seeds = map(list, zip(*map(seeding.np_random, seeds), strict=True))
            return
        for lane in lanes:
            if seeds[lane] is not None:
                self._generators[lane], self._seeds[lane] = seeding.np_random(seeds[lane])

    @property  # type: ignore[misc]  # read-only
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]
        """The random generator of each lane."""
        if not self._generators:
            self._seed(None, np.arange(0))
        return tuple(self._generators)

    @property
    def np_random_seed(self) -> tuple[int, ...]:  # type: ignore[override]
        """The seed of each lane."""
        if not self._generators:
            self._seed(None, np.arange(0))
        return tuple(self._seeds)

    @property
    def instance(self) -> Any:
        """A copy of the B instances."""
        self._episodes.require_start("instance")
        return self._episodes.own(self._episodes.instance)

    @property
    def state(self) -> Any:
        """A copy of the B states."""
        self._episodes.require_start("state")
        return self._episodes.own(self._episodes.state)

    def render(self) -> tuple[Any, ...] | None:
        """Draw each lane as it stands; None, with a warning, without a render mode."""
        if self.render_mode is None:
            logger.warn('render() does nothing: make the environment with a render_mode, as in render_mode="ansi"')
            return None
        pictures: tuple[Any, ...] = self._episodes.render(self.render_mode)
        return pictures
