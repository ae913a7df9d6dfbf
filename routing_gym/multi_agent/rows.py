"""Operations on batches with a second axis of agents: B rows, m agents, n customers."""

from __future__ import annotations

import math

from array_api_compat import array_namespace, device

from routing_gym.arrays import Array, euclidean

FAR = 1e6  # distance of missing customers, larger than any distance in the unit square


def pick_rows(x: Array, index: Array) -> Array:
    """Select entries of each row: x (B, n, ...) and int64 index (B, ...) give x[b, index[b, ...]]."""
    xp = array_namespace(x)
    num_rows, num_columns = x.shape[:2]
    starts = xp.arange(0, num_rows * num_columns, num_columns, device=device(x))
    flat = index + xp.reshape(starts, (num_rows, *(1,) * (index.ndim - 1)))
    picked = xp.take(xp.reshape(x, (num_rows * num_columns, *x.shape[2:])), xp.reshape(flat, (-1,)), axis=0)
    return xp.reshape(picked, (*index.shape, *x.shape[2:]))


def pick_last(x: Array, index: Array) -> Array:
    """Select entries of the last axis: x (..., n) and int64 index (..., k) give (..., k)."""
    num_rows = math.prod(index.shape[:-1])
    xp = array_namespace(x)
    picked = pick_rows(xp.reshape(x, (num_rows, x.shape[-1])), xp.reshape(index, (num_rows, index.shape[-1])))
    return xp.reshape(picked, index.shape)


def count(index: Array, where: Array, size: int) -> Array:
    """Count how often each number occurs in a row: int64 index (B, m), bool where (B, m), float64 (B, size)."""
    xp = array_namespace(index)
    num_rows = index.shape[0]
    starts = xp.arange(0, num_rows * size, size, device=device(index))[:, None]
    nowhere = xp.full_like(index, num_rows * size)
    flat = xp.reshape(xp.where(where, starts + index, nowhere), (-1,))
    counts = xp.bincount(flat, minlength=num_rows * size + 1)[:-1]  # not in the array API, but in NumPy and torch
    return xp.reshape(xp.astype(counts, xp.float64), (num_rows, size))


def pad(x: Array, size: int, axis: int) -> Array:
    """Append zeros, or False, along an axis."""
    missing = size - x.shape[axis]
    if missing <= 0:
        return x
    xp = array_namespace(x)
    shape = (*x.shape[:axis], missing, *x.shape[axis + 1 :])
    return xp.concat([x, xp.zeros(shape, dtype=x.dtype, device=device(x))], axis=axis)


def to_customers(coords: Array, position: Array) -> Array:
    """Return the distances from agents (B, m, 2) to customers (B, n, 2): float64 (B, m, n)."""
    customers = array_namespace(position).astype(coords, position.dtype)
    return euclidean(customers[:, None, :, :], position[:, :, None, :])


def tokens(origin: Array, goal: Array, distance: Array, *others: Array, unit: float, size: int) -> Array:
    """Return features of the objects around each agent, with zeros for missing objects and padding at the end.

    Args:
        origin: Positions of the agents, (B, m, 2).
        goal: Positions of the objects, (B, m, L, 2).
        distance: Distances to the objects, (B, m, L), FAR for missing ones.
        *others: Other features of the objects, (B, m, L).
        unit: Unit of lengths.
        size: Number of objects per agent, including padding.

    Returns:
        float32 (B, m, size, 4 + len(others)): 1 if the object exists, dx, dy, `others`, distance.
    """
    xp = array_namespace(distance)
    present = xp.astype(distance < FAR, xp.float32)
    columns = [present]
    for axis in (0, 1):  # 10 times as fast as both axes at once
        way = xp.astype(goal[..., axis] - origin[..., None, axis], xp.float32)
        columns.append(way * present / unit)
    columns += [present * xp.astype(other, xp.float32) for other in others]
    columns.append(xp.astype(distance, xp.float32) * present / unit)
    return pad(xp.stack(columns, axis=-1), size, axis=2)
