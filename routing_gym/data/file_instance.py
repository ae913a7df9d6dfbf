"""An instance read from a file: what the model sees, beside the file's own integers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from routing_gym.arrays import Array, to_numpy
from routing_gym.data.metrics import BLOCK_ROWS, FloatArray, IntArray
from routing_gym.problem import AnyProblem, InfeasibleTour
from routing_gym.problems.checks import TOLERANCE
from routing_gym.problems.op import OPInstance


@dataclass(frozen=True, eq=False)
class FileInstance:
    """One instance from a file. Node 0 is the depot; the other nodes keep the file's order.

    Attributes:
        name: NAME, or the file's name where the file gives none.
        path: The file.
        comments: Its COMMENT lines.
        metric: Its EDGE_WEIGHT_TYPE.
        ids: int64 (A,), the file's number, from 1, of each node.
        coords: float64 (A, 2), as in the file.
        distances: int64 (A, A), in the file's metric.
        scale: Length in the file's units of 1 in the instance.
        problem: The rules.
        instance: One row: coordinates moved and scaled into the unit square, distances over the scale.
        cost_limit: OP: the longest tour allowed, in the file's metric.
        scores: OP: int64 (A,), as in the file; every tour collects the depot's score, which the
            instance leaves out.
        best_known: The best cost that lies beside the file; None where nothing does.
        best_tour: Actions that cost `best_known`; None where only the number is known.
    """

    name: str
    path: Path
    comments: tuple[str, ...]
    metric: str
    ids: IntArray
    coords: FloatArray
    distances: IntArray
    scale: float
    problem: AnyProblem
    instance: Any
    cost_limit: int | None = None
    scores: IntArray | None = None
    best_known: int | None = None
    best_tour: IntArray | None = None

    def length(self, actions: Array) -> int:
        """Return the length of a closed tour of actions (T,) in the file's metric; feasibility is not checked."""
        tour = to_numpy(actions)
        if self.problem.has_depot:
            tour = np.concatenate(([0], tour))
        return int(self.distances[tour, np.roll(tour, -1)].sum())

    def cost(self, actions: Array) -> int:
        """Check a complete tour and return its exact cost in the file's own numbers.

        Args:
            actions: Integers (T,), as the environment takes them.

        Returns:
            The length; where the problem maximises (OP), the sum of the scores, the depot's included.

        Raises:
            InfeasibleTour: With step, value, bound and remedy.
            ValueError: `actions` has the wrong shape or type.
        """
        tour = to_numpy(actions)
        if self.scores is None or self.cost_limit is None:
            self.problem.objective(self.instance, tour[None])
            return self.length(tour)
        # The limit is checked here in integers; float32 is too coarse for it on large files.
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


def scale_coords(coords: FloatArray, scale: float) -> Array:
    """Move and scale coordinates into the unit square, both axes alike: float32 (1, A, 2)."""
    return ((coords - coords.min(axis=0)) / scale).astype(np.float32)[None]


def scale_distances(distances: IntArray, scale: float) -> Array:
    """Divide integer distances (A, A) by the scale: float32 (1, A, A)."""
    scaled = np.empty((1, *distances.shape), dtype=np.float32)
    for start in range(0, len(distances), BLOCK_ROWS):  # no float64 copy of the whole matrix
        scaled[0, start : start + BLOCK_ROWS] = distances[start : start + BLOCK_ROWS] / scale
    return scaled


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
