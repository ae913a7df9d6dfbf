"""Exact dynamic programming over subsets, for instances of up to 12 cities or customers.

Held and Karp (1962), "A dynamic programming approach to sequencing problems": the shortest path from the depot through
a set S that ends at j follows from the sets with one node less. This gives the shortest closed tour through every set
of customers, and from it solutions of OP and PCTSP (the best set), CVRP (the best partition into sets that fit the
vehicle) and MTSP (the fairest partition). PDP allows only sets that include the pickups of all their deliveries; TSPFE
makes tours without a fixed edge longer than all tours with it. The VRP family computes its shortest routes in
`vrp_labels`. Distances may be asymmetric.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from routing_gym.arrays import FloatArray, IntArray, batch_size, select
from routing_gym.problem import AnyProblem
from routing_gym.problems.op import length_limit
from routing_gym.problems.pctsp import ENOUGH_PRIZE
from routing_gym.problems.tspfe import from_fixed_edge, with_fixed_edges
from routing_gym.problems.vrp import ORIGINAL, VRP
from routing_gym.solvers.exact.vrp_labels import shortest_routes
from routing_gym.solvers.runtime.base import OPTIMAL, BatchSolver, distance_matrix, join_trips

MAX_NODES = 12  # 2^12 x 12 entries per instance


def closed_sets(pickup: IntArray) -> npt.NDArray[np.bool_]:
    """Mark sets that include the pickups (B, m + 1) of all their deliveries: (B, 2^m)."""
    sets = np.arange(2 ** (pickup.shape[1] - 1))
    closed = np.ones((len(pickup), len(sets)), dtype=bool)
    for node in range(1, pickup.shape[1]):
        before = pickup[:, node, None]
        closed &= (sets >> (node - 1) & 1 == 0) | (before == 0) | (sets >> np.maximum(before - 1, 0) & 1 == 1)
    return closed


def shortest_paths(
    distances: FloatArray, allowed: npt.NDArray[np.bool_] | None = None, longest: FloatArray | None = None
) -> FloatArray:
    """Compute the shortest paths from node 0 through each set of the other nodes, by their last node.

    Args:
        distances: (B, m + 1, m + 1).
        allowed: bool (B, 2^m), sets through which paths may lead; None for all.
        longest: (B, m), maximum length of paths to each end; None for no limit.

    Returns:
        (B, 2^m, m); bit k of a set and end k stand for node k + 1. Infinite if the end is not in the set, or no path is
        allowed.
    """
    num_others = distances.shape[1] - 1
    sets = np.arange(2**num_others)
    sizes = set_sums(np.ones((1, num_others + 1)))[0]
    paths = np.full((len(distances), len(sets), num_others), np.inf)
    for size in range(1, num_others + 1):
        for end in range(num_others):
            here = sets[(sizes == size) & (sets >> end & 1 == 1)]
            before = paths[:, here ^ (1 << end)] + distances[:, None, 1:, end + 1]
            lengths = before.min(axis=2) if size > 1 else distances[:, None, 0, end + 1]
            if allowed is not None:
                lengths = np.where(allowed[:, here], lengths, np.inf)
            if longest is not None:
                lengths = np.where(lengths <= longest[:, end, None], lengths, np.inf)
            paths[:, here, end] = lengths
    return paths


def closed_lengths(paths: FloatArray, distances: FloatArray) -> FloatArray:
    """Return the length of the shortest closed tour through each set: (B, 2^m)."""
    length = np.asarray(np.min(paths + distances[:, None, 1:, 0], axis=2))
    length[:, 0] = 0.0  # no node is visited
    return length


def order(paths: FloatArray, distances: FloatArray, chosen: IntArray) -> IntArray:
    """Return the order of the shortest closed tours through the chosen sets (B,), by tracing them backwards.

    Returns:
        (B, m): nodes of each set in the order of the tour, then zeros.
    """
    num_others = paths.shape[2]
    every = np.arange(len(paths))
    rest, following = chosen.copy(), np.zeros(len(paths), dtype=np.int64)
    backwards = np.zeros((len(paths), num_others), dtype=np.int64)
    for step in range(num_others):
        end = np.argmin(paths[every, rest] + distances[every, 1:, following], axis=1)
        following = np.where(rest > 0, end + 1, 0)
        backwards[:, step] = following
        rest = np.where(rest > 0, rest & ~(1 << end), 0)
    return zeros_last(backwards[:, ::-1])


def best_partition(length: FloatArray, demand: FloatArray, capacity: IntArray) -> list[IntArray]:
    """Split all customers into sets that fit the vehicle, with the least total length.

    Args:
        length: (B, 2^m), length of the shortest closed tour through each set.
        demand: (B, 2^m), total demand of each set.
        capacity: int64 (B,).

    Returns:
        Sets (B,), one array per route; 0 if a row needs fewer routes.
    """
    length = np.where(demand <= capacity[:, None], length, np.inf)
    sets = np.arange(length.shape[1])
    cost = np.zeros_like(length)
    trip = np.zeros(length.shape, dtype=np.int64)
    for whole in sets[1:]:
        first_customer = whole & -whole  # must be on some route: this one
        parts = sets[(sets & ~whole == 0) & (sets & first_customer > 0)]
        options = length[:, parts] + cost[:, whole ^ parts]
        trip[:, whole] = parts[np.argmin(options, axis=1)]
        cost[:, whole] = options.min(axis=1)
    every, rest, trips = np.arange(len(length)), np.full(len(length), sets[-1]), []
    while rest.any():
        trips.append(trip[every, rest])
        rest = rest ^ trips[-1]
    return trips


def fairest_partition(length: FloatArray, num_salesmen: IntArray) -> list[IntArray]:
    """Split all customers among salesmen so that the longest tour is as short as possible.

    Args:
        length: (B, 2^m), length of the shortest closed tour through each set.
        num_salesmen: int64 (B,).

    Returns:
        Sets (B,), one array per salesman; 0 if a row needs fewer.
    """
    sets = np.arange(length.shape[1])
    levels = np.minimum(num_salesmen, len(sets).bit_length() - 1)  # more salesmen than customers are useless
    longest = length  # longest tour for each set if one salesman visits it; later if two share it, and so on
    first = [np.broadcast_to(sets, length.shape)]  # part of one of the salesmen
    for _ in range(1, int(levels.max())):
        fewer, longest = longest, np.zeros_like(length)
        part = np.zeros(length.shape, dtype=np.int64)
        for whole in sets[1:]:
            parts = sets[(sets & ~whole == 0) & (sets & (whole & -whole) > 0)]  # with the first customer
            options = np.maximum(length[:, parts], fewer[:, whole ^ parts])
            part[:, whole] = parts[np.argmin(options, axis=1)]
            longest[:, whole] = options.min(axis=1)
        first.append(part)
    every, rest, trips = np.arange(len(length)), np.full(len(length), sets[-1]), []
    choices = np.stack(first)
    while rest.any():
        trips.append(choices[levels - 1, every, rest])
        rest = rest ^ trips[-1]
        levels = np.maximum(levels - 1, 1)
    return trips


def joined(paths: FloatArray, distances: FloatArray, trips: list[IntArray]) -> IntArray:
    """Return the actions for all routes in sequence, with a return to the depot after each."""
    actions = np.concatenate([np.pad(order(paths, distances, trip), ((0, 0), (0, 1))) for trip in trips], axis=1)
    before = np.pad(actions, ((0, 0), (1, 0)))[:, :-1]
    redundant = (actions == 0) & (before == 0)
    last = np.take_along_axis(actions, np.argsort(redundant, axis=1, kind="stable"), axis=1)
    return last[:, : int((~redundant).sum(axis=1).max())]


def set_sums(values: Any) -> FloatArray:
    """Sum per-node values (B, m + 1) over every set of nodes 1 to m: float64 (B, 2^m)."""
    sums = np.zeros((len(values), 1))
    for column in values[:, 1:].T.astype(np.float64):
        sums = np.concatenate([sums, sums + column[:, None]], axis=1)
    return sums


def zeros_last(nodes: IntArray) -> IntArray:
    """Move the zeros of each row to its end; keep the order of the rest."""
    return np.take_along_axis(nodes, np.argsort(nodes == 0, axis=1, kind="stable"), axis=1)


def closed_tours(problem: AnyProblem, instance: Any) -> IntArray:
    """Solve TSP and ATSP."""
    distances = distance_matrix(instance)
    return np.pad(through_all(shortest_paths(distances), distances), ((0, 0), (1, 0)))


def tours_with_fixed_edges(problem: AnyProblem, instance: Any) -> IntArray:
    """Solve TSPFE."""
    longer = replace(instance, distances=with_fixed_edges(distance_matrix(instance), instance.partner))
    return from_fixed_edge(closed_tours(problem, longer), instance.partner)


def through_all(paths: FloatArray, distances: FloatArray) -> IntArray:
    """Return the nodes 1 to m in the order of the shortest closed tours through all of them."""
    return order(paths, distances, np.full(len(paths), paths.shape[1] - 1))


def deliveries(problem: AnyProblem, instance: Any) -> IntArray:
    """Solve PDP: only sets that include the pickups of all their deliveries are allowed."""
    distances = distance_matrix(instance)
    paths = shortest_paths(distances, allowed=closed_sets(instance.pickup))
    return np.pad(through_all(paths, distances), ((0, 0), (0, 1)))


def best_trips(problem: AnyProblem, instance: Any) -> IntArray:
    """Solve CVRP: the shortest partition into sets that fit the vehicle."""
    distances = distance_matrix(instance)
    paths = shortest_paths(distances)
    lengths = closed_lengths(paths, distances)
    return joined(paths, distances, best_partition(lengths, set_sums(instance.demand), instance.capacity))


def fairest_trips(problem: AnyProblem, instance: Any) -> IntArray:
    """Solve MTSP: the partition whose longest tour is shortest."""
    distances = distance_matrix(instance)
    paths = shortest_paths(distances)
    return joined(paths, distances, fairest_partition(closed_lengths(paths, distances), instance.num_salesmen))


def best_routes(problem: VRP, instance: Any) -> IntArray:
    """Solve the VRP family, row by row."""
    rows = []
    for row in range(batch_size(instance)):
        lengths, routes = shortest_routes(problem, select(instance, slice(row, row + 1)))
        trips = best_partition(lengths[None], np.zeros((1, len(lengths))), np.zeros(1, dtype=np.int64))
        rows.append(join_trips([routes[int(trip[0])] for trip in trips]))
    return np.array([*zip_longest(*rows, fillvalue=0)], dtype=np.int64).T


def highest_prize(problem: AnyProblem, instance: Any) -> IntArray:
    """Solve OP: find the set with the highest prize among the tours within the limit."""
    distances = distance_matrix(instance)
    paths = shortest_paths(distances, longest=length_limit(instance)[:, None] - distances[:, 1:, 0])
    within_limit = np.isfinite(closed_lengths(paths, distances))
    best = np.argmax(np.where(within_limit, set_sums(instance.prize), -1.0), axis=1)
    return np.pad(order(paths, distances, best), ((0, 0), (0, 1)))


def least_penalty(problem: AnyProblem, instance: Any) -> IntArray:
    """Solve PCTSP: find the set with enough prize and the smallest sum of length and penalties."""
    distances = distance_matrix(instance)
    paths = shortest_paths(distances)
    unpaid = set_sums(instance.penalty)[:, ::-1]  # penalties of all customers outside the set
    enough = set_sums(instance.expected_prize) >= ENOUGH_PRIZE
    enough[:, -1] = True
    best = np.argmin(np.where(enough, closed_lengths(paths, distances) + unpaid, np.inf), axis=1)
    return np.pad(order(paths, distances, best), ((0, 0), (0, 1)))


MODELS: dict[str, Callable[[Any, Any], IntArray]] = {
    "TSP": closed_tours,
    "CVRP": best_trips,
    **dict.fromkeys(ORIGINAL, best_routes),
    "OP": highest_prize,
    "PCTSP": least_penalty,
    "PDP": deliveries,
    "MTSP": fairest_trips,
    "TSPFE": tours_with_fixed_edges,
    "ATSP": closed_tours,
}


@dataclass(frozen=True)
class HeldKarp(BatchSolver):
    """Optimal tours by dynamic programming, for all rows at once; `MODELS` has a function for each problem."""

    name: ClassVar[str] = "held-karp"
    problems: ClassVar[tuple[str, ...]] = tuple(MODELS)
    row_status: ClassVar[str] = OPTIMAL

    def check(self, problem: AnyProblem) -> None:
        super().check(problem)
        if problem.num_nodes > MAX_NODES:
            raise ValueError(f"held-karp takes at most {MAX_NODES} nodes, got {problem.num_nodes}; milp takes more")

    def row_elements(self, num_actions: int) -> int:
        return int(num_actions * 2 ** (num_actions - 1))

    def tours(self, problem: AnyProblem, instance: Any, rows: IntArray, seed: int) -> IntArray:
        return MODELS[problem.name](problem, instance)
