"""Checks of what the benchmarks are given, before any work is done."""

from __future__ import annotations

from typing import Any

from routing_agents.runs import option, problem_of
from routing_gym.problems import PROBLEMS


def check_counts(args: Any, *names: str) -> None:
    """Refuse counts below one, alone or among several.

    Raises:
        ValueError: With the option and its value.
    """
    for name in names:
        value = getattr(args, name)
        values = value if isinstance(value, tuple) else (value,)
        if not values or min(values) < 1:
            raise ValueError(f"{option(name)} must be at least 1, got {' '.join(map(str, values)) or 'nothing'}")


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
