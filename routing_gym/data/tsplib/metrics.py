"""Distance functions of TSPLIB for coordinates, exactly as its documentation defines them.

Source: Reinelt (1995), "TSPLIB 95", section 2. All distances are integers. The documentation's `nint` is ``(int)(x +
    0.5)``, and its casts truncate towards zero.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from routing_gym.arrays import FloatArray, IntArray

GEO_PI = 3.141592  # TSPLIB's value, with which the published optima were computed
GEO_EARTH_RADIUS = 6378.388  # km
GREATEST = {"GEO": (90.0, 360.0)}  # bounds on coordinates: degrees of latitude and longitude
TENTHS = 10  # VRPTW files count in tenths
BLOCK_ROWS = 128  # rows of the matrix computed at a time, to keep temporary arrays small


def file_legs(coords: FloatArray, metric: str, origin: IntArray, destination: IntArray, unit: int) -> IntArray:
    """Compute the distances of some pairs of nodes.

    Args:
        coords: float64 (A, 2), as in the file; GEO: latitude and longitude as DDD.MM.
        metric: "EUC_2D", "CEIL_2D", "ATT" or "GEO".
        origin: int64, first nodes of the pairs.
        destination: int64, second nodes; broadcasts with `origin`.
        unit: EUC_2D: number of parts of the file's unit in which lengths are counted; tenths (10) are truncated as in
            VRPTW files, others rounded.

    Returns:
        int64, 0 from a node to itself.

    Raises:
        KeyError: The metric is unknown.
    """
    function = METRICS[metric] if unit == 1 else partial(parts, unit=unit)
    points = geographic(coords) if metric == "GEO" else coords
    lengths = function(points[origin], points[destination]).astype(np.int64)
    return np.where(origin == destination, 0, lengths)  # GEO would give 1


def file_distances(coords: FloatArray, metric: str, unit: int = 1, scale: float | None = None) -> npt.NDArray[Any]:
    """Compute the distances of all pairs, see `file_legs`: int64 (A, A); with a scale, float32 and divided by it."""
    every = np.arange(len(coords))
    distances = np.empty((len(coords), len(coords)), dtype=np.int64 if scale is None else np.float32)
    for start in range(0, len(coords), BLOCK_ROWS):
        rows = every[start : start + BLOCK_ROWS]
        legs = file_legs(coords, metric, rows[:, None], every, unit)
        distances[rows] = legs if scale is None else legs / scale
    return distances


def squared_length(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return the squared Euclidean length between points (..., 2)."""
    difference = a - b
    return np.asarray(difference[..., 0] ** 2 + difference[..., 1] ** 2)


def euc_2d(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return the Euclidean length, rounded to the nearest integer, halves up."""
    return np.floor(np.sqrt(squared_length(a, b)) + 0.5)


def ceil_2d(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return the Euclidean length, rounded up."""
    return np.ceil(np.sqrt(squared_length(a, b)))


def parts(a: FloatArray, b: FloatArray, unit: int) -> FloatArray:
    """Return the Euclidean length in parts of the unit.

    Tenths are truncated, like the lengths of VRPTW in the 12th DIMACS challenge; all others are rounded to the nearest.
    """
    lengths = unit * np.sqrt(squared_length(a, b))
    return np.asarray(np.floor(lengths if unit == TENTHS else lengths + 0.5))


def att(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return the pseudo-Euclidean length of the AT&T instances: sqrt(squares / 10), rounded, plus 1 if rounded down."""
    exact = np.sqrt(squared_length(a, b) / 10.0)
    rounded = np.floor(exact + 0.5)
    return np.where(rounded < exact, rounded + 1, rounded)


def geographic(coords: FloatArray) -> FloatArray:
    """Convert DDD.MM (degrees truncated towards zero, and minutes) to radians."""
    degrees = np.trunc(coords)
    minutes = coords - degrees
    return np.asarray(GEO_PI * (degrees + 5.0 * minutes / 3.0) / 180.0)


def planar(coords: FloatArray, metric: str) -> FloatArray:
    """Return coordinates whose Euclidean lengths equal or approximate the metric: float64 (A, 2), in its unit.

    GEO uses the azimuthal equidistant projection in km around the centre of all points, with east to the right and
    north up (Snyder 1987, "Map Projections: A Working Manual", section 25). Distances from the centre are exact;
    distances between points far from it are too long. Coordinates of other metrics are returned unchanged.
    """
    if metric != "GEO":
        return coords
    latitude, longitude = geographic(coords).T
    centre = np.mean([np.cos(latitude) * np.cos(longitude), np.cos(latitude) * np.sin(longitude), np.sin(latitude)], 1)
    north, around = np.arctan2(centre[2], np.hypot(centre[0], centre[1])), longitude - np.arctan2(centre[1], centre[0])
    x = np.cos(latitude) * np.sin(around)
    y = np.cos(north) * np.sin(latitude) - np.sin(north) * np.cos(latitude) * np.cos(around)
    cosine = np.sin(north) * np.sin(latitude) + np.cos(north) * np.cos(latitude) * np.cos(around)
    sine = np.hypot(x, y)  # sine of the angle between the centre and a point
    stretch = np.divide(np.arctan2(sine, cosine), sine, out=np.ones_like(sine), where=sine > 0)
    return GEO_EARTH_RADIUS * np.stack([x * stretch, y * stretch], axis=1)


def geo(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return the length in km on the idealised sphere between points in radians, truncated after adding 1."""
    q1 = np.cos(a[..., 1] - b[..., 1])
    q2 = np.cos(a[..., 0] - b[..., 0])
    q3 = np.cos(a[..., 0] + b[..., 0])
    cosine = 0.5 * ((1.0 + q1) * q2 - (1.0 - q1) * q3)
    return np.floor(GEO_EARTH_RADIUS * np.arccos(np.clip(cosine, -1.0, 1.0)) + 1.0)  # rounding may exceed 1


METRICS: dict[str, Callable[[FloatArray, FloatArray], FloatArray]] = {
    "EUC_2D": euc_2d,
    "CEIL_2D": ceil_2d,
    "ATT": att,
    "GEO": geo,
}
