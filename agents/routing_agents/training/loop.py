"""What training runs share: what they keep on disk, how they begin and go on, and how they end."""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from routing_agents import checkpoint, runs
from routing_agents.header import CheckpointError, from_json
from routing_agents.runs import TrainingDivergedError
from routing_agents.training import distributed
from routing_agents.training.report import Column, Report, check_log, start_log
from routing_agents.training.tuning import keep_freed_memory
from routing_gym.data import save_npz


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

    local: ClassVar[tuple[str, ...]] = ("runs", "resume")  # facts of this machine, which no checkpoint holds
    beside_resume: ClassVar[tuple[str, ...]] = ()  # may be given together with `--resume`

    @property
    def total_steps(self) -> int:
        return self.epochs * self.steps_per_epoch

    def to_json(self) -> dict[str, Any]:
        """Convert the arguments to JSON types, without those of this machine."""
        return {key: value for key, value in dataclasses.asdict(cast(Any, self)).items() if key not in self.local}

    def as_started(self) -> dict[str, Any]:
        """Return what args.json says: `to_json`, and the name of the weights that the run starts from."""
        weights: Path | None = getattr(self, "init_from", None)
        return self.to_json() | {"init_from": None if weights is None else weights.name}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Any:
        """Convert the result of `to_json` back to arguments.

        Raises:
            KeyError, TypeError, ValueError: These are not the arguments of a run.
        """
        return from_json(cls, values)


class Trainer(ABC):
    """One run: a model, its optimisers, and how far they have come.

    A script derives from it, makes `model` and `optimizers`, and says how one step learns.

    Args:
        args: The run's arguments.

    Attributes:
        optimizers: By the name under which a checkpoint holds their state.
        started_from: What was kept of the weights that the run began with, if it was given any.
        reference: Cost of a solver's solutions of the held-out instances, if there is one.
        step: Steps made.
        seconds: Spent in them.
        best: `best_is` of the best weights so far, times its sign.
    """

    script: ClassVar[str]  # such as "mappo.py"
    remedy: ClassVar[str] = "a lower --learning-rate, or with --precision float32"  # when it diverges
    best_is: tuple[str, int]  # the metric by which weights are the best; 1 where more is better, -1 where less is

    model: nn.Module
    optimizers: dict[str, torch.optim.Optimizer]
    started_from = ""
    reference: float | None = None

    def __init__(self, args: Any) -> None:
        if args.threads:
            torch.set_num_threads(args.threads)
        self.args, self.device = args, runs.choose_device(args.device)
        self.step, self.seconds, self.best = 0, 0.0, -math.inf

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
        """Instances of a step, over all processes."""
        return self.args.batch_size

    @property
    def instances(self) -> int:
        """Instances seen, by all processes."""
        return self.step * self.batch_size

    @property
    def epoch(self) -> int:
        """Epochs completed."""
        return self.step // self.args.steps_per_epoch

    def find_reference(self, cache: Path) -> float | None:
        """Return the `reference`; solutions are kept in the folder `cache` for the next run."""
        return None

    @abstractmethod
    def update(self) -> None:
        """Make one step.

        Raises:
            TrainingDivergedError: The gradient is not finite; the weights are still those of before.
        """

    @abstractmethod
    def end_epoch(self) -> dict[str, float]:
        """Measure the model on held-out instances, and return what there is to log."""

    @abstractmethod
    def picture(self) -> np.ndarray:
        """Draw what the model makes of a held-out instance: pixels (height, width, 3)."""

    @abstractmethod
    def results(self, folder: Path) -> list[str]:
        """Draw what the best weights make of it into a file; say how good these are, and how to use them."""

    @abstractmethod
    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return what an exact resume needs beside model and optimisers: tensors, and what JSON can hold."""

    @abstractmethod
    def restore(self, tensors: dict[str, Tensor], header: dict[str, Any], path: Path) -> None:
        """Restore the result of `state`, read from `path`; `step` is restored already."""

    def reason_to_stop(self, rows: list[dict[str, float]]) -> str:
        """Return why the run ends after the epochs in `rows`, its log, although it has steps left; else nothing."""
        return ""

    def describe(self) -> dict[str, Any]:
        """Return what every checkpoint says of the run; a script adds what its model is."""
        return {"script": self.script, "args": self.args.to_json(), "seconds": round(self.seconds, 3)}

    def save(self, path: Path) -> None:
        """Write everything that an exact resume needs. To be called in all processes; the first one writes."""
        tensors, progress = self.state()
        if distributed.rank() == 0:
            tensors |= checkpoint.training_state(self.model, self.optimizers)
            checkpoint.save(path, tensors, {**self.describe(), "step": self.step, **progress})

    def save_best(self, path: Path, metrics: dict[str, float]) -> None:
        """Write the weights alone, for use, if they are the best so far."""
        name, sign = self.best_is
        if sign * metrics[name] <= self.best:
            return
        self.best = sign * metrics[name]
        if distributed.rank() == 0:
            weights = checkpoint.prefixed("model", self.result.state_dict())
            checkpoint.save(path, weights, {**self.describe(), "metrics": metrics})


@dataclasses.dataclass(frozen=True)
class Saved:
    """The checkpoint of a run that is resumed."""

    path: Path
    tensors: dict[str, Tensor]
    header: dict[str, Any]


def resumed(trainer_type: type[Trainer], args: Any) -> tuple[Any, Saved | None]:
    """Return `args`; or, for a run that is resumed, the arguments that it was started with, and its checkpoint.

    Raises:
        ValueError: Other arguments beside `--resume`, or another script's run.
        CheckpointError: The run's checkpoint is damaged.
        ImportError: The package that logs the metrics is missing.
    """
    if args.resume is None:
        check_log(args)
        return args, None
    path, tensors, header = checkpoint.load_run(args)
    if header.get("script", trainer_type.script) != trainer_type.script:
        found = f"its checkpoint names {header['script']}"
        raise ValueError(f"{args.resume}: not a run of {trainer_type.script}; {found}")
    first = checkpoint.read_arguments(header, path, type(args).from_json)
    first = dataclasses.replace(first, **{name: getattr(args, name) for name in args.beside_resume})
    check_log(first)
    return first, Saved(path, tensors, header)


def restore(trainer: Trainer, saved: Saved) -> None:
    """Bring a trainer to where a run stopped.

    Raises:
        CheckpointError: The run's checkpoint lacks something, or does not fit.
    """
    path, tensors, header = saved.path, saved.tensors, saved.header
    if not 0 <= header["step"] <= trainer.args.total_steps:
        found = f"{path}: step is {header['step']}; expected 0 to {trainer.args.total_steps}"
        raise CheckpointError(f"{found}, the steps of the whole run")
    try:
        checkpoint.restore_training(trainer.model, trainer.optimizers, tensors, header["step"], path)
        trainer.step, trainer.seconds = header["step"], header["seconds"]
        trainer.restore(tensors, header, path)
    except KeyError as error:
        raise CheckpointError(f"{path}: lacks {error}, without which no run can go on") from error


def begin(trainer: Trainer) -> Path:
    """Make the folder of a new run, with a checkpoint, so that it can be resumed from the first moment."""
    args = trainer.args
    name = args.name or f"{trainer.title}-seed{args.seed}-{datetime.now():%Y%m%d-%H%M%S}"
    folder = distributed.by_first(lambda: runs.make_folder(args.runs, name))
    if trainer.started_from and distributed.rank() == 0:
        print(trainer.started_from)
    trainer.save(folder / runs.LAST)
    return folder


@dataclasses.dataclass(frozen=True)
class Session:
    """A run in progress: it counts steps, handles Ctrl-C, and records epochs.

    Attributes:
        folder: Of the run.
        report: What shows and logs it; None in all processes but the first.
        stop: Handles Ctrl-C.
        profiler: Counts the steps, if there is one.
    """

    trainer: Trainer
    folder: Path
    report: Report | None
    stop: runs.StopRequest
    profiler: torch.profiler.profile | None

    def goes_on(self) -> bool:
        """Return whether there are steps left and no process was asked to stop."""
        trainer = self.trainer
        return trainer.step < trainer.args.total_steps and not distributed.any_of(self.stop.requested)

    def advance(self) -> bool:
        """Note that a step was made; return whether it was the last one of an epoch."""
        if self.report is not None:
            self.report.advance()
        if self.profiler is not None:
            self.profiler.step()
        return self.trainer.step % self.trainer.args.steps_per_epoch == 0

    def record(self, metrics: dict[str, float], more: dict[str, float] | None = None) -> None:
        """Save the run after an epoch, and its weights if they are the best; show and log its metrics, and `more`."""
        self.trainer.save_best(self.folder / runs.BEST, metrics)
        if self.report is not None:
            self.report.epoch(metrics | (more or {}), self.trainer.picture())
        self.trainer.save(self.folder / runs.LAST)
        self.stop_if_enough()

    def reason_to_stop(self) -> str:
        """Return why the run ends with steps left; else nothing. The first process knows."""
        return "" if self.report is None else self.trainer.reason_to_stop(self.report.rows)

    def stop_if_enough(self) -> None:
        """Ask all processes to stop before the next step if there is a reason."""
        self.stop.requested |= bool(self.reason_to_stop())

    def end(self) -> None:
        """Report the result, or save the run and print the resume command if there are steps left."""
        reason = distributed.by_first(self.reason_to_stop)
        finished = self.trainer.step >= self.trainer.args.total_steps or bool(reason)
        if not finished:
            self.trainer.save(self.folder / runs.LAST)
        if self.report is not None and finished:
            self.report.finished(*filter(None, [reason]), *self.trainer.results(self.folder))
        elif self.report is not None:
            self.report.interrupted(self.trainer.script)


@contextmanager
def session(trainer: Trainer, saved: Saved | None, profile: bool = False) -> Iterator[Session]:
    """Context manager for one training run: reports the result, or saves the run and prints the resume command.

    Args:
        trainer: The run.
        saved: Where it goes on; None makes a new folder.
        profile: Whether to write torch's profile of five early steps.

    Raises:
        TrainingDivergedError: With what to do; the batch on which it happened is saved.
        ProcessLostError: Another process of the run is gone.
    """
    keep_freed_memory()
    if saved is not None:
        restore(trainer, saved)
    folder = begin(trainer) if saved is None else saved.path.parent
    is_first = distributed.rank() == 0
    try:
        with ExitStack() as stack:
            report = None
            if is_first:
                stack.enter_context(runs.only_process(folder))
                log = stack.enter_context(start_log(folder, trainer.args))
                trainer.reference = trainer.find_reference(folder.parent / ".references")
                report = Report(
                    folder, trainer.args, trainer.columns, trainer.batch_size, trainer.step, trainer.reference, log
                )
                stack.enter_context(report)
            profiler = stack.enter_context(runs.make_profiler(profile and is_first, folder))
            stop = stack.enter_context(runs.StopRequest(second_is_final=not distributed.launched()))
            run = Session(trainer, folder, report, stop, profiler)
            run.stop_if_enough()  # a run that had ended, and is resumed
            yield run
            run.end()
    except TrainingDivergedError as error:
        told = f"{error}; the checkpoint of epoch {trainer.epoch} is sound"
        if error.batch is not None:
            path = folder / f"diverged-{distributed.rank()}.npz"
            save_npz(path, *error.batch)
            told += f", and the batch is in {path}"
        raise TrainingDivergedError(f"{told}. Start again with {trainer.remedy}") from None
    except RuntimeError as error:
        if not distributed.lost(error):
            raise
        raise runs.ProcessLostError(
            f"another process of the run is gone; the checkpoint of epoch {trainer.epoch} is sound. Go on with: "
            f"{runs.command(trainer.script)} --resume {folder}"
        ) from error
    distributed.stop()
