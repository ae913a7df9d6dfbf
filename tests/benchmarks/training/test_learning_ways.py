"""`benchmarks/training/learning_ways.py`: labels are scored as they are played; new networks begin as the plain one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from benchmarks.training import learning_ways as ways
from routing_agents.policies.attention.decoding import log_probability
from routing_agents.policies.attention.features import features_named
from routing_agents.policies.attention.model import AttentionModel, ModelConfig
from routing_gym.arrays import select, to_backend
from routing_gym.problems import make_problem
from routing_gym.rollout import rollout
from routing_gym.solvers import HeldKarp

SMALL = ModelConfig(embed_dim=16, num_heads=4, num_layers=2, feed_forward_dim=16, normalization="instance")
TSP = make_problem("TSP", 7)


@pytest.fixture
def instance():
    return TSP.generate(np.random.default_rng(3), 2)


def network(kind=AttentionModel, **changes):
    return kind(features_named("TSP"), replace(SMALL, **changes), torch.Generator().manual_seed(5)).eval()


def test_labels_are_scored_in_both_directions(instance):
    """The optimal tour from two cities each; its probability is the sum of those of both directions."""
    pytest.importorskip("fast_tsp")
    model, tensors = network(), to_backend(instance, "torch")
    encoding = model.encode(TSP.observe_static(tensors))
    starts = torch.tensor([[0, 4], [6, 2]])
    cost, log_p = ways.label(TSP, tensors, model, encoding, starts)
    optimal = HeldKarp().solve(TSP, instance)
    np.testing.assert_allclose(cost, optimal.cost, rtol=1e-5)
    for row in range(2):
        tour = optimal.actions[row].tolist()
        for column, start in enumerate(starts[row].tolist()):
            at = tour.index(start)
            forwards = tour[at:] + tour[:at]
            both = []
            for order in (forwards, [start, *reversed(forwards[1:])]):
                steps = iter(order)
                played = rollout(
                    TSP, select(tensors, [row]), lambda _, steps=steps: torch.tensor([next(steps)]), record=True
                )
                alone = model.encode(TSP.observe_static(select(tensors, [row])))
                both.append(log_probability(model, alone, played, skip=1)[0, 0])
            torch.testing.assert_close(log_p[row, column], torch.stack(both).logsumexp(dim=0), rtol=1e-4, atol=1e-4)


def test_new_networks_begin_as_the_plain_one(instance):
    """Slopes are 0 at first; of seven nodes, all are among the ten nearest, and with two neighbours some are not."""
    observation = TSP.observe_static(to_backend(instance, "torch"))
    plain = network().encode_nodes(observation)
    torch.testing.assert_close(network(ways.Biased).encode_nodes(observation), plain)
    torch.testing.assert_close(network(ways.Neighbours).encode_nodes(observation), plain)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ways, "NEIGHBOURS", 2)
        assert not torch.allclose(network(ways.Neighbours).encode_nodes(observation), plain)


TRAINERS = (
    *(ways.CosineTrainer, ways.LabelTrainer, ways.OnlyLabels, ways.AnchoredTrainer),
    *(ways.BiasTrainer, ways.NeighboursTrainer),
)


@pytest.mark.parametrize("trainer", TRAINERS)
def test_every_way_trains(trainer):
    pytest.importorskip("fast_tsp")
    args = ways.Args(
        env_id="routing/TSP-8", epochs=1, steps_per_epoch=4, batch_size=4, held_out=4, num_tours=4, attention=SMALL
    )
    made = trainer(replace(args, processes=1, threads=1))
    before = [parameter.detach().clone() for parameter in made.model.parameters()]
    rates = []
    for _ in range(4):
        rates.append(made.learning_rate)
        made.update()
    assert rates[0] == pytest.approx(3e-3)
    assert rates == sorted(rates, reverse=True)
    changed = [not torch.equal(one, other) for one, other in zip(before, made.model.parameters(), strict=True)]
    assert np.mean(changed) > 0.9
