"""Train the attention model of Kool et al. (2019) with REINFORCE on any of the routing problems.

    python agents/am_reinforce.py                                  # TSP-20, about eight minutes on two cores
    python agents/am_reinforce.py --env-id routing/CVRP-50
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
import json
import sys
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import gymnasium as gym
import numpy as np
import torch
import tyro
from torch import Tensor

import checkpoint
import routing_gym  # noqa: F401  (registers the ids)
from attention_model import AttentionModel, ModelConfig
from baselines import Baseline, ExponentialBaseline, NoBaseline, RolloutBaseline, SharedBaseline
from decoding import decode, log_probability, sampling_choice, solve
from embeddings import FEATURES
from reference import reference_cost
from report import Report
from routing_gym.arrays import to_backend
from routing_gym.problem import Problem
from stop_request import StopRequest
from tuning import fast_precision, keep_freed_memory

TRAINING_STREAM, HELD_OUT_STREAM = 0, 1  # 2 is baselines.EVALUATION_STREAM
HELD_OUT_SEED = 20190307  # of every run, so that gaps compare and the optimum is solved for once


@dataclass(frozen=True)
class Args:
    """Arguments of a run; the defaults train TSP-20 on two CPU cores in about eight minutes."""

    env_id: str = "routing/TSP-20"
    """Any routing id: routing/{TSP,CVRP,SDVRP,OP,PCTSP,SPCTSP}-{10,20,50,100,200,500,1000}."""
    env_kwargs: dict[str, str] = dataclasses.field(default_factory=dict)
    """Settings of the problem, such as `--env-kwargs prize uniform`."""
    seed: int = 1
    """Of the weights, the training instances and the sampled tours."""
    epochs: int = 20
    """Evaluations, checkpoints and baseline tests are made after each."""
    steps_per_epoch: int = 100
    """Batches per epoch."""
    batch_size: int = 256
    """Instances per batch."""
    learning_rate: float = 5e-4
    """Of Adam, until the decay sets in."""
    decay: float = 1 / 3
    """Last part of the run over which the learning rate falls linearly to zero."""
    max_grad_norm: float = 1.0
    """Gradients are scaled down to this norm."""
    baseline: Literal["rollout", "exponential", "shared", "none"] = "shared"
    """What a tour is compared with: the greedy tour of a frozen policy (Kool et al. 2019), a moving
    average, the other sampled tours of the same instance, or nothing."""
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
    threads: int = 0
    """CPU threads; 0 takes all cores."""
    runs: Path = Path("runs")
    """Where run folders are made."""
    name: str = ""
    """Of the run's folder; by default the problem, the baseline, the seed and the time."""
    resume: Annotated[Path | None, tyro.conf.arg(metavar="RUN")] = None
    """Go on with a run's folder, with the arguments it was started with."""

    def __post_init__(self) -> None:
        for field in ("epochs", "steps_per_epoch", "batch_size", "baseline_size", "held_out"):
            if getattr(self, field) < 1:
                raise ValueError(f"--{field.replace('_', '-')} must be at least 1, got {getattr(self, field)}")
        if not 0 < self.decay <= 1:
            raise ValueError(f"--decay must be in (0, 1], got {self.decay}")
        if self.learning_rate <= 0:
            raise ValueError(f"--learning-rate must be positive, got {self.learning_rate}")

    @property
    def total_steps(self) -> int:
        return self.epochs * self.steps_per_epoch


def stream(seed: int, purpose: int, index: int) -> np.random.Generator:
    """Return the random numbers of one step of one purpose; nothing else needs saving for a resume."""
    return np.random.default_rng((seed, purpose, index))


def make_problem(args: Args) -> Problem[Any, Any]:
    """Return the rules behind an environment id."""
    kwargs = {key: literal(value) for key, value in args.env_kwargs.items()}
    try:
        return gym.make(args.env_id, disable_env_checker=True, **kwargs).unwrapped.problem
    except TypeError as error:  # a setting that the problem does not have
        raise ValueError(f"--env-kwargs: {error}") from error


def choose_device(name: str) -> str:
    """Check the device that was asked for, or choose one.

    Raises:
        ValueError: There is no such device here.
    """
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name.partition(":")[0] not in ("cpu", "cuda"):
        raise ValueError(f"--device must be cpu, cuda or auto, got {name!r}")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ValueError(f"--device {name}: torch finds no CUDA device here; use cpu or auto")
    return name


def literal(text: str) -> Any:
    """Read a number as a number, anything else as text."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def make_baseline(args: Args, problem: Problem[Any, Any], model: AttentionModel) -> Baseline:
    """Build the baseline that `args` names."""
    if args.baseline == "rollout":
        return RolloutBaseline(problem, model, args.seed, args.baseline_size)
    if args.baseline == "shared":
        return SharedBaseline(problem, args.num_starts, args.force_starts)
    return ExponentialBaseline() if args.baseline == "exponential" else NoBaseline()


class TrainingDivergedError(RuntimeError):
    """The weights have left the range in which the network computes anything."""


class Trainer:
    """One run: model, optimiser, baseline, and how far it has come.

    Args:
        args: The run's arguments.
    """

    def __init__(self, args: Args) -> None:
        self.args = args
        if args.threads:
            torch.set_num_threads(args.threads)
        self.device = choose_device(args.device)
        if args.precision == "auto":  # decided once, so that a resumed run goes on with the same
            dtype = str(fast_precision(self.device)).removeprefix("torch.")
            self.args = args = dataclasses.replace(args, precision=dtype)
        self.problem = make_problem(args)
        initial = torch.Generator().manual_seed(args.seed)
        self.model = AttentionModel(FEATURES[self.problem.name], args.model, initial).to(self.device)
        self.model.multiply_in(getattr(torch, args.precision))
        self.optimizer = torch.optim.Adam(self.model.parameters(), args.learning_rate)
        self.baseline = make_baseline(args, self.problem, self.model)
        held_out = self.problem.generate(stream(HELD_OUT_SEED, HELD_OUT_STREAM, 0), args.held_out)
        self.held_out = to_backend(held_out, "torch", self.device)
        self.step = 0
        self.best_cost = float("inf")
        self.sums = torch.zeros(3, dtype=torch.float64, device=self.device)  # over the epoch so far, see `update`

    @property
    def epoch(self) -> int:
        """Epochs completed."""
        return self.step // self.args.steps_per_epoch

    def update(self) -> None:
        """Make one REINFORCE step (Kool et al. 2019, eq. 9).

        The batch is encoded once, with gradients; the tours are played on the detached encoding and
        then scored from the same encoding in one parallel pass.
        """
        args, problem, model, baseline = self.args, self.problem, self.model, self.baseline
        rng = stream(args.seed, TRAINING_STREAM, self.step)
        instance = to_backend(problem.generate(rng, args.batch_size), "torch", self.device)
        choose = sampling_choice(torch.Generator(self.device).manual_seed(int(rng.integers(2**63))))

        encoding = model.encode(problem.observe_static(instance))
        played = decode(
            model,
            problem,
            instance,
            encoding.detach(),
            choose,
            baseline.num_tours,
            baseline.force_starts,
            record=True,
        )
        cost = played.cost.unflatten(0, (-1, baseline.num_tours))  # (B, K)
        reference = baseline.value(instance, cost)
        log_p = log_probability(model, encoding, played, skip=int(baseline.force_starts))
        loss = ((cost - reference) * log_p).mean()

        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate
        self.optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), args.max_grad_norm)
        if not norm.isfinite():
            raise TrainingDivergedError(
                f"the gradient of step {self.step} is not finite; the checkpoints of epoch {self.epoch} are sound: "
                "start again with a lower --learning-rate, or with --precision float32"
            )
        self.optimizer.step()
        self.sums += torch.stack([cost.mean(), reference.mean(), norm]).double()
        self.step += 1

    @property
    def learning_rate(self) -> float:
        """Constant, then linear to zero over the last part of the run."""
        left = 1 - self.step / self.args.total_steps
        return self.args.learning_rate * min(1.0, left / self.args.decay)

    def end_epoch(self) -> dict[str, float]:
        """Evaluate, update the baseline, and return what there is to log."""
        cost, reference, norm = (self.sums / self.args.steps_per_epoch).tolist()
        self.sums.zero_()
        greedy = float(solve(self.model, self.problem, self.held_out).cost.double().mean())
        return {
            "epoch": self.epoch,
            "instances": self.step * self.args.batch_size,
            "cost": cost,
            "baseline": reference,
            "gradient_norm": norm,
            "learning_rate": self.learning_rate,
            "greedy": greedy,
            **self.baseline.end_epoch(self.model),
        }

    def save(self, path: Path) -> None:
        """Write everything that an exact resume needs."""
        tensors: dict[str, Tensor] = {
            **checkpoint.prefixed("model", self.model.state_dict()),
            **checkpoint.prefixed("optimizer", checkpoint.optimizer_tensors(self.optimizer)),
            **checkpoint.prefixed("baseline", self.baseline.tensors()),
            "sums": self.sums,
        }
        progress = {"step": self.step, "best_cost": self.best_cost, "args": to_json(self.args)}
        checkpoint.save(path, tensors, {**checkpoint.describe(self.problem, self.model), **progress})

    def save_best(self, path: Path, metrics: dict[str, float]) -> None:
        """Write the weights alone, for use."""
        header = {"metrics": metrics, "args": to_json(self.args)}
        weights = checkpoint.prefixed("model", self.model.state_dict())
        checkpoint.save(path, weights, {**checkpoint.describe(self.problem, self.model), **header})

    def load(self, tensors: dict[str, Tensor], header: dict[str, Any], path: Path) -> None:
        """Restore what `save` wrote."""
        checkpoint.load_weights(self.model, checkpoint.group(tensors, "model"), path)
        checkpoint.load_optimizer(self.optimizer, checkpoint.group(tensors, "optimizer"))
        self.baseline.load(checkpoint.group(tensors, "baseline"))
        self.sums = tensors["sums"].to(self.device)
        self.step, self.best_cost = header["step"], header["best_cost"]


def set_up(args: Args) -> tuple[Trainer, Path]:
    """Start a run, or take up the one that `--resume` names; return its trainer and its folder.

    Raises:
        ValueError: `--resume` together with other arguments, or a checkpoint that does not fit.
        FileExistsError: The folder of a new run exists.
    """
    if args.resume is None:
        trainer = Trainer(args)
        size = f"{trainer.problem.name.lower()}-{trainer.problem.num_nodes}"
        name = args.name or f"{size}-{args.baseline}-seed{args.seed}-{datetime.now():%Y%m%d-%H%M%S}"
        folder = args.runs / name
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            raise FileExistsError(
                f"{folder} exists; continue it with --resume {folder}, or choose another --name"
            ) from None
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
    trainer = Trainer(from_json(header["args"]))
    trainer.load(tensors, header, path)
    return trainer, folder


def run(trainer: Trainer, folder: Path) -> None:
    """Train to the end, or until somebody asks to stop, reporting and saving after each epoch."""
    args = trainer.args
    reference = reference_cost(trainer.problem, trainer.held_out, folder.parent / ".references")
    with Report(folder, to_json(args), reference, trainer.step, args.total_steps, args.batch_size) as report:
        with StopRequest() as stop:
            while trainer.step < args.total_steps and not stop.requested:
                trainer.update()
                report.advance()
                if trainer.step % args.steps_per_epoch == 0:
                    metrics = trainer.end_epoch()
                    if metrics["greedy"] < trainer.best_cost:
                        trainer.best_cost = metrics["greedy"]
                        trainer.save_best(folder / "best.safetensors", metrics)
                    report.epoch(metrics)
                    trainer.save(folder / "last.safetensors")
        if stop.requested:
            trainer.save(folder / "last.safetensors")
            report.interrupted()
        else:
            model, problem, _ = checkpoint.load_model(folder, trainer.device)
            report.finished(problem, model, trainer.held_out)


def to_json(args: Args) -> dict[str, Any]:
    """Turn arguments into what JSON can hold."""
    return {**dataclasses.asdict(args), "runs": str(args.runs), "resume": None}


def from_json(values: dict[str, Any]) -> Args:
    """Turn `to_json`'s result back into arguments."""
    return Args(**{**values, "runs": Path(values["runs"]), "model": ModelConfig(**values["model"])})


def main(args: Args) -> Path:
    """Train as `args` say; return the folder of the run."""
    keep_freed_memory()
    trainer, folder = set_up(args)
    run(trainer, folder)
    return folder


if __name__ == "__main__":
    try:
        main(tyro.cli(Args, description=__doc__))
    except (ValueError, OSError, ImportError, gym.error.Error, TrainingDivergedError) as error:
        sys.exit(f"am_reinforce: {error}")
    except KeyboardInterrupt:  # before the first step, or a second Ctrl-C
        sys.exit("am_reinforce: stopped at once; what was saved before is sound")
