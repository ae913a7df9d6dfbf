"""Optional packages. Each belongs to an extra; if it is missing, the error message names the extra."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any


@contextmanager
def explain_missing(package: str, extra: str, script: bool = False) -> Iterator[None]:
    """Context manager that adds to an ImportError the extra which installs the package.

    Args:
        package: Name of the package.
        extra: Extra of this package that installs it.
        script: Whether to exit with the message instead, for scripts.

    Raises:
        ImportError: The package is missing. The message has the package, the cause and the command that installs it.
        SystemExit: The same, with `script`.
    """
    try:
        yield
    except ImportError as error:
        message = f'{package} cannot be imported ({error}): pip install ".[{extra}]" in a checkout'
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
