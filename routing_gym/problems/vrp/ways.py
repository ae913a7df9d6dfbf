"""Lengths and durations of edges, for problems with several depots or with durations that differ from lengths."""

from __future__ import annotations

from array_api_compat import array_namespace

from routing_gym.arrays import Array, euclidean, gather, is_narrow
from routing_gym.problems.checks import TOLERANCE
from routing_gym.problems.geometry import lengths_from
from routing_gym.problems.vrp.batches import VRPInstance, VRPState
from routing_gym.problems.vrp.contract import Family, Limits

NEVER = -1e30  # before all times; `slack` of minus infinity would not be finite


def durations_from(instance: VRPInstance, origin: Array) -> Array:
    """Return the durations of the edges from `origin`, int64 (B,), to every node: float32 (B, A)."""
    return lengths_from(instance, origin) if instance.durations is None else gather(instance.durations, origin)


def lengths_home(problem: Family, instance: VRPInstance, times: bool = False, closed: bool = False) -> Array:
    """Return the lengths (or durations) of the edges from every node to every depot: float32 (B, D, A).

    They are 0 if routes are open.

    Args:
        problem: Problem of the instances.
        instance: B instances.
        times: Whether to return durations.
        closed: Whether to return the lengths or durations of closed routes even if routes are open.
    """
    depots = problem.num_depots
    matrix = instance.durations if times and instance.durations is not None else instance.distances
    if matrix is not None:
        home = array_namespace(matrix).permute_dims(matrix[:, :, :depots], (0, 2, 1))
    else:
        home = euclidean(instance.coords[:, :depots, None, :], instance.coords[:, None, :, :])
    return 0 * home if problem.open_routes and not closed else home


def slack(limit: Array) -> Array | float:
    """Return the tolerance of masks on a limit. In JAX's 32 bits it includes the rounding error of the limit."""
    xp = array_namespace(limit)
    return TOLERANCE / 2 + (4 * xp.finfo(xp.float32).eps * xp.abs(limit) if is_narrow(xp) else 0.0)


def directly_home(problem: Family, state: VRPState) -> Limits:
    """Return the limits of a vehicle that may return after any customer."""
    if problem.num_depots == 1:
        return Limits(*(None if x is None else x[:, 0] for x in (state.longest, state.latest)))
    return Limits(*(None if x is None else gather(x, state.start) for x in (state.longest, state.latest)))


def between(instance: VRPInstance, origin: Array, destination: Array, times: bool = False) -> Array:
    """Return the lengths, or durations, of single edges: float32 (B, M).

    Args:
        instance: B instances.
        origin: First nodes, int64 (B, M).
        destination: Second nodes, int64 (B, M).
        times: Whether to return durations.
    """
    xp = array_namespace(origin)
    matrix = instance.durations if times and instance.durations is not None else instance.distances
    if matrix is not None:
        index = origin * matrix.shape[2] + destination
        return gather(xp.reshape(matrix, (matrix.shape[0], -1)), index)
    return euclidean(gather(instance.coords, origin), gather(instance.coords, destination))
