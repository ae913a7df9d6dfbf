"""Loads of vehicles: deliveries, backhauls after them (B) or mixed with them (MB)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from array_api_compat import array_namespace, device
from gymnasium import spaces

from routing_gym.arrays import Array, gather, to_numpy
from routing_gym.problem import InfeasibleTour
from routing_gym.problems.checks import check_depot_values, check_field
from routing_gym.problems.cvrp import share
from routing_gym.problems.vrp.attribute import Attribute, Move, Walk
from routing_gym.problems.vrp.batches import VRPInstance, VRPState
from routing_gym.problems.vrp.contract import Family, Ways
from routing_gym.traits import Column

BACKHAUL = Column("backhaul", "1 where the demand is picked up, 0 where it is delivered", "flag")


class Deliveries(Attribute):
    """Rules without B, MB and PD: all demand is delivered. Like in CVRP, `load` is the amount delivered so far."""

    def allows(self, problem: Family, instance: VRPInstance, state: VRPState, ways: Ways | None) -> Array:
        return instance.demand <= (problem.capacity_of(instance, state) - state.load)[:, None]

    def step(self, problem: Family, instance: VRPInstance, old: VRPState, new: dict[str, Array], move: Move) -> None:
        load = old.load + gather(instance.demand, move.node)
        new["load"] = move.xp.where(move.serves, load, move.xp.zeros_like(load))

    def why_illegal(self, problem: Family, instance: VRPInstance, state: VRPState, row: int, node: int) -> str | None:
        free = int(problem.capacity_of(instance, state)[row] - state.load[row])
        demand = int(instance.demand[row, node])
        if demand <= free:
            return None
        return f"demand {demand} exceeds the free capacity {free}; {problem.go_home(state, row)}"

    def observe_dynamic(self, problem: Family, instance: VRPInstance, state: VRPState) -> dict[str, Array]:
        free = problem.capacity_of(instance, state) - self.used(state)
        return {"free_capacity": share(free, instance.capacity)[:, None]}

    def used(self, state: VRPState) -> Array:
        """Return the amount that limits a further delivery: int64 (B,)."""
        return state.load

    def amounts(self, instance: VRPInstance, nodes: list[int]) -> dict[str, int]:
        """Return the amounts that the vehicle of a route delivers and collects; the batch has one row."""
        return {"load": int(to_numpy(instance.demand)[0][nodes].sum())}

    def check(self, problem: Family, instance: VRPInstance, walk: Walk) -> None:
        check_loads(problem, instance, walk, walk.running(walk.of(instance.demand)))


class Backhauls(Deliveries):
    """**B**: goods of some customers are collected, after all deliveries of the route.

    Neither the delivered nor the collected goods exceed the capacity. Routes with backhauls only are allowed, like in
    rl4co, so that a tour can always be completed. Toth and Vigo (1997), and files of TYPE VRPB, forbid them. Zhou et
    al. let routes alternate between both kinds instead. `load` restarts from 0 at the first backhaul of a route.
    """

    letters = "B"
    columns = (BACKHAUL,)
    fields = ("backhaul",)
    per_node = ("backhaul",)

    def draw(self, problem: Family, instance: VRPInstance, uniforms: Array) -> dict[str, Array]:
        """Make the last fifth of the customers backhauls."""
        xp = array_namespace(instance.demand)
        nodes = xp.arange(problem.num_actions, device=device(instance.demand))
        last_fifth = nodes >= problem.num_actions - max(1, problem.num_nodes // 5)
        return {"backhaul": (instance.demand > 0) & last_fifth}

    def validate(self, problem: Family, instance: VRPInstance) -> None:
        check_field(instance, "backhaul", (problem.num_actions,), np.bool_, 0, 1)
        check_depot_values(instance, "backhaul", num_depots=problem.num_depots)

    def allows(self, problem: Family, instance: VRPInstance, state: VRPState, ways: Ways | None) -> Array:
        xp, fits = array_namespace(state.node), super().allows(problem, instance, state, ways)
        collecting = gather(instance.backhaul, state.node)[:, None]  # else the vehicle is empty at its first backhaul
        backhaul = instance.backhaul
        if problem.fleet:  # vehicles may be too small for a customer
            backhaul = backhaul & (instance.demand <= problem.capacity_of(instance, state)[:, None])
        return xp.where(collecting, fits & backhaul, fits | backhaul)

    def step(self, problem: Family, instance: VRPInstance, old: VRPState, new: dict[str, Array], move: Move) -> None:
        super().step(problem, instance, old, new, move)
        turns = gather(instance.backhaul, move.node) & ~gather(instance.backhaul, old.node)
        new["load"] = move.xp.where(turns, new["load"] - old.load, new["load"])

    def why_illegal(self, problem: Family, instance: VRPInstance, state: VRPState, row: int, node: int) -> str | None:
        before, after = bool(instance.backhaul[row, state.node[row]]), bool(instance.backhaul[row, node])
        if before and not after:
            return (
                f"customer {node} is a linehaul, and the vehicle has been at a backhaul; {problem.go_home(state, row)}"
            )
        if after and not before:  # the vehicle is empty at its first backhaul
            free, demand = int(problem.capacity_of(instance, state)[row]), int(instance.demand[row, node])
            return None if demand <= free else f"demand {demand} exceeds the capacity {free} of the vehicle"
        return super().why_illegal(problem, instance, state, row, node)

    def observe_static(self, problem: Family, instance: VRPInstance) -> dict[str, Array]:
        xp = array_namespace(instance.demand)
        return {"backhaul": xp.astype(instance.backhaul, xp.float32)}

    def observation_spaces(self, problem: Family) -> dict[str, spaces.Space[Any]]:
        return super().observation_spaces(problem) | {
            "backhaul": spaces.Box(0.0, 1.0, (problem.num_actions,), np.float32)
        }

    def amounts(self, instance: VRPInstance, nodes: list[int]) -> dict[str, int]:
        demand, backhaul = to_numpy(instance.demand)[0][nodes], to_numpy(instance.backhaul)[0][nodes]
        return {"delivery": int(demand[~backhaul].sum()), "pickup": int(demand[backhaul].sum())}

    def check(self, problem: Family, instance: VRPInstance, walk: Walk) -> None:
        kind, demand = walk.of(instance.backhaul), walk.of(instance.demand)
        late = walk.of(instance.backhaul, walk.before) & ~kind & ~walk.at_depot
        if late.any():
            row, step = map(int, np.argwhere(late)[0])
            found = f"node {walk.tours[row, step]}, a linehaul, comes after node {walk.before[row, step]}, a backhaul"
            raise InfeasibleTour(row, step, f"{found}; return to the depot ({walk.start[row, step]}) first")
        for which in (~kind, kind):
            check_loads(problem, instance, walk, walk.running(demand * which))


class MixedBackhauls(Backhauls):
    """**MB**: goods of some customers are collected, in any order with the deliveries.

    The vehicle leaves with all goods that the route delivers, and carries at most its capacity at every moment. `load`
    is the amount collected so far, `peak` the largest load at any moment of the route so far. A further delivery
    has been on board since the depot, so it adds to the peak.
    """

    letters = "MB"
    scalars = ("mixed_backhauls", "free_for_pickups")

    def initial(self, problem: Family, instance: VRPInstance) -> dict[str, Array]:
        return {"peak": array_namespace(instance.capacity).zeros_like(instance.capacity)}

    def allows(self, problem: Family, instance: VRPInstance, state: VRPState, ways: Ways | None) -> Array:
        xp, capacity = array_namespace(state.node), problem.capacity_of(instance, state)
        free = xp.where(instance.backhaul, (capacity - state.load)[:, None], (capacity - state.peak)[:, None])
        return instance.demand <= free

    def step(self, problem: Family, instance: VRPInstance, old: VRPState, new: dict[str, Array], move: Move) -> None:
        xp, demand, collects = move.xp, gather(instance.demand, move.node), gather(instance.backhaul, move.node)
        zero = xp.zeros_like(demand)
        load = old.load + xp.where(collects, demand, zero)
        peak = xp.where(collects, xp.maximum(old.peak, load), old.peak + demand)
        new |= {"load": xp.where(move.serves, load, zero), "peak": xp.where(move.serves, peak, zero)}

    def why_illegal(self, problem: Family, instance: VRPInstance, state: VRPState, row: int, node: int) -> str | None:
        used = state.load if bool(instance.backhaul[row, node]) else state.peak
        free = int(problem.capacity_of(instance, state)[row] - used[row])
        demand = int(instance.demand[row, node])
        if demand <= free:
            return None
        return f"demand {demand} exceeds the capacity left on the whole route, {free}; {problem.go_home(state, row)}"

    def used(self, state: VRPState) -> Array:
        return state.peak

    def observe_dynamic(self, problem: Family, instance: VRPInstance, state: VRPState) -> dict[str, Array]:
        seen = super().observe_dynamic(problem, instance, state)
        free = problem.capacity_of(instance, state) - state.load
        xp = array_namespace(free)
        return seen | {  # the first is for a policy of several problems of the family
            "mixed_backhauls": xp.ones_like(seen["free_capacity"]),
            "free_for_pickups": share(free, instance.capacity)[:, None],
        }

    def observation_spaces(self, problem: Family) -> dict[str, spaces.Space[Any]]:
        scalar = spaces.Box(0.0, 1.0, (1,), np.float32)
        return super().observation_spaces(problem) | dict.fromkeys(self.scalars, scalar)

    def check(self, problem: Family, instance: VRPInstance, walk: Walk) -> None:
        """Add up deliveries backwards from the end of each route, and pickups forwards."""
        kind, demand = walk.of(instance.backhaul), walk.of(instance.demand)
        on_board = walk.running(demand * kind)
        delivered = walk.running(demand * ~kind)
        left, after = np.zeros_like(delivered), np.zeros_like(delivered[:, 0])  # still to deliver after each step
        for step in reversed(range(demand.shape[1])):
            after = np.where(walk.at_depot[:, step], 0, after)
            left[:, step] = after
            after = after + (demand * ~kind)[:, step]
        load = on_board + left
        at_start = np.where(walk.begins, left + delivered, 0)
        check_loads(problem, instance, walk, np.maximum(load, at_start))


def check_loads(problem: Family, instance: VRPInstance, walk: Walk, load: npt.NDArray[np.int64]) -> None:
    """Check that no vehicle carries more than its capacity.

    Raises:
        InfeasibleTour: A load exceeds the capacity. The step is that of the first customer that does not fit.
    """
    capacity = to_numpy(instance.capacity)[:, None]
    if problem.fleet:
        capacity = walk.of(instance.vehicle_capacity, walk.start)
    bad = (load > capacity) & ~walk.at_depot
    if bad.any():
        row, step = map(int, np.argwhere(bad)[0])
        limit = np.broadcast_to(capacity, load.shape)[row, step]
        found = f"load {load[row, step]} exceeds capacity {limit} at node {walk.tours[row, step]}"
        raise InfeasibleTour(row, step, f"{found}; return to the depot ({walk.start[row, step]}) first.")
