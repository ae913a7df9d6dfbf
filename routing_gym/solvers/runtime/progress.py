"""Progress bar around an iterator, drawn by rich."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from routing_gym.optional import require

Item = TypeVar("Item")


def show_progress(items: Iterable[Item], total: int, description: str, enabled: bool) -> Iterator[Item]:
    """Yield the items; if enabled, show a bar, a count and the remaining time on the terminal.

    Raises:
        ImportError: rich is missing; the message names the extra to install.
    """
    if not enabled:
        yield from items
        return
    rich = require("rich.progress", "solvers")
    columns = (*rich.Progress.get_default_columns()[:2], rich.MofNCompleteColumn(), rich.TimeRemainingColumn())
    with rich.Progress(*columns, transient=True) as bar:
        task = bar.add_task(description, total=total)
        for item in items:
            yield item
            bar.advance(task)
