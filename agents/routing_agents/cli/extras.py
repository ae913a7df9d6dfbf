"""Installed and missing optional packages, read from the metadata of distributions; nothing is imported."""

from __future__ import annotations

import operator
import re
import sys
from importlib import metadata

NAME = "routing-gym"
COMPARISONS = {">=": operator.ge, "<": operator.lt, "==": operator.eq}


def version(distribution: str) -> str | None:
    """Return the version of a distribution, or None if it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def numbers(text: str) -> tuple[int, ...]:
    """Return the leading numbers of a version: (2, 6, 0) of "2.6.0+cpu"."""
    match = re.match(r"\d+(\.\d+)*", text)
    return tuple(map(int, match[0].split("."))) if match else ()


def satisfies(found: str, specifier: str) -> bool:
    """Return whether a version lies within bounds such as ">=1.2,<2"; other bounds than `COMPARISONS` are ignored."""
    bounds = re.findall(r"(>=|<|==)([\d.]+)", specifier)
    length = 8  # 1.2 equals 1.2.0
    padded = [(numbers(text) + (0,) * length)[:length] for text in (found, *(bound for _, bound in bounds))]
    return all(COMPARISONS[sign](padded[0], limit) for (sign, _), limit in zip(bounds, padded[1:], strict=True))


def requirements() -> dict[str, dict[str, str]]:
    """Return the packages of each of our extras with their version bounds; "" holds the required packages.

    The extra `all`, the sum of the others, is left out. The result is empty if routing-gym is not installed.
    """
    try:
        listed = metadata.requires(NAME) or []
    except metadata.PackageNotFoundError:
        listed = []
    found: dict[str, dict[str, str]] = {}
    for line in listed:
        requirement, _, marker = line.partition(";")
        extra = re.search(r"extra\s*==\s*['\"]([\w-]+)['\"]", marker)
        python = re.search(r"python_version\s*(<|>=)\s*['\"]([\d.]+)['\"]", marker)
        name = re.match(r"\s*([\w.-]+)", requirement)
        if (
            name is None
            or (extra and extra[1] == "all")
            or (python and not satisfies(running_python(), python[1] + python[2]))
        ):
            continue
        specifier = re.sub(r"\[.*?\]", "", requirement)[len(name[0]) :].strip()
        found.setdefault(extra[1] if extra else "", {})[name[1]] = specifier
    return found


def running_python() -> str:
    """Return the version of the running Python."""
    return ".".join(map(str, sys.version_info[:3]))


def missing(extra: str) -> list[str]:
    """Return the packages that an extra lacks, with bounds and version if an installed one does not fit."""
    lacking = []
    for name, specifier in requirements().get(extra, {}).items():
        found = version(name)
        if found is None:
            lacking.append(name)
        elif not satisfies(found, specifier):
            lacking.append(f"{name}{specifier} (found {found})")
    return lacking
