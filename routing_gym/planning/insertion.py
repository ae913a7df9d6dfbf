"""The best position for another stop on a route, or for a pickup and its delivery.

Each position is checked in constant time, from the numbers that a `Route` holds, but for limits on the time away, which
concern the whole route. A pickup and its delivery are inserted together, in linear time for each position of the
pickup.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate, pairwise

from routing_gym.planning.routes import NEVER, Place, Route, Rules


def place_of(rules: Rules, unit: tuple[int, ...], route: Route, locked: int) -> tuple[float, Place]:
    """Return `best_place` without a bound; the result is cached in the route."""
    found = route.places.get((unit[0], locked))
    if found is None:
        found = route.places[unit[0], locked] = best_place(rules, unit, route, locked, NEVER)
    return found


def best_place(rules: Rules, unit: tuple[int, ...], route: Route, locked: int, most: float) -> tuple[float, Place]:
    """Return the least extra cost of a unit on a route and its positions; () if it fits nowhere below `most`.

    Args:
        rules: Rules of the type of the route's vehicle.
        unit: The stop, or a pickup and its delivery.
        route: Route to insert the unit into.
        locked: Number of stops at the head of the route that stay.
        most: Upper bound; positions with this extra cost or more are rejected.
    """
    if len(unit) == 2:
        return best_pair(rules, *unit, route, locked, most)
    node = unit[0]
    place: Place = ()
    delivery, pickup = rules.capacity - rules.loaded[node], rules.capacity - rules.pickup[node]
    # `most_before` never falls along a route, and `most_after` never rises: no position has less than these loads.
    if node in rules.refused or route.loads[0] > delivery or route.loads[-1] > pickup:
        return most, ()
    nodes, ends = route.nodes, (0, *route.nodes, 0)
    first, last = locked, len(nodes)
    if rules.in_order:
        if rules.pickup[node]:
            first = max(first, route.num_deliveries)
        else:
            last = route.num_deliveries
    minutes, km, into, out = rules.minutes, rules.km, rules.costs_to[node], rules.costs[node]
    legs = route.legs if nodes else [-rules.fixed_cost]
    ready, due, service = rules.ready[node], rules.due[node], rules.service[node]
    room: float = rules.max_km - route.km
    first = bisect_left(route.latest, ready + service, first)  # earlier positions are left too late, later ones
    last = bisect_right(route.departure, due, first, last + 1) - 1  # are reached too late: both times never fall
    for k in range(first, last + 1):
        before, after = ends[k], ends[k + 1]
        extra = into[before] + out[after] - legs[k]
        if extra >= most:
            continue
        arrival = route.departure[k] + minutes[before][node]
        if arrival > due or route.most_before[k] > delivery or route.most_after[k] > pickup:
            continue
        arrival = (ready if arrival < ready else arrival) + service + minutes[node][after]
        if arrival > route.latest[k]:
            continue
        if km[before][node] + km[node][after] - (km[before][after] if nodes else 0.0) > room:
            continue
        delay = arrival - route.departure[k] - minutes[before][after]
        if rules.max_minutes < NEVER and rules.too_long((*nodes[:k], node, *nodes[k:]), route.end + max(0.0, delay)):
            continue
        most, place = extra, (k,)
    return most, place


def best_pair(rules: Rules, pickup: int, delivery: int, route: Route, locked: int, most: float) -> tuple[float, Place]:
    """Return the least extra cost of a pickup with its delivery, and their positions; see `best_place`."""
    if not rules.refused.isdisjoint((pickup, delivery)):
        return most, ()
    place: Place = ()
    costs, minutes, km, nodes = rules.costs, rules.minutes, rules.km, route.nodes
    ends, free, last = (0, *nodes, 0), rules.capacity - rules.pickup[pickup], len(nodes)
    legs = route.legs if last else [-rules.fixed_cost]
    ways = [km[before][after] for before, after in pairwise(ends)] if last else [0.0]
    room = rules.max_km - route.km
    # The extra cost of the delivery alone at each position, and the least one from each position on.
    extra = [costs[ends[k]][delivery] + costs[delivery][ends[k + 1]] - legs[k] for k in range(last + 1)]
    least = [*accumulate(reversed(extra), min, initial=NEVER)][::-1]
    for first in range(locked, last + 1):
        before, following = ends[first], ends[first + 1]
        arrival = route.departure[first] + minutes[before][pickup]
        if arrival > rules.due[pickup]:
            if route.departure[first] > rules.due[pickup]:
                break
            continue
        into = costs[before][pickup] - legs[first]
        total = into + costs[pickup][delivery] + costs[delivery][following]  # the delivery follows at once
        into += costs[pickup][following]
        if total >= most and into + least[first + 1] >= most:
            continue
        # The vehicle leaves `node` at `time`, with a detour of `way` km so far.
        node, time = pickup, max(arrival, rules.ready[pickup]) + rules.service[pickup]
        way = km[before][pickup] - ways[first]
        for second in range(first, last + 1):
            if route.loads[second] > free:
                break
            following = ends[second + 1]
            arrival = time + minutes[node][delivery]
            if arrival > rules.due[delivery] and time > rules.due[delivery]:
                break
            if second > first:
                total = into + extra[second]
            leaves = max(arrival, rules.ready[delivery]) + rules.service[delivery]
            in_time = arrival <= rules.due[delivery]
            in_time = in_time and leaves + minutes[delivery][following] <= route.latest[second]
            if in_time and total < most and way + km[node][delivery] + km[delivery][following] <= room:
                grown = (*nodes[:first], pickup, *nodes[first:second], delivery, *nodes[second:])
                if rules.max_minutes == NEVER or not rules.too_long(grown, NEVER):
                    most, place = total, (first, second)
            time += minutes[node][following]
            if into + least[second + 1] >= most or time > route.latest[second]:
                break
            time = max(time, rules.ready[following]) + rules.service[following]
            way += km[node][following] - ways[second + 1]
            node = following
    return most, place
