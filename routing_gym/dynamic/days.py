"""Batches of days with requests, and the source that samples them from a static instance like the competition.

The reference is `VRPEnvironment` in the quickstart (MIT licence) of the EURO Meets NeurIPS 2022 Vehicle Routing
Competition. With the same static instance and seed, the requests are the same, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from routing_gym.arrays import BoolArray, FloatArray
from routing_gym.dynamic.static import MAX_TIME, StaticInstance
from routing_gym.problem import InvalidInstance
from routing_gym.problems.checks import check_integer

IntArray = npt.NDArray[np.integer[Any]]

NEVER = 2**31 - 1  # arrival epoch of a slot that holds no request


@dataclass(frozen=True)
class Day:
    """B days with up to N requests each, in the order of arrival, on maps of L locations; location 0 is the depot.

    Request i of a row (i from 0) has the id i + 1, like in the competition. Slots without a request come last, hold
    zeros, and have the arrival epoch `NEVER`. All times are integers in one unit.

    A log of orders takes the shapes of a drawn day, here with two orders for the customers 1 and 2 of `static`::

        day = ResampledDays(static, max_requests=5).draw([np.random.default_rng(0)])
        arrival, customer = np.full_like(day.arrival, NEVER), np.zeros_like(day.customer)
        arrival[0, :2], customer[0, :2] = [1, 2], [1, 2]
        numbers = {name: getattr(static, name)[customer] for name in ("time_window", "demand", "service_time")}
        day = dataclasses.replace(day, arrival=arrival, customer=customer, **numbers)
        env = gym.make("routing/DVRPTW", static=static, max_requests=5)
        env.reset(options={"instance": day})
    """

    durations: IntArray  # int32 (B, L, L), driving from row to column; one broadcast matrix if the days share it
    coords: npt.NDArray[np.float32] | None  # float32 (B, L, 2), in the unit square
    closing: IntArray  # int64 (B,), latest return to the depot
    capacity: IntArray  # int64 (B,), of every vehicle
    epoch_duration: IntArray  # int64 (B,)
    margin: IntArray  # int64 (B,), time from the start of an epoch to the departure of its vehicles
    first_epoch: IntArray  # int64 (B,)
    last_epoch: IntArray  # int64 (B,), epoch in which all open requests must leave
    arrival: IntArray  # int64 (B, N), epoch in which the request becomes known
    customer: IntArray  # int64 (B, N), location of the request
    time_window: IntArray  # int64 (B, N, 2), earliest and latest start of service
    demand: IntArray  # int64 (B, N)
    service_time: IntArray  # int64 (B, N)

    @property
    def num_slots(self) -> int:
        """Number of request slots N."""
        return int(self.arrival.shape[1])

    def depot_durations(self) -> tuple[IntArray, IntArray]:
        """Return the durations from the depot to each request, and back: int64 (B, N) each."""
        rows = np.arange(len(self.customer))[:, None]
        return self.durations[rows, 0, self.customer], self.durations[rows, self.customer, 0]


class DaySource(Protocol):
    """Source of random days. `num_slots`, `num_locations` and `has_coords` are the same for all its days."""

    @property
    def num_slots(self) -> int: ...

    @property
    def num_locations(self) -> int: ...

    @property
    def has_coords(self) -> bool: ...

    def draw(self, generators: Sequence[np.random.Generator]) -> Day:
        """Draw one day from each random number generator."""

    def redraw(self, day: Day, generators: Sequence[np.random.Generator]) -> Day:
        """Draw other requests on the maps of the days (B,), with one random number generator each."""


@dataclass(frozen=True)
class ResampledDays:
    """Days sampled from a static instance, like in the competition.

    Every epoch draws `max_requests` candidates. Customer, time window, demand and service time come from four
    customers of the static instance, drawn independently. A candidate is dropped if a vehicle that leaves at the
    epoch's departure time cannot serve it and be back in time.

    Attributes:
        static: Static instance.
        epoch_duration: Duration of an epoch.
        margin: Time from the start of an epoch to the departure of its vehicles.
        max_requests: Number of candidates in each epoch.
    """

    instance_type: ClassVar[type] = Day

    static: StaticInstance
    epoch_duration: int = 3600
    margin: int = 3600
    max_requests: int = 100

    def __post_init__(self) -> None:
        if not isinstance(self.static, StaticInstance):
            raise TypeError(f"static: expected a path or a StaticInstance, got {type(self.static).__name__}")
        for field, least in (("epoch_duration", 1), ("margin", 0), ("max_requests", 1)):
            object.__setattr__(self, field, check_integer(field, getattr(self, field), least))
        check_horizon(self.epoch_duration, self.margin, int(self.static.time_window.max()))
        leaves, closes = self.epochs[0] * self.epoch_duration + self.margin, int(self.static.time_window[1:, 1].max())
        if leaves > closes:
            raise ValueError(
                f"vehicles of the first epoch leave at {leaves}, after the last time window has closed at {closes}: "
                "choose a smaller margin and epoch_duration, in the unit of the instance's times"
            )

    @property
    def epochs(self) -> tuple[int, int]:
        """First and last epoch whose departure precedes the opening of a time window."""
        opens = self.static.time_window[1:, 0]
        first, last = (max((int(time) - self.margin) // self.epoch_duration, 0) for time in (opens.min(), opens.max()))
        return first, last

    @property
    def num_slots(self) -> int:
        first, last = self.epochs
        return (last - first + 1) * self.max_requests

    @property
    def num_locations(self) -> int:
        return len(self.static.durations)

    @property
    def has_coords(self) -> bool:
        return self.static.coords is not None

    @cached_property
    def _map(self) -> tuple[IntArray, npt.NDArray[np.float32] | None]:
        """Durations and coordinates of all days; always the same arrays, so that lanes can share them."""
        coords = self.static.coords
        return self.static.durations.astype(np.int32), None if coords is None else unit_square(coords)

    def redraw(self, day: Day, generators: Sequence[np.random.Generator]) -> Day:
        """Draw other requests; all days have the map of the static instance."""
        return self.draw(generators)

    def draw(self, generators: Sequence[np.random.Generator]) -> Day:
        """Draw one day from each random number generator."""
        static, (first, last) = self.static, self.epochs
        size, num_epochs = len(generators), last - first + 1
        # One draw for the whole day gives the same stream as four draws per epoch, in this order.
        shape = (num_epochs, 4, self.max_requests)
        drawn = np.stack([rng.integers(self.num_locations - 1, size=shape) for rng in generators]) + 1
        customer, window, demand, service = (drawn[:, :, k].reshape(size, -1) for k in range(4))

        def each(value: int) -> IntArray:
            return np.full(size, value, dtype=np.int64)

        return keep_feasible(
            Day(
                durations=share(self._map[0], size),
                coords=None if self._map[1] is None else share(self._map[1], size),
                closing=each(int(static.time_window[0, 1])),
                capacity=each(int(static.capacity)),
                epoch_duration=each(self.epoch_duration),
                margin=each(self.margin),
                first_epoch=each(first),
                last_epoch=each(last),
                arrival=np.tile(np.repeat(np.arange(first, last + 1), self.max_requests), (size, 1)),
                customer=customer,
                time_window=static.time_window[window],
                demand=static.demand[demand],
                service_time=static.service_time[service],
            )
        )


def share(values: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    """Repeat an array along a new first axis without copying it."""
    return np.broadcast_to(values, (size, *values.shape))


def routes_of(tour: Iterable[int]) -> list[list[int]]:
    """Return the routes of a tour, with 0 for the depot, as lists of ids of requests."""
    return [list(map(int, route)) for is_route, route in groupby(tour, bool) if is_route]


def unit_square(coords: FloatArray) -> npt.NDArray[np.float32]:
    """Move and scale coordinates (..., L, 2) into the unit square, both axes by the same factor."""
    low = coords.min(axis=-2, keepdims=True)
    extent = (coords - low).max(axis=(-2, -1), keepdims=True)
    return np.asarray(((coords - low) / np.where(extent > 0, extent, 1.0)).astype(np.float32))


def latest_starts(day: Day) -> IntArray:
    """Return the latest start of service that keeps the time window and the return to the depot: int64 (B, N)."""
    _, back = day.depot_durations()
    return np.asarray(np.minimum(day.time_window[..., 1], day.closing[:, None] - day.service_time - back))


def latest_departures(day: Day) -> IntArray:
    """Return the latest departure from the depot with which a request can be served alone: int64 (B, N).

    It is -1 for requests that cannot be served at all.
    """
    there, _ = day.depot_durations()
    latest = latest_starts(day)
    return np.where(day.time_window[..., 0] <= latest, latest - there, -1)


def keep_feasible(day: Day, drawn: BoolArray | None = None) -> Day:
    """Remove the candidates that cannot be served when they arrive, and move the others to the front, in order.

    Args:
        day: B days of candidates.
        drawn: Mask of the slots that hold a candidate, bool (B, N); None for all.
    """
    departure = day.arrival * day.epoch_duration[:, None] + day.margin[:, None]
    kept = departure <= latest_departures(day)
    if drawn is not None:
        kept &= drawn
    order = np.argsort(~kept, axis=1, kind="stable")
    rows = np.arange(len(order))[:, None]
    exists = np.arange(day.num_slots) < kept.sum(axis=1)[:, None]

    def front(values: IntArray, filler: int = 0) -> IntArray:
        mask = exists if values.ndim == 2 else exists[..., None]
        return np.where(mask, values[rows, order], filler)

    changed = {name: front(getattr(day, name)) for name in ("customer", "time_window", "demand", "service_time")}
    return Day(**{**vars(day), **changed, "arrival": front(day.arrival, NEVER)})


def check_horizon(epoch_duration: int, margin: int, closing: int) -> None:
    """Check that times are within the range in which sums are exact.

    Raises:
        ValueError: A time exceeds `MAX_TIME`.
    """
    for name, value in (("epoch_duration", epoch_duration), ("margin", margin), ("the closing time", closing)):
        if value > MAX_TIME:
            raise ValueError(f"{name} is {value}, expected at most {MAX_TIME}; choose a larger unit")


def check_day(day: Day, source: DaySource) -> None:
    """Check days from the user.

    Raises:
        InvalidInstance: A field is invalid. The message has the field or the request, and the fault.
    """
    size = len(day.arrival) if np.ndim(day.arrival) else 0
    slots, places = source.num_slots, source.num_locations
    shapes: dict[str, tuple[int, ...]] = {
        "arrival": (size, slots),  # first: the others are compared with its size
        "durations": (size, places, places),
        **dict.fromkeys(("closing", "capacity", "epoch_duration", "margin", "first_epoch", "last_epoch"), (size,)),
        **dict.fromkeys(("customer", "demand", "service_time"), (size, slots)),
        "time_window": (size, slots, 2),
    }
    for field, shape in shapes.items():
        values = getattr(day, field)
        if not isinstance(values, np.ndarray) or values.dtype not in (np.int64, np.int32) or values.shape != shape:
            found = f"{values.dtype} {values.shape}" if isinstance(values, np.ndarray) else type(values).__name__
            raise InvalidInstance(f"{field}: found {found}, expected int64 {shape}")
        if values.min() < 0 or (field != "arrival" and values.max() > MAX_TIME):
            raise InvalidInstance(f"{field}: found {values.min()} to {values.max()}, expected 0 to {MAX_TIME}")
    if (day.coords is not None) != source.has_coords:
        raise InvalidInstance(
            f"coords: found {type(day.coords).__name__}; this environment's days have "
            f"{'coordinates' if source.has_coords else 'none'}"
        )
    if day.coords is not None and day.coords.shape != (size, places, 2):
        raise InvalidInstance(f"coords: found shape {day.coords.shape}, expected {(size, places, 2)}")
    if day.coords is not None and not ((day.coords >= 0) & (day.coords <= 1)).all():
        raise InvalidInstance(
            "coords: found numbers outside of 0 to 1; scale both axes into the unit square by one factor"
        )
    if (stays := np.diagonal(day.durations, axis1=1, axis2=2)).any():
        raise InvalidInstance(f"durations: found {stays.max()} on the diagonal, expected 0 from a location to itself")
    for field in ("epoch_duration", "capacity", "closing"):
        if (least := getattr(day, field).min()) < 1:
            raise InvalidInstance(f"{field}: found {least}, expected at least 1")
    if (late := day.first_epoch > day.last_epoch).any():
        row = int(late.argmax())
        told = f"row {row} begins in epoch {day.first_epoch[row]}, after the last, {day.last_epoch[row]}"
        raise InvalidInstance(f"first_epoch: {told}")
    if day.customer.max() >= places:
        raise InvalidInstance(f"customer: found {day.customer.max()}, expected locations from 0 to {places - 1}")
    exists = day.arrival < NEVER
    known = np.where(exists, day.arrival, day.first_epoch[:, None])
    departure = known * day.epoch_duration[:, None] + day.margin[:, None]
    for bad, reason in (
        (np.diff(day.arrival, axis=1, prepend=0) < 0, "arrives before the request ahead of it"),
        (exists & ((known < day.first_epoch[:, None]) | (known > day.last_epoch[:, None])), "arrives outside the day"),
        (exists & (day.demand > day.capacity[:, None]), "demand exceeds the capacity"),
        (exists & (departure > latest_departures(day)), "cannot be served in time when it arrives"),
    ):
        if bad.any():
            row, slot = map(int, np.argwhere(bad)[0])
            raise InvalidInstance(f"row {row}, request {slot + 1}: {reason}")
