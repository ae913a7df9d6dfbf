"""Shards of an evaluation on several machines: costs of a part of the instances on disk, and their merging."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from routing_agents.evaluation.decoding import join
from routing_gym.data.npz import npz_bytes, open_npz
from routing_gym.files import write_atomically
from routing_gym.solvers import Solution


@dataclass(frozen=True)
class Shard:
    """Part `number` of `count`, from 1 on."""

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Read a shard from text such as "3/8".

        Raises:
            ValueError: The text is not K/N with K from 1 to N.
        """
        match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
        if match is None or not 1 <= int(match[1]) <= int(match[2]):
            raise ValueError(f"--shard {text}: expected K/N with K from 1 to N, such as 3/8")
        return cls(int(match[1]), int(match[2]))

    def rows(self, num_rows: int, chunk_size: int) -> slice:
        """Return the rows of the shard: whole chunks.

        Raises:
            ValueError: There are fewer chunks than shards.
        """
        chunks = -(-num_rows // chunk_size)
        if chunks < self.count:
            raise ValueError(
                f"{num_rows:,} instances are {chunks} chunks of {chunk_size:,}, too few for {self.count} shards; give "
                f"--chunk-size {max(1, num_rows // self.count)}, the same to all"
            )
        first, last = (chunks * number // self.count * chunk_size for number in (self.number - 1, self.number))
        return slice(first, min(last, num_rows))

    def path(self, folder: Path) -> Path:
        return folder / f"shard-{self.number}-of-{self.count}.npz"


def write_shard(
    folder: Path, shard: Shard, rows: slice, about: Mapping[str, Any], solutions: Mapping[str, Solution]
) -> Path:
    """Write costs, seconds and statuses of all methods, complete or not at all; return the file's path."""
    columns: dict[str, Any] = {}
    for number, solution in enumerate(solutions.values()):
        columns[f"cost_{number}"], columns[f"seconds_{number}"] = solution.cost, solution.seconds
        columns[f"status_{number}"] = np.array(solution.status)
    bounds = {name: solution.is_bound for name, solution in solutions.items()}
    note = json.dumps({"about": dict(about), "is_bound": bounds})
    path = shard.path(folder)
    write_atomically(path, npz_bytes(note=np.array(note), rows=np.array([rows.start, rows.stop]), **columns))
    return path


def merge_shards(folder: Path, about: Mapping[str, Any], num_rows: int) -> dict[str, Solution]:
    """Read all shards of a folder, and merge them.

    Args:
        folder: Folder of the shards.
        about: Settings of the evaluation. The shards must have been written with the same, and with the same weights.
        num_rows: Number of instances of the whole evaluation.

    Returns:
        Solutions without tours, by the name of the method.

    Raises:
        ValueError: A shard is missing or damaged, or belongs to another evaluation.
    """
    names = [path.name for path in folder.glob("shard-*-of-*.npz")]
    counts = sorted({int(match[1]) for name in names if (match := re.fullmatch(r"shard-\d+-of-(\d+)\.npz", name))})
    if len(counts) != 1:
        found = f"of {' and of '.join(map(str, counts))}" if counts else "none"
        raise ValueError(f"{folder}: expected the shards of one evaluation, found {found}")
    shards = [Shard(number, counts[0]) for number in range(1, counts[0] + 1)]
    missing = [f"{shard.number}/{shard.count}" for shard in shards if not shard.path(folder).is_file()]
    if missing:
        raise ValueError(f"{folder}: run the evaluation with --shard {', '.join(missing)} first")
    ranges, parts, settings = zip(*(read_shard(shard.path(folder), about) for shard in shards), strict=True)
    for shard, other in zip(shards, settings, strict=True):
        check_same(shard.path(folder), other, settings[0], f"that of {shards[0].path(folder).name}")
    ends = [last for _, last in ranges]
    if [first for first, _ in ranges] != [0, *ends[:-1]] or ends[-1] != num_rows:
        raise ValueError(f"{folder}: the shards do not hold rows 0 to {num_rows:,} in order; evaluate them again")
    return {name: join([part[name] for part in parts]) for name in parts[0]}


def read_shard(path: Path, about: Mapping[str, Any]) -> tuple[list[int], dict[str, Solution], dict[str, Any]]:
    """Read one shard.

    Returns:
        Its first row and the one after its last, solutions without tours by the name of the method, and its settings.

    Raises:
        FileNotFoundError: The file does not exist.
        ValueError: The file is damaged, or belongs to another evaluation.
    """
    with open_npz(path, "shard", "evaluate it again") as file:
        note = json.loads(str(file["note"]))
        rows: list[int] = file["rows"].tolist()
        found = {}
        for number, (name, is_bound) in enumerate(note["is_bound"].items()):
            cost, seconds, status = (file[f"{column}_{number}"] for column in ("cost", "seconds", "status"))
            no_tours = np.full((len(cost), 1), -1, dtype=np.int64)
            found[name] = Solution(no_tours, cost, seconds, tuple(status.tolist()), is_bound)
    check_same(path, note["about"], about, "now it")
    return rows, found, note["about"]


def check_same(path: Path, found: Mapping[str, Any], about: Mapping[str, Any], who: str) -> None:
    """Check that a shard was evaluated with the given settings.

    Raises:
        ValueError: A setting differs; the message names the first one.
    """
    for key, expected in about.items():
        if key not in found:
            raise ValueError(f"{path}: was written by an older version, without {key}; evaluate it again")
        if (other := found[key]) != expected:
            raise ValueError(f"{path}: was evaluated with {key} {other!r}, and {who} is {expected!r}; use the same")
