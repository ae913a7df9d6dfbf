"""Losses of sampled tours by hand."""

from __future__ import annotations

import math

import pytest
import torch

from routing_agents.training import losses
from routing_agents.training.losses import LOSSES, SCALE, best_anchored, preference, reinforce

NONE = torch.zeros(1)


def log_sigmoid(x):
    return -math.log1p(math.exp(-x))


def test_reinforce_by_hand():
    """Costs 4 and 2 against 3, log p -1 and -2: (1 x -1 + -1 x -2) / 2 = 0.5."""
    loss = reinforce(torch.tensor([[4.0, 2.0]]), torch.tensor([[-1.0, -2.0]]), torch.tensor([[3.0]]))
    assert loss.item() == pytest.approx(0.5)


def test_preference_by_hand():
    """Costs (1, 2, 2), log p (-10, 10, 30), alpha 0.05: tour 0 is preferred to 1 and 2, by -20 and -40 nats, -1 and -2
    after scaling; 1 and 2 cost the same. -(log s(-1) + log s(-2)) / 9 = (1.3133 + 2.1269) / 9 = 0.38224."""
    assert SCALE == 0.05
    loss = preference(torch.tensor([[1.0, 2.0, 2.0]]), torch.tensor([[-10.0, 10.0, 30.0]]), NONE)
    assert loss.item() == pytest.approx(-(log_sigmoid(-1) + log_sigmoid(-2)) / 9) == pytest.approx(0.38224, abs=1e-5)


@pytest.mark.parametrize(
    ("cost", "factor"),
    [((2.0, 3.0), 1.5), ((-3.0, -2.0), 4 / 3)],  # a prize of 2 instead of 3 is a third less
)
def test_best_anchored_by_hand(cost, factor):
    """Costs 2 and 3, log p -20 and -40: the best is 20 nats likelier, 1 after scaling, times the ratio 3 / 2."""
    loss = best_anchored(torch.tensor([cost]), torch.tensor([[-20.0, -40.0]]), NONE)
    assert loss.item() == pytest.approx(-log_sigmoid(factor) / 2)


@pytest.mark.parametrize("name", LOSSES)
def test_tours_of_equal_cost_teach_nothing(name):
    """No gradient by tours of which none is better; the first row costs nothing at all."""
    log_p = torch.tensor([[-1.0, -2.0, -3.0]] * 2, requires_grad=True)
    cost = torch.tensor([[0.0] * 3, [5.0] * 3])
    LOSSES[name](cost, log_p, cost.mean(dim=1, keepdim=True)).backward()
    assert log_p.grad.tolist() == [[0.0] * 3] * 2


@pytest.mark.parametrize("name", LOSSES)
def test_better_tours_become_likelier_and_rows_are_independent(name):
    """Descent raises log p of the cheapest and lowers it of the dearest tour, in each instance on its own."""
    log_p = torch.zeros(2, 3, requires_grad=True)
    cost = torch.tensor([[1.0, 2.0, 4.0], [7.0, 5.0, 6.0]])
    LOSSES[name](cost, log_p, cost.mean(dim=1, keepdim=True)).backward()
    one, other = log_p.grad
    assert one[0] < 0 < one[2]
    assert other[1] < 0 < other[0]
    alone = torch.zeros(1, 3, requires_grad=True)
    LOSSES[name](cost[:1], alone, cost[:1].mean(dim=1, keepdim=True)).backward()
    torch.testing.assert_close(alone.grad[0], 2 * one)  # a mean over one instance instead of two


def test_sizes_of_costs_do_not_matter_to_preferences():
    """Only best-anchored and REINFORCE see by how much a tour is better."""
    log_p = torch.tensor([[-3.0, -1.0, -2.0]])
    near, far = torch.tensor([[1.0, 1.1, 1.2]]), torch.tensor([[1.0, 2.0, 9.0]])
    equal = {name: bool(loss(near, log_p, NONE) == loss(far, log_p, NONE)) for name, loss in losses.LOSSES.items()}
    assert equal == {"reinforce": False, "preference": True, "best-anchored": False}
