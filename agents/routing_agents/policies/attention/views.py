"""Views of instances: under the symmetries of the square, or with the codes of their nodes in another order."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from routing_agents.policies.attention.matrices import VIEW
from routing_gym import arrays
from routing_gym.arrays import select
from routing_gym.problem import AnyProblem
from routing_gym.problems.geometry import LONG, symmetry

AVOIDED = 3.0  # length of very long edges, relative to the longest of the others


def symmetric_views(problem: AnyProblem, instance: Any, symmetries: range) -> tuple[Any, dict[str, Tensor]]:
    """Repeat B instances for V symmetries (see `decoding.num_symmetries`); return them and their static observation.

    Row b * V + k is instance b under the k-th of the symmetries; symmetry 0 changes nothing. In the observation,
    coordinates are rotated and reflected; with matrices, the codes of the nodes are permuted, and very long edges are
    shortened.
    """
    batch_size, device = arrays.batch_size(instance), arrays.device_of(instance)
    rows, index = (
        torch.arange(batch_size, device=device).repeat_interleave(len(symmetries)),
        np.tile(symmetries, batch_size),
    )
    observation = problem.observe_static(instance)
    observation |= {key: without_very_long(observation[key]) for key in problem.observed.per_edge}
    observation = {key: values[rows] for key, values in observation.items()}
    if "coords" in observation:
        observation |= {"coords": symmetry(observation["coords"], index)}
    if problem.observed.per_edge:
        observation |= {VIEW: torch.as_tensor(index, device=device)}
    return select(instance, rows), observation


def without_very_long(lengths: Tensor) -> Tensor:
    """Return matrices (B, A, A) whose very long edges, such as 999,999 for "no road", are a few times the others.

    The network reads lengths relative to their mean, which such edges would determine. Generated matrices have none.
    """
    median = lengths.masked_fill(lengths <= 0, torch.nan).flatten(1).nanmedian(dim=1).values[:, None, None]
    longest = lengths.masked_fill(lengths > LONG * median, 0).amax(dim=(1, 2), keepdim=True)
    return lengths.minimum(AVOIDED * longest)
