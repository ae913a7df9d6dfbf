"""Instances from a user's own arrays or CSV file, in the user's units.

own = from_columns("CVRP", {"x": x, "y": y, "demand": demand}, capacity=30)
own.problem, own.instance        # what the model sees: coordinates in the unit square
own.cost(actions)                # in the user's units
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from routing_gym.arrays import Array, to_numpy
from routing_gym.data.tsplib.instance import scale_coords, unit_scale
from routing_gym.data.tsplib.metrics import FloatArray, IntArray
from routing_gym.files import InvalidFile, found, read_lines
from routing_gym.problem import Problem
from routing_gym.problems import OP, PCTSP, PROBLEMS, TSP, VRP
from routing_gym.problems.cvrp import VehicleRouting

COLUMNS = ("x", "y", "demand", "prize", "penalty")
MAX_BYTES = 2**26
LARGEST = 1e100  # of any number
LARGEST_SCALED = 1e9  # of lengths over the extent of the map and prizes over the required one: networks read float32
LENGTH_SLACK = 1e-6  # relative; float32 sums of legs that reach the limit exactly may exceed it by as much
MAX_INTEGER = 2**53  # beyond it floats, as tables hold them, skip integers


@dataclass(frozen=True, eq=False)
class OwnInstance:
    """One instance in its owner's units, and as the model sees it. Node 0 is the depot, where there is one.

    Attributes:
        name: For tables and pictures.
        problem: The rules.
        instance: One row: coordinates moved and scaled into the unit square, lengths over the scale.
        columns: float64 (A,) each, as given: "x", "y", and "demand", "prize" or "penalty" where the problem has them.
        scale: Length in the owner's units of 1 in the instance.
        unused: Names of the columns of its file that were not read.
    """

    name: str
    problem: Problem[Any, Any]
    instance: Any
    columns: Mapping[str, FloatArray]
    scale: float
    unused: tuple[str, ...] = ()

    def cost(self, actions: Array) -> float:
        """Check a complete tour; return its length, with the penalties of the nodes left out, or its prize.

        Args:
            actions: Integers (T,), as the environment takes them.

        Raises:
            InfeasibleTour: With step, value, bound and remedy.
        """
        tour = to_numpy(actions)
        self.problem.objective(self.instance, tour[None])
        visited = np.unique(tour)
        if isinstance(self.problem, OP):
            return float(self.columns["prize"][visited].sum())
        closed = np.concatenate(([0], tour)) if self.problem.has_depot else tour
        x, y = self.columns["x"][closed], self.columns["y"][closed]
        length = float(np.hypot(x - np.roll(x, -1), y - np.roll(y, -1)).sum())
        if not isinstance(self.problem, PCTSP):
            return length
        return length + float(np.delete(self.columns["penalty"], np.append(visited, 0)).sum())


def from_columns(
    problem: str,
    columns: Mapping[str, Any],
    *,
    capacity: int | None = None,
    max_length: float | None = None,
    required_prize: float | None = None,
    name: str = "own",
) -> OwnInstance:
    """Make an instance of one's own numbers.

    Args:
        problem: "TSP", "CVRP", "SDVRP", "OP" or "PCTSP".
        columns: Numbers (A,) each: "x" and "y"; "demand" (CVRP, SDVRP; integers), "prize" (OP, PCTSP) and "penalty"
            (PCTSP). Row 0 is the depot, but for the TSP; its demand, prize and penalty must be 0.
        capacity: CVRP, SDVRP: of a vehicle, in the unit of the demands.
        max_length: OP: of the tour, in the unit of the coordinates; kept to 1 in a million.
        required_prize: PCTSP: the least prize to collect.
        name: For tables and pictures.

    Raises:
        ValueError: A column or number is missing, left over, or holds what it must not; with row, value and remedy.
    """
    settings = {"capacity": capacity, "max_length": max_length, "required_prize": required_prize}
    wanted = needs(problem)
    given = {key for key, value in {**columns, **settings}.items() if value is not None}
    if missing := [key for key in wanted if key not in given]:
        raise ValueError(f"{problem} needs {', '.join(wanted)}; {', '.join(missing)} missing")
    if extra := sorted(given - set(wanted)):
        raise ValueError(f"{problem} has no {', '.join(extra)}; it takes {', '.join(wanted)}")
    values = {key: numbers(key, columns[key]) for key in wanted if key in COLUMNS}
    lengths = {key: len(value) for key, value in values.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"the columns have different lengths: {lengths}")
    coords = np.stack([values["x"], values["y"]], axis=-1)
    first = PROBLEMS[problem].has_depot
    if len(coords) < 2 + first:
        raise ValueError(f"{len(coords)} rows; {problem} needs at least {2 + first}{', the depot among them' * first}")
    for key in ("demand", "prize", "penalty"):
        if key in values and values[key][0] != 0:
            raise ValueError(f"{key} of row 0, the depot, is {values[key][0]:g}; set it to 0")
    scale = unit_scale(coords)
    rules, instance = build(problem, scale_coords(coords, scale), values, settings, scale)
    rules.validate(instance)
    return OwnInstance(name, rules, instance, values, scale)


def needs(problem: str) -> tuple[str, ...]:
    """Return the columns and numbers that a problem is made of.

    Raises:
        ValueError: Unknown, or not to be made of a table.
    """
    kind = PROBLEMS.get(problem)
    if kind is not None and not kind.stochastic and not issubclass(kind, VRP):
        if issubclass(kind, TSP):
            return ("x", "y")
        if issubclass(kind, VehicleRouting):
            return ("x", "y", "demand", "capacity")
        if issubclass(kind, OP):
            return ("x", "y", "prize", "max_length")
        if issubclass(kind, PCTSP):
            return ("x", "y", "prize", "penalty", "required_prize")
    raise ValueError(f"no instance of {problem} can be made of a table; TSP, CVRP, SDVRP, OP and PCTSP can")


def build(
    problem: str, coords: Array, values: Mapping[str, FloatArray], settings: Mapping[str, Any], scale: float
) -> tuple[Problem[Any, Any], Any]:
    """Make the rules and the instance, with every length over the scale."""
    kind: Any = PROBLEMS[problem]
    rules = kind(coords.shape[1] - int(kind.has_depot))
    if issubclass(kind, TSP):
        return rules, kind.instance_type(coords)
    if issubclass(kind, VehicleRouting):
        return rules, kind.instance_type(
            coords, integers("demand", values["demand"])[None], whole(settings["capacity"])
        )
    prize = values["prize"]
    if issubclass(kind, OP):
        most = positive("max_length", settings["max_length"]) / scale * (1 + LENGTH_SLACK)
        return rules, kind.instance_type(coords, row("prize", prize), row("max_length", np.array([most]))[0])
    share = prize / positive("required_prize", settings["required_prize"])
    return rules, kind.instance_type(coords, row("prize", share), row("penalty", values["penalty"] / scale))


def numbers(key: str, column: Any) -> FloatArray:
    """Return a column as float64 (A,).

    Raises:
        ValueError: It is not a column of finite numbers; prizes, penalties and demands not of at least 0.
    """
    values = as_floats(key, column)
    if values.ndim != 1:
        raise ValueError(f"{key} has shape {values.shape}; expected one number per row")
    least = -LARGEST if key in ("x", "y") else 0.0
    bad = ~((values >= least) & (values <= LARGEST))  # nan too
    if bad.any():
        first = int(bad.argmax())
        raise ValueError(f"{key} of row {first} is {values[first]:g}; expected a number from {least:g} to {LARGEST:g}")
    return values


def as_floats(key: str, values: Any) -> FloatArray:
    """Return numbers of any shape as float64.

    Raises:
        ValueError: They are something else.
    """
    try:
        found = np.asarray(values)
        if np.ma.is_masked(values):  # what is masked is missing
            found = np.ma.filled(values.astype(np.float64), np.nan)
        if found.dtype.kind in "iufbOUS":  # text that spells numbers, as CSV readers leave it, is taken
            return found.astype(np.float64)
        raise TypeError(f"found {found.dtype}")
    except (TypeError, ValueError, RuntimeError) as error:  # RuntimeError: torch, of a tensor with a gradient
        raise ValueError(f"{key}: not numbers ({error})") from None


def integers(key: str, values: FloatArray) -> IntArray:
    """Return integers as int64.

    Raises:
        ValueError: Some are not integers.
    """
    bad = (values != np.floor(values)) | (values > MAX_INTEGER)
    if bad.any():
        first = int(bad.argmax())
        raise ValueError(
            f"{key} of row {first} is {values[first]:g}; expected an integer: choose a smaller unit, so that "
            "vehicles can be filled exactly"
        )
    return values.astype(np.int64)


def whole(capacity: Any) -> IntArray:
    """Return a capacity as int64 (1,)."""
    return integers("capacity", np.array([positive("capacity", capacity)]))


def positive(key: str, value: Any) -> float:
    """Return a positive number.

    Raises:
        ValueError: It is something else.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)) or not 0 < value < math.inf:
        raise ValueError(f"{key} must be a positive number, got {value!r}")
    return float(value)


def row(key: str, values: FloatArray) -> Array:
    """Return float32 (1, A).

    Raises:
        ValueError: A number is too large.
    """
    if values.max() > LARGEST_SCALED:
        raise ValueError(
            f"{key} is up to {values.max():g} once lengths are divided by the extent of the map, and prizes by those "
            f"required; expected at most {LARGEST_SCALED:g}"
        )
    return values.astype(np.float32)[None]


def read_csv(path: Path) -> tuple[dict[str, FloatArray], tuple[str, ...]]:
    """Read the columns x, y, demand, prize and penalty of a CSV file, as far as it has them.

    The first line names the columns; without names, two columns are x and y. Columns are separated by commas,
    semicolons or tabs; with the latter two, decimal commas are read too. Empty lines are skipped.

    Returns:
        The columns, and the names of all others, which were not read.

    Raises:
        InvalidFile: With the line.
    """
    lines = [(number, text) for number, text in enumerate(read_lines(path, MAX_BYTES), start=1) if text.strip(" ,;\t")]
    if not lines:
        raise InvalidFile(path, None, "the file has no rows")
    head, first = lines[0]
    separator = next((mark for mark in ";\t," if mark in first), ",")
    names = [cell.strip().lower() for cell in split(path, head, first, separator)]
    if all(is_number(cell, separator) for cell in names):
        if len(names) != 2:
            raise InvalidFile(path, head, f"found {len(names)} columns without names; start with a line such as x,y")
        names = ["x", "y"]
    else:
        lines = lines[1:]
    if not {"x", "y"} <= set(names):
        raise InvalidFile(path, head, f"found the columns {found(', '.join(names))}; expected x and y among them")
    if twice := sorted({name for name in names if name in COLUMNS and names.count(name) > 1}):
        raise InvalidFile(path, head, f"found the column {', '.join(twice)} twice")
    wanted = {name: names.index(name) for name in COLUMNS if name in names}
    columns: dict[str, list[float]] = {name: [] for name in wanted}
    for number, text in lines:
        cells = split(path, number, text, separator)
        if len(cells) != len(names):
            raise InvalidFile(path, number, f"found {len(cells)} cells, expected {len(names)}: {found(text)}")
        for name, place in wanted.items():
            if not is_number(cells[place], separator):
                raise InvalidFile(path, number, f"{name}: found {found(cells[place])}, expected a number")
            columns[name].append(number_of(cells[place], separator))
    unused = tuple(name for name in names if name not in wanted)
    return {name: np.array(values, dtype=np.float64) for name, values in columns.items()}, unused


def split(path: Path, number: int, line: str, separator: str) -> list[str]:
    """Split one line into cells, which may be quoted.

    Raises:
        InvalidFile: A cell is longer than the csv module reads.
    """
    try:
        return next(csv.reader([line], delimiter=separator))
    except csv.Error as error:
        raise InvalidFile(path, number, str(error)) from None


def number_of(cell: str, separator: str) -> float:
    """Read a number; with a decimal comma where commas do not separate.

    Raises:
        ValueError: It is not a number.
    """
    return float(cell if separator == "," else cell.replace(",", "."))


def is_number(cell: str, separator: str) -> bool:
    """Say whether a cell holds a finite number."""
    try:
        return math.isfinite(number_of(cell, separator))
    except ValueError:
        return False
