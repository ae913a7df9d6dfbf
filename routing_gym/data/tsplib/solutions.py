"""Tours in files: TSPLIB .tour, CVRPLIB .sol, OPLib .sol, and TSPLIB's list `solutions`.

The numbers in a file are rescored: a .sol file whose stated cost differs from its tour's cost is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from routing_gym.arrays import Array, IntArray, to_numpy
from routing_gym.data.tsplib.document import INTEGER, Document, Grammar, max_file_bytes, parse
from routing_gym.data.tsplib.fleet_rules import FleetRules
from routing_gym.data.tsplib.instance import FileInstance
from routing_gym.data.tsplib.metrics import METRICS
from routing_gym.files import InvalidFile, UnsupportedFile, found, read_lines, write_atomically
from routing_gym.problem import InfeasibleTour, join_routes

TOUR_GRAMMAR = Grammar(values=("NAME", "TYPE", "DIMENSION"), sections=("TOUR_SECTION",))
OP_GRAMMAR = Grammar(
    values=("NAME", "TYPE", "DIMENSION", "COST_LIMIT", "ROUTE_NODES", "ROUTE_SCORE", "ROUTE_COST"),
    sections=("NODE_SEQUENCE_SECTION", "DEPOT_SECTION"),
)
# No run of blanks can be split in two ways, which would take quadratic time on a malicious line.
ROUTE = re.compile(r"route\s*(?:#\s*)?\d+\s*:(.*)", re.ASCII | re.IGNORECASE)
COST = re.compile(r"cost\s*(?::\s*)?(\S+)", re.ASCII | re.IGNORECASE)
DECIMAL = re.compile(r"(\d{1,12})\.(\d{1,12})", re.ASCII)
TOURS = (".opt.tour", ".tour")
ENDINGS = {"TSP": TOURS, "TSPFE": TOURS, "ATSP": TOURS}  # all others: .sol


@dataclass(frozen=True, eq=False)
class FileTour:
    """A feasible tour from a file.

    Attributes:
        actions: int64 (T,), actions of the environment.
        cost: Cost computed by `FileInstance.cost`.
    """

    actions: IntArray
    cost: float


def read_solution(path: str | Path, instance: FileInstance) -> FileTour:
    """Read a tour of an instance: TSPLIB's .tour, CVRPLIB's .sol or OPLib's .sol.

    Raises:
        InvalidFile: The file is corrupt, its tour breaks a rule of the instance, or its stated cost is not the cost of
            its tour.
        UnsupportedFile: The file has a keyword that is not supported.
        OSError: The file cannot be opened.
    """
    path = Path(path)
    if not instance.problem.has_depot:
        return read_tour(path, instance)
    return read_sequence(path, instance) if instance.problem.name == "OP" else read_routes(path, instance)


def read_tour(path: Path, instance: FileInstance) -> FileTour:
    """Read TSPLIB's .tour."""
    document = parse(path, max_file_bytes(len(instance.ids)), TOUR_GRAMMAR)
    check_head(document, instance, "TOUR")
    nodes = document.integers("TOUR_SECTION")
    actions = to_actions(path, instance, nodes)
    return FileTour(actions, rescore(path, document.section("TOUR_SECTION").line, instance, actions))


def read_sequence(path: Path, instance: FileInstance) -> FileTour:
    """Read OPLib's .sol, whose sequence starts at the depot and does not repeat it at the end."""
    document = parse(path, max_file_bytes(len(instance.ids)), OP_GRAMMAR)
    check_head(document, instance, "OP")
    line = document.section("NODE_SEQUENCE_SECTION").line
    nodes = document.integers("NODE_SEQUENCE_SECTION")
    actions = to_actions(path, instance, nodes)
    if len(actions) == 0 or actions[0] != 0:
        raise InvalidFile(path, line, f"found no depot at the start, expected node {instance.ids[0]}")
    actions = np.append(actions[1:], 0)
    cost = rescore(path, line, instance, actions)
    facts = {
        "ROUTE_NODES": len(nodes),
        "ROUTE_SCORE": cost,
        "ROUTE_COST": instance.length(actions),
        "COST_LIMIT": instance.cost_limit,
    }
    for keyword, value in facts.items():
        if keyword in document.values and document.integer(keyword, 0) != value:
            text, line = document.value(keyword)
            raise InvalidFile(
                path, line, f"{keyword}: found {found(text)}, but the sequence and its instance give {value}"
            )
    return FileTour(actions, cost)


def read_routes(path: Path, instance: FileInstance) -> FileTour:
    """Read CVRPLIB's .sol: one route per line, nodes numbered from 0 (one less than in the file), then the cost."""
    routes: list[list[tuple[int, int]]] = []
    stated: tuple[float, int] | None = None
    depots = {int(instance.ids[node]) for node in range(instance.problem.num_depots)}
    lines = read_lines(path, max_file_bytes(len(instance.ids)))
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        route, cost = ROUTE.fullmatch(text), COST.fullmatch(text)
        if text and stated is not None:
            raise InvalidFile(path, number, f"found {found(text)} after the cost; expected nothing")
        if route is not None:
            routes.append([(parse_integer(path, number, node) + 1, number) for node in route[1].split()])
            if inside := depots & {node for node, _ in routes[-1]}:
                raise InvalidFile(path, number, f"found the depot, {min(inside) - 1}, within a route; leave it out")
            if isinstance(instance.rules, FleetRules) and routes[-1] and len(routes) > instance.rules.num_vehicles:
                told = f"route {len(routes)} has no vehicle, VEHICLES are {instance.rules.num_vehicles}"
                raise InvalidFile(path, number, f"{told}; list the routes in the order of the vehicles")
        elif cost is not None:
            stated = parse_cost(path, number, cost[1], instance.decimals), number
        elif text:
            raise InvalidFile(path, number, f"found {found(text)}, expected 'Route #1: 2 1 ...' or 'Cost 784'")
    customers = [to_actions(path, instance, route, first=0).tolist() for route in routes]
    actions = np.array(join(instance, customers), dtype=np.int64)
    value = rescore(path, len(lines), instance, actions)
    if stated is None:
        raise InvalidFile(path, len(lines), f"the file ends without its cost; expected 'Cost {value}'")
    if stated[0] != value:
        raise InvalidFile(path, stated[1], f"found cost {stated[0]}, but the routes cost {value} on {instance.path}")
    return FileTour(actions, value)


def join(instance: FileInstance, routes: list[list[int]]) -> list[int]:
    """Return the actions for routes, some of which may be empty."""
    if isinstance(instance.rules, FleetRules):
        return instance.rules.actions(routes)
    return join_routes((0, route) for route in routes)


def check_head(document: Document, instance: FileInstance, kind: str) -> None:
    """Check TYPE and DIMENSION of a solution, if given, against its instance."""
    for keyword, expected in (("TYPE", kind), ("DIMENSION", str(len(instance.ids)))):
        if keyword in document.values and document.value(keyword).text != expected:
            text, line = document.value(keyword)
            raise InvalidFile(document.path, line, f"{keyword}: found {found(text)}, expected {expected}")


def parse_integer(path: Path, line: int, text: str) -> int:
    """Return a text as an integer of at least 0."""
    if not INTEGER.fullmatch(text) or int(text) < 0:
        raise InvalidFile(path, line, f"found {found(text)}, expected an integer of at least 0, at most 12 digits long")
    return int(text)


def parse_cost(path: Path, line: int, text: str, decimals: int) -> float:
    """Return the cost of routes: an integer, also written as 784.0; with `decimals`, a number such as 827.3.

    Raises:
        UnsupportedFile: The cost has other decimals, so it is based on distances that are not rounded.
    """
    decimal = DECIMAL.fullmatch(text)
    if decimal is None:
        return parse_integer(path, line, text)
    if decimals and len(decimal[2]) <= decimals:
        return float(text)
    if decimals == 1 and decimal[2].strip("0"):
        told = "only lengths cut to tenths, as in DIMACS, are supported: move this file away to solve the instance"
        raise UnsupportedFile(path, line, f"cost {text} is of exact lengths; {told}")
    if decimal[2].strip("0"):
        raise UnsupportedFile(
            path,
            line,
            f"cost {text} is of distances that are not rounded, as in CVRPLIB's sets CMT, Golden, Li and Tai; only "
            "rounded distances are supported: move this file away to solve the instance with them",
        )
    return int(decimal[1])


def to_actions(path: Path, instance: FileInstance, nodes: list[tuple[int, int]], first: int = 1) -> IntArray:
    """Convert the instance's node numbers, each with its line, to actions: int64 (T,).

    Args:
        path: File with the tour.
        instance: Instance of the tour.
        nodes: Node numbers from 1, each with its line.
        first: Number of node 1 in the file, for messages.
    """
    most = int(instance.ids.max())
    for node, line in nodes:
        if not 1 <= node <= most:
            expected = f"expected {first} to {most - 1 + first} as in {instance.path}"
            raise InvalidFile(path, line, f"found node {node - 1 + first}, {expected}")
    places = np.argsort(instance.ids, kind="stable")  # several depots may have the same number
    numbers = np.array([node for node, _ in nodes], dtype=np.int64)
    return places[np.searchsorted(instance.ids, numbers, sorter=places)].astype(np.int64)


def rescore(path: Path, line: int, instance: FileInstance, actions: IntArray) -> float:
    """Return the cost of a tour from a file.

    Raises:
        InvalidFile: The tour breaks a rule.
    """
    try:
        return instance.cost(actions)
    except InfeasibleTour as error:
        raise InvalidFile(
            path, line, f"not a tour of {instance.path} (nodes from 0, the depot first): {error}"
        ) from error


def find_best_known(instance: FileInstance) -> tuple[float | None, IntArray | None]:
    """Return the best known cost of an instance and a tour of that cost, from files beside it; see `read_instance`.

    Raises:
        InvalidFile: A file with an expected name is corrupt or contradicts the instance.
    """
    stem = instance.path.name.removesuffix(instance.path.suffix)
    paths = [instance.path.with_name(stem + ending) for ending in ENDINGS.get(instance.problem.name, (".sol",))]
    solutions = [read_solution(path, instance) for path in paths if path.is_file() and path != instance.path]
    costs = [solution.cost for solution in solutions]
    if not instance.problem.has_depot:  # TSPLIB has files of one name for both: eil51.tsp and eil51.vrp
        costs += listed_costs(instance.path.with_name("solutions"), stem, instance.metric)
    if not costs:
        return None, None
    best = max(costs) if instance.problem.maximises else min(costs)
    return best, next((solution.actions for solution in solutions if solution.cost == best), None)


def listed_costs(path: Path, name: str, metric: str) -> list[int]:
    """Return the costs on lines ``name : cost`` of a list of solutions; other lines are ignored.

    Lines ``name : cost (METRIC)`` with another metric are ignored, too: the list has two such lines for dsj1000.
    """
    if not path.is_file():
        return []
    costs = []
    for number, text in enumerate(read_lines(path, 2**20), start=1):
        key, _, value = text.partition(":")
        if key.strip() == name:
            cost, *remarks = value.split() or [""]
            if not remarks or remarks[0].strip("()") not in METRICS.keys() - {metric}:
                costs.append(parse_integer(path, number, cost))
    return costs


def write_tour(path: str | Path, instance: FileInstance, actions: Array) -> float:
    """Write a tour in the file's own node numbers: TSPLIB's .tour, CVRPLIB's .sol or OPLib's .sol.

    The file is written completely or not at all.

    Args:
        path: File to write; any ending is allowed.
        instance: Instance of the tour.
        actions: Complete tour: actions of the environment, integers (T,).

    Returns:
        The cost written.

    Raises:
        InfeasibleTour: The tour breaks a rule; nothing is written.
        OSError: The file cannot be written.
    """
    tour = to_numpy(actions)
    cost = instance.cost(tour)
    layout = sequence_lines if instance.problem.name == "OP" else route_lines
    if not instance.problem.has_depot:
        layout = tour_lines
    write_atomically(Path(path), "\n".join([*layout(instance, tour, cost), ""]).encode())
    return cost


def tour_lines(instance: FileInstance, tour: IntArray, cost: float) -> list[str]:
    """Format a tour as TSPLIB's .tour."""
    nodes = instance.ids[tour]
    head = [f"NAME : {instance.name}", f"COMMENT : length {cost}", "TYPE : TOUR", f"DIMENSION : {len(nodes)}"]
    return [*head, "TOUR_SECTION", *map(str, nodes), "-1", "EOF"]


def route_lines(instance: FileInstance, tour: IntArray, cost: float) -> list[str]:
    """Format a tour as CVRPLIB's .sol."""
    lines = []
    if isinstance(instance.rules, FleetRules):
        for number, customers in enumerate(instance.rules.by_vehicle(instance.problem, tour), start=1):
            lines.append(f"Route #{number}: {' '.join(map(str, instance.ids[customers] - 1))}".rstrip())
        return [*lines, f"Cost {cost}"]
    for number, route in enumerate(instance.problem.routes(instance.instance, tour), start=1):
        nodes = (instance.ids[node] - 1 for node in route.nodes if node)
        lines.append(f"Route #{number}: {' '.join(map(str, nodes))}")
    return [*lines, f"Cost {cost}"]


def sequence_lines(instance: FileInstance, tour: IntArray, cost: float) -> list[str]:
    """Format a tour as OPLib's .sol."""
    depot, nodes = instance.ids[0], instance.ids[tour[tour != 0]]
    return [
        f"NAME : {instance.name}",
        "TYPE : OP",
        f"DIMENSION : {len(instance.ids)}",
        f"COST_LIMIT : {instance.cost_limit}",
        f"ROUTE_NODES : {1 + len(nodes)}",
        f"ROUTE_SCORE : {cost}",
        f"ROUTE_COST : {instance.length(tour)}",
        *["NODE_SEQUENCE_SECTION", str(depot), *map(str, nodes), "-1"],
        *["DEPOT_SECTION", str(depot), "-1", "EOF"],
    ]
