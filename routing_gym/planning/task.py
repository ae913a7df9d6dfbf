"""Planning task: stops, vehicles, minutes and kilometres, after all checks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import accumulate
from typing import Any, Literal, NamedTuple

import numpy as np

from routing_gym.arrays import BoolArray, FloatArray, IntArray
from routing_gym.problem import AnyProblem
from routing_gym.problems import PROBLEMS, make_problem
from routing_gym.problems.geometry import embedding

Minimise = Literal["minutes", "km"]
DAY = 1440  # minutes
SLACK = 1e-6  # minutes and km of tolerance for rounding


class Driven(NamedTuple):
    """Visit that a vehicle has made, or is driving to; times in minutes."""

    row: int
    arrival: float
    start: float  # of service
    service: float
    departure: float  # may be later than the end of service


@dataclass(frozen=True, eq=False)
class Task:
    """Table of A rows and its vehicles, in minutes and km. Row 0 is a depot if the problem has one.

    Attributes:
        source: Name of the table.
        problem: Name of the problem, such as "VRPTW".
        ids: Ids of the stops; unique.
        names: Names of the stops; by default the ids.
        points: Latitude and longitude in degrees, or x and y, as given: (A, 2); None without coordinates.
        geographic: Whether the points are latitudes and longitudes.
        plane: The points on a plane, in the unit of `km`; None without coordinates.
        minutes: Driving minutes from each stop (row) to each other stop: (A, A).
        km: Lengths of the same edges.
        straight: Whether `km` are the distances of `plane`, and minutes are proportional to them.
        minimise: Quantity that the plan minimises, "minutes" or "km".
        delivery: Units to deliver, times `units`: int64 (A,).
        pickup: Units to pick up, times `units`.
        units: Power of ten that makes all amounts whole.
        ready: Earliest start of service, in minutes: (A,); for the depot, the earliest departure of the vehicles.
        due: Latest start of service, inf for none; for the depot, the latest return; if vehicles stay at their last
            stop, the latest end of its service.
        service: Service minutes at each stop.
        penalty: Cost of leaving a stop out, in the unit that is minimised; inf for stops that must be served.
        mixed: Whether pickups and deliveries may alternate on a route; otherwise all deliveries come first.
        delivers: Whether each route has a delivery, and not only pickups.
        pickup_at: Row of the stop where the goods of a stop are picked up, on the same route, 0 for the depot: int64
            (A,); None if nothing is picked up for another stop. The amount stands at both stops, in `pickup` and in
            `delivery`.
        count: Maximum number of vehicles; None for no limit.
        vehicles: Names of the vehicles, as far as given.
        types: If vehicles differ, one task for each type, with the vehicles of this type only. Capacity, `max_km` and
            the hours of row 0 are then the widest limits of all types, and `max_minutes` is None. The vehicles of
            the first type come first.
        fixed_cost: Cost of each vehicle in use, in the unit that is minimised.
        cost_per_unit: Cost of each minute or km, whichever is minimised.
        allowed: Whether vehicles may serve a stop: bool (A,); None for all stops; see `types`.
        depot: Row where vehicles start and end; see `types`.
        depots: Rows of all depots; row 0 is one of them.
        capacity: Capacity of each vehicle, times `units`; None for no limit.
        max_km: Maximum length of each route; None for no limit.
        max_minutes: Maximum time between departure and return of each route, with service and waiting; None for no
            limit.
        open: Whether vehicles stay at their last stop.
        driven: In `types`, of a vehicle that has left: the depot and the stops that stay at the head of its route, with
            the times of these visits; if it is on its way back, or there, also the return. Such a type has one
            vehicle.
        aboard: In such a type, units on board when the vehicle left its depot, times `units`, also those for stops that
            it does not visit any more.
        goods_for: In such a type, the ids of these stops and of all others whose goods the vehicle left with.
        values: Values of the table by the names of the problem's columns.
        numbers: Values per instance, by name.
        clock: Format of times: minutes, HH:MM, or with the date.
        origin: Midnight that times count from, if the table has dates.
        notes: Messages for the user about units, defaults and unused columns.
    """

    source: str
    problem: str
    ids: tuple[str, ...]
    names: tuple[str, ...]
    points: FloatArray | None
    geographic: bool
    plane: FloatArray | None
    minutes: FloatArray
    km: FloatArray
    straight: bool
    minimise: Minimise
    delivery: IntArray
    pickup: IntArray
    ready: FloatArray
    due: FloatArray
    service: FloatArray
    penalty: FloatArray
    units: int = 1
    mixed: bool = False
    delivers: bool = False
    pickup_at: IntArray | None = None
    count: int | None = None
    vehicles: tuple[str, ...] = ()
    types: tuple[Task, ...] = ()
    fixed_cost: float = 0.0
    cost_per_unit: float = 1.0
    allowed: BoolArray | None = None
    depot: int = 0
    depots: tuple[int, ...] = (0,)
    capacity: int | None = None
    max_km: float | None = None
    max_minutes: float | None = None
    open: bool = False
    driven: tuple[Driven, ...] = ()
    aboard: int = 0
    goods_for: tuple[str, ...] = ()
    values: Mapping[str, FloatArray] = field(default_factory=dict)
    numbers: Mapping[str, float] = field(default_factory=dict)
    clock: Literal["minutes", "clock", "iso"] = "minutes"
    origin: datetime | None = None
    notes: tuple[str, ...] = ()

    @property
    def rules(self) -> AnyProblem:
        """The problem, of the task's size."""
        kind = PROBLEMS[self.problem]
        return make_problem(self.problem, max(kind.min_nodes, len(self.ids) - int(kind.has_depot)))

    @property
    def plain(self) -> bool:
        """Whether any set of routes that visit each stop once is a plan; see `Problem.plain_routes`."""
        return PROBLEMS[self.problem].plain_routes

    @property
    def costs(self) -> FloatArray:
        """The matrix that the plan minimises."""
        return self.minutes if self.minimise == "minutes" else self.km

    @property
    def loaded(self) -> IntArray:
        """Units on board for each stop when a vehicle leaves its depot, times `units`: int64 (A,)."""
        return self.delivery if self.pickup_at is None else np.where(self.pickup_at > 0, 0, self.delivery)

    def load(self, stops: Sequence[int]) -> int:
        """Return the units on board when a vehicle with these stops leaves its depot, times `units`."""
        return self.aboard if self.driven else int(self.loaded[list(stops)].sum())

    @property
    def timed(self) -> bool:
        """Whether any stop or the depot has a time window."""
        return bool((self.ready > 0).any() or np.isfinite(self.due).any())

    @property
    def stops(self) -> list[int]:
        """Rows to visit, without depots; for problems without a depot, without the start."""
        return [row for row in range(len(self.ids)) if row not in self.depots]

    @property
    def sentence(self) -> str:
        """Summary of the task in one line: size, problem, limits and objective."""
        kind = PROBLEMS[self.problem]
        depots = "a depot" if len(self.depots) == 1 else f"{len(self.depots)} depots"
        count = len(self.stops) if kind.has_depot else len(self.ids)
        size = f"{count} stop{'s' * (count != 1)}" + f" and {depots}" * kind.has_depot
        parts = [f"{self.source}: {size}: {self.problem}"]
        if self.pickup_at is not None:
            pairs = int(np.count_nonzero(self.pickup_at))
            parts.append(f"{pairs} pair{'s' * (pairs != 1)} of pickup and delivery")
        elif self.mixed:
            parts.append("pickups and deliveries in any order")
        if self.count is not None:
            parts.append(f"at most {self.count} vehicle{'s' * (self.count != 1)}")
        if self.capacity is not None and (self.delivery.any() or self.pickup.any()):
            least = min((kind.capacity or 0 for kind in self.types), default=self.capacity)
            parts.append(f"capacity {span(least / self.units, self.capacity / self.units)}")
        if self.max_km is not None:
            least_km = min((kind.max_km or 0.0 for kind in self.types), default=self.max_km)
            parts.append(f"routes of at most {span(least_km, self.max_km)} km")
        limits = [kind.max_minutes for kind in self.types or (self,) if kind.max_minutes is not None]
        if limits:
            parts.append(f"vehicles away for at most {span(min(limits), max(limits))} minutes")
        fixed = [kind.fixed_cost for kind in self.types or (self,)]
        if any(fixed):
            parts.append(f"{span(min(fixed), max(fixed))} for each vehicle")
        if kind.maximises:
            return ", ".join([*parts, "maximises the prize"])
        goal = f"the longest route ({self.minimise})" if kind.minimises_longest else self.minimise
        return ", ".join([*parts, f"minimises {goal}"])

    def at(self, minutes: float) -> str:
        """Return a time in the format of the table."""
        if not math.isfinite(minutes):
            return ""
        if self.clock == "minutes":
            return f"{minutes:.1f}"
        whole = math.floor(round(minutes, 3))  # a sum may miss a whole minute by rounding errors
        if self.clock == "iso" and self.origin is not None:
            return (self.origin + timedelta(minutes=whole)).isoformat(timespec="minutes")
        return f"{whole // 60:02d}:{whole % 60:02d}"

    def amount(self, units: float) -> float:
        """Return an amount in the unit of the table."""
        return units / self.units

    def plane_points(self) -> FloatArray:
        """Return points for policies that accept only planes: those given, or an embedding of the matrix."""
        return embedding(self.costs) if self.plane is None else self.plane

    def type_of(self, number: int) -> int:
        """Return the index in `types` of a vehicle, counted from 0; 0 if all vehicles are alike."""
        ends = accumulate(kind.count or 0 for kind in self.types)
        return next((place for place, end in enumerate(ends) if number < end), 0)

    @property
    def prices(self) -> FloatArray:
        """Cost of leaving each stop out: its penalty; for stops that must be served, more than any plan costs: (A,)."""
        optional, longest = np.isfinite(self.penalty), float(self.costs.max())
        route = max(2.0 * longest * kind.cost_per_unit + kind.fixed_cost for kind in self.types or (self,))
        most = len(self.ids) * route + float(self.penalty[optional].sum())
        prices: FloatArray = np.where(optional, self.penalty, max(2.0 * most, SLACK))
        return prices

    @property
    def priced(self) -> bool:
        """Whether vehicles have fixed costs or costs per unit."""
        return any(kind.fixed_cost != 0 or kind.cost_per_unit != 1 for kind in self.types or (self,))

    @property
    def unit(self) -> str:
        """Unit of the cost of routes."""
        return "cost" if self.priced else self.minimise

    def price(self, length: float) -> float:
        """Return the cost of a route of the given minutes or km."""
        return self.fixed_cost + self.cost_per_unit * length

    def driven_by(self, number: int) -> Task:
        """Return the task of the type that a vehicle, counted from 0, belongs to."""
        return self.types[self.type_of(number)] if self.types else self

    def vehicle(self, number: int) -> str:
        """Return the name of a vehicle, counted from 0."""
        return self.vehicles[number] if number < len(self.vehicles) else str(number + 1)

    def replaced(self, **changes: Any) -> Task:
        """Return a copy with changed fields; the types of vehicles change, too."""
        return replace(self, types=tuple(replace(kind, **changes) for kind in self.types), **changes)


def span(least: float, most: float) -> str:
    """Return two numbers as text; a single one if they are equal."""
    return f"{most:g}" if least == most else f"{least:g} to {most:g}"
