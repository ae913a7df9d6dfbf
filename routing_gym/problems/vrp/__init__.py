"""Vehicle routing family; `family.py` has the table of its attributes."""

from routing_gym.problems.vrp.attributes import LISTED, ORIGINAL, PRESETS
from routing_gym.problems.vrp.batches import VRPInstance, VRPState
from routing_gym.problems.vrp.family import VRP
from routing_gym.problems.vrp.limits import CLOSING

__all__ = ["CLOSING", "LISTED", "ORIGINAL", "PRESETS", "VRP", "VRPInstance", "VRPState"]
