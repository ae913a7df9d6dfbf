"""Comparison of methods: mean objective, gap to a reference, confidence intervals, wins, time.

All comparisons are paired, instance by instance: the difference of two methods varies far less than the
cost of an instance. Confidence intervals follow Student's t-distribution, from scipy.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from routing_gym.arrays import FloatArray
from routing_gym.files import printable
from routing_gym.optional import require
from routing_gym.problem import AnyProblem
from routing_gym.solvers.runtime.base import Solution

CONFIDENCE = 0.95
TIE = 1e-6  # costs this close, relative to the best, are equal: float32 coordinates are not more precise
HEADER = ("method", "mean", "± 95 %", "gap %", "gap 95 % interval", "wins", "failed", "s/instance", "total s")


class Interval(NamedTuple):
    """Estimate and its confidence interval; nan if there are too few instances."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Row:
    """One method of a table."""

    method: str
    is_bound: bool  # computed with information that no policy has; does not compete for wins
    mean: Interval  # cost; prize for OP
    gap: Interval  # per cent of the reference's mean, positive is worse
    wins: int  # instances on which no other method is better by more than 1e-6; bounds do not compete
    failed: int  # instances without a tour; no mean includes them
    reason: str  # the most frequent reason of the failures; empty if there are none
    seconds: float  # per instance
    total_seconds: float  # sum over the instances; the wall time is shorter if several processes shared them

    def cells(self) -> tuple[str, ...]:
        """Return the row as text, in the order of `HEADER`."""
        half_width = (self.mean.high - self.mean.low) / 2
        return (
            self.method + (" (bound)" if self.is_bound else ""),
            number(self.mean.value, ".4f"),
            number(half_width, ".4f"),
            number(self.gap.value, ".3f"),
            f"{number(self.gap.low, '.3f')} to {number(self.gap.high, '.3f')}" if self.gap.low == self.gap.low else "-",
            str(self.wins),
            str(self.failed),
            number(self.seconds, ".3g"),
            number(self.total_seconds, ".3g"),
        )


@dataclass(frozen=True)
class Table:
    """A comparison of methods on one batch of instances."""

    problem: str
    objective: str  # quantity of the mean: "cost" or "prize"
    num_nodes: int
    num_instances: int
    reference: str
    rows: tuple[Row, ...]
    about: Mapping[str, Any] = field(default_factory=dict)  # context of the numbers: seed, commit, hardware

    def __repr__(self) -> str:
        return self.markdown()

    def _repr_markdown_(self) -> str:
        return self.markdown()

    @property
    def title(self) -> str:
        noun = "instance" if self.num_instances == 1 else "instances"
        details = "".join(f", {key} {value}" for key, value in self.about.items())
        return (
            f"{self.problem}-{self.num_nodes}, {self.num_instances} {noun}, mean {self.objective}, "
            f"gap to {self.reference}{details}"
        )

    @property
    def failures(self) -> str:
        """Lines below the table: for each method that failed, on how many instances, and the most frequent reason."""
        count = self.num_instances
        return "".join(
            printable(f"{row.method} failed on {row.failed} of {count}: {row.reason}") + "\n"
            for row in self.rows
            if row.failed
        )

    def text(self) -> str:
        """Return the table for a terminal.

        Raises:
            ImportError: rich is not installed. The message names the extra.
        """
        table = require("rich.table", "solvers").Table(title=printable(self.title))
        for place, name in enumerate(HEADER):
            table.add_column(name, justify="right" if place else "left", no_wrap=place > 0, overflow="fold")
        for row in self.rows:
            table.add_row(*map(printable, row.cells()))
        plain = {"color_system": None, "force_jupyter": False, "markup": False, "emoji": False}
        console = require("rich.console", "solvers").Console(width=160, **plain)
        with console.capture() as shown:  # lines are of ASCII where standard output cannot encode others
            console.print(table)
        return str(shown.get()) + self.failures

    def markdown(self) -> str:
        """Return the table as Markdown."""
        lines = [HEADER, ("---", *("---:",) * (len(HEADER) - 1)), *(row.cells() for row in self.rows)]
        rows = "".join(f"| {' | '.join(line)} |\n" for line in lines)
        return f"{self.title}\n\n{rows}" + (f"\n{self.failures}" if self.failures else "")

    def records(self) -> list[dict[str, Any]]:
        """Return the rows as plain numbers with full precision; None replaces nan."""
        records = []
        for row in self.rows:
            record: dict[str, Any] = {"method": row.method, "is_bound": row.is_bound}
            for name, interval in (("mean", row.mean), ("gap", row.gap)):
                record |= {name: interval.value, f"{name}_low": interval.low, f"{name}_high": interval.high}
            record |= {"wins": row.wins, "failed": row.failed, "reason": row.reason}
            record |= {"seconds": row.seconds, "total_seconds": row.total_seconds}
            records.append({key: None if value != value else value for key, value in record.items()})
        return records

    def csv(self) -> str:
        """Return the rows as comma-separated values, with a header."""
        file = io.StringIO()
        records = self.records()
        writer = csv.DictWriter(file, fieldnames=list(records[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(records)
        return file.getvalue()

    def json(self) -> str:
        """Return everything as JSON."""
        return json.dumps({**asdict(self), "rows": self.records()}, indent=2, allow_nan=False) + "\n"

    def plot(self, path: Path | str) -> None:
        """Plot gap against time per instance and write it to a file, whose suffix determines the format.

        Raises:
            ImportError: matplotlib is not installed. The message names the extra.
        """
        figure = require("matplotlib.figure", "render").Figure(figsize=(7, 4.5), layout="constrained")
        axes = figure.add_subplot()
        for row in self.rows:
            if math.isnan(row.gap.value):
                continue
            half_width = None if math.isnan(row.gap.low) else [(row.gap.high - row.gap.low) / 2]
            axes.errorbar(row.seconds, row.gap.value, yerr=half_width, fmt="o", capsize=3)
            place = (row.seconds, row.gap.value)
            label = axes.annotate(
                row.cells()[0], place, (6, 4), textcoords="offset points", fontsize=8, parse_math=False
            )
            label.set_in_layout(False)  # a long name must not squeeze the axes
        axes.set_xscale("log")
        axes.set_xlabel("seconds per instance")
        axes.set_ylabel(f"gap to {self.reference} (%)", parse_math=False)  # names may hold a $
        axes.set_title(self.title.split(", mean")[0], parse_math=False)
        axes.margins(x=0.2)
        axes.grid(alpha=0.3)
        figure.savefig(path)


def compare(
    problem: AnyProblem,
    solutions: Mapping[str, Solution],
    reference: str,
    about: Mapping[str, Any] | None = None,
) -> Table:
    """Compare methods that have solved the same batch of instances.

    Args:
        problem: Problem of the instances.
        solutions: Solution of each method, by name.
        reference: Name of the method that the gaps are relative to.
        about: Context of the numbers: seed, commit, hardware.

    Raises:
        ValueError: No method is called `reference`, or the batches have different sizes.
    """
    if reference not in solutions:
        raise ValueError(f"no method {reference!r} to refer to; the methods are {', '.join(solutions)}")
    sizes = {name: len(solution.cost) for name, solution in solutions.items()}
    if len(set(sizes.values())) > 1:
        raise ValueError(f"the methods must have solved the same instances, got different numbers: {sizes}")
    sign = -1.0 if problem.maximises else 1.0
    contenders = [solution.cost for solution in solutions.values() if not solution.is_bound]
    best = np.fmin.reduce(contenders) if contenders else np.empty(0)
    rows = []
    for name, solution in solutions.items():
        mean = mean_interval(sign * solution.cost[~solution.failed])
        wins = 0 if solution.is_bound else int((solution.cost <= best + TIE * np.abs(best)).sum())
        rows.append(
            Row(
                method=name,
                is_bound=solution.is_bound,
                mean=mean,
                gap=gap_interval(solution.cost, solutions[reference].cost),
                wins=wins,
                failed=int(solution.failed.sum()),
                reason=frequent_reason(solution),
                seconds=float(solution.seconds.mean()),
                total_seconds=float(solution.seconds.sum()),
            )
        )
    objective = "prize" if problem.maximises else "cost"
    size = sizes[reference]
    return Table(problem.name, objective, problem.num_nodes, size, reference, tuple(rows), dict(about or {}))


def frequent_reason(solution: Solution) -> str:
    """Return the most frequent reason why rows failed, on one line; empty if none failed."""
    reasons = (status for status, failed in zip(solution.status, solution.failed, strict=True) if failed)
    return next((" ".join(reason.split()) for reason, _ in Counter(reasons).most_common(1)), "")


def mean_interval(values: FloatArray) -> Interval:
    """Return the mean of independent values and its 95 % confidence interval."""
    if len(values) == 0:
        return Interval(math.nan, math.nan, math.nan)
    mean = float(values.mean())
    return around(mean, standard_error(values), len(values) - 1)


def gap_interval(cost: FloatArray, reference: FloatArray) -> Interval:
    """Return the gap of the mean cost to the mean reference in per cent of the latter, with its 95 % interval.

    The gap is the ratio of means, as reported by Kool et al. (2019). Its error is that of the paired residuals
    cost - reference - gap x reference (ratio estimator; Cochran, Sampling Techniques, section 6.3).
    Instances on which either method failed (nan) are excluded.
    """
    both = ~np.isnan(cost) & ~np.isnan(reference)
    cost, reference = cost[both], reference[both]
    scale = abs(float(reference.mean())) if len(reference) else 0.0
    if scale == 0:
        return Interval(math.nan, math.nan, math.nan)
    ratio = float((cost - reference).mean()) / scale
    residuals = cost - reference - ratio * np.sign(reference.mean()) * reference
    return around(100 * ratio, 100 * standard_error(residuals) / scale, len(cost) - 1)


def controlled_mean(cost: FloatArray, control: FloatArray, control_mean: float) -> Interval:
    """Estimate the mean cost over a large set of which only a sample is solved, by a control variate.

    The control variate is the cost of another method, which is cheap enough to run on the whole set and correlated
    with `cost`. It corrects for the difference of sample and set: mean(cost) - b (mean(control) - control_mean), with
    b from least squares. The interval is for the mean over the set, which must be much larger than the sample.

    Args:
        cost: (B,), cost of the method on the sample.
        control: (B,), cost of the other method on the sample.
        control_mean: Mean cost of the other method over the whole set.

    Raises:
        ValueError: The sample has fewer than three instances.
    """
    if len(cost) < 3:
        raise ValueError(f"a control variate needs at least 3 instances, got {len(cost)}")
    deviation = control - control.mean()
    slope = float(deviation @ cost) / float(deviation @ deviation) if deviation.any() else 0.0
    mean = float(cost.mean()) - slope * (float(control.mean()) - float(control_mean))
    residuals = cost - cost.mean() - slope * deviation
    error = float(np.sqrt(residuals @ residuals / (len(cost) - 2) / len(cost)))
    return around(mean, error, len(cost) - 2)


def standard_error(values: FloatArray) -> float:
    """Return the standard error of the mean; nan for fewer than two values."""
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else math.nan


def around(value: float, error: float, degrees: int) -> Interval:
    """Return the confidence interval around an estimate with a standard error and its degrees of freedom."""
    if degrees < 1:
        return Interval(value, math.nan, math.nan)
    half_width = float(require("scipy.stats", "solvers").t.ppf((1 + CONFIDENCE) / 2, degrees)) * error
    return Interval(value, value - half_width, value + half_width)


def number(value: float, layout: str) -> str:
    """Format a number; a dash for nan."""
    return "-" if math.isnan(value) else format(value, layout)
