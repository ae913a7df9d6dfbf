"""Training speed of the attention model, against what the processor's matrix products allow.

    python benchmarks/train_throughput.py                       # writes benchmarks/results/train_throughput.json

One step is all that `am_reinforce.py` does per batch: generate, encode, sample, baseline, score,
backward, optimiser. The model's own operation count over the measured rate of one large float32 matrix
product (whatever the precision of the run) gives the time that arithmetic alone would take; its share of
the time taken is reported.
"""

from __future__ import annotations

import itertools
import json
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import tyro
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "agents"))

import am_reinforce  # noqa: E402
from attention_model import AttentionModel  # noqa: E402
from decoding import solve  # noqa: E402
from hardware import describe_machine  # noqa: E402
from trainer import Trainer  # noqa: E402
from tuning import keep_freed_memory  # noqa: E402


@dataclass(frozen=True)
class Args:
    """Arguments of the benchmark."""

    env_ids: tuple[str, ...] = ("routing/TSP-20", "routing/TSP-50")
    """What to train on."""
    baselines: tuple[str, ...] = ("rollout", "shared")
    """Baselines of am_reinforce.py; the shared one samples `num_starts` tours per instance."""
    num_starts: int = 8
    """Tours per instance of the shared baseline."""
    batch_size: int = 512
    """Instances per step."""
    threads: tuple[int, ...] = (1, 2)
    """Numbers of CPU threads."""
    precisions: tuple[str, ...] = ("float32", "bfloat16")
    """Of the encoder's matrix products."""
    steps: int = 5
    """Timed steps after two that are not; the median counts."""
    keep_memory: bool = True
    """Have the allocator keep freed memory, as am_reinforce.py does; see agents/tuning.py."""
    out: Path = ROOT / "benchmarks" / "results" / "train_throughput.json"
    """Where the figures go."""


def matrix_rate(size: int = 2048, repeats: int = 5) -> float:
    """Floating-point operations per second of a float32 matrix product."""
    a, b = torch.rand(size, size), torch.rand(size, size)
    times = []
    for _ in range(repeats + 1):
        started = time.perf_counter()
        a @ b
        times.append(time.perf_counter() - started)
    return 2 * size**3 / statistics.median(times[1:])


def encoder_operations(model: AttentionModel, num_nodes: int) -> int:
    """Multiplications and additions of encoding one instance, projections for the decoder included."""
    d, hidden = model.config.embed_dim, model.config.feed_forward_dim
    layer = 2 * num_nodes * (4 * d * d + 2 * d * hidden) + 4 * num_nodes**2 * d
    projections = 2 * num_nodes * (3 + len(model.features.context_nodes)) * d * d
    return model.config.num_layers * layer + projections


def step_operations(model: AttentionModel, num_nodes: int, num_tours: int, num_steps: int, rollout: bool) -> int:
    """Operations of one training step per instance: a backward pass counts as two forward ones."""
    query = 6 * num_nodes * model.config.embed_dim  # glimpse scores, glimpse, logits
    decode = query * num_steps * num_tours
    sampled = 3 * encoder_operations(model, num_nodes) + (1 + 3) * decode
    return sampled + (encoder_operations(model, num_nodes) + query * num_steps if rollout else 0)


def measure(args: Args, env_id: str, baseline: str, precision: str, threads: int) -> dict[str, Any]:
    """Time the training steps of one configuration."""
    torch.set_num_threads(threads)
    settings = am_reinforce.Args(
        env_id=env_id,
        baseline=baseline,  # type: ignore[arg-type]
        precision=precision,  # type: ignore[arg-type]
        num_starts=args.num_starts,
        batch_size=args.batch_size,
        baseline_size=args.batch_size,
        held_out=args.batch_size,
    )
    trainer = Trainer(settings)
    trainer.baseline.end_epoch(trainer.model)  # ends the warm-up of the rollout baseline
    times = []
    for _ in range(args.steps + 2):
        started = time.perf_counter()
        trainer.update()
        times.append(time.perf_counter() - started)
    seconds = statistics.median(times[2:])
    problem, tours = trainer.problem, trainer.baseline.num_tours
    num_steps = solve(trainer.model, problem, trainer.held_out).actions.shape[1]
    operations = step_operations(trainer.model, problem.num_actions, tours, num_steps, baseline == "rollout")
    rate = matrix_rate()
    return {
        "env_id": env_id,
        "baseline": baseline,
        "precision": precision,
        "threads": threads,
        "instances_per_second": args.batch_size / seconds,
        "operations_per_instance": operations,
        "matrix_product_rate": rate,
        "share_of_rate": operations * args.batch_size / seconds / rate,
    }


def main(args: Args) -> list[dict[str, Any]]:
    """Measure, print a table, and write the figures."""
    if args.keep_memory:
        keep_freed_memory()
    columns = ("environment", "baseline", "precision", "threads", "instances/s", "MFLOP/instance", "share of peak")
    table = Table(*columns)
    rows = []
    for choice in itertools.product(args.env_ids, args.baselines, args.precisions, args.threads):
        row = measure(args, *choice)
        rows.append(row)
        cells = (row["instances_per_second"], row["operations_per_instance"] / 1e6)
        table.add_row(*map(str, choice), *(f"{cell:.0f}" for cell in cells), f"{row['share_of_rate']:.0%}")
    Console(width=110).print(table)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    figures = {
        "machine": describe_machine(),
        "batch_size": args.batch_size,
        "keep_memory": args.keep_memory,
        "rows": rows,
    }
    args.out.write_text(json.dumps(figures, indent=2) + "\n")
    return rows


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
