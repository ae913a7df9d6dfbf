"""Competitive orienteering: rival vehicles share one instance, and each keeps the prizes that it collects.

It is the orienteering problem (`problems.op`) without the return, with m vehicles that move simultaneously and
compete. With `cooperation=1` it is the team orienteering problem of Chao, Golden and Wasil (1996).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import numpy.typing as npt
from array_api_compat import array_namespace, device
from gymnasium import spaces

from routing_gym.arrays import Array, batch_size, device_of, euclidean
from routing_gym.multi_agent.game import Game
from routing_gym.multi_agent.rows import FAR, count, pad, pick_last, pick_rows, to_customers, tokens
from routing_gym.multi_agent.scoring import score
from routing_gym.problems.checks import check_batch, check_field, check_integer, check_positive, like

Control = Literal["target", "velocity"]

MARGIN = 1e-6  # in steps: tolerance for the rounding of float32 coordinates, for example of a distance of 3 steps
TIE = 1e-12  # customers whose distances differ by less than this are listed by number
BOUND = 1.001  # bound of observations that are at most 1, with room for rounding errors
FULL_PRIZE = 100  # prizes are integers, in hundredths
SCALE = "scale both axes into the unit square by one factor"


@dataclass(frozen=True)
class CompetitiveOPInstance:
    """B instances with m agents and n customers each."""

    coords: Array  # float32 (B, n, 2), of the customers, in the unit square
    start: Array  # float32 (B, m, 2), of the agents, in the unit square
    prize: Array  # int64 (B, n), hundredths, 1 to 100


@dataclass(frozen=True)
class CompetitiveOPState:
    position: Array  # float64 (B, m, 2)
    move: Array  # float64 (B, m, 2), move of the last tick
    available: Array  # bool (B, n), not collected yet
    tick: Array  # int64 (B,)
    nearest: Array  # int64 (B, m, L), available customers, nearest first; L = min(num_listed, n)
    distance: Array  # float64 (B, m, L), distances to these customers; FAR where there is none


@dataclass(frozen=True)
class CompetitiveOP(Game[CompetitiveOPInstance, CompetitiveOPState]):
    """Competitive orienteering for `num_agents` vehicles.

    In every tick each vehicle moves by at most `step_length`, all simultaneously; they do not block each other.
    Vehicles that reach a customer in the same tick split its prize equally, and it is no longer available. Gains and
    observed prizes are those of the instance divided by 100.

    With `control="target"`, action 0 stays, and action k moves towards the vehicle's k-th nearest available customer,
    stops exactly at it, and collects its prize; customers on the way are not collected. An action is illegal, and
    replaced by 0, if this customer does not exist or cannot be reached in the ticks left. With
    `control="velocity"`, an action is the move itself in steps, clipped to the unit disc and to the square; customers
    within `radius` of its end are collected.

    The observations of an agent have the same shapes for all m and n. Lengths in `customers` and `rivals` are in units
    of the longest path of an episode, `num_ticks * step_length`:

    - `self` (7): x, y; the last move in steps, x, y; the share of ticks left; and the position relative to the
      centre, divided by the length that the vehicle can still travel, x, y.
    - `customers` (num_listed, 5), nearest first: 1 if there is one, dx, dy, prize, distance.
    - `rivals` (rivals_seen, 4), nearest first: 1 if there is one, dx, dy, distance. Absent if `rivals_seen` is 0.
    - `action_mask` (num_listed + 1), with targets only.

    Attributes:
        num_agents: Number of vehicles, m.
        num_customers: Number of customers, n; by default two per vehicle.
        num_ticks: Number of ticks, T.
        step_length: Longest move in a tick; by default 0.08 / sqrt(m), so that vehicles meet equally often for all m.
        control: "target" or "velocity".
        num_listed: Number of nearest customers that a vehicle observes and can choose from, K.
        rivals_seen: Number of nearest other vehicles that a vehicle observes.
        cooperation: Share of the reward that is the mean of all gains.
        radius: Radius within which velocity control collects; by default half a step.

    Raises:
        ValueError: A setting is invalid. The message has the setting, its value and its bounds.
    """

    name: ClassVar[str] = "CompetitiveOP"
    instance_type: ClassVar[type] = CompetitiveOPInstance

    num_agents: int
    num_customers: int = None  # type: ignore[assignment]  # None until __post_init__, like the other two
    num_ticks: int = 16
    step_length: float = None  # type: ignore[assignment]
    control: Control = "target"
    num_listed: int = 8
    rivals_seen: int = 0
    cooperation: float = 0.0
    radius: float = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        self._keep("num_agents", check_integer(f"{self.name}: num_agents", self.num_agents, 1))
        for field, default in (
            ("num_customers", lambda: 2 * self.num_agents),
            ("step_length", lambda: 0.08 / math.sqrt(self.num_agents)),
            ("radius", lambda: self.step_length / 2),
        ):
            if getattr(self, field) is None:
                self._keep(field, default())
            if field != "num_customers":
                check_positive(self, field)
        for field, minimum in (("num_customers", 1), ("num_ticks", 1), ("num_listed", 1), ("rivals_seen", 0)):
            self._keep(field, check_integer(f"{self.name}: {field}", getattr(self, field), minimum))
        if self.control not in get_args(Control):
            raise ValueError(
                f"{self.name}: control must be one of {', '.join(get_args(Control))}; got {self.control!r}"
            )
        is_number = isinstance(self.cooperation, (int, float, np.number)) and not isinstance(self.cooperation, bool)
        if not (is_number and 0 <= self.cooperation <= 1):
            raise ValueError(f"{self.name}: cooperation must be in [0, 1], got {self.cooperation!r}")

    def _keep(self, field: str, value: Any) -> None:
        object.__setattr__(self, field, value)

    @property
    def num_actions(self) -> int | None:
        return self.num_listed + 1 if self.control == "target" else None

    @property
    def num_uniforms(self) -> int:
        return 3 * self.num_customers + 2 * self.num_agents

    @property
    def whole_way(self) -> float:
        """Largest length that a vehicle can travel in an episode."""
        return self.num_ticks * self.step_length

    def from_uniforms(self, uniforms: npt.NDArray[np.float64]) -> CompetitiveOPInstance:
        points = uniforms[:, : -self.num_customers].reshape(len(uniforms), -1, 2).astype(np.float32)
        return CompetitiveOPInstance(
            coords=points[:, : self.num_customers],
            start=points[:, self.num_customers :],
            prize=1 + np.floor(FULL_PRIZE * uniforms[:, -self.num_customers :]).astype(np.int64),
        )

    def validate(self, instance: CompetitiveOPInstance) -> None:
        check_field(instance, "coords", (self.num_customers, 2), np.float32, 0.0, 1.0, SCALE)
        check_field(instance, "start", (self.num_agents, 2), np.float32, 0.0, 1.0, SCALE)
        check_field(instance, "prize", (self.num_customers,), np.int64, 1, FULL_PRIZE, "prizes are in hundredths")
        check_batch(instance)

    def permute(self, instance: CompetitiveOPInstance, order: npt.NDArray[np.int64]) -> CompetitiveOPInstance:
        return replace(instance, start=instance.start[:, order])

    def initial(self, instance: CompetitiveOPInstance) -> CompetitiveOPState:
        xp, where = array_namespace(instance.start), device_of(instance)
        position = xp.astype(instance.start, xp.float64)
        return self._listed(
            position=position,
            move=xp.zeros_like(position),
            available=xp.ones(instance.prize.shape, dtype=xp.bool, device=where),
            tick=xp.zeros(batch_size(instance), dtype=xp.int64, device=where),
            distance=to_customers(instance.coords, position),
        )

    def _listed(
        self, position: Array, move: Array, available: Array, tick: Array, distance: Array
    ) -> CompetitiveOPState:
        """Complete a state with each agent's list of customers, from the distances (B, m, n) to all."""
        xp = array_namespace(position)
        distance = xp.where(available[:, None, :], distance, xp.full_like(distance, FAR))
        by_number = TIE * xp.astype(xp.arange(self.num_customers, device=device(position)), xp.float64)
        nearest = xp.argsort(distance + by_number, axis=-1, stable=False)[..., : self.num_listed]
        return CompetitiveOPState(position, move, available, tick, nearest, pick_last(distance, nearest))

    def action_mask(self, instance: CompetitiveOPInstance, state: CompetitiveOPState) -> Array:
        """Return a mask of action 0 and of the listed customers that can be reached in the ticks left.

        Returns:
            bool (B, m, K + 1).

        Raises:
            TypeError: The game has velocities, which are all legal.
        """
        if self.control == "velocity":
            raise TypeError(f'{self.name}: control="velocity" has no action mask; every velocity is legal')
        xp = array_namespace(state.distance)
        ticks_left = xp.astype(self.num_ticks - state.tick, xp.float64)
        reach = xp.where(ticks_left > 0, self.step_length * (ticks_left + MARGIN), -xp.ones_like(ticks_left))
        there = state.distance < FAR
        reachable = pad(there & (state.distance <= reach[:, None, None]), self.num_listed, axis=2)
        return xp.concat([xp.ones_like(reachable[..., :1]), reachable], axis=-1)

    def step(
        self, instance: CompetitiveOPInstance, state: CompetitiveOPState, action: Array
    ) -> tuple[CompetitiveOPState, Array]:
        xp = array_namespace(state.position)
        prize = xp.astype(instance.prize, xp.float64)
        if self.control == "target":
            position, target, lands = self._drive(instance, state, action)
            distance = to_customers(instance.coords, position)
            sharers = count(target, lands, self.num_customers)
            share = pick_rows(prize / (FULL_PRIZE * xp.clip(sharers, 1.0, None)), target)
            gains = xp.where(lands, share, xp.zeros_like(share))
        else:
            position = self._steer(state, action)
            distance = to_customers(instance.coords, position)
            near = (distance <= self.radius * (1 + MARGIN)) & ~self.done(instance, state)[:, None, None]
            arrived = xp.astype(near & state.available[:, None, :], xp.float64)
            sharers = xp.sum(arrived, axis=1)
            share = prize / (FULL_PRIZE * xp.clip(sharers, 1.0, None))
            gains = xp.sum(arrived * share[:, None, :], axis=2)
        new_state = self._listed(
            position=position,
            move=xp.where(self.done(instance, state)[:, None, None], state.move, position - state.position),
            available=state.available & (sharers == 0),
            tick=xp.clip(state.tick + 1, None, self.num_ticks),
            distance=distance,
        )
        return new_state, gains

    def _drive(
        self, instance: CompetitiveOPInstance, state: CompetitiveOPState, action: Array
    ) -> tuple[Array, Array, Array]:
        """Move towards the chosen customers; return positions, customers (B, m), and a mask of those reached (B, m)."""
        xp = array_namespace(state.position)
        legal = pick_last(self.action_mask(instance, state), action[..., None])[..., 0]
        moving = legal & (action > 0)
        place = xp.where(moving, action - 1, xp.zeros_like(action))[..., None]
        target, distance = (pick_last(x, place)[..., 0] for x in (state.nearest, state.distance))
        lands = moving & (distance <= self.step_length * (1 + MARGIN))
        goal = xp.astype(pick_rows(instance.coords, target), xp.float64)
        share = self.step_length / xp.clip(distance, self.step_length, None)  # of the distance; 1 reaches the customer
        fraction = xp.where(moving, share, xp.zeros_like(share))[..., None]
        return (
            xp.where(lands[..., None], goal, state.position + fraction * (goal - state.position)),
            target,
            lands,
        )

    def _steer(self, state: CompetitiveOPState, action: Array) -> Array:
        """Move by the velocities, clipped to the unit disc and to the square; finished rows do not move."""
        xp = array_namespace(state.position)
        velocity = xp.astype(action, xp.float64)
        largest = xp.max(xp.abs(velocity), axis=-1, keepdims=True)
        velocity = velocity / xp.clip(largest, 1.0, None)  # so that the squares are finite
        speed = xp.sqrt(xp.sum(velocity * velocity, axis=-1, keepdims=True))
        velocity = velocity / xp.clip(speed, 1.0, None)
        moved = xp.clip(state.position + self.step_length * velocity, 0.0, 1.0)
        return xp.where((state.tick < self.num_ticks)[:, None, None], moved, state.position)

    def done(self, instance: CompetitiveOPInstance, state: CompetitiveOPState) -> Array:
        return state.tick >= self.num_ticks

    def remaining(self, instance: CompetitiveOPInstance, state: CompetitiveOPState) -> Array:
        xp = array_namespace(instance.prize)
        left = xp.sum(xp.where(state.available, instance.prize, xp.zeros_like(instance.prize)), axis=1)
        return xp.astype(left, xp.float64) / FULL_PRIZE

    def observe(self, instance: CompetitiveOPInstance, state: CompetitiveOPState) -> dict[str, Array]:
        xp = array_namespace(state.position)
        seen = {"self": self._see_self(state), "customers": self._see_customers(instance, state)}
        if self.rivals_seen:
            seen["rivals"] = self._see_rivals(state)
        seen = {key: xp.astype(value, xp.float32) for key, value in seen.items()}
        if self.control == "target":
            seen["action_mask"] = xp.astype(self.action_mask(instance, state), xp.int8)
        return seen

    def _see_self(self, state: CompetitiveOPState) -> Array:
        xp = array_namespace(state.position)
        ticks_left = xp.astype(self.num_ticks - state.tick, xp.float64)[:, None, None]
        time_left = ticks_left / self.num_ticks + xp.zeros_like(state.position[..., :1])
        from_centre = (state.position - 0.5) / (self.step_length * xp.clip(ticks_left, 1.0, None))
        return xp.concat([state.position, state.move / self.step_length, time_left, from_centre], axis=-1)

    def _see_customers(self, instance: CompetitiveOPInstance, state: CompetitiveOPState) -> Array:
        xp = array_namespace(state.position)
        goal, prize = pick_rows(instance.coords, state.nearest), pick_rows(instance.prize, state.nearest)
        share = xp.astype(prize, xp.float64) / FULL_PRIZE
        return tokens(state.position, goal, state.distance, share, unit=self.whole_way, size=self.num_listed)

    def _see_rivals(self, state: CompetitiveOPState) -> Array:
        """Return the observations of rivals; the order of rivals at equal distances is undefined."""
        xp = array_namespace(state.position)
        distance = euclidean(state.position[:, :, None, :], state.position[:, None, :, :])
        oneself = xp.eye(self.num_agents, dtype=xp.bool, device=device(distance))
        distance = xp.where(oneself, xp.full_like(distance, FAR), distance)
        nearest = xp.argsort(distance, axis=-1, stable=False)[..., : self.rivals_seen]
        distance = pick_last(distance, nearest)
        goal = pick_rows(state.position, nearest)
        return tokens(state.position, goal, distance, unit=self.whole_way, size=self.rivals_seen)

    def global_state(self, instance: CompetitiveOPInstance, state: CompetitiveOPState) -> Array:
        """Return 4 numbers of each agent, 4 of each customer, and the share of ticks left.

        Returns:
            Global states: float32 (B, 4m + 4n + 1). Per agent x, y, and the last move in steps; per customer x, y,
            prize (0 once collected) and 1 while it is available.
        """
        xp = array_namespace(state.position)
        num_rows = batch_size(instance)
        agents = xp.concat([state.position, state.move / self.step_length], axis=-1)
        available = xp.astype(state.available, xp.float64)[..., None]
        prize = available * xp.astype(instance.prize, xp.float64)[..., None] / FULL_PRIZE
        customers = xp.concat([xp.astype(instance.coords, xp.float64), prize, available], axis=-1)
        time_left = xp.astype(self.num_ticks - state.tick, xp.float64)[:, None] / self.num_ticks
        flat = [xp.reshape(agents, (num_rows, -1)), xp.reshape(customers, (num_rows, -1)), time_left]
        return xp.astype(xp.concat(flat, axis=1), xp.float32)

    def observation_space(self) -> spaces.Dict:
        farthest = BOUND * max(1.0, math.sqrt(2) / self.whole_way)
        off_centre = BOUND * max(1.0, 0.5 / self.step_length)
        described: dict[str, spaces.Space[Any]] = {
            "self": spaces.Box(-off_centre, off_centre, (7,), np.float32),
            "customers": spaces.Box(-farthest, farthest, (self.num_listed, 5), np.float32),
        }
        if self.rivals_seen:
            described["rivals"] = spaces.Box(-farthest, farthest, (self.rivals_seen, 4), np.float32)
        if self.num_actions is not None:
            described["action_mask"] = spaces.MultiBinary(self.num_actions)
        return spaces.Dict(described)

    def action_space(self) -> spaces.Space[Any]:
        if self.num_actions is not None:
            return spaces.Discrete(self.num_actions)
        return spaces.Box(-1.0, 1.0, (2,), np.float32)

    def state_space(self) -> spaces.Box:
        return spaces.Box(-BOUND, BOUND, (4 * self.num_agents + 4 * self.num_customers + 1,), np.float32)

    def replay(self, instance: CompetitiveOPInstance, actions: Array) -> Array:
        return like(score(self, instance, actions), instance)
