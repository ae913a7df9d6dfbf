"""Units of a user's own numbers: the scales of lengths and times, and the fields of an instance in them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from routing_gym.arrays import Array, FloatArray, euclidean
from routing_gym.data.tsplib.instance import unit_scale
from routing_gym.problems.geometry import very_long
from routing_gym.traits import Column

LARGEST_SCALED = 1e9  # bound on scaled lengths and prizes; networks read float32
LARGEST_EDGE = 1e30  # bound on entries of matrices, which may stand for "no road"; sums must be finite in float32
LIMIT_SLACK = 1e-6  # relative; float32 sums of lengths that reach a limit exactly may exceed it by this much
SCALED = ("coords", "matrix", "length", "time")


def is_time(column: Column) -> bool:
    """Return whether the values of a column are times."""
    return column.kind == "time" or column.name == "durations"


def length_scale(values: Mapping[str, FloatArray], matrix_name: str) -> float:
    """Return the length, or duration, in the user's units that is 1 in the instance.

    The scale is the larger side of the box around the coordinates. With the named matrix, whose unit may differ, it is
    multiplied by the ratio of the matrix's mean to the mean distance of the coordinates. Without coordinates, it is the
    largest entry of the matrix. Very long edges do not count.
    """
    matrix = values.get(matrix_name)
    usual = True if matrix is None else ~very_long(matrix)
    if "x" not in values:
        return 1.0 if matrix is None else float(matrix[usual].max()) or 1.0
    coords = np.stack([values["x"], values["y"]], axis=-1)
    extent = unit_scale(coords)
    if matrix is None:
        return extent
    straight = euclidean(coords[:, None], coords[None])[usual] / extent
    return float(matrix[usual].sum() / straight.sum()) if straight.any() and matrix.any() else 1.0


def scaled(column: Column, values: Mapping[str, FloatArray], scales: Mapping[str, float]) -> Array | None:
    """Return the field of a batch of one that a column fills: float64, int64 or bool; None if the column is absent."""
    if column.kind == "coords":
        coords = np.stack([values["x"], values["y"]], axis=-1)
        return ((coords - coords.min(axis=0)) / unit_scale(coords))[None]
    if column.name not in values:
        return None
    value = np.asarray(values[column.name])[None]
    if column.integer or column.kind == "node":
        return value.astype(np.int64)
    if column.kind == "flag":
        return value == 1
    if column.unit is not None:
        value = value / values[column.unit]
    return value / scales[column.name] * (1 + LIMIT_SLACK * column.limit) if column.kind in SCALED else value


def rounded(column: Column, value: Array) -> Array:
    """Round the values of a column from float64 to float32, the type of instances.

    Raises:
        ValueError: A number is too large.
    """
    if value.dtype != np.float64:
        return value
    most = LARGEST_EDGE if column.kind == "matrix" else LARGEST_SCALED
    if value.max() > most:
        raise ValueError(
            f"{column.name}: found up to {value.max():g} after scaling lengths to the unit square, and prizes to the "
            f"required one; expected at most {most:g}; check the units"
        )
    return value.astype(np.float32)
