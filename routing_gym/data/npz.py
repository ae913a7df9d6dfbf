"""NumPy's .npz files: batches of instances, with the problem as JSON, and results. Nothing in them is executed."""

from __future__ import annotations

import dataclasses
import io
import json
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from routing_gym.arrays import Array, batch_size, cast_instance
from routing_gym.files import InvalidFile, check_length, found, read_bytes, write_atomically
from routing_gym.problem import AnyProblem
from routing_gym.problems import PROBLEMS, make_problem

HEADER = "problem"  # the member that holds the JSON
MAX_HEADER_LENGTH = 10_000
MAX_BYTES = 2**32  # nothing is compressed, so this bounds the memory too


def save_npz(path: str | Path, problem: AnyProblem, instance: Any) -> None:
    """Write a batch of instances with its problem and settings. The file is there complete or not at all.

    Args:
        path: Where to; the ending is up to the caller.
        problem: One of this package's.
        instance: B instances, on any backend.

    Raises:
        InvalidInstance: The instance does not fit the problem.
        ValueError: The problem is not in the registry, or the file too large, so that it could not be read back.
        OSError: The file cannot be written.
    """
    if PROBLEMS.get(problem.name) is not type(problem):
        raise ValueError(f"{type(problem).__name__} is not in the registry of problems and could not be read back")
    instance = cast_instance(instance)
    problem.validate(instance)
    header = {"problem": problem.name, **dataclasses.asdict(problem)}
    arrays: dict[str, Any] = {key: value for key, value in vars(instance).items() if value is not None}
    arrays[HEADER] = np.array(json.dumps(header))
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    check_length(buffer.getbuffer(), MAX_BYTES, batch_size(instance))
    write_atomically(Path(path), buffer.getvalue())


def load_npz(path: str | Path) -> tuple[AnyProblem, Any]:
    """Read what `save_npz` wrote.

    Returns:
        The problem, and B instances that its `validate` accepts.

    Raises:
        InvalidFile: The file is truncated or corrupt, or its instances do not fit its problem.
        OSError: The file cannot be opened.
    """
    path = Path(path)
    data = read_bytes(path, MAX_BYTES)
    try:
        arrays = read_members(data)
    except Exception as error:  # zipfile and NumPy raise a dozen types on corrupt input, none of them theirs
        raise InvalidFile(path, None, f"not a readable .npz file: {type(error).__name__}: {error}") from error
    try:
        header = arrays.pop(HEADER, None)
        problem = read_header(header)
        fields = {field.name: field for field in dataclasses.fields(problem.instance_type)}
        required = {name for name, field in fields.items() if field.default is dataclasses.MISSING}
        if not required <= set(arrays) <= set(fields):
            raise ValueError(
                f"found arrays {', '.join(sorted(arrays))}; expected {', '.join(sorted(required))} for {problem.name}"
            )
        instance = problem.instance_type(**arrays)
        problem.validate(instance)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise InvalidFile(path, None, str(error)) from error
    return problem, instance


def npz_bytes(**arrays: Array) -> bytes:
    """Return the content of a compressed .npz file with these arrays."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


@contextmanager
def open_npz(path: Path, content: str, remedy: str) -> Iterator[Mapping[str, Array]]:
    """Open a file that this project wrote itself, with `npz_bytes`; the block unpacks its arrays.

    Raises:
        FileNotFoundError: There is no file.
        MemoryError: The arrays do not fit into memory.
        ValueError: The file cannot be read, or the block cannot unpack it; with the file's content and the remedy.
    """
    try:
        with path.open("rb") as handle, np.load(handle, allow_pickle=False) as arrays:
            yield arrays
    except (FileNotFoundError, MemoryError):
        raise
    except Exception as error:  # of many types, see `load_npz`
        raise ValueError(f"{path}: no {content}, or damaged ({error}); {remedy}") from error


def read_header(header: Array | None) -> AnyProblem:
    """Make the problem that the JSON describes.

    Raises:
        ValueError: No header, no JSON, an unknown problem, an invalid setting.
        TypeError: A setting that the problem does not have.
        OverflowError: An absurd number.
        RecursionError: Absurdly nested JSON.
    """
    if header is None or header.dtype.kind != "U" or header.shape != ():
        raise ValueError(f"found no text array {HEADER!r}; only files written by save_npz can be read")
    settings = json.loads(str(header))
    if not isinstance(settings, dict) or not isinstance(settings.get("problem"), str):
        raise ValueError(f"{HEADER}: found {found(settings)}, expected an object with 'problem' and its settings")
    name = settings.pop("problem")
    if "num_nodes" not in settings:
        raise ValueError(f"{HEADER}: num_nodes is missing")
    return make_problem(name, **settings)


def read_members(data: bytes, most_bytes: int | None = None) -> dict[str, Array]:
    """Read the arrays of an .npz file without allocating more than the file's own size.

    `np.load` would allocate whatever size a header claims, and unpack any zip bomb.

    Args:
        data: Content of the file.
        most_bytes: Size to which compressed members may unpack; None refuses them.

    Raises:
        ValueError: A member is compressed, holds objects, or has another size than its header says.
        Exception: Whatever `zipfile` and `numpy.lib.format` raise on corrupt input.
    """
    arrays: dict[str, Array] = {}
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        size = sum(info.file_size for info in archive.infolist())
        if most_bytes is not None and size > most_bytes:
            raise ValueError(f"the members unpack to {size} bytes; at most {most_bytes} are read")
        if most_bytes is None and size > len(data):
            raise ValueError("the members overlap or are compressed; write with save_npz")
        for info in archive.infolist():
            if most_bytes is None and info.compress_type != zipfile.ZIP_STORED:
                raise ValueError(f"{info.filename} is compressed; write with save_npz")
            stream = io.BytesIO(archive.read(info))
            version = np.lib.format.read_magic(stream)
            read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
            shape, fortran_order, dtype = read(stream, max_header_size=MAX_HEADER_LENGTH)
            values = np.frombuffer(bytearray(stream.read()), dtype=dtype)  # refuses objects
            arrays[info.filename.removesuffix(".npy")] = values.reshape(shape, order="F" if fortran_order else "C")
    return arrays
