"""Comparisons of the contract tests, and the error that they raise."""

from __future__ import annotations

import copy
import dataclasses
from inspect import signature
from typing import Any

import numpy as np
from array_api_compat import is_jax_array, is_torch_array

from routing_gym.arrays import to_numpy


class ContractViolation(AssertionError):
    """A problem or an environment breaks its contract; the message has the part, the location and the value found."""


def expect(condition: Any, subject: Any, where: str, found: str) -> None:
    """Raise `ContractViolation` unless a condition holds."""
    if not condition:
        raise ContractViolation(f"{subject}: {where}: {found}")


def attempt(subject: Any, method: str, *arguments: Any, where: str = "", allowed: type[Exception] | None = None) -> Any:
    """Call a method of a problem or a game and return its result.

    Args:
        subject: Problem or game.
        method: Name of the method.
        *arguments: Arguments of the method.
        where: Location for the message, such as the step.
        allowed: Type of the errors that the method may raise.

    Raises:
        ContractViolation: The method raises another error.
    """
    try:
        return getattr(subject, method)(*arguments)
    except Exception as error:
        if isinstance(error, (ContractViolation, *([allowed] if allowed else []))):
            raise
        expected = f"; the only error allowed here is {allowed.__name__}" if allowed else ""
        place = f"{method}, {where}" if where else method
        kind = type(error).__name__
        remedy = " (use xp.where instead of if)" if kind == "TracerBoolConversionError" else ""
        raise ContractViolation(f"{subject}: {place}: raised {kind}{remedy}: {error}{expected}") from error


def call(subject: Any, method: str, *arguments: Any, where: str = "", allowed: type[Exception] | None = None) -> Any:
    """Call a method like `attempt`, and check that it does not modify its arguments."""
    before = copy.deepcopy(arguments)
    result = attempt(subject, method, *arguments, where=where, allowed=allowed)
    for number, (old, new) in enumerate(zip(before, arguments, strict=True)):
        apart = difference(old, new)
        if apart is not None:
            names = [*signature(getattr(subject, method)).parameters, *map(str, range(number + 1))]
            expect(False, subject, method, f"changed its argument {names[number]}: {apart}")
    return result


def form(value: Any) -> str:
    """Return dtype and shape of an array of any backend as text; the type of another value."""
    return f"{value.dtype} {tuple(value.shape)}" if hasattr(value, "dtype") else type(value).__name__


def expect_array(subject: Any, where: str, value: Any, dtype: str, shape: tuple[int, ...]) -> None:
    """Check that a value is a NumPy array of a dtype and a shape."""
    same = isinstance(value, np.ndarray) and form(value) == f"{dtype} {shape}"
    expect(same, subject, where, f"is {form(value)}, expected an array {dtype} {shape}")


def expect_batch(subject: Any, where: str, batch: Any, kind: type, num_rows: int) -> None:
    """Check that a batch of instances or states is a dataclass of NumPy arrays with `num_rows` rows, or None."""
    expect(type(batch) is kind, subject, where, f"is a {type(batch).__name__}, expected a {kind.__name__}")
    for name, value in vars(batch).items():
        good = value is None or (isinstance(value, np.ndarray) and value.shape[:1] == (num_rows,))
        expect(good, subject, where, f"field {name} is {form(value)}, expected an array with {num_rows} rows")


def expect_same_forms(subject: Any, where: str, old: Any, new: Any) -> None:
    """Check that the fields of a new state have the dtypes and shapes of the old one's, so that JAX compiles once."""
    for name, value in vars(old).items():
        found = f"field {name} becomes {form(getattr(new, name))}, it was {form(value)}; keep dtypes and shapes"
        expect(form(getattr(new, name)) == form(value), subject, where, found)


def difference(first: Any, second: Any, tolerance: float = 0.0) -> str | None:
    """Return the first difference of two nested structures, as text; None if they are equal.

    Dicts, dataclasses, tuples, lists and object arrays are compared by their elements; arrays of any backend by dtype,
    shape and value (32 bits of JAX equal 64 bits); other objects by type and value. A NaN equals nothing, because no
    function should return one.

    Args:
        first: Structure to check.
        second: Expected structure.
        tolerance: Tolerance on floating-point values: absolute up to 1, relative above, because float32 has 7 digits.
    """
    if type(first) is not type(second) and not across_backends(first, second):
        return f"{type(first).__name__} != {type(second).__name__}"
    if isinstance(first, np.ndarray) and first.dtype == second.dtype == object:
        first, second = list(first), list(second)
    if dataclasses.is_dataclass(first):
        first, second = dict(vars(first)), dict(vars(second))
    if isinstance(first, dict):
        if first.keys() != second.keys():
            return f"keys {sorted(first)} != {sorted(second)}"
        pairs = [(f"[{key!r}]", value, second[key]) for key, value in first.items()]
    elif isinstance(first, (list, tuple)):
        if len(first) != len(second):
            return f"length {len(first)} != {len(second)}"
        pairs = [(f"[{place}]", *pair) for place, pair in enumerate(zip(first, second, strict=True))]
    else:
        return leaf_difference(first, second, tolerance)
    for place, one, other in pairs:
        found = difference(one, other, tolerance)
        if found is not None:
            return place + (found if found.startswith("[") else f": {found}")
    return None


def leaf_difference(first: Any, second: Any, tolerance: float) -> str | None:
    """Return the first difference of two arrays or scalars, see `difference`."""
    if not hasattr(first, "dtype") and not across_backends(first, second):
        return None if first == second else f"{first!r} != {second!r}"
    one, other = to_numpy(first), to_numpy(second)
    if is_jax_array(first) and one.dtype.kind == other.dtype.kind:
        one = one.astype(np.result_type(one, other))
    if one.dtype != other.dtype or one.shape != other.shape:
        return f"{one.dtype} {one.shape} != {other.dtype} {other.shape}"
    apart = one != other
    if np.issubdtype(one.dtype, np.floating):
        apart &= ~(np.abs(one - other) <= tolerance * np.maximum(1.0, np.abs(other)))
    if not apart.any():
        return None
    place = np.unravel_index(int(np.argmax(apart)), apart.shape)
    return f"{'' if one.ndim == 0 else f'at {tuple(map(int, place))}: '}{one[place]} != {other[place]}"


def across_backends(first: Any, second: Any) -> bool:
    """Return whether one of two values is a tensor or a JAX array; these have no scalars, only 0-dimensional arrays."""
    return any(is_torch_array(x) or is_jax_array(x) for x in (first, second))
