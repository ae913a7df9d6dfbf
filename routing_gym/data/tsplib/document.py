"""Grammar of the TSPLIB family: ``KEYWORD : value`` lines, and sections of rows of numbers.

This is one strict parser for instances (.tsp, .vrp, .oplib) and solutions (.tour, OPLib's .sol); the readers interpret
the keywords.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from routing_gym.arrays import IntArray
from routing_gym.files import InvalidFile, UnsupportedFile, found, read_lines

KEYWORD = re.compile(r"([A-Za-z]\w*)\s*(:)?(.*)", re.ASCII | re.DOTALL)
INTEGER = re.compile(r"[+-]?\d{1,12}", re.ASCII)  # at most 12 digits: sums over any file stay far within int64
MAX_NUMBER_LENGTH = 60
MAX_COORDINATE = 1e9  # keeps distances exact in float64 and their sums within int64


def max_file_bytes(num_nodes: int) -> int:
    """Return an upper bound on the size in bytes of a reasonable file with this many nodes."""
    return 2**20 + 200 * num_nodes


class Value(NamedTuple):
    text: str
    line: int


@dataclass
class Section:
    line: int
    rows: list[Value] = field(default_factory=list)  # one per line that is not blank


@dataclass(frozen=True)
class Document:
    """Parsed file; no keyword has been interpreted yet."""

    path: Path
    last_line: int
    comments: list[str] = field(default_factory=list)
    values: dict[str, Value] = field(default_factory=dict)
    sections: dict[str, Section] = field(default_factory=dict)

    def value(self, keyword: str) -> Value:
        """Return the value of a required keyword."""
        if keyword not in self.values:
            raise InvalidFile(self.path, self.last_line, f"the file ends without {keyword}; expected '{keyword} : ...'")
        return self.values[keyword]

    def section(self, keyword: str) -> Section:
        """Return a required section."""
        if keyword not in self.sections:
            raise InvalidFile(self.path, self.last_line, f"the file ends without {keyword}")
        return self.sections[keyword]

    def integer(self, keyword: str, low: int) -> int:
        """Return the value of a keyword as an integer of at least `low`."""
        text, line = self.value(keyword)
        return self.parse_integer(text, line, low, keyword)

    def parse_integer(self, text: str, line: int, low: int, what: str) -> int:
        if not INTEGER.fullmatch(text) or int(text) < low:
            raise InvalidFile(
                self.path,
                line,
                f"{what}: found {found(text)}, expected an integer of at least {low}, at most 12 digits long",
            )
        return int(text)

    def parse_coordinate(self, text: str, line: int, most: float = MAX_COORDINATE) -> float:
        try:  # float() also accepts digits of other scripts, and underscores
            value = float(text) if text.isascii() and "_" not in text and len(text) <= MAX_NUMBER_LENGTH else math.nan
        except ValueError:
            value = math.nan
        if not abs(value) <= most:
            raise InvalidFile(
                self.path, line, f"coordinate: found {found(text)}, expected a number of at most {most:g}"
            )
        return value

    def integers(self, keyword: str, closed: bool = True) -> list[tuple[int, int]]:
        """Return the numbers of a section with their lines, up to the closing -1, which `closed` makes mandatory."""
        numbers = [
            (self.parse_integer(text, row.line, -1, keyword), row.line)
            for row in self.section(keyword).rows
            for text in row.text.split()
        ]
        end = next((i for i, (number, _) in enumerate(numbers) if number == -1), None)
        if end is None and not closed:
            return numbers
        if end is None:
            raise InvalidFile(self.path, self.last_line, f"{keyword} does not end; expected -1 after its last number")
        for number, line in numbers[end:]:
            if number != -1:  # TSPLIB closes the last tour twice
                raise InvalidFile(self.path, line, f"{keyword}: found {number} after the closing -1")
        return numbers[:end]

    def rows_by_node(
        self, keyword: str, dimension: int, columns: str, *, each: str = "node", total: str = "DIMENSION"
    ) -> list[tuple[list[str], int]]:
        """Return the texts after the node number, and the line, for nodes 1 to `dimension` in this order.

        Args:
            keyword: Name of the section.
            dimension: Number of nodes.
            columns: Columns after the node number, such as "x y"; "client ..." for one or more.
            each: Name of the numbered objects, if they are not nodes.
            total: Keyword of their number.
        """
        section, names = self.section(keyword), columns.split()
        rows: dict[int, tuple[list[str], int]] = {}
        for text, line in section.rows:
            row = text.split()
            if len(row) < 2 if names[-1] == "..." else len(row) != 1 + len(names):
                raise InvalidFile(self.path, line, f"{keyword}: found {found(text)}, expected '{each} {columns}'")
            node = self.parse_integer(row[0], line, 1, each)
            if node > dimension:
                raise InvalidFile(self.path, line, f"{keyword}: found {each} {node}, expected 1 to {total} {dimension}")
            if node in rows:
                raise InvalidFile(self.path, line, f"{keyword}: {each} {node} is already given in line {rows[node][1]}")
            rows[node] = row[1:], line
        if len(rows) < dimension:
            missing = next(node for node in range(1, dimension + 1) if node not in rows)
            last = section.rows[-1].line if section.rows else section.line
            raise InvalidFile(
                self.path,
                last,
                f"{keyword}: found {len(rows)} {each}s, expected {total} {dimension}; {each} {missing} is missing",
            )
        return [rows[node] for node in range(1, dimension + 1)]

    def amounts(
        self, keyword: str, ids: IntArray, what: str, depots: Collection[int] = (), most: int | None = None
    ) -> IntArray:
        """Return one integer for each node in the order of `ids`: int64 (A,).

        Args:
            keyword: The section.
            ids: int64 (A,), numbers of the nodes.
            what: Name of the integers, for messages.
            depots: Numbers of the nodes that must have 0.
            most: CAPACITY, if no value may exceed it.
        """
        values = []
        for node, (texts, line) in enumerate(self.rows_by_node(keyword, len(ids), what), start=1):
            value = self.parse_integer(texts[0], line, 0, what)
            if most is not None and value > most:
                raise InvalidFile(self.path, line, f"{what}: found {value}, expected at most the CAPACITY {most}")
            if value and node in depots:
                told = f"found {what} {value} at the depot, node {node}; expected 0"
                raise InvalidFile(self.path, line, f"{keyword}: {told}")
            values.append(value)
        return np.array(values, dtype=np.int64)[ids - 1]


@dataclass(frozen=True)
class Grammar:
    """Keywords of one kind of file.

    Attributes:
        values: Keywords that have a value, in addition to COMMENT, which may be repeated.
        sections: Keywords that are followed by rows.
        unsupported: Keywords that are refused, with the feature that each stands for.
        supported: Description of the supported files, for such an error.
    """

    values: Collection[str]
    sections: Collection[str]
    unsupported: Mapping[str, str] = field(default_factory=dict)
    supported: str = ""


def parse(path: Path, max_bytes: int, grammar: Grammar) -> Document:
    """Read a file and split it into keyword values and sections.

    Raises:
        InvalidFile: A line is misplaced, a keyword is repeated, text follows EOF, or `read_lines` fails.
        UnsupportedFile: A keyword is refused or unknown.
        OSError: The file cannot be opened.
    """
    return parse_lines(path, read_lines(path, max_bytes), grammar)


def parse_lines(path: Path, lines: list[str], grammar: Grammar) -> Document:
    """Parse the lines of a file that has been read; see `parse`."""
    document = Document(path, last_line=len(lines))
    section: Section | None = None
    ended = False
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if not text:
            continue
        if ended:
            raise InvalidFile(path, number, f"found {found(text)} after EOF; expected nothing")
        match = KEYWORD.fullmatch(text)
        if match is not None:
            ended = text.rstrip(" :") == "EOF"
            section = None if ended else add_keyword(document, grammar, match, number)
        elif section is not None:
            section.rows.append(Value(text, number))
        else:
            raise InvalidFile(path, number, f"found {found(text)}, expected a line 'KEYWORD : value'")
    return document


def add_keyword(document: Document, grammar: Grammar, match: re.Match[str], line: int) -> Section | None:
    """Add one keyword line to a document; return the section that it opens, or None.

    Raises:
        InvalidFile: The line is malformed, or the keyword is repeated.
        UnsupportedFile: The keyword is refused or unknown.
    """
    keyword, colon, value = match[1], match[2], match[3].strip()
    if keyword in grammar.unsupported:
        feature = grammar.unsupported[keyword]
        raise UnsupportedFile(document.path, line, f"{feature} ({keyword}) is not supported; {grammar.supported}")
    if keyword == "COMMENT" and colon:
        document.comments.append(value)
        return None
    first = document.values.get(keyword) or document.sections.get(keyword)
    if first is not None:
        raise InvalidFile(document.path, line, f"{keyword} is given again; it is already in line {first.line}")
    if keyword in grammar.values and colon:
        document.values[keyword] = Value(value, line)
        return None
    if keyword in grammar.sections and not value:
        document.sections[keyword] = Section(line)
        return document.sections[keyword]
    if colon and keyword not in grammar.sections:
        known = ", ".join(["COMMENT", *sorted([*grammar.values, *grammar.sections])])
        raise UnsupportedFile(document.path, line, f"keyword {found(keyword)} is not supported; supported are {known}")
    raise InvalidFile(
        document.path, line, f"found {found(match[0])}, expected a line 'KEYWORD : value' or a section that is known"
    )
