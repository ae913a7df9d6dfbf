"""Start, resumption, loop and end of a training run."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import filelock
import torch
from torch import Tensor

from routing_agents import checkpoint, runs
from routing_agents.header import CheckpointError
from routing_agents.runs import TrainingDivergedError
from routing_agents.training import distributed
from routing_agents.training.report import Report, check_log, start_log
from routing_agents.training.stopping import StopRequest
from routing_agents.training.trainer import Trainer
from routing_agents.training.tuning import keep_freed_memory
from routing_gym.data import save_npz
from routing_gym.files import write_atomically


@dataclasses.dataclass(frozen=True)
class Saved:
    """The checkpoint of a run that is resumed."""

    path: Path
    tensors: dict[str, Tensor]
    header: dict[str, Any]


def resumed(trainer_type: type[Trainer], args: Any) -> tuple[Any, Saved | None]:
    """Return `args` and None; or, for a resumed run, the arguments that it was started with, and its checkpoint.

    Raises:
        ValueError: Other arguments are given with `--resume`, or the run is one of another script.
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
    given = {name: getattr(args, name) for name in runs.changed(args) if name in args.beside_resume}
    first = dataclasses.replace(first.in_folder(path.parent), **given)
    check_log(first)
    return first, Saved(path, tensors, header)


def restore(trainer: Trainer, saved: Saved) -> None:
    """Restore a trainer from the checkpoint of a run.

    Raises:
        CheckpointError: The run's checkpoint is incomplete, or does not fit.
    """
    path, tensors, header = saved.path, saved.tensors, saved.header
    if not 0 <= header["step"] <= trainer.args.total_steps:
        found = f"{path}: step is {header['step']}; expected 0 to {trainer.args.total_steps}"
        raise CheckpointError(f"{found}, the steps of the whole run")
    try:
        checkpoint.restore_training(trainer.model, trainer.optimizers, tensors, header["step"], path)
        trainer.step, trainer.seconds = header["step"], header["seconds"]
        trainer.best, trainer.history = header["best"], header["history"]
        trainer.sums = checkpoint.read_sums(header, path)
        trainer.restore(tensors, header, path)
    except KeyError as error:
        raise CheckpointError(f"{path}: lacks {error}, without which no run can go on") from error


def begin(trainer: Trainer) -> Path:
    """Make the folder of a new run."""
    args = trainer.args
    folder = distributed.by_first(lambda: runs.make_folder(args.runs, args.name, trainer.title, args.seed))
    if trainer.started_from and distributed.rank() == 0:
        print(trainer.started_from)
    return folder


@contextmanager
def only_process(folder: Path) -> Iterator[None]:
    """Lock a run's folder against other processes; the lock ends with the process.

    Raises:
        ValueError: Another process is training in the folder.
    """
    lock = filelock.FileLock(folder / runs.LOCK, timeout=0)
    try:
        lock.acquire()
    except filelock.Timeout:
        raise ValueError(
            f"{folder}: another process is training in it; wait until it ends, or stop it; if there is none, delete "
            f"{folder / runs.LOCK}"
        ) from None
    try:
        yield
    finally:
        lock.release()


def make_profiler(wanted: bool, folder: Path) -> AbstractContextManager[torch.profiler.profile | None]:
    """Return a profiler that writes torch's profile of five early steps to trace.json, or, if not wanted, None."""
    if not wanted:
        return nullcontext()
    return torch.profiler.profile(
        schedule=torch.profiler.schedule(wait=3, warmup=2, active=5, repeat=1),
        on_trace_ready=lambda profile: profile.export_chrome_trace(str(folder / "trace.json")),
    )


@dataclasses.dataclass(frozen=True)
class Session:
    """A run in progress: it counts steps, handles Ctrl-C, and records epochs.

    Attributes:
        folder: Folder of the run.
        report: Report that shows and logs the run; None in all processes but the first.
        stop: Handler of Ctrl-C.
        profiler: Profiler that counts the steps, or None.
    """

    trainer: Trainer
    folder: Path
    report: Report | None
    stop: StopRequest
    profiler: torch.profiler.profile | None

    def goes_on(self) -> bool:
        """Return whether there are steps left and no process was asked to stop."""
        trainer = self.trainer
        return trainer.step < trainer.args.total_steps and not distributed.any_of(self.stop.requested)

    def advance(self) -> bool:
        """Count a step that was made; return whether it was the last one of an epoch."""
        if self.report is not None:
            self.report.advance()
        if self.profiler is not None:
            self.profiler.step()
        return self.trainer.step % self.trainer.args.steps_per_epoch == 0

    def record(self, metrics: dict[str, float]) -> None:
        """Save the run after an epoch, and its weights if they are the best; show and log its metrics."""
        self.trainer.save_best(self.folder / runs.BEST, metrics)
        if self.report is not None:
            self.report.log_epoch(metrics | self.trainer.compared(metrics), self.trainer.picture())
        self.trainer.save(self.folder / runs.LAST)
        if self.report is not None:
            self.report.show_epoch()  # after everything is saved, because the output may be closed
        self.stop_if_enough()

    def reason_to_stop(self) -> str:
        """Return the reason why the run ends with steps left, or an empty text; only the first process returns one."""
        return "" if self.report is None else self.trainer.reason_to_stop(self.report.rows)

    @property
    def has_ended(self) -> bool:
        """Whether no steps are left, or there is a reason to end before."""
        return self.trainer.step >= self.trainer.args.total_steps or bool(self.reason_to_stop())

    def stop_if_enough(self) -> None:
        """Request that all processes stop before the next step if there is a reason."""
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
def start_report(trainer: Trainer, folder: Path) -> Iterator[Report]:
    """Context manager for the report of a run: writes args.json, and finds the trainer's reference."""
    args = trainer.args
    if not (folder / "args.json").exists():
        write_atomically(folder / "args.json", (json.dumps(args.as_started(), indent=2) + "\n").encode())
    with start_log(folder, args) as log:
        trainer.reference = trainer.find_reference(folder.parent / ".references")
        with Report(folder, args, trainer.columns, trainer.batch_size, trainer.step, trainer.reference, log) as report:
            yield report


@contextmanager
def explained_errors(trainer: Trainer, folder: Path) -> Iterator[None]:
    """Context manager that adds the state of the run and the remedy to an error; see `session` for the errors."""
    try:
        yield
    except TrainingDivergedError as error:
        told = f"{error}; the checkpoint of epoch {trainer.epoch} is sound"
        if (batch := trainer.batch()) is not None:
            path = folder / f"diverged-{distributed.rank()}.npz"
            save_npz(path, *batch)
            told += f", and the batch is in {path}"
        raise TrainingDivergedError(f"{told}. Start again with {trainer.remedy}") from None
    except (OSError, RuntimeError) as error:
        again = f"Go on with: {runs.command(trainer.script, '--resume', folder)}"
        if isinstance(error, OSError) and (folder / runs.LAST).exists():
            raise OSError(f"{error}; the last checkpoint is sound. {again}") from error
        if isinstance(error, RuntimeError) and distributed.lost(error):
            told = "another process of the run is gone; the last checkpoint is sound"
            raise runs.ProcessLostError(f"{told}. {again}") from error
        raise


@contextmanager
def session(trainer: Trainer, saved: Saved | None, profile: bool = False) -> Iterator[Session]:
    """Context manager for one training run: reports the result, or saves the run and prints the resume command.

    Args:
        trainer: Trainer of the run.
        saved: Checkpoint of a resumed run; None makes a new folder.
        profile: Whether to write torch's profile of five early steps.

    Raises:
        TrainingDivergedError: The loss or the gradient is not finite; the message has the remedy. The batch is saved if
            the trainer returns one.
        ProcessLostError: Another process of the run has ended.
    """
    keep_freed_memory()
    if saved is not None:
        restore(trainer, saved)
    folder = begin(trainer) if saved is None else saved.path.parent
    is_first = distributed.rank() == 0
    with explained_errors(trainer, folder), ExitStack() as stack:
        if is_first:
            stack.enter_context(only_process(folder))
            if saved is None:
                trainer.prepare(folder)
        if saved is None:  # so that the run can be resumed from the first moment
            trainer.save(folder / runs.LAST)
        report = stack.enter_context(start_report(trainer, folder)) if is_first else None
        profiler = stack.enter_context(make_profiler(profile and is_first, folder))
        stop = stack.enter_context(StopRequest(second_is_final=not distributed.launched()))
        run = Session(trainer, folder, report, stop, profiler)
        run.stop_if_enough()  # for a resumed run that had ended already
        if saved is not None and report is not None and run.has_ended:
            report.say("This run had ended already.")
            if hasattr(trainer.args, "init_from"):
                report.say(f"Train longer in a new run, with --init-from {folder}")
        yield run
        run.end()
    distributed.stop()


def train(trainer_type: type[Trainer], args: Any, profile: bool = False) -> Path:
    """Train according to `args`, from the beginning or from a run's checkpoint; return the folder of the run.

    Raises the errors of `resumed`, of the trainer and of `session`.
    """
    args, saved = resumed(trainer_type, args)
    trainer = trainer_type(args)
    with session(trainer, saved, profile) as run:
        while run.goes_on():
            trainer.update()
            if run.advance():
                run.record(trainer.end_epoch())
    return run.folder
