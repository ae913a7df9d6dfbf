"""Attributes that limit routes: length limit (L) and time windows (TW)."""

from __future__ import annotations

import numpy as np
from array_api_compat import array_namespace, device

from routing_gym.arrays import Array, FloatArray, double, gather, to_numpy
from routing_gym.problem import InfeasibleTour
from routing_gym.problems.checks import TOLERANCE, check_depot_values, check_field
from routing_gym.problems.geometry import MAX_FLOAT, with_depot
from routing_gym.problems.vrp.attribute import Attribute, Move, Walk
from routing_gym.problems.vrp.batches import VRPInstance, VRPState
from routing_gym.problems.vrp.contract import Family, Ways
from routing_gym.problems.vrp.ways import NEVER, between, durations_from, lengths_home, slack
from routing_gym.traits import Column

MAX_LENGTH = 3.0  # of generated instances
CLOSING, SERVICE, NARROWEST, WIDEST = 3.0, 0.2, 0.1, 1.0  # of generated instances; the last two to both sides
MAX_LENGTH_OF_PAIRS, CLOSING_OF_PAIRS = 4.5, 4.7  # enough for three diagonals, and two services
MOST_SHRUNK = 16.0  # largest factor of `VRP.rescale`; the tolerance of masks on shrunk instances grows by this factor


def closing_time(problem: Family) -> float:
    """Return the time at which the depots of generated instances close."""
    return CLOSING_OF_PAIRS if problem.pairs else CLOSING


class LengthLimit(Attribute):
    """**L**: no route is longer than `max_length`.

    The literature calls this a limit on duration; waiting and service do not count.
    """

    letters = "L"
    columns = (Column("max_length", "greatest length of a route", "length", per="instance", limit=True),)
    fields = ("max_length",)
    scalars = lengths = ("remaining_length",)

    def draw(self, problem: Family, instance: VRPInstance, uniforms: Array) -> dict[str, Array]:
        xp = array_namespace(instance.coords)
        return {"max_length": xp.zeros_like(instance.coords[:, 0, 0]) + problem.max_length}

    def validate(self, problem: Family, instance: VRPInstance) -> None:
        check_field(instance, "max_length", (), np.float32, 0, MAX_FLOAT)

    def initial(self, problem: Family, instance: VRPInstance) -> dict[str, Array]:
        xp = array_namespace(instance.max_length)
        limit = xp.astype(instance.max_length, double(xp))[:, None, None]
        home = xp.astype(lengths_home(problem, instance), double(xp))
        return {"longest": limit + slack(limit) - home, "length": xp.zeros_like(limit[:, 0, 0])}

    def allows(self, problem: Family, instance: VRPInstance, state: VRPState, ways: Ways | None) -> Array:
        assert ways is not None
        return state.length[:, None] + ways.lengths <= ways.limits.longest

    def step(self, problem: Family, instance: VRPInstance, old: VRPState, new: dict[str, Array], move: Move) -> None:
        new["length"] = move.xp.where(move.serves, old.length + move.leg, move.xp.zeros_like(old.length))

    def why_illegal(self, problem: Family, instance: VRPInstance, state: VRPState, row: int, node: int) -> str | None:
        ways = problem.ways(instance, state)
        assert ways.limits.longest is not None
        if float(state.length[row]) + float(ways.lengths[row, node]) <= float(ways.limits.longest[row, node]):
            return None
        way = " and home" if not problem.open_routes else ""
        way = " and on to the deliveries due" + way if problem.pairs else way
        limit = float(instance.max_length[row])
        return f"the way to customer {node}{way} is longer than the limit {limit:.4g}; {problem.go_home(state, row)}"

    def observe_dynamic(self, problem: Family, instance: VRPInstance, state: VRPState) -> dict[str, Array]:
        xp = array_namespace(state.node)
        left = xp.astype(instance.max_length - state.length, xp.float32)
        return {"remaining_length": xp.clip(left, 0.0, None)[:, None]}

    def check(self, problem: Family, instance: VRPInstance, walk: Walk) -> None:
        limit = to_numpy(instance.max_length).astype(np.float64)[:, None]
        refuse(problem, walk, "length", walk.running(walk.legs), np.broadcast_to(limit, walk.legs.shape))


class TimeWindows(Attribute):
    """**TW**: service starts within the time window of the customer, and an early vehicle waits.

    Vehicles leave the depot when it opens, and return before it closes. The speed is 1, unless there are `durations`.
    """

    letters = "TW"
    columns = (
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
        Column(
            "durations",
            "durations from each node (row) to each node (column), in the unit of the windows; default: the lengths",
            "matrix",
            required=False,
        ),
    )
    per_node = ("ready_time", "due_time", "service_time")
    fields = (*per_node, "durations")
    scalars = ("current_time",)
    lengths = (*per_node, *scalars)
    uniforms_per_customer = 2

    def draw(self, problem: Family, instance: VRPInstance, uniforms: Array) -> dict[str, Array]:
        """Draw service times, and time windows in which the customer can be served alone, from the first depot."""
        xp, first, n = array_namespace(uniforms), problem.num_depots, problem.num_nodes
        closing = closing_time(problem)
        out = durations_from(instance, xp.zeros_like(instance.capacity))[:, first:]
        back = lengths_home(problem, instance, times=True, closed=True)[:, 0, first:]
        if problem.pairs:
            return self.windows(problem, closing, *pairs_in_turn(problem, instance, closing, out, back, uniforms))
        service = xp.clip(closing - out - back, 0.0, SERVICE)
        centre = out + (closing - service - out - back) * uniforms[:, :n]
        return self.windows(problem, closing, centre, service, uniforms[:, n:])

    def windows(
        self, problem: Family, closing: float, centre: Array, service: Array, widths: Array
    ) -> dict[str, Array]:
        """Return the fields, with time windows around `centre` (B, n), at which each customer can be served."""
        xp = array_namespace(centre)
        half_width = NARROWEST + (WIDEST - NARROWEST) * widths
        opens, closes = xp.clip(centre - half_width, 0.0, None), xp.clip(centre + half_width, None, closing)
        return {
            "ready_time": with_depot(xp.astype(opens, xp.float32), problem.num_depots),
            "due_time": with_depot(xp.astype(closes, xp.float32), problem.num_depots, closing),
            "service_time": with_depot(xp.astype(service, xp.float32), problem.num_depots),
        }

    def validate(self, problem: Family, instance: VRPInstance) -> None:
        for field in self.per_node:
            check_field(instance, field, (problem.num_actions,), np.float32, 0, MAX_FLOAT)
        check_depot_values(instance, "service_time", num_depots=problem.num_depots)
        if instance.durations is not None:
            shape = (problem.num_actions, problem.num_actions)
            check_field(instance, "durations", shape, np.float32, 0, MAX_FLOAT)

    def initial(self, problem: Family, instance: VRPInstance) -> dict[str, Array]:
        xp = array_namespace(instance.due_time)
        wide = [xp.astype(getattr(instance, field), double(xp))[:, None, :] for field in self.per_node]
        opens, latest, service = wide
        home = xp.astype(lengths_home(problem, instance, times=True), double(xp))
        if problem.open_routes:
            latest = latest + 0 * home
        else:
            leaves = xp.permute_dims(latest[:, :, : problem.num_depots], (0, 2, 1)) - home - service
            never = xp.full_like(leaves, NEVER)
            latest = xp.where(opens <= leaves + slack(leaves), xp.minimum(latest, leaves), never)
        return {"latest": latest + slack(latest), "time": xp.astype(instance.ready_time[:, 0], double(xp))}

    def allows(self, problem: Family, instance: VRPInstance, state: VRPState, ways: Ways | None) -> Array:
        assert ways is not None
        return state.time[:, None] + ways.durations <= ways.limits.latest

    def step(self, problem: Family, instance: VRPInstance, old: VRPState, new: dict[str, Array], move: Move) -> None:
        xp, node = move.xp, move.node
        travels = move.leg if instance.durations is None else gather(gather(instance.durations, old.node), node)
        opens, service = (xp.astype(gather(x, node), double(xp)) for x in (instance.ready_time, instance.service_time))
        served = xp.maximum(old.time + travels, opens)
        new["time"] = xp.where(move.serves, served, opens) + service

    def why_illegal(self, problem: Family, instance: VRPInstance, state: VRPState, row: int, node: int) -> str | None:
        ways = problem.ways(instance, state)
        assert ways.limits.latest is not None
        arrival = float(state.time[row]) + float(ways.durations[row, node])
        latest = float(ways.limits.latest[row, node])
        if arrival <= latest:
            return None
        return (
            f"customer {node} would be reached at {arrival:.4g}, later than {latest:.4g}; {problem.go_home(state, row)}"
        )

    def observe_static(self, problem: Family, instance: VRPInstance) -> dict[str, Array]:
        return {field: getattr(instance, field) for field in self.per_node}

    def observe_dynamic(self, problem: Family, instance: VRPInstance, state: VRPState) -> dict[str, Array]:
        xp = array_namespace(state.node)
        return {"current_time": xp.astype(state.time, xp.float32)[:, None]}

    def check(self, problem: Family, instance: VRPInstance, walk: Walk) -> None:
        given = (
            to_numpy(x).astype(np.float64) for x in (instance.ready_time, instance.due_time, instance.service_time)
        )
        opens, closes, service = (walk.of(values) for values in given)
        arrivals, time = np.empty_like(walk.travels), to_numpy(instance.ready_time)[:, 0].astype(np.float64)
        for step, travels in enumerate(walk.travels.T):
            arrivals[:, step] = time + travels
            served = np.maximum(arrivals[:, step], opens[:, step]) + service[:, step]
            time = np.where(walk.at_depot[:, step], opens[:, step], served)
        # a vehicle that is already at a depot leaves when it opens
        stays = walk.at_depot & (walk.before < problem.num_depots)
        refuse(problem, walk, "arrival time", np.where(stays, -np.inf, arrivals), closes)


def pairs_in_turn(
    problem: Family, instance: VRPInstance, closing: float, out: Array, back: Array, uniforms: Array
) -> tuple[Array, Array, Array]:
    """Return times at which generated pairs can be served one by one, the service times, and unused uniforms (B, n)."""
    xp, first, n, pairs = array_namespace(out), problem.num_depots, problem.num_nodes, problem.num_nodes // 2
    nodes = xp.arange(problem.num_actions, dtype=instance.pickup.dtype, device=device(out))
    partner = xp.zeros_like(instance.pickup) + xp.where(nodes < first + pairs, nodes + pairs, nodes)
    across = between(instance, xp.zeros_like(partner) + nodes, partner, times=True)[:, first : first + pairs]
    out, back, drawn = (
        (x[:, :pairs], x[:, pairs : 2 * pairs], x[:, 2 * pairs :]) for x in (out, back, uniforms[:, :n])
    )
    service = xp.zeros_like(uniforms[:, :n]) + SERVICE
    picks = out[0] + (closing - 2 * SERVICE - out[0] - across - back[1]) * drawn[0]
    reached = picks + SERVICE + across
    delivers = reached + (closing - SERVICE - back[1] - reached) * drawn[1]
    alone = out[2] + (closing - SERVICE - out[2] - back[2]) * drawn[2]
    return xp.concat([picks, delivers, alone], axis=1), service, uniforms[:, n:]


def refuse(problem: Family, walk: Walk, what: str, values: FloatArray, limits: FloatArray) -> None:
    """Check that no value of a tour exceeds its limit; the return of open routes is ignored.

    Raises:
        InfeasibleTour: A value exceeds its limit. The step is the first one that does.
    """
    counts = ~walk.at_depot | (not problem.open_routes)
    bad = counts & (values > limits + MOST_SHRUNK * TOLERANCE)
    if bad.any():
        row, step = map(int, np.argwhere(bad)[0])
        found = f"{what} {values[row, step]:.6g} at node {walk.tours[row, step]} exceeds {limits[row, step]:.6g}"
        raise InfeasibleTour(row, step, f"{found}; return to the depot ({walk.start[row, step]}) earlier")
