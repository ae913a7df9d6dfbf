"""Wrappers for the environments; `routing_gym.wrappers.vector` has the same ones for the vectorised environment.

    from routing_gym import wrappers
    env = wrappers.FlattenObservation(wrappers.RandomSymmetry(gym.make("routing/TSP-20")))
    envs = wrappers.vector.RandomSymmetry(gym.make_vec("routing/TSP-20", num_envs=64))

Apply them in this order, the innermost first: RescaleCoordinates, RandomSymmetry, RelativeCoordinates,
FlattenObservation.
`env.unwrapped.set_state` does not restore the data that wrappers computed at `reset`: with a wrapper, restore only
states of the current episode.
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
