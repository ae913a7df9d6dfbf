"""Cache of solved rows on disk: later runs do not solve them again, and an interrupted run loses nothing.

There is one .npz file for each combination of solver and settings, problem, number of nodes and seed. In it, the key of
a row is a hash of its instance's arrays and its index in the batch (on which its seed depends). If a batch is extended
later, its first rows are therefore found.
"""

from __future__ import annotations

import dataclasses
import json
import warnings
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from time import monotonic
from typing import Any, ClassVar, Protocol

import numpy as np

from routing_gym.arrays import batch_size
from routing_gym.data.npz import npz_bytes, open_npz
from routing_gym.files import write_atomically
from routing_gym.optional import require
from routing_gym.problem import AnyProblem
from routing_gym.solvers.runtime.rows import RowResult

VERSION = 7  # version of the file layout, the hashes and the solvers; raise it if their tours change
SAVE_INTERVAL = 10.0  # seconds
SAVE_SHARE = 20.0  # saving rewrites the whole file; wait at least this many times its duration
LOCK_LIMIT = 60.0  # seconds to wait for another process that saves
PADDING = -1  # follows the actions of shorter tours


class CachedSolver(Protocol):
    """Members of a `Solver` that the cache uses; a solver is a dataclass of settings."""

    name: ClassVar[str]
    packages: ClassVar[tuple[str, ...]]


class Store:
    """Rows of one batch that are on disk, and new rows to add.

    Args:
        folder: Folder of the files; created if it is missing.
        solver: Solver; its settings are part of the file's name.
        problem: Problem of the batch.
        instance: Batch of instances (NumPy).
        seed: Random seed of the batch.
        first_row: Index of the first instance in a larger batch.

    Raises:
        ImportError: filelock is not installed; the message names the extra.
        ValueError: The file is damaged.
    """

    def __init__(
        self,
        folder: Path | str,
        solver: CachedSolver,
        problem: AnyProblem,
        instance: Any,
        seed: int,
        first_row: int = 0,
    ) -> None:
        given = {field.name: getattr(solver, field.name) for field in dataclasses.fields(solver)}  # type: ignore[arg-type]
        settings = {name: value for name, value in given.items() if value is not None}
        about = {"solver": solver.name, **settings, "problem": problem.name, "nodes": problem.num_nodes, "seed": seed}
        packages = {package.partition(".")[0] for package in solver.packages}
        about |= {"packages": {package: version(package) for package in sorted(packages)}}
        self.about = json.dumps({"version": VERSION, **about}, sort_keys=True)
        name = f"{solver.name}-{problem.name}-{problem.num_nodes}-{sha256(self.about.encode()).hexdigest()[:12]}.npz"
        self.path = Path(folder) / name
        self.lock = require("filelock", "solvers").SoftFileLock(self.path.with_suffix(".lock"), LOCK_LIMIT)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.keys = row_keys(instance, first_row)
        self.rows = read(self.path)
        self.saved = monotonic()
        self.pause = SAVE_INTERVAL
        self.changed = False

    def known(self) -> dict[int, RowResult]:
        """Return the rows of the batch that are on disk."""
        return {row: self.rows[key] for row, key in enumerate(self.keys) if key in self.rows}

    def add(self, row: int, result: RowResult) -> None:
        """Add a solved row, and save every few seconds; failed rows are not kept, so the next run tries them again."""
        if result.failed:
            return
        self.rows[self.keys[row]] = result
        self.changed = True
        if monotonic() - self.saved > self.pause:
            self.save()

    def save(self) -> None:
        """Write all rows, and those that another process has added in the meantime; the file is replaced as a whole.

        If the file cannot be written, for example on a full disk, warn: the results do not depend on it.
        """
        if not self.changed:
            return
        started = monotonic()
        try:
            with self.lock:
                self.rows = {**read(self.path), **self.rows}
                write(self.path, self.about, self.rows)
        except OSError as error:
            warnings.warn(f"solutions are not kept for later runs: {error}", stacklevel=2)
        self.saved = monotonic()
        self.pause = max(SAVE_INTERVAL, SAVE_SHARE * (self.saved - started))
        self.changed = False


def row_keys(instance: Any, first_row: int) -> list[str]:
    """Return a hash for every row of an instance (NumPy) together with its index in the batch."""
    arrays = {name: np.ascontiguousarray(values) for name, values in vars(instance).items() if values is not None}
    layout = json.dumps({name: [values.dtype.str, values.shape[1:]] for name, values in arrays.items()})
    return [
        sha256(
            b"".join([f"{first_row + row} {layout}".encode(), *(values[row].tobytes() for values in arrays.values())])
        ).hexdigest()
        for row in range(batch_size(instance))
    ]


def read(path: Path) -> dict[str, RowResult]:
    """Read the rows of a file by their keys; return an empty dictionary if there is no file.

    Raises:
        ValueError: The file is damaged.
    """
    try:
        with open_npz(path, "solver cache", "delete it to solve again") as file:
            columns = [file[name] for name in ("key", "actions", "seconds", "status")]
    except FileNotFoundError:
        return {}
    return {
        str(key): RowResult(actions[actions != PADDING], float(seconds), str(status))
        for key, actions, seconds, status in zip(*columns, strict=True)
    }


def write(path: Path, about: str, rows: dict[str, RowResult]) -> None:
    """Write a file completely or not at all."""
    results = list(rows.values())
    length = max(len(result.actions) for result in results)
    actions = np.full((len(results), length), PADDING, dtype=np.int64)
    for line, result in zip(actions, results, strict=True):
        line[: len(result.actions)] = result.actions
    content = npz_bytes(
        about=np.array(about),
        key=np.array(list(rows)),
        actions=actions,
        seconds=np.array([result.seconds for result in results]),
        status=np.array([result.status for result in results]),
    )
    write_atomically(path, content)
