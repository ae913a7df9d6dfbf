"""Classical solvers behind one protocol.

    from routing_gym.solvers import FastTSP
    solution = FastTSP(time_limit=0.05).solve(problem, instance, num_workers=2, progress=True)
    solution.cost.mean()

Those written here need NumPy only. The others import their package when they solve; the extra
`[solvers]` brings them all. A new solver is one file and one line below.
"""

from __future__ import annotations

from typing import Any

from routing_gym.problems.checks import check_settings
from routing_gym.problems.vrp import PRESETS
from routing_gym.solvers.constructive.christofides import Christofides
from routing_gym.solvers.constructive.greedy_edge import GreedyEdge
from routing_gym.solvers.constructive.insertion import FarthestInsertion, NearestInsertion, RandomInsertion
from routing_gym.solvers.constructive.local_search import OrOpt, TwoOpt, TwoOptOrOpt
from routing_gym.solvers.constructive.nearest_neighbour import NearestNeighbour
from routing_gym.solvers.exact.held_karp import HeldKarp
from routing_gym.solvers.exact.milp import ExactMIP, OfflineMIP
from routing_gym.solvers.external.fast_tsp import FastTSP
from routing_gym.solvers.external.hygese import Hygese
from routing_gym.solvers.external.ortools import ORTools
from routing_gym.solvers.external.pyvrp import PyVRP
from routing_gym.solvers.runtime.base import BatchSolver, RowSolver, Solution, Solver, TimedOut

SOLVERS: dict[str, type[Solver]] = {
    solver.name: solver
    for solver in (
        NearestNeighbour,
        NearestInsertion,
        FarthestInsertion,
        RandomInsertion,
        GreedyEdge,
        TwoOpt,
        OrOpt,
        TwoOptOrOpt,
        Christofides,
        HeldKarp,
        FastTSP,
        Hygese,
        PyVRP,
        ORTools,
        ExactMIP,
        OfflineMIP,
    )
}
REFERENCES = {  # the best of them for each problem, by name
    "TSP": "fast-tsp",
    "CVRP": "hygese",
    "SDVRP": "hygese",
    "OP": "milp",
    "PCTSP": "milp",
    "SPCTSP": "milp-offline",
    "PDP": "pyvrp",
    "MTSP": "pyvrp",
    **dict.fromkeys(PRESETS, "pyvrp"),
    "TSPFE": "milp",
    "ATSP": "milp",
}
HEURISTICS = {
    **dict.fromkeys(REFERENCES, "nearest-neighbour"),
    "TSP": "greedy-edge",
}  # the fastest, for large instances

__all__ = [
    "HEURISTICS",
    "REFERENCES",
    "SOLVERS",
    "BatchSolver",
    "Christofides",
    "ExactMIP",
    "FarthestInsertion",
    "FastTSP",
    "GreedyEdge",
    "HeldKarp",
    "Hygese",
    "NearestInsertion",
    "NearestNeighbour",
    "ORTools",
    "OfflineMIP",
    "OrOpt",
    "PyVRP",
    "RandomInsertion",
    "RowSolver",
    "Solution",
    "Solver",
    "TimedOut",
    "TwoOpt",
    "TwoOptOrOpt",
    "make_solver",
]


def make_solver(name: str, **settings: Any) -> Solver:
    """Make a solver by name.

    Args:
        name: A key of `SOLVERS`.
        **settings: The solver's own, such as `time_limit`.

    Raises:
        ValueError: Unknown name or invalid value.
        TypeError: A setting that the solver does not have.
    """
    if name not in SOLVERS:
        raise ValueError(f"unknown solver {name!r}; choose one of {', '.join(SOLVERS)}")
    solver: Any = SOLVERS[name]
    check_settings(name, solver, settings)
    made: Solver = solver(**settings)
    return made
