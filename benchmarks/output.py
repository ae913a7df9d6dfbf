"""The files of figures: what a benchmark writes, with what it was measured with, and reads to continue from."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.hardware import describe_machine
from routing_gym.files import write_atomically

Figures = dict[str, Any]


def read_figures(path: Path) -> Figures:
    """Return the figures that an earlier run has written; none if there is no such file.

    Raises:
        ValueError: The file is damaged, or another program's.
    """
    try:
        figures: Figures = json.loads(path.read_text()) if path.exists() else {}
    except ValueError as error:
        raise ValueError(f"{path}: not the figures of this script: {error}; choose another --out") from error
    return figures


def write_figures(path: Path, figures: Figures, sort_keys: bool = False) -> None:
    """Write figures so that an interruption leaves those that were there before; make the folder.

    Args:
        path: The file.
        figures: All that are to be kept.
        sort_keys: Whether to sort them, if they are measured in any order.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, (json.dumps(figures, indent=2, sort_keys=sort_keys) + "\n").encode())


def finish(args: Any, figures: Figures, *tables: Any, about: Figures | None = None) -> Figures:
    """Print tables, and write figures to `args.out`, with the machine and the arguments; paths stay out.

    Args:
        args: The benchmark's arguments, a dataclass.
        figures: What was measured.
        tables: For the console: rich's, or those of the documentation in Markdown.
        about: What belongs to the machine's description and is particular to this benchmark.

    Returns:
        What was written.
    """
    settings = {name: value for name, value in asdict(args).items() if not holds_path(value)}
    document = {"machine": {**describe_machine(), **(about or {})}, "arguments": settings, **figures}
    console = Console(width=120, markup=False, emoji=False)
    for table in tables:
        console.print(table, soft_wrap=isinstance(table, str))
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(document, indent=2) + "\n")
    return document


def holds_path(value: Any) -> bool:
    """Return whether an argument is a path, or several."""
    return isinstance(value, Path) or (isinstance(value, tuple) and any(map(holds_path, value)))
