"""CVRP by hybrid genetic search: HGS-CVRP (Vidal, 2022), through the package hygese (MIT licence)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from routing_gym.arrays import FloatArray, IntArray
from routing_gym.optional import require
from routing_gym.problem import AnyProblem
from routing_gym.solvers.external.split_delivery import best_replay, merge_copies, trip_length, unit_copies
from routing_gym.solvers.runtime.base import FEASIBLE, RowSolver, TimedOut, distance_matrix, join_trips

LONGEST = 1000.0  # HGS refuses distances of very small scale
MOST_DEMAND = 100_000  # maximum demand of a customer: HGS refuses more, and the package hygese then ends the process
MAX_ITERATIONS = 2**31 - 1  # no limit: the time limit ends the search


def search(
    distances: FloatArray, coords: FloatArray, demand: IntArray, capacity: int, time_limit: float, seed: int
) -> list[list[int]]:
    """Run HGS on one instance and return its routes.

    Args:
        distances: (A, A).
        coords: (A, 2), at least 0; HGS sorts customers by their direction from the depot.
        demand: int64 (A,).
        capacity: Capacity of the vehicle.
        time_limit: Seconds of CPU time.
        seed: Random seed in [0, 2^31).
    """
    num_customers = len(demand) - 1
    longest = distances.max()
    demand, capacity = scale_demand(demand, capacity)
    if num_customers == 1 or longest == 0:  # HGS would loop forever, or refuse the scale
        return [[customer] for customer in range(1, num_customers + 1)]
    hygese = require("hygese", "solvers")
    parameters = hygese.AlgorithmParameters(timeLimit=time_limit, nbIter=MAX_ITERATIONS, seed=seed)
    data = {
        "x_coordinates": coords[:, 0].astype(np.float64) * LONGEST,
        "y_coordinates": coords[:, 1].astype(np.float64) * LONGEST,
        "distance_matrix": distances * (LONGEST / longest),
        "demands": demand,
        "vehicle_capacity": capacity,
        "num_vehicles": num_customers,  # the default, 1.3 times the minimum number plus 3, can be too few
    }
    trips: list[list[int]] = hygese.Solver(parameters=parameters, verbose=False).solve_cvrp(data).routes
    if not any(trips):
        raise TimedOut(f"HGS found no feasible tour within {time_limit:g} s")
    return [trip for trip in trips if trip]


def scale_demand(demand: IntArray, capacity: int) -> tuple[IntArray, int]:
    """Scale the largest demand to 1 to `MOST_DEMAND`; customers that fit together afterwards also fit before.

    Args:
        demand: int64 (A,), 0 at the depot.
        capacity: Vehicle capacity, at least the largest demand.

    Returns:
        Both, divided by the greatest common divisor of the demands, which changes nothing. If that is not enough, both
        are divided by one more number, with demands rounded up and the capacity down.
    """
    if not demand.any():  # all customers fit on one route
        return np.minimum(np.arange(len(demand)), 1), len(demand)
    divisor = int(np.gcd.reduce(demand))
    demand, capacity = demand // divisor, capacity // divisor
    divisor = -(-int(demand.max()) // MOST_DEMAND)
    capacity //= divisor
    return np.minimum(-(-demand // divisor), capacity), capacity


def whole_customers(instance: Any, time_limit: float, seed: int) -> list[list[int]]:
    """Solve CVRP."""
    demand, capacity = instance.demand[0], int(instance.capacity[0])
    return search(distance_matrix(instance)[0], instance.coords[0], demand, capacity, time_limit, seed)


def split_customers(instance: Any, time_limit: float, seed: int) -> list[list[int]]:
    """Solve SDVRP: return the better of a tour of whole customers and one of split customers; see `split_delivery`."""
    whole = whole_customers(instance, time_limit / 2, seed)
    distances, demand, capacity = distance_matrix(instance)[0], instance.demand[0], int(instance.capacity[0])
    owners, units = unit_copies(demand)
    coords, legs = instance.coords[0, owners], distances[np.ix_(owners, owners)]
    parts = search(legs, coords, units, capacity, time_limit / 2, seed)
    split = best_replay(merge_copies(parts, owners), demand, capacity, distances, np.random.default_rng(seed))
    return min(whole, split, key=lambda trips: sum(trip_length(trip, distances) for trip in trips))


MODELS: dict[str, Callable[[Any, float, int], list[list[int]]]] = {"CVRP": whole_customers, "SDVRP": split_customers}


@dataclass(frozen=True)
class Hygese(RowSolver):
    """CVRP, and SDVRP as the better of a CVRP tour and one with split customers (`split_delivery`).

    Costs are within 0.1 % of the best known at 0.1 s for 20 customers, 0.3 s for 50, 1 s for 100. SDVRP gives half of
    the time to each of its two searches. Demands over 100,000 without a common divisor are rounded up, and the capacity
    down: every tour found is feasible, but a tour that fills a vehicle to within 0.01 % may not be found.

    Attributes:
        time_limit: Seconds of CPU time per instance, which HGS-CVRP counts instead of wall time. The whole time is
            used; on a busy machine, that takes longer.
    """

    name: ClassVar[str] = "hygese"
    problems: ClassVar[tuple[str, ...]] = tuple(MODELS)
    packages: ClassVar[tuple[str, ...]] = ("hygese",)
    needs_symmetry: ClassVar[bool] = True

    time_limit: float = 0.1

    @property
    def hard_limit(self) -> float:
        """Seconds of wall time: enough if ten processes share a core, each with a tenth of the CPU time."""
        return 10 * self.time_limit + 10

    def solve_row(self, problem: AnyProblem, instance: Any, seed: int) -> tuple[list[int], str]:
        return join_trips(MODELS[problem.name](instance, self.time_limit, seed)), FEASIBLE
