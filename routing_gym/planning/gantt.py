"""Gantt chart of a plan as SVG: the time window, waiting and service of each stop, grouped by vehicle."""

from __future__ import annotations

import math
from collections.abc import Callable
from html import escape

from routing_gym.planning.geojson import colour
from routing_gym.planning.task import Task
from routing_gym.planning.text import label, times_of
from routing_gym.planning.timetable import PlanData, Visit

ROW, LEFT, WIDTH, TOP = 16, 210, 700, 34  # pixels
STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 180, 240, 360, 720, 1440)  # minutes between lines
MOST_LINES = 12
LONGEST_LABEL = 30


def plan_gantt(plan: PlanData) -> str:
    """Return the chart as one SVG element; text from the table is escaped."""
    task = plan.task
    begin, end = horizon(plan)
    scale = WIDTH / max(end - begin, 1e-9)

    def x(minutes: float) -> float:
        return LEFT + (min(max(minutes, begin), end) - begin) * scale

    rows, y = [], TOP
    for number, route in enumerate(plan.routes):
        rows.append(
            f'<text x="4" y="{y + 12}" class="vehicle" fill="{colour(number)}">vehicle {escape(route.vehicle)}</text>'
        )
        y += ROW
        for visit in route.stops:
            rows += bars(task, visit, y, colour(number), x)
            y += ROW
    lines = [
        f'<line x1="{x(at):.1f}" x2="{x(at):.1f}" y1="{TOP - 6}" y2="{y}" class="grid"/>'
        f'<text x="{x(at):.1f}" y="{TOP - 12}" class="hour">{escape(task.at(at))}</text>'
        for at in ticks(begin, end)
    ]
    style = (
        "<style>.gantt text{font:11px system-ui,sans-serif;fill:#333}.gantt .vehicle{font-weight:600}"
        ".gantt .hour{text-anchor:middle;fill:#666}.gantt .grid{stroke:#ddd}.gantt .window{fill:#dfe6ee}"
        ".gantt .waiting{fill:#bbb}</style>"
    )
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="gantt" viewBox="0 0 {LEFT + WIDTH + 30} {y + 8}" role="img">'
    )
    return f"{head}<title>Time windows, waiting and service</title>{style}{''.join(lines)}{''.join(rows)}</svg>"


def horizon(plan: PlanData) -> tuple[float, float]:
    """Return the earliest and the latest time of the chart."""
    times = [time for route in plan.routes for visit in route.visits for time in (visit.arrival, visit.departure)]
    return (min(times), max(times)) if times else (0.0, 1.0)


def ticks(begin: float, end: float) -> list[float]:
    """Return round times for the grid lines, about a dozen at most."""
    step = next((one for one in STEPS if (end - begin) / one <= MOST_LINES), max(end - begin, 1.0))
    if end - begin < STEPS[0]:  # time units other than minutes
        step = (end - begin) / 4 or 1.0
    first = math.ceil(begin / step - 1e-9)
    return [step * k for k in range(first, math.floor(end / step + 1e-9) + 1)]


def bars(task: Task, visit: Visit, y: int, fill: str, x: Callable[[float], float]) -> list[str]:
    """Return the row of one visit: label, time window, waiting and service, with the times as a tooltip."""
    name = label(visit.id, visit.name)
    short = name if len(name) <= LONGEST_LABEL else f"{name[: LONGEST_LABEL - 3]}..."
    opens, closes = float(task.ready[visit.row]), float(task.due[visit.row])
    parts = [f'<text x="14" y="{y + 12}">{escape(short)}</text>']

    def bar(kind: str, begin: float, end: float, extra: str = "") -> None:
        width = max(x(end) - x(begin), 2.0)
        parts.append(
            f'<rect class="{kind}" x="{x(begin):.1f}" y="{y + 2}" width="{width:.1f}" height="{ROW - 4}"{extra}/>'
        )

    if opens > 0 or math.isfinite(closes):
        bar("window", opens, closes)
    if visit.waiting > 0:
        bar("waiting", visit.arrival, visit.start)
    bar("service", visit.start, visit.start + visit.service, f' fill="{fill}"')
    told = escape("\n".join([name, *times_of(task, visit)]))
    return [f"<g><title>{told}</title>{''.join(parts)}</g>"]
