"""Prize-collecting TSP and its stochastic variant: collect a prize of 1, pay a penalty for each omitted customer.

Kool et al. (2019), appendices E.1 and F: minimise the length plus the penalties of unvisited customers, subject to a
total prize of at least 1. Expected prizes are uniform in (0, 4/n), penalties in (0, 3K/n) with K = 2, 3
or 4 for 20, 50 or 100 customers. In SPCTSP the real prize is uniform in (0, 2 x expected). It is
revealed by the visit, and counts towards the minimum.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
from array_api_compat import array_namespace
from gymnasium import spaces

from routing_gym.arrays import (
    Array,
    any_array,
    as_share,
    batch_size,
    device_of,
    double,
    gather,
    integer,
    scatter,
    to_numpy,
)
from routing_gym.problem import InfeasibleTour, Problem
from routing_gym.problems.checks import (
    MAX_PENALTY,
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
    like,
    tour_length,
)
from routing_gym.problems.geometry import (
    MAX_FLOAT,
    expected_length,
    leg_length,
    node_spaces,
    reach,
    scaled_map,
    uniform_coords,
    with_depot,
)
from routing_gym.problems.matrices import draw_matrices, num_matrix_uniforms, observe_nodes
from routing_gym.traits import COORDS, DISTANCES, Column, Observations

LEAST_SCALE = 0.1  # of `PCTSP.rescale`
MIN_PRIZE = 1.0
ENOUGH_PRIZE = MIN_PRIZE - TOLERANCE  # so that 0.9 and 0.1 in float32, which sum to 2e-8 less, open the depot


@dataclass(frozen=True)
class PCTSPInstance:
    """B instances with n customers each; node 0 is the depot, A = n + 1."""

    coords: Array  # float32 (B, A, 2), in the unit square
    expected_prize: Array  # float32 (B, A), 0 at the depot
    penalty: Array  # float32 (B, A), 0 at the depot
    distances: Array | None = field(default=None, kw_only=True)  # float32 (B, A, A), replaces the Euclidean metric


@dataclass(frozen=True)
class SPCTSPInstance(PCTSPInstance):
    """B instances like `PCTSPInstance`, with the real prizes, which only visits reveal."""

    real_prize: Array  # float32 (B, A), 0 at the depot


@dataclass(frozen=True)
class PCTSPState:
    node: Array  # int64 (B,), 0 = depot
    num_visited: Array  # int64 (B,), number of visited customers
    collected: Array  # float64 (B,), prize so far
    unpaid: Array  # float64 (B,), penalties of the unvisited customers
    returned: Array  # bool (B,), back at the depot: done
    visited: Array  # bool (B, A), depot column always False


@dataclass(frozen=True)
class PCTSP(Problem[PCTSPInstance, PCTSPState]):
    """Prize-collecting TSP with `num_nodes` customers; action 0 returns to the depot and ends the tour.

    Attributes:
        penalty_scale: The K of the penalties U(0, 3K/n); by default 2, 3 and 4 for 20, 50 and 100 customers,
            linear in between, 2 below, and 0.4 sqrt(n) above.

    Raises:
        ValueError: There is no customer, or the penalty scale is not positive and finite.
    """

    name: ClassVar[str] = "PCTSP"
    visits_all: ClassVar[bool] = False
    instance_type: ClassVar[type] = PCTSPInstance
    state_type: ClassVar[type] = PCTSPState
    length_observations: ClassVar[tuple[str, ...]] = ("penalty",)
    columns: ClassVar[tuple[Column, ...]] = (
        COORDS,
        Column("prize", "prize of each customer", "prize", unit="required_prize", field="expected_prize"),
        Column("penalty", "cost of leaving a customer out, in the unit of the lengths", "length"),
        Column("required_prize", "least prize to collect", "prize", per="instance", field=None),
        DISTANCES,
    )
    observations: ClassVar[Observations] = Observations(
        per_node=("prize", "penalty"), context_scalars=("remaining_prize",)
    )

    num_nodes: int
    penalty_scale: float | None = None

    def __post_init__(self) -> None:
        check_size(self)
        if self.penalty_scale is None:
            object.__setattr__(self, "penalty_scale", expected_length(self.num_nodes))
        check_positive(self, "penalty_scale")

    def rescale(self, instance: PCTSPInstance) -> PCTSPInstance:
        """Scale lengths and penalties down together if half of the penalties exceed those of generated instances."""
        xp = array_namespace(instance.penalty)
        median = xp.sort(instance.penalty[:, 1:], axis=1)[:, self.num_nodes // 2]
        largest = 3 * expected_length(self.num_nodes) / self.num_nodes  # of generated instances
        by = xp.clip(largest / xp.clip(median, 1e-9, None), LEAST_SCALE, 1.0)
        return replace(instance, penalty=by[:, None] * instance.penalty, **scaled_map(instance, by))

    @property
    def horizon(self) -> int:
        return self.num_nodes + 1

    @property
    def num_uniforms(self) -> int:
        return 2 * self.num_actions + 2 * self.num_nodes + num_matrix_uniforms(self)

    def from_uniforms(self, uniforms: Array) -> PCTSPInstance:
        assert self.penalty_scale is not None
        xp, n, first = array_namespace(uniforms), self.num_nodes, 2 * self.num_actions
        penalty, prize = uniforms[:, first : first + n], uniforms[:, first + n : first + 2 * n]
        coords = uniform_coords(uniforms, self.num_actions)
        return PCTSPInstance(
            coords=coords,
            expected_prize=with_depot(xp.astype(prize * 4 / n, xp.float32)),
            penalty=with_depot(xp.astype(penalty * 3 * self.penalty_scale / n, xp.float32)),
            **draw_matrices(self, coords, uniforms),
        )

    def collectable(self, instance: PCTSPInstance) -> Array:
        """Return the prizes of the nodes: float32 (B, A)."""
        return instance.expected_prize

    def validate(self, instance: PCTSPInstance) -> None:
        check_nodes(instance, self.num_actions)
        check_field(instance, "expected_prize", (self.num_actions,), np.float32, 0.0, MAX_FLOAT)
        check_field(instance, "penalty", (self.num_actions,), np.float32, 0.0, MAX_PENALTY)
        check_batch(instance)
        check_depot_values(instance, "expected_prize", "penalty")

    def initial(self, instance: PCTSPInstance) -> PCTSPState:
        xp, num_rows, where = array_namespace(any_array(instance)), batch_size(instance), device_of(instance)
        zero = xp.zeros(num_rows, dtype=integer(xp), device=where)
        return PCTSPState(
            node=zero,
            num_visited=zero,
            collected=xp.zeros(num_rows, dtype=double(xp), device=where),
            unpaid=xp.sum(xp.astype(instance.penalty, double(xp)), axis=1),
            returned=xp.zeros(num_rows, dtype=xp.bool, device=where),
            visited=xp.zeros(instance.penalty.shape, dtype=xp.bool, device=where),
        )

    def action_mask(self, instance: PCTSPInstance, state: PCTSPState) -> Array:
        """Return a mask of the nodes that the vehicle may visit next.

        A customer is legal if it is not visited. The depot is legal if the prize suffices (within 1e-6) or all
        customers are visited. After the return, only the depot is legal.

        Returns:
            bool (B, A). Never all False in a row.
        """
        xp = array_namespace(state.node)
        may_return = (state.collected >= ENOUGH_PRIZE) | (state.num_visited == self.num_nodes) | state.returned
        return scatter(~(state.visited | state.returned[:, None]), xp.zeros_like(state.node), may_return)

    def step(self, instance: PCTSPInstance, state: PCTSPState, action: Array) -> tuple[PCTSPState, Array]:
        xp = array_namespace(action)
        returns = action == 0
        new_state = PCTSPState(
            node=action,
            num_visited=state.num_visited + xp.astype(~returns, state.num_visited.dtype),
            collected=state.collected + gather(self.collectable(instance), action),
            unpaid=state.unpaid - gather(instance.penalty, action),
            returned=returns,
            visited=scatter(state.visited, action, ~returns),
        )
        leg = leg_length(instance, state.node, action)
        fine = xp.where(returns & ~state.returned, xp.astype(state.unpaid, leg.dtype), xp.zeros_like(leg))
        return new_state, leg + fine

    def done(self, instance: PCTSPInstance, state: PCTSPState) -> Array:
        return state.returned

    def why_illegal(self, instance: PCTSPInstance, state: PCTSPState, row: int, action: int) -> str:
        if action == 0:
            collected = float(state.collected[row])
            return f"too early for the depot: the prize collected, {collected:.4g}, is below {MIN_PRIZE:g}"
        return f"customer {action} is already visited"

    def observe_static(self, instance: PCTSPInstance) -> dict[str, Array]:
        return {**observe_nodes(self, instance), "prize": instance.expected_prize, "penalty": instance.penalty}

    def observe_dynamic(self, instance: PCTSPInstance, state: PCTSPState) -> dict[str, Array]:
        xp = array_namespace(state.node)
        missing = xp.clip(xp.astype(MIN_PRIZE - state.collected, xp.float32), 0.0, None)
        return {"current_node": state.node, "remaining_prize": missing[:, None]}

    def observation_space(self) -> spaces.Dict:
        per_node = (self.num_actions,)
        return spaces.Dict(
            {
                **node_spaces(self),
                "prize": spaces.Box(0.0, MAX_FLOAT, per_node, np.float32),
                "penalty": spaces.Box(0.0, MAX_FLOAT, per_node, np.float32),
                "remaining_prize": spaces.Box(0.0, MAX_FLOAT, (1,), np.float32),
            }
        )

    def amounts(self, instance: PCTSPInstance, routes: list[list[int]]) -> list[dict[str, tuple[float, float | None]]]:
        return [{"prize": (float(to_numpy(self.collectable(instance))[0, nodes].sum()), None)} for nodes in routes]

    def cost_bound(self, instance: PCTSPInstance) -> Array:
        """Return a bound like that of the TSP, with two edges or the penalty per customer, whichever is larger."""
        xp = array_namespace(instance.penalty)
        legs = 2 * reach(instance)
        return xp.sum(xp.maximum(legs, instance.penalty), axis=1)

    def longest_useful_edge(self, instance: PCTSPInstance, cost: Array) -> Array:
        return cost

    def progress(self, instance: PCTSPInstance, state: PCTSPState) -> Array:
        return as_share(state.num_visited, self.num_nodes)

    def objective(self, instance: PCTSPInstance, actions: Array) -> Array:
        tours = as_tours(actions, batch_size(instance), self.num_actions)
        check_returns(tours)
        check_single_trip(tours)
        visited = check_each_once(tours, self.num_actions, self.num_depots)[:, 1:]
        prize = (to_numpy(self.collectable(instance)).astype(np.float64)[:, 1:] * visited).sum(axis=1)
        too_little = (prize < ENOUGH_PRIZE) & ~visited.all(axis=1)
        if too_little.any():
            row = int(np.argmax(too_little))
            raise InfeasibleTour(
                row, tours.shape[1] - 1, f"prize {prize[row]:.6g} is below {MIN_PRIZE:g}; visit more customers"
            )
        penalty = (to_numpy(instance.penalty).astype(np.float64)[:, 1:] * ~visited).sum(axis=1)
        return like(tour_length(instance, tours, closed_at_depot=True) + penalty, instance)


@dataclass(frozen=True)
class SPCTSP(PCTSP):
    """Stochastic PCTSP: observed prizes are expected values; a visit collects the real prize."""

    name: ClassVar[str] = "SPCTSP"
    instance_type: ClassVar[type] = SPCTSPInstance
    stochastic: ClassVar[bool] = True
    columns: ClassVar[tuple[Column, ...]] = (
        *PCTSP.columns,
        Column("real_prize", "prize that a visit really collects", "prize", unit="required_prize"),
    )

    @property
    def num_uniforms(self) -> int:
        return super().num_uniforms + self.num_nodes

    def from_uniforms(self, uniforms: Array) -> SPCTSPInstance:
        xp = array_namespace(uniforms)
        known = super().from_uniforms(uniforms[:, : super().num_uniforms])
        real = uniforms[:, -self.num_nodes :] * 2 * known.expected_prize[:, 1:]
        return SPCTSPInstance(**vars(known), real_prize=with_depot(xp.astype(real, xp.float32)))

    def collectable(self, instance: PCTSPInstance) -> Array:
        assert isinstance(instance, SPCTSPInstance)
        return instance.real_prize

    def validate(self, instance: PCTSPInstance) -> None:
        check_field(instance, "real_prize", (self.num_actions,), np.float32, 0.0, MAX_FLOAT)
        super().validate(instance)
        check_depot_values(instance, "real_prize")
