"""Costs of tours of trained weights and classical solvers, on the paper's test instances or on random ones.

    python benchmarks/quality/solution_quality.py                                   # the published weights
    python benchmarks/quality/solution_quality.py --weights ../shared/data/kool     # also the original code's, n = 20

For each problem and size of the paper: our weights (greedy; multi-start, the best of the greedy tours from every start,
or of 16 samples if the first node matters; the same under each of the eight symmetries of the square; the best of many
samples), the original weights of Kool et al. (2019), and a classical solver on the first instances only. For other
problems, 1,000 random instances: greedy, the best of 128 tours (greedy tours from several starts if the problem has no
depot and any first node is allowed, else samples; equally many under each symmetry), and a solver. If a method runs on
some of the instances only, its mean over all is estimated with the model's costs of all as a control variate, which
reduces the error.

Each figure is written as soon as it is measured, and is not measured again with the same settings and weights, so an
interrupted run can be continued. A solver's figure is kept if only the weights of the control variate are new. The
`--files` are always solved again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import Progress

from benchmarks.hardware import describe_machine
from benchmarks.output import OUT, Figures, read_figures, write_figures
from benchmarks.quality.quality_tables import DEPOTS, FLEETS, OTHERS, PAPER, ROADS, tables
from import_original import load_original
from routing_agents.evaluation.methods import weights_digest
from routing_agents.policies.attention.decoding import Decoding, num_symmetries, solve
from routing_agents.policies.attention.model import AttentionModel
from routing_agents.policies.attention.saved import load_model
from routing_agents.runs import check_integers
from routing_agents.terminal import command_line
from routing_agents.trained import WEIGHTS, find_weights
from routing_agents.training.tuning import keep_freed_memory
from routing_gym.arrays import FloatArray, select, to_backend
from routing_gym.data.paper import paper_test_set
from routing_gym.evaluate import controlled_mean, mean_interval
from routing_gym.problem import AnyProblem
from routing_gym.problems import make_problem
from routing_gym.solvers import REFERENCES, SOLVERS, ExactMIP, PyVRP, Solver, make_solver
from routing_gym.solvers.runtime.executors import ExecutorName, executor_of
from solve import Args as SolveArgs
from solve import main as solve_files

FOLDERS = {
    "TSP": "tsp_20",
    "CVRP": "cvrp_20",
    "SDVRP": "sdvrp_20",
    "OP": "op_dist_20",
    "PCTSP": "pctsp_det_20",
    "SPCTSP": "pctsp_stoch_20",
}
TIME_LIMITS = {  # seconds by size; other solvers have their own default for every size
    "hygese": {20: 0.1, 50: 0.3, 100: 1.0},
    "pyvrp": {20: 0.3, 50: 2.0, 100: 5.0},
    "ortools": {20: 1.0, 50: 5.0},
}
SETS = (*PAPER, *OTHERS, *DEPOTS, *FLEETS, *ROADS)
MOST_PROVEN = 20  # most nodes with milp as the reference of a problem that pyvrp solves, too: OP
TEST_SIZE = 10_000  # instances of a test set of the paper
OTHER_SIZE, OTHER_SEED, OTHER_TOURS = 1_000, 4_321, 128  # for problems that the paper lacks


@dataclass(frozen=True)
class Args:
    """Arguments of the benchmark."""

    weights: Path | None = None
    """Folder with tsp_20/epoch-99.pt etc., as the original code releases them."""
    own: Path = WEIGHTS
    """Folder with tsp-20.safetensors etc."""
    sets: tuple[str, ...] = SETS
    """What to measure: problem and size; -matrices- for instances on streets."""
    size: int = 10_000
    """Instances to decode: the first, of 10,000; at most 1,000 of a problem that the paper has not."""
    samples: int = 1280
    """Sampled tours per instance; 0 leaves the columns out."""
    sampling_size: int = 10_000
    """Instances to sample for."""
    search_size: tuple[int, int, int] = (10_000, 1_000, 250)
    """Instances to search where n = 20, 50 and 100."""
    reference_size: tuple[int, int, int] = (200, 100, 40)
    """Instances for the classical solver where n = 20, 50 and 100; 0 leaves them out."""
    batch_size: int = 10_240
    """Tours decoded at a time."""
    workers: int = 2
    """Processes of the classical solvers."""
    executor: ExecutorName | None = None
    """Where the classical solvers run. Default: in worker processes."""
    address: str | None = None
    """Address of a Ray cluster."""
    files: tuple[Path, ...] = ()
    """TSPLIB, CVRPLIB and OPLib files to solve as `agents/solve.py` does."""
    out: Path = OUT / "solution_quality.json"
    """Where the figures go; those of an earlier run are continued. The docs show those in benchmarks/results."""

    def __post_init__(self) -> None:
        check_integers(self, "size", most=TEST_SIZE)
        check_integers(self, "sampling_size", "search_size", "batch_size", "workers")
        check_integers(self, "samples", "reference_size", least=0)
        if unknown := [name for name in self.sets if name not in SETS]:
            raise ValueError(f"--sets: no {', '.join(unknown)}; choose among {', '.join(SETS)}")
        if missing := [str(file) for file in self.files if not file.is_file()]:
            raise FileNotFoundError(f"--files: no file {', '.join(missing)}")
        if self.weights is not None and not self.weights.is_dir():
            raise FileNotFoundError(
                f"--weights {self.weights}: no such folder; expected one with tsp_20/epoch-99.pt etc."
            )


@dataclass(frozen=True)
class TestSet:
    """One problem and size, with the weights for it."""

    args: Args
    title: str

    @cached_property
    def problem(self) -> AnyProblem:
        """The problem, with its size."""
        name, *matrices, num_nodes = self.title.split("-")
        return make_problem(name, int(num_nodes), matrices=bool(matrices))

    @property
    def name(self) -> str:
        """Name of the problem."""
        return self.problem.name

    @property
    def num_nodes(self) -> int:
        """Number of nodes of the instances."""
        return self.problem.num_nodes

    @property
    def in_paper(self) -> bool:
        """Whether the paper has figures of this problem and size."""
        return self.title in PAPER

    @property
    def size(self) -> int:
        """Number of instances to decode."""
        return self.args.size if self.in_paper else min(self.args.size, OTHER_SIZE)

    @property
    def original(self) -> Path | None:
        """File of the original weights; only for n = 20, and with `--weights`."""
        if self.num_nodes != 20 or self.name not in FOLDERS:
            return None
        return self.args.weights and self.args.weights / FOLDERS[self.name] / "epoch-99.pt"

    @property
    def own(self) -> Path | None:
        """File of our weights: the problem's own or its family's; for the paper's problems only those of this size."""
        try:
            path = find_weights(self.name, self.num_nodes, self.args.own, matrices=self.problem.matrices)
        except ValueError:
            return None
        return path if not self.in_paper or path.stem.endswith(f"-{self.num_nodes}") else None

    @cache  # noqa: B019  (a few test sets live as long as the program)
    def decode(self, weights: Path, decoding: Decoding, size: int) -> tuple[FloatArray, float]:
        """Return the costs of the first instances, rescored by `objective`, and the seconds per instance."""
        instance = to_backend(select(self.instances(), slice(0, size)), "torch")
        generator = torch.Generator().manual_seed(1234)
        with Progress(console=Console(stderr=True)) as progress:
            task = progress.add_task(f"{self.title} {weights.name} {decoding.num_tours}", total=size)
            started = time.perf_counter()
            found = solve(
                load(self.name, weights),
                self.problem,
                instance,
                decoding,
                generator,
                self.args.batch_size,
                lambda done: progress.advance(task, done),
            )
            seconds = time.perf_counter() - started
        return self.problem.objective(instance, found.actions).numpy(), seconds / size

    def instances(self) -> Any:
        """Return the first instances of the paper's test set; for a problem that the paper lacks, random ones."""
        if not self.in_paper:
            return self.problem.generate(np.random.default_rng(OTHER_SEED), self.size)
        return select(paper_test_set(self.name, self.num_nodes), slice(0, self.size))

    def sampled(self, weights: Path) -> dict[str, Any]:
        """Measure the best of many samples."""
        return self.best_of_many(weights, Decoding(self.args.samples, sample=True), self.args.sampling_size)

    def searched(self, weights: Path, symmetries: int) -> dict[str, Any]:
        """Measure the best of several tours under `symmetries` symmetries."""
        return self.best_of_many(weights, self.search(symmetries), self.of_size(self.args.search_size))

    def best_of_many(self, weights: Path, decoding: Decoding, size: int) -> dict[str, Any]:
        """Measure the best of many tours on the first instances, with the greedy tours of all as control variate."""
        size = min(size, self.size)
        cost, seconds = self.decode(weights, decoding, size)
        return self.figures(cost, seconds, None if size == self.size else self.greedy(weights)[0])

    def figures(self, cost: FloatArray, seconds: float, control: FloatArray | None = None) -> dict[str, Any]:
        """Return mean and time; `control`, costs of all instances, is the control variate for the mean of a part."""
        if control is None:
            mean = mean_interval(cost)
        else:
            mean = controlled_mean(cost, control[: len(cost)], float(control.mean()))
        return {"mean": mean, "instances": len(cost), "seconds_per_instance": seconds}

    def greedy(self, weights: Path) -> tuple[FloatArray, float]:
        """Decode all instances greedily."""
        return self.decode(weights, Decoding(), self.size)

    def search(self, symmetries: int = 8) -> Decoding:
        """Return the multi-start decoding: greedy tours from every start if the problem allows it, else 16 samples."""
        symmetries = min(symmetries, num_symmetries(self.problem))
        if self.problem.any_first_node:
            return Decoding(self.num_nodes, force_starts=True, symmetries=symmetries)
        return Decoding(16, sample=True, symmetries=symmetries)

    def many(self) -> Decoding:
        """Return the decoding of 128 tours, equally many per symmetry: greedy from several starts, or samples."""
        symmetries = num_symmetries(self.problem)
        starts = self.problem.any_first_node and not self.problem.has_depot
        return Decoding(OTHER_TOURS // symmetries, sample=not starts, force_starts=starts, symmetries=symmetries)

    def solver(self) -> Solver:
        """Return the reference solver with its time limit for this size."""
        return reference_solver(self.problem)

    def of_size(self, sizes: tuple[int, int, int]) -> int:
        """Return the number for this size, from those for 20, 50 and 100 nodes."""
        return dict(zip((20, 50, 100), sizes, strict=True))[self.num_nodes]

    def reference(self) -> dict[str, Any]:
        """Solve the first instances with the reference solver.

        Raises:
            RuntimeError: The solver failed on some instances.
        """
        solver, size = self.solver(), self.of_size(self.args.reference_size)
        solution = solver.solve(
            self.problem,
            select(self.instances(), slice(0, size)),
            seed=1234,
            num_workers=self.args.workers,
            progress=True,
            executor=executor_of(self.args),
        )
        if solution.failed.any():
            raise RuntimeError(f"{solver.name} failed on {solution.failed.sum()} instances: {set(solution.status)}")
        weights = self.own or self.original
        assert weights is not None
        if not self.in_paper:
            decoding = self.many()
        elif self.own and self.of_size(self.args.search_size) >= self.size:
            decoding = self.search()
        else:
            decoding = Decoding()
        control, _ = self.decode(weights, decoding, self.size)
        return self.figures(solution.cost, float(solution.seconds.mean()), control)

    def measurements(self) -> Iterator[tuple[str, dict[str, Any], Any]]:
        """Yield the columns that can be measured: name, settings, and a function that measures."""
        size = {"size": self.size}
        samples = {**size, "samples": self.args.samples, "sampling_size": self.args.sampling_size}
        search = {**size, "search_size": self.of_size(self.args.search_size), "tours": self.search().num_tours}
        reference_size = self.of_size(self.args.reference_size)
        choice = not self.problem.stochastic  # for stochastic problems, a policy cannot choose among tours
        for prefix, weights in (("original ", self.original), ("", self.own)):
            if weights is None:
                continue
            of = {"weights": weights_digest(weights)}
            yield f"{prefix}greedy", size | of, lambda w=weights: self.figures(*self.greedy(w))
            if not self.in_paper:
                many = size | of | ({"starts": True} if self.many().force_starts else {})
                yield "best of 128", many, lambda w=weights: self.best_of_many(w, self.many(), OTHER_SIZE)
                continue
            if self.args.samples and choice:
                yield f"{prefix}sampling", samples | of, lambda w=weights: self.sampled(w)
            if not prefix and choice:
                yield "multi-start", search | of, lambda w=weights: self.searched(w, 1)
                yield "symmetries", search | of, lambda w=weights: self.searched(w, 8)
        if reference_size and (self.own or self.original):
            yield "reference", {**size, "reference_size": reference_size, "solver": self.solver().label}, self.reference


def reference_solver(problem: AnyProblem, longer: int = 1) -> Solver:
    """Return the reference solver of a problem, with `longer` times its time limit for this size."""
    name = REFERENCES[problem.name]
    unproven = name == ExactMIP.name and problem.num_nodes > MOST_PROVEN
    if (unproven or (problem.matrices and SOLVERS[name].needs_symmetry)) and problem.name in PyVRP.problems:
        name = PyVRP.name
    limits = TIME_LIMITS.get(name)
    return make_solver(name, **({"time_limit": longer * limits[problem.num_nodes]} if limits else {}))


@cache
def load(name: str, weights: Path) -> AttentionModel:
    """Read weights, ours or the original code's."""
    return load_original(weights, name) if weights.suffix == ".pt" else load_model(weights)[0]


def measure_files(files: tuple[Path, ...]) -> dict[str, Any]:
    """Solve instance files with the weights in agents/routing_agents/weights: one greedy tour, and the best of many."""
    figures: dict[str, Any] = {}
    for decoding in ("greedy", "starts"):
        with TemporaryDirectory() as folder:
            for one in solve_files(SolveArgs(files, decoding=decoding, out=Path(folder))):
                known = {
                    "problem": one.problem.name,
                    "best known": one.best_known,
                    "nodes": one.problem.num_nodes,
                    "weights": one.weights.stem,
                    "digest": weights_digest(one.weights),
                }
                row = figures.setdefault(one.written.stem, known)
                row[decoding] = {"cost": int(one.cost), "gap": one.gap, "seconds": one.seconds}
    return figures


def main(args: Args) -> Figures:
    """Measure the missing figures and print the tables."""
    keep_freed_memory()
    results = read_figures(args.out)
    for name in args.sets:
        for column, settings, measure in TestSet(args, name).measurements():
            row = results.setdefault(name, {})
            if row.get(column, {}).get("settings") != settings:
                row[column] = {**measure(), "settings": settings, "machine": describe_machine()}
                write_figures(args.out, results)
    if args.files:
        results["files"] = measure_files(args.files)
        write_figures(args.out, results)
    for name, text in tables(results).items():
        print(f"{name}:\n\n{text}\n")
    return results


if __name__ == "__main__":
    command_line(main, Args, __doc__)
