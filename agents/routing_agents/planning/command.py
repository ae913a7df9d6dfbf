"""`routing-gym solve` for tables of stops: options, checks and output files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from routing_agents.arguments import make_out_folder
from routing_agents.planning.planner import solve
from routing_agents.runs import changed, option
from routing_gym.data.cells import BadCell, moment
from routing_gym.planning import Plan
from routing_gym.planning.parsing import headers_of
from routing_gym.planning.table import read_table

OUTPUTS = {"map": "to_html", "geojson": "to_geojson", "json": "to_json", "gantt": "gantt"}


@dataclass(frozen=True, kw_only=True)
class PlanArgs:
    """Options for tables of stops."""

    vehicles: Annotated[str | None, tyro.conf.arg(metavar="NUMBER|FILE")] = None
    """Number of vehicles, or a CSV file of vehicles or types: name, count, capacity, max_length (km), earliest, latest,
    max_duration (minutes), depot (id of a stop), fixed_cost, cost_per_unit, speed (km/h), open."""
    durations: Path | None = None
    """Matrix of minutes between the stops of a CSV file, or without one: .csv, .npy, or the .json of OSRM, VROOM,
    openrouteservice."""
    distances: Path | None = None
    """Matrix of km between the stops, in the same formats."""
    solver: str = "auto"
    """Solver for tables of stops: auto (the better plan of a policy with search and the strongest classical solver),
    trained, search, pyvrp, ortools, hygese, or another classical solver."""
    seconds: float = 10.0
    """Seconds for planning a table of stops, without preparation."""
    speed: float | None = None
    """Speed in km/h, for durations without a matrix. Default: 30 for latitudes and longitudes, 60 for x and y."""
    minimise: Literal["minutes", "km"] | None = None
    """Minimise minutes of driving, or km. Default: minutes with --durations, else km."""
    start: Annotated[Path | None, tyro.conf.arg(metavar="JSON")] = None
    """Plan to continue from: a file written by --json."""
    fixed: Annotated[str | None, tyro.conf.arg(metavar="TIME|IDS")] = None
    """Part of the --start plan to keep: all that is driven by a time such as 11:30, or ids of stops, with commas
    between them ("7," for one id that is a number)."""
    map: Annotated[Path | None, tyro.conf.arg(metavar="HTML")] = None
    """Write an interactive map."""
    geojson: Path | None = None
    """Write routes and stops as GeoJSON; needs lat and lon."""
    json: Path | None = None
    """Write the plan as JSON."""
    gantt: Annotated[Path | None, tyro.conf.arg(metavar="SVG")] = None
    """Write a chart of windows, waiting and service."""


def options_given(args: PlanArgs) -> list[str]:
    """Return the names of the options for tables of stops that differ from their defaults."""
    known = {field.name for field in fields(PlanArgs)}
    return [name for name in changed(args) if name in known]


def is_plan(path: Path, args: Any, model_options: Iterable[str]) -> bool:
    """Return whether a file is a table of stops.

    It is a CSV file with a column or an option that only such tables have. Without --problem and options of models, it
    is also one with columns that have another meaning in the instances of problems, or none.

    Raises:
        ValueError: A column `pickup` may hold amounts or row numbers.
    """
    if path.suffix.lower() != ".csv":
        return False
    if options_given(args):
        return True
    try:
        headers = headers_of(read_table(path, path.name))
    except (ValueError, OSError):  # reported when the file is read again
        return False
    other_names = set(headers.values()) - set(headers)
    if other_names or {"lat", "lon", "pickup_at", "vehicles"} & headers.keys():
        return True
    if args.problem is not None or not {*model_options}.isdisjoint(changed(args)):
        return False
    optional = "penalty" in headers and "prize" not in headers
    found = optional or bool({"id", "name"} & headers.keys())
    amounts = "demand" in headers or args.capacity is not None
    if "pickup" in headers and (amounts or found):
        problem = "PDVRP" if amounts else "PDP"
        raise ValueError(
            f"{path}: pickup may hold amounts or row numbers; for amounts, add --seconds 10; for the row numbers of "
            f"{problem}, add --problem {problem}"
        )
    return found


def check_plan_options(args: Any, table: Path | None, unused: tuple[str, ...]) -> None:
    """Check that no option is without effect.

    Raises:
        ValueError: An option has no effect, or is for a single table; the message names it.
    """
    if table is None:
        if given := options_given(args):
            raise ValueError(f"{option(given[0])} is for CSV files of stops; none of the files is one: leave it out")
        return
    if len(args.files) > 1 and (given := options_given(args)):
        raise ValueError(f"{option(given[0])} is for one table of stops, got {len(args.files)} files; solve them apart")
    if ignored := [name for name in changed(args) if name in unused]:
        remedy = "give --seconds and --solver" if ignored[0] == "improve" else "leave it out"
        raise ValueError(f"{option(ignored[0])} has no effect on a table of stops; {remedy}")


def outputs(path: Path, args: Any) -> dict[str, Path]:
    """Return the files to write, by format.

    Raises:
        ValueError: Two output files, or an output file and the input, are the same.
        FileExistsError: An output file exists already.
        FileNotFoundError: A folder is missing.
        IsADirectoryError: An output file is a folder.
    """
    targets = {"csv": args.out / f"{path.stem}.csv"}
    targets |= {name: getattr(args, name) for name in OUTPUTS if getattr(args, name) is not None}
    taken = {path.resolve(): "the input"}
    for name, target in targets.items():
        this = "the plan's table" if name == "csv" else option(name)
        if target.resolve() in taken:
            both = f"{taken[target.resolve()]} and {this}"
            raise ValueError(f"{both} are the same file, {target}; choose another name or --out")
        taken[target.resolve()] = this
        if name == "gantt" and target.suffix.lower() != ".svg":
            raise ValueError(f"--gantt {target}: the chart is written as SVG; end the name with .svg")
        if target.is_dir():
            raise IsADirectoryError(f"{this}: {target} is a folder; give the name of a file")
        if target.is_file() and not args.overwrite:
            raise FileExistsError(f"{target} exists; choose another name or --out, or give --overwrite")
        if name != "csv" and not target.parent.is_dir():
            raise FileNotFoundError(f"{target}: there is no folder {target.parent}; make it first")
    return targets


def plan_file(
    path: Path, args: Any, numbers: dict[str, Any], show: Callable[[str], None], finished: Callable[[Plan], None]
) -> Plan:
    """Plan one table of stops and write the plan.

    Args:
        path: The table, or without one the matrix.
        args: Arguments of `solve.py`.
        numbers: Numbers of the whole instance.
        show: Function that gets messages about the progress.
        finished: Function that gets the plan before it is written.

    Raises:
        ValueError: The table or an option is wrong.
        OSError: A file cannot be opened or written.
    """
    targets, stops = outputs(path, args), path if args.files else None
    if {"map", "geojson"} & targets.keys():
        headers = headers_of(read_table(stops, path.name)).keys() if stops else set()
        geographic = {"lat", "lon"} <= headers
        if "geojson" in targets and not geographic:
            raise ValueError(f"--geojson: {path} has no columns lat and lon; add them, or give --json or --map instead")
        if not (geographic or {"x", "y"} <= headers):
            raise ValueError(f"--map: {path} has no columns lat and lon, or x and y, to draw; leave it out")
    vehicles = vehicles_of(args.vehicles)
    with made_folder(args.out):
        plan = solve(
            stops,
            vehicles=vehicles,
            durations=args.durations,
            distances=args.distances,
            problem=args.problem,
            solver=args.solver,
            seconds=args.seconds,
            start=args.start,
            fixed=fixed_of(args.fixed),
            seed=args.seed,
            speed=args.speed,
            minimise=args.minimise,
            progress=show,
            **numbers,
        )
    finished(plan)
    plan.to_csv(targets.pop("csv"))
    for name, target in targets.items():
        getattr(plan, OUTPUTS[name])(target)
    return plan


@contextmanager
def made_folder(folder: Path) -> Iterator[None]:
    """Context manager: makes the folder of --out; if an error is raised, it removes a new folder again.

    Raises:
        OSError: The folder cannot be made, or no file can be written to it.
    """
    existed = folder.exists()
    make_out_folder(folder)
    try:
        yield
    except BaseException:
        if not existed:
            with suppress(OSError):  # not empty
                folder.rmdir()
        raise


def vehicles_of(text: str | None) -> Any:
    """Convert the text of --vehicles to a number, or to the path of a table.

    Raises:
        ValueError: It is neither of them.
    """
    if text is None:
        return None
    if text.strip().isdecimal() and int(text):
        return int(text)
    if not Path(text).exists():
        raise ValueError(f"--vehicles {text}: expected a number of at least 1, or an existing CSV file of vehicles")
    return Path(text)


def fixed_of(text: str | None) -> Any:
    """Convert the text of --fixed to a list of ids, unless it is a time."""
    if text is None:
        return None
    try:
        moment(text.strip())
    except BadCell:
        return [key.strip() for key in text.split(",") if key.strip()]
    return text
