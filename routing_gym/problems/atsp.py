"""Asymmetric TSP: a closed tour of all cities, where an edge may have another length in the other direction.

Kwon et al. (2021), "Matrix encoding networks for neural combinatorial optimization" (MatNet), section 5.1: an
instance is a matrix. Its entries are drawn uniformly from the integers 0 to 999,999, replaced by the lengths of the
shortest paths, so that the triangle inequality holds, and divided by a million.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from array_api_compat import array_namespace
from gymnasium import spaces

from routing_gym.arrays import Array, iterate
from routing_gym.problems.checks import check_distances
from routing_gym.problems.geometry import MAX_FLOAT, node_spaces
from routing_gym.problems.tsp import ClosedTour
from routing_gym.traits import DISTANCES, Column, Observations

RANGE = 1_000_000  # of the integers, whose sums of two are exact in float32
ROWS_AT_ONCE = 32  # instances of 50 cities that fit into the cache of a core, which halves the time


@dataclass(frozen=True)
class ATSPInstance:
    """B instances with n cities each."""

    distances: Array  # float32 (B, n, n), from each city (row) to each city (column); 0 on the diagonal


@dataclass(frozen=True)
class ATSP(ClosedTour[ATSPInstance]):
    """Asymmetric TSP with `num_nodes` cities, which have no coordinates; actions are cities 0 to n-1.

    Raises:
        ValueError: Fewer than two cities.
    """

    name: ClassVar[str] = "ATSP"
    asymmetric: ClassVar[bool] = True
    plain_routes: ClassVar[bool] = True
    instance_type: ClassVar[type] = ATSPInstance
    columns: ClassVar[tuple[Column, ...]] = (replace(DISTANCES, required=True),)
    observations: ClassVar[Observations] = Observations(
        per_edge="distances", context_nodes=("first_node", "current_node")
    )

    @property
    def num_uniforms(self) -> int:
        return self.num_nodes**2

    def from_uniforms(self, uniforms: Array) -> ATSPInstance:
        xp = array_namespace(uniforms)
        matrix = xp.astype(xp.floor(uniforms * RANGE), xp.float32).reshape(-1, self.num_nodes, self.num_nodes)
        return ATSPInstance(shortest_paths(matrix * (1 - xp.eye(self.num_nodes, dtype=xp.float32))) / RANGE)

    def validate(self, instance: ATSPInstance) -> None:
        check_distances(instance, self.num_actions)

    def observe_static(self, instance: ATSPInstance) -> dict[str, Array]:
        return {"distances": instance.distances}

    def observation_space(self) -> spaces.Dict:
        shared = {key: space for key, space in node_spaces(self.num_actions).items() if key != "coords"}
        matrix = spaces.Box(0.0, MAX_FLOAT, (self.num_actions, self.num_actions), np.float32)
        return spaces.Dict({**shared, "first_node": spaces.Discrete(self.num_actions), "distances": matrix})


def shortest_paths(lengths: Array) -> Array:
    """Replace the lengths of legs by those of the shortest paths (Floyd 1962, algorithm 97).

    Args:
        lengths: (B, n, n).
    """
    xp = array_namespace(lengths)

    def allow(k: int, d: Array) -> Array:
        """Let paths pass through city k."""
        return xp.minimum(d, d[:, :, k, None] + d[:, None, k, :])

    starts = range(0, len(lengths), ROWS_AT_ONCE)
    return xp.concat([iterate(lengths.shape[1], allow, lengths[start : start + ROWS_AT_ONCE]) for start in starts])
