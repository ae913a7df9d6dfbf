"""Rows of a batch as tasks of an executor: single rows, or chunks of rows for a batched solver."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from routing_gym.arrays import IntArray, select
from routing_gym.problem import AnyProblem
from routing_gym.solvers.runtime.long_edges import shorten_long_edges
from routing_gym.solvers.runtime.work import Executor, Lost, Work

Finished = Generator[tuple[int, "RowResult"], None, None]  # rows as they finish; closing it ends the work


class SolvesRow(Protocol):
    """Members of a `RowSolver` that are needed to solve its rows."""

    name: ClassVar[str]
    packages: ClassVar[tuple[str, ...]]

    @property
    def hard_limit(self) -> float: ...
    def load(self) -> None: ...
    def solve_row(self, problem: AnyProblem, instance: Any, seed: int) -> tuple[Sequence[int] | IntArray, str]: ...


@dataclass(frozen=True)
class RowResult:
    """Result of one row."""

    actions: IntArray  # (T,), empty if the row failed
    seconds: float
    status: str  # as in `Solution.status`

    @property
    def failed(self) -> bool:
        return len(self.actions) == 0

    @classmethod
    def failure(cls, reason: str, seconds: float) -> RowResult:
        return cls(np.empty(0, dtype=np.int64), seconds, reason)


class SolverWork(Work):
    """Work that solves rows of a batch."""

    @abstractmethod
    def solve(self, instance: Any, rows: Sequence[int], executor: Executor, first_row: int = 0) -> Finished:
        """Solve the given rows of a batch and yield them as they finish.

        A row whose worker dies, or is stopped at its `hard_limit`, is yielded as failed.

        Args:
            instance: The whole batch, or the part of one that begins at `first_row`.
            rows: Indices of the rows of `instance` to solve.
            executor: Executor that runs the tasks.
            first_row: Index of the first row in the whole batch; the seeds depend on it.

        Raises:
            WorkersNotReady: The workers do not start.
        """


class RowWork(SolverWork):
    """Work that solves one row at a time. A row whose solver raises an exception has failed.

    Args:
        solver: Solver of the rows.
        problem: Problem of the batch.
        seed: Random seed of the batch; see `row_seed`.
    """

    def __init__(self, solver: SolvesRow, problem: AnyProblem, seed: int) -> None:
        self.solver, self.problem, self.seed = solver, problem, seed
        self.name, self.hard_limit, self.packages = solver.name, solver.hard_limit, solver.packages

    def load(self) -> None:
        self.solver.load()

    def do(self, instance: Any, seed: int) -> RowResult:
        return attempt(self.solver, self.problem, instance, seed)

    def solve(self, instance: Any, rows: Sequence[int], executor: Executor, first_row: int = 0) -> Finished:
        tasks = ((row, (select(instance, slice(row, row + 1)), row_seed(self.seed, first_row + row))) for row in rows)
        with closing(executor.run(self, tasks)) as results:
            for row, result in results:
                yield row, RowResult.failure(result.reason, result.seconds) if isinstance(result, Lost) else result


def attempt(solver: SolvesRow, problem: AnyProblem, instance: Any, seed: int) -> RowResult:
    """Solve one row; an exception gives a failed row."""
    start = time.perf_counter()
    try:
        actions, status = solver.solve_row(problem, shorten_long_edges(problem, instance, seed), seed)
        tour = np.asarray(actions)
        if tour.ndim != 1 or not len(tour) or not np.issubdtype(tour.dtype, np.integer):
            raise TypeError(f"{solver.name} returned {tour.dtype} of shape {tour.shape}, expected integers (T,)")
        return RowResult(tour.astype(np.int64), time.perf_counter() - start, status)
    except Exception as error:  # an exception of a solver fails one row, not the run
        return RowResult.failure(f"{type(error).__name__}: {error}", time.perf_counter() - start)


def row_seed(seed: int, row: int) -> int:
    """Return the random seed of one row, in [0, 2^31): independent streams for all (seed, row)."""
    return int(np.random.SeedSequence([seed, row]).generate_state(1)[0] >> 1)


class ChunkWork(SolverWork):
    """Work that solves several rows at once with a batched solver.

    Args:
        name: Name of the solver.
        tours: `BatchSolver.tours`, with problem and seed bound.
        status: Status of every row.
        size: Number of rows in a chunk.
    """

    def __init__(self, name: str, tours: Callable[[Any, IntArray], IntArray], status: str, size: int) -> None:
        self.name, self.tours, self.status, self.size = name, tours, status, size

    def do(self, instance: Any, rows: IntArray) -> list[RowResult]:
        start = time.perf_counter()
        tours = self.tours(instance, rows)
        seconds = (time.perf_counter() - start) / len(rows)
        return [RowResult(tour, seconds, self.status) for tour in tours]

    def solve(self, instance: Any, rows: Sequence[int], executor: Executor, first_row: int = 0) -> Finished:
        places = np.asarray(rows, dtype=np.int64)
        chunks = [places[start : start + self.size] for start in range(0, len(places), self.size)]
        tasks = ((number, (select(instance, chunk), chunk + first_row)) for number, chunk in enumerate(chunks))
        with closing(executor.run(self, tasks)) as results:
            for number, result in results:
                own = chunks[number].tolist()
                if isinstance(result, Lost):
                    result = [RowResult.failure(result.reason, result.seconds / len(own))] * len(own)
                yield from zip(own, result, strict=True)
