"""First routes of a task by savings: Clarke and Wright (1964), Operations Research 12, for all limits of `Rules`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from routing_gym.planning.fitting import fit
from routing_gym.planning.routes import Route, Rules

NEAREST = 40  # number of stops after each stop whose savings are computed


def first_routes(rules: Rules) -> tuple[list[Route], list[int]]:
    """Return feasible routes, and the stops that are left out.

    If stops are picked up at others or left out, stops are also inserted one by one; the cheaper routes are returned.
    """
    found = fit(rules, merged(rules))
    if found[1] or rules.deliveries:
        found = min(found, fit(rules, []), key=lambda made: rules.total(*made))
    return found


def merged(rules: Rules) -> list[tuple[int, ...]]:
    """Merge routes of one stop (or a pickup and its delivery) at their ends while that saves costs, most first.

    Each route is one that vehicles of some type can drive; the numbers of vehicles are ignored.
    """

    def cheapest(stops: tuple[int, ...]) -> float:
        return min((route.cost for kind in rules.kinds if (route := kind.route(stops)) is not None), default=np.inf)

    costs = {unit: cost for unit in rules.units(rules.task.stops) if (cost := cheapest(unit)) < np.inf}
    route_of = {node: unit for unit in costs for node in unit}
    for before, after in by_saving(rules, list(route_of)):
        left, right = route_of[before], route_of[after]
        if left == right or before not in (left[0], left[-1]) or after not in (right[0], right[-1]):
            continue
        both = (left if before == left[-1] else left[::-1]) + (right if after == right[0] else right[::-1])
        if (cost := cheapest(both)) < costs[left] + costs[right]:
            del costs[left], costs[right]
            costs[both] = cost
            route_of |= dict.fromkeys(both, both)
    return list(costs)


def by_saving(rules: Rules, stops: Sequence[int]) -> list[tuple[int, int]]:
    """Return edges from each stop to the nearest ones, the greatest saving first."""
    nodes = np.array(stops, dtype=np.int64)
    edges = rules.task.cost_per_unit * rules.task.costs[np.ix_(nodes, nodes)]
    np.fill_diagonal(edges, np.inf)
    near = np.argsort(edges, axis=1, kind="stable")[:, :NEAREST]
    depot = np.full(near.shape, -np.inf)  # cost of the edges to and from it, of the type for which they are dearest
    for kind in rules.kinds:
        depot = np.maximum(depot, np.array(kind.costs_to[0])[nodes, None] + np.array(kind.costs[0])[nodes][near])
    savings = depot - np.take_along_axis(edges, near, axis=1)
    rows, columns = np.unravel_index(np.argsort(-savings, axis=None, kind="stable"), savings.shape)
    return list(zip(nodes[rows].tolist(), nodes[near[rows, columns]].tolist(), strict=True))
