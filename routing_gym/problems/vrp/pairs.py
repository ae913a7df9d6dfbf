"""Pickups with their deliveries (PD), and their masks if routes have limits."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import array_namespace, device
from gymnasium import spaces

from routing_gym.arrays import Array, double, gather, integer, max_before, scatter, to_numpy
from routing_gym.problem import InfeasibleTour, InvalidInstance
from routing_gym.problems.checks import check_depot_values, check_field
from routing_gym.problems.vrp.attribute import Move, Walk
from routing_gym.problems.vrp.batches import VRPInstance, VRPState
from routing_gym.problems.vrp.contract import Family, Limits, Ways
from routing_gym.problems.vrp.loads import Deliveries, check_loads
from routing_gym.problems.vrp.ways import NEVER, between, directly_home, lengths_home, slack
from routing_gym.traits import Column

INF = float("inf")


class Pairs(Deliveries):
    """**PD**: goods are picked up at one customer and delivered to another, later on the same route.

    `load` is the amount on board. A vehicle returns when it has delivered everything; goods of a customer without a
    delivery go to the depot. If lengths or times are limited, a customer is allowed only if all goods on board can
    then be delivered within the limits in one fixed order: by `due_time` or, without time windows, those farthest
    from the depot first (`by_deliveries`). The masks therefore never lead to a dead end, but forbid some routes that
    another order would allow.
    """

    letters = "PD"
    columns = (Column("pickup", "row where the goods of each delivery are picked up; 0 for none", "node"),)
    fields = ("pickup",)

    def draw(self, problem: Family, instance: VRPInstance, uniforms: Array) -> dict[str, Array]:
        """Make customers 1 to n / 2 pickups, and customer i + n / 2 the delivery of customer i."""
        xp, where = array_namespace(instance.demand), device(instance.demand)
        first, pairs = problem.num_depots, problem.num_nodes // 2
        nodes = xp.arange(problem.num_actions, dtype=integer(xp), device=where)
        delivers = (nodes >= first + pairs) & (nodes < first + 2 * pairs)
        pickup = xp.where(delivers, nodes - pairs, xp.zeros_like(nodes))
        demand = xp.where(delivers[None, :], instance.demand[:, pickup], instance.demand)
        return {"pickup": xp.zeros_like(instance.demand) + pickup, "demand": demand}

    def validate(self, problem: Family, instance: VRPInstance) -> None:
        check_field(instance, "pickup", (problem.num_actions,), np.int64, 0, problem.num_actions - 1)
        check_depot_values(instance, "pickup", num_depots=problem.num_depots)
        pickup, demand, delivers = instance.pickup, instance.demand, instance.pickup > 0
        source = np.take_along_axis(pickup, pickup, axis=1)
        amount = np.take_along_axis(demand, pickup, axis=1)
        counts = np.zeros_like(pickup)
        np.add.at(counts, (np.arange(len(pickup))[:, None], pickup), 1)
        twice = delivers & (np.take_along_axis(counts, pickup, axis=1) > 1)
        for bad, say in (
            (delivers & (pickup < problem.num_depots), "which is a depot; give the customer where goods are picked up"),
            (delivers & (source > 0), "which is a delivery itself, or the same node"),
            (twice, "where two deliveries have theirs; give each delivery a pickup of its own"),
            (delivers & (amount != demand), "whose demand is another; give both the same"),
        ):
            if bad.any():
                row, node = map(int, np.argwhere(bad)[0])
                found = f"pickup: row {row}, node {node} has its pickup at node {pickup[row, node]}"
                raise InvalidInstance(f"{found}, {say}")

    def initial(self, problem: Family, instance: VRPInstance) -> dict[str, Array]:
        due = array_namespace(instance.pickup).zeros_like(instance.pickup) > 0
        if not problem.limited:
            return {"due": due}
        order, position = delivery_order(problem, instance)
        return {"due": due, "order": order, "position": position}

    def allows(self, problem: Family, instance: VRPInstance, state: VRPState, ways: Ways | None) -> Array:
        return ((instance.pickup == 0) & super().allows(problem, instance, state, ways)) | state.due

    def step(self, problem: Family, instance: VRPInstance, old: VRPState, new: dict[str, Array], move: Move) -> None:
        xp, node, demand = move.xp, move.node, gather(instance.demand, move.node)
        change = xp.where(gather(instance.pickup, node) > 0, -demand, demand)
        new["load"] = xp.where(move.serves, old.load + change, xp.zeros_like(demand))
        picked = (instance.pickup == node[:, None]) & move.serves[:, None]
        new["due"] = scatter(old.due | picked, node, xp.zeros_like(move.serves))

    def why_illegal(self, problem: Family, instance: VRPInstance, state: VRPState, row: int, node: int) -> str | None:
        source = int(instance.pickup[row, node])
        if source == 0:
            return super().why_illegal(problem, instance, state, row, node)
        return None if bool(state.due[row, node]) else f"customer {node} comes after its pickup, customer {source}"

    def observe_static(self, problem: Family, instance: VRPInstance) -> dict[str, Array]:
        return {"pickup": instance.pickup}

    def observation_spaces(self, problem: Family) -> dict[str, spaces.Space[Any]]:
        return {"pickup": spaces.Box(0, problem.num_actions - 1, (problem.num_actions,), np.int64)}

    def amounts(self, instance: VRPInstance, nodes: list[int]) -> dict[str, int]:
        picks = to_numpy(instance.pickup)[0][nodes] == 0
        return {"pickup": int(to_numpy(instance.demand)[0][nodes][picks].sum())}

    def check(self, problem: Family, instance: VRPInstance, walk: Walk) -> None:
        source, demand = walk.of(instance.pickup), walk.of(instance.demand)
        check_loads(problem, instance, walk, walk.running(np.where(source > 0, -demand, demand)))
        every, on_board = np.arange(len(walk.tours)), np.zeros(instance.pickup.shape, dtype=bool)
        deliveries = np.zeros(instance.pickup.shape, dtype=bool)
        np.put_along_axis(deliveries, to_numpy(instance.pickup), values=True, axis=1)
        for step, node in enumerate(walk.tours.T):
            wanted, depot = source[:, step], walk.at_depot[:, step]
            early = (wanted > 0) & ~on_board[every, wanted]
            if early.any():
                row = int(np.argmax(early))
                found = f"node {node[row]} comes before its pickup, node {wanted[row]}, or on another route"
                raise InfeasibleTour(row, step, f"{found}; visit that one first")
            on_board[every, wanted] = False
            left = depot & on_board.any(axis=1)
            if left.any():
                row = int(np.argmax(left))
                found = f"the route ends with the goods of node {np.argmax(on_board[row])} on board"
                raise InfeasibleTour(row, step, f"{found}; deliver them first")
            on_board[every, node] = ~depot & (wanted == 0) & deliveries[every, node]


def delivery_order(problem: Family, instance: VRPInstance) -> tuple[Array, Array]:
    """Sort the deliveries by `due_time`; without time windows by decreasing distance from the first depot.

    Returns:
        order: int64 (B, M) with M = n // 2, at least 1: the deliveries in this order, then other nodes as padding.
        position: int64 (B, A): index in `order` of each delivery, and of each pickup's delivery; M for other nodes.
    """
    xp, number = array_namespace(instance.pickup), max(1, problem.num_nodes // 2)
    key = -lengths_home(problem, instance, closed=True)[:, 0] if instance.due_time is None else instance.due_time
    last = xp.max(key, axis=1, keepdims=True) + 1
    order = xp.argsort(xp.where(instance.pickup > 0, key, last), axis=1, stable=True)
    order = xp.astype(order[:, :number], instance.pickup.dtype)
    nodes = xp.arange(problem.num_actions, dtype=order.dtype, device=device(order))
    position = xp.zeros_like(instance.pickup) + number
    for step, node in enumerate(xp.unstack(order, axis=1)):
        source = gather(instance.pickup, node)[:, None]
        position = xp.where(((nodes == node[:, None]) | (nodes == source)) & (source > 0), step, position)
    return order, position


def by_deliveries(problem: Family, instance: VRPInstance, state: VRPState) -> Limits:
    """Return the limits of a vehicle that has to deliver the goods on board, in `delivery_order`, before it returns."""
    xp, home = array_namespace(state.node), directly_home(problem, state)
    longest, latest = home
    if longest is not None:
        zero = xp.zeros_like(longest)
        windows = Windows(zero - INF, zero + INF, zero, longest)
        longest = limits_with_order(windows, partial(between, instance), state)
    if latest is not None:
        due = xp.astype(instance.due_time, double(xp))
        windows = Windows(instance.ready_time, due + slack(due), instance.service_time, latest)
        latest = limits_with_order(windows, partial(between, instance, times=True), state)
    return Limits(longest, latest)


class Windows(NamedTuple):
    """Limits of the arrivals at nodes, all (B, M). For lengths, only `home` is a limit."""

    opens: Array
    closes: Array
    service: Array
    home: Array  # limit of the arrival if the vehicle returns next

    def at(self, nodes: Array) -> Windows:
        """Select nodes: int64 (B, M)."""
        return Windows(*(gather(x, nodes) for x in self))

    def arrival(self, following: Array, limit: Array, way: Array) -> Array:
        """Return limits of the arrival, given the next node, the limit of the arrival there, and the edge to it."""
        xp = array_namespace(following)
        leaves = xp.where(following == 0, self.home, limit - way - self.service)
        return xp.where(self.opens <= leaves, xp.minimum(self.closes, leaves), NEVER)


def limits_with_order(windows: Windows, ways: Callable[[Array, Array], Array], state: VRPState) -> Array:
    """Return the latest arrival at each node (or the greatest length) after which the deliveries on board are feasible.

    A visit changes their order at one position at most: a delivery is removed, or the delivery of a pickup is inserted.
    The deliveries after this position give the latest arrival there, and the deliveries before it convert it to the
    latest arrival at the first delivery. Both are minima and maxima of time windows minus elapsed times without
    waiting, like in the concatenation of route segments by Vidal et al. (2013), "A hybrid genetic algorithm with
    adaptive diversity management for a large class of vehicle routing problems with time-windows". The first delivery
    on board has no limit: the order was feasible at the last node, and rounding must not make it infeasible.

    Args:
        windows: Limits at all nodes, (B, A).
        ways: Function that returns the lengths or durations of edges, given their ends, (B, M) and (B, M).
        state: B states.

    Returns:
        Limits: float64 (B, A).
    """
    xp, order, position = array_namespace(state.node), state.order, state.position
    on_board = gather(state.due, order)
    before = node_before(order, on_board)
    after = xp.flip(node_before(xp.flip(order, axis=1), xp.flip(on_board, axis=1)), axis=1)
    here, leads = windows.at(order), before == 0
    zero = xp.zeros_like(here.home)
    onward, past = ways(order, after), xp.where(leads, zero, ways(before, after))
    there = xp.where(leads, zero, ways(before, order))

    # Elapsed times at each position without waiting, and the time windows of the deliveries on board minus these times.
    takes = xp.where(on_board, there + here.service, zero)
    ends = xp.cumulative_sum(takes, axis=1)
    begins = ends - takes
    opens = xp.where(on_board, here.opens - begins - there, -INF)
    closes = xp.where(on_board, here.closes - begins - there, INF)
    returns = xp.where(on_board & (after == 0), here.home - begins - there, closes)

    # The limit at the delivery after each position, then the latest departure from the delivery before it.
    following = -xp.flip(max_before(xp.flip(-returns, axis=1), -INF), axis=1)
    following = following + ends + xp.where(on_board, onward, past)
    without = xp.where((after == 0) & ~leads, gather(windows.home + windows.service, before), following - past)
    leaves = xp.where(on_board, without, here.arrival(after, following, onward) - there) - begins
    passed_on = xp.where(max_before(opens, -INF) <= leaves, xp.minimum(-max_before(-closes, -INF), leaves), NEVER)

    def of_nodes(changed: Array, unchanged: Array) -> Array:
        return gather(xp.concat([changed, unchanged], axis=1), position)

    first = xp.max(xp.where(leads & on_board, order, xp.zeros_like(order)), axis=1, keepdims=True)
    next_first = of_nodes(xp.where(leads, xp.where(on_board, after, order), first), first)
    limit = of_nodes(passed_on, xp.min(returns, axis=1, keepdims=True))
    nodes = xp.zeros_like(position) + xp.arange(position.shape[1], dtype=order.dtype, device=device(order))
    return xp.where(state.due & (nodes == first), INF, windows.arrival(next_first, limit, ways(nodes, next_first)))


def node_before(order: Array, on_board: Array) -> Array:
    """Return the last delivery on board before each position, 0 for none: int64 (B, M)."""
    xp = array_namespace(order)
    steps = xp.arange(1, 1 + order.shape[1], dtype=order.dtype, device=device(order))
    last = max_before(xp.where(on_board, steps, xp.zeros_like(order)), 0)
    return gather(xp.concat([xp.zeros_like(order[:, :1]), order], axis=1), last)
