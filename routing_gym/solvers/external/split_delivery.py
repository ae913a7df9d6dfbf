"""SDVRP by a CVRP solver: split each customer into small ones, solve, and replay under the rules of SDVRP.

In the environment, a visit always delivers as much as possible. A plan in which a vehicle visits a customer and keeps
goods for a later one can therefore not be replayed unchanged. The routes are tried in several orders and directions;
further routes serve the demand that a replay leaves over.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from routing_gym.arrays import FloatArray, IntArray

NUM_REPLAYS = 64  # number of orders of the routes


def unit_copies(demand: IntArray) -> tuple[IntArray, IntArray]:
    """Split demands into parts of 1, 2, 4, ... units and a rest, from which any share can be composed.

    Args:
        demand: int64 (A,), 0 at the depot.

    Returns:
        Node and units of each part; the first entry is the depot.
    """
    owners, units = [0], [0]
    for node, left in enumerate(demand.tolist()):
        part = 1
        while left > 0:
            owners.append(node)
            units.append(min(part, left))
            left -= units[-1]
            part *= 2
    return np.array(owners), np.array(units)


def merge_copies(trips: Sequence[Sequence[int]], owners: IntArray) -> list[list[int]]:
    """Convert routes over parts to routes over customers, each once per route, at the position of its first part."""
    return [list(dict.fromkeys(owners[list(trip)].tolist())) for trip in trips]


def best_replay(
    trips: list[list[int]], demand: IntArray, capacity: int, distances: FloatArray, rng: np.random.Generator
) -> list[list[int]]:
    """Replay the routes in several orders and directions and return the shortest result.

    Customers on several routes come last on a route with others, if possible: only at the end of a route can a vehicle
    deliver less than the demand.
    """
    shared = {node for node in range(1, len(demand)) if sum(node in trip for trip in trips) > 1}
    split_last = [trip[::-1] if trip[0] in shared and trip[-1] not in shared else trip for trip in trips]
    best, shortest = replay(split_last, demand, capacity), np.inf
    for attempt in range(NUM_REPLAYS if shared else 1):
        arranged = split_last
        if attempt:
            turned = rng.random(len(trips)) < (0.5 if attempt % 2 else 0.0)
            order = rng.permutation(len(trips)).tolist()
            arranged = [split_last[place][::-1] if turned[place] else split_last[place] for place in order]
        result = replay(arranged, demand, capacity)
        length = sum(trip_length(trip, distances) for trip in result)
        if length < shortest:
            best, shortest = result, length
    return best


def replay(trips: Sequence[Sequence[int]], demand: IntArray, capacity: int) -> list[list[int]]:
    """Replay the routes under the rules of SDVRP: deliver as much as possible, and skip useless visits.

    Returns:
        Routes that serve all demand; those for the demand left over come last.
    """
    left = demand.tolist()

    def drive(trip: Sequence[int]) -> list[int]:
        goods, visits = capacity, []
        for node in trip:
            delivered = min(goods, left[node])
            if delivered > 0:
                goods -= delivered
                left[node] -= delivered
                visits.append(node)
        return visits

    driven = [drive(trip) for trip in trips]
    while any(left):
        driven.append(drive([node for node, amount in enumerate(left) if amount > 0]))
    return [visits for visits in driven if visits]


def trip_length(trip: Sequence[int], distances: FloatArray) -> float:
    """Return the length from the depot through a route and back."""
    stops = [0, *trip, 0]
    return float(distances[stops[:-1], stops[1:]].sum())
