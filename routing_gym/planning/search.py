"""Slack induction by string removals: Christiaens and Vanden Berghe (2020), Transportation Science 54.

Strings of neighbouring stops are removed from a few routes and inserted again one by one at the least cost; some routes
are skipped at random. Simulated annealing accepts or rejects the result. In the first cycle, until all required stops
are served, a plan that leaves out other required stops is accepted if these have been left out in fewer rounds than
those of the current plan (the absence counters of the paper's minimisation of vehicles). A stop that is hard to insert
then displaces several others. The search deviates from the paper: stops may be left out at their price, routes may
begin with locked stops, the temperature follows the time left and rises again several times, and in between the best
choice of all routes seen so far, including those of a policy, is computed (`recombine.py`).
"""

from __future__ import annotations

import math
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from routing_gym.planning.fitting import fit
from routing_gym.planning.insertion import place_of
from routing_gym.planning.recombine import Pool
from routing_gym.planning.routes import NEVER, Place, Route, Rules
from routing_gym.planning.savings import first_routes

LONGEST_STRING, MEAN_REMOVED = 10, 6
SPLIT, BLINK = 0.5, 0.01
SPLIT_GROWS = 0.01
EXCHANGE = 0.5  # probability that a route from which a string was removed tries a vehicle of another type
SMALLEST_FIRST = 0.3  # share of the rounds that insert the smallest stops first while some stops are left out
HOTTEST, COLDEST = 1.0, 0.01  # temperatures, in mean edge costs of the first routes
CYCLES, LAST = 6, 0.05  # number of cooling cycles, and the share of the time after them
COUNTING = 1  # number of these cycles with absence counters
FORCED = 0.1  # share of the rounds that insert some neighbouring left-out stops at any cost
RECOMBINING = 0.3  # maximum share of the time for recombining routes


@dataclass(frozen=True)
class Found:
    """Routes without the depot, and the stops that are left out."""

    routes: tuple[tuple[int, ...], ...]
    absent: tuple[int, ...]
    cost: float
    seconds: float
    rounds: int
    interrupted: bool = False


Report = Callable[[Found], None]  # called every second with the best routes so far


class Search:
    """Search that removes stops from a set of routes and inserts them again.

    Args:
        rules: Rules of a plain task.
        start: Stops of each vehicle, without the depot; if there are none, see `savings`.
        locked: For each vehicle, the number of its first stops that stay; such a start must keep all limits.
        seed: Random seed of the search.
        pool: Further routes to choose from.
    """

    def __init__(
        self,
        rules: Rules,
        start: Sequence[Sequence[int]],
        locked: Sequence[int] = (),
        seed: int = 1,
        pool: Sequence[Sequence[int]] = (),
    ) -> None:
        task = rules.task
        self.rules, self.timed = rules, task.timed
        self.rng = random.Random(seed)
        self.locked = list(locked)
        self.held = {node for route, many in zip(start, locked, strict=False) for node in route[:many]}
        self.absent: list[int] = []
        self.forced: set[int] = set()
        if self.held:
            self.routes, self.absent = self.take_up(start)
        else:
            self.routes, self.absent = fit(self.rules, start) if any(start) else first_routes(self.rules)
        self.stops = [node for node in task.stops if node not in self.held]
        self.required = set(np.flatnonzero(np.isinf(task.penalty)).tolist())
        self.times_absent: Counter[int] = Counter()  # rounds in which a required stop was left out
        self.near = np.argsort(np.minimum(task.costs, task.costs.T), axis=1, kind="stable").tolist()
        self.far = task.costs[0].tolist()
        self.cost = self.rules.total(self.routes, self.absent)
        self.pool = Pool(self.rules)
        known = (rules.new_route(nodes) for nodes in dict.fromkeys(map(tuple, pool)) for rules in self.rules.kinds)
        self.pool.add([*self.routes, *(route for route in known if route is not None)])

    def take_up(self, start: Sequence[Sequence[int]]) -> tuple[list[Route], list[int]]:
        """Build the start from routes whose first stops are locked; insert the other stops again only if necessary.

        Raises:
            ValueError: The locked stops break a limit.
        """
        routes, absent = [], []
        for k, stops in enumerate(start[: self.rules.most_routes]):
            head = list(stops[: self.locked[k]]) if k < len(self.locked) else []
            rules = self.rules.kinds[self.rules.task.type_of(k)]
            route = rules.route(head)
            if route is None:
                names = ", ".join(self.rules.task.names[node] for node in head)
                raise ValueError(
                    f"fixed: the stops {names} of vehicle {self.rules.task.vehicle(k)} break a limit in this order"
                )
            for node in stops[len(head) :]:
                longer = rules.route((*route.nodes, node))
                if longer is None:
                    absent.append(node)
                else:
                    route = longer
            routes.append(route)
        seen = {node for route in routes for node in route.nodes}
        return self.insert(routes, [node for node in self.rules.task.stops if node not in seen])

    def run(self, seconds: float, report: Report | None = None) -> Found:
        """Search for the given time, and return the best routes so far; Ctrl-C ends the search early."""
        started = reported = time.perf_counter()
        best, best_absent, best_cost = list(self.routes), list(self.absent), self.cost
        legs = max(1, len(self.stops) + len(self.routes))
        mean = max(sum(sum(route.legs) for route in self.routes) / legs, 1e-9)
        rounds, done = 0, -1

        def found(interrupted: bool = False) -> Found:
            by_vehicle = self.rules.by_vehicle([route for route in best if route.nodes or self.locked])
            return Found(by_vehicle, tuple(best_absent), best_cost, time.perf_counter() - started, rounds, interrupted)

        try:
            while self.stops and (elapsed := time.perf_counter() - started) < seconds:
                phase = elapsed / seconds * CYCLES / (1 - LAST)
                if int(phase) > done:
                    done = int(phase)
                    better = self.recombined(best_cost, seconds)
                    if better is not None:
                        (best, best_absent), best_cost = better, self.rules.total(*better)
                    self.routes, self.absent, self.cost = list(best), list(best_absent), best_cost
                    continue
                cooled = phase - done if done < CYCLES else 1.0
                temperature = mean * HOTTEST * (COLDEST / HOTTEST) ** cooled
                routes, absent = self.insert(*self.remove())
                cost = self.rules.total(routes, absent)
                rounds += 1
                self.pool.add(routes)
                accepted = cost < self.cost - temperature * math.log(1.0 - self.rng.random())
                if done < COUNTING and not self.required.isdisjoint(best_absent):
                    accepted = self.leaves_easier(absent, accepted)
                if accepted or cost < best_cost - 1e-9:
                    self.routes, self.absent, self.cost = routes, absent, cost
                    if cost < best_cost - 1e-9:
                        best, best_absent, best_cost = list(routes), list(absent), cost
                if report is not None and time.perf_counter() - reported >= 1.0:
                    reported = time.perf_counter()
                    report(found())
        except KeyboardInterrupt:
            return found(interrupted=True)
        return found()

    def leaves_easier(self, absent: list[int], otherwise: bool) -> bool:
        """Return whether the required stops left out have been left out less often than those of the current plan.

        Args:
            absent: Stops that the new plan leaves out.
            otherwise: Result if both plans leave out the same required stops.
        """
        new, old = self.required.intersection(absent), self.required.intersection(self.absent)
        self.times_absent.update(new)
        times = [sum(self.times_absent[node] for node in nodes) for nodes in (new, old)]
        return otherwise if new == old else times[0] < times[1]

    def recombined(self, cost: float, seconds: float) -> tuple[list[Route], list[int]] | None:
        """Return a better choice of the routes seen so far; None if there is none, or if stops are locked."""
        return None if self.locked else self.pool.best(cost, RECOMBINING * seconds / (CYCLES + 1))

    def remove(self) -> tuple[list[Route], list[int]]:
        """Remove strings of stops from routes near a random stop; return the remaining routes and the removed stops."""
        draw, rules = self.rng.random, self.rules
        where = {node: k for k, route in enumerate(self.routes) for node in route.nodes}
        mean = sum(len(route.nodes) for route in self.routes) / max(1, len(self.routes))
        longest = max(1.0, min(LONGEST_STRING, mean))
        strings = int(draw() * (4.0 * MEAN_REMOVED / (1.0 + longest))) + 1
        routes, gone = list(self.routes), list(self.absent)
        ruined: set[int] = set()
        seed = self.stops[int(draw() * len(self.stops))]
        for node in self.near[seed]:
            if len(ruined) >= strings:
                break
            k = where.get(node, -1)
            if k < 0 or k in ruined or node in self.held:
                continue
            nodes, head = routes[k].nodes, self.locked[k] if k < len(self.locked) else 0
            free = nodes[head:]
            length = int(draw() * min(len(free), longest)) + 1
            taken = self.string(free, free.index(node), length)
            if rules.deliveries:
                taken = [one for unit in rules.units(taken) for one in unit]
            left = rules.kinds[routes[k].kind].route(other for other in nodes if other not in taken)
            if left is None:  # without the triangle inequality, a shorter route may break a limit
                continue
            routes[k] = left
            gone += taken
            ruined.add(k)
        self.forced = self.some_absent()
        if not self.locked:
            if len(rules.kinds) > 1:
                self.exchange(routes, sorted(ruined))
            routes = [route for route in routes if route.nodes]
        return routes, gone

    def some_absent(self) -> set[int]:
        """Return some neighbouring left-out stops to insert at any cost; in most rounds an empty set.

        Together they may be worth a route that none of them is worth alone.
        """
        if not self.absent or self.rng.random() >= FORCED:
            return set()
        absent = set(self.absent)
        near = [node for node in self.near[self.rng.choice(self.absent)] if node in absent]
        return set(near[: 1 + int(self.rng.random() * LONGEST_STRING)])

    def exchange(self, routes: list[Route], ruined: list[int]) -> None:
        """Give some routes a vehicle of another type: a free one, or that of another route, if limits allow."""
        kinds, draw = self.rules.kinds, self.rng.random
        for k in ruined:
            if draw() >= EXCHANGE or not routes[k].nodes:
                continue
            other = int(draw() * (len(routes) + len(kinds)))
            if other < len(routes) and not routes[other].nodes:  # the vehicle of an empty route may be in use by now
                continue
            kind = routes[other].kind if other < len(routes) else other - len(routes)
            used = sum(route.kind == kind for route in routes if route.nodes)
            moved = kinds[kind].route(routes[k].nodes)
            if other < len(routes):
                back = kinds[routes[k].kind].route(routes[other].nodes)
                if moved is not None and back is not None:
                    routes[k], routes[other] = moved, back
            elif moved is not None and used < kinds[kind].most_routes:
                routes[k] = moved

    def string(self, nodes: Sequence[int], at: int, length: int) -> list[int]:
        """Return a string of a route's stops around one stop; in half of the cases, some stops inside it stay."""
        draw, kept = self.rng.random, 0
        if length < len(nodes) and length > 1 and draw() < SPLIT:
            kept = 1
            while length + kept < len(nodes) and draw() > SPLIT_GROWS:
                kept += 1
                if kept >= length:
                    break
        whole = length + kept
        first = max(0, min(at - int(draw() * whole), len(nodes) - whole))
        string = list(nodes[first : first + whole])
        if kept:
            hole = int(draw() * (len(string) - kept + 1))
            del string[hole : hole + kept]
        return string

    def insert(self, routes: list[Route], gone: list[int]) -> tuple[list[Route], list[int]]:
        """Insert stops at the least cost; return the routes, and the stops that are left out."""
        rules, kinds, locked, draw = self.rules, self.rules.kinds, self.locked, self.rng.random
        absent: list[int] = []
        used = sum(1 for route in routes if route.nodes)
        for unit in rules.units(self.ordered(gone)):
            most, chosen = NEVER if unit[0] in self.forced else rules.price_of(unit), -1
            place: Place = ()
            for k, route in enumerate(routes):
                if draw() < BLINK or (not route.nodes and used >= rules.most_routes):
                    continue
                kind = kinds[route.kind]
                if route.loads[0] + kind.loaded[unit[0]] > kind.capacity:  # the most frequent reason
                    continue
                head = locked[k] if k < len(locked) else 0
                extra, at = route.places.get((unit[0], head)) or place_of(kind, unit, route, head)
                if extra < most and at:
                    most, chosen, place = extra, k, at
            new = rules.new_routes(unit, routes)
            # The cheapest type is skipped at random, too: stops may be cheaper together on a dearer one. Equal costs
            # are common, for example of types that differ in their limits only.
            if len(new) > 1:
                new = sorted(new, key=lambda route: (draw() < BLINK, route.cost, draw()))
            alone = next(iter(new), None)
            if alone is not None and alone.cost < most:
                routes.append(alone)
                used += 1
                continue
            grown = None
            if chosen >= 0:
                grown = kinds[routes[chosen].kind].with_unit(unit, routes[chosen], place)
            if grown is None:
                absent += unit
                continue
            used += not routes[chosen].nodes
            routes[chosen] = grown
        return routes, absent

    def ordered(self, gone: list[int]) -> list[int]:
        """Sort stops for insertion: at random, by amount, by distance from the depot, or by time window."""
        rules = self.rules
        if self.absent and self.rng.random() < SMALLEST_FIRST:  # so that few are left out
            return sorted(gone, key=lambda node: rules.delivery[node] + rules.pickup[node] + self.rng.random())
        kind = self.rng.random() * (17.0 if self.timed else 11.0)
        if kind < 4:
            return self.rng.sample(gone, len(gone))
        if kind < 8:
            return sorted(gone, key=lambda node: -self.rules.delivery[node] - self.rules.pickup[node])
        if kind < 10:
            return sorted(gone, key=lambda node: -self.far[node])
        if kind < 11:
            return sorted(gone, key=self.far.__getitem__)
        if kind < 13:
            return sorted(gone, key=lambda node: self.rules.due[node] - self.rules.ready[node])
        if kind < 15:
            return sorted(gone, key=self.rules.ready.__getitem__)
        return sorted(gone, key=lambda node: -self.rules.due[node])
