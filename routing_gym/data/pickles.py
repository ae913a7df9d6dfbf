"""Safe reader for the pickled data sets of Kool et al.'s code, also used by POMO, MVMoE and others.

A pickle is a program. These consist of lists, tuples and numbers, so only the instructions that build those are
allowed: none that looks up a name, calls anything, or refers to an object a second time.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from pathlib import Path
from typing import Any

import numpy as np

from routing_gym.data.paper import Columns, to_instance
from routing_gym.data.peers import VARIANTS, family_instance
from routing_gym.files import InvalidFile, read_bytes
from routing_gym.problem import AnyProblem
from routing_gym.problems import make_problem

MAX_BYTES = 2**26  # the largest of the paper's test sets, PCTSP-100, has 50 MB
BYTES_PER_LIST = 8  # minimum in real data; a list takes 64 bytes of memory and may take 1 in the file
ONLY = "only lists, tuples and numbers are read"
MAX_WHOLE = 1e12  # bound on demands and capacities

COLUMNS = {  # columns of one instance, a tuple; for TSP, the coordinates alone
    "TSP": ("coords",),
    "CVRP": ("depot", "coords", "demand", "capacity"),
    "OP": ("depot", "coords", "prize", "max_length"),
    "PCTSP": ("depot", "coords", "penalty", "expected_prize", "real_prize"),
}
COLUMNS |= {"SDVRP": COLUMNS["CVRP"], "SPCTSP": COLUMNS["PCTSP"]}
COLUMNS |= {name: COLUMNS["CVRP"] + columns for name, columns in VARIANTS.items()}

CONTAINERS = {"EMPTY_LIST", "LIST", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"}
MEMO_WRITES = {"PUT", "BINPUT", "LONG_BINPUT"}  # without effect: reads, which would share lists, are refused
NUMBERS = {"INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"}
ALLOWED = CONTAINERS | MEMO_WRITES | NUMBERS | {"PROTO", "FRAME", "STOP", "MARK", "APPEND", "APPENDS", "MEMOIZE"}


class PlainUnpickler(pickle.Unpickler):
    """Unpickler that refuses to look up names."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it asks for {module}.{name}; {ONLY}")


def load_pickle(path: str | Path, name: str) -> tuple[AnyProblem, Any]:
    """Read a data set of the original code or of MVMoE.

    Reading takes about 10 times the memory of the file, and 50 times at most.

    Args:
        path: File to read.
        name: Name of the problem, which the file does not contain. CVRP and SDVRP share a layout, and so do SPCTSP and
            PCTSP, which ignores the real prizes. Variants of MVMoE with backhauls are refused: their backhauls may
            precede deliveries.

    Returns:
        The problem, with its default settings, and the instances, NumPy, float32 and int64.

    Raises:
        InvalidFile: The file is truncated or corrupt, holds anything but lists, tuples and numbers in the problem's
            layout, or has invalid values.
        ValueError: The problem is unknown.
        OSError: The file cannot be opened.
    """
    path = Path(path)
    if name not in COLUMNS:
        raise ValueError(f"no layout of pickles is known for {name!r}; choose one of {', '.join(COLUMNS)}")
    data = read_bytes(path, MAX_BYTES)
    try:
        check_instructions(data)
        content = PlainUnpickler(io.BytesIO(data)).load()
    except Exception as error:  # corrupt pickles raise any exception, depending on their instructions
        raise InvalidFile(path, None, f"refused pickle: {type(error).__name__}: {error}") from error
    try:
        columns = read_columns(content, COLUMNS[name])
        problem = make_problem(name, columns["coords"].shape[1])
        instance = family_instance(columns) if name in VARIANTS else to_instance(name, columns)
        problem.validate(instance)
    except (ValueError, OverflowError) as error:
        raise InvalidFile(path, None, f"{name}: {error}") from error
    return problem, instance


def check_instructions(data: bytes) -> None:
    """Check the instructions of a pickle without running them.

    Raises:
        pickle.UnpicklingError: An instruction is not allowed, or takes far more memory than its bytes in the file.
        Exception: Any exception that `pickletools` raises on corrupt input.
    """
    containers, end = 0, 0
    for count, (opcode, argument, position) in enumerate(pickletools.genops(data)):
        end = int(position or 0)
        if opcode.name not in ALLOWED:
            raise pickle.UnpicklingError(f"instruction {opcode.name} at byte {end} is not allowed; {ONLY}, none shared")
        containers += opcode.name in CONTAINERS
        if containers > 1000 + end // BYTES_PER_LIST:
            raise pickle.UnpicklingError(f"{containers} lists within {end} bytes; expected data in them")
        if opcode.name in MEMO_WRITES and int(argument or 0) > count:  # the memo is an array up to this index
            raise pickle.UnpicklingError(f"memo index {argument} at byte {end} is out of order")
    if end != len(data) - 1:
        raise pickle.UnpicklingError(f"{len(data) - 1 - end} bytes follow the end of the pickle")


def read_columns(content: Any, names: tuple[str, ...]) -> Columns:
    """Convert the unpickled data to one float64 array per column, of consistent shapes.

    Raises:
        ValueError: The content has another layout; the message has the content found and the expectation.
        OverflowError: A number is too large for float64.
    """
    if not isinstance(content, list | tuple) or not content:
        raise ValueError(f"found {describe(content)}, expected a list of instances")
    rows = [(row,) for row in content] if names == ("coords",) else content
    for index, row in enumerate(rows):
        if not isinstance(row, list | tuple) or len(row) != len(names):
            raise ValueError(f"instance {index}: found {describe(row)}, expected ({', '.join(names)})")
    columns = {}
    for place, name in enumerate(names):
        try:
            columns[name] = np.array([row[place] for row in rows], dtype=np.float64)
        except (ValueError, TypeError) as error:  # lists of different lengths, or a list for a number
            raise ValueError(f"{name}: expected numbers, as many in every instance ({error})") from error
    if columns.get("depot", np.empty(0)).ndim == 3:  # MVMoE stores the depot as a list of one point
        columns["depot"] = columns["depot"].reshape(-1, 2)
    num_rows, num_nodes = (*columns["coords"].shape, 0)[:2]
    shapes = dict.fromkeys(names, (num_rows, num_nodes)) | {"coords": (num_rows, num_nodes, 2), "depot": (num_rows, 2)}
    shapes |= {"capacity": (num_rows,), "max_length": (num_rows,)}
    for name, values in columns.items():
        if values.shape != shapes[name]:
            raise ValueError(f"{name}: found shape {values.shape}, expected {shapes[name]}")
    for name in {"demand", "capacity"} & set(names):
        if not (columns[name] == np.clip(np.round(columns[name]), 0, MAX_WHOLE)).all():  # nan fails, too
            raise ValueError(f"{name}: expected whole numbers from 0 to {MAX_WHOLE:g}")
    return columns


def describe(value: Any) -> str:
    """Describe an object from a pickle without printing its content."""
    size = f" of {len(value)}" if isinstance(value, list | tuple) else ""
    return f"a {type(value).__name__}{size}"
