"""How good tours of instance files get within seconds: our search, and classical solvers given as long.

    python benchmarks/search_over_time.py rd100.tsp X-n200-k36.vrp dsj1000.tsp     # with their solutions beside them

Our search goes on from the best of many tours, and for the TSP also from greedy edges, as `solve.py --improve` does;
its first point is that tour. A solver is run anew for each of its time limits. One thread, wall-clock seconds from the
end of loading; gaps are to the best known cost, in the file's own integers. Writes
benchmarks/results/search_over_time.json and a plot into docs.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro
from rich.console import Console
from rich.progress import track
from rich.table import Table

from output import Figures, finish
from routing_agents import load
from routing_agents.runs import check_positive
from routing_agents.trained import choose_decoding, find_weights, load_repair
from routing_gym import data
from routing_gym.solvers import make_solver

ROOT = Path(__file__).parents[1]
SOLVERS = {"TSP": ("fast-tsp", "2-opt+or-opt"), "CVRP": ("pyvrp", "hygese")}  # beside our search
FIRST = {"TSP": ("policy", "greedy-edge"), "CVRP": ("policy",)}  # who finds the tour that our search improves
EXACT = 0.01  # percent; what is better is drawn here
Points = list[tuple[float, float]]  # seconds, and the gap


@dataclass(frozen=True)
class Args:
    """Arguments of the benchmark."""

    files: tyro.conf.Positional[tuple[Path, ...]]
    """TSPLIB and CVRPLIB files with a solution beside them."""
    seconds: float = 30.0
    """Of our search, and the longest time limit of a solver; the others are 1, 3, 10 and so on."""
    seed: int = 1
    """Of the search and the solvers."""
    out: Path = ROOT / "benchmarks" / "results" / "search_over_time.json"
    """Where the figures go."""
    plot: Path = ROOT / "docs" / "search_over_time.png"
    """Where the plot goes."""

    def __post_init__(self) -> None:
        check_positive(self, "seconds")
        if not self.files:
            raise ValueError("name at least one .tsp or .vrp file")

    @property
    def limits(self) -> list[float]:
        """Time limits of the solvers."""
        rising = [mantissa * 10.0**power for power in range(9) for mantissa in (1, 3)]
        return [*(limit for limit in rising if limit < self.seconds), self.seconds]


def gap(file: data.FileInstance, actions: Any) -> float:
    """Return by how much a tour costs more than the best known one."""
    assert file.best_known is not None
    return file.cost(np.asarray(actions)) / file.best_known - 1


def search(file: data.FileInstance, first: str, args: Args) -> Points:
    """Run our search from the policy's best of many tours, or from a solver's."""
    problem, instance = file.problem, file.instance
    model, repair = load(find_weights(problem.name, problem.num_nodes)), load_repair(problem)
    started = time.perf_counter()
    if first == "policy":
        actions = model.solve_batch(problem, instance, choose_decoding("starts", problem)).actions[0].numpy()
    else:
        actions = make_solver(first).solve(problem, instance).actions[0]
    before = time.perf_counter() - started
    points = [(before, gap(file, actions))]
    improved = repair.improve(
        problem,
        instance,
        actions,
        args.seconds,
        args.seed,
        lambda seconds, best: points.append((before + seconds, gap(file, best))),
    )
    if improved.interrupted:  # not a measurement
        raise KeyboardInterrupt
    return points


def solve(file: data.FileInstance, name: str, args: Args) -> Points:
    """Run a solver with each time limit, or once if it has none."""
    settings: list[dict[str, float]] = [{"time_limit": limit} for limit in args.limits]
    points = []
    for setting in [{}] if name == "2-opt+or-opt" else settings:
        solution = make_solver(name, **setting).solve(file.problem, file.instance, seed=args.seed)
        if solution.failed.any():
            raise RuntimeError(f"{name} failed on {file.name}: {solution.status[0]}")
        points.append((float(solution.seconds[0]), gap(file, solution.actions[0])))
    return points


def draw(curves: dict[str, dict[str, Points]], path: Path) -> None:
    """Plot gaps against seconds, a plot for each file."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4 * len(curves), 3.6), layout="constrained")
    for axes, (name, of_file) in zip(np.atleast_1d(figure.subplots(1, len(curves))), curves.items(), strict=True):
        for label, points in of_file.items():
            seconds, gaps = zip(*points, strict=True)
            style = "-" if label.startswith("search") else "o:"
            axes.plot(seconds, [max(100 * value, EXACT) for value in gaps], style, markersize=4, label=label)
        axes.set(title=name, xlabel="seconds", xscale="log", yscale="log", ylim=(0.8 * EXACT, None))
        axes.grid(alpha=0.3)
        axes.legend(fontsize="x-small")
    figure.axes[0].set_ylabel(f"gap to the best known cost (%); {EXACT}: none")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def main(args: Args) -> Figures:
    """Measure, print a table, write the figures and draw them.

    Raises:
        ValueError: A file cannot be read, has no best known cost, or is of another problem than TSP and CVRP.
    """
    torch.set_num_threads(1)
    files = [data.read_instance(path) for path in args.files]
    for path, file in zip(args.files, files, strict=True):
        if file.problem.name not in SOLVERS:
            raise ValueError(f"{path} is a {file.problem.name}; tours of {' and '.join(SOLVERS)} can be improved")
        if file.best_known is None:
            raise ValueError(f"{path}: no solution lies beside it, to which a gap could be measured")
    jobs = [
        *((file, first, True) for file in files for first in FIRST[file.problem.name]),
        *((file, name, False) for file in files for name in SOLVERS[file.problem.name]),
    ]
    curves: dict[str, dict[str, Points]] = {file.name: {} for file in files}
    for file, name, ours in track(jobs, "Measuring", console=Console(stderr=True)):
        points = search(file, name, args) if ours else solve(file, name, args)
        curves[file.name][f"search, from {name}" if ours else name] = points
    draw(curves, args.plot)
    table = Table("file", "method", "first", "last", title="Seconds and gaps")
    for name, of_file in curves.items():
        for label, points in of_file.items():
            table.add_row(name, label, *(f"{points[i][0]:.2g} s {points[i][1]:.2%}" for i in (0, -1)))
    return finish(args, {"curves": curves}, table)


if __name__ == "__main__":
    try:
        main(tyro.cli(Args, description=__doc__))
    except (ValueError, RuntimeError, OSError, ImportError) as error:
        sys.exit(f"search_over_time: {error}")
    except KeyboardInterrupt:
        sys.exit("search_over_time: stopped; nothing is written")
