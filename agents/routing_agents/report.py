"""What a training run shows and leaves behind: live progress, logs, curve, picture, and what to do next."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from torch.utils.tensorboard import SummaryWriter

from routing_agents import checkpoint, distributed
from routing_agents.attention.decoding import solve
from routing_agents.attention.model import AttentionModel
from routing_gym import render
from routing_gym.arrays import select, to_backend
from routing_gym.data.files import write_atomically
from routing_gym.problem import Problem

TAGS = {  # of TensorBoard, for what is not train/...
    "greedy": "eval/greedy_cost",
    "gap": "eval/gap",
    "instances_per_second": "time/instances_per_second",
    "epoch": "time/epoch",
    "instances": "time/instances",
}
COLUMNS = ("epoch", "cost", "baseline", "greedy", "gap", "inst/s")


class Report:
    """Progress on the terminal; metrics.jsonl, TensorBoard and pictures in the run's folder.

    Args:
        folder: Of the run; exists.
        args: The run's arguments.
        reference: Mean cost of the reference solver on the held-out instances, or None.
        step: Steps made so far.
        total_steps: Steps of the whole run.
        batch_size: Instances per step.
    """

    def __init__(
        self, folder: Path, args: dict[str, Any], reference: float | None, step: int, total_steps: int, batch_size: int
    ) -> None:
        self.folder, self.reference, self.batch_size = folder, reference, batch_size
        self.precision = args["precision"]
        if not (folder / "args.json").exists():  # a resumed run keeps those that it was started with
            write_atomically(folder / "args.json", (json.dumps(args, indent=2) + "\n").encode())
        self.metrics_path = folder / "metrics.jsonl"
        steps_per_epoch = args["steps_per_epoch"]
        self.rows = [row for row in self.read_metrics() if row["epoch"] * steps_per_epoch <= step]
        write_atomically(self.metrics_path, "".join(json.dumps(row) + "\n" for row in self.rows).encode())
        self.writer = SummaryWriter(str(folder / "tensorboard"), purge_step=step * batch_size + 1)
        self.console = Console()
        bar = (TextColumn("step"), MofNCompleteColumn(), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        self.progress = Progress(*bar, console=self.console)
        self.task = self.progress.add_task("train", total=total_steps, completed=step)
        self.since, self.steps_since = time.perf_counter(), 0

    def read_metrics(self) -> list[dict[str, float]]:
        """Return the rows logged so far; a last line that a kill cut short belongs to an epoch yet to come.

        Raises:
            ValueError: A line is damaged.
        """
        if not self.metrics_path.exists():
            return []
        whole_lines = self.metrics_path.read_text().rpartition("\n")[0]
        rows = []
        for number, line in enumerate(whole_lines.splitlines(), 1):
            try:
                rows.append(json.loads(line))
            except json.JSONDecodeError as error:
                raise ValueError(f"{self.metrics_path}:{number}: not a line of the log; mend or delete it") from error
        return rows

    def __enter__(self) -> Report:
        self.console.print(f"{self.folder}: logs, checkpoints, pictures", soft_wrap=True)
        self.console.print(
            f"processes: {distributed.world_size()}, threads of each: {torch.get_num_threads()}, {self.precision}"
        )
        self.console.print("".join(f"{name:>12}" for name in COLUMNS))
        self.progress.start()
        self.since = time.perf_counter()
        return self

    def __exit__(self, *exception: object) -> None:
        self.progress.stop()
        self.writer.close()

    def advance(self) -> None:
        """Note one step."""
        self.progress.advance(self.task)
        self.steps_since += 1

    def epoch(
        self, metrics: dict[str, float], problem: Problem[Any, Any], model: AttentionModel, instance: Any
    ) -> None:
        """Log and show the numbers of an epoch, and how the model now solves the first instance."""
        now = time.perf_counter()
        speed = self.steps_since * self.batch_size / (now - self.since)
        self.since, self.steps_since = now, 0
        row = {**metrics, **self.gap(metrics["greedy"]), "instances_per_second": speed}
        self.rows.append(row)
        with self.metrics_path.open("a") as file:
            file.write(json.dumps(row) + "\n")
        for key, value in row.items():
            self.writer.add_scalar(TAGS.get(key, f"train/{key}"), value, int(metrics["instances"]))
        picture = render.to_rgb_array(problem, *solve_first(problem, model, instance))
        self.writer.add_image("eval/tour", picture, int(metrics["instances"]), dataformats="HWC")
        gap = f"{row['gap']:.2%}" if "gap" in row else "-"
        cells = (f"{row['epoch']:.0f}", f"{row['cost']:.4f}", f"{row['baseline']:.4f}", f"{row['greedy']:.4f}", gap)
        self.console.print("".join(f"{cell:>12}" for cell in (*cells, f"{speed:.0f}")))

    def gap(self, greedy: float) -> dict[str, float]:
        """Relative excess over the reference; for prizes (negative costs) relative shortfall."""
        return {} if self.reference is None else {"gap": (greedy - self.reference) / abs(self.reference)}

    def interrupted(self) -> None:
        """Draw the curve so far, and say how to go on."""
        self.progress.stop()
        if self.rows:
            self.draw_curve()
        self.console.print(
            f"Stopped and saved. Go on with: python agents/am_reinforce.py --resume {self.folder}", soft_wrap=True
        )

    def finished(self, problem: Problem[Any, Any], best_weights: Path, instance: Any) -> None:
        """Draw the learning curve and one solved instance, and say how to use the result."""
        self.progress.stop()
        if self.rows:  # none where the log of a finished run was deleted
            self.draw_curve()
        model, _, header = checkpoint.load_model(best_weights, str(instance.coords.device))
        render.save(self.folder / "solution.png", problem, *solve_first(problem, model, instance))
        best = header["metrics"]
        gap = "".join(f", {gap:.2%} above the reference" for gap in self.gap(best["greedy"]).values())
        self.console.print(
            f"Best greedy cost on held-out instances: {best['greedy']:.4f}{gap} (epoch {best['epoch']:.0f}).\n"
            f"Learning curve: {self.folder}/curve.png    a solved instance: {self.folder}/solution.png\n"
            f"Curves:         tensorboard --logdir {self.folder}\n"
            f"Solve a file:   python agents/solve.py --checkpoint {self.folder} FILE...",
            soft_wrap=True,
        )

    def draw_curve(self) -> None:
        """Plot the sampled and the greedy cost, and the reference, against the instances seen."""
        figure = Figure(figsize=(7, 4), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot(xlabel="training instances", ylabel="mean cost")
        seen = [row["instances"] for row in self.rows]
        axes.plot(seen, [row["cost"] for row in self.rows], label="sampled, training")
        axes.plot(seen, [row["greedy"] for row in self.rows], label="greedy, held out")
        if self.reference is not None:
            axes.axhline(self.reference, color="black", linestyle=":", label="reference solver")
        low = min(min(row["greedy"] for row in self.rows), self.reference if self.reference is not None else math.inf)
        high = sorted(row["cost"] for row in self.rows)[-1 - len(self.rows) // 10]
        axes.set_ylim(low - 0.05 * (high - low), high + 0.05 * (high - low) + 1e-9)
        axes.legend()
        axes.grid(alpha=0.3)
        figure.savefig(self.folder / "curve.png", dpi=120)


def solve_first(problem: Problem[Any, Any], model: AttentionModel, instance: Any) -> tuple[Any, list[int]]:
    """Return the first instance, on NumPy, and the model's greedy tour of it."""
    first = select(instance, slice(0, 1))
    tour: list[int] = solve(model, problem, first).actions[0].tolist()
    return to_backend(first, "numpy"), tour


class SilentReport:
    """Stands in for `Report` in all processes of a run but the first."""

    def __enter__(self) -> SilentReport:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def advance(self) -> None:
        pass

    def epoch(self, *values: object) -> None:
        pass

    def interrupted(self) -> None:
        pass

    def finished(self, *values: object) -> None:
        pass
