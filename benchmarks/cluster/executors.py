"""Compare executors, worker processes and Ray, on this machine; and decode many instances with a model.

    pip install -e ".[agents,cluster]" fast-tsp pyvrp                  # in an environment of its own
    python benchmarks/cluster/executors.py

Results: whether both give the same costs, bit for bit. Overhead: wall-clock seconds of rows with a solver that uses its
whole time limit, compared with the sum of these limits divided by the number of workers; in turn, several times, with
medians reported. The processor time of the main process for each row limits the number of workers that it keeps busy.
Memory: the peak of each process while a model decodes many instances, chunk by chunk, into a folder. The figures of
parts that are left out are kept in --out.

On a machine that does other work, too, set RAY_worker_niceness=0, because Ray gives its workers a lower priority.
"""

from __future__ import annotations

import resource
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from benchmarks.output import OUT, Figures, finish, read_figures
from routing_agents import load
from routing_agents.evaluation.decoding import Chunk, DecodeWork, Tours, decode_all, threads_of
from routing_agents.evaluation.methods import plain_decoder
from routing_agents.runs import check_integers
from routing_agents.terminal import command_line
from routing_gym.arrays import select
from routing_gym.problems import make_problem
from routing_gym.solvers import FastTSP, PyVRP, Solver
from routing_gym.solvers.runtime.executors import make_executor
from routing_gym.solvers.runtime.work import Executor

ENDLESS = 600.0  # time limit in seconds of a solver that stops after its iterations


@dataclass(frozen=True)
class Args:
    """Arguments of the benchmark."""

    workers: int = 2
    """Worker processes of each executor."""
    tsp_rows: int = 10_000
    """TSP-50 instances for fast-tsp with 0.05 s; 0 leaves them out."""
    cvrp_rows: int = 1_000
    """CVRP-50 instances for PyVRP; 0 leaves them out."""
    iterations: int = 200
    """Iterations of PyVRP."""
    short_rows: int = 1_000
    """TSP-50 instances for fast-tsp with 0.01 s, for the overhead; 0 leaves them out."""
    repeats: int = 3
    """Runs for the overhead, in turn."""
    decoded: int = 1_000_000
    """TSP-20 instances to decode greedily; 0 leaves them out."""
    decoding_executor: str = "ray"
    """What decodes them: inline, processes or ray."""
    seed: int = 0
    """Random seed for instances and solvers."""
    out: Path = OUT / "executors.json"
    """Where the figures go; those of an earlier run are continued. The docs show those in benchmarks/results."""

    def __post_init__(self) -> None:
        check_integers(self, "workers", "iterations", "repeats")


def executors(args: Args) -> dict[str, Executor]:
    """Return the executors that are compared."""
    return {name: make_executor(name, args.workers) for name in ("processes", "ray")}


def draw(name: str, size: int, args: Args) -> tuple[Any, Any]:
    """Return a problem and random instances."""
    kind, _, num_nodes = name.partition("-")
    problem = make_problem(kind, int(num_nodes))
    return problem, problem.generate(np.random.default_rng(args.seed), size)


def equality(name: str, solver: Solver, size: int, args: Args) -> Figures:
    """Solve the same instances with all executors; count equal costs and tours, and time each executor."""
    problem, instance = draw(name, size, args)
    found, seconds = {}, {}
    for label, executor in executors(args).items():
        started = time.perf_counter()
        found[label] = solver.solve(problem, instance, seed=args.seed, executor=executor, progress=True)
        seconds[label] = time.perf_counter() - started
    ours, theirs = found["processes"], found["ray"]
    return {
        "rows": size,
        "settings": asdict(solver),  # type: ignore[call-overload]
        "equal costs": int((ours.cost == theirs.cost).sum()),
        "equal tours": int((ours.actions == theirs.actions).all(axis=1).sum()),
        "failed": {label: int(solution.failed.sum()) for label, solution in found.items()},
        "mean cost": {label: float(solution.cost.mean()) for label, solution in found.items()},
        "seconds": seconds,
    }


def overhead(args: Args) -> Figures:
    """Time rows of 10 ms; return the seconds of each executor, and the processor time of this process for a row."""
    problem, instance = draw("TSP-50", args.short_rows, args)
    solver = FastTSP(0.01)
    runs: dict[str, list[float]] = {}
    shares: dict[str, list[float]] = {}
    for executor in executors(args).values():
        solver.solve(problem, select(instance, slice(0, 2 * args.workers)), executor=executor)  # starts Ray
    for _ in range(args.repeats):
        for label, executor in executors(args).items():
            started, busy, first = time.perf_counter(), time.process_time(), None
            rows = solver.work(problem, args.seed).solve(instance, range(args.short_rows), executor)
            for _ in rows:
                first = time.perf_counter() if first is None else first  # the workers have started
            runs.setdefault(label, []).append(time.perf_counter() - first)
            shares.setdefault(label, []).append((time.process_time() - busy) / args.short_rows)
            print(
                f"{label}: {runs[label][-1]:.2f} s, {time.perf_counter() - started:.2f} s with the start",
                file=sys.stderr,
            )
    ideal = args.short_rows * solver.time_limit / args.workers
    median = {label: statistics.median(seconds) for label, seconds in runs.items()}
    return {
        "rows": args.short_rows,
        "limit": solver.time_limit,
        "ideal seconds": ideal,
        "seconds": median,
        "all seconds": runs,
        "ray over processes": median["ray"] / median["processes"] - 1,
        "main process, seconds per row": {label: statistics.median(one) for label, one in shares.items()},
    }


@dataclass(frozen=True)
class MeasuredChunk(Chunk):
    """A chunk with the peak memory of the process that decoded it, in bytes."""

    peak: int = 0


class MeasuredWork(DecodeWork):
    """Decoding whose chunks report the peak memory."""

    def do(self, instance: Any, number: int, progress: Any = None) -> MeasuredChunk:
        chunk = super().do(instance, number, progress)
        return MeasuredChunk(chunk.actions, chunk.seconds, peak_memory())


class MeasuredTours(Tours):
    """Tours, and the greatest peak memory of a worker."""

    peak = 0

    def write(self, number: int, instance: Any, chunk: Chunk) -> None:
        assert isinstance(chunk, MeasuredChunk)
        self.peak = max(self.peak, chunk.peak)
        super().write(number, instance, chunk)


def peak_memory() -> int:
    """Return the peak memory of this process in bytes (Linux)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def decoding(args: Args) -> Figures:
    """Decode many instances greedily; return speed, and peak memory."""
    problem, instance = draw("TSP-20", args.decoded, args)
    drawn = peak_memory()
    model = load("TSP-20")
    executor = make_executor(args.decoding_executor, args.workers)  # type: ignore[arg-type]
    decoder, _ = plain_decoder("TSP-20", {}, model, problem)
    work = MeasuredWork("TSP-20", problem, decoder, args.seed, threads=threads_of(executor))
    executor.prepare(work)
    with tempfile.TemporaryDirectory() as folder:
        tours = MeasuredTours(Path(folder), {"problem": problem.name, "num_nodes": problem.num_nodes})
        started, busy = time.perf_counter(), time.process_time()
        found = decode_all(work, instance, executor, tours=tours)
        seconds, busy = time.perf_counter() - started, time.process_time() - busy
        size = sum(path.stat().st_size for path in tours.folder.iterdir())
    return {
        "executor": args.decoding_executor,
        "workers": args.workers,
        "instances": args.decoded,
        "failed": int(found.failed.sum()),
        "mean cost": float(found.cost.mean()),
        "seconds": seconds,
        "worker seconds": float(found.seconds.sum()),
        "main process, seconds": busy,
        "main process, bytes": peak_memory(),
        "main process, bytes before decoding": drawn,
        "worker, bytes": tours.peak,
        "files, bytes": size,
    }


def table(figures: Figures) -> Table:
    """Return a table of the figures for the console."""
    result = Table("measured", "value")
    for name, found in figures.items():
        for key, value in found.items():
            result.add_row(f"{name}: {key}", str(value))
    return result


def main(args: Args) -> Figures:
    """Measure the parts that are not left out; print and write the figures."""
    figures = read_figures(args.out, "machine", "arguments")
    if args.short_rows:
        figures["overhead"] = overhead(args)
    if args.cvrp_rows:
        solver = PyVRP(ENDLESS, iterations=args.iterations)
        figures["CVRP-50 by pyvrp"] = equality("CVRP-50", solver, args.cvrp_rows, args)
    if args.tsp_rows:
        figures["TSP-50 by fast-tsp"] = equality("TSP-50", FastTSP(0.05), args.tsp_rows, args)
    if args.decoded:
        figures["TSP-20 decoded greedily"] = decoding(args)
    for name in ("machine", "arguments"):
        figures.pop(name, None)
    return finish(args, figures, table(figures))


if __name__ == "__main__":
    command_line(main, Args, __doc__, (RuntimeError,), stopped="stopped; nothing is written")
