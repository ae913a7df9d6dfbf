"""What a network reads of a game: flat observations, and the extractor that all agents share."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from routing_gym.multi_agent import CompetitiveOP

SELF, CUSTOMER, RIVAL = 7, 5, 4  # numbers that `CompetitiveOP` shows of oneself, of a customer and of a rival
PRESENT, PLACE = slice(0, 1), slice(1, 3)  # of those of a customer and a rival: whether there is one; dx, dy
NOBODY = 2.0  # the distance from a customer to a rival that is not there


@dataclass(frozen=True)
class Layout:
    """Where things stand in a flat observation: oneself, K customers, R rivals.

    Attributes:
        num_listed: K.
        rivals_seen: R.
        num_ticks: Steps in the unit of lengths, which is the whole way of a game.
    """

    num_listed: int
    rivals_seen: int
    num_ticks: int = 16

    @classmethod
    def of(cls, game: CompetitiveOP) -> Layout:
        return cls(game.num_listed, game.rivals_seen, game.num_ticks)

    @property
    def size(self) -> int:
        """Numbers in a flat observation, F."""
        return SELF + CUSTOMER * self.num_listed + RIVAL * self.rivals_seen

    def ways(self, observation: Tensor) -> Tensor:
        """Return the ways to the customers, in steps: (..., F) to (..., K, 2); zeros where there is none."""
        customers = observation[..., SELF : SELF + CUSTOMER * self.num_listed]
        return self.num_ticks * customers.unflatten(-1, (self.num_listed, CUSTOMER))[..., PLACE]


def flatten(observation: dict[str, Tensor]) -> Tensor:
    """Concatenate the arrays that agents observe, (B, m, ...) each, to (B, m, F)."""
    keys = [key for key in ("self", "customers", "rivals") if key in observation]
    return torch.cat([observation[key].flatten(2) for key in keys], dim=-1)


class Extractor(nn.Module):
    """The shared extractor o^i -> x^i: two layers for each customer, the same for all, and one for all of them.

    Each customer is read together with its distances to the rivals that one sees, with oneself, those rivals and, in
    action values, one's action.

    Args:
        layout: Of the observations.
        action_size: Numbers of an action, which follow the observation; 0 without.
        token_width: Size t of what is extracted of a customer.
        width: Size d of x^i.
    """

    def __init__(self, layout: Layout, action_size: int, token_width: int, width: int) -> None:
        super().__init__()
        self.layout = layout
        self.sizes = [SELF, CUSTOMER * layout.num_listed, RIVAL * layout.rivals_seen + action_size]
        self.around = nn.Linear(self.sizes[0] + self.sizes[2], token_width)
        self.customer = nn.Linear(CUSTOMER + layout.rivals_seen, token_width)
        self.token = nn.Linear(token_width, token_width)
        self.join = nn.Linear((layout.num_listed + 1) * token_width, width)

    def forward(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        """Extract.

        Args:
            observation: (B, m, F + action_size).

        Returns:
            x (B, m, d), and what is known of each customer: (B, m, K, t).
        """
        oneself, customers, others = observation.split(self.sizes, dim=-1)
        around = self.around(torch.cat([oneself, others], dim=-1))
        customers = customers.unflatten(-1, (self.layout.num_listed, CUSTOMER))
        if self.layout.rivals_seen:
            rivals = others[..., : RIVAL * self.layout.rivals_seen].unflatten(-1, (-1, RIVAL))
            customers = torch.cat([customers, to_rivals(customers, rivals)], dim=-1)
        tokens = F.relu(self.token(F.relu(self.customer(customers) + around[..., None, :])))
        joined = torch.cat([tokens.flatten(-2), F.relu(around)], dim=-1)
        return F.relu(self.join(joined)), tokens


def to_rivals(customers: Tensor, rivals: Tensor) -> Tensor:
    """Return the distances from customers (..., K, 5) to rivals (..., R, 4): (..., K, R), in the observations' unit."""
    way = customers[..., :, None, PLACE] - rivals[..., None, :, PLACE]
    there = rivals[..., None, :, PRESENT].squeeze(-1) > 0
    return torch.where(there, way.square().sum(dim=-1).sqrt(), NOBODY)
