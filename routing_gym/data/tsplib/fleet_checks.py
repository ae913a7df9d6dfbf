"""Checks of files with several vehicles: whether some vehicle can serve each customer or pair."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from routing_gym.arrays import BoolArray, IntArray
from routing_gym.data.tsplib.document import Document
from routing_gym.data.tsplib.fleet_stops import Stops
from routing_gym.data.tsplib.fleet_vehicles import ANY, Kind
from routing_gym.files import InvalidFile
from routing_gym.problems.geometry import earliest_arrivals, latest_departures


def check_served(
    document: Document,
    kinds: dict[Kind, tuple[int, ...]],
    stops: Stops,
    legs: IntArray,
    windows: IntArray | None,
    unit: int,
    explicit: bool,
) -> bool:
    """Return whether some vehicle can serve each required customer or pair alone, within the limits.

    Explicit distances may violate the triangle inequality, so that some are within the limits only via others.

    Raises:
        InvalidFile: No vehicle can serve a required customer or pair; the message has a line.
    """
    keyword = "VEHICLES_ALLOWED_CLIENTS_SECTION"
    may = allowed(kinds, stops)
    refuse(document, keyword, stops, may, "no vehicle may serve it; name it at one")
    if stops.pickup is not None:
        may = both(may, stops.pickup)
        refuse(document, keyword, stops, may, "no vehicle may serve it and its pair; name both at one")
    keyword = "DEMAND_SECTION" if stops.pickup is None else "PICKUP_AND_DELIVERY_SECTION"
    may &= stops.demand <= np.array([kind.capacity for kind in kinds])[:, None]
    refuse(document, keyword, stops, may, "its demand fits no vehicle that may serve it; divide it")
    depots, required = len(kinds), np.ones(len(stops.ids), dtype=bool)
    eligible = both(may, stops.pickup)
    if stops.prize is not None:
        required = stops.prize == 0  # the others can be left out
    for depot, kind in enumerate(kinds):
        if windows is None and kind.max_length == kind.max_duration == ANY:
            continue
        for place in np.flatnonzero(may[depot]):
            second = -1 if stops.pickup is None else int(stops.pickup[place])
            way = [depot, *([depots + second] if second >= 0 else []), depots + int(place), depot]
            may[depot, place] = fits(kind, way, legs, windows, unit)
    may = both(may, stops.pickup)
    together = bool((required & ~may.any(axis=0)).any())
    if together and explicit:
        found = np.array([fits_via(kind, k, legs, windows, unit, eligible[k]) for k, kind in enumerate(kinds)])
        may = both(found, stops.pickup)
    keyword = "TIME_WINDOW_SECTION" if "TIME_WINDOW_SECTION" in document.sections else keyword
    told = "no vehicle that may serve it reaches it in time and is back within the limits; widen these"
    refuse(document, keyword, stops, may | ~required, told)
    return not together


def allowed(kinds: Iterable[Kind], stops: Stops) -> BoolArray:
    """Return the customers that vehicles may serve: bool (K, n)."""
    return np.array([np.isin(stops.ids, stops.ids if kind.allowed is None else kind.allowed) for kind in kinds])


def both(may: BoolArray, pickup: IntArray | None) -> BoolArray:
    """Return the customers that vehicles may serve, bool (K, n); of a pair, both or none."""
    may = may.copy()
    if pickup is not None:
        delivery = np.flatnonzero(pickup >= 0)
        may[:, delivery] = may[:, pickup[delivery]] = may[:, delivery] & may[:, pickup[delivery]]
    return may


def fits(kind: Kind, way: list[int], legs: IntArray, windows: IntArray | None, unit: int) -> bool:
    """Return whether a route keeps the time windows, and the limits on length and, without waiting, on duration."""
    lengths = [int(legs[a, b]) for a, b in pairwise(way)]
    service = 0 if windows is None else int(windows[way, 2].sum())
    if sum(lengths) > kind.max_length * unit or sum(lengths) + service > kind.max_duration * unit:
        return False
    time = 0 if windows is None else int(windows[way[0], 0])
    for leg, node in zip(lengths, way[1:], strict=True):
        if windows is not None and time + leg > windows[node, 1]:
            return False
        time = time + leg if windows is None else max(time + leg, int(windows[node, 0])) + int(windows[node, 2])
    return True


def fits_via(
    kind: Kind, depot: int, legs: IntArray, windows: IntArray | None, unit: int, eligible: BoolArray
) -> BoolArray:
    """Return the customers that a vehicle may serve within each of the limits, together with others: bool (n,).

    Loads and the order of pairs are ignored.
    """
    zeros, first = np.zeros(len(legs)), len(legs) - len(eligible)
    service = zeros if windows is None else windows[:, 2]
    limits: list[tuple[npt.NDArray[Any], ...]]
    limits = [(zeros, zeros + kind.max_length * unit, zeros), (zeros, zeros + kind.max_duration * unit, service)]
    if windows is not None:
        limits.append((windows[:, 0], windows[:, 1], service))
    via, found = first + np.flatnonzero(eligible), eligible.copy()
    for limit in limits:
        ready, due, takes = limit
        arrival = earliest_arrivals(legs, depot, ready[depot], limit, via)
        departure = latest_departures(legs, depot, due[depot], limit, via)
        found &= ((arrival <= due) & (np.maximum(arrival, ready) + takes <= departure))[first:]
    return found


def refuse(document: Document, keyword: str, stops: Stops, may: BoolArray, told: str) -> None:
    """Refuse the first customer that no kind of vehicle may serve (K, n), with the line of its row in the section."""
    bad = np.logical_not(np.any(may, axis=0))
    if not bad.any():
        return
    node = int(stops.ids[bad.argmax()])
    section = document.section(keyword)
    own = [line for text, line in section.rows if text.split()[0] == str(node)]
    line = own[0] if own and keyword != "VEHICLES_ALLOWED_CLIENTS_SECTION" else section.line
    raise InvalidFile(document.path, line, f"{keyword}: node {node}: {told}")
