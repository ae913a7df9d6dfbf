"""Min-max multiple TSP: several salesmen share the customers; the cost is the length of the longest route.

França, Gendreau, Laporte, Müller (1995), "The m-traveling salesman problem with minmax objective",
Transportation Science 29. All routes start and end at the depot. Depot and customers are uniform in the unit square.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from array_api_compat import array_namespace, device
from gymnasium import spaces

from routing_gym.arrays import Array, IntArray, as_share, batch_size, device_of, double, integer, scatter, to_numpy
from routing_gym.problem import InfeasibleTour, Problem
from routing_gym.problems.checks import (
    as_tours,
    check_all_visited,
    check_batch,
    check_each_once,
    check_field,
    check_integer,
    check_nodes,
    check_returns,
    check_size,
    like,
    tour_length,
)
from routing_gym.problems.geometry import MAX_FLOAT, leg_length, node_spaces, tour_bound, uniform_coords
from routing_gym.problems.matrices import draw_matrices, num_matrix_uniforms, observe_nodes
from routing_gym.traits import COORDS, DISTANCES, Column, Observations

MAX_SALESMEN = 2**31 - 1


@dataclass(frozen=True)
class MTSPInstance:
    """B instances with n customers each; node 0 is the depot, A = n + 1."""

    coords: Array  # float32 (B, A, 2), in the unit square
    num_salesmen: Array  # int64 (B,)
    distances: Array | None = None  # float32 (B, A, A), replaces the Euclidean metric


@dataclass(frozen=True)
class MTSPState:
    node: Array  # int64 (B,), 0 = depot
    salesmen_left: Array  # int64 (B,), salesmen whose route is not complete, including the current one
    length: Array  # float64 (B,), length of the current route so far
    longest: Array  # float64 (B,), length of the longest route, including the current one
    num_visited: Array  # int64 (B,)
    visited: Array  # bool (B, A), depot column always False


@dataclass(frozen=True)
class MTSP(Problem[MTSPInstance, MTSPState]):
    """Min-max multiple TSP with `num_nodes` customers; action 0 ends a salesman's route, and the next one starts.

    The episode ends with action 0 after the last customer.

    The salesmen travel one after the other. No route is empty, but salesmen may stay at the depot. The cost of a step
    is the increase of the longest route, so that the sum of the costs is the length of the longest route.

    Attributes:
        num_salesmen: Number of salesmen in generated instances.

    Raises:
        ValueError: There is no customer or no salesman.
    """

    name: ClassVar[str] = "MTSP"
    instance_type: ClassVar[type] = MTSPInstance
    state_type: ClassVar[type] = MTSPState
    minimises_longest: ClassVar[bool] = True
    columns: ClassVar[tuple[Column, ...]] = (
        COORDS,
        Column("num_salesmen", "number of salesmen", "count", per="instance", integer=True),
        DISTANCES,
    )
    observations: ClassVar[Observations] = Observations(
        context_scalars=("equal_share", "salesmen_left", "current_length", "longest_length")
    )
    length_observations: ClassVar[tuple[str, ...]] = ("current_length", "longest_length")

    num_nodes: int
    num_salesmen: int = 5

    def __post_init__(self) -> None:
        check_size(self)
        object.__setattr__(self, "num_salesmen", check_integer("MTSP: num_salesmen", self.num_salesmen, 1))

    @property
    def horizon(self) -> int:
        return 2 * self.num_nodes

    @property
    def num_uniforms(self) -> int:
        return 2 * self.num_actions + num_matrix_uniforms(self)

    def from_uniforms(self, uniforms: Array) -> MTSPInstance:
        xp, where = array_namespace(uniforms), device(uniforms)
        salesmen = xp.full(len(uniforms), self.num_salesmen, dtype=integer(xp), device=where)
        coords = uniform_coords(uniforms, self.num_actions)
        return MTSPInstance(coords, salesmen, **draw_matrices(self, coords, uniforms))

    def validate(self, instance: MTSPInstance) -> None:
        check_nodes(instance, self.num_actions)
        check_field(instance, "num_salesmen", (), np.int64, 1, MAX_SALESMEN)
        check_batch(instance)

    def initial(self, instance: MTSPInstance) -> MTSPState:
        xp, where = array_namespace(instance.num_salesmen), device_of(instance)
        zero = xp.zeros_like(instance.num_salesmen)
        length = xp.zeros(batch_size(instance), dtype=double(xp), device=where)
        visited = xp.zeros(instance.coords.shape[:2], dtype=xp.bool, device=where)
        return MTSPState(zero, instance.num_salesmen, length, length, zero, visited)

    def action_mask(self, instance: MTSPInstance, state: MTSPState) -> Array:
        """Return a mask of the nodes that the salesman may visit next.

        A customer is legal if it is not visited. The depot is legal if all customers are visited, or if the salesman is
        not there and is not the last.

        Returns:
            bool (B, A). Never all False in a row.
        """
        xp = array_namespace(state.node)
        others_remain = (state.node != 0) & (state.salesmen_left > 1)
        may_return = others_remain | (state.num_visited == self.num_nodes)
        return scatter(~state.visited, xp.zeros_like(state.node), may_return)

    def step(self, instance: MTSPInstance, state: MTSPState, action: Array) -> tuple[MTSPState, Array]:
        xp = array_namespace(action)
        visits = action != 0
        length = state.length + leg_length(instance, state.node, action)
        longest = xp.maximum(state.longest, length)
        new_state = MTSPState(
            node=action,
            salesmen_left=state.salesmen_left - xp.astype(~visits & (state.node != 0), state.salesmen_left.dtype),
            length=xp.where(visits, length, xp.zeros_like(length)),
            longest=longest,
            num_visited=state.num_visited + xp.astype(visits, state.num_visited.dtype),
            visited=scatter(state.visited, action, visits),
        )
        return new_state, xp.astype(longest - state.longest, xp.float32)

    def done(self, instance: MTSPInstance, state: MTSPState) -> Array:
        return (state.node == 0) & (state.num_visited == self.num_nodes)

    def why_illegal(self, instance: MTSPInstance, state: MTSPState, row: int, action: int) -> str:
        if action != 0:
            return f"customer {action} is already visited"
        if state.node[row] == 0:
            return "the salesman is at the depot and customers remain"
        return "this is the last salesman and customers remain"

    def observe_static(self, instance: MTSPInstance) -> dict[str, Array]:
        return observe_nodes(self, instance)

    def observe_dynamic(self, instance: MTSPInstance, state: MTSPState) -> dict[str, Array]:
        xp = array_namespace(state.node)
        left, total = (xp.astype(x, xp.float32) for x in (state.salesmen_left, instance.num_salesmen))
        return {
            "current_node": state.node,
            "equal_share": (1 / total)[:, None],
            "salesmen_left": (left / total)[:, None],
            "current_length": xp.astype(state.length, xp.float32)[:, None],
            "longest_length": xp.astype(state.longest, xp.float32)[:, None],
        }

    def observation_space(self) -> spaces.Dict:
        return spaces.Dict(
            {
                **node_spaces(self),
                "equal_share": spaces.Box(0.0, 1.0, (1,), np.float32),  # 1 / number of salesmen
                "salesmen_left": spaces.Box(0.0, 1.0, (1,), np.float32),  # share of the instance's salesmen
                "current_length": spaces.Box(0.0, MAX_FLOAT, (1,), np.float32),
                "longest_length": spaces.Box(0.0, MAX_FLOAT, (1,), np.float32),
            }
        )

    def cost_bound(self, instance: MTSPInstance) -> Array:
        """Return a bound on the length of a tour of all nodes by one salesman."""
        return tour_bound(instance)

    def longest_useful_edge(self, instance: MTSPInstance, cost: Array) -> Array:
        return cost

    def progress(self, instance: MTSPInstance, state: MTSPState) -> Array:
        return as_share(state.num_visited, self.num_nodes)

    def objective(self, instance: MTSPInstance, actions: Array) -> Array:
        tours = as_tours(actions, batch_size(instance), self.num_actions)
        check_returns(tours)
        visited = check_each_once(tours, self.num_actions, self.num_depots)
        check_all_visited(visited, first_node=1, num_steps=tours.shape[1])
        salesman = count_departures(tours)
        check_salesmen(instance, tours, salesman)
        lengths = [  # the others' customers replaced by the depot
            tour_length(instance, np.where(salesman == number, tours, 0), closed_at_depot=True)
            for number in range(1, salesman.max(initial=1) + 1)
        ]
        return like(np.max(lengths, axis=0), instance)


def count_departures(tours: IntArray) -> IntArray:
    """Return the number of departures from the depot up to each step: int64 (B, T)."""
    before = np.pad(tours, ((0, 0), (1, 0)))[:, :-1]
    return np.cumsum((tours > 0) & (before == 0), axis=1)


def check_salesmen(instance: MTSPInstance, tours: IntArray, salesman: IntArray) -> None:
    """Check that there are not more tours than salesmen.

    Raises:
        InfeasibleTour: There are. The step is the first departure that exceeds the number of salesmen.
    """
    num_salesmen = to_numpy(instance.num_salesmen)
    too_many = salesman > num_salesmen[:, None]
    if too_many.any():
        row, step = map(int, np.argwhere(too_many)[0])
        found = f"salesman {salesman[row, step]} leaves the depot for node {tours[row, step]}, but there are"
        raise InfeasibleTour(row, step, f"{found} {num_salesmen[row]}; return to the depot (0) less often")
