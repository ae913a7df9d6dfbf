"""Near-optimal TSP tours by the package fast-tsp (local search with Or-opt, in Rust; MIT licence)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from routing_gym.problem import Problem
from routing_gym.solvers.base import FEASIBLE, IntArray, RowSolver, require, symmetric_distances

MAX_DISTANCE = 65535  # fast-tsp computes in unsigned 16-bit integers


@dataclass(frozen=True)
class FastTSP(RowSolver):
    """TSP by fast-tsp: exact up to 20 cities, as good as LKH up to 100 within the default time.

    It takes no seed. Distances are scaled so that the longest one is 65535.

    Attributes:
        time_limit: Seconds per instance; all of it is used from 21 cities on.
    """

    name: ClassVar[str] = "fast-tsp"
    problems: ClassVar[tuple[str, ...]] = ("TSP",)
    packages: ClassVar[tuple[str, ...]] = ("fast_tsp",)

    time_limit: float = 0.05

    def solve_row(self, problem: Problem[Any, Any], instance: Any, seed: int) -> tuple[list[int] | IntArray, str]:
        distances = symmetric_distances(self, instance)[0]
        longest = distances.max()
        if problem.num_nodes <= 3 or longest == 0:  # every order is optimal
            return list(range(problem.num_nodes)), FEASIBLE
        integers = np.rint(distances * (MAX_DISTANCE / longest)).astype(np.int64)
        tour: list[int] = require("fast_tsp").find_tour(integers, duration_seconds=self.time_limit)
        return tour, FEASIBLE
