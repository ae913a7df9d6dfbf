"""How good the tours are: trained weights, classical solvers, the paper; on its test instances where it has some.

    python benchmarks/quality/solution_quality.py                                   # the published weights
    python benchmarks/quality/solution_quality.py --weights ../shared/data/kool     # also the original code's, n = 20
    python benchmarks/doc_tables.py                                         # then writes the tables of README and docs

For each problem and size of the paper: our weights (greedy; multi-start, the best of the greedy tours from every start,
or where the first node matters of 16 samples; the same under each of the eight symmetries of the square; the best of
many samples), the original weights of Kool et al. (2019), and a classical solver on the first instances only. Of other
problems 1,000 random instances: greedy, the best of 128 samples, 16 under each symmetry, and a solver. The means
over all instances of what ran on a few are estimated with the model's costs of all as a control variate, which
shrinks their error.

Each figure is written as soon as it is there, and is not computed again with the same settings and weights: an
interrupted run continues where it was. A solver's figure stays where only the control variate's weights are new, and
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
from benchmarks.output import Figures, read_figures, write_figures
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

ROOT = Path(__file__).parents[2]

FOLDERS = {
    "TSP": "tsp_20",
    "CVRP": "cvrp_20",
    "SDVRP": "sdvrp_20",
    "OP": "op_dist_20",
    "PCTSP": "pctsp_det_20",
    "SPCTSP": "pctsp_stoch_20",
}
TIME_LIMITS = {  # seconds, where not the solver's own for every size
    "hygese": {20: 0.1, 50: 0.3, 100: 1.0},
    "pyvrp": {20: 0.3, 50: 2.0, 100: 5.0},
    "ortools": {20: 1.0, 50: 5.0},
}
SETS = (*PAPER, *OTHERS, *DEPOTS, *FLEETS, *ROADS)
MOST_PROVEN = 20  # nodes up to which milp is the reference where pyvrp solves the problem, too: OP
OTHER_SIZE, OTHER_SEED, OTHER_TOURS = 1_000, 4_321, 128  # for problems that the paper has not


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
    out: Path = ROOT / "benchmarks" / "results" / "solution_quality.json"
    """Where the figures go."""

    def __post_init__(self) -> None:
        check_integers(self, "batch_size", "workers")


@dataclass(frozen=True)
class TestSet:
    """One problem and size, and the weights there are for it."""

    args: Args
    title: str

    @cached_property
    def problem(self) -> AnyProblem:
        """The rules."""
        name, *matrices, num_nodes = self.title.split("-")
        return make_problem(name, int(num_nodes), matrices=bool(matrices))

    @property
    def name(self) -> str:
        """Name of the problem."""
        return self.problem.name

    @property
    def num_nodes(self) -> int:
        """Size of the instances."""
        return self.problem.num_nodes

    @property
    def in_paper(self) -> bool:
        """Whether the paper has it."""
        return self.title in PAPER

    @property
    def size(self) -> int:
        """Instances to decode."""
        return self.args.size if self.in_paper else min(self.args.size, OTHER_SIZE)

    @property
    def original(self) -> Path | None:
        """The original weights, of n = 20."""
        if self.num_nodes != 20 or self.name not in FOLDERS:
            return None
        return self.args.weights and self.args.weights / FOLDERS[self.name] / "epoch-99.pt"

    @property
    def own(self) -> Path | None:
        """Our weights: the problem's own, or those of its family; of the paper's problems only those for this size."""
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
        """Return the first of the paper's instances; random ones of a problem that it has not."""
        if not self.in_paper:
            return self.problem.generate(np.random.default_rng(OTHER_SEED), self.size)
        return select(paper_test_set(self.name, self.num_nodes), slice(0, self.size))

    def sampled(self, weights: Path) -> dict[str, Any]:
        """Measure the best of many samples."""
        return self.best_of_many(weights, Decoding(self.args.samples, sample=True), self.args.sampling_size)

    def searched(self, weights: Path, symmetries: int) -> dict[str, Any]:
        """Measure the best of several tours under so many symmetries."""
        return self.best_of_many(weights, self.search(symmetries), self.of_size(self.args.search_size))

    def best_of_many(self, weights: Path, decoding: Decoding, size: int) -> dict[str, Any]:
        """Measure the best of many tours on the first instances, with the greedy tours of all as control variate."""
        size = min(size, self.size)
        cost, seconds = self.decode(weights, decoding, size)
        return self.figures(cost, seconds, None if size == self.size else self.greedy(weights)[0])

    def figures(self, cost: FloatArray, seconds: float, control: FloatArray | None = None) -> dict[str, Any]:
        """Return mean and time; the mean of a part with other costs of all instances as control variate."""
        if control is None:
            mean = mean_interval(cost)
        else:
            mean = controlled_mean(cost, control[: len(cost)], float(control.mean()))
        return {"mean": mean, "instances": len(cost), "seconds_per_instance": seconds}

    def greedy(self, weights: Path) -> tuple[FloatArray, float]:
        """Decode all instances greedily."""
        return self.decode(weights, Decoding(), self.size)

    def search(self, symmetries: int = 8) -> Decoding:
        """Return what to search: greedy tours from every start where the problem allows, else 16 samples."""
        symmetries = min(symmetries, num_symmetries(self.problem))
        if self.problem.any_first_node:
            return Decoding(self.num_nodes, force_starts=True, symmetries=symmetries)
        return Decoding(16, sample=True, symmetries=symmetries)

    def many(self) -> Decoding:
        """Return 128 tours, as many under each symmetry: greedy ones from several starts if allowed, else samples."""
        symmetries = num_symmetries(self.problem)
        starts = self.problem.any_first_node and not self.problem.has_depot
        return Decoding(OTHER_TOURS // symmetries, sample=not starts, force_starts=starts, symmetries=symmetries)

    def solver(self) -> Solver:
        """Return the reference solver with its time for this size."""
        return reference_solver(self.problem)

    def of_size(self, sizes: tuple[int, int, int]) -> int:
        """Return the one of three numbers that is for this size."""
        return dict(zip((20, 50, 100), sizes, strict=True))[self.num_nodes]

    def reference(self) -> dict[str, Any]:
        """Solve the first instances with the reference solver.

        Raises:
            RuntimeError: It failed on some.
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
        choice = not self.problem.stochastic  # else no policy could choose among tours
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
    """Return the solver that gaps are relative to, with so many times its time for this size."""
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
    """Measure what is not there yet; print the tables."""
    keep_freed_memory()
    if not 1 <= args.size <= 10_000:
        raise ValueError(f"--size must be 1 to 10,000, as many as a test set has, got {args.size}")
    if unknown := [name for name in args.sets if name not in SETS]:
        raise ValueError(f"--sets: no {', '.join(unknown)}; choose among {', '.join(SETS)}")
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
