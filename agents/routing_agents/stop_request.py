"""Stopping a long job politely."""

from __future__ import annotations

import signal
from typing import Any


class StopRequest:
    """Turns the first Ctrl-C or SIGTERM into a request to stop after the step.

    Args:
        second_is_final: Whether a second one stops the process at once. Under `torchrun` it must not, which passes on
            what the terminal has sent already, and ends all processes when one is gone, with no time for last words.
    """

    requested = False

    def __init__(self, second_is_final: bool = True) -> None:
        self.second_is_final = second_is_final

    def __enter__(self) -> StopRequest:
        self.previous = {number: signal.signal(number, self.request) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def request(self, number: int, frame: Any) -> None:
        self.requested = True
        if self.second_is_final:
            self.restore()

    def __exit__(self, *exception: object) -> None:
        if self.second_is_final:
            self.restore()

    def restore(self) -> None:
        """Let signals do again what they did before."""
        for number, handler in self.previous.items():
            signal.signal(number, handler)
