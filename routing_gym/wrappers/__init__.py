"""Wrappers for the environments; `routing_gym.wrappers.vector` has the same ones for the vector environment.

    from routing_gym import wrappers
    env = wrappers.FlattenObservation(wrappers.RandomSymmetry(gym.make("routing/TSP-20")))
    envs = wrappers.vector.RandomSymmetry(gym.make_vec("routing/TSP-20", num_envs=64))

Any of them, in the order RescaleCoordinates and RandomSymmetry, RelativeCoordinates, FlattenObservation.
`env.unwrapped.set_state` knows nothing of wrappers, which hold what belongs to the episode that `reset` began:
with it, go back within that episode only.
"""

from routing_gym.wrappers import vector
from routing_gym.wrappers.single import (
    FlattenObservation,
    RandomSymmetry,
    RelativeCoordinates,
    RescaleCoordinates,
    ScaleReward,
)

__all__ = [
    "FlattenObservation",
    "RandomSymmetry",
    "RelativeCoordinates",
    "RescaleCoordinates",
    "ScaleReward",
    "vector",
]
