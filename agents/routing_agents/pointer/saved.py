"""Pointer networks in checkpoints."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from routing_agents import checkpoint
from routing_agents.checkpoint import CheckpointError
from routing_agents.pointer.model import PointerConfig, PointerNetwork
from routing_agents.pointer.sequences import Order
from routing_agents.pointer.tasks import TASKS, Task
from routing_agents.runs import BEST

NETWORK = "pointer"
PUBLISHED = Path(__file__).parents[1] / "weights" / "pointer"


def describe(model: PointerNetwork, task: Task, order: Order) -> dict[str, Any]:
    """Return the part of the header from which `load_network` rebuilds network and task."""
    kind = {"network": NETWORK, "task": task.name, "order": order}
    return {**kind, "model": asdict(model.config), "fixed_size": model.fixed_size}


def load_network(path: Path, device: str = "cpu") -> tuple[PointerNetwork, Task, dict[str, Any]]:
    """Rebuild the network of a checkpoint, in evaluation mode, and the task it was trained for.

    Args:
        path: A checkpoint, or the folder of a run (then its best).
        device: Where to put the network.

    Returns:
        The network, the task, and the whole header.

    Raises:
        CheckpointError: The file cannot be read, holds no pointer network, or does not fit the one it describes.
    """
    if path.is_dir():
        path = path / BEST
    tensors, header = checkpoint.load(path, device)
    if header.get("network") != NETWORK:
        raise CheckpointError(f"{path}: holds no pointer network; train one with agents/pointer_network.py")
    weights = checkpoint.group(tensors, "model")

    def make() -> tuple[PointerNetwork, Task]:
        task = TASKS[header["task"]]
        config = PointerConfig(**header["model"])
        if header["order"] not in ("sorted", "given"):
            raise ValueError(f"order {header['order']!r}")
        checkpoint.check_layers(config.num_layers, weights)
        return PointerNetwork(config, task.holds, header["fixed_size"]), task

    return (*checkpoint.rebuild(path, weights, device, "task and network", make), header)
