"""Observations that the attention model reads, from the declarations of each problem.

Kool et al. (2019), appendices B to E: the encoder reads the coordinates and numbers of each node, such as its demand or
prize; the decoder's context is the mean embedding, the embeddings of some nodes, and scalars.
"""

from __future__ import annotations

from dataclasses import dataclass

from routing_gym.data.own import smallest
from routing_gym.problem import AnyProblem, instance_fields
from routing_gym.traits import Observations

CODE_SIZE = 64  # size of the code of a node, with matrices


@dataclass(frozen=True)
class Features(Observations):
    """Keys of the observation, grouped by their use in the model; see `Observations`.

    Attributes:
        depot: Whether node 0 is a depot, whose embedding has its own layer.
        coords: Whether nodes have coordinates.
    """

    depot: bool = True
    coords: bool = True

    @property
    def static_keys(self) -> tuple[str, ...]:
        """Observations that the encoder reads; they do not change within an episode."""
        keys = ("coords" if self.coords else None, *self.per_edge, self.pairs, self.partner, self.depots)
        return (*(key for key in keys if key), *self.per_node, *self.per_depot)

    @property
    def place_inputs(self) -> int:
        """Number of inputs for a node's location: coordinates, and with matrices codes of nodes around it."""
        codes = 1 + 2 * len(self.per_edge) if self.per_edge else 0
        return 2 * self.coords + codes * CODE_SIZE

    @property
    def node_inputs(self) -> tuple[str, ...]:
        """Names of the encoder's inputs for each customer."""
        places = tuple(f"place {number}" for number in range(self.place_inputs))
        pairs = tuple(f"pair {number}" for number in range(4 * bool(self.pairs)))
        partner = tuple(f"partner {number}" for number in range(3 * bool(self.partner)))
        return (*places, *self.per_node, *pairs, *partner)

    @property
    def depot_inputs(self) -> tuple[str, ...]:
        """Names of the encoder's inputs for each depot."""
        return (*self.node_inputs[: self.place_inputs], *self.per_depot)

    def context_inputs(self, embed_dim: int) -> tuple[str, ...]:
        """Return the names of the inputs in the decoder's context."""
        nodes = (f"{node} {number}" for node in self.context_nodes for number in range(embed_dim))
        return (*nodes, *self.context_scalars)

    @property
    def dynamic_keys(self) -> tuple[str, ...]:
        """Observations that the decoder reads, except for the mask."""
        return (*self.context_nodes, *self.context_scalars, *((self.per_step,) if self.per_step else ()))


def features_of(problem: AnyProblem, observed: Observations | None = None) -> Features:
    """Return the observations that the model reads for a problem: `observed`, or by default all of the problem's."""
    coords = "coords" in instance_fields(problem)
    return Features(**vars(observed or problem.observed), depot=problem.has_depot, coords=coords)


def features_named(name: str) -> Features:
    """Return the observations that the model reads for a problem, given by its name."""
    return features_of(smallest(name))
