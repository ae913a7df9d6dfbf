"""CVRP and the VRP family in PyVRP's form: one vehicle type for each depot node, pairs as shipments."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from routing_gym.arrays import FloatArray, IntArray
from routing_gym.problem import join_routes
from routing_gym.problems.checks import TOLERANCE
from routing_gym.problems.geometry import unit_of
from routing_gym.solvers.external.pyvrp_shared import Pairs, split_pairs, visits_of
from routing_gym.solvers.runtime.base import distance_matrix

DISTANCE_SCALE = 1e4  # PyVRP takes integers; with 1e6, its default penalties lead to infeasible tours
TIME_SCALE = 1e6  # times are rounded up and windows inwards, so that every tour found is in time
LARGEST_COST, LEAST_COST = 1e4, 100.0  # integers for the largest and the least cost per length, with fleets
MOST_COST = 1e9  # integer for the largest cost per length, if the costs differ more
NEVER = 2.0**53  # later than any time
MOST_PENALTY = 1e11  # largest penalty per unit of excess for the sake of a prize or a fixed cost
MOST_EDGES = 100  # number of longest edges beyond a limit whose penalties may be added up: PyVRP counts up to 2**63


@dataclass(frozen=True)
class Formulation:
    """Data of one instance for PyVRP, and the conversion of PyVRP's routes to actions.

    Args:
        pyvrp: The package.
        problem: CVRP, or a problem of the VRP family.
        instance: One instance: a batch of size 1.
    """

    pyvrp: Any
    problem: Any
    instance: Any

    @cached_property
    def given(self) -> dict[str, npt.NDArray[Any]]:
        """Fields of the instance."""
        return {key: value[0] for key, value in vars(self.instance).items() if value is not None}

    @cached_property
    def lengths(self) -> FloatArray:
        return np.asarray(distance_matrix(self.instance)[0])

    @cached_property
    def unit(self) -> float:
        """Unit in which lengths and times are counted."""
        return unit_of(self.lengths)

    @cached_property
    def cost_scale(self) -> float:
        """Integers in a cost per length of 1: as many as tell the costs of vehicles apart, within `most_worth`."""
        if "cost_per_length" not in self.given:
            return 1.0
        costs = self.given["cost_per_length"][self.depots].astype(np.float64)
        costs = costs[costs > 0] if costs.any() else np.ones(1)
        whole = max(float(self.given[key].max()) for key in ("fixed_cost", "penalty") if key in self.given)
        _, pairs = self.customers
        whole *= 2 if pairs else 1  # both are left out
        most = [MOST_COST / costs.max(), self.most_worth / (whole / self.unit * DISTANCE_SCALE or 1.0)]
        return float(min(max(LARGEST_COST / costs.max(), LEAST_COST / costs.min()), *most))

    @cached_property
    def most_worth(self) -> float:
        """Largest integer for a prize or a fixed cost: an excess by one unit, of the load for example, costs more."""
        longest = 2 * self.longest_route if self.forbids else int(self.allowed_legs.max())
        return min(MOST_PENALTY, 2.0**62 / (MOST_EDGES * max(longest, 1))) / 2

    @cached_property
    def depots(self) -> list[int]:
        """Depot nodes that have vehicles, in the order of PyVRP's types."""
        numbers = self.given.get("num_vehicles")
        return [node for node in range(self.problem.num_depots) if numbers is None or numbers[node]]

    def as_cost(self, value: float) -> int:
        """Convert a cost in the unit of lengths to PyVRP's unit."""
        return int(np.rint(min(value / self.unit * DISTANCE_SCALE * self.cost_scale, self.most_worth)))

    @cached_property
    def allowed_legs(self) -> IntArray:
        """Lengths between all nodes, rounded up if there is a limit on them; no edge is forbidden."""
        round_up = np.ceil if "max_length" in self.given else np.rint
        legs: IntArray = round_up(self.lengths / self.unit * DISTANCE_SCALE).astype(np.int64)
        return legs

    @cached_property
    def longest_route(self) -> int:
        """Limit that only routes with forbidden edges, which are twice as long, exceed; prizes may outweigh lengths."""
        return int(self.allowed_legs.max(axis=1).sum())

    @cached_property
    def linehaul_first(self) -> bool:
        """Whether edges from backhauls to linehauls are forbidden."""
        return "backhaul" in self.given and not self.problem.mixed_backhauls

    @property
    def forbids(self) -> bool:
        """Whether edges are forbidden."""
        return self.linehaul_first or "eligible" in self.given

    @cached_property
    def legs(self) -> IntArray:
        """`allowed_legs` with forbidden edges; edges to depots are 0 if routes are open."""
        legs = self.allowed_legs.copy()
        if self.linehaul_first:
            backhaul = self.given["backhaul"]
            legs[np.ix_(backhaul, np.flatnonzero(~backhaul)[self.problem.num_depots :])] = 2 * self.longest_route
        if self.problem.open_routes:
            legs[:, : self.problem.num_depots] = 0
        return legs

    @cached_property
    def durations(self) -> IntArray:
        """Travel times between all nodes, rounded up; 0 without time windows."""
        if "ready_time" not in self.given:
            return np.zeros_like(self.legs)
        travels = self.given.get("durations", self.lengths).astype(np.float64)
        durations: IntArray = np.ceil(travels / self.unit * TIME_SCALE).astype(np.int64)
        if self.problem.open_routes:
            durations[:, : self.problem.num_depots] = 0
        return durations

    @cached_property
    def times(self) -> tuple[IntArray, IntArray, IntArray]:
        """Earliest and latest starts and durations of service; time windows are rounded inwards.

        A customer that is reached from the only depot just in time is still served alone.
        """
        opens, closes, service = (
            np.minimum(self.given[key].astype(np.float64) / self.unit * TIME_SCALE, NEVER)
            for key in ("ready_time", "due_time", "service_time")
        )
        opens, closes, service = (x.astype(np.int64) for x in (np.ceil(opens), np.floor(closes), np.ceil(service)))
        closes = np.maximum(closes, opens)  # a window shorter than the unit would close before it opens
        if self.problem.num_depots == 1 and "pickup" not in self.given and "penalty" not in self.given:
            arrival = opens[0] + self.durations[0]
            closes = np.maximum(closes, arrival)
            closes[0] = max(closes[0], (np.maximum(arrival, opens) + service + self.durations[:, 0]).max())
        return opens, closes, service

    def step(self, node: int, prefix: str = "") -> dict[str, int]:
        """Return PyVRP's arguments for the times of a visit."""
        if "ready_time" not in self.given:
            return {}
        names = ("tw_early", "tw_late", "service_duration")
        return {prefix + name: int(values[node]) for name, values in zip(names, self.times, strict=True)}

    def optional(self, *nodes: int) -> dict[str, Any]:
        """Return PyVRP's arguments for customers that may be left out."""
        if "penalty" not in self.given:
            return {}
        return {"prize": self.as_cost(float(self.given["penalty"][list(nodes)].sum())), "required": False}

    @cached_property
    def customers(self) -> tuple[list[int], Pairs]:
        """Customers that belong to no pair, and pickups with their deliveries; see `split_pairs`."""
        nodes = range(self.problem.num_depots, self.problem.num_actions)
        windows = self.times[:2] if "ready_time" in self.given else None
        return split_pairs(nodes, self.given.get("pickup"), windows)

    def client(self, node: int) -> Any:
        demand = [int(self.given["demand"][node])]
        collected = "pickup" in self.given or ("backhaul" in self.given and self.given["backhaul"][node])
        goods = {"pickup" if collected else "delivery": demand}
        return self.pyvrp.Client(node, **goods, **self.step(node), **self.optional(node))

    def shipment(self, pickup: int, delivery: int) -> Any:
        times = self.step(pickup, "pickup_") | self.step(delivery, "delivery_")
        amount = [int(self.given["demand"][delivery])]
        return self.pyvrp.Shipment(pickup, delivery, amount=amount, **times, **self.optional(pickup, delivery))

    def vehicles(self, depot: int) -> Any:
        """Return the vehicle type of a depot node; its distances have the index `depot`."""
        node, given = self.depots[depot], self.given
        made: dict[str, Any] = {"start_depot": node, "end_depot": node, "profile": depot}
        made["num_available"] = int(given["num_vehicles"][node]) if "num_vehicles" in given else self.problem.num_nodes
        made["capacity"] = [int(given["vehicle_capacity"][node] if "vehicle_capacity" in given else given["capacity"])]
        if "ready_time" in given:
            opens, closes, _ = self.times
            made |= {"tw_early": int(opens[node])} | (
                {} if self.problem.open_routes else {"tw_late": int(closes[node])}
            )
        limit = int(NEVER)
        if "max_length" in given:
            limit = int(min((float(given["max_length"]) + TOLERANCE / 2) / self.unit * DISTANCE_SCALE, NEVER))
            if self.problem.num_depots == 1 and "pickup" not in given and "penalty" not in given:
                limit = max(limit, int((self.legs[0] + self.legs[:, 0]).max()))  # every customer alone
        if self.forbids:
            limit = min(limit, self.longest_route)
        if limit < NEVER:
            made["max_distance"] = limit
        if "cost_per_length" in given:
            cost = float(given["cost_per_length"][node]) * self.cost_scale
            made["unit_distance_cost"] = max(int(cost > 0), round(cost))
            made["fixed_cost"] = self.as_cost(float(given["fixed_cost"][node]))
        return self.pyvrp.VehicleType(**made)

    def legs_of(self, depot: int) -> IntArray:
        """Return the lengths for the vehicles of a depot node, with edges to refused customers forbidden."""
        if "eligible" not in self.given:
            return self.legs
        legs, refused = self.legs.copy(), ~self.given["eligible"][self.depots[depot]]
        refused[: self.problem.num_depots] = False
        legs[:, refused] = 2 * self.longest_route
        np.fill_diagonal(legs, 0)
        return legs

    def data(self) -> Any:
        """Return the data in PyVRP's form."""
        types, (singles, pairs) = range(len(self.depots)), self.customers
        return self.pyvrp.ProblemData(
            locations=[self.pyvrp.Location(float(x), float(y)) for x, y in self.given["coords"] * DISTANCE_SCALE],
            clients=[self.client(node) for node in singles],
            depots=[self.pyvrp.Depot(node) for node in range(self.problem.num_depots)],
            vehicle_types=[self.vehicles(depot) for depot in types],
            distance_matrices=[self.legs_of(depot) for depot in types],
            duration_matrices=[self.durations] * len(self.depots),
            shipments=[self.shipment(*pair) for pair in pairs],
        )

    def actions(self, routes: list[Any]) -> list[int]:
        """Return the actions for PyVRP's routes."""
        found = [(self.depots[route.vehicle_type()], visits_of(route, *self.customers)) for route in routes]
        return join_routes(found, ends=sum(len(visits) for _, visits in found) < self.problem.num_nodes)
