"""The vehicle routing family: CVRP with open routes (O), backhauls (B), a limit on lengths (L), time windows (TW).

Fifteen presets, `OVRP` to `OVRPBLTW`. Without any attribute the problem is CVRP, whose rules these extend. A field that
an attribute needs is None in instances and states without this attribute.

- **O**: open routes. Vehicles do not return to the depot; the way back costs nothing and has no limit.
- **B**: backhauls. Goods of some customers are collected. In each route, all deliveries (linehauls) precede the first
  backhaul, and neither the delivered nor the collected goods exceed the capacity. Routes with backhauls only are
  allowed, like in rl4co, so that a tour can always be completed. Toth and Vigo (1997), and files of TYPE VRPB, forbid
  them. Zhou et al. let routes alternate between both kinds instead.
- **L**: length limit. No route is longer than `max_length`. The literature calls this a limit on duration; waiting and
  service do not count.
- **TW**: time windows. Service starts within the time window of the customer, and an early vehicle waits. Vehicles
  leave the depot when it opens, and return before it closes. The speed is 1.

Instances are those of Zhou et al. (2024), "MVMoE: multi-task vehicle routing solver with mixture-of-experts", code in
`envs/*Env.py`: limit 3; depot open from 0 to 3; service 0.2; time windows around a uniform time at which the customer
can be served, 0.1 to 1 to both sides. The last fifth of the customers are backhauls. Deviation: service is shorter if
the depot is more than 1.4 away; they draw such customers again. Liu et al. (2024), "Multi-task learning for routing
problem with cross-problem zero-shot generalization", `MTPOMO/VRProblemDef.py`, have the same limit and backhauls, but
time windows 0.15 to 0.2 wide in a horizon of 4.6.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import compress, product
from typing import Any, ClassVar

import numpy as np
from array_api_compat import array_namespace, device
from gymnasium import spaces

from routing_gym.arrays import Array, batch_size, double, euclidean, gather, is_narrow, scatter, to_numpy
from routing_gym.problem import InvalidInstance
from routing_gym.problems.checks import (
    TOLERANCE,
    as_tours,
    check_all_visited,
    check_depot_values,
    check_each_once,
    check_field,
    check_positive,
    check_returns,
    leg_lengths,
    like,
)
from routing_gym.problems.cvrp import CVRP, CVRPInstance, CVRPState, WholeDeliveries, check_loads
from routing_gym.problems.geometry import MAX_FLOAT, lengths_from, lengths_to_depot, with_depot
from routing_gym.problems.routes import MOST_SHRUNK, check_each_alone, check_limits, check_order
from routing_gym.traits import Column, Observations

CLOSING, SERVICE, NARROWEST, WIDEST = 3.0, 0.2, 0.1, 1.0  # of generated instances; the last two to both sides
MAX_LENGTH = 3.0
FIELDS = {"B": ("backhaul",), "L": ("max_length",), "TW": ("ready_time", "due_time", "service_time")}  # of instances
COLUMNS = {
    "B": (Column("backhaul", "1 where the demand is picked up, 0 where it is delivered", "flag"),),
    "L": (Column("max_length", "greatest length of a route", "length", per="instance", limit=True),),
    "TW": (
        Column(
            "ready_time",
            "earliest start of service; for the depot: start of the vehicles",
            "time",
            at_depot=True,
            also=("earliest",),
        ),
        Column(
            "due_time",
            "latest start of service; for the depot: latest return",
            "time",
            at_depot=True,
            limit=True,
            also=("latest",),
        ),
        Column("service_time", "duration of the service", "time", also=("service",)),
    ),
}
ATTRIBUTES: dict[str, dict[str, Any]] = {
    "O": {"open_routes": True},
    "B": {"backhauls": True},
    "L": {"max_length": MAX_LENGTH},
    "TW": {"time_windows": True},
}


@dataclass(frozen=True)
class VRPInstance(CVRPInstance):
    """Like CVRP's; fields without use are None. Times are in the unit of lengths: speed is 1."""

    backhaul: Array = None  # bool (B, A), whether `demand` is to be fetched; False at the depot
    max_length: Array = None  # float32 (B,), of a route
    ready_time: Array = None  # float32 (B, A), when windows open
    due_time: Array = None  # float32 (B, A), when they close; the depot's: when vehicles have to be back
    service_time: Array = None  # float32 (B, A), 0 at the depot


@dataclass(frozen=True)
class VRPState(CVRPState):
    """Like CVRP's, but `load` restarts from 0 at the first backhaul of a route; fields without use are None.

    The last two never change: they are kept so that a mask costs one row of distances.
    """

    length: Array = None  # float64 (B,), of the route so far
    time: Array = None  # float64 (B,), when service at the node has ended
    longest: Array = None  # float64 (B, A), length up to a node with which the route still ends within the limit
    latest: Array = None  # float64 (B, A), arrival at a node that keeps its window and, on closed routes, the depot's


@dataclass(frozen=True)
class VRP(WholeDeliveries[VRPInstance, VRPState]):
    """Vehicle routing with `num_nodes` customers and at least one of four attributes; action 0 ends a route.

    Every customer can be served by a vehicle of its own, and the number of vehicles is not limited. `validate` refuses
    other instances, so that no mask is empty. The cost is the length of the routes; waiting and service cost nothing.

    Attributes:
        open_routes: Whether vehicles end at their last customer.
        backhauls: Whether goods of some customers are collected, after all deliveries of the route.
        max_length: Length limit of a route in generated instances; None for no limit.
        time_windows: Whether service starts within time windows.

    Raises:
        ValueError: No customer, a capacity below the largest demand drawn (9), no attribute, one that is no bool, or a
            length with which some drawn customers could not be served (2 sqrt 2 on closed routes, sqrt 2 on open ones).
    """

    instance_type: ClassVar[type] = VRPInstance
    state_type: ClassVar[type] = VRPState
    subproblem: ClassVar[None] = None  # large-neighbourhood search makes parts of CVRP only
    family: ClassVar[str] = "OVRPBLTW"  # has all attributes

    open_routes: bool = False
    backhauls: bool = False
    max_length: float | None = None
    time_windows: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for flag in ("open_routes", "backhauls", "time_windows"):
            value = getattr(self, flag)
            if not isinstance(value, bool | np.bool_):
                raise ValueError(f"VRP: {flag} must be True or False, got {value!r}")
            object.__setattr__(self, flag, bool(value))
        if not self.attributes:
            known = "open_routes, backhauls, max_length and time_windows"
            raise ValueError(f"VRP: give at least one of {known}; the problem without any is CVRP")
        if self.max_length is not None:
            check_positive(self, "max_length")
            least = 2**0.5 * (1 if self.open_routes else 2)
            if self.max_length < least:
                raise ValueError(
                    f"{self.name}: max_length must be at least {least:.4f}, the way to the farthest customer"
                    f"{'' if self.open_routes else ' and back'}, got {self.max_length:g}"
                )

    @property
    def attributes(self) -> str:
        """The letters of those that are there."""
        present = (self.open_routes, self.backhauls, self.max_length is not None, self.time_windows)
        return "".join(compress(ATTRIBUTES, present))

    # Each preset has traits of its own, so they are properties here.
    @property
    def name(self) -> str:  # type: ignore[override]
        return preset_name(self.attributes)

    @property
    def columns(self) -> tuple[Column, ...]:  # type: ignore[override]
        own = (column for letters, columns in COLUMNS.items() if letters in self.attributes for column in columns)
        return (*super().columns, *own)

    @property
    def observations(self) -> Observations:  # type: ignore[override]
        nodes = (*FIELDS["B"] * self.backhauls, *FIELDS["TW"] * self.time_windows)
        scalars = tuple(
            compress(
                ("open_routes", "remaining_length", "current_time"),
                (self.open_routes, self.max_length is not None, self.time_windows),
            )
        )
        return Observations(
            per_node=("demand", *nodes),
            context_scalars=("free_capacity", *scalars),
            optional=(*nodes, *scalars),
        )

    @property
    def variants(self) -> tuple[str, ...]:
        """Return the names of the problems that have no other attributes than this one; CVRP is the first."""
        fewer = [letters for letters in CHOICES if all(one in self.attributes for one in letters)]
        return tuple(preset_name("".join(letters)) if letters else CVRP.name for letters in fewer)

    @property
    def length_observations(self) -> tuple[str, ...]:  # type: ignore[override]
        limit = ("remaining_length",) if self.max_length is not None else ()
        return (*limit, *((*FIELDS["TW"], "current_time") if self.time_windows else ()))

    @property
    def num_uniforms(self) -> int:
        return super().num_uniforms + 2 * self.num_nodes * self.time_windows

    def from_uniforms(self, uniforms: Array) -> VRPInstance:
        xp, where = array_namespace(uniforms), device(uniforms)
        plain, attributes = super().from_uniforms(uniforms[:, : super().num_uniforms]), {}
        if self.backhauls:
            last_fifth = xp.arange(self.num_actions, device=where) > self.num_nodes - max(1, self.num_nodes // 5)
            attributes["backhaul"] = (plain.demand > 0) & last_fifth
        if self.max_length is not None:
            attributes["max_length"] = xp.full(len(uniforms), self.max_length, dtype=xp.float32, device=where)
        if self.time_windows:
            attributes |= draw_windows(plain.coords, uniforms[:, super().num_uniforms :])
        return replace(plain, **attributes)

    def validate(self, instance: VRPInstance) -> None:
        for letters, fields in FIELDS.items():
            for field in fields:
                if letters in self.attributes:
                    shape = () if field == "max_length" else (self.num_actions,)
                    check_field(instance, field, shape, np.bool_ if field == "backhaul" else np.float32, 0, MAX_FLOAT)
                elif getattr(instance, field) is not None:
                    raise InvalidInstance(
                        f"{field}: {self.name} has none; leave it out, or choose a problem with {letters}"
                    )
        super().validate(instance)
        if self.backhauls:
            check_depot_values(instance, "backhaul")
        if self.time_windows:
            check_depot_values(instance, "service_time")
        check_each_alone(self, instance)

    def rescale(self, instance: VRPInstance) -> VRPInstance:
        """Shrink space and time together, by a power of two, where days are longer than those that are drawn."""
        if not self.time_windows:
            return instance
        xp = array_namespace(instance.due_time)
        longer = xp.clip(xp.max(instance.due_time, axis=1) / CLOSING, 1.0, MOST_SHRUNK)
        by, changed = 2.0 ** xp.round(xp.log2(longer)), {}
        for field in ("coords", "distances", "max_length", *FIELDS["TW"]):
            if (value := getattr(instance, field)) is not None:
                changed[field] = value / xp.reshape(by, (-1, *(1,) * (value.ndim - 1)))
        return replace(instance, **changed)

    def initial(self, instance: VRPInstance) -> VRPState:
        xp = array_namespace(instance.capacity)
        wide = double(xp)
        back = xp.astype(lengths_to_depot(instance), wide)
        attributes = {}
        if self.max_length is not None:
            limit = xp.astype(instance.max_length, wide)[:, None]
            limit = limit + slack(xp, limit)
            attributes["longest"] = limit - (0.0 * back if self.open_routes else back)
            attributes["length"] = xp.zeros_like(limit[:, 0])
        if self.time_windows:
            latest = xp.astype(instance.due_time, wide)
            if not self.open_routes:
                latest = xp.minimum(latest, latest[:, :1] - back - xp.astype(instance.service_time, wide))
            attributes["latest"] = latest + slack(xp, latest)
            attributes["time"] = xp.astype(instance.ready_time[:, 0], wide)
        return replace(super().initial(instance), **attributes)

    def action_mask(self, instance: VRPInstance, state: VRPState) -> Array:
        """Mark nodes the vehicle may visit next.

        A customer is legal if it is not served, its demand fits, and it is reached in time and within the length. On
        closed routes, the same must hold for the depot afterwards. No delivery is legal after a backhaul. The depot is
        legal if the vehicle is elsewhere or all customers are served.

        Returns:
            bool (B, A). Never all False in a row.
        """
        xp = array_namespace(state.node)
        fits = instance.demand <= (instance.capacity - state.load)[:, None]
        if self.backhauls:
            fetching = gather(instance.backhaul, state.node)[:, None]
            fits = xp.where(fetching, fits & instance.backhaul, fits | instance.backhaul)  # fetching starts empty
        if self.max_length is not None or self.time_windows:
            legs = lengths_from(instance, state.node)
            if self.max_length is not None:
                fits = fits & (state.length[:, None] + legs <= state.longest)
            if self.time_windows:
                fits = fits & (state.time[:, None] + legs <= state.latest)
        may_return = (state.node != 0) | (state.num_served == self.num_nodes)
        return scatter(fits & ~state.served, xp.zeros_like(state.node), may_return)

    def step(self, instance: VRPInstance, state: VRPState, action: Array) -> tuple[VRPState, Array]:
        xp = array_namespace(action)
        moved, leg = super().step(instance, state, action)
        serves, changes = action != 0, vars(moved) | {"longest": state.longest, "latest": state.latest}
        if self.backhauls:
            turns = gather(instance.backhaul, action) & ~gather(instance.backhaul, state.node)
            changes["load"] = xp.where(turns, moved.load - state.load, moved.load)
        if self.max_length is not None:
            changes["length"] = xp.where(serves, state.length + leg, xp.zeros_like(state.length))
        if self.time_windows:
            opens, service = (
                xp.astype(gather(x, action), double(xp)) for x in (instance.ready_time, instance.service_time)
            )
            changes["time"] = xp.where(serves, xp.maximum(state.time + leg, opens), opens) + service
        return VRPState(**changes), xp.where(serves, leg, xp.zeros_like(leg)) if self.open_routes else leg

    def why_illegal(self, instance: VRPInstance, state: VRPState, row: int, action: int) -> str:
        if self.backhauls and action != 0 and not state.served[row, action]:
            before, after = bool(instance.backhaul[row, state.node[row]]), bool(instance.backhaul[row, action])
            if before and not after:
                return (
                    f"customer {action} is a linehaul, and the vehicle has been at a backhaul; return to the depot (0)"
                )
            if after and not before:  # it is empty for what it fetches
                state = replace(state, load=0 * state.load)
        exceeds = instance.demand[row, action] > instance.capacity[row] - state.load[row]
        if action == 0 or state.served[row, action] or exceeds:
            return super().why_illegal(instance, state, row, action)
        leg = float(lengths_from(instance, state.node)[row, action])
        if self.max_length is not None and float(state.length[row]) + leg > float(state.longest[row, action]):
            way, limit = "" if self.open_routes else " and home", float(instance.max_length[row])
            return f"the way to customer {action}{way} is longer than the limit {limit:.4g}; return to the depot (0)"
        arrival, latest = float(state.time[row]) + leg, float(state.latest[row, action])
        return f"customer {action} would be reached at {arrival:.4g}, later than {latest:.4g}; return to the depot (0)"

    def observe_static(self, instance: VRPInstance) -> dict[str, Array]:
        xp, seen = array_namespace(instance.demand), super().observe_static(instance)
        if self.backhauls:
            seen["backhaul"] = xp.astype(instance.backhaul, xp.float32)
        return seen | {field: getattr(instance, field) for field in FIELDS["TW"] if self.time_windows}

    def observe_dynamic(self, instance: VRPInstance, state: VRPState) -> dict[str, Array]:
        xp, seen = array_namespace(state.node), super().observe_dynamic(instance, state)
        if self.open_routes:  # for an agent that plays several problems of the family
            seen["open_routes"] = xp.ones_like(seen["free_capacity"])
        if self.max_length is not None:
            left = xp.astype(instance.max_length - state.length, xp.float32)
            seen["remaining_length"] = xp.clip(left, 0.0, None)[:, None]
        if self.time_windows:
            seen["current_time"] = xp.astype(state.time, xp.float32)[:, None]
        return seen

    def observation_space(self) -> spaces.Dict:
        per_node, one = (self.num_actions,), (1,)
        extra: dict[str, spaces.Space[Any]] = {}
        if self.backhauls:
            extra["backhaul"] = spaces.Box(0.0, 1.0, per_node, np.float32)
        if self.open_routes:
            extra["open_routes"] = spaces.Box(0.0, 1.0, one, np.float32)
        if self.max_length is not None:
            extra["remaining_length"] = spaces.Box(0.0, MAX_FLOAT, one, np.float32)
        if self.time_windows:
            extra |= {field: spaces.Box(0.0, MAX_FLOAT, per_node, np.float32) for field in FIELDS["TW"]}
            extra["current_time"] = spaces.Box(0.0, MAX_FLOAT, one, np.float32)
        return spaces.Dict({**super().observation_space().spaces, **extra})

    def amounts(self, instance: VRPInstance, routes: list[list[int]]) -> list[dict[str, tuple[float, float | None]]]:
        if not self.backhauls:
            return super().amounts(instance, routes)
        demand, backhaul = to_numpy(instance.demand)[0], to_numpy(instance.backhaul)[0]
        capacity = int(instance.capacity[0])
        sums = [((demand * ~backhaul)[nodes].sum(), (demand * backhaul)[nodes].sum()) for nodes in routes]
        return [{"delivery": (int(out), capacity), "pickup": (int(back), capacity)} for out, back in sums]

    def objective(self, instance: VRPInstance, actions: Array) -> Array:
        tours = as_tours(actions, batch_size(instance), self.num_actions)
        check_returns(tours)
        legs = leg_lengths(instance, np.pad(tours, ((0, 0), (1, 0))))[:, :-1]  # to each node from the one before
        if self.backhauls:
            demand, backhaul = to_numpy(instance.demand), to_numpy(instance.backhaul)
            check_order(backhaul, tours)
            check_loads(replace(instance, demand=demand * ~backhaul), tours)
            check_loads(replace(instance, demand=demand * backhaul), tours)
        else:
            check_loads(instance, tours)
        check_limits(self, instance, tours, legs)
        visited = check_each_once(tours, self.num_actions, depot=True)
        check_all_visited(visited, first_node=1, num_steps=tours.shape[1])
        return like((legs * (tours != 0)).sum(axis=1) if self.open_routes else legs.sum(axis=1), instance)


def slack(xp: Any, limit: Array) -> Array | float:
    """Return what masks allow beyond a limit; in JAX's 32 bits also what rounding may take from it."""
    return TOLERANCE / 2 + (4 * xp.finfo(xp.float32).eps * xp.abs(limit) if is_narrow(xp) else 0.0)


def preset_name(attributes: str) -> str:
    """Return the id of a set of attributes: "OBTW" is OVRPBTW."""
    return ("OVRP" if "O" in attributes else "VRP") + attributes.removeprefix("O")


CHOICES = [list(compress(ATTRIBUTES, chosen)) for chosen in product((False, True), repeat=len(ATTRIBUTES))]
PRESETS: dict[str, dict[str, Any]] = {  # the settings behind each id
    preset_name("".join(letters)): {key: value for one in letters for key, value in ATTRIBUTES[one].items()}
    for letters in CHOICES[1:]
}


def draw_windows(coords: Array, uniforms: Array) -> dict[str, Array]:
    """Convert uniforms (B, 2n) to service times and to time windows in which the customer can be served alone."""
    xp, num_customers = array_namespace(uniforms), coords.shape[1] - 1
    away = euclidean(coords[:, :1], coords[:, 1:])
    service = xp.clip(CLOSING - 2 * away, None, SERVICE)
    centre = away + (CLOSING - service - 2 * away) * uniforms[:, :num_customers]
    half_width = NARROWEST + (WIDEST - NARROWEST) * uniforms[:, num_customers:]
    opens, closes = xp.clip(centre - half_width, 0.0, None), xp.clip(centre + half_width, None, CLOSING)
    due = with_depot(xp.astype(closes, xp.float32))
    at_depot = xp.arange(num_customers + 1, device=device(uniforms)) == 0
    return {
        "ready_time": with_depot(xp.astype(opens, xp.float32)),
        "due_time": xp.where(at_depot, xp.full_like(due, CLOSING), due),
        "service_time": with_depot(service),
    }
