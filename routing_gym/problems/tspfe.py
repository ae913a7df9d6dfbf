"""TSP with fixed edges: a shortest closed tour on which some pairs of cities are neighbours.

Fixed edges are those of TSPLIB (Reinelt 1995, "TSPLIB 95", FIXED_EDGES_SECTION). With one fixed edge, the solution is
the shortest Hamiltonian path between two given cities. Large-neighbourhood search uses many: it removes parts of a
tour, and contracts each remaining segment to the edge between its ends (Li et al. 2025, "Destroy and repair using
hyper-graphs for routing"). A city therefore has at most one fixed edge; contract a chain of fixed edges to its ends.

The length of a fixed edge is the distance between its ends, and part of the cost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from array_api_compat import array_namespace, device
from gymnasium import spaces

from routing_gym.arrays import Array, IntArray, gather, integer, to_numpy
from routing_gym.problem import InfeasibleTour, InvalidInstance
from routing_gym.problems.checks import check_batch, check_field, check_nodes
from routing_gym.problems.geometry import node_spaces, uniform_coords
from routing_gym.problems.matrices import draw_matrices, num_matrix_uniforms, observe_nodes
from routing_gym.problems.tsp import ClosedTour, TSPState
from routing_gym.traits import COORDS, DISTANCES, Column, Observations


@dataclass(frozen=True)
class TSPFEInstance:
    """B instances with n cities each."""

    coords: Array  # float32 (B, n, 2), in the unit square
    partner: Array  # int64 (B, n), the other end of a city's fixed edge; the city itself if it has none
    distances: Array | None = None  # float32 (B, n, n), replaces the Euclidean metric


@dataclass(frozen=True)
class TSPFE(ClosedTour[TSPFEInstance]):
    """TSP with fixed edges, of `num_nodes` cities; actions are cities 0 to n-1.

    The episode ends with the visit of the last city.

    The tour may start at any city. After one end of a fixed edge, the other end follows immediately. This excludes no
    tour: every closed tour can be traversed in this way, from any city, in one of the two directions (with asymmetric
    distances: from some city). `objective` accepts it from every city, in both directions.

    In generated instances, cities are uniform in the unit square. The number of fixed edges is uniform from 0 to n / 2;
    they join random cities.

    Raises:
        ValueError: There are fewer than two cities.
    """

    name: ClassVar[str] = "TSPFE"
    instance_type: ClassVar[type] = TSPFEInstance
    columns: ClassVar[tuple[Column, ...]] = (
        COORDS,
        Column("partner", "row of the other end of each city's fixed edge, or its own row", "node", at_depot=True),
        DISTANCES,
    )
    observations: ClassVar[Observations] = Observations(partner="partner", context_nodes=("first_node", "current_node"))

    @property
    def num_uniforms(self) -> int:
        return 3 * self.num_nodes + 1 + num_matrix_uniforms(self)

    def from_uniforms(self, uniforms: Array) -> TSPFEInstance:
        """Convert random numbers to instances; fixed edges join the first cities of a random order, pair by pair."""
        xp, last = array_namespace(uniforms), 3 * self.num_nodes
        order = xp.argsort(uniforms[:, 2 * self.num_nodes : last], axis=1)
        place = xp.argsort(order, axis=1)
        num_edges = xp.floor(uniforms[:, last : last + 1] * (self.num_nodes // 2 + 1))
        partner = xp.take_along_axis(order, xp.where(place < 2 * num_edges, place ^ 1, place), axis=1)
        coords = uniform_coords(uniforms, self.num_nodes)
        return TSPFEInstance(coords, xp.astype(partner, integer(xp)), **draw_matrices(self, coords, uniforms))

    def validate(self, instance: TSPFEInstance) -> None:
        check_nodes(instance, self.num_actions)
        check_field(instance, "partner", (self.num_actions,), np.int64, 0, self.num_actions - 1)
        check_batch(instance)
        back = np.take_along_axis(instance.partner, instance.partner, axis=1)
        bad = back != np.arange(self.num_actions)
        if bad.any():
            row, city = map(int, np.argwhere(bad)[0])
            other = int(instance.partner[row, city])
            third = "none" if (named := int(back[row, city])) == other else f"one to city {named}"
            found = f"partner: row {row}, city {city} has a fixed edge to city {other}, which has {third}"
            raise InvalidInstance(f"{found}; give both ends of an edge each other's number, at most one edge a city")

    def action_mask(self, instance: TSPFEInstance, state: TSPState) -> Array:
        """Return a mask of the cities that may be visited next.

        The other end of the current city's fixed edge is legal if it is not visited; else all unvisited cities are.

        Returns:
            bool (B, n). Never all False in a row.
        """
        xp = array_namespace(state.node)
        partner = gather(instance.partner, state.node)
        waits = (state.num_visited > 0) & (partner != state.node) & gather(state.selectable, partner)
        cities = xp.arange(self.num_nodes, dtype=partner.dtype, device=device(partner))
        return state.selectable & (~waits[:, None] | (cities == partner[:, None]))

    def why_illegal(self, instance: TSPFEInstance, state: TSPState, row: int, action: int) -> str:
        if not state.selectable[row, action]:
            return super().why_illegal(instance, state, row, action)
        node = int(state.node[row])
        return f"a fixed edge leads from city {node} to city {int(instance.partner[row, node])}, which comes next"

    def observe_static(self, instance: TSPFEInstance) -> dict[str, Array]:
        return {**observe_nodes(self, instance), "partner": instance.partner}

    def observation_space(self) -> spaces.Dict:
        partner = spaces.Box(0, self.num_actions - 1, (self.num_actions,), np.int64)  # city numbers
        first_node = spaces.Discrete(self.num_actions)
        return spaces.Dict({**node_spaces(self), "first_node": first_node, "partner": partner})

    def objective(self, instance: TSPFEInstance, actions: Array) -> Array:
        cost = super().objective(instance, actions)
        check_fixed_edges(to_numpy(instance.partner), to_numpy(actions))
        return cost


def check_fixed_edges(partner: IntArray, tours: IntArray) -> None:
    """Check that both ends of every fixed edge are neighbours on the closed tour, a permutation of the cities.

    Raises:
        InfeasibleTour: The ends of a fixed edge are not neighbours. The step is that of the first such city.
    """
    wanted = np.take_along_axis(partner, tours, axis=1)  # (B, n)
    neighbours = (wanted == np.roll(tours, 1, axis=1)) | (wanted == np.roll(tours, -1, axis=1))
    apart = (wanted != tours) & ~neighbours
    if apart.any():
        row, step = map(int, np.argwhere(apart)[0])
        found = f"a fixed edge joins city {tours[row, step]} and city {wanted[row, step]}"
        raise InfeasibleTour(row, step, f"{found}, which is not visited right before or after it; do so")


def from_fixed_edge(tours: IntArray, partner: IntArray) -> IntArray:
    """Start each tour whose closing edge is fixed at its last city, so that `TSPFE.action_mask` allows the tour.

    Args:
        tours: Closed tours with all fixed edges, int64 (B, n).
        partner: Other ends of the fixed edges, int64 (B, n).
    """
    closing = (np.take_along_axis(partner, tours[:, :1], axis=1) == tours[:, -1:]) & (tours.shape[1] > 2)
    return np.where(closing, np.roll(tours, 1, axis=1), tours)


def with_fixed_edges(distances: npt.NDArray[np.float64], partner: IntArray) -> npt.NDArray[np.float64]:
    """Lengthen all edges except TSPFE's fixed edges so much that the shortest tours contain all fixed edges.

    In a tour without some fixed edge, one of its ends can be moved next to the other. This replaces three edges, all of
    them longer by `extra`, by three edges that include the fixed one. It saves `extra` and costs less than that.

    Args:
        distances: Distances (B, n, n).
        partner: Other ends of the fixed edges, int64 (B, n).

    Returns:
        Lengthened distances: float64 (B, n, n).
    """
    extra = 3 * distances.max(axis=(1, 2), keepdims=True) + 1
    return np.asarray(distances + extra * (np.arange(partner.shape[1]) != partner[:, :, None]))
