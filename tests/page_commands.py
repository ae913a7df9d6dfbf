"""Run the shell commands of a page the way a reader does, top to bottom; `test_docs.py` starts this as a process.

    python tests/page_commands.py README.md

All commands run in this one process, which imports torch once, in the current folder. Only what the page has installed
so far can be imported: `make train` followed by `. .venv/bin/activate`, and `pip install`. What is shortened: nothing
is installed (the packages that the page does not install are hidden), `make test` is not run, and trainings and
evaluations take the sizes of `SHORT`.
"""

from __future__ import annotations

import dataclasses
import re
import shlex
import sys
from collections.abc import Iterator
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from routing_agents.arguments import parse as parse_arguments
from routing_agents.cli import SCRIPTS

ROOT = Path(__file__).parents[1]
SHORT: dict[str, Any] = {
    "epochs": 1,
    "steps_per_epoch": 1,
    "batch_size": 8,
    "held_out": 8,
    "games": 8,
    "total_timesteps": 3_000,
    "num_envs": 128,
    "size": 2,  # instances of an evaluation
    "workers": 1,
    "threads": 1,
}


def shell_commands(text: str) -> list[str]:
    """Return the lines of a page's blocks of shell commands, without comments."""
    blocks = re.findall(r"^```(?:sh|bash)\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    lines = [re.sub(r"(^|\s)#.*", "", line).strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line]


def parse(command: str) -> tuple[Any, Any]:
    """Import the script of a `python` or `routing-gym` command and parse its arguments.

    Raises:
        SystemExit: The arguments are wrong.
    """
    program, script, *arguments = shlex.split(command)
    path = Path(SCRIPTS[script] if program == "routing-gym" else script)
    module = import_module(".".join(path.with_suffix("").parts) if path.parts[0] == "benchmarks" else path.stem)
    return module, parse_arguments(module.Args, "", arguments) if hasattr(module, "Args") else arguments


def needed(name: str, extras: frozenset[str] = frozenset()) -> set[str]:
    """Return the names of the distributions that pip installs for one with some extras."""
    found, todo = set(), [(canonicalize_name(name), extras)]
    while todo:
        one = todo.pop()
        try:
            requires = metadata.requires(one[0]) or []
        except metadata.PackageNotFoundError:  # for another platform
            continue
        if one in found:
            continue
        found.add(one)
        for requirement in map(Requirement, requires):
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in (*one[1], "")):
                todo.append((canonicalize_name(requirement.name), frozenset(requirement.extras)))
    return {distribution for distribution, _ in found}


class Environment:
    """Stands in for the import system's finders, and does not find packages that are not installed.

    Attributes:
        installed: Names of distributions.
        active: Whether the page has activated .venv.
    """

    def __init__(self) -> None:
        self.installed: set[str] = set()
        self.active = False
        self.packages = metadata.packages_distributions()
        self.finders = [*sys.meta_path]
        sys.meta_path[:] = [self]

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Return where a module is, or None for the packages that are not installed."""
        distributions = self.packages.get(name.partition(".")[0])
        if distributions is not None and self.installed.isdisjoint(map(canonicalize_name, distributions)):
            return None
        return next(filter(None, (finder.find_spec(name, path, target) for finder in self.finders)), None)

    def find_distributions(self, *context: Any) -> Iterator[metadata.Distribution]:
        """Find what `importlib.metadata` looks for."""
        for finder in self.finders:
            yield from getattr(finder, "find_distributions", lambda *_: ())(*context)

    def install(self, command: str) -> None:
        """Note what a command installs."""
        if command == "make train":
            self.installed |= needed("routing-gym", frozenset(["agents"])) | needed("fast-tsp")
        elif match := re.fullmatch(r'pip install -e "\.\[([a-z0-9,]+)\]"', command):
            self.installed |= needed("routing-gym", frozenset(match[1].split(",")))
        elif command == ". .venv/bin/activate":
            self.active = True
        elif command != "make test":
            raise SystemExit(f"{command!r}: tests/page_commands.py does not know this command")


def main(page: str) -> None:
    """Run all commands of a page."""
    environment = Environment()
    for command in shell_commands((ROOT / page).read_text()):
        print("$", command, flush=True)
        if not command.startswith(("python ", "routing-gym ")):
            environment.install(command)
            continue
        if not environment.active:
            raise SystemExit(f"{command!r} comes before . .venv/bin/activate, so its packages are missing")
        module, args = parse(command)
        short = {
            key: value for key, value in SHORT.items() if key in {field.name for field in dataclasses.fields(args)}
        }
        if getattr(args, "executor", "") is None:  # which the number of workers is for
            short.pop("workers", None)
        module.main(dataclasses.replace(args, **short))


if __name__ == "__main__":
    main(sys.argv[1])
