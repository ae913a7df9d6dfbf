"""Repair of routes so that they keep all limits: stops that do not fit move to other routes or are left out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from routing_gym.optional import require
from routing_gym.planning.insertion import best_place
from routing_gym.planning.routes import Place, Route, Rules


def fit(rules: Rules, routes: Sequence[Sequence[int]]) -> tuple[list[Route], list[int]]:
    """Make routes keep all limits: stops that do not fit move to other routes, or are left out.

    Args:
        rules: Rules of the task.
        routes: Stops of each vehicle, without the depot.

    Returns:
        Feasible routes, at most as many as there are vehicles, and the stops that are left out.
    """
    given = sorted((list(route) for route in routes if route), key=len, reverse=True)
    made: list[Route] = []
    waiting: list[int] = []
    if len(rules.kinds) > 1:
        made, given = assign(rules, given), []
    for stops in given:
        whole = rules.route(stops)
        if whole is None:
            kept: list[int] = []
            for unit in rules.units(stops):
                longer = [node for node in stops if node in kept or node in unit]
                if rules.route(longer) is None:
                    waiting += unit
                else:
                    kept = longer
            whole = rules.route(kept)
        if whole is None or len(made) >= rules.most_routes:
            waiting += stops if whole is None else list(whole.nodes)
        elif whole.nodes:
            made.append(whole)
    seen = {node for route in made for node in route.nodes} | set(waiting)
    waiting += [node for node in rules.task.stops if node not in seen]
    return insert_all(rules, made, waiting)


def assign(rules: Rules, given: Sequence[Sequence[int]]) -> list[Route]:
    """Assign vehicles of several types to routes, first to serve most stops, then at least cost; some may get none.

    Raises:
        ImportError: scipy is missing; the message names the extra to install.
    """
    routes = [[kind.route(stops) for kind in rules.kinds] for stops in given]
    kinds = [place for place, kind in enumerate(rules.kinds) for _ in range(min(kind.most_routes, len(given)))]
    dearest = 1.0 + sum(max((route.cost for route in of if route is not None), default=0.0) for of in routes)
    worth = [[0.0 if route is None else len(route.nodes) * dearest - route.cost for route in of] for of in routes]
    chosen = require("scipy.optimize", "agents").linear_sum_assignment(
        np.reshape(worth, (len(given), len(rules.kinds)))[:, kinds], maximize=True
    )
    pairs = (routes[place][kinds[vehicle]] for place, vehicle in zip(*chosen, strict=True))
    return [route for route in pairs if route is not None]


def insert_all(rules: Rules, routes: list[Route], waiting: Iterable[int]) -> tuple[list[Route], list[int]]:
    """Insert stops one by one at the least cost; return the routes, and the stops that fit nowhere."""
    routes = list(routes)
    absent: list[int] = []
    for unit in rules.units(waiting):
        most, chosen = rules.price_of(unit), -1
        place: Place = ()
        for k, route in enumerate(routes):
            extra, at = best_place(rules.kinds[route.kind], unit, route, 0, most)
            if at:
                most, chosen, place = extra, k, at
        alone = min(rules.new_routes(unit, routes), key=lambda route: route.cost, default=None)
        if alone is not None and alone.cost < most:
            routes.append(alone)
            continue
        grown = rules.kinds[routes[chosen].kind].with_unit(unit, routes[chosen], place) if chosen >= 0 else None
        if grown is None:
            absent += unit
        else:
            routes[chosen] = grown
    return routes, absent
