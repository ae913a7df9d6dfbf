"""CVRP and OP by iterated local search: PyVRP (Wouda, Lan and Kool, 2024; MIT licence)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from routing_gym.optional import require
from routing_gym.problem import AnyProblem
from routing_gym.problems.op import length_limit
from routing_gym.solvers.base import FEASIBLE, IntArray, RowSolver, distance_matrix, join_trips

DISTANCE_SCALE = 1e4  # PyVRP takes integers; at 1e6 its default penalties end in infeasible tours
PRIZE_SCALE = 1e6  # a prize of 0.01 is worth 1e4, a detour of length 1


@dataclass(frozen=True)
class PyVRP(RowSolver):
    """CVRP, and OP by optional customers with prizes and a limit on the vehicle's way.

    OP's distances are rounded up and the limit down, so that every tour found is short enough; one that
    is within n / 10^4 of the limit is not found. A prize is declined where its detour is over 100 times as
    long, whatever length is left.

    Attributes:
        time_limit: Seconds per instance; all of it is used.
    """

    name: ClassVar[str] = "pyvrp"
    problems: ClassVar[tuple[str, ...]] = ("CVRP", "OP")
    packages: ClassVar[tuple[str, ...]] = ("pyvrp",)

    time_limit: float = 0.1

    def solve_row(self, problem: AnyProblem, instance: Any, seed: int) -> tuple[list[int] | IntArray, str]:
        pyvrp = require("pyvrp", "solvers")
        distances = distance_matrix(instance)[0] * DISTANCE_SCALE
        customers = range(1, problem.num_actions)
        if problem.name == "OP":
            legs = np.ceil(distances).astype(np.int64)
            prize = np.rint(instance.prize[0].astype(np.float64) * PRIZE_SCALE).astype(np.int64).tolist()
            clients = [pyvrp.Client(node, prize=prize[node], required=False) for node in customers]
            limit = int(float(length_limit(instance)[0]) * DISTANCE_SCALE)
            vehicle = pyvrp.VehicleType(max_distance=max(0, limit))
        else:
            legs = np.rint(distances).astype(np.int64)
            demand = instance.demand[0].tolist()
            clients = [pyvrp.Client(node, delivery=[demand[node]]) for node in customers]
            vehicle = pyvrp.VehicleType(num_available=problem.num_nodes, capacity=[int(instance.capacity[0])])
        data = pyvrp.ProblemData(
            locations=[pyvrp.Location(float(x), float(y)) for x, y in instance.coords[0] * DISTANCE_SCALE],
            clients=clients,
            depots=[pyvrp.Depot(0)],
            vehicle_types=[vehicle],
            distance_matrices=[legs],
            duration_matrices=[np.zeros_like(legs)],
        )
        stop = require("pyvrp.stop", "solvers").MaxRuntime(self.time_limit)
        result = pyvrp.solve(data, stop, seed=seed, collect_stats=False, display=False)
        if not result.is_feasible():
            raise RuntimeError("PyVRP found no feasible tour within the time limit")
        trips = [[stop.idx + 1 for stop in route if stop.is_client()] for route in result.best.routes()]
        return join_trips(trips), FEASIBLE
