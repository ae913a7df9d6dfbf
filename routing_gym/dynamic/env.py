"""Gymnasium environments of the dynamic VRPTW, single and vectorised: requests arrive during the day."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import logger
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode

from routing_gym.dynamic import rules
from routing_gym.dynamic.arguments import ActionForm, choose_source, draw_days, make_form
from routing_gym.dynamic.days import Day, DaySource
from routing_gym.dynamic.forms import DispatchForm, Form, RouteForm
from routing_gym.dynamic.lanes import DayLanes
from routing_gym.dynamic.routers import Router
from routing_gym.dynamic.rules import DayState
from routing_gym.dynamic.static import StaticInstance
from routing_gym.envs.arguments import check_no_time_limit, check_options, check_render_mode
from routing_gym.envs.episodes import OnIllegal
from routing_gym.envs.lanes import NO_LANES, NO_MODE, Info, Lanes, Observation
from routing_gym.envs.vector import LaneVectorEnv
from routing_gym.problems.checks import check_integer


class DynamicVRPTWEnv(gym.Env[Observation, Any]):
    """Environment of one day in which requests arrive, epoch by epoch; decide which requests leave now and which wait.

    `gym.make("routing/DVRPTW", static=path)` samples the days of the EURO Meets NeurIPS 2022 competition from one of
    its files; the requests of `reset(seed=s)` are those of its `VRPEnvironment` with the same file and seed, bit for
    bit. Without `static`, each day has a random map (`GeneratedDays`). A request has a customer, a time window for the
    start of service, a demand and a service time. Vehicles leave at the epoch's start plus the margin; their number is
    not limited. All numbers are integers.

    ## Action space

    `action="dispatch"`: `MultiBinary(N)` over the request slots of the day, in the order of arrival; 1 means that the
    request leaves now. In `action_mask`, 0 means no open request, 1 a request that must leave, 2 one that may leave
    (the values of `MultiBinary.sample(mask=)`). A router builds routes of the requests that leave, and the next epoch
    begins.

    `action="route"`: `Discrete(N + 2)`: 0 returns to the depot, 1 to N visit a request, and N + 1 waits at the depot
    for the next epoch, which is legal once no request is left that must leave.

    ## Observation space

    A `Dict`. Times are shares of the depot's closing time. Slots without an open request are 0.

    | key | space |
    |---|---|
    | `time_window` (N, 2), `service_time` (N,), `depot_durations` (N, 2): there and back | Box(0, max, float32) |
    | `demand` (N,) | Box(0, 1, float32), share of the capacity |
    | `coords` (N, 2), `depot` (2,) | Box(0, 1, float32); absent if the static instance has no coordinates |
    | `departure` (1,): departure time of this epoch's vehicles | Box(0, max, float32) |
    | `epochs_left` (1,): share of the day's epochs that is left, with this one | Box(0, 1, float32) |
    | `durations` (L, L), `customer` (N,) | with `observe_durations`, or without coordinates |
    | `action_mask` | as above, int8 |

    Only with `action="route"`, about the vehicle:

    | key | space |
    |---|---|
    | `current`: request where it is, 0 for the depot | Discrete(N + 1) |
    | `time` (1,): earliest departure from there | Box(0, max, float32) |
    | `free_capacity` (1,), and `position` (2,) if there are coordinates | Box(0, 1, float32) |

    ## Rewards

    Minus the driving duration of the routes. Waiting and service cost nothing.

    ## Episode end

    `terminated` is True after the last epoch, in which all open requests must leave. An illegal action (a request that
    must leave is left behind, or one that is not open leaves) ends the day: the state does not change,
    `info["illegal_action"]` is True, and the return is below that of every legal day. With `on_illegal="raise"`, it
    raises InvalidAction instead.

    ## Info

    - `new_requests`: mapping with the arrays `customer` (location; with a static file, its row), `time_window`,
      `demand`, `service_time` of the requests that have arrived in this epoch, in the order in which they were drawn.
    - `must_go`: bool (N,), the requests that must leave.
    - `num_deferred`: number of requests that the last epoch left waiting.
    - `routes`: routes of the epoch of the last action, as lists of request ids, which count from 1.
    - `epoch`, `cost` (driving duration so far), `illegal_action`, `action_mask`.

    ## Reset options

    `options={"instance": day}`: use this one-row `Day` for this reset.

    Args:
        static: A VRPLIB file with explicit durations, or a `StaticInstance`.
        source: Source of the days, instead of `static` and settings, such as a class of your own with the methods of
            `DaySource`.
        action: "dispatch" or "route".
        router: "nearest", "pyvrp" or a function (see `routing_gym.dynamic.routers`); only for "dispatch".
        on_illegal: "terminate" or "raise".
        observe_durations: Whether to observe the matrix of driving durations.
        render_mode: None, "rgb_array" (needs coordinates) or "ansi" (text).
        **settings: Settings of `ResampledDays` with `static`, else of `GeneratedDays`.

    Raises:
        FileError: The file is invalid or uses an unsupported feature.
        OSError: The file does not exist or cannot be opened.
        TypeError: A keyword is unknown, or `static`, `source` or `router` has a wrong type.
        ValueError: An argument has an invalid value.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array", "ansi"], "render_fps": 1}  # noqa: RUF012

    def __init__(
        self,
        static: str | Path | StaticInstance | None = None,
        *,
        source: DaySource | None = None,
        action: ActionForm = "dispatch",
        router: str | Router = "nearest",
        on_illegal: OnIllegal = "terminate",
        observe_durations: bool = False,
        render_mode: str | None = None,
        **settings: Any,
    ) -> None:
        days = choose_source(type(self), static, source, settings)
        self.form = make_form(days, action, router, observe_durations)
        self.metadata = metadata_of(type(self), days)
        self.render_mode = check_render_mode(self, render_mode)
        self.action_space = self.form.action_space
        self.observation_space = self.form.observation_space()
        self._lanes = DayLanes(self.form, (), on_illegal)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, Info]:
        """Start a day; see `gymnasium.Env.reset` and "Reset options" above.

        Raises:
            TypeError: The instance is not a `Day`.
            ValueError: An option is unknown, or the day is invalid.
        """
        day = check_options(options, self.form, 1, ["instance"]).get("instance")
        super().reset(seed=seed)
        self._lanes.start(draw_days(self.form, [self.np_random]) if day is None else day)
        return self._observe()

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, Info]:
        """Dispatch requests, or go to a node.

        Raises:
            InvalidAction: The action has a wrong shape or type, names a request that does not exist, or is illegal with
                `on_illegal="raise"`.
            InfeasibleTour: The router returned routes that exceed the capacity, are late, or do not serve exactly the
                requests that leave.
            ResetNeeded: Before the first reset, or after the end of the day.
        """
        if self._lanes.started and self._lanes.finished[0]:
            raise ResetNeeded("the day has ended; call reset() before step()")
        reward = self._lanes.step(action, NO_LANES)
        observation, info = self._observe()
        return observation, float(reward[0]), bool(self._lanes.finished[0]), False, info

    def _observe(self) -> tuple[Observation, Info]:
        self._lanes.refresh_mask()
        observation = {key: value[0] for key, value in self._lanes.observe(copy=True).items()}
        info = {key: value[0] for key, value in self._lanes.info(copy=True).items()}
        casts = {"illegal_action": bool, "cost": float, "epoch": int, "num_deferred": int}
        return observation, info | {key: cast(info[key]) for key, cast in casts.items()}

    def render(self) -> Any:
        """Draw the routes of the last action and the open requests: uint8 (400, 400, 3), or text.

        Raises:
            ImportError: matplotlib is missing ("rgb_array").
            ResetNeeded: Before the first reset.
            ValueError: The day is one of your own without coordinates ("rgb_array").
        """
        if self.render_mode is None:
            logger.warn(NO_MODE)
            return None
        return self._lanes.render(self.render_mode)[0]

    def action_masks(self) -> npt.NDArray[np.bool_]:
        """Return the mask of legal actions for sb3-contrib: bool (2 N,), or (N + 2,) with "route".

        Entries 2 i and 2 i + 1 are for the request in slot i: whether it may wait, and whether it may leave.
        """
        self._lanes.require_start("action_masks()")
        return np.asarray(action_masks(self.form, self._lanes.mask)[0])

    def must_go_action(self) -> npt.NDArray[np.int8]:
        """Return the action that dispatches only the requests that must leave: int8 (N,).

        Raises:
            TypeError: The environment has `action="route"`.
        """
        return np.asarray(must_go_actions(self._lanes)[0])

    @property
    def day(self) -> Day:
        """A copy of the whole day, including requests that have not arrived yet: a `Day` with one row."""
        self._lanes.require_start("day")
        day: Day = self._lanes.own(self._lanes.instance)
        return day

    @property
    def known_day(self) -> Day:
        """The day with only the requests that have arrived, which is all that a policy may observe."""
        return rules.known_part(self.day, self.state)

    @property
    def state(self) -> DayState:
        """A copy of the state with one row, including times of requests that have not arrived yet."""
        self._lanes.require_start("state")
        state: DayState = self._lanes.own(self._lanes.state)
        return state

    @property
    def known_state(self) -> DayState:
        """The state for a policy: the times of requests that have not arrived are -1."""
        return rules.known_state(self.day, self.state)


class DynamicVRPTWVectorEnv(LaneVectorEnv):
    """Vectorised environment of many days: the native vector form of `DynamicVRPTWEnv`, which documents the rules.

    Lane i of `reset(seed=s)` gets the same days as the single environment with `reset(seed=s + i)`. The return values
    of `reset` and `step` have the layout of Gymnasium's `SyncVectorEnv`; rewards are float64.

    ## Reset options

    - `{"instance": day}`: use these `num_envs` days for this reset.
    - `{"reset_mask": mask}`: reset only the lanes where `mask`, bool (`num_envs`,), is True.

    Args:
        static: See `DynamicVRPTWEnv`.
        num_envs: Number of lanes.
        source: See `DynamicVRPTWEnv`.
        action: "dispatch" or "route".
        router: See `DynamicVRPTWEnv`.
        on_illegal: "terminate" or "raise".
        observe_durations: Whether to observe the matrix of driving durations.
        autoreset_mode: "NextStep", "SameStep" or "Disabled", or a `gymnasium.vector.AutoresetMode`.
        render_mode: None, "rgb_array" or "ansi".
        **settings: See `DynamicVRPTWEnv`.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array", "ansi"], "render_fps": 1}  # noqa: RUF012
    _episodes: DayLanes

    def __init__(
        self,
        static: str | Path | StaticInstance | None = None,
        num_envs: int = 1,
        *,
        source: DaySource | None = None,
        action: ActionForm = "dispatch",
        router: str | Router = "nearest",
        on_illegal: OnIllegal = "terminate",
        observe_durations: bool = False,
        autoreset_mode: str | AutoresetMode = "NextStep",
        render_mode: str | None = None,
        **settings: Any,
    ) -> None:
        check_no_time_limit(settings)
        days = choose_source(type(self), static, source, settings)
        self.form = make_form(days, action, router, observe_durations)
        self.metadata = metadata_of(type(self), days)
        lanes = DayLanes(self.form, (check_integer("num_envs", num_envs, 1),), on_illegal)
        space = self.form.observation_space()
        super().__init__(lanes, space, self.form.action_space, autoreset_mode, True, None, render_mode)

    def _draw(self, lanes: Lanes) -> Day:
        return draw_days(self.form, [self._generators[lane] for lane in lanes])

    @property
    def known_day(self) -> Day:
        """The days with only the requests that have arrived, which is all that a policy may observe."""
        return rules.known_part(self.instance, self.state)

    @property
    def known_state(self) -> DayState:
        """The states for a policy: the times of requests that have not arrived are -1."""
        state: DayState = self.state
        return rules.known_state(self.instance, state)

    def action_masks(self) -> npt.NDArray[np.bool_]:
        """Return the mask of legal actions: bool (B, 2 N), or (B, N + 2) with "route"."""
        self._episodes.require_start("action_masks()")
        return action_masks(self.form, self._episodes.mask)

    def must_go_action(self) -> npt.NDArray[np.int8]:
        """Return the actions that dispatch only the requests that must leave: int8 (B, N).

        Raises:
            TypeError: The environment has `action="route"`.
        """
        return must_go_actions(self._episodes)


def metadata_of(env_class: type[gym.Env[Any, Any]] | type[LaneVectorEnv], source: DaySource) -> dict[str, Any]:
    """Return the metadata of an environment; without coordinates, there are no pictures."""
    metadata = dict(env_class.metadata)
    return metadata if source.has_coords else metadata | {"render_modes": ["ansi"]}


def must_go_actions(lanes: DayLanes) -> npt.NDArray[np.int8]:
    """Return the actions that dispatch only the requests that must leave: int8 (B, N)."""
    lanes.require_start("must_go_action()")
    if not isinstance(lanes.problem, DispatchForm):
        raise TypeError('must_go_action() needs action="dispatch"; with "route", visit what info["must_go"] marks')
    return rules.must_go(lanes.instance, lanes.state).astype(np.int8)


def action_masks(form: Form, mask: npt.NDArray[np.int8]) -> npt.NDArray[np.bool_]:
    """Return the mask of the legal values of each action in the form that sb3-contrib expects: bool (B, ...)."""
    if isinstance(form, RouteForm):
        return np.asarray(mask, dtype=np.bool_)
    return np.asarray(np.stack([mask != 1, mask != 0], axis=-1).reshape(len(mask), -1))
