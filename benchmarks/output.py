"""Files of figures, which a benchmark writes with machine and arguments, and reads to continue."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from benchmarks.hardware import describe_machine
from routing_gym.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure  # not loaded by scripts that measure memory

ROOT = Path(__file__).parents[1]
OUT = ROOT / "runs" / "benchmarks"  # default folder of figures; ignored by git
PUBLISHED = ROOT / "benchmarks" / "results"  # `doc_tables.py` reads these; written only where --out names one
Figures = dict[str, Any]


def read_figures(path: Path, *keys: str) -> Figures:
    """Return the figures of an earlier run; an empty dictionary if the file does not exist.

    Args:
        path: File to read.
        keys: Keys that the figures of this script have. Without keys, figures are those of a script that writes no
            `machine` for the whole file.

    Raises:
        ValueError: The file is damaged, or belongs to another program.
    """
    try:
        figures = json.loads(path.read_text()) if path.exists() else None
    except ValueError as error:
        raise ValueError(f"{path}: not the figures of this script: {error}; choose another --out") from error
    if figures is None:
        return {}
    if not isinstance(figures, dict) or not figures.keys() >= set(keys) or (not keys and "machine" in figures):
        expected = f"expected {', '.join(keys)}" if keys else "they have one machine for all"
        raise ValueError(f"{path}: not the figures of this script: {expected}; choose another --out")
    return figures


def check_same(path: Path, figures: Figures, **settings: Any) -> None:
    """Check that figures, which are continued, have been measured with these arguments.

    Raises:
        ValueError: They have been measured with others, and would be lost.
    """
    before = figures.get("arguments", settings)
    if others := [
        f"--{key} {before.get(key)}, not {value}" for key, value in settings.items() if before.get(key) != value
    ]:
        raise ValueError(f"{path}: measured with {', '.join(others)}; choose another --out")


def write_figures(path: Path, figures: Figures, sort_keys: bool = False) -> None:
    """Write figures atomically: an interruption leaves the previous file. Creates the folder.

    Args:
        path: File to write.
        figures: All figures of the file.
        sort_keys: Whether to sort the keys, for figures that are measured in any order.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, (json.dumps(figures, indent=2, sort_keys=sort_keys) + "\n").encode())


def finish(args: Any, figures: Figures, *tables: Any, about: Figures | None = None) -> Figures:
    """Print tables, and write figures to `args.out`, with the machine and the arguments that are not paths.

    Args:
        args: The benchmark's arguments, a dataclass.
        figures: Measured figures.
        tables: Tables for the console: rich's, or those of the documentation in Markdown.
        about: Additions to the machine's description for this benchmark.

    Returns:
        The document that was written.
    """
    settings = {name: value for name, value in asdict(args).items() if not holds_path(value)}
    document = {"machine": {**describe_machine(), **(about or {})}, "arguments": settings, **figures}
    console = Console(width=120, markup=False, emoji=False)
    for table in tables:
        console.print(table, soft_wrap=isinstance(table, str))
    write_figures(args.out, document)
    return document


def read_kept(path: Path, settings: Figures) -> Figures | None:
    """Return the figures that an earlier run kept in a file, beside their settings; None if there is no file.

    Raises:
        ValueError: They were measured with other settings.
    """
    if not path.exists():
        return None
    figures: Figures = json.loads(path.read_text())
    before, wanted = figures.get("settings") or {}, json.loads(json.dumps(settings))
    if before != wanted:
        others = [key for key in {**wanted, **before} if before.get(key) != wanted.get(key)]
        told = (f"{key} {before.get(key, 'unknown')}, not {wanted.get(key, 'unknown')}" for key in others)
        raise ValueError(f"{path}: measured with {'; '.join(told)}; move it away, or name another --folder")
    return figures


def check_kept(folder: Path, settings: Figures) -> None:
    """Check that all files in a folder, which are shown together, were measured with the same settings.

    Raises:
        ValueError: One of them was measured with other settings.
    """
    for path in sorted(folder.glob("*.json")):
        read_kept(path, settings)


def keep(path: Path, settings: Figures, figures: Figures) -> Figures:
    """Write figures and their settings to a file for `read_kept`; return them."""
    found = {**figures, "settings": settings}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(found).encode())
    return found


def save_picture(figure: Figure, out: Path, published: str, dpi: int = 100) -> Path:
    """Write a picture beside the figures of its benchmark, or into docs if these figures are published.

    Args:
        figure: Picture.
        out: File of the figures.
        published: Path of the picture in docs.
        dpi: Resolution.

    Returns:
        Where the picture was written.
    """
    in_docs = out.resolve().is_relative_to(PUBLISHED)
    path = ROOT / "docs" / published if in_docs else out.with_name(Path(published).name)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=dpi)
    return path


def holds_path(value: Any) -> bool:
    """Return whether an argument is a path, or several."""
    return isinstance(value, Path) or (isinstance(value, tuple) and any(map(holds_path, value)))
