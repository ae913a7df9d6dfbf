"""PCTSP, PDP, MTSP, TSPFE and ATSP by guided local search: the routing library of OR-Tools (Apache 2.0 licence)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from routing_gym.optional import require
from routing_gym.problem import AnyProblem
from routing_gym.problems.pctsp import ENOUGH_PRIZE
from routing_gym.problems.tspfe import from_fixed_edge
from routing_gym.solvers.constructive.nearest_neighbour import NearestNeighbour
from routing_gym.solvers.runtime.base import (
    FEASIBLE,
    IntArray,
    RowSolver,
    TimedOut,
    distance_matrix,
    unit_of,
    with_fixed_edges,
)

SCALE = 1e6  # OR-Tools takes integers, lengths in `unit_of` all of them
PRIZE_SCALE = 1e9  # finer, so that prizes which are just enough still are when rounded down
LONGEST_WEIGHT = 100  # of MTSP's longest tour beside the sum of all, which leads the search where the longest stays


@dataclass(frozen=True)
class ORTools(RowSolver):
    """PCTSP with optional customers, their penalties, and a least prize at the end of the tour; and others.

    Prizes are rounded down and the least prize up, so that every tour found is allowed. It takes no seed.

    Attributes:
        time_limit: Seconds per instance; all of it is used. PCTSP: 1, 2 and 5 s for 20, 50 and 100 customers end
            within 0, 0.14 and 0.96 % of the optimum. PDP: 1 s and 4 s end 0.4 and 0 % above the best tours known with
            20 customers (means of 40 instances), 12 and 5 % with 50 (of 20). MTSP: 4 s find tours as long as 1 s does
            with 20 customers, and 17 % shorter ones with 50 (means of four instances).
    """

    name: ClassVar[str] = "ortools"
    problems: ClassVar[tuple[str, ...]] = ("PCTSP", "PDP", "MTSP", "TSPFE", "ATSP")
    packages: ClassVar[tuple[str, ...]] = ("ortools.constraint_solver.pywrapcp",)

    time_limit: float = 1.0

    def solve_row(self, problem: AnyProblem, instance: Any, seed: int) -> tuple[list[int] | IntArray, str]:
        pywrapcp = require("ortools.constraint_solver.pywrapcp", "solvers")
        vehicles = min(int(instance.num_salesmen[0]), problem.num_nodes) if problem.name == "MTSP" else 1
        manager = pywrapcp.RoutingIndexManager(problem.num_actions, vehicles, 0)
        routing = pywrapcp.RoutingModel(manager)
        distances = distance_matrix(instance)
        if problem.name == "TSPFE":
            distances = with_fixed_edges(distances, instance.partner)
        unit = unit_of(distances[0])
        legs = np.rint(distances[0] / unit * SCALE).astype(np.int64)
        length = routing.RegisterTransitMatrix(legs.tolist())
        routing.SetArcCostEvaluatorOfAllVehicles(length)
        if problem.name == "PCTSP":
            collect_prizes(routing, manager, instance, unit)
        elif problem.name == "MTSP":
            routing.AddDimension(length, 0, int(legs.max()) * (problem.num_actions + 1), True, "length")
            routing.GetDimensionOrDie("length").SetGlobalSpanCostCoefficient(LONGEST_WEIGHT)
        elif problem.name == "PDP":
            deliver(routing, manager, instance.pickup[0].tolist())
        if problem.name == "PDP" and has_shared_pickups(instance):
            found = self.solve_from_nearest_neighbour(routing, problem, instance)
        else:
            found = routing.SolveWithParameters(self.parameters(problem))
        if found is None:
            raise TimedOut(f"OR-Tools found no tour within {self.time_limit:g} s")
        tours: list[int] = [] if problem.has_depot else [0]
        for vehicle in range(vehicles):
            index = found.Value(routing.NextVar(routing.Start(vehicle)))
            while not routing.IsEnd(index):
                tours.append(manager.IndexToNode(index))
                index = found.Value(routing.NextVar(index))
            tours += [0] if problem.has_depot and tours[-1:] != [0] else []  # nobody has an empty tour
        if problem.name == "TSPFE":
            return from_fixed_edge(np.array([tours]), instance.partner)[0], FEASIBLE
        return tours or [0], FEASIBLE

    def solve_from_nearest_neighbour(self, routing: Any, problem: AnyProblem, instance: Any) -> Any:
        """Begin with PDP's nearest-neighbour tour: no insertion places several deliveries of one pickup."""
        parameters = self.parameters(problem)
        routing.CloseModelWithParameters(parameters)
        tour = NearestNeighbour().tours(problem, instance, np.zeros(1, dtype=np.int64), seed=0)[0, :-1]
        return routing.SolveFromAssignmentWithParameters(
            routing.ReadAssignmentFromRoutes([tour.tolist()], True), parameters
        )

    def parameters(self, problem: AnyProblem) -> Any:
        """Guided local search until the time limit: PDP and MTSP from an insertion, others from a cheapest-arc tour."""
        enums = require("ortools.constraint_solver.routing_enums_pb2", "solvers")
        parameters = require("ortools.constraint_solver.pywrapcp", "solvers").DefaultRoutingSearchParameters()
        strategies = enums.FirstSolutionStrategy
        cheapest_arc = problem.name not in ("PDP", "MTSP")
        parameters.first_solution_strategy = (
            strategies.PATH_CHEAPEST_ARC if cheapest_arc else strategies.LOCAL_CHEAPEST_INSERTION
        )
        parameters.local_search_metaheuristic = enums.LocalSearchMetaheuristic.GUIDED_LOCAL_SEARCH
        parameters.time_limit.seconds = int(self.time_limit)
        parameters.time_limit.nanos = int(self.time_limit % 1 * 1e9)
        return parameters


def collect_prizes(routing: Any, manager: Any, instance: Any, unit: float) -> None:
    """Tell OR-Tools of PCTSP's prizes and penalties; `unit` is that of the lengths."""
    prize = np.floor(instance.expected_prize[0].astype(np.float64) * PRIZE_SCALE).astype(np.int64).tolist()
    penalty = np.rint(instance.penalty[0].astype(np.float64) / unit * SCALE).astype(np.int64).tolist()
    enough = int(np.ceil(ENOUGH_PRIZE * PRIZE_SCALE))
    if sum(prize) < enough:
        return  # everyone must be visited
    collects = routing.RegisterUnaryTransitVector(prize)
    routing.AddDimension(collects, 0, sum(prize), True, "prize")
    end = routing.GetDimensionOrDie("prize").CumulVar(routing.End(0))
    end.SetMin(enough)
    for node in range(1, len(prize)):
        routing.AddDisjunction([manager.NodeToIndex(node)], penalty[node])


def has_shared_pickups(instance: Any) -> bool:
    """Say whether several of PDP's deliveries come from one pickup."""
    pickups = instance.pickup[0][instance.pickup[0] > 0]
    return len(np.unique(pickups)) < len(pickups)


def deliver(routing: Any, manager: Any, pickup: list[int]) -> None:
    """Require that each of PDP's deliveries comes after its pickup.

    OR-Tools orders a pickup and its only delivery itself, and moves both in its search. Where a pickup has several,
    steps are compared, not lengths travelled: between nodes that coincide, no length tells which came first.
    """
    solver, step = routing.solver(), None
    for delivery, before in enumerate(pickup):
        first, then = manager.NodeToIndex(before), manager.NodeToIndex(delivery)
        if pickup.count(before) == 1:
            routing.AddPickupAndDelivery(first, then)
        elif before:
            if step is None:
                routing.AddConstantDimension(1, len(pickup), True, "step")
                step = routing.GetDimensionOrDie("step")
            solver.Add(step.CumulVar(first) < step.CumulVar(then))
