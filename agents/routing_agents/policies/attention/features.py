"""Which observations feed the attention model, from what each problem declares.

Kool et al. (2019), appendices B to E: the encoder sees the coordinates and what each node offers or
asks; the decoder's context is the mean embedding, the embeddings of some nodes, and scalars.
"""

from __future__ import annotations

from dataclasses import dataclass

from routing_gym.problem import AnyProblem
from routing_gym.problems import PROBLEMS, make_problem
from routing_gym.traits import Observations

CODE_SIZE = 64  # numbers in the code of a node that has no coordinates


@dataclass(frozen=True)
class Features(Observations):
    """Keys of the observation, by what the model does with them; see `Observations`.

    Attributes:
        depot: Whether node 0 is a depot, which is embedded by itself, from its coordinates.
    """

    depot: bool = True

    @property
    def coords(self) -> bool:
        """Return whether nodes have coordinates; without, the encoder reads lengths, by codes of nodes."""
        return self.per_edge is None

    @property
    def static_keys(self) -> tuple[str, ...]:
        """Observations that the encoder reads; they do not change within an episode."""
        keys = ("coords" if self.coords else None, self.per_edge, self.pairs, self.partner)
        return (*(key for key in keys if key), *self.per_node)

    @property
    def node_inputs(self) -> int:
        """Numbers that the encoder reads of each customer."""
        return (
            (2 if self.coords else 3 * CODE_SIZE)
            + len(self.per_node)
            + (4 if self.pairs else 0)
            + (3 if self.partner else 0)
        )

    @property
    def dynamic_keys(self) -> tuple[str, ...]:
        """Observations that the decoder reads, without the mask."""
        return (*self.context_nodes, *self.context_scalars, *((self.per_step,) if self.per_step else ()))


def features_of(problem: AnyProblem) -> Features:
    """Return what the model reads of a problem."""
    return Features(**vars(problem.observations), depot=problem.has_depot)


FEATURES = {name: features_of(make_problem(name, problem.min_nodes)) for name, problem in PROBLEMS.items()}
