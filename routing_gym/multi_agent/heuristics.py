"""Heuristic policies for `CompetitiveOP`, as references for learned ones.

Each is a function of game, instance and state that returns the actions of all agents for the game's control,
on the backend of the instance. They choose among the customers that the action mask allows.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from array_api_compat import array_namespace

from routing_gym.arrays import Array
from routing_gym.multi_agent.competitive_op import MARGIN, CompetitiveOP, CompetitiveOPInstance, CompetitiveOPState
from routing_gym.multi_agent.rows import FAR, pick_last, pick_rows, to_customers

Heuristic = Callable[[CompetitiveOP, CompetitiveOPInstance, CompetitiveOPState], Array]


def nearest(game: CompetitiveOP, instance: CompetitiveOPInstance, state: CompetitiveOPState) -> Array:
    """Go to the nearest customer."""
    return choose(game, instance, state, -state.distance)


def prize_per_tick(game: CompetitiveOP, instance: CompetitiveOPInstance, state: CompetitiveOPState) -> Array:
    """Go to the customer with the highest prize per tick of travel."""
    return choose(game, instance, state, rate(game, instance, state))


def rival_aware(game: CompetitiveOP, instance: CompetitiveOPInstance, state: CompetitiveOPState) -> Array:
    """Go to the customer with the highest prize per tick; customers nearer to a rival come after all others.

    The preferred customers are those in the vehicle's cell of the Voronoi diagram of all vehicles. A customer at equal
    distances belongs to the vehicle itself.
    """
    xp = array_namespace(state.distance)
    to_all = to_customers(instance.coords, state.position)  # (B, m, n)
    inf = xp.full_like(to_all[:, :1, :], math.inf)
    ranked = xp.sort(xp.concat([to_all, inf], axis=1), axis=1)
    first, second = ranked[:, :1, :], ranked[:, 1:2, :]
    of_rivals = pick_last(xp.where(to_all == first, second, first), state.nearest)
    mine = pick_last(to_all, state.nearest) <= of_rivals + MARGIN
    value = rate(game, instance, state)
    return choose(game, instance, state, xp.where(mine, value, value - 100.0))  # no rate exceeds 100


HEURISTICS: dict[str, Heuristic] = {"nearest": nearest, "prize_per_tick": prize_per_tick, "rival_aware": rival_aware}


def rate(game: CompetitiveOP, instance: CompetitiveOPInstance, state: CompetitiveOPState) -> Array:
    """Return the prize, in hundredths, per tick of travel: (B, m, L), near 0 where there is no customer."""
    xp = array_namespace(state.distance)
    ticks = xp.clip(xp.ceil(state.distance / game.step_length - MARGIN), 1.0, None)
    return xp.astype(pick_rows(instance.prize, state.nearest), xp.float64) / ticks


def choose(game: CompetitiveOP, instance: CompetitiveOPInstance, state: CompetitiveOPState, value: Array) -> Array:
    """Go to the listed customer with the highest value among those in reach; stay if there is none.

    Args:
        game: Game with targets or velocities; velocities lead straight to the customer.
        instance: B instances.
        state: B states.
        value: Values of the listed customers, float64 (B, m, L).
    """
    xp = array_namespace(value)
    ticks_left = xp.astype(game.num_ticks - state.tick, xp.float64)[:, None, None]
    legal = (state.distance < FAR) & (state.distance <= game.step_length * (ticks_left + MARGIN))
    best = xp.argmax(xp.where(legal, value, xp.full_like(value, -math.inf)), axis=-1)
    going = xp.any(legal, axis=-1)
    if game.control == "target":
        return xp.where(going, best + 1, xp.zeros_like(best))
    place = best[..., None]
    goal = xp.astype(pick_rows(instance.coords, pick_last(state.nearest, place)[..., 0]), xp.float64)
    velocity = (goal - state.position) / game.step_length
    velocity = velocity / xp.clip(xp.sqrt(xp.sum(velocity * velocity, axis=-1, keepdims=True)), 1.0, None)
    return xp.astype(xp.where(going[..., None], velocity, xp.zeros_like(velocity)), xp.float32)
