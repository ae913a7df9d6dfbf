"""Workers on a Ray cluster, or on a local Ray started on this machine.

Ray distributes the workers, their arguments and their results. This module adds what solvers need beyond that: a time
limit for each task, and another attempt if a worker or its machine dies.
"""

from __future__ import annotations

import os
import socket
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from routing_gym.optional import require
from routing_gym.problems.checks import check_integer
from routing_gym.solvers.runtime.work import Executor, Lost, Results, Task, Work, WorkersNotReady

EXTRA = "cluster"
DEPTH = 2  # tasks given to a worker at a time: the second is ready while the result of the first is sent
ATTEMPTS = 3  # attempts at a task whose worker dies
START_LIMIT = 120.0  # seconds to wait for a worker or a node's answer if nothing else happens
CONNECT_LIMIT = 5.0  # seconds
FULL = (
    "Ray's object store is full, and so is the disk to which it moves objects: free space there, or start Ray with a "
    "larger --object-store-memory"
)


@dataclass(frozen=True)
class OnRay(Executor):
    """Executor with workers on Ray. A task whose worker or node dies is tried three times; then it is lost.

    Ray is started if the program has not called `ray.init`, and runs until the program ends.

    Attributes:
        num_workers: Number of workers; None for as many as the cluster has CPUs (or GPUs, if the work needs them).
        address: "auto" for the cluster of this machine, "HOST:6379", or "ray://HOST:10001"; None starts Ray here.

    Raises:
        ValueError: The number of workers is less than one.
    """

    num_workers: int | None = None
    address: str | None = None

    def __post_init__(self) -> None:
        if self.num_workers is not None:
            check_integer("num_workers", self.num_workers, 1)

    def prepare(self, work: Work) -> None:
        ray = connect(self.address, self.num_workers)
        self.size(ray, work)
        check_nodes(ray, work.packages)

    def size(self, ray: Any, work: Work) -> int:
        """Return the number of workers to start.

        Raises:
            ValueError: The cluster has too few resources for them.
        """
        kind, share = ("GPU", work.num_gpus) if work.num_gpus else ("CPU", 1)
        most = int(ray.cluster_resources().get(kind, 0) / share)
        if most < (self.num_workers or 1):
            wanted = f"{self.num_workers or 1} workers with {share:g} {kind} each"
            raise ValueError(f"{wanted} do not fit on the cluster, which has room for {most}; ask for fewer")
        return self.num_workers or most

    def run(self, work: Work, tasks: Iterable[Task]) -> Results:
        """Run the tasks; see `Executor.run`.

        Raises:
            WorkersNotReady: The workers do not start.
            MemoryError: Ray's object store and the disk to which it moves objects are full.
        """
        ray = connect(self.address, self.num_workers)
        source, workers = iter(tasks), []
        try:
            pool = WorkerPool(ray, work)
            workers = pool.workers
            workers += [pool.start() for _ in range(self.size(ray, work))]
            while pool.give_out(source):
                yield from pool.collect()
        except (ray.exceptions.ObjectStoreFullError, ray.exceptions.OutOfDiskError) as error:
            raise MemoryError(FULL) from error
        finally:
            for worker in workers:
                ray.kill(worker.actor)


class Actor:
    """Actor on Ray that has loaded the work once."""

    def __init__(self, work: Work) -> None:
        self.work = work
        work.load()

    def wait_ready(self) -> None:
        """Return when the work is loaded."""

    def do(self, *arguments: Any) -> Any:
        return self.work.do(*arguments)


@dataclass
class Given:
    """Task with the number of its failed attempts."""

    task: Task
    deaths: int = 0


@dataclass(eq=False)
class Worker:
    """Worker with its actor and its tasks; it works on the first of them."""

    actor: Any
    starting: Any  # reference to the end of its start; None once it has started
    queue: dict[Any, Given] = field(default_factory=dict)  # by the references to their results
    since: float = 0.0  # start of the first task


class WorkerPool:
    """Workers and the tasks that they have been given.

    Args:
        ray: The package, connected.
        work: Work of the workers.
    """

    def __init__(self, ray: Any, work: Work) -> None:
        self.ray, self.work = ray, work
        self.shared = ray.put(work)  # sent to each machine once
        options = {"num_cpus": 1, "num_gpus": work.num_gpus, "max_restarts": 0}
        self.actor_class = ray.remote(**options)(Actor)
        self.workers: list[Worker] = []
        self.again: deque[Given] = deque()
        self.failed_starts = 0
        self.last_event = time.perf_counter()  # time of the last result, start or death

    def start(self) -> Worker:
        """Start a worker, which gets ready as soon as a machine has free resources."""
        actor = self.actor_class.remote(self.shared)
        return Worker(actor, actor.wait_ready.remote())

    def give_out(self, source: Iterator[Task]) -> bool:
        """Give tasks to workers that have fewer than `DEPTH`; return whether any task is in progress."""
        for depth in range(1, DEPTH + 1):  # no worker gets a second task while another has none
            for worker in self.workers:
                if worker.starting is not None or len(worker.queue) >= depth:
                    continue
                given = self.again.popleft() if self.again else next(map(Given, source), None)
                if given is None:
                    return self.busy()
                if not worker.queue:
                    worker.since = time.perf_counter()
                worker.queue[worker.actor.do.remote(*given.task[1])] = given
        return True  # every ready worker has its maximum number of tasks

    def busy(self) -> bool:
        return any(worker.queue for worker in self.workers)

    def collect(self) -> Results:
        """Wait for results or deaths; yield the tasks that have ended."""
        owners = {ref: worker for worker in self.workers for ref in worker.queue}
        owners |= {worker.starting: worker for worker in self.workers if worker.starting is not None}
        done, _ = self.ray.wait(list(owners), num_returns=1, timeout=self.patience())
        for ref in done:
            yield from self.finish(ref, owners[ref])
        now = time.perf_counter()
        self.last_event = now if done else self.last_event
        if self.work.hard_limit is not None:
            for worker in list(self.workers):
                seconds = now - worker.since
                if worker.queue and seconds >= self.work.hard_limit:
                    key, _ = self.stop(worker).task
                    yield key, Lost(f"timed out: stopped after {seconds:.0f} s", seconds)
        if not self.busy() and now - self.last_event > START_LIMIT:
            told = f"no worker for {self.work.name} got ready within {START_LIMIT:.0f} s; see `ray status`"
            raise WorkersNotReady(told)

    def patience(self) -> float:
        """Return the number of seconds to wait for the next event."""
        begun = [worker.since for worker in self.workers if worker.queue]
        if self.work.hard_limit is None or not begun:
            return START_LIMIT
        return max(0.0, min(begun) + self.work.hard_limit - time.perf_counter())

    def finish(self, ref: Any, worker: Worker) -> Results:
        """Handle a result, the end of a start, or the death of a worker."""
        errors = self.ray.exceptions
        try:
            result = self.ray.get(ref)
        except errors.RayTaskError as error:
            raise error.cause from None
        except errors.RayError as error:  # the actor died, or the result was lost with its node
            yield from self.replace(worker, error)
            return
        if ref == worker.starting:  # in Ray Client, not the same object
            worker.starting, self.failed_starts = None, 0
            return
        worker.since = time.perf_counter()
        yield worker.queue.pop(ref).task[0], result

    def replace(self, worker: Worker, error: Exception) -> Results:
        """Replace a worker that has died; its task is tried again, or is lost."""
        if worker not in self.workers:  # already handled with another of its tasks
            return
        if worker.starting is not None:
            self.failed_starts += 1
            if self.failed_starts >= ATTEMPTS:
                raise WorkersNotReady(f"a worker for {self.work.name} did not start on Ray: {last_line(error)}")
        seconds = time.perf_counter() - worker.since
        given = self.stop(worker)
        if given is None:
            return
        given.deaths += 1
        if given.deaths < ATTEMPTS:
            self.again.append(given)
        else:
            yield given.task[0], Lost(f"died: its worker ended {ATTEMPTS} times: {last_line(error)}", seconds)

    def stop(self, worker: Worker) -> Any:
        """Replace a worker; return its current task, or None. Its other tasks are given out again."""
        self.ray.kill(worker.actor)
        first, *others = worker.queue.values() or [None]
        self.again.extend(given for given in others if given is not None)
        self.workers[self.workers.index(worker)] = self.start()
        return first


def last_line(error: Exception) -> str:
    """Return the last line of Ray's message; the other lines are a traceback."""
    return str(error).strip().splitlines()[-1].strip()


def connect(address: str | None, num_workers: int | None) -> Any:
    """Connect to a cluster or start Ray here, unless the program has done so; return the package.

    Raises:
        ImportError: Ray is missing; the message names the extra to install.
        ValueError: The cluster cannot be reached, or it runs another version.
    """
    ray = require("ray", EXTRA)
    if ray.is_initialized():
        return ray
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    if address is None:
        ray.init("local", num_cpus=num_workers or os.cpu_count(), include_dashboard=False, **quiet)
        return ray
    host, port = address_of(address)
    answers = False
    try:
        if host is not None:  # Ray itself tries for minutes
            socket.create_connection((host, port), CONNECT_LIMIT).close()
            answers = True
        ray.init(address, **quiet)
    except (OSError, RuntimeError, ValueError) as error:
        if isinstance(error, OSError) and not answers:
            hint = "start one with ray start --head, or leave the address out to start Ray on this machine"
            raise ValueError(f"no Ray cluster answers at {address} ({last_line(error)}); {hint}") from error
        told = " ".join(str(error).split())
        hint = "it needs the same versions of Ray and Python, and RAY_AUTH_MODE=token with the same token if it has one"
        raise ValueError(f"the Ray cluster at {address} cannot be used ({told}); {hint}") from error
    return ray


def address_of(address: str) -> tuple[str | None, int]:
    """Return host and port of an address; the host is None for "auto".

    Raises:
        ValueError: The address is invalid.
    """
    if address == "auto":
        return None, 0
    parts = urlsplit(address if "://" in address else f"gcs://{address}")
    try:
        port = parts.port
    except ValueError:
        port = None
    if parts.scheme not in ("gcs", "ray") or not parts.hostname or port is None:
        raise ValueError(f"address {address!r}: expected auto, HOST:6379 or ray://HOST:10001")
    return parts.hostname, port


def check_nodes(ray: Any, packages: tuple[str, ...]) -> None:
    """Check that every machine of the cluster has the same packages as this one.

    Raises:
        ValueError: A machine lacks a package, or has another version of it.
    """

    def look(names: list[str]) -> dict[str, str | None]:
        """Return versions; runs on each node, without this package, so that its absence can be reported."""
        from importlib import import_module, metadata

        found: dict[str, str | None] = {}
        for name in names:
            try:
                module = import_module(name)
                found[name] = getattr(module, "__version__", None) or metadata.version(name)
            except (ImportError, metadata.PackageNotFoundError):
                found[name] = None
        return found

    names = ["routing_gym", "numpy", *sorted({package.partition(".")[0] for package in packages})]
    here = look(names)
    affinity = require("ray.util.scheduling_strategies", EXTRA).NodeAffinitySchedulingStrategy
    asked = {
        node["NodeManagerHostname"]: ray.remote(look)
        .options(num_cpus=0, scheduling_strategy=affinity(node["NodeID"], soft=False))
        .remote(names)
        for node in ray.nodes()
        if node["Alive"] and node["Resources"].get("CPU")
    }
    for host, ref in asked.items():
        try:
            there = ray.get(ref, timeout=START_LIMIT)
        except ray.exceptions.RayError as error:
            raise ValueError(f"node {host} of the cluster does not answer: {last_line(error)}") from error
        for name, version in here.items():
            if there[name] != version:
                found = f"has {name} {there[name]}" if there[name] else f"lacks {name}"
                raise ValueError(f"node {host} of the cluster {found}; install {name} {version} on every node")
