"""Trained networks for routing problems, and the modules that the training scripts share.

import routing_agents

model = routing_agents.load("CVRP-50")
solution = model.solve(coords, demand=demand, capacity=30)   # your own units; row 0 is the depot
print(solution.routes, solution.cost)
solution.save("routes.png")

plan = routing_agents.solve("stops.csv", vehicles={"count": 5, "capacity": 60})   # time windows; minutes and km
plan.to_html("map.html")

folder = routing_agents.train("routing/TSP-20", epochs=2)
model = routing_agents.load(folder)
"""

import gc
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from routing_agents.planning.planner import solve
    from routing_agents.policies.attention.decoding import Decoding
    from routing_agents.trained.loading import load
    from routing_agents.trained.model import SolvedInstance, TrainedModel
    from routing_agents.training.from_python import train

__all__ = ["Decoding", "SolvedInstance", "TrainedModel", "load", "solve", "train"]
MODULES = {
    "Decoding": "routing_agents.policies.attention.decoding",
    "SolvedInstance": "routing_agents.trained.model",
    "TrainedModel": "routing_agents.trained.model",
    "load": "routing_agents.trained.loading",
    "solve": "routing_agents.planning.planner",
    "train": "routing_agents.training.from_python",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is used: torch takes seconds to load, and `routing-gym info` works without it.

    Raises:
        ImportError: An optional package is missing.
    """
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    collecting = gc.isenabled()
    gc.disable()  # torch creates so many permanent objects that garbage collection takes an eighth of the time
    try:
        return getattr(import_module(MODULES[name]), name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("routing_"):
            raise
        raise ImportError(f'routing_agents needs {error.name}: pip install ".[agents]"') from error
    finally:
        if collecting:
            gc.enable()


def __dir__() -> list[str]:
    """Return all names, including public ones not yet imported, for completion and the documentation."""
    return sorted({*globals(), *__all__})
