"""The value head of the attention model: the expected return of the rest of an episode, for actor-critic algorithms."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from routing_agents.policies.attention.encoder import Encoder, ModelConfig
from routing_agents.policies.attention.features import Features
from routing_agents.policies.attention.model import Encoding


class ValueHead(nn.Module):
    """Network that estimates the values of steps from the decoder's context and the nodes that are still legal.

    `forward` calls its two layers one after the other. Libraries with separate modules for them call each layer.

    Args:
        embed_dim: Size d of the embeddings.
        generator: Random number generator for the initial weights. The output starts at zero.
    """

    def __init__(self, embed_dim: int, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.context = nn.Linear(embed_dim, embed_dim)
        self.node = nn.Linear(embed_dim, embed_dim)
        self.value = nn.Linear(embed_dim, 1)
        with torch.no_grad():
            for parameter in (*self.context.parameters(), *self.node.parameters()):
                parameter.uniform_(-(embed_dim**-0.5), embed_dim**-0.5, generator=generator)
            self.node.bias.uniform_(-1, 1, generator=generator)  # see `hidden`
            for parameter in self.value.parameters():
                parameter.zero_()

    def forward(self, encoding: Encoding, query: Tensor, mask: Tensor) -> Tensor:
        """Return the values (B, Q) of Q queries (B, Q, d) per instance with masks (B, Q, A)."""
        return self.value(self.hidden(encoding, query, mask)).squeeze(-1)

    def hidden(self, encoding: Encoding, query: Tensor, mask: Tensor) -> Tensor:
        """Return the hidden units (B, Q, d)."""
        nodes = self.node(encoding.logit_keys)  # once per instance, not per query
        # Divided by the number of all nodes, so that the bias adds the share of the legal ones: the number of nodes
        # left predicts the value best.
        legal = mask.float() @ nodes / mask.shape[-1]
        return F.relu(self.context(query) + legal)


class CostCritic(Encoder):
    """Critic that predicts an instance's cost from the mean of its node embeddings (Kool et al. 2019, appendix B.1).

    Args:
        features: Observations to read.
        config: Sizes and options.
        generator: Random number generator for the initial weights.
    """

    def __init__(self, features: Features, config: ModelConfig, generator: torch.Generator | None = None) -> None:
        super().__init__(features, config)
        self.hidden = nn.Linear(config.embed_dim, config.embed_dim)
        self.value = nn.Linear(config.embed_dim, 1)
        self.initialise(generator)

    def forward(self, observation: dict[str, Tensor]) -> Tensor:
        """Return the predicted cost: (B, 1)."""
        return self.value(F.relu(self.hidden(self.encode_nodes(observation).mean(dim=1))))
