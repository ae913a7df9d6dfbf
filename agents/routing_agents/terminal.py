"""Output of the scripts: plain text, and errors as messages."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import gymnasium as gym
from rich.console import Console

from routing_agents import cli
from routing_agents.arguments import parse
from routing_agents.checkpoint import check_beside_resume
from routing_agents.policies.attention.memory import named_memory_errors
from routing_agents.runs import ProcessLostError
from routing_gym.files import printable
from routing_gym.solvers.runtime.work import WorkersNotReady

ArgsT = TypeVar("ArgsT")
STOPPED = "stopped by Ctrl-C"  # of plans and solved files
EXPECTED = (ValueError, OSError, ImportError, MemoryError, WorkersNotReady, gym.error.Error)


def plain_console(stderr: bool = False) -> Console:
    """Return a console that prints text unchanged, also in tables: square brackets and colons are not markup."""
    return Console(stderr=stderr, markup=False, emoji=False)


def command_line(
    main: Callable[[ArgsT], Any],
    args_type: type[ArgsT],
    description: str | None,
    also: tuple[type[Exception], ...] = (),
    stopped: str = "stopped at once; what was saved before is sound",
) -> None:
    """Call a script's `main` with the arguments of the command line; on expected errors, exit with a message.

    Args:
        main: Main function of the script.
        args_type: Dataclass of the script's arguments.
        description: The script's docstring, for --help.
        also: Further exceptions that end the script with a message instead of a traceback.
        stopped: Message after Ctrl-C.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # escapes characters that the terminal cannot encode
            stream.reconfigure(errors="backslashreplace")
    script = Path(cli.program()).stem
    expected: tuple[type[Exception], ...] = (*EXPECTED, ProcessLostError, *also)
    try:
        with named_memory_errors():
            args = parse(args_type, description)
            if getattr(args, "resume", None) is not None:  # here, since a default that is given looks like none
                given = (word.partition("=")[0] for word in sys.argv[1:] if word.startswith("--"))
                check_beside_resume(args, given)
            main(args)
    except expected as error:
        first = os.environ.get("RANK", "0") == "0" or isinstance(error, ProcessLostError)
        message = printable(f"{script}: {cli.as_subcommands(str(error))}")
        sys.exit(message if first else 1)  # the other processes raise the same error
    except KeyboardInterrupt:
        sys.exit(f"{script}: {stopped}")
