"""Memory and time of greedy decoding against the number of nodes.

    python benchmarks/quality/large_instances.py     # writes figures, and a plot beside them

Each case runs in a fresh process. Memory is the peak resident set of that process, Python and torch included. The
weights are untrained, which changes the tours but neither the shapes nor, for the TSP, the number of steps. Only on
Linux.
"""

from __future__ import annotations

import multiprocessing
import re
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import track

from benchmarks import speed_tables
from benchmarks.arguments import check_problems
from benchmarks.output import OUT, Figures, finish, save_picture
from routing_agents.policies.attention.decoding import GREEDY, Decoding, solve
from routing_agents.policies.attention.features import features_named
from routing_agents.policies.attention.memory import chunk_size
from routing_agents.policies.attention.model import AttentionModel, ModelConfig
from routing_agents.runs import check_integers
from routing_agents.terminal import command_line
from routing_agents.training.tuning import keep_freed_memory
from routing_gym.arrays import to_backend
from routing_gym.problems import make_problem

STATUS = Path("/proc/self/status")


@dataclass(frozen=True)
class Args:
    """Arguments of the benchmark."""

    problems: tuple[str, ...] = ("TSP", "CVRP")
    """What to decode."""
    sizes: tuple[int, ...] = (100, 200, 500, 1000, 2000, 5000, 10_000)
    """Nodes of single instances."""
    batch: int = 1024
    """Instances with `batch_nodes` nodes, the one case with many."""
    batch_nodes: int = 100
    """Nodes of each of them."""
    threads: int = 1
    """CPU threads."""
    out: Path = OUT / "large_instances.json"
    """Where the figures go. The docs show those in benchmarks/results."""

    def __post_init__(self) -> None:
        check_problems(*(f"{name}-2" for name in self.problems))
        check_integers(self, "sizes", "batch", "batch_nodes", "threads")


@dataclass(frozen=True)
class Case:
    """One measurement."""

    problem: str
    num_nodes: int
    num_instances: int = 1
    threads: int = 1
    decoding: Decoding = GREEDY
    config: ModelConfig = ModelConfig()


def measure(case: Case) -> dict[str, Any]:
    """Decode in this process, which must be a fresh one."""
    torch.set_num_threads(case.threads)
    keep_freed_memory()  # like solve.py and evaluate.py
    problem = make_problem(case.problem, case.num_nodes)
    instance = to_backend(problem.generate(np.random.default_rng(1), case.num_instances), "torch")
    generator = torch.Generator().manual_seed(1)
    model = AttentionModel(features_named(case.problem), case.config, generator).eval()
    chunk = chunk_size(model, problem, case.num_instances, case.decoding.num_tours, None)
    before, started = kilobytes("VmRSS:"), time.perf_counter()
    found = solve(model, problem, instance, case.decoding, generator)
    seconds, peak = time.perf_counter() - started, kilobytes("VmHWM:")
    problem.objective(instance, found.actions)  # raises if a tour is invalid
    return {
        "problem": case.problem,
        "num_nodes": case.num_nodes,
        "num_instances": case.num_instances,
        "steps": found.actions.shape[1],
        "seconds": seconds,
        "peak_bytes": 1024 * peak,
        "before_bytes": 1024 * before,
        "instances_at_a_time": chunk[0],
    }


def kilobytes(key: str) -> int:
    """Read one of the sizes in /proc/self/status; unlike ru_maxrss, they do not start at the parent's peak."""
    return int(re.search(rf"^{key}\s+(\d+)", STATUS.read_text(), re.MULTILINE)[1])


def measure_apart(case: Case) -> dict[str, Any]:
    """Measure in a fresh process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(measure, (case,))


def draw(rows: list[dict[str, Any]], args: Args) -> None:
    """Plot memory and time against the number of nodes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    memory, seconds = figure.subplots(1, 2)
    for number, name in enumerate(args.problems):
        own = [row for row in rows if row["problem"] == name]
        one = [row for row in own if row["num_instances"] == 1]
        many = [row for row in own if row["num_instances"] > 1]
        sizes, colour = [row["num_nodes"] for row in one], f"C{number}"
        for axes, value in ((memory, lambda row: row["peak_bytes"] / 1e9), (seconds, lambda row: row["seconds"])):
            axes.plot(sizes, [value(row) for row in one], "o-", color=colour, label=f"{name}, one instance")
            label = f"{name}, {args.batch:,} instances"
            axes.plot([row["num_nodes"] for row in many], [value(row) for row in many], "*", color=colour, label=label)
    memory.axhline(rows[0]["before_bytes"] / 1e9, color="grey", linestyle=":", label="before decoding")
    memory.set(ylabel="peak memory of the process (GB)")
    seconds.set(ylabel="seconds")
    for axes in (memory, seconds):
        axes.set(xlabel="nodes", xscale="log", yscale="log")
        axes.grid(alpha=0.3)
        axes.legend(fontsize="x-small")
    save_picture(figure, args.out, "large_instances.png", dpi=150)


def main(args: Args) -> Figures:
    """Measure, print a table, write the figures and draw them.

    Raises:
        OSError: The system is not Linux.
    """
    if not STATUS.exists():
        raise OSError(f"no {STATUS}: the peak memory of a process is read there; run this on Linux")
    cases = [Case(name, size, 1, args.threads) for name in args.problems for size in args.sizes]
    cases += [Case(name, args.batch_nodes, args.batch, args.threads) for name in args.problems]
    rows = [measure_apart(case) for case in track(cases, "decoding", console=Console(stderr=True))]
    draw(rows, args)
    figures = {"model": asdict(ModelConfig()), "rows": rows}
    return finish(args, figures, speed_tables.large_instances(figures))


if __name__ == "__main__":
    command_line(main, Args, __doc__, stopped="stopped; nothing is written")
