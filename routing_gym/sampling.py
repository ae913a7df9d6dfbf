"""Random legal actions for many lanes at once."""

from __future__ import annotations

import numpy as np
from array_api_compat import array_namespace, device

from routing_gym.arrays import Array, to_numpy


def sample_actions(action_mask: Array, rng: np.random.Generator) -> Array:
    """Sample uniformly among the legal nodes of each row.

    It draws the rank of a node among the legal ones, one integer per row. The usual argmax of masked random keys
    draws one number per node, prefers the first of equal keys, and selects an illegal node if all legal keys are 0.

    Args:
        action_mask: Mask of the legal actions (..., A), bool or int8 like `obs["action_mask"]`; NumPy, torch or JAX.
        rng: Random number generator; the same one gives the same actions on every backend.

    Returns:
        Actions: int64 (...), without the last axis (JAX without 64 bits: int32), on the backend and device of the mask.

    Raises:
        TypeError: `rng` is not a random number generator.
        ValueError: The mask has no axis or values above 1, or a row has no legal node.
    """
    if not hasattr(rng, "integers"):
        raise TypeError(f"rng: expected a numpy.random.Generator, such as np.random.default_rng(0), got {rng!r}")
    mask = to_numpy(action_mask)
    legal = mask != 0
    if legal.ndim == 0:
        raise ValueError(f"action_mask: expected shape (..., A), such as one row per lane; got {action_mask!r}")
    if mask.dtype != np.bool_ and (mask > 1).any():
        raise ValueError(
            "action_mask: expected 0 and 1, found a larger value; masks of a MultiBinary space, such as DVRPTW's, hold "
            "2: for each row, call single_action_space.sample(mask=row)"
        )
    shape, legal = legal.shape[:-1], legal.reshape(-1, legal.shape[-1])
    counts = np.count_nonzero(legal, axis=1)
    if not counts.all():
        row = ", ".join(map(str, np.unravel_index(np.argmin(counts), shape)))
        raise ValueError(
            f"action_mask: row {row or 0} has no legal node; pass the observation's mask, "
            "which always has one (infos are 0 in lanes that a reset_mask leaves out)"
        )
    starts = np.cumsum(counts) - counts  # index of each row's first legal node in the list of all
    chosen = np.flatnonzero(legal)[starts + rng.integers(0, counts)]
    actions = (chosen - legal.shape[1] * np.arange(len(legal))).reshape(shape)
    if isinstance(action_mask, np.ndarray):
        return actions
    return array_namespace(action_mask).asarray(actions, device=device(action_mask))
