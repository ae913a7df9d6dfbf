"""What an attribute of the VRP family adds to the rules of CVRP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from routing_gym.arrays import Array, to_numpy
from routing_gym.problems.checks import IntArray
from routing_gym.problems.vrp.batches import Family, VRPInstance, VRPState
from routing_gym.problems.vrp.ways import Ways
from routing_gym.traits import Column

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]


class Move(NamedTuple):
    """One action in every row."""

    xp: Any  # array-API namespace
    node: Array  # int64 (B,), the action
    leg: Array  # float32 (B,), length of the way there
    away: Array  # bool (B,), whether the vehicle comes from a customer
    serves: Array  # bool (B,), whether the node is a customer


@dataclass(frozen=True)
class Walk:
    """Complete tours (B, T) in NumPy, each step with the route it belongs to; what `check` of an attribute reads.

    The step at which a vehicle returns belongs to its route.
    """

    tours: IntArray  # (B, T)
    before: IntArray  # (B, T), node before each step
    start: IntArray  # (B, T), depot node of the route
    at_depot: BoolArray  # (B, T), whether the node is a depot
    begins: BoolArray  # (B, T), whether the node is the first customer of a route
    legs: FloatArray  # (B, T), lengths driven; 0 from a depot to a depot
    travels: FloatArray  # (B, T), durations driven

    def running(self, amounts: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the sums of amounts (B, T) over each route up to and with each step."""
        total, sums = np.zeros_like(amounts[:, 0]), np.empty_like(amounts)
        for step in range(amounts.shape[1]):
            sums[:, step] = total + amounts[:, step]
            total = np.where(self.at_depot[:, step], 0, sums[:, step])
        return sums

    def of(self, values: Array, nodes: IntArray | None = None) -> npt.NDArray[Any]:
        """Return values (B, A) of the nodes visited, or of other nodes (B, T)."""
        return np.take_along_axis(to_numpy(values), self.tours if nodes is None else nodes, axis=1)


class Attribute:
    """One attribute; this class adds nothing. B is the batch size, D the number of depot nodes, A that of all nodes.

    Attributes:
        letters: In the names of problems.
        columns: Fields of the instance that it needs, for data of one's own.
        fields: All fields of the instance that it has.
        per_node: Observations (B, A) that do not change.
        per_depot: Observations (B, A) that do not change, 0 at customers.
        scalars: Observations (B, 1) that change.
        lengths: Observations in the unit of the coordinates.
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
        """Convert random numbers to its fields, given an instance with the fields of the attributes before."""
        return {}

    def validate(self, problem: Family, instance: VRPInstance) -> None:
        """Check the types and values of its fields.

        Raises:
            InvalidInstance: With field, row, value and remedy.
        """

    def initial(self, problem: Family, instance: VRPInstance) -> dict[str, Array]:
        """Return its fields of the state at the start."""
        return {}

    def allows(self, problem: Family, instance: VRPInstance, state: VRPState, ways: Ways | None) -> Array:
        """Mark the customers that it allows next: bool (B, A); what it says of depots does not matter.

        `ways` is None on problems without a limit on lengths or times.
        """
        return True

    def step(self, problem: Family, instance: VRPInstance, old: VRPState, new: dict[str, Array], move: Move) -> None:
        """Update its fields in `new`, those of the next state; the attributes before have updated theirs."""

    def why_illegal(self, problem: Family, instance: VRPInstance, state: VRPState, row: int, node: int) -> str | None:
        """Return the reason, as part of a sentence, why it forbids a customer; None if it does not."""
        return None

    def observe_static(self, problem: Family, instance: VRPInstance) -> dict[str, Array]:
        return {}

    def observe_dynamic(self, problem: Family, instance: VRPInstance, state: VRPState) -> dict[str, Array]:
        return {}

    def observation_spaces(self, problem: Family) -> dict[str, spaces.Space[Any]]:
        """Describe its observations; by default numbers from 0 on."""
        most = float(np.finfo(np.float32).max)
        nodes: dict[str, spaces.Space[Any]] = {
            key: spaces.Box(0.0, most, (problem.num_actions,), np.float32) for key in (*self.per_node, *self.per_depot)
        }
        return nodes | {key: spaces.Box(0.0, most, (1,), np.float32) for key in self.scalars}

    def check(self, problem: Family, instance: VRPInstance, walk: Walk) -> None:
        """Check complete tours, independently of masks.

        Raises:
            InfeasibleTour: With row, step, value, bound and remedy.
        """
