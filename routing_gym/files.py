"""Common functions of file readers and writers: errors with file and line, bounded reading, atomic writing."""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path
from typing import Any

# Terminals also interpret control characters from 0x80 on. Surrogates stand for bytes of a path that are not UTF-8. XML
# has none of them, nor the last two characters.
CONTROL_CHARACTER = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
PARTIAL = ".partial"  # suffix of a file while it is written; it stays behind if the process is killed


class FileError(ValueError):
    """A file cannot be read.

    Attributes:
        path: Path of the file.
        line: Line number from 1; None if the file has no lines or no single line is at fault.
        reason: The value found and the expected one.
    """

    def __init__(self, path: Path, line: int | None, reason: str) -> None:
        where = printable(path) if line is None else f"{printable(path)}:{line}"
        super().__init__(f"{where}: {reason}")
        self.path = path
        self.line = line
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        """Support pickling between processes; the default would pass the message as the path."""
        return type(self), (self.path, self.line, self.reason)


class InvalidFile(FileError):
    """A file is truncated, corrupt or contradicts itself."""


class UnsupportedFile(FileError):
    """A file appears to be valid, but uses a feature that this package does not support."""


def printable(text: object) -> str:
    """Return a text, such as a path, with control characters escaped like in Python, so that it is safe to print."""
    return CONTROL_CHARACTER.sub(lambda match: repr(match[0])[1:-1], str(text))


def found(text: object) -> str:
    """Quote a value from a file, shortened to fit an error message."""
    quoted = repr(text)
    return quoted if len(quoted) <= 60 else f"{quoted[:57]}..."


def read_bytes(path: Path, max_bytes: int) -> bytes:
    """Read a whole file of at most `max_bytes`.

    Raises:
        InvalidFile: The file is empty, too large, or not a regular file (a device or pipe might never end).
        OSError: The file does not exist or cannot be opened.
    """
    if not path.is_file():
        if not path.exists():
            raise FileNotFoundError(f"{printable(path)}: there is no such file; give the path of an existing file")
        raise InvalidFile(path, None, "not a regular file, but a folder, device or pipe; give the path of a file")
    with path.open("rb") as file:
        data = file.read(max_bytes + 1)
    if not data:
        raise InvalidFile(path, None, "the file is empty")
    if len(data) > max_bytes:
        raise InvalidFile(path, None, f"the file is larger than {max_bytes:,} bytes, the most that is read")
    return data


def read_lines(path: Path, max_bytes: int) -> list[str]:
    """Read a text file (UTF-8 or, failing that, Windows-1252) as lines without their ends.

    Raises:
        InvalidFile: See `read_bytes`; or the file is text in UTF-16, or contains control characters.
        OSError: See `read_bytes`.
    """
    return lines_of(path, read_bytes(path, max_bytes))


def lines_of(path: Path, data: bytes) -> list[str]:
    """Split the bytes of a text file into lines, see `read_lines`.

    Raises:
        InvalidFile: See `read_lines`.
    """
    if data.startswith((b"PK\x03\x04", b"\xd0\xcf\x11\xe0")):  # .xlsx and .ods, .xls
        raise InvalidFile(path, 1, "found a spreadsheet, expected a text file; save the sheet as CSV (UTF-8)")
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise InvalidFile(path, 1, "found text in UTF-16, expected UTF-8; save it as UTF-8")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("cp1252", errors="replace")  # comments of older files
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    control = CONTROL_CHARACTER.search(text)
    if control is not None:
        line = text.count("\n", 0, control.start()) + 1
        raise InvalidFile(path, line, f"found control character {control[0]!r}, expected a text file")
    return text.removesuffix("\n").split("\n")


def check_length(data: bytes | memoryview, max_bytes: int, num_instances: int) -> None:
    """Check that `read_bytes` will accept the data to write.

    Raises:
        ValueError: The data are larger than `max_bytes`.
    """
    if len(data) > max_bytes:
        raise ValueError(
            f"{num_instances:,} instances take {len(data):,} bytes, and files of more than {max_bytes:,} are not read: "
            "write several files"
        )


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file atomically: it is either complete or not changed, even if the process is interrupted.

    A pipe or device is written to, and a symbolic link stays one.

    Raises:
        OSError: The file cannot be written.
    """
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path}: there is no folder {path.parent}; make it first")
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        target.write_bytes(data)
        return
    partial = target.with_name(f"{target.name}.{secrets.token_hex(4)}{PARTIAL}")
    try:
        with partial.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(target)
    except OSError as error:
        error.filename = str(path)  # a full disk is reported without a name, the others with that of the partial file
        raise
    finally:
        partial.unlink(missing_ok=True)
