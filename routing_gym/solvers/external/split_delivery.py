"""From a CVRP solver to SDVRP: split each customer into small ones, solve, and replay by our rules.

In the environment a visit always delivers as much as it can, so a plan in which a vehicle passes a
customer and keeps goods for a later one cannot be replayed as it is. The trips are therefore tried in
several orders and directions; what a replay leaves undelivered is served by further trips.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from routing_gym.solvers.runtime.base import FloatArray, IntArray

NUM_REPLAYS = 64  # orders of the trips that are tried


def unit_copies(demand: IntArray) -> tuple[IntArray, IntArray]:
    """Split demands into parts of 1, 2, 4, ... units and a rest: any share can be put together from them.

    Args:
        demand: int64 (A,), 0 at the depot.

    Returns:
        For the depot and each part: the node it belongs to, and its units.
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
    """Convert trips over parts to trips over customers, each once per trip, where its first part was."""
    return [list(dict.fromkeys(owners[list(trip)].tolist())) for trip in trips]


def best_replay(
    trips: list[list[int]], demand: IntArray, capacity: int, distances: FloatArray, rng: np.random.Generator
) -> list[list[int]]:
    """Replay the trips in several orders and directions and return the shortest result.

    Customers that share a trip with others but are on several trips come last where that is possible: the
    end of a trip is the one place where a vehicle can deliver less than is needed.
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
        Trips that serve all demand; those for what was left over come last.
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
    """Length of the way from the depot through the trip and back."""
    stops = [0, *trip, 0]
    return float(distances[stops[:-1], stops[1:]].sum())
