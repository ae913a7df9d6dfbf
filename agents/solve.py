"""Solve instances from files with a trained model.

    python agents/solve.py berlin52.tsp A-n32-k5.vrp eil51-gen2-50.oplib      # with the published weights
    python agents/solve.py --checkpoint runs/NAME berlin52.tsp
    python agents/solve.py --checkpoint runs/NAME C101.txt RC208.vrp          # Solomon's VRPTW, and VRPLIB's
    python agents/solve.py customers.csv --capacity 30

CSV files have a line for each node under the names of the columns: x and y; demand (CVRP, with --capacity); prize
(OP, with --max-length); prize and penalty (PCTSP, with --required-prize); others are not read. The first line is the
depot, but for the TSP. Columns are separated by commas, semicolons or tabs. Files written by routing_gym.data.save_npz
hold any number of instances of any problem.

Prints the cost in the file's own unit, the best known one where it lies beside the file, and the gap; writes each tour
(TSPLIB .tour, CVRPLIB and OPLib .sol; else .csv or .npz) and a picture. A file that cannot be read is reported at the
end, and the others are solved; so is one whose tour breaks a rule that only the file has: VRPTW's number of vehicles,
VRPB's ban on routes of backhauls only.
"""

from __future__ import annotations

import csv
import io
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from routing_agents import TrainedModel, load
from routing_agents.runs import check_at_least
from routing_agents.trained import choose_decoding, find_weights
from routing_agents.tuning import keep_freed_memory
from routing_gym import data, render
from routing_gym.arrays import select
from routing_gym.data.table import OwnInstance, from_columns, read_csv
from routing_gym.files import write_atomically
from routing_gym.problem import AnyProblem, InfeasibleTour


@dataclass(frozen=True)
class Args:
    """Arguments of the solver."""

    files: tyro.conf.Positional[tuple[Path, ...]]
    """TSPLIB .tsp, CVRPLIB .vrp, Solomon's .txt, OPLib .oplib, .csv or .npz files."""
    checkpoint: Annotated[Path | None, tyro.conf.arg(metavar="RUN|FILE")] = None
    """The folder of a run, or a checkpoint in it; by default the published weights for the file's problem and the
    nearest size."""
    decoding: Literal["greedy", "starts", "sampling"] = "starts"
    """One greedy tour; greedy tours from many first nodes (sampled tours where the first node matters);
    or sampled tours. The last two under all eight symmetries of the square; the best tour counts."""
    tours: int = 128
    """Tours per symmetry, but for greedy."""
    capacity: int | None = None
    """Of a vehicle, for CSV files with demands."""
    max_length: float | None = None
    """Of the tour, for CSV files with prizes."""
    required_prize: float | None = None
    """The least prize to collect, for CSV files with prizes and penalties."""
    batch_size: int | None = None
    """Tours decoded at a time; by default 1,024, or as many as free memory holds. Sampled tours depend on it."""
    seed: int = 1
    """Of the sampled tours."""
    out: Path = Path("solved")
    """Folder for tours and pictures."""
    overwrite: bool = False
    """Replace tours and pictures that are there."""

    def __post_init__(self) -> None:
        check_at_least(1, self, "tours", *(["batch_size"] if self.batch_size is not None else []))
        check_at_least(0, self, "seed")


@dataclass(frozen=True, eq=False)
class Instances:
    """What an .npz file holds."""

    name: str
    problem: AnyProblem
    instance: Any


@dataclass(frozen=True)
class Solved:
    """What came of one file."""

    name: str
    problem: AnyProblem
    cost: float
    best_known: float | None
    seconds: float
    weights: Path
    written: Path

    @property
    def gap(self) -> float | None:
        """Relative distance to the best known cost; positive where it is worse."""
        if not self.best_known:  # unknown, or zero
            return None
        worse_by = self.cost - self.best_known
        return (-worse_by if self.problem.maximises else worse_by) / self.best_known


@dataclass(frozen=True, eq=False)
class Job:
    """A file that has been read, and who solves it."""

    path: Path
    source: data.FileInstance | OwnInstance | Instances
    model: TrainedModel
    tour: Path
    picture: Path


def read(path: Path, args: Args) -> data.FileInstance | OwnInstance | Instances:
    """Read one file.

    Raises:
        ValueError: It cannot be read.
        OSError: It cannot be opened.
    """
    if path.suffix.lower() == ".npz":
        problem, instance = data.load_npz(path)
        return Instances(path.stem, problem, instance)
    if path.suffix.lower() != ".csv":
        return data.read_instance(path)
    columns = read_csv(path)
    problem = (
        "CVRP" if "demand" in columns else "PCTSP" if "penalty" in columns else "OP" if "prize" in columns else "TSP"
    )
    settings = {
        "CVRP": {"capacity": args.capacity},
        "OP": {"max_length": args.max_length},
        "PCTSP": {"required_prize": args.required_prize},
    }
    try:
        return from_columns(problem, columns, **settings.get(problem, {}), name=path.stem)
    except ValueError as error:
        raise data.InvalidFile(path, None, f"{error} (a number beside the columns is an option: --capacity)") from None


def make_jobs(args: Args) -> Iterator[Job | str]:
    """Read the files one by one; yield jobs, and for files that cannot be solved the reason.

    Raises:
        ValueError: No file; or the results of two files, or a result and a best known tour, would have one name.
        FileExistsError: A result is there already.
    """
    if not args.files:
        raise ValueError("name at least one .tsp, .vrp, .oplib, .csv or .npz file")
    models: dict[Path, TrainedModel] = {}
    for path in args.files:
        try:
            source = read(path, args)
            weights = args.checkpoint or find_weights(source.problem.name, source.problem.num_nodes)
            model = models.setdefault(weights, models.get(weights) or load(weights))
            if source.problem.name != model.problem.name:
                raise ValueError(
                    f"{path} is a {source.problem.name}, but {weights} was trained on {model.problem.name}"
                )
        except (ValueError, OSError) as error:
            yield str(error)
        else:
            endings = {OwnInstance: ".csv", Instances: ".npz"}
            ending = endings.get(type(source), ".sol" if source.problem.has_depot else ".tour")
            yield Job(path, source, model, args.out / (path.stem + ending), args.out / (path.stem + ".png"))


def check_outputs(jobs: list[Job], args: Args) -> None:
    """Check where the results go, before any work is done.

    Raises:
        ValueError: The results of two files, or a result and a best known tour, would have one name.
        FileExistsError: A result is there already.
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


def solve(job: Job, args: Args) -> Solved:
    """Solve one file; write its tour and its picture."""
    source, best_known = job.source, None
    started = time.perf_counter()
    decoding = choose_decoding(args.decoding, source.problem, args.tours)
    found = job.model.solve_batch(source.problem, source.instance, decoding, args.seed, args.batch_size)
    seconds = time.perf_counter() - started
    actions = found.actions[0].numpy()
    if isinstance(source, data.FileInstance):
        cost: float = data.write_tour(job.tour, source, actions)
        best_known = source.best_known
    elif isinstance(source, OwnInstance):
        cost = source.cost(actions)
        write_atomically(job.tour, tour_csv(source, actions).encode())
    else:
        costs = source.problem.objective(source.instance, found.actions.numpy())
        cost = float(np.mean(costs)) * (-1 if source.problem.maximises else 1)
        buffer = io.BytesIO()
        np.savez(buffer, actions=found.actions.numpy(), cost=costs)
        write_atomically(job.tour, buffer.getvalue())
    first = select(source.instance, slice(0, 1))
    render.save(job.picture, source.problem, first, actions, title=f"{source.name}: {cost:g}")
    return Solved(source.name, source.problem, cost, best_known, seconds, job.model.path, job.tour)


def tour_csv(own: OwnInstance, actions: np.ndarray) -> str:
    """Return the nodes in the order of the visits: their row in the file, from 0, and their columns."""
    depot = [0] if own.problem.has_depot else []
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["row", *own.columns])
    for node in [*depot, *map(int, actions)]:
        writer.writerow([node, *(f"{values[node]:.15g}" for values in own.columns.values())])
    return text.getvalue()


def main(args: Args) -> list[Solved]:
    """Solve the files and print a table.

    Raises:
        ValueError: No file could be solved, or as `make_jobs` and `check_outputs`.
    """
    keep_freed_memory()
    found = list(make_jobs(args))
    jobs, refused = [one for one in found if isinstance(one, Job)], [one for one in found if isinstance(one, str)]
    if not jobs:
        raise ValueError("; ".join(refused))
    check_outputs(jobs, args)
    args.out.mkdir(parents=True, exist_ok=True)
    console = Console()
    table = Table("instance", "cost", "best known", "gap", "seconds", "weights", Column("tour", overflow="fold"))
    solved = []
    with console.status("solving") as status:
        for number, job in enumerate(jobs, start=1):
            status.update(escape(f"solving {job.source.name} ({number} of {len(jobs)})"))
            try:
                one = solve(job, args)
            except InfeasibleTour as error:  # files may ask more of routes than the rules: VEHICLES, say
                refused.append(f"{job.path}: the tour found is none of the file's: {error}")
                continue
            solved.append(one)
            gap = "-" if one.gap is None else f"{one.gap:.2%}"
            known = "-" if one.best_known is None else str(one.best_known)
            cells = (one.name, f"{one.cost:.10g}", known, gap, f"{one.seconds:.2f}", one.weights.stem, str(one.written))
            table.add_row(*map(escape, cells))
    console.print(table)
    console.print(f"Pictures of the tours are in {args.out}.", soft_wrap=True, markup=False)
    if refused:
        raise ValueError("not solved: " + "; ".join(refused))
    return solved


if __name__ == "__main__":
    try:
        main(tyro.cli(Args, description=__doc__))
    except (ValueError, OSError, ImportError, MemoryError) as error:
        sys.exit(f"solve: {error}")
    except KeyboardInterrupt:
        sys.exit("solve: stopped; the tours and pictures of the files before are written")
