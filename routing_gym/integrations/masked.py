"""Common part of the RLlib and Tianshou adapters: observations with a separate mask, under the library's keys."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import gymnasium as gym
from gymnasium import spaces
from gymnasium.error import InvalidAction
from gymnasium.vector import AutoresetMode

from routing_gym.wrappers.single import only_row
from routing_gym.wrappers.transforms import flat_space, flatten, row

Observation = dict[str, Any]


@dataclass(frozen=True)
class Library:
    """Requirements of a library for environments."""

    name: str
    observation_key: str
    mask_key: str
    mask_dtype: Any
    autoreset_mode: AutoresetMode
    advice: str  # algorithms that choose legal actions only, for error messages

    @property
    def needs(self) -> dict[str, Any]:
        """Requirements for a `RoutingVectorEnv`; both libraries keep observations for longer than one step."""
        return {"backend": "numpy", "autoreset_mode": self.autoreset_mode.value, "copy": True}

    @contextmanager
    def explain_illegal(self) -> Iterator[None]:
        """Add a note to an InvalidAction: the setting for algorithms without masks, and the algorithms with masks."""
        try:
            yield
        except InvalidAction as error:
            error.add_note(f'An algorithm that knows no masks needs on_illegal="terminate", the default. {self.advice}')
            raise


@dataclass(frozen=True)
class FlatLayout:
    """Layout with two entries: the observation, which includes the mask as a network input, and the mask for choices.

    Attributes:
        library: Library that requires the layout.
        space: Space of one lane's observation, a `spaces.Dict`.
        flat: Whether to join the observation into one float32 vector, like `gymnasium.spaces.flatten`.

    Raises:
        TypeError: The observations are not those of `RoutingEnv`.
    """

    library: Library
    space: Any
    flat: bool

    def __post_init__(self) -> None:
        if not isinstance(self.space, spaces.Dict) or not isinstance(self.space.get("action_mask"), spaces.MultiBinary):
            raise TypeError(f"env: expected the Dict observations of a RoutingEnv, got {self.space}")

    def single_space(self) -> spaces.Dict:
        """Return the space of one lane."""
        space: spaces.Space[Any] = flat_space(self.space) if self.flat else self.space
        mask = spaces.Box(0, 1, self.space["action_mask"].shape, self.library.mask_dtype)
        return spaces.Dict({self.library.observation_key: space, self.library.mask_key: mask})

    def arrange(self, observation: Observation) -> Observation:
        """Arrange the observations of B lanes."""
        seen = flatten(observation, self.space) if self.flat else observation
        mask = observation["action_mask"].astype(self.library.mask_dtype)
        return {self.library.observation_key: seen, self.library.mask_key: mask}

    def arrange_one(self, observation: Observation) -> Observation:
        """Arrange the observation of a single environment."""
        return {key: row(rows, 0) for key, rows in self.arrange(only_row(observation)).items()}


class MaskedEnv(gym.Wrapper[Observation, Any, Observation, Any]):
    """Wrapper of a single environment with the observations that a library expects.

    Args:
        env: A `RoutingEnv`, wrapped or not, with its own observations.
        flat: Whether to join the observation into one float32 vector, which the library's networks need; otherwise it
            stays a dictionary, for your own networks.

    Raises:
        TypeError: The environment has other observations.
    """

    library: ClassVar[Library]

    def __init__(self, env: gym.Env[Observation, Any], *, flat: bool = True) -> None:
        super().__init__(env)
        self.layout = FlatLayout(self.library, env.observation_space, flat)
        self.observation_space = self.layout.single_space()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        return self.layout.arrange_one(observation), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        with self.library.explain_illegal():
            observation, reward, terminated, truncated, info = self.env.step(action)
        return self.layout.arrange_one(observation), reward, terminated, truncated, info
