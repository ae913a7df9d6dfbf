"""Travelling salesman problem: visit every city once and return to the first.

Kool et al. (2019), "Attention, Learn to Solve Routing Problems!", appendix B.2: cities uniform in the
unit square. The first action chooses the first city of the tour. The cost of the step to the last city includes the
closing edge.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from array_api_compat import array_namespace
from gymnasium import spaces

from routing_gym.arrays import Array, any_array, as_share, batch_size, device_of, integer, known_false, scatter
from routing_gym.problem import InstanceT, Problem
from routing_gym.problems.checks import (
    as_tours,
    check_all_visited,
    check_batch,
    check_each_once,
    check_nodes,
    check_size,
    like,
    tour_length,
)
from routing_gym.problems.geometry import leg_length, node_spaces, tour_bound, uniform_coords
from routing_gym.problems.matrices import draw_matrices, num_matrix_uniforms, observe_nodes
from routing_gym.traits import COORDS, DISTANCES, Column, Observations


@dataclass(frozen=True)
class TSPInstance:
    """B instances with n cities each."""

    coords: Array  # float32 (B, n, 2), in the unit square
    distances: Array | None = None  # float32 (B, n, n), replaces the Euclidean metric


@dataclass(frozen=True)
class TSPState:
    node: Array  # int64 (B,), the last city visited; 0 before the first action
    first_node: Array  # int64 (B,), the first city visited; 0 before the first action
    num_visited: Array  # int64 (B,)
    selectable: Array  # bool (B, n), unvisited; the last city stays True, so that a done row keeps one legal action


@dataclass(frozen=True)
class ClosedTour(Problem[InstanceT, TSPState]):
    """Base class of problems whose solutions are closed tours of `num_nodes` cities; actions are cities 0 to n-1.

    Raises:
        ValueError: There are fewer than two cities.
    """

    state_type: ClassVar[type] = TSPState
    has_depot: ClassVar[bool] = False
    fixed_length: ClassVar[bool] = True
    any_first_node: ClassVar[bool] = True
    observations: ClassVar[Observations] = Observations(context_nodes=("first_node", "current_node"))
    min_nodes: ClassVar[int] = 2

    num_nodes: int

    def __post_init__(self) -> None:
        check_size(self)

    @property
    def horizon(self) -> int:
        return self.num_nodes

    def initial(self, instance: InstanceT) -> TSPState:
        xp, num_rows, where = array_namespace(any_array(instance)), batch_size(instance), device_of(instance)
        zero = xp.zeros(num_rows, dtype=integer(xp), device=where)
        return TSPState(zero, zero, zero, xp.ones((num_rows, self.num_nodes), dtype=xp.bool, device=where))

    def action_mask(self, instance: InstanceT, state: TSPState) -> Array:
        return state.selectable

    def step(self, instance: InstanceT, state: TSPState, action: Array) -> tuple[TSPState, Array]:
        xp, origin, first_node, num_visited = array_namespace(action), state.node, state.first_node, state.num_visited
        starts, last = num_visited == 0, self.num_nodes - 1
        if not known_false(starts):
            origin, first_node = xp.where(starts, action, origin), xp.where(starts, action, first_node)
        cost = leg_length(instance, origin, action)
        closes = num_visited == last
        if not known_false(closes):
            cost = xp.where(closes, cost + leg_length(instance, action, first_node), cost)
        new_state = TSPState(
            node=action,
            first_node=first_node,
            num_visited=xp.where(num_visited > last, num_visited, num_visited + 1),
            selectable=scatter(state.selectable, action, num_visited >= last),
        )
        return new_state, cost

    def done(self, instance: InstanceT, state: TSPState) -> Array:
        return state.num_visited == self.num_nodes

    def why_illegal(self, instance: InstanceT, state: TSPState, row: int, action: int) -> str:
        return f"city {action} is already visited"

    def observe_dynamic(self, instance: InstanceT, state: TSPState) -> dict[str, Array]:
        return {"current_node": state.node, "first_node": state.first_node}

    def cost_bound(self, instance: InstanceT) -> Array:
        return tour_bound(instance)

    def longest_useful_edge(self, instance: InstanceT, cost: Array) -> Array:
        return cost

    def progress(self, instance: InstanceT, state: TSPState) -> Array:
        return as_share(state.num_visited, self.num_nodes)

    def objective(self, instance: InstanceT, actions: Array) -> Array:
        tours = as_tours(actions, batch_size(instance), self.num_actions)
        visited = check_each_once(tours, self.num_actions, self.num_depots)
        check_all_visited(visited, first_node=0, num_steps=tours.shape[1])
        return like(tour_length(instance, tours, closed_at_depot=False), instance)


@dataclass(frozen=True)
class TSP(ClosedTour[TSPInstance]):
    """Travelling salesman problem with `num_nodes` cities; actions are cities 0 to n-1.

    The episode ends with the visit of the last city.

    Raises:
        ValueError: There are fewer than two cities.
    """

    name: ClassVar[str] = "TSP"
    plain_routes: ClassVar[bool] = True
    subproblem: ClassVar[str] = "TSPFE"  # some cities, with the paths between them as fixed edges
    instance_type: ClassVar[type] = TSPInstance
    columns: ClassVar[tuple[Column, ...]] = (COORDS, DISTANCES)

    @property
    def num_uniforms(self) -> int:
        return 2 * self.num_nodes + num_matrix_uniforms(self)

    def from_uniforms(self, uniforms: Array) -> TSPInstance:
        coords = uniform_coords(uniforms, self.num_nodes)
        return TSPInstance(coords, **draw_matrices(self, coords, uniforms))

    def validate(self, instance: TSPInstance) -> None:
        check_nodes(instance, self.num_actions)
        check_batch(instance)

    def observe_static(self, instance: TSPInstance) -> dict[str, Array]:
        return observe_nodes(self, instance)

    def observation_space(self) -> spaces.Dict:
        return spaces.Dict({**node_spaces(self), "first_node": spaces.Discrete(self.num_actions)})
