"""Best selection of routes found by a search: set partitioning as a mixed-integer program.

Routes of a plain task are independent, so any selection of them that visits each stop once is a plan. Source:
Subramanian, Uchoa, Ochi (2013), "A hybrid algorithm for a class of vehicle routing problems", section 3.4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from routing_gym.arrays import FloatArray
from routing_gym.optional import require
from routing_gym.planning.routes import Route, Rules

MOST_COLUMNS = 4_000  # the cheapest by reduced cost; HiGHS solves this many in a second or two
GAP = 1e-4
LEAST_GAIN = 1e-9


class Pool:
    """Routes by the type of their vehicle and the set of their stops, each in the cheapest order seen so far.

    Args:
        rules: Rules of the task.

    Raises:
        ImportError: scipy is missing; the message names the extra to install.
    """

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.optimize, self.sparse = (require(f"scipy.{part}", "agents") for part in ("optimize", "sparse"))
        self.routes: dict[tuple[int, frozenset[int]], Route] = {}

    def add(self, routes: Sequence[Route]) -> None:
        """Add routes to the pool."""
        for route in routes:
            key = route.kind, frozenset(route.nodes)
            known = self.routes.get(key)
            if known is None or route.cost < known.cost:
                self.routes[key] = route

    def best(self, cost: float, seconds: float) -> tuple[list[Route], list[int]] | None:
        """Return routes and left-out stops with a total cost below `cost`; None if none are found.

        Args:
            cost: Total cost of the best plan so far.
            seconds: Time limit of the solver.
        """
        optimize = self.optimize
        routes = [route for route in self.routes.values() if route.nodes]
        stops = self.rules.task.stops
        costs, matrix = self.program(routes)
        most = [kind.most_routes for kind in self.rules.kinds]
        relaxed = optimize.linprog(
            costs,
            A_ub=matrix[len(stops) :],
            b_ub=most,
            A_eq=matrix[: len(stops)],
            b_eq=np.ones(len(stops)),
            bounds=(0, 1),
            method="highs",
            options={"time_limit": seconds / 2},
        )
        if relaxed.status != 0 or relaxed.fun >= cost - LEAST_GAIN:
            return None
        reduced = (costs - matrix.T @ np.concatenate([relaxed.eqlin.marginals, relaxed.ineqlin.marginals]))[
            : len(routes)
        ]
        order = np.argsort(reduced, kind="stable")[:MOST_COLUMNS].tolist()
        kept = [routes[k] for k in order if reduced[k] < cost - relaxed.fun]  # others are in no better plan
        costs, matrix = self.program(kept)
        low = np.concatenate([np.ones(len(stops)), np.zeros(len(most))])
        high = np.concatenate([np.ones(len(stops)), most])
        found = optimize.milp(
            costs,
            integrality=np.ones(len(costs)),
            bounds=optimize.Bounds(0, 1),
            constraints=optimize.LinearConstraint(matrix, low, high),
            options={"time_limit": seconds / 2, "mip_rel_gap": GAP},
        )
        if found.x is None:
            return None
        chosen = found.x > 0.5
        picked = [route for route, taken in zip(kept, chosen[: len(kept)], strict=True) if taken]
        absent = [node for node, taken in zip(stops, chosen[len(kept) :], strict=True) if taken]
        better = self.rules.total(picked, absent) < cost - LEAST_GAIN  # HiGHS sums large prices less exactly
        return (picked, absent) if better else None

    def program(self, routes: Sequence[Route]) -> tuple[FloatArray, Any]:
        """Return the costs and the constraint matrix: a column for each route, then one for leaving out each stop.

        The rows count the visits of each stop, then the routes of each type of vehicle.
        """
        sparse = self.sparse
        nodes = self.rules.task.stops
        stops, place = len(nodes), {node: row for row, node in enumerate(nodes)}
        rows = [place[node] for route in routes for node in route.nodes]
        columns = np.repeat(np.arange(len(routes)), [len(route.nodes) for route in routes])
        visits = sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=(stops, len(routes)))
        kinds = [route.kind for route in routes]
        shape = (len(self.rules.kinds), len(routes) + stops)
        counted = sparse.csr_array((np.ones(len(routes)), (kinds, range(len(routes)))), shape=shape)
        matrix = sparse.vstack([sparse.hstack([visits, sparse.eye_array(stops)]), counted])
        prices = (self.rules.price[node] for node in nodes)
        return np.array([*(route.cost for route in routes), *prices]), matrix.tocsr()
