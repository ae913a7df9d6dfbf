"""The contract that every game fulfils: several agents on one map, who act at the same time, each for itself.

The sibling of `Problem`: a frozen dataclass that holds sizes and settings only; instances and states are
batches, frozen dataclasses of arrays, passed in and returned.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, TypeAlias

import numpy as np
import numpy.typing as npt
from array_api_compat import array_namespace
from gymnasium import spaces

from routing_gym.arrays import Array
from routing_gym.problem import InstanceT, StateT


class Game(ABC, Generic[InstanceT, StateT]):
    """Batched rules of one game. Pure: NumPy and torch run the same lines.

    B is the batch size, m = `num_agents`, A = `num_actions`. No method changes its arguments. The rows of a
    batch are independent and may be at different ticks. Agents are exchangeable: to permute them permutes
    what they see and gain, and changes nothing else.

    Attributes:
        num_agents: Agents, from the first tick to the last.
        num_actions: Choices of an agent, or None where actions are vectors, which no mask forbids.
        num_ticks: Every episode takes exactly so many steps.
        num_uniforms: Random numbers that one instance is made from.
        cooperation: Share c in [0, 1] of an agent's reward that is the mean of all gains.
    """

    name: ClassVar[str]
    instance_type: ClassVar[type]

    num_agents: int
    num_ticks: int
    cooperation: float

    @property
    @abstractmethod
    def num_actions(self) -> int | None: ...

    @property
    @abstractmethod
    def num_uniforms(self) -> int: ...

    def generate(self, rng: np.random.Generator, batch_size: int) -> InstanceT:
        """Draw random instances as NumPy arrays, one block of uniforms for each; as `Problem.generate`."""
        return self.from_uniforms(rng.random((batch_size, self.num_uniforms)))

    @abstractmethod
    def from_uniforms(self, uniforms: npt.NDArray[np.float64]) -> InstanceT:
        """Convert float64 (B, num_uniforms) in [0, 1) to B instances."""

    @abstractmethod
    def validate(self, instance: InstanceT) -> None:
        """Check the arrays of a batch of instances (NumPy) that comes from outside.

        Raises:
            InvalidInstance: With the field, the row, the value found and what was expected.
        """

    @abstractmethod
    def permute(self, instance: InstanceT, order: npt.NDArray[np.int64]) -> InstanceT:
        """Give agent i the place of agent order[i] (m,), in every row."""

    @abstractmethod
    def initial(self, instance: InstanceT) -> StateT:
        """Return the state before the first tick."""

    @abstractmethod
    def action_mask(self, instance: InstanceT, state: StateT) -> Array:
        """Mark the legal actions: bool (B, m, A), never all False for an agent. Action 0 is always legal.

        Raises:
            TypeError: Actions are vectors.
        """

    @abstractmethod
    def step(self, instance: InstanceT, state: StateT, action: Array) -> tuple[StateT, Array]:
        """Apply the actions of all agents.

        Args:
            instance: B instances.
            state: B states. Where a row is done, nothing changes.
            action: int64 (B, m), where an illegal one counts as 0; or floats (B, m, ...). Not checked here.

        Returns:
            The new states, and what each agent has gained: float64 (B, m).
        """

    def rewards(self, gains: Array) -> Array:
        """Return (1 - c) own + c mean for gains (B, m), with c = `cooperation`; their sum does not depend on c."""
        mean = array_namespace(gains).mean(gains, axis=1, keepdims=True)
        return (1.0 - self.cooperation) * gains + self.cooperation * mean

    @abstractmethod
    def done(self, instance: InstanceT, state: StateT) -> Array:
        """Mark the rows that have seen all ticks: bool (B,)."""

    @abstractmethod
    def remaining(self, instance: InstanceT, state: StateT) -> Array:
        """Return what is left to gain, for all agents together: float64 (B,)."""

    @abstractmethod
    def observe(self, instance: InstanceT, state: StateT) -> dict[str, Array]:
        """Return what each agent sees: arrays (B, m, ...), as `observation_space` says for one agent."""

    @abstractmethod
    def global_state(self, instance: InstanceT, state: StateT) -> Array:
        """Return everything there is to know, for central critics: float32 (B, S), as `state_space` says."""

    @abstractmethod
    def observation_space(self) -> spaces.Dict:
        """Describe what one agent sees; the same for all."""

    @abstractmethod
    def action_space(self) -> spaces.Space[Any]:
        """Describe what one agent does; the same for all."""

    @abstractmethod
    def state_space(self) -> spaces.Box:
        """Describe one row of `global_state`."""

    @abstractmethod
    def replay(self, instance: InstanceT, actions: Array) -> Array:
        """Score whole games, independently of `step`.

        Args:
            instance: B instances.
            actions: (B, T, m) integers or (B, T, m, ...) floats, with T at most `num_ticks`.

        Returns:
            What each agent has gained: float64 (B, m), on the backend of the instance.

        Raises:
            ValueError: `actions` has the wrong shape or type, or an action does not exist.
        """


AnyGame: TypeAlias = Game[Any, Any]  # where the types of instance and state do not matter
