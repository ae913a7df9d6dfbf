"""Parallel episodes of one problem: the common part of the single and the vectorised environment."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
from gymnasium.error import InvalidAction

from routing_gym import render
from routing_gym.arrays import Array, gather, map_arrays, select, to_numpy
from routing_gym.envs.lanes import LaneArrays, Lanes, write
from routing_gym.problem import AnyProblem
from routing_gym.problems.geometry import match_fields
from routing_gym.render.text import to_text

Reward = Literal["dense", "sparse"]
OnIllegal = Literal["terminate", "raise"]
NO_ACTION = -1  # in the history, of a lane that was idle


@dataclass(frozen=True)
class Snapshot:
    """Copy of everything that an environment's future depends on; made by `get_state`, restored by `set_state`."""

    problem: AnyProblem
    instance: Any  # B instances
    state: Any  # B states
    cost: Array  # float64 (B,), of the episode so far
    bound: Array  # float64 (B,), no legal tour costs more
    finished: Array  # bool (B,)
    illegal: Array  # bool (B,), ended by an illegal action
    history: Array  # int64 (T, B), the latest actions of all lanes; NO_ACTION where one was idle
    num_actions: npt.NDArray[np.int64]  # (B,), number of them that belong to a lane's episode
    generators: tuple[dict[str, Any], ...]  # states of the B random generators


class Episodes(LaneArrays):
    """B lanes, each with its own episode.

    The object owns its arrays. Inputs are copied. `instance` and `static` are overwritten row by row when lanes are
    reset. The other arrays are replaced, never written to.

    Attributes:
        instance: B instances.
        static: Static observations of the instances.
        state: B states.
        mask: bool (B, A), the legal actions; call `refresh_mask` after `start`, `restart` and `step`.
        cost: float64 (B,), cost of the episode so far.
        bound: float64 (B,), upper bound on the cost of every legal tour.
        finished: bool (B,), whether the episode has ended.
        illegal: bool (B,), whether an illegal action has ended it.
    """

    instance: Any
    static: dict[str, Array]
    state: Any
    mask: Array
    cost: Array
    bound: Array
    finished: Array
    illegal: Array

    def __init__(
        self,
        problem: AnyProblem,
        shape: tuple[()] | tuple[int],
        reward: Reward,
        on_illegal: OnIllegal,
        backend: str = "numpy",
        device: str | None = None,
    ) -> None:
        for name, value, choices in (("reward", reward, Reward), ("on_illegal", on_illegal, OnIllegal)):
            if value not in get_args(choices):
                raise ValueError(f"{name} must be one of {', '.join(get_args(choices))}; got {value!r}")
        super().__init__(shape, backend, device)
        self.problem = problem
        self.sparse = reward == "sparse"
        self.raises = on_illegal == "raise"

    def start(self, instance: Any) -> None:
        """Start an episode in every lane, on B instances of any backend."""
        self.instance = self.own(instance)
        self.state = self.problem.initial(self.instance)
        self.static = {key: self.copy(value) for key, value in self.problem.observe_static(self.instance).items()}
        self.bound = self.as_float64(self.problem.cost_bound(self.instance))
        self.cost = self.xp.zeros_like(self.bound)
        self.finished = self.problem.done(self.instance, self.state)  # all False
        self.illegal = self.xp.zeros_like(self.finished)
        self.history: deque[Array] = deque()  # actions (B,) of the latest steps
        self.num_steps = 0  # taken since `start`, by all lanes together
        self.first_step = np.zeros(self.batch_size, dtype=np.int64)  # `num_steps` when each lane's episode began
        self.started = True

    def restart(self, lanes: Lanes, instance: Any) -> None:
        """Start an episode in some lanes, on one instance for each of them; the other lanes continue.

        Arrays that stay the same during an episode (instance, static observations, bound) are owned and large: they
        are overwritten in place, row by row. Arrays that a step replaces (state, cost, flags) are copied first: several
        fields of a state may share an array, also with the instance, and `observe` and `info` may have returned them.
        """
        if len(lanes) == self.batch_size:
            return self.start(instance)
        index = self.move(lanes)
        fresh = self.own(instance)
        # Bound the instance as given: `match_fields` may add distances to it, with which the bound is less tight.
        write(self.bound, index, self.as_float64(self.problem.cost_bound(fresh)))
        # A batch has an optional field for all rows or for none. If only one side has it, the other gets the values
        # that None stands for, such as Euclidean distances.
        self.instance, fresh = match_fields((self.instance, fresh))
        map_arrays(lambda old, new: write(old, index, new), self.instance, fresh)
        for key, value in self.problem.observe_static(fresh).items():
            write(self.static[key], index, value)
        self.state = map_arrays(
            lambda old, new: write(self.copy(old), index, new), self.state, self.problem.initial(fresh)
        )
        for name in ("cost", "finished", "illegal"):
            setattr(self, name, write(self.copy(getattr(self, name)), index, 0))
        self.first_step[lanes] = self.num_steps
        # Remove the actions from before the oldest episode that still runs.
        while len(self.history) > self.num_steps - self.first_step.min():
            self.history.popleft()
        return None

    def refresh_mask(self) -> None:
        """Compute the mask. Separate from `step`, so that it is computed only once when lanes are reset."""
        self.mask = self.problem.action_mask(self.instance, self.state)

    def step(self, actions: Any, idle: Lanes) -> Array:
        """Apply one action in every lane.

        In order: check the actions; replace illegal ones (by the mask) with legal ones, so that one batched
        `Problem.step` serves all lanes; restore the old state of the lanes that chose them, whose episodes end; then
        add up the costs and compute the rewards. Until `refresh_mask`, `mask` is the one from before the step.

        Args:
            actions: Integers of shape `shape`.
            idle: Lanes that are reset after this step. Their actions are ignored, and their results are meaningless.

        Returns:
            Rewards: float64 (B,).

        Raises:
            InvalidAction: An action has a wrong type, shape or range, or is illegal with `on_illegal="raise"`.
            ResetNeeded: Before the first reset.
        """
        self.require_start("step()")
        taken = self.as_actions(actions, idle)
        illegal = ~gather(self.mask, taken)
        any_illegal = bool(illegal.any())
        if any_illegal:
            illegal_lanes = np.flatnonzero(to_numpy(illegal))
            if self.raises:
                raise self.illegal_action(int(illegal_lanes[0]), taken)
            self.put_legal(taken, illegal_lanes)
        state, cost = self.problem.step(self.instance, self.state, taken)
        cost = self.as_float64(cost)
        if any_illegal:  # these lanes keep their old state, and the step costs nothing
            state = map_arrays(lambda old, new: self.where(illegal, old, new), self.state, state)
            cost = self.where(illegal, 0.0 * cost, cost)
        self.state, self.illegal = state, illegal
        self.finished = self.problem.done(self.instance, state) | illegal
        if len(idle):
            self.finished[self.move(idle)] = True  # they ended before this step, and `restart` comes after it
        self.cost = self.cost + cost
        self.history.append(taken)
        self.num_steps += 1
        # Dense: minus the cost of this step. Sparse: minus that of the episode, on its last step.
        reward = 0.0 - (self.where(self.finished, self.cost, 0.0 * cost) if self.sparse else cost)  # never -0.0
        if any_illegal:
            # Dense rewards have already paid `cost` of the episode's return.
            paid = 0.0 * cost if self.sparse else self.cost
            index = self.move(illegal_lanes)
            write(reward, index, paid[index] + self.illegal_returns(index))
        return reward

    def step_some(self, actions: Any, idle: Lanes) -> Array:
        """Apply one action in the lanes that are not idle. Idle lanes stay as they are; their rewards are 0."""
        names = ("state", "cost", "finished", "illegal")
        before = {name: getattr(self, name) for name in names}
        reward = self.step(actions, idle)
        index = self.move(idle)

        def keep(old: Array, new: Array) -> Array:
            return write(self.copy(new), index, old[index])

        self.state = map_arrays(keep, before.pop("state"), self.state)
        for name, old in before.items():
            setattr(self, name, keep(old, getattr(self, name)))
        write(self.history[-1], index, NO_ACTION)
        return write(reward, index, 0.0)

    def illegal_returns(self, index: Array) -> Array:
        """Compute the returns of episodes that an illegal action ends now, in the lanes `index`: float64.

        They range from -2 (1 + bound) at the start to -(1 + bound) with everything done. They are below the return of
        every legal tour, and increase with the progress. Otherwise an algorithm without masks could not learn
        before it finishes a tour by chance.
        """
        left = 1.0 - self.problem.progress(select(self.instance, index), select(self.state, index))
        return -(1.0 + self.bound[index]) * (1.0 + left)

    def as_actions(self, actions: Any, idle: Lanes) -> Array:
        """Check type, shape and range; return an int64 copy with a legal action in the idle lanes."""
        values = self.as_array(actions)
        if tuple(values.shape) != self.shape:
            expected = f"shape ({self.shape[0]},), one per lane" if self.shape else "a single integer, shape ()"
            raise InvalidAction(f"actions: expected {expected}; got shape {tuple(values.shape)}")
        if values.dtype != self.xp.int64 and not self.xp.isdtype(values.dtype, "integral"):
            raise InvalidAction(f"actions: expected integers, got {values.dtype}")
        taken = self.xp.reshape(self.xp.astype(values, self.xp.int64, copy=True), (self.batch_size,))
        if len(idle):
            self.put_legal(taken, idle)
        outside = (taken < 0) | (taken >= self.problem.num_actions)
        if bool(outside.any()):
            lane = int(np.argmax(to_numpy(outside)))
            nodes = f"nodes are 0 to {self.problem.num_actions - 1}"
            node = to_numpy(values).ravel()[lane]  # before the cast, which may overflow
            raise InvalidAction(f"{self.place(lane)}node {node} does not exist; {nodes}")
        return taken

    def put_legal(self, actions: Array, lanes: Lanes) -> None:
        """Overwrite the actions of some lanes with the first legal one."""
        index = self.move(lanes)
        actions[index] = self.xp.argmax(self.xp.astype(self.mask[index], self.xp.int8), axis=1)

    def illegal_action(self, lane: int, actions: Array) -> InvalidAction:
        """Return an error that names the lane, the node it chose and the reason why the node is illegal."""
        node = int(actions[lane])
        reason = self.problem.why_illegal(self.instance, self.state, lane, node)
        return InvalidAction(f"{self.place(lane)}node {node} is illegal: {reason}; choose one where action_mask is 1")

    def observe(self, copy: bool) -> dict[str, Array]:
        """Return the observations of all lanes; without `copy`, they may share memory with this object."""
        observation = {**self.static, **self.problem.observe_dynamic(self.instance, self.state)}
        if copy:
            observation = {key: self.copy(value) for key, value in observation.items()}
        observation["action_mask"] = self.mask_as_int8(copy)
        return observation

    def observe_final(self, lanes: Lanes) -> tuple[dict[str, Array], dict[str, Array]]:
        """Return copies of the observations and infos of some lanes, before they are reset."""
        index = self.move(lanes)
        instance, state = select(self.instance, index), select(self.state, index)
        mask = self.xp.astype(self.problem.action_mask(instance, state), self.xp.int8)
        observation = {key: value[index] for key, value in self.static.items()}
        observation |= self.problem.observe_dynamic(instance, state)
        observation["action_mask"] = mask
        info = {"action_mask": self.copy(mask), "illegal_action": self.illegal[index], "cost": self.cost[index]}
        return observation, info

    def info(self, copy: bool) -> dict[str, Array]:
        """Return the info of all lanes; without `copy`, it may share memory with this object."""
        illegal, cost = (self.copy(self.illegal), self.copy(self.cost)) if copy else (self.illegal, self.cost)
        return {"action_mask": self.mask_as_int8(copy), "illegal_action": illegal, "cost": cost}

    def mask_as_int8(self, copy: bool) -> Array:
        mask = self.mask.view(self.xp.int8)  # bool and int8 are one byte each
        return self.copy(mask) if copy else mask

    def tours(self) -> list[npt.NDArray[np.int64]]:
        """Return the actions of each lane's episode so far, without an illegal one at its end."""
        actions = to_numpy(self.history_array())
        starts = len(actions) - (self.num_steps - self.first_step)
        rows = [actions[start:, lane] for lane, start in enumerate(starts)]
        taken = [row[row != NO_ACTION] for row in rows]
        return [row[: len(row) - illegal] for row, illegal in zip(taken, to_numpy(self.illegal), strict=True)]

    def render(self, render_mode: str) -> tuple[Any, ...]:
        """Draw each lane's instance and tour: see the functions of `routing_gym.render`."""
        self.require_start("render()")
        draw: dict[str, Callable[..., Any]] = {
            "rgb_array": render.to_rgb_array,
            "ansi": to_text,
        }
        instance, cost = map_arrays(to_numpy, self.instance), to_numpy(self.cost)
        return tuple(
            draw[render_mode](self.problem, select(instance, slice(lane, lane + 1)), tour, float(cost[lane]))
            for lane, tour in enumerate(self.tours())
        )

    def history_array(self) -> Array:
        """Return the latest actions of all lanes: int64 (T, B)."""
        if self.history:
            return self.xp.stack(tuple(self.history))
        return self.move(np.zeros((0, self.batch_size), dtype=np.int64))

    def as_float64(self, x: Array) -> Array:
        return self.xp.astype(x, self.xp.float64)

    def save(self, generators: Sequence[np.random.Generator]) -> Snapshot:
        """Return a snapshot: a copy of everything.

        Raises:
            ResetNeeded: Before the first reset.
        """
        self.require_start("get_state()")
        return Snapshot(
            problem=self.problem,
            instance=self.own(self.instance),
            state=self.own(self.state),
            cost=self.copy(self.cost),
            bound=self.copy(self.bound),
            finished=self.copy(self.finished),
            illegal=self.copy(self.illegal),
            history=self.history_array(),
            num_actions=self.num_steps - self.first_step,
            generators=tuple(dict(generator.bit_generator.state) for generator in generators),
        )

    def load(self, snapshot: Snapshot, generators: Sequence[np.random.Generator]) -> None:
        """Restore a copy of a snapshot.

        Raises:
            TypeError: The argument is not a `Snapshot`.
            ValueError: The snapshot belongs to another problem or number of lanes.
        """
        if not isinstance(snapshot, Snapshot):
            raise TypeError(f"set_state needs what get_state returned, got {type(snapshot).__name__}")
        found, expected = (snapshot.problem, len(snapshot.generators)), (self.problem, self.batch_size)
        if found != expected:
            raise ValueError(
                f"set_state: the state is of {found[0]} in {found[1]} lanes, not {expected[0]} in {expected[1]}"
            )
        self.start(snapshot.instance)
        self.state = self.own(snapshot.state)
        for name in ("cost", "bound", "finished", "illegal"):
            setattr(self, name, self.copy(self.move(getattr(snapshot, name))))
        self.history.extend(self.copy(self.move(snapshot.history)))
        self.num_steps = len(self.history)
        self.first_step = self.num_steps - snapshot.num_actions
        self.refresh_mask()
        for generator, state in zip(generators, snapshot.generators, strict=True):
            generator.bit_generator.state = state
