"""Greedy edges for the TSP: add the shortest edges that form paths only, and join the paths in the same way.

Source: Bentley (1992), "Fast algorithms for geometric traveling salesman problems", section 2, where it is called
    "greedy matching fragments". Only the nearest ends of other paths are compared, so that 10,000 cities take a quarter
    of a second.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from routing_gym.arrays import FloatArray, IntArray
from routing_gym.optional import require
from routing_gym.problem import AnyProblem
from routing_gym.solvers.runtime.base import BatchSolver

NEAREST = 8  # number of path ends that each end is compared with


@dataclass(frozen=True)
class GreedyEdge(BatchSolver):
    """Greedy edges, by the distance between coordinates even if another metric is given."""

    name: ClassVar[str] = "greedy-edge"
    problems: ClassVar[tuple[str, ...]] = ("TSP",)
    packages: ClassVar[tuple[str, ...]] = ("scipy",)

    def row_elements(self, num_actions: int) -> int:
        return num_actions * NEAREST

    def tours(self, problem: AnyProblem, instance: Any, rows: IntArray, seed: int) -> IntArray:
        return np.stack([greedy_tour(coords) for coords in instance.coords.astype(np.float64)])


def greedy_tour(coords: FloatArray) -> IntArray:
    """Build one tour of cities (n, 2): int64 (n,)."""
    spatial = require("scipy.spatial", "solvers")
    num_cities = len(coords)
    neighbours: list[list[int]] = [[] for _ in range(num_cities)]
    path = list(range(num_cities))  # another city of the same path; in the end, the same for all cities
    num_paths = num_cities
    while num_paths > 1:
        ends = np.array([city for city in range(num_cities) if len(neighbours[city]) < 2])
        length, near = spatial.cKDTree(coords[ends]).query(coords[ends], min(NEAREST, len(ends)))
        for index in np.argsort(length, axis=None):
            a, b = int(ends[index // near.shape[1]]), int(ends[near.flat[index]])
            if len(neighbours[a]) < 2 and len(neighbours[b]) < 2 and find(path, a) != find(path, b):
                path[find(path, a)] = find(path, b)
                neighbours[a].append(b)
                neighbours[b].append(a)
                num_paths -= 1
    tour = [next(city for city in range(num_cities) if len(neighbours[city]) < 2)]
    while len(tour) < num_cities:
        before, here = tour[-2] if len(tour) > 1 else -1, tour[-1]
        tour.append(next(city for city in neighbours[here] if city != before))
    return np.array(tour)


def find(path: list[int], city: int) -> int:
    """Return the representative of a city's path, and shorten the chain to it (union-find)."""
    while path[city] != city:
        path[city] = path[path[city]]
        city = path[city]
    return city
