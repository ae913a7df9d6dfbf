"""Two forms of actions for the same rules: choose the requests that leave in an epoch, or drive node by node and wait.

A form corresponds to a `Problem`: it consists of pure functions over B days, which the environments call.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from routing_gym.arrays import BoolArray
from routing_gym.dynamic import observations, rules
from routing_gym.dynamic.days import Day, DaySource, IntArray, check_day, latest_starts
from routing_gym.dynamic.routers import Router
from routing_gym.dynamic.rules import DayState
from routing_gym.problems.geometry import MAX_FLOAT

Mask = npt.NDArray[np.int8]


class Form(ABC):
    """Base class of the forms of actions.

    Attributes:
        source: Source of the days.
        with_durations: Whether observations contain the matrix of durations.
    """

    instance_type: ClassVar[type] = Day

    source: DaySource
    with_durations: bool

    def validate(self, day: Day) -> None:
        """Check days from the user; see `check_day`."""
        check_day(day, self.source)

    @property
    @abstractmethod
    def action_space(self) -> spaces.Space[Any]:
        """Action space of one environment."""

    @abstractmethod
    def initial(self, day: Day) -> DayState:
        """Return the states at the start of the first epoch."""

    @abstractmethod
    def action_mask(self, day: Day, state: Any) -> Mask:
        """Return the mask of legal actions in the form that `Space.sample(mask=)` expects: int8 (B, A)."""

    @abstractmethod
    def as_actions(self, values: npt.NDArray[Any]) -> str | npt.NDArray[Any]:
        """Return actions (B, ...) in the type that `step` expects, or the reason why they are invalid, as text."""

    @abstractmethod
    def is_illegal(self, mask: Mask, actions: npt.NDArray[Any]) -> BoolArray:
        """Return a mask of the rows whose action is illegal: bool (B,)."""

    @abstractmethod
    def why_illegal(self, day: Day, state: Any, row: int, action: npt.NDArray[Any]) -> str:
        """Return the reason why one row's action is illegal, and which part of it."""

    @abstractmethod
    def step(
        self, day: Day, state: Any, actions: npt.NDArray[Any], acting: BoolArray
    ) -> tuple[Any, IntArray, IntArray, BoolArray]:
        """Apply one action in every row that `acting`, bool (B,), marks; the other rows do not change.

        Returns:
            The new states; the driving duration, int64 (B,); the ids of visited requests, 0 for the depot, int64
            (B, T); and a mask of the rows that began a new epoch, bool (B,).
        """

    def observation_space(self) -> spaces.Dict:
        """Return the observation space of one environment."""
        return spaces.Dict(observations.space(self.source, self.with_durations) | self.own_spaces())

    @abstractmethod
    def own_spaces(self) -> dict[str, spaces.Space[Any]]:
        """Return the spaces of the observations that only this form has."""

    def observe(self, day: Day, state: Any) -> dict[str, npt.NDArray[Any]]:
        """Return the dynamic observations without the mask."""
        return observations.clock(day, state)


@dataclass(frozen=True)
class DispatchForm(Form):
    """Form in which each action decides for every request slot whether it leaves now; `router` builds the routes.

    In the mask, 0 is a slot without an open request, 1 a request that must leave, 2 one that may leave.
    """

    source: DaySource
    router: Router
    with_durations: bool = False

    @property
    def action_space(self) -> spaces.MultiBinary:
        return spaces.MultiBinary(self.source.num_slots)

    def own_spaces(self) -> dict[str, spaces.Space[Any]]:
        return {"action_mask": spaces.Box(0, 2, (self.source.num_slots,), np.int8)}

    def initial(self, day: Day) -> DayState:
        return rules.initial(day)

    def action_mask(self, day: Day, state: DayState) -> Mask:
        is_open = rules.open_requests(day, state).view(np.int8)
        return np.asarray(2 * is_open - rules.must_go(day, state).view(np.int8))

    def as_actions(self, values: npt.NDArray[Any]) -> str | BoolArray:
        if values.dtype.kind not in "biuf":  # floating point, too: stable-baselines3 sends 0.0 and 1.0
            return f"expected 0 and 1, got {values.dtype}"
        if (wrong := (values != 0) & (values != 1)).any():
            return f"expected 0 and 1, got {values[wrong][0]}"
        return values.astype(np.bool_)

    def is_illegal(self, mask: Mask, actions: BoolArray) -> BoolArray:
        return np.asarray(((mask != 2) & (mask != actions)).any(axis=1))

    def why_illegal(self, day: Day, state: DayState, row: int, action: BoolArray) -> str:
        urgent = rules.must_go(day, state)[row] & ~action
        if urgent.any():
            return (
                f"request {int(urgent.argmax()) + 1} must leave in epoch {state.epoch[row]} (action_mask is 1) and is "
                "left behind; dispatch it"
            )
        slot = int((action & ~rules.open_requests(day, state)[row]).argmax())
        known = bool(rules.known_requests(day, state)[row, slot])
        reason = "has left already" if known else "does not exist yet"
        return f"request {slot + 1} {reason} in epoch {state.epoch[row]}; dispatch requests whose action_mask is not 0"

    def step(
        self, day: Day, state: DayState, actions: BoolArray, acting: BoolArray
    ) -> tuple[DayState, IntArray, IntArray, BoolArray]:
        chosen = actions & acting[:, None]
        leaving = rules.departure(day, state)
        tours = self.router(day, chosen.copy(), leaving.copy())  # the user's own may write to them
        cost = rules.route_cost(day, chosen, tours, leaving)
        after = rules.dispatch(state, chosen)
        return replace(after, epoch=np.where(acting, after.epoch, state.epoch)), cost, tours, acting


@dataclass(frozen=True)
class RouteState(DayState):
    """States of B days with one active vehicle each; `dispatched` marks the requests visited so far."""

    of_requests = ("latest_departure", "latest_start")

    latest_start: IntArray  # int64 (B, N), latest start of service with a return in time; never changes
    current: IntArray  # int64 (B,), id of the request where the vehicle is; 0 for the depot
    time: IntArray  # int64 (B,), earliest departure from there
    load: IntArray  # int64 (B,), demand delivered on the route so far


@dataclass(frozen=True)
class RouteForm(Form):
    """Form in which each action is the request to visit next; 0 returns to the depot, N + 1 waits for the next epoch.

    A request is legal if the vehicle can reach it and return in time and has enough capacity left. Waiting is legal at
    the depot once no request is left that must leave. Each route of an epoch leaves the depot at the same departure
    time, with another vehicle.
    """

    source: DaySource
    with_durations: bool = False

    @property
    def action_space(self) -> spaces.Discrete:
        return spaces.Discrete(self.source.num_slots + 2)

    def own_spaces(self) -> dict[str, spaces.Space[Any]]:
        slots, most = self.source.num_slots, MAX_FLOAT
        own: dict[str, spaces.Space[Any]] = {
            "action_mask": spaces.MultiBinary(slots + 2),
            "current": spaces.Discrete(slots + 1),
            "time": spaces.Box(0.0, most, (1,), np.float32),
            "free_capacity": spaces.Box(0.0, 1.0, (1,), np.float32),
        }
        return own | ({"position": spaces.Box(0.0, 1.0, (2,), np.float32)} if self.source.has_coords else {})

    def initial(self, day: Day) -> RouteState:
        start = rules.initial(day)
        zeros = np.zeros(len(start.epoch), dtype=np.int64)
        return RouteState(
            **vars(start), latest_start=latest_starts(day), current=zeros, time=rules.departure(day, start), load=zeros
        )

    def location(self, day: Day, requests: IntArray) -> IntArray:
        """Return the locations of requests, given their ids (B,); 0 is the depot."""
        customer = day.customer[np.arange(len(requests)), np.maximum(requests - 1, 0)]
        return np.where(requests > 0, customer, 0)

    def action_mask(self, day: Day, state: RouteState) -> Mask:
        rows, away = np.arange(len(state.current)), state.current > 0
        legs = day.durations[rows[:, None], self.location(day, state.current)[:, None], day.customer]
        start = np.maximum(state.time[:, None] + legs, day.time_window[..., 0])
        mask = np.zeros((len(rows), self.source.num_slots + 2), dtype=np.int8)
        fits = state.load[:, None] + day.demand <= day.capacity[:, None]
        mask[:, 1:-1] = rules.open_requests(day, state) & (start <= state.latest_start) & fits
        mask[:, 0] = away
        mask[:, -1] = ~away & ~rules.must_go(day, state).any(axis=1)
        return mask

    def as_actions(self, values: npt.NDArray[Any]) -> str | IntArray:
        if not np.issubdtype(values.dtype, np.integer):
            return f"expected integers, got {values.dtype}"
        outside = (values < 0) | (values > self.source.num_slots + 1)
        if outside.any():
            last = self.source.num_slots
            return f"action {values[outside][0]} does not exist; 0 is the depot, 1 to {last} requests, {last + 1} waits"
        return values.astype(np.int64)

    def is_illegal(self, mask: Mask, actions: IntArray) -> BoolArray:
        return np.asarray(mask[np.arange(len(actions)), actions] == 0)

    def why_illegal(self, day: Day, state: RouteState, row: int, action: IntArray) -> str:
        request, remedy = int(action), "choose one where action_mask is 1"
        if request == 0:
            return f"the vehicle is at the depot already; {remedy}"
        if request == self.source.num_slots + 1:
            urgent = rules.must_go(day, state)[row]
            if state.current[row]:
                return "wait: the vehicle is away from the depot; drive home first"
            return f"wait: request {int(urgent.argmax()) + 1} must leave in epoch {state.epoch[row]}; visit it"
        if not rules.open_requests(day, state)[row, request - 1]:
            known = bool(rules.known_requests(day, state)[row, request - 1])
            return f"request {request} {'has been visited' if known else 'does not exist yet'}; {remedy}"
        if state.load[row] + day.demand[row, request - 1] > day.capacity[row]:
            return f"request {request} does not fit: the route would exceed the capacity {day.capacity[row]}; {remedy}"
        return f"request {request} cannot be served in time on this route; {remedy}"

    def step(
        self, day: Day, state: RouteState, actions: IntArray, acting: BoolArray
    ) -> tuple[RouteState, IntArray, IntArray, BoolArray]:
        rows, last = np.arange(len(actions)), self.source.num_slots + 1
        waits = acting & (actions == last)
        target = np.where(acting & ~waits, actions, state.current)  # vehicles that wait are at the depot
        visits = acting & (target > 0)
        slot = np.maximum(target - 1, 0)
        leg = day.durations[rows, self.location(day, state.current), self.location(day, target)] * acting
        dispatched = state.dispatched.copy()
        dispatched[rows[visits], slot[visits]] = True
        after = replace(state, epoch=state.epoch + waits, dispatched=dispatched, current=target)
        start = np.maximum(state.time + leg, day.time_window[rows, slot, 0])
        served, home = start + day.service_time[rows, slot], rules.departure(day, after)
        after = replace(
            after,
            time=np.where(visits, served, np.where(acting, home, state.time)),
            load=np.where(visits, state.load + day.demand[rows, slot], np.where(acting, 0, state.load)),
        )
        return after, leg, np.where(acting & ~waits, target, 0)[:, None], waits

    def observe(self, day: Day, state: RouteState) -> dict[str, npt.NDArray[Any]]:
        free = ((day.capacity - state.load) / day.capacity).astype(np.float32)
        own: dict[str, npt.NDArray[Any]] = {
            "current": state.current.copy(),
            "time": (state.time / day.closing).astype(np.float32)[:, None],
            "free_capacity": free[:, None],
        }
        if day.coords is not None:
            own["position"] = day.coords[np.arange(len(free)), self.location(day, state.current)]
        return super().observe(day, state) | own
