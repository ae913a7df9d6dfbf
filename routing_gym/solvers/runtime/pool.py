"""Worker processes on this machine that run one task at a time.

`concurrent.futures` is not used, since one worker that dies or hangs breaks its whole pool. Here only the task of that
worker is lost, and a new worker replaces it. The package Pebble does the same, but under the LGPL.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from routing_gym.problems.checks import check_integer
from routing_gym.solvers.runtime.work import Executor, Lost, Results, Task, Work, WorkersNotReady

# A forked child would inherit the locks of torch's and OpenMP's threads; a fork server is a fresh process.
START_METHOD = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
START_LIMIT = 120.0  # seconds for a worker to import its packages


@dataclass(frozen=True)
class Processes(Executor):
    """Worker processes on this machine.

    A task that outlasts `Work.hard_limit` or kills its worker is lost.

    Attributes:
        num_workers: Number of worker processes.

    Raises:
        ValueError: The number of workers is less than one.
    """

    num_workers: int = 1

    def __post_init__(self) -> None:
        check_integer("num_workers", self.num_workers, 1)

    def run(self, work: Work, tasks: Iterable[Task]) -> Results:
        """Run the tasks; see `Executor.run`.

        Raises:
            WorkersNotReady: A worker does not start.
        """
        idle: list[Worker] = []
        busy: list[Worker] = []
        try:
            for task in tasks:
                if len(busy) == self.num_workers:
                    yield from collect(busy, idle, work.hard_limit)
                worker = idle.pop() if idle else Worker.start(work)
                busy.append(worker)
                worker.give(*task)
            while busy:
                yield from collect(busy, idle, work.hard_limit)
        finally:
            for worker in idle + busy:
                worker.stop()


@dataclass(frozen=True)
class Raised:
    """Exception of a task, sent from a worker to the parent."""

    error: Exception


@dataclass
class Worker:
    """Worker process with the pipe to it and its current task."""

    process: Any  # multiprocessing's SpawnProcess or ForkServerProcess
    connection: Connection
    key: int = -1
    since: float = 0.0

    @classmethod
    def start(cls, work: Work) -> Worker:
        """Start a worker and wait until it is ready.

        Raises:
            WorkersNotReady: The worker does not get ready.
        """
        context: Any = multiprocessing.get_context(START_METHOD)
        connection, its_end = context.Pipe()
        process = context.Process(target=serve, args=(its_end, work), daemon=True)
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
            raise WorkersNotReady(
                f"a worker process for {work.name} did not start (it ended {ended}): put the script into a file, with "
                'its main part under `if __name__ == "__main__":`, or work in this process with num_workers=0'
            )
        return worker

    def give(self, key: int, arguments: tuple[Any, ...]) -> None:
        self.key, self.since = key, time.perf_counter()
        with suppress(BrokenPipeError):  # the worker has died since its last task; `take` reports it
            self.connection.send(arguments)

    def take(self) -> Any:
        """Receive the result of the task, or `Lost` if the worker has died."""
        try:
            result = self.connection.recv()
        except (EOFError, OSError):
            self.process.join()
            reason = f"died: the worker process ended {describe_exit(self.process.exitcode)}"
            return Lost(reason, time.perf_counter() - self.since)
        if isinstance(result, Raised):
            raise result.error
        return result

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
        self.connection.close()


def describe_exit(code: int) -> str:
    """Return a description of a process's end; `multiprocessing` gives signals as negative exit codes."""
    if code >= 0:
        return f"with exit code {code}"
    known = {number.value: number.name for number in signal.Signals}
    return f"by {known.get(-code, f'signal {-code}')}"


def collect(busy: list[Worker], idle: list[Worker], limit: float | None) -> Iterator[tuple[int, Any]]:
    """Wait until a busy worker finishes, dies or times out; yield such tasks, and move or stop their workers."""
    patience = None
    if limit is not None:
        patience = max(0.0, min(worker.since for worker in busy) + limit - time.perf_counter())
    ready = wait([worker.connection for worker in busy], patience)
    for worker in list(busy):
        seconds = time.perf_counter() - worker.since
        if worker.connection in ready:
            result = worker.take()
        elif limit is not None and seconds >= limit:
            result = Lost(f"timed out: stopped after {seconds:.0f} s", seconds)
        else:
            continue
        busy.remove(worker)
        if worker.connection in ready and worker.process.is_alive():
            idle.append(worker)
        else:
            worker.stop()
        yield worker.key, result


def end_with_parent() -> None:
    """End this process when its parent is gone, even in the middle of a task."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)


def sendable(error: Exception) -> Exception:
    """Return an exception that the parent can receive: the same, or its text if its class cannot be pickled."""
    try:
        copied: Exception = pickle.loads(pickle.dumps(error))
    except Exception:  # a constructor with several arguments raises anything
        return RuntimeError(f"{type(error).__name__}: {error}")
    return copied


def serve(connection: Connection, work: Work) -> None:
    """Run tasks until the pipe closes; this is the body of a worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C and stops this process
    threading.Thread(target=end_with_parent, daemon=True).start()
    work.load()
    connection.send(True)
    while True:
        try:
            arguments = connection.recv()
        except (EOFError, ConnectionResetError):  # reset if the parent ended without reading the last answer
            return
        try:
            result = work.do(*arguments)
        except Exception as error:  # raised again in the parent
            result = Raised(sendable(error))
        connection.send(result)
