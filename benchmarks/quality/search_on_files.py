"""Gaps of tours of instance files: one greedy tour, the best of many, this one improved by search; and solvers'.

    python benchmarks/quality/search_on_files.py ../shared/data/cvrplib/X-*.vrp --seconds 30

Gaps are relative to the best known cost stored beside each file, in the file's own integers. Files without one, and
files of problems without a search, are left out. All use one thread. The classical solvers have the same time as the
search. The figures of each file are written as soon as it is solved, and are not measured again with the same settings
and weights.
"""

from __future__ import annotations

import multiprocessing
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro
from rich.console import Console

from benchmarks.hardware import describe_machine
from benchmarks.output import OUT, Figures, read_figures, write_figures
from routing_agents import load
from routing_agents.evaluation.methods import weights_digest
from routing_agents.runs import check_numbers
from routing_agents.terminal import command_line
from routing_agents.trained import choose_decoding, find_weights, load_repair
from routing_gym import data
from routing_gym.solvers import make_solver
from routing_gym.solvers.runtime.executors import ExecutorName, executor_of
from routing_gym.solvers.runtime.work import Inline, Lost, Work

SOLVERS = {"TSP": ("2-opt+or-opt", "fast-tsp"), "CVRP": ("pyvrp", "hygese")}  # classical solvers by problem
WAYS = ("greedy", "best of many", "improved")  # names of our methods
UNTIMED = ("2-opt+or-opt",)  # solvers without a time limit


@dataclass(frozen=True)
class Args:
    """Arguments of the benchmark."""

    files: tyro.conf.Positional[tuple[Path, ...]]
    """TSPLIB and CVRPLIB files."""
    seconds: float = 30.0
    """Seconds of search for each file, after the best of many tours, and of each classical solver."""
    seed: int = 1
    """Random seed for the search and the solvers."""
    executor: ExecutorName | None = None
    """Where the files are solved, one per worker. Default: in this process, one after another."""
    workers: int | None = None
    """Number of workers."""
    address: str | None = None
    """Address of a Ray cluster."""
    out: Path = OUT / "search_on_files.json"
    """Where the figures go; those of an earlier run are continued. The docs show those in benchmarks/results."""

    def __post_init__(self) -> None:
        check_numbers(self, "seconds")
        if not self.files:
            raise ValueError("name at least one .tsp or .vrp file")


def gap(file: data.FileInstance, actions: Any) -> float:
    """Return the gap of a tour to the best known cost, as a fraction."""
    assert file.best_known is not None
    return file.cost(np.asarray(actions)) / file.best_known - 1


def solve(file: data.FileInstance, name: str, seconds: float, seed: int) -> tuple[float, float]:
    """Run a classical solver; return its seconds, and the gap of its tour.

    Raises:
        RuntimeError: The solver found no tour.
    """
    settings = {} if name in UNTIMED else {"time_limit": seconds}
    alone = multiprocessing.parent_process() is None  # a worker process may not start others
    solver = make_solver(name, **settings)
    solution = solver.solve(file.problem, file.instance, seed=seed, num_workers=int(alone))
    if solution.failed.any():
        raise RuntimeError(f"{name} failed on {file.name}: {solution.status[0]}")
    return float(solution.seconds[0]), gap(file, solution.actions[0])


def ours(file: data.FileInstance, args: Args) -> dict[str, Any]:
    """Solve one file with our three methods; return their gaps and wall-clock seconds."""
    model = load(find_weights(file.problem.name, file.problem.num_nodes))
    figures: dict[str, Any] = {"weights": model.path.stem}
    actions = None
    for name, decoding in (("greedy", "greedy"), ("best of many", "starts")):
        started = time.perf_counter()
        found = model.solve_batch(file.problem, file.instance, choose_decoding(decoding, file.problem))
        seconds, actions = time.perf_counter() - started, found.actions[0].numpy()
        figures[name] = {"gap": gap(file, actions), "seconds": seconds}
    repair = load_repair(file.problem)
    improved = repair.improve(file.problem, file.instance, actions, args.seconds, args.seed)
    if improved.interrupted:  # not a measurement
        raise KeyboardInterrupt(f"while {file.name} was searched")
    found = {"gap": gap(file, improved.actions), "seconds": improved.seconds}
    return {**figures, "repair": repair.path.stem, "improved": found}


def solvers(file: data.FileInstance, args: Args) -> dict[str, Any]:
    """Solve one file with the classical solvers; return their gaps and wall-clock seconds."""
    figures = {}
    for name in SOLVERS[file.problem.name]:
        seconds, found = solve(file, name, args.seconds, args.seed)
        figures[name] = {"gap": found, "seconds": seconds}
    return figures


PARTS = {"ours": ours, "solvers": solvers}


class FileWork(Work):
    """Measurement of one part of one file."""

    name = "search on files"

    def __init__(self, args: Args) -> None:
        self.args = args

    def load(self) -> None:
        torch.set_num_threads(1)

    def do(self, file: data.FileInstance, part: str) -> dict[str, Any]:
        return {**PARTS[part](file, self.args), "machine": describe_machine()}


def settings_of(file: data.FileInstance, args: Args) -> dict[str, dict[str, Any]]:
    """Return the settings that each part of a file's figures depends on."""
    limits = {"seconds": args.seconds, "seed": args.seed}
    used = {"weights": weights_digest(find_weights(file.problem.name, file.problem.num_nodes))}
    used["repair"] = weights_digest(load_repair(file.problem).path)
    return {"ours": limits | used, "solvers": limits}


def main(args: Args) -> Figures:
    """Solve the files; return and write the figures.

    Raises:
        ValueError: A file cannot be read.
        RuntimeError: A solver found no tour, or a worker died.
        OSError: The figures cannot be written.
    """
    results = read_figures(args.out)
    console = Console(stderr=True)
    todo = []
    for path in args.files:
        file = data.read_instance(path)
        if file.best_known is None or file.problem.subproblem is None:
            console.print(f"{path.name}: left out", markup=False)
            continue
        figures = results.get(path.stem, {})
        for part, settings in settings_of(file, args).items():
            if figures.get(part, {}).get("settings") != settings:
                todo.append((path.stem, file, part, settings))
    executor, work = executor_of(args) or Inline(), FileWork(args)
    executor.prepare(work)
    tasks = ((number, (file, part)) for number, (_, file, part, _) in enumerate(todo))
    with closing(executor.run(work, tasks)) as finished:
        for number, found in finished:
            name, file, part, settings = todo[number]
            if isinstance(found, Lost):
                raise RuntimeError(f"{name}: {found.reason}")
            row = results.setdefault(name, {"problem": file.problem.name, "nodes": file.problem.num_nodes})
            row[part] = {**found, "settings": settings}
            write_figures(args.out, results, sort_keys=True)
            gaps = (f"{way} {one['gap']:.2%}" for way, one in found.items() if isinstance(one, dict) and "gap" in one)
            console.print(name, *gaps, markup=False, soft_wrap=True)
    return results


if __name__ == "__main__":
    command_line(main, Args, __doc__, (RuntimeError,), stopped="stopped; the files before are kept")
