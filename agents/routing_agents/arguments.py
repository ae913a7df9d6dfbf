"""Command-line arguments of scripts: dataclasses, read by tyro, whose field docstrings are the help texts.

A class may list fields in `advanced = ("sizes", ...)`. `--help` leaves these out, so that it fits on a screen, and
`--help-all` shows them.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import partial
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import docstring_parser
import tyro
from tyro.constructors import ConstructorRegistry, StructConstructorSpec, StructFieldSpec, StructTypeInfo

from routing_agents import cli

ArgsT = TypeVar("ArgsT")
HELP_ALL = "--help-all"
WIDTH = 100  # maximum number of columns of running text


def help_texts(kind: type) -> dict[str, str]:
    """Return the help text of each field of a dataclass, as one line.

    tyro itself would keep the line breaks of the docstring, which are at other places than those of its own layout.
    """
    texts: dict[str, str] = {}
    for base in reversed(kind.__mro__[:-1]):
        found = docstring_parser.parse_from_object(base).params
        texts |= {one.arg_name: " ".join(one.description.split()) for one in found if one.description}
    return texts


def default_of(field: Field[Any], whole: Any) -> Any:
    """Return the default of a field: its value in the default `whole` of its class, if that is given, or its own."""
    if is_dataclass(whole):
        return getattr(whole, field.name)
    if field.default_factory is not MISSING:
        return field.default_factory()
    return tyro.MISSING if field.default is MISSING else field.default


def hint_of(default: str) -> str:
    """Return the default as shown after a help text; nothing for empty defaults, which the text itself explains."""
    return "" if default in ("None", "False", "", "''") else f"(default: {default})"


def metavar_of(hint: Any) -> str | None:
    """Return the placeholder of an optional value, instead of tyro's {None}|INT; None if the value is not optional."""
    options = [option for option in get_args(hint) if option is not NoneType]
    if get_origin(hint) not in (Union, UnionType) or len(options) != 1:
        return None
    inner = get_args(options[0]) or options
    if get_origin(options[0]) is Literal:
        return "{" + ",".join(map(str, inner)) + "}"
    if not all(isinstance(kind, type) for kind in inner):
        return None
    return " ".join("PATH" if kind is Path else kind.__name__.upper() for kind in inner)


def shown(hint: Any, default: Any, hidden: bool) -> Any:
    """Return the type of a field, annotated for its display by --help."""
    bare = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    if not is_dataclass(bare):
        named = any(getattr(one, "metavar", None) for one in getattr(hint, "__metadata__", ()))
        metavar = None if named else metavar_of(bare)
        hint = Annotated[hint, tyro.conf.arg(help_behavior_hint=hint_of, metavar=metavar)]
    if bare is bool and default is False:
        hint = Annotated[hint, tyro.conf.FlagCreatePairsOff]  # --overwrite alone, without --no-overwrite
    return Annotated[hint, tyro.conf.Suppress] if hidden else hint


def build(kind: type[ArgsT], **values: Any) -> ArgsT:
    """Build a dataclass.

    Raises:
        ValueError: A value is invalid; the message names commands as the user can run them.
    """
    try:
        return kind(**values)
    except ValueError as error:
        raise ValueError(cli.as_subcommands(str(error))) from error


def registry(hide_advanced: bool) -> ConstructorRegistry:
    """Return the rule that tyro uses to read our dataclasses.

    Args:
        hide_advanced: Whether to leave out advanced options, from the help and from the accepted arguments.
    """
    rules = ConstructorRegistry()

    @rules.struct_rule
    def read_dataclass(info: StructTypeInfo) -> StructConstructorSpec | None:
        kind = info.type
        if not is_dataclass(kind):
            return None
        hints, texts = get_type_hints(kind, include_extras=True), help_texts(kind)
        hidden = getattr(kind, "advanced", ()) if hide_advanced else ()
        defaults = {field.name: default_of(field, info.default) for field in fields(kind)}
        specs = [
            StructFieldSpec(name, shown(hints[name], default, name in hidden), default, texts.get(name))
            for name, default in defaults.items()
        ]
        return StructConstructorSpec(partial(build, kind), tuple(specs))

    return rules


def split(description: str) -> tuple[str, str]:
    """Split a script's docstring into its summary with the examples below it, and the paragraphs that follow."""
    paragraphs = description.strip().split("\n\n")
    examples = [one for one in paragraphs[1:2] if one.startswith("    ")]  # tyro keeps the lines that are indented
    return "\n".join([paragraphs[0], *examples]), "\n\n".join(paragraphs[1 + len(examples) :])


def wrapped(text: str) -> str:
    """Wrap paragraphs at the width of the terminal; those that are indented or list items keep their lines."""
    width = min(WIDTH, shutil.get_terminal_size().columns)
    return "\n\n".join(
        one if re.match(r"\s|-", one) else textwrap.fill(" ".join(one.split()), width) for one in text.split("\n\n")
    )


def parse(kind: type[ArgsT], description: str | None, arguments: list[str] | None = None) -> ArgsT:
    """Read the arguments of a script from the command line.

    Args:
        kind: Dataclass of the arguments.
        description: The script's docstring. `--help` shows the summary and the examples, `--help-all` all of it.
            None, as with `python -OO`, shows neither.
        arguments: Arguments to read; by default those of this process.

    Raises:
        SystemExit: After `--help`, or if the arguments are wrong.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    wants_all, wants_help = HELP_ALL in arguments, not {*arguments}.isdisjoint(("-h", "--help"))
    summary, details = split(cli.as_subcommands(description or ""))
    try:
        return tyro.cli(
            kind,
            prog=cli.program(),
            description=summary,
            args=["--help" if one == HELP_ALL else one for one in arguments],
            registry=registry(hide_advanced=wants_help and not wants_all),
        )
    except SystemExit:
        if wants_all and details:
            print(wrapped(details))
        elif wants_help and (details or hasattr(kind, "advanced")):
            print(f"More options and explanations: {HELP_ALL}")
        raise


def flags(given: Any, usual: Any, prefix: str = "--") -> Iterator[str]:
    """Yield the arguments that differ from the defaults, as written on the command line, those of networks last.

    Args:
        given: Dataclass of arguments.
        usual: The same dataclass with the defaults.
        prefix: Text before each name.
    """
    hints = get_type_hints(type(given), include_extras=True)
    for field in sorted(fields(given), key=lambda field: is_dataclass(getattr(given, field.name))):
        value, default = getattr(given, field.name), getattr(usual, field.name)
        name = field.name.replace("_", "-")
        if is_dataclass(value):
            beside = tyro.conf.OmitArgPrefixes in get_args(hints[field.name])
            yield from flags(value, default, prefix if beside else f"{prefix}{name}.")
        elif value == default:
            continue
        elif isinstance(value, bool):
            yield f"{prefix}{'' if value else 'no-'}{name}"
        elif isinstance(value, dict):
            yield from (prefix + name, *(text for pair in value.items() for text in pair))
        else:
            yield from (prefix + name, *map(str, value if isinstance(value, tuple) else (value,)))


def make_out_folder(folder: Path) -> None:
    """Make the folder of `--out`, and check that files can be written to it.

    Raises:
        OSError: The folder cannot be made, or no file can be written to it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise OSError(f"--out {folder}: no file can be written there ({error.strerror}); choose another") from error
