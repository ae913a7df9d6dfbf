"""The attention model of Kool et al. (2019), "Attention, Learn to Solve Routing Problems!", section 3.

The model does not depend on the problem: `Features` lists the observations that it reads. The encoder runs once per
instance (`encode`). The decoder takes any number of queries per instance (`logits`), so that one function serves a
single step, all starts at once, and the scoring of whole tours.

B = instances, A = nodes, Q = queries per instance, d = embedding size, H = heads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from routing_agents.policies.attention.encoder import Encoder, ModelConfig
from routing_agents.policies.attention.features import Features
from routing_agents.policies.attention.matrices import successions
from routing_agents.policies.attention.operations import (
    attend,
    mask_bias,
    merge_heads,
    products,
    split_heads,
    take_nodes,
)
from routing_agents.policies.protocol import PolicyNetwork

SHORTEST = 1e-4  # lower bound of lengths in `nearness`, whose logarithm would be infinite at 0
RAREST = 1e-9  # lower bound of probabilities in `nearness`
FEW_PAIRS = 32  # nodes up to which looking up products of all pairs is faster than computing those of a step
TABULATED = 200  # nodes; with more, the table of edges would take over a third of the memory of the other tensors


@dataclass(frozen=True)
class Encoding:
    """Inputs of the decoder for B encoded instances, which the decoder neither copies nor projects again."""

    fixed_query: Tensor  # (B, 1, d), from the mean embedding
    node_queries: tuple[Tensor, ...]  # (B, A, d) each, one per context node; (B, A + 1, d) with a placeholder
    keys: Tensor  # (B, H, A, d/H), of the glimpse
    values: Tensor  # (B, H, A, d/H), of the glimpse
    logit_keys: Tensor  # (B, A, d), including the glimpse's output projection unless there is a glimpse layer
    places: tuple[Tensor, ...] = ()  # coordinates (B, A, 2), or lengths or `successions` (B, A, A), for nearness
    edge_logits: tuple[Tensor, ...] = ()  # (B, A, A), from node to node
    depots: tuple[Tensor, ...] = ()  # (B, A), 1.0 for depots; only if the observation has a flag of depots
    edge_table: tuple[Tensor, ...] = ()  # (B, A, A), or (B, A + 1, A) with a placeholder; see `AttentionModel.tabulate`

    def map(self, function: Callable[[Tensor], Tensor]) -> Encoding:
        """Apply a function to every tensor."""
        values = vars(self).items()
        changed: dict[str, Any] = {
            name: tuple(map(function, x)) if isinstance(x, tuple) else function(x) for name, x in values
        }
        return Encoding(**changed)

    def detach(self) -> Encoding:
        """Return the same encoding, detached from the computation graph."""
        return self.map(Tensor.detach)


class AttentionModel(Encoder, PolicyNetwork):
    """Encoder and decoder of Kool et al. (2019), section 3.

    Args:
        features: Observations to read.
        config: Sizes and options.
        generator: Random number generator for the initial weights.

    Raises:
        ValueError: The problem observes neither coordinates nor matrices, or no matrices for `config.edge_logits`.
    """

    def __init__(self, features: Features, config: ModelConfig, generator: torch.Generator | None = None) -> None:
        if not features.place_inputs:
            raise ValueError("the attention model reads coordinates or matrices, and the problem observes neither")
        super().__init__(features, config)
        if config.edge_logits and not features.per_edge:
            raise ValueError("edge_logits reads matrices; choose ATSP or --env-kwargs matrices True, or leave it out")
        d = config.embed_dim
        if not features.depot:  # the context before the first action, when there is no first and last node (eq. 4)
            self.placeholder = nn.Parameter(torch.empty(len(features.context_nodes) * d))
        self.project_nodes = nn.Linear(d, 3 * d, bias=False)  # glimpse keys, glimpse values, logit keys
        self.project_mean = nn.Linear(d, d, bias=False)
        context_dim = len(features.context_nodes) * d + len(features.context_scalars)
        self.project_context = nn.Linear(context_dim, d, bias=False)
        self.project_glimpse = nn.Linear(d, d, bias=False)
        if features.per_step:
            self.project_step = nn.Linear(1, 3 * d, bias=False)
        if config.glimpse_layer:
            self.expand_glimpse = nn.Linear(d, config.glimpse_layer)
            self.contract_glimpse = nn.Linear(config.glimpse_layer, d)
        if config.edge_logits:
            self.embed_edge_logits = self.edge_network(1)
        self.initialise(generator)
        if config.nearness:
            self.nearness_weight = nn.Parameter(torch.tensor(2.0))  # the best value when added to trained weights

    def encode(self, observation: dict[str, Tensor]) -> Encoding:
        """Encode B instances from their static observation.

        One matrix product computes all inputs of the decoder per node. The projections of the context
        nodes and of the glimpse's output are linear, so they are applied to nodes here, once, rather
        than to queries later: W_c [h_first; h_last] = W_c1 h_first + W_c2 h_last, and
        (W_o g) . (W_l h) = g . (W_o' W_l h), unless layers come between glimpse and logits.
        """
        x = self.encode_nodes(observation)
        d, heads = self.config.embed_dim, self.config.num_heads
        key_weight, value_weight, logit_weight = self.project_nodes.weight.chunk(3)
        context_weights = self.project_context.weight[:, : len(self.features.context_nodes) * d].split(d, dim=1)
        logit_weight = self.fold(logit_weight)
        with products(x, self.precision):
            projected = F.linear(x, torch.cat([key_weight, value_weight, logit_weight, *context_weights]))
        keys, values, logit_keys, *node_queries = projected.split(d, dim=-1)
        if not self.features.depot:  # index A is the placeholder
            placeholders = zip(node_queries, context_weights, self.placeholder.split(d), strict=True)
            node_queries = [torch.cat([q, (w @ p).expand(x.shape[0], 1, d)], dim=1) for q, w, p in placeholders]
        return Encoding(
            fixed_query=self.project_mean(x.mean(dim=1, keepdim=True)),
            node_queries=tuple(q.contiguous().to(x.dtype) for q in node_queries),
            keys=split_heads(keys, heads).contiguous().to(x.dtype),
            values=split_heads(values, heads).contiguous().to(x.dtype),
            logit_keys=logit_keys.contiguous().to(x.dtype),
            places=(self.places(observation),) if self.config.nearness else (),
            edge_logits=(self.embed_edge_logits(self.edges(observation))[..., 0],) if self.config.edge_logits else (),
            depots=(observation[depots],) if (depots := self.features.depots) in observation else (),
        )

    def places(self, observation: dict[str, Tensor]) -> Tensor:
        """Return the input of `nearness`: coordinates (B, A, 2), or lengths or `successions` (B, A, A)."""
        if not self.features.per_edge:
            return observation["coords"]
        lengths = observation[self.features.per_edge[0]]
        return lengths if self.features.coords else successions(lengths)

    def fold(self, weight: Tensor) -> Tensor:
        """Apply the glimpse's output projection to a weight in advance, unless there is a glimpse layer."""
        return weight if self.config.glimpse_layer else self.project_glimpse.weight.T @ weight

    def query(self, encoding: Encoding, observation: dict[str, Tensor]) -> Tensor:
        """Build the decoder's queries from the context: (B, Q, d)."""
        nodes = self.context(observation)
        return self.combine(nodes, observation, encoding.fixed_query, encoding.node_queries, self.scalar_queries)

    @property
    def scalar_queries(self) -> tuple[Tensor, ...]:
        """Projections of the context scalars, (d,) each."""
        return self.project_context.weight[:, len(self.features.context_nodes) * self.config.embed_dim :].unbind(dim=1)

    def context(self, observation: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the context nodes, int64 (B, Q) each. Without a depot, they are A before the first action."""
        nodes = {}
        for key in self.features.context_nodes:
            absent = key in self.features.optional and key not in observation  # then it is the depot
            nodes[key] = torch.zeros_like(observation["current_node"]) if absent else observation[key]
        if not self.features.depot:
            not_started, placeholder = observation["action_mask"].all(dim=-1), observation["action_mask"].shape[-1]
            nodes = {key: node.masked_fill(not_started, placeholder) for key, node in nodes.items()}
        return nodes

    def combine(
        self,
        nodes: dict[str, Tensor],
        observation: dict[str, Tensor],
        fixed: Tensor,
        per_node: Sequence[Tensor],
        per_scalar: Sequence[Tensor],
    ) -> Tensor:
        """Evaluate a linear function of the context, such as the query.

        Args:
            nodes: Context nodes; see `context`.
            observation: Dynamic observations, which include the context scalars.
            fixed: Constant term: (B, 1, D).
            per_node: Term of each node, (B, A, D), or (B, A + 1, D) with a placeholder; for each context node.
            per_scalar: Factor of each context scalar: (D,) or (B, 1, D).

        Returns:
            float32 (B, Q, D).
        """
        total = fixed
        for terms, node in zip(per_node, nodes.values(), strict=True):
            total = take_nodes(terms, node).add_(total)
        for factor, key in zip(per_scalar, self.features.context_scalars, strict=True):
            if key in self.features.optional and key not in observation:
                continue  # zero
            total = total + observation[key] * factor
        return total

    def logits(self, encoding: Encoding, observation: dict[str, Tensor]) -> Tensor:
        """Score the actions of Q queries per instance (eqs. 5 to 8).

        Args:
            encoding: Encoding of B instances.
            observation: Dynamic observations, (B, Q, ...) each, with "action_mask" (B, Q, A) as bool.

        Returns:
            float32 (B, Q, A), -inf for illegal actions.
        """
        legal, nodes = mask_bias(observation["action_mask"]), self.context(observation)
        query = self.combine(nodes, observation, encoding.fixed_query, encoding.node_queries, self.scalar_queries)
        if self.features.per_step:
            scores = self.dynamic_scores(encoding, query, legal, observation[self.features.per_step])
        else:
            heads = split_heads(query, self.config.num_heads)
            glimpse = attend(heads, encoding.keys, encoding.values, legal[:, None])
            scores = self.refine(merge_heads(glimpse), query) @ encoding.logit_keys.transpose(1, 2)
        scores = scores.div_(math.sqrt(self.config.embed_dim))
        return self.clip(scores, legal, self.edge_terms(encoding, observation, nodes))

    def clip(self, scores: Tensor, legal: Tensor, edge_terms: Tensor | None) -> Tensor:
        """Convert scores (B, Q, A), divided by sqrt(d), to logits (eqs. 7 and 8)."""
        if edge_terms is None:
            logits = self.config.tanh_clipping * scores.tanh_()
        else:
            logits = torch.add(edge_terms, scores.tanh_(), alpha=self.config.tanh_clipping)
        return logits.float().add_(legal)

    def edge_terms(self, encoding: Encoding, observation: dict[str, Tensor], nodes: dict[str, Tensor]) -> Tensor | None:
        """Return the terms of the logits for the edges from the current node, (B, Q, A); None if there are none."""
        if encoding.edge_table:
            return take_nodes(encoding.edge_table[0], nodes["current_node"])
        terms = [take_nodes(logits, observation["current_node"]) for logits in encoding.edge_logits]
        if self.config.nearness:
            terms.append(self.nearness_weight * self.nearness(encoding, observation))
        return self.driven(sum(terms[1:], terms[0]), encoding, observation) if terms else None

    def refine(self, glimpse: Tensor, query: Tensor) -> Tensor:
        """Pass the glimpse (B, Q, d) through the feed-forward layer, if there is one."""
        if not self.config.glimpse_layer:
            return glimpse
        x = query + self.project_glimpse(glimpse)
        return x + self.contract_glimpse(F.relu(self.expand_glimpse(x)))

    def nearness(self, encoding: Encoding, observation: dict[str, Tensor]) -> Tensor:
        """Return -log of each node's distance from the current node: (B, Q, A).

        With matrices and without coordinates, lengths may be in any unit. The result is then the logarithm of the
        probability that the node follows the current one, and not another node that the tour has yet to leave.
        """
        (places,) = encoding.places
        here = take_nodes(places, observation["current_node"])
        if not self.features.coords:
            still = observation["action_mask"].to(here.dtype) @ places + here  # of the nodes that are still to be left
            return here.clamp(min=RAREST).log_().sub_(still.clamp(min=RAREST).log_())
        if self.features.per_edge:
            return here.clamp(min=SHORTEST).log_().neg_()
        x, y = (here[..., None, axis] - places[:, None, :, axis] for axis in (0, 1))
        return x.square_().addcmul_(y, y).clamp_(min=SHORTEST**2).log_().mul_(-0.5)

    def tabulate(self, encoding: Encoding) -> Encoding:
        """Compute `edge_terms` of all pairs of nodes, so that the steps of a tour only select rows; for few nodes."""
        num_instances, _, num_nodes, _ = encoding.keys.shape
        fixed = self.features.coords or not self.config.nearness  # otherwise they depend on the mask
        if not (fixed and (encoding.places or encoding.edge_logits)) or num_nodes > TABULATED:
            return encoding
        every_node = torch.arange(num_nodes, device=encoding.keys.device).expand(num_instances, -1)
        started = torch.zeros_like(every_node, dtype=torch.bool)[..., None]  # a mask of tours that have begun
        table = self.edge_terms(encoding, {"current_node": every_node, "action_mask": started}, {})
        assert table is not None
        return replace(encoding, edge_table=(table if self.features.depot else F.pad(table, (0, 0, 0, 1)),))

    def driven(self, numbers: Tensor, encoding: Encoding, observation: dict[str, Tensor]) -> Tensor:
        """Set numbers (B, Q, A) of the edges from the current node to 0 for edges that no vehicle drives.

        Without a depot, no edge leads to the first node of a tour. From a depot to a depot, the action chooses the
        start of the next route, or ends the tour.
        """
        if not self.features.depot:
            return numbers.masked_fill_(observation["action_mask"].all(dim=-1, keepdim=True), 0.0)
        here = observation["current_node"]
        if not encoding.depots:
            numbers[..., 0].masked_fill_(here == 0, 0.0)
            return numbers
        (depots,) = encoding.depots
        return numbers * (1 - depots.gather(1, here)[..., None] * depots[:, None])

    def stepwise_logits(
        self, encoding: Encoding, num_tours: int, skip: int = 0
    ) -> Callable[[dict[str, Tensor]], Tensor]:
        """Return a function that computes `logits`; see `PolicyNetwork.stepwise_logits`. This decoder has no memory."""
        encoding = self.tabulate(encoding)
        if self.features.per_step:
            return partial(self.logits, encoding)
        num_instances, _, num_nodes, _ = encoding.keys.shape
        if num_nodes <= (TABULATED if num_instances == 1 else FEW_PAIRS) and not self.config.glimpse_layer:
            return self.tabulated_logits(encoding)
        # For few queries, products with transposed keys are faster than torch's attention on a CPU.
        keys = (encoding.keys / math.sqrt(encoding.keys.shape[3])).transpose(2, 3).contiguous()
        logit_keys = (encoding.logit_keys / math.sqrt(self.config.embed_dim)).transpose(1, 2).contiguous()
        scalar_queries = self.scalar_queries

        def logits(observation: dict[str, Tensor]) -> Tensor:
            legal, nodes = mask_bias(observation["action_mask"]), self.context(observation)
            query = self.combine(nodes, observation, encoding.fixed_query, encoding.node_queries, scalar_queries)
            heads = split_heads(query, self.config.num_heads)
            weights = (heads @ keys).add_(legal[:, None]).softmax(dim=-1)
            glimpse = self.refine(merge_heads(weights @ encoding.values), query)
            return self.clip(glimpse @ logit_keys, legal, self.edge_terms(encoding, observation, nodes))

        return logits

    def tabulated_logits(self, encoding: Encoding) -> Callable[[dict[str, Tensor]], Tensor]:
        """Return a function that computes `logits` from the products of all pairs of nodes, for few nodes.

        The scores of the glimpse, q . k, are linear in the query, and thus in the context. The glimpse is linear in its
        weights, and the scores of the actions are linear in the glimpse.
        """
        num_instances, num_heads, num_nodes, head_dim = encoding.keys.shape
        keys = encoding.keys.transpose(2, 3) / math.sqrt(head_dim)

        def scores_of(queries: Tensor) -> Tensor:
            """Return the scores of all nodes and heads for queries (B, R, d): (B, R, H A)."""
            return merge_heads(split_heads(queries, num_heads) @ keys)

        fixed = scores_of(encoding.fixed_query)
        per_node = [scores_of(queries) for queries in encoding.node_queries]
        per_scalar = [scores_of(query.expand(num_instances, 1, -1)) for query in self.scalar_queries]
        logit_keys = split_heads(encoding.logit_keys / math.sqrt(self.config.embed_dim), num_heads)
        outputs = (encoding.values @ logit_keys.transpose(2, 3)).flatten(1, 2)  # (B, H A, A)

        def logits(observation: dict[str, Tensor]) -> Tensor:
            legal, nodes = mask_bias(observation["action_mask"]), self.context(observation)
            scores = self.combine(nodes, observation, fixed, per_node, per_scalar)
            weights = scores.view(*legal.shape[:2], num_heads, num_nodes).add_(legal[:, :, None]).softmax(dim=-1)
            return self.clip(weights.flatten(2) @ outputs, legal, self.edge_terms(encoding, observation, nodes))

        return logits

    def tour_logits(self, encoding: Encoding, observation: dict[str, Tensor], skip: int = 0) -> Tensor:
        """Score all steps of the tours in one pass; see `PolicyNetwork.tour_logits`."""
        queries = {key: value[:, :, skip:] for key, value in observation.items()}
        shape = queries["action_mask"].shape
        return self.logits(encoding, {key: value.flatten(1, 2) for key, value in queries.items()}).view(shape)

    def dynamic_scores(self, encoding: Encoding, query: Tensor, legal: Tensor, remaining: Tensor) -> Tensor:
        """Return scores, not divided by sqrt(d), with keys and values shifted by `remaining` (B, Q, A), as in SDVRP.

        The shift of a node is remaining * w, of rank one: q . (k + r w) = q . k + r (q . w), so the
        shifted keys are never built.
        """
        shift_key, shift_value, shift_logit = self.project_step.weight[:, 0].chunk(3)
        shift_logit = self.fold(shift_logit)
        num_heads = self.config.num_heads
        heads = split_heads(query, num_heads)
        remaining = remaining[:, None]  # (B, 1, Q, A)
        by_head = heads * shift_key.view(num_heads, 1, -1)
        scores = heads @ encoding.keys.transpose(2, 3) + remaining * by_head.sum(dim=-1, keepdim=True)
        weights = (scores / math.sqrt(heads.shape[-1]) + legal[:, None]).softmax(dim=-1)
        shift = (weights * remaining).sum(dim=-1, keepdim=True) * shift_value.view(num_heads, 1, -1)
        glimpse = self.refine(merge_heads(weights @ encoding.values + shift), query)
        return glimpse @ encoding.logit_keys.transpose(1, 2) + remaining[:, 0] * (glimpse @ shift_logit)[..., None]


NETWORKS: dict[str, type[AttentionModel]] = {"attention": AttentionModel}
"""Networks by the names that `--model` of the training scripts takes. Add a subclass of your own by a new name."""


def make_network(name: str, features: Features, config: ModelConfig, generator: torch.Generator) -> AttentionModel:
    """Build one of `NETWORKS`; layers that draw weights from torch's own generator get the same seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(generator.initial_seed())
        return NETWORKS[name](features, config, generator)
