"""A planner's table from a CSV file, a DataFrame, arrays or dictionaries: cells as they are, and where they stand."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from routing_gym.arrays import to_numpy
from routing_gym.files import InvalidFile, found, printable, read_bytes, read_lines
from routing_gym.planning.cells import NUMBER, show

MAX_BYTES = 2**26
SEPARATORS = ";\t,"


class InvalidInput(ValueError):
    """A planner's input cannot be used; the message has source, row, column, value and remedy."""


@dataclass(frozen=True, eq=False)
class Table:
    """Columns of cells.

    Attributes:
        source: Name of the file, or of the argument.
        columns: Cells by header, in lower case, with underscores for spaces.
        lines: Line of each row in its file; empty for other tables, whose rows are counted from 0.
        decimal_comma: Whether 1,5 is one and a half.
    """

    source: str
    columns: dict[str, list[Any]]
    lines: tuple[int, ...] = ()
    decimal_comma: bool = False

    @property
    def num_rows(self) -> int:
        return len(next(iter(self.columns.values()), []))

    def place(self, row: int) -> str:
        """Return where a row stands: "stops.csv, line 7" or "stops, row 5"."""
        return f"{self.source}, line {self.lines[row]}" if self.lines else f"{self.source}, row {row}"

    def error(self, row: int, column: str, reason: str, value: Any = None) -> InvalidInput:
        """Return an error about a cell; `reason` says what was expected and what to do."""
        cell = self.columns[column][row] if column in self.columns and value is None else value
        return InvalidInput(printable(f"{self.place(row)}, column {column}: found {show(cell)}; {reason}"))


def read_table(value: Any, name: str) -> Table:
    """Read a table.

    Args:
        value: Path of a CSV file; a DataFrame of pandas or polars, or a PyArrow table; a mapping from names to columns;
            a sequence of mappings, one a row; or an array (A, 2) of x and y.
        name: Of the argument, for messages.

    Raises:
        InvalidInput: It is none of these, or its columns have different lengths.
        InvalidFile: The file is no CSV file.
        OSError: The file cannot be opened.
    """
    if isinstance(value, str | Path):
        return read_csv_table(Path(value))
    columns = columns_of_any(value, name)
    made: dict[str, list[Any]] = {}
    for header, cells in columns:
        key = header_key(header)
        if key in made:
            raise InvalidInput(f"{name}: found the column {found(key)} twice; keep one of them")
        made[key] = cells
    lengths = {key: len(cells) for key, cells in made.items()}
    if len(set(lengths.values())) > 1:
        raise InvalidInput(f"{name}: the columns have different lengths: {lengths}")
    if not made or not next(iter(lengths.values())):
        raise InvalidInput(f"{name}: the table has no rows; give one for each stop, the depot first")
    return Table(name, made)


def columns_of_any(value: Any, name: str) -> list[tuple[str, list[Any]]]:
    """Return headers and cells of a table that is no file; no library is imported for it.

    Raises:
        InvalidInput: It is no table.
    """
    if hasattr(value, "collect_schema") and hasattr(value, "collect"):  # a LazyFrame of polars
        value = value.collect()
    if getattr(getattr(value, "index", None), "name", None) is not None and hasattr(value, "reset_index"):
        value = value.reset_index()  # pandas, after set_index("id")
    if isinstance(value, Mapping):
        return [(str(key), as_cells(cells, f"{name}, column {key}")) for key, cells in value.items()]
    if hasattr(value, "to_pydict"):  # PyArrow
        return [(str(key), cells) for key, cells in value.to_pydict().items()]
    if hasattr(value, "columns") and hasattr(value, "__getitem__"):  # pandas and polars
        headers = list(value.columns)
        if len(set(map(str, headers))) < len(headers):
            raise InvalidInput(f"{name}: found columns of the same name: {', '.join(map(str, headers))}")
        return [(str(header), value[header].to_list()) for header in headers]
    if isinstance(value, np.ndarray) and value.dtype.names:
        return [(key, value[key].tolist()) for key in value.dtype.names]
    if isinstance(value, Sequence) and value and all(isinstance(row, Mapping) for row in value):
        headers = list(dict.fromkeys(str(key) for row in value for key in row))
        return [(header, [row.get(header) for row in value]) for header in headers]
    try:
        points = np.asarray(to_numpy(value) if hasattr(value, "dtype") else value)
    except (TypeError, ValueError, RuntimeError):
        points = np.empty(0)
    if points.ndim != 2 or points.shape[1] != 2:
        shape = f"an array of shape {points.shape}" if points.ndim and points.size else type(value).__name__
        raise InvalidInput(
            f"{name}: found {shape}; expected the path of a CSV file, a DataFrame, a dictionary of columns, or an "
            "array (rows, 2) of x and y"
        )
    return [("x", points[:, 0].tolist()), ("y", points[:, 1].tolist())]


def as_cells(cells: Any, place: str) -> list[Any]:
    """Return a column as a list.

    Raises:
        InvalidInput: It is a single value.
    """
    if hasattr(cells, "to_list"):
        return list(cells.to_list())
    if hasattr(cells, "tolist"):
        cells = cells.tolist()
    if isinstance(cells, str) or not isinstance(cells, Sequence):
        raise InvalidInput(f"{place}: found {show(cells)}; expected one value for each row")
    return list(cells)


def header_key(header: str) -> str:
    """Return a header in the form in which columns are compared."""
    return "_".join(header.replace("\ufeff", "").strip().lower().split())


def read_csv_table(path: Path) -> Table:
    """Read a CSV file: UTF-8 (with or without BOM) or Windows-1252; columns by commas, semicolons or tabs.

    Excel's line `sep=;` and empty lines are skipped. After semicolons and tabs, decimal commas are read.

    Raises:
        InvalidFile: With the line.
        OSError: It cannot be opened.
    """
    refuse_other_formats(path)
    lines = read_lines(path, MAX_BYTES)
    first = next((at for at, text in enumerate(lines) if text.strip(" ,;\t")), None)
    if first is None:
        raise InvalidFile(path, None, "the file has no rows; give a header, and a row for each stop")
    separator = next((mark for mark in SEPARATORS if mark in lines[first]), ",")
    if lines[first].strip().lower().startswith("sep=") and len(lines[first].strip()) == 5:  # Excel's
        separator, first = lines[first].strip()[-1], first + 1
    reader = csv.reader([f"{line}\n" for line in lines[first:]], delimiter=separator, strict=True)
    rows: list[tuple[int, list[str]]] = []
    try:
        rows += ((first + reader.line_num, [cell.strip() for cell in cells]) for cells in reader if any(cells))
    except csv.Error as error:
        raise InvalidFile(path, first + reader.line_num, f"{error}; check the quotation marks") from None
    rows = [(line, cells) for line, cells in rows if any(cells)]
    if not rows:
        raise InvalidFile(path, None, "the file has no rows; give a header, and a row for each stop")
    headers, rows = headers_of(path, rows)
    for line, cells in rows:
        while len(cells) > len(headers) and not cells[-1]:  # Excel pads rows
            cells.pop()
        if len(cells) != len(headers):
            if len(headers) == 1:
                told = "found one cell, expected the names of columns; delete the lines above these"
                raise InvalidFile(path, first + 1, told)
            remedy = "put text with the separator into quotation marks, and write numbers without thousands separators"
            raise InvalidFile(path, line, f"found {len(cells)} cells, expected {len(headers)}; {remedy}")
    columns = {key: [cells[place] for _, cells in rows] for place, key in enumerate(headers)}
    return Table(printable(path.name), columns, tuple(line for line, _ in rows), separator != ",")


def refuse_other_formats(path: Path) -> None:
    """Refuse spreadsheets and texts that spreadsheets export in other encodings, with what to do instead.

    Raises:
        InvalidFile: It is one.
        OSError: It cannot be opened.
    """
    start = read_bytes(path, MAX_BYTES)[:4]
    if start == b"PK\x03\x04" or start == b"\xd0\xcf\x11\xe0":
        raise InvalidFile(path, None, "found a spreadsheet, expected a CSV file; save the sheet as CSV (UTF-8)")
    if start[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise InvalidFile(path, None, "found text in UTF-16, expected UTF-8; save the sheet as CSV (UTF-8)")


def headers_of(path: Path, rows: list[tuple[int, list[str]]]) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """Return the names of the columns, and the rows below them.

    Raises:
        InvalidFile: There are no names, or some twice; or no rows below.
    """
    line, cells = rows[0]
    headers = [header_key(cell) for cell in cells]
    if all(NUMBER.fullmatch(cell) for cell in cells):
        if len(cells) == 2:
            return ["x", "y"], rows
        raise InvalidFile(path, line, f"found {len(cells)} columns without names; start with a line such as id,lat,lon")
    if sum(bool(NUMBER.fullmatch(cell)) for cell in cells) > 1:
        told = f"found the number {found(next(filter(NUMBER.fullmatch, cells)))} among the names of columns"
        raise InvalidFile(path, line, f"{told}; start with a line such as id,lat,lon")
    while headers and not headers[-1]:
        headers.pop()
    twice = sorted({key for key in headers if key and headers.count(key) > 1})
    if twice:
        raise InvalidFile(path, line, f"found the column {', '.join(map(found, twice))} twice; keep one of them")
    blank = "" in headers
    if blank:  # pandas leaves its index without a name
        headers = [key or f"column_{at + 1}" for at, key in enumerate(headers)]
    if len(rows) == 1:
        raise InvalidFile(path, line, "the file has a header and no rows; give one for each stop, the depot first")
    return headers, rows[1:]
