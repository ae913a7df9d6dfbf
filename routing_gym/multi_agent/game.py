"""The contract that every game fulfils: several agents on one instance act simultaneously and compete.

Like a `Problem`, a game is a frozen dataclass that holds sizes and settings only. Instances and states are passed in
and returned as batches: frozen dataclasses of arrays.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, TypeAlias

import numpy as np
import numpy.typing as npt
from array_api_compat import array_namespace
from gymnasium import spaces

from routing_gym.arrays import Array
from routing_gym.problem import InstanceT, StateT, check_draw


class Game(ABC, Generic[InstanceT, StateT]):
    """Batched rules of one game. Pure: NumPy and torch run the same lines.

    B is the batch size, m = `num_agents`, A = `num_actions`. No method changes its arguments. The rows of a
    batch are independent and may be at different ticks. Agents are exchangeable: permuting them permutes
    their observations and gains, and changes nothing else.

    Attributes:
        num_agents: Number of agents, constant during an episode.
        num_actions: Number of choices of an agent; None if actions are vectors, which are all legal.
        num_ticks: Number of steps of every episode.
        num_uniforms: Number of uniform random numbers from which one instance is drawn.
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
        """Draw random instances as NumPy arrays, one block of uniforms for each; see `Problem.generate`."""
        check_draw(rng, batch_size)
        return self.from_uniforms(rng.random((batch_size, self.num_uniforms)))

    @abstractmethod
    def from_uniforms(self, uniforms: npt.NDArray[np.float64]) -> InstanceT:
        """Convert float64 (B, num_uniforms) in [0, 1) to B instances."""

    @abstractmethod
    def validate(self, instance: InstanceT) -> None:
        """Check the arrays of a batch of instances (NumPy) from the user.

        Raises:
            InvalidInstance: An array is invalid. The message names the field, the row, the value found and the expected
                one.
        """

    @abstractmethod
    def permute(self, instance: InstanceT, order: npt.NDArray[np.int64]) -> InstanceT:
        """Return instances in which agent i has the place of agent order[i] (m,), in every row."""

    @abstractmethod
    def initial(self, instance: InstanceT) -> StateT:
        """Return the state before the first tick."""

    @abstractmethod
    def action_mask(self, instance: InstanceT, state: StateT) -> Array:
        """Return a mask of the legal actions: bool (B, m, A). Action 0 is always legal.

        Raises:
            TypeError: The actions of the game are vectors.
        """

    @abstractmethod
    def step(self, instance: InstanceT, state: StateT, action: Array) -> tuple[StateT, Array]:
        """Apply the actions of all agents.

        Args:
            instance: B instances.
            state: B states. Finished rows do not change.
            action: int64 (B, m), where an illegal action is replaced by 0; or floats (B, m, ...). Not checked here.

        Returns:
            The new states, and the gain of each agent: float64 (B, m).
        """

    def rewards(self, gains: Array) -> Array:
        """Return (1 - c) own + c mean for gains (B, m), with c = `cooperation`; their sum does not depend on c."""
        mean = array_namespace(gains).mean(gains, axis=1, keepdims=True)
        return (1.0 - self.cooperation) * gains + self.cooperation * mean

    @abstractmethod
    def done(self, instance: InstanceT, state: StateT) -> Array:
        """Return a mask of the rows in which all ticks are over: bool (B,)."""

    @abstractmethod
    def remaining(self, instance: InstanceT, state: StateT) -> Array:
        """Return the remaining prize, for all agents together: float64 (B,)."""

    @abstractmethod
    def observe(self, instance: InstanceT, state: StateT) -> dict[str, Array]:
        """Return the observations of all agents: arrays (B, m, ...); `observation_space` is that of one agent."""

    @abstractmethod
    def global_state(self, instance: InstanceT, state: StateT) -> Array:
        """Return the complete states, for central critics: float32 (B, S); `state_space` is that of one row."""

    @abstractmethod
    def observation_space(self) -> spaces.Dict:
        """Return the observation space of one agent, the same for all."""

    @abstractmethod
    def action_space(self) -> spaces.Space[Any]:
        """Return the action space of one agent, the same for all."""

    @abstractmethod
    def state_space(self) -> spaces.Box:
        """Return the space of one row of `global_state`."""

    @abstractmethod
    def replay(self, instance: InstanceT, actions: Array) -> Array:
        """Score whole games, independently of `step`.

        Args:
            instance: B instances.
            actions: Actions (B, T, m) as integers or (B, T, m, ...) as floats, with T at most `num_ticks`.

        Returns:
            Total gain of each agent: float64 (B, m), on the backend of the instance.

        Raises:
            ValueError: `actions` has the wrong shape or type, or an action does not exist.
        """


AnyGame: TypeAlias = Game[Any, Any]  # where the types of instance and state do not matter
