"""Explicit data on pairs of nodes in TSPLIB files: distances and fixed edges.

Source: Reinelt (1995), "TSPLIB 95", sections 1.1 and 1.2.
"""

from __future__ import annotations

import numpy as np

from routing_gym.arrays import IntArray
from routing_gym.data.tsplib.document import Document
from routing_gym.files import InvalidFile, UnsupportedFile, found

TRIANGLES = ("UPPER_ROW", "LOWER_ROW", "UPPER_DIAG_ROW", "LOWER_DIAG_ROW")
FORMATS = ("FULL_MATRIX", *TRIANGLES, *(name.replace("ROW", "COL") for name in TRIANGLES))
MAX_MATRIX_NODES = 2_000  # reading numbers is slower than computing them; TSPLIB's largest such file has 1,032 nodes


def read_matrix(document: Document, dimension: int, symmetric: bool) -> IntArray:
    """Return the distances of the EDGE_WEIGHT_SECTION: int64 (dimension, dimension).

    Line breaks are ignored. The diagonal is set to 0; some files store a large number there.

    Args:
        document: Parsed file.
        dimension: Number of nodes.
        symmetric: Whether to refuse a full matrix that is not symmetric.
    """
    layout, line = document.value("EDGE_WEIGHT_FORMAT")
    if layout not in FORMATS:
        expected = f"with EDGE_WEIGHT_TYPE EXPLICIT, expected one of {', '.join(FORMATS)}"
        raise UnsupportedFile(document.path, line, f"EDGE_WEIGHT_FORMAT {found(layout)} is not supported; {expected}")
    if dimension > MAX_MATRIX_NODES:
        told = f"DIMENSION {dimension} exceeds {MAX_MATRIX_NODES}, the most with EDGE_WEIGHT_TYPE EXPLICIT"
        raise UnsupportedFile(document.path, document.value("DIMENSION").line, f"{told}; take away some nodes")
    places = matrix_places(layout, dimension)
    section = document.section("EDGE_WEIGHT_SECTION")
    texts = [(text, row.line) for row in section.rows for text in row.text.split()]
    if len(texts) != len(places[0]):
        line = texts[len(places[0])][1] if len(texts) > len(places[0]) else (texts[-1][1] if texts else section.line)
        expected = f"expected {len(places[0])}: {layout} with DIMENSION {dimension}"
        raise InvalidFile(document.path, line, f"EDGE_WEIGHT_SECTION: found {len(texts)} numbers, {expected}")
    matrix = np.zeros((dimension, dimension), dtype=np.int64)
    matrix[places] = [document.parse_integer(text, line, 0, "EDGE_WEIGHT_SECTION") for text, line in texts]
    np.fill_diagonal(matrix, 0)
    if layout != "FULL_MATRIX":
        return matrix + matrix.T
    if symmetric and (matrix != matrix.T).any():
        i, j = map(int, np.argwhere(matrix != matrix.T)[0])
        told = f"from node {i + 1} to {j + 1} it is {matrix[i, j]}, and back {matrix[j, i]}"
        raise InvalidFile(document.path, texts[i * dimension + j][1], f"{told}; if this is meant, expected TYPE : ATSP")
    return matrix


def matrix_places(layout: str, dimension: int) -> tuple[IntArray, IntArray]:
    """Return the rows and columns of the entries in a section, in order."""
    if layout == "FULL_MATRIX":
        rows, columns = np.indices((dimension, dimension)).reshape(2, -1)
        return rows, columns
    offset = 0 if "DIAG" in layout else 1
    by_upper_rows = layout.startswith("UPPER") == layout.endswith("ROW")  # like the columns of the lower triangle
    return np.triu_indices(dimension, offset) if by_upper_rows else np.tril_indices(dimension, -offset)


def read_fixed_edges(document: Document, dimension: int) -> IntArray:
    """Return the other end of each node's fixed edge, or the node itself if it has none: int64 (dimension,).

    Nodes are counted from 0.
    """
    numbers = document.integers("FIXED_EDGES_SECTION")
    if len(numbers) % 2:
        node, line = numbers[-1]
        raise InvalidFile(document.path, line, f"fixed edge: found node {node} alone, expected two nodes")
    for (node, line), (other, _) in zip(numbers[::2], numbers[1::2], strict=True):
        if node == other:
            raise InvalidFile(document.path, line, f"fixed edge: joins node {node} with itself; leave it out")
    partner = np.arange(dimension)
    lines: dict[int, int] = {}
    for node, line in numbers:
        if not 1 <= node <= dimension:
            raise InvalidFile(document.path, line, f"fixed edge: found node {node}, expected 1 to {dimension}")
        if node in lines:
            told = f"node {node} has a fixed edge in line {lines[node]} already; at most one is supported"
            raise UnsupportedFile(document.path, line, f"{told}: contract a chain of edges to its two ends")
        lines[node] = line
    ends = np.array([node - 1 for node, _ in numbers], dtype=np.int64).reshape(-1, 2)
    partner[ends] = ends[:, ::-1]
    return partner


def matrix_lines(matrix: IntArray) -> list[str]:
    """Format a matrix as an EDGE_WEIGHT_SECTION."""
    rows = (" ".join(map(str, row)) for row in matrix.tolist())
    return ["EDGE_WEIGHT_FORMAT : FULL_MATRIX", "EDGE_WEIGHT_SECTION", *rows]


def fixed_edge_lines(partner: IntArray) -> list[str]:
    """Format fixed edges as a FIXED_EDGES_SECTION."""
    ends = np.flatnonzero(partner > np.arange(len(partner)))
    return ["FIXED_EDGES_SECTION", *(f"{one + 1} {partner[one] + 1}" for one in ends.tolist()), "-1"]
