"""Attributes of depots and vehicles: several depots (MD), a mixed fleet (HF); and optional customers (PC)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from array_api_compat import array_namespace, device
from gymnasium import spaces

from routing_gym.arrays import Array, double, gather, integer, to_numpy
from routing_gym.problem import InfeasibleTour, InvalidInstance
from routing_gym.problems.checks import MAX_PENALTY, check_depot_values, check_field
from routing_gym.problems.cvrp import MAX_CAPACITY, share
from routing_gym.problems.geometry import MAX_FLOAT, expected_length, with_depot
from routing_gym.problems.vrp.attribute import Attribute, Move, Walk
from routing_gym.problems.vrp.batches import VRPInstance, VRPState, one_for_each_node
from routing_gym.problems.vrp.contract import Family, Ways
from routing_gym.traits import Column

DEPOT = Column("depot", "1 for depots, which are the first rows", "flag", at_depot=True, field=None)
NUM_DEPOTS = 3  # of generated instances with MD or HF
SMALLEST, CHEAPEST, MOST_FIXED = 0.5, 0.6, 0.5  # generated vehicles: share of capacity, cost per length, fixed cost


class Depots(Attribute):
    """**MD**: several depots; each route returns to its own depot.

    At a depot, the next action is either the first customer of a route from there, or another depot, at which the next
    route then starts. Choosing another depot costs nothing.
    """

    letters = "MD"
    columns: ClassVar[tuple[Column, ...]] = (DEPOT,)

    def initial(self, problem: Family, instance: VRPInstance) -> dict[str, Array]:
        xp = array_namespace(instance.capacity)
        zero = xp.zeros_like(instance.capacity)
        return {"start": zero, "chosen": zero > 0}

    def step(self, problem: Family, instance: VRPInstance, old: VRPState, new: dict[str, Array], move: Move) -> None:
        new["start"] = move.xp.where(move.serves, old.start, move.node)
        new["chosen"] = ~move.serves & ~move.away & (move.node != old.node)

    def observe_static(self, problem: Family, instance: VRPInstance) -> dict[str, Array]:
        xp = array_namespace(instance.capacity)
        nodes = xp.arange(problem.num_actions, device=device(instance.capacity))
        is_depot = xp.astype(nodes < problem.num_depots, xp.float32)
        return {"is_depot": xp.zeros_like(instance.coords[:, :, 0]) + is_depot}

    def observe_dynamic(self, problem: Family, instance: VRPInstance, state: VRPState) -> dict[str, Array]:
        return {"start_depot": state.start}

    def observation_spaces(self, problem: Family) -> dict[str, spaces.Space[Any]]:
        return super().observation_spaces(problem) | {
            "is_depot": spaces.Box(0.0, 1.0, (problem.num_actions,), np.float32),
            "start_depot": spaces.Discrete(problem.num_actions),
        }


class Fleet(Depots):
    """**HF**: vehicles of several types, each with its own depot node; depot nodes may share a location.

    A type has a capacity, a cost per length, a fixed cost per route, optionally a number of vehicles (one route
    each), and a set of customers that it may serve. Whether a limited number of vehicles suffices for all customers is
    a bin-packing problem. Without PC, each customer therefore needs a type without this limit that can serve it alone.
    """

    letters = "HF"
    columns = (
        DEPOT,
        Column(
            "vehicle_capacity",
            "capacity of the vehicles that start here; 0 for customers",
            "amount",
            integer=True,
            at_depot=True,
        ),
        Column(
            "fixed_cost", "cost of each route that starts here, in the unit of the lengths", "length", at_depot=True
        ),
        Column("cost_per_length", "cost of these vehicles, per length", "prize", at_depot=True),
        Column(
            "num_vehicles",
            "number of these vehicles, each for one route; without the column, any number",
            "count",
            required=False,
            integer=True,
            at_depot=True,
        ),
    )
    fields = ("vehicle_capacity", "fixed_cost", "cost_per_length", "num_vehicles", "eligible")
    per_depot = ("vehicle_capacity", "fixed_cost", "cost_per_length")
    scalars = ("scarcity",)
    lengths = ("fixed_cost",)
    uniforms_per_depot = 2

    def draw(self, problem: Family, instance: VRPInstance, uniforms: Array) -> dict[str, Array]:
        """Draw vehicles whose costs grow with their capacity; the largest has the capacity of CVRP."""
        xp, first = array_namespace(uniforms), problem.num_depots
        shares = (
            xp.linspace(SMALLEST, 1.0, first, device=device(uniforms))
            if first > 1
            else xp.ones(1, device=device(uniforms))
        )
        capacity = xp.astype(xp.ceil(shares * problem.capacity), integer(xp))
        kinds = xp.sort(uniforms[:, : 2 * first].reshape(-1, 2, first), axis=2)
        at_customers = xp.zeros_like(instance.coords[:, first:, 0])

        def rows(values: Array, dtype: Any) -> Array:
            wide = xp.zeros((len(uniforms), first), dtype=dtype, device=device(uniforms)) + xp.astype(values, dtype)
            return xp.concat([wide, xp.astype(at_customers, dtype)], axis=1)

        return {
            "vehicle_capacity": rows(capacity, integer(xp)),
            "fixed_cost": rows(MOST_FIXED * kinds[:, 0], xp.float32),
            "cost_per_length": rows(CHEAPEST + (1 - CHEAPEST) * kinds[:, 1], xp.float32),
        }

    def validate(self, problem: Family, instance: VRPInstance) -> None:
        first = problem.num_depots
        check_field(instance, "vehicle_capacity", (problem.num_actions,), np.int64, 0, MAX_CAPACITY)
        check_field(instance, "fixed_cost", (problem.num_actions,), np.float32, 0, MAX_FLOAT)
        check_field(instance, "cost_per_length", (problem.num_actions,), np.float32, 0, MAX_FLOAT)
        if instance.num_vehicles is not None:
            check_field(instance, "num_vehicles", (problem.num_actions,), np.int64, 0, MAX_CAPACITY)
        if instance.eligible is not None:
            check_field(instance, "eligible", (first, problem.num_actions), np.bool_, 0, 1)
            if problem.pairs:
                check_eligible_pairs(instance)
        largest = instance.vehicle_capacity[:, :first].max(axis=1)
        if (largest != instance.capacity).any():
            row = int(np.argmax(largest != instance.capacity))
            raise InvalidInstance(
                f"capacity: row {row}, found {instance.capacity[row]}; expected {largest[row]}, the capacity of the "
                "largest vehicle"
            )
        if instance.num_vehicles is not None and not instance.num_vehicles[:, :first].any(axis=1).all():
            row = int(np.argmin(instance.num_vehicles[:, :first].any(axis=1)))
            raise InvalidInstance(f"num_vehicles: row {row} has no vehicle at any depot; give at least one")

    def rescale(self, problem: Family, instance: VRPInstance) -> VRPInstance:
        """Scale all costs by one factor, so that the largest cost per length is in the range of generated ones."""
        xp = array_namespace(instance.cost_per_length)
        dearest = xp.max(instance.cost_per_length, axis=1, keepdims=True)
        dearest = xp.where(dearest > 0, dearest, xp.ones_like(dearest))
        by = xp.clip(dearest, CHEAPEST, 1.0) / dearest
        costs = ("fixed_cost", "cost_per_length", *(("penalty",) if problem.penalties else ()))
        return replace(instance, **{field: getattr(instance, field) * by for field in costs})

    def initial(self, problem: Family, instance: VRPInstance) -> dict[str, Array]:
        zeros = array_namespace(instance.demand).zeros_like(instance.demand[:, : problem.num_depots])
        return super().initial(problem, instance) | {"num_routes": zeros}

    def allows(self, problem: Family, instance: VRPInstance, state: VRPState, ways: Ways | None) -> Array:
        allowed: Array = True
        if instance.num_vehicles is not None:  # a route that has begun has its vehicle
            left = gather(state.num_routes, state.start) < gather(instance.num_vehicles, state.start)
            allowed = (left | problem.is_customer(state.node))[:, None]
        if instance.eligible is not None:
            allowed = allowed & gather(instance.eligible, state.start)
        return allowed

    def step(self, problem: Family, instance: VRPInstance, old: VRPState, new: dict[str, Array], move: Move) -> None:
        super().step(problem, instance, old, new, move)
        depots = move.xp.arange(problem.num_depots, device=device(move.node))
        started = (move.serves & ~move.away)[:, None] & (depots == old.start[:, None])
        new["num_routes"] = old.num_routes + move.xp.astype(started, old.num_routes.dtype)

    def why_illegal(self, problem: Family, instance: VRPInstance, state: VRPState, row: int, node: int) -> str | None:
        start = int(state.start[row])
        if instance.eligible is not None and not bool(instance.eligible[row, start, node]):
            return f"vehicles of depot node {start} may not serve customer {node}; {problem.go_home(state, row)}"
        if instance.num_vehicles is None or bool(problem.is_customer(state.node[row])):
            return None
        number = int(instance.num_vehicles[row, start])
        if int(state.num_routes[row, start]) < number:
            return None
        return f"all {number} vehicles of depot node {start} have driven; choose another depot node"

    def observe_static(self, problem: Family, instance: VRPInstance) -> dict[str, Array]:
        capacity = share(instance.vehicle_capacity, instance.capacity[:, None])
        costs = {"fixed_cost": instance.fixed_cost, "cost_per_length": instance.cost_per_length}
        return super().observe_static(problem, instance) | {"vehicle_capacity": capacity} | costs

    def observe_dynamic(self, problem: Family, instance: VRPInstance, state: VRPState) -> dict[str, Array]:
        """Observe a number near 0 for any number of vehicles, and 1 if none is left."""
        xp, given, first = array_namespace(state.node), instance.num_vehicles, problem.num_depots
        numbers = one_for_each_node(instance, given) if given is None else given
        left = xp.sum(numbers[:, :first] - state.num_routes, axis=1)
        scarcity = xp.astype(1 / (1 + xp.astype(left, double(xp))), xp.float32)
        return super().observe_dynamic(problem, instance, state) | {"scarcity": scarcity[:, None]}

    def check(self, problem: Family, instance: VRPInstance, walk: Walk) -> None:
        first, every = problem.num_depots, np.arange(len(walk.tours))
        if instance.eligible is not None:
            eligible = to_numpy(instance.eligible)[every[:, None], walk.start, walk.tours]
            if (~eligible & ~walk.at_depot).any():
                row, step = map(int, np.argwhere(~eligible & ~walk.at_depot)[0])
                found = f"vehicles of depot node {walk.start[row, step]} may not serve node {walk.tours[row, step]}"
                raise InfeasibleTour(row, step, f"{found}; serve it from another depot node")
        if instance.num_vehicles is not None:
            for depot in range(first):
                routes = np.cumsum(walk.begins & (walk.start == depot), axis=1)
                bad = routes > to_numpy(instance.num_vehicles)[:, depot, None]
                if bad.any():
                    row, step = map(int, np.argwhere(bad)[0])
                    number = int(instance.num_vehicles[row, depot])
                    raise InfeasibleTour(
                        row, step, f"more than {number} routes start at depot node {depot}; use others"
                    )


def check_eligible_pairs(instance: VRPInstance) -> None:
    """Check that the vehicles that may serve a delivery are those that may serve its pickup.

    Raises:
        InvalidInstance: They differ; the message names the row, the delivery and the vehicle.
    """
    eligible, pickup = instance.eligible, instance.pickup[:, None, :]
    apart = (eligible != np.take_along_axis(eligible, np.broadcast_to(pickup, eligible.shape), axis=2)) & (pickup > 0)
    if apart.any():
        row, depot, node = map(int, np.argwhere(apart)[0])
        found = f"vehicles of depot node {depot} may serve only one of customer {node} and its pickup"
        raise InvalidInstance(
            f"eligible: row {row}: {found}, customer {pickup[row, 0, node]}; set both to False, or both to True"
        )


def largest_penalty(problem: Family) -> float:
    """Return the bound of generated penalties."""
    return 6 * expected_length(problem.num_nodes) / problem.num_nodes


class Penalties(Attribute):
    """**PC**: customers may be left out, each at the cost of its penalty.

    An action that names the vehicle's current depot before a route begins ends the tour. Without time windows and
    vehicle costs this is the prize-collecting CVRP: an uncollected prize is a penalty.
    """

    letters = "PC"
    columns = (Column("penalty", "cost of leaving a customer out, in the unit of the lengths", "length"),)
    fields = per_node = lengths = ("penalty",)
    uniforms_per_customer = 1

    def draw(self, problem: Family, instance: VRPInstance, uniforms: Array) -> dict[str, Array]:
        """Draw penalties with twice PCTSP's range, because a customer far from the depot may need its own route."""
        xp, most = array_namespace(uniforms), largest_penalty(problem)
        return {"penalty": with_depot(xp.astype(uniforms * most, xp.float32), problem.num_depots)}

    def validate(self, problem: Family, instance: VRPInstance) -> None:
        check_field(instance, "penalty", (problem.num_actions,), np.float32, 0, MAX_PENALTY)
        check_depot_values(instance, "penalty", num_depots=problem.num_depots)

    def rescale(self, problem: Family, instance: VRPInstance) -> VRPInstance:
        """Lower penalties to the cost of the dearest trip, for which no customer is left out if vehicles suffice.

        If they do not, customers whose penalties are lowered become alike, so that other tours may be optimal.
        """
        xp, dtype = array_namespace(instance.penalty), instance.penalty.dtype
        most = xp.astype(xp.max(problem.dearest_trips(instance), axis=1, keepdims=True), dtype)
        return replace(instance, penalty=xp.minimum(instance.penalty, xp.clip(most, largest_penalty(problem), None)))

    def initial(self, problem: Family, instance: VRPInstance) -> dict[str, Array]:
        xp = array_namespace(instance.penalty)
        total = xp.sum(xp.astype(instance.penalty, double(xp)), axis=1)
        return {"unpaid": total, "ended": total < 0}

    def step(self, problem: Family, instance: VRPInstance, old: VRPState, new: dict[str, Array], move: Move) -> None:
        waits = ~move.away & (move.node == old.node)
        new["unpaid"] = old.unpaid - gather(instance.penalty, move.node)
        new["ended"] = old.ended | (waits & (old.num_served < problem.num_nodes))

    def observe_static(self, problem: Family, instance: VRPInstance) -> dict[str, Array]:
        return {"penalty": instance.penalty}
