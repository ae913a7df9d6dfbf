"""Gaps of tours of instance files over time: our search, and classical solvers with the same time.

    python benchmarks/quality/search_over_time.py rd100.tsp X-n200-k36.vrp dsj1000.tsp    # their solutions beside them

Our search improves the best of many tours, and for the TSP also a tour of greedy edges, like `solve.py --improve`. Its
first point is that tour. The policy's own searches (beam search, simulation-guided, active) start again for each
effort, and a solver for each of its time limits. All use one thread. Times are wall-clock seconds from the end of
loading. Gaps are relative to the best known cost, in the file's own integers. A plot is written beside the figures.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
import tyro
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.output import OUT, Figures, finish, save_picture
from benchmarks.quality.search_on_files import SOLVERS, UNTIMED, gap, solve
from routing_agents import load
from routing_agents.runs import check_numbers
from routing_agents.search.active import active_search
from routing_agents.search.beam import beam_search, simulation_guided_search
from routing_agents.terminal import command_line
from routing_agents.trained import choose_decoding, find_weights, load_repair
from routing_gym import data
from routing_gym.arrays import to_backend
from routing_gym.rollout import Rollout
from routing_gym.solvers import make_solver

FIRST = {"TSP": ("policy", "greedy-edge"), "CVRP": ("policy",)}  # methods that find the tours that our search improves
SEARCHES: dict[str, Callable[..., Rollout]] = {  # functions of network, problem, instance, generator and effort
    "beam search": lambda *given, generator, effort: beam_search(*given, effort),
    "simulation-guided": lambda *given, generator, effort: simulation_guided_search(*given, effort, EXPANSION),
    "active search": lambda *given, generator, effort: active_search(*given, effort, generator),
}
EXPANSION = 4  # expansion of simulation-guided search; its width is the effort
EFFORTS = (1, 3, 10, 30, 100, 300, 1_000)
MOST_COMPLETED = 300  # nodes; simulation-guided search completes tours at every node: 19 s with 200 nodes and width 1
EXACT = 0.01  # per cent; smaller gaps are drawn at this value
Points = list[tuple[float, float]]  # seconds, and the gap


@dataclass(frozen=True)
class Args:
    """Arguments of the benchmark."""

    files: tyro.conf.Positional[tuple[Path, ...]]
    """TSPLIB and CVRPLIB files with a solution beside them."""
    seconds: float = 30.0
    """Seconds of our search, and the longest time limit of a solver; the others are 1, 3, 10 and so on."""
    seed: int = 1
    """Random seed for the search and the solvers."""
    out: Path = OUT / "search_over_time.json"
    """Where the figures go. The docs show those in benchmarks/results."""

    def __post_init__(self) -> None:
        check_numbers(self, "seconds")
        if not self.files:
            raise ValueError("name at least one .tsp or .vrp file")

    @property
    def limits(self) -> list[float]:
        """Time limits of the solvers."""
        rising = [mantissa * 10.0**power for power in range(9) for mantissa in (1, 3)]
        return [*(limit for limit in rising if limit < self.seconds), self.seconds]


def search(file: data.FileInstance, first: str, args: Args) -> Points:
    """Run our search from the policy's best of many tours, or from a solver's tour."""
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


def decode(file: data.FileInstance, name: str, args: Args) -> Points:
    """Decode tours with one of `SEARCHES` and rising effort, until a run takes more than half of the seconds."""
    problem = file.problem
    model, points = load(find_weights(problem.name, problem.num_nodes)), list[tuple[float, float]]()
    instance = to_backend(problem.rescale(file.instance), "torch")
    for effort in EFFORTS:
        started = time.perf_counter()
        generator = torch.Generator().manual_seed(args.seed)
        found = SEARCHES[name](model.network, problem, instance, generator=generator, effort=effort)
        points.append((time.perf_counter() - started, gap(file, found.actions[0].numpy())))
        if points[-1][0] > args.seconds / 2:
            break
    return points


def classical(file: data.FileInstance, name: str, args: Args) -> Points:
    """Run a solver with each time limit, or once if it has none."""
    return [solve(file, name, limit, args.seed) for limit in (args.limits[:1] if name in UNTIMED else args.limits)]


def methods(file: data.FileInstance, args: Args) -> dict[str, Callable[[], Points]]:
    """Return the function that measures each curve of a file."""
    name, completed = file.problem.name, file.problem.num_nodes <= MOST_COMPLETED
    return {
        **{f"search, from {first}": partial(search, file, first, args) for first in FIRST[name]},
        **{way: partial(decode, file, way, args) for way in SEARCHES if completed or way != "simulation-guided"},
        **{solver: partial(classical, file, solver, args) for solver in SOLVERS[name]},
    }


def draw(curves: dict[str, dict[str, Points]], out: Path) -> None:
    """Plot gaps against seconds, a plot for each file."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4 * len(curves), 3.6), layout="constrained")
    colors = {label: f"C{k}" for k, label in enumerate(dict.fromkeys(label for of in curves.values() for label in of))}
    for axes, (name, of_file) in zip(np.atleast_1d(figure.subplots(1, len(curves))), curves.items(), strict=True):
        for label, points in of_file.items():
            seconds, gaps = zip(*points, strict=True)
            style = "-" if label.startswith("search") else "o:"
            shown = [max(100 * value, EXACT) for value in gaps]
            axes.plot(seconds, shown, style, color=colors[label], markersize=4, label=label)
        axes.set(title=name, xlabel="seconds", xscale="log", yscale="log", ylim=(0.8 * EXACT, None))
        axes.grid(alpha=0.3)
        axes.legend(fontsize="x-small")
    figure.axes[0].set_ylabel(f"gap to the best known cost (%); {EXACT}: none")
    save_picture(figure, out, "search_over_time.png", dpi=150)


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
    jobs = [(file, *method) for file in files for method in methods(file, args).items()]
    curves: dict[str, dict[str, Points]] = {file.name: {} for file in files}
    for file, label, measure in track(jobs, "Measuring", console=Console(stderr=True)):
        curves[file.name][label] = measure()
    draw(curves, args.out)
    table = Table("file", "method", "first", "last", title="Seconds and gaps")
    for name, of_file in curves.items():
        for label, points in of_file.items():
            table.add_row(name, label, *(f"{points[i][0]:.2g} s {points[i][1]:.2%}" for i in (0, -1)))
    return finish(args, {"curves": curves}, table)


if __name__ == "__main__":
    command_line(main, Args, __doc__, (RuntimeError,), stopped="stopped; nothing is written")
