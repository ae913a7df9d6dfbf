"""Shared base classes of the training scripts: arguments, optimiser step and checkpoints."""

from __future__ import annotations

import dataclasses
import math
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from routing_agents import checkpoint, runs
from routing_agents.header import from_json
from routing_agents.runs import TrainingDivergedError
from routing_agents.training import distributed
from routing_agents.training.report import Column
from routing_gym.problem import AnyProblem


class RunArgs:
    """Base class for the dataclass of arguments of a training script."""

    epochs: int
    """Number of training epochs."""
    steps_per_epoch: int
    """Number of steps per epoch."""
    precision: str = "float32"
    """Precision of matrix products in training."""
    log: str = "tensorboard"
    """Log of the metrics."""

    local: ClassVar[tuple[str, ...]] = ("runs", "resume")  # facts of this machine, which checkpoints do not hold
    beside_resume: ClassVar[tuple[str, ...]] = ("device",)  # may be given together with `--resume`

    @property
    def total_steps(self) -> int:
        return self.epochs * self.steps_per_epoch

    def to_json(self) -> dict[str, Any]:
        """Convert the arguments to JSON types, without those of this machine."""
        return {key: value for key, value in dataclasses.asdict(cast(Any, self)).items() if key not in self.local}

    def as_started(self) -> dict[str, Any]:
        """Return the content of args.json: `to_json`, and the name of the weights that the run starts from."""
        weights: Path | None = getattr(self, "init_from", None)
        return self.to_json() | {"init_from": None if weights is None else weights.name}

    def in_folder(self, folder: Path) -> Any:
        """Return the arguments, read from a checkpoint, with the paths of files in the run's folder."""
        return self

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Any:
        """Convert the result of `to_json` back to arguments.

        Raises:
            KeyError, TypeError, ValueError: These are not the arguments of a run.
        """
        return from_json(cls, values)


class Trainer(ABC):
    """State of one run: a model, its optimisers and its progress.

    A script derives from this class, builds `model` and `optimizers`, and implements one training step.

    Args:
        args: The run's arguments.

    Attributes:
        optimizers: Optimisers by the name of their state in a checkpoint.
        started_from: Sentence about the weights that the run starts from, if any: those kept, new and left out.
        history: Arguments, metrics and seconds of the earlier runs that led to the initial weights, oldest first.
        reference: Mean cost of a solver's solutions of the held-out instances, if there is one.
        step: Number of steps made.
        seconds: Time spent in these steps.
        best: Metric `best_is` of the best weights so far, times its sign.
        sums: Sums of the metrics that `learn` returned in this epoch and process.
    """

    script: ClassVar[str]  # file name, such as "mappo.py"
    remedy: ClassVar[str] = "a lower --learning-rate, or with --precision float32"  # if training diverges
    best_is: tuple[str, int]  # metric that determines the best weights; 1 if more is better, -1 if less is

    model: nn.Module
    optimizers: dict[str, torch.optim.Optimizer]
    started_from = ""
    reference: float | None = None

    def __init__(self, args: Any) -> None:
        if args.threads:
            torch.set_num_threads(args.threads)
        self.args, self.device = args, runs.choose_device(args.device)
        if self.device.startswith("cuda:"):
            torch.cuda.set_device(self.device)
        self.step, self.seconds, self.best = 0, 0.0, -math.inf
        self.history: list[dict[str, Any]] = []
        self.sums: dict[str, Any] = {}

    @property
    @abstractmethod
    def title(self) -> str:
        """Default name of the run's folder, before seed and time."""

    @property
    @abstractmethod
    def columns(self) -> tuple[Column, ...]:
        """Columns of the live table."""

    @property
    def result(self) -> nn.Module:
        """The network that is evaluated and saved for use."""
        return self.model

    @property
    def batch_size(self) -> int:
        """Number of instances per step, over all processes."""
        return self.args.batch_size

    @property
    def instances(self) -> int:
        """Number of instances seen so far, over all processes."""
        return self.step * self.batch_size

    @property
    def epoch(self) -> int:
        """Number of completed epochs."""
        return self.step // self.args.steps_per_epoch

    def find_reference(self, cache: Path) -> float | None:
        """Return the `reference`; solutions are kept in the folder `cache` for the next run."""
        return None

    @abstractmethod
    def learn(self) -> dict[str, Any]:
        """Make the training step number `step`.

        Returns:
            Metrics, which are averaged over the epoch: numbers, or tensors () in float64, for which the device need not
            wait.

        Raises:
            TrainingDivergedError: The gradient is not finite; the weights are unchanged.
        """

    def update(self) -> None:
        """Make one training step, and count it; see `learn`."""
        started = time.perf_counter()
        for key, value in self.learn().items():
            self.sums[key] = self.sums.get(key, 0.0) + value
        self.step += 1
        self.seconds += time.perf_counter() - started

    def mean_sums(self) -> dict[str, float]:
        """Return the means of `sums` over the processes."""
        if not self.sums:
            return {}
        values = [torch.as_tensor(value, dtype=torch.float64, device=self.device) for value in self.sums.values()]
        return dict(zip(self.sums, distributed.mean(torch.stack(values)).tolist(), strict=True))

    def end_sums(self) -> dict[str, float]:
        """Return the mean of each metric over the steps of the epoch, and begin the sums of the next one."""
        means = {key: value / self.args.steps_per_epoch for key, value in self.mean_sums().items()}
        self.sums = {}
        return means

    def descend(self, loss: Tensor, learning_rate: float, name: str = "") -> Tensor:
        """Take one optimiser step.

        Args:
            loss: Loss of the batch.
            learning_rate: Learning rate of this step.
            name: Name of a part of the model and of its optimiser; by default the whole model and all optimisers.

        Returns:
            Norm of the gradient, before it is scaled down to at most `args.max_grad_norm`.

        Raises:
            TrainingDivergedError: Loss or gradient is not finite; the weights are unchanged.
        """
        network = self.model.get_submodule(name)
        optimizers = [self.optimizers[name]] if name else list(self.optimizers.values())
        network.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(network.parameters(), self.args.max_grad_norm)
        if not (norm + loss).isfinite():
            raise TrainingDivergedError(f"loss or gradient of {name or 'the model'} in step {self.step} is not finite")
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = learning_rate
            optimizer.step()
        return norm

    def batch(self) -> tuple[AnyProblem, Any] | None:
        """Return the problem and the instances of the current step, if they can be saved."""
        return None

    def prepare(self, folder: Path) -> None:
        """Write what a resume reads from the folder of a new run, besides the checkpoint."""

    @abstractmethod
    def end_epoch(self) -> dict[str, float]:
        """Evaluate the model on held-out instances, and return the metrics to log."""

    def compared(self, metrics: dict[str, float]) -> dict[str, float]:
        """Return further metrics to log, such as the gap: `metrics` relative to the `reference`."""
        return {}

    @abstractmethod
    def picture(self) -> np.ndarray:
        """Draw the model's solution of a held-out instance: pixels (height, width, 3)."""

    @abstractmethod
    def results(self, folder: Path) -> list[str]:
        """Draw the solution of the best weights to a file; return lines about their quality and use."""

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return what an exact resume needs besides the state that all scripts have: tensors, and JSON values."""
        return {}, {}

    def restore(self, tensors: dict[str, Tensor], header: dict[str, Any], path: Path) -> None:
        """Restore the result of `state`, read from `path`; `step` is restored already."""

    def reason_to_stop(self, rows: list[dict[str, float]]) -> str:
        """Return the reason why the run ends after the epochs in its log `rows`, with steps left, or an empty text."""
        return ""

    def describe(self) -> dict[str, Any]:
        """Return the header that all checkpoints of the run share; a script adds the description of its model."""
        told = {"script": self.script, "args": self.args.to_json(), "seconds": round(self.seconds, 3)}
        return {**told, "history": self.history}

    def save(self, path: Path) -> None:
        """Write everything that an exact resume needs. All processes must call this method; the first one writes."""
        tensors, more = self.state()
        progress = {"step": self.step, "best": self.best, "sums": self.mean_sums()}
        if distributed.rank() == 0:
            tensors |= checkpoint.training_state(self.model, self.optimizers)
            checkpoint.save(path, tensors, {**self.describe(), **progress, **more})

    def save_best(self, path: Path, metrics: dict[str, float]) -> None:
        """Write the weights alone, for use, if they are the best so far."""
        name, sign = self.best_is
        if sign * metrics[name] <= self.best:
            return
        self.best = sign * metrics[name]
        if distributed.rank() == 0:
            weights = checkpoint.prefixed("model", self.result.state_dict())
            checkpoint.save(path, weights, {**self.describe(), "metrics": metrics})
