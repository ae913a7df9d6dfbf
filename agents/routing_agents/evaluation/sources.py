"""Files of instances: reading them, costs in the file's own unit, and writing tours."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from routing_agents.runs import option
from routing_agents.trained import TrainedModel
from routing_gym import data
from routing_gym.arrays import FloatArray, IntArray
from routing_gym.data.npz import npz_bytes
from routing_gym.data.own import OwnInstance, columns_of, from_columns, read_csv, recognise
from routing_gym.files import printable, write_atomically
from routing_gym.problem import AnyProblem, InfeasibleTour

MAX_MATRIX_NODES = 2_000  # for larger files, decoded tours are compared by Euclidean lengths, not rounded ones
NUMBERS = ("capacity", "max_length", "required_prize", "num_salesmen")  # numbers of an instance with their own options


@dataclass(frozen=True, eq=False)
class Instances:
    """Contents of an .npz file: B instances."""

    name: str
    problem: AnyProblem
    instance: Any

    def cost(self, actions: IntArray) -> float:
        """Return the mean cost of tours (B, T)."""
        return float(np.mean(self.problem.objective(self.instance, actions))) * (-1) ** self.problem.maximises


Source = data.FileInstance | OwnInstance | Instances


def cost_of(source: Source, actions: IntArray) -> float:
    """Return the cost of tours (B, T) in the file's own unit; the mean of several."""
    return source.cost(actions if isinstance(source, Instances) else actions[0])


def objectives(source: Source, actions: IntArray) -> FloatArray:
    """Return what each tour (B, T) minimises, in the file's own unit: its cost, or minus its prize; float64 (B,).

    It is inf for a tour that violates a limit that only the file states.
    """
    if isinstance(source, Instances):
        return np.asarray(source.problem.objective(source.instance, actions))
    try:
        return np.array([source.cost(actions[0]) * (-1) ** source.problem.maximises])
    except InfeasibleTour:
        return np.array([math.inf])


def read(path: Path, problem: str | None, numbers: Mapping[str, float], model: TrainedModel | None = None) -> Source:
    """Read one file.

    Args:
        path: File to read.
        problem: Name of the problem, for CSV files; see `problem_of_table`.
        numbers: Numbers of the whole instance by name, for CSV files.
        model: Model that will solve the file, if one was named.

    Raises:
        ValueError: The content of the file is invalid.
        OSError: The file cannot be opened.
    """
    if path.suffix.lower() == ".npz":
        return Instances(printable(path.stem), *data.load_npz(path))
    if path.suffix.lower() != ".csv":
        return data.read_instance(path, max_matrix_nodes=MAX_MATRIX_NODES)
    columns, unused = read_csv(path)
    try:
        kind = problem_of_table(columns, problem, numbers, model)
        name, declared = (kind, columns_of(kind)) if isinstance(kind, str) else (kind.name, kind.columns)
        needed = (column.name for column in declared if column.per == "instance" and column.required)
        if missing := [option_of(number) for number in needed if number not in numbers]:
            raise ValueError(f"{name} needs {', '.join(missing)}; give it, or name another problem by --problem")
        taken = {key for column in declared for key in column.keys}
        chosen = {key: value for key, value in {**columns, **numbers}.items() if key in taken}
        own = from_columns(kind, chosen, name=printable(path.stem))
    except ValueError as error:
        raise data.InvalidFile(path, None, str(error)) from None
    return replace(own, unused=(*unused, *(key for key in columns if key not in taken)))


def problem_of_table(
    columns: Collection[str], named: str | None, numbers: Collection[str], model: TrainedModel | None
) -> str | AnyProblem:
    """Return the problem of a CSV file: the one that is named, that of the model, if it fits, or the first that fits.

    Raises:
        ValueError: No problem takes these columns.
    """
    name = named or recognise(columns, numbers)
    if model is None:
        return name
    required = {key for column in model.problem.columns if column.tabular and column.required for key in column.keys}
    takes = not named and name not in model.names and required <= set(columns)
    return model.problem if takes or name == model.problem.name else name


def option_of(number: str) -> str:
    """Return the option that gives a number of the whole instance."""
    return option(number) if number in NUMBERS else f"--numbers {number}"


def check_used(problem: str | None, numbers: Mapping[str, float], sources: Iterable[Source]) -> None:
    """Check that the problem and each number given for CSV files have an effect on one of the files.

    Raises:
        ValueError: An option has no effect; the message names it.
    """
    tables = [source.problem for source in sources if isinstance(source, OwnInstance)]
    if problem is not None and not tables:
        raise ValueError(f"--problem {problem} has no effect: none of the files is a CSV file; leave it out")
    used = {column.name for table in tables for column in table.columns}
    for name, value in numbers.items():
        if name not in used:
            read_as = ", ".join(sorted({table.name for table in tables}))
            why = f"tables are read as {read_as}, without a {name}" if tables else "none of the files is a CSV file"
            raise ValueError(f"{option_of(name)} {value} has no effect: {why}; leave it out")


def ending_of(source: Source) -> str:
    """Return the ending of the file of a file's tours."""
    endings = {OwnInstance: ".csv", Instances: ".npz"}
    return endings.get(type(source), ".sol" if source.problem.has_depot else ".tour")


def write_tours(path: Path, source: Source, actions: IntArray) -> None:
    """Write tours (B, T) of a file, completely or not at all.

    Raises:
        OSError: The tours cannot be written.
    """
    if isinstance(source, data.FileInstance):
        data.write_tour(path, source, actions[0])
    elif isinstance(source, OwnInstance):
        write_atomically(path, tour_csv(source, actions[0]).encode())
    else:
        cost = source.problem.objective(source.instance, actions)
        write_atomically(path, npz_bytes(actions=actions, cost=cost))


def tour_csv(own: OwnInstance, actions: IntArray) -> str:
    """Return a tour as CSV: for each visit, the row of the node in the file, from 0, and its columns."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["row", *own.columns])
    for node in own.problem.visits(actions):
        writer.writerow([node, *(f"{values[node]:.15g}" for values in own.columns.values())])
    return text.getvalue()
