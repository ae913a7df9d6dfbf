"""What a problem declares beside its rules, for all that serves every problem: own data, files, pictures, networks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["coords", "matrix", "length", "time", "amount", "prize", "flag", "node"]


@dataclass(frozen=True)
class Column:
    """One input of a problem: what an instance of a user's own is made of.

    Attributes:
        name: Column of a table, header in a CSV file and keyword argument; "coords" stands for the columns x and y.
        meaning: For documentation and messages.
        kind: "coords" (A, 2) are moved and scaled into the unit square. A "matrix" (A, A) of lengths, a "length" and
            a "time" (travel speed is 1) are scaled by the same factor. An "amount", a "prize", a "flag" (0 or 1) and
            the number of a "node" stay as they are.
        per: "node": one value for each node, (A,); "instance": one number.
        required: Without it, the problem's instances have a default, or nothing of the kind.
        integer: Only integers are accepted.
        at_depot: Whether row 0, the depot, may have another value than 0.
        limit: Sums of lengths may reach it exactly; it is raised by one in a million, which rounding may take.
        unit: Name of the column by which the values are divided.
        field: Field of the instance that holds the values, if it has another name; None: no field.
        also: Other names in a planner's table.
    """

    name: str
    meaning: str
    kind: Kind
    per: Literal["node", "instance"] = "node"
    required: bool = True
    integer: bool = False
    at_depot: bool = False
    limit: bool = False
    unit: str | None = None
    field: str | None = ""
    also: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        """Names in a table."""
        return ("x", "y") if self.kind == "coords" else (self.name,)

    @property
    def tabular(self) -> bool:
        """Return whether a table holds it, with one row for each node."""
        return self.per == "node" and self.kind != "matrix"

    @property
    def target(self) -> str | None:
        """Field of the instance."""
        return self.name if self.field == "" else self.field


COORDS = Column("coords", "coordinates x and y of all nodes", "coords")
DISTANCES = Column(
    "distances", "lengths from each node (row) to each node (column); the diagonal is ignored", "matrix", required=False
)


@dataclass(frozen=True)
class Route:
    """One vehicle's part of a tour.

    Attributes:
        nodes: In the order of the visits. With a depot, node 0 is the first, and also the last once the vehicle has
            returned; a vehicle that does not return ends at its last customer.
        amounts: What the vehicle delivers, collects or picks up: for each name the amount, and the most that there may
            be, None without a limit.
    """

    nodes: list[int]
    amounts: Mapping[str, tuple[float, float | None]] = field(default_factory=dict)


@dataclass(frozen=True)
class Observations:
    """Keys of the observation that a network embeds, by how.

    Attributes:
        per_node: Numbers (B, A), beside the coordinates, that do not change.
        per_edge: Matrices (B, A, A): lengths, and durations where they are apart. See `Problem.observed`.
        context_nodes: Nodes (B,) whose embeddings enter the decoder's context.
        context_scalars: Numbers (B, 1) that enter it.
        pairs: Nodes (B, A) where what a node gets is picked up; 0 for none.
        partner: The other end of each node's fixed edge (B, A); the node itself for none.
        per_step: Numbers (B, A) that change with every step.
        optional: Those of the above that other problems of the family lack; 0 for a network that is trained on several.
    """

    per_node: tuple[str, ...] = ()
    per_edge: tuple[str, ...] = ()
    context_nodes: tuple[str, ...] = ("current_node",)
    context_scalars: tuple[str, ...] = ()
    pairs: str | None = None
    partner: str | None = None
    per_step: str | None = None
    optional: tuple[str, ...] = ()
