"""PettingZoo: a game as a `ParallelEnv`, for libraries of multi-agent reinforcement learning.

    from routing_gym import CompetitiveOP
    from routing_gym.integrations.pettingzoo import GameParallelEnv

    env = GameParallelEnv(CompetitiveOP(8))
    observations, infos = env.reset(seed=0)

For your own training loop, `routing_gym.multi_agent.environments.GameVectorEnv` steps many games at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import logger, spaces
from gymnasium.error import InvalidAction, ResetNeeded
from gymnasium.utils import seeding

from routing_gym.envs.arguments import Generator, check_generator, check_instance, check_render_mode, draw_instances
from routing_gym.envs.lanes import NO_LANES
from routing_gym.multi_agent.environments import GameEpisodes
from routing_gym.multi_agent.game import AnyGame
from routing_gym.optional import explain_missing

with explain_missing("PettingZoo", "pettingzoo"):
    from pettingzoo import ParallelEnv

PerAgent = dict[str, Any]


class NamedEpisodes(GameEpisodes):
    """One game, whose error messages have PettingZoo's names of the agents."""

    def name_of(self, lane: int, agent: int) -> str:
        return f"vehicle_{agent}"


class GameParallelEnv(ParallelEnv):  # type: ignore[misc]  # of type Any: see pyproject.toml
    """PettingZoo environment of one game, with the agents `vehicle_0`, `vehicle_1` and so on.

    Observations are those of the game and include the action mask. `infos` also contain the mask, `gained` (the amount
    that the agent has collected so far) and `illegal_action` (whether its latest action was illegal and replaced by 0).
    All agents terminate together. Each agent has its own space objects, as required for seeding the spaces.

    `reset(options={"instance": instance})` plays the given instance: the game's instance dataclass with one row.
    Unknown options are ignored, because PettingZoo's own API test passes some.

    Args:
        game: Game, such as `CompetitiveOP(8)`.
        mask_in_infos: Whether infos also contain the action mask; TorchRL's wrapper accepts it in one place only.
        generator: Function that replaces `Game.generate`: called as `generator(rng, 1)`, returns one instance.
        render_mode: None, "rgb_array" or "ansi" (text).

    Raises:
        TypeError: `game` is not a `Game`.
        ValueError: The render mode is unknown.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012
        "name": "routing_game",
        "render_modes": ["rgb_array", "ansi"],
        "render_fps": 4,
        "is_parallelizable": True,
    }

    def __init__(
        self,
        game: AnyGame,
        *,
        mask_in_infos: bool = True,
        generator: Generator | None = None,
        render_mode: str | None = None,
    ) -> None:
        self._episodes = NamedEpisodes(game, 1, keep_trail=render_mode is not None)
        self.game = game
        self.mask_in_infos = mask_in_infos
        self.generator = check_generator(generator)
        self.render_mode = check_render_mode(self, render_mode)
        self.metadata = {**type(self).metadata, "name": game.name}
        self.possible_agents = [f"vehicle_{agent}" for agent in range(game.num_agents)]
        self.agents: list[str] = []
        self.observation_spaces = {agent: game.observation_space() for agent in self.possible_agents}
        self.action_spaces = {agent: game.action_space() for agent in self.possible_agents}
        self.state_space = game.state_space()
        self._rng: np.random.Generator | None = None

    def observation_space(self, agent: str) -> spaces.Dict:
        """Return an agent's observation space; the same object on every call."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Space[Any]:
        """Return an agent's action space; the same object on every call."""
        return self.action_spaces[agent]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[PerAgent, PerAgent]:
        """Start a game.

        Args:
            seed: Random seed of this and the following instances; None keeps the current generator.
            options: Options, see the class; not modified.

        Returns:
            Observations and infos, one of each per agent.

        Raises:
            TypeError: The options are not a dict, or the instance is not of the game's instance class.
            ValueError: The instance is invalid, or there are several.
        """
        if not isinstance(options, dict | None):
            raise TypeError(f"options: expected a dict or None, got {type(options).__name__}")
        if seed is not None or self._rng is None:
            self._rng, _ = seeding.np_random(seed)
        if options and "instance" in options:
            instance = check_instance(self.game, options["instance"], 1, "options['instance']")
        else:
            instance = draw_instances(self.game, [self._rng], self.generator)
        self._episodes.start(instance)
        self._episodes.refresh_mask()
        self.agents = list(self.possible_agents)
        return self._observe(), self._infos()

    def step(self, actions: PerAgent) -> tuple[PerAgent, PerAgent, PerAgent, PerAgent, PerAgent]:
        """Apply the actions of all agents.

        Args:
            actions: Action of every agent; not modified.

        Returns:
            Observations, rewards, terminations, truncations and infos, one of each per agent.

        Raises:
            InvalidAction: An agent is missing or unknown, or an action has a wrong shape or type or does not exist.
            ResetNeeded: Before the first reset, or after the end.
        """
        if not self.agents:
            raise ResetNeeded("the game has ended or not begun, and no agent is left to act: call reset() first")
        if not isinstance(actions, dict):
            raise InvalidAction(f"actions: expected a dict, one for each agent; got {type(actions).__name__}")
        if set(actions) != set(self.agents):
            missing, unknown = (
                sorted(set(self.agents) - set(actions)),
                sorted(map(str, set(actions) - set(self.agents))),
            )
            raise InvalidAction(
                f"actions: one for each of {len(self.agents)} agents; missing {missing}, unknown {unknown}; "
                "env.agents names those in the game"
            )
        acting = list(self.agents)
        rewards = self._episodes.step(self._stack(actions), NO_LANES)[0].tolist()
        self._episodes.refresh_mask()
        ended = bool(self._episodes.finished[0])
        if ended:
            self.agents = []
        return (
            self._observe(),
            dict(zip(acting, rewards, strict=True)),
            dict.fromkeys(acting, ended),
            dict.fromkeys(acting, False),
            self._infos(),
        )

    def _stack(self, actions: PerAgent) -> npt.NDArray[Any]:
        """Convert the agents' actions to an array (1, m, ...)."""
        rows = [np.asarray(actions[agent]) for agent in self.agents]
        shape = self.game.action_space().shape
        kinds, expected = ("f", "floats") if self.game.num_actions is None else ("iu", "an integer")
        for agent, row in zip(self.agents, rows, strict=True):
            if row.shape != shape:
                raise InvalidAction(f"{agent}: expected an action of shape {shape}, got {row.shape}")
            if row.dtype.kind not in kinds:
                raise InvalidAction(f"{agent}: expected {expected}, got {row.dtype}")
        dtype = np.float64 if self.game.num_actions is None else np.int64
        return np.stack(rows, dtype=dtype, casting="unsafe")[None]

    def _observe(self) -> PerAgent:
        seen = self._episodes.observe(copy=True)
        return {
            agent: {key: value[0, row].copy() for key, value in seen.items()}
            for row, agent in enumerate(self.possible_agents)
        }

    def _infos(self) -> PerAgent:
        info = self._episodes.info(copy=True)
        if not self.mask_in_infos:
            info.pop("action_mask", None)
        return {
            agent: {
                key: value[0, row].copy() if value.ndim > 2 else value[0, row].item() for key, value in info.items()
            }
            for row, agent in enumerate(self.possible_agents)
        }

    def state(self) -> npt.NDArray[np.float32]:
        """Return the complete state of the game, for central critics: float32 (S,).

        Raises:
            ResetNeeded: Before the first reset.
        """
        self._episodes.require_start("state()")
        return np.asarray(self.game.global_state(self._episodes.instance, self._episodes.state)[0])

    def render(self) -> Any:
        """Draw the game so far: uint8 (660, 600, 3), or text. Without a render mode, warn and return None."""
        if self.render_mode is None:
            logger.warn("render() does nothing: make the environment with a render_mode")
            return None
        return self._episodes.render(self.render_mode)[0]

    def close(self) -> None:
        """Do nothing: there are no resources to release."""
