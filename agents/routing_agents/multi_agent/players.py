"""Players of a game: networks, heuristics, and both in one game; and the prizes that they collect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from routing_agents.multi_agent.extractor import flatten
from routing_agents.multi_agent.networks import AgentNetwork
from routing_gym.arrays import batch_size, to_numpy
from routing_gym.multi_agent import CompetitiveOP
from routing_gym.multi_agent.environments import GameVectorEnv
from routing_gym.multi_agent.heuristics import Heuristic

Player = Callable[[GameVectorEnv, dict[str, Tensor]], Tensor]  # environment and observation -> actions (B, m)


def masked_logits(policy: AgentNetwork, observation: Tensor, mask: Tensor) -> Tensor:
    """Return logits (B, m, A) for flat observations (B, m, F), -inf for illegal actions."""
    return policy(observation).masked_fill(~mask.bool(), -torch.inf)


def greedy(policy: AgentNetwork) -> Player:
    """Return a player that takes a network's most probable choices, or its vectors."""

    @torch.no_grad()
    def play(env: GameVectorEnv, observation: dict[str, Tensor]) -> Tensor:
        flat = flatten(observation)
        if policy.output == "vector":
            return policy(flat)
        return masked_logits(policy, flat, observation["action_mask"]).argmax(dim=-1)

    return play


def heuristic(choose: Heuristic) -> Player:
    """Return a player that follows a heuristic, which reads the whole state."""
    return lambda env, observation: choose(cast(CompetitiveOP, env.game), env.instance, env.state)


def seated(one: Player, others: Player) -> Player:
    """Return a player that combines two: `one` plays agent b mod m in lane b, and `others` play all other agents.

    So `one` takes each seat equally often.
    """

    def play(env: GameVectorEnv, observation: dict[str, Tensor]) -> Tensor:
        theirs = others(env, observation)
        seat = seats(env.num_envs, env.game.num_agents, str(theirs.device))
        chosen = seat if theirs.ndim == 2 else seat[..., None]
        return torch.where(chosen, one(env, observation).to(theirs.dtype), theirs)

    return play


def seats(num_lanes: int, num_agents: int, device: str = "cpu") -> Tensor:
    """Return a mask of agent b mod m in lane b: bool (B, m)."""
    agent = torch.arange(num_agents, device=device)
    return agent == (torch.arange(num_lanes, device=device) % num_agents)[:, None]


def collected(game: CompetitiveOP, instance: Any, player: Player, device: str = "cpu") -> Tensor:
    """Play instances to their end; return the prizes that each agent has collected: float64 (B, m)."""
    env = GameVectorEnv(game, batch_size(instance), autoreset_mode="Disabled", backend="torch", device=device)
    observation, info = env.reset(options={"instance": instance})
    for _ in range(game.num_ticks):
        observation, _, _, _, info = env.step(player(env, observation))
    gained: Tensor = info["gained"]
    return gained


def compare(
    game: CompetitiveOP, instance: Any, learner: Player, rivals: Player, device: str = "cpu"
) -> dict[str, float]:
    """Compare the prizes of a learner with those that the rivals collect when they take all seats.

    Returns:
        "self_play": mean over all seats when the learner takes all of them; "among": mean over the learner's seat when
        it takes one. Both are ratios to the rivals' means over the same seats.
    """
    reference = collected(game, instance, rivals, device)
    one = seats(len(reference), game.num_agents, device)
    among = collected(game, instance, seated(learner, rivals), device)[one].mean() / reference[one].mean()
    self_play = collected(game, instance, learner, device).mean() / reference.mean()
    return {"self_play": float(self_play), "among": float(among)}


def play_one(game: CompetitiveOP, instance: Any, player: Player) -> tuple[list[Any], list[dict[str, Tensor]]]:
    """Play one game; return its states as NumPy arrays, one more than ticks, and the observation before each tick."""
    env = GameVectorEnv(game, 1, autoreset_mode="Disabled", backend="torch")
    observation, _ = env.reset(options={"instance": instance})
    states, seen = [as_numpy(env.state)], []
    for _ in range(game.num_ticks):
        seen.append(observation)
        observation, *_ = env.step(player(env, observation))
        states.append(as_numpy(env.state))
    return states, seen


def as_numpy(state: Any) -> Any:
    """Copy a dataclass of tensors to NumPy."""
    return type(state)(**{name: np.array(to_numpy(value)) for name, value in vars(state).items()})
