"""Times of a table and of its vehicles, in minutes from a common midnight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np

from routing_gym.arrays import FloatArray
from routing_gym.data.cells import is_missing, show
from routing_gym.planning.fleet import Fleet
from routing_gym.planning.table import InvalidInput, Table

MOST_DAYS = 31  # maximum span of the dates of one table


def from_midnight(
    table: Table, headers: Mapping[str, str], moments: Mapping[str, list[Any]]
) -> tuple[datetime | None, str, dict[str, FloatArray]]:
    """Return the midnight before all dates, the format of times, and the times in minutes from that midnight.

    Raises:
        InvalidInput: Some dates have a time zone and others have none, a duration is a date, or dates are too far
            apart.
    """
    dated = [(name, row, one) for name, column in moments.items() for row, one in enumerate(column)]
    dates = [(name, row, one) for name, row, one in dated if isinstance(one, datetime)]
    for name, row, one in dates:
        if name not in ("ready_time", "due_time"):
            raise table.error(row, headers[name], "expected minutes or HH:MM, not a date")
        if (one.tzinfo is None) != (dates[0][2].tzinfo is None):
            raise table.error(row, headers[name], "other times have a time zone, or none; write all of them alike")
    for name in ("ready_time", "due_time"):
        refuse_mixed(table, headers.get(name, ""), moments.get(name, []))
    origin = min((one for _, _, one in dates), default=None)
    if origin is not None:
        for name, row, one in dates:
            if (one - origin).days > MOST_DAYS:
                told = f"it is more than {MOST_DAYS} days after {origin:%Y-%m-%d}; check the year and the month"
                raise table.error(row, headers[name], told)
        origin = origin.replace(hour=0, minute=0, second=0, microsecond=0)
    times = {name: np.array([minutes(one, origin) for one in column]) for name, column in moments.items()}
    if origin is not None:
        return origin, "iso", times
    windows = [headers[name] for name in ("ready_time", "due_time") if name in headers]
    shown = any(":" in str(cell) for header in windows for cell in table.columns[header])
    return None, "clock" if shown else "minutes", times


def refuse_mixed(table: Table, header: str, column: Sequence[Any]) -> None:
    """Refuse columns with times in several formats, some of which must be errors: 9.30 among 08:30, 05-04 and 08:30.

    Raises:
        InvalidInput: A cell has another format than the first one of the column; the message names it.
    """
    first: tuple[str, Any] | None = None
    for row, one in enumerate(column):
        cell = table.columns[header][row]
        way = "a date" if isinstance(one, datetime) else "HH:MM" if ":" in str(cell) else "minutes"
        if is_missing(cell) or (way == "minutes" and one == 0):
            continue
        first = first or (way, cell)
        if way != first[0]:
            raise table.error(row, header, f"other times, such as {show(first[1])}, are {first[0]}; write all alike")


def shift_minutes(fleet: Fleet, name: str, origin: datetime | None) -> float:
    """Return the start or end of the vehicles' shift, in minutes; without a limit, minus or plus infinity.

    Raises:
        InvalidInput: The shift is a date, and the stops have no dates, or dates that differ in having a time zone.
    """
    one = fleet.earliest if name == "earliest" else fleet.latest
    if one is None:
        return float("-inf" if name == "earliest" else "inf")
    if isinstance(one, datetime) and (origin is None or (origin.tzinfo is None) != (one.tzinfo is None)):
        like = "HH:MM" if origin is None else f"dates such as {origin.isoformat(timespec='minutes')}"
        raise InvalidInput(
            f"{fleet.place}, column {name}: found {one.isoformat()}; write it like the stops' times, {like}"
        )
    return minutes(one, origin)


def working_hours(
    fleet: Fleet, opens: float, closes: float, origin: datetime | None, is_open: bool
) -> tuple[float, float]:
    """Return the earliest departure from the depot and the latest return to it, in minutes.

    If vehicles stay at their last stop (`is_open`), the depot may close before, and the end is that of the last
    service.

    Raises:
        InvalidInput: The vehicles may never be away while the depot is open.
    """
    start, end = (shift_minutes(fleet, name, origin) for name in ("earliest", "latest"))
    if opens <= closes and max(opens, start) > min(closes, end):
        raise InvalidInput(
            f"{fleet.place}: found hours that end before they begin, or have none in common with the depot's; change "
            "earliest or latest"
        )
    return max(opens, start), end if is_open else min(closes, end)


def minutes(one: Any, origin: datetime | None) -> float:
    """Return a time in minutes from the midnight that times count from."""
    if isinstance(one, datetime) and origin is not None:
        return (one - origin).total_seconds() / 60
    return float(one)
