"""Base class of the attributes of the VRP family, which extend the rules of CVRP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from routing_gym.arrays import Array, BoolArray, FloatArray, IntArray, to_numpy
from routing_gym.problems.vrp.batches import VRPInstance, VRPState
from routing_gym.problems.vrp.contract import Family, Ways
from routing_gym.traits import Column


class Move(NamedTuple):
    """A batch of actions, one in every row."""

    xp: Any  # array-API namespace
    node: Array  # int64 (B,), the action
    leg: Array  # float32 (B,), length of the edge to the node
    away: Array  # bool (B,), whether the vehicle comes from a customer
    serves: Array  # bool (B,), whether the node is a customer


@dataclass(frozen=True)
class Walk:
    """Complete tours (B, T) in NumPy, with the route of each step; the input of `Attribute.check`.

    The step at which a vehicle returns belongs to its route.
    """

    tours: IntArray  # (B, T)
    before: IntArray  # (B, T), node before each step
    start: IntArray  # (B, T), depot node of the route
    at_depot: BoolArray  # (B, T), whether the node is a depot
    begins: BoolArray  # (B, T), whether the node is the first customer of a route
    legs: FloatArray  # (B, T), edge lengths; 0 from a depot to a depot
    travels: FloatArray  # (B, T), edge durations

    def running(self, amounts: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the sums of amounts (B, T) over each route up to and including each step."""
        total, sums = np.zeros_like(amounts[:, 0]), np.empty_like(amounts)
        for step in range(amounts.shape[1]):
            sums[:, step] = total + amounts[:, step]
            total = np.where(self.at_depot[:, step], 0, sums[:, step])
        return sums

    def of(self, values: Array, nodes: IntArray | None = None) -> npt.NDArray[Any]:
        """Return the values (B, A) of the visited nodes, or of other nodes (B, T), as (B, T)."""
        return np.take_along_axis(to_numpy(values), self.tours if nodes is None else nodes, axis=1)


class Attribute:
    """Base class of the attributes, which adds no rule.

    B is the batch size, D the number of depot nodes, A the number of all nodes.

    Attributes:
        letters: Letters of the attribute in the names of problems.
        columns: Input columns of the attribute for users' own instances.
        fields: All fields of the instance that belong to the attribute.
        per_node: Keys of static observations (B, A).
        per_depot: Keys of static observations (B, A), 0 at customers.
        scalars: Keys of dynamic observations (B, 1).
        lengths: Keys of observations in the unit of the coordinates.
    """

    letters: ClassVar[str] = ""
    columns: ClassVar[tuple[Column, ...]] = ()
    fields: ClassVar[tuple[str, ...]] = ()
    per_node: ClassVar[tuple[str, ...]] = ()
    per_depot: ClassVar[tuple[str, ...]] = ()
    scalars: ClassVar[tuple[str, ...]] = ()
    lengths: ClassVar[tuple[str, ...]] = ()
    uniforms_per_customer: ClassVar[int] = 0  # random numbers that `draw` needs
    uniforms_per_depot: ClassVar[int] = 0

    def draw(self, problem: Family, instance: VRPInstance, uniforms: Array) -> dict[str, Array]:
        """Convert random numbers to the attribute's fields; `instance` has the fields of the previous attributes."""
        return {}

    def validate(self, problem: Family, instance: VRPInstance) -> None:
        """Check the types and values of the attribute's fields.

        Raises:
            InvalidInstance: A field is invalid. The message names the field, the row, the value and the remedy.
        """

    def rescale(self, problem: Family, instance: VRPInstance) -> VRPInstance:
        """Bring the attribute's costs to the range of generated instances; see `Problem.rescale`."""
        return instance

    def initial(self, problem: Family, instance: VRPInstance) -> dict[str, Array]:
        """Return the attribute's fields of the initial state."""
        return {}

    def allows(self, problem: Family, instance: VRPInstance, state: VRPState, ways: Ways | None) -> Array:
        """Return a mask of the customers that the attribute allows next: bool (B, A). Values at depots are ignored.

        `ways` is None for problems without a limit on lengths or times.
        """
        return True

    def step(self, problem: Family, instance: VRPInstance, old: VRPState, new: dict[str, Array], move: Move) -> None:
        """Update the attribute's fields in `new`, the fields of the next state, after the previous attributes."""

    def why_illegal(self, problem: Family, instance: VRPInstance, state: VRPState, row: int, node: int) -> str | None:
        """Return the reason why the attribute forbids a customer, as part of a sentence; None if it is allowed."""
        return None

    def observe_static(self, problem: Family, instance: VRPInstance) -> dict[str, Array]:
        return {}

    def observe_dynamic(self, problem: Family, instance: VRPInstance, state: VRPState) -> dict[str, Array]:
        return {}

    def observation_spaces(self, problem: Family) -> dict[str, spaces.Space[Any]]:
        """Return the spaces of the attribute's observations; by default nonnegative numbers."""
        most = float(np.finfo(np.float32).max)
        nodes: dict[str, spaces.Space[Any]] = {
            key: spaces.Box(0.0, most, (problem.num_actions,), np.float32) for key in (*self.per_node, *self.per_depot)
        }
        return nodes | {key: spaces.Box(0.0, most, (1,), np.float32) for key in self.scalars}

    def check(self, problem: Family, instance: VRPInstance, walk: Walk) -> None:
        """Check complete tours, independently of masks.

        Raises:
            InfeasibleTour: A tour breaks a rule. The message names the row, the step, the value, the bound and the
                remedy.
        """
