"""Largest prize that the agents of `CompetitiveOP` can collect together: an upper bound for all policies.

The problem is open team orienteering with ticks as lengths. A dynamic program over subsets (Held and Karp, 1962) finds
the sets of customers that each vehicle can visit in time; a second one assigns the customers to the vehicles. Changing
the target on the way is never faster than driving directly to the later target, so the bound covers all policies.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from routing_gym.arrays import Array, to_numpy
from routing_gym.multi_agent.competitive_op import FULL_PRIZE, MARGIN, CompetitiveOP, CompetitiveOPInstance

MAX_CUSTOMERS = 12


def cooperative_optimum(game: CompetitiveOP, instance: CompetitiveOPInstance) -> npt.NDArray[np.float64]:
    """Compute the highest sum of all gains.

    It assumes that every customer can be chosen, which gives an upper bound if `num_listed` is less than n.

    Args:
        game: Game with targets and at most 12 customers.
        instance: B instances.

    Returns:
        Largest sums of gains: float64 (B,).

    Raises:
        ValueError: There are too many customers, or the game has velocities, which collect within a radius.
    """
    if game.control != "target":
        raise ValueError('cooperative_optimum: needs control="target"; velocities collect within a radius')
    if game.num_customers > MAX_CUSTOMERS:
        raise ValueError(
            f"cooperative_optimum: at most {MAX_CUSTOMERS} customers, got {game.num_customers}: it tries all subsets"
        )
    coords, start = (to_numpy(x).astype(np.float64) for x in (instance.coords, instance.start))
    in_time = shortest_ticks(ticks_between(game, start, coords), ticks_between(game, coords, coords)) <= game.num_ticks
    together = in_time[:, 0]
    for agent in range(1, game.num_agents):
        together = deal(together, in_time[:, agent])
    subsets = np.arange(2**game.num_customers)
    members = subsets[:, None] >> np.arange(game.num_customers) & 1
    prize = to_numpy(instance.prize) @ members.T  # (B, 2^n)
    return np.asarray(np.where(together, prize, 0).max(axis=1) / FULL_PRIZE)


def ticks_between(game: CompetitiveOP, origin: Array, destination: Array) -> npt.NDArray[np.float64]:
    """Return the ticks from each origin (B, k, 2) to each destination (B, n, 2); at least one, even at distance 0."""
    distance = np.linalg.norm(origin[:, :, None] - destination[:, None], axis=-1)
    return np.asarray(np.maximum(np.ceil(distance / game.step_length - MARGIN), 1.0))


def shortest_ticks(from_start: npt.NDArray[np.float64], between: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Compute the least number of ticks in which each agent can visit each set of customers.

    Args:
        from_start: Ticks from the agents' starts to the customers, (B, m, n).
        between: Ticks between customers, (B, n, n).

    Returns:
        Numbers of ticks (B, m, 2^n); bit c of the index is set if customer c belongs to the set.
    """
    num_rows, num_agents, num_customers = from_start.shape
    ending_at = np.full((2**num_customers, num_rows, num_agents, num_customers), np.inf)  # by the last customer
    for subset in range(1, 2**num_customers):
        for last in range(num_customers):
            before = subset & ~(1 << last)
            if before == subset:
                continue
            arrival = from_start[:, :, last]
            if before:
                arrival = (ending_at[before] + between[:, None, :, last]).min(axis=-1)
            ending_at[subset, :, :, last] = arrival
    shortest = ending_at.min(axis=-1)
    shortest[0] = 0.0
    return np.moveaxis(shortest, 0, -1)


def deal(some: npt.NDArray[np.bool_], one: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return a mask of the sets that some agents and one more can visit together, given their own masks: (B, 2^n)."""
    subsets = np.arange(some.shape[1])
    together = some.copy()
    for subset in np.flatnonzero(one.any(axis=0)):
        rest = subsets[subsets & subset == 0]
        together[:, rest | subset] |= some[:, rest] & one[:, [subset]]
    return together
