"""The attention model as actor and critic for libraries that process single steps: RLlib and Tianshou.

Such libraries pass observations without the information which of them share an instance, so each observation is
encoded separately. If that is too slow, use agents/am_reinforce.py, which encodes an instance once per tour.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from routing_agents.policies.attention.decoding import solve
from routing_agents.policies.attention.encoder import ModelConfig
from routing_agents.policies.attention.features import features_named
from routing_agents.policies.attention.model import AttentionModel
from routing_agents.policies.attention.value import ValueHead
from routing_gym.problem import AnyProblem
from routing_gym.rollout import rollout
from routing_gym.sampling import sample_actions

SMALL = ModelConfig(embed_dim=64, num_heads=4, num_layers=2, feed_forward_dim=128, normalization="instance")
ILLEGAL = torch.finfo(torch.float32).min  # logit of illegal actions; with -inf, divergences of policies would be NaN


class ActorCritic(nn.Module):
    """Actor and critic of single steps: logits of the actions, and values.

    Args:
        problem: Name of the problem, such as "TSP".
        config: Sizes of the network.
        generator: Random number generator for the initial weights.

    Raises:
        ValueError: The config has batch normalisation, with which an action's probability depends on the rest of the
            batch.
    """

    def __init__(self, problem: str, config: ModelConfig = SMALL, generator: torch.Generator | None = None) -> None:
        super().__init__()
        if config.normalization == "batch":
            raise ValueError("--normalization batch does not go with PPO; choose instance, layer or none")
        self.attention_model = AttentionModel(features_named(problem), config, generator)
        self.critic = ValueHead(config.embed_dim, generator)

    def forward(self, observation: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return the logits (B, A) and the critic's hidden units (B, d) for B observations of the environments."""
        model, features = self.attention_model, self.attention_model.features
        mask = observation["action_mask"].bool()
        step = {key: observation[key].float()[:, None] for key in features.context_scalars}
        step |= {key: observation[key].long()[:, None] for key in features.context_nodes}
        if features.per_step:
            step[features.per_step] = observation[features.per_step][:, None]
        step["action_mask"] = mask[:, None]
        encoding = model.encode(observation)
        logits = model.logits(encoding, step)[:, 0].clamp(min=ILLEGAL)
        return logits, self.critic.hidden(encoding, model.query(encoding, step), mask[:, None])[:, 0]

    def value(self, state: Tensor) -> Tensor:
        """Return the expected return of the rest of the episode, (B,)."""
        return self.critic.value(state).squeeze(-1)


def mean_costs(problem: AnyProblem, actor_critic: ActorCritic, seed: int, size: int) -> tuple[float, float]:
    """Return the mean cost of greedy tours and of tours of random legal actions, on the same instances."""
    rng = np.random.default_rng(seed)
    instance = problem.generate(rng, size)
    greedy = solve(actor_critic.attention_model, problem, instance).cost
    random = rollout(problem, instance, lambda seen: sample_actions(seen["action_mask"], rng))
    return float(greedy.mean()), float(random.cost.mean())
