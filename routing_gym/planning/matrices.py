"""Matrices of durations (minutes) and distances (km): arrays, CSV, .npy, and the JSON of routing services.

OSRM's `table` and openrouteservice's `matrix` return seconds and metres (openrouteservice returns km or miles on
request); VROOM takes seconds and metres. These are converted. Plain CSV, .npy and JSON lists hold minutes and km.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from routing_gym.arrays import FloatArray, to_numpy
from routing_gym.data.cells import EITHER, POINTS, BadCell, Decimals, decimals_of, is_missing, is_number, number
from routing_gym.data.csv_file import header_key, read_cells, with_names
from routing_gym.files import InvalidFile, found, printable, read_bytes
from routing_gym.planning.table import InvalidInput, Table, table_of

Kind = Literal["durations", "distances"]
MAX_BYTES = 2**28
SECONDS, METRES = 1 / 60, 1 / 1000  # minutes per second, km per metre
ORS_UNITS = {"m": METRES, "km": 1.0, "mi": 1.609344}


@dataclass(frozen=True, eq=False)
class Matrix:
    """Square matrix in minutes or km, with its source.

    Attributes:
        source: Name of the matrix's file or argument.
        values: float64 (A, A), finite and not negative, 0 on the diagonal.
        note: Note for the user: name of the service, and its unit.
    """

    source: str
    values: FloatArray
    note: str = ""


def read_matrices(durations: Any, distances: Any, names: tuple[str, ...]) -> dict[Kind, Matrix]:
    """Read the given matrices, for stops with these names in this order.

    If only one of them is given as a routing service's answer that holds both, both are read from it.

    Raises:
        InvalidInput: A matrix is not square, has another order than the stops, or holds an invalid value.
        InvalidFile: A file cannot be read.
        OSError: A file cannot be opened.
    """
    made: dict[Kind, Matrix] = {}
    given: dict[Kind, Any] = {"durations": durations, "distances": distances}
    for kind, value in given.items():
        if value is not None:
            found_there = tables_in(value, kind)
            if kind not in found_there:
                source = source_of(value, kind)
                raise InvalidInput(f"{source}: it holds no {kind}; ask the service for them (annotations={kind})")
            for other, (rows, factor, note) in found_there.items():
                if other == kind or given[other] is None:
                    made[other] = checked(source_of(value, kind), other, rows, factor, note, names)
    return made


def ids_of(value: Any) -> list[Any]:
    """Return the ids of the stops of a matrix that is given without them: its labels, or else the numbers of its rows.

    Raises:
        InvalidInput: There is no matrix, or its first row may hold labels or lengths.
    """
    if value is None:
        raise InvalidInput("stops: found none; give a table of stops, or a matrix of durations or distances")
    rows, _, _ = next(iter(tables_in(value, "durations").values()), ([], 1.0, ""))
    if isinstance(rows, Cells):
        rows = rows.rows
        if corner_of_labels(source_of(value, "matrix"), rows):
            return rows[0][1:]
    labels = labelled(rows)[0] if isinstance(rows, Table) else labels_of_frame(rows)
    # Labels of rows are as in the file; those of columns are lowercase, like the names of a table's columns.
    return labels[-1] if labels else list(range(len(rows_of(source_of(value, "matrix"), rows))))


def corner_of_labels(source: str, rows: list[list[str]]) -> bool:
    """Return whether the first cell of a CSV file is the empty corner between labels that are numbers.

    Raises:
        InvalidInput: It may also be part of an empty diagonal.
    """
    first, *others = [row[k].strip() if k < len(row) else "" for k, row in enumerate(rows)]
    if first:
        return False
    if not any(others) and rows[0][1:] == [row[0] for row in rows[1:]]:
        raise InvalidInput(f"{source}: the first row may hold labels or lengths; write 0 on the diagonal")
    return any(others)


def source_of(value: Any, kind: str) -> str:
    """Return the name of a matrix for messages."""
    return printable(Path(value).name) if isinstance(value, str | Path) else kind


def tables_in(value: Any, kind: Kind) -> dict[Kind, tuple[Any, float, str]]:
    """Return the rows, the factor to minutes or km, and a note, for each matrix in a file or an object.

    Raises:
        InvalidFile: A file cannot be read.
    """
    if isinstance(value, Mapping):
        return service_tables(value, kind)
    if not isinstance(value, str | Path):
        return {kind: (value, 1.0, "")}
    path = Path(value)
    if path.suffix.lower() == ".json":
        try:
            document = json.loads(read_bytes(path, MAX_BYTES).decode("utf-8-sig"))
        except InvalidFile:
            raise
        except (ValueError, RecursionError) as error:
            raise InvalidFile(path, None, f"no JSON: {error}") from None
        if isinstance(document, list):
            return {kind: (document, 1.0, "")}
        if isinstance(document, dict):
            return service_tables(document, kind)
        raise InvalidFile(path, None, f"found {type(document).__name__}; expected a matrix or a service's answer")
    if path.suffix.lower() == ".npy":
        read_bytes(path, MAX_BYTES)
        try:
            return {kind: (np.load(path, mmap_mode="r", allow_pickle=False), 1.0, "")}  # checks its size first
        except (ValueError, EOFError, OSError, OverflowError):
            raise InvalidFile(path, None, "no .npy file of numbers; write it with numpy.save") from None
    return {kind: (matrix_table(path), 1.0, "")}


def service_tables(document: Mapping[str, Any], kind: Kind) -> dict[Kind, tuple[Any, float, str]]:
    """Return the matrices in the JSON of OSRM, VROOM or openrouteservice."""
    if "code" in document and document["code"] != "Ok":
        raise InvalidInput(
            f"{kind}: the service answered {found(document.get('message', document['code']))}; ask again"
        )
    service, length = "OSRM", METRES
    if "matrices" in document or "matrix" in document:  # VROOM; the latter before 1.9
        profiles = document.get("matrices") or {"car": {"durations": document.get("matrix")}}
        if not isinstance(profiles, Mapping) or len(profiles) != 1:
            raise InvalidInput(f"{kind}: found matrices of {found(list(profiles))}; expected those of one profile")
        document, service = next(iter(profiles.values())), "VROOM"
    elif "metadata" in document:
        query = document["metadata"].get("query", {}) if isinstance(document["metadata"], Mapping) else {}
        units = query.get("units", "m") if isinstance(query, Mapping) else "m"
        if not isinstance(units, str) or units not in ORS_UNITS:
            raise InvalidInput(
                f"{kind}: found lengths in {found(units)}; expected {', '.join(ORS_UNITS)}: ask for these"
            )
        service, length = "openrouteservice", ORS_UNITS[units]
    tables: dict[Kind, tuple[Any, float, str]] = {}
    if isinstance(document, Mapping):
        if document.get("durations") is not None:
            tables["durations"] = (document["durations"], SECONDS, f"durations: {service}'s seconds, as minutes")
        if document.get("distances") is not None:
            tables["distances"] = (document["distances"], length, f"distances: {service}'s, as km")
    return tables


class Cells(NamedTuple):
    """Rows of a CSV file without labels, and the notation of its numbers."""

    rows: list[list[str]]
    decimals: Decimals


def matrix_table(path: Path) -> Table | Cells:
    """Read a matrix from a CSV file: numbers only, or with the stops' ids in the header and the first column.

    Raises:
        InvalidFile: The file is not a valid CSV file.
    """
    rows, comma = read_cells(path, MAX_BYTES)
    decimals = decimals_of if comma else lambda cells: POINTS
    cells = [row for _, row in rows]
    if any(map(holds_text, cells[0])):
        table = table_of(path, with_names(path, rows, comma))
        return replace(table, decimals=decimals([cell for _, row in rows[1:] for cell in row[1:]]))
    while all(len(row) > len(cells) and not row[-1] for row in cells):  # each line ends with a separator
        cells = [row[:-1] for row in cells]
    return Cells(cells, decimals([cell for row in cells for cell in row]))


def holds_text(cell: str) -> bool:
    """Return whether a cell holds a label, not a number in any format."""
    return any(letter.isalpha() for letter in cell) and not is_number(cell, EITHER)


def checked(source: str, kind: Kind, rows: Any, factor: float, note: str, names: tuple[str, ...]) -> Matrix:
    """Check a matrix and convert it to minutes or km.

    Raises:
        InvalidInput: The matrix is invalid; the message has the names of the two stops, the value and the expectation.
    """
    order, decimals = labels_of_frame(rows), POINTS
    if isinstance(rows, Table):
        decimals = rows.decimals
        order, rows = labelled(rows)
    elif isinstance(rows, Cells):
        rows, decimals = rows
    cells = rows_of(source, rows)
    size = len(names)
    text = bool(cells) and bool(cells[0]) and isinstance(cells[0][-1], str)
    if text and len(cells) == size + 1 and all(len(row) == size + 1 for row in cells):  # ids that are numbers
        order = [[str(label) for label in cells[0][1:]], [str(row[0]) for row in cells[1:]]]
        cells = [row[1:] for row in cells[1:]]
    if len(cells) != size or any(len(row) != size for row in cells):
        widths = sorted({len(row) for row in cells})
        shape = f"{len(cells)} rows of {' or '.join(map(str, widths)) or 'no'} numbers"
        told = f"{size} rows and columns, one for each stop in the order of the table, the depot first"
        raise InvalidInput(f"{source}: found {shape}; expected {told}")
    for place, labels in zip(("column", "row"), order, strict=False):
        check_order(source, place, labels, names)
    values = np.zeros((size, size))
    for i, row in enumerate(cells):
        for j, cell in enumerate(row):
            if i != j:  # some files store a large sentinel on the diagonal
                values[i, j] = entry(source, cell, i, j, names, decimals) * factor
    return Matrix(source, values, note)


def check_order(source: str, place: str, labels: Sequence[str], names: tuple[str, ...]) -> None:
    """Check that the labels of a matrix are the ids of the stops, in their order.

    Raises:
        InvalidInput: A label differs; the message names the first one.
    """
    for at, (label, name) in enumerate(zip(labels, names, strict=True)):
        if header_key(label) != header_key(name):
            raise InvalidInput(
                f"{source}, {place} {at}: found {found(label)}, and the stop in row {at} is {found(name)}; bring the "
                "matrix into the order of the stops"
            )


def labels_of_frame(rows: Any) -> list[list[str]]:
    """Return the text labels of a DataFrame's columns and rows; empty if there are none, or for other objects."""
    if not hasattr(rows, "columns") or isinstance(rows, Table):
        return []
    columns, index = list(rows.columns), list(getattr(rows, "index", []))
    default = [f"column_{at}" for at in range(len(columns))]  # default names of polars, which has no row labels
    if not all(isinstance(label, str) for label in columns) or (columns == default and not index):
        return []
    return [columns, index] if index and all(isinstance(label, str) for label in index) else [columns]


def entry(source: str, cell: Any, i: int, j: int, names: tuple[str, ...], decimals: Decimals) -> float:
    """Return one number of a matrix.

    Raises:
        InvalidInput: The value is not a number, or negative; the message names the two stops.
    """
    place = f"{source}, row {i}, column {j} (from {names[i]} to {names[j]})"
    if is_missing(cell):
        raise InvalidInput(
            printable(
                f"{place}: found no value (null): no road connects the two stops; leave one of them out, move it onto "
                "a road, or enter a value that is a little larger than that of any route"
            )
        )
    try:
        value = number(cell, decimals)
    except BadCell as error:
        raise InvalidInput(printable(f"{place}: found {found(cell)}; {error}")) from None
    if value < 0:
        raise InvalidInput(printable(f"{place}: found {value:g}; expected a number that is not negative"))
    return value


def labelled(table: Table) -> tuple[list[list[str]], list[list[Any]]]:
    """Return the labels of the columns and, if present, of the rows; and the rows of a matrix with a header."""
    headers = list(table.columns)
    columns = list(table.columns.values())
    labels: list[list[str]] = []
    if len(columns) == table.num_rows + 1:  # the first holds the labels
        labels = [list(map(str, columns[0]))]
        headers, columns = headers[1:], columns[1:]
    return [headers, *labels], [list(row) for row in zip(*columns, strict=True)]


def rows_of(source: str, value: Any) -> list[list[Any]]:
    """Return the rows of any kind of matrix as lists.

    Raises:
        InvalidInput: The value is not a matrix.
    """
    if hasattr(value, "to_numpy"):  # DataFrames
        value = value.to_numpy()
    elif hasattr(value, "dtype"):
        value = to_numpy(value)
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple) and all(isinstance(row, list | tuple | np.ndarray) for row in value):
        return [list(row) for row in value]
    raise InvalidInput(f"{source}: found {type(value).__name__}; expected a matrix: a row and a column for each stop")
