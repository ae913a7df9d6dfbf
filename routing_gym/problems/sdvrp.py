"""Split-delivery vehicle routing: like CVRP, but a customer may be served in several visits.

Kool et al. (2019), appendices C.1 and C.2. Every visit delivers as much as possible: the
remaining demand of the customer, or the remaining load of the vehicle if that is less.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from array_api_compat import array_namespace
from gymnasium import spaces

from routing_gym.arrays import Array, IntArray, as_share, batch_size, gather, scatter, to_numpy
from routing_gym.problem import InfeasibleTour
from routing_gym.problems.checks import as_tours, check_returns, like, tour_length
from routing_gym.problems.cvrp import CVRPInstance, VehicleRouting, share
from routing_gym.problems.geometry import leg_length
from routing_gym.traits import Observations

SDVRPInstance = CVRPInstance


@dataclass(frozen=True)
class SDVRPState:
    node: Array  # int64 (B,), 0 = depot
    load: Array  # int64 (B,), demand delivered since the last visit to the depot
    undelivered: Array  # int64 (B,), sum of `remaining_demand`
    remaining_demand: Array  # int64 (B, A), 0 at the depot


@dataclass(frozen=True)
class SDVRP(VehicleRouting[CVRPInstance, SDVRPState]):
    """Split-delivery vehicle routing with `num_nodes` customers; action 0 returns to the depot.

    The episode ends at the depot: with action 0 after the last delivery. No demand exceeds the capacity.

    Raises:
        ValueError: There is no customer, or the capacity is below the largest generated demand (9).
    """

    name: ClassVar[str] = "SDVRP"
    state_type: ClassVar[type] = SDVRPState
    observations: ClassVar[Observations] = replace(VehicleRouting.observations, per_step="remaining_demand")
    min_demand: ClassVar[int] = 1  # a customer without demand can never be visited

    @property
    def horizon(self) -> int:
        """Upper bound on the steps of any instance.

        A visit completes a customer (n visits) or empties the vehicle (floor(total demand / capacity) visits, at
        most n because no demand exceeds the capacity). Each visit can be followed by a return.
        """
        return 2 * (self.num_nodes + self.num_nodes)

    def initial(self, instance: CVRPInstance) -> SDVRPState:
        xp = array_namespace(instance.capacity)
        zero = xp.zeros_like(instance.capacity)
        return SDVRPState(zero, zero, xp.sum(instance.demand, axis=1), instance.demand)

    def action_mask(self, instance: CVRPInstance, state: SDVRPState) -> Array:
        """Return a mask of the nodes that the vehicle may visit next.

        A customer is legal if it has remaining demand and the vehicle is not empty. The depot is legal if the vehicle
        is not there or no demand remains.

        Returns:
            bool (B, A). Never all False in a row.
        """
        xp = array_namespace(state.node)
        has_goods = state.load < instance.capacity
        may_return = (state.node != 0) | (state.undelivered == 0)
        return scatter((state.remaining_demand > 0) & has_goods[:, None], xp.zeros_like(state.node), may_return)

    def step(self, instance: CVRPInstance, state: SDVRPState, action: Array) -> tuple[SDVRPState, Array]:
        xp = array_namespace(action)
        needed = gather(state.remaining_demand, action)
        delivered = xp.minimum(needed, instance.capacity - state.load)
        new_state = SDVRPState(
            node=action,
            load=xp.where(action == 0, xp.zeros_like(action), state.load + delivered),
            undelivered=state.undelivered - delivered,
            remaining_demand=scatter(state.remaining_demand, action, needed - delivered),
        )
        return new_state, leg_length(instance, state.node, action)

    def done(self, instance: CVRPInstance, state: SDVRPState) -> Array:
        return (state.node == 0) & (state.undelivered == 0)

    def why_illegal(self, instance: CVRPInstance, state: SDVRPState, row: int, action: int) -> str:
        if action == 0:
            return "the vehicle is already at the depot and customers remain"
        if state.remaining_demand[row, action] == 0:
            return f"customer {action} has no demand left"
        return "the vehicle is empty; return to the depot (0)"

    def observe_dynamic(self, instance: CVRPInstance, state: SDVRPState) -> dict[str, Array]:
        return {
            "current_node": state.node,
            "free_capacity": share(instance.capacity - state.load, instance.capacity)[:, None],
            "remaining_demand": share(state.remaining_demand, instance.capacity[:, None]),
        }

    def observation_space(self) -> spaces.Dict:
        remaining = spaces.Box(0.0, 1.0, (self.num_actions,), np.float32)
        return spaces.Dict({**super().observation_space().spaces, "remaining_demand": remaining})

    def cost_bound(self, instance: CVRPInstance) -> Array:
        """Return the bound of CVRP plus total demand / capacity routes, one for each visit that empties the vehicle."""
        total = array_namespace(instance.demand).sum(instance.demand, axis=1)
        return self.dearest_visits(instance, total // instance.capacity)

    def progress(self, instance: CVRPInstance, state: SDVRPState) -> Array:
        return 1.0 - as_share(state.undelivered, array_namespace(instance.demand).sum(instance.demand, axis=1))

    def objective(self, instance: CVRPInstance, actions: Array) -> Array:
        tours = as_tours(actions, batch_size(instance), self.num_actions)
        check_returns(tours)
        check_deliveries(instance, tours)
        return like(tour_length(instance, tours, closed_at_depot=True), instance)


def check_deliveries(instance: CVRPInstance, tours: IntArray) -> None:
    """Simulate the deliveries; check that every visit delivers something and that no demand is left at the end.

    Raises:
        InfeasibleTour: A visit delivers nothing (the step is that of the first one), or demand is left at the end.
    """
    remaining, capacity = to_numpy(instance.demand).copy(), to_numpy(instance.capacity)
    every_row = np.arange(len(tours))
    goods = capacity.copy()
    for step, node in enumerate(tours.T):
        delivered = np.minimum(goods, remaining[every_row, node])
        useless = (delivered == 0) & (node != 0)
        if useless.any():
            row = int(np.argmax(useless))
            problem = "the vehicle is empty" if goods[row] == 0 else f"nothing is left to deliver at node {node[row]}"
            remedy = "return to the depot (0) first" if goods[row] == 0 else "leave it out"
            raise InfeasibleTour(row, step, f"{problem}; {remedy}")
        remaining[every_row, node] -= delivered
        goods = np.where(node == 0, capacity, goods - delivered)
    if remaining.any():
        row, customer = np.argwhere(remaining)[0]
        raise InfeasibleTour(
            row, tours.shape[1], f"node {customer} still needs {remaining[row, customer]}; serve all demand"
        )
