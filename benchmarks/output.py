"""What every benchmark does in the end: print its tables, and write its figures and what they were measured with."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.hardware import describe_machine

Figures = dict[str, Any]


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
