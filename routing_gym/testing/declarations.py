"""Checks of what a problem declares beside its rules: its types, observations and columns, against its instances."""

from __future__ import annotations

import dataclasses
import itertools
import warnings
from collections.abc import Iterator
from typing import Any, get_args

import numpy as np

from routing_gym.arrays import batch_size, select
from routing_gym.problem import AnyProblem, InvalidInstance, instance_fields
from routing_gym.problems import PROBLEMS
from routing_gym.problems.geometry import MATRICES
from routing_gym.testing.compare import attempt, call, difference, expect, expect_array, expect_batch
from routing_gym.traits import Column, Kind

ONE_KEY = ("depots", "pairs", "partner", "per_step")  # of the attributes of `Observations`; the others are tuples


def check_declarations(problem: AnyProblem) -> None:
    """Check the names and types that a problem declares; `check_observed` and `check_values` check what they name."""
    name = getattr(problem, "name", None)
    expect(name and isinstance(name, str), problem, "name", f"is {name!r}, expected the text of the environment's id")
    for trait in ("instance_type", "state_type"):
        kind = getattr(problem, trait, None)
        good = isinstance(kind, type) and dataclasses.is_dataclass(kind)
        expect(good, problem, trait, f"is {kind!r}, expected a frozen dataclass of arrays: name its class, for JAX")
    known = problem.subproblem in (None, name, *PROBLEMS)
    expect(known, problem, "subproblem", f"{problem.subproblem!r} is no problem; choose one of PROBLEMS, or None")
    told = f"{problem.instance_type.__name__} has no field distances; name the matrix so, or add one that may be None"
    expect("distances" in instance_fields(problem), problem, "instance_type", told)
    check_names(problem)
    check_columns(problem)


def check_names(problem: AnyProblem) -> None:
    """Check that the declared observations exist."""
    space, observed = set(problem.observation_space()), problem.observed
    unknown = sorted(set(problem.length_observations) - space)
    expect(not unknown, problem, "length_observations", f"{unknown} are not in observation_space")
    for trait, keys in vars(observed).items():
        good = isinstance(keys, str | None) if trait in ONE_KEY else isinstance(keys, tuple)
        expected = "a key or None" if trait in ONE_KEY else "a tuple of keys; a tuple of one ends with a comma"
        expect(good, problem, f"observations.{trait}", f"is {keys!r}, expected {expected}")
    unknown = sorted(set(observed.per_edge) - set(MATRICES))
    expect(not unknown, problem, "observations.per_edge", f"{unknown} are not among {[*MATRICES]}, the only matrices")
    unknown = sorted(set(observed.per_edge) - space)
    expect(not unknown, problem, "matrices", f"{unknown} are not in observation_space; see node_spaces, observe_nodes")
    declared = itertools.chain(*(keys_of(keys) for keys in vars(observed).values()))
    unknown = sorted(set(declared) - space - set(observed.optional))
    expect(not unknown, problem, "observations", f"{unknown} are not in observation_space")


def keys_of(keys: tuple[str, ...] | str | None) -> tuple[str, ...]:
    """Return an attribute of `Observations` as a tuple."""
    return (keys,) if isinstance(keys, str) else keys or ()


def check_columns(problem: AnyProblem) -> None:
    """Check that the columns fill the fields of an instance."""
    for column in problem.columns:
        for trait, known in (("kind", get_args(Kind)), ("per", ("node", "instance"))):
            value = getattr(column, trait)
            where = f"columns, {column.name}"
            expect(value in known, problem, where, f"{trait} is {value!r}, expected one of {', '.join(known)}")
    kind = problem.instance_type.__name__
    unknown = sorted({column.target for column in problem.columns if column.target} - instance_fields(problem))
    expect(not unknown, problem, "columns", f"{unknown} are no fields of {kind}")
    if problem.columns:  # without columns, instances are only generated
        filled = {column.target for column in problem.columns if column.required}
        empty = sorted(without_default(problem) - filled)
        expect(not empty, problem, "columns", f"no required column fills {empty} of {kind}, which have no default")


def without_default(problem: AnyProblem) -> set[str]:
    """Return the names of the instance's fields that have no default value."""
    missing = dataclasses.MISSING
    fields = dataclasses.fields(problem.instance_type)
    return {field.name for field in fields if field.default is missing and field.default_factory is missing}


def check_observed(problem: AnyProblem, instance: Any) -> None:
    """Check that the declared observations come from the right method, with the right dtype and shape."""
    static = call(problem, "observe_static", instance)
    state = call(problem, "initial", instance)
    expect_batch(problem, "initial", state, problem.state_type, batch_size(instance))
    dynamic = call(problem, "observe_dynamic", instance, state)
    nodes = (problem.num_actions,)
    expected = {
        "per_node": ("observe_static", "float32", nodes),
        "per_edge": ("observe_static", "float32", nodes * 2),
        "context_nodes": ("observe_dynamic", "int64", ()),
        "context_scalars": ("observe_dynamic", "float32", (1,)),
        "depots": ("observe_static", "float32", nodes),
        "per_depot": ("observe_static", "float32", nodes),
        "pairs": ("observe_static", "int64", nodes),
        "partner": ("observe_static", "int64", nodes),
        "per_step": ("observe_dynamic", "float32", nodes),
    }
    num_rows = batch_size(instance)
    for trait, (method, dtype, shape) in expected.items():
        found = static if method == "observe_static" else dynamic
        for key in keys_of(getattr(problem.observed, trait)):
            where = f"observations.{trait}"
            if key in static.keys() | dynamic.keys():  # optional keys may be absent
                expect(key in found, problem, where, f"{key!r} does not come from {method}, from which it is read")
                expect_array(problem, f"{where}, {key!r}", found[key], dtype, (num_rows, *shape))


def warn_of_hidden_numbers(problem: AnyProblem, instance: Any) -> None:
    """Warn of each number of an instance, such as a capacity, on which no observation of the first step depends."""

    def seen(instance: Any) -> dict[str, Any]:
        state = call(problem, "initial", instance)
        return {**call(problem, "observe_static", instance), **call(problem, "observe_dynamic", instance, state)}

    before = seen(instance)
    for column in problem.columns:
        value = getattr(instance, column.target) if column.target and column.per == "instance" else None
        if value is None or column.kind == "flag":
            continue
        after = seen(dataclasses.replace(instance, **{str(column.target): 2 * value}))
        if all(np.array_equal(before[key], after[key]) for key in before):
            told = f"instances that differ in {column.name} only have the same observations"
            warnings.warn(f"{problem}: {told}: no policy can tell them apart; observe {column.name}", stacklevel=3)


def check_values(problem: AnyProblem, instance: Any) -> None:
    """Check that generated values have the dtype and shape that their columns have in a user's instance."""
    num_rows = batch_size(instance)
    for column in problem.columns:
        value = getattr(instance, column.target) if column.target else None
        if value is None:
            continue
        where, nodes = f"columns, {column.name}", (problem.num_actions,)
        one_number = () if column.per == "instance" else nodes
        shape = {"coords": (*nodes, 2), "matrix": nodes * 2}.get(column.kind, one_number)
        expect_array(problem, f"{where}: the field", value, dtype_of(column), (num_rows, *shape))
        zero = problem.has_depot and column.tabular and column.kind != "coords" and not column.at_depot
        found = "the depot has another value than 0, which from_columns refuses; set at_depot=True"
        expect(not (zero and value[:, 0].any()), problem, where, found)


def dtype_of(column: Column) -> str:
    """Return the dtype of the field that a column fills."""
    if column.integer or column.kind == "node":
        return "int64"
    return "bool" if column.kind == "flag" else "float32"


def check_validate(problem: AnyProblem, instance: Any) -> None:
    """Check that `rescale` leaves generated instances unchanged, and that `validate` refuses wrong arrays."""
    where = difference(instance, call(problem, "rescale", instance))
    expect(where is None, problem, "rescale", f"changes a generated instance, as networks are trained on: {where}")
    for fault, wrong in spoiled(select(instance, [0, -1])):
        try:
            attempt(problem, "validate", wrong, allowed=InvalidInstance)
        except InvalidInstance:
            continue
        expect(False, problem, "validate", f"accepts {fault}; raise InvalidInstance, see check_field and check_batch")


def spoiled(instance: Any) -> Iterator[tuple[str, Any]]:
    """Yield copies of two instances with one fault each, and its description."""
    given = {name: value for name, value in vars(instance).items() if value is not None}
    for name, value in given.items():
        yield f"{name} of shape {value[..., None].shape}", dataclasses.replace(instance, **{name: value[..., None]})
        if len(given) > 1:
            yield f"{name} with a row less than other fields", dataclasses.replace(instance, **{name: value[:1]})
        if np.issubdtype(value.dtype, np.floating):
            wrong = value.copy()
            wrong.flat[-1] = np.nan
            yield f"a {name} that is not a number (NaN)", dataclasses.replace(instance, **{name: wrong})
