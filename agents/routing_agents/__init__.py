"""Networks that solve routing problems: trained ones, ready to use, and what the training scripts share.

import routing_agents

model = routing_agents.load("CVRP-50")
solution = model.solve(coords, demand=demand, capacity=30)   # your own units; row 0 is the depot
print(solution.routes, solution.cost)
solution.save("routes.png")
"""

try:
    from routing_agents.policies.attention.decoding import Decoding
    from routing_agents.trained import SolvedInstance, TrainedModel, load
except ModuleNotFoundError as error:
    if error.name is None or error.name.startswith("routing_"):
        raise
    raise ImportError(f'routing_agents needs {error.name}: pip install ".[agents]"') from error

__all__ = ["Decoding", "SolvedInstance", "TrainedModel", "load"]
