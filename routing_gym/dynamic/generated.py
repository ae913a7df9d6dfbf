"""Generated days: a random map for each day, and requests that arrive at a rate that varies over the day."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from routing_gym.arrays import FloatArray
from routing_gym.dynamic.days import Day, check_horizon, keep_feasible, unit_square
from routing_gym.problems.checks import check_integer

Layout = Literal["uniform", "clustered"]

NUM_CLUSTERS = 5
SPREAD = 0.06  # standard deviation of the distance of customers from the centre of their cluster, on each axis
DAY_SHAPE = 0.5  # relative increase of the arrival rate at noon, and decrease at both ends of the day
MOST_DEMAND = 9
CACHED = 2**15  # float64 numbers that are computed at a time
LONGEST_SERVICE = 4.0  # multiple of the median at which the lognormal distribution is cut


@dataclass(frozen=True)
class GeneratedDays:
    """Days on random maps.

    The depot and `num_customers` customers lie in a square that takes `crossing` seconds to cross along a side.
    Each of the `max_requests` slots of an epoch holds a request with a probability that depends on the time of day: the
    mean is `requests` per epoch, with few requests in the morning and evening and many at noon. The customer is
    uniform. The time window opens at a random time after the earliest possible arrival, more often early than late. The
    service time is lognormal.

    Durations are rounded up and asymmetric: each location has a height, and driving from i to j takes `asymmetry` times
    `crossing` times max(0, height of j - height of i) longer than in the plane. The triangle inequality holds.

    Attributes:
        num_customers: Number of locations other than the depot.
        num_epochs: Number of epochs of a day.
        requests: Mean number of requests in an epoch.
        max_requests: Largest number of requests in an epoch; by default twice the mean.
        layout: "uniform" or "clustered".
        window: Width of the time windows, in epochs.
        crossing: Seconds to cross the square. `Day.coords` are scaled to the unit square, by a factor of each day, so
            that a length of 1 takes at most `crossing` seconds.
        asymmetry: Share of `crossing` that climbing the full height takes.
        service: Median service time in seconds.
        service_sigma: Standard deviation of the logarithm of the service time.
        capacity: Capacity of the vehicles; demands are 1 to 9.
        epoch_duration: Duration of an epoch in seconds.
        margin: Seconds from the start of an epoch to the departure of its vehicles.

    Raises:
        ValueError: A setting is invalid. The message has the setting, its value and its bounds.
    """

    num_customers: int = 50
    num_epochs: int = 6
    requests: float = 10.0
    max_requests: int | None = None
    layout: Layout = "uniform"
    window: float = 1.0
    crossing: int = 3600
    asymmetry: float = 0.1
    service: float = 300.0
    service_sigma: float = 0.5
    capacity: int = 50
    epoch_duration: int = 3600
    margin: int = 3600

    has_coords = True

    def __post_init__(self) -> None:
        for field, least in (
            *(("num_customers", 1), ("num_epochs", 1), ("crossing", 1), ("epoch_duration", 1), ("margin", 0)),
            ("capacity", MOST_DEMAND),
        ):
            object.__setattr__(self, field, check_integer(field, getattr(self, field), least))
        for field in ("requests", "window", "asymmetry", "service", "service_sigma"):
            value = getattr(self, field)
            if not (isinstance(value, (int, float, np.number)) and np.isfinite(value) and value >= 0):
                raise ValueError(f"{field} must be a finite number of at least 0, got {value!r}")
        if self.layout not in get_args(Layout):
            raise ValueError(f"layout must be one of {', '.join(get_args(Layout))}; got {self.layout!r}")
        most = self.max_requests if self.max_requests is not None else max(1, int(np.ceil(2 * self.requests)))
        object.__setattr__(self, "max_requests", check_integer("max_requests", most, 1))
        if (noon := self.rates().max() * most) > most:
            told = f"at noon, {noon:.1f} requests arrive in an epoch on average"
            raise ValueError(f"max_requests {most} is too small: {told}; choose at least {math.ceil(noon)}")
        check_horizon(self.epoch_duration, self.margin, self.closing)

    @property
    def num_slots(self) -> int:
        assert self.max_requests is not None
        return self.num_epochs * self.max_requests

    @property
    def num_locations(self) -> int:
        return self.num_customers + 1

    @property
    def closing(self) -> int:
        """Closing time of the depot, so late that all vehicles of the last epoch can return in time."""
        driving = (2.0 * math.sqrt(2.0) + self.asymmetry) * self.crossing  # a round trip that climbs once
        longest = math.ceil(driving + LONGEST_SERVICE * self.service) + 2  # durations are rounded up
        return self.num_epochs * self.epoch_duration + self.margin + longest

    def rates(self) -> FloatArray:
        """Return the probability that a slot holds a request, by epoch: float64 (E,)."""
        time = (np.arange(self.num_epochs) + 0.5) / self.num_epochs
        shape = 1.0 - DAY_SHAPE * np.cos(2 * np.pi * time)  # its mean is 1 with at least two epochs
        return np.asarray(self.requests / float(self.max_requests or 1) * shape / shape.mean())

    def draw(self, generators: Sequence[np.random.Generator]) -> Day:
        """Draw one day from each random number generator: one block of uniforms for the map, one for the requests."""
        size, places = len(generators), self.num_locations
        coords, durations = self._maps(draw_uniforms(generators, 4 * places + 2 * NUM_CLUSTERS))
        zeros = np.zeros((size, self.num_slots), dtype=np.int64)
        empty = Day(
            durations=durations,
            coords=unit_square(coords),
            **self._settings(size),
            arrival=zeros,
            customer=zeros,
            time_window=np.stack([zeros, zeros], axis=-1),
            demand=zeros,
            service_time=zeros,
        )
        return self.redraw(empty, generators)

    def _settings(self, size: int) -> dict[str, Any]:
        """Return the fields that all days share, repeated `size` times."""
        settings = {
            "closing": self.closing,
            "capacity": self.capacity,
            "epoch_duration": self.epoch_duration,
            "margin": self.margin,
            "first_epoch": 0,
            "last_epoch": self.num_epochs - 1,
        }
        return {name: np.full(size, value, dtype=np.int64) for name, value in settings.items()}

    def redraw(self, day: Day, generators: Sequence[np.random.Generator]) -> Day:
        """Draw other requests on the maps of the days (B,), with one random number generator each."""
        size, slots = len(generators), self.num_slots
        uniforms = draw_uniforms(generators, 6 * slots).reshape(size, 6, slots)
        arrives, place, first, second, opening, amount = uniforms.transpose(1, 0, 2)
        epoch = np.tile(np.repeat(np.arange(self.num_epochs), slots // self.num_epochs), (size, 1))
        customer = 1 + np.floor(place * self.num_customers).astype(np.int64)
        service = np.ceil(self.service * lognormal(first, second, self.service_sigma)).astype(np.int64)
        rows = np.arange(size)[:, None]
        soonest = epoch * self.epoch_duration + self.margin + day.durations[rows, 0, customer]
        room = self.closing - day.durations[rows, customer, 0] - service - soonest
        opens = soonest + np.floor(opening**2 * room).astype(np.int64)
        closes = np.minimum(opens + round(self.window * self.epoch_duration), self.closing)
        candidates = replace(
            day,
            **self._settings(size),
            arrival=epoch,
            customer=customer,
            time_window=np.stack([opens, closes], axis=-1),
            demand=1 + np.floor(amount * MOST_DEMAND).astype(np.int64),
            service_time=service,
        )
        return keep_feasible(candidates, arrives < self.rates()[epoch])

    def _maps(self, uniforms: FloatArray) -> tuple[FloatArray, npt.NDArray[np.int32]]:
        """Compute coordinates (B, L, 2) and durations (B, L, L) from uniforms (B, 4 L + 2 NUM_CLUSTERS)."""
        size, places = len(uniforms), self.num_locations
        coords = uniforms[:, : 2 * places].reshape(size, places, 2).copy()
        height = uniforms[:, 2 * places : 3 * places]
        if self.layout == "clustered":
            cluster = np.floor(uniforms[:, 3 * places : 4 * places] * NUM_CLUSTERS).astype(np.int64)
            centres = uniforms[:, 4 * places :].reshape(size, NUM_CLUSTERS, 2)[np.arange(size)[:, None], cluster]
            radius, angle = np.sqrt(-2.0 * np.log1p(-coords[..., 0])), 2 * np.pi * coords[..., 1]  # Box and Muller
            offset = SPREAD * np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=-1)
            coords[:, 1:] = np.clip(centres + offset, 0.0, 1.0)[:, 1:]
        durations = np.empty((size, places, places), dtype=np.int32)
        block = max(1, CACHED // places**2)
        for start in range(0, size, block):  # blocks that fit into the processor's cache
            rows = slice(start, start + block)
            durations[rows] = self._durations(coords[rows], height[rows])
        return coords, durations

    def _durations(self, coords: FloatArray, height: FloatArray) -> FloatArray:
        """Return the durations between locations (b, L, 2) with heights (b, L): integers (b, L, L)."""
        x, y, z = (values * self.crossing for values in (coords[..., 0], coords[..., 1], self.asymmetry * height))
        durations = np.square(x[:, :, None] - x[:, None])  # in place from here on: it dominates the time of a reset
        durations += np.square(y[:, :, None] - y[:, None])
        np.sqrt(durations, out=durations)
        climb = z[:, None] - z[:, :, None]
        durations += np.maximum(climb, 0.0, out=climb)
        return np.ceil(durations, out=durations)


def draw_uniforms(generators: Sequence[np.random.Generator], count: int) -> FloatArray:
    """Draw uniform numbers from each random number generator: float64 (B, count)."""
    uniforms = np.empty((len(generators), count))
    for row, rng in zip(uniforms, generators, strict=True):
        rng.random(out=row)
    return uniforms


def lognormal(first: FloatArray, second: FloatArray, sigma: float) -> FloatArray:
    """Return lognormal numbers with median 1 from two uniforms each (Box and Muller), cut at `LONGEST_SERVICE`."""
    normal = np.sqrt(-2.0 * np.log1p(-first)) * np.cos(2 * np.pi * second)
    return np.asarray(np.minimum(np.exp(sigma * normal), LONGEST_SERVICE))
