"""Conversion of a table to numbers: meaning of the columns, and values of the cells."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np

from routing_gym.arrays import FloatArray
from routing_gym.data.cells import BadCell, flag, identity, is_missing, moment, number, one_line
from routing_gym.data.csv_file import LATITUDE, LONGITUDE
from routing_gym.planning.fleet import Fleet
from routing_gym.planning.recognise import known_columns
from routing_gym.planning.table import InvalidInput, Table
from routing_gym.planning.times import from_midnight
from routing_gym.traits import Column

PLACES = {
    **dict.fromkeys(LATITUDE, "lat"),
    **dict.fromkeys(LONGITUDE, "lon"),
    **dict.fromkeys(("vehicles", "served_by", "allowed_vehicles"), "vehicles"),
    **dict.fromkeys(("pickup_at", "picked_up_at"), "pickup_at"),
    **{key: key for key in ("x", "y", "id", "name", "pickup")},
}


@dataclass(frozen=True, eq=False)
class Parsed:
    """Cells of a table as numbers.

    Attributes:
        table: The table as it was read.
        headers: Header of each known column, by the name that problems declare.
        ids: Ids of the stops.
        names: Names of the stops.
        vehicles: Names of the vehicles that may serve each stop; empty for all.
        values: Numbers by column; nan for empty cells.
        origin: Midnight that dates count from.
        clock: Format of times.
    """

    table: Table
    headers: dict[str, str]
    ids: tuple[str, ...]
    names: tuple[str, ...]
    vehicles: tuple[frozenset[str], ...]
    values: dict[str, FloatArray]
    origin: datetime | None
    clock: Any


def headers_of(table: Table) -> dict[str, str]:
    """Return the header of each known column, by the name that problems declare.

    Raises:
        InvalidInput: Two columns have the same meaning.
    """
    known = {key: column.name for key, column in known_columns().items()} | PLACES
    headers: dict[str, str] = {}
    for header in table.columns:
        name = known.get(header)
        if name is None:
            continue
        if name in headers:
            raise InvalidInput(
                f"{table.source}: the columns {headers[name]} and {header} mean the same; leave one of them out"
            )
        headers[name] = header
    return headers


def parse(table: Table, fleet: Fleet) -> Parsed:
    """Read the cells of a table.

    Raises:
        InvalidInput: A cell is invalid; the message has row, column, value and remedy.
    """
    headers = headers_of(table)
    ids = read_ids(table, headers)
    names = ids
    if "name" in headers:
        cells = table.columns[headers["name"]]
        names = tuple(key if is_missing(cell) else one_line(cell) for key, cell in zip(ids, cells, strict=True))
    known = {column.name: column for column in known_columns().values()}
    values, moments = {}, {}
    for name, header in headers.items():
        if name in ("id", "name", "vehicles"):
            continue
        column = known.get("pickup" if name == "pickup_at" else name)
        if name == "pickup" and has_amounts(headers, fleet):
            column = None  # amounts or flags; in PDP, the column of that name holds rows
        if column is not None and column.kind == "node":
            hint = "; for amounts, give the vehicles a capacity" if name == "pickup" else ""
            values[name] = read_nodes(table, header, column, ids, "id" in headers, hint)
        elif column is not None and column.kind == "time":
            moments[name] = [read_cell(table, header, row, moment) for row in range(table.num_rows)]
        else:
            read = (
                flag
                if (column is not None and column.kind == "flag") or (name == "pickup" and is_flags(table, header))
                else number
            )
            values[name] = np.array([read_cell(table, header, row, read) for row in range(table.num_rows)], dtype=float)
    if "pickup_at" in values and not values["pickup_at"].any():
        del values["pickup_at"], headers["pickup_at"]
    origin, clock, times = from_midnight(table, headers, moments)
    vehicles = (names_in(cell) for cell in table.columns[headers["vehicles"]]) if "vehicles" in headers else ()
    return Parsed(table, headers, ids, names, tuple(vehicles), values | times, origin, clock)


def names_in(cell: Any) -> frozenset[str]:
    """Return the names in a cell: a list, or text separated by semicolons, commas or bars."""
    if isinstance(cell, str):
        cell = re.split("[;,|]", cell)
    elif is_missing(cell) or not isinstance(cell, Iterable):
        cell = [] if is_missing(cell) else [cell]
    return frozenset(name for one in cell if (name := identity(one)))


def has_amounts(headers: Mapping[str, str], fleet: Fleet) -> bool:
    """Return whether the column pickup holds amounts or flags, not the ids of stops."""
    return "demand" in headers or "capacity" in fleet.numbers or "pickup_at" in headers


def is_flags(table: Table, header: str) -> bool:
    """Return whether a column holds words such as yes and no."""
    return any(isinstance(cell, str) and cell.strip()[:1].isalpha() for cell in table.columns[header])


def read_ids(table: Table, headers: Mapping[str, str]) -> tuple[str, ...]:
    """Return the ids of the stops, by default the numbers of their rows.

    Raises:
        InvalidInput: An id is missing, or not unique.
    """
    if "id" not in headers:
        return tuple(map(str, range(table.num_rows)))
    header = headers["id"]
    first: dict[str, int] = {}
    for row, cell in enumerate(table.columns[header]):
        if is_missing(cell):
            raise table.error(row, header, "expected an id; give every stop its own, or leave the column out", "")
        key = identity(cell)
        if key in first:
            raise table.error(row, header, f"the stop of {table.place(first[key])} has the same id; give each its own")
        first[key] = row
    return tuple(first)


def read_cell(table: Table, header: str, row: int, read: Any) -> Any:
    """Return the value of a cell; nan if it is empty.

    Raises:
        InvalidInput: The cell is invalid.
    """
    cell = table.columns[header][row]
    if is_missing(cell):
        return float("nan")
    try:
        return read(cell, table.decimals)
    except BadCell as error:
        raise table.error(row, header, str(error)) from None


def read_nodes(table: Table, header: str, column: Column, ids: tuple[str, ...], has_ids: bool, hint: str) -> FloatArray:
    """Return the rows that a column refers to: by id if stops have ids, otherwise by the number of the row.

    Raises:
        InvalidInput: The stop does not exist.
    """
    place = {key: row for row, key in enumerate(ids)}
    rows = np.zeros(table.num_rows)
    for row, cell in enumerate(table.columns[header]):
        none = row if column.at_depot else 0  # a fixed edge from a city to itself means no fixed edge
        key = "" if is_missing(cell) else identity(cell)
        if key in place or key.removesuffix(".0") in place:
            rows[row] = place[key if key in place else key.removesuffix(".0")]
        elif key in ("", "0") or key == "0.0":
            rows[row] = none
        else:
            what = "the id of a stop" if has_ids else f"the number of a row, 0 to {table.num_rows - 1}"
            raise table.error(row, header, f"expected {what}, or an empty cell for none{hint}")
    return rows
