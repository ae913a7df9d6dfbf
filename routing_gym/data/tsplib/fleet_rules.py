"""Vehicles of a file in its own numbers: feasibility, cost and routes of a tour by vehicle."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from routing_gym.arrays import BoolArray, IntArray
from routing_gym.problem import AnyProblem, InfeasibleTour, join_routes
from routing_gym.problems.geometry import MAX_FLOAT

Legs = Callable[[IntArray, IntArray], IntArray]


class Counting(NamedTuple):
    """Units in which a file's published costs are counted.

    Attributes:
        unit: Lengths and times are rounded to 1 / `unit` of the file's unit.
        cost_unit: Value of a cost of 1, in these parts.
        decimals: Number of decimals of the cost.
    """

    unit: int
    cost_unit: int
    decimals: int


@dataclass(frozen=True, eq=False)
class FleetRules:
    """Vehicles of a file with D depot nodes, one for each kind of vehicle, in the file's own integers.

    Attributes:
        counting: Units of lengths, times and costs.
        vehicles: For each depot node, the vehicles of the file, counted from 0; each drives one route.
        fixed_cost: int64 (D,), in the file's unit.
        cost_per_length: int64 (D,).
        windows: int64 (A, 3), ready time, due time and service time of each node, in 1 / `unit`; None without time
            windows.
        max_duration: int64 (D,), limit on a route from departure to return, including waiting and service; None for no
            limit.
        max_length: int64 (D,), limit on the length of a route; None for no limit.
        prize: int64 (A,), in the file's unit, lost if a customer is left out; 0 if it must be served; None if all
            customers must be served.
    """

    counting: Counting
    vehicles: tuple[tuple[int, ...], ...]
    fixed_cost: IntArray
    cost_per_length: IntArray
    windows: IntArray | None = None
    max_duration: IntArray | None = None
    max_length: IntArray | None = None
    prize: IntArray | None = None

    @property
    def num_vehicles(self) -> int:
        """Number of all vehicles of the file."""
        return sum(map(len, self.vehicles))

    def cost(self, problem: AnyProblem, instance: Any, legs: Legs, tour: IntArray) -> float:
        """Check a complete tour (T,) and return its cost in the file's numbers; for `legs` see `FileInstance.legs`.

        Raises:
            InfeasibleTour: The tour breaks a rule; the message has step, value, bound and remedy.
        """
        limits = [key for key in ("due_time", "max_length") if getattr(instance, key) is not None]
        loose = {key: np.full_like(getattr(instance, key), MAX_FLOAT) for key in limits}  # checked below, in integers
        problem.objective(replace(instance, **loose), tour[None])
        total = self.lost_prizes(problem, tour)
        driven = [0] * problem.num_depots
        for nodes in problem.split(tour.tolist()):
            start, way = nodes[0], np.array(nodes)
            step = int(np.flatnonzero(tour == nodes[1])[0])
            driven[start] += 1
            if driven[start] > len(self.vehicles[start]):
                found = f"route {driven[start]} of depot node {start} is one too many of {len(self.vehicles[start])}"
                raise InfeasibleTour(0, step, f"{found}; serve more customers on each, or use other vehicles")
            lengths = legs(way[:-1], way[1:]).tolist()
            self.check_limits(start, nodes, lengths, step)
            total += int(self.fixed_cost[start]) * self.counting.unit + int(self.cost_per_length[start]) * sum(lengths)
        if self.counting.cost_unit == 1:
            return total
        return round(total / self.counting.cost_unit, self.counting.decimals)

    def lost_prizes(self, problem: AnyProblem, tour: IntArray) -> int:
        """Return the prizes of customers left out, in 1 / `unit`; refuse to leave out those without a prize."""
        left_out = find_left_out(problem, tour, None if self.prize is None else self.prize > 0)
        return 0 if self.prize is None else int(self.prize[left_out].sum()) * self.counting.unit

    def check_limits(self, start: int, nodes: list[int], lengths: list[int], step: int) -> None:
        """Check the times, the duration and the length of one route."""
        unit = self.counting.unit
        if self.max_length is not None and sum(lengths) > self.max_length[start]:
            found = f"length {sum(lengths) / unit} of the route exceeds {int(self.max_length[start]) / unit}"
            raise InfeasibleTour(0, step, f"{found}; serve some customers on another route")
        if self.windows is not None:
            time = int(self.windows[start, 0])
            for place, (leg, node) in enumerate(zip(lengths, nodes[1:], strict=True)):
                ready, due, service = self.windows[node].tolist()
                if time + leg > due:
                    found = f"arrival time {(time + leg) / unit} at node {node} exceeds {due / unit}"
                    raise InfeasibleTour(0, step + place, f"{found}; return to the depot ({start}) earlier")
                time = max(time + leg, ready) + service
        if self.max_duration is not None and (duration := self.duration(nodes, lengths)) > self.max_duration[start]:
            found = f"duration {duration / unit} of the route exceeds {int(self.max_duration[start]) / unit}"
            raise InfeasibleTour(0, step, f"{found}; serve some customers on another route")

    def duration(self, nodes: list[int], lengths: list[int]) -> int:
        """Return the minimum time between departure and return of a route that keeps its time windows, if any.

        Source: Vidal et al. (2013), "A hybrid genetic algorithm with adaptive diversity management for a large class of
            vehicle routing problems with time-windows", equations 4 to 8, without time warp.
        """
        if self.windows is None:
            return sum(lengths)
        duration, latest = 0, int(self.windows[nodes[0], 1])  # latest departure with this duration
        for leg, node in zip(lengths, nodes[1:], strict=True):
            ready, due, service = self.windows[node].tolist()
            waits = max(0, ready - (latest + duration + leg))
            latest = min(latest, due - duration - leg)
            duration += leg + waits + service
        return duration

    def actions(self, routes: list[list[int]]) -> list[int]:
        """Return the actions for routes (customers, perhaps none) in the order of the file's vehicles."""
        kind_of = {vehicle: depot for depot, vehicles in enumerate(self.vehicles) for vehicle in vehicles}
        ends = self.prize is not None and sum(map(len, routes)) < len(self.prize) - len(self.vehicles)
        return join_routes([(kind_of[vehicle], customers) for vehicle, customers in enumerate(routes)], ends)

    def by_vehicle(self, problem: AnyProblem, tour: IntArray) -> list[list[int]]:
        """Return the customers of each vehicle of the file, up to the last vehicle in use."""
        left = [iter(vehicles) for vehicles in self.vehicles]
        routes = {next(left[nodes[0]]): nodes[1:-1] for nodes in problem.split(tour.tolist())}
        return [routes.get(vehicle, []) for vehicle in range(1 + max(routes, default=-1))]


def find_left_out(problem: AnyProblem, tour: IntArray, optional: BoolArray | None = None) -> BoolArray:
    """Return the customers that a tour (T,) leaves out, bool (A,), after checking that all of them are optional.

    Raises:
        InfeasibleTour: A customer is left out that has to be served.
    """
    left_out = np.ones(problem.num_actions, dtype=bool)
    left_out[: problem.num_depots] = left_out[tour] = False
    required = left_out if optional is None else left_out & ~optional
    if required.any():
        found = f"node {int(required.argmax())} is left out, which the file forbids"
        raise InfeasibleTour(0, len(tour), f"{found}; serve it with another vehicle")
    return left_out
