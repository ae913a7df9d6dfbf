"""Arrays of many lanes on one backend."""

from __future__ import annotations

from operator import methodcaller
from typing import Any

import numpy as np
import numpy.typing as npt
from array_api_compat import array_namespace
from gymnasium.error import InvalidAction, ResetNeeded
from gymnasium.vector import VectorEnv

from routing_gym.arrays import Array, converter, map_arrays

Lanes = npt.NDArray[np.intp]  # indices of lanes
Observation = dict[str, Any]
Info = dict[str, Any]
NO_LANES = np.zeros(0, dtype=np.intp)
NO_MODE = 'render() does nothing: make the environment with a render_mode, as in render_mode="ansi"'
AnyVectorEnv = VectorEnv[Any, Any, Any]


class LaneArrays:
    """Arrays of B lanes on their backend.

    Attributes:
        shape: (B,), or () for a single environment.
        move: Function that converts an array to the backend and device.
        xp: The backend's array-API namespace.
        copy: Function that copies an array.
        started: Whether the lanes have been reset.
    """

    def __init__(self, shape: tuple[()] | tuple[int], backend: str, device: str | None) -> None:
        self.shape = shape
        self.backend = backend
        self.device = device
        self.copy = methodcaller("clone" if backend == "torch" else "copy")
        self.started = False
        self.connect()

    def connect(self) -> None:
        """Set `move` and `xp` of the backend.

        Raises:
            ValueError: The backend is neither NumPy nor torch, or the device does not exist. JAX's arrays cannot be
                written to.
        """
        if self.backend not in ("numpy", "torch"):
            remedy = "choose numpy or torch" + "; for JAX, use routing_gym.integrations.jax" * (self.backend == "jax")
            raise ValueError(f"backend={self.backend!r}: environments write to their arrays; {remedy}")
        self.move = converter(self.backend, self.device)
        self.xp = array_namespace(self.move(np.zeros(0)))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("move", "xp")}  # cannot be pickled

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.connect()

    @property
    def batch_size(self) -> int:
        return self.shape[0] if self.shape else 1

    def where(self, lanes: Array, first: Array, second: Array) -> Array:
        """Select the first array's rows in the lanes that the bool (B,) marks, the second's elsewhere."""
        return self.xp.where(self.xp.reshape(lanes, (self.batch_size, *(1,) * (second.ndim - 1))), first, second)

    def require_start(self, use: str) -> None:
        """Raise ResetNeeded before the first reset; `use` names the call for the message, such as "step()"."""
        if not self.started:
            raise ResetNeeded(f"call reset() before {use}")

    def as_array(self, actions: Any) -> Array:
        """Convert the user's actions to an array on the backend.

        Raises:
            InvalidAction: They form no array.
        """
        try:
            return self.move(actions if hasattr(actions, "dtype") else np.asarray(actions))
        except (ValueError, TypeError) as error:  # TypeError: raised by torch for arrays of objects
            raise InvalidAction(f"actions: {error}") from error

    def own(self, batch: Any) -> Any:
        """Return a copy of a batch on the backend."""
        return map_arrays(lambda x: self.copy(self.move(x)), batch)

    def place(self, lane: int) -> str:
        """Return the prefix of an error message that names the lane; empty for a single environment."""
        return f"lane {lane}: " if self.shape else ""


def write(target: Array, index: Array, rows: Array) -> Array:
    """Overwrite some rows of an array in place, and return it."""
    target[index] = rows
    return target
