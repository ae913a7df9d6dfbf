"""Orienteering problem: collect prizes and return to the depot within a maximum length.

Kool et al. (2019), appendix D.1, after Fischetti et al. (1998): three kinds of prizes, and a maximum
length of 2, 3 or 4 for 20, 50 or 100 customers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, get_args

import numpy as np
from array_api_compat import array_namespace, device
from gymnasium import spaces

from routing_gym.arrays import (
    Array,
    any_array,
    batch_size,
    device_of,
    double,
    euclidean,
    gather,
    integer,
    scatter,
    to_numpy,
)
from routing_gym.problem import InfeasibleTour, Problem
from routing_gym.problems.checks import (
    TOLERANCE,
    as_tours,
    check_batch,
    check_depot_values,
    check_each_once,
    check_field,
    check_nodes,
    check_positive,
    check_returns,
    check_single_trip,
    check_size,
    leg_lengths,
    like,
)
from routing_gym.problems.geometry import (
    MAX_FLOAT,
    expected_length,
    leg_length,
    lengths_from,
    lengths_to_depot,
    node_spaces,
    scaled_map,
    uniform_coords,
    with_depot,
)
from routing_gym.problems.matrices import draw_matrices, num_matrix_uniforms, observe_nodes
from routing_gym.traits import COORDS, DISTANCES, Column, Observations

PrizeKind = Literal["constant", "uniform", "distance"]
SCALES = (0.5, 1.4)  # range of `OP.rescale`; published weights did worse on maps of other sizes


@dataclass(frozen=True)
class OPInstance:
    """B instances with n customers each; node 0 is the depot, A = n + 1."""

    coords: Array  # float32 (B, A, 2), in the unit square
    prize: Array  # float32 (B, A), 0 at the depot
    max_length: Array  # float32 (B,)
    distances: Array | None = None  # float32 (B, A, A), replaces the Euclidean metric


@dataclass(frozen=True)
class OPState:
    node: Array  # int64 (B,), 0 = depot
    length: Array  # float64 (B,), travelled so far
    returned: Array  # bool (B,), back at the depot: done
    visited: Array  # bool (B, A), depot column always False
    to_depot: Array  # float64 (B, A), constant; stored so that a mask computes one row of distances, not two


def length_limit(instance: OPInstance) -> Array:
    """Return the length limit for masks and solvers, which add float32 edges in float64: float64 (B,).

    `objective` allows half the tolerance more, because torch and NumPy round some edges differently.
    """
    xp = array_namespace(instance.max_length)
    return xp.astype(instance.max_length, double(xp)) + TOLERANCE / 2


def distance_prize(coords: Array) -> Array:
    """Return prizes (1 + floor(d / max d * 99)) / 100 that increase with the distance d from the depot, node 0.

    The order of operations is that of the original code: another order would round some prizes differently.

    Args:
        coords: Coordinates (B, A, 2).

    Returns:
        Prizes of the customers: float64 (B, n).
    """
    xp = array_namespace(coords)
    points = xp.astype(coords, double(xp))
    distance = euclidean(points[:, :1], points[:, 1:])
    farthest = xp.max(distance, axis=1, keepdims=True)
    # The farthest is set to 1: JAX multiplies by 1 / max d, so that some quotients would be slightly below 1.
    share = xp.where(distance == farthest, xp.ones_like(distance), distance / farthest)
    return (1 + xp.floor(share * 99)) / 100


@dataclass(frozen=True)
class OP(Problem[OPInstance, OPState]):
    """Orienteering problem with `num_nodes` customers; action 0 returns to the depot and ends the tour.

    The cost is minus the collected prize. At every node, the length so far plus the direct edge to the depot must
    be within the maximum length: masks, `objective` and solvers keep this rule. By the triangle inequality, every tour
    of at most that length satisfies it. With distances that violate the triangle inequality, only a detour could be
    short enough. The rule excludes such tours, so that the depot is always legal and a mask needs no search.

    Attributes:
        prize: Kind of generated prizes: "constant" (1), "uniform" (0.01 to 1) or "distance" (increasing
            with the distance from the depot).
        max_length: Maximum length in generated instances; by default 2, 3 and 4 for 20, 50 and 100 customers,
            linear in between, 2 below, and 0.4 sqrt(n) above.

    Raises:
        ValueError: There is no customer, the kind of prize is unknown, or the length is not positive and finite.
    """

    name: ClassVar[str] = "OP"
    visits_all: ClassVar[bool] = False
    instance_type: ClassVar[type] = OPInstance
    state_type: ClassVar[type] = OPState
    maximises: ClassVar[bool] = True
    length_observations: ClassVar[tuple[str, ...]] = ("remaining_length",)
    columns: ClassVar[tuple[Column, ...]] = (
        COORDS,
        Column("prize", "prize of each customer", "prize"),
        Column("max_length", "greatest length of the tour", "length", per="instance", limit=True),
        DISTANCES,
    )
    observations: ClassVar[Observations] = Observations(per_node=("prize",), context_scalars=("remaining_length",))

    num_nodes: int
    prize: PrizeKind = "distance"
    max_length: float | None = None

    def __post_init__(self) -> None:
        check_size(self)
        if self.prize not in get_args(PrizeKind):
            raise ValueError(f"OP: prize must be one of {', '.join(get_args(PrizeKind))}; got {self.prize!r}")
        if self.max_length is None:
            object.__setattr__(self, "max_length", expected_length(self.num_nodes))
        check_positive(self, "max_length")

    @property
    def horizon(self) -> int:
        return self.num_nodes + 1

    @property
    def num_uniforms(self) -> int:
        return 2 * self.num_actions + self.num_nodes * (self.prize == "uniform") + num_matrix_uniforms(self)

    def from_uniforms(self, uniforms: Array) -> OPInstance:
        xp, where = array_namespace(uniforms), device(uniforms)
        coords, first = uniform_coords(uniforms, self.num_actions), 2 * self.num_actions
        if self.prize == "constant":
            prize = xp.ones((len(uniforms), self.num_nodes), device=where)
        elif self.prize == "uniform":
            prize = (1 + xp.floor(100 * uniforms[:, first : first + self.num_nodes])) / 100
        else:
            prize = distance_prize(coords)
        return OPInstance(
            coords=coords,
            prize=with_depot(xp.astype(prize, xp.float32)),
            max_length=xp.full(len(uniforms), self.max_length, dtype=xp.float32, device=where),
            **draw_matrices(self, coords, uniforms),
        )

    def validate(self, instance: OPInstance) -> None:
        check_nodes(instance, self.num_actions)
        check_field(instance, "prize", (self.num_actions,), np.float32, 0.0, MAX_FLOAT)
        check_field(instance, "max_length", (), np.float32, 0.0, MAX_FLOAT)
        check_batch(instance)
        check_depot_values(instance, "prize")

    def rescale(self, instance: OPInstance) -> OPInstance:
        """Scale lengths so that the maximum length is the default, and prizes so that none exceeds 1.

        Lengths are scaled by 0.5 to 1.4, so that coordinates may leave the unit square. `max_length` is such that masks
        have the tolerance of the original instance.
        """
        xp = array_namespace(instance.prize)
        highest = xp.max(instance.prize, axis=-1, keepdims=True)
        usual = xp.full_like(instance.max_length, expected_length(self.num_nodes))
        by = xp.clip(usual / xp.clip(instance.max_length, 1e-9, None), *SCALES)
        return replace(
            instance,
            prize=instance.prize / xp.clip(highest, 1.0, None),
            max_length=by * instance.max_length - (1 - by) * (TOLERANCE / 2),
            **scaled_map(instance, by),
        )

    def longest_useful_edge(self, instance: OPInstance, cost: Array) -> Array:
        return length_limit(instance)

    def initial(self, instance: OPInstance) -> OPState:
        xp, num_rows, where = array_namespace(any_array(instance)), batch_size(instance), device_of(instance)
        depot = xp.zeros(num_rows, dtype=integer(xp), device=where)
        return OPState(
            node=depot,
            length=xp.zeros(num_rows, dtype=double(xp), device=where),
            returned=xp.zeros(num_rows, dtype=xp.bool, device=where),
            visited=xp.zeros(instance.prize.shape, dtype=xp.bool, device=where),
            to_depot=xp.astype(lengths_to_depot(instance), double(xp)),
        )

    def action_mask(self, instance: OPInstance, state: OPState) -> Array:
        """Return a mask of the nodes that the vehicle may visit next.

        A customer is legal if it is not visited and length so far + edge + direct edge to the depot <= maximum + 5e-7.
        The depot is always legal.

        Returns:
            bool (B, A).
        """
        xp = array_namespace(state.node)
        budget = length_limit(instance) - state.length
        reachable = lengths_from(instance, state.node) + state.to_depot <= budget[:, None]
        legal = reachable & ~state.visited & ~state.returned[:, None]
        return scatter(legal, xp.zeros_like(state.node), xp.ones_like(state.returned))

    def step(self, instance: OPInstance, state: OPState, action: Array) -> tuple[OPState, Array]:
        new_state = OPState(
            node=action,
            length=state.length + leg_length(instance, state.node, action),
            returned=action == 0,
            visited=scatter(state.visited, action, action != 0),
            to_depot=state.to_depot,
        )
        return new_state, -gather(instance.prize, action)

    def done(self, instance: OPInstance, state: OPState) -> Array:
        return state.returned

    def why_illegal(self, instance: OPInstance, state: OPState, row: int, action: int) -> str:
        if state.visited[row, action]:
            return f"node {action} is already visited"
        left = float(instance.max_length[row] - state.length[row])
        return f"node {action} and the way back are longer than the {left:.4g} left"

    def observe_static(self, instance: OPInstance) -> dict[str, Array]:
        return {**observe_nodes(self, instance), "prize": instance.prize}

    def observe_dynamic(self, instance: OPInstance, state: OPState) -> dict[str, Array]:
        xp = array_namespace(state.node)
        left = xp.astype(instance.max_length - state.length, xp.float32)
        return {"current_node": state.node, "remaining_length": xp.clip(left, 0.0, None)[:, None]}

    def observation_space(self) -> spaces.Dict:
        return spaces.Dict(
            {
                **node_spaces(self),
                "prize": spaces.Box(0.0, MAX_FLOAT, (self.num_actions,), np.float32),
                "remaining_length": spaces.Box(0.0, MAX_FLOAT, (1,), np.float32),
            }
        )

    def amounts(self, instance: OPInstance, routes: list[list[int]]) -> list[dict[str, tuple[float, float | None]]]:
        return [{"prize": (float(to_numpy(instance.prize)[0, nodes].sum()), None)} for nodes in routes]

    def cost_bound(self, instance: OPInstance) -> Array:
        return array_namespace(instance.max_length).zeros_like(instance.max_length)

    def progress(self, instance: OPInstance, state: OPState) -> Array:
        """Return the share of all prizes that is collected; 1 if all prizes are 0."""
        xp = array_namespace(instance.prize)
        prize = xp.astype(instance.prize, double(xp))
        left = xp.sum(xp.where(state.visited, xp.zeros_like(prize), prize), axis=1)
        total = xp.sum(prize, axis=1)
        return 1.0 - left / xp.where(total > 0, total, xp.ones_like(total))

    def objective(self, instance: OPInstance, actions: Array) -> Array:
        tours = as_tours(actions, batch_size(instance), self.num_actions)
        check_returns(tours)
        check_single_trip(tours)
        check_each_once(tours, self.num_actions, self.num_depots)
        closed = np.pad(tours, ((0, 0), (1, 0)))
        so_far = np.cumsum(leg_lengths(instance, closed), axis=1)[:, :-1]  # at each node of `tours`
        back = np.take_along_axis(to_numpy(lengths_to_depot(instance)).astype(np.float64), tours, axis=1)
        too_long = so_far + back > (to_numpy(length_limit(instance)) + TOLERANCE / 2)[:, None]
        if too_long.any():
            row, step = map(int, np.argwhere(too_long)[0])
            length, limit = (so_far + back)[row, step], float(to_numpy(instance.max_length)[row])
            found = f"with the direct way back, length {length:.6g} exceeds the maximum {limit:.6g}"
            raise InfeasibleTour(row, step, f"{found}; leave out some nodes")
        prize = to_numpy(instance.prize).astype(np.float64)
        return like(-np.take_along_axis(prize, tours, axis=1).sum(axis=1), instance)


def legal_tour(problem: OP, instance: OPInstance, tour: Sequence[int]) -> list[int]:
    """Return a tour of one row without the customers that the mask forbids, in the better of both directions.

    A tour within the limit keeps all customers, unless distances violate the triangle inequality: see `OP`.
    """
    options = []
    for nodes in (tour[:-1], tour[-2::-1]):
        state, legal, cost = problem.initial(instance), [], 0.0
        for node in nodes:
            if problem.action_mask(instance, state)[0, node]:
                state, step_cost = problem.step(instance, state, np.array([node]))
                legal.append(node)
                cost += float(step_cost[0])
        options.append((cost, [*legal, 0]))
    return min(options, key=lambda option: option[0])[1]
