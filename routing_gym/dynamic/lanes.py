"""Parallel days, one per lane: the common part of the single and the vectorised environment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
from gymnasium.error import InvalidAction

from routing_gym.arrays import map_arrays
from routing_gym.dynamic import observations, pictures, rules
from routing_gym.dynamic.days import NEVER, Day, IntArray, routes_of
from routing_gym.dynamic.forms import Form
from routing_gym.envs.episodes import OnIllegal
from routing_gym.envs.lanes import LaneArrays, Lanes, write
from routing_gym.render.figure import new_figure, pixels


class NewRequests(Mapping[str, IntArray]):
    """The R requests that have arrived in an epoch, in the order in which they were drawn.

    The arrays are `customer`, `demand`, `service_time` (R,) and `time_window` (R, 2), int64. This is not a dict,
    because `SyncVectorEnv` would stack its arrays. The arrays are views of those of all lanes, sliced on access.
    """

    def __init__(self, arrays: dict[str, IntArray], begin: int, end: int) -> None:
        self._arrays, self._begin, self._end = arrays, begin, end

    def __getitem__(self, key: str) -> IntArray:
        return self._arrays[key][self._begin : self._end]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NewRequests) and all(np.array_equal(self[key], other[key]) for key in self)

    def __repr__(self) -> str:
        return f"NewRequests({dict(self)})"

    __hash__ = None  # type: ignore[assignment]


class Routes(Sequence[list[int]]):
    """Routes as lists of request ids, from a tour with 0 for the depot; split on first access."""

    def __init__(self, tour: Sequence[int] | IntArray = ()) -> None:
        self._tour = tour

    @cached_property
    def _lists(self) -> list[list[int]]:
        return routes_of(self._tour)

    def __getitem__(self, index: Any) -> Any:
        return self._lists[index]

    def __len__(self) -> int:
        return len(self._lists)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (Routes, list)) and list(self) == list(other)

    def __repr__(self) -> str:
        return repr(self._lists)

    __hash__ = None  # type: ignore[assignment]


class DayLanes(LaneArrays):
    """B lanes, each with its own day.

    Attributes:
        problem: Form of the actions.
        instance: B days.
        state: B states.
        mask: int8 (B, A), the legal actions; call `refresh_mask` after `start`, `restart` and `step`.
        cost: float64 (B,), driving duration of the day so far.
        bound: float64 (B,), upper bound on the cost of every legal day.
        finished: bool (B,), whether the day is over.
        illegal: bool (B,), whether an illegal action has ended it.
        routes: Each lane's routes of the epoch of its last action, by ids of requests.
    """

    instance: Day

    def __init__(self, form: Form, shape: tuple[()] | tuple[int], on_illegal: OnIllegal) -> None:
        if on_illegal not in get_args(OnIllegal):
            raise ValueError(f"on_illegal must be one of {', '.join(get_args(OnIllegal))}; got {on_illegal!r}")
        super().__init__(shape, "numpy", None)
        self.problem = form
        self.raises = on_illegal == "raise"

    def own(self, batch: Any) -> Any:
        """Return a copy of days or states; a matrix of durations that all days share, which is read-only, stays one."""
        return map_arrays(
            lambda x: x if x.ndim == 3 and x.strides[0] == 0 and not x.flags.writeable else x.copy(), batch
        )

    def start(self, instance: Day) -> None:
        """Start a day in every lane."""
        self.instance = self.own(instance)
        self.state = self.problem.initial(self.instance)
        self.shown = observations.features(self.instance, self.problem.with_durations)
        size = self.batch_size
        self.bound = cost_bound(self.instance)
        self.cost = np.zeros(size)
        self.finished, self.illegal = np.zeros((2, size), dtype=np.bool_)
        self.num_deferred = np.zeros(size, dtype=np.int64)
        self.routes = [Routes()] * size
        self.visits: list[tuple[int, ...]] = [()] * size  # visits of an unfinished epoch, 0 for the depot
        self.started = True

    def restart(self, lanes: Lanes, instance: Day) -> None:
        """Start a day in some lanes, with one day for each of them; the other lanes continue."""
        if len(lanes) == self.batch_size:
            return self.start(instance)
        shared = self.instance.durations.strides[0] == 0
        if shared and not (instance.durations.strides[0] == 0 and same_map(self.instance, instance)):
            self.instance = replace(
                self.instance,
                durations=self.instance.durations.copy(),
                coords=None if self.instance.coords is None else self.instance.coords.copy(),
            )
            shared = False
        for field in fields(instance):
            old, new = getattr(self.instance, field.name), getattr(instance, field.name)
            if old is not None and not (shared and field.name in ("durations", "coords")):
                write(old, lanes, new)
        for key, values in observations.features(instance, self.problem.with_durations).items():
            write(self.shown[key], lanes, values)
        fresh = self.problem.initial(instance)
        self.state = map_arrays(lambda old, new: write(old.copy(), lanes, new), self.state, fresh)
        self.bound[lanes] = cost_bound(instance)
        for name in ("cost", "finished", "illegal", "num_deferred"):
            setattr(self, name, write(getattr(self, name).copy(), lanes, 0))
        for lane in lanes:
            self.routes[lane], self.visits[lane] = Routes(), ()
        return None

    def refresh_mask(self) -> None:
        """Compute the mask. Separate from `step`, so that it is computed only once when lanes are reset."""
        self.mask = self.problem.action_mask(self.instance, self.state)

    def step(self, actions: Any, idle: Lanes) -> npt.NDArray[np.float64]:
        """Apply one action in every lane that is not idle; return the rewards, float64 (B,).

        Raises:
            InvalidAction: An action has a wrong shape or type, or is illegal with `on_illegal="raise"`.
            InfeasibleTour: The router returned routes that break a rule.
            ResetNeeded: Before the first reset.
        """
        self.require_start("step()")
        taken = self.as_actions(actions)
        acting = np.ones(self.batch_size, dtype=np.bool_)
        acting[idle] = False
        illegal = acting & self.problem.is_illegal(self.mask, taken)
        if self.raises and illegal.any():
            lane = int(illegal.argmax())
            reason = self.problem.why_illegal(self.instance, self.state, lane, taken[lane])
            raise InvalidAction(f"{self.place(lane)}{reason}")
        acting &= ~illegal
        was_open = rules.open_requests(self.instance, self.state)
        self.state, cost, tours, advanced = self.problem.step(self.instance, self.state, taken, acting)
        deferred = (was_open & ~self.state.dispatched).sum(axis=1)
        self.num_deferred = np.where(advanced, deferred, self.num_deferred)
        self.keep_routes(tours, acting, advanced)
        self.illegal = illegal
        self.finished = rules.done(self.instance, self.state) | illegal
        self.finished[idle] = True  # they ended before this step, and `restart` comes after it
        self.cost = self.cost + cost
        reward = 0.0 - cost  # never -0.0
        if illegal.any():
            reward[illegal] = (self.cost + self.illegal_returns())[illegal]
        return np.asarray(reward, dtype=np.float64)

    def illegal_returns(self) -> npt.NDArray[np.float64]:
        """Compute the returns of days that an illegal action ends now: see `Episodes.illegal_returns`."""
        exists = self.instance.arrival < NEVER
        left = (exists & ~self.state.dispatched).sum(axis=1) / np.maximum(exists.sum(axis=1), 1)
        return np.asarray(-(1.0 + self.bound) * (1.0 + left))

    def as_actions(self, actions: Any) -> npt.NDArray[Any]:
        """Check type, shape and range of the actions of all lanes, and convert them for `Form.step`."""
        shape = (*self.shape, *(self.problem.action_space.shape or ()))
        try:
            values = np.asarray(actions)
        except ValueError:
            raise InvalidAction(f"actions: expected shape {shape}, got sequences of different lengths") from None
        if values.shape != shape:
            raise InvalidAction(f"actions: expected shape {shape}, got {values.shape}")
        taken = self.problem.as_actions(values.reshape(self.batch_size, *shape[len(self.shape) :]))
        if isinstance(taken, str):
            raise InvalidAction(f"actions: {taken}")
        return taken

    def keep_routes(self, tours: IntArray, acting: npt.NDArray[np.bool_], advanced: npt.NDArray[np.bool_]) -> None:
        """Update the routes of the epoch with the visits (B, T) of this step."""
        self.routes = self.routes.copy()
        for lane in np.flatnonzero(acting).tolist():
            if advanced[lane] and not self.visits[lane]:
                self.routes[lane] = Routes(tours[lane])
                continue
            visits = (*self.visits[lane], *tours[lane].tolist())
            self.routes[lane] = Routes(visits)
            self.visits[lane] = () if advanced[lane] else visits

    def observe(self, copy: bool) -> dict[str, npt.NDArray[Any]]:
        """Return the observations of all lanes, in new arrays."""
        return {
            **observations.hide(self.shown, rules.open_requests(self.instance, self.state)),
            **self.problem.observe(self.instance, self.state),
            "action_mask": self.mask.copy(),
        }

    def info(self, copy: bool) -> dict[str, npt.NDArray[Any]]:
        """Return the info of all lanes, in new arrays."""
        return {
            "action_mask": self.mask.copy(),
            "illegal_action": self.illegal.copy(),
            "cost": self.cost.copy(),
            "epoch": self.state.epoch.copy(),
            "must_go": rules.must_go(self.instance, self.state),
            "num_deferred": self.num_deferred.copy(),
            "new_requests": as_objects(self.new_requests()),
            "routes": as_objects(self.routes),
        }

    def observe_final(self, lanes: Lanes) -> tuple[dict[str, npt.NDArray[Any]], dict[str, npt.NDArray[Any]]]:
        """Return the observations and infos of some lanes, before they are reset."""
        self.refresh_mask()
        observation, info = self.observe(copy=True), self.info(copy=True)
        return {key: value[lanes] for key, value in observation.items()}, {k: v[lanes] for k, v in info.items()}

    def render(self, render_mode: str) -> tuple[Any, ...]:
        """Draw each lane: the routes of its last action in colour, and the open requests."""
        self.require_start("render()")
        show = {"rgb_array": self.draw, "ansi": self.text}[render_mode]
        return tuple(show(lane) for lane in range(self.batch_size))

    def text(self, lane: int) -> str:
        """Describe a lane in a few lines."""
        is_open = int(rules.open_requests(self.instance, self.state)[lane].sum())
        urgent = int(rules.must_go(self.instance, self.state)[lane].sum())
        head = f"epoch {self.state.epoch[lane]}, driven {self.cost[lane]:.0f}: {is_open} open, {urgent} must leave"
        return "\n".join([head, *(f"route {', '.join(map(str, route))}" for route in self.routes[lane])])

    def draw(self, lane: int) -> npt.NDArray[np.uint8]:
        """Draw a lane: uint8 (height, width, 3)."""
        is_open, urgent = (rule(self.instance, self.state)[lane] for rule in (rules.open_requests, rules.must_go))
        figure = new_figure((pictures.SIDE, pictures.SIDE), layout="constrained")
        title = self.text(lane).splitlines()[0]
        pictures.draw_map(figure.add_subplot(), self.instance, lane, self.routes[lane], is_open, urgent, title)
        return pixels(figure)

    def new_requests(self) -> list[NewRequests]:
        """Return the requests that have arrived in each lane's epoch."""
        arrived = self.instance.arrival == self.state.epoch[:, None]
        ends = np.cumsum(arrived.sum(axis=1)).tolist()
        names = ("customer", "time_window", "demand", "service_time")
        arrays = {name: getattr(self.instance, name)[arrived] for name in names}
        return [NewRequests(arrays, *place) for place in pairwise([0, *ends])]


def same_map(first: Day, second: Day) -> bool:
    """Return whether two batches of days share one matrix of durations."""
    return bool(first.durations.__array_interface__["data"] == second.durations.__array_interface__["data"])


def cost_bound(day: Day) -> npt.NDArray[np.float64]:
    """Return an upper bound on the driving duration of any legal day, float64 (B,): one day-long route per request."""
    return np.asarray(1.0 * day.closing * (day.arrival < NEVER).sum(axis=1))


def as_objects(values: list[Any]) -> npt.NDArray[np.object_]:
    """Return a list as an array of objects (B,)."""
    array = np.empty(len(values), dtype=object)
    for row, value in enumerate(values):  # in one assignment, NumPy would treat sequences as further axes
        array[row] = value
    return array
