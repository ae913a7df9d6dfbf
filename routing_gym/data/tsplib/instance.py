"""An instance read from a file: what the model sees, beside the file's own integers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from routing_gym.arrays import Array, to_numpy
from routing_gym.data.tsplib.fleet_rules import FleetRules
from routing_gym.data.tsplib.metrics import TENTHS, FloatArray, IntArray, file_distances, file_legs
from routing_gym.problem import AnyProblem, InfeasibleTour
from routing_gym.problems.checks import TOLERANCE
from routing_gym.problems.geometry import MAX_FLOAT
from routing_gym.problems.op import OPInstance


@dataclass(frozen=True, eq=False)
class RouteRules:
    """Limits of a file on routes, in its own integers; node 0 is the depot.

    Attributes:
        windows: VRPTW: int64 (A, 3), ready time, due time and service time of each node, in parts of the file's unit.
        unit: VRPTW: how many parts are counted.
        num_vehicles: VRPTW: the most routes.
        backhaul: VRPB: bool (A,). No route may start with a backhaul, as `VRP` lets it.
    """

    windows: IntArray | None = None
    unit: int = TENTHS
    num_vehicles: int | None = None
    backhaul: npt.NDArray[np.bool_] | None = None

    def check(
        self, problem: AnyProblem, instance: Any, legs: Callable[[IntArray, IntArray], IntArray], tour: IntArray
    ) -> None:
        """Check a complete tour (T,), by the rules of the problem and these; `legs` as `FileInstance.legs`.

        Raises:
            InfeasibleTour: With step, value, bound and remedy.
        """
        if self.windows is not None:  # kept here in integers; float32 is too coarse for them on large files
            instance = replace(instance, due_time=np.full_like(instance.due_time, MAX_FLOAT))
        problem.objective(instance, tour[None])
        before = np.concatenate(([0], tour[:-1]))
        starts = np.flatnonzero((before == 0) & (tour != 0))
        if self.num_vehicles is not None and len(starts) > self.num_vehicles:
            found = f"route {self.num_vehicles + 1} is one too many, VEHICLES are {self.num_vehicles}"
            raise InfeasibleTour(0, int(starts[self.num_vehicles]), f"{found}; serve more customers on each")
        if self.backhaul is not None and self.backhaul[tour[starts]].any():
            step = int(starts[self.backhaul[tour[starts]]][0])
            found = f"the route of node {tour[step]} holds backhauls only, which files of TYPE VRPB forbid"
            raise InfeasibleTour(0, step, f"{found}; serve a linehaul before them")
        if self.windows is not None:
            time = self.windows[0, 0]
            for step, (leg, node) in enumerate(zip(legs(before, tour), tour, strict=True)):
                ready, due, service = self.windows[node]
                time = time + leg
                if time > due:
                    found = f"arrival time {time / self.unit} at node {node} exceeds {due / self.unit}"
                    raise InfeasibleTour(0, step, f"{found}; return to the depot (0) earlier")
                time = max(time, ready) + service if node else ready


@dataclass(frozen=True, eq=False)
class FileInstance:
    """One instance from a file. Depots come first, one for each kind of vehicle; other nodes keep the file's order.

    Attributes:
        name: NAME, or the file's name where the file gives none.
        path: The file.
        comments: Its COMMENT lines.
        metric: Its EDGE_WEIGHT_TYPE.
        ids: int64 (A,), the file's number, from 1, of each node.
        coords: float64 (A, 2), as in the file; None where it has distances only.
        matrix: int64 (A, A), the file's own distances; None where they are those of coordinates.
        scale: Length in the file's units of 1 in the instance; the longest, where distances are in the file.
        problem: The rules.
        instance: One row: coordinates moved and scaled into the unit square, distances over the scale; none where
            `read_instance` was asked to leave them out.
        cost_limit: OP: the longest tour allowed, in the file's metric.
        scores: OP: int64 (A,), as in the file; every tour collects the depot's score, which the
            instance leaves out.
        unit: How many parts of the file's unit are counted: VRPTW with coordinates 10, HFVRP 1,000,000, other fleets
            1,000.
        rules: VRPTW, VRPB, fleets: what the file asks of routes.
        best_known: The best cost that lies beside the file; None where nothing does.
        best_tour: Actions that cost `best_known`; None where only the number is known.
    """

    name: str
    path: Path
    comments: tuple[str, ...]
    metric: str
    ids: IntArray
    coords: FloatArray | None
    matrix: IntArray | None
    scale: float
    problem: AnyProblem
    instance: Any
    cost_limit: int | None = None
    scores: IntArray | None = None
    unit: int = 1
    rules: RouteRules | FleetRules | None = None
    best_known: float | None = None
    best_tour: IntArray | None = None

    @property
    def decimals(self) -> int:
        """Decimals of costs."""
        if isinstance(self.rules, FleetRules):
            return self.rules.decimals
        return 1 if self.unit == TENTHS else 0

    def legs(self, origin: IntArray, destination: IntArray) -> IntArray:
        """Return the lengths of ways between nodes, in the file's metric: int64, as the two broadcast."""
        if self.matrix is not None:
            return np.asarray(self.matrix[origin, destination])
        assert self.coords is not None
        return file_legs(self.coords, self.metric, origin, destination, self.unit)

    def scaled_legs(self, origin: IntArray, destination: IntArray) -> FloatArray:
        """Return the same over the scale, as in the instance: float64."""
        return self.legs(origin, destination) / (self.scale * self.unit)

    @cached_property
    def distances(self) -> IntArray:
        """All `legs`: int64 (A, A). Computed when first asked for: 10,000 nodes take 800 MB."""
        if self.matrix is not None:
            return self.matrix
        assert self.coords is not None
        return file_distances(self.coords, self.metric, self.unit)

    def length(self, actions: Array) -> int:
        """Return the length of a closed tour of actions (T,), as `legs` count; feasibility is not checked."""
        tour = to_numpy(actions)
        if self.problem.has_depot:
            tour = np.concatenate(([0], tour))
        return int(self.legs(tour, np.roll(tour, -1)).sum())

    def cost(self, actions: Array) -> float:
        """Check a complete tour and return its exact cost in the file's own numbers.

        Args:
            actions: Integers (T,), as the environment takes them.

        Returns:
            The length, an integer but for VRPTW; of fleets, what is published: the cost in thousandths of the file's
            unit, of HFVRP in hundreds; where the problem maximises (OP), the sum of the scores, the depot's included.

        Raises:
            InfeasibleTour: With step, value, bound and remedy.
            ValueError: `actions` has the wrong shape or type.
        """
        tour = to_numpy(actions)
        if isinstance(self.rules, FleetRules):
            return self.rules.cost(self.problem, self.instance, self.legs, tour)
        if self.rules is not None:
            self.rules.check(self.problem, self.instance, self.legs, tour)
            return self.length(tour) if self.unit == 1 else self.length(tour) / self.unit
        if self.scores is None or self.cost_limit is None:
            self.problem.objective(self.instance, tour[None])
            return self.length(tour)
        # The limit is checked here in integers; float32 is too coarse for it on large files. OPLib limits the whole
        # tour only, so published tours stay feasible where rounding violates the triangle inequality by a unit. The
        # instance also asks for the direct way back at every node: each of its tours is one of the file.
        unlimited = replace(self.instance, max_length=np.full(1, np.inf, dtype=np.float32))
        self.problem.objective(unlimited, tour[None])
        length = self.length(tour)
        if length > self.cost_limit:
            raise InfeasibleTour(
                0, len(tour) - 1, f"length {length} exceeds COST_LIMIT {self.cost_limit}; leave out some nodes"
            )
        return int(self.scores[0] + self.scores[tour[tour != 0]].sum())


def unit_scale(coords: FloatArray) -> float:
    """Return the larger side of the box around coordinates (A, 2); 1 where all lie in one place."""
    return float((coords.max(axis=0) - coords.min(axis=0)).max()) or 1.0


def matrix_scale(matrix: IntArray) -> float:
    """Return the largest distance; 1 where all are 0."""
    return float(matrix.max()) or 1.0


def scale_coords(coords: FloatArray, scale: float) -> Array:
    """Move and scale coordinates into the unit square, both axes alike: float32 (1, A, 2)."""
    return ((coords - coords.min(axis=0)) / scale).astype(np.float32)[None]


def scale_distances(distances: IntArray, scale: float) -> Array:
    """Divide integer distances (A, A) by the scale: float32 (1, A, A)."""
    return (distances / scale).astype(np.float32)[None]


def orienteering_instance(coords: Array, distances: Array, scores: IntArray, limit: int, scale: float) -> OPInstance:
    """Make the OP instance whose mask allows tours up to `limit` in integers, and none of limit + 1.

    The mask adds float32 distances over the scale; half a unit more than the limit keeps both apart.
    Above a limit of 2.8 million, where three float32 roundings (2**-24 each) outweigh half a unit, the
    budget shrinks instead: no tour over the limit passes, and some that fit by less than 1 in 5 million
    do not.
    """
    slack = max(0.5, 3 * 2.0**-24 * (limit + 1))
    max_length = max(0.0, (limit + 1 - slack) / scale - TOLERANCE / 2)
    prize = scores.astype(np.float32)
    prize[0] = 0
    return OPInstance(coords, prize[None], np.full(1, max_length, dtype=np.float32), distances)
