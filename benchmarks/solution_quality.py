"""The original weights of Kool et al. (2019) on the paper's own test instances, beside the paper's table.

    python benchmarks/solution_quality.py --weights ../shared/data/kool     # hours: see --samples

For each problem at n = 20: greedy decoding of all 10,000 instances, the best of 1,280 samples, and a
classical solver on the first `--reference-size` instances. The solver's mean over all 10,000 is
estimated with the greedy costs as a control variate, which shrinks its error about tenfold. Each
problem's figures are written as soon as they are there, and are not computed again.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import tyro
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from hardware import describe_machine
from routing_gym.arrays import select, to_backend
from routing_gym.data.files import write_atomically
from routing_gym.data.paper import paper_test_set
from routing_gym.evaluate import FloatArray, controlled_mean, mean_interval
from routing_gym.problems import make_problem
from routing_gym.solvers import REFERENCES, make_solver

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "agents"))

from decoding import Decoding, solve  # noqa: E402
from import_original import load_original  # noqa: E402
from tuning import keep_freed_memory  # noqa: E402

FOLDERS = {
    "TSP": "tsp_20",
    "CVRP": "cvrp_20",
    "SDVRP": "sdvrp_20",
    "OP": "op_dist_20",
    "PCTSP": "pctsp_det_20",
    "SPCTSP": "pctsp_stoch_20",
}
PAPER = {  # table 1, n = 20: greedy, best of 1,280 samples, best known; OP is a prize
    "TSP": (3.85, 3.84, 3.84),
    "CVRP": (6.40, 6.25, 6.10),
    "SDVRP": (6.39, 6.25, None),
    "OP": (5.19, 5.30, 5.39),
    "PCTSP": (3.18, 3.15, 3.13),
    "SPCTSP": (3.26, None, None),
}


@dataclass(frozen=True)
class Args:
    """Arguments of the benchmark."""

    weights: Path
    """Folder with tsp_20/epoch-99.pt etc., as the original code releases them."""
    problems: tuple[str, ...] = tuple(FOLDERS)
    """What to measure."""
    size: int = 10_000
    """Instances to decode."""
    samples: int = 1280
    """Sampled tours per instance; 0 leaves the column out."""
    sampling_size: int = 10_000
    """Instances to sample for; where fewer than all, the mean over all is estimated as the solver's is."""
    reference_size: int = 200
    """Instances for the classical solver; 0 leaves the column out."""
    batch_size: int = 10_240
    """Tours decoded at a time."""
    workers: int = 2
    """Processes of the classical solvers."""
    out: Path = ROOT / "benchmarks" / "results" / "solution_quality.json"
    """Where the figures go."""


def decode(args: Args, name: str, decoding: Decoding, label: str, size: int) -> tuple[FloatArray, float]:
    """Return the costs of the first instances, rescored by `objective`, and the seconds it took."""
    model = load_original(args.weights / FOLDERS[name] / "epoch-99.pt", name)
    problem = make_problem(name, 20)
    instance = to_backend(select(paper_test_set(name, 20, size=args.size), slice(0, size)), "torch")
    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task(f"{name} {label}", total=size)
        started = time.perf_counter()
        found = solve(
            model,
            problem,
            instance,
            decoding,
            torch.Generator().manual_seed(1234),
            args.batch_size,
            lambda done: progress.advance(task, done),
        )
        seconds = time.perf_counter() - started
    return problem.objective(instance, found.actions).numpy(), seconds


def measure(args: Args, name: str) -> dict[str, Any]:
    """Measure all columns of one problem."""
    greedy, seconds = decode(args, name, Decoding(), "greedy", args.size)
    figures: dict[str, Any] = {"greedy": mean_interval(greedy), "greedy_instances_per_second": args.size / seconds}
    if args.samples and name != "SPCTSP":  # to choose among tours by the revealed prizes would be cheating
        size = min(args.sampling_size, args.size)
        best, seconds = decode(args, name, Decoding(args.samples, sample=True), f"best of {args.samples}", size)
        whole = size == args.size
        mean = mean_interval(best) if whole else controlled_mean(best, greedy[:size], float(greedy.mean()))
        figures |= {"sampling": mean, "sampling_seconds_per_instance": seconds / size}
    if args.reference_size and name in REFERENCES:
        figures |= reference(args, name, greedy)
    return figures


def reference(args: Args, name: str, greedy: FloatArray) -> dict[str, Any]:
    """Solve the first instances, and estimate the solver's mean over all of them from the greedy costs."""
    problem = make_problem(name, 20)
    instance = select(paper_test_set(name, 20, size=args.size), slice(0, args.reference_size))
    solver = make_solver(REFERENCES[name])
    solution = solver.solve(problem, instance, seed=1234, num_workers=args.workers, progress=True)
    if solution.failed.any():
        raise RuntimeError(f"{solver.name} failed on {solution.failed.sum()} instances: {set(solution.status)}")
    return {
        "reference_solver": solver.label,
        "reference": controlled_mean(solution.cost, greedy[: args.reference_size], float(greedy.mean())),
        "reference_seconds_per_instance": float(solution.seconds.mean()),
    }


def show(name: str, figures: dict[str, Any]) -> tuple[str, ...]:
    """Return a row of the table: ours with 95 % half-widths, beside the paper's; prizes positive."""

    def ours(column: str) -> str:
        if column not in figures:
            return "-"
        value, low, high = figures[column]
        return f"{abs(value):.3f} ± {(high - low) / 2:.3f}"

    paper = ("-" if value is None else f"{value:.2f}" for value in PAPER[name])
    cells = zip(map(ours, ("greedy", "sampling", "reference")), paper, strict=True)
    return name, *(cell for pair in cells for cell in pair), figures.get("reference_solver", "-")


def main(args: Args) -> dict[str, Any]:
    """Measure what is not there yet, problem by problem; print the table."""
    keep_freed_memory()
    names = ("size", "samples", "sampling_size", "reference_size")
    settings = {name: getattr(args, name) for name in names}
    results = json.loads(args.out.read_text()) if args.out.exists() else {"settings": settings, "problems": {}}
    if results["settings"] != settings:
        raise ValueError(f"{args.out} holds figures for {results['settings']}, not {settings}; move it away first")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    for name in args.problems:
        if name not in results["problems"]:
            results["problems"][name] = {**measure(args, name), "machine": describe_machine()}
            write_atomically(args.out, (json.dumps(results, indent=2) + "\n").encode())
    columns = ("greedy", "paper", f"best of {args.samples}", "paper (1280)", "reference", "paper", "solver")
    table = Table("problem", *columns)
    for name in args.problems:
        table.add_row(*show(name, results["problems"][name]))
    Console(width=140).print(table)
    return results


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
