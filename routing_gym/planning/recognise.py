"""Recognition of the problem that a table is an instance of: the one whose columns it has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache

from routing_gym.data.own import smallest
from routing_gym.planning.table import InvalidInput
from routing_gym.problem import AnyProblem
from routing_gym.problems import PROBLEMS, unknown_problem
from routing_gym.traits import Column

FILLED = {"demand": 0.0, "backhaul": 0.0, "ready_time": 0.0, "due_time": float("inf"), "service_time": 0.0}
MOST_TOLD = 3  # maximum number of problems in an error message
OPTIONAL = "penalty"  # with this column, stops of any plain problem may be left out


@dataclass(frozen=True)
class Given:
    """Content of a table and its vehicles.

    Attributes:
        columns: Names of columns that problems declare.
        numbers: Names of the values per instance.
        located: Whether the stops have coordinates.
        matrix: Whether there is a matrix.
        open: Whether vehicles stay at their last stop.
        mixed: Whether stops have pickups, which may alternate with deliveries.
        count: Number of vehicles.
        routes: Whether vehicles differ, or have costs, working hours or a limit of time.
        headers: Headers of columns in the table, by the names that problems declare.
    """

    columns: frozenset[str]
    numbers: frozenset[str]
    located: bool
    matrix: bool
    open: bool = False
    mixed: bool = False
    count: int | None = None
    routes: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)

    def joined(self, names: Iterable[str]) -> str:
        """Join names as the table has them, for messages."""
        return ", ".join(sorted({self.headers.get(name, name) for name in names}))


@cache
def kinds() -> tuple[tuple[str, AnyProblem], ...]:
    """Return the problems that a table of stops may belong to, each with its minimum size.

    Several depots, different vehicles and optional stops are additional columns of any of them.
    """
    all_kinds = ((name, smallest(name)) for name in PROBLEMS)
    return tuple((name, rules) for name, rules in all_kinds if rules.plain_vehicles)


def known_columns() -> dict[str, Column]:
    """Return the table columns that some problem declares, by their names and alternative names."""
    columns = [column for _, rules in kinds() for column in rules.columns if column.tabular and column.kind != "coords"]
    return {key: column for column in columns for key in (column.name, *column.also)}


def lacking(rules: AnyProblem, given: Given) -> list[str]:
    """Return the names of values that a problem needs, that are not given and that have no default."""
    missing = []
    for column in rules.columns:
        if not column.required or column.name in given.columns or column.name in given.numbers:
            continue
        if column.kind == "coords":
            missing += [] if given.located or given.matrix else ["lat and lon, or x and y"]
        elif column.kind == "matrix":
            missing += [] if given.matrix else [column.name]
        elif column.name not in FILLED and not (column.name == "capacity" and "demand" not in given.columns):
            missing.append(column.name)
    return missing


def surplus(rules: AnyProblem, given: Given) -> set[str]:
    """Return the names of given values that a problem does not take."""
    return set(given.columns | given.numbers) - {column.name for column in rules.columns}


def distance_to(rules: AnyProblem, given: Given) -> float:
    """Return how many required columns of a problem are not given; a matrix instead of coordinates counts half."""
    required = [column for column in rules.columns if column.required and column.kind not in ("coords", "matrix")]
    absent = sum(column.name not in given.columns | given.numbers for column in required)
    embedded = not given.located and any(column.kind == "coords" for column in rules.columns)
    return absent + embedded / 2


def recognise_task(given: Given) -> str:
    """Return the problem that takes all given values and lacks the fewest.

    Raises:
        InvalidInput: No problem takes all given values, or those that do need more; the message names them.
    """
    tried = [given]
    if OPTIONAL in given.columns:
        tried.append(replace(given, columns=given.columns - {OPTIONAL}))
    told: dict[frozenset[str], str] = {}
    for attempt in tried:
        fitting = []
        for name, rules in kinds():
            if surplus(rules, attempt):
                continue
            if (rules.open_routes, rules.mixed_backhauls) != (attempt.open, attempt.mixed):
                continue
            if attempt is not given and not rules.plain_routes:
                continue
            if missing := lacking(rules, attempt):
                told.setdefault(frozenset(missing), name)
            else:
                fitting.append((distance_to(rules, attempt), name))
        if fitting:
            return several_vehicles(min(fitting, key=lambda one: one[0])[1], given)
    columns = given.joined(given.columns | given.numbers) or "no columns"
    if told:
        least = {missing: name for missing, name in told.items() if not any(other < missing for other in told)}
        needs = [f"{name} needs {', '.join(sorted(missing))}" for missing, name in least.items()]
        remedy = "add what is missing to the table, to the vehicles or to the options"
        if least.keys() == {frozenset({"capacity"})}:
            remedy = f'for example, write vehicles={{"count": {given.count or 3}, "capacity": 60}}, or --capacity 60'
        raise InvalidInput(f"the stops and vehicles have {columns}, but {'; '.join(needs[:MOST_TOLD])}; {remedy}")
    nearest, rules = min(kinds(), key=lambda kind: (len(surplus(kind[1], given)), len(lacking(kind[1], given))))
    raise InvalidInput(
        f"no problem has all of {columns}; {nearest}, for example, has no {given.joined(surplus(rules, given))}"
    )


def several_vehicles(name: str, given: Given) -> str:
    """Return the problem for several vehicles, or vehicles with limits, if the table fits one with a single tour."""
    tour = PROBLEMS[name].plain_routes and not PROBLEMS[name].has_depot
    if not tour or (given.count in (None, 1) and not given.routes) or "num_salesmen" in given.numbers:
        return name
    if given.routes or OPTIONAL in given.columns:  # routes of vehicles that carry nothing
        return recognise_task(replace(given, columns=given.columns | {"demand"}, numbers=given.numbers | {"capacity"}))
    return recognise_task(replace(given, numbers=given.numbers | {"num_salesmen"}))


def check_problem_name(problem: str, given: Given) -> None:
    """Check that the problem named by the user fits the given values.

    Raises:
        InvalidInput: The problem does not exist, or a value is missing.
    """
    if problem not in PROBLEMS:
        raise InvalidInput(unknown_problem(problem))
    if problem not in dict(kinds()):
        raise InvalidInput(
            f"problem {problem} is not accepted for plans; leave it out, and describe depots and vehicles that differ "
            "by columns of the vehicles, and penalties by a column of the stops"
        )
    if missing := lacking(smallest(problem), given):
        raise InvalidInput(f"{problem} needs {', '.join(missing)}; give them, or name another problem")
