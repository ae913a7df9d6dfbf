"""The pickles of Kool et al.'s code, read without running anything that is in them.

A pickle is a program. Only instructions that build lists, tuples, numbers and NumPy arrays are let
through, all of them checked before the first one runs; the few functions that arrays need are replaced
by this file's.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from routing_gym.arrays import normalise
from routing_gym.data.files import InvalidFile, check_length, found, read_bytes, write_atomically
from routing_gym.data.metrics import FloatArray
from routing_gym.data.paper import Columns, to_instance
from routing_gym.problem import AnyProblem
from routing_gym.problems import make_problem

MAX_BYTES = 2**26  # the largest of the paper's test sets, PCTSP-100, has 50 MB
INTEGER_COLUMNS = ("demand", "capacity")
MAX_INTEGER = 1e12
PROTOCOL = 4  # readable from Python 3.4 on

# One instance is a tuple of these columns, TSP's the coordinates alone. Axes of a column after the first:
# n customers or cities, 2 axes of the plane.
LAYOUTS: dict[str, dict[str, tuple[str, ...]]] = {
    "TSP": {"coords": ("n", "2")},
    "CVRP": {"depot": ("2",), "coords": ("n", "2"), "demand": ("n",), "capacity": ()},
    "OP": {"depot": ("2",), "coords": ("n", "2"), "prize": ("n",), "max_length": ()},
    "PCTSP": {"depot": ("2",), "coords": ("n", "2"), "penalty": ("n",), "expected_prize": ("n",), "real_prize": ("n",)},
}
LAYOUTS |= {"SDVRP": LAYOUTS["CVRP"], "SPCTSP": LAYOUTS["PCTSP"]}

CONTAINERS = {"EMPTY_LIST", "LIST", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"}
MEMO_WRITES = {"PUT", "BINPUT", "LONG_BINPUT"}
ALLOWED = (
    CONTAINERS
    | MEMO_WRITES
    | {"PROTO", "FRAME", "STOP", "MARK", "APPEND", "APPENDS", "MEMOIZE", "GET", "BINGET", "LONG_BINGET"}
    | {"INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"}
    # What arrays need:
    | {"NONE", "NEWTRUE", "NEWFALSE", "GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD"}
    | {"UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"}
)


def load_pickle(path: str | Path, name: str) -> tuple[AnyProblem, Any]:
    """Read a data set of the original code.

    Args:
        path: The file.
        name: The problem it is for; the file does not say. CVRP and SDVRP share a layout, as do PCTSP,
            which leaves the real prizes out, and SPCTSP.

    Returns:
        The problem, with its default settings, and the instances, NumPy, float32 and int64.

    Raises:
        InvalidFile: The file is truncated or corrupt, holds anything but lists, tuples, numbers and
            arrays in the problem's layout, or values that make no sense.
        ValueError: Unknown problem.
        OSError: The file cannot be opened.
    """
    path = Path(path)
    if name not in LAYOUTS:
        raise ValueError(f"unknown problem {name!r}; choose one of {', '.join(LAYOUTS)}")
    data = read_bytes(path, MAX_BYTES)
    try:
        check_instructions(data)
        content = RestrictedUnpickler(io.BytesIO(data)).load()
    except Exception as error:  # corrupt pickles raise whatever their instructions stumble over
        raise InvalidFile(path, None, f"refused pickle: {type(error).__name__}: {error}") from error
    try:
        columns = read_columns(content, LAYOUTS[name], max_numbers=len(data))
        problem = make_problem(name, columns["coords"].shape[1])
        instance = to_instance(name, columns)
        problem.validate(instance)
    except ValueError as error:
        raise InvalidFile(path, None, f"{name}: {error}") from error
    return problem, instance


def save_pickle(path: str | Path, problem: AnyProblem, instance: Any) -> None:
    """Write instances in the original code's layout. The file is there complete or not at all.

    PCTSP has no real prizes: the layout's last column repeats the expected ones.

    Raises:
        InvalidInstance: The instance does not fit the problem.
        ValueError: The instance has distances, for which the layout has no place, or the problem no layout; or the
            file would be larger than `load_pickle` reads.
        OSError: The file cannot be written.
    """
    if problem.name not in LAYOUTS:
        raise ValueError(f"{problem.name} has no layout in the original code; use save_npz")
    instance = normalise(instance)
    problem.validate(instance)
    if instance.distances is not None:
        raise ValueError("the original layout has no place for `distances`; use save_npz")
    columns: Columns = {**vars(instance)}
    if problem.has_depot:
        columns |= {"depot": instance.coords[:, 0], "coords": instance.coords[:, 1:]}
    if problem.name == "PCTSP":
        columns["real_prize"] = instance.expected_prize
    if "capacity" in columns:
        columns["capacity"] = columns["capacity"].astype(np.float64)  # as in the original
    lists = []
    for key, axes in LAYOUTS[problem.name].items():
        skip_depot = axes == ("n",)
        lists.append((columns[key][:, 1:] if skip_depot else columns[key]).tolist())
    rows = lists[0] if len(lists) == 1 else list(zip(*lists, strict=True))
    data = pickle.dumps(rows, protocol=PROTOCOL)
    check_length(data, MAX_BYTES, len(rows))
    write_atomically(Path(path), data)


def read_columns(content: object, layout: Mapping[str, tuple[str, ...]], max_numbers: int) -> Columns:
    """Turn what was unpickled into one float64 array per column.

    Args:
        content: A sequence of N rows.
        layout: The columns of a row.
        max_numbers: More are not unpacked; lists that share their elements can stand for any number.

    Raises:
        ValueError: With the instance, what was found and what was expected.
    """
    if len(layout) == 1:
        values: dict[str, object] = dict.fromkeys(layout, content)
    else:
        if not isinstance(content, (list, tuple)):
            raise ValueError(f"found {describe(content)}, expected a list of instances")
        for index, row in enumerate(content):
            if not isinstance(row, (list, tuple)) or len(row) != len(layout):
                raise ValueError(f"instance {index}: found {describe(row)}, expected ({', '.join(layout)})")
        values = {key: [row[column] for row in content] for column, key in enumerate(layout)}
    sizes = leading_sizes(values["coords"], 2)
    if len(sizes) != 2:
        raise ValueError(f"coords: found {describe(values['coords'])}, expected points of at least one instance")
    num_rows, num_nodes = sizes
    if num_rows * num_nodes > max_numbers:
        raise ValueError(f"found {num_rows} instances of {num_nodes} nodes, more numbers than the file has bytes")
    columns = {}
    for key, axes in layout.items():
        shape = (num_rows, *(num_nodes if axis == "n" else 2 for axis in axes))
        columns[key] = to_array(values[key], shape, key)
        if key in INTEGER_COLUMNS and not (columns[key] == np.clip(np.round(columns[key]), 0, MAX_INTEGER)).all():
            raise ValueError(f"{key}: expected whole numbers from 0 to {MAX_INTEGER:g}")
    return columns


def leading_sizes(value: object, depth: int) -> tuple[int, ...]:
    """Return the lengths of a nested sequence and of its first elements, as deep as they go."""
    if isinstance(value, PickledArray):
        return value.array.shape[:depth]
    if depth == 0 or not isinstance(value, (list, tuple)) or not value:
        return ()
    return (len(value), *leading_sizes(value[0], depth - 1))


def to_array(value: object, shape: tuple[int, ...], what: str) -> FloatArray:
    """Turn nested sequences or arrays of N instances into one float64 array of exactly this shape.

    Raises:
        ValueError: With the instance, what was found and what was expected.
    """
    if isinstance(value, PickledArray):
        if value.array.shape != shape:
            raise ValueError(f"{what}: found an array of shape {value.array.shape}, expected {shape}")
        return value.array
    if isinstance(value, (list, tuple)) and len(value) == shape[0] and any(isinstance(x, PickledArray) for x in value):
        rows = []
        for index, row in enumerate(value):
            if not isinstance(row, PickledArray) or row.array.shape != shape[1:]:
                raise ValueError(f"instance {index}: {what}: found {describe(row)}, expected an array {shape[1:]}")
            rows.append(row.array)
        return np.array(rows)
    flat: list[object] = [value]
    for size in shape:
        for index, part in enumerate(flat):
            if not isinstance(part, (list, tuple)) or len(part) != size:
                where = "" if size == shape[0] and len(flat) == 1 else f"instance {index * shape[0] // len(flat)}: "
                raise ValueError(f"{where}{what}: found {describe(part)}, expected {size} elements")
        flat = [element for part in flat for element in part]  # type: ignore[attr-defined]
    if not set(map(type, flat)) <= {int, float}:
        index = next(index for index, element in enumerate(flat) if type(element) not in (int, float))
        where = f"instance {index * shape[0] // len(flat)}: "
        raise ValueError(f"{where}{what}: found {describe(flat[index])}, expected a number")
    try:
        return np.array(flat, dtype=np.float64).reshape(shape)
    except OverflowError as error:
        raise ValueError(f"{what}: {error}") from error


def describe(value: object) -> str:
    """Say what something from a pickle is, without unfolding it: it may be endless."""
    if isinstance(value, PickledArray):
        return f"an array of shape {value.array.shape}"
    if isinstance(value, (list, tuple)):
        return f"a {type(value).__name__} of {len(value)}"
    return f"a {type(value).__name__}"


def check_instructions(data: bytes) -> None:
    """Read a pickle's instructions without running them.

    Raises:
        pickle.UnpicklingError: An instruction that is not allowed, or that would take far more memory
            than the file has bytes.
        Exception: Whatever `pickletools` raises on corrupt input.
    """
    containers = 0
    last = -1
    for count, (opcode, argument, position) in enumerate(pickletools.genops(data)):
        assert position is not None
        last = position
        if opcode.name not in ALLOWED:
            raise pickle.UnpicklingError(f"instruction {opcode.name} at byte {position} is not allowed")
        if opcode.name in CONTAINERS:  # 64 bytes of memory for one in the file; real data has 7 at least
            containers += 1
            if containers > 1000 + position // 4:
                raise pickle.UnpicklingError(f"{containers} lists within {position} bytes; expected data in them")
        elif opcode.name in MEMO_WRITES and int(argument or 0) > count:  # the memo is an array up to this index
            raise pickle.UnpicklingError(f"memo index {argument} at byte {position} is out of order")
    if last != len(data) - 1:
        raise pickle.UnpicklingError(f"{len(data) - 1 - last} bytes follow the end of the pickle")


class PickledDtype:
    """Stands in for numpy.dtype."""

    def __init__(self, code: str, align: bool, copy: bool) -> None:
        if code not in ("f4", "f8", "i4", "i8"):
            raise pickle.UnpicklingError(f"arrays of {code!r} are not allowed; expected f4, f8, i4 or i8")
        self.dtype = np.dtype(code)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.dtype = self.dtype.newbyteorder(state[1])


class PickledArray:
    """Stands in for numpy.ndarray, whose own `__setstate__` trusts its input."""

    array: FloatArray = np.empty(0)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, is_fortran, raw = state
        self.array = from_buffer(raw, dtype, shape, "F" if is_fortran else "C").array


def reconstruct(array_type: object, shape: object, code: object) -> PickledArray:
    """Stands in for numpy's; always empty, while numpy's would allocate any shape."""
    return PickledArray()


def from_buffer(raw: bytes, dtype: PickledDtype, shape: tuple[int, ...], order: Literal["C", "F"]) -> PickledArray:
    """Stands in for numpy's; the shape must fit the bytes."""
    result = PickledArray()
    result.array = np.frombuffer(raw, dtype.dtype).reshape(shape, order=order).astype(np.float64)
    return result


def scalar(dtype: PickledDtype, raw: bytes) -> int | float:
    """Stands in for numpy's."""
    number: int | float = np.frombuffer(raw, dtype.dtype, count=1)[0].item()
    return number


def encode(text: str, encoding: str) -> bytes:
    """Stands in for codecs.encode, which protocols before 3 write bytes with."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"found encoding {found(encoding)}, expected 'latin1'")
    return text.encode("latin1")


ADMITTED = {
    ("_codecs", "encode"): encode,
    ("numpy", "ndarray"): PickledArray,
    ("numpy", "dtype"): PickledDtype,
    **{(f"numpy.{core}.multiarray", "_reconstruct"): reconstruct for core in ("core", "_core")},
    **{(f"numpy.{core}.multiarray", "scalar"): scalar for core in ("core", "_core")},
    **{(f"numpy.{core}.numeric", "_frombuffer"): from_buffer for core in ("core", "_core")},
}


class RestrictedUnpickler(pickle.Unpickler):
    """Resolves no name but those of `ADMITTED`, and these to stand-ins."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ADMITTED:
            raise pickle.UnpicklingError(
                f"it asks for {found(f'{module}.{name}')}; only lists, tuples, numbers and NumPy arrays are read"
            )
        return ADMITTED[module, name]
