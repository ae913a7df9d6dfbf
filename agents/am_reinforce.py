"""Train the attention model of Kool et al. (2019) with REINFORCE on any of the routing problems.

    python agents/am_reinforce.py                                  # TSP-20, 8 minutes on two cores
    python agents/am_reinforce.py --env-id routing/CVRP-50
    python agents/am_reinforce.py --env-id routing/TSP-50 --init-from runs/NAME    # from a model for TSP-20, say
    torchrun --nnodes=2 --nproc-per-node=2 ... agents/am_reinforce.py              # on several machines
    python agents/am_reinforce.py --resume runs/NAME               # go on exactly where it stopped

Every random number is a function of the seed and the step, so a resumed run repeats an uninterrupted
one bit for bit, wherever it was stopped. Ctrl-C stops after the current step and saves.
"""

from __future__ import annotations

import os

# Threads that wait for each other asleep: awake, they collapse as soon as another program is busy. Read
# by the OpenMP library when torch is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import dataclasses
import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import gymnasium as gym
import torch
import tyro
from rich.console import Console

from routing_agents import checkpoint, distributed
from routing_agents.argument_checks import check_at_least, check_positive
from routing_agents.attention.model import ModelConfig
from routing_agents.reference import reference_cost
from routing_agents.report import Report, SilentReport
from routing_agents.stop_request import StopRequest
from routing_agents.tuning import keep_freed_memory
from routing_gym.data import save_npz
from trainer import Trainer, TrainingDivergedError, choose_device


@dataclass(frozen=True)
class Args:
    """Arguments of a run; the defaults train TSP-20 on two CPU cores in about 8 minutes."""

    env_id: str = "routing/TSP-20"
    """Any routing id: routing/{TSP,CVRP,SDVRP,OP,PCTSP,SPCTSP}-{10,20,50,100,200,500,1000}."""
    env_kwargs: dict[str, str] = dataclasses.field(default_factory=dict)
    """Settings of the problem, such as `--env-kwargs prize uniform`."""
    seed: int = 1
    """Of the weights, the training instances and the sampled tours."""
    epochs: int = 16
    """Evaluations, checkpoints and baseline tests are made after each."""
    steps_per_epoch: int = 100
    """Batches per epoch."""
    batch_size: int = 256
    """Instances per batch, of all processes together."""
    sizes: tuple[int, int] | None = None
    """Smallest and largest number of nodes to train on, drawn anew for each batch; the held-out instances keep
    the size of the id."""
    optimizer: Literal["muon", "adam"] = "muon"
    """Muon, with Adam for what is no matrix, learns from several times fewer instances; Adam alone is the paper's."""
    learning_rate: float | None = None
    """Until the decay sets in; by default 3e-3 with Muon and 5e-4 with Adam."""
    decay: float = 1.0
    """Last part of the run over which the learning rate falls linearly to zero."""
    max_grad_norm: float = 1.0
    """Gradients are scaled down to this norm."""
    baseline: Literal["rollout", "exponential", "critic", "shared", "none"] = "shared"
    """What a tour is compared with: the greedy tour of a frozen policy (Kool et al. 2019), a moving
    average, a prediction, the other sampled tours of the same instance, or nothing."""
    num_starts: int = 8
    """Tours per instance of the shared baseline."""
    force_starts: bool = False
    """Shared baseline: start tour k at node k, as POMO does, where the problem allows (TSP, CVRP). Suits
    decoding from many starts; the start of a single greedy tour is then never learnt."""
    baseline_size: int = 10_000
    """Instances of the rollout baseline's t-test."""
    held_out: int = 1_000
    """Instances on which the greedy cost and the gap are measured after each epoch."""
    model: tyro.conf.OmitArgPrefixes[ModelConfig] = ModelConfig()
    """Sizes of the network."""
    device: str = "auto"
    """cpu, cuda, or auto: cuda where there is one."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of the encoder's matrix products in training; auto takes bfloat16 where the processor has instructions for it."""
    processes: int = 0
    """Processes on this machine that share each batch; 0 takes two on a CPU that has two cores, else one."""
    threads: int = 0
    """CPU threads of each process; 0 takes one of several processes, all cores of a single one."""
    init_from: Annotated[Path | None, tyro.conf.arg(metavar="RUN")] = None
    """Begin with the weights of another run or checkpoint, of any problem and size, wherever they fit."""
    profile: bool = False
    """Write torch's profile of five early steps to trace.json in the run's folder, for chrome://tracing or Perfetto."""
    runs: Path = Path("runs")
    """Where run folders are made."""
    name: str = ""
    """Of the run's folder; by default the problem, the baseline, the seed and the time."""
    resume: Annotated[Path | None, tyro.conf.arg(metavar="RUN")] = None
    """Go on with a run's folder, with the arguments it was started with."""

    def __post_init__(self) -> None:
        for field in ("processes", "threads"):
            if getattr(self, field) < 0:
                raise ValueError(f"--{field} must be at least 1, or 0 for a choice, got {getattr(self, field)}")
        check_at_least(0, self, "seed")
        check_at_least(1, self, "epochs", "steps_per_epoch", "batch_size", "baseline_size", "held_out")
        if not 0 < self.decay <= 1:
            raise ValueError(f"--decay must be in (0, 1], got {self.decay}")
        check_positive(self, "learning_rate", "max_grad_norm")
        if self.sizes is not None and not 2 <= self.sizes[0] <= self.sizes[1]:
            raise ValueError(f"--sizes takes the smallest and the largest number of nodes, got {self.sizes}")
        if self.sizes is not None and self.force_starts and self.num_starts > self.sizes[0]:
            raise ValueError(f"{self.num_starts} forced starts, but --sizes goes down to {self.sizes[0]} nodes")

    @property
    def total_steps(self) -> int:
        return self.epochs * self.steps_per_epoch

    def to_json(self) -> dict[str, Any]:
        """Turn the arguments into what JSON can hold."""
        paths = {"runs": str(self.runs), "init_from": self.init_from and str(self.init_from), "resume": None}
        return {**dataclasses.asdict(self), **paths}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Args:
        """Turn what `to_json` returned back into arguments; without `init_from`, which has been used."""
        sizes = values.get("sizes")
        typed = {"runs": Path(values["runs"]), "init_from": None, "sizes": sizes and tuple(sizes)}
        return cls(**{**values, **typed, "model": ModelConfig(**values["model"])})


def set_up(args: Args) -> tuple[Trainer, Path]:
    """Start a run, or take up the one that `--resume` names; return its trainer and its folder.

    Raises:
        ValueError: `--resume` together with other arguments, or a checkpoint that does not fit.
        FileExistsError: The folder of a new run exists.
    """
    if args.resume is None:
        trainer = Trainer(args)
        folder = distributed.by_first(lambda: make_folder(args, trainer))
        trainer.save(folder / "last.safetensors")  # so that it can be resumed from the first moment
        return trainer, folder
    folder, path = args.resume, args.resume / "last.safetensors"
    others = [
        "--" + field.name.replace("_", "-")
        for field in dataclasses.fields(Args)
        if field.name != "resume" and getattr(args, field.name) != getattr(Args(), field.name)
    ]
    if others:
        raise ValueError(f"--resume goes on with the run's own arguments; leave out {', '.join(others)}")
    if not path.is_file():
        raise ValueError(f"--resume takes the folder of a run, which holds last.safetensors; {folder} does not")
    tensors, header = checkpoint.load(path)
    if "step" not in header:
        raise checkpoint.CheckpointError(f"{path}: holds weights only; a run is resumed from its last.safetensors")
    try:
        given = Args.from_json(header["args"])
    except (KeyError, TypeError) as error:
        raise checkpoint.CheckpointError(f"{path}: its arguments are not those of this version: {error}") from error
    trainer = Trainer(given)
    trainer.load(tensors, header, path)
    return trainer, folder


def make_folder(args: Args, trainer: Trainer) -> Path:
    """Make the folder of a new run."""
    size = f"{trainer.problem.name.lower()}-{trainer.problem.num_nodes}"
    name = args.name or f"{size}-{args.baseline}-seed{args.seed}-{datetime.now():%Y%m%d-%H%M%S}"
    folder = args.runs / name
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise FileExistsError(
            f"{folder} exists; continue it with --resume {folder}, or choose another --name"
        ) from None
    if trainer.started_from:
        Console().print(trainer.started_from, soft_wrap=True)
    return folder


def make_report(trainer: Trainer, folder: Path) -> Report | SilentReport:
    """Return what shows and logs the run: something in the first process only."""
    if distributed.rank() > 0:
        return SilentReport()
    args = trainer.args
    reference = reference_cost(trainer.problem, trainer.held_out, folder.parent / ".references")
    return Report(folder, args.to_json(), reference, trainer.step, args.total_steps, args.batch_size)


def make_profiler(args: Args, folder: Path) -> AbstractContextManager[torch.profiler.profile | None]:
    """Return what records the steps after the first five, if that was asked for."""
    if not args.profile or distributed.rank() > 0:
        return nullcontext()
    return torch.profiler.profile(
        schedule=torch.profiler.schedule(wait=3, warmup=2, active=5, repeat=1),
        on_trace_ready=lambda profile: profile.export_chrome_trace(str(folder / "trace.json")),
    )


def run(trainer: Trainer, folder: Path) -> None:
    """Train to the end, or until somebody asks to stop, reporting and saving after each epoch."""
    with make_report(trainer, folder) as report, make_profiler(trainer.args, folder) as profiler:
        with StopRequest(second_is_final=not distributed.launched()) as stop:
            stopped = False
            while trainer.step < trainer.args.total_steps and not stopped:
                trainer.update()
                report.advance()
                if profiler is not None:
                    profiler.step()
                if trainer.step % trainer.args.steps_per_epoch == 0:
                    metrics = trainer.end_epoch()
                    trainer.save_best(folder / "best.safetensors", metrics)
                    report.epoch(metrics, trainer.problem, trainer.model, trainer.held_out)
                    trainer.save(folder / "last.safetensors")
                stopped = distributed.any_of(stop.requested)
        if stopped:
            trainer.save(folder / "last.safetensors")
            report.interrupted()
        else:
            report.finished(trainer.problem, folder / "best.safetensors", trainer.held_out)


def diverged(error: TrainingDivergedError, trainer: Trainer, folder: Path) -> TrainingDivergedError:
    """Save the batch on which the run diverged, and say so."""
    path = folder / f"diverged-{distributed.rank()}.npz"
    save_npz(path, error.problem, error.instance)
    message = (
        f"{error}; the checkpoint of epoch {trainer.epoch} is sound, and the batch is in {path}. Start again with a "
    )
    message += "lower --learning-rate, or with --precision float32"
    return TrainingDivergedError(message, error.problem, error.instance)


def main(args: Args) -> Path:
    """Train as `args` say; return the folder of the run."""
    keep_freed_memory()
    trainer, folder = set_up(args)
    try:
        run(trainer, folder)
    except TrainingDivergedError as error:
        raise diverged(error, trainer, folder) from None
    except RuntimeError as error:
        if not distributed.lost(error):
            raise
        raise distributed.ProcessLostError(
            f"another process of the run is gone; the checkpoint of epoch {trainer.epoch} is sound. Go on with: "
            f"python agents/am_reinforce.py --resume {folder}"
        ) from error
    distributed.stop()
    return folder


def choose_processes(args: Args) -> int:
    """Return how many processes to start: as many as the run had that is resumed, or as `--processes` says."""
    if args.resume is not None:
        path = args.resume / "last.safetensors"
        return int(checkpoint.load(path)[1].get("processes", 1)) if path.is_file() else 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    several = choose_device(args.device) == "cpu" and cores > 1 and args.batch_size % 2 == 0
    return args.processes or (2 if several else 1)


EXPECTED = (ValueError, OSError, ImportError, MemoryError, gym.error.Error)
EXPECTED += (TrainingDivergedError, distributed.ProcessLostError)

if __name__ == "__main__":
    try:
        args = tyro.cli(Args, description=__doc__)
        if not distributed.launched() and (processes := choose_processes(args)) > 1:
            sys.exit(distributed.launch(processes, __file__, sys.argv[1:]))
        main(args)
        distributed.leave()
    except EXPECTED as error:
        first = os.environ.get("RANK", "0") == "0" or isinstance(error, distributed.ProcessLostError)
        sys.exit(f"am_reinforce: {error}" if first else 1)  # the other processes have met with the same
    except KeyboardInterrupt:  # before the first step, or a second Ctrl-C
        sys.exit("am_reinforce: stopped at once; what was saved before is sound")
