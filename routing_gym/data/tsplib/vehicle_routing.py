"""VRPTW and VRPB files: data in addition to CVRP's, in VRPLIB's form and, for VRPTW, in Solomon's.

Solomon (1987), Gehring and Homberger (1999): lengths and times are counted in tenths of the file's unit. Lengths are
truncated to whole tenths, as in the 12th DIMACS challenge (2021), whose best known solutions CVRPLIB has; the cost is
the length alone. EXPLICIT distances are also the durations, and are counted in the file's unit. VRPB follows Queiroga
et al. (2020), in PyVRP's form, with lengths rounded.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from routing_gym.arrays import Array, FloatArray, IntArray
from routing_gym.data.tsplib.document import Document, Section, Value
from routing_gym.data.tsplib.instance import FileInstance, RouteRules, matrix_scale, scale_coords, unit_scale
from routing_gym.data.tsplib.metrics import TENTHS, file_legs
from routing_gym.files import InvalidFile, UnsupportedFile, found
from routing_gym.problems import VRP, VRPInstance
from routing_gym.problems.checks import TOLERANCE
from routing_gym.problems.cvrp import MAX_DEMAND
from routing_gym.problems.geometry import earliest_arrivals, latest_departures

MAX_TIME = 200_000  # so that float32 distinguishes tenths
SOLOMON_COLUMNS = ("number", "x", "y", "demand", "ready time", "due date", "service time")


def window_instance(
    document: Document,
    ids: IntArray,
    coords: FloatArray,
    distances: Array,
    demand: IntArray,
    capacity: int,
    matrix: IntArray | None,
) -> tuple[VRP, VRPInstance, RouteRules]:
    """Make the problem, its instance (a batch of one) and the rules of a VRPTW file; `distances` are scaled.

    Half a part of the unit is added to the ends of windows, so that float32 masks allow every tour that keeps them in
    integers. If a customer can be served only together with others, the problem has penalties (PC): without them, masks
    let every vehicle serve one customer alone.

    Args:
        document: Parsed file.
        ids: int64 (A,), numbers of the nodes in the file.
        coords: float64 (A, 2).
        distances: float32 (1, A, A), divided by the scale.
        demand: int64 (A,).
        capacity: Capacity of each vehicle.
        matrix: int64 (A, A), distances in the file, which are also the durations; None for distances of coordinates.
    """
    unit, every = TENTHS if matrix is None else 1, np.arange(len(ids))
    windows = unit * read_windows(document, ids)
    out = file_legs(coords, "EUC_2D", np.array(0), every, TENTHS) if matrix is None else matrix[0]
    alone = check_reach(document, ids, windows, out, matrix, unit)
    scale = unit_scale(coords) if matrix is None else matrix_scale(matrix)
    times = (windows + np.array([0.0, 0.5, 0.0])) / (unit * scale)
    # Masks let a vehicle be late by TOLERANCE / 2, and `validate` by TOLERANCE / 4; in between, neither is wrong.
    times[:, 1] = np.maximum(times[:, 1] - 3 / 8 * TOLERANCE, 0.0)
    ready, due, service = times.astype(np.float32).T[:, None]
    instance = VRPInstance(
        scale_coords(coords),
        demand[None],
        np.array([capacity]),
        distances,
        ready_time=ready,
        due_time=due,
        service_time=service,
        penalty=None if alone else more_than_any_tour(distances),
    )
    rules = RouteRules(windows=windows, unit=unit, num_vehicles=document.integer("VEHICLES", 1))
    problem = VRP(len(ids) - 1, own_capacity(capacity), time_windows=True, penalties=not alone)
    return problem, instance, rules


def more_than_any_tour(distances: Array) -> Array:
    """Return penalties (1, A) that exceed the cost of any tour; `distances` are (1, A, A)."""
    penalty = np.full(distances.shape[:2], 2 * distances.shape[1] * float(distances.max()) + 1, dtype=np.float32)
    penalty[:, 0] = 0
    return penalty


def backhaul_instance(
    document: Document,
    ids: IntArray,
    coords: FloatArray,
    distances: Array,
    demand: IntArray,
    capacity: int,
    matrix: IntArray | None,
) -> tuple[VRP, VRPInstance, RouteRules]:
    """Make the same for a VRPB file, whose BACKHAUL_SECTION has the amounts to pick up; `matrix` is not read."""
    fetched = document.amounts("BACKHAUL_SECTION", ids, "backhaul", most=capacity)
    both = (fetched > 0) & ((demand > 0) | (np.arange(len(ids)) == 0))
    if both.any():
        node = int(ids[both.argmax()])
        what = "the depot has a backhaul" if node == ids[0] else f"node {node} has a demand and a backhaul"
        _, line = document.rows_by_node("BACKHAUL_SECTION", len(ids), "amount")[node - 1]
        raise InvalidFile(document.path, line, f"{what}; set one of them to 0")
    instance = VRPInstance(
        scale_coords(coords),
        (demand + fetched)[None],
        np.array([capacity]),
        distances,
        backhaul=(fetched > 0)[None],
    )
    return VRP(len(ids) - 1, own_capacity(capacity), backhauls=True), instance, RouteRules(backhaul=fetched > 0)


def own_capacity(capacity: int) -> int | None:
    """Return the capacity for generated instances; None if it is too small for their demands."""
    return capacity if capacity >= MAX_DEMAND else None


def read_windows(document: Document, ids: IntArray, depots: list[int] | None = None) -> IntArray:
    """Return ready time, due time and service time in the order of `ids`: int64 (A, 3), in the file's unit.

    Args:
        document: Parsed file.
        ids: Node numbers in the file.
        depots: Node numbers of depots; by default the first of `ids`.
    """
    windows, depots = [], depots or [int(ids[0])]
    for texts, line in document.rows_by_node("TIME_WINDOW_SECTION", len(ids), "opens closes"):
        opens, closes = (document.parse_integer(text, line, 0, "time") for text in texts)
        if closes < opens:
            raise InvalidFile(document.path, line, f"the window closes at {closes}, before it opens at {opens}")
        check_time(document, closes, line)
        windows.append((opens, closes))
    if "SERVICE_TIME_SECTION" in document.sections:
        if "SERVICE_TIME" in document.values:
            line = document.section("SERVICE_TIME_SECTION").line
            raise InvalidFile(document.path, line, "found SERVICE_TIME too; expected one of them")
        rows = document.rows_by_node("SERVICE_TIME_SECTION", len(ids), "time")
        service = [document.parse_integer(texts[0], line, 0, "service time") for texts, line in rows]
        for depot in depots:
            if service[depot - 1] != 0:
                told = f"found service time {service[depot - 1]} at the depot; expected 0"
                raise InvalidFile(document.path, rows[depot - 1][1], told)
    else:
        service = [document.integer("SERVICE_TIME", 0)] * len(ids)
        for depot in depots:
            service[depot - 1] = 0
    check_time(document, max(service), document.section("TIME_WINDOW_SECTION").line)
    return np.column_stack([np.array(windows, dtype=np.int64), np.array(service, dtype=np.int64)])[ids - 1]


def check_time(document: Document, time: int, line: int) -> None:
    """Refuse a time that is too large."""
    if time > MAX_TIME:
        raise UnsupportedFile(document.path, line, f"time {time} exceeds {MAX_TIME}; choose a larger unit")


def check_reach(
    document: Document, ids: IntArray, windows: IntArray, out: IntArray, matrix: IntArray | None, unit: int
) -> bool:
    """Return whether a vehicle can serve each customer alone, and check that it can serve them via others at least.

    Args:
        document: Parsed file.
        ids: int64 (A,), numbers of the nodes in the file.
        windows: int64 (A, 3), ready time, due time and service time.
        out: int64 (A,), lengths from the depot.
        matrix: int64 (A, A), distances that may violate the triangle inequality; None for those of coordinates.
        unit: Number of parts of the file's unit in which all these are counted.

    Raises:
        InvalidFile: A time window forbids to serve a customer; the message has its line.
    """
    (start, end, _), (ready, due, service) = windows[0], windows.T
    times, customers = (ready, due, service), np.arange(1, len(ids))
    arrival, back = start + out, out if matrix is None else matrix[:, 0]
    leaves = np.maximum(arrival, ready) + service
    late = (arrival > due) | (leaves + back > end)
    alone = not late.any()
    if matrix is not None and not alone:
        arrival = earliest_arrivals(matrix, 0, start, times, customers)
        leaves = np.maximum(arrival, ready) + service
        late = (arrival > due) | (leaves > latest_departures(matrix, 0, end, times, customers))
    if late.any():
        node = int(late.argmax())
        what, time, limit = "reaches it", arrival[node], due[node]
        if time <= limit:
            what, time, limit = "is back", leaves[node] + back[node], end
            if matrix is not None:
                time = earliest_arrivals(matrix, node, leaves[node], times, customers)[0]
        _, line = document.rows_by_node("TIME_WINDOW_SECTION", len(ids), "opens closes")[ids[node] - 1]
        told = f"a vehicle on the fastest way {what} at {time / unit}, after {limit / unit}"
        raise InvalidFile(document.path, line, f"this customer cannot be served: {told}")
    return alone


def is_solomon(lines: list[str]) -> bool:
    """Return whether a file is in Solomon's layout: a name, then VEHICLE."""
    return [line.strip().upper() for line in lines[:20] if line.strip()][1:2] == ["VEHICLE"]


def solomon_document(path: Path, lines: list[str]) -> Document:
    """Convert a file in Solomon's layout to VRPLIB's. Rows keep their line numbers.

    Raises:
        InvalidFile: A heading is missing, or a row is invalid.
    """
    document = Document(path, last_line=len(lines))
    rows = [Value(line.strip(), number) for number, line in enumerate(lines, start=1) if line.strip()]
    headings = ("VEHICLE", "NUMBER CAPACITY", None, "CUSTOMER", "CUST NO.")
    for place, heading in enumerate(headings, start=1):
        text, line = rows[place] if place < len(rows) else Value("", len(lines))
        if heading is not None and not " ".join(text.upper().split()).startswith(heading):
            raise InvalidFile(path, line, f"found {found(text)}, expected {heading}, as in Solomon's files")
    vehicles = rows[3].text.split()
    if len(vehicles) != 2:
        raise InvalidFile(path, rows[3].line, f"found {found(rows[3].text)}, expected number and capacity of vehicles")
    customers = rows[6:]
    for number, (text, line) in enumerate(customers):
        cells = text.split()
        if len(cells) != len(SOLOMON_COLUMNS):
            raise InvalidFile(path, line, f"found {found(text)}, expected {', '.join(SOLOMON_COLUMNS)}")
        if cells[0] != str(number):
            raise InvalidFile(path, line, f"found customer {found(cells[0])}, expected {number}; 0 is the depot")
    last = rows[-1].line
    values = {"NAME": rows[0], "VEHICLES": (vehicles[0], rows[3].line), "CAPACITY": (vehicles[1], rows[3].line)}
    values |= {"TYPE": ("VRPTW", 1), "EDGE_WEIGHT_TYPE": ("EUC_2D", 1), "DIMENSION": (str(len(customers)), last)}
    document.values.update({key: Value(*value) for key, value in values.items()})
    columns = {
        "NODE_COORD": slice(1, 3),
        "DEMAND": slice(3, 4),
        "TIME_WINDOW": slice(4, 6),
        "SERVICE_TIME": slice(6, 7),
    }
    for name, some in columns.items():
        parts = [(int(row.text.split()[0]) + 1, row.text.split()[some], row.line) for row in customers]
        document.sections[f"{name}_SECTION"] = Section(
            rows[5].line, [Value(" ".join([str(node), *part]), line) for node, part, line in parts]
        )
    document.sections["DEPOT_SECTION"] = Section(rows[5].line, [Value("1 -1", last)])
    return document


def route_file_lines(instance: FileInstance, by_id: IntArray) -> list[str]:
    """Format the demands, and the sections of a VRPTW or VRPB file that CVRP lacks.

    Args:
        instance: Instance to write.
        by_id: int64 (A,), nodes in the order of the file's numbers.
    """
    rules, demand = instance.rules, instance.instance.demand[0]
    assert isinstance(rules, RouteRules)
    sections = {"DEMAND_SECTION": demand}
    if rules.backhaul is not None:
        sections = {"DEMAND_SECTION": demand * ~rules.backhaul, "BACKHAUL_SECTION": demand * rules.backhaul}
    lines = []
    if rules.windows is not None:
        windows = rules.windows // rules.unit
        sections |= {"TIME_WINDOW_SECTION": windows[:, :2], "SERVICE_TIME_SECTION": windows[:, 2]}
    for keyword, values in sections.items():
        rows = np.column_stack([np.arange(1, len(by_id) + 1), values[by_id]])
        lines += [keyword, *(" ".join(map(str, row)) for row in rows.tolist())]
    return lines
