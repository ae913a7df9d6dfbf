"""Vectorised environment of games, and its episodes, which the PettingZoo environment also uses."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
from gymnasium.error import InvalidAction
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from routing_gym.arrays import Array, map_arrays, select, to_numpy
from routing_gym.envs.arguments import Generator
from routing_gym.envs.lanes import LaneArrays, Lanes, write
from routing_gym.envs.vector import LaneVectorEnv
from routing_gym.multi_agent import pictures
from routing_gym.multi_agent.game import AnyGame, Game
from routing_gym.problems.checks import check_integer


class GameEpisodes(LaneArrays):
    """B lanes, each with its own game.

    Attributes:
        problem: The game.
        instance: B instances.
        state: B states.
        mask: bool (B, m, A), the legal actions, or None if all are legal; call `refresh_mask` after `start`,
            `restart` and `step`.
        gained: float64 (B, m), prize that each agent has collected in the game so far.
        finished: bool (B,), whether the game has ended.
        illegal: bool (B, m), whether the agent's latest action was illegal and replaced by 0.
        trail: The latest states of all lanes, if kept.
    """

    def __init__(
        self, game: AnyGame, num_lanes: int, backend: str = "numpy", device: str | None = None, keep_trail: bool = False
    ) -> None:
        if not isinstance(game, Game):
            raise TypeError(f"game: expected a Game such as CompetitiveOP(8), got {game!r}")
        super().__init__((check_integer("num_envs", num_lanes, 1),), backend, device)
        self.problem = game
        self.keep_trail = keep_trail
        self.mask: Array | None = None

    def start(self, instance: Any) -> None:
        """Start a game in every lane, on B instances of any backend."""
        self.instance = self.own(instance)
        self.state = self.problem.initial(self.instance)
        self.gained = self.move(np.zeros((self.batch_size, self.problem.num_agents)))
        self.illegal = self.gained > 0
        self.finished = self.problem.done(self.instance, self.state)
        self.trail = deque([self.state] if self.keep_trail else [])
        self.begin = np.zeros(self.batch_size, dtype=np.int64)  # place in the trail at which each lane's game began
        self.started = True

    def restart(self, lanes: Lanes, instance: Any) -> None:
        """Start a game in some lanes, on one instance for each of them."""
        if len(lanes) == self.batch_size:
            return self.start(instance)
        index, fresh = self.move(lanes), self.own(instance)
        map_arrays(lambda old, new: write(old, index, new), self.instance, fresh)
        self.state = map_arrays(
            lambda old, new: write(self.copy(old), index, new), self.state, self.problem.initial(fresh)
        )
        for name in ("gained", "illegal", "finished"):
            setattr(self, name, write(self.copy(getattr(self, name)), index, 0))
        if self.keep_trail:
            self.trail[-1] = self.state
            self.begin[lanes] = len(self.trail) - 1
            for _ in range(self.begin.min()):
                self.trail.popleft()
            self.begin -= self.begin.min()
        return None

    def refresh_mask(self) -> None:
        """Compute the mask. Separate from `step`, so that it is computed only once when lanes are reset."""
        if self.problem.num_actions is not None:
            self.mask = self.problem.action_mask(self.instance, self.state)

    def step(self, actions: Any, idle: Lanes) -> Array:
        """Apply the actions of all agents of all lanes.

        Args:
            actions: Actions (B, m) as integers, or (B, m, ...) as floats.
            idle: Lanes that are reset after this step. Their actions are ignored, and their results are meaningless.

        Returns:
            Rewards: float64 (B, m).

        Raises:
            InvalidAction: An action has a wrong shape or type, does not exist, or is not finite.
            ResetNeeded: Before the first reset.
        """
        self.require_start("step()")
        taken = self.as_actions(actions, idle)
        if self.mask is not None:
            choices = self.xp.arange(self.mask.shape[-1], device=taken.device)
            self.illegal = ~self.xp.any(self.mask & (taken[..., None] == choices), axis=-1)
        self.state, gains = self.problem.step(self.instance, self.state, taken)
        self.finished = self.problem.done(self.instance, self.state)
        if len(idle):
            self.finished[self.move(idle)] = True  # until they are reset
        self.gained = self.gained + gains
        if self.keep_trail:
            self.trail.append(self.state)
        return self.problem.rewards(gains)

    def as_actions(self, actions: Any, idle: Lanes) -> Array:
        """Check type, shape and range; return a copy with zeros in the idle lanes."""
        values, continuous = self.as_array(actions), self.problem.num_actions is None
        space = self.problem.action_space()
        shape = (self.batch_size, self.problem.num_agents, *(space.shape or ()))
        if tuple(values.shape) != shape:
            raise InvalidAction(f"actions: expected shape {shape}, one row per lane; got {tuple(values.shape)}")
        kind, name = ("real floating", "floats") if continuous else ("integral", "integers")
        if not self.xp.isdtype(values.dtype, kind):
            raise InvalidAction(f"actions: expected {name}, got {values.dtype}")
        taken = self.copy(values) if continuous else self.xp.astype(values, self.xp.int64, copy=True)
        if len(idle):
            write(taken, self.move(idle), 0)
        bad = ~self.xp.isfinite(taken) if continuous else (taken < 0) | (taken >= self.problem.num_actions)
        if bool(self.xp.any(bad)):
            lane, agent, *_ = map(int, np.argwhere(to_numpy(bad))[0])
            found, last = taken[lane, agent].tolist(), self.problem.num_actions
            bounds = "velocities must be finite" if last is None else f"actions are 0 to {last - 1}"
            raise InvalidAction(f"{self.name_of(lane, agent)}: action {found} does not exist; {bounds}")
        return taken

    def name_of(self, lane: int, agent: int) -> str:
        """Return the name of an agent, for error messages."""
        return f"{self.place(lane)}agent {agent}"

    def observe(self, copy: bool) -> dict[str, Array]:
        """Return the observations of the agents of all lanes, in new arrays."""
        return self.problem.observe(self.instance, self.state)

    def observe_final(self, lanes: Lanes) -> tuple[dict[str, Array], dict[str, Array]]:
        """Return the observations and infos of some lanes, before they are reset."""
        self.refresh_mask()
        index = self.move(lanes)
        seen = self.problem.observe(select(self.instance, index), select(self.state, index))
        return seen, {key: value[index] for key, value in self.info(copy=True).items()}

    def info(self, copy: bool) -> dict[str, Array]:
        """Return the info of all lanes; without `copy`, it may share memory with this object."""
        info = {"gained": self.gained}
        if self.mask is not None:
            info |= {"illegal_action": self.illegal, "action_mask": self.mask.view(self.xp.int8)}
        return {key: self.copy(value) for key, value in info.items()} if copy else info

    def render(self, render_mode: str) -> tuple[Any, ...]:
        """Draw each lane's game: see the functions of `routing_gym.multi_agent.pictures`."""
        self.require_start("render()")
        draw = {"rgb_array": pictures.to_rgb_array, "ansi": pictures.to_text}[render_mode]
        instance = map_arrays(to_numpy, self.instance)
        trail = [map_arrays(to_numpy, state) for state in self.trail]
        lanes = [slice(lane, lane + 1) for lane in range(self.batch_size)]
        return tuple(
            draw(self.problem, select(instance, lane), [select(state, lane) for state in trail[begin:]])
            for lane, begin in zip(lanes, self.begin, strict=True)
        )


class GameVectorEnv(LaneVectorEnv):
    """Vectorised environment of games with m agents in each lane.

    Lane i of `reset(seed=s)` gets the same instances as the PettingZoo environment with seed s + i, game
    after game. `reset` and `step` return arrays whose first axes are lanes and agents: observations
    (B, m, ...), rewards float64 (B, m). All agents of a lane end together: `terminated` is (B,). Gymnasium's vector
    wrappers of rewards, such as RecordEpisodeStatistics, expect rewards (B,) and do not apply.

    `info` contains `gained` (B, m), the prize that each agent has collected in this game. With targets, it also
    contains `action_mask` (B, m, A) and `illegal_action` (B, m): whether the latest action was illegal and replaced by
    0.

    ## Reset options

    - `{"instance": instance}`: use these `num_envs` instances for this reset; autoresets draw random ones.
    - `{"reset_mask": mask}`: reset only the lanes where `mask`, bool (`num_envs`,), is True.

    Args:
        game: Game, such as `CompetitiveOP(8)`.
        num_envs: Number of lanes.
        autoreset_mode: "NextStep", "SameStep" or "Disabled", or a `gymnasium.vector.AutoresetMode`. NextStep
            ignores the actions of a lane that is reset.
        backend: "numpy" or "torch": `reset` and `step` return arrays or tensors. Actions may be either.
        device: Device of torch, such as "cuda".
        copy: Whether to copy `info`. Without a copy, it may share memory with the environment, and must not be written
            to.
        generator: Function that replaces `Game.generate`: called per lane as `generator(rng, 1)`, returns one instance.
        render_mode: None, "rgb_array" or "ansi" (text).

    Raises:
        TypeError: `game` is not a `Game`.
        ValueError: An argument has an invalid value.
        ImportError: torch is missing for `backend="torch"`.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array", "ansi"], "render_fps": 4}  # noqa: RUF012
    _episodes: GameEpisodes

    def __init__(
        self,
        game: AnyGame,
        num_envs: int = 1,
        *,
        autoreset_mode: str | AutoresetMode = "NextStep",
        backend: str = "numpy",
        device: str | None = None,
        copy: bool = True,
        generator: Generator | None = None,
        render_mode: str | None = None,
    ) -> None:
        episodes = GameEpisodes(game, num_envs, backend, device, keep_trail=render_mode is not None)
        self.game = game
        super().__init__(
            episodes,
            batch_space(game.observation_space(), game.num_agents),
            batch_space(game.action_space(), game.num_agents),
            autoreset_mode,
            copy,
            generator,
            render_mode,
        )

    def global_state(self) -> Array:
        """Return the complete state of each lane's game, for central critics: float32 (B, S)."""
        self._episodes.require_start("global_state()")
        return self.game.global_state(self._episodes.instance, self._episodes.state)
