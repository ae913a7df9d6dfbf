"""What RLlib and Tianshou share: the whole observation beside the mask, by the names that a library asks for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.error import InvalidAction
from gymnasium.vector import AutoresetMode

from routing_gym.vector_envs import RoutingVectorEnv

Observation = dict[str, Any]


@dataclass(frozen=True)
class Layout:
    """Two entries: the observation, which still holds the mask as an input for networks, and the mask for choosing.

    Attributes:
        space: Of one lane's observation.
        observation_key: The name of the observation.
        mask_key: The name of the mask.
        mask_dtype: Its type.
        flat: Join the observation into one float32 vector, as `gymnasium.spaces.flatten` does.

    Raises:
        TypeError: The observations are not those of `RoutingEnv`.
    """

    space: spaces.Dict
    observation_key: str
    mask_key: str
    mask_dtype: type[np.float32] | type[np.bool_]
    flat: bool

    def __post_init__(self) -> None:
        if not isinstance(self.space, spaces.Dict) or not isinstance(self.space.get("action_mask"), spaces.MultiBinary):
            raise TypeError(f"env: expected the Dict observations of a RoutingEnv, got {self.space}")

    def single_space(self) -> spaces.Dict:
        """Return the space of one lane."""
        space: spaces.Space[Any] = self.space
        if self.flat:
            box = spaces.flatten_space(space)
            assert isinstance(box, spaces.Box)  # as every entry is flat or one-hot
            space = spaces.Box(box.low.astype(np.float32), box.high.astype(np.float32), dtype=np.float32)
        mask = spaces.Box(0, 1, self.space["action_mask"].shape, self.mask_dtype)  # type: ignore[arg-type]  # bool too
        return spaces.Dict({self.observation_key: space, self.mask_key: mask})

    def arrange(self, observation: Observation) -> Observation:
        """Arrange the observations of B lanes."""
        mask = observation["action_mask"].astype(self.mask_dtype)
        return {self.observation_key: self.flatten(observation) if self.flat else observation, self.mask_key: mask}

    def arrange_one(self, observation: Observation) -> Observation:
        """Arrange the observation of a single environment."""
        rows = self.arrange({key: np.asarray(value)[None] for key, value in observation.items()})
        inner = rows[self.observation_key][0] if self.flat else observation
        return {self.observation_key: inner, self.mask_key: rows[self.mask_key][0]}

    def flatten(self, observation: Observation) -> npt.NDArray[np.float32]:
        """Join the entries of B lanes, nodes as one-hot vectors: float32 (B, features)."""
        columns = []
        for key, space in self.space.items():
            value = observation[key]
            if isinstance(space, spaces.Discrete):
                value = np.eye(space.n, dtype=np.float32)[value]
            columns.append(value.reshape(len(value), -1).astype(np.float32))
        return np.concatenate(columns, axis=1)


def check_vector_env(env: Any, library: str, autoreset_mode: AutoresetMode) -> RoutingVectorEnv:
    """Return a vector environment unless a library cannot use it.

    Raises:
        TypeError: Not a `RoutingVectorEnv`.
        ValueError: With what to pass instead.
    """
    if not isinstance(env, RoutingVectorEnv):
        raise TypeError(f"env: expected a RoutingVectorEnv, got {type(env).__name__}")
    checks = (
        ("backend", env.backend, "numpy"),
        ("autoreset_mode", env.autoreset_mode.value, autoreset_mode.value),
        ("copy", env.copy, True),  # both libraries keep observations for longer than a step
    )
    for name, found, needed in checks:
        if found != needed:
            raise ValueError(f"{library} needs {name}={needed!r}, got {found!r}; pass {name}={needed!r}")
    return env


@contextmanager
def explain_illegal(advice: str) -> Iterator[None]:
    """Add to an InvalidAction what an algorithm that knows no masks needs, and which ones know them."""
    try:
        yield
    except InvalidAction as error:
        error.add_note(f'An algorithm that knows no masks needs on_illegal="terminate", the default. {advice}')
        raise
