"""Generators of random instances with other distributions than the uniform one of `Problem.generate`."""

from collections.abc import Callable
from typing import Any

import numpy as np

from routing_gym.generators.clustered import mixed, set_x, uniform
from routing_gym.generators.mtsp import salesmen
from routing_gym.generators.roads import random_matrices, roads
from routing_gym.generators.settings import settings
from routing_gym.generators.subproblems import windows
from routing_gym.problem import AnyProblem

__all__ = ["GENERATORS", "mixed", "random_matrices", "roads", "salesmen", "set_x", "settings", "uniform", "windows"]

GENERATORS: dict[str, Callable[[AnyProblem, np.random.Generator, int], Any]] = {
    "uniform": uniform,
    "mixed": mixed,
    "x": set_x,
    "windows": windows,
    "roads": roads,
    "random": random_matrices,
    "salesmen": salesmen,
    "settings": settings,
}
"""Generators by the names that `am_reinforce.py --generator` takes, as functions (problem, rng, batch_size).

Add one of your own by a new name; it returns instances of the problem, like `Problem.generate`.
"""
