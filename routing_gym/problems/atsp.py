"""Asymmetric TSP: a closed tour of all cities; the length of an edge may depend on its direction.

Kwon et al. (2021), "Matrix encoding networks for neural combinatorial optimization" (MatNet), section 5.1: an
instance is a matrix. Its entries are drawn uniformly from the integers 0 to 999,999, replaced by the lengths of the
shortest paths, so that the triangle inequality holds, and divided by a million. The shortest paths take time that grows
with the cube of the number of cities: less than a second for 1,000, tens of seconds for 3,000.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from gymnasium import spaces

from routing_gym.arrays import Array
from routing_gym.problems.checks import check_distances
from routing_gym.problems.geometry import node_spaces
from routing_gym.problems.matrices import random_lengths
from routing_gym.problems.tsp import ClosedTour
from routing_gym.traits import DISTANCES, Column, Observations


@dataclass(frozen=True)
class ATSPInstance:
    """B instances with n cities each."""

    distances: Array  # float32 (B, n, n), from each city (row) to each city (column); 0 on the diagonal


@dataclass(frozen=True)
class ATSP(ClosedTour[ATSPInstance]):
    """Asymmetric TSP with `num_nodes` cities, which have no coordinates; actions are cities 0 to n-1.

    The episode ends with the visit of the last city.

    Raises:
        ValueError: There are fewer than two cities.
    """

    name: ClassVar[str] = "ATSP"
    asymmetric: ClassVar[bool] = True
    plain_routes: ClassVar[bool] = True
    instance_type: ClassVar[type] = ATSPInstance
    columns: ClassVar[tuple[Column, ...]] = (replace(DISTANCES, required=True),)
    observations: ClassVar[Observations] = Observations(
        per_edge=("distances",), context_nodes=("first_node", "current_node")
    )

    @property
    def num_uniforms(self) -> int:
        return self.num_nodes**2

    def from_uniforms(self, uniforms: Array) -> ATSPInstance:
        return ATSPInstance(random_lengths(uniforms.reshape(-1, self.num_nodes, self.num_nodes)))

    def validate(self, instance: ATSPInstance) -> None:
        check_distances(instance, self.num_actions)

    def observe_static(self, instance: ATSPInstance) -> dict[str, Array]:
        return {"distances": instance.distances}

    def observation_space(self) -> spaces.Dict:
        shared = {key: space for key, space in node_spaces(self).items() if key != "coords"}
        return spaces.Dict({**shared, "first_node": spaces.Discrete(self.num_actions)})
