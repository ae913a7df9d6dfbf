"""Distances between locations given by latitude and longitude, and a projection for policies that accept only planes.

Geodesics on the WGS 84 ellipsoid (pyproj, MIT licence), also across the date line and near the poles.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from routing_gym.arrays import FloatArray
from routing_gym.optional import require

METRES = 1000.0  # metres per kilometre
WIDEST = 5000.0  # maximum km between two stops


def geodesic_km(points: FloatArray) -> FloatArray:
    """Return the lengths of the shortest paths on the ellipsoid: km (A, A).

    Args:
        points: Latitude and longitude in degrees, (A, 2).

    Raises:
        ImportError: pyproj is missing; the message names the extra to install.
    """
    geod = require("pyproj", "maps").Geod(ellps="WGS84")
    rows, columns = np.triu_indices(len(points), k=1)
    _, _, metres = geod.inv(points[rows, 1], points[rows, 0], points[columns, 1], points[columns, 0])
    lengths = np.zeros((len(points), len(points)))
    lengths[rows, columns] = lengths[columns, rows] = np.asarray(metres) / METRES
    return lengths


def plane_of(points: FloatArray) -> FloatArray:
    """Project locations onto a plane around their centre, in km: azimuthal equidistant, (A, 2).

    Raises:
        ImportError: pyproj is missing; the message names the extra to install.
    """
    pyproj: Any = require("pyproj", "maps")
    latitude, longitude = centre_of(points)
    project = pyproj.Proj(proj="aeqd", lat_0=latitude, lon_0=longitude, ellps="WGS84", units="km")
    east, north = project(points[:, 1], points[:, 0])
    return np.stack([np.asarray(east), np.asarray(north)], axis=-1)


def centre_of(points: FloatArray) -> tuple[float, float]:
    """Return the latitude and longitude of the locations' mean on the sphere, which is valid across the date line."""
    latitude, longitude = np.radians(points).T
    x = (np.cos(latitude) * np.cos(longitude)).mean()
    y = (np.cos(latitude) * np.sin(longitude)).mean()
    z = np.sin(latitude).mean()
    return float(np.degrees(np.arctan2(z, np.hypot(x, y)))), float(np.degrees(np.arctan2(y, x)))
