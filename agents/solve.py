"""Solve instances from files, and plan routes to your own stops.

    python agents/solve.py berlin52.tsp A-n32-k5.vrp eil51-gen2-50.oplib     # published weights
    python agents/solve.py --checkpoint runs/NAME C101.txt RC208.vrp         # Solomon's, VRPLIB's
    python agents/solve.py customers.csv --capacity 30
    python agents/solve.py X-n200-k36.vrp --improve 60                       # search for a minute
    python agents/solve.py stops.csv --vehicles vans.csv --map map.html      # your own stops

CSV files have a header line with the names of the columns, and one line per node: x and y; demand (CVRP, with
--capacity); prize (OP, with --max-length); prize and penalty (PCTSP, with --required-prize). Other columns are not
used; the output lists them. The first node is the depot, except for the TSP. Columns are separated by commas,
semicolons or tabs. Files written by routing_gym.data.save_npz hold any number of instances of any problem.

CSV files of stops have one line per stop, the depot first: lat and lon, or x and y; demand; earliest, latest and
service (minutes, HH:MM or ISO times); pickup; penalty; id, name. The columns determine the problem. The plan is
printed, and written to a CSV file in --out and to the files given by --map, --geojson, --json and --gantt.

The script prints the cost in the file's own unit, the best known cost if its solution file is in the same folder, and
the gap. It writes each tour (TSPLIB .tour, CVRPLIB and OPLib .sol; else .csv or .npz) and a picture. A file that cannot
be read is reported at the end, and the others are solved. A file is also reported if its tour violates a limit that
only the file states: the number of vehicles (VRPTW), or the ban on backhaul-only routes (VRPB).

With --executor, files, and chunks of the instances in .npz files, are solved by worker processes or on Ray; see
docs/how-to/several-machines.md. The tours are the same, except for sampled tours of .npz files with several chunks.

With --improve, the tour is written before the search starts. It is written again at most once a second, if the search
has found a better tour. Ctrl-C ends the search, keeps its best tour, and leaves out the files that follow.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import closing, nullcontext, suppress
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import numpy as np
import tyro
from rich.table import Column, Table
from rich.text import Text

from routing_agents import TrainedModel, load
from routing_agents.evaluation.decoding import threads_of
from routing_agents.evaluation.files import FileWork, Found, Instances, Method, Settings, Source, cost_of, solve_files
from routing_agents.planning.command import PlanArgs, check_plan_options, is_plan, plan_file
from routing_agents.runs import check_integers, check_numbers, option
from routing_agents.search.large_neighbourhood import neighbourhoods_of
from routing_agents.terminal import command_line, plain_console
from routing_agents.trained import choose_decoding, find_weights, load_repair
from routing_agents.training.tuning import keep_freed_memory
from routing_gym import data, render
from routing_gym.arrays import batch_size, select
from routing_gym.data.npz import npz_bytes
from routing_gym.data.own import OwnInstance, columns_of, from_columns, read_csv, recognise
from routing_gym.files import found, printable, write_atomically
from routing_gym.planning import Plan
from routing_gym.problem import AnyProblem, InfeasibleTour
from routing_gym.problems.matrices import has_matrices
from routing_gym.solvers import HEURISTICS
from routing_gym.solvers.runtime.executors import ExecutorName, executor_of

MAX_MATRIX_NODES = 2_000  # for larger files, decoded tours are compared by Euclidean lengths, not rounded ones
LEAST_SECONDS = 0.1  # smallest value of --improve
NUMBERS = ("capacity", "max_length", "required_prize", "num_salesmen")  # settings of an instance, besides its columns
MODEL_OPTIONS = ("checkpoint", "decoding", "tours", "batch_size", "improve", "repair", "executor", "workers", "address")
Outcomes = Generator[tuple[int, Found | Exception], None, None]  # number of the file, and its tours or the error
UNUSED = {"greedy": ("tours",), "heuristic": ("checkpoint", "tours", "batch_size")}  # options without effect


@dataclass(frozen=True)
class Args(PlanArgs):
    """Arguments of the solver."""

    advanced: ClassVar[tuple[str, ...]] = (
        *("distances", "speed", "minimise", "start", "fixed", "geojson", "json", "gantt", "seconds"),
        *("batch_size", "repair", "num_salesmen", "required_prize", "max_length", "numbers"),
        *("executor", "workers", "address"),
    )

    files: tyro.conf.Positional[tuple[Path, ...]]
    """Files to solve: .csv (a row per node with columns x, y, ...; see --help-all), TSPLIB .tsp, CVRPLIB .vrp,
    Solomon's .txt, OPLib .oplib, or .npz."""
    checkpoint: Annotated[Path | None, tyro.conf.arg(metavar="RUN|FILE")] = None
    """Model that solves the files: a run folder or a checkpoint file. Default: the published weights for the file's
    problem and the nearest size."""
    decoding: Literal["greedy", "starts", "sampling", "heuristic"] = "starts"
    """Decoding strategy. greedy: one greedy tour. starts: greedy tours from many first nodes; sampled tours where the
    first node matters. sampling: sampled tours. starts and sampling use all eight symmetries of the square. heuristic:
    for large files with --improve, a classical first tour (greedy edges for TSP, nearest neighbour for CVRP). SPCTSP is
    always decoded greedily, since its prizes are unknown beforehand."""
    tours: int = 128
    """Number of tours per symmetry, except for greedy decoding."""
    capacity: int | None = None
    """Vehicle capacity; required for CSV files with a demand column."""
    max_length: float | None = None
    """Greatest length of the tour or of each route, for CSV files."""
    required_prize: float | None = None
    """Least prize to collect, for CSV files with prizes and penalties."""
    num_salesmen: int | None = None
    """Number of salesmen, which makes a CSV file of coordinates a multiple TSP (MTSP)."""
    numbers: dict[str, float] = field(default_factory=dict)
    """Other numbers of the whole instance that the columns of a problem of your own declare, for CSV files."""
    problem: str | None = None
    """Problem of the CSV files, such as OVRPTW; by default the first that takes all their columns."""
    batch_size: int | None = None
    """Number of tours decoded at a time. Default: 1024, or fewer where instances are large. Sampled tours depend on
    it."""
    seed: int = 1
    """Random seed for sampling and search."""
    improve: float | None = None
    """Seconds of large-neighbourhood search per file after decoding, in which a trained model solves parts of the tour
    again. For files with one instance, of any problem but stochastic ones."""
    repair: Annotated[Path | None, tyro.conf.arg(metavar="RUN|FILE")] = None
    """Model that solves the subproblems of --improve (a run folder or a checkpoint file). Default: the published
    weights for them: TSPFE (fixed edges) for TSP, those of the file's own problem for others."""
    executor: ExecutorName | None = None
    """Where files are solved: in this process, in worker processes, or on Ray. Default: one by one in this process."""
    workers: int | None = None
    """Number of worker processes. Default: the number of cores, on Ray that of the cluster."""
    address: str | None = None
    """Address of a Ray cluster: auto, HOST:6379 or ray://HOST:10001. Default: Ray starts on this machine."""
    out: Path = Path("solved")
    """Folder for tours and pictures."""
    overwrite: bool = False
    """Overwrite existing tours and pictures."""

    def __post_init__(self) -> None:
        check_integers(self, "tours", *(name for name in ("batch_size", "workers") if getattr(self, name) is not None))
        check_integers(self, "seed", least=0)
        check_numbers(self, "improve")
        if self.improve is not None and self.improve < LEAST_SECONDS:
            raise ValueError(
                f"--improve {self.improve} has no effect: a round of the search takes longer; give at least "
                f"{LEAST_SECONDS} seconds"
            )
        for one in fields(self):
            value, unused = getattr(self, one.name), one.name in UNUSED.get(self.decoding, ())
            if unused and value != one.default:
                given = f"{option(one.name)} {value}"
                raise ValueError(f"{given} has no effect with --decoding {self.decoding}; leave it out")
        if self.decoding == "heuristic" and self.improve is None:
            raise ValueError("--decoding heuristic is a start for --improve; evaluate.py runs classical solvers alone")
        if self.repair is not None and self.improve is None:
            raise ValueError("--repair solves parts of a tour for --improve; give --improve SECONDS, or leave it out")
        if self.workers is not None and self.executor in (None, "inline"):
            raise ValueError(f"--workers {self.workers} has no effect without --executor processes or ray; add one")


@dataclass(frozen=True)
class Solved:
    """Result of one file."""

    name: str
    problem: AnyProblem
    cost: float
    best_known: float | None
    seconds: float
    weights: Path
    written: Path
    interrupted: bool = False

    @property
    def gap(self) -> float | None:
        """Gap to the best known cost, as a fraction: positive if the cost is worse; None if unknown."""
        return gap(self.problem, self.cost, self.best_known)


def gap(problem: AnyProblem, cost: float, best_known: float | None) -> float | None:
    """Return the gap of a cost to the best known one, as a fraction: positive if it is worse; None if unknown."""
    if not best_known:  # unknown, or zero
        return None
    return (best_known - cost if problem.maximises else cost - best_known) / best_known


@dataclass(frozen=True, eq=False)
class Job:
    """A file that has been read, the method that solves it, and its output files."""

    path: Path
    source: Source
    method: Method
    tour: Path
    picture: Path

    @property
    def best_known(self) -> float | None:
        """Best known cost from the solution file next to the file, if there is one."""
        return self.source.best_known if isinstance(self.source, data.FileInstance) else None

    def write(self, actions: np.ndarray) -> None:
        """Write tours (B, T), completely or not at all.

        Raises:
            OSError: The tours cannot be written; the message has the first one.
        """
        source = self.source
        try:
            if isinstance(source, data.FileInstance):
                data.write_tour(self.tour, source, actions[0])
            elif isinstance(source, OwnInstance):
                write_atomically(self.tour, tour_csv(source, actions[0]).encode())
            else:
                cost = source.problem.objective(source.instance, actions)
                write_atomically(self.tour, npz_bytes(actions=actions, cost=cost))
        except OSError as error:
            raise OSError(f"{self.tour}: {error}; the actions are: {' '.join(map(str, actions[0]))}") from error


def given_numbers(args: Args) -> dict[str, float]:
    """Return the numbers of the whole instance that were given as options."""
    return {name: value for name in NUMBERS if (value := getattr(args, name)) is not None} | args.numbers


def option_of(number: str) -> str:
    """Return the option that gives a number of the whole instance."""
    return option(number) if number in NUMBERS else f"--numbers {number}"


def problem_of(columns: Collection[str], args: Args, model: TrainedModel | None) -> str | AnyProblem:
    """Return the problem of a CSV file: the one that is named, that of the model, if it fits, or the first that fits.

    Raises:
        ValueError: No problem takes these columns.
    """
    name = args.problem or recognise(columns, given_numbers(args))
    if model is None:
        return name
    required = {key for column in model.problem.columns if column.tabular and column.required for key in column.keys}
    takes = not args.problem and name not in model.names and required <= set(columns)
    return model.problem if takes or name == model.problem.name else name


def read(path: Path, args: Args, model: TrainedModel | None = None) -> Source:
    """Read one file.

    Args:
        path: File to read.
        args: Arguments of the solver.
        model: Model that will solve it, if one was named.

    Raises:
        ValueError: The content of the file is invalid.
        OSError: The file cannot be opened.
    """
    if path.suffix.lower() == ".npz":
        problem, instance = data.load_npz(path)
        return Instances(printable(path.stem), problem, instance)
    if path.suffix.lower() != ".csv":
        return data.read_instance(path, max_matrix_nodes=MAX_MATRIX_NODES)
    columns, unused = read_csv(path)
    numbers = given_numbers(args)
    try:
        problem = problem_of(columns, args, model)
        name, declared = (problem, columns_of(problem)) if isinstance(problem, str) else (problem.name, problem.columns)
        needed = (one.name for one in declared if one.per == "instance" and one.required)
        if missing := [option_of(number) for number in needed if number not in numbers]:
            raise ValueError(f"{name} needs {', '.join(missing)}; give it, or name another problem by --problem")
        taken = {key for column in declared for key in column.keys}
        chosen = {key: value for key, value in {**columns, **numbers}.items() if key in taken}
        own = from_columns(problem, chosen, name=printable(path.stem))
    except ValueError as error:
        raise data.InvalidFile(path, None, str(error)) from None
    return replace(own, unused=(*unused, *(key for key in columns if key not in taken)))


def make_jobs(args: Args) -> Iterator[Job | str]:
    """Read the files one by one; yield a job for each, or the reason why it cannot be solved.

    Raises:
        ValueError: No file is given.
    """
    if not args.files:
        raise ValueError("name at least one .tsp, .vrp, .oplib, .csv or .npz file")
    load_once = cache(load)
    for path in args.files:
        try:
            source = read(path, args, None if args.checkpoint is None else load_once(args.checkpoint))
            weights = args.checkpoint or find_weights(
                source.problem.name, source.problem.num_nodes, matrices=has_matrices(source.instance)
            )
            model = load_once(weights)
            model.check(source.problem, f"{path} is a")
            heuristic = args.decoding == "heuristic"
            decoding = None if heuristic else choose_decoding(args.decoding, source.problem, args.tours)
            repair = None if args.improve is None else choose_repair(path, source, args, model)
        except (ValueError, OSError) as error:
            yield str(error)
        else:
            endings = {OwnInstance: ".csv", Instances: ".npz"}
            ending = endings.get(type(source), ".sol" if source.problem.has_depot else ".tour")
            outputs = (args.out / (path.stem + suffix) for suffix in (ending, ".png"))
            yield Job(path, source, Method(model, decoding, repair), *outputs)


def choose_repair(path: Path, source: Source, args: Args, model: TrainedModel) -> TrainedModel:
    """Load the model that solves the subproblems of a file's tour.

    The default is published weights; if there are none, the model that solves the file.

    Raises:
        ValueError: The file holds several instances, its tour cannot be improved, or no weights fit its subproblems.
    """
    if (rows := batch_size(source.instance)) > 1:
        raise ValueError(f"{path} holds {rows} instances; --improve takes files with one")
    try:
        wanted, _ = neighbourhoods_of(source.problem).repaired_by(source.problem)
        repair = load_repair_or(model, source.problem, wanted) if args.repair is None else load(args.repair)
    except ValueError as error:
        raise ValueError(f"{path}: --improve: {error}") from None
    if wanted not in repair.names:
        raise ValueError(
            f"{path}: --repair {args.repair} was trained on {repair.problem.name}; parts of {source.problem.name} are "
            f"{wanted}"
        )
    return repair


def load_repair_or(model: TrainedModel, problem: AnyProblem, wanted: str) -> TrainedModel:
    """Return the published weights for the subproblems of a problem, or without any the model, if it solves them.

    Raises:
        ValueError: Neither exists.
    """
    try:
        return load_repair(problem)
    except ValueError:
        if wanted not in model.names:
            raise
        return model


def check_options(jobs: list[Job], args: Args) -> None:
    """Check that each given option for CSV files has an effect on one of the files.

    Raises:
        ValueError: An option has no effect; the message names it.
    """
    tables = [job.source.problem for job in jobs if isinstance(job.source, OwnInstance)]
    used = {column.name for problem in tables for column in problem.columns}
    for name, value in given_numbers(args).items():
        if name not in used:
            raise ValueError(
                f"{option_of(name)} {value} has no effect: none of the files is a CSV file of a problem with a {name}; "
                "leave it out"
            )


def check_outputs(jobs: list[Job], args: Args) -> None:
    """Check the output files before any work is done.

    Raises:
        ValueError: Two files would have the same output file, or an output would be taken for a best known tour.
        FileExistsError: An output file exists already.
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
            if path.exists() and not args.overwrite:
                raise FileExistsError(f"{path} exists; choose another --out, or give --overwrite")


def solve(jobs: list[Job], args: Args, show: Callable[[str], None]) -> Outcomes:
    """Solve the files; yield the number of each file, and its tours or the error.

    Raises:
        ValueError, WorkersNotReady: The cluster does not exist, or its workers do not start.
    """
    settings, executor = Settings(args.seed, args.batch_size, args.improve), executor_of(args)
    if executor is not None:
        work = FileWork([job.method for job in jobs], settings, threads_of(executor))
        yield from solve_files([job.source for job in jobs], work, executor)
        return
    for number, job in enumerate(jobs):
        show(f"solving {job.source.name} ({number + 1} of {len(jobs)})")
        try:
            outcome: Found | Exception = job.method.solve(job.source, settings, Progress(job, settings, show))
        except (MemoryError, OSError, InfeasibleTour) as error:
            outcome = error
        yield number, outcome


@dataclass
class Progress:
    """Callback of a search, which writes each better tour and shows the progress."""

    job: Job
    settings: Settings
    show: Callable[[str], None]
    written: float = math.inf  # cost of the tour on disk

    def __call__(self, seconds: float, tours: np.ndarray, cost: float) -> None:
        job = self.job
        if cost < self.written:
            with suppress(OSError) if seconds else nullcontext():  # the best tour is written again at the end
                job.write(tours)
            self.written = cost
        distance = gap(job.source.problem, cost, job.best_known)
        words = f"cost {cost:.10g}" + ("" if distance is None else f", {distance:.2%} above the best known")
        if cost == math.inf:
            words = "no tour within the file's limits yet"
        self.show(f"improving {job.source.name}: {seconds:.0f} of {self.settings.seconds:g} s, {words}")


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
    job.write(tours)
    cost = cost_of(source, tours)
    first = select(source.instance, slice(0, 1))
    try:
        render.save(job.picture, source.problem, first, tours[0], title=printable(f"{source.name}: {cost:g}"))
    except OSError as error:
        raise OSError(f"{job.picture} cannot be written: {error}; the tour is in {job.tour}") from error
    weights = job.method.model.path
    about = source.name, source.problem, cost, job.best_known, outcome.seconds
    return Solved(*about, weights, job.tour, outcome.interrupted)


def method(job: Job, args: Args) -> str:
    """Return the name of the weights or the heuristic that made the first tour, and of the weights that improved it."""
    model, repair = job.method.model, job.method.repair
    first = HEURISTICS[job.source.problem.name] if args.decoding == "heuristic" else model.path.stem
    return first if repair is None else f"{first}, improved by {repair.path.stem}"


def cells(one: Solved, solved_by: str) -> tuple[str, ...]:
    """Return the cells of a row of the table."""
    known, distance = ("-" if one.best_known is None else str(one.best_known)), one.gap
    shown = "-" if distance is None else f"{distance:.2%}"
    return one.name, f"{one.cost:.10g}", known, shown, f"{one.seconds:.2f}", solved_by, str(one.written)


def tour_csv(own: OwnInstance, actions: np.ndarray) -> str:
    """Return a tour as CSV: for each visit, the row of the node in the file, from 0, and its columns."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["row", *own.columns])
    for node in own.problem.visits(actions):
        writer.writerow([node, *(f"{values[node]:.15g}" for values in own.columns.values())])
    return text.getvalue()


def plan(path: Path, args: Args) -> Plan:
    """Plan a table of stops, print the plan, and write it."""
    console = plain_console()
    numbers = given_numbers(args)
    with console.status(Text(f"planning {path.name}")) as status:
        made = plan_file(path, args, numbers, lambda text: status.update(Text(printable(text))))
    console.print(str(made), soft_wrap=True)
    return made


def main(args: Args) -> list[Solved | Plan]:
    """Solve the files and print a table; or plan tables of stops, see `routing_agents.planning`.

    Raises:
        ValueError: A file could not be solved; see also `make_jobs`, `check_options` and `check_outputs`.
    """
    keep_freed_memory()
    tables = [path for path in args.files if is_plan(path, args)]
    check_plan_options(args, next(iter(tables), None), MODEL_OPTIONS if tables else ())
    if tables:
        if others := [str(path) for path in args.files if path not in tables]:
            raise ValueError(f"{', '.join(others)}: no table of stops, as {tables[0]} is; solve them apart")
        return [plan(path, args) for path in tables]
    return solve_and_show(args)


def solve_and_show(args: Args) -> list[Solved | Plan]:
    """Solve instances from files with a trained model, and print a table.

    Raises:
        ValueError: See `main`.
    """
    read_files = list(make_jobs(args))
    jobs = [one for one in read_files if isinstance(one, Job)]
    refused = [one for one in read_files if isinstance(one, str)]
    if not jobs:
        raise ValueError("; ".join(refused))
    if not refused:  # otherwise, the option may be for a file that cannot be read
        check_options(jobs, args)
    check_outputs(jobs, args)
    args.out.mkdir(parents=True, exist_ok=True)
    console = plain_console()
    numbers = (Column(name, no_wrap=True) for name in ("cost", "best known", "gap", "seconds"))
    table = Table("instance", *numbers, "solved by", Column("tour", overflow="fold"))
    solved: dict[int, Solved] = {}
    failed: dict[int, str] = {}
    with (
        suppress(KeyboardInterrupt),
        console.status("solving") as status,
        closing(solve(jobs, args, lambda text: status.update(Text(text)))) as outcomes,
    ):
        for number, outcome in outcomes:
            try:
                solved[number] = finish(jobs[number], outcome)
            except (MemoryError, OSError) as error:
                failed[number] = str(error)
            except InfeasibleTour as error:  # files may state further limits, such as VEHICLES
                failed[number] = f"the tour found is none of the file's: {error} (try more --tours, or --improve)"
            else:
                if solved[number].interrupted:
                    break
    for number, job in enumerate(jobs):
        if number in solved:
            table.add_row(*map(printable, cells(solved[number], method(job, args))))
        else:
            refused.append(f"{job.path}: {failed.get(number, 'stopped')}")
    if solved:
        console.print(table)
    for job in jobs:
        if isinstance(job.source, OwnInstance) and job.source.unused:
            unused = ", ".join(map(found, job.source.unused))
            console.print(printable(f"{job.path}: columns that are not used: {unused}."), soft_wrap=True)
    if solved:
        console.print(printable(f"Pictures of the tours are in {args.out}."), soft_wrap=True)
    if refused:
        raise ValueError("not solved: " + "; ".join(refused))
    return [solved[number] for number in sorted(solved)]


if __name__ == "__main__":
    command_line(main, Args, __doc__, stopped="stopped; the tours and pictures of the files before are written")
