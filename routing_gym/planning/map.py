"""Map of a plan as a self-contained HTML page: SVG, a script, and street tiles if the viewer is online.

The page does not use folium, whose pages fetch Leaflet and six other files and show nothing without them.
"""

from __future__ import annotations

import math
from html import escape
from importlib import resources

import numpy as np

from routing_gym.arrays import FloatArray
from routing_gym.planning.gantt import plan_gantt
from routing_gym.planning.geojson import colour, corners_of, line_of, located
from routing_gym.planning.text import label, times_of
from routing_gym.planning.timetable import PlanData, Visit

WIDTH, HEIGHT, MARGIN = 1000.0, 640.0, 40.0  # size of the picture, in its own units
MERCATOR = 85.0  # latitude in degrees up to which the projection of street tiles is defined


class Projection:
    """Projection to the picture: Web Mercator for geographic positions, unchanged for others; north is up.

    Args:
        plan: Plan whose positions must fit into the picture.
    """

    def __init__(self, plan: PlanData) -> None:
        task = plan.task
        lines = [line_of(plan, route) for route in plan.routes]
        self.tiles = task.geographic and bool(np.abs(located(plan)[:, 1]).max() <= MERCATOR)
        self.geographic = task.geographic
        points = np.concatenate([*(lines or [located(plan)]), left_out(plan)])
        world = self.world(points)
        low, high = world.min(axis=0), world.max(axis=0)
        extent = np.maximum(high - low, 1e-7 if self.geographic else 1e-12)
        self.scale = float(min((WIDTH - 2 * MARGIN) / extent[0], (HEIGHT - 2 * MARGIN) / extent[1]))
        self.origin = (low + high) / 2 - np.array([WIDTH, HEIGHT]) / 2 / self.scale

    def world(self, points: FloatArray) -> FloatArray:
        """Return positions on a world map of width 1, with y downwards."""
        if not self.geographic:
            return np.stack([points[:, 0], -points[:, 1]], axis=-1)
        latitude = np.radians(np.clip(points[:, 1], -MERCATOR - 4, MERCATOR + 4))
        y = 0.5 - np.log(np.tan(math.pi / 4 + latitude / 2)) / (2 * math.pi)
        return np.stack([points[:, 0] / 360 + 0.5, y], axis=-1)

    def __call__(self, points: FloatArray) -> FloatArray:
        """Return positions in the picture."""
        return np.asarray((self.world(points) - self.origin) * self.scale)


def left_out(plan: PlanData) -> FloatArray:
    """Return the positions of stops left out; longitudes are within half a turn of the first route's start."""
    points = located(plan)[[one.row for one in plan.unserved]].astype(float)
    if plan.task.geographic and plan.routes:
        anchor = corners_of(plan, plan.routes[0])[0, 0]
        points[:, 0] = anchor + (points[:, 0] - anchor + 180) % 360 - 180
    return points


def plan_html(plan: PlanData) -> str:
    """Return the HTML page: the map, a legend that hides vehicles, the Gantt chart. Text from the table is escaped.

    Raises:
        InvalidInput: The stops have no coordinates.
    """
    project = Projection(plan)
    routes, legend = [], []
    for number, route in enumerate(plan.routes):
        line = " ".join(f"{x:.2f},{y:.2f}" for x, y in project(line_of(plan, route)))
        spots = project(corners_of(plan, route))
        shapes = [
            f'<polyline class="line" points="{line}"><title>{escape(route_words(plan, number))}</title></polyline>'
        ]
        for place, visit in enumerate(route.visits):
            if visit.row != route.visits[0].row:
                shapes.append(spot(spots[place], escape(visit_words(plan, number, visit)), str(place), "stop"))
        style = f'style="--colour:{colour(number)}"'
        routes.append(f'<g class="route" data-route="{number}" {style}>{"".join(shapes)}</g>')
        legend.append(
            f'<label {style}><input type="checkbox" checked data-route="{number}"><i></i>'
            f"{escape(route_words(plan, number))}</label>"
        )
    starts = {route.visits[0].row: k for k, route in enumerate(plan.routes)}
    others = []
    for row, k in starts.items():
        place = project(corners_of(plan, plan.routes[k]))[0]
        words = f"{label(plan.task.ids[row], plan.task.names[row])}\nstart"
        others.append(spot(place, escape(words), "", "depot"))
    for one, place in zip(plan.unserved, project(left_out(plan)), strict=True):
        words = f"{label(one.id, one.name)}\nleft out: {one.reason}: {one.explanation}"
        others.append(spot(place, escape(words), "", "unserved"))
    template = (resources.files("routing_gym.planning") / "map.html").read_text("utf-8")
    world = f"{project.origin[0]:.12g},{project.origin[1]:.12g},{1 / project.scale:.12g}" if project.tiles else ""
    longest = "longest route " * plan.task.rules.minimises_longest
    parts = {
        "TITLE": escape(plan.task.sentence),
        "COST": escape(
            f"{longest}{plan.cost:.6g} {plan.unit}, {plan.km:.1f} km, {plan.minutes:.0f} min of driving; {plan.solver}"
        ),
        "VIEW": f"0 0 {WIDTH:g} {HEIGHT:g}",
        "WORLD": world,
        "ROUTES": "".join(routes),
        "OTHERS": "".join(others),
        "LEGEND": "".join(legend),
        "GANTT": plan_gantt(plan),
    }
    pieces = template.split("{{")
    return pieces[0] + "".join(parts[piece.split("}}", 1)[0]] + piece.split("}}", 1)[1] for piece in pieces[1:])


def spot(place: FloatArray, words: str, inside: str, kind: str) -> str:
    """Return one stop as SVG; `words` must be escaped."""
    x, y = place
    shape = '<rect x="-8" y="-8" width="16" height="16" rx="3"/>' if kind == "depot" else '<circle r="9"/>'
    text = f"<text>{inside}</text>" if inside else ""
    head = (
        f'<g class="spot {kind}" tabindex="0" data-x="{x:.2f}" data-y="{y:.2f}" transform="translate({x:.2f} {y:.2f})">'
    )
    return f"{head}<title>{words}</title>{shape}{text}</g>"


def route_words(plan: PlanData, number: int) -> str:
    """Return the legend text of a route."""
    route = plan.routes[number]
    return f"{route.title}, {route.km:.1f} km, {route.minutes:.0f} min"


def visit_words(plan: PlanData, number: int, visit: Visit) -> str:
    """Return the tooltip of a stop."""
    task, route = plan.task, plan.routes[number]
    lines = [label(visit.id, visit.name), f"vehicle {route.vehicle}"]
    lines += times_of(task, visit)
    lines.append(f"waits {visit.waiting:.0f} min, service {visit.service:.0f} min")
    lines.append(f"load {visit.load:g}, {visit.km:.1f} km so far")
    return "\n".join(lines)


def plan_frame(plan: PlanData) -> str:
    """Return the page in a frame for notebooks; without coordinates, the table as text."""
    if plan.task.points is None:
        return f"<pre>{escape(str(plan))}</pre>"
    page = escape(plan_html(plan), quote=True)
    style = "width:100%;height:640px;border:1px solid #ccc"
    # OpenStreetMap requires a Referer, which only a frame of the same origin sends. All text of the page is escaped.
    may = "allow-scripts allow-same-origin allow-popups allow-popups-to-escape-sandbox"
    return f'<iframe sandbox="{may}" style="{style}" title="map of the plan" loading="lazy" srcdoc="{page}"></iframe>'
