"""Which observations feed the attention model: one row per problem.

Kool et al. (2019), appendices B to E: the encoder sees the coordinates and what each node offers or
asks; the decoder's context is the mean embedding, the embeddings of some nodes, and scalars.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from routing_gym.problems.vrp import PRESETS


@dataclass(frozen=True)
class Features:
    """Keys of the observation, by what the model does with them.

    Attributes:
        per_node: Inputs (B, A) of the encoder beside the coordinates.
        depot: Whether node 0 is a depot, embedded on its own from its coordinates.
        context_nodes: Node indices (B,) whose embeddings enter the decoder's context.
        context_scalars: Numbers (B, 1) that enter the decoder's context.
        pairs: Key of the nodes (B, A) where what a node gets is picked up, 0 for none. The encoder sees where each
            delivery's pickup lies, and where each pickup's delivery.
        per_step: What each node still asks for at this step (B, A); projected into keys and values.
    """

    per_node: tuple[str, ...] = ()
    depot: bool = True
    context_nodes: tuple[str, ...] = ("current_node",)
    context_scalars: tuple[str, ...] = ()
    pairs: str | None = None
    per_step: str | None = None

    @property
    def static_keys(self) -> tuple[str, ...]:
        """What the encoder reads; it does not change within an episode."""
        return ("coords", *self.per_node, *((self.pairs,) if self.pairs else ()))

    @property
    def node_inputs(self) -> int:
        """How many numbers the encoder sees of each customer."""
        return 2 + len(self.per_node) + (4 if self.pairs else 0)

    @property
    def dynamic_keys(self) -> tuple[str, ...]:
        """What the decoder reads beside the mask."""
        return (*self.context_nodes, *self.context_scalars, *((self.per_step,) if self.per_step else ()))


def vrp_features(settings: dict[str, Any]) -> Features:
    """Return what is seen of a preset of the VRP family: as CVRP, and what its attributes add."""
    backhauls = ("backhaul",) if "backhauls" in settings else ()
    windows = ("ready_time", "due_time", "service_time") if "time_windows" in settings else ()
    length = ("remaining_length",) if "max_length" in settings else ()
    time = ("current_time",) if "time_windows" in settings else ()
    return Features(per_node=("demand", *backhauls, *windows), context_scalars=("free_capacity", *length, *time))


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
}
