"""Checks of what users pass to `routing_gym.integrations.jax`: keys, instances, actions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from routing_gym.arrays import Array, batch_size, cast_instance, check_fits, to_numpy
from routing_gym.optional import explain_missing
from routing_gym.problem import AnyProblem, InvalidInstance
from routing_gym.problems.checks import KINDS, check_batch
from routing_gym.problems.geometry import MATRICES

with explain_missing("JAX", "jax"):
    import jax
    import jax.numpy as jnp

Key = Any  # key from `jax.random.key`, or the older uint32 (2,) from `jax.random.PRNGKey`


def as_key(key: Key, num_axes: int = 0) -> Key:
    """Return a random key, or with `num_axes=1` an array (B,) of keys, as keys of the new type.

    Raises:
        TypeError: The argument is not a single key, or not an array (B,) of keys.
    """
    old = getattr(key, "dtype", None) == jnp.uint32 and key.shape[-1:] == (2,)
    new = jax.random.wrap_key_data(key) if old else key
    if not (hasattr(new, "dtype") and jnp.issubdtype(new.dtype, jax.dtypes.prng_key) and new.ndim == num_axes):
        expected = "one key per lane, (B,)" if num_axes else "one key, as jax.random.key(0) makes"
        found = f"{new.shape} of them" if hasattr(new, "shape") and new.shape else repr(key)
        raise TypeError(
            f"expected {expected}, got {found}; for many lanes: jax.vmap(env.reset)(jax.random.split(key, lanes))"
        )
    return new


def check_instance(problem: AnyProblem, instance: Any, num_rows: int | None = None) -> Any:
    """Check instances from the user and convert them to the dtypes of generated ones.

    Inside `jit` and `vmap`, arrays have no values yet: only their shapes and dtypes are checked.

    Args:
        problem: Problem of the instances.
        instance: Instances on JAX.
        num_rows: Expected number of instances; None accepts any number.

    Raises:
        TypeError: The instances have another class or backend.
        InvalidInstance: An array is missing or not used by the problem, has a wrong shape or dtype, or a wrong value:
            see `Problem.validate`.
        ValueError: The number of instances is wrong.
    """
    found_type = type(instance)
    if found_type is not problem.instance_type:
        raise TypeError(f"instance: expected a {problem.instance_type.__name__}, got {found_type.__name__}")
    arrays = {name: array for name, array in vars(instance).items() if array is not None}
    for name, array in arrays.items():
        if not isinstance(array, jax.Array):
            found = f"{type(array).__module__}.{type(array).__name__}"
            raise TypeError(
                f"instance: {name}: expected JAX arrays, got {found}; "
                'move them with routing_gym.arrays.to_backend(instance, "jax")'
            )
    optional = {*MATRICES, *getattr(problem.instance_type, "stands_for", ())}
    uniforms = jax.ShapeDtypeStruct((1, problem.num_uniforms), jnp.float32)
    drawn = vars(jax.eval_shape(problem.from_uniforms, uniforms))
    matrix = jax.ShapeDtypeStruct((1, problem.num_actions, problem.num_actions), jnp.float32)
    for name, expected in (drawn | {name: matrix for name in MATRICES if name in drawn}).items():
        if name in arrays and expected is not None:
            arrays[name] = check_array(name, arrays[name], expected)
        elif name not in optional and (name in arrays or expected is not None):
            fault = "has none; leave it out" if name in arrays else "needs it, got None"
            raise InvalidInstance(f"{name}: {problem.name} {fault}")
    instance = replace(instance, **arrays)
    if not any(isinstance(array, jax.core.Tracer) for array in arrays.values()):
        problem.validate(cast_instance(instance))
        for column in problem.columns:
            if column.kind == "amount" and column.per == "node" and column.target in arrays:
                total = to_numpy(arrays[column.target]).astype(np.int64).sum(axis=1).max()
                check_fits(jnp, int(total), f"{column.name}: a sum of ")
    check_batch(instance)
    if num_rows is not None and batch_size(instance) != num_rows:
        rows = f"{num_rows} row{'s' * (num_rows > 1)}"
        raise ValueError(f"instance: expected {rows}, one per key, got {batch_size(instance)}")
    return instance


def check_array(name: str, array: Array, expected: Any) -> Array:
    """Check the shape and the kind of one array of an instance, and return it with the expected dtype.

    Raises:
        InvalidInstance: The shape or the kind differs from that of `expected`, an array of one instance.
    """
    shape = array.shape
    if shape[1:] != expected.shape[1:] or not shape:
        message = f"{name}: expected shape {('B', *expected.shape[1:])}, got {shape}".replace("'", "")
        if shape == expected.shape[1:]:
            message += "; with jax.vmap, give a batch of one to each lane: jax.tree.map(lambda x: x[:, None], instance)"
        raise InvalidInstance(message)
    kind, wanted = array.dtype.kind.replace("u", "i"), expected.dtype.kind
    if kind != wanted:
        found = KINDS.get(kind, array.dtype)
        raise InvalidInstance(f"{name}: expected {KINDS[wanted]} (e.g. .astype(np.{expected.dtype})), got {found}")
    return array.astype(expected.dtype)


def as_actions(actions: Any, shape: tuple[int, ...], name: str = "action") -> Array:
    """Return actions as an array.

    Raises:
        TypeError: They are not integers of this shape.
    """
    expected = f"integers of shape {shape}" if shape else "one integer"
    remedy = "" if shape else "; step_lanes takes several"
    try:
        array = jnp.asarray(actions)
    except (TypeError, ValueError, OverflowError) as error:
        raise TypeError(f"{name}: expected {expected}, got {actions!r}{remedy}") from error
    if array.shape != shape or not jnp.issubdtype(array.dtype, jnp.integer):
        raise TypeError(f"{name}: expected {expected}, got {array.dtype} of shape {array.shape}{remedy}")
    return array
