"""A progress bar around an iterator, by rich."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from routing_gym.optional import require

Item = TypeVar("Item")


def show_progress(items: Iterable[Item], total: int, description: str, enabled: bool) -> Iterator[Item]:
    """Yield the items, with a bar, a count and the time left on the terminal if enabled.

    Raises:
        ImportError: rich is not installed; names the extra.
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
