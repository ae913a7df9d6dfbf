"""Declarations of a problem beside its rules, for code common to all problems: user data, files, pictures, networks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["coords", "matrix", "length", "time", "amount", "count", "prize", "flag", "node"]


@dataclass(frozen=True)
class Column:
    """One input from which users build their own instances of a problem.

    Attributes:
        name: Column of a table, header in a CSV file and keyword argument; "coords" stands for the columns x and y.
        meaning: Description for documentation and messages.
        kind: "coords" (A, 2) are moved and scaled into the unit square. A "matrix" (A, A) of lengths, a "length" and
            a "time" (travel speed is 1) are scaled by the same factor: the extent of the coordinates or, with a matrix
            `distances`, its mean in relation to theirs. With a matrix `durations`, it and all times are scaled by a
            factor of their own. The diagonals of matrices are set to 0. An "amount" of goods, a "count" of vehicles, a
            "prize", a "flag" (0 or 1) and the number of a "node" are not scaled.
        per: "node": one value for each node, (A,), at least 0; "instance": one positive number.
        required: Whether the column is required. An optional column has a default value, or its attribute is absent.
            If a problem has columns, a required one must fill each field of the instance that has no default.
        integer: Whether only integers are accepted. The field is then int64; it is also int64 for a "node", bool for
            a "flag" and float32 for other kinds.
        at_depot: Whether row 0, the depot, may have another value than 0.
        limit: Whether the value limits a sum of lengths. Sums may reach it exactly, so it is raised by one in a
            million against rounding errors.
        unit: Name of the column by which the values are divided.
        field: Field of the instance that holds the values; "" if it has the same name, None if there is no field.
        also: Other accepted names of the column in a planning table.
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
        """Names of the columns in a table."""
        return ("x", "y") if self.kind == "coords" else (self.name,)

    @property
    def tabular(self) -> bool:
        """Return whether the values form columns of a table with one row for each node."""
        return self.per == "node" and self.kind != "matrix"

    @property
    def target(self) -> str | None:
        """Name of the instance's field; None without one."""
        return self.name if self.field == "" else self.field


COORDS = Column("coords", "coordinates x and y of all nodes", "coords")
DISTANCES = Column(
    "distances", "lengths from each node (row) to each node (column); the diagonal is ignored", "matrix", required=False
)


@dataclass(frozen=True)
class Route:
    """One vehicle's part of a tour.

    Attributes:
        nodes: Nodes in the order of the visits. With a depot, node 0 is the first, and also the last once the vehicle
            has returned; an open route ends at its last customer.
        amounts: Amounts that the vehicle delivers, collects or picks up: for each name the amount and its limit, None
            without a limit.
    """

    nodes: list[int]
    amounts: Mapping[str, tuple[float, float | None]] = field(default_factory=dict)


@dataclass(frozen=True)
class Observations:
    """Keys of the observation that a network embeds, grouped by how it embeds them.

    Static keys come from `observe_static`, dynamic ones from `observe_dynamic`. Numbers and flags are float32, nodes
    int64. B is the batch size, A the number of nodes. `check_problem` checks sources, dtypes and shapes.

    Attributes:
        per_node: Static numbers (B, A), in addition to the coordinates.
        per_edge: Static matrices (B, A, A): "distances", and "durations" where they differ from lengths; no others,
            because both are scaled like coordinates. See `Problem.observed`.
        context_nodes: Dynamic nodes (B,) whose embeddings enter the decoder's context.
        context_scalars: Dynamic numbers (B, 1) that enter the decoder's context; also those that never change.
        depots: Static flag (B, A) of the depots, which come first; None if there is at most one.
        per_depot: Static numbers (B, A) of depots only.
        pairs: Static pickup node of each node's goods (B, A); 0 for none.
        partner: Static other end of each node's fixed edge (B, A); the node itself for none.
        per_step: Dynamic numbers (B, A).
        optional: Keys among the above that other problems of the family lack; a network that is trained on several
            problems gets 0 for them.
    """

    per_node: tuple[str, ...] = ()
    per_edge: tuple[str, ...] = ()
    context_nodes: tuple[str, ...] = ("current_node",)
    context_scalars: tuple[str, ...] = ()
    depots: str | None = None
    per_depot: tuple[str, ...] = ()
    pairs: str | None = None
    partner: str | None = None
    per_step: str | None = None
    optional: tuple[str, ...] = ()
