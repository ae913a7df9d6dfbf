"""What the attention model sees of matrices of lengths and durations.

B = instances, A = nodes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from routing_agents.policies.attention.features import CODE_SIZE

VIEW = "view"  # observation (B,) of an encoder that is shown an instance in several ways
GOLDEN_RATIO = (1 + math.sqrt(5)) / 2
TEMPERATURE = 0.1  # of `successions`, in mean lengths
BALANCINGS = 10  # with 100, tours that go to the likeliest node were 0.2 % shorter (ATSP-20), 0.1 % longer (ATSP-50)


def relative(lengths: Tensor) -> Tensor:
    """Divide lengths (B, A, A) by their mean."""
    return lengths / lengths.mean(dim=(1, 2), keepdim=True).clamp(min=torch.finfo(lengths.dtype).tiny)


def successions(lengths: Tensor) -> Tensor:
    """Estimate the chance that one node follows another on a short tour: (B, A, A), from node to node.

    Where a way is short, but each of the two has shorter ones, it is hardly taken. So exp(-length / temperature) is
    balanced until each node has about one successor and one predecessor: Sinkhorn (1967), "Diagonal equivalence to
    matrices with prescribed row and column sums"; a soft solution of the assignment problem.

    Args:
        lengths: (B, A, A), of at least two nodes.
    """
    itself = torch.eye(lengths.shape[1], dtype=torch.bool, device=lengths.device)
    scores = (relative(lengths) / -TEMPERATURE).masked_fill(itself, -math.inf)
    for _ in range(BALANCINGS):
        scores = scores.log_softmax(dim=2).log_softmax(dim=1)
    return scores.exp()


def node_codes(chances: Sequence[Tensor], view: Tensor | None = None) -> Tensor:
    """Return codes of each node, and for each matrix of those likely to follow it and of those likely to precede it.

    Each node has a code, nearly orthogonal to the others'; sums of codes, weighted by `successions`, show whether a
    node is among them by the product with its code. Kwon et al. (2021) draw one-hot codes, in another order each time,
    and nothing else. Here a node's place decides: as places in random instances mean nothing, that comes to the same,
    needs no generator, and bounds no size.

    Args:
        chances: `successions` of each of M matrices, (B, A, A).
        view: int64 (B,), another order of the codes for each number; by default 0, the order of the nodes.

    Returns:
        (B, A, (1 + 2 M) CODE_SIZE).
    """
    like = chances[0]
    place = torch.arange(1, like.shape[1] + 1, device=like.device, dtype=like.dtype)
    # Quadratic multiples of an irrational number are as good as random, and the same everywhere.
    waves = like.new_tensor([math.tau * (wave * wave * GOLDEN_RATIO % 1) for wave in range(1, CODE_SIZE + 1)])
    codes = (math.sqrt(2) * torch.cos(place[:, None] * waves)).expand(len(like), -1, -1)
    if view is not None:
        order = (view[:, None] * place.double().square() * GOLDEN_RATIO % 1).argsort(dim=1, stable=True)
        codes = codes.gather(1, order[..., None].expand_as(codes))
    around = [part for follows in chances for part in (follows @ codes, follows.transpose(1, 2) @ codes)]
    return torch.cat([codes, *around], dim=-1)
