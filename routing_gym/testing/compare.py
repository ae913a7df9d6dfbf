"""Comparisons of the contract tests, and the error that they raise."""

from __future__ import annotations

import copy
import dataclasses
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


def call(subject: Any, method: str, *arguments: Any) -> Any:
    """Call a method of a problem or a game, check that it does not modify its arguments, and return its result."""
    before = copy.deepcopy(arguments)
    result = getattr(subject, method)(*arguments)
    for number, (old, new) in enumerate(zip(before, arguments, strict=True)):
        where = difference(old, new)
        expect(where is None, subject, method, f"changed its argument {number}: {where}")
    return result


def difference(first: Any, second: Any, tolerance: float = 0.0) -> str | None:
    """Return the first difference of two nested structures, as text; None if they are equal.

    Dicts, dataclasses, tuples, lists and object arrays are compared by their elements; arrays of any backend by dtype,
    shape and value (32 bits of JAX equal 64 bits); other objects by type and value. A NaN equals nothing, because no
    function should return one.

    Args:
        first: Structure to check.
        second: Expected structure.
        tolerance: Absolute tolerance on floating-point values.
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
        apart &= ~(np.abs(one - other) <= tolerance)
    if not apart.any():
        return None
    place = np.unravel_index(int(np.argmax(apart)), apart.shape)
    return f"{'' if one.ndim == 0 else f'at {tuple(map(int, place))}: '}{one[place]} != {other[place]}"


def across_backends(first: Any, second: Any) -> bool:
    """Return whether one of two values is a tensor or a JAX array; these have no scalars, only 0-dimensional arrays."""
    return any(is_torch_array(x) or is_jax_array(x) for x in (first, second))
