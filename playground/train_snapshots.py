"""Train a small model on TSP-20 and keep snapshots of its weights, for the playground's training slider.

    python playground/train_snapshots.py        # one thread, about 20 minutes

The model has half of the published models' embedding size, so that ten snapshots stay small. Matrices are stored in 8
bits, row by row: value = int8 * scale. The scale of a row is its largest magnitude / 127. The costs in the headers are
those of the rounded weights.
"""

from __future__ import annotations

import copy
import os
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch
import tyro
from torch import Tensor

import am_reinforce
from routing_agents import checkpoint, runs
from routing_agents.policies.attention.model import AttentionModel, ModelConfig
from routing_agents.policies.attention.saved import describe
from routing_agents.training import distributed

STOPS = (0, 10, 20, 35, 60, 100, 250, 700, 1800, 4000)  # steps of the optimiser
FOLDER = Path(__file__).parent / "snapshots"


@dataclass(frozen=True)
class Args:
    """Arguments of the training."""

    out: Path = FOLDER
    """Folder for the snapshots."""
    stops: tuple[int, ...] = STOPS
    """Steps after which a snapshot is kept; the last one ends the training."""
    seed: int = 1
    """Random seed for weights, instances and tours."""
    batch_size: int = 256
    """Instances per step."""
    model: tyro.conf.OmitArgPrefixes[ModelConfig] = ModelConfig(embed_dim=64, feed_forward_dim=256)
    """Sizes of the network."""


def quantise(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Store matrices in 8 bits with a scale per row, vectors in float16; leave out the counters."""
    stored = {}
    for name, value in weights.items():
        if value.ndim == 2:
            scale = value.abs().amax(dim=1).clamp(min=1e-8) / 127
            stored[name] = (value / scale[:, None]).round().to(torch.int8)
            stored[name + ".scale"] = scale.float()
        elif value.is_floating_point():
            stored[name] = value.half()
    return stored


def restored(model: AttentionModel, stored: dict[str, Tensor]) -> AttentionModel:
    """Return a copy of the model with the stored weights."""
    rounded = copy.deepcopy(model)
    for name, value in rounded.state_dict().items():
        if name + ".scale" in stored:
            value.copy_(stored[name].float() * stored[name + ".scale"][:, None])
        elif name in stored:
            value.copy_(stored[name])
    return rounded.eval()


def keep(trainer: am_reinforce.ReinforceTrainer, folder: Path, reference: float | None) -> None:
    """Write the current weights, with the mean cost of their greedy tours of the held-out instances."""
    stored = quantise(trainer.model.state_dict())
    model = restored(trainer.model, stored)
    greedy = float(distributed.greedy_cost(model, trainer.problem, trainer.held_out).double().mean())
    header = {
        **describe(trainer.problem, trainer.model),
        "step": trainer.step,
        "instances": trainer.instances,
        "seconds": round(trainer.seconds, 1),
        "greedy": round(greedy, 4),
        "reference": reference and round(reference, 4),
    }
    checkpoint.save(folder / f"tsp-20-step-{trainer.step:05}.safetensors", checkpoint.prefixed("model", stored), header)
    print(f"step {trainer.step:5}: greedy {greedy:.4f}, {trainer.seconds:.0f} s")


def main(args: Args) -> None:
    """Train, and keep the snapshots."""
    args.out.mkdir(parents=True, exist_ok=True)
    trainer = am_reinforce.ReinforceTrainer(
        am_reinforce.Args(
            epochs=1,
            steps_per_epoch=args.stops[-1],
            batch_size=args.batch_size,
            seed=args.seed,
            attention=args.model,
            processes=1,
            threads=1,
        )
    )
    reference = runs.reference_cost(trainer.problem, trainer.held_out, args.out / ".references")
    for stop in args.stops:
        while trainer.step < stop:
            trainer.update()
        keep(trainer, args.out, reference)


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
