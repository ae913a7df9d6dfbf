r"""Train a Pointer Network (Vinyals et al. 2015) on solved examples: TSP, convex hull or Delaunay.

    python agents/pointer_network.py                                     # TSP with 5 to 20 cities
    python agents/pointer_network.py --task convex-hull --sizes 5 50
    python agents/pointer_network.py --task tsp --sizes 50 50 --labels a3
    python agents/pointer_network.py --task delaunay --sizes 50 50 --init-from runs/NAME
    python agents/pointer_network.py --encoder lstm --units 256 --optimizer sgd --initial paper \
        --order given --no-mask-chosen                                   # like in the paper
    python agents/pointer_network.py --resume runs/NAME                  # continue a run

The examples are solved once and kept on disk. Each step applies one of the square's eight symmetries to every example,
and reorders its points. Every random number is a function of the seed and the step, so a resumed run repeats an
uninterrupted one bit for bit, wherever it was stopped. Ctrl-C stops after the current step and saves the run.
"""

from __future__ import annotations

import os

# Waiting threads must sleep: if they spin, training becomes much slower as soon as another program is busy.
# The OpenMP library reads the variable when torch is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import dataclasses
import math
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
import tyro
from torch import Tensor

from routing_agents import runs
from routing_agents.optimizers import make_optimizers
from routing_agents.policies.attention.saved import warm_start
from routing_agents.policies.pointer import pictures
from routing_agents.policies.pointer.decoding import evaluate, predict
from routing_agents.policies.pointer.labels import labelled
from routing_agents.policies.pointer.model import PointerConfig, PointerNetwork, log_likelihood
from routing_agents.policies.pointer.saved import describe, load_network
from routing_agents.policies.pointer.sequences import PADDING, Order, arrange
from routing_agents.policies.pointer.tasks import TASKS
from routing_agents.runs import MOST_COUNT, TrainingDivergedError, check_integers, check_numbers, stream
from routing_agents.terminal import command_line
from routing_agents.training import loop
from routing_agents.training.report import Column
from routing_agents.training.trainer import RunArgs, Trainer
from routing_agents.training.tuning import choose_precision
from routing_gym.render.figure import pixels
from routing_gym.solvers.runtime.executors import ExecutorName, executor_of, usable_cores

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
BEST_IS = {"tsp": ("gap", -1), "convex-hull": ("accuracy", 1), "delaunay": ("coverage", 1)}  # 1: larger is better
LEARNING_RATES = {"adam": 2e-3, "muon": 3e-3, "sgd": 1.0}
LEAST_RATE = 0.02  # fraction of the learning rate at the end of a run
MOST_POINTS = 10_000
SHOWN = 3  # instances in a picture


@dataclass(frozen=True)
class Args(RunArgs):
    """Arguments of a run; the defaults train TSP with 5 to 20 cities in 13 minutes on one core."""

    local = ("examples", "workers", "executor", "address", "runs", "init_from", "resume")
    beside_resume = ("device", "examples", "executor", "address")
    advanced = ("decay", "max_grad_norm", "held_out", "model", "threads", "workers", "executor", "address", "examples")
    advanced += ("log", "runs")

    task: Literal["tsp", "convex-hull", "delaunay"] = "tsp"
    """Task to learn: the tour, the convex hull or the Delaunay triangulation of points."""
    sizes: tuple[int, int] = (5, 20)
    """Smallest and largest number of points, drawn for each batch; the held-out instances have the largest."""
    labels: Literal["optimal", "a1", "a2", "a3"] = "optimal"
    """Solver of the examples: optimal, or for TSP nearest neighbour (a1), nearest insertion (a2), Christofides (a3)."""
    solved: int = 20_000
    """Number of solved examples per size; each serves under eight symmetries and, with --order given, in any order."""
    order: Order = "sorted"
    """Order in which the network reads the points: sorted by x, so that the answer depends on their positions only, or
    as given."""
    seed: int = 1
    """Random seed for the weights, the examples and their order."""
    epochs: int = 24
    """Number of epochs; each ends with an evaluation and a checkpoint."""
    steps_per_epoch: int = 200
    """Number of training steps per epoch, one batch each."""
    batch_size: int = 128
    """Number of examples per batch."""
    optimizer: Literal["adam", "muon", "sgd"] = "adam"
    """Optimiser: Adam learns fastest here; the paper uses SGD."""
    learning_rate: float | None = None
    """Initial learning rate. Default: 2e-3 with Adam, 3e-3 with Muon and 1.0 with SGD."""
    decay: float = 0.8
    """Last fraction of the run, over which the learning rate falls along a cosine to 2 %."""
    max_grad_norm: float = 2.0
    """Largest norm of the gradients; larger ones are scaled down."""
    held_out: int = 1_000
    """Number of held-out instances for the task's metrics after each epoch."""
    model: tyro.conf.OmitArgPrefixes[PointerConfig] = PointerConfig()
    """Kind and size of the network."""
    device: str = "auto"
    """Device for training: cpu, cuda, or auto for cuda where there is one."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of matrix products and attention in training; auto takes bfloat16 if the processor has instructions for
    it."""
    threads: int = 0
    """Number of CPU threads; 0 uses all cores."""
    workers: int = usable_cores()
    """Number of processes that solve examples."""
    executor: ExecutorName | None = None
    """Where examples are solved. Default: in worker processes."""
    address: str | None = None
    """Address of a Ray cluster: auto, HOST:6379 or ray://HOST:10001. Default: Ray starts on this machine."""
    examples: Path = Path("runs/.examples")
    """Folder in which solved examples are kept."""
    log: Literal["tensorboard", "wandb"] = "tensorboard"
    """Log of the metrics: TensorBoard, or TensorBoard and Weights & Biases (wandb)."""
    runs: Path = Path("runs")
    """Folder in which run folders are made."""
    name: str = ""
    """Name of the run's folder. Default: task, sizes, seed and time."""
    init_from: Annotated[Path | None, tyro.conf.arg(metavar="RUN")] = None
    """Run or checkpoint whose weights the training starts from, of any task and size, where they fit."""
    resume: Annotated[Path | None, tyro.conf.arg(metavar="RUN")] = None
    """Folder of a run to resume, with the arguments it was started with."""

    def __post_init__(self) -> None:
        check_integers(self, "seed", least=0)
        check_integers(self, "epochs", "steps_per_epoch")
        check_integers(self, "solved", "batch_size", "held_out", most=MOST_COUNT)
        check_numbers(self, "learning_rate", "max_grad_norm", "decay")
        if self.decay > 1:
            raise ValueError(f"--decay must be in (0, 1], got {self.decay}")
        check_integers(self, "threads", least=0, most=runs.MOST_THREADS)
        check_integers(self, "workers", most=runs.MOST_THREADS)
        low, high = self.sizes
        if not low <= high <= MOST_POINTS:
            raise ValueError(
                f"--sizes takes the smallest and the largest number of points, at most {MOST_POINTS}, got {low} {high}"
            )
        if low < TASKS[self.task].fewest:
            raise ValueError(f"--sizes: {self.task} needs at least {TASKS[self.task].fewest} points, got {low}")
        if self.labels not in TASKS[self.task].labels:
            raise ValueError(f"--labels {self.labels} are TSP's; {self.task} has {', '.join(TASKS[self.task].labels)}")
        if self.model.answer != "pointer" and low < high:
            raise ValueError(
                f"--answer {self.model.answer} needs one size, such as --sizes {high} {high}, got {low} {high}"
            )


class PointerTrainer(Trainer):
    """State of one run: examples, network, optimisers and progress.

    Args:
        args: The run's arguments.
    """

    script = "pointer_network.py"

    def __init__(self, args: Args) -> None:
        super().__init__(args)
        # Chosen once and saved, so that a resumed run uses the same precision.
        args = dataclasses.replace(args, precision=choose_precision(args.precision, self.device))
        if args.learning_rate is None:
            args = dataclasses.replace(args, learning_rate=LEARNING_RATES[args.optimizer])
        self.args, self.task, self.best_is = args, TASKS[args.task], BEST_IS[args.task]
        low, high = args.sizes
        generator = torch.Generator().manual_seed(args.seed)
        fixed_size = high if low == high else None
        self.model = PointerNetwork(args.model, self.task.holds, fixed_size, generator)
        if args.init_from is not None:
            self.started_from, self.history = warm_start(self.model, args.init_from)
        self.model.to(self.device).multiply_in(args.precision)
        if args.optimizer == "sgd":
            self.optimizers = {"optimizer": torch.optim.SGD(self.model.parameters(), args.learning_rate)}
        else:
            self.optimizers = make_optimizers(self.model, args.optimizer, args.learning_rate)
        solve = partial(labelled, folder=args.examples, workers=args.workers, progress=True, executor=executor_of(args))
        counts = dict.fromkeys(range(low, high + 1), args.solved)
        self.examples = solve(self.task, args.labels, counts, args.seed)
        self.held_out = solve(self.task, "optimal", {high: args.held_out}, runs.HELD_OUT_SEED)[high]

    @property
    def title(self) -> str:
        low, high = self.args.sizes
        size = f"{low}" if low == high else f"{low}-{high}"
        return f"{self.args.task}-{size}-{self.args.model.encoder}"

    @property
    def columns(self) -> tuple[Column, ...]:
        return (*COLUMNS, *METRICS[self.args.task], SPEED)

    @property
    def learning_rate(self) -> float:
        """Learning rate of this step: constant, then along half a cosine to 2 % over the last part of the run."""
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

    def learn(self) -> dict[str, Any]:
        """Make one step: maximise the likelihood of the answers (equation 2)."""
        log_p, counted = log_likelihood(self.model, *self.draw())
        loss = -log_p.sum() / counted.sum()
        norm = self.descend(loss, self.learning_rate)
        return {"loss": loss.detach().double(), "gradient_norm": norm.double(), "learning_rate": self.learning_rate}

    def end_epoch(self) -> dict[str, float]:
        self.model.eval()
        metrics = evaluate(self.model, self.task, *self.held_out, order=self.args.order)
        self.model.train()
        return {
            "epoch": self.epoch,
            "instances": self.instances,
            **self.end_sums(),
            **metrics,
        }

    def describe(self) -> dict[str, Any]:
        return {**describe(self.model, self.task, self.args.order), **super().describe()}

    def draw_held_out(self, model: PointerNetwork) -> Any:
        """Draw some held-out instances with the answers of a network."""
        points, right = (array[:SHOWN] for array in self.held_out)
        model.eval()
        predicted = predict(model, self.task, points, order=self.args.order, each_once=self.task.holds == "every")
        model.train()
        return pictures.draw(self.task, points, right, predicted)

    def picture(self) -> np.ndarray:
        return pixels(self.draw_held_out(self.model))

    def results(self, folder: Path) -> list[str]:
        model, _, header = load_network(folder / runs.BEST, self.device)
        self.draw_held_out(model).savefig(folder / "solution.png", dpi=120)
        shown = [f"{c.key} {header['metrics'][c.key]:{c.format}}" for c in METRICS[self.task.name]]
        lines = [
            f"Best on held-out instances: {', '.join(shown)} (epoch {header['metrics']['epoch']:.0f}).",
            f"Learning curve: {folder}/curve.png    solved instances: {folder}/solution.png",
        ]
        if self.task.name == "tsp":
            lines.append(f"Solve a file:   {runs.command('solve.py', '--checkpoint', folder)} FILE...")
        return lines


def main(args: Args) -> Path:
    """Train according to `args`; return the folder of the run."""
    return loop.train(PointerTrainer, args)


if __name__ == "__main__":
    command_line(main, Args, __doc__, (TrainingDivergedError,))
