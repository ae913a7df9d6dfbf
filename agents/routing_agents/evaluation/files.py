"""Solving of instances from files with a model: first tours, then a search; in this process, or by an executor.

The tasks of an executor are files, or chunks of their instances. The first chunk is solved with the seed itself, so
that the tours of a file with one chunk do not depend on the executor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import numpy as np
import torch

from routing_agents.evaluation.decoding import CHUNK_SIZE
from routing_agents.evaluation.improving import Improver
from routing_agents.evaluation.sources import Instances, Source, objectives
from routing_agents.policies.attention.decoding import GREEDY
from routing_agents.terminal import STOPPED
from routing_agents.trained import Strategy, TrainedModel
from routing_agents.training.tuning import keep_freed_memory
from routing_gym.arrays import IntArray, batch_size, select
from routing_gym.problem import AnyProblem, InfeasibleTour
from routing_gym.solvers import FASTEST, make_solver
from routing_gym.solvers.runtime.rows import row_seed
from routing_gym.solvers.runtime.work import Executor, Lost, Work

Report = Callable[[float, IntArray, float], None]  # seconds of search, best tours so far (B, T), mean of `objectives`


@dataclass(frozen=True, eq=False)
class Found:
    """Tours of a file, or of a chunk of its instances.

    Attributes:
        actions: Tours: int64 (B, T).
        seconds: Seconds that solving took.
        searched: Whether a search was started.
        interrupted: Whether Ctrl-C ended the decoding or the search.
    """

    actions: IntArray
    seconds: float
    searched: bool = False
    interrupted: bool = False


@dataclass(frozen=True)
class Settings:
    """Settings with which all files are solved.

    Attributes:
        seed: Random seed for sampling and search.
        tours_at_once: Number of tours decoded at a time; see `TrainedModel.solve_batch`.
        seconds: Time limit of the search for each file; None without a search.
    """

    seed: int
    tours_at_once: int | None = None
    seconds: float | None = None


@dataclass(frozen=True, eq=False)
class Method:
    """Method that solves files.

    Attributes:
        model: Model that decodes the first tours; None for a first tour by a classical heuristic.
        decoding: Decoding strategy of the model.
        improver: Search that improves the tour; None without a search.
    """

    model: TrainedModel | None
    decoding: Strategy = GREEDY
    improver: Improver | None = None

    def label(self, source: Source, found: Found) -> str:
        """Return the names of what made the first tours of a file (weights or a heuristic) and improved them."""
        parts = [heuristic_for(source.problem) if self.model is None else self.model.path.stem]
        if self.improver is not None and found.searched:
            parts.append(f"improved by {self.improver.name}")
        if found.interrupted:
            parts.append(STOPPED)
        return ", ".join(parts)

    def solve(self, source: Source, settings: Settings, report: Report = lambda *_: None) -> Found:
        """Solve a file; `report` is called with the greedy tours, before the search, and during it."""
        started = perf_counter()
        tours, interrupted = self.first_tours(source, settings, report)
        searched = self.improver is not None and not interrupted
        if searched:
            report(0.0, tours, float(objectives(source, tours).mean()))
            tours, interrupted = self.improve(source, tours, settings, report)
        return Found(tours, perf_counter() - started, searched, interrupted)

    def first_tours(self, source: Source, settings: Settings, report: Report) -> tuple[IntArray, bool]:
        """Return tours (B, T) by the model or a classical heuristic, and whether Ctrl-C ended the decoding.

        Greedy tours are decoded first and reported; they are returned where the decoding finds no better ones, or if
        Ctrl-C ends it.
        """
        problem, instance = source.problem, source.instance
        if self.model is None:
            return make_solver(heuristic_for(problem)).solve(problem, instance).actions, False
        how = settings.seed, settings.tours_at_once
        greedy = self.model.solve_batch(problem, instance, GREEDY, *how).actions.cpu().numpy()
        if self.decoding == GREEDY:
            return greedy, False
        before = objectives(source, greedy)
        try:
            report(0.0, greedy, float(before.mean()))
            tours = self.model.solve_batch(problem, instance, self.decoding, *how).actions.cpu().numpy()
        except KeyboardInterrupt:
            return greedy, True
        length = max(greedy.shape[1], tours.shape[1])
        better = (objectives(source, tours) < before)[:, None]
        return np.where(better, padded(tours, length), padded(greedy, length)), False

    def improve(self, source: Source, start: IntArray, settings: Settings, report: Report) -> tuple[IntArray, bool]:
        """Improve a tour (1, T); return the best one in the file's own unit, and whether Ctrl-C ended the search."""
        assert self.improver is not None
        assert settings.seconds is not None
        best, least = start, float(objectives(source, start)[0])

        def keep(seconds: float, actions: IntArray) -> None:
            nonlocal best, least
            if (found := float(objectives(source, actions[None])[0])) < least:
                best, least = actions[None], found
            report(seconds, best, least)

        try:
            interrupted = self.improver.improve(source, start[0], settings.seconds, settings.seed, keep)
        except KeyboardInterrupt:  # before the search or after it
            interrupted = True
        return best, interrupted


def heuristic_for(problem: AnyProblem) -> str:
    """Return the name of the classical heuristic that makes a first tour."""
    return FASTEST.get(problem.name, "nearest-neighbour")


class FileWork(Work):
    """Work that solves files, or chunks of their instances.

    Args:
        methods: Method for each file.
        settings: Settings for all files.
        threads: Number of threads of each worker; None leaves the number unchanged.
    """

    name = "files"

    def __init__(self, methods: Sequence[Method], settings: Settings, threads: int | None = None) -> None:
        self.methods, self.settings, self.threads = methods, settings, threads

    def load(self) -> None:
        if self.threads is not None:
            torch.set_num_threads(self.threads)
        keep_freed_memory()

    def do(self, number: int, source: Source, first_row: int) -> Found | Exception:
        """Solve a part of a file; return the errors that concern this file only."""
        seed = row_seed(self.settings.seed, first_row) if first_row else self.settings.seed
        try:
            return self.methods[number].solve(source, replace(self.settings, seed=seed))
        except (MemoryError, InfeasibleTour) as error:
            return error


def solve_files(
    sources: Sequence[Source], work: FileWork, executor: Executor, chunk_size: int = CHUNK_SIZE
) -> Generator[tuple[int, Found | Exception], None, None]:
    """Solve files by an executor, and yield their numbers and tours as they are completed.

    Args:
        sources: Files to solve.
        work: Work that solves a file.
        executor: Executor that runs the tasks.
        chunk_size: Number of instances of a task.

    Yields:
        Number of a file, and its tours or the error.

    Raises:
        ValueError, WorkersNotReady: There are no workers; see `Executor`.
    """
    executor.prepare(work)
    parts = [
        (number, start)
        for number, source in enumerate(sources)
        for start in range(0, batch_size(source.instance), chunk_size)
    ]
    missing = Counter(number for number, _ in parts)
    found: dict[int, Any] = {}
    tasks = (
        (key, (number, part_of(sources[number], start, chunk_size), start)) for key, (number, start) in enumerate(parts)
    )
    with closing(executor.run(work, tasks)) as results:
        for key, result in results:
            number = parts[key][0]
            found[key] = ChildProcessError(result.reason) if isinstance(result, Lost) else result
            missing[number] -= 1
            if not missing[number]:
                keys = [key for key, (one, _) in enumerate(parts) if one == number]
                yield number, join([found.pop(key) for key in keys])


def part_of(source: Source, start: int, size: int) -> Source:
    """Return a chunk of a file's instances; only .npz files have several."""
    if not isinstance(source, Instances):
        return source
    return replace(source, instance=select(source.instance, slice(start, start + size)))


def join(parts: Sequence[Found | Exception]) -> Found | Exception:
    """Concatenate the chunks of a file, or return the first error."""
    tours = [part for part in parts if isinstance(part, Found)]
    if len(tours) < len(parts):
        return next(part for part in parts if isinstance(part, Exception))
    length = max(one.actions.shape[1] for one in tours)
    return Found(
        np.concatenate([padded(one.actions, length) for one in tours]),
        sum(one.seconds for one in tours),
        any(one.searched for one in tours),
        any(one.interrupted for one in tours),
    )


def padded(actions: IntArray, length: int) -> IntArray:
    """Return tours (B, T), padded with their last node to (B, length)."""
    return np.pad(actions, ((0, 0), (0, length - actions.shape[1])), mode="edge")
