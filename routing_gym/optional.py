"""Packages that only some parts need; each is behind an extra, and a missing one gives an error that names it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any


@contextmanager
def explain_missing(package: str, extra: str, script: bool = False) -> Iterator[None]:
    """Let an ImportError in the block name the extra that brings the package.

    Args:
        package: Its name.
        extra: Ours, which installs it.
        script: End the process with the message instead, as a script does that cannot start.

    Raises:
        ImportError: With the package, the cause and the command that installs it.
    """
    try:
        yield
    except ImportError as error:
        message = f'{package} cannot be imported ({error}): pip install ".[{extra}]"'
        if script:
            raise SystemExit(message) from None
        raise ImportError(message) from error


def require(package: str, extra: str) -> Any:
    """Import an optional package.

    Raises:
        ImportError: See `explain_missing`.
    """
    with explain_missing(package, extra):
        return import_module(package)
