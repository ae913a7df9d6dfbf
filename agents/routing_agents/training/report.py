"""Output of a training run: live progress, logs and curve."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from torch.utils.tensorboard import SummaryWriter

from routing_agents.runs import command, quoted
from routing_agents.terminal import plain_console
from routing_agents.training import distributed
from routing_gym.files import printable, write_atomically
from routing_gym.optional import require

TAGS = {  # tags of TensorBoard, for metrics that are not train/...
    "greedy": "eval/greedy_cost",
    "gap": "eval/gap",
    "instances_per_second": "time/instances_per_second",
    "epoch": "time/epoch",
    "instances": "time/instances",
}
PICTURE = "eval/solution"
PROJECT = "routing-gym"  # project of Weights & Biases; WANDB_PROJECT overrides it


def check_log(args: Any) -> None:
    """Check that the package that logs the metrics is installed.

    Raises:
        ImportError: The package is missing; the message names the extra.
    """
    if args.log == "wandb":
        require("wandb", "wandb")


def start_log(folder: Path, args: Any) -> AbstractContextManager[Any]:
    """Start a run of Weights & Biases, if `args.log` requests it; a resumed run continues its own.

    Raises:
        ValueError: The run does not start, for example without a login.
    """
    if args.log != "wandb":
        return nullcontext()
    wandb = require("wandb", "wandb")
    begun = [re.sub(r".*run-\d+_\d+-", "", path.name) for path in sorted(folder.glob("wandb/*run-*-*"))]
    settings = wandb.Settings(console="off")  # no copy of the progress bar
    try:
        return wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=folder.name,
            dir=folder,
            config=args.to_json(),
            id=begun[0] if begun else None,
            resume="allow" if begun else None,
            settings=settings,
        )
    except wandb.Error as error:
        hint = "run `wandb login`, or set WANDB_MODE=offline"
        raise ValueError(f"--log wandb: Weights & Biases does not start ({error}); {hint}") from error


@dataclass(frozen=True)
class Column:
    """One column of the live table.

    Attributes:
        key: Name of the metric; a missing metric is shown as "-".
        format: Python's format specification, such as ".4f".
        title: Title of the column; by default the key.
        curve: Label of its line in curve.png; without a label, no line is drawn.
        sign: Factor of the metric in the output: -1 shows negative costs as prizes.
    """

    key: str
    format: str
    title: str = ""
    curve: str = ""
    sign: float = 1


METRICS = "metrics.jsonl"  # file of a run's folder


def read_metrics(path: Path) -> list[dict[str, float]]:
    """Return the rows of a run's log; an incomplete last line, still being written or of a killed process, is ignored.

    Raises:
        ValueError: A line is damaged.
    """
    if not path.exists():
        return []
    whole_lines = path.read_text().rpartition("\n")[0]
    rows = []
    for number, line in enumerate(whole_lines.splitlines(), 1):
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError as error:
            raise ValueError(f"{path}:{number}: not a line of the log; mend or delete it") from error
    return rows


class Report:
    """Progress on the terminal; metrics.jsonl, TensorBoard and the curve in the run's folder.

    Args:
        folder: Folder of the run, which exists.
        args: The run's arguments.
        columns: Columns of the table; the first is "epoch".
        batch_size: Number of instances per step.
        step: Number of steps made so far.
        reference: Cost of the reference solver, which is drawn as a dotted line in the curve; None for no line.
        log: Run of Weights & Biases that logs the metrics, too; None for none.
    """

    def __init__(
        self,
        folder: Path,
        args: Any,
        columns: Sequence[Column],
        batch_size: int,
        step: int,
        reference: float | None,
        log: Any,
    ) -> None:
        self.folder, self.columns, self.reference, self.log = folder, columns, reference, log
        self.batch_size, self.precision = batch_size, args.precision
        self.metrics_path = folder / METRICS
        self.rows = [row for row in read_metrics(self.metrics_path) if row["epoch"] * args.steps_per_epoch <= step]
        write_atomically(self.metrics_path, "".join(json.dumps(row) + "\n" for row in self.rows).encode())
        self.writer = SummaryWriter(str(folder / "tensorboard"), purge_step=step * self.batch_size + 1)
        self.console = plain_console()
        bar = (TextColumn("step"), MofNCompleteColumn(), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        self.progress = Progress(*bar, console=self.console)
        self.task = self.progress.add_task("train", total=args.total_steps, completed=step)
        self.since, self.steps_since = time.perf_counter(), 0

    def __enter__(self) -> Report:
        self.say(f"{self.folder}: logs, checkpoints, pictures")
        self.say(f"processes: {distributed.world_size()}, threads of each: {torch.get_num_threads()}, {self.precision}")
        self.say("".join(f"{column.title or column.key:>12}" for column in self.columns))
        self.progress.start()
        self.since = time.perf_counter()
        return self

    def __exit__(self, *exception: object) -> None:
        self.progress.stop()
        self.writer.close()

    def say(self, text: str) -> None:
        """Print a line of plain text above the progress bar."""
        self.console.print(printable(text), soft_wrap=True)

    def advance(self) -> None:
        """Count one step."""
        self.progress.advance(self.task)
        self.steps_since += 1

    def log_epoch(self, metrics: dict[str, float], picture: np.ndarray) -> None:
        """Log the metrics of an epoch.

        Args:
            metrics: Metrics by name: "epoch", "instances" and any others.
            picture: Picture for the logs, uint8 (height, width, 3).
        """
        now = time.perf_counter()
        speed = self.steps_since * self.batch_size / (now - self.since)
        self.since, self.steps_since = now, 0
        row = {**metrics, "instances_per_second": speed}
        self.rows.append(row)
        with self.metrics_path.open("a") as file:
            file.write(json.dumps(row) + "\n")
        seen, tagged = int(metrics["instances"]), {TAGS.get(key, f"train/{key}"): value for key, value in row.items()}
        for tag, value in tagged.items():
            self.writer.add_scalar(tag, value, seen)
        self.writer.add_image(PICTURE, picture, seen, dataformats="HWC")
        if self.log is not None:
            self.log.log(tagged | {PICTURE: require("wandb", "wandb").Image(picture)}, step=seen)

    def show_epoch(self) -> None:
        """Print the table row of the last epoch that was logged."""
        row = self.rows[-1]
        cells = (format(c.sign * row[c.key], c.format) if c.key in row else "-" for c in self.columns)
        self.say("".join(f"{cell:>12}" for cell in cells))

    def interrupted(self, script: str) -> None:
        """Draw the curve so far, and print the command that resumes the run."""
        self.progress.stop()
        self.draw_curve()
        self.say(f"Stopped and saved. Go on with: {command(script, '--resume', self.folder)}")

    def finished(self, *lines: str) -> None:
        """Draw the curve, and print lines about the result."""
        self.progress.stop()
        self.draw_curve()
        for line in (*lines, f"Curves:         {quoted('tensorboard', '--logdir', self.folder)}"):
            self.say(line)

    def draw_curve(self) -> None:
        """Plot the columns that have a `curve`, and the reference, against the instances seen."""
        drawn = [column for column in self.columns if column.curve]
        if not self.rows or not drawn:  # no epoch yet, or the log of a finished run was deleted
            return
        from matplotlib.figure import Figure  # slow, and only the process that draws needs it

        figure = Figure(figsize=(7, 4), layout="constrained")
        axes = figure.add_subplot(xlabel="training instances")
        seen = [row["instances"] for row in self.rows]
        for column in drawn:
            axes.plot(seen, [column.sign * row[column.key] for row in self.rows], label=column.curve)
        sign = drawn[0].sign
        values = sorted(row[column.key] for column in drawn for row in self.rows)
        low = values[0]
        if self.reference is not None:
            axes.axhline(sign * self.reference, color="black", linestyle=":", label="reference solver")
            low = min(low, self.reference)
        high = values[-1 - len(values) // 20]  # the first epochs may be far off
        margin = 0.05 * (high - low) + 1e-9
        axes.set_ylim(*sorted((sign * (low - margin), sign * (high + margin))))
        axes.legend()
        axes.grid(alpha=0.3)
        figure.savefig(self.folder / "curve.png", dpi=120)
