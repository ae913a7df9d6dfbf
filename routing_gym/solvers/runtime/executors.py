"""Executors by name, for command lines."""

from __future__ import annotations

import os
from typing import Literal, Protocol, TypeAlias

from routing_gym.solvers.runtime.on_ray import OnRay
from routing_gym.solvers.runtime.pool import Processes
from routing_gym.solvers.runtime.work import Executor, Inline

ExecutorName: TypeAlias = Literal["inline", "processes", "ray"]


class HasExecutor(Protocol):
    """Arguments of a script that lets the user choose an executor."""

    @property
    def executor(self) -> ExecutorName | None: ...
    @property
    def workers(self) -> int | None: ...
    @property
    def address(self) -> str | None: ...


def executor_of(args: HasExecutor) -> Executor | None:
    """Make the executor named by a script's arguments; return None if none is named.

    Raises:
        ValueError: The arguments are invalid; see `make_executor`.
    """
    if args.executor is not None:
        return make_executor(args.executor, args.workers, args.address)
    if args.address is not None:
        raise ValueError(f"--address {args.address} has no effect without --executor ray; add it")
    return None


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def make_executor(name: ExecutorName, num_workers: int | None = None, address: str | None = None) -> Executor:
    """Make an executor.

    Args:
        name: "inline", "processes" or "ray".
        num_workers: Number of worker processes. None for one per usable core, on Ray one per CPU of the cluster.
        address: Address of a Ray cluster; None starts Ray on this machine.

    Raises:
        ValueError: The name is unknown, the number of workers is less than one, or an address is given without Ray.
    """
    if address is not None and name != "ray":
        raise ValueError(f"address {address} has no effect with executor {name}; choose ray, or leave it out")
    if name == "inline":
        return Inline()
    if name == "processes":
        return Processes(usable_cores() if num_workers is None else num_workers)
    if name == "ray":
        return OnRay(num_workers, address)
    raise ValueError(f"executor must be inline, processes or ray, got {name!r}")
