"""Protocol of all solvers, and their common functions: checking, scoring, distances.

A solver is a frozen dataclass of settings. `Solver.solve` takes one batch of instances and returns a `Solution`, whose
costs always come from `Problem.objective`. A row that fails is marked; the others are not affected.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from routing_gym.arrays import FloatArray, IntArray, batch_size, cast_instance, euclidean, select
from routing_gym.optional import require
from routing_gym.problem import AnyProblem, InfeasibleTour, join_routes
from routing_gym.problems import LISTED
from routing_gym.problems.checks import check_integer, check_positive, checked_instance
from routing_gym.solvers.runtime.cache import Store
from routing_gym.solvers.runtime.pool import Processes
from routing_gym.solvers.runtime.progress import show_progress
from routing_gym.solvers.runtime.rows import ChunkWork, RowResult, RowWork, SolverWork
from routing_gym.solvers.runtime.work import Executor, Inline

OPTIMAL = "optimal"  # proven
FEASIBLE = "feasible"
NO_NODE = -1  # actions of a failed row
MAX_TIME_LIMIT = 1e6  # seconds, eleven days; the packages accept at most about 2^31 or 2^63 of their own units
CHUNK_ELEMENTS = 2**20  # elements of one (chunk, A, A) array in a batched solver: 8 MiB of float64 fit in the cache


@dataclass(frozen=True)
class Solution:
    """Tours of a batch of B instances. A failed row has cost nan and its actions are all -1.

    The time of a batched solver is divided evenly among the rows. For other solvers, it is measured per row in the
    process that solved it, without the start of the process.
    """

    actions: IntArray  # (B, T), padded with 0
    cost: FloatArray  # (B,), from `Problem.objective`
    seconds: FloatArray  # (B,)
    status: tuple[str, ...]  # for each row: "optimal" (proven), "feasible", or the reason of the failure
    is_bound: bool = False  # uses knowledge that no policy can have

    @property
    def failed(self) -> npt.NDArray[np.bool_]:
        """Rows without a tour: bool (B,)."""
        return np.isnan(self.cost)

    @classmethod
    def score(
        cls,
        problem: AnyProblem,
        instance: Any,
        actions: npt.ArrayLike,
        seconds: float | npt.ArrayLike,
        status: str | Sequence[str] = FEASIBLE,
        is_bound: bool = False,
    ) -> Solution:
        """Score tours from any source (a policy, a file); if some are infeasible, row by row.

        Args:
            problem: Problem of the instances.
            instance: B instances, on any backend.
            actions: Integers (B, T). A row that contains -1 has failed.
            seconds: (B,), or the time of the whole batch as one number, which is divided evenly.
            status: One status for all rows, or one per row; for failed rows, the reason.
            is_bound: Whether the tours use knowledge that no policy can have.

        Raises:
            ValueError: The actions are not integers, or the number of rows is wrong.
        """
        instance, tours = cast_instance(instance), np.asarray(actions)
        num_rows = batch_size(instance)
        if tours.ndim != 2 or len(tours) != num_rows or not np.issubdtype(tours.dtype, np.integer):
            found = f"{tours.dtype} of shape {tours.shape}"
            raise ValueError(f"actions: expected integers of shape ({num_rows}, T), got {found}")
        tours = tours.astype(np.int64)  # a copy
        statuses = [status] * num_rows if isinstance(status, str) else list(status)
        spent = np.asarray(seconds, dtype=np.float64)
        spent = np.full(num_rows, spent / num_rows) if spent.ndim == 0 else spent
        for name, given in (("seconds", spent), ("status", statuses)):
            if len(given) != num_rows:
                raise ValueError(f"{name}: expected one for all or {num_rows}, got {len(given)}")
        cost = np.full(num_rows, np.nan)
        failed = (tours == NO_NODE).any(axis=1)
        tours[failed] = NO_NODE
        for row in np.flatnonzero(failed):
            if statuses[row] in (OPTIMAL, FEASIBLE):
                statuses[row] = "no tour"
        rows = np.flatnonzero(~failed)
        try:
            cost[rows] = problem.objective(select(instance, rows), tours[rows])
        except InfeasibleTour:
            for row in rows:
                try:
                    cost[row] = problem.objective(select(instance, slice(row, row + 1)), tours[row : row + 1])[0]
                except InfeasibleTour as error:
                    statuses[row] = f"infeasible: {str(error).removeprefix('row 0, ')}"
                    tours[row] = NO_NODE
        return cls(tours, cost, spent, tuple(statuses), is_bound)


class Solver(ABC):
    """Base class of solvers. Subclasses are frozen dataclasses of validated settings."""

    name: ClassVar[str]
    problems: ClassVar[tuple[str, ...] | None]  # names of the supported problems; None for all
    packages: ClassVar[tuple[str, ...]] = ()  # imported when the solver runs; installed by the extra `solvers`
    needs_symmetry: ClassVar[bool] = False  # distances must be symmetric, except in problems that are `asymmetric`
    is_bound: ClassVar[bool] = False  # uses knowledge that no policy has: its cost is a bound, not a baseline

    @property
    def label(self) -> str:
        """Name for tables."""
        return self.name

    def solve(
        self,
        problem: AnyProblem,
        instance: Any,
        *,
        seed: int = 0,
        num_workers: int = 1,
        progress: bool = False,
        cache: Path | str | None = None,
        executor: Executor | None = None,
        first_row: int = 0,
    ) -> Solution:
        """Solve a batch of instances.

        Args:
            problem: Problem of the instances.
            instance: B instances, on any backend.
            seed: Random seed; row i of the batch is solved with a seed made from (seed, i), independently of the other
                rows.
            num_workers: Number of processes that share the rows (ignored by batched solvers, which solve all rows at
                once). 0 solves in this process: no process has to start, but a row that hangs or dies ends the run.
            progress: Whether to show a progress bar.
            cache: Folder that keeps solved rows for the next run; None for no cache.
            executor: Executor that solves the rows, such as a cluster, instead of `num_workers` processes of this
                machine. It also distributes the rows of batched solvers, in chunks.
            first_row: Index of the first instance in a larger batch whose other rows are solved elsewhere.

        Raises:
            ValueError: The solver does not support the problem or these instances, the cluster cannot be used, or the
                seed is negative.
            TypeError: The instances are those of another problem.
            InvalidInstance: The instances are malformed.
            ImportError: A package is missing; the message names the extra to install.
        """
        num_workers, seed = check_integer("num_workers", num_workers, 0), check_integer("seed", seed, 0, 2**63 - 1)
        self.check(problem)
        instance = checked_instance(problem, instance)
        if self.needs_symmetry and not problem.asymmetric:
            self.check_symmetry(instance)
        self.load()
        executor = executor or self.usual_executor(num_workers)
        work = self.work(problem, seed)
        executor.prepare(work)
        store = Store(cache, self, problem, instance, seed, first_row) if cache is not None else None
        results = store.known() if store else {}
        todo = [row for row in range(batch_size(instance)) if row not in results]
        try:
            with closing(work.solve(instance, todo, executor, first_row)) as finished:
                for row, result in show_progress(finished, len(todo), f"{self.label} {problem.name}", progress):
                    results[row] = result
                    if store:
                        store.add(row, result)
        finally:
            if store:
                store.save()
        return assemble(problem, instance, results, self.is_bound)

    def check(self, problem: AnyProblem) -> None:
        """Check that the solver supports a problem.

        Raises:
            ValueError: The problem is not supported; the message names the supported ones.
        """
        if self.problems is not None and problem.name not in self.problems:
            listed = [name for name in self.problems if name in LISTED]
            raise ValueError(f"{self.name} does not solve {problem.name}; it solves {', '.join(listed)}")

    def check_symmetry(self, instance: Any) -> None:
        """Check that the distances of instances (NumPy) do not depend on the direction.

        Raises:
            ValueError: Distances are asymmetric; the message names the first such row.
        """
        if instance.distances is None:
            return
        asymmetric = (instance.distances != instance.distances.transpose(0, 2, 1)).any(axis=(1, 2))
        if asymmetric.any():
            raise ValueError(
                f"{self.name} needs symmetric distances, but those of row {int(asymmetric.argmax())} are asymmetric; "
                "choose a solver that accepts them, such as nearest-neighbour, held-karp or pyvrp"
            )

    def load(self) -> None:
        """Import the packages, so that the time of the first row does not include the import.

        Raises:
            ImportError: A package is missing; the message names the extra to install.
        """
        for package in self.packages:
            require(package, "solvers")

    def usual_executor(self, num_workers: int) -> Executor:
        """Return the executor that is used if `solve` is called without one."""
        return Processes(num_workers) if num_workers else Inline()

    @abstractmethod
    def work(self, problem: AnyProblem, seed: int) -> SolverWork:
        """Return the work of the workers, for valid instances on NumPy."""


class BatchSolver(Solver):
    """Base class of solvers that process all rows of a batch together, in NumPy."""

    row_status: ClassVar[str] = FEASIBLE

    @abstractmethod
    def tours(self, problem: AnyProblem, instance: Any, rows: IntArray, seed: int) -> IntArray:
        """Build the tours of a batch.

        Args:
            problem: Problem of the instances.
            instance: Instances (NumPy, valid), a chunk of the batch.
            rows: int64 (B,), indices of the instances in the whole batch, for random draws.
            seed: Random seed of the whole batch.

        Returns:
            Actions: int64 (B, T).
        """

    def row_elements(self, num_actions: int) -> int:
        """Return the size of the largest array that one row needs."""
        return num_actions**2

    def usual_executor(self, num_workers: int) -> Executor:
        return Inline()

    def work(self, problem: AnyProblem, seed: int) -> ChunkWork:
        size = max(1, CHUNK_ELEMENTS // self.row_elements(problem.num_actions))
        return ChunkWork(self.name, partial(self.tours, problem, seed=seed), self.row_status, size)


@dataclass(frozen=True)
class RowSolver(Solver):
    """Base class of solvers that solve one instance at a time, in worker processes.

    Attributes:
        time_limit: Seconds per instance. Heuristics use the whole time.

    Raises:
        ValueError: The time limit is not positive, or exceeds a million seconds.
    """

    time_limit: float

    def __post_init__(self) -> None:
        check_positive(self, "time_limit")
        if self.time_limit > MAX_TIME_LIMIT:
            raise ValueError(
                f"{self.name}: time_limit must be at most {MAX_TIME_LIMIT:,.0f} s, got {self.time_limit:g}"
            )

    @property
    def label(self) -> str:
        return f"{self.name} {self.time_limit:g} s"

    @property
    def hard_limit(self) -> float:
        """Seconds after which a row that exceeds its time limit is stopped from outside."""
        return 2 * self.time_limit + 10

    @abstractmethod
    def solve_row(self, problem: AnyProblem, instance: Any, seed: int) -> tuple[Sequence[int] | IntArray, str]:
        """Solve one instance.

        Args:
            problem: Problem of the instance.
            instance: One instance (NumPy, valid): a batch of size 1.
            seed: Random seed of this row, in [0, 2^31).

        Returns:
            Actions and status, "optimal" or "feasible". Any exception marks the row as failed.
        """

    def work(self, problem: AnyProblem, seed: int) -> RowWork:
        return RowWork(self, problem, seed)


class TimedOut(RuntimeError):
    """A solver reached its time limit without a tour."""


def assemble(problem: AnyProblem, instance: Any, results: dict[int, RowResult], is_bound: bool) -> Solution:
    """Combine the rows into one Solution and score it."""
    length = max(1, *(len(result.actions) for result in results.values()))
    actions = np.zeros((len(results), length), dtype=np.int64)
    for row, result in results.items():
        if result.failed:
            actions[row] = NO_NODE
        else:
            actions[row, : len(result.actions)] = result.actions
    in_order = [results[row] for row in range(len(results))]
    seconds = [result.seconds for result in in_order]
    return Solution.score(problem, instance, actions, seconds, [result.status for result in in_order], is_bound)


def distance_matrix(instance: Any) -> FloatArray:
    """Return all distances in the instance's metric, rounded to float32 like in `step`: float64 (B, A, A)."""
    if instance.distances is not None:
        return np.asarray(instance.distances.astype(np.float64))
    coords = instance.coords
    return np.asarray(euclidean(coords[:, :, None], coords[:, None]).astype(np.float64))


def join_trips(trips: Sequence[Sequence[int] | IntArray]) -> list[int]:
    """Return the actions for routes: each ends with a return to the depot; without routes, the vehicle stays there."""
    return join_routes((0, trip) for trip in trips) or [0]
