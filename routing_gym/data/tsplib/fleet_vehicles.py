"""Vehicles of files in PyVRP's dialect of VRPLIB: values for all vehicles, or sections with a row for each."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from routing_gym.data.tsplib.document import Document
from routing_gym.data.tsplib.fleet_stops import Stops
from routing_gym.files import InvalidFile, UnsupportedFile

ANY = 10**12  # no limit, since numbers in files have at most 12 digits


class Kind(NamedTuple):
    """Type of identical vehicles; `depot` and `allowed` hold the file's numbers."""

    depot: int
    capacity: int
    fixed_cost: int
    cost_per_length: int
    max_duration: int
    max_length: int
    allowed: tuple[int, ...] | None


def per_vehicle(document: Document, keyword: str, number: int, low: int, default: int | None = None) -> list[int]:
    """Return a number for each vehicle: from a section, from a value for all, or the default."""
    section = f"{keyword}_SECTION"
    if section in document.sections:
        if keyword in document.values:
            line = document.section(section).line
            raise InvalidFile(document.path, line, f"{section}: found {keyword} too; expected one of them")
        rows = document.rows_by_node(section, number, "value", each="vehicle", total="VEHICLES")
        return [document.parse_integer(texts[0], line, low, section) for texts, line in rows]
    if keyword in document.values or default is None:
        return [document.integer(keyword, low)] * number
    return [default] * number


def read_vehicles(document: Document, depots: list[tuple[int, int]], stops: Stops) -> list[Kind]:
    """Return each vehicle of the file, in order."""
    number = document.integer("VEHICLES", 1)
    if number > (most := 100 * len(stops.ids) + 1000):
        told = f"VEHICLES {number} exceeds {most}, more than can be of use"
        raise UnsupportedFile(document.path, document.value("VEHICLES").line, told)
    where = per_vehicle(document, "VEHICLES_DEPOT", number, 1, default=depots[0][0])
    known = [depot for depot, _ in depots]
    for vehicle, depot in enumerate(where, start=1):
        if depot not in known:
            rows = document.rows_by_node("VEHICLES_DEPOT_SECTION", number, "value", each="vehicle", total="VEHICLES")
            told = f"vehicle {vehicle} starts at node {depot}, which is no depot; expected one of the DEPOT_SECTION"
            raise InvalidFile(document.path, rows[vehicle - 1][1], f"VEHICLES_DEPOT_SECTION: {told}")
    columns = (
        per_vehicle(document, "CAPACITY", number, 1),
        per_vehicle(document, "VEHICLES_FIXED_COST", number, 0, default=0),
        per_vehicle(document, "VEHICLES_UNIT_DISTANCE_COST", number, 0, default=1),
        per_vehicle(document, "VEHICLES_MAX_DURATION", number, 0, default=ANY),
        per_vehicle(document, "VEHICLES_MAX_DISTANCE", number, 0, default=ANY),
    )
    if len({*columns[4]}) > 1:
        line = document.section("VEHICLES_MAX_DISTANCE_SECTION").line
        told = "vehicles with different limits are not supported; expected the same for all"
        raise UnsupportedFile(document.path, line, f"VEHICLES_MAX_DISTANCE_SECTION: {told}")
    return [Kind(*values) for values in zip(where, *columns, read_allowed(document, number, stops), strict=True)]


def read_allowed(document: Document, number: int, stops: Stops) -> list[tuple[int, ...] | None]:
    """Return the customers that each vehicle may serve; None if it may serve all.

    Raises:
        InvalidFile: A number is not a customer, or a vehicle is too small for all its customers.
    """
    keyword = "VEHICLES_ALLOWED_CLIENTS_SECTION"
    every = set(stops.ids.tolist())
    allowed: list[tuple[int, ...] | None] = [None] * number
    if keyword in document.sections:
        rows = document.rows_by_node(keyword, number, "client ...", each="vehicle", total="VEHICLES")
        for vehicle, (texts, line) in enumerate(rows):
            clients = {document.parse_integer(text, line, 1, keyword) for text in texts}
            if strange := clients - every:
                told = f"found {min(strange)}, which is no customer; leave it out"
                raise InvalidFile(document.path, line, f"{keyword}: {told}")
            allowed[vehicle] = None if clients == every else tuple(sorted(clients))
    check_fit(document, allowed, stops)
    return allowed


def check_fit(document: Document, allowed: list[tuple[int, ...] | None], stops: Stops) -> None:
    """Refuse a vehicle that is too small for every customer that it may serve."""
    number, least = len(allowed), {}
    for clients in {*allowed}:
        own = slice(None) if clients is None else np.isin(stops.ids, clients)
        least[clients] = int(stops.demand[own].min())
    for vehicle, (clients, capacity) in enumerate(
        zip(allowed, per_vehicle(document, "CAPACITY", number, 1), strict=True)
    ):
        if least[clients] > capacity:
            keyword = "CAPACITY"
            if keyword in document.values:
                line = document.value(keyword).line
            else:
                keyword = "CAPACITY_SECTION"
                line = document.rows_by_node(keyword, number, "value", each="vehicle", total="VEHICLES")[vehicle][1]
            told = f"no customer fits vehicle {vehicle + 1}: its capacity is {capacity}, the least demand"
            raise InvalidFile(document.path, line, f"{keyword}: {told} {least[clients]}; leave it out")


def group(vehicles: list[Kind]) -> dict[Kind, tuple[int, ...]]:
    """Return the kinds of vehicles, each with its vehicles counted from 0."""
    members: dict[Kind, list[int]] = {}
    for vehicle, kind in enumerate(vehicles):
        members.setdefault(kind, []).append(vehicle)
    return {kind: tuple(some) for kind, some in members.items()}


def check_depots(document: Document, depots: list[tuple[int, int]], kinds: dict[Kind, tuple[int, ...]]) -> None:
    """Refuse a depot at which no vehicle starts."""
    used = {kind.depot for kind in kinds}
    for depot, line in depots:
        if depot not in used:
            told = f"no vehicle starts at depot {depot}; name it in the VEHICLES_DEPOT_SECTION, or leave it out"
            raise InvalidFile(document.path, line, f"DEPOT_SECTION: {told}")
