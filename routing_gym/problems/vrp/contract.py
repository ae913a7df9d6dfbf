"""The problem of the VRP family as its attributes see it."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from routing_gym.arrays import Array
from routing_gym.problems.vrp.batches import VRPInstance, VRPState


class Limits(NamedTuple):
    """Limits at each node within which the route can still be completed, both float64 (B, A) or None."""

    longest: Array | None  # length of the route
    latest: Array | None  # time of the arrival


class Ways(NamedTuple):
    """Edges from the vehicle's node to every node."""

    lengths: Array  # float32 (B, A)
    durations: Array  # float32 (B, A)
    limits: Limits


class Family(Protocol):
    """Members of `family.VRP` that attributes use. They cannot import it, because it imports them.

    Fields are properties here, because those of a frozen dataclass cannot be assigned.
    """

    @property
    def num_nodes(self) -> int: ...

    @property
    def num_actions(self) -> int: ...

    @property
    def num_depots(self) -> int: ...

    @property
    def capacity(self) -> int | None: ...

    @property
    def max_length(self) -> float | None: ...

    @property
    def open_routes(self) -> bool: ...

    @property
    def pairs(self) -> bool: ...

    @property
    def penalties(self) -> bool: ...

    @property
    def fleet(self) -> bool: ...

    @property
    def limited(self) -> bool: ...

    @property
    def depot_choice(self) -> bool: ...

    def is_customer(self, node: Array) -> Array: ...

    def capacity_of(self, instance: VRPInstance, state: VRPState) -> Array: ...

    def initial(self, instance: VRPInstance) -> VRPState: ...

    def ways(self, instance: VRPInstance, state: VRPState) -> Ways: ...

    def customers(self, instance: VRPInstance, state: VRPState) -> Array: ...

    def go_home(self, state: VRPState, row: int) -> str: ...

    def dearest_trips(self, instance: VRPInstance) -> Array: ...
