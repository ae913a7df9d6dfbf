"""Conversion of instances of vehicle routing problems to tasks for `Search` and PyVRP, and of routes to actions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from routing_gym.arrays import FloatArray, IntArray
from routing_gym.data import FileInstance
from routing_gym.data.tsplib.fleet_rules import FleetRules
from routing_gym.data.tsplib.instance import RouteRules
from routing_gym.planning.task import Task
from routing_gym.problem import AnyProblem, join_routes
from routing_gym.problems.geometry import all_durations, all_lengths


def task_of(problem: AnyProblem, instance: Any, unit: float = 1.0) -> Task:
    """Convert an instance to a task, whose km and minutes are lengths and times of the instance, times `unit`.

    Args:
        problem: Problem of the instance, with a depot and `plain_routes`.
        instance: One instance: a NumPy batch of size 1.
        unit: Factor of all lengths, times and costs.
    """
    given = {name: value[0] for name, value in vars(instance).items() if value is not None}
    names = tuple(map(str, range(problem.num_actions)))
    demand, source = given["demand"], given.get("pickup")
    collected = given.get("backhaul", np.zeros(len(names), dtype=bool)) if source is None else source == 0
    mixed = source is not None or problem.mixed_backhauls

    def scaled(field: str, default: float) -> FloatArray:
        return unit * given[field].astype(np.float64) if field in given else np.full(len(names), default)

    task = Task(
        source=problem.name,
        problem=problem.name,
        ids=names,
        names=names,
        points=None,
        geographic=False,
        plane=None,
        minutes=unit * all_durations(instance)[0].astype(np.float64),
        km=unit * all_lengths(instance)[0].astype(np.float64),
        straight=False,
        minimise="km",
        delivery=np.where(collected, 0, demand),
        pickup=np.where(collected, demand, 0),
        ready=scaled("ready_time", 0.0),
        due=scaled("due_time", np.inf),
        service=scaled("service_time", 0.0),
        penalty=scaled("penalty", np.inf),
        mixed=mixed,
        pickup_at=source,
        depots=tuple(range(problem.num_depots)),
        max_km=unit * float(given["max_length"]) if "max_length" in given else None,
        open=problem.open_routes,
    )
    if task.open:  # the depots may close before the last service
        task.due[list(task.depots)] = np.inf
    fixed_cost = scaled("fixed_cost", 0.0).tolist()
    types = [
        {
            "depot": depot,
            "count": int(given["num_vehicles"][depot]) if "num_vehicles" in given else problem.num_nodes,
            "capacity": int(given["vehicle_capacity"][depot] if "vehicle_capacity" in given else given["capacity"]),
            "fixed_cost": fixed_cost[depot],
            "cost_per_unit": float(given["cost_per_length"][depot]) if "cost_per_length" in given else 1.0,
            "allowed": given["eligible"][depot] if "eligible" in given else None,
        }
        for depot in task.depots
    ]
    dearest = {key: max(kind[key] for kind in types) for key in ("fixed_cost", "cost_per_unit")}
    return with_vehicles(replace(task, **dearest), types)


def with_vehicles(task: Task, types: Sequence[dict[str, Any]]) -> Task:
    """Return a task in which the fields of the vehicles at each depot are changed."""
    kinds = [replace(kind, **changes) for kind, changes in zip(task.types or len(types) * (task,), types, strict=True)]
    if len(kinds) == 1:
        return kinds[0]
    counts = [kind.count or 0 for kind in kinds]
    return replace(task, types=tuple(kinds), count=sum(counts) if min(counts) < len(task.stops) else None)


def task_of_file(source: FileInstance) -> Task:
    """Convert the instance of a file to a task in the file's integers, with the limits that only the file states."""
    nodes, rules = np.arange(source.problem.num_actions), source.rules
    task = task_of(source.problem, source.instance, source.scale * source.unit)
    legs = source.legs(nodes[:, None], nodes[None]).astype(np.float64)
    task = task.replaced(km=legs, minutes=legs)
    if rules is None:
        return task
    if isinstance(rules, RouteRules):
        task = task.replaced(delivers=rules.backhaul is not None, penalty=np.full(len(nodes), np.inf))
    if rules.windows is not None:
        ready, due, service = rules.windows.T.astype(np.float64)
        task = task.replaced(ready=ready, due=due, service=service)
    if isinstance(rules, FleetRules):
        if rules.max_length is not None:
            task = task.replaced(max_km=float(rules.max_length[0]))  # the reader refuses limits that differ
        optional = np.zeros(len(nodes)) if rules.prize is None else rules.prize
        task = task.replaced(penalty=np.where(optional > 0, task.penalty, np.inf))
        longest = [None] * len(rules.vehicles) if rules.max_duration is None else rules.max_duration.tolist()
        limits = zip(map(len, rules.vehicles), longest, strict=True)
        return with_vehicles(task, [{"count": count, "max_minutes": most} for count, most in limits])
    return task if rules.num_vehicles is None else with_vehicles(task, [{"count": rules.num_vehicles}])


def stops_of(problem: AnyProblem, actions: Iterable[int]) -> list[list[int]]:
    """Return the customers of each route of a tour."""
    return [[node for node in nodes if node >= problem.num_depots] for nodes in problem.split(list(map(int, actions)))]


def actions_of(task: Task, routes: Iterable[Sequence[int]], absent: Sequence[int]) -> IntArray:
    """Return the actions (T,) of an instance's tour from the customers of each vehicle and those left out."""
    starts = [(task.driven_by(vehicle).depot, customers) for vehicle, customers in enumerate(routes)]
    return np.array(join_routes(starts, ends=bool(absent)), dtype=np.int64)
