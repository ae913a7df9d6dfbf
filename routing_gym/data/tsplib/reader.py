"""Reader and writer for files of the TSPLIB family: TSPLIB .tsp, CVRPLIB .vrp, OPLib .oplib.

Sources: Reinelt (1995), "TSPLIB 95"; Uchoa et al. (2017) for CVRPLIB; Kobeaga et al. (2018) for OPLib. The reader
    refuses everything unknown, since a skipped keyword may be a constraint.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from routing_gym.arrays import Array, FloatArray, IntArray
from routing_gym.data.tsplib.document import MAX_COORDINATE, Document, Grammar, Value, max_file_bytes, parse_lines
from routing_gym.data.tsplib.fleet_rules import FleetRules
from routing_gym.data.tsplib.fleet_stops import number_depot
from routing_gym.data.tsplib.fleets import COUNTING, FLEET_SECTIONS, FLEET_VALUES, read_fleet
from routing_gym.data.tsplib.instance import (
    FileInstance,
    matrix_scale,
    orienteering_instance,
    places_of,
    scale_coords,
    scale_distances,
    unit_scale,
)
from routing_gym.data.tsplib.matrix import (
    MAX_MATRIX_NODES,
    fixed_edge_lines,
    matrix_lines,
    read_fixed_edges,
    read_matrix,
)
from routing_gym.data.tsplib.metrics import GREATEST, METRICS, TENTHS, file_distances, planar
from routing_gym.data.tsplib.solutions import find_best_known
from routing_gym.data.tsplib.vehicle_routing import (
    backhaul_instance,
    is_solomon,
    own_capacity,
    route_file_lines,
    solomon_document,
    window_instance,
)
from routing_gym.files import InvalidFile, UnsupportedFile, found, printable, read_lines, write_atomically
from routing_gym.problems import ATSP, CVRP, OP, TSP, TSPFE, ATSPInstance, CVRPInstance, TSPFEInstance, TSPInstance

MAX_NODES = 10_000  # the distance matrix takes 4 bytes per pair of nodes: 0.4 GB
READERS = {".npz": "load_npz", ".csv": "read_csv", ".pkl": "load_pickle"}  # of files that are no text of this format
MIN_EXTENT = 1e-9  # minimum extent of coordinates that are not all equal; keeps scaled distances finite


class FileType(NamedTuple):
    """Keywords and sections of a file of one TYPE, in addition to the common ones."""

    values: tuple[str, ...] = ()
    sections: tuple[str, ...] = ()
    has_depot: bool = True


FILE_TYPES = {
    "TSP": FileType(sections=("FIXED_EDGES_SECTION",), has_depot=False),
    "ATSP": FileType(has_depot=False),
    "CVRP": FileType(("CAPACITY",), ("DEMAND_SECTION", "DEPOT_SECTION")),
    "OP": FileType(("COST_LIMIT",), ("NODE_SCORE_SECTION", "DEPOT_SECTION")),
    "VRPTW": FileType(
        ("CAPACITY", "VEHICLES", "SERVICE_TIME"),
        ("DEMAND_SECTION", "TIME_WINDOW_SECTION", "SERVICE_TIME_SECTION", "DEPOT_SECTION"),
    ),
    "VRPB": FileType(("CAPACITY",), ("DEMAND_SECTION", "BACKHAUL_SECTION", "DEPOT_SECTION")),
} | {kind: FileType(FLEET_VALUES, FLEET_SECTIONS) for kind in COUNTING}
LENGTHS_ONLY_COST = ("TSP", "CVRP")  # in these, lengths affect the cost only, not feasibility
ROUTE_FILES: dict[str, Any] = {"VRPTW": window_instance, "VRPB": backhaul_instance}
SAME_TYPE = {"CVRPTW": "VRPTW"}
COMMON_VALUES = (
    "NAME",
    "TYPE",
    "DIMENSION",
    "EDGE_WEIGHT_TYPE",
    "EDGE_WEIGHT_FORMAT",
    "NODE_COORD_TYPE",
    "DISPLAY_DATA_TYPE",
)
COMMON_SECTIONS = ("NODE_COORD_SECTION", "DISPLAY_DATA_SECTION", "EDGE_WEIGHT_SECTION")
EXPLICIT = "EXPLICIT"  # distances in the file; coordinates only of files with a depot
SUPPORTED = (
    f"supported are files of TYPE {', '.join(FILE_TYPES)} with EDGE_WEIGHT_TYPE {', '.join(METRICS)} or {EXPLICIT}"
)
GRAMMAR = Grammar(
    values=tuple({*COMMON_VALUES, *(value for kind in FILE_TYPES.values() for value in kind.values)}),
    sections=tuple({*COMMON_SECTIONS, *(section for kind in FILE_TYPES.values() for section in kind.sections)}),
    unsupported={
        "EDGE_DATA_FORMAT": "a graph that is not complete",
        "EDGE_DATA_SECTION": "a graph that is not complete",
        "DISTANCE": "a maximum route duration",
    },
    supported=SUPPORTED,
)


def read_instance(path: str | Path, *, max_nodes: int = MAX_NODES, max_matrix_nodes: int | None = None) -> FileInstance:
    """Read an instance, and the best known solution stored beside it.

    VRPTW is read in VRPLIB's form or in Solomon's; several vehicles, depots and pairs in PyVRP's form, see `fleets`. A
    TSP or ATSP file with distances instead of coordinates becomes an ATSP instance; one with fixed edges, TSPFE. The
    reader looks for a solution under the same name, with `.opt.tour` or `.tour` (TSP, ATSP) or `.sol` (all others)
    instead of the ending, and (TSP, ATSP) for a line ``name : cost`` in a file `solutions` of the same folder.

    Args:
        path: File to read; its contents, not its ending, decide the format. Other functions read .npz, .csv and .pkl.
        max_nodes: Maximum number of nodes; with explicit distances, more than 2,000 are refused in any case.
            `distances` take 4 bytes for each pair of nodes.
        max_matrix_nodes: Maximum number of nodes with which TSP, TSPFE and CVRP instances get `distances`; larger ones
            save this memory, except those of GEO files. None for no limit. Without them, environments, models and
            solvers use Euclidean lengths that are not rounded; the costs of `FileInstance` are still those of the file.

    Raises:
        InvalidFile: The file, or a solution beside it, is truncated, corrupt or contradictory.
        UnsupportedFile: The file uses an unsupported feature.
        OSError: The file cannot be opened.
    """
    path = Path(path)
    if reader := READERS.get(path.suffix.lower()):
        raise UnsupportedFile(path, None, f"{path.suffix} files are read by `routing_gym.data.{reader}`")
    matrix_bytes = 13 * min(max_nodes, MAX_MATRIX_NODES) ** 2  # numbers of at most 12 digits
    lines = read_lines(path, max_file_bytes(max_nodes) + matrix_bytes)
    document = solomon_document(path, lines) if is_solomon(lines) else parse_lines(path, lines, GRAMMAR)
    kind = check_kind(document)
    metric = check_metric(document, kind)
    dimension = check_dimension(document, max_nodes)
    name = document.values["NAME"].text if "NAME" in document.values else " ".join(printable(path.name).split())
    if kind in COUNTING:
        number_depot(document)
    coords = read_coords(document, dimension, metric)
    matrix = read_matrix(document, dimension, symmetric=kind == "TSP") if metric == EXPLICIT else None
    if kind in COUNTING:
        fields = read_fleet(document, kind, coords, matrix)
    else:
        fields = read_one_kind(document, kind, metric, dimension, coords, matrix, max_matrix_nodes)
    instance = FileInstance(name, path, tuple(document.comments), metric, **fields)
    best_known, best_tour = find_best_known(instance)
    return replace(instance, best_known=best_known, best_tour=best_tour)


def read_one_kind(
    document: Document,
    kind: str,
    metric: str,
    dimension: int,
    coords: FloatArray | None,
    matrix: IntArray | None,
    max_matrix_nodes: int | None,
) -> dict[str, Any]:
    """Return the fields of a `FileInstance` with at most one depot and one kind of vehicle, like `read_fleet`."""
    ids, has_depot = np.arange(1, dimension + 1), FILE_TYPES[kind].has_depot
    if has_depot:
        depot = read_depot(document, kind, dimension)
        ids = np.concatenate(([depot], ids[ids != depot]))
    coords = None if coords is None else coords[ids - 1]
    unit = TENTHS if kind == "VRPTW" and matrix is None else 1
    if matrix is not None:
        matrix = matrix[np.ix_(ids - 1, ids - 1)]
        places = places_of(coords, matrix) if has_depot else None
        scale = matrix_scale(matrix)
        distances = scale_distances(matrix, scale)
    else:
        assert coords is not None  # a file has at least one of them
        places = planar(coords, metric)
        scale = unit_scale(places)
        needed = kind not in LENGTHS_ONLY_COST or metric == "GEO"
        given = needed or max_matrix_nodes is None or dimension <= max_matrix_nodes
        distances = file_distances(coords, metric, unit, scale * unit)[None] if given else None
    fields = {"ids": ids, "coords": coords, "matrix": matrix, "scale": scale, "unit": unit}
    if kind in ROUTE_FILES:
        demand, capacity = read_demand(document, ids)
        made = ROUTE_FILES[kind](document, ids, places, distances, demand, capacity, matrix)
        return fields | dict(zip(("problem", "instance", "rules"), made, strict=True))
    return fields | make_instance(document, kind, ids, places, distances, scale)


def make_instance(
    document: Document, kind: str, ids: IntArray, coords: FloatArray | None, distances: Array | None, scale: float
) -> dict[str, Any]:
    """Make the problem and its instance (a batch of one), with OP's length limit and scores; `distances` are scaled."""
    if coords is None:
        return {"problem": ATSP(len(ids)), "instance": ATSPInstance(distances)}
    scaled_coords = scale_coords(coords)
    if "FIXED_EDGES_SECTION" in document.sections:
        partner = read_fixed_edges(document, len(ids))
        return {"problem": TSPFE(len(ids)), "instance": TSPFEInstance(scaled_coords, partner[None], distances)}
    if kind == "TSP":
        return {"problem": TSP(len(ids)), "instance": TSPInstance(scaled_coords, distances)}
    if kind == "CVRP":
        demand, capacity = read_demand(document, ids)
        instance = CVRPInstance(scaled_coords, demand[None], np.array([capacity]), distances)
        return {"problem": CVRP(len(ids) - 1, capacity=own_capacity(capacity)), "instance": instance}
    cost_limit = document.integer("COST_LIMIT", 0)
    scores = document.amounts("NODE_SCORE_SECTION", ids, "score")
    of_op = orienteering_instance(scaled_coords, distances, scores, cost_limit, scale)
    # The instance may have a limit of 0, but the problem could not generate others with it.
    op = OP(len(ids) - 1, max_length=float(of_op.max_length[0]) or None)
    return {"problem": op, "instance": of_op, "cost_limit": cost_limit, "scores": scores}


def check_kind(document: Document) -> str:
    """Return the TYPE after checking that it is supported and allows all keywords of the file."""
    text, line = document.value("TYPE")
    kind = text.split()[0] if text else ""  # TSPLIB adds authors' names: "TSP (M.~Hofmeister)"
    kind = SAME_TYPE.get(kind, kind)
    if kind not in FILE_TYPES:
        raise UnsupportedFile(document.path, line, f"TYPE {found(text)} is not supported; {SUPPORTED}")
    file_type = FILE_TYPES[kind]
    lines = {key: value.line for key, value in document.values.items()}
    lines |= {key: section.line for key, section in document.sections.items()}
    for keyword, line in lines.items():
        if keyword not in (*COMMON_VALUES, *COMMON_SECTIONS, *file_type.values, *file_type.sections):
            others = [name for name, other in FILE_TYPES.items() if keyword in (*other.values, *other.sections)]
            raise InvalidFile(
                document.path, line, f"{keyword} is not allowed with TYPE {kind}, only with {', '.join(others)}"
            )
    return kind


def check_metric(document: Document, kind: str) -> str:
    """Return the EDGE_WEIGHT_TYPE after checking that it is supported and agrees with related keywords."""
    metric, line = document.value("EDGE_WEIGHT_TYPE")
    if metric == EXPLICIT:
        for keyword in ("NODE_COORD_SECTION", "FIXED_EDGES_SECTION"):
            if keyword in document.sections and not FILE_TYPES[kind].has_depot:
                line, told = document.sections[keyword].line, "is not supported with EDGE_WEIGHT_TYPE EXPLICIT"
                raise UnsupportedFile(document.path, line, f"{keyword} {told}; {SUPPORTED}")
        return metric
    if "EDGE_WEIGHT_SECTION" in document.sections and metric in METRICS:
        line = document.sections["EDGE_WEIGHT_SECTION"].line
        raise InvalidFile(document.path, line, f"EDGE_WEIGHT_SECTION has no place with EDGE_WEIGHT_TYPE {metric}")
    if kind == "ATSP":
        told = f"EDGE_WEIGHT_TYPE {found(metric)} is not supported with TYPE ATSP; expected {EXPLICIT}"
        raise UnsupportedFile(document.path, line, told)
    if metric not in METRICS:
        raise UnsupportedFile(document.path, line, f"EDGE_WEIGHT_TYPE {found(metric)} is not supported; {SUPPORTED}")
    if (kind == "VRPTW" or kind in COUNTING) and metric != "EUC_2D":
        told = f"{kind} counts {'tenths' if kind == 'VRPTW' else 'parts'} of Euclidean lengths: expected EUC_2D"
        raise UnsupportedFile(document.path, line, f"EDGE_WEIGHT_TYPE {found(metric)} is not supported; {told}")
    for keyword, expected in (("EDGE_WEIGHT_FORMAT", "FUNCTION"), ("NODE_COORD_TYPE", "TWOD_COORDS")):
        text, line = document.values.get(keyword, Value(expected, 0))
        if text != expected:
            raise UnsupportedFile(document.path, line, f"{keyword} {found(text)} is not supported; expected {expected}")
    return metric


def check_dimension(document: Document, max_nodes: int) -> int:
    """Return the DIMENSION after checking its range, before allocating memory of its size."""
    dimension = document.integer("DIMENSION", 2)
    if dimension > max_nodes:
        raise UnsupportedFile(
            document.path,
            document.value("DIMENSION").line,
            f"DIMENSION {dimension} exceeds {max_nodes}; read_instance takes a larger max_nodes, in Python",
        )
    return dimension


def read_coords(document: Document, dimension: int, metric: str) -> FloatArray | None:
    """Return the coordinates of nodes 1 to `dimension`: float64 (dimension, 2). EXPLICIT files may lack them: None."""
    check_display(document, dimension)
    if metric == EXPLICIT and "NODE_COORD_SECTION" not in document.sections:
        return None
    rows = document.rows_by_node("NODE_COORD_SECTION", dimension, "x y")
    most = GREATEST.get(metric, (MAX_COORDINATE, MAX_COORDINATE))
    coords = np.array([[*map(document.parse_coordinate, texts, (line, line), most)] for texts, line in rows])
    extent = float((coords.max(axis=0) - coords.min(axis=0)).max())
    if 0 < extent < MIN_EXTENT:
        line = document.section("NODE_COORD_SECTION").line
        raise InvalidFile(
            document.path, line, f"all nodes lie within {extent:g}, expected 0 or at least {MIN_EXTENT:g}"
        )
    return coords


def check_display(document: Document, dimension: int) -> None:
    """Check the coordinates for drawings, which are not used, so that errors are noticed."""
    if "DISPLAY_DATA_SECTION" in document.sections:
        for texts, line in document.rows_by_node("DISPLAY_DATA_SECTION", dimension, "x y"):
            [document.parse_coordinate(text, line) for text in texts]


def read_depot(document: Document, kind: str, dimension: int) -> int:
    """Return the number of the only depot."""
    closed = kind != "VRPB"  # PyVRP's files omit the -1
    depots = document.integers("DEPOT_SECTION", closed)
    if not depots:
        raise InvalidFile(document.path, document.section("DEPOT_SECTION").line, "found no depot, expected one")
    if len(depots) > 1:
        raise UnsupportedFile(
            document.path, depots[1][1], f"multiple depots ({len(depots)}) are not supported; expected one"
        )
    depot, line = depots[0]
    if not 1 <= depot <= dimension:
        raise InvalidFile(document.path, line, f"found depot {depot}, expected a node from 1 to {dimension}")
    return depot


def read_demand(document: Document, ids: IntArray) -> tuple[IntArray, int]:
    """Return the demands in the order of `ids`, int64 (A,), and the capacity."""
    capacity = document.integer("CAPACITY", 1)
    return document.amounts("DEMAND_SECTION", ids, "demand", [int(ids[0])], most=capacity), capacity


def write_instance(path: str | Path, instance: FileInstance) -> None:
    """Write an instance; `read_instance` reads the same values, including node numbers.

    The file is written completely or not at all.

    Raises:
        ValueError: The instance has several vehicles or depots, or pairs; such files cannot be written.
        OSError: The file cannot be written.
    """
    if isinstance(instance.rules, FleetRules):
        raise ValueError(f"{instance.path}: files with several vehicles, depots or pairs are read only; copy the file")
    by_id = np.argsort(instance.ids)
    kind = {"TSPFE": "TSP", "PCVRPTW": "VRPTW"}.get(instance.problem.name, instance.problem.name)
    lines = [f"NAME : {instance.name}", *(f"COMMENT : {comment}" for comment in instance.comments)]
    lines += [f"TYPE : {kind}", f"DIMENSION : {len(by_id)}", f"EDGE_WEIGHT_TYPE : {instance.metric}"]
    if FILE_TYPES[kind].values[:1] == ("CAPACITY",):
        lines.append(f"CAPACITY : {instance.instance.capacity[0]}")
    if instance.rules is not None and instance.rules.num_vehicles is not None:
        lines.append(f"VEHICLES : {instance.rules.num_vehicles}")
    elif kind == "OP":
        lines.append(f"COST_LIMIT : {instance.cost_limit}")
    if instance.matrix is not None:
        lines += matrix_lines(instance.matrix[np.ix_(by_id, by_id)])
    if instance.coords is not None:
        coords = enumerate(instance.coords[by_id].tolist(), start=1)
        lines += ["NODE_COORD_SECTION", *(f"{i} {shortest(x)} {shortest(y)}" for i, (x, y) in coords)]
    if instance.problem.name == "TSPFE":
        lines += fixed_edge_lines(instance.instance.partner[0])
    if kind in ROUTE_FILES:
        lines += route_file_lines(instance, by_id)
    elif kind == "CVRP":
        lines.append("DEMAND_SECTION")
        lines += [f"{i} {demand}" for i, demand in enumerate(instance.instance.demand[0, by_id], start=1)]
    elif instance.scores is not None:
        lines.append("NODE_SCORE_SECTION")
        lines += [f"{i} {score}" for i, score in enumerate(instance.scores[by_id], start=1)]
    if FILE_TYPES[kind].has_depot:
        lines += ["DEPOT_SECTION", str(instance.ids[0]), "-1"]
    lines += ["EOF", ""]
    write_atomically(Path(path), "\n".join(lines).encode())


def shortest(number: float) -> str:
    """Return a number as text with the fewest digits that give the same float64."""
    return str(int(number)) if number.is_integer() else repr(number)
