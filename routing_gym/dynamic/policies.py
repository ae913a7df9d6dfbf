"""Policies without learning, which choose the open requests that leave in this epoch.

Each is a function of days, states and a random number generator. It returns bool (B, N), including all requests that
must leave. The days and states contain only the requests that have arrived (`rules.known_part`, `rules.known_state`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from routing_gym.arrays import BoolArray, select
from routing_gym.dynamic import rules
from routing_gym.dynamic.days import Day, DaySource, IntArray, routes_of
from routing_gym.dynamic.oracle import release_times
from routing_gym.dynamic.routers import Router
from routing_gym.dynamic.rules import DayState
from routing_gym.dynamic.solver import Limits, check_limits, solve
from routing_gym.problems.checks import check_integer

SCENARIO_LIMITS = Limits(seconds=0.1)
Policy = Callable[[Day, DayState, np.random.Generator], BoolArray]


def greedy(day: Day, state: DayState, rng: np.random.Generator) -> BoolArray:
    """Dispatch every open request."""
    return rules.open_requests(day, state)


def lazy(day: Day, state: DayState, rng: np.random.Generator) -> BoolArray:
    """Dispatch the requests that must leave."""
    return rules.must_go(day, state)


def random(day: Day, state: DayState, rng: np.random.Generator) -> BoolArray:
    """Dispatch the requests that must leave, and each other open request with probability 1/2."""
    drawn = rng.random(day.arrival.shape) < 0.5
    return rules.must_go(day, state) | (rules.open_requests(day, state) & drawn)


@dataclass(frozen=True)
class Threshold:
    """Rolling threshold: dispatch the requests that must leave within the next epochs.

    Attributes:
        epochs: Number of epochs to look ahead; 0 is `lazy`, infinity is `greedy`.

    Raises:
        ValueError: The number of epochs is negative or not a number.
    """

    epochs: float = 1.0

    def __post_init__(self) -> None:
        if not self.epochs >= 0:
            raise ValueError(f"epochs must be 0 or more, got {self.epochs}")

    def __call__(self, day: Day, state: DayState, rng: np.random.Generator) -> BoolArray:
        ahead = np.round((1.0 + self.epochs) * day.epoch_duration)
        soon = (rules.departure(day, state) + ahead)[:, None] > state.latest_departure
        return rules.must_go(day, state) | (rules.open_requests(day, state) & soon)


@dataclass(frozen=True)
class ScenarioSampling:
    """Iterative conditional dispatch: dispatch the requests that leave in most sampled scenarios.

    Each scenario consists of the open requests and a sample of future ones, solved with release times by PyVRP. A
    request whose route contains no future request would leave now. In each iteration, requests that leave in at least
    the share `dispatch` of the scenarios are fixed to leave: they are not routed with future requests any more. Those
    that leave in at most the share `postpone` wait: they are released with the next epoch. Requests that are still
    undecided in the end wait.

    Lan, van Doorn, Wouda, Rijal and Bhulai (2024), "An iterative sample scenario approach for the dynamic dispatch
    waves problem". Deviation: PyVRP forbids fixed requests next to future ones, not anywhere on their routes.

    Attributes:
        source: Source of the sampled future requests.
        limits: Limits of PyVRP in each scenario.
        scenarios: Number of scenarios in an iteration.
        iterations: Number of iterations in an epoch.
        epochs_ahead: Number of epochs of future requests in a scenario.
        dispatch: Least share of scenarios with which a request is fixed to leave.
        postpone: Largest share of scenarios with which a request is fixed to wait.
    """

    source: DaySource
    limits: Limits = SCENARIO_LIMITS
    scenarios: int = 8
    iterations: int = 2
    epochs_ahead: int = 2
    dispatch: float = 0.6
    postpone: float = 0.2

    def __post_init__(self) -> None:
        if not hasattr(self.source, "redraw"):
            raise TypeError(f"source: expected one that has redraw, see DaySource; got {type(self.source).__name__}")
        check_limits(self.limits)
        for field in ("scenarios", "iterations", "epochs_ahead"):
            object.__setattr__(self, field, check_integer(field, getattr(self, field), 1))
        if not 0 <= self.postpone < self.dispatch <= 1:
            raise ValueError(
                f"expected 0 <= postpone < dispatch <= 1, got postpone={self.postpone}, dispatch={self.dispatch}"
            )

    def __call__(self, day: Day, state: DayState, rng: np.random.Generator) -> BoolArray:
        found, own = (day.durations.shape[1], day.arrival.shape[1]), (self.source.num_locations, self.source.num_slots)
        if found != own:
            raise ValueError(
                f"days of {found[0]} locations and {found[1]} slots; the source samples {own[0]} and {own[1]}"
            )
        open_now = rules.open_requests(day, state)
        chosen = rules.must_go(day, state)
        for row in range(len(chosen)):
            if (open_now[row] & ~chosen[row]).any():
                chosen[row] = self._choose(select(day, [row]), select(state, [row]), rng)
        return chosen

    def _choose(self, day: Day, state: DayState, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
        """Choose the requests of one day that leave: bool (N,)."""
        is_open, settled = rules.open_requests(day, state)[0], rules.must_go(day, state)[0]
        waits = np.zeros_like(settled)
        for _ in range(self.iterations):
            leaves = np.zeros(len(is_open))
            for _ in range(self.scenarios):
                leaves += self._leaves(day, state, is_open, settled, waits, rng)
            share = leaves / self.scenarios
            settled |= is_open & ~waits & (share >= self.dispatch)
            waits |= is_open & ~settled & (share <= self.postpone)
            if not (is_open & ~settled & ~waits).any():
                break
        return np.asarray(settled)

    def _leaves(
        self,
        day: Day,
        state: DayState,
        is_open: npt.NDArray[np.bool_],
        settled: npt.NDArray[np.bool_],
        waits: npt.NDArray[np.bool_],
        rng: np.random.Generator,
    ) -> npt.NDArray[np.bool_]:
        """Solve one scenario; return a mask of the open requests that leave now, bool (N,)."""
        epoch, now = int(state.epoch[0]), int(rules.departure(day, state)[0])
        drawn = self.source.redraw(day, [rng])
        for field in ("epoch_duration", "margin", "closing", "capacity"):
            found, own = getattr(day, field)[0], getattr(drawn, field)[0]
            if found != own:
                raise ValueError(f"{field}: the days have {found}, the source that the scenarios come from has {own}")
        coming = np.flatnonzero((drawn.arrival[0] > epoch) & (drawn.arrival[0] <= epoch + self.epochs_ahead))
        opened = np.flatnonzero(is_open)
        scenario = join(day, opened, drawn, coming)
        release = np.where(scenario.arrival[0] > epoch, release_times(scenario)[0], now)
        release[: len(opened)][waits[opened]] = now + int(day.epoch_duration[0])
        later = np.arange(len(release)) >= len(opened)
        later[: len(opened)] = waits[opened]
        fixed = np.zeros(len(release), dtype=np.bool_)
        fixed[: len(opened)] = settled[opened]
        tour = solve(
            scenario,
            0,
            np.arange(len(release)),
            now,
            replace(self.limits, seed=int(rng.integers(2**31))),
            release=release,
            forbidden=(fixed[:, None] & later) | (later[:, None] & fixed),
        )
        leaves = np.zeros(len(is_open), dtype=np.bool_)
        for ids in routes_of(tour):
            route = np.array(ids) - 1
            if not later[route].any():
                leaves[opened[route]] = True
        return leaves


def join(day: Day, slots: IntArray, other: Day, more: IntArray) -> Day:
    """Return a day with some requests of one day and some of another, on the map of the first."""
    names = ("arrival", "customer", "time_window", "demand", "service_time")
    parts = {
        name: np.concatenate([getattr(day, name)[:, slots], getattr(other, name)[:, more]], axis=1) for name in names
    }
    return replace(day, **parts)


@dataclass(frozen=True)
class Epoch:
    """One epoch of B days."""

    state: DayState  # state before the dispatch
    chosen: BoolArray  # bool (B, N), dispatched requests
    tours: IntArray  # int64 (B, T), ids of requests, 0 for the depot
    cost: IntArray  # int64 (B,), driving duration


def checked(chosen: Any, day: Day) -> BoolArray:
    """Return a policy's choice as bool (B, N).

    Raises:
        ValueError: It has another shape, or other values than 0 and 1.
    """
    chosen = np.asarray(chosen)
    if chosen.shape != day.arrival.shape or chosen.dtype.kind not in "biu":
        found = f"{chosen.dtype} {chosen.shape}"
        raise ValueError(f"policy: expected bool {day.arrival.shape}, a mask of the requests that leave, got {found}")
    if (wrong := (chosen != 0) & (chosen != 1)).any():
        raise ValueError(f"policy: expected a mask of the requests that leave, got {chosen[wrong][0]}")
    return np.asarray(chosen, dtype=np.bool_)


def epochs(day: Day, policy: Policy, router: Router, rng: np.random.Generator) -> Iterator[Epoch]:
    """Run whole days with a policy, epoch by epoch.

    Raises:
        ValueError: The policy returned no mask of requests, left a request behind that must leave, or chose one that
            is not open.
        InfeasibleTour: The router returned routes that break a rule.
    """
    state = rules.initial(day)
    while not (over := rules.done(day, state)).all():
        chosen = checked(policy(rules.known_part(day, state), rules.known_state(day, state), rng), day) & ~over[:, None]
        must, is_open = rules.must_go(day, state), rules.open_requests(day, state)
        wrong = (must & ~chosen) | (chosen & ~is_open)
        if wrong.any():
            row, slot = map(int, np.argwhere(wrong)[0])
            reason = "must leave and was left behind" if must[row, slot] else "is not open and was dispatched"
            raise ValueError(f"row {row}, epoch {state.epoch[row]}: request {slot + 1} {reason}")
        leaving = rules.departure(day, state)
        tours = router(day, chosen.copy(), leaving.copy())  # the user's own may write to them
        yield Epoch(state, chosen, tours, rules.route_cost(day, chosen, tours, leaving))
        state = replace(rules.dispatch(state, chosen), epoch=state.epoch + ~over)


def play(day: Day, policy: Policy, router: Router, rng: np.random.Generator) -> IntArray:
    """Run whole days, see `epochs`, and return the driving duration of each, int64 (B,)."""
    return np.asarray(sum(epoch.cost for epoch in epochs(day, policy, router, rng)))
