"""Insertion heuristics for the TSP: select a city, and insert it where it lengthens the tour least.

Source: Rosenkrantz, Stearns and Lewis (1977), "An analysis of several heuristics for the traveling salesman problem".
    Nearest and farthest insertion start from the same city as in Kool et al. (2019), so that results can be compared;
    random insertion draws the order of the cities, where Kool et al. take that of the instance.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from routing_gym.arrays import FloatArray, IntArray
from routing_gym.problem import AnyProblem
from routing_gym.solvers.runtime.base import BatchSolver, distance_matrix


@dataclass(frozen=True)
class Insertion(BatchSolver):
    """Base class of the insertion heuristics, which differ in the choice of the next city."""

    problems: ClassVar[tuple[str, ...]] = ("TSP",)

    @abstractmethod
    def priorities(self, nearest: FloatArray, draws: FloatArray) -> FloatArray:
        """Return a value for each city outside the tour; the city with the smallest one comes next.

        Args:
            nearest: (B, n), distance of each city to the nearest city of the tour.
            draws: (B, n), uniform random numbers, the same in every step.
        """

    def first_city(self, distances: FloatArray, draws: FloatArray) -> IntArray:
        """Choose the first city: int64 (B,)."""
        return np.zeros(len(distances), dtype=np.int64)

    def tours(self, problem: AnyProblem, instance: Any, rows: IntArray, seed: int) -> IntArray:
        distances = distance_matrix(instance)
        batch_size, num_cities, _ = distances.shape
        every = np.arange(batch_size)
        draws = row_draws(rows, num_cities, seed)
        city = self.first_city(distances, draws)
        tour = np.zeros((batch_size, num_cities), dtype=np.int64)
        tour[:, 0] = city
        inside = np.zeros((batch_size, num_cities), dtype=bool)
        inside[every, city] = True
        nearest = distances[every, :, city]
        for size in range(1, num_cities):
            city = np.argmin(np.where(inside, np.inf, self.priorities(nearest, draws)), axis=1)
            inside[every, city] = True
            nearest = np.minimum(nearest, distances[every, :, city])
            here = tour[:, :size]
            following = np.roll(here, -1, axis=1)
            to_city = distances[every[:, None], here, city[:, None]]
            from_city = distances[every[:, None], city[:, None], following]
            detour = to_city + from_city - distances[every[:, None], here, following]
            insert(tour, size, np.argmin(detour, axis=1) + 1, city)
        return tour


def insert(tour: IntArray, size: int, position: IntArray, city: IntArray) -> None:
    """Insert one city (B,) at a position (B,) into each tour (B, n) of `size` cities, in place; zeros follow."""
    place = np.arange(size + 1)
    shifted = np.take_along_axis(tour, place - (place > position[:, None]), axis=1)
    tour[:, : size + 1] = np.where(place == position[:, None], city[:, None], shifted)


def row_draws(rows: IntArray, num_draws: int, seed: int) -> FloatArray:
    """Draw uniforms (B, num_draws) that depend on the seed and on each row's index, but not on the other rows."""
    first = int(rows.min())
    block = np.random.PCG64(seed).advance(first * num_draws)  # one step gives one double
    return np.random.Generator(block).random((int(rows.max()) + 1 - first, num_draws))[rows - first]


@dataclass(frozen=True)
class NearestInsertion(Insertion):
    """Insertion of the city nearest to the tour. Starts at city 0."""

    name: ClassVar[str] = "nearest-insertion"

    def priorities(self, nearest: FloatArray, draws: FloatArray) -> FloatArray:
        return nearest


@dataclass(frozen=True)
class FarthestInsertion(Insertion):
    """Insertion of the city farthest from the tour. Starts at an end of the longest edge."""

    name: ClassVar[str] = "farthest-insertion"

    def priorities(self, nearest: FloatArray, draws: FloatArray) -> FloatArray:
        return -nearest

    def first_city(self, distances: FloatArray, draws: FloatArray) -> IntArray:
        return np.asarray(np.argmax(distances.max(axis=2), axis=1))


@dataclass(frozen=True)
class RandomInsertion(Insertion):
    """Insertion in random order: a permutation drawn for each row of the batch."""

    name: ClassVar[str] = "random-insertion"

    def priorities(self, nearest: FloatArray, draws: FloatArray) -> FloatArray:
        return draws

    def first_city(self, distances: FloatArray, draws: FloatArray) -> IntArray:
        return np.asarray(np.argmin(draws, axis=1))
