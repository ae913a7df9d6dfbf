"""Large-neighbourhood search: solve parts of a tour anew, keep what got better, until the time is up.

Shaw (1998), "Using constraint programming and local search methods to solve vehicle routing problems". Here a trained
policy solves the parts (as in Li, Yan, Wu 2021, "Learning to delegate"), many in one decode. The choice of the parts is
random and classical; nothing is learned of it. Parts are subproblems where a problem declares one, else the tour's own
continuation after some of its edges are gone.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

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
        actions: int64 (T,), the best tour, never longer than the first.
        seconds: How long it took.
        rounds: How many decodes were completed, about.
        interrupted: It was stopped by Ctrl-C before its time.
    """

    actions: IntArray
    seconds: float
    rounds: int
    interrupted: bool


def neighbourhoods_of(problem: AnyProblem) -> type[Neighbourhoods]:
    """Return how tours of a problem are improved.

    Raises:
        ValueError: They cannot be.
    """
    if problem.stochastic:
        raise ValueError(
            f"tours of {problem.name} cannot be improved by search: comparing them would use values that only a visit "
            "reveals; keep the greedy tour"
        )
    return EdgeSearch if problem.subproblem is None else NEIGHBOURHOODS[problem.subproblem]


def improve(search: Neighbourhoods, seconds: float, report: Report | None = None) -> Improved:
    """Improve a tour for some time, the last round being completed; Ctrl-C ends it before, with the best tour so far.

    Args:
        search: The tour and how its parts are solved.
        seconds: Time.
        report: Called every second, and once at the end.

    Raises:
        ValueError: The time is not positive.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds < math.inf:
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
