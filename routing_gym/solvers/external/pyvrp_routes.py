"""Plain tasks in PyVRP's form: a matrix of costs for each type of vehicles, pairs as shipments."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from routing_gym.arrays import IntArray
from routing_gym.planning.integers import NEVER, Numbers, of_types, rounded_up, vehicles_of
from routing_gym.solvers.external.pyvrp_shared import Pairs, split_pairs, visits_of


def customers_of(numbers: Numbers) -> tuple[list[int], Pairs]:
    """Return the stops that belong to no pair, and pickups with their deliveries; see `split_pairs`."""
    return split_pairs(numbers.task.stops, numbers.task.pickup_at, (numbers.ready, numbers.due))


def routes_of(numbers: Numbers, routes: Iterable[Any]) -> list[list[int]]:
    """Return the stops of each of PyVRP's routes."""
    customers = customers_of(numbers)
    return [visits_of(route, *customers) for route in routes]


def pyvrp_data(pyvrp: Any, numbers: Numbers, required: Any) -> Any:
    """Return the task in PyVRP's data format.

    Args:
        pyvrp: The package.
        numbers: The task in integers.
        required: Whether each stop must be served: bool (A,).
    """
    task, (singles, pairs) = numbers.task, customers_of(numbers)
    types = [one for one in of_types(numbers) if vehicles_of(one.task)]
    prizes = np.where(np.isinf(task.penalty), numbers.unserved, numbers.price)

    def times(node: int, prefix: str = "") -> dict[str, int]:
        names = {"service_duration": numbers.service, "tw_early": numbers.ready, "tw_late": numbers.due}
        return {prefix + name: int(values[node]) for name, values in names.items()}

    def served(*nodes: int) -> dict[str, Any]:
        must = bool(required[list(nodes)].any())
        return {"required": must, "prize": 0 if must else int(prizes[list(nodes)].sum())}

    clients = [
        pyvrp.Client(node, [int(task.delivery[node])], [int(task.pickup[node])], **times(node), **served(node))
        for node in singles
    ]
    shipments = [
        pyvrp.Shipment(
            source,
            node,
            amount=[int(task.delivery[node])],
            **times(source, "pickup_"),
            **times(node, "delivery_"),
            **served(source, node),
        )
        for source, node in pairs
    ]
    points = np.zeros((len(task.ids), 2)) if task.plane is None else task.plane
    return pyvrp.ProblemData(
        locations=[pyvrp.Location(float(x), float(y)) for x, y in points],
        clients=clients,
        depots=[pyvrp.Depot(row) for row in task.depots],
        vehicle_types=[pyvrp.VehicleType(**vehicle_type(one, profile)) for profile, one in enumerate(types)],
        distance_matrices=[legs_of(one) for one in types],
        duration_matrices=[numbers.durations] * len(types),
        shipments=shipments,
    )


def cost_of(numbers: Numbers) -> float:
    """Return the cost per unit of a vehicle's matrix; if the vehicle costs nothing, that of the dearest one."""
    return numbers.task.cost_per_unit or numbers.dearest


def legs_of(numbers: Numbers) -> IntArray:
    """Return the edge costs for a vehicle; edges to stops that it may not serve cost more than any plan.

    With a limit on km, these are the costs of km, rounded up.
    """
    task, costs = numbers.task, np.rint(cost_of(numbers) * numbers.legs).astype(np.int64)
    if numbers.max_km is not None:
        costs = rounded_up(cost_of(numbers) * numbers.km)
    costs[numbers.forbidden] = numbers.forbidding
    if task.allowed is not None:
        costs[:, np.setdiff1d(np.flatnonzero(~task.allowed), task.depots)] = numbers.forbidding
        np.fill_diagonal(costs, 0)
    return costs


def vehicle_type(numbers: Numbers, profile: int) -> dict[str, Any]:
    """Return the arguments of PyVRP's vehicle type; `profile` is the index of its matrix."""
    task = numbers.task
    vehicle: dict[str, Any] = {"num_available": vehicles_of(task), "tw_early": int(numbers.ready[task.depot])}
    vehicle["fixed_cost"], vehicle["profile"] = numbers.fixed_cost, profile
    vehicle["start_depot"] = vehicle["end_depot"] = task.depots.index(task.depot)
    vehicle["capacity"] = [NEVER if task.capacity is None else int(task.capacity)]
    if np.isfinite(task.due[task.depot]):
        vehicle["tw_late"] = int(numbers.due[task.depot])
    if numbers.max_km is not None:
        vehicle["max_distance"] = int(min(numbers.max_km * cost_of(numbers) + 1e-6, NEVER))
    if not task.cost_per_unit:  # forbidden edges cost nothing either, so the length excludes them
        vehicle["unit_distance_cost"] = 0
        vehicle["max_distance"] = min(vehicle.get("max_distance", NEVER), numbers.forbidding - 1)
    if numbers.max_minutes is not None:
        vehicle["shift_duration"] = numbers.max_minutes
    return vehicle


def serve_alone(numbers: Numbers) -> None:
    """Extend limits that are too short for single customers only because numbers are rounded up.

    Args:
        numbers: Numbers of a task with one depot, where a vehicle may serve each customer alone.
    """
    arrival = numbers.ready[0] + numbers.durations[0]
    numbers.due = np.maximum(numbers.due, arrival)
    ends = np.maximum(arrival, numbers.ready) + numbers.service + numbers.durations[:, 0]
    numbers.due[0] = max(numbers.due[0], ends.max())
    if numbers.max_km is not None:
        legs = legs_of(numbers)
        numbers.max_km = max(numbers.max_km, (legs[0] + legs[:, 0]).max() / cost_of(numbers))
