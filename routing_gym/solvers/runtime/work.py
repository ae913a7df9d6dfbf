"""What executors execute: a piece of work that every worker gets once, and its tasks, each with a key.

An executor runs the same tasks with the same arguments wherever it runs them, so that results do not depend on it.
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
    """A function with what it needs. It is pickled, and sent to each worker once.

    Attributes:
        name: For messages.
        hard_limit: Seconds after which a task is stopped from outside; None: no limit.
        packages: Modules that a worker needs besides those of this package.
        num_gpus: GPUs that a worker on Ray keeps for itself.
    """

    name: str
    hard_limit: float | None = None
    packages: tuple[str, ...] = ()
    num_gpus: float = 0

    def load(self) -> None:
        """Import what the tasks need, once in each worker, before the first task."""

    @abstractmethod
    def do(self, *arguments: Any) -> Any:
        """Do one task. Whatever it raises ends the run; work that may fail returns its failure instead."""


@dataclass(frozen=True)
class Lost:
    """A task without a result: its worker died, or its time was over."""

    reason: str
    seconds: float


Results: TypeAlias = Generator[tuple[int, Any], None, None]  # keys and results (or `Lost`); closing it ends the work


class Executor(ABC):
    """Runs tasks, and yields what they return."""

    def prepare(self, work: Work) -> None:
        """Check that workers can start and have what the work needs, before it begins.

        Raises:
            ValueError: There is no such cluster, or it has other versions.
            ImportError: A package is missing.
        """

    @abstractmethod
    def run(self, work: Work, tasks: Iterable[Task]) -> Results:
        """Do the tasks, and yield their keys and results as they finish, in any order.

        Tasks are drawn from the iterable as workers become free, so that only a few exist at a time.
        """


@dataclass(frozen=True)
class Inline(Executor):
    """Runs tasks one after another in this process. A task that hangs or dies takes the run with it."""

    def run(self, work: Work, tasks: Iterable[Task]) -> Results:
        work.load()
        for key, arguments in tasks:
            yield key, work.do(*arguments)
