"""Registry of routing problems. A new problem needs one file here and one line below."""

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
from routing_gym.problems.vrp import LISTED as VRP_LISTED
from routing_gym.problems.vrp import PRESETS, VRP, VRPInstance

PROBLEMS: dict[str, type[AnyProblem]] = {
    problem.name: problem for problem in (TSP, CVRP, SDVRP, OP, PCTSP, SPCTSP, PDP, MTSP, TSPFE, ATSP)
}
LISTED = [*PROBLEMS, *VRP_LISTED]  # names for messages and tables, without the combinations of newer attributes
PROBLEMS |= dict.fromkeys(PRESETS, VRP)

__all__ = [
    "ATSP",
    "CVRP",
    "LISTED",
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
    "near_problem",
    "unknown_problem",
]


def near_problem(name: str) -> str | None:
    """Return the problem of a name in lower or upper case, in which CVRP may stand for the family's VRP, else None."""
    known = {known.upper(): known for known in PROBLEMS}
    of_family = name.upper().replace("CVRP", "VRP")
    return known.get(name.upper()) or (of_family if of_family in PRESETS else None)


def unknown_problem(name: str) -> str:
    """Return the error message for an unknown problem name."""
    near = near_problem(name)
    if near is not None and near.upper() == name.upper():
        return f"unknown problem {name!r}; did you mean {near}?"
    hint = f"; the VRP family calls it {near}" if near is not None else ""
    if name.upper() == "MTVRP":  # the name in rl4co and RouteFinder
        hint = "; MTVRP is the VRP family, whose names list the attributes"
    return (
        f"unknown problem {name!r}{hint}; choose one of {', '.join(LISTED)}, or a combination of the VRP family such "
        "as MDVRPTW, with letters in the order PC PD HF MD O VRP B (or MB) L TW; register one of your own by "
        "routing_gym.register, for scripts in a module that the environment variable ROUTING_GYM_MODULES names"
    )


def make_problem(name: str, num_nodes: int, **settings: Any) -> AnyProblem:
    """Build a problem by name.

    Args:
        name: "TSP", "CVRP", "SDVRP", "OP", "PCTSP", "SPCTSP", "PDP", "MTSP", "TSPFE", "ATSP", or one of VRP's presets
            such as "VRPTW".
        num_nodes: Number of cities for TSP, TSPFE and ATSP, of customers for the others.
        **settings: Settings of the problem: `capacity` (CVRP, SDVRP, the VRP family), `prize` and `max_length` (OP),
            `penalty_scale` (PCTSP, SPCTSP), `num_salesmen` (MTSP), `max_length` (VRP family with L), `num_depots`
            (with MD or HF, see `VRP`); `matrices` (all but ATSP), for instances on streets, whose lengths are observed.

    Raises:
        ValueError: The name is unknown or a value is invalid.
        TypeError: The problem does not have a given setting.
    """
    if name not in PROBLEMS:
        raise ValueError(unknown_problem(name))
    problem: Any = PROBLEMS[name]
    check_settings(name, problem, settings, fixed=["num_nodes"])
    made: AnyProblem = problem(num_nodes, **(PRESETS.get(name, {}) | settings))
    return made
