"""Checkpoints of networks for several agents."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from routing_agents import checkpoint
from routing_agents.header import CheckpointError, converted, from_json
from routing_agents.multi_agent.extractor import Layout
from routing_agents.multi_agent.networks import AgentNetwork, NetworkConfig, Output
from routing_gym.multi_agent import CompetitiveOP

NETWORK = "multi-agent"


def describe(game: CompetitiveOP, policy: AgentNetwork) -> dict[str, Any]:
    """Return the part of the header from which `load_policy` rebuilds game and policy."""
    return {"network": NETWORK, "game": asdict(game), "output": policy.output, "model": asdict(policy.config)}


def load_policy(path: Path, device: str = "cpu") -> tuple[AgentNetwork, CompetitiveOP, dict[str, Any]]:
    """Rebuild the policy of a checkpoint and the game it was trained on; see `checkpoint.load_network`."""
    return load_network(path, "policy", device)


def load_values(path: Path, device: str = "cpu") -> tuple[AgentNetwork, CompetitiveOP, dict[str, Any]]:
    """Rebuild the network of central values of a checkpoint of mappo.py; see `load_policy`."""
    return load_network(path, "critic", device)


def load_network(path: Path, name: str, device: str) -> tuple[AgentNetwork, CompetitiveOP, dict[str, Any]]:
    """Rebuild the network that a run calls "policy" or "critic"."""

    def make(header: dict[str, Any]) -> tuple[AgentNetwork, CompetitiveOP]:
        if header.get("network") != NETWORK:
            raise CheckpointError("holds no policy of a game; train one with agents/mappo.py or agents/maddpg.py")
        if name == "critic" and header.get("script") != "mappo.py":
            raise CheckpointError("holds no state values; train them with agents/mappo.py")
        game = from_json(CompetitiveOP, header["game"], "game")
        given, output = (header["model"], header["output"]) if name == "policy" else (header["args"]["critic"], "value")
        return AgentNetwork(
            Layout.of(game), from_json(NetworkConfig, given), game.num_agents, converted(Output, output, "output")
        ), game

    return checkpoint.load_network(path, device, make, f"model.{name}")
