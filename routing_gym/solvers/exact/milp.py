"""Exact solutions by mixed-integer programming with generalised subtour cuts (SciPy's HiGHS).

There are edge variables x and node variables y, and every visited node has two edge ends. For each set S without the
depot and each k in S, x(E(S)) <= y(S) - y_k: the generalised subtour elimination constraints of Fischetti,
Salazar-Gonzalez and Toth (1998), "Solving the orienteering problem through branch-and-cut".

Minimum cuts find violated constraints of the linear relaxation until there are none. The integer program is then
solved, and solved again with the subtours of its solution forbidden, until the solution is a single tour. That tour
keeps the limit on its length or prize in float64, too, without the tolerance of HiGHS. Edges whose reduced cost proves
that no optimal tour uses them are omitted.

An ATSP becomes a symmetric TSP with fixed edges (Jonker and Volgenant 1983, "Transforming asymmetric into symmetric
traveling salesman problems"): each city is split into a node for arrivals and one for departures, joined by a fixed
edge.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from routing_gym.arrays import FloatArray, IntArray
from routing_gym.problem import AnyProblem
from routing_gym.problems.op import OP, legal_tour, length_limit
from routing_gym.problems.pctsp import ENOUGH_PRIZE, PCTSP
from routing_gym.problems.tspfe import from_fixed_edge
from routing_gym.solvers.exact.milp_cuts import conflicting_sets, subtours, violated_conflicts, violated_subtours
from routing_gym.solvers.exact.milp_program import Program
from routing_gym.solvers.runtime.base import OPTIMAL, RowSolver, distance_matrix

TOLERANCE = 1e-6  # tolerance of HiGHS on constraints
PRIZE_UNIT = 100  # prizes in hundredths, like all prizes of the paper, make the objective an integer
LARGEST = 2.0**10  # largest length or prize of a program; HiGHS's absolute tolerances, 1e-6, are then small
FIRST_WINDOW = 0.02  # reduced cost, relative to the bound, up to which edges are tried first


@dataclass
class Model:
    """One instance as a program without subtour constraints.

    Attributes:
        program: Costs, bounds and limits.
        actions: Function from the nodes of the program's tour, starting at node 0, to actions.
        conflicts: Sets of nodes that cannot all be on one tour.
        step: Smallest difference between two costs, 0 if unknown.
    """

    program: Program
    actions: Callable[[list[int]], Sequence[int] | IntArray]
    conflicts: list[IntArray] = field(default_factory=list)
    step: float = 0.0


def closed_tour(problem: AnyProblem, instance: Any) -> Model:
    """Formulate a TSP."""
    return Model(program_of_all(distance_matrix(instance)[0]), lambda tour: tour)


def program_of_all(distances: FloatArray) -> Program:
    """Make the program of the shortest tours of all nodes."""
    program = Program.of_tours(distances * scale(distances))
    program.low[: program.num_nodes] = 1.0
    program.high[:] = 1.0
    program.cost[program.edges] = program.lengths
    return program


def fixed_edges(problem: AnyProblem, instance: Any) -> Model:
    """Formulate a TSPFE as a TSP whose tours must contain the fixed edges."""
    program, partner = program_of_all(distance_matrix(instance)[0]), instance.partner
    with_edge = np.flatnonzero(partner[0] > np.arange(program.num_nodes))
    program.low[program.edge(with_edge, partner[0, with_edge])] = 1.0
    return Model(program, lambda tour: from_fixed_edge(np.array([tour]), partner)[0])


def one_way(problem: AnyProblem, instance: Any) -> Model:
    """Formulate an ATSP: nodes below `size` are for arrivals, the others for departures."""
    distances, size = distance_matrix(instance)[0], problem.num_nodes
    program = program_of_all(np.block([[np.zeros_like(distances), distances.T], [distances, np.zeros_like(distances)]]))
    program.high[program.edges[(program.ends < size).sum(axis=1) != 1]] = 0.0
    program.low[program.edge(np.arange(size), np.arange(size, 2 * size))] = 1.0
    # The tour goes from the arrival node of city 0 to its departure node, or backwards.
    return Model(program, lambda tour: [tour[0], *(tour[2::2] if tour[1] == size else tour[-2:0:-2])])


def orienteering(problem: OP, instance: Any) -> Model:
    """Formulate an OP."""
    distances = distance_matrix(instance)[0]
    unit = scale(distances)  # factor of the program's lengths
    program = Program.of_tours(distances * unit)
    prize = instance.prize[0].astype(np.float64)
    rounded = np.rint(prize * PRIZE_UNIT)
    # Prizes may be the float32 numbers nearest to hundredths; others must not be rounded to hundredths.
    is_integer = bool((instance.prize[0] == (rounded / PRIZE_UNIT).astype(np.float32)).all()) and rounded.max() < 1e6
    program.cost[: program.num_nodes] = -(rounded if is_integer else prize * scale(prize))
    limit = float(length_limit(instance)[0]) * unit
    program.add_limit(program.edges, program.lengths, -np.inf, limit)
    program.most_with_way_back = limit
    conflicts = conflicting_sets(program, distances * unit, limit)
    return Model(program, lambda tour: legal_tour(problem, instance, [*tour[1:], 0]), conflicts, float(is_integer))


def prize_collecting(problem: PCTSP, instance: Any) -> Model:
    """Formulate a PCTSP; or an SPCTSP, as if the real prizes were known beforehand."""
    distances = distance_matrix(instance)[0]
    unit = scale(distances)
    program = Program.of_tours(distances * unit)
    nodes = np.arange(program.num_nodes)
    prize = problem.collectable(instance)[0].astype(np.float64)
    program.cost[program.edges] = program.lengths
    penalty = instance.penalty[0].astype(np.float64) * unit
    # Adding a customer costs at most two edges: one with a larger penalty is always visited, and needs no penalty. Next
    # to a penalty of 10^13, HiGHS would ignore all lengths.
    always = penalty > 2 * (distances * unit).max()
    program.cost[nodes] = np.where(always, 0.0, -penalty)
    program.low[nodes] = always
    program.low[0] = 1.0
    if prize.sum() < ENOUGH_PRIZE:
        program.low[nodes] = 1.0
    else:
        program.add_limit(nodes, prize, ENOUGH_PRIZE, np.inf)
    return Model(program, lambda tour: [*tour[1:], 0])


def scale(values: FloatArray) -> float:
    """Return the power of two (exact in float64) that scales the largest value to at most `LARGEST`."""
    largest = float(values.max())
    return float(2.0 ** np.floor(np.log2(LARGEST / largest))) if largest > 0 else 1.0


def relax(program: Program, conflicts: list[IntArray], deadline: float) -> tuple[float, FloatArray]:
    """Solve the linear relaxation, and add violated cuts until there are none.

    Returns:
        The bound, and the reduced costs of the variables.
    """
    while True:
        values, bound, reduced = program.solve_relaxed(deadline)
        cuts = violated_subtours(program, values)
        sets = violated_conflicts(conflicts, values)
        if not cuts and not sets:
            return bound, reduced
        for inside, node in cuts:
            program.forbid_subtour(inside, node)
        for together in sets:
            program.add(together, 1.0, -np.inf, len(together) - 1)


def solve_integer(program: Program, bound: float, reduced: FloatArray, step: float, deadline: float) -> FloatArray:
    """Solve the integer program; return a tour that is proven optimal.

    Any solution that uses a variable whose value is 0 in the relaxation costs at least the bound plus its reduced cost.
    It is therefore enough to try the variables with a reduced cost of at most `window`, if the tour found costs less
    than bound + window: every tour that uses another variable costs more.

    Each round solves the program with those variables. There are four cases, checked in this order:

    1. There is no solution: the window is too narrow and is widened. If all variables are allowed, there is no tour.
    2. The solution has subtours that miss node 0: they are forbidden, and the program is solved again. No tour costs
       less than this solution, or than bound + window if that is less; this is added as a constraint, so that HiGHS
       need not prove it again.
    3. The solution is one tour, but breaks a limit by less than HiGHS's tolerance, or OP's rule of the direct return
       (see `OP`): `keeps_limits` or `keeps_way_back` has forbidden it.
    4. The solution is a tour. If the window includes its cost, it is optimal. Otherwise the window is widened to that
       cost: the next tour costs no more than this one, so the next round is the last, except for subtours and limits.

    Args:
        program: Program with the cuts of `relax`; constraints are added, and `high` is changed.
        bound: Cost of the relaxation.
        reduced: Reduced costs of the variables.
        step: Smallest difference between two costs; a better tour is better by at least this much.
        deadline: Time limit, on the clock of `time.perf_counter`.

    Raises:
        TimedOut: The deadline has passed.
        RuntimeError: There is no tour.
    """
    window = max(FIRST_WINDOW * abs(bound), step)
    edge_limits = program.high.copy()
    priced = np.flatnonzero(program.cost)
    # No solution costs less than the relaxation; with this constraint, HiGHS stops as soon as it reaches the bound.
    program.add(priced, program.cost[priced], bound - TOLERANCE * max(1.0, abs(bound)), np.inf)
    while True:
        allowed = (reduced <= window) | (program.low > 0)
        program.high = np.where(allowed, edge_limits, 0.0)
        values = program.solve_integer(deadline)
        if values is None:
            if allowed.all():
                raise RuntimeError("HiGHS finds no tour that keeps the constraints")
            window *= 4
            continue
        islands = subtours(program, values)
        if islands:
            for inside in islands:
                for node in inside:
                    program.forbid_subtour(inside, int(node))
            proven = min(float(program.cost @ values), np.inf if allowed.all() else bound + window)
            program.add(priced, program.cost[priced], proven - TOLERANCE * max(1.0, abs(proven)), np.inf)
            continue
        if not program.keeps_limits(values) or not program.keeps_way_back(values):
            continue
        needed = float(program.cost @ values) - bound - 0.999 * step
        if needed <= window or allowed.all():
            return values
        window = needed + TOLERANCE


MODELS: dict[str, Callable[[Any, Any], Model]] = {
    "TSP": closed_tour,
    "OP": orienteering,
    "PCTSP": prize_collecting,
    "TSPFE": fixed_edges,
    "ATSP": one_way,
}
OFFLINE_MODELS: dict[str, Callable[[Any, Any], Model]] = {"SPCTSP": prize_collecting}


@dataclass(frozen=True)
class ExactMIP(RowSolver):
    """Proven optima of TSP, TSPFE, ATSP, OP and PCTSP.

    Attributes:
        time_limit: Seconds per instance; a row that is not proven optimal within it fails.
    """

    name: ClassVar[str] = "milp"
    models: ClassVar[dict[str, Callable[[Any, Any], Model]]] = MODELS
    problems: ClassVar[tuple[str, ...]] = tuple(MODELS)
    packages: ClassVar[tuple[str, ...]] = ("scipy.optimize", "scipy.sparse.csgraph")
    needs_symmetry: ClassVar[bool] = True

    time_limit: float = 600.0

    def solve_row(self, problem: AnyProblem, instance: Any, seed: int) -> tuple[Sequence[int] | IntArray, str]:
        deadline = time.perf_counter() + self.time_limit
        model = self.models[problem.name](problem, instance)
        program = model.program
        if not problem.has_depot and program.num_nodes <= 3:  # every order is optimal
            return model.actions(list(range(program.num_nodes))), OPTIMAL
        bound, reduced = relax(program, model.conflicts, deadline)
        return model.actions(program.tour(solve_integer(program, bound, reduced, model.step, deadline))), OPTIMAL


@dataclass(frozen=True)
class OfflineMIP(ExactMIP):
    """SPCTSP with the real prizes known beforehand: a bound that no policy can beat, not a baseline."""

    name: ClassVar[str] = "milp-offline"
    models = OFFLINE_MODELS
    problems: ClassVar[tuple[str, ...]] = tuple(OFFLINE_MODELS)
    is_bound: ClassVar[bool] = True
