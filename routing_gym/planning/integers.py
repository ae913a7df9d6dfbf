"""A task in integers, for PyVRP and OR-Tools."""

from __future__ import annotations

import numpy as np

from routing_gym.arrays import FloatArray, IntArray
from routing_gym.planning.task import Task
from routing_gym.problems.geometry import unit_of

COST_SCALE = 4e4  # integers in the cost of the longest edge, so that costs and prices of stops can be distinguished
LEAST_SCALE = 400.0  # least number of these for the cheapest vehicle, as long as the dearest has at most MOST_SCALE
MOST_SCALE = 4e9
TICKS = 6000.0  # integers per minute: whole seconds and hundredths of minutes are exact
NEVER = 2**52
# Least cost, in longest edges, of an edge to a refused stop, or from a pickup to a delivery if deliveries come first.
FORBIDDEN = 2500
OUTWEIGHS = 8  # the same cost, relative to the price of a stop that must be served
MOST_PRICE = 4e10  # largest penalty or fixed cost
UNSERVED = 3.0  # price of a stop that must be served, in longest edges: with a larger one, PyVRP's plans are longer


def in_ticks(values: FloatArray, ticks: float, up: bool) -> IntArray:
    """Return minutes as integers, rounded inwards, so that every plan found is feasible in time."""
    rounded = np.ceil(values * ticks - 1e-6) if up else np.floor(values * ticks + 1e-6)
    return np.asarray(np.clip(rounded, 0, NEVER), dtype=np.int64)


def rounded_up(values: FloatArray) -> IntArray:
    """Return the next integers; rounding errors do not count."""
    return np.asarray(np.ceil(values - 1e-6), dtype=np.int64)


class Numbers:
    """Task in integers, but for `legs` and `km`, which are rounded where they are multiplied by costs.

    Args:
        task: A plain task.
        whole: Numbers of the task with all types of vehicles, of which `task` has one; they share a scale.

    Attributes:
        scale: Integers in a cost of 1.
        dearest: Highest cost per unit of a vehicle.
        edge: Cost of the longest edge for the dearest vehicle.
        extent: Cost of any routes without fixed costs, and the largest penalty or fixed cost, in integers.
        forbidding: Cost of a forbidden edge.
        unserved: Least price of a stop that must be served.
        price: Cost of leaving each stop out; see `Task.prices`.
    """

    def __init__(self, task: Task, whole: Numbers | None = None) -> None:
        unit = unit_of(task.costs)
        self.task = task
        if whole is None:
            used = [kind for kind in task.types if vehicles_of(kind)] or [task]
            costs = [kind.cost_per_unit for kind in used if kind.cost_per_unit] or [1.0]
            fixed_cost = max(kind.fixed_cost for kind in used)
            self.dearest, cheapest = max(costs), min(costs)
            longest = min(max(COST_SCALE, LEAST_SCALE * self.dearest / cheapest), MOST_SCALE)
            self.scale = longest / (unit * self.dearest)
            self.edge = edge = float(self.scale * self.dearest * task.costs.max())
            penalties = task.penalty[np.isfinite(task.penalty)]
            self.extent = len(task.ids) * 2.0 * edge, self.scale * max(fixed_cost, penalties.max(initial=0.0))
            most = float(self.in_scale(penalties).max(initial=0.0))
            self.unserved = UNSERVED * edge + 2.0 * most + float(self.in_scale(fixed_cost))
            self.forbidding = round(max(FORBIDDEN * longest, OUTWEIGHS * self.unserved))
        else:
            self.dearest, self.scale, self.extent = whole.dearest, whole.scale, whole.extent
            self.edge, self.unserved, self.forbidding = whole.edge, whole.unserved, whole.forbidding
        self.legs = task.costs * self.scale
        ticks = TICKS / min(1.0, unit_of(task.minutes))
        self.durations = in_ticks(task.minutes, ticks, up=True)
        self.ready, self.service = in_ticks(task.ready, ticks, up=True), in_ticks(task.service, ticks, up=True)
        due = in_ticks(np.where(np.isfinite(task.due), task.due, NEVER), ticks, up=False)
        self.due = np.maximum(due, self.ready)  # a window shorter than a tick would close before it opens
        self.max_minutes = None if task.max_minutes is None else int(min(task.max_minutes * ticks + 1e-6, NEVER))
        per_km = self.scale * unit / unit_of(task.km)
        self.km = task.km * per_km
        self.max_km = None if task.max_km is None else task.max_km * per_km
        self.price = np.rint(np.minimum(self.in_scale(task.prices), self.forbidding / 2))
        self.fixed_cost = round(float(self.in_scale(task.fixed_cost)))
        self.forbidden = np.zeros(task.costs.shape, dtype=bool)
        depots = list(task.depots)
        if task.open:
            self.legs[:, depots] = self.durations[:, depots] = self.km[:, depots] = 0
        if not task.mixed and task.pickup.any():
            back = np.flatnonzero(task.pickup > 0)
            linehaul = np.setdiff1d(np.flatnonzero(task.pickup == 0), depots)
            self.forbidden[np.ix_(back, linehaul)] = True
            if task.delivers:
                self.forbidden[np.ix_(np.array(depots), back)] = True

    def in_scale(self, costs: FloatArray | float) -> FloatArray:
        """Return penalties or fixed costs in integers, up to `MOST_PRICE`.

        If some are larger, those above the cost of any routes are moved together in the same order, since PyVRP's
        penalties would not exceed them.
        """
        scaled, (routes, most) = np.asarray(costs * self.scale), self.extent
        if most <= MOST_PRICE:
            return scaled
        routes = min(routes, MOST_PRICE / 2)
        share = (MOST_PRICE - routes) / (most - routes)
        return np.where(scaled > routes, routes + share * (scaled - routes), scaled)


def of_types(numbers: Numbers) -> list[Numbers]:
    """Return the numbers of each type of vehicle."""
    return [Numbers(kind, numbers) for kind in numbers.task.types] or [numbers]


def vehicles_of(task: Task) -> int:
    """Return the number of vehicles that a plan may use; more than the number of stops are useless."""
    most = len(task.stops)
    return most if task.count is None else min(task.count, most)
