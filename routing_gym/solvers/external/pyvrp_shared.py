"""Parts that all formulations for PyVRP share: pairs, plain data, the search, and the nodes of its routes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from routing_gym.arrays import IntArray
from routing_gym.optional import require
from routing_gym.planning.integers import NEVER

MAX_PENALTY = 100_000.0  # per unit of excess load or length, relative to the cost of a unit of length: PyVRP's default
MOST_EDGES = 100  # number of longest edges beyond a limit whose penalties may be added up: PyVRP counts up to 2**63
Pairs = list[tuple[int, int]]  # pickups with their deliveries


def split_pairs(
    nodes: Iterable[int], pickup: IntArray | None, windows: tuple[npt.NDArray[Any], npt.NDArray[Any]] | None = None
) -> tuple[list[int], Pairs]:
    """Return the nodes that belong to no pair, and the pairs.

    Pairs whose delivery closes before the pickup opens are missing: they are left out of every tour, and PyVRP raises
    an error for them.

    Args:
        nodes: Nodes to visit.
        pickup: Pickup of each delivery, 0 for none, int64 (A,), if there are pairs.
        windows: Earliest and latest starts of service, (A,) each, if there are time windows.
    """
    if pickup is None:
        return list(nodes), []
    pairs = [(source, node) for node, source in enumerate(pickup.tolist()) if source]
    paired = {node for pair in pairs for node in pair}
    if windows is not None:
        opens, closes = windows
        pairs = [(source, node) for source, node in pairs if opens[source] <= closes[node]]
    return [node for node in nodes if node not in paired], pairs


def one_depot(
    pyvrp: Any,
    legs: IntArray,
    clients: Sequence[Any],
    vehicle: Any,
    durations: IntArray | None = None,
    shipments: Sequence[Any] = (),
) -> Any:
    """Return PyVRP's data for identical vehicles from node 0, with distances and durations (A, A), by default 0."""
    return pyvrp.ProblemData(
        locations=[pyvrp.Location(0, 0) for _ in legs],  # only the matrices matter
        clients=clients,
        depots=[pyvrp.Depot(0)],
        vehicle_types=[vehicle],
        distance_matrices=[legs],
        duration_matrices=[np.zeros_like(legs) if durations is None else durations],
        shipments=shipments,
    )


def largest_penalty(data: Any, edge: float = 0.0) -> float:
    """Return the largest penalty per unit of excess.

    No vehicle, edge or prize is worth a unit of load above the capacity, unless sums of penalties would overflow.

    Args:
        data: PyVRP's data.
        edge: Cost of the longest edge, if the costs of vehicles are in the matrices.
    """
    kinds = data.vehicle_types()
    lengths = max(1, *(kind.unit_distance_cost for kind in kinds)) * MAX_PENALTY
    prizes = (one.prize for one in (*data.clients(), *data.shipments()))
    worth = max(edge, *(kind.fixed_cost for kind in kinds), *prizes)
    limited = any(kind.max_distance < NEVER for kind in kinds)
    matrices = [*data.duration_matrices(), *(data.distance_matrices() if limited else ())]
    longest = max(1, *(int(matrix.max()) for matrix in matrices))
    return float(min(max(lengths, 2 * worth), 2.0**62 / (MOST_EDGES * longest)))


def search(
    data: Any, stop: Callable[[float], bool], seed: int, max_penalty: float = MAX_PENALTY, start: Any = None
) -> Any:
    """Run PyVRP's iterated local search, and return its result, which may be infeasible.

    `stop` is a function of the best cost so far; `start` is the first solution, by default PyVRP's own.
    """
    pyvrp, exceptions = require("pyvrp", "solvers"), require("pyvrp.exceptions", "solvers")
    params = pyvrp.SolveParams(penalty=pyvrp.PenaltyParams(max_penalty=max_penalty))
    with warnings.catch_warnings():  # warnings that there may be no feasible tour; callers check the result
        warnings.simplefilter("ignore", exceptions.PenaltyBoundWarning)
        return pyvrp.solve(
            data, stop, seed=seed, collect_stats=False, display=False, params=params, initial_solution=start
        )


def visits_of(route: Any, singles: Sequence[int], pairs: Pairs) -> list[int]:
    """Return the nodes of one of PyVRP's routes, without depots.

    PyVRP's clients are the nodes in `singles`, and its shipments are `pairs`.
    """
    return [
        singles[int(stop.idx)] if stop.is_client() else pairs[int(stop.idx)][stop.is_delivery()]
        for stop in route
        if not stop.is_depot()
    ]
