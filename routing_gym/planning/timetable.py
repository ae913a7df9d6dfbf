"""Timetable of a plan: times, loads and km of all visits, and the reasons why stops are left out.

Times, km and costs are computed here from the task's matrices, independently of the solvers' results.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from routing_gym.planning.insertion import best_place
from routing_gym.planning.routes import Rules
from routing_gym.planning.task import Task


@dataclass(frozen=True)
class Visit:
    """One stop of a route; minutes have the same origin as the times of the table.

    Attributes:
        row: Row in the table; 0 is the depot.
        id: Id of the stop.
        name: Name of the stop.
        arrival: Arrival time of the vehicle.
        waiting: Minutes until the time window opens.
        start: Start of service.
        service: Service minutes.
        departure: Departure time of the vehicle.
        load: Load on board at departure.
        km: Distance since the start of the route.
        minutes: Driving minutes since the start of the route.
    """

    row: int
    id: str
    name: str
    arrival: float
    waiting: float
    start: float
    service: float
    departure: float
    load: float
    km: float
    minutes: float


@dataclass(frozen=True)
class PlannedRoute:
    """One vehicle's route; the first visit is the depot, and so is the last if the vehicle returns.

    Attributes:
        vehicle: Name of the vehicle.
        visits: Its visits.
        goods_for: Ids of the stops whose goods it leaves with; after re-planning, it may not visit all of them.
    """

    vehicle: str
    visits: tuple[Visit, ...]
    goods_for: tuple[str, ...]

    @property
    def stops(self) -> tuple[Visit, ...]:
        """The visits between start and end."""
        last = len(self.visits) - (len(self.visits) > 1 and self.visits[-1].row == self.visits[0].row)
        return self.visits[1:last]

    @property
    def title(self) -> str:
        """Vehicle and number of stops, in words."""
        return f"vehicle {self.vehicle}: {len(self.stops)} stop{'s' * (len(self.stops) != 1)}"

    @property
    def rows(self) -> list[int]:
        """Rows of the visits."""
        return [visit.row for visit in self.visits]

    @property
    def km(self) -> float:
        """Length."""
        return self.visits[-1].km

    @property
    def minutes(self) -> float:
        """Total driving minutes."""
        return self.visits[-1].minutes

    @property
    def waiting(self) -> float:
        """Total minutes of waiting."""
        return sum(visit.waiting for visit in self.visits)


@dataclass(frozen=True)
class Unserved:
    """Stop that is left out.

    Attributes:
        row: Row in the table.
        id: Id of the stop.
        name: Name of the stop.
        reason: "capacity", "window", "distance", "duration", "fleet", "price" (the penalty is less than the cost of the
            detour) or "problem" (the problem does not require all stops).
        explanation: Reason in words.
    """

    row: int
    id: str
    name: str
    reason: str
    explanation: str


@dataclass(frozen=True, eq=False)
class PlanData:
    """Data of a plan; `Plan` adds the output formats.

    Attributes:
        task: Task of the plan.
        routes: One route for each vehicle in use.
        unserved: Stops that are left out.
        cost: Quantity that is minimised: minutes of driving or km, with the costs of vehicles and the penalties of
            stops left out; or the cost that the problem defines (the prize of OP).
        solver: Name of the solver that made the plan.
        costs: Cost of each solver's plan, by solver name.
        left_out: Number of stops that each solver's plan leaves out.
        seconds: Planning time.
        notes: Messages for the user.
        geometry: Streets to draw, by vehicle: (points, 2) of longitude and latitude, as in GeoJSON.
    """

    task: Task
    routes: tuple[PlannedRoute, ...]
    unserved: tuple[Unserved, ...]
    cost: float
    solver: str
    costs: Mapping[str, float] = field(default_factory=dict)
    left_out: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    geometry: Mapping[str, Any] = field(default_factory=dict)

    @property
    def problem(self) -> str:
        """Name of the task's problem."""
        return self.task.problem

    @property
    def unit(self) -> str:
        """Unit of the cost."""
        if self.task.rules.maximises:
            return "prize"
        return self.task.unit

    @property
    def km(self) -> float:
        """Total length."""
        return sum(route.km for route in self.routes)

    @property
    def minutes(self) -> float:
        """Total driving minutes."""
        return sum(route.minutes for route in self.routes)


def timetable(
    task: Task,
    vehicle: str,
    nodes: Sequence[int],
    closed: bool,
    loads: Sequence[float] | None = None,
    leaves: float | None = None,
) -> PlannedRoute:
    """Return the route of a vehicle with all its times.

    Args:
        task: The task.
        vehicle: Name of the vehicle.
        nodes: Rows that it visits, the start first, without the return.
        closed: Whether the vehicle returns.
        loads: Load after each visit, if it does not follow from deliveries and pickups.
        leaves: Departure; by default when the depot opens. The times of `task.driven` are not computed again.
    """
    opens = float(task.ready[nodes[0]]) if nodes[0] in task.depots else 0.0
    time, km, driven = opens if leaves is None else leaves, 0.0, 0.0
    load = task.load(nodes[1:])
    visits = []
    ends = [*nodes, nodes[0]] if closed else list(nodes)
    for k, node in enumerate(ends):
        back = closed and k == len(ends) - 1
        if k:
            before = ends[k - 1]
            leg = task.driven[k].arrival - time if k < len(task.driven) else float(task.minutes[before, node])
            time, driven, km = time + leg, driven + leg, km + float(task.km[before, node])
        arrival = time
        service = 0.0 if back or k == 0 else float(task.service[node])
        start = arrival if back else max(arrival, float(task.ready[node]))
        time = start + service
        if k < len(task.driven):
            _, arrival, start, service, left = task.driven[k]
            time = left if k + 1 < len(ends) else start + service
        if k and not back:
            load += int(task.pickup[node] - task.delivery[node])
        on_board = task.amount(load) if loads is None else loads[min(k, len(loads) - 1)]
        visits.append(
            Visit(
                node,
                task.ids[node],
                task.names[node],
                arrival,
                start - arrival,
                start,
                service,
                time,
                on_board,
                km,
                driven,
            )
        )
    loaded = tuple(task.ids[node] for node in nodes[1:] if task.loaded[node])
    return PlannedRoute(vehicle, tuple(visits), task.goods_for if task.driven else loaded)


def explained(rules: Rules, routes: list[list[int]], absent: Iterable[int]) -> tuple[Unserved, ...]:
    """Return the stops that are left out, with the reason of each one."""
    task = rules.task
    unlimited: dict[str, dict[str, Any]] = {
        "capacity": {"capacity": None},
        "window": {"due": np.full(len(task.due), np.inf)},
        "distance": {"max_km": None},
        "duration": {"max_minutes": None},
    }
    without = cache(lambda limit: Rules(task.replaced(**unlimited[limit])))
    return tuple(explain(rules, routes, node, without) for node in sorted(absent))


def explain(rules: Rules, routes: list[list[int]], node: int, without: Callable[[str], Rules]) -> Unserved:
    """Return the reason why a stop is left out: the limit without which it would fit, alone or into a route.

    `without` returns the rules without a limit.
    """
    task = rules.task
    amount, unit = max(task.delivery[node], task.pickup[node]), rules.unit(node)

    def told(reason: str, words: str) -> Unserved:
        return Unserved(node, task.ids[node], task.names[node], reason, words)

    if np.isfinite(task.penalty[node]) and fits(rules, routes, unit):
        price = sum(task.penalty[list(unit)].tolist())
        return told("price", f"its detour costs more than its penalty of {price:g} {task.unit}")
    serving = [kind for kind in rules.kinds if kind.refused.isdisjoint(unit)]
    largest = max(math.inf if kind.task.capacity is None else kind.capacity for kind in serving or rules.kinds)
    if amount > largest:
        return told("capacity", f"{task.amount(amount):g} units; a vehicle holds {task.amount(largest):g}")
    if not serving:
        pair = "no vehicle may serve both this stop and the other one of its pair"
        return told("fleet", "all vehicles that may serve it have left, without its goods" if len(unit) == 1 else pair)
    roomy = [kind for kind in serving if kind.capacity >= amount]
    ways = [[kind.task.depot, *unit] + [kind.task.depot] * (not task.open) for kind in roomy]
    lengths = [float(task.km[way[:-1], way[1:]].sum()) for way in ways]
    alone = min(lengths)
    limits = [math.inf if kind.task.max_km is None else kind.task.max_km for kind in roomy]
    if all(length > limit for length, limit in zip(lengths, limits, strict=True)):
        who = "a route" if len(roomy) == len(serving) else "a route of a vehicle with room for it"
        return told("distance", f"{alone:.1f} km there and back; {who} may have {max(limits):g}")
    if all(kind.route((*kind.head, *unit)) is None for kind in rules.kinds):
        free = without("duration").kinds
        late = [kind for kind, same in zip(rules.kinds, free, strict=True) if same.route(unit) is not None]
        if late:
            kind = min(late, key=lambda kind: kind.least_duration(unit) - kind.max_minutes)
            least, longest = kind.least_duration(unit), kind.max_minutes
            return told("duration", f"{least:g} minutes there and back; a vehicle may be away for {longest:g}")
        if any(kind.route((*kind.head, *unit)) is not None for kind in without("window").kinds):
            end = "done" if task.open else "back"
            return told("window", f"no vehicle that leaves as early as possible is there, or {end}, in time")
    all_used = sum(bool(nodes) for nodes in routes) >= rules.most_routes
    in_use = f"all {rules.most_routes} vehicles are" if rules.most_routes > 1 else "the only vehicle is"
    vehicles = f"{in_use} in use; one more could serve it" if all_used else "vehicles are left"
    tight = {
        "capacity": f"no vehicle has {task.amount(amount):g} units free",
        "window": "no vehicle can be there in time and keep its other windows",
        "distance": f"no route has {alone:.1f} km left, or less for a detour",
        "duration": "no vehicle may be away for long enough",
    }
    for reason, words in tight.items():
        if fits(without(reason), routes, unit):
            return told(reason, f"{words}; {vehicles}")
    return told("fleet", vehicles)


def fits(rules: Rules, routes: list[list[int]], unit: tuple[int, ...]) -> bool:
    """Return whether a unit fits into a route, or a vehicle is free for it."""
    kinds = [rules.kinds[rules.task.type_of(vehicle)] for vehicle in range(len(routes))]
    made = [kind.route(nodes) for kind, nodes in zip(kinds, routes, strict=True)]
    inserted = any(
        route is not None and bool(best_place(kind, unit, route, len(kind.head), float("inf"))[1])
        for kind, route in zip(kinds, made, strict=True)
    )
    used = [route for route in made if route is not None and route.nodes]
    return inserted or bool(rules.new_routes(unit, used))
