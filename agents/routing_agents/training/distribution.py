"""Distribution of the training instances of a run: its generator by name."""

from __future__ import annotations

import numpy as np

from routing_gym.arrays import batch_size
from routing_gym.generators import GENERATORS
from routing_gym.problem import AnyProblem, InvalidInstance
from routing_gym.problems.checks import checked_instance


def check_generator(name: str, problem: AnyProblem, rng: np.random.Generator) -> None:
    """Check that a generator draws instances of a problem, by two of them.

    Raises:
        ValueError: There is no such generator, or it does not draw two instances of the problem.
    """
    if name not in GENERATORS:
        told = "add one of your own to routing_gym.generators.GENERATORS, in a module that ROUTING_GYM_MODULES names"
        raise ValueError(f"--generator {name!r}: choose one of {', '.join(GENERATORS)}, or {told}")
    try:
        drawn = checked_instance(problem, GENERATORS[name](problem, rng, 2))
    except (TypeError, InvalidInstance) as error:
        raise ValueError(f"--generator {name}: {error}") from error
    if (found := batch_size(drawn)) != 2:
        raise ValueError(f"--generator {name}: drew {found} instances, expected 2")
