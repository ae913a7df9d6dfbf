"""Self-attention for several agents (Wang, "Deep Reinforcement Learning", chapter 16), and the layers it replaces.

One class serves as m state values, m action values, m policies over choices and m policies over vectors:

    o^i -> x^i          an extractor that all agents share
    (x^1 .. x^m) -> (c^1 .. c^m)      the mixing layer: attention, or one of its alternatives
    c^i -> v^i, q^i, f^i or a^i       the head of agent i
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from routing_agents.multi_agent.extractor import Extractor, Layout
from routing_agents.policies.attention.sizes import check_sizes

Mixing = Literal["attention", "attention-own", "mean", "concatenation", "concatenation-narrow", "own"]
Output = Literal["value", "choice", "vector"]
SIZED = ("concatenation", "concatenation-narrow")  # mixing layers whose parameters depend on m


@dataclass(frozen=True)
class NetworkConfig:
    """Kind and sizes of a network of m agents."""

    mixing: Mixing = "attention-own"
    """How agents exchange information, from the features x^i of each agent i to c^i: by attention, c^i being the
    layer's output (attention) or joined with x^i (attention-own); by equal weights, joined with x^i (mean); by a layer
    over all x at once (concatenation, or concatenation-narrow with about as many parameters as attention); or not at
    all (own)."""
    width: int = 64
    """Size d of x^i and c^i; num_heads * value_dim must be equal to it."""
    token_width: int = 32
    """Size of the extractor's output per customer."""
    num_heads: int = 4
    """Number of attention heads l."""
    query_dim: int = 16
    """Size d_q of queries and keys."""
    value_dim: int = 16
    """Size d_out of the values."""
    num_layers: int = 1
    """Number of mixing layers, with a fully connected layer between two of them."""
    hidden: int = 64
    """Number of hidden units of a head."""
    share_heads: bool = False
    """Use one head for all agents, so that the network runs with any number of them unless it concatenates."""

    def __post_init__(self) -> None:
        names = ("width", "token_width", "num_heads", "query_dim", "value_dim", "hidden")
        check_sizes(self.num_layers, {name: getattr(self, name) for name in names})
        check_sizes(self.num_layers, {"num_heads * query_dim": self.num_heads * self.query_dim})
        if self.mixing not in get_args(Mixing):
            raise ValueError(f"mixing must be one of {', '.join(get_args(Mixing))}; got {self.mixing!r}")
        if self.num_heads * self.value_dim != self.width:
            raise ValueError(
                f"num_heads * value_dim must be the width, {self.width}, so that what is compared is equally wide; "
                f"got {self.num_heads} * {self.value_dim}"
            )

    @property
    def joins_own(self) -> bool:
        """Return whether x^i itself is appended to c^i."""
        return self.mixing in ("attention-own", "mean")

    @property
    def mixed_width(self) -> int:
        """The size of c^i."""
        return self.width * (2 if self.joins_own else 1)


class SelfAttention(nn.Module):
    """The layer of section 16.1: l heads, whose 3 l matrices do not depend on the number m of inputs.

    For each head, with q^i = W_q x^i, k^i = W_k x^i, v^i = W_v x^i:

        alpha^i = softmax(<q^i, k^1>, .., <q^i, k^m>)        not divided by sqrt(d_q); i is among them
        c^i = alpha^i_1 v^1 + .. + alpha^i_m v^m

    and the c^i of all heads are concatenated. That is the attention of Vaswani et al. (2017) without the scale.

    Args:
        width: Size d_in of the inputs.
        num_heads: Number of heads l.
        query_dim: Size d_q of queries and keys.
        value_dim: Size d_out of values.
    """

    def __init__(self, width: int, num_heads: int, query_dim: int, value_dim: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.query = nn.Linear(width, num_heads * query_dim, bias=False)  # W_q of all heads, one below the other
        self.key = nn.Linear(width, num_heads * query_dim, bias=False)
        self.value = nn.Linear(width, num_heads * value_dim, bias=False)

    def weights(self, x: Tensor) -> Tensor:
        """Return alpha (B, l, m, m) for inputs x (B, m, d_in): row i has the weights of agent i."""
        query, key = (layer(x).unflatten(-1, (self.num_heads, -1)) for layer in (self.query, self.key))
        return torch.einsum("bihq,bjhq->bhij", query, key).softmax(dim=-1)

    def forward(self, x: Tensor) -> Tensor:
        """Return c (B, m, l d_out) for inputs x (B, m, d_in)."""
        value = self.value(x).unflatten(-1, (self.num_heads, -1))
        return torch.einsum("bhij,bjhv->bihv", self.weights(x), value).flatten(-2)


class Mean(nn.Module):
    """Attention with equal weights: W_v times the mean of all x, the same for every agent."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.value = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.value(x.mean(dim=1, keepdim=True)).expand_as(x)


class Concatenation(nn.Module):
    """Concatenation, which attention replaces (figure 16.7): a layer over all x^j, (B, m, d) to (B, m, d).

    Args:
        width: Size d of the inputs.
        num_agents: Number of agents m.
        bottleneck: Rank of the layer's matrix; 0 for a full matrix, of (m d)^2 weights.
    """

    def __init__(self, width: int, num_agents: int, bottleneck: int) -> None:
        super().__init__()
        whole = num_agents * width
        if bottleneck:
            self.layers = nn.Sequential(nn.Linear(whole, bottleneck, bias=False), nn.Linear(bottleneck, whole))
        else:
            self.layers = nn.Sequential(nn.Linear(whole, whole))

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.layers(x.flatten(1)).view_as(x))


class OwnLayer(nn.Module):
    """A layer over each x^i alone."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.layer(x))


class MixingLayer(nn.Module):
    """Mixing layer (x^1 .. x^m) -> (c^1 .. c^m) of the kind in the configuration."""

    def __init__(self, config: NetworkConfig, num_agents: int) -> None:
        super().__init__()
        self.joins_own = config.joins_own
        if config.mixing in ("attention", "attention-own"):
            self.mix: nn.Module = SelfAttention(config.width, config.num_heads, config.query_dim, config.value_dim)
        elif config.mixing == "mean":
            self.mix = Mean(config.width)
        elif config.mixing == "own":
            self.mix = OwnLayer(config.width)
        else:
            self.mix = Concatenation(config.width, num_agents, bottleneck(config, num_agents))

    def forward(self, x: Tensor) -> Tensor:
        c: Tensor = self.mix(x)
        return torch.cat([x, c], dim=-1) if self.joins_own else c


def bottleneck(config: NetworkConfig, num_agents: int) -> int:
    """Return the rank at which concatenation has as many weights as attention; 0 if their number is not limited."""
    if config.mixing != "concatenation-narrow":
        return 0
    of_attention = config.width * config.num_heads * (2 * config.query_dim + config.value_dim)
    return max(1, round(of_attention / (2 * num_agents * config.width)))


class Heads(nn.Module):
    """Heads with one hidden layer, one head for each agent or one for all: (B, m, d) to (B, m, size).

    Args:
        width: Size d of the inputs.
        hidden: Number of hidden units.
        size: Number of outputs.
        copies: Number of heads: m, or 1 if all agents share a head.
    """

    def __init__(self, width: int, hidden: int, size: int, copies: int) -> None:
        super().__init__()
        self.copies = copies
        self.hidden_weight = nn.Parameter(torch.empty(copies, width, hidden))
        self.hidden_bias = nn.Parameter(torch.empty(copies, 1, hidden))
        self.out_weight = nn.Parameter(torch.empty(copies, hidden, size))
        self.out_bias = nn.Parameter(torch.empty(copies, 1, size))

    def forward(self, c: Tensor) -> Tensor:
        """Apply the heads; unless there is one for all, there must be as many agents as heads."""
        if self.copies == 1:
            hidden = F.relu(c @ self.hidden_weight[0] + self.hidden_bias[0])
            return hidden @ self.out_weight[0] + self.out_bias[0]
        hidden = F.relu(torch.baddbmm(self.hidden_bias, c.transpose(0, 1), self.hidden_weight))  # (m, B, hidden)
        return torch.baddbmm(self.out_bias, hidden, self.out_weight).transpose(0, 1)


class AgentNetwork(nn.Module):
    """Network of m values, m action values or m policies from the observations of all m agents (figures 16.8 and 16.9).

    v^i does not change when two of the other agents are exchanged, for any head i, unless the network concatenates.

    Args:
        layout: Layout of the observations.
        config: Kind and sizes of the network.
        num_agents: Number of agents m.
        output: "value" for a number, v^i or q^i. "choice" for logits over staying and K customers: the head computes
            the first logit, and a vector whose inner products with the customers' features are the others. "vector" for
            a point of the unit disc: the sum of two numbers that the head computes and of the offsets to the customers,
            in steps, weighted by the softmax of such inner products.
        action_size: Size of an action, if the network reads actions in addition to observations (action values).
        generator: Random number generator for the initial weights. The outputs start close to zero.
    """

    def __init__(
        self,
        layout: Layout,
        config: NetworkConfig,
        num_agents: int,
        output: Output = "value",
        action_size: int = 0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.layout, self.config, self.num_agents = layout, config, num_agents
        self.output, self.action_size = output, action_size
        self.extractor = Extractor(layout, action_size, config.token_width, config.width)
        self.mixing = nn.ModuleList(MixingLayer(config, num_agents) for _ in range(config.num_layers))
        mixed = config.mixed_width
        self.between = nn.ModuleList(nn.Linear(mixed, config.width) for _ in range(config.num_layers - 1))
        size = {"value": 1, "choice": 1 + config.token_width, "vector": 2 + config.token_width}[output]
        self.heads = Heads(mixed, config.hidden, size, 1 if config.share_heads else num_agents)
        self.initialise(generator)

    @torch.no_grad()
    def initialise(self, generator: torch.Generator | None) -> None:
        """Draw uniform weights of variance 2 / fan-in (He et al. 2015), so that activations keep their scale.

        Those of queries and keys are 2^(1/2) d_q^(1/4) times smaller, so that inner products start at the scale that
        the division by sqrt(d_q) would give them. Those of the last layer are a hundred times smaller, so that outputs
        start near 0. Biases are 0.
        """
        for name, parameter in self.named_parameters():
            if parameter.ndim == 1 or name.endswith("bias"):
                parameter.zero_()
                continue
            fan_in = parameter.shape[-2] if name.startswith("heads") else parameter.shape[-1]
            bound = math.sqrt(6 / fan_in)
            if name.endswith(("query.weight", "key.weight")):
                bound /= math.sqrt(2) * self.config.query_dim**0.25
            elif name == "heads.out_weight":
                bound /= 100
            parameter.uniform_(-bound, bound, generator=generator)

    @property
    def any_number(self) -> bool:
        """Return whether the network runs with any number of agents."""
        return self.config.share_heads and self.config.mixing not in SIZED

    def trunk_size(self) -> int:
        """Count the parameters of extractor and mixing layers, which all agents share."""
        return sum(p.numel() for part in (self.extractor, self.mixing, self.between) for p in part.parameters())

    def check(self, observation: Tensor) -> None:
        """Raise ValueError if the shape or the number of agents is wrong."""
        size = self.layout.size + self.action_size
        if observation.ndim != 3 or observation.shape[-1] != size:
            raise ValueError(f"expected observations (B, m, {size}), got {tuple(observation.shape)}")
        if observation.shape[1] != self.num_agents and not self.any_number:
            reason = "concatenates what they see" if self.config.mixing in SIZED else "has a head for each of them"
            raise ValueError(
                f"the network was made for {self.num_agents} agents and {reason}; got {observation.shape[1]}. "
                "Networks with share_heads that do not concatenate run with any number"
            )

    def mix(self, x: Tensor) -> Tensor:
        """Apply the mixing layers: x (B, m, d) to c (B, m, d or 2 d)."""
        for layer, connected in zip(self.mixing[:-1], self.between, strict=True):
            x = F.relu(connected(layer(x)))
        mixed: Tensor = self.mixing[-1](x)
        return mixed

    def forward(self, observation: Tensor) -> Tensor:
        """Return values (B, m), logits (B, m, K + 1) without any mask, or vectors (B, m, 2).

        Args:
            observation: Flat observations: float32 (B, m, F); with actions (B, m, F + action_size).

        Raises:
            ValueError: The shape is wrong, or the network was built for another number of agents.
        """
        self.check(observation)
        x, tokens = self.extractor(observation)
        out = self.heads(self.mix(x))
        if self.output == "value":
            return out.squeeze(-1)
        free, query = out.split([out.shape[-1] - tokens.shape[-1], tokens.shape[-1]], dim=-1)
        fit = (tokens @ query[..., None]).squeeze(-1)  # (B, m, K)
        if self.output == "choice":
            return torch.cat([free, fit], dim=-1)
        steered = free + (fit.softmax(dim=-1)[..., None] * self.layout.ways(observation)).sum(dim=-2)
        return steered / steered.norm(dim=-1, keepdim=True).clamp(min=1.0)

    @torch.no_grad()
    def attention(self, observation: Tensor) -> Tensor:
        """Return the attention weights of the first mixing layer: (B, l, m, m), row i for agent i.

        Raises:
            TypeError: The network has no attention.
            ValueError: See `forward`.
        """
        self.check(observation)
        layer = self.mixing[0].mix
        if not isinstance(layer, SelfAttention):
            raise TypeError(f"a network with mixing {self.config.mixing!r} has no attention weights")
        return layer.weights(self.extractor(observation)[0])
