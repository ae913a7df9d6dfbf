"""Common functions of the problem files: coordinates, distances, sizes, spaces."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from array_api_compat import array_namespace, device
from gymnasium import spaces

from routing_gym.arrays import Array, FloatArray, any_array, euclidean, gather
from routing_gym.problem import AnyProblem

LONG = 20.0  # times the median: longer edges of a matrix are very long
MAX_FLOAT = float(np.finfo(np.float32).max)  # "unbounded" in spaces: Gymnasium's checker warns of infinity


def node_spaces(problem: AnyProblem) -> dict[str, spaces.Space[Any]]:
    """Return the observation spaces that all problems with coordinates share, including those of observed matrices."""
    num_actions = problem.num_actions
    return {
        "coords": spaces.Box(0.0, 1.0, (num_actions, 2), np.float32),
        "action_mask": spaces.MultiBinary(num_actions),
        "current_node": spaces.Discrete(num_actions),
        **{
            key: spaces.Box(0.0, MAX_FLOAT, (num_actions, num_actions), np.float32) for key in problem.observed.per_edge
        },
    }


def leg_length(instance: Any, origin: Array, destination: Array) -> Array:
    """Return the length of the edge from `origin` to `destination`, both int64 (B,): float32 (B,)."""
    if instance.distances is not None:
        num_rows, num_nodes, _ = instance.distances.shape
        return gather(instance.distances.reshape(num_rows, num_nodes**2), origin * num_nodes + destination)
    return euclidean(gather(instance.coords, origin), gather(instance.coords, destination))


def lengths_from(instance: Any, origin: Array) -> Array:
    """Return the lengths of the edges from `origin`, int64 (B,), to every node: float32 (B, A)."""
    if instance.distances is not None:
        return gather(instance.distances, origin)
    return euclidean(gather(instance.coords, origin)[:, None, :], instance.coords)


def lengths_to_depot(instance: Any) -> Array:
    """Return the lengths of the edges from every node to node 0: float32 (B, A)."""
    if instance.distances is not None:
        return instance.distances[:, :, 0]
    return euclidean(instance.coords[:, :1], instance.coords)


def reach(instance: Any, centre: int | None = None) -> Array:
    """Return a number r for each node such that the edge from i to j is at most r(i) + r(j) long.

    By the triangle inequality, r may be the distance from any common point. Given distances need not satisfy it, so r
    is then half of the longest edge from or to the node.

    Args:
        instance: B instances.
        centre: Node that is the common point; None for the middle of the square.

    Returns:
        float32 (B, A).
    """
    xp = array_namespace(any_array(instance))
    if instance.distances is not None:
        longest = xp.maximum(xp.max(instance.distances, axis=1), xp.max(instance.distances, axis=2))
        return longest / 2
    if centre is None:
        return euclidean(instance.coords, xp.full_like(instance.coords[:1, :1], 0.5))
    return euclidean(instance.coords, instance.coords[:, centre, None])


def tour_bound(instance: Any) -> Array:
    """Return an upper bound on the length of a tour of all nodes: twice the sum of `reach`, float32 (B,)."""
    legs = reach(instance)
    return 2 * array_namespace(legs).sum(legs, axis=1)


def all_lengths(instance: Any) -> Array:
    """Return the edge lengths between all nodes: float32 (B, A, A), from each node (row) to each node (column)."""
    if instance.distances is not None:
        return instance.distances
    return euclidean(instance.coords[:, :, None], instance.coords[:, None])


def all_durations(instance: Any) -> Array:
    """Return the edge durations between all nodes: float32 (B, A, A). Without `durations`, the speed is 1."""
    durations = getattr(instance, "durations", None)
    return all_lengths(instance) if durations is None else durations


def unit_of(distances: FloatArray) -> float:
    """Return the largest power of two up to the longest distance, as length unit for packages that take integers."""
    return float(2.0 ** np.floor(np.log2(distances.max()))) if distances.any() else 1.0


MATRICES = {"distances": all_lengths, "durations": all_durations}  # values that None in a field stands for


def match_fields(batches: Sequence[Any]) -> list[Any]:
    """Fill the optional fields, such as matrices, that some batches of instances have and others lack.

    A batch has a field for all its rows or for none. `MATRICES` defines the values that None stands for. The class of
    the instances may define more: `stands_for` maps fields to functions of a batch without the field and of the field
    of another batch.
    """
    matched = list(batches)
    own = getattr(type(batches[0]), "stands_for", {})
    for name in (*MATRICES, *own):
        given = [getattr(batch, name, None) for batch in batches]
        there = next((value for value in given if value is not None), None)
        for place, value in enumerate(given):
            if value is None and there is not None:
                batch = matched[place]
                fill = own[name](batch, there) if name in own else MATRICES[name](batch)
                matched[place] = replace(batch, **{name: fill})
    return matched


def earliest_arrivals(
    durations: npt.NDArray[Any],
    origin: int,
    time: float,
    windows: Sequence[npt.NDArray[Any]],
    via: Sequence[int] | npt.NDArray[np.int64],
    slack: float = 0.0,
) -> npt.NDArray[Any]:
    """Return the earliest arrivals (A,) at all nodes, directly or, if that is faster, via other nodes.

    Given durations need not satisfy the triangle inequality. Loads are ignored, so that these are lower bounds.

    Args:
        durations: From each node (row) to each node (column), (A, A).
        origin: Node that the vehicle leaves.
        time: Time of this departure.
        windows: Earliest and latest starts, and durations of service, (A,) each.
        via: Nodes that may be served on the way.
        slack: Tolerance for rounding.
    """
    ready, due, service = windows
    found: npt.NDArray[Any] = time + durations[origin]
    for _ in via:
        left = np.where(found <= due + slack, np.maximum(found, ready) + service, np.inf)[via]
        better = np.minimum(found, (left[:, None] + durations[via]).min(axis=0))
        if (better >= found - slack).all():
            break
        found = better
    return found


def latest_departures(
    durations: npt.NDArray[Any],
    destination: int,
    time: float,
    windows: Sequence[npt.NDArray[Any]],
    via: Sequence[int] | npt.NDArray[np.int64],
) -> npt.NDArray[Any]:
    """Return the latest departures (A,) from all nodes with which a vehicle arrives at `destination` by a time.

    They are the arrivals if time runs backwards; see `earliest_arrivals`.
    """
    ready, due, service = windows
    return -earliest_arrivals(durations.T, destination, -time, (-due - service, -ready - service, service), via)


def very_long(lengths: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return a mask of a matrix's very long edges, such as 999,999 for "no road"."""
    positive = lengths[lengths > 0].astype(np.float64)
    return lengths > LONG * np.median(positive) if positive.size else lengths > 0


def embedding(lengths: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return points of a plane whose distances resemble a matrix: classical multidimensional scaling, (A, 2).

    Very long edges count as long as the longest of the others.
    """
    long = very_long(lengths)
    lengths = np.where(long, lengths[~long].max(), lengths)
    squared = ((lengths + lengths.T) / 2) ** 2
    centred = squared - squared.mean(axis=0) - squared.mean(axis=1, keepdims=True) + squared.mean()
    values, vectors = np.linalg.eigh(-centred / 2)
    values, vectors = values[-2:], vectors[:, -2:]
    return np.asarray(vectors * np.sqrt(np.clip(values, 0, None)))


def symmetry(coords: Array, index: int | npt.NDArray[np.int64]) -> Array:
    """Transform points by one of the eight symmetries of the unit square, which preserves all distances.

    Args:
        coords: Coordinates (B, A, 2).
        index: Index of the symmetry, 0 to 7, for all rows or one per row (B,). Bit 4 swaps the axes, then bits 1 and 2
            mirror the first and the second; 0 is the identity.
    """
    xp, where = array_namespace(coords), device(coords)
    swap, mirror_x, mirror_y = (xp.asarray(np.reshape(index, (-1, 1)) & bit != 0, device=where) for bit in (4, 1, 2))
    x, y = coords[..., 0], coords[..., 1]
    x, y = xp.where(swap, y, x), xp.where(swap, x, y)
    return xp.stack([xp.where(mirror_x, 1 - x, x), xp.where(mirror_y, 1 - y, y)], axis=-1)


def uniform_coords(uniforms: Array, num_points: int) -> Array:
    """Convert the first 2 * num_points uniforms of each row to float32 (B, num_points, 2) in [0, 1]."""
    points = uniforms[:, : 2 * num_points].reshape(-1, num_points, 2)
    return points.astype(np.float32)  # NumPy and JAX; for one instance, wrappers would take longer than the operation


def with_depot(customers: Array, num_depots: int = 1, value: float = 0) -> Array:
    """Prepend the depots' value to the customers' values (B, n): (B, D + n)."""
    if not isinstance(customers, np.ndarray):
        xp = array_namespace(customers)
        return xp.concat([xp.full_like(customers[:, :1], value)] * num_depots + [customers], axis=1)
    num_rows, num_customers = customers.shape
    shape = num_rows, num_depots + num_customers
    values = np.full(shape, value, dtype=customers.dtype)  # 10 times as fast as np.pad
    values[:, num_depots:] = customers
    return values


def scaled_map(instance: Any, by: Array) -> dict[str, Array | None]:
    """Scale an instance's coordinates about the centre of the square, and its distances, by a factor per row (B,)."""
    by = by[:, None, None]
    distances = None if instance.distances is None else by * instance.distances
    return {"coords": by * instance.coords + (1 - by) / 2, "distances": distances}


def expected_length(num_customers: int) -> float:
    """Return the K of Kool et al. (2019), appendix: about half the length of an optimal tour of all nodes.

    K is 2, 3 and 4 for the paper's 20, 50 and 100 customers, linear in between, constant below, and 0.4 sqrt(n) above:
    half of the asymptotic length 0.7124 sqrt(n) of optimal tours of uniform nodes, rounded like the 4.
    """
    if num_customers > 100:
        return 0.4 * math.sqrt(num_customers)
    return float(np.interp(num_customers, (20, 50, 100), (2.0, 3.0, 4.0)))
