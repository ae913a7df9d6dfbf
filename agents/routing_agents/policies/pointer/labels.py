"""Solved instances in blocks on disk: solved once, by several processes, and resumed after an interruption."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from routing_agents.policies.pointer.sequences import PADDING, Answers, Points
from routing_agents.policies.pointer.tasks import TASKS, Task
from routing_gym.data.npz import npz_bytes, open_npz
from routing_gym.files import write_atomically
from routing_gym.solvers.runtime.pool import Processes
from routing_gym.solvers.runtime.progress import show_progress
from routing_gym.solvers.runtime.work import Executor, Inline, Lost, Work

SIZE = 2_500  # instances per block
VERSION = 1  # version of the generator and the labels; increase it when they change


@dataclass(frozen=True)
class Block:
    """Block of solved instances, which depend on these fields only.

    Attributes:
        task: Name of the task.
        labels: Kind of labels, one of the task's.
        num_points: Number of points of each instance, uniform in the unit square.
        seed: Random seed for the points.
        number: Number of the block.
        version: Version of the generator and the labels.
    """

    task: str
    labels: str
    num_points: int
    seed: int
    number: int
    version: int = VERSION

    def path(self, folder: Path) -> Path:
        """Return the path of the block's file."""
        return folder / f"{self.task}-{self.labels}-{self.num_points}-seed{self.seed}-{self.number:03}.npz"

    def solve(self) -> bytes:
        """Draw and solve the instances; return the content of the file."""
        task = TASKS[self.task]
        rng = np.random.default_rng((self.seed, self.num_points, self.number))
        points = rng.random((SIZE, self.num_points, 2), dtype=np.float32)
        answers = task.canonical(points, task.solve(points, self.labels)).astype(np.int16)
        return npz_bytes(about=np.array(json.dumps(asdict(self))), points=points, answers=answers)

    def read(self, folder: Path) -> tuple[Points, Answers]:
        """Read points (SIZE, n, 2) and answers (SIZE, T).

        Raises:
            FileNotFoundError: The file does not exist.
            ValueError: The file is damaged, or holds something else.
        """
        path = self.path(folder)
        with open_npz(path, "solved instances", "delete it to solve again") as file:
            about, points, answers = (file[name] for name in ("about", "points", "answers"))
        if str(about) != (expected := json.dumps(asdict(self))):
            raise ValueError(f"{path}: holds {about}, expected {expected}; delete it to solve again")
        kinds = (points.dtype, answers.dtype) == (np.float32, np.int16)
        fits = points.shape == (SIZE, self.num_points, 2) and answers.shape[:1] == (SIZE,) and answers.ndim == 2
        if not (
            kinds and fits and answers.size and np.isfinite(points).all() and answers_fit(answers, self.num_points)
        ):
            found = f"points {points.dtype} {points.shape} and answers {answers.dtype} {answers.shape}"
            raise ValueError(
                f"{path}: {found} do not fit {SIZE} instances of {self.num_points}; delete it to solve again"
            )
        return points, answers.astype(np.int64)


def answers_fit(answers: Answers, num_points: int) -> bool:
    """Return whether answers are indices of points and padding, and none is empty."""
    return bool(answers.min() >= PADDING and answers.max() < num_points and (answers != PADDING).any(axis=1).all())


def labelled(
    task: Task,
    labels: str,
    counts: dict[int, int],
    seed: int,
    folder: Path,
    workers: int = 1,
    progress: bool = False,
    executor: Executor | None = None,
) -> dict[int, tuple[Points, Answers]]:
    """Return solved instances; blocks that are not on disk are solved and written.

    Args:
        task: One of `TASKS`.
        labels: Kind of labels, one of `task.labels`.
        counts: Number of instances for each number of points. A smaller count gives the first instances of a larger
            one.
        seed: Random seed for the points.
        folder: Folder of the files.
        workers: Number of processes that solve instances.
        progress: Whether to show a progress bar.
        executor: Executor that solves instances instead of processes of this machine, such as a cluster.

    Returns:
        For each number of points: points float32 (count, n, 2), answers int64 (count, T).

    Raises:
        ValueError: There are too few points for the task, the task has no such labels, or a file is damaged or holds
            something else.
        ChildProcessError: A process died.
    """
    check(task, labels, min(counts))
    blocks = {
        n: [Block(task.name, labels, n, seed, number) for number in range(-(-count // SIZE))]
        for n, count in counts.items()
    }
    folder.mkdir(parents=True, exist_ok=True)
    missing = [block for some in blocks.values() for block in some if not block.path(folder).exists()]
    if executor is None:
        executor = Processes(workers) if min(workers, len(missing)) > 1 else Inline()
    executor.prepare(BlockWork())
    for _ in show_progress(make_all(missing, folder, executor), len(missing), f"solving {task.name}", progress):
        pass
    sets = {}
    for n, some in blocks.items():
        points, answers = zip(*(block.read(folder) for block in some), strict=True)
        sets[n] = np.concatenate(points)[: counts[n]], np.concatenate(answers)[: counts[n]]
    return sets


def check(task: Task, labels: str, num_points: int) -> None:
    """Check that a task has the labels and accepts the number of points.

    Raises:
        ValueError: It does not. The message has the accepted values.
    """
    if labels not in task.labels:
        raise ValueError(f"{task.name} has no labels {labels!r}; choose one of {', '.join(task.labels)}")
    if num_points < task.fewest:
        raise ValueError(f"{task.name} needs at least {task.fewest} points, got {num_points}")


class BlockWork(Work):
    """Work that solves blocks; files are written by the main process, since workers of a cluster cannot access them."""

    name = "labels"
    packages = ("scipy",)

    def do(self, block: Block) -> bytes:
        return block.solve()


def make_all(blocks: Sequence[Block], folder: Path, executor: Executor) -> Iterator[None]:
    """Solve the blocks and write their files, yielding after each.

    Raises:
        ChildProcessError: A worker died.
    """
    with closing(executor.run(BlockWork(), ((number, (block,)) for number, block in enumerate(blocks)))) as results:
        for number, content in results:
            if isinstance(content, Lost):
                raise ChildProcessError(f"a process that solved instances {content.reason}; start again")
            write_atomically(blocks[number].path(folder), content)
            yield
