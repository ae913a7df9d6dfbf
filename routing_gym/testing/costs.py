"""Checks of what a problem declares about its costs: how they depend on the unit of length, and on the routes."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from routing_gym.arrays import select
from routing_gym.data.scaling import SCALED
from routing_gym.planning.fitting import fit
from routing_gym.planning.from_instance import actions_of, task_of
from routing_gym.planning.routes import Rules
from routing_gym.problem import AnyProblem, InfeasibleTour, instance_fields
from routing_gym.problems.geometry import MATRICES, all_lengths
from routing_gym.testing.compare import attempt, expect

HALF = 0.5  # a power of two, so that all lengths, times and costs are exactly half
TOLERANCE = 1e-4  # on costs that are computed in different ways
KINDS = "see the kind of each column"
ADDED = f'{KINDS} (prizes and penalties that are added to lengths have kind "length")'
NUM_ROUTED = 4  # instances whose routes are compared


def check_units(problem: AnyProblem, instance: Any, actions: npt.NDArray[np.int64]) -> None:
    """Check costs and observations of instances whose coordinates, lengths and times are half of the given ones.

    Args:
        problem: Problem of the instances.
        instance: B instances.
        actions: Legal tours (B, T); finished rows repeat their one legal action.
    """
    if not problem.columns:  # nothing is declared
        return
    declared = (column.target for column in problem.columns if column.kind in SCALED and column.target)
    names = dict.fromkeys((*declared, *sorted(MATRICES.keys() & instance_fields(problem))))
    halves = {name: value * np.float32(HALF) for name in names if (value := getattr(instance, name)) is not None}
    smaller = dataclasses.replace(instance, **halves)
    where = f"an instance with half of {', '.join(halves)}"
    try:
        found = attempt(problem, "objective", smaller, actions, where=where, allowed=InfeasibleTour)
    except InfeasibleTour as error:
        expect(False, problem, "columns", f"{where} refuses a legal tour: {error}; {KINDS}")
    for row, cost in enumerate(attempt(problem, "objective", instance, actions)):
        expected = attempt(problem, "cost_in_units", float(cost), HALF)
        told = f"row {row}: a tour costs {cost}, and {found[row]} in {where}; cost_in_units makes {expected} of it"
        expect(near(found[row], expected), problem, "cost_in_units", f"{told}; {ADDED}, and `maximises`")
    before, after = attempt(problem, "initial", instance), attempt(problem, "initial", smaller)
    for step, action in enumerate(actions.T):
        before, after = (
            attempt(problem, "step", batch, state, action)[0] for batch, state in ((instance, before), (smaller, after))
        )
        expected = attempt(problem, "observe_dynamic", instance, before)
        seen = attempt(problem, "observe_dynamic", smaller, after)
        if step == 0:
            expected |= attempt(problem, "observe_static", instance)
            seen |= attempt(problem, "observe_static", smaller)
        lengths = {*problem.length_observations, *problem.observed.per_edge, "coords"}
        for key, value in expected.items():
            same, halved = (np.allclose(seen[key], value * k, rtol=TOLERANCE, atol=TOLERANCE) for k in (1, HALF))
            if key in lengths:
                found = f"is not {HALF} times as large in {where}, step {step}"
            elif halved:
                found = f"halves with the lengths in {where}, step {step}; add {key} to length_observations"
            else:
                found = f"is neither the same nor half in {where}, step {step}"
            expect(halved if key in lengths else same, problem, "length_observations", f"{key} {found}")


def check_plain_routes(problem: AnyProblem, instance: Any, actions: npt.NDArray[np.int64]) -> None:
    """Check that tours cost the total length of their routes; and, with demands, that `objective` accepts full routes.

    Args:
        problem: Problem with `plain_routes` and `plain_vehicles`.
        instance: B instances.
        actions: Legal tours (B, T); finished rows repeat their one legal action.
    """
    remedy = "set plain_routes to False, and subproblem to None"
    for row, tour in enumerate(actions[:NUM_ROUTED]):
        one = select(instance, [row])
        if problem.has_depot and "demand" in instance_fields(problem):
            tour, expected = full_routes(problem, one)
        else:
            routes = attempt(problem, "split", tour.tolist())
            expected = sum(float(all_lengths(one)[0, nodes[:-1], nodes[1:]].sum()) for nodes in routes)
        try:
            cost = float(attempt(problem, "objective", one, tour[None], allowed=InfeasibleTour)[0])
        except InfeasibleTour as error:
            expect(False, problem, "plain_routes", f"row {row}: refuses the tour {tour}: {error}; {remedy}")
        told = f"row {row}: the tour {tour} costs {cost}, and its routes are {expected} long; {remedy}"
        expect(near(cost, expected), problem, "plain_routes", told)


def full_routes(problem: AnyProblem, one: Any) -> tuple[npt.NDArray[np.int64], float]:
    """Return a tour whose routes serve as many customers as the declared limits allow, and its length."""
    rules = Rules(task_of(problem, one))
    routes, absent = fit(rules, [rules.task.stops])
    return actions_of(rules.task, rules.by_vehicle(routes), absent), rules.total(routes, absent)


def near(one: float, other: float) -> bool:
    """Return whether two costs are equal but for rounding."""
    return abs(one - other) <= TOLERANCE * max(1.0, abs(other))
