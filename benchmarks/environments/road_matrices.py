"""Instances per second of problems whose instances lie on streets, and of ATSP's random matrices, on one core.

    python benchmarks/environments/road_matrices.py    # writes results/road_matrices.json

`Problem.generate` draws batches in one process on one thread, several times. Processor seconds count, and the fastest
run, since other programs use the memory of the machine too.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.table import Table

from benchmarks.output import Figures, finish
from routing_agents.runs import check_integers
from routing_agents.terminal import command_line
from routing_gym.problem import AnyProblem
from routing_gym.problems import make_problem

ROOT = Path(__file__).parents[2]
KINDS = {"CVRP on streets": ("CVRP", {"matrices": True}), "CVRP": ("CVRP", {}), "ATSP": ("ATSP", {})}


@dataclass(frozen=True)
class Args:
    """Arguments of the benchmark."""

    sizes: tuple[int, ...] = (20, 49, 99)
    """Numbers of customers; with the depot, 49 are 50 nodes."""
    batch_size: int = 256
    """Instances of a batch."""
    repeats: int = 9
    """Batches of each kind and size, in turn; the fastest counts."""
    seed: int = 0
    """Random seed for instances."""
    out: Path = ROOT / "benchmarks" / "results" / "road_matrices.json"
    """Where the figures go."""

    def __post_init__(self) -> None:
        check_integers(self, "sizes", "batch_size", "repeats")
        check_integers(self, "seed", least=0)


def seconds(problem: AnyProblem, args: Args, repeat: int) -> float:
    """Return the processor seconds that a batch takes."""
    started = time.process_time()
    problem.generate(np.random.default_rng((args.seed, repeat)), args.batch_size)
    return time.process_time() - started


def main(args: Args) -> Figures:
    """Measure, print and write."""
    figures = {}
    table = Table("instances per second", *map(str, args.sizes))
    problems = {
        name: [make_problem(kind, size + int(kind == "ATSP"), **settings) for size in args.sizes]
        for name, (kind, settings) in KINDS.items()
    }
    for name, sizes in problems.items():
        rates = [args.batch_size / min(seconds(one, args, repeat) for repeat in range(args.repeats)) for one in sizes]
        figures[name] = dict(zip(map(str, args.sizes), map(round, rates), strict=True))
        table.add_row(name, *(f"{rate:,.0f}" for rate in rates))
    return finish(args, {"instances_per_second": figures}, table)


if __name__ == "__main__":
    command_line(main, Args, __doc__)
