"""Which observations feed the attention model: one row per problem.

Kool et al. (2019), appendices B to E: the encoder sees the coordinates and what each node offers or
asks; the decoder's context is the mean embedding, the embeddings of some nodes, and scalars.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from routing_gym.problems.vrp import PRESETS

CODE_SIZE = 64  # numbers in the code of a node that has no coordinates


@dataclass(frozen=True)
class Features:
    """Keys of the observation, by what the model does with them.

    Attributes:
        coords: Whether nodes have coordinates. Without, the encoder sees who is near to whom, by codes of nodes.
        per_node: Inputs (B, A) of the encoder beside the coordinates.
        per_edge: Key of the lengths (B, A, A) from each node to each, which shift the encoder's attention.
        depot: Whether node 0 is a depot, embedded on its own from its coordinates.
        context_nodes: Node indices (B,) whose embeddings enter the decoder's context.
        context_scalars: Numbers (B, 1) that enter the decoder's context.
        pairs: Key of the nodes (B, A) where what a node gets is picked up, 0 for none. The encoder sees where each
            delivery's pickup lies, and where each pickup's delivery.
        partner: Key of the other end of each node's fixed edge (B, A), itself for none. The encoder sees whether there
            is one, and the way there.
        per_step: What each node still asks for at this step (B, A); projected into keys and values.
        optional: Which of these inputs may be absent, and then are zeros to a model of several problems.
    """

    coords: bool = True
    per_node: tuple[str, ...] = ()
    per_edge: str | None = None
    depot: bool = True
    context_nodes: tuple[str, ...] = ("current_node",)
    context_scalars: tuple[str, ...] = ()
    pairs: str | None = None
    partner: str | None = None
    per_step: str | None = None
    optional: tuple[str, ...] = ()

    @property
    def static_keys(self) -> tuple[str, ...]:
        """What the encoder reads; it does not change within an episode."""
        optional = ("coords" if self.coords else None, self.per_edge, self.pairs, self.partner)
        return (*(key for key in optional if key), *self.per_node)

    @property
    def node_inputs(self) -> int:
        """How many numbers the encoder sees of each customer."""
        return (
            (2 if self.coords else 3 * CODE_SIZE)
            + len(self.per_node)
            + (4 if self.pairs else 0)
            + (3 if self.partner else 0)
        )

    @property
    def dynamic_keys(self) -> tuple[str, ...]:
        """What the decoder reads beside the mask."""
        return (*self.context_nodes, *self.context_scalars, *((self.per_step,) if self.per_step else ()))


def vrp_features(settings: dict[str, Any]) -> Features:
    """Return what is seen of a preset of the VRP family: as CVRP, and what its attributes add."""
    backhauls = ("backhaul",) if "backhauls" in settings else ()
    windows = ("ready_time", "due_time", "service_time") if "time_windows" in settings else ()
    opened = ("open_routes",) if "open_routes" in settings else ()
    length = ("remaining_length",) if "max_length" in settings else ()
    time = ("current_time",) if "time_windows" in settings else ()
    nodes, scalars = (*backhauls, *windows), (*opened, *length, *time)
    return Features(
        per_node=("demand", *nodes), context_scalars=("free_capacity", *scalars), optional=(*nodes, *scalars)
    )


FEATURES = {
    "TSP": Features(depot=False, context_nodes=("first_node", "current_node")),
    "CVRP": Features(per_node=("demand",), context_scalars=("free_capacity",)),
    "SDVRP": Features(per_node=("demand",), context_scalars=("free_capacity",), per_step="remaining_demand"),
    "OP": Features(per_node=("prize",), context_scalars=("remaining_length",)),
    "PCTSP": Features(per_node=("prize", "penalty"), context_scalars=("remaining_prize",)),
    "SPCTSP": Features(per_node=("prize", "penalty"), context_scalars=("remaining_prize",)),
    "PDP": Features(pairs="pickup"),
    "MTSP": Features(context_scalars=("salesmen_left", "current_length", "longest_length")),
    **{name: vrp_features(settings) for name, settings in PRESETS.items()},
    "TSPFE": Features(partner="partner", depot=False, context_nodes=("first_node", "current_node")),
    "ATSP": Features(coords=False, per_edge="distances", depot=False, context_nodes=("first_node", "current_node")),
}
