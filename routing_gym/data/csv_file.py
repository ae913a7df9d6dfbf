"""CSV files as tables: the cells of each column as text, with the line of each row."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from routing_gym.data.cells import EITHER, POINTS, Decimals, decimals_of, is_number
from routing_gym.files import InvalidFile, found, lines_of, read_bytes

MAX_BYTES = 2**26
SEPARATORS = ";\t,"
QUOTED = re.compile(r'"[^"]*"?')
LATITUDE, LONGITUDE = ("lat", "latitude"), ("lon", "lng", "long", "longitude")  # names of these columns
Row: TypeAlias = tuple[int, list[str]]  # line, and cells


@dataclass(frozen=True)
class CsvFile:
    """Table with the cells of a CSV file.

    Attributes:
        columns: Cells by header, in lower case, with underscores for spaces.
        header_line: Line of the headers; if there are none, line of the first row.
        lines: Line of each row.
        decimals: Notation of its numbers.
    """

    columns: dict[str, list[str]]
    header_line: int
    lines: tuple[int, ...]
    decimals: Decimals


def header_key(header: str) -> str:
    """Return the normalised form of a header, used to compare columns."""
    return "_".join(header.replace("\ufeff", "").strip().lower().split())


def read_csv_file(path: Path) -> CsvFile:
    """Read a table with named columns; without names, two columns are x and y. See `read_cells`.

    Raises:
        InvalidFile: The file is invalid; the message has the line.
        OSError: The file cannot be opened.
    """
    return with_names(path, *read_cells(path, MAX_BYTES))


def read_cells(path: Path, max_bytes: int) -> tuple[list[Row], bool]:
    """Read the cells of a CSV file: UTF-8 (with or without BOM) or Windows-1252, with commas, semicolons or tabs.

    The line `sep=;` of Excel and empty rows are skipped.

    Returns:
        At least one row, and whether numbers may have decimal commas: with semicolons and tabs.

    Raises:
        InvalidFile: The file is invalid; the message has the line.
        OSError: The file cannot be opened.
    """
    data = read_bytes(path, max_bytes)
    lines = lines_of(path, data)
    first = next((at for at, text in enumerate(lines) if text.strip(" ,;\t")), 0)
    unquoted = QUOTED.sub("", lines[first])
    separator = next((mark for mark in SEPARATORS if mark in unquoted), ",")
    if lines[first].strip().lower().startswith("sep=") and len(lines[first].strip()) == 5:  # written by Excel
        separator, first = lines[first].strip()[-1], first + 1
    reader = csv.reader([f"{line}\n" for line in lines[first:]], delimiter=separator, strict=True)
    rows: list[Row] = []
    try:
        rows += ((first + reader.line_num, [cell.strip() for cell in cells]) for cells in reader if any(cells))
    except csv.Error as error:
        raise InvalidFile(path, first + reader.line_num, f"{error}; check the quotation marks") from None
    rows = [(line, cells) for line, cells in rows if any(cells)]
    if not rows:
        raise InvalidFile(path, None, "the file has no rows; give a line of names, and one for each stop")
    return rows, separator != ","


def with_names(path: Path, rows: list[Row], may_have_commas: bool) -> CsvFile:
    """Return the columns of a file by the names in its first row; see `read_cells` about decimal commas.

    Raises:
        InvalidFile: Names are missing or repeated, no rows follow, or a row is longer or shorter than the header.
    """
    header_line = rows[0][0]
    headers, rows = headers_of(path, rows, may_have_commas)
    for line, cells in rows:
        while len(cells) > len(headers) and not cells[-1]:  # Excel pads rows
            cells.pop()
        if len(cells) != len(headers):
            if len(headers) == 1:
                told = "found one cell, expected the names of columns; delete the lines above these"
                raise InvalidFile(path, header_line, told)
            remedy = "put text with the separator into quotation marks, and write numbers without thousands separators"
            raise InvalidFile(path, line, f"found {len(cells)} cells, expected {len(headers)}; {remedy}")
    columns = {key: [cells[place] for _, cells in rows] for place, key in enumerate(headers)}
    decimals = POINTS
    if may_have_commas:  # coordinates tell how numbers are written
        places = ("x", "y", *LATITUDE, *LONGITUDE)
        decimals = decimals_of([cell for key in places for cell in columns.get(key, ())])
    return CsvFile(columns, header_line, tuple(line for line, _ in rows), decimals)


def headers_of(path: Path, rows: list[Row], may_have_commas: bool) -> tuple[list[str], list[Row]]:
    """Return the names of the columns, and the rows below them; two columns without names are x and y.

    Raises:
        InvalidFile: Names are missing or repeated, or no rows follow.
    """
    line, cells = rows[0]
    headers = [header_key(cell) for cell in cells]
    numbers = [cell for cell in cells if is_number(cell, EITHER if may_have_commas else POINTS)]
    if len(numbers) == len(cells) == 2:
        return ["x", "y"], rows
    remedy = "start with a line of names, such as id,lat,lon or x,y"
    if len(numbers) == len(cells):
        raise InvalidFile(path, line, f"found {len(cells)} columns without names; {remedy}")
    if len(numbers) > 1:
        raise InvalidFile(path, line, f"found the number {found(numbers[0])} among the names of columns; {remedy}")
    while headers and not headers[-1]:
        headers.pop()
    twice = sorted({key for key in headers if key and headers.count(key) > 1})
    if twice:
        raise InvalidFile(path, line, f"found the column {', '.join(map(found, twice))} twice; keep one of them")
    headers = [key or f"column_{at + 1}" for at, key in enumerate(headers)]  # pandas writes its index without a name
    if len(rows) == 1:
        raise InvalidFile(path, line, "the file has a header and no rows; give one for each stop, the depot first")
    return headers, rows[1:]
