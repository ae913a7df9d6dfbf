"""What runs on a GPU, without one: torch's meta device computes nothing, but its tensors do not mix with the CPU's."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from am_reinforce import Reinforce
from problem_names import ONE_OF_EACH
from routing_agents.optimizers import make_optimizers
from routing_agents.policies.attention.actor_critic import ActorCritic
from routing_agents.policies.attention.decoding import Decoding, greedy_choice, solve
from routing_agents.policies.attention.features import features_named
from routing_agents.policies.attention.model import AttentionModel, ModelConfig
from routing_agents.policies.pointer.model import PointerConfig
from routing_agents.policies.pointer.policy import PointerPolicy
from routing_agents.search.active import active_search
from routing_agents.search.beam import beam_search, simulation_guided_search
from routing_agents.training.baselines import SharedBaseline
from routing_gym.arrays import map_arrays
from routing_gym.problems import make_problem

TINY = ModelConfig(embed_dim=16, num_heads=2, num_layers=1, feed_forward_dim=16)


class RefusesToMix(TorchDispatchMode):
    """Raises where an operation gets tensors of two devices; scalars may come from the CPU, as with CUDA."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor) and leaf.ndim]
        assert len({tensor.device for tensor in tensors}) <= 1, function
        return function(*args, **(kwargs or {}))


def test_mixing_is_noticed():
    """Torch itself takes an index on the CPU, and on a GPU waits for it."""
    with RefusesToMix(), pytest.raises(AssertionError, match="aten.index"):
        torch.zeros(2, device="meta")[torch.arange(2)]


@pytest.mark.parametrize(
    ("name", "make_network"),
    [
        *((name, lambda features: AttentionModel(features, TINY)) for name in ONE_OF_EACH),
        ("TSP", lambda _: PointerPolicy(PointerConfig(units=16, num_heads=4))),
        ("TSP", lambda _: PointerPolicy(PointerConfig(units=16, encoder="lstm"))),
    ],
)
def test_training_and_decoding_stay_on_one_device(name, make_network, monkeypatch):
    problem = make_problem(name, 5)
    monkeypatch.setattr(type(problem), "fixed_length", True)  # whether all are done cannot be asked there
    instance = map_arrays(lambda x: torch.as_tensor(x).to("meta"), problem.generate(np.random.default_rng(0), 3))
    model = make_network(features_named(name)).to("meta")
    optimizers = make_optimizers(model, "muon", 1e-3)
    with RefusesToMix():
        loss, _ = Reinforce(model, SharedBaseline(problem, 2))(problem, instance, greedy_choice)
        loss.backward()
        for optimizer in optimizers.values():
            optimizer.step()
        several = Decoding(2, force_starts=True) if problem.any_first_node else Decoding(symmetries=2)
        found = solve(model, problem, instance, several)
    assert found.actions.device.type == "meta"


@pytest.mark.parametrize("name", ["TSP", "CVRP", "OP", "OVRPBLTW"])
def test_searches_stay_on_one_device(name, monkeypatch):
    problem = make_problem(name, 5)
    monkeypatch.setattr(type(problem), "fixed_length", True)  # see above
    instance = map_arrays(lambda x: torch.as_tensor(x).to("meta"), problem.generate(np.random.default_rng(0), 3))
    model, generator = AttentionModel(features_named(name), TINY).to("meta"), torch.Generator()
    state = problem.initial(instance)
    mask = {"action_mask": problem.action_mask(instance, state)}
    seen = {**problem.observe_static(instance), **problem.observe_dynamic(instance, state), **mask}
    with RefusesToMix():
        beam_search(model, problem, instance, 3, symmetries=2)
        simulation_guided_search(model, problem, instance, 2, 2, symmetries=2)
        solve(model, problem, instance, Decoding(4, sample=True), generator)
        for embeddings in (False, True):
            active_search(model, problem, instance, 2, generator, embeddings)
        ActorCritic(name).to("meta")(seen)
