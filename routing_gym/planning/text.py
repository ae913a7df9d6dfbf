"""A plan as a table for the terminal, and as CSV."""

from __future__ import annotations

import csv
import io
import math
import re

from routing_gym.files import printable
from routing_gym.planning.task import Task
from routing_gym.planning.timetable import PlanData, Visit

HEADERS = ("stop", "arrival", "waiting", "service", "leaves", "load", "km")
# Where a spreadsheet may read a formula, also if it takes semicolons to separate cells.
FORMULA = re.compile(r"""(^|;)(?=[\s"]*[=+\-@])""")


def plan_text(plan: PlanData) -> str:
    """Return the plan as text: a summary, a table for each route, the stops left out, and the costs."""
    task = plan.task
    lines = [task.sentence]
    for route in plan.routes:
        told = f"{route.km:.1f} km, {route.minutes:.1f} min of driving"
        lines += ["", f"{route.title}, {told}"]
        lines += table([HEADERS, *(cells(task, visit) for visit in route.visits)])
    if plan.unserved:
        verb = "is" if len(plan.unserved) == 1 else "are"
        lines += ["", f"{len(plan.unserved)} of {len(task.stops)} stops {verb} left out:"]
        lines += [f"  {label(one.id, one.name)}: {one.reason}: {one.explanation}" for one in plan.unserved]
    what = "longest route" if task.rules.minimises_longest else "cost"
    what = f"{what} ({plan.unit})" if plan.unit in ("km", "minutes") else plan.unit  # else "prize" or "cost"
    told = f"{plan.km:.1f} km, {plan.minutes:.1f} min of driving, by {plan.solver}"
    lines += ["", f"{what} {plan.cost:.2f}, {told}"]
    if len(plan.costs) > 1:
        others = (f"{name} {cost:.2f}{omitted(plan.left_out.get(name, 0))}" for name, cost in plan.costs.items())
        lines.append(f"compared: {', '.join(others)}")
    lines += [f"note: {note}" for note in plan.notes]
    return "\n".join(map(printable, lines))


def omitted(count: int) -> str:
    """Return how many stops a compared plan leaves out, in words."""
    return f" ({count} left out)" if count else ""


def label(key: str, name: str) -> str:
    """Return a stop's id and name; only the id if both are equal."""
    return key if name == key else f"{key} {name}"


def times_of(task: Task, visit: Visit) -> list[str]:
    """Return a line for the time window of a visit's stop, if it has one, and a line for the times of the vehicle."""
    opens, closes = float(task.ready[visit.row]), float(task.due[visit.row])
    window = [f"window {task.at(opens)} to {task.at(closes)}"] if opens > 0 or math.isfinite(closes) else []
    return [*window, f"arrives {task.at(visit.arrival)}, leaves {task.at(visit.departure)}"]


def cells(task: Task, visit: Visit) -> tuple[str, ...]:
    """Return one row of a route's table."""
    numbers = (f"{visit.waiting:.1f}", f"{visit.service:.1f}")
    return (
        label(visit.id, visit.name),
        task.at(visit.arrival),
        *numbers,
        task.at(visit.departure),
        f"{visit.load:g}",
        f"{visit.km:.1f}",
    )


def table(rows: list[tuple[str, ...]]) -> list[str]:
    """Align rows: the first column to the left, the others to the right."""
    rows = [tuple(cell if len(cell) <= 40 else f"{cell[:37]}..." for cell in row) for row in rows]
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    return [
        "  "
        + "  ".join(
            cell.rjust(width) if k else cell.ljust(width)
            for k, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]


def plan_csv(plan: PlanData) -> str:
    """Return a row for each visit and each stop that is left out; no cell can be taken for a formula."""
    task, text = plan.task, io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    header = "vehicle,position,row,id,name,arrival,waiting,start,service,departure,load,km,minutes,reason"
    writer.writerow(header.split(","))
    for route in plan.routes:
        for position, visit in enumerate(route.visits):
            times = (task.at(visit.arrival), f"{visit.waiting:.3f}", task.at(visit.start), f"{visit.service:.3f}")
            ends = (task.at(visit.departure), f"{visit.load:g}", f"{visit.km:.3f}", f"{visit.minutes:.3f}", "")
            writer.writerow([safe(route.vehicle), position, visit.row, safe(visit.id), safe(visit.name), *times, *ends])
    for one in plan.unserved:
        writer.writerow(["", "", one.row, safe(one.id), safe(one.name), *[""] * 8, f"{one.reason}: {one.explanation}"])
    return text.getvalue()


def safe(text: str) -> str:
    """Return a text, on one line, in which a spreadsheet finds no formula: an apostrophe is put before each."""
    return text if text.lstrip("+-").replace(".", "", 1).isdigit() else FORMULA.sub(r"\1'", text)
