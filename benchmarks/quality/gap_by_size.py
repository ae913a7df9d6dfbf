"""Gaps of tours on random instances of other sizes than those the weights were trained on.

    python benchmarks/quality/gap_by_size.py     # writes figures, and a plot beside them

Tours are one greedy tour, and the best of the eight under the symmetries of the square. Gaps are those of mean costs,
to fast-tsp (TSP) and hygese (CVRP). All run on one thread. The larger the instances, the fewer are solved.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from benchmarks.output import OUT, Figures, finish, save_picture
from benchmarks.quality import quality_tables
from routing_agents import TrainedModel, load
from routing_agents.policies.attention.decoding import GREEDY, Decoding
from routing_agents.runs import check_integers, check_numbers
from routing_agents.terminal import command_line
from routing_gym.problems import make_problem
from routing_gym.solvers import REFERENCES, make_solver

PROBLEMS = ("TSP", "CVRP")
DECODINGS = {"greedy": GREEDY, "best of 8": Decoding(symmetries=8)}


@dataclass(frozen=True)
class Args:
    """Arguments of the benchmark."""

    sizes: tuple[int, ...] = (20, 50, 100, 200, 500, 1000)
    """Nodes of the instances."""
    nodes: int = 1000
    """Number of nodes of all instances of a size together; at least two instances are solved."""
    node_seconds: float = 0.01
    """Time limit of the reference solver for each node."""
    seed: int = 1
    """Random seed for the instances and the solvers."""
    out: Path = OUT / "gap_by_size.json"
    """Where the figures go. The docs show those in benchmarks/results."""

    def __post_init__(self) -> None:
        check_integers(self, "sizes", "nodes")
        check_numbers(self, "node_seconds")


def load_models(problem: str) -> dict[str, TrainedModel]:
    """Load the weights for 50 nodes and those for 100."""
    return {name: load(name) for name in (f"{problem}-50", f"{problem}-100")}


def measure(name: str, size: int, models: dict[str, TrainedModel], args: Args) -> dict[str, Any]:
    """Solve instances of one size with all models; return the gaps of their mean costs."""
    problem, count = make_problem(name, size), max(2, args.nodes // size)
    instance = problem.generate(np.random.default_rng(args.seed), count)
    solver = make_solver(REFERENCES[name], time_limit=args.node_seconds * size)
    reference = solver.solve(problem, instance, seed=args.seed, num_workers=0)
    if reference.failed.any():
        raise RuntimeError(f"{solver.label} found no tour of {problem}: {reference.status}")
    gaps = {}
    for label, model in models.items():
        for way, decoding in DECODINGS.items():
            actions = model.solve_batch(problem, instance, decoding).actions.numpy()
            cost = problem.objective(instance, actions).mean()
            gaps[f"{label}, {way}"] = float(cost / reference.cost.mean() - 1)
    return {"problem": name, "size": size, "instances": count, "solver": solver.label, "gaps": gaps}


def draw(rows: list[dict[str, Any]], args: Args) -> None:
    """Plot the gaps against the number of nodes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    for axes, name in zip(figure.subplots(1, 2), PROBLEMS, strict=True):
        own = [row for row in rows if row["problem"] == name]
        for number, label in enumerate(own[0]["gaps"]):
            gaps = [100 * row["gaps"][label] for row in own]
            style = "o--" if label.endswith("greedy") else "o-"
            axes.plot([row["size"] for row in own], gaps, style, color=f"C{number // 2}", label=label, markersize=4)
        axes.set(title=name, xlabel="nodes", ylabel=f"gap to {REFERENCES[name]} (%)", xscale="log")
        axes.set_yscale("symlog", linthresh=1)
        axes.set_ylim(bottom=min(0.0, *(100 * gap for row in own for gap in row["gaps"].values())))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.set_xticks(args.sizes, [f"{size:,}" for size in args.sizes], minor=False)
        axes.grid(alpha=0.3)
        axes.legend(fontsize="x-small")
    save_picture(figure, args.out, "gap_by_size.png", dpi=150)


def main(args: Args) -> Figures:
    """Measure, print a table, write the figures and draw them.

    Raises:
        RuntimeError: A reference solver found no tour.
    """
    torch.set_num_threads(1)
    console, rows = Console(stderr=True), []
    for name in PROBLEMS:
        models = load_models(name)
        for size in args.sizes:
            rows.append(measure(name, size, models, args))
            finish(args, {"rows": rows})
            console.print(f"{name}-{size}: {rows[-1]['gaps']}", markup=False)
    draw(rows, args)
    figures = {"rows": rows}
    return finish(args, figures, quality_tables.gap_by_size(figures))


if __name__ == "__main__":
    command_line(main, Args, __doc__, (RuntimeError,))
