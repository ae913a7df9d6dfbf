"""The encoder of Kool et al. (2019), section 3.1: node embeddings from the observations that `Features` lists.

B = instances, A = nodes, Q = queries per instance, d = embedding size, H = heads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from routing_agents.policies.attention.features import Features
from routing_agents.policies.attention.matrices import VIEW, node_codes, relative, successions
from routing_agents.policies.attention.operations import (
    attend,
    merge_heads,
    products,
    set_precision,
    split_heads,
    take_nodes,
)
from routing_agents.policies.attention.sizes import check_sizes

EDGE_INPUTS = 4  # inputs per matrix, see `edges`
EDGE_DIM = 16  # hidden size of the edge network, as in MatNet
NORMALIZATIONS = ("batch", "instance", "layer", "none")


@dataclass(frozen=True)
class ModelConfig:
    """Sizes and options of the network.

    Attributes:
        embed_dim: Size d of the embeddings.
        num_heads: Number of attention heads H; divides `embed_dim`.
        num_layers: Number of encoder layers N.
        feed_forward_dim: Hidden size of the encoder's feed-forward sublayers.
        tanh_clipping: Range C of the logits.
        normalization: Normalisation after each sublayer: "batch" (Kool et al.), "instance", "layer" or "none".
        nearness: Whether to add -log of the distance from the current node to the logits, times a learned number (Huang
            et al. 2025, "Rethinking Light Decoder-based Solvers for Vehicle Routing Problems", where it is 1 and
            clipped).
        edge_logits: Whether to add to each node's logit the output of a small network that reads the edges between the
            node and the current node; matrices are required.
        glimpse_layer: Number of hidden units of a feed-forward layer after the glimpse, with skip connections around
            both, like in Huang et al. (2025); 0 for none, like in Kool et al. (2019).
    """

    embed_dim: int = 128
    num_heads: int = 8
    num_layers: int = 3
    feed_forward_dim: int = 512
    tanh_clipping: float = 10.0
    normalization: str = "batch"
    nearness: bool = False
    edge_logits: bool = False
    glimpse_layer: int = 0

    def __post_init__(self) -> None:
        sizes = {name: getattr(self, name) for name in ("embed_dim", "num_heads", "feed_forward_dim")}
        check_sizes(self.num_layers, sizes | ({"glimpse_layer": self.glimpse_layer} if self.glimpse_layer != 0 else {}))
        if type(self.tanh_clipping) not in (int, float) or not 0 < self.tanh_clipping < math.inf:
            raise ValueError(f"tanh_clipping must be a positive number, got {self.tanh_clipping!r}")
        if self.embed_dim % self.num_heads:
            raise ValueError(f"embed_dim {self.embed_dim} is not a multiple of num_heads {self.num_heads}")
        if self.normalization not in NORMALIZATIONS:
            raise ValueError(f"normalization must be one of {', '.join(NORMALIZATIONS)}; got {self.normalization!r}")
        for name in ("nearness", "edge_logits"):
            if type(value := getattr(self, name)) is not bool:
                raise ValueError(f"{name} must be true or false, got {value!r}")


class Normalization(nn.Module):
    """Normalisation of (B, A, d): per feature over the batch or the instance, or per node."""

    def __init__(self, kind: str, embed_dim: int) -> None:
        super().__init__()
        self.kind = kind
        self.norm: nn.Module
        if kind == "batch":
            self.norm = nn.BatchNorm1d(embed_dim)
        elif kind == "instance":
            self.norm = nn.InstanceNorm1d(embed_dim, affine=True)
        elif kind == "layer":
            self.norm = nn.LayerNorm(embed_dim)

    def forward(self, x: Tensor) -> Tensor:
        if self.kind == "batch":
            return self.norm(x.flatten(0, 1)).view_as(x)
        if self.kind == "instance":
            return self.norm(x.transpose(1, 2)).transpose(1, 2)
        return self.norm(x) if self.kind == "layer" else x


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward sublayers, each with a skip connection and normalisation."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        d = config.embed_dim
        self.num_heads = config.num_heads
        self.precision = "float32"  # see `Encoder.multiply_in`
        self.project_qkv = nn.Linear(d, 3 * d, bias=False)
        self.project_out = nn.Linear(d, d, bias=False)
        self.attention_norm = Normalization(config.normalization, d)
        self.expand = nn.Linear(d, config.feed_forward_dim)
        self.contract = nn.Linear(config.feed_forward_dim, d)
        self.feed_forward_norm = Normalization(config.normalization, d)

    def forward(self, x: Tensor, shift: Tensor | None = None) -> Tensor:
        """Apply the layer to node embeddings (B, A, d); `shift` (B, H, A, A) is added to the attention scores."""
        with products(x, self.precision):
            projected = self.project_qkv(x)
        query, key, value = (split_heads(part, self.num_heads) for part in projected.to(x.dtype).chunk(3, dim=-1))
        attended = merge_heads(attend(query, key, value, shift))
        with products(x, self.precision):
            attended = self.project_out(attended)
        x = self.attention_norm(attended.to(x.dtype).add_(x))
        with products(x, self.precision):
            transformed = self.contract(F.relu(self.expand(x), inplace=True))
        return self.feed_forward_norm(transformed.to(x.dtype).add_(x))


class Encoder(nn.Module):
    """Encoder of Kool et al. (2019), section 3.1: node embeddings from the static observation.

    Args:
        features: Observations to read.
        config: Sizes and options.
    """

    def __init__(self, features: Features, config: ModelConfig) -> None:
        super().__init__()
        self.features = features
        self.config = config
        self.precision = "float32"  # see `multiply_in`
        self.embed_node = nn.Linear(len(features.node_inputs), config.embed_dim)
        if features.depot:
            self.embed_depot = nn.Linear(len(features.depot_inputs), config.embed_dim)
        self.layers = nn.ModuleList(self.make_layer() for _ in range(config.num_layers))
        if features.per_edge:
            self.embed_edge = self.edge_network(config.num_layers * config.num_heads)

    def make_layer(self) -> nn.Module:
        """Return a new layer: from embeddings (B, A, d) and scores of pairs, see `EncoderLayer`, to embeddings."""
        return EncoderLayer(self.config)

    @torch.no_grad()
    def initialise(self, generator: torch.Generator | None) -> None:
        """Draw the parameters of linear layers and of this module itself from U(-1/sqrt(fan-in), 1/sqrt(fan-in)).

        Layers of your own, which `make_layer` returns, keep their parameters.
        """
        own = tuple(f"layers.{i}." for i, layer in enumerate(self.layers) if not isinstance(layer, EncoderLayer))
        for name, parameter in self.named_parameters():
            layer = self.get_submodule(name.rpartition(".")[0])
            if name.startswith(own) or not (layer is self or isinstance(layer, nn.Linear)):
                continue
            fan_in = layer.in_features if isinstance(layer, nn.Linear) else self.config.embed_dim
            parameter.uniform_(-1 / math.sqrt(fan_in), 1 / math.sqrt(fan_in), generator=generator)

    def multiply_in(self, precision: str) -> None:
        """Choose the precision of the encoder's matrix products: "float32" or "bfloat16".

        These products are most of the arithmetic; they include the projections of the nodes for the decoder.
        Attention, normalisation, sums and the decoder stay in float32: attention in bfloat16 is slower on a CPU.

        Raises:
            ValueError: The precision is another one.
        """
        set_precision(self, precision)

    def embed(self, observation: dict[str, Tensor]) -> Tensor:
        """Return the initial embeddings of the nodes, each independent of the others: (B, A, d)."""
        places = [observation["coords"]] if self.features.coords else []
        if self.features.per_edge:
            chances = [successions(matrix) for matrix in self.matrices(observation)]
            places.append(node_codes(chances, observation.get(VIEW)))
        place = torch.cat(places, dim=-1)
        absent = {key: place.new_zeros(place.shape[:2]) for key in self.features.optional if key not in observation}
        seen = observation | absent
        columns = [place, *(seen[key][..., None] for key in self.features.per_node)]
        if self.features.pairs:
            columns.append(partners(observation["coords"], observation[self.features.pairs]))
        if self.features.partner:
            columns.append(fixed_edges(observation["coords"], observation[self.features.partner]))
        if not self.features.depot:
            return self.embed_node(torch.cat(columns, dim=-1))
        at_depots = [place, *(seen[key][..., None] for key in self.features.per_depot)]
        if self.features.depots in observation:  # any number of depots
            is_depot = observation[self.features.depots][..., None] > 0
            nodes, depots = self.embed_node(torch.cat(columns, dim=-1)), self.embed_depot(torch.cat(at_depots, dim=-1))
            return torch.where(is_depot, depots, nodes)
        customers = self.embed_node(torch.cat([column[:, 1:] for column in columns], dim=-1))
        depot = self.embed_depot(torch.cat([column[:, :1] for column in at_depots], dim=-1))
        return torch.cat([depot, customers], dim=1)

    def matrices(self, observation: dict[str, Tensor]) -> list[Tensor]:
        """Return the matrices (B, A, A); without durations, as in some problems of a family, these are the lengths."""
        lengths = observation[self.features.per_edge[0]]
        return [observation.get(key, lengths) for key in self.features.per_edge]

    def encode_nodes(self, observation: dict[str, Tensor]) -> Tensor:
        """Return the embeddings of the nodes after all layers: (B, A, d)."""
        x = self.embed(observation)
        for layer, shift in zip(self.layers, self.edge_shifts(observation), strict=True):
            x = layer(x, shift)
        return x

    def edge_network(self, outputs: int) -> nn.Sequential:
        """Return a new network that reads `edges`."""
        inputs = EDGE_INPUTS * len(self.features.per_edge)
        return nn.Sequential(nn.Linear(inputs, EDGE_DIM), nn.ReLU(), nn.Linear(EDGE_DIM, outputs))

    def edges(self, observation: dict[str, Tensor]) -> Tensor:
        """Return relative lengths and `successions` of each matrix, in both directions: (B, A, A, inputs)."""
        views = [see(matrix) for matrix in self.matrices(observation) for see in (relative, successions)]
        seen = torch.stack(views, dim=-1)
        return torch.cat([seen, seen.transpose(1, 2)], dim=-1)

    def edge_shifts(self, observation: dict[str, Tensor]) -> Sequence[Tensor | None]:
        """Return the terms that edges add to the attention scores: (B, H, A, A) for each layer; None without matrices.

        Kwon et al. (2021) mix each score with the length by a small network of each head (MatNet's mixed-score
        attention), in two encoders, one for the rows and one for the columns. Here there is one encoder, and a network
        computes one number for each head, which is added to the score. Its inputs are the lengths in both directions,
        relative to their mean so that their unit does not matter, and the `successions` in both directions.
        """
        if not self.features.per_edge:
            return [None] * len(self.layers)
        return self.embed_edge(self.edges(observation)).permute(0, 3, 1, 2).chunk(len(self.layers), dim=1)


def partners(coords: Tensor, pickup: Tensor) -> Tensor:
    """Return for each node whether it is a pickup or a delivery, and the coordinates of its partner; (0, 0) for none.

    Args:
        coords: Coordinates (B, A, 2).
        pickup: Pickup node of each delivery (B, A), 0 for other nodes; some libraries convert integers in a Box to
            float32. If a pickup has several deliveries, the one with the largest index is its partner.

    Returns:
        (B, A, 4).
    """
    pickup = pickup.long()
    nodes = torch.arange(pickup.shape[1], device=pickup.device).expand_as(pickup)
    delivery = torch.zeros_like(pickup).scatter_reduce(1, pickup, nodes * (pickup > 0), "amax")
    flags = torch.stack([delivery > 0, pickup > 0], dim=-1).to(coords.dtype)
    place = take_nodes(coords, delivery + pickup) * flags.sum(dim=-1, keepdim=True)
    return torch.cat([flags, place], dim=-1)


def fixed_edges(coords: Tensor, partner: Tensor) -> Tensor:
    """Return for each node whether it has a fixed edge, and the offset of its other end; (0, 0, 0) for none.

    Args:
        coords: Coordinates (B, A, 2).
        partner: Other end of each node's fixed edge (B, A), the node itself for none; may be float32, see `partners`.

    Returns:
        (B, A, 3).
    """
    partner = partner.long()
    has_edge = partner != torch.arange(partner.shape[1], device=partner.device)
    return torch.cat([has_edge[..., None].to(coords.dtype), take_nodes(coords, partner) - coords], dim=-1)
