"""Going on from a plan: which of its stops are there still, and which of them have been driven already."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from routing_gym.planning.cells import BadCell, moment
from routing_gym.planning.plan import Plan
from routing_gym.planning.table import InvalidInput
from routing_gym.planning.task import Task


@dataclass(frozen=True)
class Beginning:
    """Routes to begin with: stops of each vehicle, and how many at the head of each route stay."""

    trips: tuple[tuple[int, ...], ...] = ()
    locked: tuple[int, ...] = ()


def read_beginning(task: Task, start: Plan | None, fixed: Any) -> Beginning:
    """Return the routes of a previous plan, by the ids of stops that are there still, and what of them stays.

    Raises:
        InvalidInput: There is no plan to keep something of, or a stop that stays is not in the table.
    """
    if start is None:
        if fixed is not None:
            raise InvalidInput("fixed: it keeps stops of a previous plan; give that as start")
        return Beginning()
    if not isinstance(start, Plan):
        raise InvalidInput(f"start: found {type(start).__name__}; expected a plan that solve returned")
    rows = {key: row for row, key in enumerate(task.ids)}
    order = {name: k for k, name in enumerate(task.vehicles)}
    routes = list(start.routes)
    if routes and all(route.vehicle in order for route in routes):
        routes.sort(key=lambda route: order[route.vehicle])
    many = [0] * len(routes) if fixed is None else fixed_counts(start, fixed)
    trips, locked = [], []
    for route, count in zip(routes, [many[start.routes.index(route)] for route in routes], strict=True):
        for visit in route.stops[:count]:
            if visit.id not in rows:
                raise InvalidInput(
                    f"fixed: stop {visit.id} of vehicle {route.vehicle} is not in {task.source}; keep it there"
                )
        trips.append(tuple(rows[visit.id] for visit in route.stops if visit.id in rows))
        locked.append(count)
    return Beginning(tuple(trips), tuple(locked) if fixed is not None else ())


def fixed_counts(start: Plan, fixed: Any) -> list[int]:
    """Return how many stops of each route stay.

    Raises:
        InvalidInput: There is no such vehicle, stop or time.
    """
    if isinstance(fixed, Mapping):
        known = {route.vehicle for route in start.routes}
        if unknown := [key for key in fixed if str(key) not in known]:
            raise InvalidInput(f"fixed: there is no vehicle {unknown[0]!r}; the plan has {', '.join(sorted(known))}")
        counts = {str(key): value for key, value in fixed.items()}
        for key, value in counts.items():
            most = next(len(route.stops) for route in start.routes if route.vehicle == key)
            if type(value) is not int or not 0 <= value <= most:
                raise InvalidInput(f"fixed: vehicle {key}: found {value!r}; expected a number of stops, 0 to {most}")
        return [counts.get(route.vehicle, 0) for route in start.routes]
    if isinstance(fixed, list | tuple | set | frozenset):
        wanted = {str(key) for key in fixed}
        known = {visit.id for route in start.routes for visit in route.stops}
        if missing := sorted(wanted - known):
            raise InvalidInput(f"fixed: the plan does not visit {', '.join(missing)}; leave them out")
        return [
            max((k for k, visit in enumerate(route.stops, start=1) if visit.id in wanted), default=0)
            for route in start.routes
        ]
    try:
        now = moment(fixed)
    except BadCell as error:
        raise InvalidInput(
            f"fixed: found {fixed!r}; {error}; or numbers of stops by vehicle, or ids of stops"
        ) from None
    if isinstance(now, datetime):
        if start.task.origin is None or (start.task.origin.tzinfo is None) != (now.tzinfo is None):
            raise InvalidInput(
                f"fixed: found the date {fixed!r}, and the plan's times have none like it; write it alike"
            )
        now = (now - start.task.origin).total_seconds() / 60
    return [sum(before.departure < now for before in route.visits[: len(route.stops)]) for route in start.routes]
