"""Ways to train that `learning.py` compares, and for which am_reinforce.py has no option.

Labels are tours of fast-tsp with 1 ms each; the time to compute them counts as training time.

B = instances, K = tours of each, A = nodes, H = heads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from am_reinforce import Args, Reinforce, ReinforceTrainer
from routing_agents.optimizers import make_optimizers
from routing_agents.policies.attention.decoding import Choice, decode, log_probability
from routing_agents.policies.attention.features import features_of
from routing_agents.policies.attention.model import AttentionModel, ModelConfig
from routing_agents.policies.protocol import PolicyNetwork
from routing_agents.training.baselines import SharedBaseline
from routing_agents.training.losses import best_anchored
from routing_gym.arrays import select, to_backend
from routing_gym.problem import AnyProblem
from routing_gym.rollout import Rollout, rollout
from routing_gym.solvers import FastTSP

LABELLER = FastTSP(time_limit=0.001)
NEIGHBOURS = 10  # number of nearest nodes that each node attends to in `Neighbours`


def label(
    problem: AnyProblem, instance: Any, model: PolicyNetwork, encoding: Any, starts: Tensor
) -> tuple[Tensor, ...]:
    """Solve instances with fast-tsp, and score the tours.

    Args:
        problem: The TSP.
        instance: B instances.
        model: The policy.
        encoding: Encoding of the instances.
        starts: First cities, int64 (B, K).

    Returns:
        Costs (B,), and log-probabilities (B, K) that the policy continues along this tour from each first city, in
        one direction or the other; the latter are differentiable.
    """
    on_numpy = to_backend(instance, "numpy")
    tour = LABELLER.solve(problem, on_numpy, num_workers=0).actions
    places = np.take_along_axis(tour.argsort(axis=1), starts.numpy(), axis=1)[:, :, None, None]
    order = (places + np.array([[1], [-1]]) * np.arange(tour.shape[1])) % tour.shape[1]  # (B, K, 2, A)
    steps = iter(np.take_along_axis(tour[:, None, None], order, axis=3).reshape(-1, tour.shape[1]).T)
    repeated = select(on_numpy, np.arange(len(tour)).repeat(2 * starts.shape[1]))
    played = rollout(problem, repeated, lambda observation: next(steps), record=True)
    assert played.observations is not None
    seen = {key: torch.from_numpy(value) for key, value in played.observations.items()}
    cost = torch.from_numpy(played.cost).view(*starts.shape, 2)[:, 0, 0]
    log_p = log_probability(model, encoding, Rollout(torch.from_numpy(played.actions), played.cost, seen), skip=1)
    return cost, log_p.unflatten(1, (-1, 2)).logsumexp(dim=2)


class Labelled(Reinforce):
    """Teacher forcing: the loss is the mean of -log p of labels, from first cities that are sampled from the policy."""

    def forward(self, problem: AnyProblem, instance: Any, choose: Choice) -> tuple[Tensor, Tensor]:
        """Return the loss, like `Reinforce.forward`; the costs are the labels'. First cities have no loss."""
        encoding = self.model.encode(problem.observe_static(instance))
        state = problem.initial(instance)
        observation = problem.observe_dynamic(instance, state) | {"action_mask": problem.action_mask(instance, state)}
        with torch.no_grad():
            logits = self.model.logits(encoding, {key: value[:, None] for key, value in observation.items()})
        starts = choose(logits.expand(-1, self.baseline.num_tours // 2, -1))
        cost, log_p = label(problem, instance, self.model, encoding, starts)
        return -log_p.mean(), torch.stack([cost.mean(), cost.mean(), -log_p.mean()]).detach()


class Anchored(Reinforce):
    """Best-anchored loss of K sampled tours and a label, which starts at the first city of the best of them."""

    def forward(self, problem: AnyProblem, instance: Any, choose: Choice) -> tuple[Tensor, Tensor]:
        """Return the loss, like `Reinforce.forward`; the means are the samples'. First cities have no loss."""
        model, num_tours = self.model, self.baseline.num_tours
        encoding = model.encode(problem.observe_static(instance))
        sampled = decode(model, problem, instance, encoding.detach(), choose, num_tours, record=True)
        cost = sampled.cost.unflatten(0, (-1, num_tours))
        starts = sampled.actions[:, 0].view_as(cost).gather(1, cost.argmin(dim=1, keepdim=True))
        best_cost, best_log_p = label(problem, instance, model, encoding, starts)
        log_p = log_probability(model, encoding, sampled, skip=1)
        all_cost = torch.cat([best_cost[:, None], cost], dim=1)
        loss = best_anchored(all_cost, torch.cat([best_log_p, log_p], dim=1), all_cost)
        return loss, torch.stack([cost.mean(), cost.mean(), -log_p.mean()]).detach()


class LabelTrainer(ReinforceTrainer):
    """Teacher forcing for the first part of the steps, then REINFORCE.

    Attributes:
        share: Share of the steps in the first part.
        loss_of_labels: Class of the loss for labels.
    """

    share: ClassVar[float] = 0.5
    loss_of_labels: ClassVar[type[Reinforce]] = Labelled

    def __init__(self, args: Args) -> None:
        super().__init__(args)
        self.losses = (self.loss_of_labels(self.model, self.baseline), self.loss)

    def update(self) -> None:
        self.loss = self.losses[self.step >= self.share * self.args.total_steps]
        super().update()


class OnlyLabels(LabelTrainer):
    """Teacher forcing to the end."""

    share = 1.0


class AnchoredTrainer(OnlyLabels):
    """The loss of `Anchored` to the end."""

    loss_of_labels = Anchored


class CosineTrainer(ReinforceTrainer):
    """Trainer with a learning rate that falls like half a cosine wave."""

    @property
    def learning_rate(self) -> float:
        return self.args.learning_rate * (1 + math.cos(math.pi * self.step / self.args.total_steps)) / 2


class Biased(AttentionModel):
    """Attention model with shifts by distance: for each layer and head, a learned number times the distance."""

    def __init__(self, features: Any, config: ModelConfig, generator: torch.Generator) -> None:
        super().__init__(features, config, generator)
        self.slopes = nn.Parameter(torch.zeros(config.num_layers * config.num_heads))

    def edge_shifts(self, observation: dict[str, Tensor]) -> Sequence[Tensor]:
        """Return a shift for each layer: (B, H, A, A)."""
        distances = torch.cdist(observation["coords"], observation["coords"])[:, None]
        return [slopes[:, None, None] * distances for slopes in self.slopes.chunk(len(self.layers))]


class Neighbours(AttentionModel):
    """Attention model in which each node attends to its nearest nodes only, itself included."""

    def edge_shifts(self, observation: dict[str, Tensor]) -> Sequence[Tensor]:
        """Return the same shift for every layer: 0 for the nearest nodes, -inf for others; (B, H, A, A)."""
        distances = torch.cdist(observation["coords"], observation["coords"])
        nearest = distances.topk(min(NEIGHBOURS, distances.shape[-1]), largest=False).indices
        shift = torch.full_like(distances, -math.inf).scatter_(2, nearest, 0.0)
        return [shift[:, None].expand(-1, self.config.num_heads, -1, -1)] * len(self.layers)


class BiasTrainer(ReinforceTrainer):
    """Trainer of a network of another class.

    Attributes:
        kind: Class of the network.
    """

    kind: ClassVar[type[AttentionModel]] = Biased

    def __init__(self, args: Args) -> None:
        super().__init__(args)
        args = self.args
        self.model = self.kind(features_of(self.problem), args.attention, torch.Generator().manual_seed(args.seed))
        self.model.multiply_in(args.precision)
        self.optimizers = make_optimizers(self.model, args.optimizer, args.learning_rate)
        self.baseline = SharedBaseline(self.problem, args.num_tours, args.force_starts, args.symmetries)
        self.loss = Reinforce(self.model, self.baseline)


class NeighboursTrainer(BiasTrainer):
    """Trainer of `Neighbours`."""

    kind = Neighbours
