"""Vehicle routing family: CVRP with any of nine attributes, `OVRP` to `PCHFMDOVRPMBLTW`.

The attributes extend the rules of CVRP. Each attribute is a class that implements all of its rules: generation, masks,
steps, observations and checks. A field that an attribute needs is None in instances and states without this attribute.

| letters | attribute | class |
|---|---|---|
| O | open routes: vehicles do not return to the depot; that edge has no cost and no limit | |
| B | backhauls, collected after all deliveries of the route | `loads.Backhauls` |
| MB | mixed backhauls, collected in any order with the deliveries | `loads.MixedBackhauls` |
| PD | pickups, with deliveries on the same route | `pairs.Pairs` |
| L | limit on the length of a route | `limits.LengthLimit` |
| TW | time windows | `limits.TimeWindows` |
| MD | several depots | `depots.Depots` |
| HF | different vehicles | `depots.Fleet` |
| PC | customers may be left out, for penalties | `depots.Penalties` |

Instances with O, B, L and TW are those of Zhou et al. (2024), "MVMoE: multi-task vehicle routing solver with
mixture-of-experts", code in `envs/*Env.py`: limit 3; depot open from 0 to 3; service 0.2; time windows around a uniform
time at which the customer can be served, 0.1 to 1 to both sides. The last fifth of the customers are backhauls.
Deviation: service is shorter if the depot is more than 1.4 away; MVMoE draws the whole batch again. Liu et al. (2024),
"Multi-task learning for routing problem with cross-problem zero-shot generalization", `MTPOMO/VRProblemDef.py`, have
the same limit and backhauls, but time windows 0.15 to 0.2 wide in a horizon of 4.6. Berto et al. (2025), "RouteFinder:
towards foundation models for vehicle routing problems", add MB, and MD with three uniform depots, as here. Its
environment of MB allows more: it checks a delivery against the goods collected so far, and not what is still to be
delivered. For PD see `PDP`. The distributions of fleets and penalties are our own, because none is established.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from array_api_compat import array_namespace, device
from gymnasium import spaces

from routing_gym.arrays import Array, as_share, batch_size, gather, scatter, to_numpy
from routing_gym.problem import InvalidInstance
from routing_gym.problems.checks import (
    as_tours,
    check_all_visited,
    check_each_once,
    check_flag,
    check_integer,
    check_positive,
    like,
)
from routing_gym.problems.cvrp import CVRP, WholeDeliveries
from routing_gym.problems.geometry import leg_length, lengths_from, reach
from routing_gym.problems.vrp.attribute import Attribute, Move
from routing_gym.problems.vrp.attributes import ATTRIBUTES, COMBINATIONS, DELIVERIES, GOODS, SETTINGS, preset_name
from routing_gym.problems.vrp.batches import VRPInstance, VRPState
from routing_gym.problems.vrp.checks import check_each_alone, check_ended, make_walk
from routing_gym.problems.vrp.contract import Ways
from routing_gym.problems.vrp.depots import NUM_DEPOTS
from routing_gym.problems.vrp.limits import MOST_SHRUNK, TimeWindows, closing_time
from routing_gym.problems.vrp.loads import Deliveries
from routing_gym.problems.vrp.pairs import by_deliveries
from routing_gym.problems.vrp.ways import directly_home, durations_from
from routing_gym.traits import Column, Observations

FLAGS = ("open_routes", "backhauls", "mixed_backhauls", "time_windows", "several_depots", "fleet", "pairs", "penalties")


@dataclass(frozen=True)
class VRP(WholeDeliveries[VRPInstance, VRPState]):
    """Vehicle routing with `num_nodes` customers and at least one of nine attributes; a depot as action ends a route.

    The episode ends at a depot after the last customer. With penalties, it also ends if a vehicle at a depot chooses
    this depot.

    Every customer can be served by its own vehicle. The number of vehicles is limited only in fleets with penalties (HF
    and PC). `validate` rejects other instances, so that no mask is empty. The cost is the
    length of the routes, times the vehicle's cost per length, plus fixed costs and penalties; waiting and service
    cost nothing.

    A mask allows a customer if the vehicle can then return directly within the limits of L and TW. If a matrix
    violates the triangle inequality, `objective` and solvers also accept routes on which only a detour leads back
    within the limits; masks forbid them.

    Attributes:
        open_routes: Whether vehicles end at their last customer.
        backhauls: Whether goods of some customers are collected, after all deliveries of the route.
        max_length: Length limit of a route in generated instances; None for no limit.
        time_windows: Whether service starts within time windows.
        mixed_backhauls: Whether goods of some customers are collected, in any order with the deliveries.
        several_depots: Whether generated depots are at different places.
        fleet: Whether each depot node has its own vehicle type.
        pairs: Whether goods are picked up at one customer and delivered to another.
        penalties: Whether customers may be left out.
        num_depots: Number of depot nodes, which come first; by default 3 with `several_depots` or `fleet`, else 1.

    Raises:
        ValueError: There is no customer or no attribute, the capacity is below the largest generated demand (9), a flag
            is not a bool, two of `backhauls`, `mixed_backhauls` and `pairs` are set, there are several depot nodes
            without `several_depots` or `fleet`, or `max_length` is so short that some generated customers could not be
            served (below 2 sqrt 2 on closed routes, sqrt 2 on open ones; with pairs sqrt 2 more).
    """

    instance_type: ClassVar[type] = VRPInstance
    state_type: ClassVar[type] = VRPState
    subproblem: ClassVar[None] = None  # large-neighbourhood search has subproblems of CVRP only
    families: ClassVar[tuple[str, ...]] = ("OVRPBLTW", "MDOVRPMBLTW", "PCHFMDOVRPMBLTW", "PDOVRPLTW")

    open_routes: bool = False
    backhauls: bool = False
    max_length: float | None = None
    time_windows: bool = False
    mixed_backhauls: bool = False
    several_depots: bool = False
    fleet: bool = False
    pairs: bool = False
    penalties: bool = False
    num_depots: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        for flag in FLAGS:
            object.__setattr__(self, flag, check_flag(f"VRP: {flag}", getattr(self, flag)))
        if not self.attributes:
            raise ValueError(f"VRP: give at least one of max_length, {', '.join(FLAGS)}; CVRP has none of them")
        if self.backhauls + self.mixed_backhauls + self.pairs > 1:
            raise ValueError("VRP: backhauls, mixed_backhauls and pairs exclude each other; choose one")
        several = self.several_depots or self.fleet
        num_depots = check_integer(f"{self.name}: num_depots", self.num_depots, 0)
        if num_depots > 1 and not several:
            raise ValueError(f"{self.name}: {num_depots} depot nodes need several_depots or fleet; set one")
        object.__setattr__(self, "num_depots", num_depots or (NUM_DEPOTS if several else 1))
        if self.max_length is not None:
            check_positive(self, "max_length")
            least = 2**0.5 * (1 + (not self.open_routes) + self.pairs)
            if self.max_length < least:
                way = "by a pickup to its delivery" if self.pairs else "to the farthest customer"
                way += "" if self.open_routes else " and back"
                raise ValueError(
                    f"{self.name}: max_length must be at least {least:.4f}, the way {way}, got {self.max_length:g}"
                )

    @cached_property
    def attributes(self) -> frozenset[str]:
        """The letters of the problem's attributes."""
        present = {one for one, settings in SETTINGS.items() if one != "L" and getattr(self, *settings)}
        return frozenset(present | ({"L"} if self.max_length is not None else set()))

    @cached_property
    def rules(self) -> tuple[Attribute, ...]:
        """The rules of the attributes, in the order in which they are applied."""
        goods = () if self.attributes & GOODS else (DELIVERIES,)
        repeated = {"MD"} if self.fleet else set()  # a fleet includes the rules of several depots
        return (*goods, *(rule for one, rule in ATTRIBUTES.items() if one in self.attributes - repeated))

    # The traits differ between presets, so they are properties here.
    @property
    def name(self) -> str:  # type: ignore[override]
        return preset_name(self.attributes)

    @property
    def plain_vehicles(self) -> bool:  # type: ignore[override]
        """Whether all vehicles are equal and start at one depot, and all customers are served."""
        return not (self.depot_choice or self.penalties)

    @property
    def any_first_node(self) -> bool:  # type: ignore[override]
        return self.plain_vehicles and not self.pairs

    @property
    def visits_all(self) -> bool:  # type: ignore[override]
        return not self.penalties

    @property
    def columns(self) -> tuple[Column, ...]:  # type: ignore[override]
        return (*super().columns, *(column for rule in self.rules for column in rule.columns))

    @cached_property
    def observations(self) -> Observations:  # type: ignore[override]
        nodes = tuple(key for rule in self.rules for key in rule.per_node)
        scalars = ("open_routes",) * self.open_routes + tuple(key for rule in self.rules for key in rule.scalars)
        depots = tuple(key for rule in self.rules for key in rule.per_depot)
        start = ("start_depot",) * self.depot_choice
        return Observations(
            per_node=("demand", *nodes),
            per_depot=depots,
            depots="is_depot" if self.depot_choice else None,
            context_nodes=("current_node", *start),
            context_scalars=("free_capacity", *scalars),
            optional=(*nodes, *depots, *scalars, *start),
            pairs="pickup" if self.pairs else None,
        )

    @property
    def variants(self) -> tuple[str, ...]:
        """Return the names of the problems without further attributes; only those with pairs if this one has pairs.

        MB includes B: every tour with backhauls is also a tour with mixed backhauls.
        """
        known, least = self.attributes | ({"B"} if self.mixed_backhauls else set()), self.attributes & {"PD"}
        names = tuple(name for name, attributes in COMBINATIONS.items() if least <= attributes <= known)
        return names if self.pairs else (CVRP.name, *names)

    @property
    def length_observations(self) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(key for rule in self.rules for key in rule.lengths)

    @property
    def limited(self) -> bool:
        """Whether routes have a limit on length or time."""
        return self.max_length is not None or self.time_windows

    @property
    def depot_choice(self) -> bool:
        """Whether the depot node at which a route begins is chosen."""
        return self.several_depots or self.fleet

    @property
    def horizon(self) -> int:
        """Steps of the longest tour: for each customer, choose a depot, visit the customer, and return."""
        return (2 + self.depot_choice) * self.num_nodes

    @property
    def num_uniforms(self) -> int:
        return super().num_uniforms + sum(map(self.uniforms_of, self.rules))

    def uniforms_of(self, rule: Attribute) -> int:
        """Return the number of random numbers that an attribute needs for an instance."""
        return rule.uniforms_per_customer * self.num_nodes + rule.uniforms_per_depot * self.num_depots

    def from_uniforms(self, uniforms: Array) -> VRPInstance:
        first = super().num_uniforms
        plain = uniforms[:, :first]
        if self.fleet and not self.several_depots:  # all vehicles start at the location of the first depot node
            xp, depots = array_namespace(uniforms), self.num_depots
            plain = xp.concat([plain[:, :2]] * depots + [plain[:, 2 * depots :]], axis=1)
        instance = super().from_uniforms(plain)
        for rule in self.rules:
            last = first + self.uniforms_of(rule)
            instance = replace(instance, **rule.draw(self, instance, uniforms[:, first:last]))
            first = last
        return instance

    def validate(self, instance: VRPInstance) -> None:
        own = {field for rule in self.rules for field in rule.fields}
        for letters, rule in ATTRIBUTES.items():
            for field in rule.fields:
                if field not in own and getattr(instance, field) is not None:
                    raise InvalidInstance(
                        f"{field}: {self.name} has none; leave it out, or choose a problem with {letters}"
                    )
        super().validate(instance)
        for rule in self.rules:
            rule.validate(self, instance)
        check_each_alone(self, instance)

    def rescale(self, instance: VRPInstance) -> VRPInstance:
        """Scale space and time down together, by a power of two, if the day is longer than in generated instances.

        Then scale or lower costs alone; see `Attribute.rescale`.
        """
        instance = self.shorter_day(instance) if self.time_windows else instance
        for rule in self.rules:
            instance = rule.rescale(self, instance)
        return instance

    def shorter_day(self, instance: VRPInstance) -> VRPInstance:
        """Scale space and time down together, if the day is longer than in generated instances."""
        xp = array_namespace(instance.due_time)
        longer = xp.clip(xp.max(instance.due_time, axis=1) / closing_time(self), 1.0, MOST_SHRUNK)
        by, changed = 2.0 ** xp.round(xp.log2(longer)), {}
        for field in ("coords", "distances", "durations", "max_length", "fixed_cost", "penalty", *TimeWindows.per_node):
            if (value := getattr(instance, field)) is not None:
                changed[field] = value / xp.reshape(by, (-1, *(1,) * (value.ndim - 1)))
        return replace(instance, **changed)

    def is_customer(self, node: Array) -> Array:
        """Return a mask of the nodes that are not depots."""
        return node >= self.num_depots

    def capacity_of(self, instance: VRPInstance, state: VRPState) -> Array:
        """Return the capacity of the vehicle of the route: int64 (B,)."""
        return gather(instance.vehicle_capacity, state.start) if self.fleet else instance.capacity

    def initial(self, instance: VRPInstance) -> VRPState:
        fields = vars(super().initial(instance))
        for rule in self.rules:
            fields = fields | rule.initial(self, instance)
        state = VRPState(**fields)
        if not self.depot_choice:
            return state
        xp = array_namespace(state.node)
        alone = xp.stack(
            [self.customers(instance, self.at(depot, instance, state)) for depot in range(self.num_depots)], axis=1
        )
        customers = self.is_customer(xp.arange(self.num_actions, device=device(alone)))
        return replace(state, alone=alone & customers)

    def at(self, depot: int, instance: VRPInstance, state: VRPState) -> VRPState:
        """Return an initial state with the vehicles at another depot."""
        node = state.node + depot
        time = (
            state.time
            if state.time is None
            else array_namespace(node).astype(instance.ready_time[:, depot], state.time.dtype)
        )
        return replace(state, node=node, start=node, time=time)

    def ways(self, instance: VRPInstance, state: VRPState) -> Ways:
        """Return the edges from the vehicle's node, and the limits within which the route can then be completed."""
        limits = by_deliveries(self, instance, state) if self.pairs else directly_home(self, state)
        lengths = lengths_from(instance, state.node)
        durations = lengths if instance.durations is None else durations_from(instance, state.node)
        return Ways(lengths, durations, limits)

    def customers(self, instance: VRPInstance, state: VRPState) -> Array:
        """Return a mask of the customers that the vehicle may serve next: bool (B, A). Values at depots are ignored."""
        ways = self.ways(instance, state) if self.limited else None
        allowed = ~state.served
        for rule in self.rules:
            allowed = allowed & rule.allows(self, instance, state, ways)
        return allowed

    def action_mask(self, instance: VRPInstance, state: VRPState) -> Array:
        """Return a mask of the nodes that the vehicle may visit next.

        A customer is legal if it is not served, the tour has not ended and all attributes allow it. At a customer, the
        depot of the route is legal; with pairs, only if no delivery is due. At a depot, this depot is legal if all
        customers are served or, with penalties, to end the tour; another depot is legal if a remaining customer can be
        served from it. After an action that chose another depot, no depot is legal.

        Returns:
            bool (B, A). Never all False in a row.
        """
        xp, allowed, away = array_namespace(state.node), self.customers(instance, state), self.is_customer(state.node)
        complete = state.num_served == self.num_nodes
        home = away | complete
        if self.pairs:
            home = home & ~xp.any(state.due, axis=1)
        if self.penalties:
            complete = complete | state.ended
            home = home | (~away if self.num_depots == 1 else ~away & (complete | ~state.chosen))
            allowed = allowed & ~state.ended[:, None]
        if self.num_depots == 1:
            return scatter(allowed, xp.zeros_like(state.node), home)
        own = xp.arange(self.num_depots, device=device(allowed)) == state.start[:, None]
        others = self.usable(instance, state) & ~(away | complete | state.chosen)[:, None]
        return xp.concat([xp.where(own, home[:, None], others), allowed[:, self.num_depots :]], axis=1)

    def usable(self, instance: VRPInstance, state: VRPState) -> Array:
        """Return a mask of the depots from which some unserved customer can be served: bool (B, D)."""
        usable = array_namespace(state.served).any(state.alone & ~state.served[:, None, :], axis=2)
        if instance.num_vehicles is None:
            return usable
        return usable & (state.num_routes < instance.num_vehicles[:, : self.num_depots])

    def step(self, instance: VRPInstance, state: VRPState, action: Array) -> tuple[VRPState, Array]:
        xp = array_namespace(action)
        away, serves = self.is_customer(state.node), self.is_customer(action)
        leg = leg_length(instance, state.node, action)
        zero = xp.zeros_like(leg)
        if self.num_depots > 1:
            leg = xp.where(away | serves, leg, zero)
        new = vars(state) | {
            "node": action,
            "num_served": state.num_served + xp.astype(serves, state.num_served.dtype),
            "served": scatter(state.served, action, serves),
        }
        move = Move(xp, action, leg, away, serves)
        for rule in self.rules:
            rule.step(self, instance, state, new, move)
        if self.num_depots > 1:
            self.end_at_first_depot(instance, new)
        cost = xp.where(serves, leg, zero) if self.open_routes else leg
        if self.fleet:
            fixed = xp.where(serves & ~away, gather(instance.fixed_cost, state.start), zero)
            cost = cost * gather(instance.cost_per_length, state.start) + fixed
        if self.penalties:
            ends = new["ended"] & ~state.ended
            cost = cost + xp.where(ends, xp.astype(state.unpaid, leg.dtype), zero)
        return VRPState(**new), cost

    def end_at_first_depot(self, instance: VRPInstance, new: dict[str, Array]) -> None:
        """Move finished vehicles to node 0, so that later actions, which are 0, change nothing."""
        xp, node = array_namespace(new["node"]), new["node"]
        complete = new["num_served"] == self.num_nodes
        ended = ~self.is_customer(node) & (complete | new["ended"] if self.penalties else complete)
        for field in ("node", "start"):
            new[field] = xp.where(ended, xp.zeros_like(node), new[field])
        if self.time_windows:
            opens = xp.astype(instance.ready_time[:, 0], new["time"].dtype)
            new["time"] = xp.where(ended, opens, new["time"])

    def done(self, instance: VRPInstance, state: VRPState) -> Array:
        complete = state.num_served == self.num_nodes
        return ~self.is_customer(state.node) & (complete | state.ended if self.penalties else complete)

    def why_illegal(self, instance: VRPInstance, state: VRPState, row: int, action: int) -> str:
        node, start = int(state.node[row]), self.start_of(state, row)
        if action < self.num_depots and node >= self.num_depots:
            if action != start:
                return f"the route began at depot {start}; return there"
            return f"the goods of a pickup are on board; deliver them to customer {int(state.due[row].argmax())} first"
        if self.penalties and bool(state.ended[row]):
            return "the tour has ended"
        if action < self.num_depots:
            if action == node and not self.penalties:
                return "the vehicle is already at the depot and customers remain"
            if self.num_depots > 1 and bool(state.chosen[row]):
                return f"the next route starts at depot {start}, which was chosen; serve a customer"
            return f"vehicles of depot {action} can serve none of the customers that remain"
        if state.served[row, action]:
            return f"customer {action} is already served"
        reasons = (rule.why_illegal(self, instance, state, row, action) for rule in self.rules)
        return next(reason for reason in reasons if reason is not None)

    def start_of(self, state: VRPState, row: int) -> int:
        """Return the depot node of a row's route."""
        return int(state.start[row]) if self.depot_choice else 0

    def go_home(self, state: VRPState, row: int) -> str:
        """Return the remedy for the messages of `why_illegal`."""
        return f"return to the depot ({self.start_of(state, row)})"

    def observe_static(self, instance: VRPInstance) -> dict[str, Array]:
        seen = super().observe_static(instance)
        for rule in self.rules:
            seen |= rule.observe_static(self, instance)
        return seen

    def observe_dynamic(self, instance: VRPInstance, state: VRPState) -> dict[str, Array]:
        seen = {"current_node": state.node}
        for rule in self.rules:
            seen |= rule.observe_dynamic(self, instance, state)
        if self.open_routes:  # for a policy of several problems of the family
            seen["open_routes"] = array_namespace(state.node).ones_like(seen["free_capacity"])
        return seen

    def observation_space(self) -> spaces.Dict:
        extra: dict[str, spaces.Space[Any]] = {}
        if self.open_routes:
            extra["open_routes"] = spaces.Box(0.0, 1.0, (1,), np.float32)
        for rule in self.rules:
            extra |= rule.observation_spaces(self)
        return spaces.Dict({**super().observation_space().spaces, **extra})

    def amounts(self, instance: VRPInstance, routes: list[list[int]]) -> list[dict[str, tuple[float, float | None]]]:
        found: list[dict[str, tuple[float, float | None]]] = []
        for nodes in routes:
            capacity = int(instance.vehicle_capacity[0, nodes[0]] if self.fleet else instance.capacity[0])
            most = None if self.pairs else capacity  # with pairs, not all goods are on board at once
            goods = self.goods.amounts(instance, [node for node in nodes if node >= self.num_depots])
            found.append({name: (amount, most) for name, amount in goods.items()})
        return found

    @property
    def goods(self) -> Deliveries:
        """The rules of the vehicles' loads."""
        rule = self.rules[0]
        assert isinstance(rule, Deliveries)
        return rule

    def cost_bound(self, instance: VRPInstance) -> Array:
        """Return the cost of serving each customer alone from the farthest depot, plus all penalties."""
        xp = array_namespace(instance.demand)
        bound = xp.sum(self.dearest_trips(instance), axis=1)
        return bound + xp.sum(instance.penalty, axis=1) if self.penalties else bound

    def dearest_trips(self, instance: VRPInstance) -> Array:
        """Return a bound on the cost of serving each customer alone, by the triangle inequality: float (B, n)."""
        xp, first = array_namespace(instance.demand), self.num_depots
        away = reach(instance, centre=0)
        trips = 2 * (away[:, first:] + xp.max(away[:, :first], axis=1, keepdims=True))
        if self.fleet:
            trips = trips * xp.max(instance.cost_per_length[:, :first], axis=1, keepdims=True)
            trips = trips + xp.max(instance.fixed_cost[:, :first], axis=1, keepdims=True)
        return trips

    def longest_useful_edge(self, instance: VRPInstance, cost: Array) -> Array:
        if not self.fleet:
            return cost
        xp = array_namespace(cost)
        least = xp.min(instance.cost_per_length[:, : self.num_depots], axis=1)
        return xp.where(least > 0, cost / xp.where(least > 0, least, 1.0), math.inf)

    def progress(self, instance: VRPInstance, state: VRPState) -> Array:
        share = as_share(state.num_served, self.num_nodes)
        return array_namespace(share).where(state.ended, 1.0, share) if self.penalties else share

    def objective(self, instance: VRPInstance, actions: Array) -> Array:
        tours = as_tours(actions, batch_size(instance), self.num_actions)
        walk = make_walk(self, instance, tours)
        for rule in self.rules:
            rule.check(self, instance, walk)
        visited = check_each_once(tours, self.num_actions, self.num_depots)
        cost = walk.legs
        if self.fleet:
            cost = cost * walk.of(instance.cost_per_length, walk.start)
            cost = cost + walk.begins * walk.of(instance.fixed_cost, walk.start)
        total = cost.sum(axis=1)
        if self.penalties:
            left_out = check_ended(self, walk, visited)
            total = total + (to_numpy(instance.penalty).astype(np.float64) * left_out).sum(axis=1)
        else:
            check_all_visited(visited, first_node=self.num_depots, num_steps=tours.shape[1])
        return like(total, instance)
