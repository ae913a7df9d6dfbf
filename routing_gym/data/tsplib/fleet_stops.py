"""Depots and customers of files in PyVRP's dialect of VRPLIB: demands, times, prizes, pickup and delivery pairs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from routing_gym.arrays import IntArray
from routing_gym.data.tsplib.document import INTEGER, Document, Value
from routing_gym.data.tsplib.vehicle_routing import read_windows
from routing_gym.files import InvalidFile, UnsupportedFile, found

KEYWORD = "PICKUP_AND_DELIVERY_SECTION"
COLUMNS = "demand ready due service pickup delivery"


@dataclass(frozen=True)
class Stops:
    """Customers in the file's order: numbers (n,), demands, times in the file's unit, and pairs."""

    ids: IntArray
    demand: IntArray
    windows: IntArray | None  # (dimension, 3), for all nodes
    pickup: IntArray | None  # (n,), index from 0 of the pickup of each delivery; -1 for none
    prize: IntArray | None = None  # (n,), lost if the customer is left out; 0 if it must be served


def number_depot(document: Document) -> None:
    """Change the first number of each section from 0 to 1; PyVRP's files after Li and Lim have 0 for the depot."""
    for keyword, section in document.sections.items():
        if keyword != "EDGE_WEIGHT_SECTION" and section.rows and (cells := section.rows[0].text.split())[0] == "0":
            section.rows[0] = Value(" ".join(["1", *cells[1:]]), section.rows[0].line)


def read_depots(document: Document, dimension: int) -> list[tuple[int, int]]:
    """Return the depots' numbers with their lines; like PyVRP, node 1 if there is no section."""
    if "DEPOT_SECTION" not in document.sections:
        return [(1, document.last_line)]
    depots = document.integers("DEPOT_SECTION", closed=False)
    if not depots:
        raise InvalidFile(
            document.path, document.section("DEPOT_SECTION").line, "found no depot, expected at least one"
        )
    lines: dict[int, int] = {}
    for depot, line in depots:
        if not 1 <= depot <= dimension:
            raise InvalidFile(document.path, line, f"found depot {depot}, expected a node from 1 to {dimension}")
        if depot in lines:
            raise InvalidFile(document.path, line, f"depot {depot} is already given in line {lines[depot]}")
        lines[depot] = line
    if len(depots) == dimension:
        raise InvalidFile(document.path, depots[-1][1], f"all {dimension} nodes are depots; expected customers, too")
    return depots


def read_stops(document: Document, depots: list[int], dimension: int) -> Stops:
    """Return the customers with the data of all node sections."""
    every = np.arange(1, dimension + 1)
    ids = np.setdiff1d(every, depots)
    check_service(document)
    prize: IntArray | None = None
    if "PRIZE_SECTION" in document.sections:
        prize = document.amounts("PRIZE_SECTION", every, "prize", depots)
    if "PICKUP_AND_DELIVERY_SECTION" in document.sections:
        if prize is not None:
            told = "PRIZE_SECTION has no place beside PICKUP_AND_DELIVERY_SECTION; only one of them is supported"
            raise UnsupportedFile(document.path, document.section("PRIZE_SECTION").line, told)
        amounts, times, source = read_pairs(document, dimension, depots)
        place = np.searchsorted(ids, source[ids - 1])
        return Stops(ids, amounts[ids - 1], times, np.where(source[ids - 1] > 0, place, -1))
    demand = document.amounts("DEMAND_SECTION", every, "demand", depots)
    windows: IntArray | None = None
    if "TIME_WINDOW_SECTION" in document.sections:
        windows = read_windows(document, every, depots)
    return Stops(ids, demand[ids - 1], windows, None, None if prize is None else prize[ids - 1])


def check_service(document: Document) -> None:
    """Refuse service times that would be ignored."""
    places = {key: value.line for key, value in document.values.items()}
    places |= {key: section.line for key, section in document.sections.items()}
    for keyword in ("SERVICE_TIME", "SERVICE_TIME_SECTION"):
        if keyword in places and KEYWORD in document.sections:
            told = f"{keyword} has no place beside {KEYWORD}, which has the service times; leave it out"
            raise InvalidFile(document.path, places[keyword], told)
        if keyword in places and "TIME_WINDOW_SECTION" not in document.sections:
            told = f"{keyword} without TIME_WINDOW_SECTION is not supported; add windows, or leave it out"
            raise UnsupportedFile(document.path, places[keyword], told)


def read_pairs(document: Document, dimension: int, depots: list[int]) -> tuple[IntArray, IntArray, IntArray]:
    """Return demands (dimension,), windows and service times (dimension, 3), and each delivery's pickup (dimension,).

    A delivery has the demand of its pickup, which is not negative. The pickup's number is 0 for all other nodes.

    Raises:
        InvalidFile: A pickup lacks its delivery, two nodes do not name each other, or a value is invalid, with its
            line.
    """
    rows = document.rows_by_node(KEYWORD, dimension, COLUMNS)
    table = np.zeros((dimension, 6), dtype=np.int64)
    for node, (texts, line) in enumerate(rows):
        table[node, 0] = parse_amount(document, texts[0], line)
        table[node, 1:] = [document.parse_integer(text, line, 0, KEYWORD) for text in texts[1:]]
        if table[node, 2] < table[node, 1]:
            told = f"the window closes at {table[node, 2]}, before it opens at {table[node, 1]}"
            raise InvalidFile(document.path, line, f"{KEYWORD}: {told}")
    for node in range(1, dimension + 1):
        if wrong := fault(table, node, node in depots):
            raise InvalidFile(document.path, rows[node - 1][1], f"{KEYWORD}: {wrong}")
    if "TIME_WINDOW_SECTION" in document.sections:
        check_windows(document, table)
    return np.abs(table[:, 0]), table[:, 1:4], table[:, 4]


def parse_amount(document: Document, text: str, line: int) -> int:
    """Return a demand, which is negative for deliveries."""
    if not INTEGER.fullmatch(text):
        raise InvalidFile(document.path, line, f"{KEYWORD}: found {found(text)}, expected an integer as demand")
    return int(text)


def fault(table: IntArray, node: int, is_depot: bool) -> str | None:
    """Return a description of the fault in a node's row; None if there is none."""
    demand, _, _, service, pickup, delivery = table[node - 1].tolist()
    if is_depot:
        return (
            f"the depot, node {node}, has goods or service; expected 0"
            if demand or service or pickup or delivery
            else None
        )
    if pickup and delivery:
        return f"node {node} has a pickup ({pickup}) and a delivery ({delivery}); set one of them to 0"
    if not pickup and not delivery:
        kind = "a pickup without its delivery" if demand >= 0 else "a delivery without its pickup"
        return f"node {node} is {kind}; give the number of the other node"
    other, column, kind = (pickup, 5, "pickup") if pickup else (delivery, 4, "delivery")
    if not 1 <= other <= len(table) or other == node:
        return f"node {node} has its {kind} at {other}, expected another node from 1 to {len(table)}"
    if table[other - 1, column] != node:
        back = "delivery" if pickup else "pickup"
        return (
            f"node {node} has its {kind} at node {other}, whose {back} is {table[other - 1, column]}; expected {node}"
        )
    if table[other - 1, 0] != -demand or (demand > 0 if pickup else demand < 0):
        told = "expected the same amount, not negative at the pickup and negative at the delivery"
        return f"node {node} has demand {demand}, and its {kind}, node {other}, {table[other - 1, 0]}; {told}"
    return None


def check_windows(document: Document, table: IntArray) -> None:
    """Check that the windows of a TIME_WINDOW_SECTION equal those of the pairs."""
    for node, (texts, line) in enumerate(document.rows_by_node("TIME_WINDOW_SECTION", len(table), "opens closes")):
        window = [document.parse_integer(text, line, 0, "time") for text in texts]
        if window != table[node, 1:3].tolist():
            told = f"node {node + 1} is open from {window[0]} to {window[1]}, and in the {KEYWORD} from"
            told = f"{told} {table[node, 1]} to {table[node, 2]}; expected the same"
            raise InvalidFile(document.path, line, f"TIME_WINDOW_SECTION: {told}")
