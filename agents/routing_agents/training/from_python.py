"""`routing_agents.train`: training from Python, in a notebook for example."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints

import numpy as np

from routing_agents import cli
from routing_agents.checkpoint import check_beside_resume, load_run
from routing_agents.header import converted
from routing_agents.runs import option

PATHS = ("init_from", "resume", "runs")
NOT_HERE = {"plan": "routing-gym train --plan", "processes": "routing-gym train --processes"}
LOCK = threading.Lock()  # of imports


def train(env_id: str | None = None, **settings: Any) -> Path:
    """Train a policy with REINFORCE in this process, and return the folder of the run.

    `routing_agents.load` reads the trained policy from that folder. Ctrl-C, or the stop button of a notebook, stops the
    run after the current step and saves it; `train(resume=folder)` continues it.

    Args:
        env_id: Problem and number of nodes, such as "routing/TSP-20", which is the default.
        **settings: Options of `routing-gym train` with underscores, such as `batch_size=512`, `embed_dim=64` or
            `env_kwargs={"prize": "uniform"}`; `routing-gym train --help-all` explains them. Training uses one process.

    Raises:
        TypeError: There is no such option.
        ValueError: An option is invalid, or there is no run to resume in this process.
        OSError: The run's folder cannot be written.
        TrainingDivergedError: The loss or the gradient is not finite.
    """
    script = load_script(cli.SCRIPTS["train"])
    given = settings if env_id is None else {"env_id": env_id, **settings}
    args = read_settings(script.Args, given)
    if args.resume is None:
        args = replace(args, processes=1)
    else:
        check_beside_resume(args, map(option, given))
        if (processes := load_run(args)[2].get("processes", 1)) != 1:
            raise ValueError(
                f"{args.resume}: a run of {processes} processes; continue it by routing-gym train --resume"
            )
    folder: Path = script.main(args)
    return folder


def load_script(file: str) -> ModuleType:
    """Import a script of agents/; an editable installation has no copies in the package."""
    name = f"routing_agents.scripts.{Path(file).stem}"
    with LOCK:
        if name not in sys.modules:
            spec = spec_from_file_location(name, cli.script_path(file))
            assert spec is not None
            assert spec.loader is not None
            sys.modules[name] = module_from_spec(spec)
            try:
                spec.loader.exec_module(sys.modules[name])
            except BaseException:
                del sys.modules[name]
                raise
        return sys.modules[name]


def read_settings(kind: Any, settings: Mapping[str, Any]) -> Any:
    """Return the arguments of a script from keyword arguments; sizes of the attention model stand beside the others.

    Raises:
        TypeError: There is no such option.
        ValueError: An option is invalid, or does not apply here.
    """
    usual = kind()
    hints, of_network = get_type_hints(kind), get_type_hints(type(usual.attention))
    values, network = dict[str, Any](), dict[str, Any]()
    for name, value in settings.items():
        if name in NOT_HERE:
            raise ValueError(f"train uses one process and has no {name}; run {NOT_HERE[name]}")
        value = plain(value)
        if name in PATHS:
            values[name] = None if value is None else Path(value)
        elif name == "env_kwargs" and isinstance(value, Mapping):
            given = {key: plain(one) for key, one in value.items()}
            values[name] = {key: one if isinstance(one, str) else json.dumps(one) for key, one in given.items()}
        elif name in hints:
            values[name] = value if type(value) is hints[name] else converted(hints[name], value, name)
        elif name in of_network:
            network[name] = converted(of_network[name], value, name)
        else:
            known = [*hints, *of_network]
            near = [one for one in known if initials(one) == name] or get_close_matches(name, known, 1, 0.75)
            raise TypeError(f"train has no option {name}" + (f"; did you mean {near[0]}?" if near else ""))
    if network:
        values["attention"] = replace(values.get("attention", usual.attention), **network)
    return replace(usual, **values)


def plain(value: Any) -> Any:
    """Return a number or an array of NumPy as Python's numbers; other values unchanged."""
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value


def initials(name: str) -> str:
    """Return the first letters of the words of an option, such as lr of learning_rate."""
    return "".join(word[0] for word in name.split("_"))
