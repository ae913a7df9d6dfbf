"""Generators of instances with matrices: edges along random streets, or random lengths without geography.

env = gym.make("routing/CVRP-50", matrices=True)             # `roads`, with observed matrices
python agents/am_reinforce.py --env-id routing/ATSP-50 --generator roads
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from routing_gym.arrays import euclidean
from routing_gym.problem import AnyProblem, instance_fields
from routing_gym.problems.matrices import num_road_uniforms, random_lengths, road_matrices, scaled_like


def roads(problem: AnyProblem, rng: np.random.Generator, batch_size: int) -> Any:
    """Draw instances whose nodes are joined by random streets, some of them fast and some one-way.

    For a problem with coordinates, the instances are those of the setting `matrices`.

    Args:
        problem: Any problem; instances of one without coordinates, such as ATSP, have only the matrix of lengths.
        rng: Random number generator.
        batch_size: Number of instances B.
    """
    if "coords" in instance_fields(problem):
        return replace(problem, matrices=True).generate(rng, batch_size)
    uniforms = rng.random((batch_size, 2 * problem.num_actions + num_road_uniforms(problem.num_actions)))
    coords = uniforms[:, : 2 * problem.num_actions].reshape(batch_size, -1, 2).astype(np.float32)
    distances, _ = road_matrices(coords, uniforms[:, 2 * problem.num_actions :])
    return problem.instance_type(distances=distances)


def random_matrices(problem: AnyProblem, rng: np.random.Generator, batch_size: int) -> Any:
    """Draw instances like `Problem.generate`, but with random length matrices like those of ATSP.

    The coordinates are unrelated to the lengths, whose mean is that of the distances between them.

    Args:
        problem: Any problem without times.
        rng: Random number generator.
        batch_size: Number of instances B.

    Raises:
        ValueError: The problem has time windows, which random matrices would make infeasible.
    """
    if any(column.kind == "time" for column in problem.columns):
        raise ValueError(f"{problem.name} has time windows, which random matrices break; take the generator roads")
    drawn = problem.generate(rng, batch_size)
    if "coords" not in instance_fields(problem):
        return drawn
    lengths = random_lengths(rng.random((batch_size, problem.num_actions, problem.num_actions)))
    straight = euclidean(drawn.coords[:, :, None], drawn.coords[:, None])
    return replace(drawn, distances=scaled_like(lengths, straight))
