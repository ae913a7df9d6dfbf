"""Matrices of lengths and durations: those that problems draw, observe and start from; and shortest paths.

With the setting `matrices`, instances are drawn on random streets between their nodes and some junctions. The streets
are a Gabriel graph (Gabriel and Sokal 1969, "A new statistical approach to geographic variation analysis"), which is
planar. Those of the relative neighbourhood graph (Toussaint 1980) stay open in both directions: it connects all
vertices, so that every node is reached from every other. Of the others, some are closed and some are one-way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from array_api_compat import array_namespace

from routing_gym.arrays import Array, double, euclidean, is_jax, is_narrow, iterate, to_numpy
from routing_gym.problem import AnyProblem
from routing_gym.problems.geometry import MATRICES, uniform_coords

RANGE = 1_000_000  # of integers, whose sums of two are exact in float32
ROWS_AT_ONCE = 32  # instances of 50 nodes that fit into the cache of a core, which halves the time
NODES_PER_JUNCTION = 4
CLOSED, ONE_WAY = 0.2, 0.6  # shares of the streets that need not be open in both directions
FAST, FAST_SPEED, SLOWEST, SLOW = 0.2, 2.0, 0.5, 1.0  # share of fast streets, their speed; range of the others' speeds
STEPS = 2.0**18  # of lengths and durations in a unit, whose sums of two are exact
MOST_LENGTH = 64.0  # of any path
NO_STREET = 256.0  # a longer duration than any path's
ROUNDING = 0.05  # by how much lengths that are straight lines may differ from these
LONGEST = 2**0.5  # of scaled matrices; as in the unit square, for limits that allow a way there and back


def num_matrix_uniforms(problem: AnyProblem) -> int:
    """Return the number of random numbers that the matrices of an instance are made from."""
    return num_road_uniforms(problem.num_actions) if problem.matrices else 0


def has_matrices(instance: Any) -> bool:
    """Return whether the first row has a matrix of lengths that are not just rounded straight lines.

    The relative lengths (divided by their mean) must differ from those of straight lines by more than 0.05 on average;
    without coordinates, every matrix counts.
    """
    lengths = getattr(instance, "distances", None)
    if lengths is None:
        return False
    if getattr(instance, "coords", None) is None:
        return True
    coords, lengths = to_numpy(instance.coords[0]), to_numpy(lengths[0])
    straight = euclidean(coords[:, None], coords[None])
    if not (straight.any() and lengths.any()):  # all nodes in one place, or no lengths
        return bool(straight.any() or lengths.any())
    return float(abs(straight / straight.mean() - lengths / lengths.mean()).mean()) > ROUNDING


def draw_matrices(problem: AnyProblem, coords: Array, uniforms: Array) -> dict[str, Array]:
    """Draw the matrices of instances: those that the problem observes, as fields of an instance.

    Args:
        problem: Without `matrices`, there are none.
        coords: (B, A, 2), in the unit square.
        uniforms: (B, num_matrix_uniforms(problem) or more), in [0, 1), of which the last are taken.
    """
    if not problem.matrices:
        return {}
    found = road_matrices(coords, uniforms[:, -num_matrix_uniforms(problem) :])
    return dict(zip(problem.observed.per_edge, found, strict=False))


def observe_nodes(problem: AnyProblem, instance: Any) -> dict[str, Array]:
    """Return the observations that all problems with coordinates share: these, and the matrices that are observed."""
    return {"coords": instance.coords, **{name: MATRICES[name](instance) for name in problem.observed.per_edge}}


def random_lengths(uniforms: Array) -> Array:
    """Draw lengths as Kwon et al. (2021) do, see `ATSP`: millionths, of shortest paths; float32 (B, n, n).

    Args:
        uniforms: (B, n, n), in [0, 1).
    """
    xp = array_namespace(uniforms)
    matrix = xp.astype(xp.floor(uniforms * RANGE), xp.float32)
    return shortest_paths(matrix * (1 - xp.eye(uniforms.shape[1], dtype=xp.float32))) / RANGE


def shortest_paths(lengths: Array) -> Array:
    """Replace the lengths of legs by those of the shortest paths (Floyd 1962, algorithm 97).

    Args:
        lengths: (B, n, n).
    """
    xp = array_namespace(lengths)

    def allow(k: int, d: Array) -> Array:
        """Let paths pass through node k."""
        return xp.minimum(d, d[:, :, k, None] + d[:, None, k, :])

    return xp.concat([iterate(lengths.shape[1], allow, lengths[rows]) for rows in in_cache(lengths)])


def in_cache(x: Array) -> list[slice]:
    """Split rows (B, ...) into groups that are worked on one after the other; JAX compiles one for all."""
    size = len(x) if is_jax(array_namespace(x)) else ROWS_AT_ONCE
    return [slice(start, start + size) for start in range(0, len(x), size)]


def num_junctions(num_nodes: int) -> int:
    """Return how many junctions of streets there are beside the nodes."""
    return -(-num_nodes // NODES_PER_JUNCTION)


def num_road_uniforms(num_nodes: int) -> int:
    """Return the number of random numbers that `road_matrices` takes."""
    junctions = num_junctions(num_nodes)
    return 2 * junctions + (num_nodes + junctions) ** 2


def road_matrices(coords: Array, uniforms: Array) -> tuple[Array, Array]:
    """Draw streets between nodes; return lengths and durations of the fastest ways: float32 (B, A, A) each.

    Both are scaled to the mean of the straight lines between the nodes, less if an entry would exceed the diagonal of
    the unit square. So the mean speed is about 1, and limits and time windows that allow a round trip of two diagonals
    can be met.

    Args:
        coords: (B, A, 2), in the unit square.
        uniforms: (B, num_road_uniforms(A)), in [0, 1).
    """
    xp = array_namespace(coords)
    parts = [roads(coords[rows], uniforms[rows]) for rows in in_cache(coords)]
    lengths, durations = (xp.concat(list(ways)) for ways in zip(*parts, strict=True))
    return lengths, durations


def roads(coords: Array, uniforms: Array) -> tuple[Array, Array]:
    """Return what `road_matrices` does, for a few rows."""
    xp, num_nodes, junctions = array_namespace(coords), coords.shape[1], num_junctions(coords.shape[1])
    size = num_nodes + junctions
    places = xp.concat([coords, uniform_coords(uniforms, junctions)], axis=1)
    lengths, durations = fastest_ways(*streets(places, uniforms[:, 2 * junctions :].reshape(-1, size, size)))
    straight = euclidean(coords[:, :, None], coords[:, None])
    return (
        scaled_like(lengths[:, :num_nodes, :num_nodes], straight),
        scaled_like(durations[:, :num_nodes, :num_nodes], straight),
    )


def streets(places: Array, uniforms: Array) -> tuple[Array, Array]:
    """Draw streets between places: lengths and durations (B, V, V), `NO_STREET` where there is none.

    Args:
        places: (B, V, 2).
        uniforms: (B, V, V). Above the diagonal they decide on speeds, below it on directions.
    """
    xp = array_namespace(places)
    lengths = euclidean(places[:, :, None], places[:, None])
    gabriel = ~is_passed(lengths * lengths, lambda a, b: a + b)
    neighbours = ~is_passed(lengths, xp.maximum)
    speed, chance = mirrored(xp.triu(uniforms, k=1)), mirrored(xp.tril(uniforms, k=-1))
    speed = xp.where(speed < FAST, FAST_SPEED, SLOWEST + (SLOW - SLOWEST) * (speed - FAST) / (1 - FAST))
    forth, back = (chance >= CLOSED) & (chance < CLOSED + ONE_WAY / 2), chance >= CLOSED + ONE_WAY / 2
    opened = xp.where(xp.triu(xp.ones_like(lengths)) > 0, forth | (chance >= CLOSED + ONE_WAY), back)
    return lengths, xp.where(neighbours | (gabriel & opened), lengths / speed, NO_STREET)


def mirrored(triangle: Array) -> Array:
    """Add the transpose: (B, V, V)."""
    return triangle + array_namespace(triangle).matrix_transpose(triangle)


def is_passed(d: Array, combine: Callable[[Array, Array], Array]) -> Array:
    """Mark pairs of nodes for which some third node makes `combine` of its two distances less than theirs.

    Args:
        d: Symmetric (B, V, V).
        combine: Of distances to both nodes.
    """
    xp = array_namespace(d)

    def compare(k: int, least: Array) -> Array:
        return xp.minimum(least, combine(d[:, :, k, None], d[:, None, k, :]))

    return iterate(d.shape[1], compare, d) < d


def fastest_ways(lengths: Array, durations: Array) -> tuple[Array, Array]:
    """Return the lengths and durations of the fastest paths along streets: (B, V, V) each."""
    xp = array_namespace(lengths)
    if not is_narrow(xp):  # both in one number of 51 bits, which halves the time
        packed = xp.round(xp.astype(durations, double(xp)) * STEPS) * (MOST_LENGTH * STEPS) + xp.round(lengths * STEPS)
        packed = shortest_paths(packed)
        slowest = xp.floor(packed / (MOST_LENGTH * STEPS))
        return (packed - slowest * (MOST_LENGTH * STEPS)) / STEPS, slowest / STEPS

    def allow(k: int, ways: Array) -> Array:
        """Let paths pass through node k, if that is faster."""
        passing = ways[:, :, :, k, None] + ways[:, :, None, k, :]
        return xp.where(passing[:1] < ways[:1], passing, ways)

    durations, lengths = iterate(lengths.shape[1], allow, xp.stack([durations, lengths]))
    return lengths, durations


def scaled_like(ways: Array, straight: Array) -> Array:
    """Scale ways (B, A, A) so that they have the mean of others and none exceeds `LONGEST`; return float32."""
    xp = array_namespace(ways)
    ratio = xp.sum(xp.astype(straight, ways.dtype), axis=(1, 2)) / xp.sum(ways, axis=(1, 2))
    ratio = xp.minimum(ratio, LONGEST / xp.max(ways, axis=(1, 2)))
    return xp.astype(ways * ratio[:, None, None], xp.float32)
