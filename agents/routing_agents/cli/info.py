"""`routing-gym info`: versions, extras and hardware, for bug reports."""

from __future__ import annotations

import platform
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

from routing_agents import machine
from routing_agents.cli import extras

WIDTH = 100  # columns of the report


def describe_hardware() -> Iterator[tuple[str, str]]:
    """Yield the lines about the machine: a label and a value."""
    name, flags = machine.processor()
    yield "system", platform.platform()
    yield "processor", name
    yield "instructions", machine.instruction_sets(flags)
    yield "cores", machine.cores()
    yield "memory", machine.memory()
    yield "GPU", machine.gpus()


def describe_software() -> Iterator[tuple[str, str]]:
    """Yield the lines about Python, our version, the packages, and the packages that extras lack."""
    yield "Python", f"{extras.running_python()} ({platform.python_implementation()}, {sys.executable})"
    yield "routing-gym", f"{extras.version(extras.NAME) or 'not installed'} ({Path(__file__).parents[2]})"
    required = extras.requirements()
    names = sorted({name for packages in required.values() for name in packages})
    yield "packages", ", ".join(f"{name} {found}" for name in names if (found := extras.version(name)) is not None)
    lacking = {f"[{extra}]" if extra else "required": extras.missing(extra) for extra in sorted(required)}
    yield "complete", ", ".join(label for label, packages in lacking.items() if not packages)
    yield from ((label, f"lacks {', '.join(packages)}") for label, packages in lacking.items() if packages)


def main(arguments: list[str]) -> str:
    """Return what the command prints: versions, extras and hardware, or its usage.

    Raises:
        SystemExit: Arguments are given; the command takes none.
    """
    if not arguments:
        return report()
    if arguments[0] not in ("-h", "--help"):
        sys.exit(f"routing-gym info: takes no arguments, got {' '.join(arguments)}")
    return "usage: routing-gym info\n\nPrint versions, extras and hardware, for bug reports."


def report() -> str:
    """Return all lines, wrapped."""
    parts = []
    for title, lines in (("software", describe_software()), ("hardware", describe_hardware())):
        parts.append(f"{title}:")
        for label, value in lines:
            start = f"  {label:14}"
            parts.append(textwrap.fill(value or "none", WIDTH, initial_indent=start, subsequent_indent=" " * 16))
    return "\n".join(parts)
