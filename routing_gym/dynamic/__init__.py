"""Dynamic VRPTW: requests that arrive during the day, as Gymnasium environments, with routers and policies."""

from routing_gym.dynamic.days import Day, ResampledDays
from routing_gym.dynamic.env import DynamicVRPTWEnv, DynamicVRPTWVectorEnv
from routing_gym.dynamic.generated import GeneratedDays
from routing_gym.dynamic.static import StaticInstance, read_static

__all__ = [
    "Day",
    "DynamicVRPTWEnv",
    "DynamicVRPTWVectorEnv",
    "GeneratedDays",
    "ResampledDays",
    "StaticInstance",
    "read_static",
]
