"""Worker processes that solve one row at a time.

Not `concurrent.futures`: there, one worker that dies or hangs takes the whole pool with it. Here it
costs its row, and a new worker takes its place.
"""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from routing_gym.arrays import select
from routing_gym.problem import AnyProblem

# A forked child would inherit the threads' locks of torch and OpenMP; a fork server is a fresh process.
START_METHOD = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
START_LIMIT = 120.0  # seconds for a worker to import what it needs


class SolvesRow(Protocol):
    """Members of a `RowSolver` that the pool uses."""

    name: ClassVar[str]

    @property
    def hard_limit(self) -> float: ...
    def load(self) -> None: ...
    def solve_row(
        self, problem: AnyProblem, instance: Any, seed: int
    ) -> tuple[Sequence[int] | npt.NDArray[np.int64], str]: ...


@dataclass(frozen=True)
class RowResult:
    """Result of one row."""

    actions: npt.NDArray[np.int64]  # (T,), empty if the row failed
    seconds: float
    status: str  # as in `Solution.status`

    @property
    def failed(self) -> bool:
        return len(self.actions) == 0

    @classmethod
    def failure(cls, reason: str, seconds: float) -> RowResult:
        return cls(np.empty(0, dtype=np.int64), seconds, reason)


def solve_rows(
    solver: SolvesRow, problem: AnyProblem, instance: Any, rows: Sequence[int], seed: int, num_workers: int
) -> Generator[tuple[int, RowResult], None, None]:
    """Solve the given rows of a batch and yield them as they finish.

    A row that raises, outlasts `solver.hard_limit` or kills its worker is yielded as failed.

    Args:
        solver: The solver.
        problem: The problem.
        instance: The whole batch.
        rows: Which rows to solve.
        seed: Of the batch; see `row_seed`.
        num_workers: Processes; 0 solves here.

    Raises:
        RuntimeError: The workers do not start.
    """
    tasks = ((row, select(instance, slice(row, row + 1)), row_seed(seed, row)) for row in rows)
    if num_workers == 0:
        for row, one, one_seed in tasks:
            yield row, attempt(solver, problem, one, one_seed)
        return
    idle: list[Worker] = []
    busy: list[Worker] = []
    try:
        for task in tasks:
            if len(busy) == num_workers:
                yield from collect(busy, idle, solver.hard_limit)
            worker = idle.pop() if idle else Worker.start(solver, problem)
            busy.append(worker)
            worker.give(*task)
        while busy:
            yield from collect(busy, idle, solver.hard_limit)
    finally:
        for worker in idle + busy:
            worker.stop()


@dataclass
class Worker:
    """A process, the pipe to it, and the row it works on."""

    process: Any  # multiprocessing's SpawnProcess or ForkServerProcess
    connection: Connection
    row: int = -1
    since: float = 0.0

    @classmethod
    def start(cls, solver: SolvesRow, problem: AnyProblem) -> Worker:
        """Start a worker and wait until it is ready.

        Raises:
            RuntimeError: It does not get ready.
        """
        context: Any = multiprocessing.get_context(START_METHOD)
        connection, its_end = context.Pipe()
        process = context.Process(target=serve, args=(its_end, solver, problem), daemon=True)
        process.start()
        its_end.close()
        worker = cls(process, connection)
        try:
            ready = connection.poll(START_LIMIT) and connection.recv()
        except (EOFError, OSError):
            ready = False
        if not ready:
            worker.stop()
            ended = describe_exit(process.exitcode)
            raise RuntimeError(
                f"a worker process for {solver.name} did not start (it ended {ended}): put the script's "
                'main part under `if __name__ == "__main__":`, or solve in this process with num_workers=0'
            )
        return worker

    def give(self, row: int, instance: Any, seed: int) -> None:
        self.row, self.since = row, time.perf_counter()
        with suppress(BrokenPipeError):  # it died since its last row; `take` will say so
            self.connection.send((instance, seed))

    def take(self) -> RowResult:
        """Receive the result, or the news of the worker's death."""
        try:
            result: RowResult = self.connection.recv()
        except (EOFError, OSError):
            self.process.join()
            reason = f"died: the worker process ended {describe_exit(self.process.exitcode)}"
            result = RowResult.failure(reason, time.perf_counter() - self.since)
        return result

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
        self.connection.close()


def describe_exit(code: int) -> str:
    """Return how a process ended; `multiprocessing` counts signals as negative exit codes."""
    if code >= 0:
        return f"with exit code {code}"
    known = {number.value: number.name for number in signal.Signals}
    return f"by {known.get(-code, f'signal {-code}')}"


def collect(busy: list[Worker], idle: list[Worker], limit: float) -> Iterator[tuple[int, RowResult]]:
    """Wait until a busy worker has finished, died or run out of time; yield such rows, sort the workers anew."""
    patience = min(worker.since for worker in busy) + limit - time.perf_counter()
    ready = wait([worker.connection for worker in busy], max(0.0, patience))
    for worker in list(busy):
        seconds = time.perf_counter() - worker.since
        if worker.connection in ready:
            result = worker.take()
        elif seconds >= limit:
            result = RowResult.failure(f"timed out: stopped after {seconds:.0f} s", seconds)
        else:
            continue
        busy.remove(worker)
        if worker.connection in ready and worker.process.is_alive():
            idle.append(worker)
        else:
            worker.stop()
        yield worker.row, result


def serve(connection: Connection, solver: SolvesRow, problem: AnyProblem) -> None:
    """Solve rows until the pipe closes; the body of a worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle; it stops us
    solver.load()
    connection.send(True)
    while True:
        try:
            instance, seed = connection.recv()
        except (EOFError, ConnectionResetError):  # reset where the parent went without reading our last answer
            return
        connection.send(attempt(solver, problem, instance, seed))


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
