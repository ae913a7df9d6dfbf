"""Baselines for REINFORCE, which are subtracted from the costs of the sampled tours.

A baseline does not depend on the sampled tour itself, so that the gradient is unbiased whatever the quality and
precision of the baseline. The moving average is an exception, because it includes the batch itself: with a batch of B,
it shortens the expected gradient by 0.2 / B, like in the original code.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from routing_agents import checkpoint
from routing_agents.optimizers import optimizer_tensors
from routing_agents.policies.attention.decoding import first_nodes, num_symmetries, solve
from routing_agents.policies.attention.memory import MOST_TOURS
from routing_agents.policies.attention.value import CostCritic
from routing_agents.policies.protocol import PolicyNetwork
from routing_agents.runs import EVALUATION_STREAM, stream
from routing_agents.training import distributed
from routing_gym.arrays import cast_instance, to_backend
from routing_gym.problem import AnyProblem


class Baseline(ABC):
    """Base class of all baselines.

    Attributes:
        num_tours: Number of tours sampled per instance.
        force_starts: Whether tour k starts at node k.
        symmetries: Whether tour k is sampled under symmetry k of the square.
        rate_share: Share of the initial learning rate that is left, for baselines that learn.
    """

    num_tours = 1
    force_starts = False
    symmetries = False
    rate_share = 1.0

    @abstractmethod
    def value(self, problem: AnyProblem, instance: Any, cost: Tensor) -> Tensor:
        """Return the baseline of the sampled costs (B, K); it broadcasts to (B, K)."""

    def end_epoch(self, model: PolicyNetwork) -> dict[str, float]:
        """Update the baseline after an epoch; return metrics for the log."""
        return {}

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors that an exact resume needs."""
        return {}

    def load(self, tensors: dict[str, Tensor], path: Path) -> None:
        """Restore the result of `tensors`, read from `path`.

        Raises:
            KeyError: A tensor is missing.
            CheckpointError: A tensor does not fit.
        """


class NoBaseline(Baseline):
    """Zero baseline: plain REINFORCE."""

    def value(self, problem: AnyProblem, instance: Any, cost: Tensor) -> Tensor:
        return torch.zeros_like(cost)


class ExponentialBaseline(Baseline):
    """Exponential moving average of the mean cost, with decay 0.8 (Kool et al. 2019, sections 4 and 5)."""

    decay = 0.8

    def __init__(self) -> None:
        self.average = torch.tensor(float("nan"))  # before the first batch

    def value(self, problem: AnyProblem, instance: Any, cost: Tensor) -> Tensor:
        mean = distributed.mean(cost.mean())
        average = self.average.to(mean.device)  # moves in the first step only
        self.average = torch.where(average.isnan(), mean, self.decay * average + (1 - self.decay) * mean)
        return self.average

    def tensors(self) -> dict[str, Tensor]:
        return {"average": self.average}

    def load(self, tensors: dict[str, Tensor], path: Path) -> None:
        self.average = checkpoint.fitting("average", self.average, tensors, path)


class RolloutBaseline(Baseline):
    """Greedy cost of a frozen policy, which is replaced when the current one is significantly better.

    Kool et al. (2019), algorithm 1: a one-sided paired t-test on evaluation instances after each epoch. When the policy
    is replaced, these instances are drawn again, so that the baseline does not overfit them. In the first epoch, the
    exponential baseline is used instead.

    Args:
        problem: Problem of the evaluation instances.
        model: Policy to freeze.
        seed: Random seed for the evaluation instances.
        size: Number of evaluation instances.
        generate: Function of `routing_gym.generators.GENERATORS` that draws them.
    """

    alpha = 0.05  # significance level

    def __init__(
        self, problem: AnyProblem, model: PolicyNetwork, seed: int, size: int, generate: Callable[..., Any]
    ) -> None:
        self.problem, self.seed, self.size, self.generate = problem, seed, size, generate
        self.warm_up: ExponentialBaseline | None = ExponentialBaseline()
        self.redraws = -1  # number of draws of the evaluation instances, minus one
        self.freeze(model)

    def value(self, problem: AnyProblem, instance: Any, cost: Tensor) -> Tensor:
        if self.warm_up is not None:
            return self.warm_up.value(problem, instance, cost)
        # The training step itself takes more memory than this, so that the free memory need not be checked.
        return solve(self.frozen, problem, instance, tours_at_once=MOST_TOURS).cost[:, None]

    def freeze(self, model: PolicyNetwork) -> None:
        """Copy the model and draw new evaluation instances."""
        self.frozen = copy.deepcopy(model).eval().requires_grad_(False)
        self.redraws += 1
        self.draw()
        self.frozen_cost = self.evaluate(self.frozen)

    def draw(self) -> None:
        rng = stream(self.seed, EVALUATION_STREAM, self.redraws)
        device = next(self.frozen.parameters()).device
        self.instance = to_backend(cast_instance(self.generate(self.problem, rng, self.size)), "torch", str(device))

    def evaluate(self, model: PolicyNetwork) -> Tensor:
        return distributed.greedy_cost(model, self.problem, self.instance)

    def end_epoch(self, model: PolicyNetwork) -> dict[str, float]:
        from scipy import stats  # imported late: takes as long as NumPy and Gymnasium together

        self.warm_up = None
        cost = self.evaluate(model)
        test = stats.ttest_rel(cost.double().cpu(), self.frozen_cost.double().cpu(), alternative="less")
        p_value = float(np.nan_to_num(test.pvalue, nan=1.0))  # nan if both policies have the same costs
        if p_value < self.alpha:
            self.freeze(model)
        return {"baseline_p_value": p_value, "baseline_replaced": float(p_value < self.alpha)}

    def tensors(self) -> dict[str, Tensor]:
        state = checkpoint.prefixed("frozen", self.frozen.state_dict())
        if self.warm_up is not None:
            state["warm_up"] = self.warm_up.average
        return {**state, "redraws": torch.tensor(self.redraws), "frozen_cost": self.frozen_cost}

    def load(self, tensors: dict[str, Tensor], path: Path) -> None:
        checkpoint.load_weights(self.frozen, checkpoint.group(tensors, "frozen"), path)
        redraws = checkpoint.fitting("redraws", torch.tensor(self.redraws), tensors, path)
        self.frozen_cost = checkpoint.fitting("frozen_cost", self.frozen_cost, tensors, path)
        self.redraws = max(0, int(redraws))
        self.draw()
        self.warm_up = ExponentialBaseline() if "warm_up" in tensors else None
        if self.warm_up is not None:
            self.warm_up.load({"average": tensors["warm_up"]}, path)


class CriticBaseline(Baseline):
    """Cost predicted by a separate network, which is trained at the same time (Kool et al. 2019, appendix B.1).

    Args:
        critic: Network that predicts costs, on the device of the instances.
        learning_rate: Initial learning rate of its Adam optimiser.
        max_grad_norm: Largest norm of its gradient; larger ones are scaled down.
    """

    def __init__(self, critic: CostCritic, learning_rate: float, max_grad_norm: float) -> None:
        self.critic = critic
        self.parallel = distributed.parallel(critic)
        self.optimizer = torch.optim.Adam(critic.parameters(), learning_rate)
        self.learning_rate, self.max_grad_norm = learning_rate, max_grad_norm

    def value(self, problem: AnyProblem, instance: Any, cost: Tensor) -> Tensor:
        with torch.enable_grad():
            predicted = self.parallel(problem.observe_static(instance))  # (B, 1)
            error = F.mse_loss(predicted.expand_as(cost), cost)
        self.optimizer.zero_grad()
        error.backward()
        nn.utils.clip_grad_norm_(self.critic.parameters(), self.max_grad_norm)
        self.optimizer.param_groups[0]["lr"] = self.learning_rate * self.rate_share
        self.optimizer.step()
        return predicted.detach()

    def tensors(self) -> dict[str, Tensor]:
        return {
            **checkpoint.prefixed("critic", self.critic.state_dict()),
            **checkpoint.prefixed("optimizer", optimizer_tensors(self.optimizer)),
        }

    def load(self, tensors: dict[str, Tensor], path: Path) -> None:
        checkpoint.load_weights(self.critic, checkpoint.group(tensors, "critic"), path)
        state = checkpoint.group(tensors, "optimizer")
        checkpoint.restore_optimizer(self.optimizer, state, bool(state), path, "the critic")


class SharedBaseline(Baseline):
    """Mean cost of the other tours of the same instance: leave-one-out.

    Kool et al. (2019b), "Buy 4 REINFORCE samples, get a baseline for free!". With forced starts, tour k
    starts at node k, like in POMO (Kwon et al. 2020). With symmetries, tour k is sampled under symmetry k of the
    square, like in Sym-NCO (Kim et al. 2022); deviations: no rotations by other angles, which would leave the
    square, and no loss on embeddings.

    Args:
        problem: Problem to train on.
        num_tours: Number of tours per instance.
        force_starts: Whether to force the starts, for problems with `any_first_node`.
        symmetries: Whether to sample each tour under a different symmetry.

    Raises:
        ValueError: There are fewer than two tours, forced starts that the problem does not allow, or more tours than
            symmetries.
    """

    def __init__(
        self, problem: AnyProblem, num_tours: int, force_starts: bool = False, symmetries: bool = False
    ) -> None:
        if num_tours < 2:
            raise ValueError(f"the shared baseline compares tours of one instance: num_tours >= 2, got {num_tours}")
        self.num_tours = num_tours
        if force_starts:
            first_nodes(problem, num_tours)  # raises if the problem has not so many
        self.force_starts = force_starts
        self.symmetries = symmetries
        if symmetries and num_symmetries(problem) == 1:
            raise ValueError(f"symmetries: {problem.name} has neither coordinates nor a matrix; leave them out")
        if symmetries and num_tours > num_symmetries(problem):
            raise ValueError(f"{num_tours} tours exceed the {num_symmetries(problem)} symmetries; choose fewer tours")

    def value(self, problem: AnyProblem, instance: Any, cost: Tensor) -> Tensor:
        return (cost.sum(dim=1, keepdim=True) - cost) / (self.num_tours - 1)
