"""Instance read from a file: the scaled instance for the model, and the integers of the file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from routing_gym.arrays import Array, FloatArray, IntArray, to_numpy
from routing_gym.data.tsplib.fleet_rules import FleetRules, find_left_out
from routing_gym.data.tsplib.metrics import TENTHS, file_distances, file_legs
from routing_gym.problem import AnyProblem, InfeasibleTour
from routing_gym.problems.checks import TOLERANCE
from routing_gym.problems.geometry import MAX_FLOAT, embedding
from routing_gym.problems.op import OPInstance


@dataclass(frozen=True, eq=False)
class RouteRules:
    """Limits of a file on routes, in its own integers; node 0 is the depot.

    Attributes:
        windows: VRPTW: int64 (A, 3), ready time, due time and service time of each node, in 1 / `unit`.
        unit: VRPTW: number of parts of the file's unit in which times are counted.
        num_vehicles: VRPTW: maximum number of routes.
        backhaul: VRPB: bool (A,), backhaul customers. No route may start with a backhaul, although `VRP` allows it.
    """

    windows: IntArray | None = None
    unit: int = TENTHS
    num_vehicles: int | None = None
    backhaul: npt.NDArray[np.bool_] | None = None

    def check(
        self, problem: AnyProblem, instance: Any, legs: Callable[[IntArray, IntArray], IntArray], tour: IntArray
    ) -> None:
        """Check a complete tour (T,) under the rules of the problem and the file; for `legs` see `FileInstance.legs`.

        Raises:
            InfeasibleTour: The tour breaks a rule; the message has step, value, bound and remedy.
        """
        if self.windows is not None:  # checked below in integers; float32 is too coarse for large files
            instance = replace(instance, due_time=np.full_like(instance.due_time, MAX_FLOAT))
        problem.objective(instance, tour[None])
        find_left_out(problem, tour)
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
    """Instance from a file. Depots come first, one per kind of vehicle; other nodes keep the file's order.

    Attributes:
        name: NAME, or the name of the file if it gives none.
        path: Path of the file.
        comments: COMMENT lines of the file.
        metric: EDGE_WEIGHT_TYPE of the file.
        ids: int64 (A,), number of each node in the file, from 1.
        coords: float64 (A, 2), as in the file; None if the file has distances only.
        matrix: int64 (A, A), distances in the file, which are also the durations; None if distances are computed from
            coordinates.
        scale: Length in the file's unit that is 1 in the instance; the longest distance, if distances are in the file.
        problem: Problem of the instance.
        instance: Batch of one: coordinates moved and scaled into the unit square, distances divided by the scale;
            without distances if `read_instance` was asked to omit them.
        cost_limit: OP: maximum length of a tour, in the file's metric.
        scores: OP: int64 (A,), as in the file; every tour collects the depot's score, which the instance omits.
        unit: Number of parts of the file's unit in which lengths are counted: 1 with a `matrix`, else VRPTW 10, HFVRP
            1,000,000, PCVRPTW 10, other fleets 1,000.
        rules: VRPTW, VRPB, fleets: limits of the file on routes.
        best_known: Best cost stored beside the file; None if there is none.
        best_tour: Actions with cost `best_known`; None if only the cost is known.
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
        """Number of decimals of costs."""
        if isinstance(self.rules, FleetRules):
            return self.rules.counting.decimals
        return 1 if self.unit == TENTHS else 0

    @property
    def best_cost(self) -> float | None:
        """`best_known` as a cost of the instance, like those of `Problem.objective`; None if it is unknown."""
        if self.best_known is None:
            return None
        if self.scores is not None:
            return float(self.scores[0]) - self.best_known
        parts = self.unit / self.rules.counting.cost_unit if isinstance(self.rules, FleetRules) else 1.0
        return self.best_known / (self.scale * parts)

    def legs(self, origin: IntArray, destination: IntArray) -> IntArray:
        """Return the lengths of edges in the file's metric: int64, with the shape to which both arguments broadcast."""
        if self.matrix is not None:
            return np.asarray(self.matrix[origin, destination])
        assert self.coords is not None
        return file_legs(self.coords, self.metric, origin, destination, self.unit)

    def scaled_legs(self, origin: IntArray, destination: IntArray) -> FloatArray:
        """Return the lengths of edges divided by the scale, as in the instance: float64."""
        return self.legs(origin, destination) / (self.scale * self.unit)

    @cached_property
    def distances(self) -> IntArray:
        """All `legs`: int64 (A, A). Computed on first access: 10,000 nodes take 800 MB."""
        if self.matrix is not None:
            return self.matrix
        assert self.coords is not None
        return file_distances(self.coords, self.metric, self.unit)

    def length(self, actions: Array) -> int:
        """Return the length of a closed tour of actions (T,), in the unit of `legs`; feasibility is not checked."""
        tour = to_numpy(actions)
        if self.problem.has_depot:
            tour = np.concatenate(([0], tour))
        return int(self.legs(tour, np.roll(tour, -1)).sum())

    def cost(self, actions: Array) -> float:
        """Check a complete tour and return its exact cost in the file's own numbers.

        Args:
            actions: Actions of the environment, integers (T,).

        Returns:
            The length, an integer except for VRPTW without a `matrix`; for fleets, the published cost: in thousandths
            of the file's unit (HFVRP in hundreds, PCVRPTW in tenths), with a `matrix` in this unit; if the problem
            maximises (OP), the sum of the scores, including the depot's.

        Raises:
            InfeasibleTour: The tour breaks a rule; the message has step, value, bound and remedy.
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
        # The limit is checked here in integers; float32 is too coarse for large files. OPLib limits only the whole
        # tour, so published tours stay feasible where rounding violates the triangle inequality by a unit. The instance
        # also limits the direct return from each node, so all of its tours are feasible for the file.
        unlimited = replace(self.instance, max_length=np.full(1, np.inf, dtype=np.float32))
        self.problem.objective(unlimited, tour[None])
        length = self.length(tour)
        if length > self.cost_limit:
            raise InfeasibleTour(
                0, len(tour) - 1, f"length {length} exceeds COST_LIMIT {self.cost_limit}; leave out some nodes"
            )
        return int(self.scores[0] + self.scores[tour[tour != 0]].sum())


def unit_scale(coords: FloatArray) -> float:
    """Return the larger side of the box around coordinates (A, 2); 1 if all are equal."""
    return float((coords.max(axis=0) - coords.min(axis=0)).max()) or 1.0


def matrix_scale(matrix: IntArray) -> float:
    """Return the largest distance; 1 if all are 0."""
    return float(matrix.max()) or 1.0


def places_of(coords: FloatArray | None, matrix: IntArray | None) -> FloatArray:
    """Return the coordinates (A, 2) of a file, or if it has none, places whose distances resemble the matrix."""
    if coords is not None:
        return coords
    assert matrix is not None  # a file has at least one of them
    return embedding(matrix.astype(np.float64))


def scale_coords(coords: FloatArray) -> Array:
    """Move and scale coordinates into the unit square with one factor for both axes: float32 (1, A, 2)."""
    return ((coords - coords.min(axis=0)) / unit_scale(coords)).astype(np.float32)[None]


def scale_distances(distances: IntArray, scale: float) -> Array:
    """Divide integer distances (A, A) by the scale: float32 (1, A, A)."""
    return (distances / scale).astype(np.float32)[None]


def orienteering_instance(coords: Array, distances: Array, scores: IntArray, limit: int, scale: float) -> OPInstance:
    """Make the OP instance whose mask allows tours up to `limit` in integers, and none of `limit` + 1 or more.

    The mask adds float32 distances divided by the scale; half a unit of slack separates the limit from the next
    integer. Above a limit of 2.8 million, three float32 roundings (2**-24 each) exceed half a unit, so the length limit
    is reduced instead: no tour over the limit passes, and some tours that fit by less than 1 in 5 million do not.
    """
    slack = max(0.5, 3 * 2.0**-24 * (limit + 1))
    max_length = max(0.0, (limit + 1 - slack) / scale - TOLERANCE / 2)
    prize = scores.astype(np.float32)
    prize[0] = 0
    return OPInstance(coords, prize[None], np.full(1, max_length, dtype=np.float32), distances)
