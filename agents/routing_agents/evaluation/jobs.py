"""Jobs of `solve.py`: files to solve, their output files, and the results."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

from routing_agents.evaluation.decoding import threads_of
from routing_agents.evaluation.files import FileWork, Found, Method, Settings, solve_files
from routing_agents.evaluation.sources import Source, cost_of, ending_of, write_tours
from routing_gym import render
from routing_gym.arrays import IntArray, select
from routing_gym.data import FileInstance
from routing_gym.files import printable
from routing_gym.problem import AnyProblem, InfeasibleTour
from routing_gym.solvers.runtime.work import Executor

Show = Callable[[str], None]  # shows the progress


@dataclass(frozen=True, eq=False)
class Job:
    """A file that has been read, the method that solves it, and the folder of its output files."""

    path: Path
    source: Source
    method: Method
    out: Path

    @property
    def tour(self) -> Path:
        """File of the tours."""
        return self.out / (self.path.stem + ending_of(self.source))

    @property
    def picture(self) -> Path:
        """Picture of the first tour."""
        return self.out / f"{self.path.stem}.png"

    @property
    def best_known(self) -> float | None:
        """Best known cost from the solution file next to the file, if there is one."""
        return self.source.best_known if isinstance(self.source, FileInstance) else None

    def gap(self, cost: float) -> float | None:
        """Return the gap of a cost to the best known one, as a fraction: positive if it is worse; None if unknown."""
        known = self.best_known
        if not known:  # unknown, or zero
            return None
        return (known - cost if self.source.problem.maximises else cost - known) / known

    def write(self, actions: IntArray) -> None:
        """Write tours (B, T), completely or not at all.

        Raises:
            OSError: The tours cannot be written; the message has the first one.
        """
        try:
            write_tours(self.tour, self.source, actions)
        except OSError as error:
            raise OSError(f"{self.tour}: {error}; the actions are: {' '.join(map(str, actions[0]))}") from error


@dataclass(frozen=True)
class Solved:
    """Result of one file.

    Attributes:
        name: Name of the instance.
        problem: Its problem.
        cost: Cost in the file's own unit; the mean of several instances.
        best_known: Best known cost; None if unknown.
        gap: Gap to the best known cost; see `Job.gap`.
        seconds: Seconds that solving took.
        solved_by: Names of weights and heuristics, and whether Ctrl-C stopped them; see `Method.label`.
        weights: File of the weights that decoded the first tours; None for a classical heuristic.
        written: File of the tours.
        interrupted: Whether Ctrl-C ended the decoding or the search.
    """

    name: str
    problem: AnyProblem
    cost: float
    best_known: float | None
    gap: float | None
    seconds: float
    solved_by: str
    weights: Path | None
    written: Path
    interrupted: bool


def check_outputs(jobs: Sequence[Job], overwrite: bool) -> None:
    """Check the output files before any work is done.

    Raises:
        ValueError: Two files would have the same output file, or an output would be taken for a best known tour.
        FileExistsError: An output file exists already, and may not be overwritten.
    """
    sources: dict[Path, Path] = {}
    for job in jobs:
        for path in (job.tour, job.picture):
            if path in sources:
                raise ValueError(
                    f"the results of {sources[path]} and {job.path} would both be {path}; solve them apart"
                )
            sources[path] = job.path
            if path.resolve().parent == job.path.resolve().parent:
                raise ValueError(f"{path} would pass for the best known tour of {job.path}; choose another --out")
            if path.exists() and not overwrite:
                raise FileExistsError(f"{path} exists; choose another --out, or give --overwrite")


def solve_jobs(
    jobs: Sequence[Job], settings: Settings, executor: Executor | None, show: Show
) -> Generator[tuple[int, Solved | str], None, None]:
    """Solve files, and write their tours and pictures.

    Args:
        jobs: Files to solve.
        settings: Settings for all files.
        executor: Executor that solves them; None to solve them one by one in this process.
        show: Function that is called with the progress.

    Yields:
        Number of a file, and its result or the reason why there is none.

    Raises:
        ValueError, WorkersNotReady: The cluster does not exist, or its workers do not start.
    """
    if executor is None:
        found = solve_here(jobs, settings, show)
    else:
        work = FileWork([job.method for job in jobs], settings, threads_of(executor))
        found = solve_files([job.source for job in jobs], work, executor)
    with closing(found):
        for number, outcome in found:
            result: Solved | str
            try:
                result = finish(jobs[number], outcome)
            except (MemoryError, OSError) as error:
                result = str(error)
            except InfeasibleTour as error:  # files may state further limits, such as VEHICLES
                more = "more --tours, or --improve" if settings.seconds is None else "more seconds of --improve"
                result = f"the tour found violates a limit of the file: {error} (try {more})"
            yield number, result


def solve_here(
    jobs: Sequence[Job], settings: Settings, show: Show
) -> Generator[tuple[int, Found | Exception], None, None]:
    """Solve files one by one in this process; yield the number of each file, and its tours or the error."""
    for number, job in enumerate(jobs):
        show(f"solving {job.source.name} ({number + 1} of {len(jobs)})")
        try:
            outcome: Found | Exception = job.method.solve(job.source, settings, Progress(job, settings, show))
        except (MemoryError, OSError, InfeasibleTour) as error:
            outcome = error
        yield number, outcome


@dataclass
class Progress:
    """Callback that writes each better tour and shows the progress."""

    job: Job
    settings: Settings
    show: Show
    written: float = math.inf  # objective of the tours on disk

    def __call__(self, seconds: float, tours: IntArray, objective: float) -> None:
        job, maximises = self.job, self.job.source.problem.maximises
        if objective < self.written:
            with suppress(OSError) if seconds else nullcontext():  # the best tour is written again at the end
                job.write(tours)
            self.written = objective
        cost = 0.0 - objective if maximises else objective
        gap = job.gap(cost)
        words = f"{'prize' if maximises else 'cost'} {cost:.10g}"
        words += "" if gap is None else f", {gap:.2%} {'below' if maximises else 'above'} the best known"
        if objective == math.inf:
            words = "no tour within the file's limits yet"
        name, limit = job.source.name, self.settings.seconds
        doing = f"improving {name}: {seconds:.0f} of {limit:g} s" if seconds else f"solving {name}: first tour"
        self.show(f"{doing}, {words}")


def finish(job: Job, outcome: Found | Exception) -> Solved:
    """Write a file's tours and its picture.

    Raises:
        OSError: The tours or the picture cannot be written; see `Job.write`.
        InfeasibleTour: The tour violates a limit that only the file states.
        Exception: The outcome is this exception.
    """
    if isinstance(outcome, Exception):
        raise outcome
    source, tours = job.source, outcome.actions
    cost = cost_of(source, tours)
    job.write(tours)
    first = select(source.instance, slice(0, 1))
    try:
        render.save(job.picture, source.problem, first, tours[0], title=printable(f"{source.name}: {cost:g}"))
    except OSError as error:
        raise OSError(f"{job.picture} cannot be written: {error}; the tour is in {job.tour}") from error
    return Solved(
        name=source.name,
        problem=source.problem,
        cost=cost,
        best_known=job.best_known,
        gap=job.gap(cost),
        seconds=outcome.seconds,
        solved_by=job.method.label(source, outcome),
        weights=None if job.method.model is None else job.method.model.path,
        written=job.tour,
        interrupted=outcome.interrupted,
    )
