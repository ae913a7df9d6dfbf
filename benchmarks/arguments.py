"""Checks of what the benchmarks are given, before any work is done."""

from __future__ import annotations

from routing_agents.runs import problem_of
from routing_gym.problems import PROBLEMS


def check_problems(*names: str) -> None:
    """Refuse what is not a problem with a size, such as TSP-50.

    Raises:
        ValueError: With the name and those there are.
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
