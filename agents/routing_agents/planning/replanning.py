"""Continuation of a previous plan: the stops that still exist, and those that have been driven already."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from routing_gym.data.cells import BadCell, moment
from routing_gym.files import InvalidFile, read_bytes
from routing_gym.planning.plan import Plan
from routing_gym.planning.table import InvalidInput
from routing_gym.planning.task import Task

MAX_BYTES = 2**26


@dataclass(frozen=True)
class Beginning:
    """Initial routes: the stops of each vehicle, and the number of stops to keep at the head of each route."""

    routes: tuple[tuple[int, ...], ...] = ()
    locked: tuple[int, ...] = ()


@dataclass(frozen=True)
class Previous:
    """A previous plan to continue from.

    Attributes:
        vehicles: Name of the vehicle of each route.
        stops: Ids of each route's stops.
        leaves: Departure times of each vehicle from its start and its stops, in minutes.
        origin: Midnight from which times are counted.
    """

    vehicles: tuple[str, ...]
    stops: tuple[tuple[str, ...], ...]
    leaves: tuple[tuple[float, ...], ...]
    origin: datetime | None


def read_previous(start: Any) -> Previous:
    """Read the plan to continue from: a plan that `solve` returned, or its JSON file.

    Raises:
        InvalidInput: The value is neither a plan nor a path.
        InvalidFile: The file does not hold a plan.
        OSError: The file cannot be opened.
    """
    if isinstance(start, Plan):
        stops = tuple(tuple(visit.id for visit in route.stops) for route in start.routes)
        leaves = tuple(tuple(visit.departure for visit in route.visits) for route in start.routes)
        return Previous(tuple(route.vehicle for route in start.routes), stops, leaves, start.task.origin)
    if not isinstance(start, str | Path):
        raise InvalidInput(
            f"start: found {type(start).__name__}; expected a plan that solve returned, or its JSON file"
        )
    path = Path(start)
    try:
        document = json.loads(read_bytes(path, MAX_BYTES))
        vehicles: list[str] = []
        done: list[tuple[str, ...]] = []
        left: list[tuple[float, ...]] = []
        for route in document["routes"]:
            visits = route["visits"]
            last = len(visits) - (len(visits) > 1 and visits[-1]["row"] == visits[0]["row"])
            vehicles.append(str(route["vehicle"]))
            done.append(tuple(str(visit["id"]) for visit in visits[1:last]))
            left.append(tuple(float(visit["departure"]) for visit in visits))
        origin = None if document["origin"] is None else datetime.fromisoformat(document["origin"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, InvalidFile):
            raise
        raise InvalidFile(path, None, f"no plan that --json wrote ({type(error).__name__}: {error})") from None
    return Previous(tuple(vehicles), tuple(done), tuple(left), origin)


def read_beginning(task: Task, start: Any, fixed: Any) -> Beginning:
    """Return the routes of a previous plan, with the stops that still exist, and the number of stops to keep.

    Raises:
        InvalidInput: `fixed` is given without a plan, the plan visits a stop twice, or a stop or vehicle to keep does
            not exist any more.
    """
    if start is None:
        if fixed is not None:
            raise InvalidInput("fixed: it keeps stops of a previous plan; give that as start")
        return Beginning()
    previous = read_previous(start)
    rows = {task.ids[row]: row for row in task.stops}  # without stops that have become depots
    seen: set[str] = set()
    for key in (key for stops in previous.stops for key in stops):
        if key in seen:
            raise InvalidInput(f"start: the plan visits {key} twice; give one that solve made")
        seen.add(key)
    counts = [0] * len(previous.stops) if fixed is None else fixed_counts(previous, fixed)
    numbers = {task.vehicle(k): k for k in range(task.count or len(previous.vehicles))}
    routes: dict[int, tuple[tuple[int, ...], int]] = {}
    for vehicle, stops, count in zip(previous.vehicles, previous.stops, counts, strict=True):
        for key in stops[:count]:
            if key not in rows:
                raise InvalidInput(f"fixed: stop {key} of vehicle {vehicle} is not in {task.source}; keep it there")
        if count and vehicle not in numbers:
            raise InvalidInput(f"fixed: there is no vehicle {vehicle} any more, which has been at {stops[0]}; keep it")
        routes[numbers.get(vehicle, len(numbers) + len(routes))] = (
            tuple(rows[key] for key in stops if key in rows),
            count,
        )
    if fixed is None:
        return Beginning(tuple(stops for stops, _ in routes.values()))
    least = max((k for k in routes if k < len(numbers)), default=-1) + 1
    in_order = [routes.pop(k, ((), 0)) for k in range(least)]  # vehicles without a route keep their numbers, too
    in_order += routes.values()
    return Beginning(tuple(stops for stops, _ in in_order), tuple(count for _, count in in_order))


def fixed_counts(previous: Previous, fixed: Any) -> list[int]:
    """Return the number of stops to keep on each route.

    Raises:
        InvalidInput: A vehicle or a stop does not exist in the plan, or the number or the time is invalid.
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
    if isinstance(fixed, list | tuple | set | frozenset):
        wanted = {str(key) for key in fixed}
        if missing := sorted(wanted.difference(*previous.stops)):
            raise InvalidInput(f"fixed: the plan does not visit {', '.join(missing)}; leave them out")
        return [
            max((k for k, key in enumerate(stops, start=1) if key in wanted), default=0) for stops in previous.stops
        ]
    try:
        now = moment(fixed)
    except BadCell as error:
        raise InvalidInput(f"fixed: found {fixed!r}; {error}; or a number of stops by vehicle, or ids") from None
    if isinstance(now, datetime):
        if previous.origin is None or (previous.origin.tzinfo is None) != (now.tzinfo is None):
            raise InvalidInput(
                f"fixed: found {fixed!r}, but the plan's times have no date, or only one of the two has a time zone; "
                "write it like the plan's times"
            )
        now = (now - previous.origin).total_seconds() / 60
    pairs = zip(previous.stops, previous.leaves, strict=True)
    # A stop that a vehicle is driving to is kept, too.
    return [sum(left < now for left in leaves[: len(stops)]) for stops, leaves in pairs]
