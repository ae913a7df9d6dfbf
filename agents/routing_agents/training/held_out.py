"""Held-out instances of a training run: how their costs are shown, the gap, a solved instance and the last lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from routing_agents import checkpoint, runs
from routing_agents.policies.attention.decoding import solve
from routing_agents.policies.protocol import PolicyNetwork
from routing_agents.training.report import Column
from routing_gym import render
from routing_gym.arrays import select, to_backend
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


def table_columns(problem: AnyProblem, baseline: str, reference: float | None) -> tuple[Column, ...]:
    """Return the columns of the live table; prizes, which are negative costs, are shown as prizes.

    The mean of the shared baseline is the mean cost, so it has no column; nor has the gap without a reference.
    """
    name, sign = runs.shown_cost(problem, 1)
    return (
        Column("epoch", ".0f"),
        Column("cost", ".4f", title=name, curve=f"sampled {name}, training", sign=sign),
        *([] if baseline == "shared" else [Column("baseline", ".4f", sign=sign)]),
        Column("greedy", ".4f", curve=f"greedy {name}, held out", sign=sign),
        *([] if reference is None else [Column("gap", ".2%")]),
        Column("instances_per_second", ".0f", title="inst/s"),
    )


def compared(greedy: float, reference: float | None) -> dict[str, float]:
    """Return the gap to the reference, if there is one; for prizes, which are negative costs, the shortfall."""
    return {} if reference is None else {"gap": (greedy - reference) / abs(reference)}


def solve_first(model: PolicyNetwork, problem: AnyProblem, instances: Any) -> tuple[Any, list[int]]:
    """Return the first of the instances, as NumPy arrays, and its greedy tour."""
    first = select(instances, slice(0, 1))
    tour: list[int] = solve(model, problem, first).actions[0].tolist()
    return to_backend(first, "numpy"), tour


def results(
    model: PolicyNetwork, problem: AnyProblem, instances: Any, reference: float | None, folder: Path
) -> list[str]:
    """Draw the solution of the best weights to a file; return lines about their quality and use.

    Args:
        model: Policy network, into which the best weights are loaded.
        problem: Problem of the instances.
        instances: Held-out instances; the first one is drawn.
        reference: Mean cost of a solver's solutions, or None.
        folder: Folder of the run.
    """
    tensors, header = checkpoint.load(folder / runs.BEST)
    checkpoint.load_weights(model, checkpoint.group(tensors, "model"), folder / runs.BEST)
    render.save(folder / "solution.png", problem, *solve_first(model, problem, instances))
    best = header["metrics"]
    name, greedy = runs.shown_cost(problem, best["greedy"])
    side = "below" if problem.maximises else "above"
    gaps = compared(best["greedy"], reference)
    gap = f", {gaps['gap']:.2%} {side} the reference" if gaps else ""
    return [
        f"Best greedy {name} on held-out instances: {greedy:.4f}{gap} (epoch {best['epoch']:.0f}).",
        f"Learning curve: {folder}/curve.png    a solved instance: {folder}/solution.png",
        f"Solve a file:   {runs.command('solve.py', '--checkpoint', folder)} FILE...",
    ]
