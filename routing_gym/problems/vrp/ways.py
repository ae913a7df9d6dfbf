"""Lengths and durations between nodes, where there may be several depots, and durations apart from lengths."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from array_api_compat import array_namespace, device

from routing_gym.arrays import Array, double, euclidean, gather, is_narrow
from routing_gym.problems.checks import TOLERANCE
from routing_gym.problems.geometry import lengths_from
from routing_gym.problems.vrp.batches import Family, VRPInstance, VRPState

NEVER = -1e30  # before all times; minus infinity has no slack


def durations_from(instance: VRPInstance, origin: Array) -> Array:
    """Durations of the ways from `origin`, int64 (B,), to every node: float32 (B, A)."""
    return lengths_from(instance, origin) if instance.durations is None else gather(instance.durations, origin)


def lengths_home(problem: Family, instance: VRPInstance, times: bool = False, closed: bool = False) -> Array:
    """Lengths (or durations) of the ways from every node to every depot: float32 (B, D, A); 0 on open routes.

    Args:
        problem: The rules.
        instance: B instances.
        times: Return durations.
        closed: Return those of the ways that vehicles on open routes do not drive, too.
    """
    depots = problem.num_depots
    matrix = instance.durations if times and instance.durations is not None else instance.distances
    if matrix is not None:
        home = array_namespace(matrix).permute_dims(matrix[:, :, :depots], (0, 2, 1))
    else:
        home = euclidean(instance.coords[:, :depots, None, :], instance.coords[:, None, :, :])
    return 0 * home if problem.open_routes and not closed else home


def slack(limit: Array) -> Array | float:
    """Return what masks allow beyond a limit; in JAX's 32 bits also what rounding may take from it."""
    xp = array_namespace(limit)
    return TOLERANCE / 2 + (4 * xp.finfo(xp.float32).eps * xp.abs(limit) if is_narrow(xp) else 0.0)


class Limits(NamedTuple):
    """Limits at each node within which the route can still be finished, both float64 (B, A) or None."""

    longest: Array | None  # length of the route
    latest: Array | None  # time of the arrival


class Ways(NamedTuple):
    """Ways from the vehicle's node to every node."""

    lengths: Array  # float32 (B, A)
    durations: Array  # float32 (B, A)
    limits: Limits


def directly_home(problem: Family, state: VRPState) -> Limits:
    """Return the limits of a vehicle that may return after any customer."""
    if problem.num_depots == 1:
        return Limits(*(None if x is None else x[:, 0] for x in (state.longest, state.latest)))
    return Limits(*(None if x is None else gather(x, state.start) for x in (state.longest, state.latest)))


def delivery_order(problem: Family, instance: VRPInstance) -> Array:
    """Sort the deliveries by `due_time`, or without time windows the farthest from the first depot first.

    Returns:
        int64 (B, n // 2); beyond the number of deliveries, other nodes.
    """
    xp = array_namespace(instance.pickup)
    key = -lengths_home(problem, instance, closed=True)[:, 0] if instance.due_time is None else instance.due_time
    last = xp.max(key, axis=1, keepdims=True) + 1
    order = xp.argsort(xp.where(instance.pickup > 0, key, last), axis=1, stable=True)
    return xp.astype(order[:, : problem.num_nodes // 2], instance.pickup.dtype)


def by_deliveries(problem: Family, instance: VRPInstance, state: VRPState) -> Limits:
    """Return the limits of a vehicle that has to deliver what is on board before it returns, in `delivery_order`.

    For every node that may be next, the deliveries after it are those on board, and that of the node itself if it is
    a pickup. They are gone through from the last to the first.
    """
    xp, home = array_namespace(state.node), directly_home(problem, state)
    nodes = xp.arange(problem.num_actions, dtype=state.node.dtype, device=device(state.node))[None, :]
    following, limits = xp.zeros_like(instance.pickup), home  # the delivery after a node, 0 for none; limits there

    def chain(pick: Callable[[Array], Array], legs: Array, travels: Array) -> Limits:
        """Return the limits at a node, given the ways from it to `following`; `pick` selects its values."""
        longest, latest, last = None, None, following == 0
        if home.longest is not None:
            longest = xp.where(last, pick(home.longest), limits.longest - legs)
        if home.latest is not None:
            due = xp.astype(instance.due_time, double(xp))
            leaves = limits.latest - travels - pick(instance.service_time)
            arrives = xp.minimum(pick(due + slack(due)), leaves)
            latest = xp.where(pick(instance.ready_time) <= leaves, arrives, xp.full_like(arrives, NEVER))
            latest = xp.where(last, pick(home.latest), latest)
        return Limits(longest, latest)

    for step in reversed(range(state.order.shape[1])):
        node = state.order[:, step]
        source = gather(instance.pickup, node)[:, None]
        comes = (gather(state.due, node)[:, None] & (nodes != node[:, None])) | ((nodes == source) & (source > 0))
        travels = legs = xp.take_along_axis(lengths_from(instance, node), following, axis=1)
        if instance.durations is not None:
            travels = xp.take_along_axis(durations_from(instance, node), following, axis=1)
        earlier = chain(partial(value_at, node), legs, travels)
        limits = Limits(*(None if a is None else xp.where(comes, a, b) for a, b in zip(earlier, limits, strict=True)))
        following = xp.where(comes, node[:, None], following)
    travels = legs = ways_to(instance, following)
    if instance.durations is not None:
        travels = ways_to(instance, following, instance.durations)
    return chain(lambda x: x, legs, travels)


def value_at(node: Array, x: Array) -> Array:
    """Select the value of a node in each row: (B, 1)."""
    return gather(x, node)[:, None]


def ways_to(instance: VRPInstance, destination: Array, durations: Array | None = None) -> Array:
    """Length, or duration where given, of the way from each node to one of its own: (B, A).

    Args:
        instance: B instances.
        destination: int64 (B, A).
        durations: The matrix to use instead of the lengths.
    """
    xp, matrix = array_namespace(destination), instance.distances if durations is None else durations
    if matrix is not None:
        return xp.take_along_axis(matrix, destination[:, :, None], axis=2)[:, :, 0]
    x, y = (xp.take_along_axis(instance.coords[:, :, axis], destination, axis=1) for axis in (0, 1))
    return euclidean(instance.coords, xp.stack([x, y], axis=-1))
