"""How many tours to decode at a time, and what to do where memory is too little for them.

The attention kernels of torch never hold the scores of all pairs of nodes, so that memory grows with the number of
nodes, not with its square, where the encoder sees no edges; benchmarks/quality/large_instances.py measures it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from routing_agents.policies.protocol import PolicyNetwork
from routing_gym.problem import AnyProblem

MOST_TOURS = 1024  # at a time
MOST_NODES = 2**17  # of these tours; encoding as many takes 1.2 GB with the published models
PAIRS, STEPS = 20, 128  # pairs of nodes whose edge the encoder reads, and scored steps, that take as much as one node


def chunk_size(
    model: PolicyNetwork,
    problem: AnyProblem,
    num_instances: int,
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
        num_instances: Instances to decode.
        num_tours: Tours per instance.
        batch_size: Tours at a time; None means `MOST_TOURS`, or fewer, if these have more than `MOST_NODES`.
        together: Whether the tours of an instance cannot be decoded apart.
        views: Encodings of each instance, which count as instances here.
        scored: Whether all steps of all tours are then scored at the same time, with gradients.

    Returns:
        Instances and tours of each, both at least 1; several instances only with all their tours.

    Raises:
        ValueError: `batch_size` is not positive.
    """
    if batch_size is not None and batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    nodes = problem.num_actions
    if model.features.per_edge:
        nodes += nodes**2 // PAIRS
    if scored:
        nodes *= 1 + problem.horizon // STEPS
    most = batch_size or max(1, min(MOST_TOURS, MOST_NODES // nodes))
    instances = min(max(1, most // num_tours), views * num_instances)
    return instances, num_tours if together else min(most, num_tours)


@contextmanager
def named_memory_errors() -> Iterator[None]:
    """Convert torch's out-of-memory errors to a MemoryError with a remedy."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error):
            raise MemoryError(f"{error}; free some memory, or set a smaller batch size") from error
        raise
