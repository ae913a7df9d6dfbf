"""Shared functions of the PPO scripts: advantages and the clipped objective."""

from __future__ import annotations

import torch
from torch import Tensor


def gae(
    rewards: Tensor, values: Tensor, terminated: Tensor, next_value: Tensor, gamma: float, gae_lambda: float
) -> Tensor:
    """Estimate advantages (Schulman et al. 2016, "High-dimensional continuous control using GAE", eq. 16).

    Args:
        rewards: Rewards (T, ...).
        values: Values (T, ...) of the states before the steps.
        terminated: Whether each step ended its episode, bool (T, ...); the next step belongs to the next episode.
        next_value: Values (...) of the states after the last step.
        gamma: Discount factor.
        gae_lambda: Weight of later steps, lambda of the paper.

    Returns:
        Advantages (T, ...).
    """
    advantages = torch.zeros_like(rewards)
    later = torch.zeros_like(next_value)
    for step in reversed(range(len(rewards))):
        goes_on = (~terminated[step]).to(rewards.dtype)
        error = rewards[step] + gamma * goes_on * next_value - values[step]
        advantages[step] = later = error + gamma * gae_lambda * goes_on * later
        next_value = values[step]
    return advantages


def clipped_losses(log_p: Tensor, old_log_p: Tensor, advantages: Tensor, clip_coef: float) -> dict[str, Tensor]:
    """Return PPO's policy loss (Schulman et al. 2017, eq. 7), and measures of how far the policy has moved.

    Args:
        log_p: Current log-probabilities of the actions, of any shape.
        old_log_p: Log-probabilities of the actions when they were taken.
        advantages: Advantages of the actions; this function normalises them to mean 0 and standard deviation 1.
        clip_coef: Clipping range: largest relative change of a probability that is rewarded.

    Returns:
        "policy_loss"; and detached "old_approx_kl", "approx_kl" (http://joschu.net/blog/kl-approx.html) and "clipfrac".
    """
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    log_ratio = log_p - old_log_p
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1 - clip_coef, 1 + clip_coef)
    moved = ratio.detach()
    return {
        "policy_loss": -torch.min(advantages * ratio, advantages * clipped).mean(),
        "old_approx_kl": -log_ratio.detach().mean(),
        "approx_kl": (moved - 1 - log_ratio.detach()).mean(),
        "clipfrac": ((moved - 1).abs() > clip_coef).float().mean(),
    }
