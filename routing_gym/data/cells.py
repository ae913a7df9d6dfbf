"""Parsers for single cells of a table: numbers, clock times, dates and missing values.

Cells are text in files, and any Python or NumPy values in arrays and DataFrames.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import date, datetime, time, timedelta
from typing import Any, NamedTuple

import numpy as np

from routing_gym.files import found, printable

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")
THOUSANDS_POINT = re.compile(r"[+-]?\d{1,3}(\.\d{3})+")
THOUSANDS_COMMA = re.compile(r"[+-]?\d{1,3}(,\d{3})+")
THOUSANDS = re.compile(r"[+-]?\d{1,3}([.,' \u00a0\u2009\u202f]\d{3})+([.,]\d+)?")
CLOCK = re.compile(r"(\d{1,3}):(\d{2})(?::(\d{2}))?")
DIRECTION = re.compile(r"[\u202a-\u202e\u2066-\u2069]")
MOST_HOURS = 48  # a clock time of the next day is 24:00 to 47:59
FLAGS = {"yes": 1.0, "true": 1.0, "pickup": 1.0, "no": 0.0, "false": 0.0, "delivery": 0.0}
LARGEST = 1e100  # bound on the size of any number


class BadCell(ValueError):
    """Invalid value of a cell; the message has the expectation and the remedy."""


class Decimals(NamedTuple):
    """Notation of the numbers in a file.

    Attributes:
        comma: Whether 1,5 is one and a half, as in files whose columns are not separated by commas.
        thousands: Numbers that are refused, since others show that their point or comma separates thousands.
    """

    comma: bool = False
    thousands: re.Pattern[str] | None = None


POINTS, EITHER = Decimals(), Decimals(comma=True)


def is_missing(cell: Any) -> bool:
    """Return whether a cell is empty: None, blank text, nan, or the missing values of pandas and polars."""
    if cell is None or type(cell).__name__ in ("NAType", "NaTType"):
        return True
    if isinstance(cell, str):
        return not cell.strip()
    return isinstance(cell, float | np.floating) and math.isnan(cell)


def show(cell: Any) -> str:
    """Quote a cell for a message."""
    return found(cell.item() if isinstance(cell, np.generic) else cell)


def number(cell: Any, decimals: Decimals = POINTS) -> float:
    """Read a finite number.

    Args:
        cell: A number, or text that spells one.
        decimals: Notation of the numbers in its file.

    Raises:
        BadCell: The cell is not a number, or ambiguous because of thousands separators.
    """
    if isinstance(cell, bool | np.bool_):
        return float(cell)
    if isinstance(cell, str):
        return number_in(cell.strip(), decimals)
    try:
        value = float(cell)
    except (TypeError, ValueError, OverflowError):
        raise BadCell("expected a number") from None
    if not abs(value) <= LARGEST:
        raise BadCell(f"expected a finite number of at most {LARGEST:g}")
    return value


def number_in(text: str, decimals: Decimals) -> float:
    """Read the number in a text; see `number`."""
    if decimals.thousands is not None and decimals.thousands.fullmatch(text):
        other = "commas" if decimals.thousands is THOUSANDS_POINT else "points"
        raise BadCell(f"expected a number without thousands separators, since other numbers have decimal {other}")
    if decimals.comma and DECIMAL_COMMA.fullmatch(text):
        text = text.replace(",", ".")
    if NUMBER.fullmatch(text):
        value = float(text)
        if abs(value) <= LARGEST:
            return value
        raise BadCell(f"expected a number of at most {LARGEST:g}")
    if THOUSANDS.fullmatch(text):
        raise BadCell("expected a number without thousands separators; write 1234.5 for one thousand and a bit")
    if DECIMAL_COMMA.fullmatch(text):
        raise BadCell("expected a decimal point; write 1.5, or separate the columns of the file by semicolons")
    raise BadCell("expected a number")


def decimals_of(cells: Sequence[str]) -> Decimals:
    """Return the notation of the numbers in a file whose columns are not separated by commas, from some of them.

    Numbers such as 1,5 decide; 1,500 and 1.500, which may be thousands, only if there are no others.
    """
    commas = [cell for cell in cells if DECIMAL_COMMA.fullmatch(cell)]
    points = [cell for cell in cells if "." in cell and NUMBER.fullmatch(cell)]
    clear_commas = not all(map(THOUSANDS_COMMA.fullmatch, commas))
    clear_points = not all(map(THOUSANDS_POINT.fullmatch, points))
    if clear_commas or (commas and not clear_points):
        return Decimals(comma=True, thousands=THOUSANDS_POINT)
    return Decimals(comma=True, thousands=THOUSANDS_COMMA) if points else EITHER


def is_number(cell: str, decimals: Decimals) -> bool:
    """Return whether a cell holds a number."""
    try:
        number(cell, decimals)
    except BadCell:
        return False
    return True


def flag(cell: Any, decimals: Decimals = POINTS) -> float:
    """Read 0 or 1, or a word for them (yes, no, true, false, pickup, delivery).

    Raises:
        BadCell: The cell is neither of them.
    """
    if isinstance(cell, str) and cell.strip().lower() in FLAGS:
        return FLAGS[cell.strip().lower()]
    value = number(cell, decimals)
    if value not in (0, 1):
        raise BadCell("expected 0 or 1, yes or no")
    return value


def moment(cell: Any, decimals: Decimals = POINTS) -> float | datetime:
    """Read a time: minutes as a number, a clock time HH:MM as minutes after midnight, or an ISO date with a time.

    Raises:
        BadCell: The cell is none of them.
    """
    if isinstance(cell, np.datetime64):
        cell = cell.astype("datetime64[us]").item()
    if isinstance(cell, np.timedelta64):
        cell = cell.astype("timedelta64[us]").item()
    if isinstance(cell, datetime):
        return cell
    if isinstance(cell, date):
        raise BadCell("expected a time of the day; write 2026-05-04T08:30")
    if isinstance(cell, time):
        return cell.hour * 60 + cell.minute + cell.second / 60
    if isinstance(cell, timedelta):
        return cell.total_seconds() / 60
    if isinstance(cell, str):
        return moment_in(cell.strip(), decimals)
    return number(cell, decimals)


def moment_in(text: str, decimals: Decimals) -> float | datetime:
    """Read the time in a text; see `moment`."""
    clock = CLOCK.fullmatch(text)
    if clock is not None:
        hours, minutes, seconds = int(clock[1]), int(clock[2]), int(clock[3] or 0)
        if hours >= MOST_HOURS or minutes >= 60 or seconds >= 60:
            raise BadCell("expected a clock time from 00:00 to 23:59, or to 47:59 for the next day")
        return hours * 60 + minutes + seconds / 60
    if re.match(r"\d{4}-\d{2}-\d{2}[T ]", text):
        try:
            return datetime.fromisoformat(text)
        except ValueError:
            raise BadCell("expected a date and time such as 2026-05-04T08:30") from None
    try:
        return number_in(text, decimals)
    except BadCell as error:
        raise BadCell(f"{error}".replace("a number", "minutes, HH:MM or an ISO time", 1)) from None


def identity(cell: Any) -> str:
    """Return a cell as an id: whole numbers without decimals, text as by `one_line`."""
    whole = isinstance(cell, float | np.floating) and float(cell).is_integer()
    return str(int(cell)) if whole else one_line(cell)


def one_line(cell: Any) -> str:
    """Return a cell as text that can be shown anywhere.

    White space, which may be a line break, becomes one space; control characters are escaped; characters that change
    the direction of writing are removed.
    """
    return " ".join(DIRECTION.sub("", printable(cell)).split())
