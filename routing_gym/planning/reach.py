"""Checks that stops and pairs can be served in time: directly or, if that is faster, via other stops.

Matrices need not satisfy the triangle inequality, so that a stop may be in time only on the way from another one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from routing_gym.arrays import FloatArray
from routing_gym.planning.table import InvalidInput, Table
from routing_gym.planning.task import SLACK, Task
from routing_gym.problems.geometry import earliest_arrivals

SHORTER = 0.99  # a way via another stop counts as shorter if it is less than this share; matrices are rounded
Ways = Callable[[Task, int, float], FloatArray]  # earliest arrivals at all rows after leaving a row at a time


def check_reach(task: Task, table: Table, headers: Mapping[str, str]) -> None:
    """Check that every stop that must be served can be reached in time.

    Raises:
        InvalidInput: No vehicle reaches a stop, or is back, in time; the message has row, column, value and remedy.
    """
    for row in task.stops:
        if np.isfinite(task.penalty[row]):
            continue
        kinds = serving(task, (row,))
        if any(keeps(kind, row, direct) for kind in kinds):
            continue
        times = [(kind, there, back) for kind in kinds for there, back in [earliest(kind, (row,))]]
        if not any(there <= task.due[row] + SLACK for _, there, _ in times):
            first, there, _ = min(times, key=lambda one: one[1])
            told = (
                f"a vehicle that leaves at {task.at(first.ready[first.depot])} arrives at {task.at(there)}, when the "
                "window is closed; let it close later, start earlier, or give the stop a penalty"
            )
            raise table.error(row, headers.get("due_time", "latest"), told, task.at(task.due[row]))
        if not any(back <= kind.due[kind.depot] + SLACK for kind, _, back in times):
            first, _, back = min(times, key=lambda one: one[2])
            if task.open:
                raise InvalidInput(
                    f"vehicles, column latest: found {task.at(first.due[first.depot])}; a vehicle that serves only "
                    f"{task.names[row]} is done at {task.at(back)}; let it work longer, or give the stop a penalty"
                )
            told = (
                f"a vehicle that serves only this stop is back at {task.at(back)}, and the depot closes at "
                f"{task.at(first.due[first.depot])}; let it close later, or give the stop a penalty"
            )
            raise table.error(row, headers.get("ready_time", "earliest"), told, task.at(task.ready[row]))


def check_pairs(task: Task, table: Table, headers: Mapping[str, str]) -> None:
    """Check that a vehicle may serve both stops of each pair that must be served, and is back in time.

    Raises:
        InvalidInput: A pair cannot be served; the message has row, column, value and remedy.
    """
    sources = np.zeros(0, dtype=int) if task.pickup_at is None else task.pickup_at
    for row in np.flatnonzero(sources).tolist():
        pair = int(sources[row]), row
        if np.isfinite(task.penalty[list(pair)]).all():
            continue
        source, kinds = task.names[pair[0]], serving(task, pair)
        if not kinds:
            told = f"no vehicle may serve this stop and {source}, where its goods are picked up"
            raise table.error(row, headers["vehicles"], f"{told}; name one, or give both stops a penalty")
        if not any(in_time(kind, pair, earliest(kind, pair)) for kind in kinds):
            told = f"no vehicle is at {source}, then here, and back in time"
            remedy = "let a window close later, or give both stops a penalty"
            raise table.error(row, headers.get("due_time", "latest"), f"{told}; {remedy}", task.at(task.due[row]))


def detours(task: Task) -> tuple[str, ...]:
    """Return a note on the first stop, if any, that breaks a limit alone, on a way that is shorter via others."""
    shorter = shortcuts(task)
    for row in filter(shorter.__contains__, task.stops):
        kinds = [limits_of(kind) for kind in serving(task, (row,))]
        if any(all(keeps(one, row, direct) for one in limits) for limits in kinds):
            continue
        for limits in kinds:
            if all(keeps(one, row, shortest) for one in limits):
                return (detour(next(one for one in limits if not keeps(one, row, direct)), row),)
    return ()


def shortcuts(task: Task) -> set[int]:
    """Return the rows whose way from or to a depot is at least 1 % shorter via another row, in minutes or km."""
    found = np.zeros(len(task.ids), dtype=bool)
    for matrix in (task.minutes, task.km):
        for depot in task.depots:
            out, back = matrix[depot], matrix[:, depot]
            found |= (out[:, None] + matrix).min(axis=0) < SHORTER * out
            found |= (matrix + back).min(axis=1) < SHORTER * back
    return set(np.flatnonzero(found).tolist())


def detour(kind: Task, row: int) -> str:
    """Return the note on a stop; see `detours`. The minutes of the task may be km: see `limits_of`."""
    ends = [(kind.depot, row), (row, kind.depot)]
    free = replace(kind, ready=0 * kind.ready, due=np.full(len(kind.due), np.inf), service=0 * kind.service)
    legs = [(float(kind.minutes[one]), float(shortest(free, one[0], 0.0)[one[1]]), one) for one in ends]
    far, near, (start, end) = max(legs, key=lambda leg: leg[0] - leg[1])
    unit = "km" if kind.minutes is kind.km else "minutes"
    return (
        f"from {kind.names[start]} to {kind.names[end]} it is {far:g} {unit} directly, but {near:g} via other stops; a "
        f"route with {kind.names[row]} alone breaks a limit; if that is wrong, correct the matrix"
    )


def limits_of(kind: Task) -> list[Task]:
    """Return tasks whose time windows are those of a type of vehicles, then its limits on km and minutes, if any."""
    size, never = len(kind.ids), 0 * kind.ready
    limits = [kind]
    if kind.max_km is not None:
        due = np.full(size, kind.max_km)
        limits.append(replace(kind, minutes=kind.km, ready=never, due=due, service=never))
    if kind.max_minutes is not None:
        limits.append(replace(kind, ready=never, due=np.full(size, kind.max_minutes)))
    return limits


def serving(task: Task, rows: Sequence[int]) -> list[Task]:
    """Return the types of vehicles that may serve all of some stops."""
    kinds = task.types or (task,)
    return [kind for kind in kinds if kind.allowed is None or kind.allowed[list(rows)].all()]


def earliest(kind: Task, rows: Sequence[int]) -> list[float]:
    """Return the earliest arrivals at some stops in this order and back at the depot, via other stops if necessary."""
    found = arrivals(kind, rows, direct)
    return found if in_time(kind, rows, found) else arrivals(kind, rows, shortest)


def keeps(kind: Task, row: int, ways: Ways) -> bool:
    """Return whether a vehicle that serves a stop keeps all time windows."""
    return in_time(kind, (row,), arrivals(kind, (row,), ways))


def in_time(kind: Task, rows: Sequence[int], times: Sequence[float]) -> bool:
    """Return whether arrivals at some stops and back at the depot are in time."""
    latest = [*kind.due[list(rows)].tolist(), float(kind.due[kind.depot])]
    return all(time <= late + SLACK for time, late in zip(times, latest, strict=True))


def arrivals(kind: Task, rows: Sequence[int], ways: Ways) -> list[float]:
    """Return the arrivals at some stops in this order, then back at the depot; or, if open, the end of service."""
    time, before, found = float(kind.ready[kind.depot]), kind.depot, []
    for row in rows:
        found.append(float(ways(kind, before, time)[row]))
        time, before = max(found[-1], float(kind.ready[row])) + float(kind.service[row]), row
    return [*found, time if kind.open else float(ways(kind, before, time)[kind.depot])]


def direct(kind: Task, row: int, time: float) -> FloatArray:
    """Return the arrivals of a vehicle that leaves a row at a time and drives to the next one directly."""
    times: FloatArray = time + kind.minutes[row]
    return times


def shortest(kind: Task, row: int, time: float) -> FloatArray:
    """Return the earliest arrivals of a vehicle that leaves a row at a time and serves any other stops on its way."""
    via = [stop for stop in kind.stops if kind.allowed is None or kind.allowed[stop]]
    return earliest_arrivals(kind.minutes, row, time, (kind.ready, kind.due, kind.service), via, SLACK)
