"""Hindsight solutions: the cost of a day if all requests were known in advance.

The hindsight problem of the EURO Meets NeurIPS 2022 competition is a VRPTW of all requests of the day with release
times. A vehicle leaves once all requests of its route are released, so the routes can be driven epoch by epoch, each in
the epoch in which its last request arrives. The cost of optimal routes is a lower bound on that of every policy.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from itertools import count

import numpy as np

from routing_gym.arrays import BoolArray, select
from routing_gym.dynamic.days import NEVER, Day, IntArray, routes_of
from routing_gym.dynamic.rules import check_visits, route_cost
from routing_gym.dynamic.solver import Limits, Tour, solve
from routing_gym.solvers.runtime.work import Executor, Inline, Lost, Task, Work


def release_times(day: Day) -> IntArray:
    """Return the earliest departure of a vehicle with each request: int64 (B, N); 0 in slots without a request."""
    exists = day.arrival < NEVER
    return np.where(exists, np.where(exists, day.arrival, 0) * day.epoch_duration[:, None] + day.margin[:, None], 0)


def solve_hindsight(day: Day, row: int, limits: Limits) -> Tour:
    """Return routes of the whole day in hindsight, found by PyVRP: ids of requests, 0 between routes."""
    slots = np.flatnonzero(day.arrival[row] < NEVER)
    first = int(day.first_epoch[row] * day.epoch_duration[row] + day.margin[row])
    return solve(day, row, slots, first, limits, release=release_times(day)[row, slots])


class HindsightWork(Work):
    """Work that solves single days in hindsight."""

    name, packages = "hindsight", ("pyvrp",)

    def __init__(self, limits: Limits) -> None:
        self.limits = limits

    def do(self, day: Day) -> Tour:
        return solve_hindsight(day, 0, self.limits)


def solve_in_hindsight(
    batches: Iterable[Day], limits: Limits, executor: Executor | None = None
) -> Generator[tuple[Day, list[Tour]], None, None]:
    """Solve batches of days in hindsight; yield them in order, with the routes of each row.

    Args:
        batches: Days, consumed as workers become free; the workers continue while the caller uses a batch.
        limits: Limits of the search for each day.
        executor: Executor that solves the days; None for this process.

    Raises:
        ValueError: The executor's cluster does not exist.
        ChildProcessError: A worker died.
        RuntimeError: No feasible routes were found within the limits.
    """
    executor, work = executor or Inline(), HindsightWork(limits)
    executor.prepare(work)
    return in_order(batches, work, executor)


def in_order(
    batches: Iterable[Day], work: HindsightWork, executor: Executor
) -> Generator[tuple[Day, list[Tour]], None, None]:
    """Solve batches, each day as a task, and yield them in their order; see `solve_in_hindsight`."""
    places: dict[int, tuple[dict[int, Tour], int]] = {}  # for each key of a task: the batch's tours, and the row
    waiting: deque[tuple[Day, dict[int, Tour]]] = deque()

    def tasks() -> Iterator[Task]:
        key = count()
        for day in batches:
            waiting.append((day, {}))
            for row in range(len(day.arrival)):
                places[number := next(key)] = waiting[-1][1], row
                yield number, (select(day, [row]),)

    with closing(executor.run(work, tasks())) as results:
        for key, tour in results:
            if isinstance(tour, Lost):
                raise ChildProcessError(f"hindsight: {tour.reason}")
            tours, row = places.pop(key)
            tours[row] = tour
            while waiting and len(waiting[0][1]) == len(waiting[0][0].arrival):
                day, found = waiting.popleft()
                yield day, [found[row] for row in range(len(found))]


def dispatch_epochs(day: Day, row: int, tour: Tour) -> IntArray:
    """Return the epoch in which each request leaves: that in which the last request of its route arrives, int64 (N,).

    It is `NEVER` in slots that the tour does not visit.
    """
    epochs = np.full(day.num_slots, NEVER, dtype=np.int64)
    for ids in routes_of(tour):
        route = np.array(ids) - 1
        epochs[route] = day.arrival[row, route].max()
    return epochs


def hindsight_cost(day: Day, row: int, tour: Tour) -> int:
    """Check routes in hindsight and return their driving duration.

    Raises:
        InfeasibleTour: A route breaks a rule, or a request is not served exactly once.
    """
    one, cost = select(day, [row]), 0
    check_visits(one.arrival < NEVER, np.array([tour], dtype=np.int64))
    epochs = dispatch_epochs(day, row, tour)
    for epoch in np.unique(epochs[day.arrival[row] < NEVER]).tolist():
        chosen: BoolArray = (epochs == epoch)[None]
        part = [stop for stop in tour if not stop or chosen[0, stop - 1]]
        cost += int(
            route_cost(one, chosen, np.array([part], dtype=np.int64), epoch * one.epoch_duration + one.margin)[0]
        )
    return cost
