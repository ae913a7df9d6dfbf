"""Near-optimal TSP tours by the package fast-tsp (local search with Or-opt, in Rust; MIT licence)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from routing_gym.arrays import IntArray
from routing_gym.optional import require
from routing_gym.problem import AnyProblem
from routing_gym.solvers.runtime.base import FEASIBLE, RowSolver, distance_matrix

MAX_DISTANCE = 65535  # fast-tsp computes in unsigned 16-bit integers
SLOW_EXACT, MOST_EXACT = 16, 20  # sizes solved by dynamic programming whatever the time limit: 0.2 s with 20 cities


@dataclass(frozen=True)
class FastTSP(RowSolver):
    """TSP by fast-tsp: exact up to 15 cities, near-optimal local search beyond.

    The seed is not used. Distances are scaled so that the longest one is 65535. From 16 to 20 cities, fast-tsp would
    solve exactly for up to 0.2 s; copies of city 0 are added, so that it uses local search instead.

    Attributes:
        time_limit: Seconds per instance; from 16 cities on, the whole time is used.
    """

    name: ClassVar[str] = "fast-tsp"
    problems: ClassVar[tuple[str, ...]] = ("TSP",)
    packages: ClassVar[tuple[str, ...]] = ("fast_tsp",)
    needs_symmetry: ClassVar[bool] = True

    time_limit: float = 0.05

    def solve_row(self, problem: AnyProblem, instance: Any, seed: int) -> tuple[list[int] | IntArray, str]:
        distances = distance_matrix(instance)[0]
        longest = distances.max()
        if problem.num_nodes <= 3 or longest == 0:  # every order is optimal
            return list(range(problem.num_nodes)), FEASIBLE
        integers = np.rint(distances * (MAX_DISTANCE / longest)).astype(np.int64)
        if SLOW_EXACT <= len(integers) <= MOST_EXACT:
            copies = [0] * (MOST_EXACT + 1 - len(integers))
            nodes = np.array([*range(len(integers)), *copies])
            integers = integers[np.ix_(nodes, nodes)]
        tour = np.asarray(require("fast_tsp", "solvers").find_tour(integers, duration_seconds=self.time_limit))
        return tour[tour < problem.num_nodes], FEASIBLE
