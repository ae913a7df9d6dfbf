"""Interface of policy networks, which decoding, search and training use.

B = instances, K = tours per instance, T = steps, A = actions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Protocol

from torch import Tensor, nn

from routing_agents.policies.attention.features import Features


class Encoded(Protocol):
    """Members that all encodings of B instances have; only the network reads the others."""

    @property
    def keys(self) -> Tensor:
        """Keys of the nodes: (B, ...)."""

    def detach(self) -> Any:
        """Return the same encoding, detached from the computation graph."""


class PolicyNetwork(nn.Module, ABC):
    """A network that encodes an instance once and scores the actions of every step from that encoding.

    Attributes:
        features: Observations that the network reads.
    """

    features: Features

    @abstractmethod
    def multiply_in(self, precision: str) -> None:
        """Choose the precision of the matrix products: "float32" or "bfloat16".

        Raises:
            ValueError: The precision is another one.
        """

    @abstractmethod
    def encode(self, observation: dict[str, Tensor]) -> Encoded:
        """Encode B instances from their static observation."""

    @abstractmethod
    def stepwise_logits(self, encoding: Any, num_tours: int, skip: int = 0) -> Callable[[dict[str, Tensor]], Tensor]:
        """Return a function that scores the actions of each step in turn, without gradients.

        Args:
            encoding: Encoding of B instances.
            num_tours: Number of tours per instance.
            skip: Number of leading steps, at most one, that are forced and therefore not scored.
        """

    @abstractmethod
    def tour_logits(self, encoding: Any, observation: dict[str, Tensor], skip: int = 0) -> Tensor:
        """Score the actions of all steps of K tours per instance, except for the first `skip` steps.

        Args:
            encoding: Encoding of B instances.
            observation: Dynamic observations at every step, (B, K, T, ...) each.
            skip: Number of leading steps that are not scored.

        Returns:
            float32 (B, K, T - skip, A), -inf for illegal actions.
        """
