"""Checks of the VRP family: instances, and the routes of complete tours, in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from routing_gym.arrays import Array, batch_size, to_numpy
from routing_gym.problem import InfeasibleTour, InvalidInstance
from routing_gym.problems.checks import TOLERANCE, IntArray
from routing_gym.problems.geometry import lengths_from, lengths_to_depot

FloatArray = npt.NDArray[np.float64]
MOST_SHRUNK = 16.0  # times, by `VRP.rescale`, whose masks allow as many times more beyond a limit


def check_each_alone(problem: Any, instance: Any) -> None:
    """Check that a vehicle can serve each customer alone, with a margin to what masks allow.

    Raises:
        InvalidInstance: With row, customer, values and remedy.
    """

    def refuse(bad: Array, field: str, say: str, *values: Array) -> None:
        if bad.any():
            row, node = map(int, np.argwhere(bad)[0])
            numbers = [f"{np.broadcast_to(value, bad.shape)[row, node]:.6g}" for value in values]
            raise InvalidInstance(f"{field}: row {row}, node {node}: {say.format(*numbers)}")

    margin = TOLERANCE / 4
    depot = np.zeros(batch_size(instance), dtype=np.int64)
    out = lengths_from(instance, depot).astype(np.float64)
    back = np.zeros_like(out) if problem.open_routes else lengths_to_depot(instance).astype(np.float64)
    if instance.max_length is not None:
        limit = instance.max_length[:, None]
        say = "a route to it alone is {} long, above the limit {}; raise the limit, or leave the customer out"
        refuse(out + back > limit + margin, "max_length", say, out + back, limit)
    if instance.ready_time is not None:
        ready, due = instance.ready_time.astype(np.float64), instance.due_time.astype(np.float64)
        refuse(ready > due, "due_time", "the window closes at {}, before it opens at {}; exchange them?", due, ready)
        arrival = ready[:, :1] + out
        say = "the way from the depot takes until {}, and the window closes at {}; let it close later"
        refuse(arrival > due + margin, "due_time", say, arrival, due)
        if not problem.open_routes:
            home = np.maximum(arrival, ready) + instance.service_time + back
            say = "a vehicle that serves it alone is back at {}, and the depot closes at {}; let it close later"
            refuse(home > due[:, :1] + margin, "due_time", say, home, due[:, :1])


def check_order(backhaul: npt.NDArray[np.bool_], tours: IntArray) -> None:
    """Check that no route goes on from a backhaul to a linehaul.

    Raises:
        InfeasibleTour: At the first such linehaul.
    """
    kind = np.take_along_axis(backhaul, tours, axis=1)
    late = np.pad(kind, ((0, 0), (1, 0)))[:, :-1] & ~kind & (tours > 0)
    if late.any():
        row, step = map(int, np.argwhere(late)[0])
        found = f"node {tours[row, step]}, a linehaul, comes after node {tours[row, step - 1]}, a backhaul"
        raise InfeasibleTour(row, step, f"{found}; return to the depot (0) first")


def check_limits(problem: Any, instance: Any, tours: IntArray, legs: FloatArray) -> None:
    """Check how long routes are, and when they reach their nodes.

    Raises:
        InfeasibleTour: At the first node that is too far, or reached too late.
    """
    given = {key: to_numpy(value).astype(np.float64) for key, value in vars(instance).items() if value is not None}
    counts = (tours > 0) | (not problem.open_routes)  # nobody waits for the end of an open route

    def refuse(what: str, values: FloatArray, limits: FloatArray) -> None:
        bad = counts & (values > limits + MOST_SHRUNK * TOLERANCE)
        if bad.any():
            row, step = map(int, np.argwhere(bad)[0])
            found = f"{what} {values[row, step]:.6g} at node {tours[row, step]} exceeds {limits[row, step]:.6g}"
            raise InfeasibleTour(row, step, f"{found}; return to the depot (0) earlier")

    if problem.max_length is not None:
        lengths, length = [], np.zeros(len(tours))
        for leg, away in zip(legs.T, tours.T > 0, strict=True):
            lengths.append(length + leg)
            length = lengths[-1] * away
        refuse("length", np.stack(lengths, axis=1), np.broadcast_to(given["max_length"][:, None], tours.shape))
    if problem.time_windows:
        opens, closes, service = (
            np.take_along_axis(given[field], tours, axis=1) for field in ("ready_time", "due_time", "service_time")
        )
        arrivals, time = [], given["ready_time"][:, 0]
        for step, leg in enumerate(legs.T):
            arrivals.append(time + leg)
            served = np.maximum(arrivals[-1], opens[:, step]) + service[:, step]
            time = np.where(tours[:, step] > 0, served, opens[:, step])
        refuse("arrival time", np.stack(arrivals, axis=1), closes)
