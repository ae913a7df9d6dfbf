"""Checks that the scripts make of their arguments; the errors name the option."""

from __future__ import annotations

import math
from typing import Any


def check_at_least(minimum: int, args: Any, *names: str) -> None:
    """Refuse smaller values of some fields of `args`.

    Raises:
        ValueError: With the option and its value.
    """
    for name in names:
        if getattr(args, name) < minimum:
            raise ValueError(f"{option(name)} must be at least {minimum}, got {getattr(args, name)}")


def check_positive(args: Any, *names: str) -> None:
    """Refuse values that are not positive and finite; None stands for a default.

    Raises:
        ValueError: With the option and its value.
    """
    for name in names:
        value = getattr(args, name)
        if value is not None and not 0 < value < math.inf:
            raise ValueError(f"{option(name)} must be positive, got {value}")


def option(name: str) -> str:
    """Return how a field is written on the command line."""
    return "--" + name.replace("_", "-")
