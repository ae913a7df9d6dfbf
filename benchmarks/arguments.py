"""Checks of the arguments of benchmarks, before any work is done."""

from __future__ import annotations

from routing_agents.runs import problem_of
from routing_gym.problems import PROBLEMS


def check_problems(*names: str) -> None:
    """Check that names are those of problems with a size, such as TSP-50.

    Raises:
        ValueError: There are no names, or one is not a problem with a size.
    """
    if not names:
        raise ValueError("--problems: name at least one, such as TSP-50")
    for name in names:
        try:
            problem_of(f"routing/{name}", {})
        except ValueError:
            raise ValueError(
                f"{name!r} is not a problem with a size, such as TSP-50; there are {', '.join(PROBLEMS)}"
            ) from None
