"""Utilities of training runs: problem, device, random numbers and folder."""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import MISSING, fields
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from routing_agents import cli
from routing_gym.arrays import batch_size
from routing_gym.files import PARTIAL
from routing_gym.problem import AnyProblem
from routing_gym.problems import LISTED, PROBLEMS, make_problem
from routing_gym.solvers import FastTSP
from routing_gym.solvers.runtime.executors import usable_cores

WINDOWS = os.name == "nt"
# Not 0: NumPy pads seeds with zeros, so that (seed, 0, 0, 0) would give the instances of a test set with that seed.
HELD_OUT_STREAM, EVALUATION_STREAM, SIZE_STREAM, TRAINING_STREAM, LAYER_STREAM = 1, 2, 3, 4, 5
HELD_OUT_SEED = 20190307  # the same for all runs, so that gaps are comparable and references are solved once
MOST_COUNT = 10**6  # largest number of items that are held in memory at the same time
MOST_INTEGER = 2**63 - 1  # largest seed that torch accepts
MOST_NUMBER = 1e30  # float32 holds it, and torch can multiply by it
MOST_THREADS = 1024  # more threads would only wait for each other
QUICK_SOLVERS = (FastTSP(),)  # accurate to the last digit within seconds for 1,000 instances
LAST, BEST, LOCK = "last.safetensors", "best.safetensors", "lock"  # in the folder of a run


class ProcessLostError(RuntimeError):
    """Another process of the run has ended unexpectedly."""


class TrainingDivergedError(RuntimeError):
    """Training has diverged: the loss or the gradient is not finite."""


def stream(seed: int, purpose: int, index: int, rank: int = 0) -> np.random.Generator:
    """Return the random number generator of one step for one purpose; a resume needs no other saved generator."""
    return np.random.default_rng((seed, purpose, index, rank))


def held_out_instances(problem: Any, count: int) -> Any:
    """Return the first `count` held-out instances (NumPy) of a problem or game: the same for all runs."""
    return problem.generate(stream(HELD_OUT_SEED, HELD_OUT_STREAM, 0), count)


def check_integers(args: Any, *names: str, least: int = 1, most: int = MOST_INTEGER) -> None:
    """Check that some fields of `args` hold integers from `least` to `most`, or non-empty tuples of them.

    Raises:
        ValueError: A field holds something else; the message has the option and its value.
    """
    for name in names:
        value = getattr(args, name)
        each = value if isinstance(value, tuple) else (value,)
        if not each or any(type(one) is not int or one < least for one in each):
            words = "integers" if isinstance(value, tuple) else "an integer"
            raise ValueError(f"{option(name)} must be {words} of at least {least}, got {value!r}")
        if max(each) > most:
            raise ValueError(f"{option(name)} must be at most {most}, got {value}")


def check_numbers(args: Any, *names: str, zero: bool = False, most: float = MOST_NUMBER) -> None:
    """Check that some fields of `args` hold positive numbers, of at most `most`; None stands for a default.

    Args:
        args: Dataclass of arguments.
        names: Names of the fields to check.
        zero: Whether zero is allowed, too.
        most: Largest allowed number; the default fits float32.

    Raises:
        ValueError: A field holds something else; the message has the option and its value.
    """
    for name in names:
        value = getattr(args, name)
        if value is not None and not (type(value) in (int, float) and (0 < value <= most or (zero and value == 0))):
            words = f"a number in [0, {most:g}]" if zero else f"a positive number of at most {most:g}"
            raise ValueError(f"{option(name)} must be {words}, got {value!r}")


def option(name: str) -> str:
    """Return the command-line option of a field."""
    return "--" + name.replace("_", "-")


def changed(args: Any) -> list[str]:
    """Return the fields of `args` that differ from their defaults; those without a default always do."""
    defaults = ((one, one.default if one.default_factory is MISSING else one.default_factory()) for one in fields(args))
    return [field.name for field, default in defaults if getattr(args, field.name) != default]


def read_settings(env_kwargs: dict[str, str]) -> dict[str, Any]:
    """Return a problem's settings from the command line, with numbers and truth values converted from text.

    Raises:
        ValueError: A setting is a list or an object, which no problem accepts.
    """

    def literal(key: str, text: str) -> Any:
        if text in ("True", "False"):  # spelt as in Python
            return text == "True"
        if text.lstrip()[:1] in ("[", "{"):  # checked first: it may be nested too deeply to be parsed
            raise ValueError(f"--env-kwargs: {key} is {text[:40]!r}; expected a number, true, false or a word")
        try:
            return json.loads(text)
        except ValueError:  # also for numbers of thousands of digits
            return text

    return {key: literal(key, value) for key, value in env_kwargs.items()}


def problem_of(env_id: str, env_kwargs: dict[str, str]) -> AnyProblem:
    """Return the problem of one of our environment ids.

    The id never causes an import, because it may come from an untrusted checkpoint.

    Args:
        env_id: "routing/TSP-20", with any number of nodes; or "routing/TSP" and the setting `num_nodes`.
        env_kwargs: Settings of the problem.

    Raises:
        ValueError: The id is not one of ours, or a setting is invalid.
    """
    match = re.fullmatch(r"(?:routing_gym:)?routing/(\w+?)(?:-(\d+))?", env_id)
    if match is None or match[1] not in PROBLEMS:
        raise ValueError(
            f"--env-id {env_id!r} is not a routing problem; choose routing/NAME-NODES such as routing/TSP-20, "
            f"where NAME is one of {', '.join(LISTED)} or another of the VRP family; for one of your own, set "
            "ROUTING_GYM_MODULES to the module that registers it"
        )
    settings = read_settings(env_kwargs)
    if match[2] is not None:
        if "num_nodes" in settings:
            raise ValueError(f"--env-kwargs: num_nodes is given twice; {env_id} has {match[2]} nodes")
        settings["num_nodes"] = int(match[2])
    if "num_nodes" not in settings:
        raise ValueError(f"--env-id {env_id}: the number of nodes is missing; give {env_id}-20, for example")
    try:
        return make_problem(match[1], **settings)
    except (TypeError, ValueError) as error:
        raise ValueError(f"--env-kwargs: {error}") from error


def choose_device(name: str, option: str = "--device") -> str:
    """Check a device that was given by an option, or choose one for "auto".

    Raises:
        ValueError: The name is invalid, or this machine has no such device.
    """
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if not re.fullmatch(r"cpu|cuda(:\d+)?", name):
        raise ValueError(f"{option} must be cpu, cuda, cuda:1 etc. or auto, got {name!r}")
    if name.startswith("cuda") and int(name[5:] or 0) >= torch.cuda.device_count():
        raise ValueError(f"{option} {name}: torch finds {torch.cuda.device_count()} CUDA devices here; use cpu")
    return name


def reference_cost(problem: AnyProblem, instance: Any, cache: Path) -> float | None:
    """Return the mean cost of a problem's reference solver, or None if no solver is fast enough or installed.

    Args:
        problem: Problem of the instances.
        instance: Batch of held-out instances.
        cache: Folder in which the solutions are kept for the next run.
    """
    fitting = (one for one in QUICK_SOLVERS if problem.name in one.problems)
    solver = next((one for one in fitting if not (problem.matrices and one.needs_symmetry)), None)
    if solver is None:
        return None
    try:
        solver.load()
    except ImportError as error:
        Console().print(f"The gap is not shown: {error}", markup=False, soft_wrap=True)
        return None
    count, seconds = batch_size(instance), batch_size(instance) * solver.time_limit
    workers = usable_cores() if seconds > 2 else 0  # processes take seconds to start: they import the script, and torch
    duration = f"{seconds / workers:.0f} s on {workers} cores" if workers else f"{seconds:.1f} s"
    Console().print(
        f"Reference for the gap: {solver.label} for each of {count:,} held-out instances, "
        f"{duration}, unless an earlier run left them in {cache}.",
        soft_wrap=True,
        markup=False,
    )
    solution = solver.solve(problem, instance, num_workers=workers, progress=True, cache=cache)
    if solution.failed.any():
        raise ValueError(
            f"{solver.name} failed on {int(solution.failed.sum())} held-out instances: {set(solution.status)}"
        )
    return float(solution.cost.mean())


def shown_cost(problem: AnyProblem, cost: float) -> tuple[str, float]:
    """Return the name and the value that tables show for a cost; prizes are negative costs."""
    return ("prize", -cost) if problem.maximises else ("cost", cost)


def command(script: str, *arguments: object) -> str:
    """Return the shell command that runs one of the scripts with this Python: as a subcommand, or from the checkout.

    Args:
        script: File name of the script, such as "solve.py".
        arguments: Arguments, which are quoted for the shell.
    """
    python, here, name = Path(sys.executable), Path.cwd(), cli.subcommand(script)
    ours = shutil.which("routing-gym", path=str(python.parent))
    if name is not None and ours is not None and ours == shutil.which("routing-gym"):
        return quoted("routing-gym", name, *arguments)
    shown = python.relative_to(here) if python.is_relative_to(here) else python
    if (found := shutil.which("python")) is not None and Path(found) == python:
        shown = Path("python")
    path = cli.script_path(script)
    file = path.relative_to(here) if path.is_relative_to(here) else path
    run = [file] if name is None else ["-m", "routing_agents", name]
    return quoted(shown, *run, *arguments)


def quoted(*words: object) -> str:
    """Join words to a command, quoted for the shell."""
    return (subprocess.list2cmdline if WINDOWS else shlex.join)([str(word) for word in words])


def checked_name(name: str) -> str:
    """Check the name of a run, which is that of its folder, and return it.

    Raises:
        ValueError: The name has other characters than letters, digits and . _ + -, or only dots.
    """
    if not re.fullmatch(r"[\w.+-]+", name) or name.strip(".") == "":
        raise ValueError(f"--name {name!r}: use letters, digits and . _ + - only")
    return name


def make_folder(runs: Path, name: str, title: str, seed: int, resumable: bool = True) -> Path:
    """Make the folder of a new run; an empty folder, such as one left by a killed process, is reused.

    Without a name, the folder is called after the title, the seed and the time, with a number if that exists.

    Raises:
        ValueError: The name is not a valid name of a run.
        FileExistsError: The folder is not empty.
    """
    default = f"{title}-seed{seed}-{datetime.now():%Y%m%d-%H%M%S}"
    for number in itertools.count(1):
        folder = runs / (checked_name(name) if name else default + f"-{number}" * (number > 1))
        try:
            folder.mkdir(parents=True, exist_ok=bool(name))
            break
        except FileExistsError:  # without a name: another run began in the same second
            if name:
                raise
        except PermissionError as error:
            raise PermissionError(f"{error}; choose another folder by --runs") from None
    if any(path.name != LOCK and path.suffix != PARTIAL for path in folder.iterdir()):
        continued = f"continue it with --resume {folder}, or " if resumable else ""
        raise FileExistsError(f"{folder} exists; {continued}choose another --name")
    return folder
