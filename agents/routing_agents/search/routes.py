"""CVRP: a policy for the CVRP solves a few nearby routes again, as a small CVRP."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from routing_agents.search.neighbourhood import Effort, Neighbourhoods
from routing_gym.arrays import BoolArray, IntArray
from routing_gym.generators.subproblems import random_views
from routing_gym.problem import AnyProblem
from routing_gym.problems.cvrp import CVRP, CVRPInstance
from routing_gym.solvers.runtime.base import join_trips

MOST_GROUPS = 16  # groups per round
LARGEST = 240  # customers of a group; longer routes are not changed
SMALLEST = 10  # smallest limit on the customers of a group
ROUNDING = 1e-12  # tolerance for rounding errors of sums: routes of equal length are accepted, for diversity


class RouteSearch(Neighbourhoods):
    """Search that improves groups of routes."""

    parts: ClassVar[str] = "CVRP"
    trained_with: ClassVar[str] = "--sizes 20 120 --generator x"
    default_effort: ClassVar[Effort] = Effort(size=60, views=4, tours=32)

    @classmethod
    def repaired_by(cls, problem: AnyProblem) -> tuple[str, int]:
        return cls.parts, 100  # trained on 20 customers and more, and various capacities

    def take_up(self, actions: IntArray) -> None:
        self.demand, self.capacity = self.instance.demand[0], self.instance.capacity
        self.routes = split_trips(actions)

    def actions(self) -> IntArray:
        return np.array(join_trips(self.routes))

    def cost(self) -> float:
        return sum(map(self.length, self.routes))

    def length(self, route: IntArray) -> float:
        """Return the length of a route, from the depot to the depot."""
        stops = np.concatenate(([0], route))
        return float(self.legs(stops, np.roll(stops, -1)).sum())

    def round(self) -> None:
        groups = self.choose_groups()
        groups.sort(key=self.num_customers)
        routes = list(self.routes)
        while groups:
            smallest = self.num_customers(groups[0])
            most = smallest + max(2, smallest // 8)
            together = [group for group in groups if self.num_customers(group) <= most]
            groups = groups[len(together) :]
            for group, trips in zip(together, self.solve(together), strict=True):
                if sum(map(self.length, trips)) <= sum(self.length(routes[k]) for k in group) + ROUNDING:
                    for k in group:
                        routes[k] = routes[k][:0]
                    routes += trips
        self.routes = [route for route in routes if len(route)]  # at once: an interrupted round changes nothing

    def num_customers(self, group: IntArray) -> int:
        """Count the customers of a group of routes."""
        return sum(len(self.routes[k]) for k in group)

    def choose_groups(self) -> list[IntArray]:
        """Select groups of routes: the route of a random customer and those that pass near it, up to a random size.

        A group has at least two routes, unless these are too large for a group.
        """
        limit = self.rng.integers(SMALLEST, self.effort.size + 1)
        num_routes = len(self.routes)
        sizes = np.array([len(route) for route in self.routes])
        route_of = np.repeat(np.arange(num_routes), sizes)
        customers = np.concatenate(self.routes)
        is_free = np.ones(num_routes, dtype=bool)
        groups = []
        for seed in self.rng.permutation(len(customers)):
            if not is_free[route_of[seed]]:
                continue
            nearness = self.legs(customers[seed], customers)
            nearness[seed] = -1  # its own route comes first, even if others visit the same location
            by_nearness = route_of[np.argsort(nearness)]
            _, first = np.unique(by_nearness, return_index=True)
            near = by_nearness[np.sort(first)]
            near = near[is_free[near]]
            total = np.cumsum(sizes[near])
            group = near[: max(int((total[:2] <= LARGEST).sum()), int((total <= limit).sum()))]
            is_free[near[:1]] = is_free[group] = False
            if len(group):
                groups.append(group)
            if len(groups) == MOST_GROUPS:
                break
        return groups

    def solve(self, groups: list[IntArray]) -> list[list[IntArray]]:
        """Solve groups of routes as small CVRPs; return the best routes found for each.

        All subproblems of a decode have the same size. Smaller ones are padded with twins, customers without demand at
        the location of another one, which are removed from the result.
        """
        nodes = [self.rng.permutation(np.concatenate([self.routes[k] for k in group])) for group in groups]
        size = max(map(len, nodes))
        node = np.array([[0, *np.resize(x, size)] for x in nodes])  # (G, size + 1), the depot first
        is_twin = np.arange(-1, size) >= np.array([[len(x)] for x in nodes])
        demand = np.where(is_twin, 0, self.demand[node])
        views, num_tours = self.effort.views, self.effort.tours
        coords = random_views(np.repeat(self.coords[node], views, axis=0), self.rng)
        demand, lengths = np.repeat(demand, views, axis=0), self.lengths_of(node, views)
        part = CVRPInstance(coords, demand, np.repeat(self.capacity, len(coords)), lengths)
        columns = self.play(CVRP(size), part, num_tours, sample=True).reshape(len(groups), views * num_tours, -1)
        tours = self.drop_twins(node, is_twin, columns)
        best = self.legs(tours[..., :-1], tours[..., 1:]).sum(axis=2).argmin(axis=1)
        return [split_trips(tour[k]) for tour, k in zip(tours, best, strict=True)]

    def drop_twins(self, node: IntArray, is_twin: BoolArray, columns: IntArray) -> IntArray:
        """Convert columns of subproblems (G, K, T) to nodes (G, K, T + 1), the depot first; twins repeat a stop."""
        row = np.arange(len(columns))[:, None, None]
        columns = np.concatenate([np.zeros_like(columns[..., :1]), columns], axis=2)
        stop = np.where(is_twin[row, columns], 0, np.arange(columns.shape[2]))
        return np.take_along_axis(node[row, columns], np.maximum.accumulate(stop, axis=2), axis=2)


def split_trips(tour: IntArray) -> list[IntArray]:
    """Split a tour at the depot; leave out repeated stops."""
    tour = np.concatenate(([0], tour))
    tour = tour[1:][tour[1:] != tour[:-1]]
    return [trip[trip != 0] for trip in np.split(tour, np.flatnonzero(tour == 0)) if (trip != 0).any()]
