"""Checks of user input: sizes, instances, tours. Each error message has the location, the value and the remedy."""

from __future__ import annotations

import sys
from collections.abc import Collection
from dataclasses import MISSING, fields
from typing import Any

import numpy as np
import numpy.typing as npt
from array_api_compat import array_namespace, is_jax_array, is_torch_array

from routing_gym.arrays import Array, IntArray, any_array, cast_instance, device_of, euclidean, to_numpy
from routing_gym.problem import AnyProblem, InfeasibleTour, InvalidInstance, instance_fields
from routing_gym.problems.geometry import MAX_FLOAT

TOLERANCE = 1e-6  # of `objective` on limits of lengths and prizes (sums of float32); masks allow half of it on lengths
MAX_PENALTY = 1e9  # beyond it, the sum of the other penalties would be lost in rounding errors
KINDS = {"b": "booleans", "f": "floating-point numbers", "i": "integers"}  # of dtypes, for messages
MOST = 2**31 - 1  # largest count, so that sums of counts fit into int64


def check_instance_type(problem: AnyProblem, drawn: type, what: str) -> None:
    """Check that a generator's instances are of the problem's instance class.

    Raises:
        ValueError: They are not. In the message, `what` names the generator and its problems.
    """
    if problem.instance_type is not drawn:
        raise ValueError(f"{what}, not of {problem.name}; choose another generator")


def checked_instance(problem: Any, instance: Any, source: str = "instance") -> Any:
    """Check instances from the user and convert them to NumPy, with the dtypes of the contract.

    Args:
        problem: Problem or game of the instances.
        instance: B instances, on any backend.
        source: Origin of the instances, for the error message.

    Raises:
        TypeError: The instances are not of the problem's instance class.
        InvalidInstance: See `Problem.validate`.
    """
    if type(instance) is not problem.instance_type:  # a subclass may have fields that the problem ignores
        expected, found = problem.instance_type.__name__, type(instance).__name__
        public = hasattr(sys.modules["routing_gym"], expected)
        module = "routing_gym" if public else problem.instance_type.__module__
        required = ", ".join(field.name for field in fields(problem.instance_type) if field.default is MISSING)
        raise TypeError(
            f"{source}: expected a {expected}, got {found}; make one as {module}.{expected}({required}), "
            "each array with a leading axis for the instances"
        )
    instance = cast_instance(instance)
    problem.validate(instance)
    return instance


def check_size(problem: AnyProblem) -> None:
    """Check `num_nodes` and `matrices`, and convert NumPy's types to Python's, which JSON can hold.

    Raises:
        ValueError: `num_nodes` is not an integer or too small, `matrices` is not a bool, or the problem does not
            support matrices.
    """
    if isinstance(problem.num_nodes, bool) or not isinstance(problem.num_nodes, (int, np.integer)):
        traced = is_jax_array(problem.num_nodes)
        hint = "; it gives arrays their shape, which JAX has to know: pass it by static_argnums" if traced else ""
        raise ValueError(f"{problem.name}: num_nodes must be an integer, got {problem.num_nodes!r}{hint}")
    if problem.num_nodes < problem.min_nodes:
        raise ValueError(f"{problem.name}: num_nodes must be at least {problem.min_nodes}, got {problem.num_nodes}")
    object.__setattr__(problem, "num_nodes", int(problem.num_nodes))
    object.__setattr__(problem, "matrices", check_flag(f"{problem.name}: matrices", problem.matrices))
    if problem.matrices and not {"coords", "distances"} <= instance_fields(problem):
        raise ValueError(f"{problem.name}: matrices are for problems with coordinates and distances; leave it out")


def check_flag(name: str, value: Any) -> bool:
    """Check that a value is True or False.

    Raises:
        ValueError: It is not.
    """
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def check_integer(name: str, value: Any, minimum: int, maximum: int = MOST) -> int:
    """Return an argument as a Python integer.

    Raises:
        ValueError: The argument is not an integer, less than the minimum, or above the maximum, by default 2**31 - 1.
    """
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < minimum:
        raise ValueError(f"{name} must be an integer of at least {minimum}, got {value!r}")
    if value > maximum:
        raise ValueError(f"{name} must be at most {maximum}, got {value}")
    return int(value)


def check_positive(owner: Any, field: str) -> None:
    """Check that a setting is a positive, finite number, and convert NumPy's numbers to Python's.

    Args:
        owner: Problem or solver: a frozen dataclass with a `name`.
        field: Name of the setting.

    Raises:
        ValueError: The setting is not a positive, finite number. The message has the value.
    """
    value = getattr(owner, field)
    is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not (is_number and 0 < value <= MAX_FLOAT):
        raise ValueError(f"{owner.name}: {field} must be positive and finite, got {value!r}")
    object.__setattr__(owner, field, value.item() if isinstance(value, np.generic) else value)


def check_settings(name: str, kind: Any, settings: Collection[str], fixed: Collection[str] = ()) -> None:
    """Check that settings are fields of a dataclass, and not among the `fixed` ones.

    Raises:
        TypeError: A setting is unknown or fixed. The message lists the known ones.
    """
    known = [field.name for field in fields(kind) if field.name not in fixed]
    if unknown := sorted(set(settings) - set(known)):
        raise TypeError(f"{name} has no setting {', '.join(unknown)}; it has {', '.join(known) or 'none'}")


def check_field(
    instance: Any, field: str, shape: tuple[int, ...], dtype: type, low: float, high: float, hint: str = ""
) -> None:
    """Check one array of an instance for shape, kind, finiteness and range.

    Args:
        instance: Dataclass of NumPy arrays.
        field: Name of the field.
        shape: Shape of one row.
        dtype: `np.int64`, `np.float32` or `np.bool_`.
        low: Smallest valid value.
        high: Largest valid value.
        hint: Remedy for a value out of range.

    Raises:
        InvalidInstance: The field is invalid. The message names the field, the index, the value and the expected one.
    """
    values = getattr(instance, field)
    if not isinstance(values, np.ndarray) or values.dtype != dtype:
        kind, wanted = values.dtype.kind if isinstance(values, np.ndarray) else "", np.dtype(dtype).kind
        if kind in KINDS and kind != wanted:  # `cast_instance` may have changed the width: name the kind only
            expected, found = f"{KINDS[wanted]} (e.g. .astype(np.{dtype.__name__}))", KINDS[kind]
        else:
            expected = {np.int64: "an int64", np.bool_: "a bool"}.get(dtype, f"a {np.dtype(dtype).name}") + " array"
            found = f"dtype {values.dtype}" if kind else type(values).__name__
            if is_jax_array(values) or is_torch_array(values):
                found += "; convert the instance with routing_gym.arrays.cast_instance(instance)"
        raise InvalidInstance(f"{field}: expected {expected}, got {found}")
    if values.ndim != 1 + len(shape) or values.shape[1:] != shape:
        expected = str(("B", *shape)).replace("'", "")
        raise InvalidInstance(f"{field}: expected shape {expected}, got {values.shape}")
    if values.shape[0] == 0:
        raise InvalidInstance(f"{field}: the batch is empty; give at least one instance")
    bad = ~((values >= low) & (values <= high))  # also true for nan
    if bad.any():
        place = np.unravel_index(int(np.argmax(bad)), values.shape)
        where = f"row {place[0]}" + (f", index {tuple(map(int, place[1:]))}" if shape else "")
        bounds = f"in [{low:g}, {high:g}]" if high < MAX_FLOAT else f"finite and at least {low:g}"
        remedy = f"; {hint}" if hint else ""
        raise InvalidInstance(f"{field}: {where} is {values[place]}, expected {bounds}{remedy}")


def check_nodes(instance: Any, num_actions: int) -> None:
    """Check coordinates and, if given, distances.

    Raises:
        InvalidInstance: See `check_field` and `check_distances`.
    """
    check_field(
        instance, "coords", (num_actions, 2), np.float32, 0.0, 1.0, "scale both axes into the unit square by one factor"
    )
    if instance.distances is not None:
        check_distances(instance, num_actions)


def check_distances(instance: Any, num_actions: int) -> None:
    """Check the field `distances`, which need not be symmetric.

    Raises:
        InvalidInstance: See `check_field`; or the distance of a node to itself is not 0.
    """
    check_field(instance, "distances", (num_actions, num_actions), np.float32, 0.0, MAX_FLOAT)
    diagonal = np.diagonal(instance.distances, axis1=1, axis2=2)
    if diagonal.any():
        row, node = map(int, np.argwhere(diagonal)[0])
        found = f"row {row}, node {node} is {diagonal[row, node]} away from itself"
        raise InvalidInstance(f"distances: the way from a node to itself must be 0, but {found}")


def check_batch(instance: Any) -> None:
    """Check that all arrays of an instance have the same batch size.

    Raises:
        InvalidInstance: They have not. The message has the sizes.
    """
    sizes = {name: len(value) for name, value in vars(instance).items() if np.ndim(value)}
    if len(set(sizes.values())) > 1:
        raise InvalidInstance(f"the arrays of an instance must have one batch size, got {sizes}")


def check_depot_values(instance: Any, *fields: str, num_depots: int = 1) -> None:
    """Check that per-node arrays are 0 at the depots, which come first.

    Raises:
        InvalidInstance: A value is not 0. The message has the field, the row and the value.
    """
    for field in fields:
        at_depot = getattr(instance, field)[:, :num_depots]
        if at_depot.any():
            row, depot = map(int, np.argwhere(at_depot)[0])
            found = f"row {row} gives the depot (index {depot}) {at_depot[row, depot]}"
            raise InvalidInstance(f"{field}: {found}, expected 0")


def as_tours(actions: Array, batch_size: int, num_actions: int) -> IntArray:
    """Convert tours to int64 NumPy (B, T) after checking shape, type and range.

    Raises:
        ValueError: The shape or type is wrong.
        InfeasibleTour: A node does not exist.
    """
    tours = to_numpy(actions)
    if tours.ndim != 2 or tours.shape[0] != batch_size:
        raise ValueError(f"actions: expected shape ({batch_size}, T), got {tours.shape}")
    if not np.issubdtype(tours.dtype, np.integer):
        raise ValueError(f"actions: expected integers, got {tours.dtype}")
    bad = (tours < 0) | (tours >= num_actions)
    if bad.any():
        row, step = np.argwhere(bad)[0]
        raise InfeasibleTour(row, step, f"node {tours[row, step]} does not exist; nodes are 0 to {num_actions - 1}")
    return tours.astype(np.int64)


def check_each_once(tours: IntArray, num_actions: int, num_depots: int) -> npt.NDArray[np.bool_]:
    """Check that no node except depots is visited twice; return a mask of the visited nodes: bool (B, A).

    Raises:
        InfeasibleTour: A node is visited twice. The step is that of the second visit.
    """
    visited = np.zeros((len(tours), num_actions), dtype=bool)
    np.put_along_axis(visited, tours, True, axis=1)
    others = tours >= num_depots
    if np.count_nonzero(others) > np.count_nonzero(visited[:, num_depots:]):
        for step in range(1, tours.shape[1]):
            again = others[:, step] & (tours[:, :step] == tours[:, [step]]).any(axis=1)
            if again.any():
                row = int(np.argmax(again))
                raise InfeasibleTour(row, step, f"node {tours[row, step]} is already visited; visit each node once")
    return visited


def check_all_visited(visited: npt.NDArray[np.bool_], first_node: int, num_steps: int) -> None:
    """Check that every node from `first_node` on is visited.

    Raises:
        InfeasibleTour: A node is missing. The message names the first one.
    """
    missing = ~visited[:, first_node:]
    if missing.any():
        row, node = np.argwhere(missing)[0]
        raise InfeasibleTour(row, num_steps, f"node {node + first_node} is not visited; visit every node")


def check_returns(tours: IntArray, num_depots: int = 1) -> None:
    """Check that every tour ends at a depot.

    Raises:
        InfeasibleTour: A tour ends at another node, which the message names, or is empty.
    """
    if tours.shape[1] == 0:
        raise InfeasibleTour(0, 0, "the tour is empty; end it at the depot (0)")
    away = tours[:, -1] >= num_depots
    if away.any():
        row = int(np.argmax(away))
        raise InfeasibleTour(
            row, tours.shape[1] - 1, f"the tour ends at node {tours[row, -1]}; return to the depot (0)"
        )


def check_single_trip(tours: IntArray) -> None:
    """Check that no tour leaves the depot again after returning to it.

    Raises:
        InfeasibleTour: A customer follows the return. The step is that of the first one.
    """
    after_end = (np.cumsum(tours == 0, axis=1) > 0) & (tours > 0)
    if after_end.any():
        row, step = np.argwhere(after_end)[0]
        raise InfeasibleTour(
            row, step, f"node {tours[row, step]} comes after the return to the depot; the tour ends there"
        )


def tour_length(instance: Any, tours: IntArray, closed_at_depot: bool) -> npt.NDArray[np.float64]:
    """Return the lengths of closed tours (B, T): float32 edges, added in float64; with a depot, node 0 is prepended."""
    if closed_at_depot:
        tours = np.pad(tours, ((0, 0), (1, 0)))
    return np.asarray(leg_lengths(instance, tours).sum(axis=1))


def leg_lengths(instance: Any, tours: IntArray) -> npt.NDArray[np.float64]:
    """Return the edge lengths of closed tours (B, T), from each node to the next: float64 (B, T) of float32 values."""
    rows = np.arange(len(tours))[:, None]
    following = np.roll(tours, -1, axis=1)
    if instance.distances is not None:
        return np.asarray(to_numpy(instance.distances)[rows, tours, following].astype(np.float64))
    coords = to_numpy(instance.coords)
    return np.asarray(euclidean(coords[rows, tours], coords[rows, following]).astype(np.float64))


def like(values: npt.NDArray[np.float64], instance: Any) -> Array:
    """Convert a NumPy result to the backend and device of an instance."""
    return array_namespace(any_array(instance)).asarray(values, device=device_of(instance))
