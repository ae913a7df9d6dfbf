"""The JSON header of a checkpoint, and the arguments in it: all values are checked before they are used."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from routing_gym.files import found

T = TypeVar("T")
FORMAT = "routing-gym attention model 1"
MAX_DEPTH = 32  # levels of nesting: our headers have seven, and Python's recursion ends at some hundreds
TYPES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("problem", "network", "script", "task", "order", "output"), (str,)),
    **dict.fromkeys(("settings", "observed", "model", "args", "metrics", "game", "sums"), (dict,)),
    **dict.fromkeys(("step", "processes"), (int,)),
    **dict.fromkeys(("seconds", "best", "reward_scale"), (int, float)),
    "variants": (bool,),
    "history": (list,),
    "fixed_size": (int, NoneType),
}
WORDS = {str: "a text", dict: "an object", int: "an integer", float: "a number", bool: "true or false", list: "a list"}
WORDS |= {NoneType: "null", Path: "a path"}


class CheckpointError(ValueError):
    """A checkpoint cannot be read, or is not of the requested kind."""


def read_header(path: Path, metadata: dict[str, str]) -> dict[str, Any]:
    """Read the header from the metadata of a safetensors file.

    Raises:
        CheckpointError: The file is from another program, or its header is not a JSON object, is nested too deeply, or
            has a value of a wrong type.
    """
    if metadata.get("format") != FORMAT:
        raise CheckpointError(
            f"{path}: written by something else (format {metadata.get('format')!r}); expected {FORMAT!r}"
        )
    try:
        header = json.loads(metadata.get("header", ""))
    except (ValueError, RecursionError) as error:  # ValueError: also for numbers of thousands of digits
        raise CheckpointError(f"{path}: its header is no JSON ({error}); take another checkpoint") from None
    if is_nested_deeper(header, MAX_DEPTH):
        raise CheckpointError(
            f"{path}: its header is nested more than {MAX_DEPTH} levels deep; take another checkpoint"
        )
    if type(header) is not dict:
        raise CheckpointError(f"{path}: its header is {found(header)}; expected an object")
    for name, types in TYPES.items():
        if name in header and type(header[name]) not in types:
            expected = " or ".join(WORDS[kind] for kind in types)
            raise CheckpointError(f"{path}: {name} in its header is {found(header[name])}; expected {expected}")
    return header


def is_nested_deeper(value: Any, levels: int) -> bool:
    """Return whether lists and dicts have more than `levels` levels. Works without recursion, which may go too deep."""
    level = [value]
    for _ in range(levels + 1):
        inner = [one.values() if isinstance(one, dict) else one for one in level if isinstance(one, (dict, list))]
        level = [child for children in inner for child in children]
        if not level:
            return False
    return True


def from_json(kind: type[T], values: Any, name: str = "") -> T:
    """Build a dataclass from a JSON object, with each value of the type that the field declares.

    Args:
        kind: Dataclass to build; its own checks run last.
        values: JSON object; missing fields keep their defaults.
        name: Position of the object in the header, for errors.

    Raises:
        ValueError: A field is unknown, or a value has another type.
        TypeError: A field without a default is missing.
    """
    if not isinstance(values, dict):
        raise ValueError(f"{name or kind.__name__} is {found(values)}; expected an object")
    hints = get_type_hints(kind)
    known = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    if unknown := sorted(values.keys() - set(known)):
        raise ValueError(f"{name or kind.__name__}: unknown {', '.join(unknown)}; expected {', '.join(known)}")
    prefix = f"{name}." if name else ""
    return kind(**{key: converted(hints[key], value, prefix + key) for key, value in values.items()})


def converted(hint: Any, value: Any, name: str) -> Any:
    """Convert a JSON value to the type that a field declares.

    Raises:
        ValueError: The value has another type.
    """
    origin, options = get_origin(hint), get_args(hint)
    if isinstance(hint, type) and is_dataclass(hint):
        return from_json(hint, value, name)
    if origin in (Union, UnionType):  # our arguments have unions with None only
        inner = next(option for option in options if option is not NoneType)
        return None if value is None else converted(inner, value, name)
    if origin is tuple and options[-1] is Ellipsis and isinstance(value, (list, tuple)):
        return tuple(converted(options[0], one, name) for one in value)
    if origin is tuple and isinstance(value, (list, tuple)) and len(value) == len(options):
        return tuple(converted(option, one, name) for option, one in zip(options, value, strict=True))
    if origin is dict and isinstance(value, dict):
        return {key: converted(options[1], one, name) for key, one in value.items()}
    if origin is Literal and value in options:
        return value
    if type(value) is hint or (hint is float and type(value) is int):
        return value
    if origin is Literal:
        raise ValueError(f"{name} is {found(value)}; expected one of {', '.join(map(str, options))}")
    expected = f"a list of {len(options)}" if origin is tuple else WORDS.get(origin or hint, str(hint))
    raise ValueError(f"{name} is {found(value)}; expected {expected}")
