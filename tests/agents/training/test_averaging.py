"""Averages of weights: by hand, statistics of normalisation included."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from routing_agents.training.averaging import WeightAverage


class Normalised(nn.Module):
    """One weight, multiplied with the input and normalised."""

    def __init__(self, value: float, normalised: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([value]))
        self.norm = nn.BatchNorm1d(1) if normalised else nn.Identity()

    def encode(self, observation):
        return self.norm(observation["x"][:, None] * self.weight)


def test_average_by_hand():
    """Decay 0.5 from 0, towards 1, 2 and 3. After step 1 the decay is 2 / 11, after step 2 it is 3 / 12, after step 9
    it would be 10 / 19, more than 0.5: 9 / 11, then 0.25 x 9 / 11 + 0.75 x 2 = 1.7045, then half way to 3."""
    average = WeightAverage(Normalised(0.0), 0.5)
    for step, value in ((1, 1.0), (2, 2.0), (9, 3.0)):
        average.update(Normalised(value), step)
    assert average.model.weight.item() == pytest.approx((0.25 * 9 / 11 + 1.5 + 3) / 2)
    assert not average.model.training
    assert not average.model.weight.requires_grad


def test_statistics_are_those_of_the_average_weights():
    """Weight 2, batches (1, 3) and (5, 9): means 4 and 14, unbiased variances 8 and 32; the means are 9 and 20."""
    average = WeightAverage(Normalised(2.0), 0.9)
    for _ in range(2):  # nothing is left of what was measured before
        average.measure([{"x": torch.tensor([1.0, 3.0])}, {"x": torch.tensor([5.0, 9.0])}])
    norm = average.model.norm
    assert norm.running_mean.item() == pytest.approx(9.0)
    assert norm.running_var.item() == pytest.approx(20.0)
    assert norm.momentum == 0.1
    assert not average.model.training


def test_nothing_is_drawn_without_batch_normalisation():
    def batches():
        raise AssertionError
        yield

    WeightAverage(Normalised(2.0, normalised=False), 0.9).measure(batches())
