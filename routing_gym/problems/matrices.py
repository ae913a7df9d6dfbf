"""Matrices of lengths and durations: generation, observation and shortest paths.

With the setting `matrices`, instances are drawn on random streets between their nodes and some junctions. The streets
are a Gabriel graph (Gabriel and Sokal 1969, "A new statistical approach to geographic variation analysis"), which is
planar. Streets of the relative neighbourhood graph (Toussaint 1980) stay open in both directions: it connects all
vertices, so that every node can be reached from every other. Some of the other streets are closed or one-way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from array_api_compat import array_namespace

from routing_gym.arrays import Array, double, euclidean, is_jax, is_narrow, iterate, to_numpy
from routing_gym.problem import AnyProblem
from routing_gym.problems.geometry import MATRICES, uniform_coords

RANGE = 1_000_000  # range of integers; a sum of two is exact in float32
ROWS_AT_ONCE = 32  # instances of 50 nodes that fit into the cache of a core, which halves the time
NODES_PER_JUNCTION = 4
CLOSED, ONE_WAY = 0.2, 0.6  # shares of the streets that need not be open in both directions
FAST, FAST_SPEED, SLOWEST, SLOW = 0.2, 2.0, 0.5, 1.0  # share of fast streets, their speed; range of the others' speeds
STEPS = 2.0**18  # steps of lengths and durations per unit; a sum of two is exact
MOST_LENGTH = 64.0  # greatest length of a path
NO_STREET = 256.0  # longer than the duration of any path
ROUNDING = 0.05  # largest mean deviation of rounded straight lines from exact ones
LONGEST = 2**0.5  # longest entry of scaled matrices, like in the unit square, so that round trips are within limits


def num_matrix_uniforms(problem: AnyProblem) -> int:
    """Return the number of random numbers from which the matrices of an instance are drawn."""
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
    """Draw the matrices that the problem observes, as fields of an instance.

    Args:
        problem: Problem of the instances; the result is empty unless it has `matrices`.
        coords: Coordinates (B, A, 2), in the unit square.
        uniforms: Random numbers in [0, 1), at least num_matrix_uniforms(problem) per row; the last ones are used.
    """
    if not problem.matrices:
        return {}
    found = road_matrices(coords, uniforms[:, -num_matrix_uniforms(problem) :])
    return dict(zip(problem.observed.per_edge, found, strict=False))


def observe_nodes(problem: AnyProblem, instance: Any) -> dict[str, Array]:
    """Return the observations that all problems with coordinates share: coordinates, and matrices if observed."""
    return {"coords": instance.coords, **{name: MATRICES[name](instance) for name in problem.observed.per_edge}}


def random_lengths(uniforms: Array) -> Array:
    """Draw lengths of shortest paths in millionths, like Kwon et al. (2021), see `ATSP`: float32 (B, n, n).

    Args:
        uniforms: Random numbers (B, n, n) in [0, 1).
    """
    xp = array_namespace(uniforms)
    matrix = xp.astype(xp.floor(uniforms * RANGE), xp.float32)
    return shortest_paths(matrix * (1 - xp.eye(uniforms.shape[1], dtype=xp.float32))) / RANGE


def shortest_paths(lengths: Array) -> Array:
    """Return the lengths of the shortest paths (Floyd 1962, algorithm 97).

    Args:
        lengths: Edge lengths (B, n, n).
    """
    xp = array_namespace(lengths)

    def allow(k: int, d: Array) -> Array:
        """Allow paths through node k."""
        return xp.minimum(d, d[:, :, k, None] + d[:, None, k, :])

    return xp.concat([iterate(lengths.shape[1], allow, lengths[rows]) for rows in in_cache(lengths)])


def in_cache(x: Array) -> list[slice]:
    """Split rows (B, ...) into groups that fit into the cache; JAX gets one group, which it compiles."""
    size = len(x) if is_jax(array_namespace(x)) else ROWS_AT_ONCE
    return [slice(start, start + size) for start in range(0, len(x), size)]


def num_junctions(num_nodes: int) -> int:
    """Return the number of junctions of streets in addition to the nodes."""
    return -(-num_nodes // NODES_PER_JUNCTION)


def num_road_uniforms(num_nodes: int) -> int:
    """Return the number of random numbers per instance that `road_matrices` takes."""
    junctions = num_junctions(num_nodes)
    return 2 * junctions + (num_nodes + junctions) ** 2


def road_matrices(coords: Array, uniforms: Array) -> tuple[Array, Array]:
    """Draw streets between nodes; return lengths and durations of the fastest paths: float32 (B, A, A) each.

    Both are scaled to the mean of the straight lines between the nodes, or less if an entry would exceed the diagonal
    of the unit square. The mean speed is therefore about 1, and limits and time windows that allow a round trip of two
    diagonals can be met.

    Args:
        coords: Coordinates (B, A, 2), in the unit square.
        uniforms: Random numbers (B, num_road_uniforms(A)) in [0, 1).
    """
    xp = array_namespace(coords)
    parts = [roads(coords[rows], uniforms[rows]) for rows in in_cache(coords)]
    lengths, durations = (xp.concat(list(ways)) for ways in zip(*parts, strict=True))
    return lengths, durations


def roads(coords: Array, uniforms: Array) -> tuple[Array, Array]:
    """Compute `road_matrices` for one group of rows."""
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
    """Draw streets between vertices: lengths and durations (B, V, V); the duration is `NO_STREET` where no street is.

    Args:
        places: Coordinates (B, V, 2) of the nodes and junctions.
        uniforms: Random numbers (B, V, V). Those above the diagonal determine speeds, those below it directions.
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
    """Return a mask of the pairs for which `combine` of a third vertex's two distances is less than their distance.

    Args:
        d: Symmetric distances (B, V, V).
        combine: Function of a third vertex's distances to both vertices of the pair.
    """
    xp = array_namespace(d)

    def compare(k: int, least: Array) -> Array:
        return xp.minimum(least, combine(d[:, :, k, None], d[:, None, k, :]))

    return iterate(d.shape[1], compare, d) < d


def fastest_ways(lengths: Array, durations: Array) -> tuple[Array, Array]:
    """Return the lengths and durations of the fastest paths along streets: (B, V, V) each."""
    xp = array_namespace(lengths)
    if not is_narrow(xp):  # packing both into one number of 51 bits halves the time
        packed = xp.round(xp.astype(durations, double(xp)) * STEPS) * (MOST_LENGTH * STEPS) + xp.round(lengths * STEPS)
        packed = shortest_paths(packed)
        slowest = xp.floor(packed / (MOST_LENGTH * STEPS))
        return (packed - slowest * (MOST_LENGTH * STEPS)) / STEPS, slowest / STEPS

    def allow(k: int, ways: Array) -> Array:
        """Allow paths through node k, if they are faster."""
        passing = ways[:, :, :, k, None] + ways[:, :, None, k, :]
        return xp.where(passing[:1] < ways[:1], passing, ways)

    durations, lengths = iterate(lengths.shape[1], allow, xp.stack([durations, lengths]))
    return lengths, durations


def scaled_like(ways: Array, straight: Array) -> Array:
    """Scale `ways` (B, A, A) to the mean of `straight`, or less if an entry would exceed `LONGEST`; return float32."""
    xp = array_namespace(ways)
    ratio = xp.sum(xp.astype(straight, ways.dtype), axis=(1, 2)) / xp.sum(ways, axis=(1, 2))
    ratio = xp.minimum(ratio, LONGEST / xp.max(ways, axis=(1, 2)))
    return xp.astype(ways * ratio[:, None, None], xp.float32)
