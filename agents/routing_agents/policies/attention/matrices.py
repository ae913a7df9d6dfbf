"""Inputs of the attention model from matrices of lengths and durations.

B = instances, A = nodes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from routing_agents.policies.attention.features import CODE_SIZE

VIEW = "view"  # key of an observation (B,): number of the view, if the encoder reads an instance in several views
GOLDEN_RATIO = (1 + math.sqrt(5)) / 2
TEMPERATURE = 0.1  # temperature of `successions`, in mean lengths
BALANCINGS = 10  # iterations of `successions`; many more gave no better estimates


def relative(lengths: Tensor) -> Tensor:
    """Divide lengths (B, A, A) by their mean."""
    return lengths / lengths.mean(dim=(1, 2), keepdim=True).clamp(min=torch.finfo(lengths.dtype).tiny)


def successions(lengths: Tensor) -> Tensor:
    """Estimate the probability that one node follows another on a short tour: (B, A, A), from row to column.

    A short edge is rarely used if both its nodes have shorter ones. So exp(-length / temperature) is balanced until
    each node has about one successor and one predecessor: Sinkhorn (1967), "Diagonal equivalence to matrices with
    prescribed row and column sums". The result is a soft solution of the assignment problem.

    Args:
        lengths: Lengths (B, A, A) between at least two nodes.
    """
    itself = torch.eye(lengths.shape[1], dtype=torch.bool, device=lengths.device)
    scores = (relative(lengths) / -TEMPERATURE).masked_fill(itself, -math.inf)
    for _ in range(BALANCINGS):
        scores = scores.log_softmax(dim=2).log_softmax(dim=1)
    return scores.exp()


def node_codes(chances: Sequence[Tensor], view: Tensor | None = None) -> Tensor:
    """Return the code of each node and, for each matrix, the codes of its likely successors and likely predecessors.

    The codes of nodes are nearly orthogonal. The codes of successors and predecessors are summed, weighted by
    `successions`; the product of the sum with a node's code shows whether the node is among them. Kwon et al. (2021)
    use one-hot codes only, in a random order each time. Here the code depends on the index of the node. In random
    instances the index has no meaning, so this is equivalent, needs no generator, and does not limit the size.

    Args:
        chances: `successions` (B, A, A) of each of M matrices.
        view: Number of the view, with another order of the codes for each: int64 (B,); by default 0, the order of the
            nodes.

    Returns:
        (B, A, (1 + 2 M) CODE_SIZE).
    """
    like = chances[0]
    place = torch.arange(1, like.shape[1] + 1, device=like.device, dtype=like.dtype)
    # Quadratic multiples of an irrational number are as good as random numbers, and the same on every machine.
    waves = like.new_tensor([math.tau * (wave * wave * GOLDEN_RATIO % 1) for wave in range(1, CODE_SIZE + 1)])
    codes = (math.sqrt(2) * torch.cos(place[:, None] * waves)).expand(like.shape[0], -1, -1)
    if view is not None:
        order = (view[:, None] * place.double().square() * GOLDEN_RATIO % 1).argsort(dim=1, stable=True)
        codes = codes.gather(1, order[..., None].expand_as(codes))
    around = [part for follows in chances for part in (follows @ codes, follows.transpose(1, 2) @ codes)]
    return torch.cat([codes, *around], dim=-1)
