"""Routes of a task: whether they keep its limits, what they cost, and where another stop fits in, in constant time.

Times are propagated forwards (departures) and backwards (latest arrivals), loads are prefix and suffix maxima: Vidal et
al. (2014), "A unified solution framework for multi-attribute vehicle routing problems", section 4.3, in a simple form.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from itertools import accumulate

import numpy as np

from routing_gym.optional import require
from routing_gym.planning.geography import FloatArray
from routing_gym.planning.task import Task

SLACK = 1e-6  # minutes and km that rounding may take
NEVER = float("inf")
MOST_REMEMBERED = 30_000  # routes of all types of vehicles, about 2 kB each


class Route:
    """One vehicle's stops, and what is needed to insert another; made by `Rules.route`, and not changed."""

    __slots__ = (
        *("cost", "departure", "kind", "km", "latest", "legs", "most_after", "most_before", "nodes"),
        *("num_deliveries", "places"),
    )

    def __init__(self, nodes: tuple[int, ...], num_deliveries: int, kind: int) -> None:
        self.nodes = nodes  # without the depot
        self.kind = kind  # place of the vehicle's type in `Rules.kinds`
        self.num_deliveries = num_deliveries  # stops before the first pickup
        self.departure: list[float] = []  # from the depot and from each stop
        self.latest: list[float] = []  # arrival at each stop and back at the depot
        self.legs: list[float] = []  # costs of the legs
        self.most_before: list[int] = []  # greatest load up to the leg that leads to each position
        self.most_after: list[int] = []  # greatest load from there on
        self.km = self.cost = 0.0
        self.places: dict[tuple[int, int], tuple[float, int]] = {}  # see `Rules.place_of`


class Rules:
    """A task's limits as plain lists, which are faster than arrays where single numbers are read.

    Row 0 is the vehicles' depot, also where it is another row of the table.

    Args:
        task: A plain task.

    Attributes:
        kinds: Rules of each type of vehicle; only these where all are alike.
    """

    def __init__(self, task: Task) -> None:
        matrices = [with_depot_first(matrix, task.depot) for matrix in (task.costs, task.minutes, task.km)]
        matrices[0] *= task.cost_per_unit
        if task.open:
            for matrix in matrices:
                matrix[:, 0] = 0.0
        self.costs, self.minutes, self.km = (matrix.tolist() for matrix in matrices)
        self.costs_to = matrices[0].T.tolist()  # of each stop, from all others
        self.service, self.delivery, self.pickup = (x.tolist() for x in (task.service, task.delivery, task.pickup))
        self.in_order = not task.mixed and bool(task.pickup.any())  # deliveries before pickups
        dearest = float(max(matrices[0].max(), 1e-9))
        most = 4.0 * (dearest * len(task.ids) + task.fixed_cost)
        self.price = [min(one, most) for one in task.penalty.tolist()]  # of leaving a stop out
        self.price[0] = 0.0
        self.limit(task, 0)
        self.most_remembered = MOST_REMEMBERED // max(1, len(task.types))
        self.kinds = [self]
        if task.types:
            alike = [(one.depot, one.cost_per_unit) == (task.depot, task.cost_per_unit) for one in task.types]
            self.kinds = [copy(self) if same else Rules(one) for one, same in zip(task.types, alike, strict=True)]
            for kind, (rules, of_type) in enumerate(zip(self.kinds, task.types, strict=True)):
                rules.limit(of_type, kind)
                rules.most_remembered = self.most_remembered

    def limit(self, task: Task, kind: int) -> None:
        """Take up the limits of a task's vehicles."""
        self.task, self.kind = task, kind
        self.ready = task.ready.tolist()
        self.due = [late + SLACK for late in task.due.tolist()]
        self.ready[0], self.due[0] = self.ready[task.depot], self.due[task.depot]
        self.end = NEVER if task.open else self.due[0]
        self.fixed_cost = task.fixed_cost
        self.refused = set() if task.allowed is None else set(np.flatnonzero(~task.allowed).tolist())
        self.capacity = 2**60 if task.capacity is None else task.capacity
        self.max_km = NEVER if task.max_km is None else task.max_km + SLACK
        self.most_routes = len(task.ids) if task.count is None else task.count
        self.remembered: dict[tuple[int, ...], Route | None] = {}

    def route(self, nodes: Iterable[int]) -> Route | None:
        """Return a route, or None if it breaks a limit; a search asks for the same ones again and again."""
        stops = tuple(nodes)
        if stops in self.remembered:
            return self.remembered[stops]
        if len(self.remembered) >= self.most_remembered:
            self.remembered.clear()
        made = self.remembered[stops] = self.new_route(stops)
        return made

    def new_route(self, stops: tuple[int, ...]) -> Route | None:
        """Return a route, or None if it breaks a limit."""
        ends = (*stops, 0)
        num_deliveries = next((k for k, node in enumerate(stops) if self.pickup[node]), len(stops))
        if self.in_order and any(not self.pickup[node] for node in stops[num_deliveries:]):
            return None
        if self.refused and not self.refused.isdisjoint(stops):
            return None
        made = Route(stops, num_deliveries, self.kind)
        time, before, load = self.ready[0], 0, sum(self.delivery[node] for node in stops)
        loads, departure = [load], [time]
        for node in ends:
            time += self.minutes[before][node]
            if time > (self.due[node] if node else self.end):
                return None
            made.legs.append(self.costs[before][node])
            made.km += self.km[before][node]
            time = max(time, self.ready[node]) + self.service[node]
            departure.append(time)
            load += self.pickup[node] - self.delivery[node]
            loads.append(load)
            before = node
        loads.pop()
        if max(loads) > self.capacity or made.km > self.max_km:
            return None
        made.cost = self.fixed_cost + sum(made.legs) if stops else 0.0
        made.departure = departure[:-1]
        made.latest = self.latest(ends)
        made.most_before = list(accumulate(loads, max))
        made.most_after = list(accumulate(reversed(loads), max))[::-1]
        return made

    def latest(self, ends: Sequence[int]) -> list[float]:
        """Return the latest arrival at each stop, and at the depot, that keeps all windows from there on."""
        found = [self.end]
        for k in range(len(ends) - 2, -1, -1):
            node = ends[k]
            left = found[-1] - self.minutes[node][ends[k + 1]] - self.service[node]
            found.append(min(self.due[node], left))
        return found[::-1]

    def place_of(self, node: int, route: Route, locked: int) -> tuple[float, int]:
        """Return `best_place` without a bound, found once for each route, however often a search takes it up again.

        The least extra cost of the stop, and its position, -1 where it fits nowhere.
        """
        found = route.places.get((node, locked))
        if found is None:
            found = route.places[node, locked] = self.best_place(node, route, locked, NEVER)
        return found

    def best_place(self, node: int, route: Route, locked: int, most: float) -> tuple[float, int]:
        """Return the least extra cost of a stop on a route and its position; -1 where it costs `most` or fits nowhere.

        Args:
            node: The stop.
            route: Where.
            locked: Stops at the head of the route that stay.
            most: Extra cost that is too much.
        """
        if node in self.refused:
            return most, -1
        place, nodes, ends = -1, route.nodes, (0, *route.nodes, 0)
        delivery, pickup = self.capacity - self.delivery[node], self.capacity - self.pickup[node]
        first, last = locked, len(nodes)
        if self.in_order:
            if self.pickup[node]:
                first = max(first, route.num_deliveries)
            else:
                last = route.num_deliveries
        minutes, km, into, out = self.minutes, self.km, self.costs_to[node], self.costs[node]
        legs = route.legs if nodes else [-self.fixed_cost]
        ready, due, service = self.ready[node], self.due[node], self.service[node]
        room: float = self.max_km - route.km
        for k in range(first, last + 1):
            before, after = ends[k], ends[k + 1]
            extra = into[before] + out[after] - legs[k]
            if extra >= most:
                continue
            arrival = route.departure[k] + minutes[before][node]
            if arrival > due:
                if route.departure[k] > due:
                    break  # later positions are later still
                continue
            if route.most_before[k] > delivery or route.most_after[k] > pickup:
                continue
            if (ready if arrival < ready else arrival) + service + minutes[node][after] > route.latest[k]:
                continue
            if km[before][node] + km[node][after] - (km[before][after] if nodes else 0.0) > room:
                continue
            most, place = extra, k
        return most, place

    def new_routes(self, node: int, routes: Sequence[Route]) -> list[Route]:
        """Return a route with one stop for each type of which a vehicle is left, where it keeps the limits."""
        if len(self.kinds) == 1:
            alone = self.route((node,)) if len(routes) < self.most_routes else None
            return [] if alone is None else [alone]
        used = [route.kind for route in routes]
        free = (rules for kind, rules in enumerate(self.kinds) if used.count(kind) < rules.most_routes)
        return [route for rules in free if (route := rules.route((node,))) is not None]

    def by_vehicle(self, routes: Sequence[Route]) -> tuple[tuple[int, ...], ...]:
        """Return the stops of each vehicle, where vehicles differ in the order of the task, none for idle ones."""
        if len(self.kinds) == 1:
            return tuple(route.nodes for route in routes)
        stops: list[tuple[int, ...]] = []
        for kind, rules in enumerate(self.kinds):
            own = [route.nodes for route in routes if route.kind == kind]
            stops += own + [()] * (rules.most_routes - len(own))
        return tuple(stops)

    def total(self, routes: Iterable[Route], absent: Iterable[int]) -> float:
        """Return the cost of routes, and the price of those left out."""
        return float(sum(route.cost for route in routes) + sum(self.price[node] for node in absent))


def with_depot_first(matrix: FloatArray, depot: int) -> FloatArray:
    """Return a copy of a matrix, (A, A), in whose row and column 0 a depot stands in for the first row."""
    rows = np.arange(len(matrix))
    rows[0] = depot
    return matrix[np.ix_(rows, rows)]


def fit(rules: Rules, routes: Sequence[Sequence[int]]) -> tuple[list[Route], list[int]]:
    """Make routes keep all limits: stops that do not fit go elsewhere, or are left out.

    Args:
        rules: Of the task.
        routes: Stops of each vehicle, without the depot.

    Returns:
        Feasible routes, at most as many as there are vehicles, and the stops that are left out.
    """
    trips = sorted((list(route) for route in routes if route), key=len, reverse=True)
    made: list[Route] = []
    waiting: list[int] = []
    if len(rules.kinds) > 1:
        made, trips = assign(rules, trips), []
    for stops in trips:
        whole = rules.route(stops)
        if whole is None:
            kept: list[int] = []
            for node in stops:
                if rules.route([*kept, node]) is None:
                    waiting.append(node)
                else:
                    kept.append(node)
            whole = rules.route(kept)
        if whole is None or len(made) >= rules.most_routes:
            waiting += stops if whole is None else list(whole.nodes)
        elif whole.nodes:
            made.append(whole)
    seen = {node for route in made for node in route.nodes} | set(waiting)
    waiting += [node for node in rules.task.stops if node not in seen]
    return insert_all(rules, made, waiting)


def assign(rules: Rules, trips: Sequence[Sequence[int]]) -> list[Route]:
    """Give trips vehicles of several types: most stops are served, then costs are least. Some trips may get none.

    Raises:
        ImportError: scipy is missing; names the extra.
    """
    routes = [[kind.route(trip) for kind in rules.kinds] for trip in trips]
    kinds = [place for place, kind in enumerate(rules.kinds) for _ in range(min(kind.most_routes, len(trips)))]
    dearest = 1.0 + sum(max((route.cost for route in of if route is not None), default=0.0) for of in routes)
    worth = [[0.0 if route is None else len(route.nodes) * dearest - route.cost for route in of] for of in routes]
    chosen = require("scipy.optimize", "agents").linear_sum_assignment(
        np.reshape(worth, (len(trips), len(rules.kinds)))[:, kinds], maximize=True
    )
    pairs = (routes[trip][kinds[vehicle]] for trip, vehicle in zip(*chosen, strict=True))
    return [route for route in pairs if route is not None]


def insert_all(rules: Rules, routes: list[Route], waiting: Iterable[int]) -> tuple[list[Route], list[int]]:
    """Insert stops one by one where they cost least; return the routes, and the stops that fit nowhere."""
    routes, absent = list(routes), []
    for node in waiting:
        most, chosen, place = rules.price[node], -1, -1
        for k, route in enumerate(routes):
            extra, at = rules.kinds[route.kind].best_place(node, route, 0, most)
            if at >= 0:
                most, chosen, place = extra, k, at
        alone = next(iter(rules.new_routes(node, routes)), None)
        if alone is not None and alone.cost < most:
            routes.append(alone)
        elif chosen >= 0:
            nodes = routes[chosen].nodes
            grown = rules.kinds[routes[chosen].kind].route((*nodes[:place], node, *nodes[place:]))
            if grown is not None:
                routes[chosen] = grown
        else:
            absent.append(node)
    return routes, absent
