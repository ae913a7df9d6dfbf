"""Plan and its output formats: text, CSV, JSON, GeoJSON, a map, a chart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from routing_gym.files import write_atomically
from routing_gym.planning.gantt import plan_gantt
from routing_gym.planning.geojson import plan_geojson, plan_json, street_points
from routing_gym.planning.map import plan_frame, plan_html
from routing_gym.planning.routes import Rules
from routing_gym.planning.table import InvalidInput
from routing_gym.planning.task import Task
from routing_gym.planning.text import plan_csv, plan_text
from routing_gym.planning.timetable import PlanData, Unserved, explained, timetable
from routing_gym.problem import AnyProblem
from routing_gym.problems.checks import TOLERANCE


@dataclass(frozen=True, eq=False)
class Plan(PlanData):
    """Routes with their timetable, as returned by `routing_agents.solve`; notebooks show the map. See `PlanData`."""

    def __repr__(self) -> str:
        left_out = f", left out: {len(self.unserved)}" if self.unserved else ""
        stops = f"stops: {len(self.task.stops)}, routes: {len(self.routes)}{left_out}"
        return f"Plan({self.problem}, {stops}, {self.unit}: {self.cost:.10g}, by {self.solver})"

    def __str__(self) -> str:
        return plan_text(self)

    def to_csv(self, path: Any = None) -> str:
        """Return a row for each visit as CSV; write it to `path`, if given."""
        return self._written(plan_csv(self), path)

    def to_json(self, path: Any = None) -> str:
        """Return the plan as JSON; write it to `path`, if given."""
        return self._written(plan_json(self), path)

    def to_geojson(self, path: Any = None) -> str:
        """Return routes and stops as GeoJSON; write it to `path`, if given."""
        return self._written(plan_geojson(self), path)

    def to_html(self, path: Any = None) -> str:
        """Return the map and the Gantt chart as a self-contained HTML page; write it to `path`, if given."""
        return self._written(plan_html(self), path)

    def gantt(self, path: Any = None) -> str:
        """Return the Gantt chart of routes and time windows as SVG; write it to `path`, if given."""
        return self._written(plan_gantt(self), path)

    def with_geometry(self, geometry: Mapping[str, Any]) -> Plan:
        """Return the plan with streets to draw: for each vehicle, a GeoJSON LineString or OSRM's route JSON.

        Raises:
            InvalidInput: A value is neither of them, or the plan does not use the vehicle.
        """
        known = [route.vehicle for route in self.routes]
        if unknown := [str(key) for key in geometry if str(key) not in known]:
            raise InvalidInput(
                f"geometry: found no vehicle {', '.join(unknown)} in the plan; it has {', '.join(known)}"
            )
        degrees = self.task.geographic
        return replace(self, geometry={str(key): street_points(value, degrees) for key, value in geometry.items()})

    def _repr_html_(self) -> str:
        return plan_frame(self)

    @staticmethod
    def _written(text: str, path: Any) -> str:
        if path is not None:
            write_atomically(Path(path), text.encode())
        return text


def plan_of(rules: Rules, routes: Sequence[Sequence[int]], absent: Sequence[int], solver: str) -> Plan:
    """Return the plan for routes of a plain task, given without the depot; the cost is computed again."""
    task = rules.task
    kinds = [(k, rules.kinds[task.type_of(k)], nodes) for k, nodes in enumerate(routes) if len(nodes)]
    planned = tuple(
        timetable(
            kind.task,
            task.vehicle(k),
            [kind.task.depot, *nodes],
            closed=not task.open,
            leaves=kind.leaving_time(nodes),
        )
        for k, kind, nodes in kinds
    )
    unserved = explained(rules, [list(nodes) for nodes in routes], absent)
    lengths = (route.km if task.minimise == "km" else route.minutes for route in planned)
    cost = sum(kind.task.price(length) for (_, kind, _), length in zip(kinds, lengths, strict=True))
    cost += sum(float(task.penalty[node]) for node in absent if np.isfinite(task.penalty[node]))
    return Plan(task, planned, unserved, cost, solver, notes=task.notes)


def loads_of(
    task: Task, rules: AnyProblem, instance: Any, before: list[list[int]], nodes: list[int]
) -> list[float] | None:
    """Return the load after each visit of a route: the prizes collected, or the amount still to deliver.

    Args:
        task: The task.
        rules: Problem of the task.
        instance: Instance of the task.
        before: Earlier routes, which may have delivered to the same stops.
        nodes: The route, without the return.
    """
    if "prize" in task.values:
        return list(np.cumsum(task.values.get("real_prize", task.values["prize"])[nodes]))
    delivered = [rules.amounts(instance, [*before, nodes[: k + 1]])[-1] for k in range(len(nodes))]
    if "load" not in delivered[-1]:
        return None
    loads, units = np.array([amounts["load"][0] for amounts in delivered]), delivered[-1]["load"][1]
    assert units is not None  # a problem with loads has a capacity
    return list((loads[-1] - loads) * task.numbers["capacity"] / units)  # the instance may count in smaller units


def other_plan(task: Task, rules: AnyProblem, instance: Any, actions: Any, cost: float, solver: str) -> Plan:
    """Return the plan of a problem whose routes are not plain, with the problem's own rules and cost."""
    planned = []
    seen: set[int] = set()
    routes = [[int(node) for node in route.nodes] for route in rules.routes(instance, actions)]
    for k, nodes in enumerate(routes):
        closed = len(nodes) > 1 and nodes[-1] == nodes[0]
        seen |= set(nodes)
        way = nodes[:-1] if closed else nodes
        if closed and not rules.has_depot:  # a tour may begin anywhere; the vehicle starts in row 0
            way = way[way.index(0) :] + way[: way.index(0)]
        loads = loads_of(task, rules, instance, routes[:k], way)
        planned.append(timetable(task, task.vehicle(k), way, closed, loads))
    notes, required = task.notes, task.numbers.get("required_prize", 0.0)
    most = float(sum(task.values.get("real_prize", task.values.get("prize", ()))))
    if most < required * (1 - TOLERANCE):
        notes = (*notes, f"all prizes add up to {most:g}, less than required_prize {required:g}: no stop is left out")
    first = int(rules.has_depot)
    words = f"{rules.name} need not visit all"
    unserved = tuple(
        Unserved(node, task.ids[node], task.names[node], "problem", words)
        for node in range(first, len(task.ids))
        if node not in seen
    )
    return Plan(task, tuple(planned), unserved, cost, solver, notes=notes)
