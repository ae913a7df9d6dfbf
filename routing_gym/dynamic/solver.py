"""Routes by PyVRP (Wouda, Lan and Kool, 2024; MIT licence), for all requests, with prizes, or in hindsight.

All cases have one formulation: a VRPTW on durations. Requests may have a release time, before which no vehicle with
them leaves, and may be optional, with a prize.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from routing_gym.arrays import BoolArray
from routing_gym.dynamic.days import Day, IntArray
from routing_gym.dynamic.routers import Router, nearest
from routing_gym.optional import require
from routing_gym.problems.checks import check_integer
from routing_gym.solvers.external.pyvrp_shared import one_depot, search

Tour = list[int]  # ids of requests, 0 for the depot


@dataclass(frozen=True)
class Limits:
    """Limits of PyVRP's search; the first one that is reached ends it.

    Attributes:
        seconds: Time limit in seconds; None for no limit.
        iterations: Largest number of iterations, for results that do not depend on the machine; None for no limit.
        seed: Random seed.
    """

    seconds: float | None = 1.0
    iterations: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.seconds is None and self.iterations is None:
            raise ValueError("seconds and iterations are None: set at least one, or the search never ends")
        if self.seconds is not None and not (isinstance(self.seconds, (int, float, np.number)) and self.seconds > 0):
            raise ValueError(f"seconds must be a positive number, got {self.seconds!r}")
        object.__setattr__(self, "seed", check_integer("seed", self.seed, 0))
        if self.iterations is not None:
            object.__setattr__(self, "iterations", check_integer("iterations", self.iterations, 1))

    def stop(self) -> Any:
        """Return PyVRP's stopping criterion."""
        stops = require("pyvrp.stop", "solvers")
        limits = []
        if self.seconds is not None:
            limits.append(stops.MaxRuntime(self.seconds))
        if self.iterations is not None:
            limits.append(stops.MaxIterations(self.iterations))
        return stops.MultipleCriteria(limits)


def check_limits(limits: Limits) -> None:
    """Check that limits are `Limits`.

    Raises:
        TypeError: They are something else, such as a number of seconds.
    """
    if not isinstance(limits, Limits):
        raise TypeError(f"limits: expected Limits, such as Limits(seconds=0.5); got {limits!r}")


def solve(
    day: Day,
    row: int,
    slots: IntArray,
    leaving: int,
    limits: Limits,
    *,
    release: IntArray | None = None,
    prize: IntArray | None = None,
    required: BoolArray | None = None,
    forbidden: BoolArray | None = None,
) -> Tour:
    """Solve one row's routing problem.

    Args:
        day: B days.
        row: Index of the day in the batch.
        slots: int64 (K,), the request slots to route.
        leaving: Earliest departure of vehicles.
        limits: Limits of the search.
        release: int64 (K,), earliest departure of a vehicle with the request; None for no release times.
        prize: int64 (K,), driving time that serving an optional request is worth; None if all are required.
        required: bool (K,), the required requests; only with `prize`.
        forbidden: bool (K, K), pairs of requests that may not follow each other.

    Returns:
        Ids of the served requests, with a 0 after each route.

    Raises:
        ImportError: PyVRP is missing.
        RuntimeError: No feasible routes were found within the limits.
    """
    if not len(slots):
        return []
    pyvrp = require("pyvrp", "solvers")
    nodes = np.concatenate([[0], day.customer[row, slots]])
    durations = day.durations[row][np.ix_(nodes, nodes)].astype(np.int64)
    distances = durations
    if forbidden is not None:
        distances = durations.copy()
        distances[1:, 1:][forbidden] += 10 * int(day.closing[row])
    given: dict[str, npt.NDArray[Any]] = {
        "service_duration": day.service_time[row, slots],
        "tw_early": day.time_window[row, slots, 0],
        "tw_late": day.time_window[row, slots, 1],
    }
    if release is not None:
        given["release_time"] = release
    if prize is not None:
        required = np.zeros(len(slots), dtype=np.bool_) if required is None else required
        given |= {"prize": np.where(required, 0, prize), "required": required}
    columns = {key: values.tolist() for key, values in given.items()}
    clients = [
        pyvrp.Client(place + 1, delivery=[demand], **{key: values[place] for key, values in columns.items()})
        for place, demand in enumerate(day.demand[row, slots].tolist())
    ]
    vehicles = pyvrp.VehicleType(
        num_available=len(slots),
        capacity=[int(day.capacity[row])],
        tw_early=int(leaving),
        tw_late=int(day.closing[row]),
    )
    data = one_depot(pyvrp, distances, clients, vehicles, durations)
    alone = [[place] for place, client in enumerate(clients) if client.required]  # a feasible start makes the result so
    result = search(data, limits.stop(), limits.seed, start=pyvrp.Solution(data, alone))
    if not result.is_feasible():
        raise RuntimeError(f"PyVRP found no feasible routes for {len(slots)} requests; raise the time limit")
    ids = (slots + 1).tolist()
    tour: Tour = []
    for route in result.best.routes():
        tour += [*(ids[stop.idx] for stop in route if stop.is_client()), 0]
    return tour


@dataclass(frozen=True)
class PyVRPRouter:
    """Epoch router by PyVRP, which uses up its limits in every epoch in which more than one request leaves.

    Attributes:
        limits: Limits of the search in each epoch.
    """

    limits: Limits = Limits()

    def __post_init__(self) -> None:
        check_limits(self.limits)

    def __call__(self, day: Day, chosen: BoolArray, leaving: IntArray) -> IntArray:
        tours = [
            solve(day, row, np.flatnonzero(chosen[row]), int(leaving[row]), self.limits)
            if chosen[row].sum() > 1
            else (np.flatnonzero(chosen[row]) + 1).tolist()
            for row in range(len(chosen))
        ]
        return pad(tours)


ROUTERS: dict[str, Router] = {"nearest": nearest, "pyvrp": PyVRPRouter()}


def pad(tours: list[Tour]) -> IntArray:
    """Stack tours of different lengths, padded with zeros: int64 (B, T)."""
    padded = np.zeros((len(tours), max(map(len, tours), default=0)), dtype=np.int64)
    for row, tour in enumerate(tours):
        padded[row, : len(tour)] = tour
    return padded


def prize_collecting(
    day: Day, row: int, is_open: BoolArray, required: BoolArray, leaving: int, prize: IntArray, limits: Limits
) -> Tour:
    """Solve the prize-collecting VRPTW of an epoch: choose optional requests by their prizes, and route them.

    Args:
        day: B days.
        row: Index of the day in the batch.
        is_open: bool (N,), the requests to choose from.
        required: bool (N,), the requests that must leave.
        leaving: Departure time of the vehicles.
        prize: int64 (N,), driving time that serving a request now is worth.
        limits: Limits of the search.
    """
    slots = np.flatnonzero(is_open & (required | (prize > 0)))  # serving a request without a positive prize never pays
    return solve(day, row, slots, leaving, limits, prize=prize[slots], required=required[slots])
