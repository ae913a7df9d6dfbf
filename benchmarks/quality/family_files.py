"""Gaps of tours of files of the VRP family: the best of many, this one improved by search, and PyVRP's.

    python benchmarks/quality/family_files.py ../shared/fleets/*.vrp ../shared/vrptw/*.txt --seconds 30

Gaps are relative to the best known cost stored beside each file, in the file's own integers. Files without one are left
out. All use one thread, and PyVRP has the same time as the search. The figures of each file are written as soon as it
is solved, and are not measured again with the same seconds and seed.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro
from rich.console import Console

from benchmarks.output import OUT, Figures, check_same, finish, read_figures
from routing_agents import load
from routing_agents.evaluation.files import Method, Settings
from routing_agents.evaluation.improving import PlanSearch
from routing_agents.evaluation.sources import objectives
from routing_agents.runs import check_integers, check_numbers
from routing_agents.terminal import command_line
from routing_agents.trained import choose_decoding, find_weights
from routing_gym import data
from routing_gym.arrays import IntArray
from routing_gym.planning.fitting import fit
from routing_gym.planning.from_instance import actions_of, task_of_file
from routing_gym.planning.routes import Rules
from routing_gym.problems.matrices import has_matrices
from routing_gym.solvers.external.plans import solve_pyvrp


@dataclass(frozen=True)
class Args:
    """Arguments of the benchmark."""

    files: tyro.conf.Positional[tuple[Path, ...]]
    """Files with time windows, backhauls, several depots or vehicles, or pairs."""
    seconds: float = 30.0
    """Seconds of search for each file, after the best of many tours, and of PyVRP."""
    seed: int = 1
    """Random seed for the search and PyVRP."""
    out: Path = OUT / "family_files.json"
    """Where the figures go; those of an earlier run are continued. The docs show those in benchmarks/results."""

    def __post_init__(self) -> None:
        check_numbers(self, "seconds")
        check_integers(self, "seed", least=0)
        if not self.files:
            raise ValueError("name at least one file")


def gap(file: data.FileInstance, cost: float) -> float | None:
    """Return the gap of a cost to the best known one, as a fraction; None for a tour that the file forbids."""
    assert file.best_known is not None
    return cost / file.best_known - 1 if np.isfinite(cost) else None


def ours(file: data.FileInstance, args: Args) -> dict[str, Any]:
    """Solve a file with a policy, and improve the tour; return both gaps."""
    problem = file.problem
    model = load(find_weights(problem.name, problem.num_nodes, matrices=has_matrices(file.instance)))
    decoded: list[float] = []

    def report(seconds: float, tours: IntArray, cost: float) -> None:
        if not seconds:  # the greedy tour, then the best of many
            decoded.append(cost)

    method = Method(model, choose_decoding("starts", problem), PlanSearch())
    found = method.solve(file, Settings(args.seed, seconds=args.seconds), report)
    if found.interrupted:  # not a measurement
        raise KeyboardInterrupt(f"while {file.name} was searched")
    improved = gap(file, float(objectives(file, found.actions)[0]))
    return {"weights": model.path.stem, "best of many": gap(file, decoded[-1]), "improved": improved}


def pyvrp(file: data.FileInstance, args: Args) -> float | None:
    """Solve a file with PyVRP; return the gap of its tour."""
    task = task_of_file(file)
    rules = Rules(task)
    routes, absent = fit(rules, solve_pyvrp(task, args.seconds, args.seed))
    return gap(file, float(objectives(file, actions_of(task, rules.by_vehicle(routes), absent)[None])[0]))


def main(args: Args) -> Figures:
    """Solve the files; return and write the figures.

    Raises:
        ValueError: A file cannot be read, or `--out` has the figures of other seconds or another seed.
        OSError: The figures cannot be written.
    """
    torch.set_num_threads(1)
    console, figures = Console(stderr=True), read_figures(args.out, "arguments", "files")
    check_same(args.out, figures, seconds=args.seconds, seed=args.seed)
    rows: dict[str, Any] = figures.get("files", {})
    files = {path: data.read_instance(path) for path in args.files}  # all, before the first is solved
    for path, file in files.items():
        if file.best_known is None or not PlanSearch.takes(file.problem) or path.stem in rows:
            console.print(f"{path.name}: left out", markup=False)
            continue
        about = {"problem": file.problem.name, "customers": file.problem.num_nodes, "best known": file.best_known}
        rows[path.stem] = {**about, **ours(file, args), "pyvrp": pyvrp(file, args), "load": os.getloadavg()[0]}
        console.print(path.stem, rows[path.stem], markup=False, soft_wrap=True)
        figures = finish(args, {"files": rows})
    return figures


if __name__ == "__main__":
    command_line(main, Args, __doc__, stopped="stopped; the files before are kept")
