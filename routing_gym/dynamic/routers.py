"""Epoch routers, which build the routes of the requests that leave in an epoch.

A router is a function of the days, the requests that leave, bool (B, N), and the departure time of the vehicles, int64
(B,). It returns tours, int64 (B, T): ids of requests, 0 for the depot. The environment checks the tours. The days hold
the requests to come, too: to remove them would take a fifth of a step's time, and no router needs them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from routing_gym.arrays import BoolArray
from routing_gym.dynamic.days import Day, IntArray

Router = Callable[[Day, BoolArray, IntArray], IntArray]
Int32Array = npt.NDArray[np.int32]

CHUNK = 2**15  # candidates that are compared at a time: a dozen arrays of them fit into the processor's cache
WAITING = 4  # seconds of waiting that count as one of driving; without, routes are 7 % longer on ORTEC's instances
FAR = np.int32(2**30)  # longer than any duration, larger than any demand, later than any time


def nearest(day: Day, chosen: BoolArray, leaving: IntArray) -> IntArray:
    """Drive to the nearest request that can be served in time and fits; return to the depot if there is none.

    The nearest request has the least driving time plus a quarter of the waiting time. All rows advance together, one
    visit at a time.
    """
    counts = chosen.sum(axis=1)
    order = np.argsort(counts, kind="stable")
    most = int(counts.max(initial=0))
    tours = np.zeros((len(chosen), 2 * most), dtype=np.int64)
    start = 0
    while start < len(order):  # rows with similar numbers of requests are routed together
        end = start + 1
        while end < len(order) and (end + 1 - start) * int(counts[order[end]]) <= CHUNK:
            end += 1
        rows = order[start:end]
        if counts[rows[-1]]:
            found = nearest_rows(day, rows, chosen[rows], leaving[rows])
            tours[rows, : found.shape[1]] = found
        start = end
    used = np.flatnonzero((tours > 0).any(axis=0))
    return tours[:, : used[-1] + 1] if most else tours


def nearest_rows(day: Day, rows: npt.NDArray[np.intp], chosen: BoolArray, leaving: IntArray) -> IntArray:
    """Route some rows of the days; see `nearest`. In place and in int32, because this loop limits training speed."""
    lanes, size = np.arange(len(rows)), day.durations.shape[1]
    stop = Stops.of(day, rows, chosen)
    if day.durations.strides[0] == 0:  # one map for all
        durations, base = day.durations[0].ravel(), np.zeros(len(rows), dtype=np.int64)
    else:
        durations, base = day.durations.ravel(), rows * size**2
    capacity, home = day.capacity[rows].astype(np.int32), leaving.astype(np.int32)
    free, clock, origin = capacity, home, base
    remaining = chosen.sum(axis=1)
    tours: list[IntArray] = []
    longest = 2 * int(remaining.max())  # a return after each visit
    while (most := int(remaining.max())) > 0:
        if len(tours) == longest:
            raise ValueError(f"row {rows[remaining.argmax()]}: a request cannot be served, even alone; see `check_day`")
        if 2 * most <= stop.slot.shape[1]:
            stop = stop.without_served(most)
        leg = np.take(durations, origin[:, None] + stop.location, mode="clip")  # clip: skips the check of each index
        arrival = leg + clock[:, None]
        start = np.maximum(arrival, stop.earliest)
        leg += np.subtract(start, arrival, out=arrival) // WAITING
        illegal = start > stop.latest
        illegal |= stop.demand > free[:, None]
        np.copyto(leg, FAR, where=illegal)
        best = leg.argmin(axis=1)
        moves = leg[lanes, best] < FAR
        tours.append(np.where(moves, stop.slot[lanes, best] + 1, 0))
        free = np.where(moves, free - stop.demand[lanes, best], capacity)
        clock = np.where(moves, start[lanes, best] + stop.service[lanes, best], home)
        origin = base + np.where(moves, stop.location[lanes, best] * size, 0)
        stop.demand[lanes[moves], best[moves]] = FAR
        remaining -= moves
    return np.stack(tours, axis=1)


@dataclass(frozen=True)
class Stops:
    """Requests that `nearest` has to visit in b rows, without gaps: arrays (b, K). Served ones have demand `FAR`."""

    slot: IntArray
    location: IntArray
    demand: Int32Array
    earliest: Int32Array
    latest: Int32Array  # latest start of service with a return in time
    service: Int32Array

    @classmethod
    def of(cls, day: Day, rows: npt.NDArray[np.intp], chosen: BoolArray) -> Stops:
        """Collect the chosen requests, bool (b, N), of some rows of the days."""
        counts = chosen.sum(axis=1)
        row, slot = np.nonzero(chosen)
        place = np.arange(len(slot)) - np.repeat(np.cumsum(counts) - counts, counts)
        slots = np.zeros((len(rows), int(counts.max())), dtype=np.int64)
        slots[row, place] = slot
        demand = np.full(slots.shape, FAR, dtype=np.int32)  # padding of rows with fewer requests
        demand[row, place] = day.demand[rows[row], slot]
        index = (rows[:, None], slots)
        location, service = day.customer[index], day.service_time[index]
        back = day.durations[rows[:, None], location, 0]
        latest = np.minimum(day.time_window[(*index, 1)], day.closing[rows, None] - service - back)
        times = (values.astype(np.int32) for values in (day.time_window[(*index, 0)], latest, service))
        return cls(slots, location, demand, *times)

    def without_served(self, most: int) -> Stops:
        """Return the requests that are not served yet, at most `most` per row."""
        order = np.argsort(self.demand == FAR, axis=1, kind="stable")[:, :most]
        return Stops(*(np.take_along_axis(values, order, axis=1) for values in vars(self).values()))
