"""Answers as sequences of indices, vectorised over a batch: canonical order, and symmetries and order of the points.

An answer is a row of point indices, padded with -1: a TSP tour, the corners of a hull, or triangles,
three indices each. B = instances, n = points, T = longest answer.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from routing_gym.problems.geometry import symmetry

Points = npt.NDArray[np.floating]  # (B, n, 2)
Answers = npt.NDArray[np.int64]  # (B, T), padded with PADDING
Order = Literal["sorted", "given"]

PADDING = -1


def arrange(points: Points, answers: Answers, order: Order, rng: np.random.Generator) -> tuple[Points, Answers]:
    """Transform solved instances by one of the square's eight symmetries and another order of the points.

    The answers stay right; their indices change with the order.

    Args:
        points: Points (B, n, 2) in the unit square.
        answers: Answers (B, T).
        order: New order of the points: "sorted" for the order of x, "given" for a random order.
        rng: Random number generator for the symmetry of each row, and for the order.
    """
    turned = symmetry(points, rng.integers(8, size=len(points)))
    if order == "sorted":
        return reorder(turned, answers, sorting(turned))
    return reorder(turned, answers, np.argsort(rng.random(points.shape[:2]), axis=1))


def sorting(points: Points) -> Answers:
    """Return the order of the points by x, then y: (B, n)."""
    by_y = np.argsort(points[..., 1], axis=1, kind="stable")
    x = np.take_along_axis(points[..., 0], by_y, axis=1)
    return np.take_along_axis(by_y, np.argsort(x, axis=1, kind="stable"), axis=1)


def reorder(points: Points, answers: Answers, order: Answers) -> tuple[Points, Answers]:
    """Move point `order[i]` to index i, and change the answers so that they refer to the same points."""
    moved = np.take_along_axis(points, order[..., None], axis=1)
    return moved, rename(answers, np.argsort(order, axis=1))


def rename(answers: Answers, names: Answers) -> Answers:
    """Replace every index i of an answer by `names[i]` (B, n); padding stays."""
    return np.where(answers == PADDING, PADDING, np.take_along_axis(names, np.maximum(answers, 0), axis=1))


def counter_clockwise(points: Points, answers: Answers) -> Answers:
    """Convert polygons so that they start at the point with the lowest index and run counter-clockwise.

    A polygon without area runs towards the lower of the two neighbours of its start.
    """
    length = (answers != PADDING).sum(axis=1, keepdims=True)
    start = np.argmin(np.where(answers == PADDING, points.shape[1], answers), axis=1)[:, None]
    place = np.arange(answers.shape[1])
    area = signed_area(points, answers)[:, None]
    neighbours = [np.take_along_axis(answers, (start + step) % length, axis=1) for step in (1, -1)]
    backwards = (area < 0) | ((area == 0) & (neighbours[1] < neighbours[0]))
    turned = np.take_along_axis(answers, (start + np.where(backwards, -place, place)) % length, axis=1)
    return np.where(place < length, turned, PADDING)


def signed_area(points: Points, answers: Answers) -> npt.NDArray[np.float64]:
    """Return the area of polygons (B,), positive if counter-clockwise.

    This is the shoelace formula, sum of (x_i y_i+1 - x_i+1 y_i) / 2.
    """
    here, following = edges(points, answers)
    return np.asarray((here[..., 0] * following[..., 1] - following[..., 0] * here[..., 1]).sum(axis=1) / 2)


def edges(points: Points, answers: Answers) -> tuple[Points, Points]:
    """Return the ends of the polygons' edges: float64 (B, T, 2) each.

    Padding becomes edges from the first point to itself.
    """
    closed = np.where(answers == PADDING, answers[:, :1], answers)
    corners = np.take_along_axis(points.astype(np.float64), np.maximum(closed, 0)[..., None], axis=1)
    return corners, np.roll(corners, -1, axis=1)


def triangle_order(points: Points, answers: Answers) -> Answers:
    """Sort the indices of each triangle, and the triangles by their incentres' x, then y."""
    triangles = np.sort(answers.reshape(len(answers), -1, 3), axis=2)
    absent = triangles[..., 0] == PADDING
    centres = np.where(absent[..., None], np.inf, incentres(points, np.maximum(triangles, 0)))
    in_order = np.take_along_axis(triangles, sorting(centres)[..., None], axis=1)
    return in_order.reshape(answers.shape)


def incentres(points: Points, triangles: Answers) -> Points:
    """Return the incentres of triangles (B, M, 3): the mean of the corners, weighted by the opposite sides' lengths."""
    corners = np.take_along_axis(points.astype(np.float64), triangles.reshape(len(points), -1, 1), axis=1)
    corners = corners.reshape(*triangles.shape, 2)
    sides = np.linalg.norm(np.roll(corners, -1, axis=2) - np.roll(corners, -2, axis=2), axis=3, keepdims=True)
    perimeter = sides.sum(axis=2)
    return np.asarray((sides * corners).sum(axis=2) / np.where(perimeter > 0, perimeter, 1.0))


def stack(answers: list[list[int]], length: int) -> Answers:
    """Return answers as rows of an array, padded to `length`."""
    table = np.full((len(answers), length), PADDING, dtype=np.int64)
    for row, answer in zip(table, answers, strict=True):
        row[: len(answer)] = answer
    return table
