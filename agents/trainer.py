"""The training loop's body: one REINFORCE step, one epoch's end, and what a checkpoint holds of them."""

from __future__ import annotations

import dataclasses
import json
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

import routing_gym
from routing_agents import checkpoint, distributed
from routing_agents.attention.baselines import (
    Baseline,
    CriticBaseline,
    ExponentialBaseline,
    NoBaseline,
    RolloutBaseline,
    SharedBaseline,
)
from routing_agents.attention.decoding import Choice, decode, log_probability, sampling_choice
from routing_agents.attention.features import FEATURES
from routing_agents.attention.model import AttentionModel, Critic
from routing_agents.optimizers import LEARNING_RATES, make_optimizers
from routing_agents.tuning import fast_precision
from routing_gym.arrays import to_backend
from routing_gym.problem import Problem
from routing_gym.problems import make_problem

if TYPE_CHECKING:
    from am_reinforce import Args

TRAINING_STREAM, HELD_OUT_STREAM, SIZE_STREAM = 0, 1, 3  # 2 is baselines.EVALUATION_STREAM
HELD_OUT_SEED = 20190307  # of every run, so that gaps compare and the optimum is solved for once


def stream(seed: int, purpose: int, index: int, rank: int = 0) -> np.random.Generator:
    """Return the random numbers of one step of one purpose; nothing else needs saving for a resume."""
    return np.random.default_rng((seed, purpose, index, rank))


def settings(env_kwargs: dict[str, str]) -> dict[str, Any]:
    """Return the problem's settings, as the command line gives them, with numbers as numbers."""
    return {key: literal(value) for key, value in env_kwargs.items()}


def literal(text: str) -> Any:
    """Read a number as a number, anything else as text."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def registered_problem(args: Args) -> Problem[Any, Any]:
    """Return the rules behind an environment id.

    Raises:
        ValueError: Not one of ours, or settings that the problem does not have.
    """
    try:
        env = gym.make(args.env_id, disable_env_checker=True, **settings(args.env_kwargs)).unwrapped
    except TypeError as error:
        raise ValueError(f"--env-kwargs: {error}") from error
    if not isinstance(env, routing_gym.RoutingEnv):
        raise ValueError(f"--env-id {args.env_id} is no routing problem; choose one such as routing/TSP-20")
    return env.problem


def choose_device(name: str) -> str:
    """Check the device that was asked for, or choose one.

    Raises:
        ValueError: There is no such device here.
    """
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if not re.fullmatch(r"cpu|cuda(:\d+)?", name):
        raise ValueError(f"--device must be cpu, cuda, cuda:1 etc. or auto, got {name!r}")
    if name.startswith("cuda") and int(name[5:] or 0) >= torch.cuda.device_count():
        raise ValueError(f"--device {name}: torch finds {torch.cuda.device_count()} CUDA devices here; use cpu or auto")
    return name


def make_baseline(args: Args, problem: Problem[Any, Any], model: AttentionModel) -> Baseline:
    """Build the baseline that `args` names."""
    if args.baseline == "rollout":
        return RolloutBaseline(problem, model, args.seed, args.baseline_size)
    if args.baseline == "shared":
        return SharedBaseline(problem, args.num_starts, args.force_starts)
    if args.baseline == "critic":
        critic = Critic(model.features, model.config, torch.Generator().manual_seed(args.seed + 1))
        return CriticBaseline(critic.to(next(model.parameters()).device), args.learning_rate)
    return ExponentialBaseline() if args.baseline == "exponential" else NoBaseline()


class TrainingDivergedError(RuntimeError):
    """The weights have left the range in which the network computes anything."""

    def __init__(self, message: str, problem: Problem[Any, Any], instance: Any) -> None:
        super().__init__(message)
        self.problem, self.instance = problem, instance


class Reinforce(nn.Module):
    """The loss of a batch, as a module, so that torch's DistributedDataParallel can hold it.

    Args:
        model: The policy.
        baseline: What its tours are compared with.
    """

    def __init__(self, model: AttentionModel, baseline: Baseline) -> None:
        super().__init__()
        self.model = model
        self.baseline = baseline

    def forward(self, problem: Problem[Any, Any], instance: Any, choose: Choice) -> tuple[Tensor, Tensor]:
        """Sample tours and return the loss whose gradient is REINFORCE's (Kool et al. 2019, eq. 9).

        The batch is encoded once, with gradients; the tours are played on the detached encoding and
        then scored from the same encoding in one parallel pass.

        Returns:
            The loss; and the means of cost, baseline and -log p, an unbiased estimate of the entropy (nats a tour).
        """
        model, baseline = self.model, self.baseline
        encoding = model.encode(problem.observe_static(instance))
        num_tours, forced = baseline.num_tours, baseline.force_starts
        played = decode(model, problem, instance, encoding.detach(), choose, num_tours, forced, record=True)
        cost = played.cost.unflatten(0, (-1, num_tours))  # (B, K)
        reference = baseline.value(problem, instance, cost)
        log_p = log_probability(model, encoding, played, skip=int(forced))
        loss = ((cost - reference) * log_p).mean()
        return loss, torch.stack([cost.mean(), reference.mean(), -log_p.mean()]).detach()


class Trainer:
    """One run: model, optimiser, baseline, and how far it has come.

    Args:
        args: The run's arguments.

    Attributes:
        started_from: What `--init-from` kept; empty without.
        history: What is known of the runs before, from which the weights came.
        seconds: Spent in training steps.
    """

    def __init__(self, args: Args) -> None:
        if args.threads:
            torch.set_num_threads(args.threads)
        self.device = distributed.start(choose_device(args.device))
        if args.batch_size % distributed.world_size():
            raise ValueError(f"--batch-size {args.batch_size} cannot be shared by {distributed.world_size()} processes")
        if args.precision == "auto":  # decided once, so that a resumed run goes on with the same
            dtype = str(fast_precision(self.device)).removeprefix("torch.")
            args = dataclasses.replace(args, precision=dtype)
        if args.learning_rate is None:
            args = dataclasses.replace(args, learning_rate=LEARNING_RATES[args.optimizer])
        self.args = args
        self.problem = registered_problem(args)
        self.model = AttentionModel(FEATURES[self.problem.name], args.model, torch.Generator().manual_seed(args.seed))
        self.started_from, self.history = "", []
        if args.init_from is not None:
            self.started_from, self.history = checkpoint.warm_start(self.model, args.init_from)
        self.model.to(self.device).multiply_in(getattr(torch, args.precision))
        self.optimizers = make_optimizers(self.model, args.optimizer, args.learning_rate)
        self.baseline = make_baseline(args, self.problem, self.model)
        self.loss = distributed.parallel(Reinforce(self.model, self.baseline))
        held_out = self.problem.generate(stream(HELD_OUT_SEED, HELD_OUT_STREAM, 0), args.held_out)
        self.held_out = to_backend(held_out, "torch", self.device)
        self.step, self.seconds = 0, 0.0
        self.best_cost = float("inf")
        self.sums = torch.zeros(4, dtype=torch.float64, device=self.device)  # over the epoch so far, see `update`

    @property
    def epoch(self) -> int:
        """Epochs completed."""
        return self.step // self.args.steps_per_epoch

    @property
    def instances(self) -> int:
        """Instances seen, by all processes."""
        return self.step * self.args.batch_size

    @property
    def learning_rate(self) -> float:
        """Constant, then linear to zero over the last part of the run."""
        left = 1 - self.step / self.args.total_steps
        return self.args.learning_rate * min(1.0, left / self.args.decay)

    def batch_problem(self) -> Problem[Any, Any]:
        """Return the rules of this step: those of the id, or with `--sizes` of a size drawn for all processes."""
        if self.args.sizes is None:
            return self.problem
        low, high = self.args.sizes
        size = int(stream(self.args.seed, SIZE_STREAM, self.step).integers(low, high + 1))
        own = {field.name for field in dataclasses.fields(self.problem)} - {"num_nodes"}  # others: the environment's
        given = {name: value for name, value in settings(self.args.env_kwargs).items() if name in own}
        return make_problem(self.problem.name, size, **given)

    def draw(self, problem: Problem[Any, Any]) -> tuple[Any, Choice]:
        """Return this process's instances of this step, and how to choose its actions."""
        rng = stream(self.args.seed, TRAINING_STREAM, self.step, distributed.rank())
        share = self.args.batch_size // distributed.world_size()
        instance = to_backend(problem.generate(rng, share), "torch", self.device)
        return instance, sampling_choice(torch.Generator(self.device).manual_seed(int(rng.integers(2**63))))

    def update(self) -> None:
        """Make one step of the optimiser.

        Raises:
            TrainingDivergedError: The gradient is not finite; the weights are still those of before.
        """
        started = time.perf_counter()
        problem = self.batch_problem()
        instance, choose = self.draw(problem)
        loss, means = self.loss(problem, instance, choose)
        self.model.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.args.max_grad_norm)
        if not norm.isfinite():
            message = f"the gradient of step {self.step} is not finite"
            raise TrainingDivergedError(message, problem, instance)
        for optimizer in self.optimizers.values():
            for group in optimizer.param_groups:
                group["lr"] = self.learning_rate
            optimizer.step()
        self.sums += torch.cat([means, norm[None]]).double()
        self.step += 1
        self.seconds += time.perf_counter() - started

    def end_epoch(self) -> dict[str, float]:
        """Evaluate, update the baseline, and return what there is to log."""
        cost, reference, entropy, norm = (distributed.mean(self.sums) / self.args.steps_per_epoch).tolist()
        self.sums.zero_()
        distributed.share_buffers(self.model)
        greedy = distributed.greedy_cost(self.model, self.problem, self.held_out)
        return {
            "epoch": self.epoch,
            "instances": self.instances,
            "cost": cost,
            "baseline": reference,
            "entropy": entropy,
            "gradient_norm": norm,
            "learning_rate": self.learning_rate,
            "greedy": float(greedy.double().mean()),
            **self.baseline.end_epoch(self.model),
        }

    def save(self, path: Path) -> None:
        """Write everything that an exact resume needs. To be called in all processes; the first one writes."""
        self.sums = distributed.mean(self.sums)
        tensors: dict[str, Tensor] = {
            **checkpoint.prefixed("model", self.model.state_dict()),
            **checkpoint.prefixed("baseline", self.baseline.tensors()),
            "sums": self.sums,
        }
        for name, optimizer in self.optimizers.items():
            tensors |= checkpoint.prefixed(name, checkpoint.optimizer_tensors(optimizer))
        progress = {"step": self.step, "best_cost": self.best_cost, "processes": distributed.world_size()}
        header = {**self.describe(), **progress}
        if distributed.rank() == 0:
            checkpoint.save(path, tensors, header)

    def save_best(self, path: Path, metrics: dict[str, float]) -> None:
        """Write the weights alone, for use, if they are the best so far."""
        if metrics["greedy"] >= self.best_cost:
            return
        self.best_cost = metrics["greedy"]
        header = {**self.describe(), "metrics": metrics}
        weights = checkpoint.prefixed("model", self.model.state_dict())
        if distributed.rank() == 0:
            checkpoint.save(path, weights, header)

    def describe(self) -> dict[str, Any]:
        """Return what every checkpoint says of the run."""
        origin = {"args": self.args.to_json(), "history": self.history, "seconds": round(self.seconds, 3)}
        return {**checkpoint.describe(self.problem, self.model), **origin}

    def load(self, tensors: dict[str, Tensor], header: dict[str, Any], path: Path) -> None:
        """Restore what `save` wrote.

        Raises:
            CheckpointError: It was written by another number of processes, lacks something, or does not fit the model.
        """
        processes = header.get("processes")
        if processes != distributed.world_size():
            raise checkpoint.CheckpointError(
                f"{path}: written by a run of {processes} processes, resumed with {distributed.world_size()}; "
                f"start it by torchrun --nproc-per-node={processes}"
            )
        checkpoint.load_weights(self.model, checkpoint.group(tensors, "model"), path)
        try:
            for name, optimizer in self.optimizers.items():
                state = checkpoint.group(tensors, name)
                if header["step"] > 0 and not state:
                    raise KeyError(f"the state of {name}")
                checkpoint.load_optimizer(optimizer, state)
            self.baseline.load(checkpoint.group(tensors, "baseline"))
            self.sums = tensors["sums"].to(self.device)
            self.step, self.best_cost = header["step"], header["best_cost"]
            self.history, self.seconds = header["history"], header["seconds"]
        except KeyError as error:
            raise checkpoint.CheckpointError(f"{path}: lacks {error}, without which no run can go on") from error
