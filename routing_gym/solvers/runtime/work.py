"""Interface of executors: work that is sent to each worker once, and its tasks, each with a key.

An executor runs the same tasks with the same arguments on any worker, so results do not depend on the executor.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

Task: TypeAlias = tuple[int, tuple[Any, ...]]  # a key, and the arguments of `Work.do`


class WorkersNotReady(RuntimeError):
    """The workers of an executor do not start."""


class Work(ABC):
    """Function with the data that it needs. It is pickled, and sent to each worker once.

    Attributes:
        name: Name for messages.
        hard_limit: Seconds after which a task is stopped from outside; None for no limit.
        packages: Modules that a worker needs in addition to those of this package.
        num_gpus: Number of GPUs that a worker on Ray reserves.
    """

    name: str
    hard_limit: float | None = None
    packages: tuple[str, ...] = ()
    num_gpus: float = 0

    def load(self) -> None:
        """Import everything that the tasks need, once in each worker, before the first task."""

    @abstractmethod
    def do(self, *arguments: Any) -> Any:
        """Run one task. Any exception ends the run; work that may fail should return its failure instead."""


@dataclass(frozen=True)
class Lost:
    """Task without a result: its worker died, or its time was over."""

    reason: str
    seconds: float


Results: TypeAlias = Generator[tuple[int, Any], None, None]  # keys and results (or `Lost`); closing it ends the work


class Executor(ABC):
    """Base class of executors, which run tasks and yield their results."""

    def prepare(self, work: Work) -> None:
        """Check that workers can start and have everything that the work needs.

        Raises:
            ValueError: The cluster cannot be reached, or has other versions.
            ImportError: A package is missing.
        """

    @abstractmethod
    def run(self, work: Work, tasks: Iterable[Task]) -> Results:
        """Run the tasks, and yield their keys and results as they finish, in any order.

        Tasks are drawn from the iterable as workers become free, so that only a few exist at a time.
        """


@dataclass(frozen=True)
class Inline(Executor):
    """Executor that runs tasks one after another in this process. A task that hangs or dies ends the run."""

    def run(self, work: Work, tasks: Iterable[Task]) -> Results:
        work.load()
        for key, arguments in tasks:
            yield key, work.do(*arguments)
