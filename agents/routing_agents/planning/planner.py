"""`routing_agents.solve`: plan a user's own stops with a trained policy and classical solvers."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from routing_agents.planning import others
from routing_agents.planning.policy import LARGE, policy_tours
from routing_agents.planning.replanning import Beginning, read_beginning
from routing_agents.terminal import STOPPED
from routing_agents.trained import TrainedModel
from routing_gym.planning.fitting import fit
from routing_gym.planning.instances import omitted, plain_instance, routes_in
from routing_gym.planning.plan import Plan, plan_of
from routing_gym.planning.reading import read_task
from routing_gym.planning.routes import Rules
from routing_gym.planning.search import Found, Search
from routing_gym.planning.table import InvalidInput
from routing_gym.planning.task import Minimise, Task
from routing_gym.solvers import SOLVERS
from routing_gym.solvers.external import plans

OWN = ("auto", "trained", "search")  # solvers of this module, besides those of `SOLVERS`
Progress = Callable[[str], None]
MIN_SECONDS = 0.1
LARGE_SHARE = 0.1  # with more than `LARGE` stops: PyVRP's plans are then cheaper than a policy's, except with pairs


@dataclass(frozen=True)
class Candidate:
    """One solver's routes of a plain task.

    Attributes:
        name: Name of the solver.
        routes: Stops of each vehicle, without the depot; within all limits.
        absent: Stops that are left out.
        total: Cost plus the prices of all stops that are left out; the candidate with the lowest total is the best.
        notes: Notes for the user.
        interrupted: Whether Ctrl-C ended the solver.
    """

    name: str
    routes: tuple[tuple[int, ...], ...]
    absent: tuple[int, ...]
    total: float
    notes: tuple[str, ...] = ()
    interrupted: bool = False


def solve(
    stops: Any = None,
    *,
    vehicles: Any = None,
    durations: Any = None,
    distances: Any = None,
    problem: str | None = None,
    solver: str | TrainedModel = "auto",
    seconds: float = 10.0,
    start: Plan | str | Path | None = None,
    fixed: Any = None,
    seed: int = 1,
    speed: float | None = None,
    minimise: Minimise | None = None,
    progress: Progress | None = None,
    **numbers: Any,
) -> Plan:
    """Plan routes to your own stops.

    Args:
        stops: Path of a CSV file, a DataFrame of pandas or polars, a dictionary of columns, or an array (A, 2) of x and
            y. One row per stop, the depot first. Columns: lat and lon, or x and y; demand; earliest, latest and service
            (minutes, HH:MM or ISO times); pickup; pickup_at (the id of the stop where the goods for a stop are picked
            up); vehicles (names of those that may serve the stop); prize, penalty; id, name; and all other columns that
            problems declare.
        vehicles: Number of vehicles; or {"count": 5, "capacity": 60, "max_length": 80, "earliest": "08:00",
            "latest": "17:00", "max_duration": 480, "depot": "D", "fixed_cost": 9, "cost_per_unit": 1, "speed": 30,
            "open": False}; or a table with a row and a name for each vehicle, or with a count for each type.
        durations: Matrix of minutes: array, DataFrame, .csv, .npy, or the JSON of OSRM, VROOM or openrouteservice.
        distances: Matrix of km, in the same formats.
        problem: Name of the problem; by default, the columns determine it.
        solver: "auto": a trained policy with search, and the strongest classical solver that is installed, each for
            half of the time; with more than 200 stops, PyVRP gets nine tenths, unless there are pairs. The better plan
            is returned, with both costs. "trained", "search" (no policy), "pyvrp", "ortools", another name in
            `routing_gym.solvers.SOLVERS`, or a model that `routing_agents.load` returned. With `fixed`, "auto" is
            "search", and no other solver is accepted.
        seconds: Seconds for planning, without loading and preparation, which with 5,000 stops takes half a minute.
        start: Plan to continue from, or its JSON file; stops are matched by their ids. For CVRP, the VRP family and
            other problems with `plain_routes`.
        fixed: Part of `start` to keep: the current time (for everything that has been driven by then), the number of
            completed stops by vehicle, or ids of stops (with all stops before them). Vehicles with kept stops deliver
            what they have loaded, and nothing else; one that is on its way back gets no further stops. Not with
            pickup_at or max_duration.
        seed: Random seed.
        speed: Speed in km/h, for durations without a matrix; by default 30 for lat and lon, and one unit per minute for
            x and y.
        minimise: Objective: "minutes" of driving or "km"; by default minutes if `durations` are given, else km.
        progress: Function that is called with a line of text about the current step.
        **numbers: Numbers that problems declare for an instance: capacity, max_length, required_prize, num_salesmen.

    Returns:
        The best plan found; its costs, times and km are computed from the task's own numbers.

    Raises:
        InvalidInput: The input is invalid; the message has source, row, column, value and remedy.
        InvalidFile: A file cannot be read.
        ValueError: Another argument is invalid, or the solver does not support the problem or found no plan.
        ImportError: An optional package is missing; the message names the extra.
        OSError: A file cannot be opened.
    """
    check_arguments(solver, seconds, seed)
    task = read_task(
        stops,
        vehicles=vehicles,
        durations=durations,
        distances=distances,
        problem=problem,
        speed=speed,
        minimise=minimise,
        reachable=fixed is None,
        **numbers,
    )
    return solve_task(task, solver, seconds, seed, start, fixed, progress)


def solve_task(
    task: Task,
    solver: str | TrainedModel = "auto",
    seconds: float = 10.0,
    seed: int = 1,
    start: Plan | str | Path | None = None,
    fixed: Any = None,
    progress: Progress | None = None,
) -> Plan:
    """Plan a task that has been read, with arguments that `check_arguments` accepts; see `solve`."""
    told = progress or (lambda line: None)
    told(task.sentence)
    started = time.perf_counter()
    if not task.plain:
        if start is not None or fixed is not None:
            raise InvalidInput(f"start, fixed: plans of {task.problem} cannot be continued; leave both out")
        plan = others.solve_other(task, solver, seconds, seed, told)
        return replace(plan, seconds=time.perf_counter() - started)
    if fixed is not None and task.pickup_at is not None:
        raise InvalidInput("fixed: not supported with pickups at other stops (pickup_at); leave fixed out")
    if fixed is not None and any(kind.max_minutes is not None for kind in task.types or (task,)):
        raise InvalidInput("fixed: not supported with max_duration; leave one of them out")
    task, beginning = read_beginning(task, start, fixed)
    rules = Rules(task)
    candidates = run(rules, solver, seconds, seed, beginning, told)
    scored = {one.name: plan_of(rules, one.routes, one.absent, one.name) for one in candidates}
    plan = scored[min(candidates, key=lambda one: one.total).name]
    return replace(
        plan,
        costs={name: one.cost for name, one in scored.items()},
        left_out={name: len(one.unserved) for name, one in scored.items()},
        notes=(*plan.notes, *dict.fromkeys(note for one in candidates for note in one.notes)),
        seconds=time.perf_counter() - started,
    )


def check_arguments(solver: Any, seconds: Any, seed: Any) -> None:
    """Check the arguments that do not depend on the stops.

    Raises:
        ValueError: An argument is invalid; the message has the value and the accepted ones.
    """
    names = (*OWN, *SOLVERS)
    if not isinstance(solver, TrainedModel) and solver not in names:
        raise ValueError(f"solver must be a model or one of {', '.join(names)}; got {solver!r}")
    real = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not real or not MIN_SECONDS <= seconds < math.inf:
        raise ValueError(f"seconds must be a number of at least {MIN_SECONDS}, got {seconds!r}")
    if type(seed) is not int or not 0 <= seed < 2**31:
        raise ValueError(f"seed must be an integer from 0 to 2^31 - 1, got {seed!r}")


def run(
    rules: Rules, solver: str | TrainedModel, seconds: float, seed: int, beginning: Beginning, told: Progress
) -> list[Candidate]:
    """Run the solvers one after the other; return the candidates that they find."""
    started = time.perf_counter()
    found = run_each(rules, solver, seconds, seed, beginning, told)
    late = others.overtime(rules.task, seconds, time.perf_counter() - started)
    return [replace(found[0], notes=(*found[0].notes, *late)), *found[1:]]


def run_each(
    rules: Rules, solver: str | TrainedModel, seconds: float, seed: int, beginning: Beginning, told: Progress
) -> list[Candidate]:
    """Run the solvers; see `run`, which adds a note on the time."""
    if beginning.locked and solver not in ("auto", "search"):
        raise ValueError(f"solver {solver!r} keeps no fixed stops; choose search or auto")
    if beginning.locked or solver == "search":
        return [search(rules, "search", beginning, seconds, seed, told)]
    if isinstance(solver, TrainedModel) or solver == "trained":
        return trained(rules, seconds, seed, beginning, told, solver)
    if solver != "auto":
        found = [classical(rules, solver, seconds, seed, told)]
        return [*found, candidate(rules, "start", beginning.routes)] if beginning.routes else found
    rival = plans.strongest(rules.task)
    missing = 'no classical solver is installed to compare with: pip install ".[solvers]"'
    notes: tuple[str, ...] = () if rival else (missing,)
    share = policy_share(rules.task, rival) * seconds
    found = trained(rules, share, seed, beginning, told, solver)
    if rival is not None and not found[-1].interrupted:
        try:
            found.append(classical(rules, rival, seconds - share, seed, told))
        except ValueError as error:
            notes += (f"{rival} did not plan: {error}",)
        except KeyboardInterrupt:
            notes += (f"{STOPPED}; what {rival} found is discarded",)
    return [replace(found[0], notes=(*found[0].notes, *notes)), *found[1:]]


def policy_share(task: Task, rival: str | None) -> float:
    """Return the share of the time that a policy with search gets beside a rival."""
    if rival is None:
        return 1.0
    return LARGE_SHARE if rival == "pyvrp" and task.pickup_at is None and len(task.stops) > LARGE else 0.5


def candidate(rules: Rules, name: str, routes: Any, notes: tuple[str, ...] = ()) -> Candidate:
    """Make routes feasible within the task's limits, and compute their cost."""
    fitted, absent = fit(rules, routes)
    return Candidate(name, rules.by_vehicle(fitted), tuple(absent), rules.total(fitted, absent), notes)


def search(
    rules: Rules, name: str, beginning: Beginning, seconds: float, seed: int, told: Progress, pool: Any = ()
) -> Candidate:
    """Improve routes by search; see `Search`."""
    search = Search(rules, beginning.routes, beginning.locked, seed, pool)

    def report(found: Found) -> None:
        told(f"{name}: {found.seconds:.0f} of {seconds:g} s")

    found: Found = search.run(max(seconds, MIN_SECONDS / 2), report)
    notes = (STOPPED,) if found.interrupted else ()
    return Candidate(name, found.routes, found.absent, found.cost, notes, found.interrupted)


def trained(
    rules: Rules,
    seconds: float,
    seed: int,
    beginning: Beginning,
    told: Progress,
    solver: str | TrainedModel,
) -> list[Candidate]:
    """Plan with a policy, then improve its plan by search; return both. A given start is only improved."""
    if beginning.routes:
        start = candidate(rules, "start", beginning.routes)
        found = search(rules, "improved start", beginning, seconds, seed, told)
        return [start, found]
    model = solver if isinstance(solver, TrainedModel) else None
    told("decoding tours")
    try:
        tours = policy_tours(rules, seconds, seed, model)
    except ValueError as error:
        if model is not None or solver == "trained":
            raise
        found = search(rules, "search", beginning, seconds, seed, told)
        return [replace(found, notes=(f"no policy was used: {error}",))]
    policy = candidate(rules, f"policy {tours.weights}", tours.routes, tours.notes)
    left = max(seconds - tours.seconds, MIN_SECONDS)
    improved = search(rules, f"{tours.weights} and search", Beginning(policy.routes), left, seed, told, tours.pool)
    return [policy, improved]


def classical(rules: Rules, name: str, seconds: float, seed: int, told: Progress) -> Candidate:
    """Plan with a classical solver.

    Raises:
        ValueError: The solver does not support the problem, or found no plan.
    """
    told(f"{name}: {seconds:g} s")
    if name in plans.SOLVERS:
        with plans.interrupt_request() as stop:
            routes = plans.SOLVERS[name](rules.task, seconds, seed, stop.is_set)
        notes: tuple[str, ...] = (STOPPED,) if stop.is_set() else ()
        if name == "pyvrp" and plans.minimises_km(rules.task):
            notes += ("pyvrp minimised km instead of minutes, since km are limited, too; choose search",)
        return candidate(rules, name, routes, notes)
    own, rows = plain_instance(rules)
    routes = routes_in(own, rows, others.solver_actions(own, name, seconds, seed))
    without = omitted(rules.task, own.problem.name, len(routes))
    note = f"{name} solved {own.problem.name}, without {', '.join(without)}; routes that break a limit were changed"
    return candidate(rules, name, routes, (note,) if without else ())
