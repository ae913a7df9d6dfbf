"""Instances from a user's own arrays or CSV file, in the user's units.

own = from_columns("CVRP", {"x": x, "y": y, "demand": demand, "capacity": 30})
own.problem, own.instance        # as the model observes it: coordinates in the unit square
own.cost(actions)                # in the user's units

Each problem declares its columns in its own file: `Problem.columns`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from routing_gym.arrays import Array, FloatArray, euclidean, to_numpy
from routing_gym.data.cells import LARGEST, BadCell, number
from routing_gym.data.csv_file import read_csv_file
from routing_gym.data.scaling import LIMIT_SLACK, SCALED, is_time, length_scale, rounded, scaled
from routing_gym.files import InvalidFile, found
from routing_gym.problem import AnyProblem, InvalidInstance
from routing_gym.problems import PROBLEMS, make_problem, unknown_problem
from routing_gym.problems.geometry import embedding
from routing_gym.traits import DISTANCES, Column

MAX_INTEGER = 2**53  # larger integers are not exact in float64


@dataclass(frozen=True, eq=False)
class OwnInstance:
    """One instance in the user's units, and as the model observes it. Node 0 is the depot, if there is one.

    Attributes:
        name: Name for tables and pictures.
        problem: Problem of the instance.
        instance: Batch of one: coordinates moved and scaled into the unit square, lengths divided by `scale`, and so
            are times, or by a scale of their own if `durations` are given.
        exact: The same instance before rounding to float32.
        columns: The columns that hold a value for each node, as given: float64 (A,).
        scale: Length in the user's units that is 1 in the instance.
        unused: Names of the file's columns that were not read.
    """

    name: str
    problem: AnyProblem
    instance: Any
    exact: Any
    columns: Mapping[str, FloatArray]
    scale: float
    unused: tuple[str, ...] = ()

    def cost(self, actions: Array) -> float:
        """Check a complete tour; return its cost in the user's units, or its prize if the problem maximises.

        Args:
            actions: Actions of the environment, integers (T,).

        Raises:
            InfeasibleTour: The tour breaks a rule; the message has step, value, bound and remedy.
        """
        tours = to_numpy(actions)[None]
        self.problem.objective(self.instance, tours)
        cost = self.problem.cost_in_units(float(self.problem.objective(self.exact, tours)[0]), self.scale)
        return 0.0 - cost if self.problem.maximises else cost


def from_columns(
    problem: str | AnyProblem, columns: Mapping[str, Any], *, name: str = "own", matrices: bool = False
) -> OwnInstance:
    """Make an instance from a user's own numbers.

    Args:
        problem: Name of the problem, such as "VRPTW"; or a problem, whose settings are kept, except for the numbers of
            nodes and depots.
        columns: Values by the names in `Problem.columns`: numbers (A,) for each node, with "x" and "y" for the
            coordinates, a matrix (A, A), or one number for the instance. None counts as missing. Row 0 is the depot, if
            the problem has one. A pandas or polars table is accepted, too.
        name: Name for tables and pictures.
        matrices: Whether the problem, given by its key, observes matrices. `distances` may then be given without
            coordinates, which are computed from them by multidimensional scaling.

    Raises:
        TypeError: `columns` is neither a mapping nor a table.
        ValueError: A column is missing, unknown, or holds an invalid value; the message has row, value and remedy.
    """
    template = replace(smallest(problem), matrices=matrices) if isinstance(problem, str) else problem
    declared = template.columns
    given = given_columns(columns)
    if template.matrices and "distances" in given and not {"x", "y"} & given.keys():
        lengths = numbers(DISTANCES, "distances", given["distances"])
        given |= dict(zip("xy", embedding(lengths).T, strict=True))
    check_names(template.name, declared, given)
    values = {key: numbers(column, key, given[key]) for column in declared for key in column.keys if key in given}
    num_nodes = count_nodes(template, values)
    for column in declared:
        check_values(column, values, num_nodes, template.has_depot)
    scale = length_scale(values, "distances")
    time_scale = length_scale(values, "durations") if "durations" in values else scale
    scales = {column.name: time_scale if is_time(column) else scale for column in declared if column.kind in SCALED}
    filled = [(column, value) for column in declared if (value := scaled(column, values, scales)) is not None]
    exact = {column.target: value for column, value in filled if column.target}
    depots = count_depots(template, values)
    size: dict[str, Any] = {"num_nodes": num_nodes - depots} | ({"num_depots": depots} if "depot" in values else {})
    rules = make_problem(problem, **size, matrices=matrices) if isinstance(problem, str) else replace(problem, **size)
    instance = rules.instance_type(
        **{column.target: rounded(column, value) for column, value in filled if column.target}
    )
    try:
        rules.validate(instance)
    except InvalidInstance:
        check_in_units(rules, instance, scales)
        raise  # the rounding hides the fault in the user's unit
    for column in declared:  # limits checked on the rounded instance must not fail here
        if column.limit and column.target in exact:
            exact[column.target] = exact[column.target] * (1 + LIMIT_SLACK)
    table = {key: values[key] for column in declared if column.tabular for key in column.keys if key in values}
    return OwnInstance(name, rules, instance, rules.instance_type(**exact), table, scale)


def given_columns(table: Any) -> dict[str, Any]:
    """Return the columns of a mapping or table by name, without those that are None.

    Raises:
        TypeError: It is neither.
    """
    names = getattr(table, "columns", table)
    if names is table and not isinstance(table, Mapping):
        told = "expected columns by name, as in {'x': x, 'y': y}, or a table of pandas or polars"
        raise TypeError(f"columns: {told}, got {type(table).__name__}")
    return {key: table[key] for key in names if table[key] is not None}


def smallest(problem: str) -> AnyProblem:
    """Return a problem with the fewest nodes.

    Raises:
        ValueError: The problem does not exist.
    """
    if problem not in PROBLEMS:
        raise ValueError(unknown_problem(problem))
    return make_problem(problem, PROBLEMS[problem].min_nodes)


def columns_of(problem: str) -> tuple[Column, ...]:
    """Return the columns of a problem's instances.

    Raises:
        ValueError: The problem does not exist.
    """
    return smallest(problem).columns


def check_names(problem: str, declared: Sequence[Column], given: Mapping[str, Any]) -> None:
    """Check that all required columns are given, and no unknown ones.

    Raises:
        ValueError: A column is missing or unknown; the message names it.
    """
    required = [key for column in declared if column.required for key in column.keys]
    known = [key for column in declared for key in column.keys]
    extra = sorted(map(str, given.keys() - set(known)))
    if missing := [key for key in required if key not in given]:
        unknown = f", {', '.join(extra)} unknown" if extra else ""
        alone = missing == ["x", "y"] and "distances" in given
        remedy = "; for a matrix alone, take ATSP, or matrices=True" if alone else ""
        raise ValueError(f"{problem} needs {', '.join(required)}; {', '.join(missing)} missing{unknown}{remedy}")
    if extra:
        raise ValueError(f"{problem} has no {', '.join(extra)}; it takes {', '.join(known)}")


def count_nodes(problem: AnyProblem, values: Mapping[str, FloatArray]) -> int:
    """Return the number of nodes, which is the same in all columns.

    Raises:
        ValueError: The columns have different lengths, or there are too few nodes.
    """
    per_node = (key for column in problem.columns if column.per == "node" for key in column.keys)
    lengths = {key: len(values[key]) for key in per_node if key in values}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"the columns have different lengths: {lengths}")
    number, least = next(iter(lengths.values())), problem.min_nodes + problem.has_depot
    if number < least:
        depot = ", the depot among them" * problem.has_depot
        raise ValueError(f"{number} rows; {problem.name} needs at least {least}{depot}")
    return number


def count_depots(problem: AnyProblem, values: Mapping[str, FloatArray]) -> int:
    """Return the number of depots, which must come first.

    Raises:
        ValueError: A depot comes after a customer, or there are no depots, or no customers.
    """
    if "depot" not in values:
        return int(problem.has_depot)
    depots = int(values["depot"].sum())
    if not 0 < depots < len(values["depot"]) or not values["depot"][:depots].all():
        raise ValueError(f"depot is 1 in {depots} of {len(values['depot'])} rows; put the depots first, then customers")
    return depots


def numbers(column: Column, key: str, value: Any) -> FloatArray:
    """Return the values of a column as float64: (A,), (A, A) for a matrix, or () for an instance.

    Raises:
        ValueError: The values are not finite numbers of that shape, or are negative; coordinates may be negative.
    """
    if column.per == "instance":
        return np.asarray(positive(key, value))
    values = as_floats(key, value)
    if column.kind == "matrix":
        if values.ndim != 2 or values.shape[0] != values.shape[1]:
            raise ValueError(f"{key} has shape {values.shape}; expected a square matrix, a row and a column per node")
        np.fill_diagonal(values, 0.0)  # some files store a large sentinel there
    elif values.ndim != 1:
        raise ValueError(f"{key} has shape {values.shape}; expected one number per row")
    least = -LARGEST if column.kind == "coords" else 0.0
    bad = ~((values >= least) & (values <= LARGEST))  # nan too
    if bad.any():
        place = tuple(map(int, np.argwhere(bad)[0]))
        row = f"row {place[0]}" + "".join(f", column {j}" for j in place[1:])
        raise ValueError(f"{key} of {row} is {values[place]:g}; expected a number from {least:g} to {LARGEST:g}")
    return values


def check_values(column: Column, values: Mapping[str, FloatArray], num_nodes: int, has_depot: bool) -> None:
    """Check the values of a column: the depot's value, integers, flags and rows.

    Raises:
        ValueError: A value is invalid; the message has row, value and expectation.
    """
    if column.kind == "coords" or column.name not in values:
        return
    name, given = column.name, np.atleast_1d(values[column.name])
    place = " of row {}" if column.per == "node" else ""
    if has_depot and column.per == "node" and column.kind != "matrix" and not column.at_depot and given[0] != 0:
        raise ValueError(f"{name} of row 0, the depot, is {given[0]:g}; set it to 0")
    expected, bad = "", np.zeros(given.shape, dtype=bool)
    if column.kind == "flag":
        expected, bad = "0 or 1", (given != 0) & (given != 1)
    elif column.kind == "node":
        expected, bad = f"the number of a row, 0 to {num_nodes - 1}", (given % 1 != 0) | (given >= num_nodes)
    elif column.integer:
        remedy = ": choose a smaller unit, so that sums are exact" * (column.kind == "amount")
        expected = f"an integer{remedy}"
        bad = (given % 1 != 0) | (given > MAX_INTEGER)
    if bad.any():
        first = int(bad.argmax())
        raise ValueError(f"{name}{place.format(first)} is {given[first]:g}; expected {expected}")


def check_in_units(rules: AnyProblem, instance: Any, scales: Mapping[str, float]) -> None:
    """Validate an instance with lengths and times in the user's units, so that messages use these units.

    Raises:
        InvalidInstance: The instance is invalid; the message is that of `validate`, without the number of the row.
    """
    scaled_columns = [column for column in rules.columns if column.name in scales and column.kind != "coords"]
    fields = {column.target: scales[column.name] for column in scaled_columns if column.target}
    held = {field: value * by for field, by in fields.items() if (value := getattr(instance, field)) is not None}
    if "distances" in fields and "distances" not in held:
        held["distances"] = euclidean(instance.coords[:, :, None], instance.coords[:, None]) * fields["distances"]
    try:
        rules.validate(replace(instance, **{field: value.astype(np.float32) for field, value in held.items()}))
    except InvalidInstance as error:
        raise InvalidInstance(str(error).replace("row 0, ", "")) from None


def as_floats(key: str, values: Any) -> FloatArray:
    """Return numbers of any shape as a new float64 array.

    Raises:
        ValueError: The values are not numbers.
    """
    try:
        found = np.asarray(values)
        if np.ma.is_masked(values):  # masked values are missing
            found = np.ma.filled(values.astype(np.float64), np.nan)
        if found.dtype.kind in "iufbOUS":  # text is accepted, since CSV readers return numbers as text
            return found.astype(np.float64)
        raise TypeError(f"found {found.dtype}")
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:  # RuntimeError: torch, for gradients
        raise ValueError(f"{key}: not numbers ({error})") from None


def positive(key: str, value: Any) -> float:
    """Return a positive number.

    Raises:
        ValueError: The value is not one positive number, or too large.
    """
    if (given := np.asarray(value)).size != 1:
        raise ValueError(f"{key}: found {given.size} values; expected one positive number for the whole instance")
    number = given.item()
    real = isinstance(number, (int, float)) and not isinstance(number, bool)
    if not real or not 0 < number <= LARGEST:
        raise ValueError(f"{key} must be a positive number of at most {LARGEST:g}, got {value!r}")
    return float(number)


def recognise(columns: Collection[str], numbers: Collection[str] = ()) -> str:
    """Return the problem that takes all columns of a table, needs no others, and fits the numbers best.

    Args:
        columns: Names of the columns with a value for each node.
        numbers: Names of the values per instance, given in addition to the table. They decide between problems that
            take the same columns; `from_columns` reports missing ones.

    Raises:
        ValueError: No problem takes these columns.
    """
    fitting = []
    for problem in PROBLEMS:
        declared = columns_of(problem)
        per_node = {key: column.required for column in declared if column.tabular for key in column.keys}
        if per_node and set(columns) <= per_node.keys() and all(key in columns for key in per_node if per_node[key]):
            own = {column.name for column in declared if column.per == "instance"}
            fitting.append((len(own ^ set(numbers)), problem))
    if not fitting:
        told = f"no problem has the columns {', '.join(columns)}"
        raise ValueError(f"{told}; name the problem, and remove the columns that it does not have")
    return min(fitting, key=lambda one: one[0])[1]


def read_csv(path: str | Path) -> tuple[dict[str, FloatArray], tuple[str, ...]]:
    """Read the columns of a CSV file that some problem takes: x, y, demand, ready_time and so on.

    The first line names the columns; without names, two columns are x and y. Columns are separated by commas,
    semicolons or tabs; with semicolons or tabs, decimal commas are accepted too. Empty lines are skipped.

    Args:
        path: File to read.

    Returns:
        The columns, and the names of all others, which are not read.

    Raises:
        InvalidFile: The file is invalid; the message has the line.
        OSError: The file cannot be opened.
    """
    path = Path(path)
    file = read_csv_file(path)
    if not {"x", "y"} <= file.columns.keys():
        told = f"found the columns {found(', '.join(file.columns))}; expected x and y among them"
        raise InvalidFile(path, file.header_line, told)
    known = {key for problem in PROBLEMS for column in columns_of(problem) if column.tabular for key in column.keys}
    columns: dict[str, FloatArray] = {}
    for name in filter(known.__contains__, file.columns):
        columns[name] = np.empty(len(file.lines))
        for row, (line, cell) in enumerate(zip(file.lines, file.columns[name], strict=True)):
            try:
                columns[name][row] = number(cell, file.decimals)
            except BadCell as error:
                raise InvalidFile(path, line, f"{name}: found {found(cell)}; {error}") from None
    return columns, tuple(name for name in file.columns if name not in known)
