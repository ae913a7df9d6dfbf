"""Held-out instances of a training run, generated or of a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from routing_agents import runs
from routing_gym.arrays import select
from routing_gym.data.peers import load_any_npz
from routing_gym.problem import AnyProblem, InvalidInstance
from routing_gym.problems.checks import checked_instance

FILE = "held-out.npz"  # in the folder of a run that was given a file, for resumes


def instances(problem: AnyProblem, count: int, file: str = "") -> Any:
    """Return the first `count` held-out instances (NumPy) of a problem: of a file, or the same for all runs.

    Args:
        problem: Problem of the instances.
        count: Largest number of instances.
        file: Path of an .npz file of `data.save_npz`, rl4co or RouteFinder; empty for generated instances.

    Raises:
        ValueError: The file cannot be read, or holds another problem or size.
        OSError: The file cannot be opened.
    """
    if not file:
        return runs.held_out_instances(problem, count)
    path = Path(file)
    if path.suffix != ".npz":
        raise ValueError(f"--held-out-file {file}: expected an .npz file; routing_gym.data.save_npz writes one")
    read = load_any_npz(path, problem.name)
    found = read.problem
    if (found.name, found.num_nodes, found.matrices) != (problem.name, problem.num_nodes, problem.matrices):
        raise ValueError(f"--held-out-file {file}: instances of {found}; expected {problem}")
    try:
        return select(checked_instance(problem, read.instance), slice(0, count))
    except InvalidInstance as error:
        raise ValueError(f"--held-out-file {file}: {error}") from error
