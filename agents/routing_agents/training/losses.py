"""Losses of sampled tours: REINFORCE, and two that compare the tours of an instance with each other.

Each is a pure function of the costs of K tours of B instances, their log-probabilities, and a baseline; only the
log-probabilities have gradients.
"""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]  # cost (B, K), log p (B, K), baseline -> scalar
SCALE = 0.05  # alpha of Pan et al.: factor of log-likelihood differences; for TSP-20 one over its steps


def reinforce(cost: Tensor, log_p: Tensor, baseline: Tensor) -> Tensor:
    """Return the loss whose gradient is that of REINFORCE (Kool et al. 2019, eq. 9).

    Args:
        cost: Costs of K tours of each instance, float32 (B, K).
        log_p: Logarithm of the probability of each tour, float32 (B, K).
        baseline: Baseline that is subtracted from the costs; broadcasts to (B, K).
    """
    return ((cost - baseline) * log_p).mean()


def preference(cost: Tensor, log_p: Tensor, baseline: Tensor) -> Tensor:
    """Return the loss of preference optimisation (Pan et al. 2025), with the Bradley-Terry model.

    The loss is the mean of -log sigmoid(alpha (log p_i - log p_j)) over all ordered pairs (i, j) of an instance's K
    tours. A pair counts zero unless tour i is cheaper than tour j. Only the order of the costs matters.

    Args:
        cost: Costs of the tours, float32 (B, K).
        log_p: Logarithm of the probability of each tour, float32 (B, K).
        baseline: Unused; the tours are compared with each other.
    """
    prefers = (cost[:, :, None] < cost[:, None, :]).to(log_p.dtype)  # (B, K, K)
    difference = log_p[:, :, None] - log_p[:, None, :]
    return -(prefers * F.logsigmoid(SCALE * difference)).mean()


def best_anchored(cost: Tensor, log_p: Tensor, baseline: Tensor) -> Tensor:
    """Return the loss of BOPO (Liao et al. 2025): the best tour of each instance against the others.

    The loss is the mean of -log sigmoid(s (log p_best - log p_j)) over the tours j. The factor s grows with the gap of
    tour j to the best one: 1 + (cost_j - cost_best) / |cost_best|, which is the paper's ratio for positive costs.
    Deviations: the log-likelihoods are scaled by a constant instead of divided by the number of steps; all sampled
    tours count, and those whose cost equals the best count zero; no greedy tour is added.

    Args:
        cost: Costs of the tours, float32 (B, K).
        log_p: Logarithm of the probability of each tour, float32 (B, K).
        baseline: Unused; the tours are compared with each other.
    """
    best_cost, best = cost.min(dim=1, keepdim=True)
    is_worse = (cost > best_cost).to(log_p.dtype)
    excess = (cost - best_cost) / best_cost.abs().clamp(min=1e-6)
    difference = log_p.gather(1, best) - log_p
    return -(is_worse * F.logsigmoid(SCALE * (1 + excess) * difference)).mean()


LOSSES: dict[str, Loss] = {"reinforce": reinforce, "preference": preference, "best-anchored": best_anchored}
