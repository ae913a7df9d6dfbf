"""Routes of a task: feasibility and costs, and the data with which `insertion` checks positions in constant time.

Times are propagated forwards (departures) and backwards (latest arrivals), and loads are prefix and suffix maxima, a
simple form of Vidal et al. (2014), "A unified solution framework for multi-attribute vehicle routing problems", section
4.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from itertools import accumulate

import numpy as np

from routing_gym.arrays import FloatArray
from routing_gym.planning.task import SLACK, Task

Place = tuple[int, ...]  # positions on a route where a stop, or a pickup and its delivery, are inserted; () for nowhere
NEVER = float("inf")
MOST_REMEMBERED = 30_000  # maximum number of cached routes for all types of vehicles, about 2 kB each


class Route:
    """One vehicle's stops, and the data needed to insert another; made by `Rules.route` and never changed."""

    __slots__ = (
        *("cost", "departure", "end", "kind", "km", "latest", "legs", "loads", "most_after", "most_before", "nodes"),
        *("num_deliveries", "places"),
    )

    def __init__(self, nodes: tuple[int, ...], num_deliveries: int, kind: int) -> None:
        self.nodes = nodes  # without the depot
        self.kind = kind  # index of the vehicle's type in `Rules.kinds`
        self.num_deliveries = num_deliveries  # stops before the first pickup
        self.departure: list[float] = []  # from the depot and from each stop
        self.latest: list[float] = []  # latest arrival at each stop and back at the depot
        self.legs: list[float] = []  # costs of the edges
        self.loads: list[int] = []  # load on the edge to each position
        self.most_before: list[int] = []  # greatest load up to the edge to each position
        self.most_after: list[int] = []  # greatest load from that edge on
        self.end = 0.0  # return of a vehicle that leaves when the depot opens
        self.km = self.cost = 0.0
        self.places: dict[tuple[int, int], tuple[float, Place]] = {}  # see `insertion.place_of`


class Rules:
    """Limits of a task as plain lists, which are faster than arrays for reading single numbers.

    Row 0 stands for the vehicles' depot, even if that depot is another row of the table.

    Args:
        task: A plain task.

    Attributes:
        kinds: Rules of each type of vehicle; only this object if all vehicles are alike.
    """

    def __init__(self, task: Task) -> None:
        self.minutes, self.km = (as_lists(matrix, task) for matrix in (task.minutes, task.km))
        self.costs = self.minutes if task.minimise == "minutes" else self.km
        if task.cost_per_unit != 1:
            self.costs = [[length * task.cost_per_unit for length in row] for row in self.costs]
        self.costs_to = list(map(list, zip(*self.costs, strict=True)))  # costs to each stop from all others
        self.service, self.delivery, self.pickup = (x.tolist() for x in (task.service, task.delivery, task.pickup))
        self.sources = [0] * len(task.ids) if task.pickup_at is None else task.pickup_at.tolist()
        self.deliveries = {source: node for node, source in enumerate(self.sources) if source}  # by pickup
        self.in_order = not task.mixed and bool(task.pickup.any())  # deliveries before pickups
        self.price = task.prices.tolist()
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
        """Set the limits of a task's vehicles."""
        self.task, self.kind = task, kind
        self.loaded = [0] * len(task.ids) if task.driven else task.loaded.tolist()  # beside what is aboard
        self.ready = task.ready.tolist()
        self.due = [late + SLACK for late in task.due.tolist()]
        self.ready[0], self.due[0] = self.ready[task.depot], self.due[task.depot]
        self.fixed_cost = task.fixed_cost
        self.head = tuple(visit.row for visit in task.driven[1:] if visit.row != task.depot)  # of each route
        self.left = [visit.departure for visit in task.driven]  # from the depot and these stops; the return, if made
        self.refused = set() if task.allowed is None else set(np.flatnonzero(~task.allowed).tolist())
        self.capacity = 2**60 if task.capacity is None else task.capacity
        self.max_km = NEVER if task.max_km is None else task.max_km + SLACK
        self.max_minutes = NEVER if task.max_minutes is None else task.max_minutes + SLACK
        self.most_routes = len(task.ids) if task.count is None else task.count
        self.remembered: dict[tuple[int, ...], Route | None] = {}

    def route(self, nodes: Iterable[int]) -> Route | None:
        """Return a route, or None if it breaks a limit; results are cached, since a search repeats its requests."""
        stops = tuple(nodes)
        if stops in self.remembered:
            return self.remembered[stops]
        if len(self.remembered) >= self.most_remembered:
            self.remembered.clear()
        made = self.remembered[stops] = self.new_route(stops)
        return made

    def new_route(self, stops: tuple[int, ...]) -> Route | None:
        """Return a route, or None if it breaks a limit. What a vehicle has driven already breaks none."""
        ends, checked = (*stops, 0), not self.head or stops != self.head
        if stops[: len(self.head)] != self.head:
            return None
        num_deliveries = next((k for k, node in enumerate(stops) if self.pickup[node]), len(stops))
        if self.in_order and any(not self.pickup[node] for node in stops[num_deliveries:]):
            return None
        if (self.task.delivers and stops and num_deliveries == 0) or not self.refused.isdisjoint(stops):
            return None
        if self.deliveries and not self.paired(stops):
            return None
        load, before = self.task.aboard + sum(self.loaded[node] for node in stops), 0
        if checked and load > self.capacity:  # the most frequent reason, checked before all others that take long
            return None
        made = Route(stops, num_deliveries, self.kind)
        loads, departure = [load], self.left[:] or [self.ready[0]]
        for k, node in enumerate(ends):
            if k + 1 == len(departure):
                time = departure[k] + self.minutes[before][node]
                if checked and time > self.due[node]:
                    return None
                departure.append(max(time, self.ready[node]) + self.service[node])
            made.legs.append(self.costs[before][node])
            made.km += self.km[before][node]
            load += self.pickup[node] - self.delivery[node]
            loads.append(load)
            before = node
        loads.pop()
        made.end = departure[-1]
        broken = max(loads) > self.capacity or made.km > self.max_km or self.too_long(stops, made.end)
        if checked and broken:
            return None
        made.cost = self.fixed_cost + sum(made.legs) if stops else 0.0
        made.departure = departure[:-1]
        made.latest = self.latest(ends)
        made.loads = loads
        made.most_before = list(accumulate(loads, max))
        made.most_after = list(accumulate(reversed(loads), max))[::-1]
        return made

    def too_long(self, stops: Sequence[int], end: float) -> bool:
        """Return whether a route within its time windows takes more minutes than vehicles may be away.

        Args:
            stops: Stops of the route.
            end: Return, or a later time, if the vehicle leaves when the depot opens.
        """
        return end - self.ready[0] > self.max_minutes and self.least_duration(stops) > self.max_minutes

    def leaving_time(self, stops: Sequence[int]) -> float:
        """Return when a vehicle leaves its depot: when it opens or, if time away is limited, so that it waits least.

        Args:
            stops: Stops of a route that keeps the limits.
        """
        leaves: float = self.ready[0]
        route = self.route(stops)
        if route is not None and self.max_minutes < NEVER:
            leaves = route.departure[-1] + self.minutes[stops[-1]][0] - self.least_duration(stops)
        return leaves

    def least_duration(self, stops: Sequence[int]) -> float:
        """Return the least minutes between departure and return of a route that keeps its time windows.

        Source: Vidal et al. (2013), "A hybrid genetic algorithm with adaptive diversity management for a large class
            of vehicle routing problems with time-windows", equations 4 to 8, without time warp.
        """
        duration, latest, before = 0.0, self.due[0], 0  # latest departure with this duration
        for node in (*stops, 0):
            duration += self.minutes[before][node]
            waits = max(0.0, self.ready[node] - (latest + duration)) if node else 0.0
            latest = min(latest, self.due[node] - duration)
            duration += waits + self.service[node]
            before = node
        return duration

    def paired(self, stops: Sequence[int]) -> bool:
        """Return whether goods picked up for another stop all reach it, and each such stop gets only these."""
        due: set[int] = set()
        for node in stops:
            if node in self.deliveries:
                due.add(self.deliveries[node])
            elif self.sources[node]:
                if node not in due:
                    return False
                due.remove(node)
        return not due

    def unit(self, node: int) -> tuple[int, ...]:
        """Return the stops that are inserted or left out together: the stop itself, or a pickup and its delivery."""
        if node in self.deliveries:
            return node, self.deliveries[node]
        return (self.sources[node], node) if self.sources[node] else (node,)

    def units(self, nodes: Iterable[int]) -> list[tuple[int, ...]]:
        """Return the units of the stops, in order, each once."""
        return list(dict.fromkeys(map(self.unit, nodes))) if self.deliveries else [(node,) for node in nodes]

    def price_of(self, unit: tuple[int, ...]) -> float:
        """Return the cost of leaving a unit out."""
        price: float = self.price[unit[0]]
        return price if len(unit) == 1 else price + self.price[unit[1]]

    def latest(self, ends: Sequence[int]) -> list[float]:
        """Return the latest arrivals at each stop and at the depot that keep all later time windows."""
        found = [self.due[0]]
        for k in range(len(ends) - 2, -1, -1):
            node = ends[k]
            left = found[-1] - self.minutes[node][ends[k + 1]] - self.service[node]
            found.append(min(self.due[node], left))
        return found[::-1]

    def with_unit(self, unit: tuple[int, ...], route: Route, place: Place) -> Route | None:
        """Return the route with a unit inserted at the given positions."""
        first, last, nodes = place[0], place[-1], route.nodes
        if len(unit) == 1:
            return self.route((*nodes[:first], *unit, *nodes[first:]))
        return self.route((*nodes[:first], unit[0], *nodes[first:last], unit[1], *nodes[last:]))

    def new_routes(self, unit: tuple[int, ...], routes: Sequence[Route]) -> list[Route]:
        """Return a route with one unit for each type that has a free vehicle, if the route keeps the limits."""
        if len(self.kinds) == 1:
            alone = self.route(unit) if len(routes) < self.most_routes else None
            return [] if alone is None else [alone]
        used = [route.kind for route in routes]
        free = (rules for kind, rules in enumerate(self.kinds) if used.count(kind) < rules.most_routes)
        return [route for rules in free if (route := rules.route(unit)) is not None]

    def by_vehicle(self, routes: Sequence[Route]) -> tuple[tuple[int, ...], ...]:
        """Return the stops of each vehicle; if vehicles differ, in the task's order, () for idle ones."""
        if len(self.kinds) == 1:
            return tuple(route.nodes for route in routes)
        stops: list[tuple[int, ...]] = []
        for kind, rules in enumerate(self.kinds):
            own = [route.nodes for route in routes if route.kind == kind]
            stops += own + [()] * (rules.most_routes - len(own))
        return tuple(stops)

    def total(self, routes: Iterable[Route], absent: Iterable[int]) -> float:
        """Return the cost of the routes plus the price of the stops left out."""
        return float(sum(route.cost for route in routes) + sum(self.price[node] for node in absent))


def as_lists(matrix: FloatArray, task: Task) -> list[list[float]]:
    """Return a matrix, (A, A), with the depot as row and column 0, and nothing from a stop to the depot if open."""
    rows = np.arange(len(matrix))
    rows[0] = task.depot
    copied = matrix[np.ix_(rows, rows)]
    if task.open:
        copied[:, 0] = 0.0
    lists: list[list[float]] = copied.tolist()
    return lists
