"""Exponential moving averages of the weights of a network in training."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor, nn

from routing_agents import checkpoint
from routing_agents.policies.protocol import PolicyNetwork

WARM_UP = 10  # with larger values, the initial weights are forgotten sooner


class WeightAverage:
    """A copy of a network whose weights follow those in training as an exponential moving average.

    After t updates the decay is min(decay, (1 + t) / (10 + t)), so that the initial weights are soon forgotten. The
    statistics of batch normalisation are valid only for the weights that they were measured with: `measure` updates
    them.

    Args:
        model: The network in training.
        decay: Share of the average that each update keeps, in [0, 1).

    Attributes:
        model: The network with the average weights, in evaluation mode.
    """

    def __init__(self, model: PolicyNetwork, decay: float) -> None:
        self.decay = decay
        self.model = copy.deepcopy(model).eval().requires_grad_(False)

    @torch.no_grad()
    def update(self, model: PolicyNetwork, step: int) -> None:
        """Move the average towards the weights of a network after `step` steps."""
        kept = min(self.decay, (1 + step) / (WARM_UP + step))
        for average, weight in zip(self.model.parameters(), model.parameters(), strict=True):
            average.lerp_(weight, 1 - kept)

    @torch.no_grad()
    def measure(self, observations: Iterable[dict[str, Tensor]]) -> None:
        """Measure the statistics of batch normalisation with the average weights, as means over some batches.

        Args:
            observations: Static observations of batches of training instances; not read without batch normalisation.
        """
        layers = [layer for layer in self.model.modules() if isinstance(layer, nn.BatchNorm1d)]
        if not layers:
            return
        momenta = [layer.momentum for layer in layers]
        for layer in layers:
            layer.reset_running_stats()
            layer.momentum = None  # torch's cumulative mean
        self.model.train()
        for observation in observations:
            self.model.encode(observation)
        self.model.eval()
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum

    def load(self, weights: dict[str, Tensor], path: Path) -> None:
        """Restore the weights of `model`, read from `path`.

        Raises:
            CheckpointError: The weights do not fit, or are not finite.
        """
        checkpoint.load_weights(self.model, weights, path)
