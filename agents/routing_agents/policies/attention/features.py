"""Which observations feed the attention model, from what each problem declares.

Kool et al. (2019), appendices B to E: the encoder sees the coordinates and what each node offers or
asks; the decoder's context is the mean embedding, the embeddings of some nodes, and scalars.
"""

from __future__ import annotations

from dataclasses import dataclass

from routing_gym.problem import AnyProblem, instance_fields
from routing_gym.problems import PROBLEMS, make_problem
from routing_gym.traits import Observations

CODE_SIZE = 64  # numbers in the code of a node, where there are matrices


@dataclass(frozen=True)
class Features(Observations):
    """Keys of the observation, by what the model does with them; see `Observations`.

    Attributes:
        depot: Whether node 0 is a depot, which is embedded by itself, from its place.
        coords: Whether nodes have coordinates.
    """

    depot: bool = True
    coords: bool = True

    @property
    def static_keys(self) -> tuple[str, ...]:
        """Observations that the encoder reads; they do not change within an episode."""
        keys = ("coords" if self.coords else None, *self.per_edge, self.pairs, self.partner)
        return (*(key for key in keys if key), *self.per_node)

    @property
    def place_inputs(self) -> int:
        """Numbers that tell where a node is: its coordinates, and with matrices codes of nodes around it."""
        codes = 1 + 2 * len(self.per_edge) if self.per_edge else 0
        return 2 * self.coords + codes * CODE_SIZE

    @property
    def node_inputs(self) -> int:
        """Numbers that the encoder reads of each customer."""
        return self.place_inputs + len(self.per_node) + (4 if self.pairs else 0) + (3 if self.partner else 0)

    @property
    def dynamic_keys(self) -> tuple[str, ...]:
        """Observations that the decoder reads, without the mask."""
        return (*self.context_nodes, *self.context_scalars, *((self.per_step,) if self.per_step else ()))


def features_of(problem: AnyProblem) -> Features:
    """Return what the model reads of a problem."""
    coords = "coords" in instance_fields(problem)
    return Features(**vars(problem.observed), depot=problem.has_depot, coords=coords)


FEATURES = {name: features_of(make_problem(name, problem.min_nodes)) for name, problem in PROBLEMS.items()}
