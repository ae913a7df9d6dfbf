"""Checks of input values beyond single cells; each error has source, row, column, value and remedy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from routing_gym.arrays import FloatArray, IntArray
from routing_gym.data.cells import show
from routing_gym.planning.geography import WIDEST
from routing_gym.planning.matrices import Kind, Matrix
from routing_gym.planning.parsing import is_flags
from routing_gym.planning.recognise import OPTIONAL
from routing_gym.planning.table import InvalidInput, Table
from routing_gym.planning.task import DAY, Task
from routing_gym.problems.cvrp import MAX_CAPACITY
from routing_gym.traits import Column

Headers = Mapping[str, str]
EARTH = 20_040.0  # km to the opposite point of the earth
MOST_PER_KM = 20  # minutes or km per km of straight line, above which the unit may be another one
WEEK = 7 * DAY
MOST_UNITS = 1000
ROUNDING = 1e-6  # largest deviation of an amount in smaller units from an integer


def check_coordinates(table: Table, headers: Headers, values: Mapping[str, FloatArray], keys: tuple[str, str]) -> None:
    """Check that every stop has coordinates, and that latitudes and longitudes are possible.

    Raises:
        InvalidInput: A coordinate is invalid; the message has row, column, value and remedy.
    """
    limits = {"lat": 90.0, "lon": 180.0}
    for key in keys:
        column = values[key]
        for row in np.flatnonzero(np.isnan(column)).tolist():
            raise table.error(row, headers[key], "expected a number: every stop needs its coordinates", "")
        limit = limits.get(key, np.inf)
        for row in np.flatnonzero(np.abs(column) > limit).tolist():
            remedy = "exchange lat and lon?" if key == "lat" else "subtract 360 degrees?"
            if abs(column[row]) > 360:
                remedy = "give degrees, or name the columns x and y"
            raise table.error(row, headers[key], f"expected degrees from -{limit:g} to {limit:g}; {remedy}")


def check_speed(speed: Any) -> float | None:
    """Return a speed in km/h.

    Raises:
        InvalidInput: The speed is not positive, or too large.
    """
    if speed is None:
        return None
    real = isinstance(speed, int | float | np.integer | np.floating) and not isinstance(speed, bool)
    if not real or not 0 < speed <= 1000:
        raise InvalidInput(f"speed: found {show(speed)}; expected km/h, more than 0 and at most 1000")
    return float(speed)


def check_width(table: Table, headers: Headers, km: FloatArray) -> None:
    """Refuse stops too far apart for one plan: a sign is wrong, or latitude and longitude are exchanged.

    Raises:
        InvalidInput: The stops are too far apart; the message names the stop that is farthest from the others.
    """
    if km.size and km.max() > WIDEST:
        row = int(np.median(km, axis=1).argmax())
        other = int(km[row].argmax())
        raise table.error(
            row,
            headers["lat"],
            f"it is {km[row, other]:,.0f} km away from {table.place(other)}, and stops of one plan may be "
            f"{WIDEST:,.0f} km apart; check the signs, and that lat and lon are not exchanged",
        )


def check_matrices(ids: Sequence[str], matrices: Mapping[Kind, Matrix], geographic: bool) -> None:
    """Refuse entries that cannot be minutes or km on the earth.

    Raises:
        InvalidInput: An entry is too large; the message has the two stops, the value and the divisor to use.
    """
    limits: dict[Kind, tuple[float, str]] = {
        "durations": (WEEK, "minutes; if these are seconds, divide by 60"),
        "distances": (EARTH, "km; if these are metres, divide by 1000"),
    }
    for kind, matrix in matrices.items():
        limit, told = limits[kind]
        if geographic and matrix.values.max() > limit:
            i, j = divmod(int(matrix.values.argmax()), len(ids))
            place = f"{matrix.source}, row {i}, column {j} (from {ids[i]} to {ids[j]})"
            raise InvalidInput(f"{place}: found {matrix.values[i, j]:g}; expected at most {limit:,g} {told}")


def doubtful_units(matrices: Mapping[Kind, Matrix], km: FloatArray) -> list[str]:
    """Return notes about matrices whose entries seem to be seconds or metres, compared with the straight-line `km`.

    Stops less than a km apart tell nothing: times may be rounded to minutes.
    """
    apart, notes = km > 1, []
    told = {"durations": ("minutes", "seconds by 60"), "distances": ("km", "metres by 1000")}
    for kind, matrix in matrices.items():
        unit, remedy = told[kind]
        share = float(np.median(matrix.values[apart] / km[apart])) if apart.any() else 0.0
        if share > MOST_PER_KM:
            notes.append(
                f"{matrix.source}: {share:.0f} {unit} per km of straight line; if that is wrong, divide {remedy}"
            )
    return notes


def filled(table: Table, header: str, column: Column, values: FloatArray, has_depot: bool) -> FloatArray:
    """Return a column of a problem with its defaults in empty cells, checked for range.

    Raises:
        InvalidInput: A value is negative, the depot's value is not 0, or a stop that a problem may leave out has none.
    """
    values = values.copy()
    if column.name == OPTIONAL:
        for row in np.flatnonzero(np.isnan(values[1:])).tolist():
            told = "this problem needs a number for each stop; for one that must be served, more than all routes cost"
            raise table.error(row + 1, header, told)
    if column.kind != "time" or column.name == "service_time":
        values[np.isnan(values)] = 0.0
    for row in np.flatnonzero(values < 0).tolist():
        raise table.error(row, header, "expected a number that is not negative")
    if has_depot and not column.at_depot and column.kind != "node" and values[0] != 0:
        raise table.error(0, header, "the first row is the depot; set it to 0, or put the depot first")
    return values


def split_amounts(
    table: Table, headers: Headers, values: Mapping[str, FloatArray], mixed: bool, plain: bool, size: int
) -> tuple[FloatArray, FloatArray, tuple[str, ...]]:
    """Return the amounts delivered to and picked up at each stop, and a note if pickups can be read in two ways.

    Pickups are either flags, where 1 marks stops whose demand is picked up, or amounts in addition to the deliveries.

    Raises:
        InvalidInput: A pickup is negative, or belongs to the depot, or to a stop with a delivery that must come first.
    """
    delivery = np.nan_to_num(values["demand"]).copy() if "demand" in values and plain else np.zeros(size)
    pickup = np.zeros(size)
    notes: tuple[str, ...] = ()
    if "backhaul" in values and plain:
        marked = np.nan_to_num(values["backhaul"]) == 1
        pickup[marked], delivery[marked] = delivery[marked], 0.0
    if "pickup" in values and (mixed or (plain and "demand" in values)):
        given = np.nan_to_num(values["pickup"])
        for row in np.flatnonzero(given < 0).tolist():
            raise table.error(row, headers["pickup"], "expected an amount that is not negative")
        ones, words = given == 1, is_flags(table, headers["pickup"])
        empty = [table.place(int(row)) for row in np.flatnonzero(ones & (delivery == 0))]
        binary = np.isin(given, (0, 1)).all()
        flags = words or (binary and not empty)
        if words and empty:
            notes = (f"{headers['pickup']}: {empty[0]} has no demand, so nothing is picked up there",)
        elif binary and not words and len(empty) < ones.sum():
            told = "flags: the demand of stops with 1 is picked up, not delivered; write yes and no to say so"
            if empty:
                told = f"amounts: {empty[0]} has 1 and no demand"
            notes = (f"{headers['pickup']}: only 0 and 1, read as {told}",)
        if flags:
            pickup[ones], delivery[ones] = delivery[ones], 0.0
        else:
            pickup = given.copy()
        for row in np.flatnonzero((pickup > 0) & (delivery > 0)).tolist() if not mixed else ():
            told = "with deliveries first, a stop has a delivery or a pickup; use two rows, or leave out the problem"
            raise table.error(row, headers["pickup"], told)
        if pickup[0]:
            raise table.error(0, headers["pickup"], "the first row is the depot; set it to 0, or put the depot first")
    return delivery, pickup, notes


def check_sources(table: Table, headers: Headers, sources: IntArray, depots: Sequence[int]) -> None:
    """Check that the goods of each pair go from one stop to one other stop.

    Args:
        table: The stops.
        headers: Headers of the table's columns.
        sources: Row where the goods of each stop are picked up, 0 for none.
        depots: Rows where vehicles start.

    Raises:
        InvalidInput: A stop is paired with itself, a depot, or several others.
    """
    header = headers["pickup_at"]
    receives: dict[int, int] = {}
    for row in np.flatnonzero(sources).tolist():
        source = int(sources[row])
        if row == 0 or row in depots:
            raise table.error(row, header, "vehicles start in this row; leave the cell empty")
        if source in depots:
            raise table.error(row, header, "vehicles start there; name a stop, or leave the cell empty for the depot")
        if source == row or sources[source]:
            told = "the stop itself" if source == row else "a stop that gets something itself"
            raise table.error(row, header, f"it is {told}; use two rows for a place with a pickup and a delivery")
        if source in receives:
            told = f"{table.place(receives[source])} gets what is picked up there"
            raise table.error(row, header, f"{told}; use a row for each of several pickups at one place")
        receives[source] = row


def paired_amounts(
    table: Table, headers: Headers, sources: IntArray, delivery: FloatArray, pickup: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return deliveries and pickups with the demand of each pair at both stops; the table may give it at either stop.

    Raises:
        InvalidInput: The demands of a pair differ, or one of its stops also has a pickup for the depot.
    """
    delivery, pickup = delivery.copy(), pickup.copy()
    for row in np.flatnonzero(sources).tolist():
        source = int(sources[row])
        for stop in (source, row):
            if pickup[stop]:
                told = "this stop is one of a pair, whose amount is its demand; use another row for goods for the depot"
                raise table.error(stop, headers["pickup"], told)
        amounts = {round(float(delivery[stop]), 6) for stop in (row, source)} - {0.0}
        if len(amounts) > 1:
            told = f"found the demands {' and '.join(f'{one:g}' for one in sorted(amounts))} for this stop"
            raise table.error(row, headers["pickup_at"], f"{told} and where its goods are picked up; expected one")
        delivery[row] = pickup[source] = max(amounts, default=0.0)
        delivery[source] = 0.0
    return delivery, pickup


def common_unit(
    table: Table, headers: Headers, amounts: list[FloatArray], capacities: Sequence[float | None], place: str
) -> int:
    """Return the power of ten that makes all amounts whole, so that sums are exact.

    Raises:
        InvalidInput: The amounts have more than three decimals, or are too large.
    """
    units = 1
    for column in amounts:
        for row, value in enumerate(column):
            if not (units := whole_units(value, units)):
                header = headers.get("demand", headers.get("pickup", "demand"))
                told = "expected an amount of at most three decimals and 10^9; choose another unit"
                raise table.error(row, header, told)
    for capacity in capacities:
        if capacity is not None and not (units := whole_units(capacity, units)):
            raise InvalidInput(f"{place}: found the capacity {capacity:g}; expected at most three decimals and 10^9")
    return units


def whole_units(value: float, units: int) -> int:
    """Return the least power of ten from `units` on that makes a value whole; 0 if that or the value is too large."""
    while abs(value * units - round(value * units)) > ROUNDING and units <= MOST_UNITS:
        units *= 10
    return 0 if units > MOST_UNITS or value * units > MAX_CAPACITY else units


def penalties(table: Table, header: str, values: FloatArray) -> FloatArray:
    """Return the penalties of leaving stops out; stops without a number must be served.

    Raises:
        InvalidInput: A penalty is negative.
    """
    for row in np.flatnonzero(values < 0).tolist():
        raise table.error(row, header, "expected a price that is not negative; leave the cell empty to serve the stop")
    return np.where(np.isnan(values), np.inf, values)


def unused_types(task: Task) -> list[str]:
    """Return a note on each type of vehicles that can serve no stop."""
    notes, stops = [], task.stops
    for kind in task.types if stops else ():
        may = stops if kind.allowed is None else [row for row in stops if kind.allowed[row]]
        least = min((max(kind.delivery[row], kind.pickup[row]) for row in may), default=0)
        others = len(kind.vehicles) - 1
        who = f"vehicles {kind.vehicles[0]} and {others} more" if others else f"vehicle {kind.vehicles[0]}"
        if not may:
            notes.append(f"{who}: not used; all stops name other vehicles")
        elif kind.capacity is not None and least > kind.capacity:
            held, amount = task.amount(kind.capacity), task.amount(least)
            notes.append(f"{who}: not used; the capacity is {held:g}, and the least amount of a stop is {amount:g}")
    return notes


def check_task(task: Task, table: Table, headers: Headers, has_matrix: bool) -> None:
    """Check service times and time windows.

    Raises:
        InvalidInput: A value is invalid; the message has row, column, value and remedy.
    """
    if len(task.ids) < 2:
        raise table.error(0, next(iter(table.columns)), "expected at least two rows, the depot first")
    service = headers.get("service_time", "service")
    real = task.geographic or has_matrix or task.clock != "minutes"
    for row in np.flatnonzero(task.service > DAY).tolist():
        if real:
            told = f"a service of {task.service[row] / 60:g} hours cannot be; give minutes or HH:MM"
            raise table.error(row, service, told)
    for row in np.flatnonzero(task.ready > task.due).tolist():
        told = f"the window closes before it opens, at {task.at(task.ready[row])}; exchange them, or add 24 hours"
        header = headers.get("due_time")
        value = task.at(task.due[row])
        raise table.error(row, header or "latest", told, value if header is None else None)
