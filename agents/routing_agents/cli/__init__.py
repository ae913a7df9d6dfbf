"""The command `routing-gym`: the scripts of agents/ as subcommands, and `routing-gym info`.

This module imports the standard library only, so that it starts fast and without optional packages.
"""

from __future__ import annotations

import os
import re
import runpy
import sys
from pathlib import Path

from routing_agents.cli import extras

SCRIPTS = {"solve": "solve.py", "evaluate": "evaluate.py", "train": "am_reinforce.py", "export": "export_onnx.py"}
SUMMARIES = {
    "solve": "Solve instances from files with a trained model.",
    "evaluate": "Compare solvers and trained models on the same instances.",
    "train": "Train a model with REINFORCE.",
    "export": "Export a trained model to ONNX.",
    "info": "Print versions, extras and hardware, for bug reports.",
}
PACKAGE = Path(__file__).parents[1]
INSTALLED, CHECKOUT = PACKAGE / "scripts", PACKAGE.parent  # the wheel holds copies; an editable installation has none
STARTED_AS = "ROUTING_GYM_COMMAND"  # environment variable, which the processes of a training run inherit


def script_path(name: str) -> Path:
    """Return the file of a script: in the installed package, or in the checkout."""
    return next(folder / name for folder in (INSTALLED, CHECKOUT) if folder is CHECKOUT or (folder / name).is_file())


def subcommand(script: str) -> str | None:
    """Return the subcommand of a script, if this process was started by one or the script is installed; else None."""
    name = next((name for name, file in SCRIPTS.items() if file == script), None)
    return name if name is not None and (STARTED_AS in os.environ or script_path(script).parent == INSTALLED) else None


def program() -> str:
    """Return the name of the program for usage lines and errors: "routing-gym solve", or the script's path."""
    started_as = os.environ.get(STARTED_AS)
    return sys.argv[0] if started_as is None else f"routing-gym {started_as}"


def as_subcommands(text: str) -> str:
    """Replace the names of scripts of agents/ in a text by their subcommands, if they have one; see `subcommand`."""
    for script in SCRIPTS.values():
        if (name := subcommand(script)) is not None:
            text = re.sub(rf"(torchrun .*) agents/{script}", rf"\1 -m routing_agents {name}", text)
            text = re.sub(rf"(?<![\w/.-])(python )?(agents/)?{script}\b", f"routing-gym {name}", text)
    return text


def usage() -> str:
    """Return the text of `routing-gym --help`."""
    commands = "\n".join(f"  {name:10}{summary}" for name, summary in SUMMARIES.items())
    return (
        "usage: routing-gym [-h] [--version] COMMAND [OPTIONS]\n\n"
        "Solve routing problems with trained models, and train your own.\n\n"
        f"commands:\n{commands}\n\nOptions of a command: routing-gym COMMAND --help"
    )


def show(text: str) -> None:
    """Print a text.

    Raises:
        SystemExit: Standard output is closed or full.
    """
    try:
        print(text, flush=True)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python writes the rest again when it ends
        sys.exit(f"routing-gym: {error}")


def run_script(name: str, arguments: list[str]) -> None:
    """Run the script of a subcommand in this process, like `python agents/SCRIPT`.

    Raises:
        SystemExit: A package is missing, or the script ends with an error.
    """
    os.environ[STARTED_AS] = name
    path = str(script_path(SCRIPTS[name]))
    sys.argv[:] = [path, *arguments]
    try:
        runpy.run_path(path, run_name="__main__")
    except ImportError as error:
        if str(error).startswith("ROUTING_GYM_MODULES: "):  # a module of the user is missing, no package
            sys.exit(f"routing-gym {name}: {error}")
        missing = ", ".join(extras.missing("agents"))
        sys.exit(
            f"routing-gym {name}: {error}. Install routing-gym with the extra [agents], in a checkout: "
            f'pip install ".[agents]"' + (f" (missing: {missing})" if missing else "")
        )
    except KeyboardInterrupt:  # while packages are imported; the script handles it later
        sys.exit(f"routing-gym {name}: stopped before it had begun")


def main(arguments: list[str] | None = None) -> None:
    """Run the command line.

    Raises:
        SystemExit: The command is unknown, or it fails.
    """
    name, *rest = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if name in ("-h", "--help"):
        show(usage())
    elif name == "--version":
        show(f"routing-gym {extras.version('routing-gym')}")
    elif name == "info":
        from routing_agents.cli.info import main as info  # reads the hardware

        show(info(rest))
    elif name in SCRIPTS:
        run_script(name, rest)
    else:
        sys.exit(f"routing-gym: no command {name!r}; expected {', '.join(SUMMARIES)}")
