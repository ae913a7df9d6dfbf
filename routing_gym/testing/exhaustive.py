"""Exhaustive part of `check_problem`: compares all legal action sequences with all sequences."""

from __future__ import annotations

import dataclasses
import itertools
from bisect import bisect_left
from collections.abc import Iterable
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from routing_gym.arrays import any_array, batch_size, concatenate, converter, device_of, select, to_numpy
from routing_gym.problem import AnyProblem, InfeasibleTour, InvalidInstance
from routing_gym.testing.compare import ContractViolation, attempt, expect

TOLERANCE = 1e-5  # on costs
MAX_SEQUENCES = 5000  # largest number of sequences of the greatest length
MAX_FIXED = 500_000  # the same with `fixed_length`, where fewer steps are no alternative


def smallest(problem: AnyProblem) -> AnyProblem:
    """Return the problem with few nodes, for `check_exhaustively`."""
    num_nodes = 4 if not problem.has_depot else 3 if problem.num_depots == 1 else 2
    num_nodes = max(problem.min_nodes, num_nodes)
    try:
        return dataclasses.replace(problem, num_nodes=num_nodes)
    except ValueError as error:
        found = f"is {problem.min_nodes}, but {num_nodes} nodes are refused: {error}; declare it, or pass `small`"
        raise ContractViolation(f"{problem}: min_nodes: {found}") from error


def check_exhaustively(
    problem: AnyProblem, instance: Any, search: bool = True, num_complete: int | None = None
) -> None:
    """Check the costs of legal sequences against `objective`, and that no sequence it accepts is better.

    If there are too many sequences of `horizon` steps, fewer steps are allowed for both.

    Args:
        problem: Tiny problem, with about three customers.
        instance: Instances of the problem.
        search: Whether to try all sequences, or only the legal ones.
        num_complete: Number of the first instances for which all sequences are tried; by default all instances. For
            the others, only those are tried that are legal or accepted by `objective` for an earlier instance. That
            is much faster, and enough to compare limits: most other sequences are infeasible for every instance.

    Raises:
        ContractViolation: A check fails. The message has the sequence and the costs.
    """
    max_steps = int(np.log(MAX_SEQUENCES) / np.log(problem.num_actions))
    max_steps = problem.horizon if problem.fixed_length else min(problem.horizon, max_steps)
    number = problem.num_actions**max_steps
    told = f"{number:g} sequences of {max_steps} steps are too many to try; pass `small` with fewer nodes"
    expect(not search or number <= MAX_FIXED, problem, "small instance", told)
    sequences = all_sequences(problem, max_steps) if search else []
    num_complete = batch_size(instance) if num_complete is None else num_complete
    bound, accepted = to_numpy(attempt(problem, "cost_bound", instance)), dict[tuple[int, ...], None]()
    for row in range(len(bound)):
        one = select(instance, slice(row, row + 1))
        legal = legal_sequences(problem, one, max_steps)
        told = f"no legal sequence ends within {max_steps} steps; pass `small` with fewer nodes, or check the mask"
        expect(legal, problem, f"small instance, row {row}", told)
        for tours, costs in legal:
            check_costs(problem, one, tours, costs)
            where, dearest = f"cost_bound, small instance, row {row}", costs.max()
            least = dearest - TOLERANCE * max(1.0, abs(dearest))
            expect(least <= bound[row], problem, where, f"{bound[row]} is below a legal {dearest}")
        if search:
            cheapest = ((costs.min(), tours[costs.argmin()]) for tours, costs in legal)
            best_cost, best_tour = min(cheapest, key=itemgetter(0))
            known = {tuple(tour) for tours, _ in legal for tour in tours.tolist()}  # their costs are checked
            tried = sequences if row < num_complete else [tour for tour in accepted if tour not in known]
            found = accepted_costs(problem, one, tried)
            accepted |= dict.fromkeys([*known, *found])
            found_tour = min(found, key=found.__getitem__, default=())
            found_cost = found.get(found_tour, np.inf)
            told = f"the best legal sequence {best_tour} costs {best_cost}, but {found_tour} costs {found_cost}"
            best = best_cost - found_cost <= TOLERANCE * max(1.0, abs(best_cost))
            expect(best, problem, f"small instance, row {row}", told)


def all_sequences(problem: AnyProblem, max_steps: int) -> list[tuple[int, ...]]:
    """Return all sequences of up to `max_steps` actions, legal or not; of exactly `horizon` with `fixed_length`."""
    lengths = range(max_steps if problem.fixed_length else 1, max_steps + 1)
    return [tour for length in lengths for tour in itertools.product(range(problem.num_actions), repeat=length)]


def legal_sequences(
    problem: AnyProblem, one: Any, max_steps: int
) -> list[tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]]:
    """Enumerate all sequences of legal actions until all episodes have ended.

    Args:
        problem: Problem of the instance.
        one: Batch of one instance.
        max_steps: Largest number of steps; longer episodes are left out.

    Returns:
        For each number of steps T: the sequences (N, T) that end an episode, and the sums of their step costs (N,).

    Raises:
        ContractViolation: A legal sequence is longer than the problem's horizon.
    """
    is_numpy = isinstance(any_array(one), np.ndarray)
    move = converter("numpy") if is_numpy else converter("torch", str(device_of(one)))
    state, tours, costs, complete = attempt(problem, "initial", one), np.zeros((1, 0), dtype=np.int64), np.zeros(1), []
    for _ in range(max_steps):
        many = select(one, move(np.zeros(len(tours), dtype=np.int64)))
        rows, actions = np.nonzero(to_numpy(attempt(problem, "action_mask", many, state)))
        state, step_costs = attempt(problem, "step", select(many, move(rows)), select(state, move(rows)), move(actions))
        tours = np.column_stack([tours[rows], actions])
        costs = costs[rows] + to_numpy(step_costs)
        done = to_numpy(attempt(problem, "done", select(many, move(rows)), state))
        if done.any():
            complete.append((tours[done], costs[done]))
        going = np.flatnonzero(~done)
        if not len(going):
            break
        state, tours, costs = select(state, move(going)), tours[going], costs[going]
    else:
        expect(
            max_steps < problem.horizon,
            problem,
            "horizon",
            f"the legal sequence {tours[0]} has not ended after {max_steps} steps",
        )
    return complete


def check_costs(problem: AnyProblem, one: Any, tours: npt.NDArray[np.int64], costs: npt.NDArray[np.float64]) -> None:
    """Check that `objective` accepts legal sequences and returns the sums of their step costs.

    Raises:
        ContractViolation: A check fails. The message has the first such sequence.
    """
    many = select(one, [0] * len(tours))
    try:
        expected = to_numpy(attempt(problem, "objective", many, tours, allowed=InfeasibleTour))
    except InfeasibleTour as error:
        expect(False, problem, "objective", f"refused the legal sequence {tours[error.row]}: {error}")
    bad = ~(np.abs(expected - costs) <= TOLERANCE * np.maximum(1.0, np.abs(costs)))
    row = int(np.argmax(bad))
    told = f"sequence {tours[row]} costs {expected[row]}, but its steps cost {costs[row]}"
    expect(not bad.any(), problem, "objective", told)


def accepted_costs(problem: AnyProblem, one: Any, tours: list[tuple[int, ...]]) -> dict[tuple[int, ...], float]:
    """Return the costs of those sequences that `objective` accepts; masks and states are not used."""
    costs = {}
    for tour in tours:
        try:
            costs[tour] = float(attempt(problem, "objective", one, np.array([tour]), allowed=InfeasibleTour)[0])
        except InfeasibleTour:
            continue
    return costs


def with_tightened(problem: AnyProblem, instance: Any) -> Any:
    """Return a batch of instances and then of all their `tightened` copies."""
    rows = (select(instance, [row]) for row in range(batch_size(instance)))
    return concatenate([instance, *(tight for one in rows for tight in tightened(problem, one))])


def tightened(problem: AnyProblem, instance: Any) -> list[Any]:
    """Return copies of an instance; in each, one number of the whole instance is reduced, such as the capacity.

    Integers are reduced to the least valid value and the next one, which nodes may then use up exactly, or exceed by
    one. Other numbers are reduced to the two least valid ones of a quarter, three eighths and half of the original.
    """
    found: list[Any] = []
    for column in problem.columns:
        field = column.target or ""
        value = getattr(instance, field, None) if column.per == "instance" else None
        if value is None:
            continue

        def reduced(number: Any, field: str = field, value: Any = value) -> Any:
            return dataclasses.replace(instance, **{field: np.full_like(value, number)})

        lower: Iterable[Any] = [value * share for share in (0.25, 0.375, 0.5)]
        if column.integer:
            most = int(value.max())
            least = 1 + bisect_left(range(1, most), True, key=lambda number: is_valid(problem, reduced(number)))
            lower = range(least, most)[:2]
        found += itertools.islice(filter(partial(is_valid, problem), map(reduced, lower)), 2)
    return found


def is_valid(problem: AnyProblem, instance: Any) -> bool:
    """Return whether an instance passes `validate`."""
    try:
        attempt(problem, "validate", instance, allowed=InvalidInstance)
    except InvalidInstance:
        return False
    return True
