"""Stopping a long job politely."""

from __future__ import annotations

import signal
from typing import Any


class StopRequest:
    """Turns the first Ctrl-C or SIGTERM into a request to stop after the step; a second one is final."""

    requested = False

    def __enter__(self) -> StopRequest:
        self.previous = {number: signal.signal(number, self.request) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def request(self, number: int, frame: Any) -> None:
        self.requested = True
        self.__exit__()

    def __exit__(self, *exception: object) -> None:
        for number, handler in self.previous.items():
            signal.signal(number, handler)
