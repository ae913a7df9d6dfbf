"""Rules of the dynamic VRPTW as pure functions over B days: open requests, requests that must leave, route costs.

The vehicles of epoch e leave at e * epoch_duration + margin. Their number is not limited.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

import numpy as np

from routing_gym.arrays import BoolArray
from routing_gym.dynamic.days import NEVER, Day, IntArray, latest_departures
from routing_gym.problem import InfeasibleTour


@dataclass(frozen=True)
class DayState:
    """States of B days. `latest_departure` never changes; it is stored so that `must_go` needs one comparison."""

    of_requests: ClassVar[tuple[str, ...]] = ("latest_departure",)  # fields that tell of requests before they arrive

    epoch: IntArray  # int64 (B,); last_epoch + 1 at the end of the day
    dispatched: BoolArray  # bool (B, N)
    latest_departure: IntArray  # int64 (B, N), latest departure with which a request can be served alone


StateT = TypeVar("StateT", bound=DayState)


def initial(day: Day) -> DayState:
    """Return the state at the start of the first epoch."""
    return DayState(day.first_epoch.copy(), np.zeros(day.arrival.shape, dtype=np.bool_), latest_departures(day))


def done(day: Day, state: DayState) -> BoolArray:
    """Return a mask of the days that are over: bool (B,)."""
    return np.asarray(state.epoch > day.last_epoch)


def departure(day: Day, state: DayState) -> IntArray:
    """Return the departure time of this epoch's vehicles: int64 (B,)."""
    return state.epoch * day.epoch_duration + day.margin


def known_requests(day: Day, state: DayState) -> BoolArray:
    """Return a mask of the requests that have arrived: bool (B, N)."""
    return np.asarray(day.arrival <= np.minimum(state.epoch, day.last_epoch)[:, None])


def open_requests(day: Day, state: DayState) -> BoolArray:
    """Return a mask of the requests that have arrived and not left: bool (B, N). None are open once the day is over."""
    return known_requests(day, state) & ~state.dispatched


def must_go(day: Day, state: DayState) -> BoolArray:
    """Return a mask of the open requests that cannot wait: bool (B, N).

    These are the requests that no vehicle could serve in time if it left one epoch later; in the last epoch, all.
    """
    too_late = (departure(day, state) + day.epoch_duration)[:, None] > state.latest_departure
    return open_requests(day, state) & (too_late | (state.epoch >= day.last_epoch)[:, None])


def dispatch(state: StateT, chosen: BoolArray) -> StateT:
    """Dispatch the requests that `chosen`, bool (B, N), marks, and advance to the next epoch."""
    return replace(state, epoch=state.epoch + 1, dispatched=state.dispatched | chosen)


def known_part(day: Day, state: DayState) -> Day:
    """Return the days with only the requests that have arrived, which is all that a policy may observe."""
    known = known_requests(day, state)
    hidden = {name: np.where(known, getattr(day, name), 0) for name in ("customer", "demand", "service_time")}
    window = np.where(known[..., None], day.time_window, 0)
    return replace(day, arrival=np.where(known, day.arrival, NEVER), time_window=window, **hidden)


def known_state(day: Day, state: StateT) -> StateT:
    """Return the states without the times of requests that have not arrived; these times are -1."""
    known = known_requests(day, state)
    return replace(state, **{name: np.where(known, getattr(state, name), -1) for name in state.of_requests})


def route_cost(day: Day, chosen: BoolArray, tours: IntArray, leaving: IntArray) -> IntArray:
    """Check routes and return their driving duration.

    Args:
        day: B days.
        chosen: bool (B, N), the requests to serve, each exactly once.
        tours: int64 (B, T), ids of requests in the order of the visits; 0 for the depot, which ends a route. A tour
            starts and ends at the depot, with or without zeros there.
        leaving: int64 (B,), departure time of the vehicles.

    Returns:
        Driving durations: int64 (B,).

    Raises:
        InfeasibleTour: A route breaks a rule. The message has the row and the step.
        ValueError: The tours have a wrong shape or type.
    """
    try:
        tours = np.asarray(tours)  # may come from the user's own router
    except ValueError:  # lists of different lengths
        tours = np.empty(0, dtype=np.object_)
    if tours.ndim == 2 and not tours.size:  # nobody leaves; without numbers, NumPy makes it float64
        tours = tours.astype(np.int64)
    if tours.ndim != 2 or len(tours) != len(chosen) or not np.issubdtype(tours.dtype, np.integer):
        raise ValueError(f"tours: expected integers of shape ({len(chosen)}, T), got {tours.dtype} {tours.shape}")
    tours = np.pad(tours, ((0, 0), (0, 1)))  # every route ends at the depot
    check_visits(chosen, tours)
    rows = np.arange(len(tours))[:, None]
    at_depot, slot = tours == 0, np.maximum(tours - 1, 0)

    def visited(values: IntArray) -> IntArray:
        return np.where(at_depot, 0, values[rows, slot])

    location = visited(day.customer)
    before = np.pad(location, ((0, 0), (1, 0)))[:, :-1]
    legs = day.durations[rows, before, location]
    check_loads(day, tours, visited(day.demand))
    check_times(day, tours, legs, leaving, visited)
    return np.asarray(legs.sum(axis=1))


def check_visits(chosen: BoolArray, tours: IntArray) -> None:
    """Check that tours (B, T) visit the chosen requests, bool (B, N), each exactly once, and no others."""
    outside = (tours < 0) | (tours > chosen.shape[1])
    refuse(outside, tours, "there is no such request")
    counts = np.zeros((len(tours), chosen.shape[1] + 1), dtype=np.int64)
    np.add.at(counts, (np.arange(len(tours))[:, None], tours), 1)
    rows = np.arange(len(tours))[:, None]
    others = np.pad(~chosen, ((0, 0), (1, 0)))  # the depot is always allowed
    refuse(others[rows, tours], tours, "it was not to leave in this epoch")
    refuse((counts[rows, tours] > 1) & (tours > 0), tours, "it is visited more than once")
    missing = chosen & (counts[:, 1:] == 0)
    if missing.any():
        row, slot = map(int, np.argwhere(missing)[0])
        raise InfeasibleTour(row, tours.shape[1], f"request {slot + 1} was to leave in this epoch; no route visits it")


def check_loads(day: Day, tours: IntArray, demand: IntArray) -> None:
    """Check that no route of tours (B, T), with the demands (B, T) of its visits, exceeds the capacity."""
    total = np.cumsum(demand, axis=1)
    before = np.maximum.accumulate(np.where(tours == 0, total, 0), axis=1)  # delivered on earlier routes
    refuse(total - before > day.capacity[:, None], tours, "the route exceeds the capacity")


def check_times(day: Day, tours: IntArray, legs: IntArray, leaving: IntArray, visited: Any) -> None:
    """Check that every visit of tours (B, T) is in time, and that vehicles return before the depot closes."""
    earliest, latest = visited(day.time_window[..., 0]), visited(day.time_window[..., 1])
    latest = np.where(tours == 0, day.closing[:, None], latest)
    service = visited(day.service_time)
    clock, started = leaving, np.empty_like(tours)
    for step in range(tours.shape[1]):
        started[:, step] = start = np.maximum(clock + legs[:, step], earliest[:, step])
        clock = np.where(tours[:, step] == 0, leaving, start + service[:, step])
    moved = (tours > 0) | (np.pad(tours, ((0, 0), (1, 0)))[:, :-1] > 0)  # vehicles that stay there are never late
    refuse((started > latest) & moved, tours, "the vehicle is late")


def refuse(bad: BoolArray, tours: IntArray, reason: str) -> None:
    """Raise InfeasibleTour for the first step of a tour that `bad` marks."""
    if bad.any():
        row, step = map(int, np.argwhere(bad)[0])
        node = int(tours[row, step])
        raise InfeasibleTour(row, step, f"{f'request {node}' if node else 'back at the depot'}: {reason}")
