"""The rules of the VRP family, route by route, in plain Python: the judge of masks and objective.

It knows nothing of states and masks. A route is a depot node and customers in order; a vehicle may go on to a customer
if the route can still be completed: by returning at once or, with pairs, after the deliveries due in some order.
"""

import math
from dataclasses import replace
from itertools import combinations, pairwise, permutations

import numpy as np

from routing_gym.arrays import euclidean

TOLERANCE = 1e-5


class Judge:
    """Judge of one row of an instance.

    Args:
        letters: Attributes of the problem.
        instance: Of the family, on NumPy.
        row: Which of its rows.
        num_depots: Number of depot nodes.
    """

    def __init__(self, letters, instance, row, num_depots):
        self.letters, self.depots = set(letters), num_depots
        self.given = {key: value[row].tolist() for key, value in vars(instance).items() if value is not None}
        self.nodes = range(len(self.given["coords"]))
        self.customers = range(num_depots, len(self.given["coords"]))

    def length(self, a, b):
        if "distances" in self.given:
            return self.given["distances"][a][b]
        return math.dist(self.given["coords"][a], self.given["coords"][b])

    def duration(self, a, b):
        return self.given["durations"][a][b] if "durations" in self.given else self.length(a, b)

    def cost(self, start, route):
        """Cost of a complete route; None if it breaks a rule."""
        if not (self.carries(start, route) and self.allowed(start, route)):
            return None
        way = [start, *route] + ([] if "O" in self.letters else [start])
        length = sum(self.length(a, b) for a, b in pairwise(way))
        if "L" in self.letters and length > self.given["max_length"] + TOLERANCE:
            return None
        if "TW" in self.letters and not self.in_time(way):
            return None
        if "HF" not in self.letters:
            return length
        return self.given["fixed_cost"][start] + length * self.given["cost_per_length"][start]

    def allowed(self, start, route):
        return "eligible" not in self.given or all(self.given["eligible"][start][node] for node in route)

    def carries(self, start, route):
        """Load the vehicle at the depot, follow it from stop to stop."""
        demand, capacity = self.given["demand"], self.given["capacity"]
        if "HF" in self.letters:
            capacity = self.given["vehicle_capacity"][start]
        if "PD" in self.letters:
            pickup, load, on_board = self.given["pickup"], 0, set()
            for node in route:
                if pickup[node]:
                    if pickup[node] not in on_board:
                        return False
                    on_board.remove(pickup[node])
                    load -= demand[node]
                else:
                    load += demand[node]
                    if node in pickup:
                        on_board.add(node)
                if load > capacity:
                    return False
            return not on_board
        back = self.given.get("backhaul", [False] * len(demand))
        out = sum(demand[node] for node in route if not back[node])
        if "B" in self.letters:
            kinds = [back[node] for node in route]
            fetched = sum(demand[node] for node in route if back[node])
            return kinds == sorted(kinds) and max(out, fetched) <= capacity
        load = out
        if load > capacity:
            return False
        for node in route:
            load += demand[node] if back[node] else -demand[node]
            if load > capacity:
                return False
        return True

    def in_time(self, way):
        time = self.given["ready_time"][way[0]]
        for a, b in pairwise(way):
            time += self.duration(a, b)
            if time > self.given["due_time"][b] + TOLERANCE:
                return False
            time = max(time, self.given["ready_time"][b]) + self.given["service_time"][b]
        return True

    def completes(self, start, route):
        """Say whether some completion of a route keeps all rules."""
        if "PD" not in self.letters:
            return self.cost(start, route) is not None
        pickup = self.given["pickup"]
        due = [node for node in self.customers if pickup[node] in route and pickup[node] and node not in route]
        return any(self.cost(start, [*route, *rest]) is not None for rest in permutations(due))

    def legal(self, tour):
        """Nodes that may follow the actions so far of an episode that has not ended."""
        routes, start, chosen = self.split(tour)
        route, served = routes.pop()[1], {node for node in tour if node >= self.depots}
        left = [node for node in self.customers if node not in served]
        driven = [depot for depot, nodes in routes]

        def has_vehicle(depot):
            number = self.given["num_vehicles"][depot] if "num_vehicles" in self.given else math.inf
            return driven.count(depot) < number

        if route:
            legal = {node for node in left if self.completes(start, [*route, node])}
            return legal | ({start} if self.cost(start, route) is not None else set())
        starts = {
            depot: {node for node in left if self.completes(depot, [node])} if has_vehicle(depot) else set()
            for depot in range(self.depots)
        }
        legal = set(starts[start])
        if not chosen:
            legal |= {depot for depot, nodes in starts.items() if depot != start and nodes}
            legal |= {start} if "PC" in self.letters or not left else set()
        return legal

    def split(self, tour):
        """Return the routes as (depot, customers), the last of which is under way; its depot; whether chosen."""
        routes, start, chosen = [(0, [])], 0, False
        for node in tour:
            if node >= self.depots:
                routes[-1][1].append(node)
                continue
            chosen = not routes[-1][1]
            if routes[-1][1]:
                routes.append((node, []))
            else:
                routes[-1] = (node, [])
            start = node
        return routes, start, chosen

    def total(self, tour):
        """Cost of a complete tour; None if it breaks a rule."""
        routes, start = [], 0
        route, ended = [], False
        for before, node in pairwise([0, *tour]):
            if node >= self.depots:
                if ended:
                    return None
                route.append(node)
                continue
            if route:
                if node != start:
                    return None
                routes.append((start, route))
                route = []
            elif node == before and "PC" in self.letters:
                ended = True
            start = node
        served = [node for _, nodes in routes for node in nodes]
        if route or len(set(served)) < len(served):
            return None
        costs = [self.cost(depot, nodes) for depot, nodes in routes]
        left = set(self.customers) - set(served)
        if None in costs or (left and not ended):
            return None
        if "num_vehicles" in self.given:
            for depot in range(self.depots):
                if sum(depot == first for first, _ in routes) > self.given["num_vehicles"][depot]:
                    return None
        return sum(costs) + sum(self.given["penalty"][node] for node in left)


def best(judge):
    """Return the least cost: every set of customers as one route in every order, every partition into such sets."""
    nodes, numbers, penalties = list(judge.customers), judge.given.get("num_vehicles"), judge.given.get("penalty")
    cheapest = {}
    for size in range(1, len(nodes) + 1):
        for chosen in combinations(nodes, size):
            for depot in range(judge.depots):
                costs = [judge.cost(depot, list(order)) for order in permutations(chosen)]
                if legal := [cost for cost in costs if cost is not None]:
                    cheapest[frozenset(chosen), depot] = min(legal)

    def rest(left, driven):
        """Return the least cost of the customers left, after routes from some depots."""
        if not left:
            return 0.0
        first = min(left)
        found = [penalties[first] + rest(left - {first}, driven)] if penalties else []
        for (together, depot), cost in cheapest.items():
            free = numbers is None or driven.count(depot) < numbers[depot]
            if first in together <= left and free:
                found.append(cost + rest(left - together, (*driven, depot)))
        return min(found, default=math.inf)

    return rest(frozenset(nodes), ())


def spoil(problem, instance, rng):
    """Make generated instances harder: matrices, a depot that opens late, small, choosy and few vehicles."""
    changes, shape, depots = {}, instance.demand.shape, problem.num_depots
    straight = euclidean(instance.coords[:, :, None, :], instance.coords[:, None, :, :])
    if rng.random() < 0.5:
        changes["distances"] = (straight * rng.uniform(0.8, 1.0, straight.shape)).astype(np.float32)
    if problem.time_windows and rng.random() < 0.5:
        changes["durations"] = (straight * rng.uniform(0.7, 1.0, straight.shape)).astype(np.float32)
    if problem.time_windows and depots > 1:
        changes["ready_time"] = instance.ready_time.copy()
        changes["ready_time"][:, 1] = 0.3
    if problem.fleet:
        changes["vehicle_capacity"] = instance.vehicle_capacity.copy()
        changes["vehicle_capacity"][:, 0] = 5  # too small for the largest demands
        eligible = rng.random((shape[0], depots, shape[1])) < 0.7
        eligible[:, -1] = True  # the largest
        if problem.pairs:  # both ends of a pair alike
            source = np.where(instance.pickup > 0, instance.pickup, np.arange(shape[1]))
            eligible = np.take_along_axis(eligible, source[:, None, :].repeat(depots, axis=1), axis=2)
        changes["eligible"] = eligible
        if problem.penalties:
            changes["num_vehicles"] = np.where(np.arange(shape[1]) < depots, rng.integers(1, 3, shape), 0)
    return replace(instance, **changes)
