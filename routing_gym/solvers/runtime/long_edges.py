"""Edges that are too long for any optimal tour, such as 999,999 for "no road".

Packages that take integers, or compute with fixed tolerances, count lengths in a unit that depends on the longest edge:
beside one that is a million times as long as the others, they could not tell those apart.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from routing_gym.arrays import Array, select
from routing_gym.problem import AnyProblem
from routing_gym.problems.geometry import LONG, MAX_FLOAT, lengths_from
from routing_gym.rollout import rollout

NUM_TOURS = 16  # some need a very long edge, for example to the last node, where others do not
SHORT = 0.2  # quantile of lengths that a matrix's longest edge is compared with
SPREAD = 3.0  # random factors on edges, for different tours: 1 to 4


def shorten_long_edges(problem: AnyProblem, instance: Any, seed: int) -> Any:
    """Return the instance with edges shortened that are too long for any optimal tour, which therefore stays optimal.

    An edge is shortened to twice the length that it could have in an optimal tour (`Problem.longest_useful_edge`),
    given the cost of the best of some tours to nearest nodes. Most matrices have no such edge and are not searched.

    Args:
        problem: Problem of the instance.
        instance: One instance (NumPy, valid): a batch of size 1.
        seed: Random seed of the tours.
    """
    lengths = instance.distances
    if lengths is None or lengths.max() <= LONG * np.quantile(lengths, SHORT):
        return instance
    cost = float(nearest_costs(problem, instance, np.random.default_rng(seed)).min())
    longest = 2.0 * problem.longest_useful_edge(instance, np.asarray([cost]))
    if not longest > 0:  # a tour of length 0 is optimal
        return instance
    return replace(instance, distances=np.minimum(lengths, longest[:, None, None]).astype(lengths.dtype))


def nearest_costs(problem: AnyProblem, instance: Any, rng: np.random.Generator) -> Array:
    """Return the costs of tours that always choose the nearest legal node, after a random factor on each edge.

    Half of them return to a depot only when no customer is legal.
    """
    copies = select(instance, np.zeros(NUM_TOURS, dtype=np.int64))

    def nearest(observation: dict[str, Array]) -> Array:
        lengths = lengths_from(copies, observation["current_node"])
        lengths = lengths * (1.0 + SPREAD * rng.random(lengths.shape))
        lengths[::2, : problem.num_depots] = 2.0 * MAX_FLOAT  # of illegal nodes: infinite
        return np.where(observation["action_mask"], lengths, np.inf).argmin(axis=1)

    return rollout(problem, copies, nearest).cost
