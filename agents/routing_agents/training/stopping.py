"""Ends of a training run: a plateau of the held-out cost, a time limit, or a signal such as Ctrl-C."""

from __future__ import annotations

import signal
import threading
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


class StopRequest:
    """Handler that turns the first Ctrl-C, SIGTERM or SIGHUP (closed terminal) into a request to stop after the step.

    In another thread than the main one, it does nothing: Python handles signals in the main thread only.

    Args:
        second_is_final: Whether a second Ctrl-C stops the process at once. False under `torchrun`, which forwards
            signals that the terminal has already sent, and ends all processes when one ends. Further SIGTERMs change
            nothing: a cluster sends one to every process, and a plan forwards its own to the run.
    """

    requested = False

    def __init__(self, second_is_final: bool = True) -> None:
        self.second_is_final = second_is_final

    def __enter__(self) -> StopRequest:
        handled = [signal.SIGINT, signal.SIGTERM]
        if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup ignores it
            handled.append(signal.SIGHUP)
        if threading.current_thread() is not threading.main_thread():
            handled = []
        self.previous = {number: signal.signal(number, self.request) for number in handled}
        return self

    def request(self, number: int, frame: Any) -> None:
        self.requested = True
        if self.second_is_final:
            signal.signal(signal.SIGINT, self.previous[signal.SIGINT])

    def __exit__(self, *exception: object) -> None:
        if self.second_is_final:
            for number, handler in self.previous.items():
                signal.signal(number, handler)
