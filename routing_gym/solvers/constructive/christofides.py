"""Christofides' heuristic for the TSP, by networkx (BSD licence): at most one and a half times the optimum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from routing_gym.arrays import IntArray
from routing_gym.optional import require
from routing_gym.problem import AnyProblem
from routing_gym.solvers.runtime.base import FEASIBLE, RowSolver, distance_matrix


@dataclass(frozen=True)
class Christofides(RowSolver):
    """Christofides (1976): a minimum spanning tree, a matching of its odd nodes, and a walk along both.

    Its time is O(n^3). The bound requires distances that obey the triangle inequality.

    Attributes:
        time_limit: Seconds per instance after which the row fails; 50 cities take 10 ms.
    """

    name: ClassVar[str] = "christofides"
    problems: ClassVar[tuple[str, ...]] = ("TSP",)
    packages: ClassVar[tuple[str, ...]] = ("networkx",)
    needs_symmetry: ClassVar[bool] = True

    time_limit: float = 60.0

    @property
    def label(self) -> str:
        return self.name

    def solve_row(self, problem: AnyProblem, instance: Any, seed: int) -> tuple[IntArray, str]:
        networkx = require("networkx", "solvers")
        if problem.num_nodes <= 3:  # every order is optimal
            return np.arange(problem.num_nodes), FEASIBLE
        first, second = np.triu_indices(problem.num_nodes, 1)
        distances = distance_matrix(instance)[0]
        graph = networkx.Graph()
        graph.add_weighted_edges_from(zip(first.tolist(), second.tolist(), distances[first, second], strict=True))
        tour = networkx.approximation.christofides(graph)
        return np.array(tour[:-1]), FEASIBLE  # without the return to the first city
