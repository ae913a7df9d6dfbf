"""How many tours to decode at a time: as many as free memory holds.

The attention kernels of torch never hold the scores of all pairs of nodes, so that memory grows with the number of
nodes, not with its square, where the encoder sees no edges; benchmarks/quality/large_instances.py measures it.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from routing_agents.policies.protocol import PolicyNetwork
from routing_gym import arrays
from routing_gym.arrays import select
from routing_gym.problem import AnyProblem

MOST_TOURS = 1024  # at a time, even where memory would hold more
SHARE = 0.5  # of the free memory that is used: estimates err, and other processes want some too
UNKNOWN = 4 * 10**9  # bytes taken to be free where the system does not say (neither Linux nor CUDA)
HEAP = 2  # bytes that the allocator takes per byte of tensors, at most: up to 1.7 were measured with glibc
WORKSPACE = 20 * 10**6  # bytes that torch's libraries take when first used
FLOAT, INTEGER = 4, 8  # bytes


@dataclass(frozen=True)
class Footprint:
    """Bytes of tensors that decoding holds at its peak, beside the weights, the given instances and the tours found.

    Attributes:
        encoder: Per instance, while it is encoded.
        encoding: Per instance, while it is decoded.
        tour: Per tour that is decoded at the same time.
        copy: Of the instance, per tour, where several tours of it are decoded at the same time.
    """

    encoder: int
    encoding: int
    tour: int
    copy: int

    def peak(self, num_instances: int, num_tours: int) -> int:
        """Bytes that the process needs for `num_tours` tours of each of `num_instances` instances at a time.

        Above what was measured, by less than a factor of 2.5; see the tests.
        """
        per_tour = self.tour + (self.copy if num_tours > 1 else 0)
        tensors = num_instances * max(self.encoder, self.encoding + num_tours * per_tour)
        return WORKSPACE + HEAP * tensors

    def most_tours(self, budget: int) -> int:
        """Return how many tours of one instance fit, copies included; not positive where none does."""
        return ((budget - WORKSPACE) // HEAP - self.encoding) // (self.tour + self.copy)

    def most_instances(self, budget: int, num_tours: int) -> int:
        """Return how many instances fit with all their tours."""
        return (budget - WORKSPACE) // (self.peak(1, num_tours) - WORKSPACE)


def footprint(model: PolicyNetwork, problem: AnyProblem, instance: Any) -> Footprint:
    """Add up the tensors that are alive at the same time while instances are decoded.

    Args:
        model: The network.
        problem: The rules.
        instance: Any number of instances.
    """
    num_nodes = problem.num_actions
    encoder, encoding, per_node, per_tour = model.num_floats()
    row = select(instance, slice(0, 1))
    state = num_bytes(problem.initial(row))
    return Footprint(
        encoder=(num_nodes * encoder + num_nodes**2 * model.floats_per_edge) * FLOAT,
        encoding=num_nodes * encoding * FLOAT,
        # The states before and after the step, what the network holds, and the actions. Per node the mask, the logits
        # and what becomes of them: drawing an action takes most.
        tour=2 * state + (num_nodes * (6 + per_node) + per_tour) * FLOAT + problem.horizon * INTEGER,
        copy=num_bytes(row),
    )


def num_bytes(batch: Any) -> int:
    """Return the size of all arrays of a dataclass."""
    return sum(value.nbytes for value in vars(batch).values() if value is not None)


def chunk_size(
    model: PolicyNetwork,
    problem: AnyProblem,
    instance: Any,
    num_tours: int,
    batch_size: int | None,
    together: bool = False,
    views: int = 1,
    scored: bool = False,
) -> tuple[int, int]:
    """Choose how many instances, and how many tours of each, to decode at a time.

    Args:
        model: The network.
        problem: The rules.
        instance: B instances.
        num_tours: Tours per instance.
        batch_size: Tours at a time; None means `MOST_TOURS`, or fewer, if these take more than `SHARE` of the
            free memory.
        together: Whether the tours of an instance cannot be decoded apart.
        views: Encodings of each instance, which count as instances here.
        scored: Whether all steps of all tours are then scored at the same time, with gradients.

    Returns:
        Instances and tours of each, both at least 1; several instances only with all their tours.

    Raises:
        ValueError: `batch_size` is not positive.
        MemoryError: Not even the fewest tours of one instance fit into all the free memory.
    """
    if batch_size is not None and batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    most, fewest = batch_size or MOST_TOURS, num_tours if together else 1
    rows = views * arrays.batch_size(instance)
    instances, tours = min(max(1, most // num_tours), rows), max(fewest, min(most, num_tours))
    if batch_size is not None:
        return instances, tours
    need, device = footprint(model, problem, instance), arrays.device_of(instance)
    if scored:
        need = replace(need, tour=need.tour * problem.horizon)
    if need.peak(instances, tours) <= SHARE * free_memory(device):
        return instances, tours
    return_freed_memory()
    free = free_memory(device)
    if need.peak(1, fewest) > free:
        raise MemoryError(
            f"{problem.name} with {problem.num_nodes} nodes: decoding {fewest} tour{'s' * (fewest > 1)} at a time "
            f"takes about {need.peak(1, fewest) / 1e9:.2g} GB, but only {free / 1e9:.2g} GB are free; "
            "free some, or set the batch size to 1 to try all the same"
        )
    budget = int(SHARE * free)
    if budget >= need.peak(1, tours):
        return min(instances, need.most_instances(budget, tours)), tours
    return 1, max(fewest, min(tours, need.most_tours(budget)))


def free_memory(device: torch.device, root: Path = Path("/")) -> int:
    """Return the bytes that this process can still take.

    On a GPU, what is free there and what torch keeps unused. On Linux, the least of what the system has available, and
    what the limits of the control groups (containers, batch systems) and `ulimit -v` leave. Elsewhere `UNKNOWN`.

    Args:
        device: Where the tensors lie.
        root: Of the file system that holds /proc and /sys.
    """
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + unused
    proc = root / "proc"
    if device.type != "cpu" or not (proc / "meminfo").exists():
        return UNKNOWN
    available = int(value_of("MemAvailable:", proc / "meminfo")) * 1024
    return max(0, min([available, *left_by_groups(root), *left_by_ulimit(root)]))


@contextmanager
def named_memory_errors() -> Iterator[None]:
    """Convert torch's out-of-memory errors to a MemoryError with a remedy."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error):
            raise MemoryError(f"{error}; free some memory, or set a smaller batch size") from error
        raise


def left_by_ulimit(root: Path) -> list[int]:
    """Return what the limit of this process's address space leaves, if it has one."""
    import resource  # not on Windows

    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return []
    return [limit - 1024 * int(value_of("VmSize:", root / "proc" / "self" / "status"))]


def value_of(key: str, file: Path) -> str:
    """Return the word after `key` at the start of a line.

    Raises:
        OSError: There is no such line.
    """
    for line in file.read_text().splitlines():
        if line.startswith(key):
            return line.removeprefix(key).split()[0]
    raise OSError(f"{file}: no line starts with {key!r}")


def left_by_groups(root: Path) -> list[int]:
    """Return what the limits of this process's control groups (version 2) leave; cached files do not count."""
    groups, left = root / "proc" / "self" / "cgroup", []
    for line in groups.read_text().splitlines() if groups.exists() else []:
        number, _, path = line.split(":", 2)
        if number != "0":
            continue
        top = root / "sys" / "fs" / "cgroup"
        group = top / path.lstrip("/")
        # Every group above this one limits it too. A container sees its own group at the top.
        for level in [group, *(parent for parent in group.parents if parent.is_relative_to(top))]:
            limit = level / "memory.max"
            if limit.exists() and (most := limit.read_text().strip()) != "max":
                cached = int(value_of("inactive_file ", level / "memory.stat"))
                left.append(int(most) - int((level / "memory.current").read_text()) + cached)
    return left


def return_freed_memory() -> None:
    """Hand memory that was freed but kept (see `tuning.keep_freed_memory`) back to the system, so that it counts."""
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)
