"""The Gymnasium environments: `RoutingEnv` plays one instance at a time, `RoutingVectorEnv` many."""

from routing_gym.envs.single import RoutingEnv
from routing_gym.envs.vector import RoutingVectorEnv

__all__ = ["RoutingEnv", "RoutingVectorEnv"]
