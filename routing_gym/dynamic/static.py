"""Static instances, from which days of requests are sampled, and their files.

The files are VRPLIB files of TYPE VRPTW with an EXPLICIT duration matrix, like those of the EURO Meets NeurIPS 2022
Vehicle Routing Competition. All numbers are integers, and times have one unit (seconds in the competition).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from routing_gym.arrays import IntArray
from routing_gym.data.tsplib.instance import RouteRules
from routing_gym.data.tsplib.reader import read_instance
from routing_gym.files import InvalidFile, UnsupportedFile
from routing_gym.problem import InvalidInstance

MAX_TIME = 10**8  # sums of a route's times stay far within int32, the type of the fast router


@dataclass(frozen=True)
class StaticInstance:
    """One VRPTW instance with n customers; row 0 of every array is the depot.

    Attributes:
        durations: int64 (n + 1, n + 1), driving from row to column; need not be symmetric. The diagonal is ignored.
        time_window: int64 (n + 1, 2), earliest and latest start of service; the depot's: 0 and the latest return.
        demand: int64 (n + 1,), 0 at the depot.
        service_time: int64 (n + 1,), 0 at the depot.
        capacity: Capacity of every vehicle, in the unit of the demands.
        coords: float64 (n + 1, 2), or None if only durations are known.
        name: Name for messages and pictures.

    Raises:
        InvalidInstance: An array has a wrong shape, type or value, or no vehicle can serve a customer in time.
    """

    durations: IntArray
    time_window: IntArray
    demand: IntArray
    service_time: IntArray
    capacity: int
    coords: npt.NDArray[np.float64] | None = None
    name: str = "static"

    def __post_init__(self) -> None:
        durations = np.array(self._array("durations"))
        size = len(durations) if durations.ndim else 0
        if size < 2:
            raise InvalidInstance(f"{self.name}: durations: expected a matrix of a depot and at least one customer")
        if durations.shape == (size, size):
            np.fill_diagonal(durations, 0)
            object.__setattr__(self, "durations", durations)
        shapes = {"durations": (size, size), "time_window": (size, 2), "demand": (size,), "service_time": (size,)}
        for field, shape in shapes.items():
            object.__setattr__(self, field, self._checked(field, shape))
        capacity = self.capacity
        if isinstance(capacity, bool) or not isinstance(capacity, (int, np.integer)) or not 1 <= capacity <= MAX_TIME:
            raise InvalidInstance(f"{self.name}: capacity: found {capacity!r}, expected an integer of at least 1")
        if self.coords is not None:
            coords = self._array("coords", np.float64)
            if coords.shape != (size, 2) or not np.isfinite(coords).all():
                raise InvalidInstance(f"{self.name}: coords: expected finite numbers of shape {(size, 2)}")
            object.__setattr__(self, "coords", coords)
        self._check_values()

    def _array(self, field: str, dtype: npt.DTypeLike | None = None) -> npt.NDArray[Any]:
        """Return the values of one field as an array."""
        try:
            return np.asarray(getattr(self, field), dtype)
        except (TypeError, ValueError):  # text, or rows of different lengths
            raise InvalidInstance(f"{self.name}: {field}: expected an array of numbers") from None

    def _checked(self, field: str, shape: tuple[int, ...]) -> IntArray:
        """Return one array as int64 after checking its shape, type and range."""
        values = self._array(field)
        if values.shape != shape:
            raise InvalidInstance(
                f"{self.name}: {field}: found shape {values.shape}, expected {shape}, the depot and all customers"
            )
        if not np.issubdtype(values.dtype, np.integer):
            raise InvalidInstance(f"{self.name}: {field}: found {values.dtype}, expected integers; choose a finer unit")
        bad = (values < 0) | (values > MAX_TIME)
        if bad.any():
            place = tuple(map(int, np.argwhere(bad)[0]))
            raise InvalidInstance(f"{self.name}: {field}{list(place)} is {values[place]}, expected 0 to {MAX_TIME}")
        return values.astype(np.int64)

    def _check_values(self) -> None:
        """Check that a vehicle can serve each customer alone."""
        (opens, closes), demand = self.time_window[0], self.demand
        if not closes:
            raise InvalidInstance(f"{self.name}: the depot closes at 0, when it opens; expected a later time")
        if opens or demand[0] or self.service_time[0]:
            raise InvalidInstance(
                f"{self.name}: the depot opens at {opens} with demand {demand[0]} and service time "
                f"{self.service_time[0]}; expected 0 for all three"
            )
        earliest, latest = self.time_window.T
        start = np.maximum(self.durations[0], earliest)
        back = start + self.service_time + self.durations[:, 0]
        for bad, reason in (
            (earliest > latest, "its time window closes before it opens"),
            (demand > self.capacity, f"its demand exceeds the capacity {self.capacity}"),
            (start > latest, "a vehicle that leaves the depot when it opens reaches it too late"),
            (back > closes, f"a vehicle that serves it first is back after the depot closes at {closes}"),
        ):
            if bad[1:].any():
                customer = 1 + int(bad[1:].argmax())
                raise InvalidInstance(f"{self.name}: customer {customer} is unreachable: {reason}")


def read_static(path: str | Path) -> StaticInstance:
    """Read a VRPLIB file of TYPE VRPTW with an explicit duration matrix.

    Raises:
        InvalidFile: The file is truncated, corrupt or contradictory, has no time windows, or a customer is unreachable.
        UnsupportedFile: The file uses an unsupported feature.
        OSError: The file cannot be opened.
    """
    file = read_instance(path)
    if not isinstance(file.rules, RouteRules) or file.rules.windows is None or file.matrix is None:
        told = f"found {file.problem.name} with EDGE_WEIGHT_TYPE {file.metric}"
        raise UnsupportedFile(file.path, None, f"{told}; expected VRPTW with EDGE_WEIGHT_TYPE EXPLICIT")
    try:
        return StaticInstance(
            durations=file.matrix,
            time_window=file.rules.windows[:, :2],
            demand=file.instance.demand[0],
            service_time=file.rules.windows[:, 2],
            capacity=int(file.instance.capacity[0]),
            coords=file.coords,
            name=file.name,
        )
    except InvalidInstance as error:
        raise InvalidFile(file.path, None, str(error)) from error
