"""Gaps of tours on random instances with other settings than those the weights were trained on.

    python benchmarks/quality/other_settings.py

Tours are one greedy tour, and the best of 128 sampled ones. Gaps are those of mean costs to a solver; negative prizes
are costs. A setting is an argument of the problem, such as MTSP's number of salesmen; a field of the instances that is
multiplied by a number, such as penalties; or their generator. All run on one thread.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
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
from routing_gym.generators import GENERATORS
from routing_gym.problem import AnyProblem
from routing_gym.problems import make_problem
from routing_gym.solvers import make_solver

DECODINGS = {"greedy": GREEDY, "best of 128": Decoding(128, sample=True)}
Value = float | str
SETTINGS: tuple[tuple[str, int, str, str, tuple[Value, ...]], ...] = (  # problem, nodes, setting, solver, values
    ("MTSP", 20, "num_salesmen", "pyvrp", (2, 3, 5, 8)),
    ("OP", 20, "max_length", "pyvrp", (1.0, 1.5, 2.0, 3.0, 4.0)),
    ("PCTSP", 20, "penalty_scale", "ortools", (0.5, 1.0, 2.0, 4.0, 10.0, 30.0)),
    ("CVRP", 20, "capacity", "pyvrp", (9, 20, 30, 60, 120)),
    ("CVRP", 50, "capacity", "pyvrp", (20, 40, 100, 300)),
    ("ATSP", 20, "generator", "ortools", ("uniform", "roads")),
    ("ATSP", 50, "generator", "ortools", ("uniform", "roads")),
    ("VRPTW", 50, "service_time", "pyvrp", (0.0, 0.25, 1.0)),
    ("OVRP", 50, "capacity", "pyvrp", (20, 40, 100, 300)),
    ("MDVRP", 50, "num_depots", "pyvrp", (2, 3, 5, 8)),
    ("PCVRP", 50, "penalty", "pyvrp", (0.3, 1.0, 3.0, 10.0)),
    ("HFVRP", 50, "fixed_cost", "pyvrp", (0.0, 1.0, 3.0, 10.0)),
    ("HFVRP", 50, "capacity", "pyvrp", (20, 40, 100, 300)),
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


def draw(name: str, size: int, setting: str, value: Value, args: Args) -> tuple[AnyProblem, Any, Value]:
    """Return the problem, instances with one value of a setting, and the default value."""
    usual, rng = make_problem(name, size), np.random.default_rng(args.seed)
    if setting == "generator":
        return usual, GENERATORS[str(value)](usual, rng, args.instances), "uniform"
    if hasattr(usual, setting):
        problem = make_problem(name, size, **{setting: value})
        return problem, problem.generate(rng, args.instances), getattr(usual, setting)
    instance = usual.generate(rng, args.instances)
    return usual, replace(instance, **{setting: getattr(instance, setting) * np.float32(value)}), 1.0


def measure(name: str, size: int, setting: str, solver: str, value: Value, args: Args) -> dict[str, Any]:
    """Solve instances with one value of a setting; return the gaps of the mean costs."""
    problem, instance, default = draw(name, size, setting, value, args)
    reference = make_solver(solver, time_limit=args.seconds).solve(problem, instance, seed=args.seed, num_workers=0)
    if reference.failed.any():
        raise RuntimeError(f"{solver} found no tour of {problem}: {reference.status}")
    model, best, gaps = load(f"{name}-{size}"), reference.cost.mean(), {}
    for label, decoding in DECODINGS.items():
        actions = model.solve_batch(problem, instance, decoding, seed=args.seed).actions.numpy()
        gaps[label] = float((problem.objective(instance, actions).mean() - best) / abs(best))
    about = {"problem": f"{name}-{size}", "setting": setting, "value": value, "default": value == default}
    return {**about, "solver": solver, "cost": float(best), "gaps": gaps}


def main(args: Args) -> Figures:
    """Measure, print a table and write the figures.

    Raises:
        RuntimeError: A solver found no tour.
    """
    torch.set_num_threads(1)
    console, rows = Console(stderr=True), []
    for name, size, setting, solver, values in SETTINGS:
        for value in values:
            rows.append(measure(name, size, setting, solver, value, args))
            finish(args, {"rows": rows})
            console.print(f"{name}-{size}, {setting} {value}: {rows[-1]['gaps']}", markup=False)
    figures = {"rows": rows}
    return finish(args, figures, quality_tables.other_settings(figures))


if __name__ == "__main__":
    command_line(main, Args, __doc__, (RuntimeError,))
