"""CVRP, the VRP family, PDP, MTSP and OP by iterated local search: PyVRP (Wouda, Lan and Kool, 2024; MIT licence)."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from routing_gym.optional import require
from routing_gym.problem import AnyProblem
from routing_gym.problems.checks import check_integer
from routing_gym.problems.mtsp import MTSP
from routing_gym.problems.op import OP, legal_tour, length_limit
from routing_gym.problems.pdp import PDP
from routing_gym.problems.vrp import PRESETS
from routing_gym.solvers.external.pyvrp_routes import DISTANCE_SCALE, NEVER, Formulation, visits_of
from routing_gym.solvers.runtime.base import FEASIBLE, IntArray, RowSolver, distance_matrix, join_trips, unit_of

MAX_PENALTY = 100_000.0  # of a unit of load or length beyond a limit, per cost of a unit of length: PyVRP's default
LENGTH_SCALE = 1e6  # of PDP's lengths, which have no limit whose penalties could be too small
PRIZE_SCALE = 1e6  # of the largest prize: a hundredth of it is worth 1e4, a detour of length 1
SHARE = 1 / 16  # of the time, for MTSP's tours within a smaller limit


class NoTourError(RuntimeError):
    """PyVRP found no feasible tour."""


class Run(Protocol):
    """Run PyVRP; return its best routes.

    Args:
        data: PyVRP's data.
        share: Of the time limit, within what is left of it.
        first: Return the first feasible routes.

    Raises:
        NoTourError: No feasible routes were found.
    """

    def __call__(self, data: Any, share: float = 1.0, first: bool = False) -> list[Any]: ...


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


def one_depot(pyvrp: Any, legs: IntArray, clients: list[Any], vehicle: Any, shipments: Sequence[Any] = ()) -> Any:
    """Return PyVRP's data of alike vehicles from node 0 without times; `legs` (A, A) are the distances."""
    return pyvrp.ProblemData(
        locations=[pyvrp.Location(0, 0) for _ in legs],
        clients=clients,
        depots=[pyvrp.Depot(0)],
        vehicle_types=[vehicle],
        distance_matrices=[legs],
        duration_matrices=[np.zeros_like(legs)],
        shipments=shipments,
    )


def trips(routes: list[Any]) -> list[list[int]]:
    """Return the customers of each route, where PyVRP's first client is node 1."""
    return [[int(stop.idx) + 1 for stop in route if stop.is_client()] for route in routes]


def pickup_delivery(pyvrp: Any, problem: PDP, instance: Any, run: Run) -> list[int]:
    """Solve a PDP.

    Several deliveries of one pickup are shipments from the same place, which a tour need not visit again.
    """
    distances = distance_matrix(instance)[0]
    legs = np.rint(distances / unit_of(distances) * LENGTH_SCALE).astype(np.int64)
    pickup = instance.pickup[0].tolist()
    pairs = [(before, node) for node, before in enumerate(pickup) if before]
    singles = [node for node in range(1, len(pickup)) if not pickup[node] and node not in pickup]
    shipments = [pyvrp.Shipment(*pair) for pair in pairs]
    data = one_depot(pyvrp, legs, [pyvrp.Client(node) for node in singles], pyvrp.VehicleType(), shipments)
    visits = [node for route in run(data) for node in visits_of(route, singles, pairs)]
    return [*dict.fromkeys(visits), 0]


def salesmen(pyvrp: Any, problem: MTSP, instance: Any, run: Run) -> list[int]:
    """Solve an MTSP: find tours within a limit on their length, which is lowered until none are found."""
    distances = distance_matrix(instance)[0]
    legs = np.rint(distances / unit_of(distances) * DISTANCE_SCALE).astype(np.int64)
    vehicles = min(int(instance.num_salesmen[0]), problem.num_nodes)

    clients = [pyvrp.Client(node) for node in range(1, len(legs))]

    def within(limit: int) -> Any:
        return one_depot(pyvrp, legs, clients, pyvrp.VehicleType(vehicles, max_distance=limit))

    routes = run(within(int(NEVER)), first=True)
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
    formulation = Formulation(pyvrp, problem, instance)
    return formulation.actions(run(formulation.data()))


MODELS: dict[str, Callable[[Any, Any, Any, Run], list[int]]] = {
    "CVRP": vehicle_routing,
    **dict.fromkeys(PRESETS, vehicle_routing),
    "OP": orienteering,
    "PDP": pickup_delivery,
    "MTSP": salesmen,
}


@dataclass(frozen=True)
class PyVRP(RowSolver):
    """CVRP, the VRP family, PDP and MTSP; and OP by optional customers with prizes and a limit on the vehicle's way.

    Lengths and times are counted in the power of two next below the longest distance. Where there is a limit (OP,
    VRPL), distances are rounded up and the limit down, so that every tour found is short enough; one that is within
    n / 10^4 of the limit is not found. Nor are tours within n / 10^6 of a window's end. Only a customer who is reached
    just in time, or within the limit, from the depot is still served alone. Prizes are counted in millionths of the
    largest: one is declined where its share of the largest is less than a hundredth of its detour, whatever length is
    left. It knows the limit of OP's whole tour only: where distances violate the triangle inequality, customers that
    the mask forbids are left out.

    Attributes:
        time_limit: Seconds per instance; all of it is used.
        iterations: Iterations after which it stops, if the time limit has not stopped it; of MTSP for each limit on
            the tours. Tours then do not depend on the speed of the machine.

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
        stop, exceptions = require("pyvrp.stop", "solvers"), require("pyvrp.exceptions", "solvers")
        ends = time.monotonic() + self.time_limit

        def run(data: Any, share: float = 1.0, first: bool = False) -> list[Any]:
            share = share if self.iterations is None else 1.0
            limits = [stop.MaxRuntime(max(0.0, min(share * self.time_limit, ends - time.monotonic())))]
            limits += [stop.MaxIterations(self.iterations)] if self.iterations is not None else []
            limits += [stop.FirstFeasible()] if first else []
            # as large for costs that are counted more finely, with fleets, as PyVRP's default is for lengths
            largest = max(kind.unit_distance_cost for kind in data.vehicle_types()) * MAX_PENALTY
            params = pyvrp.SolveParams(penalty=pyvrp.PenaltyParams(max_penalty=largest))
            limit = stop.MultipleCriteria(limits)
            with warnings.catch_warnings():  # that there may be no feasible tour, which is an error below
                warnings.simplefilter("ignore", exceptions.PenaltyBoundWarning)
                result = pyvrp.solve(data, limit, seed=seed, collect_stats=False, display=False, params=params)
            if not result.is_feasible():
                raise NoTourError("PyVRP found no feasible tour within the time limit")
            return list(result.best.routes())

        return MODELS[problem.name](pyvrp, problem, instance, run), FEASIBLE
