"""The three tasks of the paper as pure functions: right answers, their canonical order, and metrics of predictions.

Define your own task as another `Task`: see docs/how-to/pointer-networks.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from routing_agents.policies.pointer.model import Holds
from routing_agents.policies.pointer.sequences import (
    PADDING,
    Answers,
    Points,
    counter_clockwise,
    edges,
    signed_area,
    stack,
    triangle_order,
)
from routing_gym.problems import TSP, TSPInstance
from routing_gym.solvers import BatchSolver, make_solver
from routing_gym.solvers.exact.held_karp import MAX_NODES

LOCAL_SEARCHES = 12  # restarts; the best tour is the label if Held-Karp is too slow
TSP_LABELS = {  # the paper's names; it does not specify its programs A1 and A2: these are two algorithms of O(n^2)
    "optimal": "",
    "a1": "nearest-neighbour",
    "a2": "nearest-insertion",
    "a3": "christofides",
}


@dataclass(frozen=True)
class Task:
    """Task of a network.

    Attributes:
        name: Name of the task.
        fewest: Smallest number of points of an instance.
        holds: Content of an answer, see `Holds`.
        longest: Function that returns the length of the longest answer for a number of points.
        solve: Function that returns right answers (B, T) of points (B, n, 2) for one of `labels`. It raises ValueError
            with the row of points that have no answer.
        canonical: Function that converts answers to the one of their equivalent forms that is learned.
        metrics: Function that compares predicted answers with the right ones.
        labels: Kinds of labels.
        triangles: Whether answers are drawn as triangles instead of a closed line.
    """

    name: str
    fewest: int
    holds: Holds
    longest: Callable[[int], int]
    solve: Callable[[Points, str], Answers]
    canonical: Callable[[Points, Answers], Answers]
    metrics: Callable[[Points, Answers, Answers], dict[str, float]]
    labels: tuple[str, ...] = ("optimal",)
    triangles: bool = False


def solve_tours(points: Points, labels: str) -> Answers:
    """Return tours (B, n).

    "optimal" is Held-Karp up to 12 cities. Beyond, it is the best of 12 local searches from random insertion, which
    is optimal in 99.6 % of instances with 20 cities, and 0.001 % longer on average.
    """
    problem = TSP(points.shape[1])
    instance = TSPInstance(points.astype(np.float32))
    if labels != "optimal":
        return make_solver(TSP_LABELS[labels]).solve(problem, instance, num_workers=0).actions
    if problem.num_nodes <= MAX_NODES:
        return make_solver("held-karp").solve(problem, instance).actions
    search = make_solver("2-opt+or-opt", start="random-insertion")
    assert isinstance(search, BatchSolver)
    found = [search.solve(problem, instance, seed=seed) for seed in range(LOCAL_SEARCHES)]
    best = np.argmin([solution.cost for solution in found], axis=0)
    return np.stack([solution.actions for solution in found])[best, np.arange(len(points))]


def tour_metrics(points: Points, predicted: Answers, right: Answers) -> dict[str, float]:
    """Return the share of predictions that visit every city once, their mean length, and its gap as a fraction."""
    n = points.shape[1]
    predicted = predicted[:, :n]
    valid = (np.sort(predicted, axis=1) == np.arange(n)).all(axis=1)
    if not valid.any():
        return {"valid": 0.0, "length": np.nan, "gap": np.nan}
    length, best = (tour_lengths(points[valid], answers[valid]) for answers in (predicted, right))
    return {"valid": valid.mean(), "length": length.mean(), "gap": length.mean() / best.mean() - 1}


def tour_lengths(points: Points, tours: Answers) -> npt.NDArray[np.float64]:
    """Return the lengths of closed tours (B, n), computed like in the environment."""
    instance = TSPInstance(points.astype(np.float32))
    return np.asarray(TSP(points.shape[1]).objective(instance, tours), dtype=np.float64)


def check_points(points: Points, fewest: int) -> None:
    """Check that instances have enough points and finite coordinates.

    Raises:
        ValueError: An instance does not. The message has the row.
    """
    if points.shape[1] < fewest:
        raise ValueError(f"row 0: {points.shape[1]} points; expected at least {fewest}")
    bad = np.argwhere(~np.isfinite(points))
    if len(bad):
        row, point, _ = bad[0]
        raise ValueError(f"row {row}: point {point} is at {points[row, point]}; expected finite numbers")


def solve_hulls(points: Points, labels: str) -> Answers:
    """Return the corners of convex hulls, without points on edges and without duplicates of corners."""
    from scipy.spatial import ConvexHull, QhullError  # not needed by `load`, and slow to load

    check_points(points, 3)
    answers = []
    for row, one in enumerate(points):
        try:
            answers.append(ConvexHull(one).vertices.tolist())
        except QhullError as error:
            raise ValueError(f"row {row}: the {len(one)} points lie on a line and have no convex hull") from error
    return stack(answers, points.shape[1])


def hull_metrics(points: Points, predicted: Answers, right: Answers) -> dict[str, float]:
    """Return the share of predictions that are the hull, the share that are simple polygons, and their mean area.

    A hull may start at any corner. The area is relative to the hull's. The paper prints FAIL instead if more than 1 %
    are not simple polygons.
    """
    turned = np.where((predicted != PADDING).any(axis=1, keepdims=True), turn_to_lowest(predicted), PADDING)
    width = max(turned.shape[1], right.shape[1])
    turned, target = (np.pad(a, ((0, 0), (0, width - a.shape[1])), constant_values=PADDING) for a in (turned, right))
    accurate = (turned == turn_to_lowest(target)).all(axis=1)
    simple = is_simple(points, predicted)
    covered = np.abs(signed_area(points, predicted)) / signed_area(points, right)
    area = covered[simple].mean() if simple.any() else np.nan
    return {"accuracy": accurate.mean(), "valid": simple.mean(), "area": area}


def turn_to_lowest(answers: Answers) -> Answers:
    """Rotate cyclic sequences so that they start at their lowest index; their direction stays."""
    length = np.maximum((answers != PADDING).sum(axis=1, keepdims=True), 1)
    start = np.argmin(np.where(answers == PADDING, answers.max() + 1, answers), axis=1)[:, None]
    place = np.arange(answers.shape[1])
    return np.where(place < length, np.take_along_axis(answers, (start + place) % length, axis=1), PADDING)


def is_simple(points: Points, answers: Answers) -> npt.NDArray[np.bool_]:
    """Return whether polygons have three corners or more, none twice, and edges that do not cross or touch: (B,)."""
    length = (answers != PADDING).sum(axis=1)
    in_order = np.sort(np.where(answers == PADDING, -1 - np.arange(answers.shape[1]), answers), axis=1)
    simple = (length >= 3) & (in_order[:, 1:] != in_order[:, :-1]).all(axis=1)
    rows = np.flatnonzero(simple)
    longest = length[rows].max(initial=0)
    a, b = edges(points[rows], answers[rows, :longest])
    for i in range(longest - 2):
        for j in range(i + 2, longest):
            apart = (j < length[rows]) & ((i > 0) | (j < length[rows] - 1))  # edges without a common corner
            simple[rows] &= ~(apart & segments_meet(a[:, i], b[:, i], a[:, j], b[:, j]))
    return simple


def segments_meet(a: Points, b: Points, c: Points, d: Points) -> npt.NDArray[np.bool_]:
    """Return whether segments ab and cd (B, 2) share a point: their ends lie on different sides of each other."""
    sides = [np.sign(cross(b - a, p - a)) for p in (c, d)] + [np.sign(cross(d - c, p - c)) for p in (a, b)]
    boxes = (np.maximum(a, b) >= np.minimum(c, d)) & (np.maximum(c, d) >= np.minimum(a, b))
    return (sides[0] * sides[1] <= 0) & (sides[2] * sides[3] <= 0) & boxes.all(axis=1)


def cross(a: Points, b: Points) -> Points:
    """Return the cross product in the plane."""
    return a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]


def solve_triangulations(points: Points, labels: str) -> Answers:
    """Return Delaunay triangulations: no point lies inside the circumscribed circle of a triangle."""
    from scipy.spatial import Delaunay, QhullError  # see `solve_hulls`

    check_points(points, 3)
    answers = []
    for row, one in enumerate(points):
        try:
            found = Delaunay(one - one.min(axis=0))  # far from the origin, distinct points would seem equal
        except QhullError as error:
            raise ValueError(f"row {row}: the {len(one)} points lie on a line and have no triangulation") from error
        if len(found.coplanar):
            pairs = ", ".join(f"{point} (of {other})" for point, _, other in sorted(found.coplanar.tolist()))
            raise ValueError(f"row {row}: points that repeat others: {pairs}; remove them first")
        answers.append(found.simplices.ravel().tolist())
    return stack(answers, longest_triangulation(points.shape[1]))


def longest_triangulation(n: int) -> int:
    """Return the largest number of indices: n points with h on the hull have 2n - 2 - h triangles, at most 2n - 5."""
    return 3 * (2 * n - 5)


def triangle_metrics(points: Points, predicted: Answers, right: Answers) -> dict[str, float]:
    """Return the share of predictions with exactly the right triangles, in any order, and of right triangles found."""
    accurate, coverage = [], []
    for ours, theirs in zip(predicted, right, strict=True):
        found, wanted = triangles(ours), triangles(theirs)
        accurate.append(found == wanted and len(found) * 3 == (ours != PADDING).sum())
        coverage.append(len(found & wanted) / len(wanted))
    return {"accuracy": float(np.mean(accurate)), "coverage": float(np.mean(coverage))}


def triangles(answer: Answers) -> set[frozenset[int]]:
    """Convert an answer (T,) to triangles, without an incomplete last one."""
    indices = answer[answer != PADDING].tolist()
    return {frozenset(indices[i : i + 3]) for i in range(0, len(indices) - 2, 3)}


TASKS = {
    task.name: task
    for task in (
        Task(
            name="tsp",
            fewest=2,
            holds="every",
            longest=lambda n: n,
            solve=solve_tours,
            canonical=counter_clockwise,
            metrics=tour_metrics,
            labels=tuple(TSP_LABELS),
        ),
        Task(
            name="convex-hull",
            fewest=3,
            holds="some",
            longest=lambda n: n,
            solve=solve_hulls,
            canonical=counter_clockwise,
            metrics=hull_metrics,
        ),
        Task(
            name="delaunay",
            fewest=3,
            holds="repeated",
            longest=longest_triangulation,
            solve=solve_triangulations,
            canonical=triangle_order,
            metrics=triangle_metrics,
            triangles=True,
        ),
    )
}
