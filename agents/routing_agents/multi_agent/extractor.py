"""Inputs of networks for games: flat observations, and the extractor that all agents share."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from routing_gym.multi_agent import CompetitiveOP

SELF, CUSTOMER, RIVAL = 7, 5, 4  # sizes of the observations of oneself, a customer and a rival in `CompetitiveOP`
PRESENT, PLACE = slice(0, 1), slice(1, 3)  # in the observation of a customer or a rival: whether it exists; dx, dy
NOBODY = 2.0  # distance from a customer to a rival that does not exist


@dataclass(frozen=True)
class Layout:
    """Layout of a flat observation: the agent itself, K customers, R rivals.

    Attributes:
        num_listed: Number of customers K.
        rivals_seen: Number of rivals R.
        num_ticks: Number of steps in the unit of lengths, which is the longest path of a game.
    """

    num_listed: int
    rivals_seen: int
    num_ticks: int = 16

    @classmethod
    def of(cls, game: CompetitiveOP) -> Layout:
        return cls(game.num_listed, game.rivals_seen, game.num_ticks)

    @property
    def size(self) -> int:
        """Size F of a flat observation."""
        return SELF + CUSTOMER * self.num_listed + RIVAL * self.rivals_seen

    def ways(self, observation: Tensor) -> Tensor:
        """Return the offsets to the customers, in steps: (..., F) to (..., K, 2); zeros for missing customers."""
        customers = observation[..., SELF : SELF + CUSTOMER * self.num_listed]
        return self.num_ticks * customers.unflatten(-1, (self.num_listed, CUSTOMER))[..., PLACE]


def flatten(observation: dict[str, Tensor]) -> Tensor:
    """Concatenate the arrays that agents observe, (B, m, ...) each, to (B, m, F)."""
    keys = [key for key in ("self", "customers", "rivals") if key in observation]
    return torch.cat([observation[key].flatten(2) for key in keys], dim=-1)


class Extractor(nn.Module):
    """The shared extractor o^i -> x^i: two layers for each customer, with shared weights, and one for all customers.

    The inputs for a customer are its observation, its distances to the observed rivals, the observations of the agent
    itself and of those rivals and, for action values, the agent's action.

    Args:
        layout: Layout of the observations.
        action_size: Size of an action, which follows the observation; 0 without actions.
        token_width: Size t of the features of a customer.
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
        """Extract features of agents and customers.

        Args:
            observation: Flat observations, followed by actions: (B, m, F + action_size).

        Returns:
            x (B, m, d), and the features of each customer (B, m, K, t).
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
