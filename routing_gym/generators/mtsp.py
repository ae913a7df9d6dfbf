"""Generator of MTSP with different numbers of salesmen: `am_reinforce.py --generator salesmen`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from routing_gym.problem import AnyProblem
from routing_gym.problems.checks import check_instance_type
from routing_gym.problems.mtsp import MTSPInstance

FEWEST_SALESMEN, MOST_SALESMEN = 2, 10


def salesmen(problem: AnyProblem, rng: np.random.Generator, batch_size: int) -> MTSPInstance:
    """Draw instances of MTSP with 2 to 10 salesmen; nodes are those of `Problem.generate`.

    The probability of k salesmen is proportional to 1/k: with many salesmen, the longest route often serves a single
    customer, and there is little to learn.

    Args:
        problem: MTSP.
        rng: Random number generator.
        batch_size: Number of instances B.

    Raises:
        ValueError: The problem is another one.
    """
    check_instance_type(problem, MTSPInstance, "numbers of salesmen are drawn for instances of MTSP only")
    instance: MTSPInstance = problem.generate(rng, batch_size)
    numbers = np.arange(FEWEST_SALESMEN, MOST_SALESMEN + 1)
    return replace(instance, num_salesmen=rng.choice(numbers, batch_size, p=1 / numbers / (1 / numbers).sum()))
