"""Scores of competitive orienteering in plain Python, one vehicle at a time, without any code of `step`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from routing_gym.arrays import Array, to_numpy

Point = tuple[float, float]

MARGIN = 1e-6  # in steps, like in the rules


def score(game: Any, instance: Any, actions: Array) -> npt.NDArray[np.float64]:
    """Score whole games; see `Game.replay`.

    Args:
        game: A `CompetitiveOP`; only its settings are used, none of its methods.
        instance: B instances.
        actions: Integers (B, T, m) with targets, floats (B, T, m, 2) with velocities.

    Returns:
        Total gain of each agent: float64 (B, m).

    Raises:
        ValueError: The actions are invalid. The message has the value found and the expected one.
    """
    coords, start, prize = (to_numpy(x).tolist() for x in (instance.coords, instance.start, instance.prize))
    moves = check_actions(game, to_numpy(actions), len(coords))
    return np.array([score_row(game, *row) for row in zip(coords, start, prize, moves.tolist(), strict=True)])


def check_actions(game: Any, actions: npt.NDArray[Any], num_rows: int) -> npt.NDArray[Any]:
    """Check shape, type and range.

    Raises:
        ValueError: See `score`.
    """
    targets = game.control == "target"
    expected: tuple[int, ...] = (
        num_rows,
        min(actions.shape[1], game.num_ticks) if actions.ndim > 1 else 0,
        game.num_agents,
    )
    expected += () if targets else (2,)
    if actions.shape != expected:
        tail = "" if targets else ", 2"
        raise ValueError(
            f"actions: expected shape ({num_rows}, T, {game.num_agents}{tail}) with T at most {game.num_ticks}; "
            f"got {actions.shape}"
        )
    kind = np.integer if targets else np.floating
    if not np.issubdtype(actions.dtype, kind):
        raise ValueError(f"actions: expected {'integers' if targets else 'floats'}, got {actions.dtype}")
    bad = (actions < 0) | (actions > game.num_listed) if targets else ~np.isfinite(actions)
    if bad.any():
        place = tuple(int(i) for i in np.argwhere(bad)[0])
        where, value = f"row {place[0]}, tick {place[1]}, agent {place[2]}", actions[place]
        bounds = f"actions are 0 to {game.num_listed}" if targets else "velocities must be finite"
        raise ValueError(f"actions: {where} is {value}; {bounds}")
    return actions


def score_row(game: Any, coords: list[Point], starts: list[Point], prizes: list[int], moves: Any) -> list[float]:
    """Replay one game, and return the total gain of each agent."""
    places = list(starts)
    open_customers = set(range(len(coords)))
    gains = [0.0] * len(starts)
    for tick, choices in enumerate(moves):
        visitors: dict[int, list[int]] = {}
        for agent, choice in enumerate(choices):
            if game.control == "target":
                place, reached = drive(game, coords, open_customers, places[agent], choice, game.num_ticks - tick)
            else:
                place = steer(game, places[agent], choice)
                reached = [c for c in open_customers if math.dist(place, coords[c]) <= game.radius * (1 + MARGIN)]
            places[agent] = place
            for customer in reached:
                visitors.setdefault(customer, []).append(agent)
        for customer, sharing in visitors.items():
            open_customers.remove(customer)
            for agent in sharing:
                gains[agent] += prizes[customer] / 100 / len(sharing)
    return gains


def drive(
    game: Any, coords: list[Point], open_customers: set[int], place: Point, choice: int, ticks_left: int
) -> tuple[Point, list[int]]:
    """Return the position of a vehicle after its choice, and the customer that it reaches, if any."""
    nearest = sorted(open_customers, key=lambda c: (round(math.dist(place, coords[c]), 11), c))[: game.num_listed]
    if choice == 0 or choice > len(nearest):
        return place, []
    customer = nearest[choice - 1]
    goal = coords[customer]
    steps = math.dist(place, goal) / game.step_length
    if steps > ticks_left + MARGIN:
        return place, []
    if steps <= 1 + MARGIN:
        return goal, [customer]
    return (place[0] + (goal[0] - place[0]) / steps, place[1] + (goal[1] - place[1]) / steps), []


def steer(game: Any, place: Point, velocity: Point) -> Point:
    """Return the position of a vehicle after a move by its velocity."""
    speed = max(1.0, math.hypot(*velocity))
    x, y = (min(max(at + game.step_length * v / speed, 0.0), 1.0) for at, v in zip(place, velocity, strict=True))
    return x, y
