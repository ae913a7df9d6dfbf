"""NumPy's .npz files: batches of instances, with the problem as JSON, and results. No code in them is executed."""

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
from routing_gym.problem import AnyProblem, Problem
from routing_gym.problems import PROBLEMS, make_problem

HEADER = "problem"  # name of the member that holds the JSON
MAX_HEADER_LENGTH = 10_000
MAX_BYTES = 2**32  # members are not compressed, so this also bounds the memory


def save_npz(path: str | Path, problem: AnyProblem, instance: Any) -> None:
    """Write a batch of instances with its problem and settings. The file is written completely or not at all.

    Args:
        path: File to write; any ending is allowed.
        problem: Problem from the registry of this package.
        instance: B instances, on any backend.

    Raises:
        InvalidInstance: The instance does not fit the problem.
        TypeError: `problem` is not a `Problem`.
        ValueError: The problem is not in the registry, or the file is too large to be read back.
        OSError: The file cannot be written.
    """
    if not isinstance(problem, Problem):
        raise TypeError(f"problem: expected a Problem such as TSP(50), got {type(problem).__name__}")
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
    """Read a file written by `save_npz`.

    Returns:
        The problem, and B instances that pass its `validate`.

    Raises:
        InvalidFile: The file is truncated or corrupt, or its instances do not fit its problem.
        OSError: The file cannot be opened.
    """
    path = Path(path)
    arrays = read_arrays(path, MAX_BYTES)
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
    """Return the content of a compressed .npz file with the given arrays."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


@contextmanager
def open_npz(path: Path, content: str, remedy: str) -> Iterator[Mapping[str, Array]]:
    """Open a file written by this project with `npz_bytes`, for a block that reads its arrays.

    Raises:
        FileNotFoundError: The file does not exist.
        MemoryError: The arrays do not fit into memory.
        ValueError: The file cannot be read, or the block fails; the message has the file's content and the remedy.
    """
    try:
        with path.open("rb") as handle, np.load(handle, allow_pickle=False) as arrays:
            yield arrays
    except (FileNotFoundError, MemoryError):
        raise
    except Exception as error:  # many exception types, see `load_npz`
        raise ValueError(f"{path}: no {content}, or damaged ({error}); {remedy}") from error


def read_header(header: Array | None) -> AnyProblem:
    """Make the problem described by the JSON header.

    Raises:
        ValueError: The header is missing or not JSON, the problem is unknown, or a setting is invalid.
        TypeError: The problem does not have a setting.
        OverflowError: A number is too large.
        RecursionError: The JSON is nested too deeply.
    """
    if header is None or header.dtype.kind != "U" or header.shape != ():
        raise ValueError(
            f"found no text array {HEADER!r}; expected a file of save_npz (evaluate.py also reads other ones)"
        )
    settings = json.loads(str(header))
    if not isinstance(settings, dict) or not isinstance(settings.get("problem"), str):
        raise ValueError(f"{HEADER}: found {found(settings)}, expected an object with 'problem' and its settings")
    name = settings.pop("problem")
    if "num_nodes" not in settings:
        raise ValueError(f"{HEADER}: num_nodes is missing")
    return make_problem(name, **settings)


def read_arrays(path: Path, max_bytes: int, most_unpacked: int | None = None) -> dict[str, Array]:
    """Read the arrays of an .npz file of at most `max_bytes`; for `most_unpacked`, see `read_members`.

    Raises:
        InvalidFile: The file is truncated or corrupt.
        OSError: The file cannot be opened.
    """
    data = read_bytes(path, max_bytes)
    try:
        return read_members(data, most_unpacked)
    except Exception as error:  # on corrupt input, zipfile and NumPy raise a dozen types, none of them their own
        raise InvalidFile(path, None, f"not a readable .npz file: {type(error).__name__}: {error}") from error


def read_members(data: bytes, most_bytes: int | None) -> dict[str, Array]:
    """Read the arrays of an .npz file without allocating more memory than the file's size.

    `np.load` would allocate any size that a header claims, and unpack a zip bomb.

    Args:
        data: Content of the file.
        most_bytes: Maximum unpacked size of compressed members; None refuses compressed members.

    Raises:
        ValueError: A member is compressed, holds objects, or has another size than its header claims.
        Exception: Any exception that `zipfile` and `numpy.lib.format` raise on corrupt input.
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
