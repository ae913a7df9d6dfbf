"""A 0-1 program over the nodes and edges of a graph, solved by SciPy's HiGHS."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from routing_gym.arrays import FloatArray, IntArray
from routing_gym.optional import require
from routing_gym.solvers.runtime.base import TimedOut

ROUNDING = 1e-12  # relative error of sums in float64


@dataclass
class Program:
    """Minimisation of a linear cost over the A nodes (visited or not), then the E edges between them (used or not).

    Node 0 is on every tour that visits a customer. Its edges may be used twice, for the tour of one customer.
    """

    num_nodes: int
    cost: FloatArray  # (A + E,)
    low: FloatArray  # (A + E,), bounds of the variables
    high: FloatArray
    ends: IntArray  # (E, 2), with ends[:, 0] < ends[:, 1]
    lengths: FloatArray  # (E,)
    constraints: list[tuple[IntArray, FloatArray, float, float]] = field(default_factory=list)
    limits: list[tuple[IntArray, FloatArray, float, float]] = field(default_factory=list)  # to be kept exactly
    most_with_way_back: float = np.inf  # limit on the length up to each node plus the direct return to node 0

    @classmethod
    def of_tours(cls, distances: FloatArray) -> Program:
        """Make the program in which every visited node has two edge ends, with zero costs."""
        size = len(distances)
        i, j = np.triu_indices(size, 1)
        zeros = np.zeros(size + len(i))
        high = np.ones_like(zeros)
        high[size:][i == 0] = 2.0
        program = cls(size, zeros, zeros.copy(), high, np.stack([i, j], axis=1), distances[i, j])
        for node in range(size):
            others = np.delete(np.arange(size), node)
            program.add(np.r_[program.edge(node, others), node], np.r_[np.ones(size - 1), -2.0], 0.0, 0.0)
        return program

    @property
    def edges(self) -> IntArray:
        """Columns of all edges."""
        return np.arange(self.num_nodes, len(self.cost))

    def edge(self, one: Any, other: Any) -> IntArray:
        """Return the columns of the edges between nodes, in the order of `numpy.triu_indices`."""
        i, j = np.minimum(one, other), np.maximum(one, other)
        return np.asarray(self.num_nodes + i * (2 * self.num_nodes - i - 1) // 2 + (j - i - 1))

    def add(self, columns: IntArray, values: FloatArray | float, low: float, high: float) -> None:
        """Add the constraint low <= values . variables[columns] <= high."""
        self.constraints.append((columns, np.broadcast_to(values, columns.shape), low, high))

    def add_limit(self, columns: IntArray, values: FloatArray, low: float, high: float) -> None:
        """Add a constraint with `values` of at least 0 that must hold without HiGHS's tolerance: see `keeps_limits`."""
        self.add(columns, values, low, high)
        self.limits.append(self.constraints[-1])

    def keeps_limits(self, values: FloatArray) -> bool:
        """Return whether an integer solution keeps the limits in float64; if not, forbid it and similar solutions."""
        for columns, weights, low, high in self.limits:
            chosen = values[columns]
            total = float(weights @ chosen)
            used = chosen > 0
            if total > high + ROUNDING * max(1.0, abs(high)):  # so do all solutions that use as much
                self.add(columns[used], 1.0, -np.inf, float(chosen.sum()) - 1)
                return False
            if total < low - ROUNDING * max(1.0, abs(low)):  # so do all solutions that use nothing else
                self.add(columns[~used], 1.0, 1.0, np.inf)
                return False
        return True

    def keeps_way_back(self, values: FloatArray) -> bool:
        """Return whether a tour, in one direction, keeps `most_with_way_back`; if not, forbid it and similar tours.

        Each direction breaks the limit after its first few edges. A tour that has all of these breaks it, too.
        """
        forward, first_edges = np.array(self.tour(values)), []
        for nodes in (forward, np.roll(forward[::-1], 1)):
            edges, back = self.edge(nodes[:-1], nodes[1:]), self.lengths[self.edge(0, nodes[1:]) - self.num_nodes]
            lengths = np.cumsum(self.lengths[edges - self.num_nodes]) + back
            over = np.flatnonzero(lengths > self.most_with_way_back * (1 + ROUNDING) + ROUNDING)
            if not len(over):
                return True
            first_edges.append(edges[: over[0] + 1])
        together = np.unique(np.concatenate(first_edges))
        self.add(together, 1.0, -np.inf, len(together) - 1)
        return False

    def forbid_subtour(self, inside: IntArray, node: int) -> None:
        """Add x(E(S)) <= y(S) - y_k for a set S of nodes without node 0, and k in S."""
        first, second = np.triu_indices(len(inside), 1)
        edges, others = self.edge(inside[first], inside[second]), inside[inside != node]
        self.add(np.r_[edges, others], np.r_[np.ones(len(edges)), -np.ones(len(others))], -np.inf, 0.0)

    def matrix(self) -> tuple[Any, FloatArray, FloatArray]:
        """Return the constraints as a sparse matrix with lower and upper limits."""
        columns, values, low, high = zip(*self.constraints, strict=True)
        starts = np.cumsum([0, *map(len, columns)])
        content = (np.concatenate(values), np.concatenate(columns), starts)
        sparse = require("scipy.sparse", "solvers")
        return sparse.csr_array(content, shape=(len(columns), len(self.cost))), np.array(low), np.array(high)

    def solve_relaxed(self, deadline: float) -> tuple[FloatArray, float, FloatArray]:
        """Solve without integrality; return values, cost and reduced costs."""
        matrix, low, high = self.matrix()
        equal = low == high
        below, above = ~equal & np.isfinite(high), ~equal & np.isfinite(low)
        result = require("scipy.optimize", "solvers").linprog(
            self.cost,
            A_ub=require("scipy.sparse", "solvers").vstack([matrix[below], -matrix[above]]),
            b_ub=np.r_[high[below], -low[above]],
            A_eq=matrix[equal],
            b_eq=low[equal],
            bounds=np.stack([self.low, self.high], axis=1),
            method="highs",
            options={"time_limit": time_left(deadline)},
        )
        check(result)
        return np.asarray(result.x), float(result.fun), np.asarray(result.lower.marginals)

    def solve_integer(self, deadline: float) -> FloatArray | None:
        """Solve with integrality; return the optimal values, or None if there is no solution."""
        optimize = require("scipy.optimize", "solvers")
        result = optimize.milp(
            self.cost,
            integrality=np.ones(len(self.cost)),
            bounds=optimize.Bounds(self.low, self.high),
            constraints=optimize.LinearConstraint(*self.matrix()),
            options={"time_limit": time_left(deadline), "mip_rel_gap": 0.0},
        )
        if result.status == 2:
            return None
        check(result)
        return np.asarray(np.rint(result.x))

    def tour(self, values: FloatArray) -> list[int]:
        """Return the tour from node 0 along the edges of an integer solution; only node 0 if there are no edges."""
        neighbours: list[list[int]] = [[] for _ in range(self.num_nodes)]
        for (i, j), times in zip(self.ends.tolist(), values[self.num_nodes :].astype(int), strict=True):
            neighbours[i] += [j] * times
            neighbours[j] += [i] * times
        tour = [0]
        previous, node = 0, neighbours[0][0] if neighbours[0] else 0
        while node != 0:
            tour.append(node)
            one, other = neighbours[node]
            previous, node = node, other if one == previous else one
        return tour


def time_left(deadline: float) -> float:
    """Return the seconds until the deadline.

    Raises:
        TimedOut: The deadline has passed.
    """
    left = deadline - time.perf_counter()
    if left <= 0:
        raise TimedOut("not proven optimal within the time limit")
    return left


def check(result: Any) -> None:
    """Check that SciPy's result is optimal.

    Raises:
        TimedOut: The time limit was reached.
        RuntimeError: HiGHS failed for another reason.
    """
    if result.status == 1:
        raise TimedOut("not proven optimal within the time limit")
    if result.status != 0:
        raise RuntimeError(f"HiGHS: {result.message}")
