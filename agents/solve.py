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
service (minutes, HH:MM or ISO times); pickup (an amount); pickup_at (the id of a stop); penalty; vehicles (names of
those that may serve the stop); id, name. The columns determine the problem. A file with x and y is one of stops if it
has earliest, latest, service, pickup_at or vehicles, or if an option for stops is given, such as --vehicles; without
--problem and options of models, also if it has id, name, or penalty without prize. The plan is printed, and written to
a CSV file in --out and to the files given by --map, --geojson, --json and --gantt.

The script prints the cost in the file's own unit, the best known cost if its solution file is in the same folder, and
the gap. It writes each tour (TSPLIB .tour, CVRPLIB and OPLib .sol; else .csv or .npz) and a picture. A file that cannot
be read is reported at the end, and the others are solved. A file is also reported if its tour violates a limit that
only the file states: the number of vehicles, the duration of routes, or the ban on backhaul-only routes (VRPB).

With --executor, files, and chunks of the instances in .npz files, are solved by worker processes or on Ray; see
docs/how-to/several-machines.md. The tours are the same, except for sampled tours of .npz files with several chunks.

The greedy tour, which is decoded first, is written at once, if the file allows it. With --improve, the tour is written
again at most once a second, if the search has found a better one. Ctrl-C ends decoding and search, keeps the best tour,
and leaves out the files that follow (with --executor, also this file).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import tyro
from rich.table import Column, Table
from rich.text import Text

from routing_agents import TrainedModel, load
from routing_agents.arguments import make_out_folder
from routing_agents.evaluation.files import Method, Settings
from routing_agents.evaluation.improving import PlanSearch, choose_improver
from routing_agents.evaluation.jobs import Job, Solved, check_outputs, solve_jobs
from routing_agents.evaluation.sources import NUMBERS, check_used, read
from routing_agents.planning.command import PlanArgs, check_plan_options, is_plan, plan_file
from routing_agents.policies.attention.decoding import GREEDY
from routing_agents.runs import check_integers, check_numbers, option
from routing_agents.terminal import command_line, plain_console
from routing_agents.trained import choose_decoding, find_weights
from routing_agents.training.tuning import keep_freed_memory
from routing_gym.data.own import OwnInstance
from routing_gym.files import found, printable
from routing_gym.planning import Plan
from routing_gym.problem import AnyProblem
from routing_gym.problems.matrices import has_matrices
from routing_gym.solvers.runtime.executors import ExecutorName, executor_of

LEAST_SECONDS = 0.1  # smallest value of --improve
MODEL_OPTIONS = ("checkpoint", "decoding", "tours", "batch_size", "improve", "repair", "executor", "workers", "address")
LARGE = 400  # nodes; one core takes 5 s to decode `starts` for so many and 40 s for 1,000, and 0.2 s for a greedy tour
UNUSED = {
    "greedy": ("tours",),
    "beam": ("tours",),
    "heuristic": ("checkpoint", "tours", "batch_size"),
}  # options without effect


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
    decoding: Literal["greedy", "starts", "sampling", "beam", "heuristic"] | None = None
    """Decoding strategy. greedy: one greedy tour. starts: greedy tours from many first nodes; sampled tours where the
    first node matters. sampling: sampled tours. beam: simulation-guided beam search, better, but 7 to 40 times slower
    with 50 or 100 nodes, more with more. These three use all eight symmetries of the square. heuristic: for --improve,
    a classical first tour (greedy edges for TSP, else nearest neighbour), without weights. SPCTSP is always decoded
    greedily. Default: starts; with --improve, greedy above 400 nodes."""
    tours: int = 128
    """Number of tours per symmetry, for starts and sampling."""
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
    """Seconds of large-neighbourhood search per file after decoding. In the VRP family, this is the search of plans,
    which keeps all limits of a file; for other problems, a trained model solves subproblems of the tour. Only for files
    with one instance, and not for stochastic problems."""
    repair: Annotated[Path | None, tyro.conf.arg(metavar="RUN|FILE")] = None
    """Model that solves the subproblems of --improve (a run folder or a checkpoint file), except in the VRP family.
    Default: the published weights for them: TSPFE (fixed edges) for TSP, those of the file's own problem for others."""
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
        for name in UNUSED.get(self.decoding or "", ()):
            if (value := getattr(self, name)) != getattr(Args, name):  # its default
                given = f"{option(name)} {value}"
                raise ValueError(f"{given} has no effect with --decoding {self.decoding}; leave it out")
        if self.decoding == "heuristic" and self.improve is None:
            raise ValueError("--decoding heuristic is a start for --improve; evaluate.py runs classical solvers alone")
        if self.repair is not None and self.improve is None:
            raise ValueError("--repair solves parts of a tour for --improve; give --improve SECONDS, or leave it out")
        if self.workers is not None and self.executor in (None, "inline"):
            raise ValueError(f"--workers {self.workers} has no effect without --executor processes or ray; add one")

    def decoding_of(self, problem: AnyProblem) -> str:
        """Return the decoding strategy for a file."""
        if self.decoding is not None:
            return self.decoding
        return "greedy" if self.improve is not None and self.is_large(problem) else "starts"

    def is_large(self, problem: AnyProblem) -> bool:
        """Return whether starts takes long, and neither --decoding nor --tours asks for it."""
        unasked = self.decoding is None and self.tours == Args.tours
        return unasked and problem.num_nodes > LARGE and not problem.stochastic

    @property
    def all_numbers(self) -> dict[str, float]:
        """Numbers of the whole instance that are given, by name."""
        return {name: value for name in NUMBERS if (value := getattr(self, name)) is not None} | self.numbers


def main(args: Args) -> list[Solved] | list[Plan]:
    """Solve the files and print a table; or plan tables of stops, see `routing_agents.planning`.

    Raises:
        ValueError: A file could not be solved; see also `make_jobs`, `check_used` and `check_outputs`.
    """
    keep_freed_memory()
    matrix = args.durations or args.distances
    if not args.files and matrix:  # it describes the task alone
        check_plan_options(args, matrix, MODEL_OPTIONS)
        return [plan(matrix, args)]
    tables = [path for path in args.files if is_plan(path, args, MODEL_OPTIONS)]
    check_plan_options(args, next(iter(tables), None), MODEL_OPTIONS if tables else ())
    if not tables:
        return solve(args)
    if others := [str(path) for path in args.files if path not in tables]:
        raise ValueError(f"{', '.join(others)}: no table of stops, as {tables[0]} is; solve them apart")
    return [plan(path, args) for path in tables]


def plan(path: Path, args: Args) -> Plan:
    """Plan a table of stops, print the plan, and write it."""
    console = plain_console()
    with console.status(Text(printable(f"planning {path.name}"))) as status:
        return plan_file(
            path,
            args,
            args.all_numbers,
            show=lambda text: status.update(Text(printable(text))),
            finished=lambda made: console.print(str(made), soft_wrap=True),
        )


def solve(args: Args) -> list[Solved]:
    """Solve instances from files with trained models, and print a table.

    Raises:
        ValueError: See `main`.
    """
    jobs, refused = make_jobs(args)
    if not jobs:
        raise ValueError("; ".join(refused))
    if not refused:  # otherwise, the option may be for a file that cannot be read
        check_used(args.problem, args.all_numbers, [job.source for job in jobs])
    check_outputs(jobs, args.overwrite)
    make_out_folder(args.out)
    tell_large(jobs, args)
    settings = Settings(args.seed, args.batch_size, args.improve)
    results: dict[int, Solved | str] = {}
    with (
        suppress(KeyboardInterrupt),
        plain_console().status("solving") as status,
        closing(solve_jobs(jobs, settings, executor_of(args), lambda text: status.update(Text(text)))) as outcomes,
    ):
        for number, result in outcomes:
            results[number] = result
            if isinstance(result, Solved) and result.interrupted:
                break
    solved = []
    for number, job in enumerate(jobs):
        result = results.get(number, "stopped")
        if isinstance(result, Solved):
            solved.append(result)
        else:
            refused.append(f"{job.path}: {result}")
    show(jobs, solved, args.out)
    if refused:
        raise ValueError("not solved: " + "; ".join(refused))
    return solved


def tell_large(jobs: list[Job], args: Args) -> None:
    """Print which files are so large that decoding takes long, and what was chosen or may be."""
    for job in jobs:
        if not args.is_large(job.source.problem):
            continue
        told = "many tours are decoded, which takes long; --decoding greedy is faster, and Ctrl-C keeps the greedy tour"
        if args.improve is not None:
            told = "one greedy tour is decoded, so that the search begins early; --decoding heuristic may be better"
        size = f"{job.source.problem.num_nodes:,} nodes"
        plain_console().print(printable(f"{job.path}: {size}: {told}."), soft_wrap=True)


def make_jobs(args: Args) -> tuple[list[Job], list[str]]:
    """Read the files; return a job for each, and the reasons why others cannot be solved.

    Raises:
        ValueError: No file is given.
    """
    if not args.files:
        raise ValueError("name at least one .tsp, .vrp, .oplib, .csv or .npz file")
    jobs, refused, load_once = [], [], cache(load)
    for path in args.files:
        try:
            jobs.append(make_job(path, args, load_once))
        except (ValueError, OSError) as error:
            refused.append(str(error))
    return jobs, refused


def make_job(path: Path, args: Args, load_model: Callable[[Path], TrainedModel]) -> Job:
    """Read a file, and choose the method that solves it.

    Raises:
        ValueError: The file is invalid, or nothing solves it.
        OSError: The file cannot be opened.
    """
    named = None if args.checkpoint is None else load_model(args.checkpoint)
    source = read(path, args.problem, args.all_numbers, named)
    problem, matrices = source.problem, has_matrices(source.instance)
    model, decoding = None, GREEDY
    chosen = args.decoding_of(problem)
    if chosen != "heuristic":
        try:
            model = named or load_model(find_weights(problem.name, problem.num_nodes, matrices=matrices))
        except ValueError as error:
            hint = "; --decoding heuristic --improve SECONDS needs none" if PlanSearch.takes(problem) else ""
            raise ValueError(f"{error}{hint}") from None
        model.check(problem, f"{path} is a")
        decoding = choose_decoding(chosen, problem, args.tours)
    improver = None if args.improve is None else choose_improver(path, source, model, args.repair)
    return Job(path, source, Method(model, decoding, improver), args.out)


def show(jobs: list[Job], solved: list[Solved], out: Path) -> None:
    """Print a table of the results, and the columns of CSV files that are not used."""
    console = plain_console()
    if solved:
        kinds = {"prize" if one.problem.maximises else "cost" for one in solved}
        titles = (" or ".join(sorted(kinds)), "best known", "gap", "seconds")
        numbers = (Column(name, no_wrap=True) for name in titles)
        table = Table("instance", *numbers, "solved by", Column("tour", overflow="fold"))
        for one in solved:
            known = "-" if one.best_known is None else str(one.best_known)
            gap = "-" if one.gap is None else f"{one.gap:.2%}"
            cells = one.name, f"{one.cost:.10g}", known, gap, f"{one.seconds:.2f}", one.solved_by, str(one.written)
            table.add_row(*map(printable, cells))
        console.print(table)
    for job in jobs:
        if isinstance(job.source, OwnInstance) and job.source.unused:
            unused = ", ".join(map(found, job.source.unused))
            console.print(printable(f"{job.path}: columns that are not used: {unused}."), soft_wrap=True)
    if solved:
        console.print(printable(f"Pictures of the tours are in {out}."), soft_wrap=True)


if __name__ == "__main__":
    command_line(main, Args, __doc__, stopped="stopped; what had been solved before is written")
