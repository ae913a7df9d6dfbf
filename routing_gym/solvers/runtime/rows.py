"""The rows of a batch as tasks of an executor: one row each, or a chunk of rows for a batched solver."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from routing_gym.arrays import select
from routing_gym.problem import AnyProblem
from routing_gym.solvers.runtime.work import Executor, Lost, Work

IntArray = npt.NDArray[np.int64]
Finished = Generator[tuple[int, "RowResult"], None, None]  # rows as they finish; closing it ends the work


class SolvesRow(Protocol):
    """Members of a `RowSolver` that solving its rows needs."""

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


class RowWork(Work):
    """Solves one row."""

    def __init__(self, solver: SolvesRow, problem: AnyProblem) -> None:
        self.solver, self.problem = solver, problem
        self.name, self.hard_limit, self.packages = solver.name, solver.hard_limit, solver.packages

    def load(self) -> None:
        self.solver.load()

    def do(self, instance: Any, seed: int) -> RowResult:
        return attempt(self.solver, self.problem, instance, seed)


def solve_rows(
    solver: SolvesRow,
    problem: AnyProblem,
    instance: Any,
    rows: Sequence[int],
    seed: int,
    executor: Executor,
    first_row: int = 0,
) -> Finished:
    """Solve the given rows of a batch and yield them as they finish.

    A row that raises, outlasts `solver.hard_limit` or kills its worker is yielded as failed.

    Args:
        solver: The solver.
        problem: The problem.
        instance: The whole batch, or the part of one that begins at `first_row`.
        rows: Which rows of `instance` to solve.
        seed: Of the batch; see `row_seed`.
        executor: What solves them.
        first_row: Place of the first row in the whole batch, on which the seeds depend.

    Raises:
        RuntimeError: The workers do not start.
    """
    tasks = ((row, (select(instance, slice(row, row + 1)), row_seed(seed, first_row + row))) for row in rows)
    with closing(executor.run(RowWork(solver, problem), tasks)) as results:
        for row, result in results:
            yield row, RowResult.failure(result.reason, result.seconds) if isinstance(result, Lost) else result


def attempt(solver: SolvesRow, problem: AnyProblem, instance: Any, seed: int) -> RowResult:
    """Solve one row; an exception becomes a failed row."""
    start = time.perf_counter()
    try:
        actions, status = solver.solve_row(problem, instance, seed)
        tour = np.asarray(actions)
        if tour.ndim != 1 or not len(tour) or not np.issubdtype(tour.dtype, np.integer):
            raise TypeError(f"{solver.name} returned {tour.dtype} of shape {tour.shape}, expected integers (T,)")
        return RowResult(tour.astype(np.int64), time.perf_counter() - start, status)
    except Exception as error:  # whatever a solver raises costs one row, not the run
        return RowResult.failure(f"{type(error).__name__}: {error}", time.perf_counter() - start)


def row_seed(seed: int, row: int) -> int:
    """Seed of one row, in [0, 2^31): independent streams for all (seed, row)."""
    return int(np.random.SeedSequence([seed, row]).generate_state(1)[0] >> 1)


class ChunkWork(Work):
    """Solves several rows at once, by a batched solver."""

    def __init__(self, name: str, tours: Callable[[Any, IntArray], IntArray], status: str) -> None:
        self.name, self.tours, self.status = name, tours, status

    def do(self, instance: Any, rows: IntArray) -> list[RowResult]:
        start = time.perf_counter()
        tours = self.tours(instance, rows)
        seconds = (time.perf_counter() - start) / len(rows)
        return [RowResult(tour, seconds, self.status) for tour in tours]


def solve_chunks(
    work: ChunkWork, instance: Any, chunks: Sequence[IntArray], executor: Executor, first_row: int = 0
) -> Finished:
    """Solve chunks of rows and yield their rows as they finish; the rows of a chunk that is lost have failed.

    Args:
        work: The solver's.
        instance: The whole batch, or the part of one that begins at `first_row`.
        chunks: Rows of `instance`.
        executor: What solves them.
        first_row: Place of the first row in the whole batch.
    """
    tasks = ((number, (select(instance, chunk), chunk + first_row)) for number, chunk in enumerate(chunks))
    with closing(executor.run(work, tasks)) as results:
        for number, result in results:
            rows = chunks[number].tolist()
            if isinstance(result, Lost):
                result = [RowResult.failure(result.reason, result.seconds / len(rows))] * len(rows)
            yield from zip(rows, result, strict=True)
