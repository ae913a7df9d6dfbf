"""Gymnasium environments: `RoutingEnv` for one instance at a time, `RoutingVectorEnv` for many."""

from routing_gym.envs.single import RoutingEnv
from routing_gym.envs.vector import RoutingVectorEnv

__all__ = ["RoutingEnv", "RoutingVectorEnv"]
