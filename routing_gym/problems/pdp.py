"""Pickup and delivery with one vehicle: visit all customers, each delivery after its pickup.

Li et al. (2021), "Heterogeneous attentions for solving pickup and delivery problem via deep reinforcement learning",
IEEE Transactions on Intelligent Transportation Systems 23: depot and customers uniform in the unit square, no
capacity; of n customers the first n / 2 are pickups, and customer i + n / 2 is the delivery of customer i.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from array_api_compat import array_namespace, device
from gymnasium import spaces

from routing_gym.arrays import Array, IntArray, as_share, batch_size, integer, scatter, to_numpy
from routing_gym.problem import InfeasibleTour, InvalidInstance, Problem
from routing_gym.problems.checks import (
    as_tours,
    check_all_visited,
    check_batch,
    check_each_once,
    check_field,
    check_nodes,
    check_returns,
    check_single_trip,
    check_size,
    like,
    tour_length,
)
from routing_gym.problems.geometry import leg_length, node_spaces, tour_bound, uniform_coords
from routing_gym.problems.matrices import draw_matrices, num_matrix_uniforms, observe_nodes
from routing_gym.traits import COORDS, DISTANCES, Column, Observations


@dataclass(frozen=True)
class PDPInstance:
    """B instances with n customers each; node 0 is the depot, A = n + 1."""

    coords: Array  # float32 (B, A, 2), in the unit square
    pickup: Array  # int64 (B, A), pickup node of each delivery; 0 for other nodes
    distances: Array | None = None  # float32 (B, A, A), replaces the Euclidean metric


@dataclass(frozen=True)
class PDPState:
    node: Array  # int64 (B,), 0 = depot
    num_visited: Array  # int64 (B,)
    visited: Array  # bool (B, A), depot column always False
    ready: Array  # bool (B, A), whether a node's pickup is visited, or it has none


@dataclass(frozen=True)
class PDP(Problem[PDPInstance, PDPState]):
    """Pickup and delivery with `num_nodes` customers; action 0, after all visits, ends the tour at the depot.

    In generated instances of an odd size the last customer is neither pickup nor delivery. The vehicle has no
    capacity limit. Instances may have several deliveries of one pickup.

    Raises:
        ValueError: There is no customer.
    """

    name: ClassVar[str] = "PDP"
    instance_type: ClassVar[type] = PDPInstance
    state_type: ClassVar[type] = PDPState
    columns: ClassVar[tuple[Column, ...]] = (
        COORDS,
        Column("pickup", "row where the goods of each delivery are picked up; 0 for none", "node"),
        DISTANCES,
    )
    observations: ClassVar[Observations] = Observations(pairs="pickup")
    fixed_length: ClassVar[bool] = True

    num_nodes: int

    def __post_init__(self) -> None:
        check_size(self)

    @property
    def horizon(self) -> int:
        return self.num_nodes + 1

    @property
    def num_uniforms(self) -> int:
        return 2 * self.num_actions + num_matrix_uniforms(self)

    def from_uniforms(self, uniforms: Array) -> PDPInstance:
        xp, where = array_namespace(uniforms), device(uniforms)
        pairs, nodes = self.num_nodes // 2, xp.arange(self.num_actions, dtype=integer(xp), device=where)
        pickup = xp.where((nodes > pairs) & (nodes <= 2 * pairs), nodes - pairs, xp.zeros_like(nodes))
        rows = xp.zeros((len(uniforms), 1), dtype=integer(xp), device=where)
        coords = uniform_coords(uniforms, self.num_actions)
        return PDPInstance(coords, rows + pickup, **draw_matrices(self, coords, uniforms))

    def validate(self, instance: PDPInstance) -> None:
        check_nodes(instance, self.num_actions)
        check_field(instance, "pickup", (self.num_actions,), np.int64, 0, self.num_nodes)
        check_batch(instance)
        needs_another = np.take_along_axis(instance.pickup, instance.pickup, axis=1) > 0
        bad = (instance.pickup > 0) & needs_another
        bad[:, 0] = instance.pickup[:, 0] > 0
        if bad.any():
            row, node = map(int, np.argwhere(bad)[0])
            found = f"pickup: row {row}, node {node} has its pickup at node {instance.pickup[row, node]}"
            reason = "but the depot gets nothing" if node == 0 else "which is a delivery itself, or the same node"
            raise InvalidInstance(f"{found}, {reason}")

    def initial(self, instance: PDPInstance) -> PDPState:
        xp = array_namespace(instance.pickup)
        zero = xp.zeros_like(instance.pickup[:, 0])
        return PDPState(zero, zero, xp.zeros_like(instance.pickup, dtype=xp.bool), instance.pickup == 0)

    def action_mask(self, instance: PDPInstance, state: PDPState) -> Array:
        """Return a mask of the nodes that the vehicle may visit next.

        A customer is legal if it is not visited and its pickup, if any, is visited. The depot is legal if all customers
        are visited.

        Returns:
            bool (B, A). Never all False in a row, because pickups need no other visit before them.
        """
        xp = array_namespace(state.node)
        return scatter(state.ready & ~state.visited, xp.zeros_like(state.node), state.num_visited == self.num_nodes)

    def step(self, instance: PDPInstance, state: PDPState, action: Array) -> tuple[PDPState, Array]:
        xp = array_namespace(action)
        visits = action != 0
        new_state = PDPState(
            node=action,
            num_visited=state.num_visited + xp.astype(visits, state.num_visited.dtype),
            visited=scatter(state.visited, action, visits),
            ready=state.ready | (instance.pickup == action[:, None]),
        )
        return new_state, leg_length(instance, state.node, action)

    def done(self, instance: PDPInstance, state: PDPState) -> Array:
        return (state.node == 0) & (state.num_visited == self.num_nodes)

    def why_illegal(self, instance: PDPInstance, state: PDPState, row: int, action: int) -> str:
        if action == 0:
            return "customers remain; the tour ends at the depot"
        if state.visited[row, action]:
            return f"customer {action} is already visited"
        return f"customer {action} comes after its pickup, customer {int(instance.pickup[row, action])}"

    def observe_static(self, instance: PDPInstance) -> dict[str, Array]:
        return {**observe_nodes(self, instance), "pickup": instance.pickup}

    def observe_dynamic(self, instance: PDPInstance, state: PDPState) -> dict[str, Array]:
        return {"current_node": state.node}

    def observation_space(self) -> spaces.Dict:
        pickup = spaces.Box(0, self.num_nodes, (self.num_actions,), np.int64)  # node numbers
        return spaces.Dict({**node_spaces(self), "pickup": pickup})

    def cost_bound(self, instance: PDPInstance) -> Array:
        return tour_bound(instance)

    def longest_useful_edge(self, instance: PDPInstance, cost: Array) -> Array:
        return cost

    def progress(self, instance: PDPInstance, state: PDPState) -> Array:
        return as_share(state.num_visited, self.num_nodes)

    def objective(self, instance: PDPInstance, actions: Array) -> Array:
        tours = as_tours(actions, batch_size(instance), self.num_actions)
        check_returns(tours)
        check_single_trip(tours)
        visited = check_each_once(tours, self.num_actions, self.num_depots)
        check_all_visited(visited, first_node=1, num_steps=tours.shape[1])
        check_order(to_numpy(instance.pickup), tours)
        return like(tour_length(instance, tours, closed_at_depot=True), instance)


def check_order(pickup: IntArray, tours: IntArray) -> None:
    """Check that every delivery comes after its pickup. Each customer must be visited once.

    Raises:
        InfeasibleTour: A delivery comes before its pickup. The step is that of the first one.
    """
    place = np.zeros(pickup.shape, dtype=np.int64)
    np.put_along_axis(place, tours, np.broadcast_to(np.arange(tours.shape[1]), tours.shape), axis=1)
    wanted = np.take_along_axis(pickup, tours, axis=1)  # (B, T)
    early = (wanted > 0) & (np.take_along_axis(place, wanted, axis=1) > np.arange(tours.shape[1]))
    if early.any():
        row, step = map(int, np.argwhere(early)[0])
        found = f"node {tours[row, step]} comes before its pickup, node {wanted[row, step]}"
        raise InfeasibleTour(row, step, f"{found}; visit that one first")
