"""The best of several tours of each instance."""

from __future__ import annotations

import torch
from torch import Tensor

from routing_gym.rollout import Rollout


def cheapest(actions: Tensor, cost: Tensor, batch_size: int) -> Rollout:
    """Return the cheapest tour of each instance, whose tours are consecutive rows."""
    cost, best = cost.unflatten(0, (batch_size, -1)).min(dim=1)
    return Rollout(
        actions.unflatten(0, (batch_size, -1))[torch.arange(batch_size, device=best.device), best], cost, None
    )


def better_of(found: list[Rollout]) -> Rollout:
    """Return the cheapest tour of each row."""
    if len(found) == 1:
        return found[0]
    longest = max(one.actions.shape[1] for one in found)
    actions = torch.stack([pad(one.actions, longest) for one in found], dim=1)
    cost = torch.stack([one.cost for one in found], dim=1)
    return cheapest(actions.flatten(0, 1), cost.flatten(), len(cost))


def pad(actions: Tensor, length: int) -> Tensor:
    """Pad tours to a length by repeating the last action, which costs nothing in a finished row."""
    missing = length - actions.shape[1]
    return torch.cat([actions, actions[:, -1:].expand(-1, missing)], dim=1) if missing else actions
