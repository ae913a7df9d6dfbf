"""Stopping a long job politely."""

from __future__ import annotations

import signal
from typing import Any


class StopRequest:
    """Turns the first Ctrl-C or SIGTERM into a request to stop after the step.

    Args:
        second_is_final: Whether a second one stops the process at once. Under `torchrun`, which passes on what the
            terminal has sent already, it must not.
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
            self.__exit__()

    def __exit__(self, *exception: object) -> None:
        for number, handler in self.previous.items():
            signal.signal(number, handler)
