"""What the two JAX workers of `env_peers.py` share: calling a compiled function over and over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from playing import Way, clock


def player(advance: Callable[[Any], tuple[Any, Any]], start: Any, calls: int, transitions: int) -> Way:
    """Return a way to play that goes on from where it stopped.

    Args:
        advance: Compiled; from what it goes on from, return the same later, and what must be waited for.
        start: What it goes on from at first.
        calls: Of `advance` in a round.
        transitions: That they make.
    """
    now = start

    def play(rounds: int) -> tuple[int, float]:
        nonlocal now
        started = clock()
        for _ in range(rounds * calls):
            now, rewards = advance(now)
        jax.block_until_ready((now, rewards))
        return rounds * transitions, clock() - started

    return play
