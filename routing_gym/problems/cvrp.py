"""Capacitated vehicle routing: serve every customer in one visit, and reload at the depot.

Kool et al. (2019), appendix C.1: depot and customers uniform in the unit square, demands uniform in
1..9, one vehicle of capacity 30, 40 or 50 for 20, 50 or 100 customers, with any number of routes. Deviation: loads are
integers here. The original code sums float32 shares of the capacity, and therefore forbids some customers that fit
exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeVar

import numpy as np
from array_api_compat import array_namespace, device
from gymnasium import spaces

from routing_gym.arrays import Array, IntArray, as_share, batch_size, check_fits, gather, integer, scatter, to_numpy
from routing_gym.problem import InfeasibleTour, InvalidInstance, Problem
from routing_gym.problems.checks import (
    as_tours,
    check_all_visited,
    check_batch,
    check_depot_values,
    check_each_once,
    check_field,
    check_nodes,
    check_returns,
    check_size,
    like,
    tour_length,
)
from routing_gym.problems.geometry import (
    leg_length,
    node_spaces,
    reach,
    uniform_coords,
    with_depot,
)
from routing_gym.problems.matrices import draw_matrices, num_matrix_uniforms, observe_nodes
from routing_gym.traits import COORDS, DISTANCES, Column, Observations

MAX_DEMAND = 9  # of generated instances
MAX_CAPACITY = 2**40  # no demand exceeds the capacity, so that sums of demands fit into int64
InstanceT = TypeVar("InstanceT", bound="CVRPInstance")
StateT = TypeVar("StateT")
WholeStateT = TypeVar("WholeStateT", bound="CVRPState")
DEMAND = Column("demand", "demand of each customer", "amount", integer=True, also=("delivery",))
CAPACITY = Column(
    "capacity", "capacity of a vehicle, the largest if they differ", "amount", per="instance", integer=True
)


@dataclass(frozen=True)
class CVRPInstance:
    """B instances with n customers each; node 0 is the depot, A = n + 1."""

    coords: Array  # float32 (B, A, 2), in the unit square
    demand: Array  # int64 (B, A), 0 at the depot
    capacity: Array  # int64 (B,)
    distances: Array | None = None  # float32 (B, A, A), replaces the Euclidean metric


@dataclass(frozen=True)
class CVRPState:
    node: Array  # int64 (B,), 0 = depot
    load: Array  # int64 (B,), demand served since the last visit to the depot
    num_served: Array  # int64 (B,)
    served: Array  # bool (B, A), depot column always False


def default_capacity(num_customers: int) -> int:
    """Return the default capacity: 30, 40 and 50 for the paper's 20, 50 and 100 customers, linear in between.

    It is 20 for up to 10 customers, and increases by 1 per five customers above 100.
    """
    if num_customers > 100:
        return 50 + (num_customers - 100) // 5
    return int(np.interp(num_customers, (10, 20, 50, 100), (20, 30, 40, 50)))


@dataclass(frozen=True)
class VehicleRouting(Problem[InstanceT, StateT]):
    """Base class of problems whose vehicles have a capacity: sizes, instances and their observation.

    Attributes:
        capacity: Vehicle capacity in generated instances; by default `default_capacity(num_nodes)`.
    """

    instance_type: ClassVar[type] = CVRPInstance
    columns: ClassVar[tuple[Column, ...]] = (COORDS, DEMAND, CAPACITY, DISTANCES)
    observations: ClassVar[Observations] = Observations(per_node=("demand",), context_scalars=("free_capacity",))
    min_demand: ClassVar[int] = 0

    num_nodes: int
    capacity: int | None = None

    def __post_init__(self) -> None:
        check_size(self)
        capacity = default_capacity(self.num_nodes) if self.capacity is None else self.capacity
        if not isinstance(capacity, int | np.integer) or not MAX_DEMAND <= capacity <= MAX_CAPACITY:
            raise ValueError(
                f"{self.name}: capacity must be an integer of at least {MAX_DEMAND}, "
                f"the largest demand drawn, and at most {MAX_CAPACITY}, got {capacity!r}"
            )
        object.__setattr__(self, "capacity", int(capacity))

    @property
    def num_uniforms(self) -> int:
        return 2 * self.num_actions + self.num_nodes + num_matrix_uniforms(self)

    def from_uniforms(self, uniforms: Array) -> InstanceT:
        xp, where = array_namespace(uniforms), device(uniforms)
        assert self.capacity is not None
        check_fits(xp, self.capacity, "capacity: ")
        coords, first = uniform_coords(uniforms, self.num_actions), 2 * self.num_actions
        demand = 1 + xp.astype(uniforms[:, first : first + self.num_nodes] * MAX_DEMAND, integer(xp))
        instance: InstanceT = self.instance_type(
            coords=coords,
            demand=with_depot(demand, self.num_depots),
            capacity=xp.full(len(uniforms), self.capacity, dtype=integer(xp), device=where),
            **draw_matrices(self, coords, uniforms),
        )
        return instance

    def validate(self, instance: InstanceT) -> None:
        check_nodes(instance, self.num_actions)
        check_field(instance, "capacity", (), np.int64, 1, MAX_CAPACITY)
        check_field(instance, "demand", (self.num_actions,), np.int64, 0, MAX_CAPACITY)
        check_batch(instance)
        check_depot_values(instance, "demand", num_depots=self.num_depots)
        customers = instance.demand[:, self.num_depots :]
        bad = (customers < self.min_demand) | (customers > instance.capacity[:, None])
        if bad.any():
            row, node = map(int, np.argwhere(bad)[0])
            raise InvalidInstance(
                f"demand: row {row}, customer {node + self.num_depots} has demand {customers[row, node]}, "
                f"expected {self.min_demand} to the capacity {instance.capacity[row]}; split larger ones"
            )

    def observe_static(self, instance: InstanceT) -> dict[str, Array]:
        return {**observe_nodes(self, instance), "demand": share(instance.demand, instance.capacity[:, None])}

    def observation_space(self) -> spaces.Dict:
        return spaces.Dict(
            {
                **node_spaces(self),
                "demand": spaces.Box(0.0, 1.0, (self.num_actions,), np.float32),
                "free_capacity": spaces.Box(0.0, 1.0, (1,), np.float32),
            }
        )

    def amounts(self, instance: InstanceT, routes: list[list[int]]) -> list[dict[str, tuple[float, float | None]]]:
        """Return the load of each route. A vehicle delivers as much as it can; the next one delivers the rest."""
        left, capacity = to_numpy(instance.demand)[0].copy(), int(instance.capacity[0])
        loads = []
        for nodes in routes:
            load = 0
            for node in nodes:
                delivered = min(int(left[node]), capacity - load)
                left[node] -= delivered
                load += delivered
            loads.append(load)
        return [{"load": (load, capacity)} for load in loads]

    def dearest_visits(self, instance: InstanceT, extra: Array) -> Array:
        """Return the cost of one route per customer, plus `extra` (B,) routes to the farthest: float32 (B,)."""
        xp = array_namespace(instance.demand)
        away = reach(instance, centre=0)
        trips = 2 * (away[:, 1:] + away[:, :1])
        return xp.sum(trips, axis=1) + xp.astype(extra, xp.float32) * xp.max(trips, axis=1)

    def longest_useful_edge(self, instance: InstanceT, cost: Array) -> Array:
        return cost


def share(amount: Array, capacity: Array) -> Array:
    """Divide integers in float32; both are cast first, because int / int is float64 in NumPy only."""
    xp = array_namespace(amount)
    return xp.astype(amount, xp.float32) / xp.astype(capacity, xp.float32)


@dataclass(frozen=True)
class WholeDeliveries(VehicleRouting[InstanceT, WholeStateT]):
    """Rules of CVRP, which the VRP family extends: each customer is served in one visit.

    Fields that a problem adds to `CVRPInstance` and `CVRPState` have default values.
    """

    any_first_node: ClassVar[bool] = True
    plain_routes: ClassVar[bool] = True
    subproblem: ClassVar[str | None] = "CVRP"  # a subset of the routes, which is independent of the others

    @property
    def horizon(self) -> int:
        return 2 * self.num_nodes

    def initial(self, instance: InstanceT) -> WholeStateT:
        xp = array_namespace(instance.capacity)
        zero = xp.zeros_like(instance.capacity)
        served = xp.zeros(instance.demand.shape, dtype=xp.bool, device=device(zero))
        state: WholeStateT = self.state_type(zero, zero, zero, served)
        return state

    def action_mask(self, instance: InstanceT, state: WholeStateT) -> Array:
        """Return a mask of the nodes that the vehicle may visit next.

        A customer is legal if it is not served and its demand fits. The depot is legal if the vehicle is not there or
        all customers are served.

        Returns:
            bool (B, A). Never all False in a row.
        """
        xp = array_namespace(state.node)
        fits = instance.demand <= (instance.capacity - state.load)[:, None]
        may_return = (state.node != 0) | (state.num_served == self.num_nodes)
        return scatter(fits & ~state.served, xp.zeros_like(state.node), may_return)

    def step(self, instance: InstanceT, state: WholeStateT, action: Array) -> tuple[WholeStateT, Array]:
        xp = array_namespace(action)
        serves = action != 0
        new_state: WholeStateT = self.state_type(
            node=action,
            load=xp.where(serves, state.load + gather(instance.demand, action), xp.zeros_like(action)),
            num_served=state.num_served + xp.astype(serves, state.num_served.dtype),
            served=scatter(state.served, action, serves),
        )
        return new_state, leg_length(instance, state.node, action)

    def done(self, instance: InstanceT, state: WholeStateT) -> Array:
        return (state.node == 0) & (state.num_served == self.num_nodes)

    def why_illegal(self, instance: InstanceT, state: WholeStateT, row: int, action: int) -> str:
        if action == 0:
            return "the vehicle is already at the depot and customers remain"
        if state.served[row, action]:
            return f"customer {action} is already served"
        free = int(instance.capacity[row] - state.load[row])
        return f"demand {int(instance.demand[row, action])} exceeds the free capacity {free}; return to the depot (0)"

    def observe_dynamic(self, instance: InstanceT, state: WholeStateT) -> dict[str, Array]:
        free = share(instance.capacity - state.load, instance.capacity)
        return {"current_node": state.node, "free_capacity": free[:, None]}

    def cost_bound(self, instance: InstanceT) -> Array:
        """Return the cost of one route per customer, a bound by the triangle inequality."""
        return self.dearest_visits(instance, array_namespace(instance.capacity).zeros_like(instance.capacity))

    def progress(self, instance: InstanceT, state: WholeStateT) -> Array:
        return as_share(state.num_served, self.num_nodes)

    def objective(self, instance: InstanceT, actions: Array) -> Array:
        tours = as_tours(actions, batch_size(instance), self.num_actions)
        check_returns(tours)
        check_loads(instance, tours)
        visited = check_each_once(tours, self.num_actions, self.num_depots)
        check_all_visited(visited, first_node=1, num_steps=tours.shape[1])
        return like(tour_length(instance, tours, closed_at_depot=True), instance)


@dataclass(frozen=True)
class CVRP(WholeDeliveries[CVRPInstance, CVRPState]):
    """Capacitated vehicle routing with `num_nodes` customers; action 0 returns to the depot.

    The episode ends at the depot: with action 0 after the last customer.

    Raises:
        ValueError: There is no customer, or the capacity is below the largest generated demand (9).
    """

    name: ClassVar[str] = "CVRP"
    state_type: ClassVar[type] = CVRPState
    families: ClassVar[tuple[str, ...]] = ("OVRPBLTW",)


def check_loads(instance: CVRPInstance, tours: IntArray) -> None:
    """Check that no route carries more than the capacity.

    Raises:
        InfeasibleTour: A load exceeds the capacity. The step is that of the first customer that does not fit.
    """
    demand, capacity = to_numpy(instance.demand), to_numpy(instance.capacity)
    every_row = np.arange(len(tours))
    load = np.zeros(len(tours), dtype=np.int64)
    for step, node in enumerate(tours.T):
        load = np.where(node == 0, 0, load + demand[every_row, node])
        if (load > capacity).any():
            row = int(np.argmax(load > capacity))
            found = f"load {load[row]} exceeds capacity {capacity[row]} at node {node[row]}"
            raise InfeasibleTour(row, step, f"{found}; return to the depot (0) first.")
