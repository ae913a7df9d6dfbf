"""CVRP, the VRP family and OP by iterated local search: PyVRP (Wouda, Lan and Kool, 2024; MIT licence)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from routing_gym.optional import require
from routing_gym.problem import AnyProblem
from routing_gym.problems.checks import TOLERANCE, check_integer
from routing_gym.problems.op import OP, legal_tour, length_limit
from routing_gym.problems.vrp import PRESETS
from routing_gym.solvers.runtime.base import FEASIBLE, IntArray, RowSolver, distance_matrix, join_trips, unit_of

DISTANCE_SCALE = 1e4  # PyVRP takes integers; at 1e6 its default penalties end in infeasible tours
TIME_SCALE = 1e6  # rounded up and windows inwards, so that every tour found is in time
NEVER = 2.0**53  # later than any time
FORBIDDEN = 10**8  # length of a leg from a backhaul to a linehaul
PRIZE_SCALE = 1e6  # of the largest prize: a hundredth of it is worth 1e4, a detour of length 1
Actions = Callable[[list[int]], list[int]]


def orienteering(pyvrp: Any, problem: OP, instance: Any) -> tuple[Any, Actions]:
    """Formulate an OP; return PyVRP's data, and what turns a tour of all its trips into actions."""
    distances = distance_matrix(instance)[0]
    unit = unit_of(distances)
    legs = np.ceil(distances / unit * DISTANCE_SCALE).astype(np.int64)
    prizes = instance.prize[0].astype(np.float64)  # much larger integers would outweigh PyVRP's penalties
    prize = np.rint(prizes * (PRIZE_SCALE / (prizes.max() or 1.0))).astype(np.int64).tolist()
    clients = [pyvrp.Client(node, prize=prize[node], required=False) for node in range(1, len(prize))]
    limit = float(length_limit(instance)[0]) / unit * DISTANCE_SCALE
    vehicle = pyvrp.VehicleType(max_distance=int(np.clip(limit, 0, NEVER)))
    data = problem_data(pyvrp, instance, clients, vehicle, legs, np.zeros_like(legs))
    return data, lambda tour: legal_tour(problem, instance, tour)


def vehicle_routing(pyvrp: Any, problem: AnyProblem, instance: Any) -> tuple[Any, Actions]:
    """Formulate a CVRP or a problem of the VRP family; return the same."""
    distances = distance_matrix(instance)[0]
    unit = unit_of(distances)
    distances = distances / unit
    given = {key: value[0] for key, value in vars(instance).items() if value is not None}
    clients: list[dict[str, Any]] = [{"delivery": [demand]} for demand in given["demand"][1:].tolist()]
    vehicle: dict[str, Any] = {"num_available": len(clients), "capacity": [int(given["capacity"])]}
    legs = np.rint(distances * DISTANCE_SCALE).astype(np.int64)
    durations = np.zeros_like(legs)
    if "max_length" in given:
        legs = np.ceil(distances * DISTANCE_SCALE).astype(np.int64)
        limit = min((float(given["max_length"]) + TOLERANCE / 2) / unit * DISTANCE_SCALE, NEVER)
        alone = legs[0] + (0 if problem.open_routes else legs[:, 0])
        vehicle["max_distance"] = max(int(limit), int(alone.max()))
    if "ready_time" in given:
        durations = np.ceil(distances * TIME_SCALE).astype(np.int64)
        opens, closes, service = (
            np.minimum(given[key].astype(np.float64) / unit * TIME_SCALE, NEVER)
            for key in ("ready_time", "due_time", "service_time")
        )
        opens, closes, service = (x.astype(np.int64) for x in (np.ceil(opens), np.floor(closes), np.ceil(service)))
        arrival = opens[0] + durations[0]  # of vehicles that serve one customer
        closes = np.maximum(closes, arrival)
        closes[0] = max(closes[0], (np.maximum(arrival, opens) + service + durations[:, 0]).max())
        for node, client in enumerate(clients, start=1):
            times = {"tw_early": opens[node], "tw_late": closes[node], "service_duration": service[node]}
            client |= {key: int(time) for key, time in times.items()}
        vehicle |= {"tw_early": int(opens[0])} | ({} if problem.open_routes else {"tw_late": int(closes[0])})
    if "backhaul" in given:
        for node in np.flatnonzero(given["backhaul"]).tolist():
            clients[node - 1]["pickup"] = clients[node - 1].pop("delivery")
        linehauls = np.flatnonzero(~given["backhaul"])[1:]
        legs[np.ix_(given["backhaul"], linehauls)] = FORBIDDEN
    if problem.open_routes:
        legs[:, 0] = durations[:, 0] = 0
    made = [pyvrp.Client(node, **client) for node, client in enumerate(clients, start=1)]
    return problem_data(pyvrp, instance, made, pyvrp.VehicleType(**vehicle), legs, durations), list


def problem_data(
    pyvrp: Any, instance: Any, clients: list[Any], vehicle: Any, legs: IntArray, durations: IntArray
) -> Any:
    """Return PyVRP's form of one row."""
    return pyvrp.ProblemData(
        locations=[pyvrp.Location(float(x), float(y)) for x, y in instance.coords[0] * DISTANCE_SCALE],
        clients=clients,
        depots=[pyvrp.Depot(0)],
        vehicle_types=[vehicle],
        distance_matrices=[legs],
        duration_matrices=[durations],
    )


MODELS: dict[str, Callable[[Any, Any, Any], tuple[Any, Actions]]] = {
    "CVRP": vehicle_routing,
    **dict.fromkeys(PRESETS, vehicle_routing),
    "OP": orienteering,
}


@dataclass(frozen=True)
class PyVRP(RowSolver):
    """CVRP and the VRP family; and OP by optional customers with prizes and a limit on the vehicle's way.

    Lengths and times are counted in the power of two next below the longest distance. Where there is a limit (OP,
    VRPL), distances are rounded up and the limit down, so that every tour found is short enough; one that is within
    n / 10^4 of the limit is not found. Nor are tours within n / 10^6 of a window's end. Only a customer who is reached
    just in time, or within the limit, from the depot is still served alone. Prizes are counted in millionths of the
    largest: one is declined where its share of the largest is less than a hundredth of its detour, whatever length is
    left. It knows the limit of OP's whole tour only: where distances violate the triangle inequality, customers that
    the mask forbids are left out.

    Attributes:
        time_limit: Seconds per instance; all of it is used.
        iterations: Iterations after which it stops, if the time limit has not stopped it. Tours then do not depend on
            the speed of the machine.

    Raises:
        ValueError: The time limit is not positive, or there are fewer iterations than one.
    """

    name: ClassVar[str] = "pyvrp"
    problems: ClassVar[tuple[str, ...]] = tuple(MODELS)
    packages: ClassVar[tuple[str, ...]] = ("pyvrp",)

    time_limit: float = 0.1
    iterations: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.iterations is not None:
            check_integer(f"{self.name}: iterations", self.iterations, 1)

    @property
    def label(self) -> str:
        return super().label + (f", {self.iterations} iterations" if self.iterations else "")

    def solve_row(self, problem: AnyProblem, instance: Any, seed: int) -> tuple[list[int], str]:
        pyvrp = require("pyvrp", "solvers")
        stop = require("pyvrp.stop", "solvers")
        limit = stop.MaxRuntime(self.time_limit)
        if self.iterations is not None:
            limit = stop.MultipleCriteria([stop.MaxIterations(self.iterations), limit])
        data, actions = MODELS[problem.name](pyvrp, problem, instance)
        result = pyvrp.solve(data, limit, seed=seed, collect_stats=False, display=False)
        if not result.is_feasible():
            raise RuntimeError("PyVRP found no feasible tour within the time limit")
        trips = [[stop.idx + 1 for stop in route if stop.is_client()] for route in result.best.routes()]
        return actions(join_trips(trips)), FEASIBLE
