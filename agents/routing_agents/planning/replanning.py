"""Continuation of a previous plan: the stops that still exist, and those that have been driven already.

A vehicle that has left keeps the goods that it loaded at its depot: it delivers them itself, or nobody does, and it
gets no others. Each such vehicle becomes a type of its own, with the times of the visits that it has made.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from routing_gym.data.cells import BadCell, moment
from routing_gym.files import InvalidFile, read_bytes
from routing_gym.planning.plan import Plan
from routing_gym.planning.table import InvalidInput
from routing_gym.planning.task import SLACK, Driven, Task

MAX_BYTES = 2**26
TIMES = ("arrival", "start", "service", "departure")


@dataclass(frozen=True)
class Beginning:
    """Initial routes: the stops of each vehicle, and the number of stops to keep at the head of each route."""

    routes: tuple[tuple[int, ...], ...] = ()
    locked: tuple[int, ...] = ()


Times = tuple[float, float, float, float]


@dataclass(frozen=True)
class Previous:
    """A previous plan to continue from.

    Attributes:
        vehicles: Name of the vehicle of each route.
        stops: Ids of each route's stops.
        times: Arrival, start of service, service and departure, in minutes, at the start of each route, at its stops,
            and at its end, if the vehicle returns.
        loads: Amount on board at the start of each route, in the unit of the table.
        goods: Ids of the stops whose goods are then on board; the route may not visit all of them.
        origin: Midnight from which times are counted.
    """

    vehicles: tuple[str, ...]
    stops: tuple[tuple[str, ...], ...]
    times: tuple[tuple[Times, ...], ...]
    loads: tuple[float, ...]
    goods: tuple[tuple[str, ...], ...]
    origin: datetime | None

    def since(self, origin: datetime | None) -> Previous:
        """Return the plan with times that count from another midnight.

        Raises:
            InvalidInput: Only one of the two has dates, or a time zone.
        """
        if self.origin == origin:
            return self
        if self.origin is None or origin is None or (self.origin.tzinfo is None) != (origin.tzinfo is None):
            raise InvalidInput("start: only one of plan and stops has dates or a time zone; write both in the same way")
        shift = (self.origin - origin).total_seconds() / 60
        times = (tuple((a + shift, b + shift, c, d + shift) for a, b, c, d in route) for route in self.times)
        return replace(self, times=tuple(times), origin=origin)


def read_previous(start: Any) -> Previous:
    """Read the plan to continue from: a plan that `solve` returned, or its JSON file.

    Raises:
        InvalidInput: The value is neither a plan nor a path.
        InvalidFile: The file does not hold a plan.
        OSError: The file cannot be opened.
    """
    if isinstance(start, Plan):
        stops = tuple(tuple(visit.id for visit in route.stops) for route in start.routes)
        times = tuple(
            tuple((one.arrival, one.start, one.service, one.departure) for one in route.visits)
            for route in start.routes
        )
        names = tuple(route.vehicle for route in start.routes)
        amounts = tuple(route.visits[0].load for route in start.routes)
        loaded = tuple(route.goods_for for route in start.routes)
        return Previous(names, stops, times, amounts, loaded, start.task.origin)
    if not isinstance(start, str | Path):
        raise InvalidInput(
            f"start: found {type(start).__name__}; expected a plan that solve returned, or its JSON file"
        )
    path = Path(start)
    try:
        document = json.loads(read_bytes(path, MAX_BYTES))
        vehicles: list[str] = []
        done: list[tuple[str, ...]] = []
        driven: list[tuple[Times, ...]] = []
        loads: list[float] = []
        goods: list[tuple[str, ...]] = []
        for route in document["routes"]:
            visits = route["visits"]
            last = len(visits) - (len(visits) > 1 and visits[-1]["row"] == visits[0]["row"])
            vehicles.append(str(route["vehicle"]))
            done.append(tuple(str(visit["id"]) for visit in visits[1:last]))
            loads.append(float(visits[0]["load"]))
            goods.append(tuple(map(str, route["goods_for"])))
            columns = ([float(one[key]) for one in visits] for key in TIMES)
            driven.append(tuple(zip(*columns, strict=True)))
        origin = None if document["origin"] is None else datetime.fromisoformat(document["origin"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        if isinstance(error, InvalidFile):
            raise
        raise InvalidFile(path, None, f"no plan that --json wrote ({type(error).__name__}: {error})") from None
    previous = Previous(tuple(vehicles), tuple(done), tuple(driven), tuple(loads), tuple(goods), origin)
    if fault := fault_of(previous):
        raise InvalidFile(path, None, f"no plan that --json wrote ({fault})")
    return previous


def fault_of(previous: Previous) -> str:
    """Return what is wrong with a plan from a file, or an empty text."""
    for number, (vehicle, times) in enumerate(zip(previous.vehicles, previous.times, strict=True)):
        if vehicle in previous.vehicles[:number]:
            return f"vehicle {vehicle} has two routes"
        now = -SLACK
        for arrival, start, service, departure in times:
            if not (math.isfinite(departure) and now <= arrival <= start and 0 <= service <= departure - start + SLACK):
                return f"vehicle {vehicle}: times are negative, or before those of the previous stop"
            now = departure - SLACK
        if not 0 <= previous.loads[number] < math.inf:
            return f"vehicle {vehicle}: its load is no amount"
    return ""


def read_beginning(task: Task, start: Any, fixed: Any) -> tuple[Task, Beginning]:
    """Return the routes of a previous plan, with the stops that still exist, and the task for the rest of the day.

    Raises:
        InvalidInput: `fixed` is given without a plan, the plan visits a stop twice, or a stop or vehicle to keep does
            not exist any more.
    """
    if start is None:
        if fixed is not None:
            raise InvalidInput("fixed: it keeps stops of a previous plan; give that as start")
        return task, Beginning()
    previous = read_previous(start)
    rows = {task.ids[row]: row for row in task.stops}  # without stops that have become depots
    seen: set[str] = set()
    for key in (key for stops in previous.stops for key in stops):
        if key in seen:
            raise InvalidInput(f"start: the plan visits {key} twice; give one that solve made")
        seen.add(key)
    names: Iterable[str] = map(task.vehicle, range(task.count or len(previous.vehicles) + len(task.stops)))
    if task.count is None:
        names = dict.fromkeys((*previous.vehicles, *names))
    numbers = {name: k for k, name in enumerate(names)}
    left = {
        key: tuple(rows[stop] for stop in stops if stop in rows)
        for key, stops in zip(previous.vehicles, previous.stops, strict=True)
    }
    if fixed is None:
        order = sorted(left, key=lambda vehicle: numbers.get(vehicle, len(numbers)))
        return task, Beginning(tuple(left[vehicle] for vehicle in order))
    previous = previous.since(task.origin)
    now = time_of(previous, fixed)
    counts = fixed_counts(previous, fixed) if now is None else counts_at(previous, now)
    for vehicle, stops, count in zip(previous.vehicles, previous.stops, counts, strict=True):
        for key in stops[:count]:
            if key not in rows:
                raise InvalidInput(f"fixed: stop {key} of vehicle {vehicle} is not in {task.source}; keep it there")
        if count and vehicle not in numbers:
            raise InvalidInput(f"fixed: vehicle {vehicle} has been at {stops[0]}, and is gone; add it again")
    types = split(task, previous, left, numbers, counts, now)
    order = [name for kind in types for name in kind.vehicles]
    last = max((place for place, name in enumerate(order) if name in left), default=-1)
    routes = [left.pop(name, ()) for name in order[: last + 1]]  # vehicles without a route keep their numbers, too
    locked = tuple(count for count in counts if count)
    later = replace(task, types=types) if len(types) > 1 else replace(types[0], count=task.count)
    return replace(later, vehicles=tuple(order)), Beginning((*routes, *left.values()), locked)


def split(
    task: Task,
    previous: Previous,
    rows: Mapping[str, Sequence[int]],
    numbers: Mapping[str, int],
    counts: Sequence[int],
    now: float | None,
) -> tuple[Task, ...]:
    """Return types of vehicles for the rest of the day: each one that has left, then those that have not.

    Args:
        task: The task, without the previous plan.
        previous: The previous plan.
        rows: Rows of the stops of each of its routes that still exist, by vehicle.
        numbers: Number of each vehicle, by name.
        counts: Number of stops to keep on each route; vehicles with none have not left.
        now: Current time, before which nobody leaves; None if it is not known.
    """
    carried = task.loaded > 0
    row_of = {key: row for row, key in enumerate(task.ids) if carried[row]}
    gone = {previous.vehicles[k]: k for k, count in enumerate(counts) if count}
    kept: list[int] = []  # stops whose goods have left
    types = []
    for vehicle, k in gone.items():
        base, times, own = task.driven_by(numbers[vehicle]), previous.times[k], list(rows[vehicle])
        goods = {row_of[key] for key in previous.goods[k] if key in row_of} | {row for row in own if carried[row]}
        visited = [base.depot, *own[: counts[k]]]
        driven = [Driven(row, *at) for row, at in zip(visited, times, strict=False)]
        may = ~carried if base.allowed is None else base.allowed & ~carried
        may[list(goods)] = True
        if now is not None and counts[k] == len(previous.stops[k]) and driven[-1].departure < now:
            if base.open:  # it is still at its last stop
                driven[-1] = driven[-1]._replace(departure=now)
            else:  # on its way back, or there
                may = np.zeros_like(carried)
                driven += [Driven(base.depot, *at) for at in times[len(visited) :]]
                if driven[-1].arrival <= now:  # the goods that were not delivered are at the depot again
                    goods &= set(own)
        may[own] = True
        kept += goods
        types.append(
            replace(
                base,
                count=1,
                vehicles=(vehicle,),
                allowed=may,
                driven=tuple(driven),
                aboard=max(round(previous.loads[k] * task.units), base.load(own)),
                goods_for=previous.goods[k],
            )
        )
    for number, base in enumerate(task.types or (task,)):
        free = [name for name, k in numbers.items() if task.type_of(k) == number and name not in gone]
        if not free:
            continue
        may = np.ones_like(carried) if base.allowed is None else base.allowed.copy()
        may[kept] = False
        ready = base.ready.copy()
        if now is not None:
            ready[base.depot] = min(max(ready[base.depot], now), base.due[base.depot])
        types.append(replace(base, count=len(free), vehicles=tuple(free), allowed=may, ready=ready, types=()))
    return tuple(types)


def time_of(previous: Previous, fixed: Any) -> float | None:
    """Return the current time in minutes, or None if `fixed` names stops or their numbers.

    Raises:
        InvalidInput: The time is invalid, or not written like those of the plan.
    """
    if isinstance(fixed, Mapping | list | tuple | set | frozenset):
        return None
    try:
        now = moment(fixed)
    except BadCell as error:
        raise InvalidInput(f"fixed: found {fixed!r}; {error}; or a number of stops by vehicle, or ids") from None
    if not isinstance(now, datetime):
        return now
    if previous.origin is None or (previous.origin.tzinfo is None) != (now.tzinfo is None):
        raise InvalidInput(
            f"fixed: found {fixed!r}, but the plan's times have no date, or only one of the two has a time zone; "
            "write it like the plan's times"
        )
    return (now - previous.origin).total_seconds() / 60


def counts_at(previous: Previous, now: float) -> list[int]:
    """Return the number of stops of each route that a vehicle has visited at a time, or is driving to."""
    return [
        sum(left < now for *_, left in times[: len(stops)])
        for times, stops in zip(previous.times, previous.stops, strict=True)
    ]


def fixed_counts(previous: Previous, fixed: Any) -> list[int]:
    """Return the number of stops to keep on each route, of numbers by vehicle or ids of stops.

    Raises:
        InvalidInput: A vehicle or a stop does not exist in the plan, or the number is invalid.
    """
    if isinstance(fixed, Mapping):
        sizes = {vehicle: len(stops) for vehicle, stops in zip(previous.vehicles, previous.stops, strict=True)}
        counts = {str(key): value for key, value in fixed.items()}
        for key, value in counts.items():
            if key not in sizes:
                raise InvalidInput(f"fixed: there is no vehicle {key!r}; the plan has {', '.join(sizes)}")
            if type(value) is not int or not 0 <= value <= sizes[key]:
                raise InvalidInput(f"fixed: vehicle {key}: found {value!r}; expected 0 to {sizes[key]} stops")
        return [counts.get(vehicle, 0) for vehicle in previous.vehicles]
    wanted = {str(key) for key in fixed}
    if missing := sorted(wanted.difference(*previous.stops)):
        raise InvalidInput(f"fixed: the plan does not visit {', '.join(missing)}; leave them out")
    return [max((k for k, key in enumerate(stops, start=1) if key in wanted), default=0) for stops in previous.stops]
