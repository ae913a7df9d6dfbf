"""Many episodes side by side, each in a lane of its own, as one Gymnasium vector environment."""

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
    check_options,
    check_render_mode,
    draw_instances,
    resolve_problem,
)
from routing_gym.envs.episodes import Episodes, OnIllegal, Reward, Snapshot
from routing_gym.envs.lanes import Lanes
from routing_gym.problem import AnyProblem
from routing_gym.problems.checks import check_integer

Observation = dict[str, Any]
Info = dict[str, Any]


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
        """Put the rows of some lanes among zeros (objects: among None), and add `_key`, which marks them."""
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
        """Set the random generators of the lanes."""
        seeds: Sequence[int | None]
        if seed is None:
            seeds = [None] * self.num_envs
        elif isinstance(seed, (int, np.integer)):
            seeds = [int(seed) + lane for lane in range(self.num_envs)]
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


class RoutingVectorEnv(LaneVectorEnv):
    """Many instances of one routing problem at once: the native vector form of `RoutingEnv`.

    `gym.make_vec("routing/TSP-50", num_envs=1024)`. Lane i of `reset(seed=s)` plays the same instances as
    `gym.make(...).reset(seed=s + i)`, episode after episode. What `reset` and `step` return has the layout
    of Gymnasium's `SyncVectorEnv`, `final_obs` and `final_info` included; rewards are float64.

    ## Reset options

    - `{"instance": instance}`: use these `num_envs` instances for this reset; autoresets draw random ones.
    - `{"reset_mask": mask}`: reset only the lanes where `mask`, bool (`num_envs`,), is True.

    Args:
        problem: Name of a problem, or a `Problem`.
        num_nodes: As `RoutingEnv`'s; only with a name.
        num_envs: Number of lanes.
        autoreset_mode: "NextStep", "SameStep" or "Disabled", or a `gymnasium.vector.AutoresetMode`; the
            strings keep `spec.to_json()` working. NextStep ignores the action of a lane that starts anew.
        backend: "numpy" or "torch"; what `reset` and `step` return are arrays or tensors. Actions may be either.
        device: For torch, such as "cuda".
        copy: Without it, what is returned may share memory with the environment and change with the next
            step, and must not be written to; saves one copy of the observations per step.
        generator: Replaces `Problem.generate`: called per lane as `generator(rng, 1)`, returns one instance.
        reward: "dense" or "sparse".
        on_illegal: "terminate" or "raise".
        render_mode: None, "rgb_array" or "ansi" (text).
        **settings: The problem's own, such as `capacity`; only with a name.

    Raises:
        TypeError: An unknown keyword, `num_nodes` missing, or given although `problem` is a `Problem`.
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
        """Return the legal actions, bool (B, A), as sb3-contrib asks for them."""
        self._episodes.require_start("action_masks()")
        return self._episodes.copy(self._episodes.mask) if self.copy else self._episodes.mask

    @property
    def tour(self) -> list[npt.NDArray[np.int64]]:
        """Each lane's actions of the episode so far, as `RoutingEnv.tour`."""
        self._episodes.require_start("tour")
        return self._episodes.tours()

    def get_state(self) -> Snapshot:
        """Copy everything that decides what follows, the random generators included. For search."""
        return self._episodes.save(self._generators)

    def set_state(self, snapshot: Snapshot) -> None:
        """Restore the state that `get_state` returned, in this or another environment of the same problem and size.

        Raises:
            TypeError: Not from `get_state`.
            ValueError: Of another problem or number of lanes.
        """
        self._episodes.load(snapshot, self.np_random)
