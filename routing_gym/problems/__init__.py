"""The registry of routing problems. A new problem is one file here and one line below."""

from __future__ import annotations

from typing import Any

from routing_gym.problem import AnyProblem
from routing_gym.problems.atsp import ATSP, ATSPInstance
from routing_gym.problems.checks import check_settings
from routing_gym.problems.cvrp import CVRP, CVRPInstance
from routing_gym.problems.mtsp import MTSP, MTSPInstance
from routing_gym.problems.op import OP, OPInstance
from routing_gym.problems.pctsp import PCTSP, SPCTSP, PCTSPInstance, SPCTSPInstance
from routing_gym.problems.pdp import PDP, PDPInstance
from routing_gym.problems.sdvrp import SDVRP, SDVRPInstance
from routing_gym.problems.tsp import TSP, TSPInstance
from routing_gym.problems.tspfe import TSPFE, TSPFEInstance
from routing_gym.problems.vrp import PRESETS, VRP, VRPInstance

PROBLEMS: dict[str, type[AnyProblem]] = {
    problem.name: problem for problem in (TSP, CVRP, SDVRP, OP, PCTSP, SPCTSP, PDP, MTSP, TSPFE, ATSP)
}
PROBLEMS |= dict.fromkeys(PRESETS, VRP)

__all__ = [
    "ATSP",
    "CVRP",
    "MTSP",
    "OP",
    "PCTSP",
    "PDP",
    "PROBLEMS",
    "SDVRP",
    "SPCTSP",
    "TSP",
    "TSPFE",
    "VRP",
    "ATSPInstance",
    "CVRPInstance",
    "MTSPInstance",
    "OPInstance",
    "PCTSPInstance",
    "PDPInstance",
    "SDVRPInstance",
    "SPCTSPInstance",
    "TSPFEInstance",
    "TSPInstance",
    "VRPInstance",
    "make_problem",
]


def make_problem(name: str, num_nodes: int, **settings: Any) -> AnyProblem:
    """Make a problem by name.

    Args:
        name: "TSP", "CVRP", "SDVRP", "OP", "PCTSP", "SPCTSP", "PDP", "MTSP", "TSPFE", "ATSP", or one of VRP's presets
            such as "VRPTW".
        num_nodes: Cities of TSP, TSPFE and ATSP, customers of the others.
        **settings: The problem's own: `capacity` (CVRP, SDVRP, the VRP family), `prize` and `max_length` (OP),
            `penalty_scale` (PCTSP, SPCTSP), `num_salesmen` (MTSP), `max_length` (with L); `matrices` (all but ATSP),
            for instances on streets, whose lengths are observed.

    Raises:
        ValueError: Unknown name or invalid value.
        TypeError: A setting that the problem does not have.
    """
    if name not in PROBLEMS:
        raise ValueError(f"unknown problem {name!r}; choose one of {', '.join(PROBLEMS)}")
    problem: Any = PROBLEMS[name]
    check_settings(name, problem, settings, fixed=["num_nodes"])
    made: AnyProblem = problem(num_nodes, **(PRESETS.get(name, {}) | settings))
    return made
