"""The stages and arms of `learning.py`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from am_reinforce import ReinforceTrainer
from benchmarks.training.learning_ways import (
    AnchoredTrainer,
    BiasTrainer,
    CosineTrainer,
    LabelTrainer,
    NeighboursTrainer,
    OnlyLabels,
)
from routing_agents.policies.attention.model import ModelConfig
from routing_agents.trained.loading import WEIGHTS


@dataclass(frozen=True)
class Arm:
    """One way to train.

    Attributes:
        label: Label in the tables.
        changes: Arguments of am_reinforce.py that differ from those of the stage.
        trainer: Class of the trainer.
        same_steps: Whether its steps take as long as those of the first arm of its stage, so they are not measured.
    """

    label: str
    changes: dict[str, Any] = field(default_factory=dict)
    trainer: type[ReinforceTrainer] = ReinforceTrainer
    same_steps: bool = False


@dataclass(frozen=True)
class Stage:
    """Ways to train that are compared with each other.

    Attributes:
        seconds: Processor seconds of each run.
        settings: Arguments of am_reinforce.py.
        arms: The ways; the others are compared with the first.
    """

    seconds: float
    settings: dict[str, Any]
    arms: tuple[Arm, ...]


LOSS_ARMS = (Arm("preference", {"loss": "preference"}), Arm("best-anchored", {"loss": "best-anchored"}))
SMALLER = Arm("batches of 128", {"batch_size": 128})
CVRP_50 = {"env_id": "routing/CVRP-50", "batch_size": 128}
TSP_50 = {"env_id": "routing/TSP-50", "batch_size": 128}
STAGES = {
    "transfer": Stage(
        80.0,
        {**CVRP_50, "learning_rate": 1e-3, "init_from": WEIGHTS / "cvrp-20.safetensors"},
        (Arm("REINFORCE"), *LOSS_ARMS),
    ),
    "from scratch": Stage(
        50.0,
        {"env_id": "routing/TSP-20"},
        (
            Arm("default"),
            *LOSS_ARMS,
            Arm("instance normalisation", {"attention": ModelConfig(normalization="instance")}),
            Arm("6 layers", {"attention": ModelConfig(num_layers=6)}),
            Arm("16 tours", {"num_tours": 16}),
            Arm("width 96", {"attention": ModelConfig(embed_dim=96, feed_forward_dim=384)}),
            SMALLER,
        ),
    ),
    "longer": Stage(200.0, {"env_id": "routing/TSP-20"}, (Arm("default"), SMALLER)),
    "fine-tuning": Stage(
        120.0,
        {**CVRP_50, "learning_rate": 5e-4, "init_from": WEIGHTS / "cvrp-50.safetensors"},
        (Arm("REINFORCE"), *LOSS_ARMS),
    ),
    "larger from scratch": Stage(
        120.0,
        TSP_50,
        (
            Arm("default"),
            Arm("cosine decay", trainer=CosineTrainer, same_steps=True),
            Arm("20 to 50 nodes", {"sizes": (20, 50)}),
            Arm("bias of distances", trainer=BiasTrainer),
            Arm("10 neighbours", trainer=NeighboursTrainer),
            Arm("labels, then REINFORCE", trainer=LabelTrainer),
            Arm("labels", trainer=OnlyLabels),
        ),
    ),
    "labels for trained weights": Stage(
        120.0,
        {**TSP_50, "learning_rate": 5e-4, "init_from": WEIGHTS / "tsp-50.safetensors"},
        (Arm("REINFORCE"), Arm("labels", trainer=OnlyLabels), Arm("best-anchored to a label", trainer=AnchoredTrainer)),
    ),
    "transfer to 100": Stage(
        160.0,
        {
            "env_id": "routing/TSP-100",
            "batch_size": 64,
            "learning_rate": 1e-3,
            "init_from": WEIGHTS / "tsp-50.safetensors",
        },
        (Arm("REINFORCE"), *LOSS_ARMS),
    ),
}
