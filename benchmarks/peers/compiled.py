"""What the workers of JAX libraries share: calling compiled functions over and over."""

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


def replayers(
    policy: Callable[[Any, Any], Any],
    step: Callable[[Any, Any], tuple[Any, Any]],
    start: Any,
    keys: Any,
    resetting_step: Callable[[Any, Any], tuple[Any, Any]],
    state: Any,
) -> dict[str, Way]:
    """Return two ways to play actions drawn beforehand: scanned without resets, and called with what resets cost.

    Args:
        policy: From what a step goes on from and a key, choose the actions of all lanes.
        step: From what it goes on from and actions, return the same later, and what must be computed.
        start: What the first `step` goes on from.
        keys: One for each step.
        resetting_step: Compiled; from a state and actions, return the next state, and the rest.
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
