"""Vehicles of a plan: number, capacity, range and working hours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any

import numpy as np

from routing_gym.data.cells import BadCell, flag, identity, is_missing, moment, number
from routing_gym.data.csv_file import header_key
from routing_gym.data.own import columns_of
from routing_gym.planning.table import InvalidInput, Table, read_table
from routing_gym.problems import LISTED

ALIASES = {
    **dict.fromkeys(("count", "vehicles", "number", "num_vehicles", "num_available"), "count"),
    **dict.fromkeys(("max_length", "max_distance", "max_km", "range_km"), "max_length"),
    **dict.fromkeys(("earliest", "ready_time", "start", "shift_start", "tw_early"), "earliest"),
    **dict.fromkeys(("latest", "due_time", "end", "shift_end", "tw_late"), "latest"),
    **dict.fromkeys(("max_duration", "max_minutes", "shift_duration"), "max_duration"),
    **dict.fromkeys(("speed", "speed_kmh", "kmh"), "speed"),
    **dict.fromkeys(("open", "open_routes"), "open"),
    **dict.fromkeys(("depot", "depot_id", "start_depot"), "depot"),
    **dict.fromkeys(("fixed_cost", "cost_per_vehicle"), "fixed_cost"),
    "cost_per_unit": "cost_per_unit",
    **dict.fromkeys(("name", "vehicle"), "name"),
    **dict.fromkeys(("capacity", "id"), None),
}
LIMITS = ("capacity", "max_length")  # vehicles may differ in these columns, and in the next ones
OWN = ("earliest", "latest", "max_duration", "depot", "fixed_cost", "cost_per_unit")


@dataclass(frozen=True)
class Fleet:
    """Identical vehicles, or several types of vehicles.

    Attributes:
        count: Maximum number of vehicles; None for no limit.
        names: Names of the vehicles, as far as given.
        numbers: Values that problems declare per instance, by name: capacity, max_length, num_salesmen and so on; with
            several types, the largest.
        earliest: Start of the shift, in minutes or as a date; None for the opening of the depot.
        latest: Latest return of the vehicles.
        max_duration: Maximum minutes between departure and return; None for no limit.
        speed: Speed in km/h.
        open: Whether vehicles stay at their last stop; None if the table does not say.
        depot: Id of the row where the vehicles start and end; None for the first row.
        fixed_cost: Cost of a vehicle in use, in the unit that is minimised.
        cost_per_unit: Cost of a km or minute, whichever is minimised.
        name: Name of the row of a type, if stops name the vehicles that may serve them.
        place: Source of the numbers, for messages.
        types: If vehicles differ, the vehicles of each type.
    """

    count: int | None = None
    names: tuple[str, ...] = ()
    numbers: Mapping[str, float] = field(default_factory=dict)
    earliest: Any = None
    latest: Any = None
    max_duration: float | None = None
    speed: float | None = None
    open: bool | None = None
    depot: str | None = None
    fixed_cost: float | None = None
    cost_per_unit: float | None = None
    name: str | None = None
    place: str = "vehicles"
    types: tuple[Fleet, ...] = ()

    @property
    def differs(self) -> bool:
        """Return whether vehicles differ, cost something, or have a limit of time: only plain routes take these."""
        return len(self.types) > 1 or bool(self.fixed_cost or self.cost_per_unit or self.max_duration)

    @property
    def has_hours(self) -> bool:
        """Return whether vehicles have working hours."""
        return self.earliest is not None or self.latest is not None


def instance_columns() -> frozenset[str]:
    """Return the names of all columns that problems declare for a whole instance."""
    return frozenset(column.name for name in LISTED for column in columns_of(name) if column.per == "instance")


def read_fleet(vehicles: Any, numbers: Mapping[str, Any], by_name: bool = False) -> Fleet:
    """Read the vehicles.

    Args:
        vehicles: Number of vehicles; or a mapping such as {"count": 5, "capacity": 60}; or a table with a row for each
            vehicle or kind of vehicle: count, capacity, max_length (km), earliest, latest, max_duration (minutes),
            depot (an id), fixed_cost, cost_per_unit, speed (km/h), open, id, name.
        numbers: Values that problems declare per instance, given in addition to the vehicles.
        by_name: Whether each row is a type of its own, because stops name the vehicles that may serve them.

    Raises:
        InvalidInput: A column is unknown, a value is invalid, or vehicles differ in speed or open.
    """
    known = {*ALIASES, *instance_columns()}
    alike = False  # whether one mapping describes all vehicles
    if vehicles is None or (isinstance(vehicles, int | np.integer) and not isinstance(vehicles, bool)):
        columns = {} if vehicles is None else {"count": [int(vehicles)]}
        table = Table("vehicles", columns)
    elif isinstance(vehicles, Mapping) and not any(
        hasattr(value, "__len__") and not isinstance(value, str) for value in vehicles.values()
    ):
        alike = not {"id", "name", "vehicle"} & {*map(header_key, map(str, vehicles))}
        columns = {header_key(str(key)): [value] for key, value in vehicles.items() if value is not None}
        table = Table("vehicles", columns)
    else:
        table = read_table(vehicles, "vehicles", "a whole number of vehicles")
    if unknown := [key for key in table.columns if key not in known]:
        near = get_close_matches(unknown[0], known, 1)
        meant = f"; did you mean {near[0]}? Vehicles" if near else "; vehicles"
        told = f"{table.source}: no column {', '.join(unknown)} is known"
        raise InvalidInput(f"{told}{meant} have {', '.join(sorted(known))}")
    if twice := [key for key in numbers if key in table.columns]:
        raise InvalidInput(f"{table.source}: {', '.join(twice)} is given twice; leave one of them out")
    for key in numbers:
        if key not in instance_columns():
            known_numbers = ", ".join(sorted(instance_columns()))
            raise InvalidInput(f"unknown argument {key}; numbers of problems are {known_numbers}")
    own = {key: positive(Table("solve", {key: [value]}), key, 0) for key, value in numbers.items()}
    return fleet_of(table, own, by_name, alike)


def fleet_of(table: Table, numbers: Mapping[str, float], by_name: bool, alike: bool) -> Fleet:
    """Return the fleet of a table; see `read_fleet`. If one row describes all (`alike`), rows are not counted."""
    made: dict[str, Any] = {}
    differing: dict[str, list[Any]] = {}
    for header in table.columns:
        key = ALIASES.get(header) or header
        if key in ("id", "name"):
            continue
        if key in made:
            raise InvalidInput(f"{table.source}: found two columns for {key}; keep one of them")
        values = [value_of(table, header, key, row) for row in range(table.num_rows)]
        if key == "count":
            made[key] = values
            continue
        check_differences(table, header, key, values)
        if key == "depot" or any(value != values[0] for value in values):
            differing[key] = values
        made[key] = values[0] if values else None
    counts = made.pop("count", None)
    counted = counts or [1] * table.num_rows
    count = None if counts is None and (alike or not counted) else sum(counted)
    own = {key: made.pop(key) for key in list(made) if key in instance_columns() and made[key] is not None}
    own.update(numbers)
    if "num_salesmen" in own and count is None:
        count = int(own["num_salesmen"])
    labels = labels_of(table, counted)
    names = tuple(name for row in range(len(counted)) for name in names_of(row, labels, counted)) if labels else ()
    given = {key: value for key, value in made.items() if value is not None}
    fleet = Fleet(count, names, own, place=table.source, **given)
    if by_name:
        if labels is None:
            raise InvalidInput(f"{table.source}: the stops name vehicles; expected a column name here, too")
        differing["name"] = labels
    if not differing:
        return fleet
    if count is None:
        raise InvalidInput(f"{table.source}: expected the number of vehicles of each type or depot; add count")
    return with_types(fleet, differing, counted, labels)


def check_differences(table: Table, header: str, key: str, values: list[Any]) -> None:
    """Check that vehicles differ only in the columns in which they may differ.

    Raises:
        InvalidInput: Vehicles differ in another column; the message has row, column and value.
    """
    for row, value in enumerate(values):
        if key in LIMITS and (value is None) != (values[0] is None):
            told = "expected a number in every row or in none; write a large one for no limit"
            raise table.error(row, header, told)
        if key not in (*LIMITS, *OWN) and value != values[0]:
            told = f"the first vehicle has {values[0]}; vehicles may differ in {', '.join((*LIMITS, *OWN))} only"
            raise table.error(row, header, told)


def labels_of(table: Table, counts: Sequence[int]) -> list[str] | None:
    """Return the name of each row; None if rows have no names.

    Raises:
        InvalidInput: Two rows, or their vehicles, have the same name.
    """
    header = next((key for key in ("name", "vehicle", "id") if key in table.columns), None)
    if header is None:
        return None
    labels = [identity(cell) for cell in table.columns[header]]
    known: set[str] = set()
    for row, label in enumerate(labels):
        if label in labels[:row]:
            raise table.error(row, header, "another row has the same name; give each its own")
        names = names_of(row, labels, counts)
        if shared := sorted(known.intersection(names)):
            told = f"an earlier row has a vehicle with the name {shared[0]!r}, too: vehicles of a row are numbered"
            raise table.error(row, header, f"{told} from 1; rename one of the rows")
        known.update(names)
    return labels


def with_types(fleet: Fleet, differing: Mapping[str, list[Any]], counts: list[int], labels: list[str] | None) -> Fleet:
    """Return a fleet of several types of vehicles; equal rows are one type.

    Args:
        fleet: Values that all vehicles have in common.
        differing: Values of each row, by column in which rows differ.
        counts: Number of vehicles of each row.
        labels: Name of each row; None to number the vehicles.
    """
    rows: dict[tuple[Any, ...], list[int]] = {}
    for row in range(len(counts)):
        rows.setdefault(tuple(values[row] for values in differing.values()), []).append(row)
    types = []
    for values, same in rows.items():
        own = dict(zip(differing, values, strict=True))
        types.append(
            replace(
                fleet,
                count=sum(counts[row] for row in same),
                names=tuple(name for row in same for name in names_of(row, labels, counts)),
                numbers={**fleet.numbers, **{key: own[key] for key in LIMITS if key in own}},
                **{key: own[key] for key in (*OWN, "name") if key in own},
            )
        )
    largest = {key: max(values) for key, values in differing.items() if key in LIMITS}
    names_of_all = tuple(name for kind in types for name in kind.names)
    return replace(fleet, names=names_of_all, numbers={**fleet.numbers, **largest}, types=tuple(types))


def names_of(row: int, labels: list[str] | None, counts: Sequence[int]) -> list[str]:
    """Return the names of a row's vehicles, with numbers if the row has several vehicles or no name."""
    numbers = range(1, counts[row] + 1)
    if labels is None:
        return [str(sum(counts[:row]) + number) for number in numbers]
    return [labels[row] if counts[row] == 1 else f"{labels[row]} {number}" for number in numbers]


def depots_of(fleet: Fleet, ids: Sequence[str]) -> list[int]:
    """Return the row where the vehicles of each type start.

    Raises:
        InvalidInput: No row has the id, or no vehicle starts in the first row.
    """
    rows: dict[str | None, int] = {None: 0, **{key: row for row, key in enumerate(ids)}}
    depots = [kind.depot for kind in fleet.types or (fleet,)]
    for depot in depots:
        if depot not in rows:
            raise InvalidInput(f"{fleet.place}, column depot: found {depot!r}; expected the id of a row of the stops")
    found_rows = [rows[depot] for depot in depots]
    if 0 not in found_rows:
        told = f"no vehicle starts in the first row of the stops, {ids[0]}; put a depot first"
        raise InvalidInput(f"{fleet.place}, column depot: {told}")
    return found_rows


def value_of(table: Table, header: str, key: str, row: int) -> Any:
    """Return one value of the vehicles' table; None if the cell is empty.

    Raises:
        InvalidInput: The value is invalid; the message has row, column, value and remedy.
    """
    cell = table.columns[header][row]
    if is_missing(cell):
        if key == "count":
            raise table.error(row, header, "expected the number of vehicles")
        return None
    try:
        if key in ("earliest", "latest"):
            return moment(cell, table.decimals)
        if key == "depot":
            return identity(cell)
        if key == "open":
            return flag(cell, table.decimals) == 1
    except BadCell as error:
        raise table.error(row, header, str(error)) from None
    value = positive(table, header, row, zero=key == "fixed_cost")
    if key == "count":
        if value % 1:
            raise table.error(row, header, "expected a whole number of vehicles")
        return int(value)
    return value


def positive(table: Table, header: str, row: int, zero: bool = False) -> float:
    """Return a positive number, or 0 if `zero` is set.

    Raises:
        InvalidInput: The value is invalid; the message has row, column and value.
    """
    try:
        value = number(table.columns[header][row], table.decimals)
    except BadCell as error:
        raise table.error(row, header, str(error)) from None
    if not (value > 0 or (zero and value == 0)):
        raise table.error(row, header, f"expected a positive number{' or 0' * zero}")
    return value
