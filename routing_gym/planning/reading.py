"""Reading of a table, vehicles and matrices into a task; all errors are raised before any planning."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from routing_gym.arrays import FloatArray, IntArray, euclidean
from routing_gym.planning import checks, reach
from routing_gym.planning.choice import Choice, choose, listed
from routing_gym.planning.fleet import Fleet, depots_of, read_fleet
from routing_gym.planning.geography import geodesic_km, plane_of
from routing_gym.planning.matrices import Kind, Matrix, ids_of, read_matrices
from routing_gym.planning.parsing import Parsed, headers_of, parse
from routing_gym.planning.recognise import FILLED, OPTIONAL
from routing_gym.planning.table import InvalidInput, read_table
from routing_gym.planning.task import Minimise, Task
from routing_gym.planning.times import working_hours

CITY_SPEED, PLANE_SPEED = 30.0, 60.0  # km/h; on a plane, one unit of length takes one unit of time


def read_task(
    stops: Any = None,
    *,
    vehicles: Any = None,
    durations: Any = None,
    distances: Any = None,
    problem: str | None = None,
    speed: float | None = None,
    minimise: Minimise | None = None,
    reachable: bool = True,
    **numbers: Any,
) -> Task:
    """Read a planning task.

    Args:
        stops: Table of stops, see `routing_agents.solve`; row 0 is the depot. None if a matrix alone describes the
            task.
        vehicles: Vehicles, see `routing_agents.solve`.
        durations: Matrix of minutes, or a routing service's answer.
        distances: Matrix of km.
        problem: Name of the problem, such as "VRPTW"; by default, the columns determine it.
        speed: Speed in km/h, for durations along geodesics, or along `distances`.
        minimise: "minutes" of driving or "km"; by default minutes if `durations` are given, otherwise km.
        reachable: Whether to refuse stops that no vehicle can reach in time; False for re-planning, where they may have
            been visited already.
        **numbers: Values that problems declare per instance: capacity, max_length, required_prize, num_salesmen.

    Raises:
        InvalidInput: The input is invalid; the message has source, row, column, value and remedy.
        InvalidFile: A file cannot be read.
        ImportError: pyproj is missing, and the stops have latitudes and longitudes.
        OSError: A file cannot be opened.
    """
    if stops is None:
        stops = {"id": ids_of(durations if durations is not None else distances)}
    table = read_table(stops, "stops")
    fleet = read_fleet(vehicles, numbers, by_name="vehicles" in headers_of(table))
    parsed = parse(table, fleet)
    matrices = read_matrices(durations, distances, parsed.ids)
    chosen = choose(parsed, fleet, matrices, problem)
    parsed, fleet = without(parsed, fleet, chosen.unused)
    lengths = lengths_of(chosen, parsed, fleet, matrices, speed, minimise)
    task = make_task(chosen, lengths, parsed, fleet)
    checks.check_task(task, parsed.table, parsed.headers, bool(matrices))
    reach.check_pairs(task, parsed.table, parsed.headers)
    if reachable:
        reach.check_reach(task, parsed.table, parsed.headers)
    notes = (*task.notes, *checks.unused_types(task), *(reach.detours(task) if matrices else ()))
    return replace(task, notes=notes)


def without(parsed: Parsed, fleet: Fleet, unused: Collection[str]) -> tuple[Parsed, Fleet]:
    """Return the table and the vehicles without the columns and numbers that the problem does not have."""

    def rest(values: Mapping[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in values.items() if key not in unused}

    types = tuple(replace(kind, numbers=rest(kind.numbers)) for kind in fleet.types)
    return replace(parsed, values=rest(parsed.values)), replace(fleet, numbers=rest(fleet.numbers), types=types)


def places(parsed: Parsed) -> tuple[bool, FloatArray, FloatArray, FloatArray]:
    """Return whether stops are geographic, their coordinates (A, 2), those on a plane, and the km between them.

    Raises:
        InvalidInput: A coordinate is impossible, or the stops lie too far apart.
    """
    geographic = {"lat", "lon"} <= parsed.values.keys()
    keys = ("lat", "lon") if geographic else ("x", "y")
    checks.check_coordinates(parsed.table, parsed.headers, parsed.values, keys)
    points = np.stack([parsed.values[key] for key in keys], axis=-1)
    if not geographic:
        return False, points, points, np.asarray(euclidean(points[:, None], points[None]), dtype=float)
    km = geodesic_km(points)
    checks.check_width(parsed.table, parsed.headers, km)
    return True, points, plane_of(points), km


def lengths_of(
    chosen: Choice,
    parsed: Parsed,
    fleet: Fleet,
    matrices: Mapping[Kind, Matrix],
    speed: float | None,
    minimise: Minimise | None,
) -> dict[str, Any]:
    """Return the fields of a task that concern coordinates, minutes and km, and all notes.

    Raises:
        InvalidInput: A coordinate, the speed or `minimise` is invalid.
    """
    notes = list(chosen.notes)
    geographic, points, plane, km = places(parsed) if chosen.located else (False, None, None, None)
    given_speed = checks.check_speed(speed if speed is not None else fleet.speed)
    kmh = given_speed or (CITY_SPEED if geographic else PLANE_SPEED)
    straight = km is not None and not geographic and not matrices
    if geographic and km is not None:
        notes += checks.doubtful_units(matrices, km)
    if "distances" in matrices:
        km = matrices["distances"].values
    if km is None:  # then there are durations: `choose` refuses stops with neither coordinates nor matrices
        minutes = matrices["durations"].values
        km = minutes * kmh / 60
        notes.append(f"km: at {kmh:g} km/h, since there are neither coordinates nor distances")
    elif "durations" in matrices:
        minutes = matrices["durations"].values
    else:
        minutes = km * 60 / kmh
        if geographic and given_speed is None:
            notes.append(f"minutes: at {kmh:g} km/h, the default; give a speed, or a matrix of durations")
    if minimise not in (None, "minutes", "km"):
        raise InvalidInput(f"minimise must be minutes or km, got {minimise!r}")
    checks.check_matrices(parsed.ids, matrices, geographic)
    return {
        "points": points,
        "geographic": geographic,
        "plane": plane,
        "minutes": minutes,
        "km": km,
        "straight": straight,
        "minimise": minimise or ("minutes" if "durations" in matrices else "km"),
        "notes": tuple(notes),
    }


def make_task(chosen: Choice, lengths: Mapping[str, Any], parsed: Parsed, fleet: Fleet) -> Task:
    """Make a task from the chosen problem, the lengths, and the amounts, time windows, penalties and vehicles.

    Raises:
        InvalidInput: A value is invalid.
    """
    table, headers, values = parsed.table, parsed.headers, dict(parsed.values)
    rules, size = chosen.rules, table.num_rows
    for name, column in chosen.columns.items():
        if column.tabular and column.kind != "coords" and name in values:
            values[name] = checks.filled(table, headers[name], column, values[name], rules.has_depot)
    ready, due, service = windows_of(values, chosen.columns, size)
    kinds = fleet.types or (fleet,)
    depots = depots_of(fleet, parsed.ids)
    hours = [
        working_hours(one, ready[row], due[row], parsed.origin, rules.open_routes)
        for one, row in zip(kinds, depots, strict=True)
    ]
    ready[0], due[0] = min(start for start, _ in hours), max(end for _, end in hours)
    delivery, pickup, sources, notes = amounts_of(chosen, parsed, values, depots)
    check_depots(parsed, depots, {"service_time": service})
    if sources is not None:
        values["pickup"] = values["pickup_at"]
    check_vehicles(parsed, fleet)
    capacities = [kind.numbers.get("capacity") for kind in (*fleet.types, fleet)]
    units = checks.common_unit(table, headers, [delivery, pickup], capacities, fleet.place)
    penalty = np.full(size, np.inf)
    if rules.plain_routes and OPTIONAL in values:
        penalty = checks.penalties(table, headers[OPTIONAL], values[OPTIONAL])
    whole = [np.rint(one * units).astype(np.int64) for one in (delivery, pickup)]
    vehicles = fields_of(fleet, capacities[-1], units)
    for key in ("fixed_cost", "cost_per_unit"):
        vehicles[key] = max(fields_of(one, None, units)[key] for one in kinds)
    if not rules.plain_routes:
        vehicles["max_km"] = None
    elif not rules.has_depot:
        vehicles["count"] = 1
    made = Task(
        source=table.source,
        problem=rules.name,
        ids=parsed.ids,
        names=parsed.names,
        **dict(lengths, notes=(*lengths["notes"], *notes)),
        delivery=whole[0],
        pickup=whole[1],
        ready=ready,
        due=due,
        service=service,
        penalty=penalty,
        mixed=chosen.mixed,
        pickup_at=sources,
        units=units,
        depots=tuple(sorted({0, *depots})),
        **vehicles,
        open=rules.open_routes,
        values={key: value for key, value in values.items() if key in chosen.columns},
        numbers=chosen.numbers,
        clock=parsed.clock,
        origin=parsed.origin,
    )
    if len(fleet.types) < 2:
        return made
    types = zip(fleet.types, capacities, depots, hours, strict=False)
    return replace(made, types=tuple(of_type(made, parsed, *of) for of in types), max_minutes=None)


def amounts_of(
    chosen: Choice, parsed: Parsed, values: Mapping[str, FloatArray], depots: Sequence[int]
) -> tuple[FloatArray, FloatArray, IntArray | None, tuple[str, ...]]:
    """Return the amounts delivered and picked up at each stop; for pairs, the row of each pickup, 0 for none; notes.

    Raises:
        InvalidInput: An amount or a pair is invalid; the message has row, column and value.
    """
    table, headers = parsed.table, parsed.headers
    delivery, pickup, notes = checks.split_amounts(
        table, headers, values, chosen.mixed, chosen.rules.plain_routes, table.num_rows
    )
    check_depots(parsed, depots, {"demand": delivery, "pickup": pickup})
    if "pickup_at" not in values:
        return delivery, pickup, None, notes
    sources = values["pickup_at"].astype(np.int64)
    checks.check_sources(table, headers, sources, depots)
    return *checks.paired_amounts(table, headers, sources, delivery, pickup), sources, notes


def windows_of(
    values: Mapping[str, FloatArray], declared: Collection[str], size: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return earliest starts, latest starts and durations of service, (size,) each, with defaults if missing."""
    ready, due, service = (
        values[key] if key in declared and key in values else np.full(size, FILLED[key])
        for key in ("ready_time", "due_time", "service_time")
    )
    return np.where(np.isnan(ready), 0.0, ready), np.where(np.isnan(due), np.inf, due), service


def check_depots(parsed: Parsed, depots: Sequence[int], amounts: Mapping[str, FloatArray]) -> None:
    """Check that amounts and service are 0 at all depots but the first, which `checks.filled` checks.

    Raises:
        InvalidInput: A value is not 0; the message has row, column and value.
    """
    for key, values in amounts.items():
        for row in sorted({*depots} - {0}):
            if values[row]:
                raise parsed.table.error(row, parsed.headers.get(key, key), "vehicles start in this row; set it to 0")


def check_vehicles(parsed: Parsed, fleet: Fleet) -> None:
    """Check the names of the vehicles that may serve a stop.

    Raises:
        InvalidInput: A vehicle does not exist.
    """
    known = [kind.name or "" for kind in fleet.types]
    for row, names in enumerate(parsed.vehicles):
        if unknown := sorted(names.difference(known)):
            told = f"there is no vehicle {', '.join(unknown)}; name those of {listed(known)}, or leave the cell empty"
            raise parsed.table.error(row, parsed.headers["vehicles"], told)


def of_type(
    task: Task, parsed: Parsed, fleet: Fleet, capacity: float | None, depot: int, hours: tuple[float, float]
) -> Task:
    """Return a task with the vehicles of one type only."""
    ready, due = task.ready.copy(), task.due.copy()
    ready[depot], due[depot] = hours
    return replace(
        task,
        allowed=np.array([not names or fleet.name in names for names in parsed.vehicles]) if parsed.vehicles else None,
        depot=depot,
        ready=ready,
        due=due,
        **fields_of(fleet, capacity, task.units),
    )


def fields_of(fleet: Fleet, capacity: float | None, units: int) -> dict[str, Any]:
    """Return the fields of a task that describe equal vehicles."""
    return {
        "count": fleet.count,
        "vehicles": fleet.names,
        "capacity": None if capacity is None else round(capacity * units),
        "max_km": fleet.numbers.get("max_length"),
        "max_minutes": fleet.max_duration,
        "fixed_cost": fleet.fixed_cost or 0.0,
        "cost_per_unit": fleet.cost_per_unit or 1.0,
    }
