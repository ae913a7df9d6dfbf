"""Stopping criteria of a training run: a plateau of the held-out cost, or a time limit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

GAIN = 1e-3  # smallest relative fall of the held-out cost for which training continues


def hours(rows: Sequence[dict[str, float]]) -> list[float]:
    """Return the hours of training up to each row of a run's log: the sum of instances divided by their rate.

    The evaluation after each epoch is included. The work of a killed process after its last row is not.
    """
    instances = np.diff([row["instances"] for row in rows], prepend=0.0)
    rates = np.array([row["instances_per_second"] for row in rows])
    seconds: list[float] = np.cumsum(instances / rates).tolist()
    return [one / 3600 for one in seconds]


def is_plateau(costs: Sequence[float], patience: int) -> bool:
    """Return whether the best of the last `patience` costs is lower than the best before by less than `GAIN`."""
    if len(costs) <= patience:
        return False
    before = min(costs[:-patience])
    return before - min(costs[-patience:]) < GAIN * abs(before)


def reason_to_stop(rows: Sequence[dict[str, Any]], patience: int, limit: float | None) -> str:
    """Return the reason why a run ends before its last epoch, or an empty text.

    Args:
        rows: Rows of its log, one per epoch.
        patience: Number of epochs of a plateau; 0 for no such criterion.
        limit: Largest number of hours of training, or None.
    """
    if limit is not None and rows and hours(rows)[-1] >= limit:
        return f"Ended by --hours {limit:g}, after {len(rows)} epochs."
    if patience and is_plateau([row["greedy"] for row in rows], patience):
        return f"Ended by --patience {patience}: the cost fell by less than {GAIN:.1%} in the last {patience} epochs."
    return ""
