"""Tables of `benchmarks/training/learning.py`, for the console and for the documentation."""

from __future__ import annotations

from typing import Any

from benchmarks.quality.quality_tables import markdown

Figures = Any


def spread(value: tuple[float, float | None], sign: str = "") -> str:
    """Return a mean in per cent, and half the width of its interval if there is one."""
    mean, half = value
    return f"{mean:{sign}.2f}" + ("" if half is None else f" ± {half:.2f}")


def arms(stage: str, figures: Figures) -> str:
    """Return the gaps of a stage's arms with the latest weights, and differences from the first arm, in per cent."""
    rows = [row for row in figures["table"] if row["stage"] == stage and row["weights"] == "latest"]
    lines = []
    for row in rows:
        less = ["", ""] if row is rows[0] else [spread(row[f"{kind} less"], "+") for kind in ("greedy", "best")]
        gaps = [spread(row[kind]) for kind in ("greedy", "best")]
        cells = (row["arm"], str(row["seeds"]), str(row["steps"]), f"{row['seconds']:.0f}")
        lines.append((*cells, gaps[0], less[0], gaps[1], less[1], f"{row['entropy']:.1f}"))
    header = ("arm", "seeds", "steps", "seconds", "greedy", "difference", "best of 128", "difference", "nats")
    return markdown(header, lines)


def averages(figures: Figures) -> str:
    """Return, by stage and arm, the differences of averaged from latest weights of the same runs, in per cent."""
    lines = [
        (
            row["stage"],
            row["arm"],
            str(row["seeds"]),
            *(spread(row[f"{kind} less"], "+") for kind in ("greedy", "best")),
        )
        for row in figures["table"]
        if row["weights"] != "latest"
    ]
    return markdown(("stage", "arm", "seeds", "greedy", "best of 128"), lines)
