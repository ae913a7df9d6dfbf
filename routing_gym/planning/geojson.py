"""JSON and GeoJSON (RFC 7946) of a plan, and streets from GeoJSON or OSRM's route JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from routing_gym.arrays import FloatArray
from routing_gym.data.cells import LARGEST
from routing_gym.planning.table import InvalidInput
from routing_gym.planning.timetable import PlanData, PlannedRoute

COLOURS = (  # Paul Tol's "bright" and "vibrant" schemes, distinct for colour-blind readers
    *("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377"),
    *("#ee7733", "#0077bb", "#33bbee", "#ee3377", "#cc3311", "#009988"),
)

MOST_DEGREES = (540.0, 90.0)  # longitude, which may continue beyond the date line, and latitude


def colour(number: int) -> str:
    """Return the colour of a vehicle, counted from 0; after twelve, further hues far from each other."""
    return COLOURS[number] if number < len(COLOURS) else f"hsl({number * 137.508 % 360:.0f}, 65%, 42%)"


def plan_json(plan: PlanData) -> str:
    """Return the plan as JSON: routes with their visits, stops left out, costs and notes."""
    task = plan.task
    routes = []
    for route in plan.routes:
        visits = [
            asdict(visit) | {"arrival_time": task.at(visit.arrival), "departure_time": task.at(visit.departure)}
            for visit in route.visits
        ]
        about = {"vehicle": route.vehicle, "km": route.km, "minutes": route.minutes, "goods_for": route.goods_for}
        routes.append(about | {"visits": visits})
    document = {
        "problem": task.problem,
        "summary": task.sentence,
        "origin": None if task.origin is None else task.origin.isoformat(),
        "unit": plan.unit,
        "cost": plan.cost,
        "km": plan.km,
        "minutes": plan.minutes,
        "solver": plan.solver,
        "costs": dict(plan.costs),
        "seconds": plan.seconds,
        "routes": routes,
        "unserved": [asdict(one) for one in plan.unserved],
        "notes": list(plan.notes),
    }
    return json.dumps(document, indent=1, allow_nan=False)


def plan_geojson(plan: PlanData) -> str:
    """Return a FeatureCollection: a LineString for each route, a Point for each visit and each stop left out.

    Positions are longitude and latitude (WGS 84), the only ones of RFC 7946. A route across the date line continues
    beyond 180 degrees; map viewers then draw it in one piece.

    Raises:
        InvalidInput: The stops have no latitudes and longitudes.
    """
    if not plan.task.geographic:
        remedy = "add them, or use to_json or to_html"
        raise InvalidInput(f"{plan.task.source}: GeoJSON needs the columns lat and lon, in degrees; {remedy}")
    features: list[dict[str, Any]] = []
    for number, route in enumerate(plan.routes):
        line = line_of(plan, route)
        about = {"vehicle": route.vehicle, "km": round(route.km, 3), "minutes": round(route.minutes, 3)}
        geometry = {"type": "LineString", "coordinates": [[x, y] for x, y in line]}
        features.append(feature(geometry, about | {"stroke": colour(number)}))
        corners = corners_of(plan, route)
        for position, visit in enumerate(route.visits):
            point = {"type": "Point", "coordinates": corners[position].tolist()}
            told = asdict(visit) | {"vehicle": route.vehicle, "position": position, "marker-color": colour(number)}
            features.append(feature(point, told | {"arrival_time": plan.task.at(visit.arrival)}))
    points = located(plan).tolist()
    features += [feature({"type": "Point", "coordinates": points[one.row]}, asdict(one)) for one in plan.unserved]
    return json.dumps({"type": "FeatureCollection", "features": features}, allow_nan=False)


def feature(geometry: Mapping[str, Any], properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return a GeoJSON feature."""
    return {"type": "Feature", "geometry": geometry, "properties": properties}


def located(plan: PlanData) -> FloatArray:
    """Return the positions of all stops, longitude first: (A, 2).

    Raises:
        InvalidInput: The stops have no coordinates.
    """
    if plan.task.points is None:
        raise InvalidInput(f"{plan.task.source}: without lat and lon, or x and y, there is nothing to draw; add them")
    return plan.task.points[:, ::-1] if plan.task.geographic else plan.task.points


def corners_of(plan: PlanData, route: PlannedRoute) -> FloatArray:
    """Return the positions of a route's visits; longitudes have no jumps at the date line."""
    corners = located(plan)[route.rows].astype(float)
    if plan.task.geographic:
        corners[:, 0] = np.unwrap(corners[:, 0], period=360.0)
    return corners


def line_of(plan: PlanData, route: PlannedRoute) -> FloatArray:
    """Return the line to draw for a route: the streets that the caller gave, or straight lines."""
    streets = plan.geometry.get(route.vehicle)
    if streets is None:
        return corners_of(plan, route)
    line = np.asarray(streets, dtype=float).copy()
    line[:, 0] = np.unwrap(line[:, 0], period=360.0)
    return line


def street_points(value: Any, geographic: bool) -> FloatArray:
    """Return the longitudes and latitudes (points, 2) of a GeoJSON LineString, or of OSRM's route JSON.

    Raises:
        InvalidInput: The value is neither of them, or a position is out of range.
    """
    if isinstance(value, Mapping) and isinstance(value.get("routes"), list) and value["routes"]:  # OSRM
        value = value["routes"][0].get("geometry") if isinstance(value["routes"][0], Mapping) else None
    if isinstance(value, Mapping) and value.get("type") == "Feature":
        value = value.get("geometry")
    points = value.get("coordinates") if isinstance(value, Mapping) else value
    if isinstance(points, str):
        raise InvalidInput("geometry: found an encoded polyline; ask OSRM for geometries=geojson")
    try:
        line = np.asarray(points, dtype=float)
    except (TypeError, ValueError):
        line = np.empty(0)
    if line.ndim != 2 or line.shape[1] != 2 or len(line) < 2 or not np.isfinite(line).all():
        raise InvalidInput("geometry: expected a GeoJSON LineString, or OSRM's route JSON with geometries=geojson")
    outside = (np.abs(line) > (MOST_DEGREES if geographic else LARGEST)).any(axis=1)
    if outside.any():
        expected = "degrees, the longitude first" if geographic else f"numbers of at most {LARGEST:g}"
        raise InvalidInput(f"geometry: found the position {line[outside][0].tolist()}; expected {expected}")
    return line
