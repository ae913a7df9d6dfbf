r"""Train a Pointer Network (Vinyals, Fortunato and Jaitly 2015) on solved examples: TSP, convex hull or Delaunay.

    python agents/pointer_network.py                                     # TSP with 5 to 20 cities
    python agents/pointer_network.py --task convex-hull --sizes 5 50
    python agents/pointer_network.py --task tsp --sizes 50 50 --labels a3
    python agents/pointer_network.py --encoder lstm --units 256 --optimizer sgd --initial paper --order given \
        --no-mask-chosen                                                 # as in the paper
    python agents/pointer_network.py --resume runs/NAME                  # go on exactly where it stopped

The examples are solved once and kept on disk. Each step sees them under another of the square's eight symmetries, and
in another order of the points. Every random number is a function of the seed and the step, so a resumed run repeats an
uninterrupted one bit for bit, wherever it was stopped. Ctrl-C stops after the current step and saves.
"""

from __future__ import annotations

import os

# Threads that wait for each other asleep: awake, they collapse as soon as another program is busy. Read
# by the OpenMP library when torch is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import dataclasses
import math
import sys
import time
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import tyro
from torch import Tensor

from routing_agents import checkpoint, runs
from routing_agents.optimizers import make_optimizers
from routing_agents.pointer import pictures
from routing_agents.pointer.decoding import evaluate, predict
from routing_agents.pointer.labels import labelled
from routing_agents.pointer.model import PointerConfig, PointerNetwork, log_likelihood
from routing_agents.pointer.saved import describe, load_network
from routing_agents.pointer.sequences import PADDING, Order, arrange
from routing_agents.pointer.tasks import TASKS
from routing_agents.report import Column, make_report
from routing_agents.runs import TrainingDivergedError, check_at_least, check_positive, stream
from routing_agents.tuning import fast_precision, keep_freed_memory

COLUMNS = (
    Column("epoch", ".0f"),
    Column("loss", ".4f", curve="nats per choice, training"),
)
METRICS = {
    "tsp": (Column("valid", ".1%"), Column("length", ".4f"), Column("gap", ".2%", curve="gap to the labels")),
    "convex-hull": (
        Column("accuracy", ".1%", curve="accuracy, held out"),
        Column("valid", ".1%"),
        Column("area", ".2%", curve="area, held out"),
    ),
    "delaunay": (
        Column("accuracy", ".1%", curve="accuracy, held out"),
        Column("coverage", ".1%", curve="triangle coverage, held out"),
    ),
}
SPEED = Column("instances_per_second", ".0f", title="inst/s")
BEST_IS = {"tsp": ("gap", -1), "convex-hull": ("accuracy", 1), "delaunay": ("coverage", 1)}  # the larger, the better
LEARNING_RATES = {"adam": 2e-3, "muon": 3e-3, "sgd": 1.0}
LEAST_RATE = 0.02  # of the learning rate, with which a run ends
HELD_OUT_SEED = runs.HELD_OUT_SEED  # of every run, so that they compare
SHOWN = 3  # instances in a picture


@dataclass(frozen=True)
class Args:
    """Arguments of a run; the defaults train TSP with 5 to 20 cities in 13 minutes on one core."""

    task: Literal["tsp", "convex-hull", "delaunay"] = "tsp"
    """What to learn."""
    sizes: tuple[int, int] = (5, 20)
    """Smallest and largest number of points, drawn anew for each batch; the held-out instances have the largest."""
    labels: Literal["optimal", "a1", "a2", "a3"] = "optimal"
    """Who solved the examples; for TSP also nearest neighbour (a1), nearest insertion (a2), Christofides (a3)."""
    solved: int = 20_000
    """Examples of each size that are solved; each serves under eight symmetries and, with --order given, any order."""
    order: Order = "sorted"
    """In which the network sees the points: by x, so that the answer is a function of where they lie; or as given."""
    seed: int = 1
    """Of the weights, the examples and their order."""
    epochs: int = 24
    """Evaluations and checkpoints are made after each."""
    steps_per_epoch: int = 200
    """Batches per epoch."""
    batch_size: int = 128
    """Examples per batch."""
    optimizer: Literal["adam", "muon", "sgd"] = "adam"
    """Adam learns fastest here; the paper's is SGD."""
    learning_rate: float | None = None
    """Until the decay sets in; by default 2e-3 with Adam, 3e-3 with Muon and 1.0 with SGD."""
    decay: float = 0.8
    """Last part of the run over which the learning rate falls, along a cosine, to 2 %."""
    max_grad_norm: float = 2.0
    """Gradients are scaled down to this norm."""
    held_out: int = 1_000
    """Instances on which the task's metrics are measured after each epoch."""
    model: tyro.conf.OmitArgPrefixes[PointerConfig] = PointerConfig()
    """Kind and size of the network."""
    device: str = "auto"
    """cpu, cuda, or auto: cuda where there is one."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of matrix products and attention in training; auto takes bfloat16 where the processor has instructions for it."""
    threads: int = 0
    """CPU threads; 0 takes all cores."""
    workers: int = os.cpu_count() or 1
    """Processes that solve examples."""
    examples: Path = Path("runs/.examples")
    """Where solved examples are kept."""
    runs: Path = Path("runs")
    """Where run folders are made."""
    name: str = ""
    """Of the run's folder; by default the task, the sizes, the seed and the time."""
    resume: Annotated[Path | None, tyro.conf.arg(metavar="RUN")] = None
    """Go on with a run's folder, with the arguments it was started with."""

    def __post_init__(self) -> None:
        check_at_least(0, self, "seed", "threads")
        check_at_least(1, self, "solved", "epochs", "steps_per_epoch", "batch_size", "held_out", "workers")
        check_positive(self, "learning_rate", "max_grad_norm", "decay")
        if self.decay > 1:
            raise ValueError(f"--decay must be in (0, 1], got {self.decay}")
        runs.check_at_most(runs.MOST_THREADS, self, "threads", "workers")
        low, high = self.sizes
        if low > high:
            raise ValueError(f"--sizes takes the smallest and the largest number of points, got {low} {high}")
        if low < TASKS[self.task].fewest:
            raise ValueError(f"--sizes: {self.task} needs at least {TASKS[self.task].fewest} points, got {low}")
        if self.labels not in TASKS[self.task].labels:
            raise ValueError(f"--labels {self.labels} are TSP's; {self.task} has {', '.join(TASKS[self.task].labels)}")
        if self.model.answer != "pointer" and low < high:
            raise ValueError(
                f"--answer {self.model.answer} needs one size, such as --sizes {high} {high}, got {low} {high}"
            )

    @property
    def total_steps(self) -> int:
        return self.epochs * self.steps_per_epoch

    def to_json(self) -> dict[str, Any]:
        """Turn the arguments into what JSON can hold, without the paths of this machine."""
        values = dataclasses.asdict(self)
        return {key: value for key, value in values.items() if key not in ("examples", "workers", "runs", "resume")}

    @classmethod
    def from_json(cls, values: dict[str, Any], examples: Path = Path("runs/.examples")) -> Args:
        """Turn what `to_json` returned back into arguments.

        Raises:
            KeyError, TypeError, ValueError: These are not the arguments of a run.
        """
        typed = {"sizes": tuple(values["sizes"]), "model": PointerConfig(**values["model"]), "examples": examples}
        return cls(**{**values, **typed})


class Trainer:
    """One run: examples, network, optimiser, and how far it has come.

    Args:
        args: The run's arguments.

    Attributes:
        seconds: Spent in training steps.
    """

    def __init__(self, args: Args) -> None:
        if args.threads:
            torch.set_num_threads(args.threads)
        self.device = runs.choose_device(args.device)
        if args.precision == "auto":  # decided once, so that a resumed run goes on with the same
            dtype = str(fast_precision(self.device)).removeprefix("torch.")
            args = dataclasses.replace(args, precision=dtype)
        if args.learning_rate is None:
            args = dataclasses.replace(args, learning_rate=LEARNING_RATES[args.optimizer])
        self.args, self.task = args, TASKS[args.task]
        low, high = args.sizes
        generator = torch.Generator().manual_seed(args.seed)
        fixed_size = high if low == high else None
        self.model = PointerNetwork(args.model, self.task.holds, fixed_size, generator).to(self.device)
        self.model.multiply_in(getattr(torch, args.precision))
        if args.optimizer == "sgd":
            self.optimizers = {"optimizer": torch.optim.SGD(self.model.parameters(), args.learning_rate)}
        else:
            self.optimizers = make_optimizers(self.model, args.optimizer, args.learning_rate)
        where = (args.examples, args.workers, True)
        solved = dict.fromkeys(range(low, high + 1), args.solved)
        self.examples = labelled(self.task, args.labels, solved, args.seed, *where)
        self.held_out = labelled(self.task, "optimal", {high: args.held_out}, HELD_OUT_SEED, *where)[high]
        self.step, self.seconds, self.best = 0, 0.0, -math.inf
        self.sums = torch.zeros(
            2, dtype=torch.float64, device=self.device
        )  # loss and gradient norm of the epoch so far

    @property
    def epoch(self) -> int:
        """Epochs completed."""
        return self.step // self.args.steps_per_epoch

    @property
    def learning_rate(self) -> float:
        """Constant, then along half a cosine to 2 % over the last part of the run."""
        decayed = max(0.0, 1 - (1 - self.step / self.args.total_steps) / self.args.decay)
        share = LEAST_RATE + (1 - LEAST_RATE) * (1 + math.cos(math.pi * decayed)) / 2
        return self.args.learning_rate * share

    def draw(self) -> tuple[Tensor, Tensor]:
        """Return the points (B, n, 2) and answers (B, T) of this step."""
        rng = stream(self.args.seed, runs.TRAINING_STREAM, self.step)
        size = int(rng.integers(self.args.sizes[0], self.args.sizes[1] + 1))
        points, answers = self.examples[size]
        rows = rng.integers(len(points), size=self.args.batch_size)
        points, answers = arrange(points[rows], answers[rows], self.args.order, rng)
        answers = self.task.canonical(points, answers)
        longest = int((answers != PADDING).sum(axis=1).max())
        return torch.as_tensor(points, device=self.device), torch.as_tensor(answers[:, :longest], device=self.device)

    def update(self) -> None:
        """Make one step of the optimiser: maximise the likelihood of the answers (equation 2).

        Raises:
            TrainingDivergedError: The gradient is not finite; the weights are still those of before.
        """
        started = time.perf_counter()
        log_p, counted = log_likelihood(self.model, *self.draw())
        loss = -log_p.sum() / counted.sum()
        self.model.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.args.max_grad_norm)
        if not (norm + loss).isfinite():
            raise TrainingDivergedError(f"loss or gradient of step {self.step} is not finite")
        for optimizer in self.optimizers.values():
            for group in optimizer.param_groups:
                group["lr"] = self.learning_rate
            optimizer.step()
        self.sums += torch.stack([loss.detach(), norm]).double()
        self.step += 1
        self.seconds += time.perf_counter() - started

    def end_epoch(self) -> dict[str, float]:
        """Measure the network on the held-out instances, and return what there is to log."""
        loss, norm = (self.sums / self.args.steps_per_epoch).tolist()
        self.sums.zero_()
        self.model.eval()
        metrics = evaluate(self.model, self.task, *self.held_out, order=self.args.order)
        self.model.train()
        return {
            "epoch": self.epoch,
            "instances": self.step * self.args.batch_size,
            "loss": loss,
            "gradient_norm": norm,
            "learning_rate": self.learning_rate,
            **metrics,
        }

    def save(self, path: Path) -> None:
        """Write everything that an exact resume needs."""
        tensors = {**checkpoint.training_state(self.model, self.optimizers), "sums": self.sums}
        checkpoint.save(path, tensors, {**self.describe(), "step": self.step, "best": self.best})

    def save_best(self, path: Path, metrics: dict[str, float]) -> None:
        """Write the weights alone, for use, if they are the best so far."""
        name, sign = BEST_IS[self.task.name]
        if sign * metrics[name] <= self.best:
            return
        self.best = sign * metrics[name]
        weights = checkpoint.prefixed("model", self.model.state_dict())
        checkpoint.save(path, weights, {**self.describe(), "metrics": metrics})

    def describe(self) -> dict[str, Any]:
        """Return what every checkpoint says of the run."""
        origin = {"args": self.args.to_json(), "seconds": round(self.seconds, 3)}
        return {**describe(self.model, self.task, self.args.order), **origin}

    def load(self, tensors: dict[str, Tensor], header: dict[str, Any], path: Path) -> None:
        """Restore what `save` wrote.

        Raises:
            CheckpointError: It lacks something, or does not fit the network.
        """
        try:
            checkpoint.restore_training(self.model, self.optimizers, tensors, header["step"], path)
            self.sums = tensors["sums"].to(self.device)
            self.step, self.best, self.seconds = header["step"], header["best"], header["seconds"]
        except KeyError as error:
            raise checkpoint.CheckpointError(f"{path}: lacks {error}, without which no run can go on") from error


def train(trainer: Trainer, folder: Path) -> None:
    """Train to the end, or until somebody asks to stop, reporting and saving after each epoch."""
    args = trainer.args
    columns = (*COLUMNS, *METRICS[args.task], SPEED)
    logged = (folder, args.to_json(), columns, trainer.step, args.total_steps)
    with make_report(*logged) as report, runs.StopRequest() as stop:
        while trainer.step < args.total_steps and not stop.requested:
            trainer.update()
            report.advance()
            if trainer.step % args.steps_per_epoch == 0:
                metrics = trainer.end_epoch()
                trainer.save_best(folder / runs.BEST, metrics)
                report.epoch(metrics, pictures.to_array(show(trainer, trainer.model)))
                trainer.save(folder / runs.LAST)
        if trainer.step < args.total_steps:
            trainer.save(folder / runs.LAST)
            report.interrupted("pointer_network.py")
        else:
            report.finished(*results(trainer, folder))


def show(trainer: Trainer, model: PointerNetwork) -> Any:
    """Draw some held-out instances and what a network makes of them."""
    points, right = (array[:SHOWN] for array in trainer.held_out)
    model.eval()
    predicted = predict(model, trainer.task, points, order=trainer.args.order, each_once=trainer.task.holds == "every")
    model.train()
    return pictures.draw(trainer.task, points, right, predicted)


def results(trainer: Trainer, folder: Path) -> list[str]:
    """Draw instances solved by the best weights; say how good these are, and how to use them."""
    model, _, header = load_network(folder / runs.BEST, trainer.device)
    pictures.save(folder / "solution.png", show(trainer, model))
    shown = [f"{c.key} {header['metrics'][c.key]:{c.format}}" for c in METRICS[trainer.task.name]]
    lines = [
        f"Best on held-out instances: {', '.join(shown)} (epoch {header['metrics']['epoch']:.0f}).",
        f"Learning curve: {folder}/curve.png    solved instances: {folder}/solution.png",
    ]
    if trainer.task.name == "tsp":
        lines.append(f"Solve a file:   {runs.command('solve.py')} --checkpoint {folder} FILE...")
    return lines


def begin(args: Args) -> tuple[Trainer, Path]:
    """Start a run: its trainer, and its folder with a first checkpoint."""
    trainer = Trainer(args)
    low, high = args.sizes
    size = f"{low}" if low == high else f"{low}-{high}"
    name = args.name or f"{args.task}-{size}-{args.model.encoder}-seed{args.seed}-{datetime.now():%Y%m%d-%H%M%S}"
    folder = runs.make_folder(args.runs, name)
    trainer.save(folder / runs.LAST)  # so that it can be resumed from the first moment
    return trainer, folder


def resume(args: Args, folder: Path) -> Trainer:
    """Take up the run in a folder.

    Raises:
        ValueError: Other arguments beside `--resume`, or a checkpoint that does not fit.
    """
    path, tensors, header = checkpoint.load_run(folder, dataclasses.replace(args, examples=Args.examples))
    trainer = Trainer(checkpoint.read_arguments(header, path, partial(Args.from_json, examples=args.examples)))
    trainer.load(tensors, header, path)
    return trainer


def main(args: Args) -> Path:
    """Train as `args` say; return the folder of the run."""
    keep_freed_memory()
    trainer, folder = begin(args) if args.resume is None else (resume(args, args.resume), args.resume)
    try:
        with runs.only_process(folder):
            train(trainer, folder)
    except TrainingDivergedError as error:
        raise TrainingDivergedError(
            f"{error}; the checkpoint of epoch {trainer.epoch} is sound. Start again with a lower --learning-rate, or "
            "with --precision float32"
        ) from None
    return folder


if __name__ == "__main__":
    try:
        main(tyro.cli(Args, description=__doc__))
    except (ValueError, OSError, ImportError, MemoryError, TrainingDivergedError) as error:
        sys.exit(f"pointer_network: {error}")
    except KeyboardInterrupt:  # before the first step, or a second Ctrl-C
        sys.exit("pointer_network: stopped at once; what was saved before is sound")
