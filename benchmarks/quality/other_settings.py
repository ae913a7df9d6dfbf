"""Gaps of tours on random instances with other settings than those the weights were trained on.

    python benchmarks/quality/other_settings.py

Tours are one greedy tour, and the best of 128 sampled ones. Gaps are those of mean costs to a solver; negative prizes
are costs. Settings are the number of salesmen (MTSP), the maximum length (OP), the scale of the penalties (PCTSP) and
the capacity (CVRP). All run on one thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from benchmarks.output import OUT, Figures, finish
from benchmarks.quality import quality_tables
from routing_agents import load
from routing_agents.policies.attention.decoding import GREEDY, Decoding
from routing_agents.runs import check_integers, check_numbers
from routing_agents.terminal import command_line
from routing_gym.problems import make_problem
from routing_gym.solvers import make_solver

SIZE = 20  # nodes
DECODINGS = {"greedy": GREEDY, "best of 128": Decoding(128, sample=True)}
SETTINGS: tuple[tuple[str, str, str, tuple[float, ...]], ...] = (  # problem, setting, solver, values
    ("MTSP", "num_salesmen", "pyvrp", (2, 3, 5, 8)),
    ("OP", "max_length", "pyvrp", (1.0, 1.5, 2.0, 3.0, 4.0)),
    ("PCTSP", "penalty_scale", "ortools", (0.5, 1.0, 2.0, 4.0, 10.0, 30.0)),
    ("CVRP", "capacity", "pyvrp", (9, 20, 30, 60, 120)),
)


@dataclass(frozen=True)
class Args:
    """Arguments of the benchmark."""

    instances: int = 50
    """Number of instances of each setting."""
    seconds: float = 0.5
    """Time limit of the solver for each instance."""
    seed: int = 1
    """Random seed for the instances, the samples and the solvers."""
    out: Path = OUT / "other_settings.json"
    """Where the figures go. The docs show those in benchmarks/results."""

    def __post_init__(self) -> None:
        check_integers(self, "instances")
        check_numbers(self, "seconds")


def measure(name: str, setting: str, solver: str, value: float, args: Args) -> dict[str, Any]:
    """Solve instances with one value of a setting; return the gaps of the mean costs."""
    problem = make_problem(name, SIZE, **{setting: value})
    instance = problem.generate(np.random.default_rng(args.seed), args.instances)
    reference = make_solver(solver, time_limit=args.seconds).solve(problem, instance, seed=args.seed, num_workers=0)
    if reference.failed.any():
        raise RuntimeError(f"{solver} found no tour of {problem}: {reference.status}")
    model, best, gaps = load(f"{name}-{SIZE}"), reference.cost.mean(), {}
    for label, decoding in DECODINGS.items():
        actions = model.solve_batch(problem, instance, decoding, seed=args.seed).actions.numpy()
        gaps[label] = float((problem.objective(instance, actions).mean() - best) / abs(best))
    is_default = getattr(make_problem(name, SIZE), setting) == value
    about = {"problem": name, "setting": setting, "value": value, "default": is_default, "solver": solver}
    return {**about, "cost": float(best), "gaps": gaps}


def main(args: Args) -> Figures:
    """Measure, print a table and write the figures.

    Raises:
        RuntimeError: A solver found no tour.
    """
    torch.set_num_threads(1)
    console, rows = Console(stderr=True), []
    for name, setting, solver, values in SETTINGS:
        for value in values:
            rows.append(measure(name, setting, solver, value, args))
            finish(args, {"rows": rows})
            console.print(f"{name}, {setting} {value:g}: {rows[-1]['gaps']}", markup=False)
    figures = {"rows": rows}
    return finish(args, figures, quality_tables.other_settings(figures))


if __name__ == "__main__":
    command_line(main, Args, __doc__, (RuntimeError,))
