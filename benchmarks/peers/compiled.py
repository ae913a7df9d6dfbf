"""Helpers of the workers of JAX libraries: repeated calls of compiled functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from playing import Way, clock


def player(advance: Callable[[Any], tuple[Any, Any]], start: Any, calls: int, transitions: int) -> Way:
    """Return a way to play that continues where it stopped.

    Args:
        advance: Compiled function from the current carry to the next carry, and the results to wait for.
        start: First carry.
        calls: Number of calls of `advance` in a round.
        transitions: Number of transitions in a round.
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


def replayers(
    policy: Callable[[Any, Any], Any],
    step: Callable[[Any, Any], tuple[Any, Any]],
    start: Any,
    keys: Any,
    resetting_step: Callable[[Any, Any], tuple[Any, Any]],
    state: Any,
) -> dict[str, Way]:
    """Return two ways to play actions drawn beforehand: a scan without resets, and one call per step with resets.

    Args:
        policy: Function from the carry of a step and a key to the actions of all lanes.
        step: Function from a carry and actions to the next carry, and the results that must be computed.
        start: Carry of the first `step`.
        keys: One key for each step.
        resetting_step: Compiled function from a state and actions to the next state, and the other results.
        state: The first state.
    """

    def choose(now: Any, key: Any) -> tuple[Any, Any]:
        action = policy(now, key)
        return step(now, action)[0], action

    _, actions = jax.jit(lambda now, keys: jax.lax.scan(choose, now, keys))(start, keys)
    replay = jax.jit(lambda now, actions: jax.lax.scan(step, now, actions))
    actions_by_step = list(actions)

    def scanned(rounds: int) -> tuple[int, float]:
        started = clock()
        for _ in range(rounds):
            jax.block_until_ready(replay(start, actions))
        return rounds * actions.size, clock() - started

    def called(rounds: int) -> tuple[int, float]:
        started = clock()
        for _ in range(rounds):
            now = state
            for action in actions_by_step:
                now, rest = resetting_step(now, action)
            jax.block_until_ready((now, rest))
        return rounds * actions.size, clock() - started

    return {"transitions alone, scan": scanned, "transitions alone, call per step with resets": called}
