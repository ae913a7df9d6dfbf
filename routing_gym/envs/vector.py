"""Vectorised Gymnasium environment: many parallel episodes, each in its own lane."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import logger, spaces
from gymnasium.error import ResetNeeded
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from routing_gym.arrays import Array, select, to_numpy
from routing_gym.envs.arguments import (
    Generator,
    check_generator,
    check_mask,
    check_no_time_limit,
    check_options,
    check_render_mode,
    draw_instances,
    resolve_problem,
)
from routing_gym.envs.episodes import Episodes, OnIllegal, Reward, Snapshot
from routing_gym.envs.lanes import NO_MODE, Info, Lanes, Observation
from routing_gym.problem import AnyProblem
from routing_gym.problems.checks import check_flag, check_integer


class LaneVectorEnv(VectorEnv[Observation, Array, Array]):
    """Vectorised environment of lanes, which are reset, stepped and seeded like those of Gymnasium.

    Args:
        episodes: The lanes, with the `problem` (or game) of their instances.
        single_observation_space: Observation space of one lane.
        single_action_space: Action space of one lane.
        autoreset_mode: See `RoutingVectorEnv`.
        copy: See `RoutingVectorEnv`.
        generator: See `RoutingVectorEnv`.
        render_mode: One of the render modes in the class's metadata, or None.
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
        self.metadata = {**self.metadata, "autoreset_mode": self.autoreset_mode}
        self.render_mode = check_render_mode(self, render_mode)
        self.copy = check_flag("copy", copy)
        self.generator = check_generator(generator)
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
        """Start an episode in every lane, or in some; see "Reset options" in the class.

        Args:
            seed: Random seed. Lane i gets `seed + i`, or its entry of a sequence; None keeps the current generators.
            options: Reset options; not modified.

        Raises:
            ResetNeeded: A `reset_mask` is given before the first reset.
            TypeError: The instance is not of the problem's instance class, or the seed is of a wrong type.
            ValueError: An option is unknown, or the instance, the mask or the number of seeds is invalid.
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
        """Apply one action in every lane; lanes whose episode ends are reset according to the autoreset mode.

        Raises:
            InvalidAction: An action has a wrong shape or type, is not a node, or is illegal with `on_illegal="raise"`.
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
        """Return `final_obs` and `final_info` of lanes that have ended and are about to be reset."""
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
        """Return a mask of some lanes: bool (B,)."""
        flags = np.zeros(self.num_envs, dtype=np.bool_)
        flags[lanes] = True
        return self._episodes.move(flags)

    def _mark(self, info: Info) -> Info:
        """Add Gymnasium's `_key`, the mask of the lanes that have a `key`: all of them."""
        return info | {f"_{key}": self._episodes.copy(self._everyone) for key in info}

    def _fill(self, info: Info, lanes: Lanes) -> Info:
        """Pad the rows of some lanes to all lanes with zeros (objects: None), and add `_key`, their mask."""
        xp, index, filled = self._episodes.xp, self._episodes.move(lanes), {}
        for key, rows in info.items():
            shape = (self.num_envs, *rows.shape[1:])
            if rows.dtype == np.object_:
                filled[key] = np.full(shape, None, dtype=object)
            else:
                filled[key] = xp.zeros(shape, dtype=rows.dtype, device=rows.device)
            filled[key][index] = rows
            filled[f"_{key}"] = self._flags(lanes)
        return filled

    def _seed(self, seed: int | Sequence[int | None] | None, lanes: Lanes) -> None:
        """Set the random number generators of the lanes."""
        seeds: Sequence[int | None]
        if seed is None:
            seeds = [None] * self.num_envs
        elif isinstance(seed, (int, np.integer)):
            seeds = [int(seed) + lane for lane in range(self.num_envs)]
        elif isinstance(seed, Sequence | np.ndarray) and getattr(seed, "ndim", 1) == 1:
            seeds = list(seed)
        else:
            raise TypeError(f"seed: expected an integer or one per lane, got {type(seed).__name__}")
        if len(seeds) != self.num_envs:
            raise ValueError(f"seed: expected {self.num_envs} seeds, one per lane, got {len(seeds)}")
        if not self._generators:
            self._generators, self._seeds = map(list, zip(*map(seeding.np_random, seeds), strict=True))
            return
        # An invalid seed raises before any lane is changed.
        seeded = {lane: seeding.np_random(seeds[lane]) for lane in lanes if seeds[lane] is not None}
        for lane, (generator, number) in seeded.items():
            self._generators[lane], self._seeds[lane] = generator, number

    @property  # type: ignore[misc]  # read-only
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]
        """The random number generator of each lane."""
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
        """Draw each lane's current tour; without a render mode, warn and return None."""
        if self.render_mode is None:
            logger.warn(NO_MODE)
            return None
        pictures: tuple[Any, ...] = self._episodes.render(self.render_mode)
        return pictures


class RoutingVectorEnv(LaneVectorEnv):
    """Vectorised environment of one routing problem: the native vector form of `RoutingEnv`.

    `gym.make_vec("routing/TSP-50", num_envs=1024)`. Lane i of `reset(seed=s)` gets the same instances as
    `gym.make(...).reset(seed=s + i)`, episode after episode. The return values of `reset` and `step` have the layout
    of Gymnasium's `SyncVectorEnv`, `final_obs` and `final_info` included; rewards are float64.

    ## Reset options

    - `{"instance": instance}`: use these `num_envs` instances for this reset; autoresets draw random ones.
    - `{"reset_mask": mask}`: reset only the lanes where `mask`, bool (`num_envs`,), is True.

    Args:
        problem: Name of a problem, or a `Problem`.
        num_nodes: Number of cities, or of customers; see `RoutingEnv`. Only with a name.
        num_envs: Number of lanes.
        autoreset_mode: "NextStep", "SameStep" or "Disabled", or a `gymnasium.vector.AutoresetMode`; the
            strings keep `spec.to_json()` working. NextStep ignores the action of a lane that is reset.
        backend: "numpy" or "torch": `reset` and `step` return arrays or tensors. Actions may be either.
        device: Device of torch, such as "cuda".
        copy: Whether to copy the returned arrays. Without a copy, they may share memory with the environment, may
            change with the next step and must not be written to; this saves one copy of the observations per step.
        generator: Function that replaces `Problem.generate`: called per lane as `generator(rng, 1)`, returns one
            instance.
        reward: "dense" or "sparse".
        on_illegal: "terminate" or "raise".
        render_mode: None, "rgb_array" or "ansi" (text).
        **settings: Settings of the problem, such as `capacity`; only with a name.

    Attributes:
        problem: The `Problem` of the instances.

    Raises:
        TypeError: A keyword is unknown, or `num_nodes` is missing, or given although `problem` is a `Problem`.
        ValueError: An argument has an invalid value.
        ImportError: torch is missing for `backend="torch"`.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array", "ansi"], "render_fps": 4}  # noqa: RUF012
    _episodes: Episodes

    def __init__(
        self,
        problem: str | AnyProblem = "TSP",
        num_nodes: int | None = None,
        num_envs: int = 1,
        *,
        autoreset_mode: str | AutoresetMode = "NextStep",
        backend: str = "numpy",
        device: str | None = None,
        copy: bool = True,
        generator: Generator | None = None,
        reward: Reward = "dense",
        on_illegal: OnIllegal = "terminate",
        render_mode: str | None = None,
        **settings: Any,
    ) -> None:
        check_no_time_limit(settings)
        self.problem = resolve_problem(type(self), problem, num_nodes, settings)
        self.on_illegal = on_illegal
        shape = (check_integer("num_envs", num_envs, 1),)
        super().__init__(
            Episodes(self.problem, shape, reward, on_illegal, backend, device),
            self.problem.observation_space(),
            spaces.Discrete(self.problem.num_actions),
            autoreset_mode,
            copy,
            generator,
            render_mode,
        )

    def action_masks(self) -> Array:
        """Return the mask of the legal actions, bool (B, A), in the form that sb3-contrib expects."""
        self._episodes.require_start("action_masks()")
        return self._episodes.copy(self._episodes.mask) if self.copy else self._episodes.mask

    def step_some(self, actions: Any, mask: Array) -> tuple[Observation, Array, Array]:
        """Apply one action in the lanes where `mask`, bool (`num_envs`,), is True; the others stay as they are.

        It needs `autoreset_mode="Disabled"`.

        Returns:
            Observations, rewards (0 in the other lanes) and whether each episode has ended. No lane is reset.

        Raises:
            InvalidAction: See `step`.
            ResetNeeded: Before the first reset, or the mask marks a lane whose episode has ended.
            TypeError: The mask is not bool.
            ValueError: The mask's shape is wrong, or it marks no lane; or `autoreset_mode` is not "Disabled".
        """
        if self.autoreset_mode != AutoresetMode.DISABLED:
            raise ValueError(f'step_some: needs autoreset_mode="Disabled", got {self.autoreset_mode.value!r}')
        episodes, chosen = self._episodes, check_mask(mask, self.num_envs, "mask")
        episodes.require_start("step_some()")
        if (ended := np.flatnonzero(chosen & to_numpy(episodes.finished))).size:
            raise ResetNeeded(f"lane {ended[0]}: the episode has ended; leave the lane out of the mask, or reset it")
        rewards = episodes.step_some(actions, idle=np.flatnonzero(~chosen))
        episodes.refresh_mask()
        return episodes.observe(self.copy), rewards, episodes.copy(episodes.finished)

    @property
    def tour(self) -> list[npt.NDArray[np.int64]]:
        """Actions of each lane's episode so far, like `RoutingEnv.tour`."""
        self._episodes.require_start("tour")
        return self._episodes.tours()

    def get_state(self) -> Snapshot:
        """Return a copy of the complete state, the random number generators included, for search."""
        return self._episodes.save(self._generators)

    def set_state(self, snapshot: Snapshot) -> None:
        """Restore the state that `get_state` returned, in this or another environment of the same problem and size.

        Raises:
            TypeError: The snapshot is not from `get_state`.
            ValueError: The snapshot belongs to another problem or number of lanes.
        """
        self._episodes.load(snapshot, self.np_random)
