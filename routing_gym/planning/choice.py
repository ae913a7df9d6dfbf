"""Choice of the problem that a table of stops is an instance of, and the settings that follow from it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property

from routing_gym.data.own import columns_of, smallest
from routing_gym.files import found
from routing_gym.planning.fleet import Fleet
from routing_gym.planning.matrices import Kind, Matrix
from routing_gym.planning.parsing import PLACES, Parsed, has_amounts
from routing_gym.planning.recognise import OPTIONAL, Given, check_problem_name, known_columns, recognise_task
from routing_gym.planning.table import InvalidInput
from routing_gym.problem import AnyProblem
from routing_gym.problems import PROBLEMS
from routing_gym.traits import Column

MOST_TOLD = 10  # columns that a message names
SIMILAR = 0.8  # least ratio of `difflib`, which demands and demand have, but due and due_time do not


@dataclass(frozen=True)
class Choice:
    """Problem chosen for a table.

    Attributes:
        rules: The problem; its size is irrelevant.
        numbers: Values per instance that the problem takes, by name.
        located: Whether the stops have coordinates.
        mixed: Whether pickups and deliveries may alternate.
        unused: Given columns and numbers that the problem does not have, by the names that problems declare.
        notes: Messages for the user.
    """

    rules: AnyProblem
    numbers: Mapping[str, float]
    located: bool
    mixed: bool
    unused: frozenset[str]
    notes: tuple[str, ...]

    @cached_property
    def columns(self) -> dict[str, Column]:
        """The columns that the problem declares, by name."""
        return {column.name: column for column in self.rules.columns}


def choose(parsed: Parsed, fleet: Fleet, matrices: Mapping[Kind, Matrix], problem: str | None) -> Choice:
    """Return the problem that the table is an instance of, and the settings that follow from it.

    Raises:
        InvalidInput: No problem fits the table, or the table does not fit the problem that was asked for.
    """
    amounts = "pickup" in parsed.values and has_amounts(parsed.headers, fleet)
    given = given_of(parsed, fleet, matrices, problem, amounts)
    known = {*parsed.headers.values()}
    carried = [header for header in parsed.table.columns if header not in known]
    hint = misspelt(carried, parsed.headers.keys())
    try:
        name = problem or recognise_task(given)
        unused = frozenset() if problem is None else unused_by(problem, given, parsed, fleet)
    except InvalidInput as error:
        raise InvalidInput(f"{error}{hint}") from None
    if amounts and "backhaul" in unused:
        unused = unused - {"backhaul"} | {"pickup"}
    rules = smallest(name)
    names = {column.name for column in rules.columns}
    check_fleet(rules, names, fleet)
    numbers = {key: value for key, value in fleet.numbers.items() if key in names}
    if "num_salesmen" in names and fleet.count is not None:
        numbers["num_salesmen"] = float(fleet.count)
    notes: list[str] = []
    if unused:
        notes.append(f"{name} has no {', '.join(sorted(parsed.headers.get(key, key) for key in unused))}: not used")
    if "capacity" in fleet.numbers and not {"demand", "pickup"} & parsed.values.keys():
        notes.append("capacity: no effect, since the stops have neither demand nor pickup")
    if carried:
        notes.append(f"columns that are not used: {listed(carried)}{hint}")
    notes += [matrix.note for matrix in matrices.values() if matrix.note]
    mixed = rules.mixed_backhauls or "pickup_at" in parsed.values
    return Choice(rules, numbers, given.located, mixed, unused, tuple(notes))


def given_of(
    parsed: Parsed, fleet: Fleet, matrices: Mapping[Kind, Matrix], problem: str | None, amounts: bool
) -> Given:
    """Return the columns and numbers that decide about the problem; `amounts`: whether the column pickup holds amounts.

    Raises:
        InvalidInput: There are neither coordinates nor matrices.
    """
    values = parsed.values.keys()
    located = {"lat", "lon"} <= values or {"x", "y"} <= values
    if not located and not matrices:
        raise InvalidInput(
            f"{parsed.table.source}: found the columns {listed(list(parsed.table.columns))}; name those of the "
            "coordinates lat and lon, or x and y, or give a matrix of durations or distances"
        )
    columns = values - PLACES.keys() | ({"backhaul", "demand"} if amounts else {"pickup"} & values)
    numbers = frozenset(fleet.numbers)
    if "pickup_at" in values:
        columns = columns - {"backhaul"} | {"pickup"}
        if problem is None:  # several routes, also without amounts
            columns, numbers = columns | {"demand"}, numbers | {"capacity"}
    routes = fleet.differs or fleet.has_hours
    headers = parsed.headers | ({"backhaul": parsed.headers["pickup"]} if amounts else {})
    mixed = amounts and "pickup_at" not in values
    is_open = bool(fleet.open)
    return Given(frozenset(columns), numbers, located, bool(matrices), is_open, mixed, fleet.count, routes, headers)


def unused_by(problem: str, given: Given, parsed: Parsed, fleet: Fleet) -> frozenset[str]:
    """Return the given columns and numbers that the problem named by the user does not have.

    Raises:
        InvalidInput: The problem does not exist, lacks a value, or has no pickups at other stops.
    """
    count = {"num_salesmen"} if fleet.count is not None else set()
    check_problem_name(problem, Given(given.columns, given.numbers | count, given.located, given.matrix))
    names = {column.name for column in columns_of(problem)}
    if "pickup_at" in parsed.values and "pickup" not in names:
        header = parsed.headers["pickup_at"]
        told = f"{problem} has no pickups at other stops; leave the column {header} out, or the problem"
        raise InvalidInput(f"{parsed.table.source}: {told}")
    return (given.columns | given.numbers) - names - ({OPTIONAL} if PROBLEMS[problem].plain_routes else set())


def check_fleet(rules: AnyProblem, names: Collection[str], fleet: Fleet) -> None:
    """Check that a problem supports the given vehicles; `names` are the columns that it declares.

    Raises:
        InvalidInput: The problem does not support them.
    """
    if fleet.open not in (None, rules.open_routes):
        told = "stay at their last stop" if rules.open_routes else "return to the depot"
        raise InvalidInput(
            f"{fleet.place}, column open: found {fleet.open}, and vehicles of {rules.name} {told}; leave out the "
            "problem or the column"
        )
    plain = rules.plain_routes and rules.has_depot
    if (fleet.differs and not plain) or (fleet.has_hours and not rules.plain_routes):
        count = ", or give count instead of num_salesmen or MTSP" if "num_salesmen" in names else ""
        raise InvalidInput(
            f"{fleet.place}: vehicles of {rules.name} must be alike, without hours, costs and max_duration; plan each "
            f"type on its own{count}"
        )
    if fleet.count not in (None, 1) and "num_salesmen" not in names and not rules.plain_routes:
        raise InvalidInput(f"{fleet.place}: {rules.name} takes no number of vehicles, got {fleet.count}; leave it out")


def misspelt(carried: Sequence[str], given: Collection[str]) -> str:
    """Return a question about the columns that are not used and nearly have the name of one that is not given."""
    meanings = {key: column.name for key, column in known_columns().items()} | PLACES
    absent = [key for key, name in meanings.items() if name not in given]
    pairs = ((header, get_close_matches(header, absent, 1, SIMILAR)) for header in carried)
    near = [f"{listed([header])}: did you mean {key}?" for header, keys in pairs for key in keys]
    return "".join(f"; {one}" for one in near[:MOST_TOLD])


def listed(names: Sequence[str]) -> str:
    """Join the names of columns, at most ten of them."""
    more = f" and {len(names) - MOST_TOLD} more" if len(names) > MOST_TOLD else ""
    return ", ".join(found(name)[1:-1] for name in names[:MOST_TOLD]) + more
