"""`ActorCritic`: what it makes of the environments' observations."""

import gymnasium as gym
import numpy as np
import pytest
import torch

from problem_names import ONE_OF_EACH
from routing_agents.policies.attention.actor_critic import ILLEGAL, ActorCritic
from routing_agents.policies.attention.decoding import solve
from routing_agents.policies.attention.model import ModelConfig
from routing_gym.arrays import to_backend

SIZES = {"embed_dim": 16, "num_heads": 2, "num_layers": 1, "feed_forward_dim": 16}


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_steps_equal_whole_tours(name):
    """Greedy on the environment's observations, step by step, it plays the tours of the model's own decoder."""
    config = ModelConfig(**SIZES, normalization="instance")
    actor_critic = ActorCritic(name, config, torch.Generator().manual_seed(0))
    envs = gym.make_vec(f"routing/{name}-10", num_envs=5, autoreset_mode="SameStep", on_illegal="raise")
    instance = envs.unwrapped.problem.generate(np.random.default_rng(0), 5)
    expected = solve(actor_critic.attention_model, envs.unwrapped.problem, to_backend(instance, "torch")).cost
    observation, _ = envs.reset(options={"instance": instance}, seed=0)
    costs = np.full(5, np.nan)
    while np.isnan(costs).any():
        with torch.no_grad():
            logits, state = actor_critic({key: torch.as_tensor(value) for key, value in observation.items()})
        assert ((logits == ILLEGAL).numpy() == (observation["action_mask"] == 0)).all()
        assert actor_critic.value(state).tolist() == [0.0] * 5  # before any training
        observation, _, ended, _, info = envs.step(logits.argmax(dim=1))
        first = ended & np.isnan(costs)
        costs[first] = info["final_info"]["cost"][first] if first.any() else 0
    np.testing.assert_allclose(costs, expected.detach(), rtol=1e-4)


def test_batch_normalisation_is_refused():
    with pytest.raises(ValueError, match="--normalization batch does not go with PPO; choose instance, layer or none"):
        ActorCritic("TSP", ModelConfig(**SIZES))
