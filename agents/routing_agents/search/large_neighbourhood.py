"""Large-neighbourhood search: solve subproblems of a tour again, and keep improvements, until the time limit.

Shaw (1998), "Using constraint programming and local search methods to solve vehicle routing problems". Here a trained
policy solves many subproblems in one decode (like in Li, Yan, Wu 2021, "Learning to delegate"). Only this repair step
is learned; the choice of the subproblems is classical and random. They are instances of `Problem.subproblem` if the
problem declares one; otherwise some edges of the tour are removed and replaced.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from routing_agents.search.edges import EdgeSearch
from routing_agents.search.neighbourhood import Neighbourhoods
from routing_agents.search.routes import RouteSearch
from routing_agents.search.segments import WindowSearch
from routing_gym.arrays import IntArray
from routing_gym.problem import AnyProblem

NEIGHBOURHOODS: dict[str, type[Neighbourhoods]] = {kind.parts: kind for kind in (WindowSearch, RouteSearch)}
REPORT_EVERY = 1.0  # seconds
Report = Callable[[float, IntArray], None]  # seconds so far, the best actions so far


@dataclass(frozen=True)
class Improved:
    """Result of a search.

    Attributes:
        actions: Best tour: int64 (T,), never longer than the first.
        seconds: Duration of the search.
        rounds: Number of completed decodes, approximately.
        interrupted: Whether Ctrl-C ended the search before its time limit.
    """

    actions: IntArray
    seconds: float
    rounds: int
    interrupted: bool


def neighbourhoods_of(problem: AnyProblem) -> type[Neighbourhoods]:
    """Return the class of the search for a problem.

    Raises:
        ValueError: The problem is stochastic, so that its tours cannot be improved, or its subproblems have no search.
    """
    if problem.stochastic:
        raise ValueError(
            f"tours of {problem.name} cannot be improved by search: comparing them would use values that only a visit "
            "reveals; keep the greedy tour"
        )
    if problem.subproblem not in (None, *NEIGHBOURHOODS):
        known = ", ".join(NEIGHBOURHOODS)
        raise ValueError(f"{problem.name}: no search has the subproblem {problem.subproblem}; declare {known} or None")
    return EdgeSearch if problem.subproblem is None else NEIGHBOURHOODS[problem.subproblem]


def improve(search: Neighbourhoods, seconds: float, report: Report | None = None) -> Improved:
    """Improve a tour until a time limit; the last round is completed. Ctrl-C ends it early, with the best tour so far.

    Args:
        search: Search with its tour.
        seconds: Time limit.
        report: Called every second, and once at the end, with the seconds and the best actions so far.

    Raises:
        ValueError: The time limit is not positive.
    """
    kinds = (int, float, np.integer, np.floating)
    if isinstance(seconds, bool) or not isinstance(seconds, kinds) or not 0 < seconds < math.inf:
        raise ValueError(f"seconds must be a positive number of seconds, got {seconds!r}")
    started = reported = time.perf_counter()
    best, rounds, interrupted = search.actions(), 0, False
    try:
        while (now := time.perf_counter()) - started < seconds:
            if report is not None and now - reported >= REPORT_EVERY:
                report(now - started, best)
                reported = now
            search.round()
            best, rounds = search.actions(), rounds + 1
    except KeyboardInterrupt:
        interrupted = True
    elapsed = time.perf_counter() - started
    if report is not None:
        report(elapsed, best)
    return Improved(best, elapsed, rounds, interrupted)
