"""Instances per second of problems on streets, and of their own generators, on one core.

    python benchmarks/environments/road_matrices.py

Batches are drawn in one process on one thread, several times in turn. The processor seconds of the fastest run are
reported, because other programs use the memory of the machine, too.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.table import Table

from benchmarks.arguments import check_problems
from benchmarks.output import OUT, Figures, finish
from routing_agents import runs
from routing_agents.runs import check_integers
from routing_agents.terminal import command_line
from routing_gym.generators import roads, uniform

KINDS = {"its own": uniform, "on streets": roads}


@dataclass(frozen=True)
class Args:
    """Arguments of the benchmark."""

    problems: tuple[str, ...] = ("CVRP-19", "CVRP-49", "CVRP-99", "ATSP-50")
    """What to draw, as in the ids after "routing/"; with the depot, CVRP-49 has 50 nodes."""
    batch_size: int = 256
    """Instances of a batch."""
    repeats: int = 9
    """Batches of each kind and problem, in turn; the fastest counts."""
    seed: int = 0
    """Random seed for instances."""
    out: Path = OUT / "road_matrices.json"
    """Where the figures go. The docs show those in benchmarks/results."""

    def __post_init__(self) -> None:
        check_problems(*self.problems)
        check_integers(self, "batch_size", "repeats")
        check_integers(self, "seed", least=0)


def main(args: Args) -> Figures:
    """Measure, print and write."""
    table = Table("instances per second", *KINDS)
    figures = {}
    for name in args.problems:
        problem = runs.problem_of(f"routing/{name}", {})
        seconds: dict[str, list[float]] = {kind: [] for kind in KINDS}
        for repeat in range(args.repeats):
            for kind, draw in KINDS.items():
                rng, started = np.random.default_rng((args.seed, repeat)), time.process_time()
                draw(problem, rng, args.batch_size)
                seconds[kind].append(time.process_time() - started)
        figures[name] = {kind: round(args.batch_size / min(times)) for kind, times in seconds.items()}
        table.add_row(name, *(f"{rate:,}" for rate in figures[name].values()))
    return finish(args, {"instances_per_second": figures}, table)


if __name__ == "__main__":
    command_line(main, Args, __doc__, stopped="stopped; nothing is written")
