"""Routing problems as batched pure functions and Gymnasium environments.

Importing this registers the environments `routing/{TSP,CVRP,SDVRP,OP,PCTSP,SPCTSP,PDP,MTSP,TSPFE,ATSP}-{10,...,1000}`,
those of the VRP family (`OVRP`, `VRPTW`, `OVRPBLTW` etc.), and `routing/TSP` etc. with `num_nodes=`, each also as a
native vectorised environment. The package does not need torch.
"""

from collections.abc import Iterable as _Iterable
from importlib import import_module as _import_module
from os import environ as _environ
from types import ModuleType as _ModuleType
from typing import Any as _Any

import gymnasium as _gymnasium
from gymnasium.envs.registration import EnvSpec as _EnvSpec

from routing_gym.envs import RoutingEnv, RoutingVectorEnv
from routing_gym.multi_agent import CompetitiveOP, CompetitiveOPInstance
from routing_gym.multi_agent.game import Game
from routing_gym.problem import InfeasibleTour, InvalidInstance, Problem
from routing_gym.problems import (
    ATSP,
    CVRP,
    LISTED,
    MTSP,
    OP,
    PCTSP,
    PDP,
    PROBLEMS,
    SDVRP,
    SPCTSP,
    TSP,
    TSPFE,
    VRP,
    ATSPInstance,
    CVRPInstance,
    MTSPInstance,
    OPInstance,
    PCTSPInstance,
    PDPInstance,
    SDVRPInstance,
    SPCTSPInstance,
    TSPFEInstance,
    TSPInstance,
    VRPInstance,
    make_problem,
)
from routing_gym.sampling import sample_actions

__version__ = "0.2.0"

__all__ = [
    "ATSP",
    "CVRP",
    "MTSP",
    "OP",
    "PCTSP",
    "PDP",
    "SDVRP",
    "SIZES",
    "SPCTSP",
    "TSP",
    "TSPFE",
    "VRP",
    "ATSPInstance",
    "CVRPInstance",
    "CompetitiveOP",
    "CompetitiveOPInstance",
    "Game",
    "InfeasibleTour",
    "InvalidInstance",
    "MTSPInstance",
    "OPInstance",
    "PCTSPInstance",
    "PDPInstance",
    "Problem",
    "RoutingEnv",
    "RoutingVectorEnv",
    "SDVRPInstance",
    "SPCTSPInstance",
    "TSPFEInstance",
    "TSPInstance",
    "VRPInstance",
    "make_problem",
    "register",
    "sample_actions",
]

_SUBMODULES = (
    *("data", "dynamic", "evaluate", "generators", "integrations", "planning", "rollout", "solvers", "testing"),
    "wrappers",
)


def __getattr__(name: str) -> _ModuleType:
    """Import a public submodule when it is first used, as in `routing_gym.wrappers.FlattenObservation`."""
    if name not in _SUBMODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _import_module(f"{__name__}.{name}")


def __dir__() -> list[str]:
    """Return all names, including submodules not yet imported, for completion."""
    return sorted({*globals(), *_SUBMODULES})


SIZES = (10, 20, 50, 100, 200, 500, 1000)  # numbers of nodes with their own ids


def _register_ids(names: _Iterable[str]) -> None:
    """Register all ids at once: `gymnasium.register` compares each id with all others, which would take seconds."""
    ids = [(name, size) for name in names for size in (None, *SIZES)]
    specs = [
        _EnvSpec(
            f"routing/{name}" if size is None else f"routing/{name}-{size}",
            entry_point="routing_gym.envs:RoutingEnv",
            vector_entry_point="routing_gym.envs:RoutingVectorEnv",
            kwargs={"problem": name} if size is None else {"problem": name, "num_nodes": size},
        )
        for name, size in ids
    ]
    _gymnasium.registry.update({spec.id: spec for spec in specs})


def register(problem: type[Problem[_Any, _Any]]) -> None:
    """Add a problem that is defined outside this package, for the running process.

    `make_problem`, `gym.make("routing/NAME-20")`, tables and files then accept it by its `name`. For scripts and their
    processes, the environment variable ROUTING_GYM_MODULES names the modules that call this function, with commas
    between them; `import routing_gym` imports them.

    Args:
        problem: Class of the problem. Registering it again, for example in a notebook, replaces the former class.

    Raises:
        TypeError: The argument is not a class of problems with a name.
        ValueError: The name belongs to a problem of this package, or is not made of letters and digits; or the problem
            refuses `min_nodes` nodes.
    """
    if not (isinstance(problem, type) and issubclass(problem, Problem)):
        raise TypeError(f"register takes a class that extends routing_gym.Problem, got {problem!r}")
    name = getattr(problem, "name", None)
    if not isinstance(name, str):
        raise TypeError(f"{problem.__name__}.name is {name!r}; set it to the name in environment ids")
    known = PROBLEMS.get(name)
    if known is not None and known.__module__.startswith("routing_gym."):
        raise ValueError(f"name {name!r} is that of a problem of routing_gym; choose another one")
    if not (name.isascii() and name.isalnum()):
        raise ValueError(f"name {name!r}: use letters and digits, as in environment ids")
    try:
        problem(problem.min_nodes)  # some functions make the smallest problem of each class
    except ValueError as error:
        told = f"min_nodes is {problem.min_nodes}, but so many nodes are refused: {error}; declare min_nodes"
        raise ValueError(f"{name}: {told}") from error
    PROBLEMS[name] = problem
    if name not in LISTED:
        LISTED.append(name)
    _register_ids([name])


_register_ids(PROBLEMS)
_gymnasium.register(
    "routing/DVRPTW",
    entry_point="routing_gym.dynamic:DynamicVRPTWEnv",
    vector_entry_point="routing_gym.dynamic:DynamicVRPTWVectorEnv",
)

for _name in filter(None, _environ.get("ROUTING_GYM_MODULES", "").split(",")):
    try:
        _import_module(_name.strip())
    except ModuleNotFoundError as _error:
        _is_missing = f"{_name.strip()}.".startswith(f"{_error.name}.")  # not what the module imports itself
        _hint = "; set PYTHONPATH to the folder of the module" if _is_missing else ""
        raise ImportError(f"ROUTING_GYM_MODULES: {_error}{_hint}") from None
