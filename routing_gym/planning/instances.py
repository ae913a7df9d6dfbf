"""Conversion of tasks to instances, for policies and solvers of one problem, and of actions to routes.

A plain task may ask for more than its problem: a fleet, several depots, minutes beside km, optional stops. The instance
omits what the problem lacks; `fitting.fit` then makes the routes found keep the limits of the task.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from routing_gym.arrays import FloatArray
from routing_gym.data.own import OwnInstance, columns_of, from_columns
from routing_gym.planning.recognise import Given, recognise_task
from routing_gym.planning.routes import Rules
from routing_gym.planning.task import Task
from routing_gym.problems import PROBLEMS


def plain_instance(rules: Rules) -> tuple[OwnInstance, list[int]]:
    """Return the instance of a plain task's problem, and the row of the task for each of its nodes.

    Stops that no vehicle can serve are omitted.

    Raises:
        ValueError: No stop can be served, goods come both from stops and from the depot, or no instance is valid.
    """
    task = rules.task
    if task.pickup_at is not None and task.loaded.any():
        told = "some stops get goods from other stops, and some from the depot"
        raise ValueError(f"{told}; only the solvers auto, search, pyvrp and ortools support both")
    rows = [0, *(node for node in task.stops if rules.new_routes(rules.unit(node), []))]
    if len(rows) < 2:
        raise ValueError("no stop can be served by any vehicle")
    some = np.ix_(rows, rows)
    declared = task.rules.columns
    timed = any(column.kind == "time" for column in declared)
    metric = (task.minutes if timed else task.costs)[some]
    ratio = ratio_of(metric, task.km[some])
    name = task.problem
    limited = {column.name for column in declared if column.kind == "length" and column.per == "instance"}
    if limited and ratio is None:  # a limit in km cannot be converted to minutes
        left = [column for column in declared if column.name not in limited and column.kind not in ("coords", "matrix")]
        columns = frozenset(column.name for column in left if column.tabular)
        numbers = frozenset(column.name for column in left if column.per == "instance")
        name = recognise_task(Given(columns, numbers, True, True, task.open, task.rules.mixed_backhauls))
    demand = (task.delivery + task.pickup)[rows]
    capacity = int(demand.sum()) if task.capacity is None else task.capacity
    ready = task.ready[rows]
    values: dict[str, Any] = {
        "demand": np.minimum(demand, capacity),
        "capacity": max(capacity, 1),
        "backhaul": (task.pickup > task.delivery)[rows].astype(int),
        "ready_time": ready,
        "service_time": task.service[rows],
        "due_time": closed_windows(task, rows),
        "max_length": (task.max_km or 0.0) * (ratio or 1.0),
        "pickup": [rows.index(rules.sources[row]) for row in rows],
    }
    if len(task.depots) > 1:  # all vehicles of the instance start in row 0, and must reach each stop from there
        values["max_length"] = max(values["max_length"], float((metric[0] + metric[:, 0]).max()))
    plane = task.plane_points()[rows] * (ratio if task.straight and ratio else 1.0)
    values |= {"x": plane[:, 0], "y": plane[:, 1]}
    if not task.straight:
        values["distances"] = metric
    chosen = {key: values[key] for column in columns_of(name) for key in column.keys if key in values}
    return from_columns(name, chosen, name=task.source), rows


def omitted(task: Task, problem: str, num_routes: int) -> list[str]:
    """Return what a plain task asks for, and an instance of a problem omits, in words; see `plain_instance`.

    Args:
        task: The task.
        problem: Problem of the instance.
        num_routes: Number of routes of its solution.
    """
    limited = "max_length" in {column.name for column in columns_of(problem)}
    both = np.minimum(task.delivery, task.pickup)
    asked = {
        "types of vehicles": bool(task.types),
        "costs of vehicles": task.priced and not task.types,
        "the number of vehicles": task.count is not None and num_routes > task.count,
        "penalties": bool(np.isfinite(task.penalty[task.stops]).any()),
        "pickups at the stops of deliveries": task.pickup_at is None and bool((both > 0).any()),
        "max_length": task.max_km is not None and not limited,
        "max_duration": any(kind.max_minutes is not None for kind in task.types or (task,)),
    }
    return [words for words, given in asked.items() if given]


def ratio_of(metric: FloatArray, km: FloatArray) -> float | None:
    """Return the number of metric units per km; None if it differs between edges."""
    if not km.any():
        return 1.0
    ratio = float(metric.sum() / km.sum())
    return ratio if np.allclose(metric, km * ratio, rtol=1e-9, atol=1e-9) else None


def closed_windows(task: Task, rows: list[int]) -> FloatArray:
    """Return the ends of the time windows; missing ones are set so late that each stop can still be served alone.

    If there are several depots, so are those that vehicles from row 0 would miss.
    """
    arrival = np.maximum(task.ready[0] + task.minutes[0], task.ready)
    if task.pickup_at is not None:
        source = task.pickup_at
        arrival = np.maximum(arrival, (arrival + task.service)[source] + task.minutes[source, np.arange(len(source))])
    known = np.where(np.isfinite(task.due), task.due, 0.0)
    home = (np.maximum(arrival, known) + task.service + task.minutes[:, 0])[rows].max()
    due = task.due[rows].copy()
    due[0] = due[0] if np.isfinite(due[0]) else home
    due[~np.isfinite(due)] = due[0]
    if len(task.depots) > 1:
        due = np.maximum(due, arrival[rows])
        due[0] = max(due[0], home)
    return np.asarray(due)


def other_instance(task: Task) -> OwnInstance:
    """Return the instance of a task whose problem is not plain; its lengths are those that the task minimises.

    Raises:
        ValueError: A value is not allowed, or there is a limit in km, which cannot be converted to minutes.
    """
    values: dict[str, Any] = {**task.values, **task.numbers}
    plane = task.plane_points()
    ratio = ratio_of(task.costs, task.km)
    for column in task.rules.columns:
        if column.kind == "length" and column.per == "instance" and column.name in values:
            if ratio is None:
                told = f"{column.name} is in km, and the minutes that are minimised do not follow from km"
                raise ValueError(f"{told}; minimise km, or leave the durations out")
            values[column.name] *= ratio
    scale = ratio if task.straight and ratio else 1.0
    values |= {"x": plane[:, 0] * scale, "y": plane[:, 1] * scale}
    if not task.straight:
        values["distances"] = task.costs
    chosen = {key: values[key] for column in task.rules.columns for key in column.keys if key in values}
    return from_columns(task.problem, chosen, name=task.source)


def routes_in(own: OwnInstance, rows: list[int], actions: Iterable[int]) -> list[list[int]]:
    """Return the stops of each route of a plain instance, as rows of the task, without the depot."""
    chosen = [int(node) for node in actions]
    if not PROBLEMS[own.problem.name].has_depot:
        start = chosen.index(0)
        return [[rows[node] for node in chosen[start + 1 :] + chosen[:start]]]
    return [[rows[node] for node in route.nodes if node] for route in own.problem.routes(own.instance, chosen)]
