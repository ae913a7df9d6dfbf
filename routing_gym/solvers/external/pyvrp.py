"""CVRP, the VRP family, PDP, MTSP and OP by iterated local search: PyVRP (Wouda, Lan and Kool, 2024; MIT licence)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from routing_gym.optional import require
from routing_gym.planning.from_instance import task_of
from routing_gym.planning.integers import NEVER, Numbers
from routing_gym.problem import AnyProblem, join_routes
from routing_gym.problems.checks import check_integer
from routing_gym.problems.geometry import unit_of
from routing_gym.problems.mtsp import MTSP
from routing_gym.problems.op import OP, legal_tour, length_limit
from routing_gym.problems.pdp import PDP
from routing_gym.problems.vrp import PRESETS
from routing_gym.solvers.external.pyvrp_routes import pyvrp_data, routes_of, serve_alone
from routing_gym.solvers.external.pyvrp_shared import largest_penalty, one_depot, search, split_pairs, visits_of
from routing_gym.solvers.runtime.base import FEASIBLE, RowSolver, distance_matrix, join_trips

DISTANCE_SCALE = 1e4  # PyVRP takes integers; with 1e6, its default penalties lead to infeasible tours
TASK_UNIT = 256.0  # minutes and km of a task in a length of 1, so that times are counted in more than 10^6 integers
LENGTH_SCALE = 1e6  # scale of PDP's lengths, which have no limit whose penalties could be too small
PRIZE_SCALE = 1e6  # scale of the largest prize: a hundredth of it is worth 1e4, a detour of length 1
SHARE = 1 / 16  # share of the time for one attempt at MTSP's tours within a smaller limit


class NoTourError(RuntimeError):
    """PyVRP found no feasible tour."""


class Run(Protocol):
    """Function that runs PyVRP and returns its best routes.

    Args:
        data: PyVRP's data.
        share: Share of the time limit, at most the remaining time.
        first: Whether to return the first feasible routes.
        edge: See `largest_penalty`.

    Raises:
        NoTourError: No feasible routes were found.
    """

    def __call__(self, data: Any, share: float = 1.0, first: bool = False, edge: float = 0.0) -> list[Any]: ...


def orienteering(pyvrp: Any, problem: OP, instance: Any, run: Run) -> list[int]:
    """Solve an OP."""
    distances = distance_matrix(instance)[0]
    unit = unit_of(distances)
    legs = np.ceil(distances / unit * DISTANCE_SCALE).astype(np.int64)
    prizes = instance.prize[0].astype(np.float64)  # much larger integers would outweigh PyVRP's penalties
    prize = np.rint(prizes * (PRIZE_SCALE / (prizes.max() or 1.0))).astype(np.int64).tolist()
    clients = [pyvrp.Client(node, prize=prize[node], required=False) for node in range(1, len(prize))]
    limit = float(length_limit(instance)[0]) / unit * DISTANCE_SCALE
    vehicle = pyvrp.VehicleType(max_distance=int(np.clip(limit, 0, NEVER)))
    return legal_tour(problem, instance, join_trips(trips(run(one_depot(pyvrp, legs, clients, vehicle)))))


def trips(routes: list[Any]) -> list[list[int]]:
    """Return the customers of each route, if PyVRP's first client is node 1."""
    return [[int(stop.idx) + 1 for stop in route if stop.is_client()] for route in routes]


def pickup_delivery(pyvrp: Any, problem: PDP, instance: Any, run: Run) -> list[int]:
    """Solve a PDP.

    Several deliveries of one pickup are shipments from the same location, which a tour need not visit again.
    """
    distances = distance_matrix(instance)[0]
    legs = np.rint(distances / unit_of(distances) * LENGTH_SCALE).astype(np.int64)
    singles, pairs = split_pairs(range(1, len(legs)), instance.pickup[0])
    clients, shipments = [pyvrp.Client(node) for node in singles], [pyvrp.Shipment(*pair) for pair in pairs]
    data = one_depot(pyvrp, legs, clients, pyvrp.VehicleType(), shipments=shipments)
    visits = [node for route in run(data) for node in visits_of(route, singles, pairs)]
    return [*dict.fromkeys(visits), 0]


def salesmen(pyvrp: Any, problem: MTSP, instance: Any, run: Run) -> list[int]:
    """Solve an MTSP: find tours within a limit on their length, and lower the limit until none are found."""
    distances = distance_matrix(instance)[0]
    legs = np.rint(distances / unit_of(distances) * DISTANCE_SCALE).astype(np.int64)
    vehicles = min(int(instance.num_salesmen[0]), problem.num_nodes)

    clients = [pyvrp.Client(node) for node in range(1, len(legs))]

    def within(limit: int) -> Any:
        return one_depot(pyvrp, legs, clients, pyvrp.VehicleType(vehicles, max_distance=limit))

    routes = run(within(NEVER), first=True)
    step = max(route.distance() for route in routes) // 2
    while step:
        longest = max(route.distance() for route in routes)
        try:
            routes = run(within(max(longest - step, 0)), SHARE, first=True)
        except NoTourError:
            step //= 2
    return join_trips(trips(routes))


def vehicle_routing(pyvrp: Any, problem: AnyProblem, instance: Any, run: Run) -> list[int]:
    """Solve a CVRP or a problem of the VRP family."""
    task = task_of(problem, instance, TASK_UNIT / unit_of(distance_matrix(instance)[0]))
    numbers = Numbers(task)
    if len(task.depots) == 1 and task.pickup_at is None and problem.visits_all:
        serve_alone(numbers)
    routes = run(pyvrp_data(pyvrp, numbers, np.isinf(task.penalty)), edge=numbers.edge)
    starts, stops = [task.depots[route.start_depot()] for route in routes], routes_of(numbers, routes)
    return join_routes(zip(starts, stops, strict=True), ends=sum(map(len, stops)) < problem.num_nodes)


MODELS: dict[str, Callable[[Any, Any, Any, Run], list[int]]] = {
    "CVRP": vehicle_routing,
    **dict.fromkeys(PRESETS, vehicle_routing),
    "OP": orienteering,
    "PDP": pickup_delivery,
    "MTSP": salesmen,
}


@dataclass(frozen=True)
class PyVRP(RowSolver):
    """CVRP, the VRP family, PDP, MTSP and OP, the last with optional customers, prizes and a limit on the length.

    Lengths and times are counted in units of the largest power of two up to the longest distance. If there is a limit
    (OP, VRPL), distances are rounded up and the limit down, so that every tour found keeps it; a tour within n / 10^4
    of the limit is not found. Tours within n / 10^6 of the end of a time window are not found either. Only a customer
    that is reached from the depot just in time, or just within the limit, is still served alone. Prizes are counted in
    millionths of the largest prize: a prize is declined if its share of the largest is less than a hundredth of its
    detour, whatever length is left. PyVRP uses only the limit of OP's whole tour: if distances violate the triangle
    inequality, customers that the mask forbids are removed afterwards.

    Attributes:
        time_limit: Seconds per instance; the whole time is used.
        iterations: Number of iterations after which the search stops, unless the time limit stops it; for MTSP, for
            each limit on the tours. Tours then do not depend on the speed of the machine.

    Raises:
        ValueError: The time limit is not positive, or the number of iterations is less than one.
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
        ends = time.monotonic() + self.time_limit

        def run(data: Any, share: float = 1.0, first: bool = False, edge: float = 0.0) -> list[Any]:
            share = share if self.iterations is None else 1.0
            limits = [stop.MaxRuntime(max(0.0, min(share * self.time_limit, ends - time.monotonic())))]
            limits += [stop.MaxIterations(self.iterations)] if self.iterations is not None else []
            limits += [stop.FirstFeasible()] if first else []
            result = search(data, stop.MultipleCriteria(limits), seed, largest_penalty(data, edge))
            if not result.is_feasible():
                raise NoTourError("PyVRP found no feasible tour within the time limit")
            return list(result.best.routes())

        return MODELS[problem.name](pyvrp, problem, instance, run), FEASIBLE
