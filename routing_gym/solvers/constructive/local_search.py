"""2-opt and Or-opt for the TSP: apply the best improving move until there is none.

2-opt reverses a part of the tour (Croes 1958, "A method for solving traveling-salesman problems"). Or-opt moves up to
three consecutive cities to another position, reversed or not (Or 1976).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from routing_gym.arrays import FloatArray, IntArray
from routing_gym.problem import AnyProblem
from routing_gym.solvers.constructive.insertion import FarthestInsertion, NearestInsertion, RandomInsertion
from routing_gym.solvers.constructive.nearest_neighbour import NearestNeighbour
from routing_gym.solvers.runtime.base import BatchSolver, distance_matrix

Start = Literal["nearest-neighbour", "nearest-insertion", "farthest-insertion", "random-insertion"]
STARTS: dict[str, BatchSolver] = {
    solver.name: solver for solver in (NearestNeighbour(), NearestInsertion(), FarthestInsertion(), RandomInsertion())
}
MIN_GAIN = 1e-9  # smaller gains are rounding errors, and could lead to cycles
LONGEST_SEGMENT = 3


@dataclass(frozen=True)
class LocalSearch(BatchSolver):
    """Base class of the local searches.

    Attributes:
        start: Heuristic that builds the first tour.

    Raises:
        ValueError: The start is unknown.
    """

    problems: ClassVar[tuple[str, ...]] = ("TSP",)
    needs_symmetry: ClassVar[bool] = True
    reverses: ClassVar[bool] = False  # 2-opt
    moves_segments: ClassVar[bool] = False  # Or-opt

    start: Start = "farthest-insertion"

    def __post_init__(self) -> None:
        if self.start not in get_args(Start):
            raise ValueError(f"{self.name}: start must be one of {', '.join(get_args(Start))}; got {self.start!r}")

    def tours(self, problem: AnyProblem, instance: Any, rows: IntArray, seed: int) -> IntArray:
        distances = distance_matrix(instance)
        tours = np.ascontiguousarray(STARTS[self.start].tours(problem, instance, rows, seed))
        improve_all(tours, distances, self.reverses, self.moves_segments)
        return tours


@dataclass(frozen=True)
class TwoOpt(LocalSearch):
    """2-opt: reverse the part of the tour that shortens it most."""

    name: ClassVar[str] = "2-opt"
    reverses: ClassVar[bool] = True


@dataclass(frozen=True)
class OrOpt(LocalSearch):
    """Or-opt: move one to three consecutive cities to the position that shortens the tour most."""

    name: ClassVar[str] = "or-opt"
    moves_segments: ClassVar[bool] = True


@dataclass(frozen=True)
class TwoOptOrOpt(LocalSearch):
    """2-opt and Or-opt: apply the better of both moves in each step until neither improves the tour."""

    name: ClassVar[str] = "2-opt+or-opt"
    reverses: ClassVar[bool] = True
    moves_segments: ClassVar[bool] = True


def improve_all(tours: IntArray, distances: FloatArray, reverses: bool, moves_segments: bool) -> None:
    """Improve tours in place until no row has an improving move.

    Args:
        tours: int64 (B, n).
        distances: (B, n, n), symmetric.
        reverses: Whether to try 2-opt moves.
        moves_segments: Whether to try Or-opt moves.
    """
    active = np.arange(len(tours))
    while len(active):
        here = tours[active]
        legs = distances[active[:, None, None], here[:, :, None], here[:, None, :]]
        best_gain = np.full(len(active), -MIN_GAIN)
        places = np.tile(np.arange(here.shape[1]), (len(active), 1))
        if reverses:
            keep_better(best_gain, places, *best_reversal(legs))
        if moves_segments:
            for length in range(1, min(LONGEST_SEGMENT, here.shape[1] - 2) + 1):
                for turned in (False, True)[:length]:  # reversing one city changes nothing
                    keep_better(best_gain, places, *best_segment_move(legs, length, turned))
        tours[active] = np.take_along_axis(here, places, axis=1)
        active = active[best_gain < -MIN_GAIN]


def keep_better(best: FloatArray, places: IntArray, change: FloatArray, new_places: IntArray) -> None:
    """Replace the rows whose change of length is smaller, in place."""
    better = change < best
    best[better] = change[better]
    places[better] = new_places[better]


def best_reversal(legs: FloatArray) -> tuple[FloatArray, IntArray]:
    """Find the best 2-opt move: reverse positions i + 1 to j.

    Args:
        legs: (B, n, n), distances in the order of the tour.

    Returns:
        The change of length (B,), and the old position of each city of the new tour: int64 (B, n).
    """
    size = legs.shape[1]
    place = np.arange(size)
    edge = legs[:, place, (place + 1) % size]
    change = (legs + np.roll(legs, (-1, -1), axis=(1, 2))) - (edge[:, :, None] + edge[:, None, :])
    change[:, place[:, None] >= place] = np.inf
    flat = change.reshape(len(legs), -1)
    best = np.argmin(flat, axis=1)
    i, j = best[:, None] // size, best[:, None] % size
    places = np.where((place > i) & (place <= j), i + 1 + j - place, place)
    return flat[np.arange(len(legs)), best], places


def best_segment_move(legs: FloatArray, length: int, turned: bool) -> tuple[FloatArray, IntArray]:
    """Find the best Or-opt move: the cities from position s on go between positions p and p + 1.

    All moves of all rows are evaluated at once, as a matrix of changes [row, s, p], with cyclic positions:

    1. Removing the segment from s to last saves the edges before and after it, and adds the edge that joins its
       neighbours: `removed`, one number per s.
    2. Inserting it between p and p + 1 adds two edges and saves one: `added`, one number per s and p. Unreversed, its
       first city follows p and its last precedes p + 1; reversed, the other way round.
    3. Positions p whose edge is in the segment or touches it are excluded: infinite.
    4. The new tour is written as positions of the old one, counted from s: the segment itself is 0 to length - 1; the
       other cities follow, and the segment is inserted after the first `before` of them.

    Args:
        legs: (B, n, n), distances in the order of the tour.
        length: Number of cities moved.
        turned: Whether to reverse them.

    Returns:
        The same as `best_reversal`.
    """
    size = legs.shape[1]
    place = np.arange(size)
    last, following = (place + length - 1) % size, (place + length) % size
    edge = legs[:, place, (place + 1) % size]
    removed = (edge[:, place - 1] + edge[:, last]) - legs[:, place - 1, following]
    from_last = np.roll(legs, 1 - length, axis=1)  # row s: from the last city of the segment that starts at s
    if turned:
        added = (from_last + np.roll(legs, -1, axis=2)) - edge[:, None, :]
    else:
        added = (legs + np.roll(from_last, -1, axis=2)) - edge[:, None, :]
    change = added - removed[:, :, None]
    for offset in range(-1, length):  # edges at or in the segment itself
        change[:, place, (place + offset) % size] = np.inf
    flat = change.reshape(len(legs), -1)
    best = np.argmin(flat, axis=1)
    start = best[:, None] // size
    before = (best[:, None] % size - start) % size - length + 1  # number of other cities before the segment
    inside = (place >= before) & (place < before + length)
    within = length - 1 - (place - before) if turned else place - before
    from_start = np.where(inside, within, np.where(place < before, place + length, place))
    return flat[np.arange(len(legs)), best], (start + from_start) % size
