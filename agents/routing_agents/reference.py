"""What training is measured against: a classical solver's mean cost on the held-out instances."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from rich.console import Console

from routing_gym.problem import Problem
from routing_gym.solvers import FastTSP, Solver

QUICK_SOLVERS: dict[str, Solver] = {"TSP": FastTSP()}  # good to the last digit within seconds for 1,000 instances


def reference_cost(problem: Problem[Any, Any], instance: Any, cache: Path) -> float | None:
    """Return the mean cost of a problem's reference solver, or None where there is none.

    Args:
        problem: The rules.
        instance: The held-out instances.
        cache: Folder in which the solutions are kept for the next run.
    """
    solver = QUICK_SOLVERS.get(problem.name)
    if solver is None:
        return None
    try:
        solver.load()
    except ImportError as error:
        Console().print(f"The gap is not shown: {error}")
        return None
    solution = solver.solve(problem, instance, num_workers=os.cpu_count() or 1, progress=True, cache=cache)
    if solution.failed.any():
        raise ValueError(
            f"{solver.name} failed on {int(solution.failed.sum())} held-out instances: {set(solution.status)}"
        )
    return float(solution.cost.mean())
