"""The pointer network as a policy: step by step as in one pass, and the same network as learns from solved tours."""

import numpy as np
import pytest
import torch

from routing_agents.policies.attention.decoding import (
    Decoding,
    decode,
    greedy_choice,
    log_probability,
    sampling_choice,
    solve,
)
from routing_agents.policies.pointer.decoding import predict
from routing_agents.policies.pointer.model import PointerConfig, PointerNetwork, log_likelihood
from routing_agents.policies.pointer.policy import PointerPolicy
from routing_agents.policies.pointer.sequences import sorting
from routing_agents.policies.pointer.tasks import TASKS
from routing_gym.arrays import to_backend
from routing_gym.problems import TSP

PROBLEM = TSP(6)
POINTS = PROBLEM.generate(np.random.default_rng(0), 4)
INSTANCE = to_backend(POINTS, "torch")


def make_policy(encoder):
    config = PointerConfig(encoder=encoder, units=16, num_layers=1, num_heads=4)
    return PointerPolicy(config, torch.Generator().manual_seed(1)).eval()


@pytest.mark.parametrize("force_starts", [False, True])
@pytest.mark.parametrize("encoder", ["lstm", "transformer"])
def test_tours_are_scored_as_they_were_played(encoder, force_starts):
    """The probabilities of the actions as they were drawn, step by step, multiply to those of the one pass."""
    policy = make_policy(encoder)
    encoding = policy.encode(PROBLEM.observe_static(INSTANCE))
    drawn, sample = [], sampling_choice(torch.Generator().manual_seed(2))

    def choose(logits):
        actions = sample(logits)
        drawn.append(logits.log_softmax(dim=-1).gather(2, actions[..., None])[..., 0])
        return actions

    played = decode(policy, PROBLEM, INSTANCE, encoding, choose, 3, force_starts, record=True)
    scored = log_probability(policy, encoding, played, skip=int(force_starts))
    assert len(drawn) == 6 - force_starts
    torch.testing.assert_close(scored, sum(drawn))


@pytest.mark.parametrize("encoder", ["lstm", "transformer"])
def test_policy_and_network_are_the_same(encoder):
    """With the same weights: greedy tours as `predict` finds them, and their likelihoods as it is trained by."""
    policy = make_policy(encoder)
    network = PointerNetwork(policy.config, "every").eval()
    network.load_state_dict(policy.state_dict())
    tours = solve(policy, PROBLEM, INSTANCE).actions
    assert (predict(network, TASKS["tsp"], POINTS.coords) == tours.numpy()).all()
    assert len({tuple(tour) for tour in tours.tolist()}) > 1
    encoding = policy.encode(PROBLEM.observe_static(INSTANCE))
    scored = log_probability(policy, encoding, decode(policy, PROBLEM, INSTANCE, encoding, greedy_choice, record=True))
    names = sorting(POINTS.coords)
    shown = np.take_along_axis(POINTS.coords, names[..., None], axis=1)
    answers = np.take_along_axis(np.argsort(names, axis=1), tours.numpy(), axis=1)
    log_p, _ = log_likelihood(network, torch.as_tensor(shown), torch.as_tensor(answers))
    torch.testing.assert_close(scored[:, 0], log_p.sum(dim=1))


def test_best_of_all_starts_and_symmetries():
    """Forced starts and symmetries are decoded as the attention model's; never worse than the greedy tour."""
    policy = make_policy("lstm")
    greedy = solve(policy, PROBLEM, INSTANCE)
    several = solve(policy, PROBLEM, INSTANCE, Decoding(6, force_starts=True, symmetries=8))
    assert (several.cost <= greedy.cost + 1e-6).all()
    assert (several.cost < greedy.cost - 1e-6).any()


def test_a_policy_has_no_dictionary():
    with pytest.raises(ValueError, match="a policy points at cities, so its answer must be 'pointer'; got 'sequence'"):
        PointerPolicy(PointerConfig(answer="sequence"))
