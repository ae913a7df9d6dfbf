"""PyVRP and OR-Tools for plain tasks: fleets, time windows, pickups, pairs, limits, optional stops, two metrics."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import numpy as np

from routing_gym.arrays import IntArray
from routing_gym.optional import require
from routing_gym.planning.integers import NEVER, Numbers, of_types, rounded_up, vehicles_of
from routing_gym.planning.task import Task
from routing_gym.solvers.external.ortools import guided_local_search, visits
from routing_gym.solvers.external.pyvrp_routes import pyvrp_data, routes_of
from routing_gym.solvers.external.pyvrp_shared import MAX_PENALTY, largest_penalty, search

Routes = list[list[int]]
Stop = Callable[[], bool]  # called between the steps of a solver


@contextmanager
def interrupt_request() -> Iterator[threading.Event]:
    """Context manager: the first Ctrl-C sets the event that is returned; a second one raises KeyboardInterrupt.

    Outside the main thread, and if the program handles Ctrl-C itself, nothing changes.
    """
    asked = threading.Event()
    default = signal.default_int_handler

    def ask(number: int, frame: Any) -> None:
        asked.set()
        signal.signal(signal.SIGINT, default)

    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is not default:
        yield asked
        return
    signal.signal(signal.SIGINT, ask)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, default)


def solve_pyvrp(task: Task, seconds: float, seed: int, stop: Stop = lambda: False) -> Routes:
    """Plan with PyVRP's iterated local search until `stop` returns True; stops that fit nowhere are left out.

    If the number of vehicles is limited and all stops may fit, half of the time is spent on plans that serve all stops.
    Plans of one pair and one or two other stops are hardly improved: the search of PyVRP 0.14 has few neighbours then,
    or none. See also `minimises_km`.

    Raises:
        ImportError: PyVRP is missing; the message names the extra to install.
    """
    pyvrp = require("pyvrp", "solvers")
    if of_both(task) and not minimises_km(task):
        task = exchanged(task)
    numbers = Numbers(task)
    must = np.isinf(task.penalty)
    runtime = require("pyvrp.stop", "solvers").MaxRuntime

    def run(required: Any, share: float, start: Any = None, most: float | None = None) -> Any:
        data, late = pyvrp_data(pyvrp, numbers, required), runtime(share * seconds)
        return search(data, lambda cost: stop() or late(cost), seed, most or largest_penalty(data, numbers.edge), start)

    if task.count is None:
        return routes_of(numbers, run(must, 1.0).best.routes())
    whole = max(task.delivery.sum(), task.pickup.sum())
    share = 1.0
    types = task.types or (task,)
    if task.capacity is None or whole <= sum((kind.count or 0) * (kind.capacity or 0) for kind in types):
        found, share = run(must, 0.5), 0.5
        if found.is_feasible():
            return routes_of(numbers, run(must, 0.5, found.best).best.routes())
    none = np.zeros_like(must)
    found = run(none, share / 2, most=MAX_PENALTY)  # plans are longer with larger penalties
    if found.is_feasible():
        return routes_of(numbers, run(none, share / 2, found.best, MAX_PENALTY).best.routes())
    return routes_of(numbers, run(none, share / 2).best.routes())


def of_both(task: Task) -> bool:
    """Return whether minutes are minimised, and km are limited."""
    return task.minimise == "minutes" and task.max_km is not None


def minimises_km(task: Task) -> bool:
    """Return whether `solve_pyvrp` minimises km instead of minutes: in PyVRP, minutes would include waiting.

    Without time windows and limits on time, km can take the place of the times; see `exchanged`.
    """
    return of_both(task) and any(kind.timed or kind.max_minutes is not None for kind in task.types or (task,))


def exchanged(task: Task) -> Task:
    """Return a task with km in the place of minutes, and minutes in the place of km."""
    return replace(
        task,
        types=tuple(map(exchanged, task.types)),
        minutes=task.km,
        km=task.minutes,
        minimise="km",
        service=np.zeros_like(task.service),
        max_minutes=task.max_km,
        max_km=None,
    )


def solve_ortools(task: Task, seconds: float, seed: int, stop: Stop = lambda: False) -> Routes:
    """Plan with OR-Tools' guided local search until `stop` returns True; stops that fit nowhere are left out.

    The seed is not used.

    Raises:
        ImportError: OR-Tools is missing; the message names the extra to install.
    """
    pywrapcp = require("ortools.constraint_solver.pywrapcp", "solvers")
    numbers = Numbers(task)
    fleet = [kind for kind in of_types(numbers) for _ in range(vehicles_of(kind.task))]
    starts = [one.task.depot for one in fleet]
    manager = pywrapcp.RoutingIndexManager(len(task.ids), len(fleet), starts, starts)
    routing = pywrapcp.RoutingModel(manager)
    factors = {one.task.cost_per_unit for one in fleet}
    matrices = {one: np.rint(one * numbers.legs).astype(int) for one in factors}
    costs = {
        one: routing.RegisterTransitMatrix(np.where(numbers.forbidden, numbers.forbidding, matrix).tolist())
        for one, matrix in matrices.items()
    }
    for vehicle, one in enumerate(fleet):
        routing.SetArcCostEvaluatorOfVehicle(costs[one.task.cost_per_unit], vehicle)
        routing.SetFixedCostOfVehicle(one.fixed_cost, vehicle)
    add_times(routing, manager, numbers, fleet)
    add_loads(routing, manager, task, fleet)
    if numbers.max_km is not None:
        fine = numbers.dearest  # as fine as for costs of 1
        limits = [int(min(fine * (one.max_km or 0.0) + 1e-6, NEVER)) for one in fleet]
        km = routing.RegisterTransitMatrix(rounded_up(fine * numbers.km).tolist())
        routing.AddDimensionWithVehicleCapacity(km, 0, limits, True, "km")
    for node in task.stops:
        routing.AddDisjunction([manager.NodeToIndex(node)], int(numbers.price[node]))
        refusing = [one.task.allowed is not None and not one.task.allowed[node] for one in fleet]
        routing.VehicleVar(manager.NodeToIndex(node)).RemoveValues(np.flatnonzero(refusing).tolist())
    if task.pickup_at is not None:
        add_pairs(routing, manager, task.pickup_at)
    routing.AddSearchMonitor(routing.solver().CustomLimit(stop))
    found = routing.SolveWithParameters(guided_local_search(seconds, "PARALLEL_CHEAPEST_INSERTION"))
    if found is None:
        return []
    return list(filter(None, (visits(routing, manager, found, vehicle) for vehicle in range(len(fleet)))))


def add_times(routing: Any, manager: Any, numbers: Numbers, fleet: list[Numbers]) -> None:
    """Add time windows: the dimension holds the start of service. `fleet` has the numbers of each vehicle."""
    task = numbers.task
    if not any(one.task.timed or one.max_minutes is not None for one in fleet):
        return
    passing = (numbers.durations + numbers.service[:, None]).tolist()
    routing.AddDimension(routing.RegisterTransitMatrix(passing), NEVER, NEVER, False, "time")
    time = routing.GetDimensionOrDie("time")
    for node in task.stops:
        time.CumulVar(manager.NodeToIndex(node)).SetRange(int(numbers.ready[node]), int(numbers.due[node]))
    for vehicle, one in enumerate(fleet):
        depot = one.task.depot
        time.CumulVar(routing.Start(vehicle)).SetMin(int(one.ready[depot]))
        time.CumulVar(routing.End(vehicle)).SetMax(int(one.due[depot]))
        if one.max_minutes is not None:
            time.SetSpanUpperBoundForVehicle(one.max_minutes, vehicle)


def add_pairs(routing: Any, manager: Any, sources: IntArray) -> None:
    """Add pairs: a pickup comes before its delivery, on the same route, or both are left out."""
    solver, size = routing.solver(), len(sources)
    steps = np.ones((size, size), dtype=int).tolist()
    routing.AddDimension(routing.RegisterTransitMatrix(steps), 0, size, True, "steps")
    order = routing.GetDimensionOrDie("steps")
    for node in np.flatnonzero(sources).tolist():
        pickup, delivery = (manager.NodeToIndex(one) for one in (int(sources[node]), node))
        routing.AddPickupAndDelivery(pickup, delivery)
        solver.Add(routing.VehicleVar(pickup) == routing.VehicleVar(delivery))  # -1 if both are left out
        solver.Add(order.CumulVar(pickup) <= order.CumulVar(delivery))


def add_loads(routing: Any, manager: Any, task: Task, fleet: list[Numbers]) -> None:
    """Add the capacity: the amounts still to deliver and already picked up, together, at every stop."""
    if task.capacity is None:
        return
    capacities = [int(one.task.capacity or 0) for one in fleet]
    out = routing.RegisterUnaryTransitVector((-task.loaded).tolist())
    routing.AddDimensionWithVehicleCapacity(out, 0, capacities, False, "out")
    leaving = routing.GetDimensionOrDie("out")
    for vehicle in range(len(fleet)):
        leaving.CumulVar(routing.End(vehicle)).SetValue(0)
    if not task.pickup.any():
        return
    back = routing.RegisterUnaryTransitVector((task.pickup - task.delivery + task.loaded).tolist())
    routing.AddDimensionWithVehicleCapacity(back, 0, capacities, True, "back")
    fetched, solver = routing.GetDimensionOrDie("back"), routing.solver()
    for node in task.stops:
        index = manager.NodeToIndex(node)
        vehicle = solver.Max(routing.VehicleVar(index), 0).Var()  # -1 if the stop is left out
        capacity = solver.Element(capacities, vehicle)
        solver.Add(leaving.CumulVar(index) + fetched.CumulVar(index) <= capacity)


SOLVERS = {"pyvrp": solve_pyvrp, "ortools": solve_ortools}  # solvers of plain tasks, the strongest first


def strongest(task: Task) -> str | None:
    """Return the name of the strongest installed solver that minimises what the task does; None if there is none."""
    fit = (name for name in SOLVERS if name != "pyvrp" or not minimises_km(task))
    return next(filter(installed, fit), None)


def installed(name: str) -> bool:
    """Return whether a solver's package, which has the same name, is installed."""
    return find_spec(name) is not None
