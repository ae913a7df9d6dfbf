"""PCTSP, PDP, MTSP, TSPFE and ATSP by guided local search: the routing library of OR-Tools (Apache 2.0 licence)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from routing_gym.arrays import FloatArray, IntArray
from routing_gym.optional import require
from routing_gym.problem import AnyProblem
from routing_gym.problems.geometry import unit_of
from routing_gym.problems.pctsp import ENOUGH_PRIZE
from routing_gym.problems.tspfe import from_fixed_edge, with_fixed_edges
from routing_gym.solvers.constructive.nearest_neighbour import NearestNeighbour
from routing_gym.solvers.runtime.base import FEASIBLE, RowSolver, TimedOut, distance_matrix

SCALE = 1e6  # OR-Tools takes integers; all lengths are counted in `unit_of`
PRIZE_SCALE = 1e9  # finer, so that prizes that are just enough remain so when rounded down
LONGEST_WEIGHT = 100  # weight of MTSP's longest tour; the sum of all guides the search if the longest is unchanged


class Search:
    """OR-Tools model of closed tours of all nodes from node 0; problems add dimensions and constraints to `routing`.

    Args:
        problem: Problem to solve.
        distances: (A, A).
        vehicles: Number of vehicles.
    """

    def __init__(self, problem: AnyProblem, distances: FloatArray, vehicles: int = 1) -> None:
        pywrapcp = require("ortools.constraint_solver.pywrapcp", "solvers")
        self.has_depot, self.vehicles = problem.has_depot, vehicles
        self.manager = pywrapcp.RoutingIndexManager(problem.num_actions, vehicles, 0)
        self.routing = pywrapcp.RoutingModel(self.manager)
        self.unit = unit_of(distances)
        self.legs = np.rint(distances / self.unit * SCALE).astype(np.int64)
        self.length = self.routing.RegisterTransitMatrix(self.legs.tolist())
        self.routing.SetArcCostEvaluatorOfAllVehicles(self.length)

    def tour(self, time_limit: float, first: str = "PATH_CHEAPEST_ARC", start: IntArray | None = None) -> list[int]:
        """Run guided local search until the time limit, from a tour by the strategy `first`, or from `start`.

        Raises:
            TimedOut: No tour was found.
        """
        parameters = guided_local_search(time_limit, first)
        if start is None:
            found = self.routing.SolveWithParameters(parameters)
        else:
            self.routing.CloseModelWithParameters(parameters)
            assignment = self.routing.ReadAssignmentFromRoutes([start.tolist()], True)
            found = self.routing.SolveFromAssignmentWithParameters(assignment, parameters)
        if found is None:
            raise TimedOut(f"OR-Tools found no tour within {time_limit:g} s")
        return self.read(found)

    def read(self, found: Any) -> list[int]:
        """Return the actions of a solution."""
        tours: list[int] = [] if self.has_depot else [0]
        for vehicle in range(self.vehicles):
            tours += visits(self.routing, self.manager, found, vehicle)
            tours += [0] if self.has_depot and tours[-1:] != [0] else []  # empty tours have no return
        return tours or [0]


def guided_local_search(seconds: float, first: str) -> Any:
    """Return the parameters of guided local search that starts with the strategy `first`.

    Raises:
        ImportError: OR-Tools is missing; the message names the extra to install.
    """
    enums = require("ortools.constraint_solver.routing_enums_pb2", "solvers")
    parameters = require("ortools.constraint_solver.pywrapcp", "solvers").DefaultRoutingSearchParameters()
    parameters.first_solution_strategy = getattr(enums.FirstSolutionStrategy, first)
    parameters.local_search_metaheuristic = enums.LocalSearchMetaheuristic.GUIDED_LOCAL_SEARCH
    parameters.time_limit.seconds = int(seconds)
    parameters.time_limit.nanos = int(seconds % 1 * 1e9)
    return parameters


def visits(routing: Any, manager: Any, found: Any, vehicle: int) -> list[int]:
    """Return the nodes of a vehicle's route in a solution, without its depot."""
    nodes, index = [], found.Value(routing.NextVar(routing.Start(vehicle)))
    while not routing.IsEnd(index):
        nodes.append(manager.IndexToNode(index))
        index = found.Value(routing.NextVar(index))
    return nodes


def closed_tour(problem: AnyProblem, instance: Any, time_limit: float) -> list[int]:
    """Solve ATSP."""
    return Search(problem, distance_matrix(instance)[0]).tour(time_limit)


def fixed_edges(problem: AnyProblem, instance: Any, time_limit: float) -> IntArray:
    """Solve TSPFE as a TSP whose shortest tours contain the fixed edges."""
    distances = with_fixed_edges(distance_matrix(instance), instance.partner)[0]
    tour = Search(problem, distances).tour(time_limit)
    return np.asarray(from_fixed_edge(np.array([tour]), instance.partner)[0])


def prize_collecting(problem: AnyProblem, instance: Any, time_limit: float) -> list[int]:
    """Solve PCTSP: each unvisited customer costs its penalty, and the tour must end with enough prize."""
    search = Search(problem, distance_matrix(instance)[0])
    routing = search.routing
    prize = np.floor(instance.expected_prize[0].astype(np.float64) * PRIZE_SCALE).astype(np.int64).tolist()
    penalty = np.rint(instance.penalty[0].astype(np.float64) / search.unit * SCALE).astype(np.int64).tolist()
    enough = int(np.ceil(ENOUGH_PRIZE * PRIZE_SCALE))
    if sum(prize) >= enough:  # otherwise all customers must be visited
        collects = routing.RegisterUnaryTransitVector(prize)
        routing.AddDimension(collects, 0, sum(prize), True, "prize")
        routing.GetDimensionOrDie("prize").CumulVar(routing.End(0)).SetMin(enough)
        for node in range(1, len(prize)):
            routing.AddDisjunction([search.manager.NodeToIndex(node)], penalty[node])
    return search.tour(time_limit)


def salesmen(problem: AnyProblem, instance: Any, time_limit: float) -> list[int]:
    """Solve MTSP: the longest tour has more weight than the sum of all."""
    vehicles = min(int(instance.num_salesmen[0]), problem.num_nodes)
    search = Search(problem, distance_matrix(instance)[0], vehicles)
    most = int(search.legs.max()) * (problem.num_actions + 1)
    search.routing.AddDimension(search.length, 0, most, True, "length")
    search.routing.GetDimensionOrDie("length").SetGlobalSpanCostCoefficient(LONGEST_WEIGHT)
    return search.tour(time_limit, first="LOCAL_CHEAPEST_INSERTION")


def pickup_delivery(problem: AnyProblem, instance: Any, time_limit: float) -> list[int]:
    """Solve PDP: each delivery comes after its pickup.

    OR-Tools orders a pickup and its only delivery itself, and moves both in its search. If a pickup has several
    deliveries, steps are compared instead of lengths, which cannot order nodes at the same location. No insertion
    strategy places several deliveries of one pickup, so the search then starts from the nearest-neighbour tour.
    """
    search = Search(problem, distance_matrix(instance)[0])
    routing, index, pickup = search.routing, search.manager.NodeToIndex, instance.pickup[0].tolist()
    start = None
    for delivery, before in enumerate(pickup):
        if pickup.count(before) == 1:
            routing.AddPickupAndDelivery(index(before), index(delivery))
        elif before:
            if start is None:
                routing.AddConstantDimension(1, len(pickup), True, "step")
                start = NearestNeighbour().tours(problem, instance, np.zeros(1, dtype=np.int64), seed=0)[0, :-1]
            step = routing.GetDimensionOrDie("step")
            routing.solver().Add(step.CumulVar(index(before)) < step.CumulVar(index(delivery)))
    return search.tour(time_limit, "LOCAL_CHEAPEST_INSERTION", start)


MODELS: dict[str, Callable[[AnyProblem, Any, float], list[int] | IntArray]] = {
    "PCTSP": prize_collecting,
    "PDP": pickup_delivery,
    "MTSP": salesmen,
    "TSPFE": fixed_edges,
    "ATSP": closed_tour,
}


@dataclass(frozen=True)
class ORTools(RowSolver):
    """Guided local search for PCTSP, PDP, MTSP, TSPFE and ATSP; see `MODELS`.

    PCTSP has optional customers with penalties, and a minimum prize at the end of the tour. Prizes are rounded down and
    the minimum prize up, so that every tour found is feasible. The seed is not used.

    Attributes:
        time_limit: Seconds per instance; the whole time is used. PCTSP: with 1, 2 and 5 s for 20, 50 and 100 customers,
            costs are within 0, 0.14 and 0.96 % of the optimum. PDP: with 1 s and 4 s, costs are 0.4 and 0 % above the
            best known tours with 20 customers (means of 40 instances), 12 and 5 % with 50 (of 20). MTSP: 4 s give tours
            as long as 1 s does with 20 customers, and 17 % shorter ones with 50 (means of four instances).
    """

    name: ClassVar[str] = "ortools"
    problems: ClassVar[tuple[str, ...]] = tuple(MODELS)
    packages: ClassVar[tuple[str, ...]] = ("ortools.constraint_solver.pywrapcp",)

    time_limit: float = 1.0

    def solve_row(self, problem: AnyProblem, instance: Any, seed: int) -> tuple[list[int] | IntArray, str]:
        return MODELS[problem.name](problem, instance, self.time_limit), FEASIBLE
