"""Networks of m agents: exact properties of self-attention, and that what it replaces lacks them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from routing_agents.multi_agent.extractor import Layout, flatten
from routing_agents.multi_agent.networks import AgentNetwork, NetworkConfig, SelfAttention, bottleneck
from routing_gym import CompetitiveOP
from routing_gym.multi_agent.environments import GameVectorEnv

SMALL = NetworkConfig(width=8, token_width=4, num_heads=2, query_dim=3, value_dim=4, hidden=8)
LAYOUT = Layout(num_listed=3, rivals_seen=1)


def network(num_agents=5, output="value", action_size=0, seed=0, **settings):
    generator = torch.Generator().manual_seed(seed)
    made = AgentNetwork(LAYOUT, replace(SMALL, **settings), num_agents, output, action_size, generator)
    with torch.no_grad():  # outputs that differ visibly
        made.heads.out_weight.mul_(100.0)
    return made


def seen(num_agents=5, extra=0, rows=6, seed=1):
    return torch.randn(rows, num_agents, LAYOUT.size + extra, generator=torch.Generator().manual_seed(seed))


def test_the_layer_by_hand():
    """One head, d_q = d_out = 1, W_q = (1, 0), W_k = (0, 1), W_v = (1, 1); x^1 = (1, 0), x^2 = (ln 3, 1).

    <q^1, k^1> = 1 * 0 and <q^1, k^2> = 1 * 1: alpha^1 = (1, e) / (1 + e), c^1 = (1 + e (ln 3 + 1)) / (1 + e).
    <q^2, k^1> = 0 and <q^2, k^2> = ln 3: alpha^2 = (1, 3) / 4, c^2 = (1 + 3 (ln 3 + 1)) / 4. Not scaled.
    """
    layer = SelfAttention(2, 1, 1, 1)
    for part, row in ((layer.query, [[1.0, 0.0]]), (layer.key, [[0.0, 1.0]]), (layer.value, [[1.0, 1.0]])):
        part.weight.data = torch.tensor(row)
    x = torch.tensor([[[1.0, 0.0], [math.log(3), 1.0]]])
    e, second = math.e, math.log(3) + 1
    assert layer.weights(x)[0, 0].tolist() == [
        pytest.approx([1 / (1 + e), e / (1 + e)], rel=1e-6),
        pytest.approx([0.25, 0.75], rel=1e-6),
    ]
    expected = [(1 + e * second) / (1 + e), (1 + 3 * second) / 4]
    assert layer(x).flatten().tolist() == pytest.approx(expected, rel=1e-6)


def test_the_scale_is_left_out():
    """d_q = 4 and q = k = (1, 1, 1, 1) x: the inner product of 1 and 1 is 4, and not 4 / sqrt(4)."""
    layer = SelfAttention(1, 1, 4, 1)
    layer.query.weight.data = layer.key.weight.data = torch.ones(4, 1)
    assert layer.weights(torch.tensor([[[1.0], [0.0]]]))[0, 0, 0, 0].item() == pytest.approx(1 / (1 + math.exp(-4)))


ATTENTIVE = ["attention", "attention-own", "mean"]


@pytest.mark.parametrize("settings", [{}, {"share_heads": True}, {"num_layers": 2}], ids=str)
@pytest.mark.parametrize("output", ["value", "choice", "vector"])
@pytest.mark.parametrize("mixing", [*ATTENTIVE, "concatenation", "concatenation-narrow"])
def test_the_order_of_the_others_does_not_matter(mixing, output, settings):
    """Agents 1 and 3 change places: what is computed for 0, 2 and 4 stays, unless the network concatenates.

    In float64, so that rounding is told from more.
    """
    net, observation = network(mixing=mixing, output=output, **settings).double(), seen().double()
    swapped = observation[:, [0, 3, 2, 1, 4]]
    others = [0, 2, 4]
    change = (net(observation) - net(swapped))[:, others].abs().max().item()
    size = net(observation).abs().max().item()
    if mixing in ATTENTIVE:
        assert change <= 1e-12 * size
    else:
        assert change > 1e-3 * size


@pytest.mark.parametrize("mixing", ["attention", "attention-own"])
def test_action_values_hear_of_all_actions_in_any_order(mixing):
    net, observation = network(mixing=mixing, action_size=2), seen(extra=2)
    values = net(observation)
    assert torch.allclose(net(observation[:, [0, 3, 2, 1, 4]])[:, [0, 2, 4]], values[:, [0, 2, 4]], atol=1e-5)
    other = observation.clone()
    other[:, 3, -2:] += 1.0  # another action of agent 3
    assert ((net(other) - values).abs() > 1e-4).any(dim=0).all()  # whoever listens


def test_own_hears_nothing():
    net, observation = network(mixing="own"), seen()
    other = observation.clone()
    other[:, 1:] += 1.0
    assert torch.equal(net(other)[:, 0], net(observation)[:, 0])


def test_the_trunk_does_not_grow_with_the_number_of_agents():
    """Attention: 3 l d_q d numbers, whatever m; concatenating takes (m d)^2 weights and m d biases."""
    for mixing in [*ATTENTIVE, "own"]:
        assert len({network(m, mixing=mixing).trunk_size() for m in (2, 4, 32)}) == 1
    extractor = network(2).trunk_size() - 2 * 2 * 3 * 8 - 2 * 4 * 8
    for m in (2, 4, 32):
        assert network(m, mixing="concatenation").trunk_size() == extractor + (8 * m) ** 2 + 8 * m


def test_narrow_concatenation_has_the_weights_of_attention():
    """d = 64, l = 4, d_q = d_out = 16: 64 * 4 * 48 = 12,288 weights, which 2 * m * 64 * 96 / m are too."""
    assert [bottleneck(NetworkConfig("concatenation-narrow"), m) for m in (2, 4, 8, 16, 32)] == [48, 24, 12, 6, 3]
    assert bottleneck(NetworkConfig("concatenation"), 8) == 0


def test_heads_are_not_shared_by_default():
    """All agents see the same; so they differ by their heads only."""
    observation = seen(num_agents=1).expand(-1, 5, -1)
    assert network()(observation).std(dim=1).min() > 1e-3
    assert network(share_heads=True)(observation).std(dim=1).max() < 1e-5


def test_a_network_runs_with_other_numbers_of_agents():
    """With shared heads, of agents that see the same, m does not matter to attention at all."""
    net = network(5, share_heads=True)
    alone = seen(num_agents=1)
    assert torch.allclose(net(alone.expand(-1, 7, -1))[:, 6], net(alone)[:, 0], atol=1e-6)
    assert net(seen(num_agents=3)).shape == (6, 3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "made for 5 agents and has a head for each of them; got 3. Networks with share_heads"),
        ({"mixing": "concatenation", "share_heads": True}, "made for 5 agents and concatenates what they see; got 3"),
    ],
)
def test_other_numbers_of_agents_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        network(5, **settings)(seen(num_agents=3))


def test_observations_of_a_wrong_size():
    with pytest.raises(ValueError, match=r"expected observations \(B, m, 26\), got \(6, 5, 28\)"):
        network()(seen(extra=2))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"width": 0}, "width must be an integer of at least 1, got 0"),
        ({"num_heads": 3}, "num_heads \\* value_dim must be the width, 64, .* got 3 \\* 16"),
        ({"mixing": "magic"}, "mixing must be one of attention, .*; got 'magic'"),
    ],
)
def test_bad_configurations(settings, message):
    with pytest.raises(ValueError, match=message):
        NetworkConfig(**settings)


def test_flat_observations_hold_what_agents_see():
    """7 numbers of oneself, 3 customers of 5, 2 rivals of 4; the mask is apart."""
    game = CompetitiveOP(4, num_listed=3, rivals_seen=2)
    observation, _ = GameVectorEnv(game, 2, backend="torch").reset(seed=1)
    flat = flatten(observation)
    assert flat.shape == (2, 4, Layout.of(game).size) == (2, 4, 30)
    assert torch.equal(flat[..., 7:22], observation["customers"].flatten(2))
    assert torch.equal(flat[..., 22:], observation["rivals"].flatten(2))


def test_attention_weights_are_shares():
    weights = network().attention(seen())
    assert weights.shape == (6, 2, 5, 5)
    np.testing.assert_allclose(weights.sum(-1), 1.0, rtol=1e-6)
    with pytest.raises(TypeError, match="mixing 'mean' has no attention weights"):
        network(mixing="mean").attention(seen())


@pytest.mark.parametrize("mixing", [*ATTENTIVE, "own", "concatenation", "concatenation-narrow"])
def test_every_parameter_learns(mixing):
    net = network(mixing=mixing, output="choice", num_layers=2)
    net(seen()).square().sum().backward()
    assert [name for name, p in net.named_parameters() if p.grad is None or not p.grad.any()] == []
