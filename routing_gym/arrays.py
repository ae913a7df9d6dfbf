"""Row operations on batches that the array API standard lacks, and conversions between backends.

Every function works on NumPy, torch and JAX arrays and, except `put`, does not modify its arguments. Code that depends
on the backend is here, not in the rules of the problems. B is the batch size, A the number of actions (nodes).
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from array_api_compat import array_namespace, device, is_jax_array, is_torch_array

from routing_gym.optional import require

Array: TypeAlias = Any  # a NumPy array, a torch tensor or a JAX array; the array API has no common base class
FloatArray: TypeAlias = npt.NDArray[np.float64]
IntArray: TypeAlias = npt.NDArray[np.int64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
Batch = TypeVar("Batch")  # a dataclass of arrays with a leading batch axis
BACKENDS = ("numpy", "torch", "jax")
X64 = 'call jax.config.update("jax_enable_x64", True) at the start of the program'
_batch_types: dict[type, bool] = {}  # dataclasses of arrays, and whether they are registered with JAX


def integer(xp: Any) -> Any:
    """Return the dtype of nodes, counts and loads: int64; int32 in JAX, unless it has 64 bits (`jax_enable_x64`).

    Args:
        xp: Array-API namespace.
    """
    return xp.int32 if is_narrow(xp) else xp.int64


def double(xp: Any) -> Any:
    """Return the dtype of sums: float64; float32 in JAX, unless it has 64 bits (`jax_enable_x64`)."""
    return xp.float32 if is_narrow(xp) else xp.float64


def is_jax(xp: Any) -> bool:
    """Return whether a namespace is JAX's."""
    return bool(xp.__name__ == "jax.numpy")


def is_narrow(xp: Any) -> bool:
    """Return whether a namespace is JAX's without 64 bits."""
    return is_jax(xp) and not sys.modules["jax"].config.jax_enable_x64


def gather(x: Array, index: Array) -> Array:
    """Select one entry per row, ``x[b, index[b]]``, or several, ``x[b, index[b, m]]``.

    It uses `take` on the flattened array, which is three times as fast as ``x[arange(B), index]`` in NumPy.

    Args:
        x: Array (B, A, ...).
        index: Indices, int64 (B,) or (B, M).

    Returns:
        Entries (B, ...) or (B, M, ...).
    """
    num_rows, num_columns = x.shape[:2]
    flat_shape = (num_rows * num_columns, *x.shape[2:])
    if isinstance(x, np.ndarray):  # without the wrappers, which take twice as long as the operation on small batches
        starts = np.arange(0, num_rows * num_columns, num_columns)
        return x.reshape(flat_shape).take((starts if index.ndim == 1 else starts[:, None]) + index, axis=0)
    if is_torch_array(x):  # for the same reason
        starts = sys.modules["torch"].arange(0, num_rows * num_columns, num_columns, device=x.device)
        if index.ndim == 1:
            return x.reshape(flat_shape).index_select(0, starts + index)
        flat = (starts[:, None] + index).flatten()
        return x.reshape(flat_shape).index_select(0, flat).reshape(*index.shape, *x.shape[2:])
    rows = array_namespace(x).arange(num_rows)  # JAX: no flat index, which 32 bits might not hold
    return x.at[rows if index.ndim == 1 else rows[:, None], index].get(mode="clip")


def scatter(x: Array, index: Array, value: Array) -> Array:
    """Return a copy of `x` (B, A) in which ``x[b, index[b]] = value[b]``.

    Args:
        x: Array (B, A).
        index: Indices, int64 (B,).
        value: Values (B,) of the dtype of `x`.
    """
    if isinstance(x, np.ndarray):
        result = x.copy()
        result[np.arange(x.shape[0]), index] = value
        return result
    if is_torch_array(x):
        return x.scatter(1, index[:, None], value[:, None])
    return x.at[array_namespace(x).arange(x.shape[0]), index].set(value)


def put(x: Array, index: Any, value: Array) -> Array:
    """Return `x` after ``x[index] = value``. NumPy and torch modify `x` itself; JAX returns a copy."""
    if not isinstance(x, np.ndarray) and is_jax_array(x):
        return x.at[index].set(value)
    x[index] = value
    return x


def iterate(times: int, function: Callable[[Any, Array], Array], x: Array) -> Array:
    """Return `x` after ``x = function(k, x)`` for k from 0 to `times` - 1; JAX compiles the function once."""
    if not isinstance(x, np.ndarray) and is_jax_array(x):
        return sys.modules["jax"].lax.fori_loop(0, times, function, x)
    for k in range(times):
        x = function(k, x)
    return x


def max_before(x: Array, initial: float) -> Array:
    """Return the largest entry before each entry of a row, `initial` for the first one: (B, M)."""
    xp = array_namespace(x)
    earlier = xp.concat([xp.full_like(x[:, :1], initial), x[:, :-1]], axis=1)
    if isinstance(x, np.ndarray):
        return np.maximum.accumulate(earlier, axis=1)
    return earlier.cummax(dim=1).values if is_torch_array(x) else sys.modules["jax"].lax.cummax(earlier, axis=1)


def known_false(mask: Array) -> bool:
    """Return whether no entry of a NumPy array is True; False for other backends, which would have to synchronise."""
    return isinstance(mask, np.ndarray) and not mask.any()


def as_share(part: Array, whole: Array | int) -> Array:
    """Divide in the dtype `double`; int / int has this dtype in NumPy only."""
    xp = array_namespace(part)
    return xp.astype(part, double(xp)) / whole


def euclidean(origin: Array, destination: Array) -> Array:
    """Return the distances between points (..., 2), with the same operations in the same order on every backend.

    It computes axis by axis, because NumPy takes 2.5 times as long for (1024, 51, 2) in loops over the last axis.
    """
    xp = array_namespace(origin)
    x = origin[..., 0] - destination[..., 0]
    y = origin[..., 1] - destination[..., 1]
    squares = x * x + y * y
    if is_jax(xp) or getattr(squares, "requires_grad", False):  # the gradient of sqrt at 0 is infinite, which gives NaN
        same = squares == 0
        return xp.where(same, 0, xp.sqrt(xp.where(same, 1, squares)))
    return xp.sqrt(squares)


def map_arrays(function: Callable[..., Array], first: Batch, *others: Batch) -> Batch:
    """Apply `function` to each array field of dataclasses of one type; a field that is None in all stays None.

    Raises:
        ValueError: A field is None in some of the batches only.
    """
    changes: dict[str, Array] = {}
    for field in dataclasses.fields(first):  # type: ignore[arg-type]
        values = [getattr(batch, field.name) for batch in (first, *others)]
        missing = [value is None for value in values]
        if all(missing):
            continue
        if any(missing):
            raise ValueError(
                f"`{field.name}` is given in some of the batches and None in others; give it in all, or define in "
                f"{type(first).__name__}.stands_for what None stands for (see `geometry.match_fields`)"
            )
        changes[field.name] = function(*values)
    return dataclasses.replace(first, **changes)  # type: ignore[type-var]


def any_array(batch: Any) -> Array:
    """Return the first array of a dataclass; all its arrays have the same backend, device and batch size.

    Raises:
        ValueError: No field is an array.
    """
    for field in dataclasses.fields(batch):
        value = getattr(batch, field.name)
        if value is not None:
            return value
    raise ValueError(f"{type(batch).__name__} holds no array; give at least one")


def batch_size(batch: Any) -> int:
    """Return the number of rows of a dataclass of arrays, such as an instance or a state."""
    return int(any_array(batch).shape[0])


def device_of(batch: Any) -> Any:
    """Return the device of a dataclass of arrays: "cpu" for NumPy, a device of torch or JAX; None inside `jax.jit`."""
    return device(any_array(batch))


def select(batch: Batch, rows: Array) -> Batch:
    """Return the given rows (an index array, a list or a slice) of every array of a dataclass."""
    if isinstance(rows, list):  # JAX does not accept lists
        rows = np.asarray(rows, dtype=np.int64)
    return map_arrays(lambda x: x[rows], batch)


def concatenate(batches: Sequence[Batch]) -> Batch:
    """Concatenate batches of the same dataclass along the batch axis."""

    def concat(*arrays: Array) -> Array:
        return array_namespace(arrays[0]).concat(arrays, axis=0)

    return map_arrays(concat, *batches)


def to_backend(batch: Batch, backend: str, device: str | None = None) -> Batch:
    """Convert every array of a dataclass to NumPy, torch or JAX.

    Args:
        batch: Dataclass of arrays.
        backend: "numpy", "torch" or "jax".
        device: Device of torch or JAX, such as "cuda"; None means the CPU in torch, the default device in JAX.

    Raises:
        ValueError: The backend or the device is unknown, NumPy was given a device, or an integer does not fit
            into JAX's 32 bits.
        ImportError: torch or JAX is not installed.
    """
    return map_arrays(converter(backend, device), batch)


def converter(backend: str, device: str | None = None) -> Callable[[Array], Array]:
    """Return a function that converts one array to a backend, see `to_backend`. It copies only if necessary."""
    if backend == "numpy":
        if device is not None:
            raise ValueError(f"device={device!r}: NumPy arrays live on the CPU; leave it out, or take another backend")
        return to_numpy
    if backend not in BACKENDS:
        raise ValueError(f"unknown backend {backend!r}; choose one of {', '.join(BACKENDS)}")
    if backend == "jax":
        return jax_converter(device)
    if str(device).startswith("mps"):
        raise ValueError(f"device={device!r} cannot be used: costs are float64, which Apple's GPUs lack; use the cpu")
    torch = require("torch", "agents")
    try:
        target = torch.zeros(0, device=device or "cpu").device
    except (RuntimeError, AssertionError) as error:  # raised by torch for an unknown name or device
        found = f"{torch.cuda.device_count()} CUDA devices"
        raise ValueError(f"device={device!r} cannot be used; torch sees the cpu and {found}") from error

    def move(x: Array) -> Array:
        if is_jax_array(x):
            x = np.asarray(x)
        # torch warns of read-only views, and rejects some memory layouts of NumPy
        if isinstance(x, np.ndarray) and not (x.flags.behaved and x.dtype.isnative and min(x.strides, default=0) >= 0):
            x = np.array(x, dtype=x.dtype.newbyteorder("="), order="C")
        return torch.as_tensor(x, device=target)

    return move


def to_numpy(x: Array) -> npt.NDArray[Any]:
    """Return a NumPy view (or, from an accelerator, a copy) of an array."""
    if type(x) is np.ndarray:  # checked first, because `is_torch_array` takes longer
        return x
    if is_torch_array(x):
        return np.asarray(x.detach().cpu().numpy())
    if isinstance(x, getattr(sys.modules.get("jax.core"), "Tracer", ())):
        raise TypeError(
            "NumPy cannot read an array that jax.jit, vmap or scan is tracing; call this function (such as "
            "`objective`) outside the traced function, on its result"
        )
    return np.asarray(x)


def jax_converter(device: str | None) -> Callable[[Array], Array]:
    """Return a function that converts one array to JAX; 64 bits become 32, unless `jax_enable_x64` is on."""
    jax = use_jax()
    try:
        platform, _, number = (device or "").partition(":")
        target = jax.devices(platform)[int(number or 0)] if device else None
    except (RuntimeError, ValueError, IndexError) as error:
        raise ValueError(f"device={device!r} cannot be used; JAX sees {', '.join(map(str, jax.devices()))}") from error

    def move(x: Array) -> Array:
        if not is_jax_array(x):
            x = to_numpy(x)
            if np.issubdtype(x.dtype, np.integer) and x.size:
                for extreme in (x.max(), x.min()):
                    check_fits(jax.numpy, int(extreme))
        return jax.device_put(x, target)

    return move


def check_fits(xp: Any, number: int, what: str = "") -> None:
    """Check that an integer fits into the integers of a backend: JAX has 32 bits, unless `jax_enable_x64` is on.

    Raises:
        ValueError: It does not fit. The message begins with `what`.
    """
    bounds = np.iinfo(np.int32)
    if is_narrow(xp) and not bounds.min <= number <= bounds.max:
        raise ValueError(f"{what}{number} does not fit into JAX's 32 bits: {X64}, or choose a larger unit")


def use_jax() -> Any:
    """Return the package JAX, and register all dataclasses of arrays as its pytrees.

    Raises:
        ImportError: JAX is not installed.
    """
    jax = require("jax", "jax")
    for batch_type, known in _batch_types.items():
        if not known:
            names = [field.name for field in dataclasses.fields(batch_type)]
            jax.tree_util.register_dataclass(batch_type, data_fields=names, meta_fields=[])
            _batch_types[batch_type] = True
    return jax


def add_batch_types(*batch_types: type) -> None:
    """Register dataclasses of arrays as JAX's pytrees: now if JAX is imported, else when `use_jax` is called.

    `to_backend` and `routing_gym.integrations.jax` call `use_jax`.
    """
    for batch_type in batch_types:
        _batch_types.setdefault(batch_type, False)
    if sys.modules.get("jax") is not None:
        use_jax()


def cast_instance(instance: Batch) -> Batch:
    """Convert the arrays of an instance to NumPy with the dtypes of the contract: float32 and int64.

    Floats become float32 and integers int64. Other dtypes are not converted; `Problem.validate` rejects them.

    Raises:
        ValueError: A number is too large for float32, or masked; the message names the field.
    """

    def cast(name: str, x: Array) -> npt.NDArray[Any]:
        if np.ma.is_masked(x):
            raise ValueError(f"{name}: masked values are missing; fill them in")
        values = to_numpy(x)
        if np.issubdtype(values.dtype, np.floating):
            with np.errstate(over="ignore"):
                single = values.astype(np.float32, copy=False)
            lost = np.isinf(single) & np.isfinite(values)
            if lost.any():
                found = f"{values[lost][0]:g} is too large for float32, at most 3.4e38"
                raise ValueError(f"{name}: {found}; choose a larger unit")
            return single
        if np.issubdtype(values.dtype, np.integer):
            return values.astype(np.int64, copy=False)
        return values

    names = [field.name for field in dataclasses.fields(instance)]  # type: ignore[arg-type]
    given = {name: cast(name, value) for name in names if (value := getattr(instance, name)) is not None}
    return dataclasses.replace(instance, **given)  # type: ignore[type-var]
