"""Tables from a CSV file, a DataFrame, arrays or dictionaries: unchanged cells with their positions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from routing_gym.arrays import to_numpy
from routing_gym.data.cells import POINTS, Decimals, show
from routing_gym.data.csv_file import CsvFile, header_key, read_csv_file
from routing_gym.files import found, printable


class InvalidInput(ValueError):
    """Invalid input for a planning task; the message has source, row, column, value and remedy."""


@dataclass(frozen=True, eq=False)
class Table:
    """Table with named columns of cells.

    Attributes:
        source: Name of the file, or of the argument.
        columns: Cells by header, in lower case, with underscores for spaces.
        lines: Line of each row in its file; empty for other tables, whose rows are counted from 0.
        decimals: Notation of the numbers in a file.
    """

    source: str
    columns: dict[str, list[Any]]
    lines: tuple[int, ...] = ()
    decimals: Decimals = POINTS

    @property
    def num_rows(self) -> int:
        return len(next(iter(self.columns.values()), []))

    def place(self, row: int) -> str:
        """Return the position of a row in its source: "stops.csv, line 7" or "stops, row 5"."""
        return f"{self.source}, line {self.lines[row]}" if self.lines else f"{self.source}, row {row}"

    def error(self, row: int, column: str, reason: str, value: Any = None) -> InvalidInput:
        """Return an error about a cell; `reason` is the expected value and the remedy."""
        cell = self.columns[column][row] if column in self.columns and value is None else value
        return InvalidInput(printable(f"{self.place(row)}, column {column}: found {show(cell)}; {reason}"))


def read_table(value: Any, name: str, expected: str = "an array (rows, 2) of x and y") -> Table:
    """Read a table.

    Args:
        value: Path of a CSV file; a DataFrame of pandas or polars, or a PyArrow table; a mapping from names to columns;
            a sequence of mappings, one a row; or an array (A, 2) of x and y.
        name: Name of the argument, for messages.
        expected: Other kind of value that the argument may have, for messages.

    Raises:
        InvalidInput: The value is none of these, or its columns have different lengths, or the table is empty.
        InvalidFile: The file is not a valid CSV file.
        OSError: The file cannot be opened.
    """
    if isinstance(value, str | Path):
        return table_of(Path(value), read_csv_file(Path(value)))
    columns = columns_of_any(value, name, expected)
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


def table_of(path: Path, file: CsvFile) -> Table:
    """Return the table of a CSV file."""
    return Table(printable(path.name), {**file.columns}, file.lines, file.decimals)


def columns_of_any(value: Any, name: str, expected: str) -> list[tuple[str, list[Any]]]:
    """Return the headers and cells of a table that is not a file; no library is imported for it.

    Raises:
        InvalidInput: The value is not a table.
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
            f"{name}: found {shape}; expected the path of a CSV file, a DataFrame, a dictionary of columns, or "
            f"{expected}"
        )
    return [("x", points[:, 0].tolist()), ("y", points[:, 1].tolist())]


def as_cells(cells: Any, place: str) -> list[Any]:
    """Return a column as a list.

    Raises:
        InvalidInput: The column is a single value.
    """
    if hasattr(cells, "to_list"):
        return list(cells.to_list())
    if hasattr(cells, "tolist"):
        cells = cells.tolist()
    if isinstance(cells, str) or not isinstance(cells, Sequence):
        raise InvalidInput(f"{place}: found {show(cells)}; expected one value for each row")
    return list(cells)
