"""Instances and states of the VRP family: dataclasses of arrays; unused fields are None."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from array_api_compat import array_namespace, device

from routing_gym.arrays import Array
from routing_gym.problems.cvrp import CVRPInstance, CVRPState


def one_for_each_node(instance: Any, given: Array) -> Array:
    """Return the number of nodes as the number of vehicles at each depot node, which is no limit: int64 (B, A)."""
    capacity = instance.vehicle_capacity
    return capacity.shape[1] * array_namespace(capacity).astype(capacity > 0, capacity.dtype)


def all_eligible(instance: Any, given: Array) -> Array:
    """Return True for all depot nodes, as many as in `given`, and all nodes: bool (B, D, A)."""
    xp = array_namespace(given)
    return xp.ones((len(instance.capacity), *given.shape[1:]), dtype=xp.bool, device=device(given))


@dataclass(frozen=True)
class VRPInstance(CVRPInstance):
    """B instances with D depot nodes, which come first, and n customers; A = D + n.

    They extend instances of CVRP by the fields of the attributes. With a fleet, `capacity` is that of the largest
    vehicle. Times are in the unit of lengths: without `durations`, the speed is 1.
    """

    backhaul: Array = None  # bool (B, A), whether `demand` is collected; False at depots
    max_length: Array = None  # float32 (B,), length limit of a route
    ready_time: Array = None  # float32 (B, A), earliest start of service; at depots: departure of the vehicles
    due_time: Array = None  # float32 (B, A), latest start of service; at depots: return
    service_time: Array = None  # float32 (B, A), 0 at depots
    durations: Array = None  # float32 (B, A, A), travel times if they differ from the lengths
    vehicle_capacity: Array = None  # int64 (B, A), capacity of the vehicles of each depot node; 0 at customers
    fixed_cost: Array = None  # float32 (B, A), cost of each route from a depot node; 0 at customers
    cost_per_length: Array = None  # float32 (B, A), for the vehicles of each depot node; 0 at customers
    num_vehicles: Array = (
        None  # int64 (B, A), routes that may start at each depot node; 0 at customers; None: any number
    )
    eligible: Array = None  # bool (B, D, A), whether vehicles of a depot node may serve a customer; None: all may
    pickup: Array = None  # int64 (B, A), pickup node of each delivery; 0 for other nodes
    penalty: Array = None  # float32 (B, A), cost of leaving a customer out; 0 at depots

    stands_for: ClassVar = {"num_vehicles": one_for_each_node, "eligible": all_eligible}  # None; see `match_fields`


@dataclass(frozen=True)
class VRPState(CVRPState):
    """B states, which extend those of CVRP. The meaning of `load` depends on the attributes: see their classes.

    `longest`, `latest`, `alone`, `order` and `position` never change; they are stored so that they are computed once.
    """

    peak: Array = None  # int64 (B,), largest load of the route at any moment so far, with mixed backhauls
    length: Array = None  # float64 (B,), length of the route so far
    time: Array = None  # float64 (B,), end of the service at the node
    longest: Array = None  # float64 (B, D, A), greatest length up to a node that lets the route end within the limit
    latest: Array = (
        None  # float64 (B, D, A), latest arrival at a node that keeps its time window and the return to the depot
    )
    start: Array = None  # int64 (B,), depot node of the route; at a depot, of the next route
    chosen: Array = None  # bool (B,), whether that depot was chosen by the last action
    alone: Array = None  # bool (B, D, A), whether a vehicle of a depot node can serve a customer alone
    num_routes: Array = None  # int64 (B, D), number of routes started at each depot node
    due: Array = None  # bool (B, A), deliveries whose goods are on board
    order: Array = None  # int64 (B, M), deliveries in the order that the masks assume
    position: Array = None  # int64 (B, A), index in `order` of a delivery, or of a pickup's delivery; M for other nodes
    unpaid: Array = None  # float64 (B,), penalties of the customers not served
    ended: Array = None  # bool (B,), whether the rest of the customers is left out
