"""The contract that every routing problem fulfils, and the errors it raises.

A problem is a frozen dataclass that holds sizes and settings only. Everything else, the instances and
the states, is passed in and returned: batches of B instances as frozen dataclasses of arrays.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import groupby
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

import numpy as np
from array_api_compat import array_namespace
from gymnasium import spaces

from routing_gym.arrays import Array, IntArray, add_batch_types
from routing_gym.traits import Column, Observations, Route

InstanceT = TypeVar("InstanceT")
StateT = TypeVar("StateT")


class InfeasibleTour(ValueError):
    """A tour breaks a rule of its problem.

    Attributes:
        row: Index of the tour in the batch.
        step: Index of the action; the number of actions if something is missing at the end.
        reason: The broken rule and the remedy.
    """

    def __init__(self, row: int, step: int, reason: str) -> None:
        super().__init__(f"row {row}, step {step}: {reason}")
        self.row = row
        self.step = step
        self.reason = reason

    def __reduce__(self) -> tuple[type[InfeasibleTour], tuple[int, int, str]]:
        """Support pickling, which sends the error from one process to another."""
        return type(self), (self.row, self.step, self.reason)


class InvalidInstance(ValueError):
    """An instance holds arrays of the wrong shape or type, or values that make no sense."""


@dataclass(frozen=True)
class Problem(ABC, Generic[InstanceT, StateT]):
    """Batched rules of one routing problem. Pure: NumPy, torch and JAX run the same lines.

    B is the batch size, A = `num_actions`, n = `num_nodes`. No method changes its arguments. The rows
    of a batch are independent and may be at different steps.

    Attributes:
        num_nodes: Number of customers; of cities where there is no depot.
        num_actions: Number of nodes, the depots included.
        horizon: Upper bound on the steps of an episode, for every valid instance.
        num_uniforms: Number of uniform random numbers from which one instance is drawn.
        columns: Inputs from which users build their own instances.
        matrices: Whether instances are generated and observed with matrices of edge lengths along streets (and of edge
            durations, for problems with times). Only problems with coordinates have this setting.
        observations: Observations that a network embeds, and how it embeds them.
    """

    name: ClassVar[str]  # as in the environment id
    instance_type: ClassVar[type]
    state_type: ClassVar[type]
    has_depot: ClassVar[bool] = True  # node 0, and the next ones if there are several: `num_depots`
    fixed_length: ClassVar[bool] = False  # every episode takes exactly `horizon` steps
    any_first_node: ClassVar[bool] = False  # a tour may be forced to start at any node, as in POMO
    maximises: ClassVar[bool] = False  # the cost is minus a prize, which tables and pictures show
    minimises_longest: ClassVar[bool] = False  # the cost is the length of the longest route
    length_observations: ClassVar[tuple[str, ...]] = ()  # in the unit of the coordinates, like the costs of `step`
    stochastic: ClassVar[bool] = False  # only visits reveal some values: the best of several tours is a bound
    visits_all: ClassVar[bool] = True  # every tour serves every node
    asymmetric: ClassVar[bool] = False  # distances depend on the direction in every instance, not only where given
    plain_routes: ClassVar[bool] = False  # tours are any routes that visit each node once; cost: their total length
    plain_vehicles: ClassVar[bool] = True  # equal vehicles that start at one depot; tables can give planning tasks
    open_routes = False  # vehicles do not return, and the last edge costs nothing; no ClassVar: `VRP` has such a field
    mixed_backhauls = False  # goods of some customers are collected, in any order with the deliveries; like open_routes
    subproblem: ClassVar[str | None] = None  # problem of which subproblems are instances; None: this problem
    families: ClassVar[tuple[str, ...]] = ()  # problems whose weights, trained on their `variants`, also solve this one
    min_nodes: ClassVar[int] = 1
    columns: ClassVar[tuple[Column, ...]] = ()
    observations: ClassVar[Observations] = Observations()

    num_nodes: int
    matrices: bool = field(default=False, kw_only=True)

    @property
    def observed(self) -> Observations:
        """Return `observations`, including the matrices if they are observed."""
        if not self.matrices:
            return self.observations
        timed = any(column.kind == "time" for column in self.columns) and "durations" in instance_fields(self)
        return replace(self.observations, per_edge=("distances", "durations") if timed else ("distances",))

    @property
    def variants(self) -> tuple[str, ...]:
        """Return the names of the problems on which one model can be trained together; the last one is this problem.

        The others have the same instances with fewer attributes.
        """
        return (self.name,)

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        add_batch_types(*(getattr(cls, name) for name in ("instance_type", "state_type") if hasattr(cls, name)))

    @property
    def num_depots(self) -> int:
        """Number of depot nodes, which come first."""
        return int(self.has_depot)

    @property
    def num_actions(self) -> int:
        return self.num_nodes + self.num_depots

    @property
    @abstractmethod
    def horizon(self) -> int: ...

    @property
    @abstractmethod
    def num_uniforms(self) -> int: ...

    def generate(self, rng: np.random.Generator, batch_size: int) -> InstanceT:
        """Draw random instances as NumPy arrays.

        Each instance takes one block of uniforms, so ``generate(rng, a)`` followed by
        ``generate(rng, b)`` equals ``generate(rng, a + b)``.

        Raises:
            TypeError: `rng` is not NumPy's generator, or `batch_size` is not an integer.
            ValueError: `batch_size` is negative.
        """
        check_draw(rng, batch_size)
        return self.from_uniforms(rng.random((batch_size, self.num_uniforms)))

    @abstractmethod
    def from_uniforms(self, uniforms: Array) -> InstanceT:
        """Convert random numbers (B, num_uniforms) in [0, 1), float64 or JAX's float32, to B instances."""

    @abstractmethod
    def validate(self, instance: InstanceT) -> None:
        """Check the arrays of a batch of instances (NumPy) from the user.

        Raises:
            InvalidInstance: An array is invalid. The message names the field, the row, the value found and the expected
                one.
        """

    def rescale(self, instance: InstanceT) -> InstanceT:
        """Rescale instances to the range of the training distribution.

        Optimal tours stay optimal. Costs may change, so score tours on the original instances. Instances generated
        with the default settings, on which networks are trained, must be returned unchanged. By default all instances
        are, because coordinates are already in the unit square.
        """
        return instance

    def cost_in_units(self, cost: float, scale: float) -> float:
        """Convert a cost to the user's units, in which lengths are `scale` times those of the instance.

        By default, costs are lengths, and the prizes of problems that maximise do not depend on the unit of length.
        """
        return cost if self.maximises else cost * scale

    def routes(self, instance: InstanceT, actions: Iterable[int]) -> list[Route]:
        """Split the actions of one row into the routes of vehicles; empty routes are left out.

        Args:
            instance: A batch of one instance.
            actions: Actions of the episode so far, up to its end.
        """
        routes = self.split(list(map(int, actions)))
        return [Route(nodes, amounts) for nodes, amounts in zip(routes, self.amounts(instance, routes), strict=True)]

    def visits(self, actions: Iterable[int]) -> list[int]:
        """Return the nodes of one row in the order of the visits: its routes one after the other, with their depots.

        Args:
            actions: Actions of a complete episode.
        """
        nodes = list(map(int, actions))
        if self.has_depot:
            nodes = [node for route in self.split(nodes) for node in route]
        return [node for node, _ in groupby(nodes)]

    def split(self, actions: list[int]) -> list[list[int]]:
        """Split actions at the depots. Without a depot they form one route, which is closed when complete."""
        if not self.has_depot:
            closed = len(actions) == self.num_nodes and not self.open_routes
            return [actions + actions[:1] if closed else actions] if actions else []
        routes, start = [[0]], 0
        for node in actions:
            if node >= self.num_depots:
                routes[-1].append(node)
                continue
            if len(routes[-1]) > 1 and not self.open_routes:
                routes[-1].append(start)
            start = node
            routes.append([node])
        return [nodes for nodes in routes if len(nodes) > 1]

    def amounts(self, instance: InstanceT, routes: list[list[int]]) -> list[dict[str, tuple[float, float | None]]]:
        """Return the amounts that the vehicle of each route carries or collects, like `Route.amounts`."""
        return [{} for _ in routes]

    @abstractmethod
    def initial(self, instance: InstanceT) -> StateT:
        """Return the state before the first action. No row of it is done."""

    @abstractmethod
    def action_mask(self, instance: InstanceT, state: StateT) -> Array:
        """Return a mask of the legal actions: bool (B, A), with at least one True per row."""

    @abstractmethod
    def step(self, instance: InstanceT, state: StateT, action: Array) -> tuple[StateT, Array]:
        """Apply one legal action in every row.

        A finished row has one legal action, which changes nothing and costs nothing.

        Args:
            instance: B instances.
            state: B states.
            action: int64 (B,), legal in every row; not checked here.

        Returns:
            The new states, and the cost of this step: float32 (B,).
        """

    @abstractmethod
    def done(self, instance: InstanceT, state: StateT) -> Array:
        """Return a mask of the finished rows: bool (B,)."""

    @abstractmethod
    def why_illegal(self, instance: InstanceT, state: StateT, row: int, action: int) -> str:
        """Return the reason why the mask forbids an action in a row, as part of a sentence."""

    @abstractmethod
    def observe_static(self, instance: InstanceT) -> dict[str, Array]:
        """Return the observations that do not change within an episode."""

    @abstractmethod
    def observe_dynamic(self, instance: InstanceT, state: StateT) -> dict[str, Array]:
        """Return the observations that change with every step, without the action mask."""

    def observe(self, instance: InstanceT, state: StateT) -> dict[str, Array]:
        """Return the complete observation: a batch of elements of `observation_space`."""
        mask = self.action_mask(instance, state)
        xp = array_namespace(mask)
        return {
            **self.observe_static(instance),
            **self.observe_dynamic(instance, state),
            "action_mask": xp.astype(mask, xp.int8),
        }

    @abstractmethod
    def observation_space(self) -> spaces.Dict:
        """Return the space of one row of `observe`."""

    @abstractmethod
    def cost_bound(self, instance: InstanceT) -> Array:
        """Return an upper bound on the cost of every legal tour: (B,)."""

    def longest_useful_edge(self, instance: InstanceT, cost: Array) -> Array:
        """Return a length that no edge of an optimal tour exceeds, given the cost of some legal tour: (B,).

        Solvers shorten longer edges; see `shorten_long_edges`. By default no such length is known, and it is infinite.
        Where costs are at least the lengths of all edges, it is the cost.
        """
        return array_namespace(cost).full_like(cost, math.inf)

    @abstractmethod
    def progress(self, instance: InstanceT, state: StateT) -> Array:
        """Return the share of the task that is done: float64 (B,), from 0 to 1.

        Example: the share of the customers served. It never decreases within an episode. The larger it is, the higher
        the return when an illegal action ends the episode; algorithms without masks learn from that.
        """

    @abstractmethod
    def objective(self, instance: InstanceT, actions: Array) -> Array:
        """Check complete tours and compute their cost, independently of `step`.

        Args:
            instance: B valid instances; `validate` checks them.
            actions: Integers (B, T). Tours of problems with a depot end at 0; repeated or trailing
                zeros are accepted. TSP: a permutation of the cities.

        Returns:
            Costs: float64 (B,), on the backend of the instance. Lower is better.

        Raises:
            InfeasibleTour: A tour breaks a rule. The message names the row, the step, the value, the bound and the
                remedy.
            ValueError: `actions` has the wrong shape or type.
        """


def join_routes(routes: Iterable[tuple[int, Sequence[int] | IntArray]], ends: bool = False) -> list[int]:
    """Return the actions for routes of a problem with a depot: the inverse of `Problem.split`.

    Args:
        routes: Depot node and customers of each, perhaps none.
        ends: Whether customers are left out; the tour is then ended by a repeated depot.
    """
    actions, current = [], 0
    for start, customers in routes:
        if len(customers):
            actions += [*([start] if start != current else []), *customers, start]
            current = start
    return [*actions, current] if ends else actions


def check_draw(rng: np.random.Generator, batch_size: int) -> None:
    """Check the arguments of `generate`.

    Raises:
        TypeError: An argument has another type.
        ValueError: The number of instances is negative.
    """
    example = "as in generate(np.random.default_rng(0), 64)"
    if not isinstance(rng, np.random.Generator):
        raise TypeError(f"generate: rng must be a numpy.random.Generator, got {rng!r}; {example}")
    if isinstance(batch_size, bool) or not isinstance(batch_size, (int, np.integer)):
        raise TypeError(f"generate: batch_size must be an integer, got {batch_size!r}; {example}")
    if batch_size < 0:
        raise ValueError(f"generate: batch_size must not be negative, got {batch_size}; {example}")


AnyProblem: TypeAlias = Problem[Any, Any]  # where the types of instance and state do not matter


def instance_fields(problem: AnyProblem) -> set[str]:
    """Return the names of the arrays of a problem's instances."""
    return {field.name for field in fields(problem.instance_type)}
