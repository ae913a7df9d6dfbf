"""The value head of the attention model: what the rest of an episode will bring, for algorithms that need to know."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from routing_agents.policies.attention.model import Encoding


class ValueHead(nn.Module):
    """Values the steps of an episode from the decoder's context and the nodes that are still legal.

    Its two layers are called one after the other by `forward`, and apart by libraries that have a place for each.

    Args:
        embed_dim: Size d of the embeddings.
        generator: Source of the initial weights. The output starts at zero.
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
        # Divided by the number of all nodes, so that the bias brings in the share of the legal ones: how much is left
        # to do says most about the value.
        legal = mask.float() @ nodes / mask.shape[-1]
        return F.relu(self.context(query) + legal)
