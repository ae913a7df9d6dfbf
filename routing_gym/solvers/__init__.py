"""Classical solvers behind one protocol.

    from routing_gym.solvers import FastTSP
    solution = FastTSP(time_limit=0.05).solve(problem, instance, num_workers=2, progress=True)
    solution.cost.mean()

The solvers written here need only NumPy. The others import their package when they solve; the extra `[solvers]`
installs all packages. To add a solver, write one file and add one line below.
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
REFERENCES = {  # best solver for each problem, by name
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
SECOND = {"OP": "pyvrp", "PCTSP": "ortools", "TSPFE": "ortools"}  # if "milp" does not finish in time
FASTEST = {"TSP": "greedy-edge"}  # fastest solver for large instances; for all other problems "nearest-neighbour"

__all__ = [
    "FASTEST",
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
        name: Key of `SOLVERS`.
        **settings: Settings of the solver, such as `time_limit`.

    Raises:
        ValueError: The name is unknown, or a value is invalid.
        TypeError: The solver does not have a setting.
    """
    if name not in SOLVERS:
        raise ValueError(f"unknown solver {name!r}; choose one of {', '.join(SOLVERS)}")
    solver: Any = SOLVERS[name]
    check_settings(name, solver, settings)
    made: Solver = solver(**settings)
    return made
