"""Checkpoints of pointer networks."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from routing_agents import checkpoint
from routing_agents.header import CheckpointError, from_json
from routing_agents.policies.pointer.encoders import PointerConfig
from routing_agents.policies.pointer.model import PointerNetwork
from routing_agents.policies.pointer.sequences import Order
from routing_agents.policies.pointer.tasks import TASKS, Task

NETWORK = "pointer"
PUBLISHED = Path(__file__).parents[2] / "weights" / "pointer"


def describe(model: PointerNetwork, task: Task, order: Order) -> dict[str, Any]:
    """Return the part of the header from which `rebuild` builds network and task."""
    kind = {"network": NETWORK, "task": task.name, "order": order}
    return {**kind, "model": asdict(model.config), "fixed_size": model.fixed_size}


def load_network(path: Path, device: str = "cpu") -> tuple[PointerNetwork, Task, dict[str, Any]]:
    """Load a pointer network and the task it was trained for; see `checkpoint.load_network`."""
    return checkpoint.load_network(path, device, rebuild)


def rebuild(header: dict[str, Any]) -> tuple[PointerNetwork, Task]:
    """Build the network that a header describes, with fresh weights, and the task it was trained for.

    Raises:
        CheckpointError: The header describes another kind of network.
    """
    if header.get("network") != NETWORK:
        raise CheckpointError("holds no pointer network; train one with agents/pointer_network.py")
    task = TASKS[header["task"]]
    config = from_json(PointerConfig, header["model"], "model")
    if header["order"] not in ("sorted", "given"):
        raise ValueError(f"order {header['order']!r}")
    return PointerNetwork(config, task.holds, header["fixed_size"]), task
