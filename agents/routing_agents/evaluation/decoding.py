"""Decoding of many instances with a model: chunks of a batch are tasks of an executor, optionally stored on disk.

The tours of a chunk do not depend on the executor; sampled tours depend on the seed and on the number of the chunk.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from routing_agents.training.tuning import keep_freed_memory
from routing_gym.arrays import batch_size, select, to_backend
from routing_gym.data.npz import npz_bytes, open_npz
from routing_gym.files import write_atomically
from routing_gym.problem import AnyProblem
from routing_gym.rollout import Rollout
from routing_gym.solvers import Solution
from routing_gym.solvers.runtime.base import FEASIBLE, NO_NODE
from routing_gym.solvers.runtime.executors import usable_cores
from routing_gym.solvers.runtime.pool import Processes
from routing_gym.solvers.runtime.rows import row_seed
from routing_gym.solvers.runtime.work import Executor, Lost, Results, Task, Work

CHUNK_SIZE = 1_024  # instances
TASK_SECONDS = 1.0  # duration of a task; sending it and its result takes some milliseconds
MOST_CHUNKS = 64  # chunks of a task, which is one message
VERSION = 2  # version of the files and of decoding; increase it when tours change
Advance = Callable[[int], None]  # called with the number of instances done


@dataclass(frozen=True)
class Decoder:
    """Decoding function with its network.

    Attributes:
        network: Network that decodes.
        decode: Function of network, problem, instances, `tours_at_once`, `progress`, and `generator` if `random`.
        random: Whether the function draws random numbers.
    """

    network: torch.nn.Module
    decode: Callable[..., Rollout]
    random: bool = False


@dataclass(frozen=True)
class Chunk:
    """Tours of a chunk: int32 (B, T), and the seconds that decoding took."""

    actions: npt.NDArray[np.int32]
    seconds: float


def threads_of(executor: Executor | None) -> int | None:
    """Return the number of threads of each worker process; None for other executors.

    Processes share the cores; Ray sets the number itself.
    """
    return max(1, usable_cores() // executor.num_workers) if isinstance(executor, Processes) else None


class DecodeWork(Work):
    """Work that decodes chunks.

    Args:
        name: Name for messages.
        problem: Problem of the instances.
        decoder: Decoding function with its network.
        seed: Random seed of the whole batch.
        tours_at_once: Number of tours decoded at a time; see `solve`.
        device: Device of the workers; on Ray, each worker has its own GPU unless this is "cpu".
        threads: Number of threads of each worker; None leaves the number unchanged.
    """

    def __init__(
        self,
        name: str,
        problem: AnyProblem,
        decoder: Decoder,
        seed: int,
        tours_at_once: int | None = None,
        device: str = "cpu",
        threads: int | None = None,
    ) -> None:
        self.name, self.problem, self.decoder, self.seed = name, problem, decoder, seed
        self.tours_at_once, self.device, self.threads = tours_at_once, device, threads
        self.num_gpus = 0 if device == "cpu" else 1

    def load(self) -> None:
        if self.threads is not None:
            torch.set_num_threads(self.threads)
        keep_freed_memory()
        self.decoder.network.to(self.device)

    def do(self, instance: Any, number: int, progress: Advance | None = None) -> Chunk:
        started = time.perf_counter()
        found = self.decoder.decode(
            self.decoder.network,
            self.problem,
            to_backend(self.problem.rescale(instance), "torch", self.device),
            tours_at_once=self.tours_at_once,
            progress=progress,
            **({"generator": self.generator(number)} if self.decoder.random else {}),
        )
        return Chunk(found.actions.cpu().numpy().astype(np.int32), time.perf_counter() - started)

    def generator(self, number: int) -> torch.Generator:
        """Return the random number generator of a chunk."""
        return torch.Generator(self.device).manual_seed(row_seed(self.seed, number))


class Tours:
    """Chunks on disk: a folder with manifest.json, which has the settings, and a file for each chunk of instances.

    Args:
        folder: Parent folder, with one such folder for each model, problem and setting.
        about: All settings on which the tours depend, except for the instances.

    Raises:
        OSError: The folder cannot be created or written to.
    """

    def __init__(self, folder: Path, about: dict[str, Any]) -> None:
        manifest = json.dumps({"version": VERSION, **about}, sort_keys=True, indent=2) + "\n"
        name = f"{about['problem']}-{about['num_nodes']}-{sha256(manifest.encode()).hexdigest()[:12]}"
        self.folder = folder / name
        self.folder.mkdir(parents=True, exist_ok=True)
        write_atomically(self.folder / "manifest.json", manifest.encode())

    def path(self, number: int, instance: Any) -> Path:
        return self.folder / f"chunk-{number:06}-{fingerprint(instance)[:16]}.npz"

    def read(self, number: int, instance: Any) -> Chunk | None:
        """Return the tours of a chunk of these instances, or None if there is no such file.

        Raises:
            ValueError: The file is damaged.
        """
        try:
            with open_npz(self.path(number, instance), "tours", "delete it to decode again") as file:
                return Chunk(file["actions"], float(file["seconds"]))
        except FileNotFoundError:
            return None

    def write(self, number: int, instance: Any, chunk: Chunk) -> None:
        """Write a chunk, complete or not at all."""
        content = npz_bytes(actions=chunk.actions, seconds=np.array(chunk.seconds))
        write_atomically(self.path(number, instance), content)


def fingerprint(instance: Any) -> str:
    """Return a hash of instances (NumPy)."""
    digest = sha256()
    for name, values in vars(instance).items():
        if values is not None:
            digest.update(f"{name} {values.dtype.str} {values.shape}".encode())
            digest.update(np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()


def decode_all(
    work: DecodeWork,
    instance: Any,
    executor: Executor | None = None,
    first_row: int = 0,
    chunk_size: int = CHUNK_SIZE,
    tours: Tours | None = None,
    advance: Advance = lambda done: None,
    is_bound: bool = False,
) -> Solution:
    """Decode any number of instances, chunk by chunk, and score the tours.

    Args:
        work: Work that decodes a chunk.
        instance: B instances, NumPy.
        executor: Executor that decodes the chunks; None for this process, which reports after each step of decoding.
        first_row: Index of the first instance in a larger batch, a multiple of the chunk size.
        chunk_size: Number of instances of a chunk.
        tours: Chunks on disk, which are read if they exist and written otherwise.
        advance: Called with the number of instances done.
        is_bound: See `Solution`.

    Returns:
        Solutions, scored by `Problem.objective`; rows of chunks whose workers died have failed.

    Raises:
        ValueError: A chunk on disk is damaged, or holds tours of other instances.
        WorkersNotReady: The workers do not start.
    """
    num_rows = batch_size(instance)
    parts = {start: select(instance, slice(start, start + chunk_size)) for start in range(0, num_rows, chunk_size)}
    found: dict[int, Solution] = {}  # scored as they come: all at once take gigabytes for a million instances
    for start, part in parts.items():
        if tours is not None and (known := tours.read((first_row + start) // chunk_size, part)) is not None:
            found[start] = score(work.problem, part, known, is_bound)
            advance(batch_size(part))
    todo = ((start, (part, (first_row + start) // chunk_size)) for start, part in parts.items() if start not in found)
    with closing(here(work, todo, advance) if executor is None else by_throughput(work, todo, executor)) as results:
        for start, result in results:
            found[start] = score(work.problem, parts[start], result, is_bound)
            if tours is not None and isinstance(result, Chunk):
                tours.write((first_row + start) // chunk_size, parts[start], result)
            if executor is not None:
                advance(batch_size(parts[start]))
    return join([found[start] for start in parts])


def here(work: DecodeWork, tasks: Any, advance: Advance) -> Results:
    """Decode in this process."""
    work.load()
    for start, (part, number) in tasks:
        yield start, work.do(part, number, advance)


class SeveralChunks(Work):
    """Work that decodes several chunks as one task, with the same results as one by one."""

    def __init__(self, work: DecodeWork) -> None:
        self.work, self.name, self.num_gpus = work, work.name, work.num_gpus

    def load(self) -> None:
        self.work.load()

    def do(self, *chunks: tuple[Any, int]) -> list[Chunk]:
        return [self.work.do(*chunk) for chunk in chunks]


def by_throughput(work: DecodeWork, chunks: Iterator[Task], executor: Executor) -> Results:
    """Run chunks in tasks of about `TASK_SECONDS`, by the speed so far; yield the chunks of finished tasks."""
    size, keys = 1, {}

    def tasks() -> Iterator[Task]:
        while group := list(islice(chunks, size)):
            keys[group[0][0]] = [key for key, _ in group]
            yield group[0][0], tuple(arguments for _, arguments in group)

    with closing(executor.run(SeveralChunks(work), tasks())) as results:
        for first, result in results:
            own = keys.pop(first)
            if isinstance(result, Lost):
                result = [Lost(result.reason, result.seconds / len(own))] * len(own)
            else:
                seconds = sum(chunk.seconds for chunk in result) / len(own)
                size = min(max(1, int(TASK_SECONDS / max(seconds, 1e-6))), MOST_CHUNKS)
            yield from zip(own, result, strict=True)


def score(problem: AnyProblem, instance: Any, result: Chunk | Lost, is_bound: bool) -> Solution:
    """Score a chunk; if it is lost, its rows have failed."""
    actions = np.full((batch_size(instance), 1), NO_NODE) if isinstance(result, Lost) else result.actions
    status = result.reason if isinstance(result, Lost) else FEASIBLE
    return Solution.score(problem, instance, actions, result.seconds, status, is_bound)


def join(parts: list[Solution]) -> Solution:
    """Concatenate solutions of consecutive rows."""
    ends = np.cumsum([len(part.cost) for part in parts])
    actions = np.empty((ends[-1], max(part.actions.shape[1] for part in parts)), dtype=np.int64)
    for part, end in zip(parts, ends, strict=True):
        rows, length = slice(end - len(part.cost), end), part.actions.shape[1]
        actions[rows, :length] = part.actions
        actions[rows, length:] = part.actions[:, -1:]  # the closing action, which may be repeated
    return Solution(
        actions,
        np.concatenate([part.cost for part in parts]),
        np.concatenate([part.seconds for part in parts]),
        tuple(status for part in parts for status in part.status),
        parts[0].is_bound,
    )
