"""Number of tours to decode at a time, and the error raised if memory does not suffice for them.

The attention kernels of torch never store the scores of all pairs of nodes. Unless the encoder reads edges, memory thus
grows with the number of nodes, not with its square; benchmarks/quality/large_instances.py measures it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from routing_agents.policies.protocol import PolicyNetwork
from routing_gym.problem import AnyProblem
from routing_gym.problems.checks import check_integer

MOST_TOURS = 1024  # at a time
MOST_NODES = 2**17  # nodes of these tours; encoding as many takes 1.2 GB with the published models
PAIRS, STEPS = 20, 128  # edges that the encoder reads, and scored steps, that take as much memory as one node


def chunk_size(
    model: PolicyNetwork,
    problem: AnyProblem,
    num_instances: int,
    num_tours: int,
    tours_at_once: int | None,
    together: bool = False,
    views: int = 1,
    scored: bool = False,
) -> tuple[int, int]:
    """Return the number of instances, and of tours per instance, to decode at a time.

    Args:
        model: Policy network.
        problem: Problem of the instances.
        num_instances: Number of instances to decode.
        num_tours: Number of tours per instance.
        tours_at_once: Number of tours at a time; None for `MOST_TOURS`, or fewer if these have more than `MOST_NODES`.
        together: Whether the tours of an instance must be decoded together.
        views: Number of encodings of each instance, which count as instances here.
        scored: Whether all steps of all tours are then scored at the same time, with gradients.

    Returns:
        Number of instances and number of tours of each, both at least 1. If there are several instances, all their
        tours are decoded together.

    Raises:
        ValueError: There are no instances, or `tours_at_once` is no positive integer.
    """
    if not num_instances:
        raise ValueError("the batch is empty; give at least one instance")
    if tours_at_once is not None:
        check_integer("tours_at_once", tours_at_once, 1)
    nodes = problem.num_actions
    if model.features.per_edge:
        nodes += nodes**2 // PAIRS
    if scored:
        nodes *= 1 + problem.horizon // STEPS
    most = tours_at_once or max(1, min(MOST_TOURS, MOST_NODES // nodes))
    instances = min(max(1, most // num_tours), views * num_instances)
    return instances, num_tours if together else min(most, num_tours)


@contextmanager
def named_memory_errors() -> Iterator[None]:
    """Convert torch's out-of-memory errors to a MemoryError with a remedy."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error):
            remedy = "free some memory, or decode fewer tours at a time (--batch-size of a script, or tours_at_once)"
            raise MemoryError(f"{error}; {remedy}") from error
        raise
