"""Planning of problems whose routes are not plain (OP, PCTSP, PDP, MTSP and others), by their own rules."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from routing_agents.planning.policy import decode, plane_notes, published
from routing_agents.terminal import STOPPED
from routing_agents.trained import TrainedModel
from routing_gym.data.own import OwnInstance
from routing_gym.planning.instances import other_instance
from routing_gym.planning.plan import Plan, other_plan
from routing_gym.planning.table import InvalidInput
from routing_gym.planning.task import Task
from routing_gym.solvers import REFERENCES, SECOND, SOLVERS, make_solver

Progress = Callable[[str], None]
LEAST_SECONDS = 0.05  # shortest time of a search
MUCH_LONGER, MUCH_LATER = 1.5, 5.0  # both the ratio and the seconds above the limit are exceeded if a plan is late


def solve_other(task: Task, solver: str | TrainedModel, seconds: float, seed: int, told: Progress) -> Plan:
    """Plan with a policy, a classical solver, or both, each for half of the time; return the best plan.

    If there is a second classical solver, for problems whose first one may find nothing in time, it plans if the first
    does not; the first has at most half of the time of both.

    Raises:
        ValueError: The solver does not support the problem, or found no tour.
    """
    try:
        own = other_instance(task)
    except ValueError as error:
        raise InvalidInput(f"{task.source}: {error}") from None
    started = time.perf_counter()
    rivals = references(own) if solver == "auto" else []
    share = seconds / 2 if rivals else seconds
    plans: list[Plan] = []
    notes: tuple[str, ...] = ()
    model = solver if isinstance(solver, TrainedModel) else None
    if model is not None or solver in ("auto", "trained"):
        try:
            plans, notes = policy_plans(task, own, share, seed, model, told)
        except ValueError as error:
            if solver != "auto":
                raise
            notes = (f"no policy was used: {error}",)
    elif solver == "search":
        raise ValueError(f"no search plans {task.problem}; choose {', '.join(['auto', 'trained', *references(own)])}")
    else:
        plans.append(planned(task, own, solver_actions(own, str(solver), seconds, seed), str(solver)))
    ends = time.perf_counter() + share
    while rivals and STOPPED not in notes:
        limit = max(ends - time.perf_counter(), LEAST_SECONDS) / len(rivals)
        rival, *rivals = rivals
        try:
            told(f"{rival}: {limit:.2g} s")
            plans.append(planned(task, own, solver_actions(own, rival, limit, seed), rival))
            break
        except (ImportError, ValueError) as error:
            notes += (f"{rival} did not plan: {error}",)
        except KeyboardInterrupt:
            notes += (f"{STOPPED}; what {rival} found is discarded",)
            break
    notes += overtime(task, seconds, time.perf_counter() - started)
    if not plans:
        raise ValueError(f"no solver planned {task.problem}: {'; '.join(notes)}")
    sign = -1 if own.problem.maximises else 1
    best = min(plans, key=lambda plan: (sign * plan.cost, sum(route.km for route in plan.routes)))
    return replace(best, costs={plan.solver: plan.cost for plan in plans}, notes=(*best.notes, *notes))


def overtime(task: Task, seconds: float, took: float) -> tuple[str, ...]:
    """Return a note if planning took much longer than `seconds`."""
    if took <= max(MUCH_LONGER * seconds, seconds + MUCH_LATER):
        return ()
    why = f"with {len(task.ids)} rows, preparing the solvers and decoding tours take longer than the search"
    return (f"the solvers took {took:.0f} s instead of {seconds:g}: {why}",)


def policy_plans(
    task: Task, own: OwnInstance, seconds: float, seed: int, model: TrainedModel | None, told: Progress
) -> tuple[list[Plan], tuple[str, ...]]:
    """Return the plan of a policy and, unless the problem is stochastic, its improvement by search; and notes.

    Raises:
        ValueError: There are no weights for the problem.
    """
    model = model or published(own)
    started = time.perf_counter()
    told("decoding tours")
    actions = decode(own, seconds, seed, model)
    weights = model.path.stem
    plans = [planned(task, own, actions, f"policy {weights}")]
    notes = plane_notes(model, task)
    if own.problem.stochastic:
        return plans, notes
    left = max(seconds - (time.perf_counter() - started), LEAST_SECONDS)
    told(f"{weights} and search: {left:.0f} s")
    found = model.improve(own.problem, own.instance, actions, left, seed)
    plans.append(planned(task, own, found.actions, f"{weights} and search"))
    return plans, (*notes, STOPPED) if found.interrupted else notes


def references(own: OwnInstance) -> list[str]:
    """Return the strongest classical solvers of a problem, without those that use information that no plan can have."""
    names = (solvers.get(own.problem.name) for solvers in (REFERENCES, SECOND))
    return [name for name in names if name is not None and not SOLVERS[name].is_bound]


def planned(task: Task, own: OwnInstance, actions: Any, solver: str) -> Plan:
    """Convert actions to a plan; its cost is that of the problem, in the user's units."""
    actions = np.asarray(actions)
    return other_plan(task, own.problem, own.instance, actions, own.cost(actions), solver)


def solver_actions(own: OwnInstance, name: str, seconds: float, seed: int) -> Any:
    """Return the actions of a classical solver.

    Raises:
        ValueError: The solver does not support the problem, or found no tour.
        ImportError: The solver's package is missing.
    """
    timed = "time_limit" in getattr(SOLVERS[name], "__dataclass_fields__", {})
    solver = make_solver(name, **({"time_limit": seconds} if timed else {}))
    found = solver.solve(own.problem, own.instance, seed=seed, num_workers=0)
    if found.failed.any():
        raise ValueError(f"{name} found no tour of {own.problem.name}: {found.status[0]}")
    return found.actions[0]
