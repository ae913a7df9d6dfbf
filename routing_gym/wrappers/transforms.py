"""Transforms of the wrappers, each implemented once for B lanes; in the single environment B is 1.

The adapters in `single` and `vector` call `reward`, then `begin` for the lanes in which an episode has begun, then
`observe`. Coordinates are transformed axis by axis, because NumPy is several times slower on a last axis of length 2.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from array_api_compat import array_namespace, device
from gymnasium import spaces

from routing_gym.arrays import Array, gather, select
from routing_gym.problems.geometry import symmetry
from routing_gym.solvers import make_solver

Lanes = npt.NDArray[np.intp]
Observation = dict[str, Array]

SMALLEST_BOX = 1e-6  # side of the smallest box that is scaled; smaller ones are rounding errors of float32


class Transform:
    """Base class of the transforms of observations and rewards.

    Attributes:
        env: The unwrapped environment, a `RoutingEnv` or a `RoutingVectorEnv`.
        num_lanes: Number of lanes, B.
        inner_space: Space of one lane's observations before the transform.
        space: Space of one lane's observations after the transform.
    """

    needs: ClassVar[tuple[str, ...]] = ()  # observations that `observe` reads; if none, it changes nothing

    def __init__(self, env: Any, inner_space: spaces.Space[Any], num_lanes: int) -> None:
        keys = list(inner_space.spaces) if isinstance(inner_space, spaces.Dict) else []
        if not set(self.needs) <= set(keys):
            needs, found = " and ".join(self.needs), ", ".join(keys)
            found = found or f"{inner_space}; apply it before FlattenObservation"
            raise TypeError(f"{type(self).__name__} needs {needs} in a Dict observation, got {found}")
        self.env = env
        self.num_lanes = num_lanes
        self.inner_space: Any = inner_space
        self.space: Any = inner_space

    def begin(self, lanes: Lanes, observation: Observation) -> None:
        """Prepare for the episodes that have just begun in some lanes; `observation` is of all lanes."""

    def observe(self, observation: Observation, lanes: Lanes) -> Observation | Array:
        """Return the transformed observations of some lanes, one row for each; the input is not modified."""
        return observation

    def reward(self, rewards: Array) -> Array:
        """Return the transformed rewards (B,); called before `begin`."""
        return rewards


class FlattenObservation(Transform):
    needs = ("action_mask",)

    def __init__(self, env: Any, inner_space: spaces.Space[Any], num_lanes: int) -> None:
        super().__init__(env, inner_space, num_lanes)
        self.space = flat_space(inner_space)

    def observe(self, observation: Observation, lanes: Lanes) -> Array:
        return flatten(observation, self.inner_space)


class RelativeCoordinates(Transform):
    needs = ("coords", "current_node")

    def __init__(self, env: Any, inner_space: spaces.Space[Any], num_lanes: int) -> None:
        super().__init__(env, inner_space, num_lanes)
        coords = self.inner_space["coords"]
        box = spaces.Box(coords.low - coords.high, coords.high - coords.low)
        self.space = spaces.Dict({**self.inner_space.spaces, "coords": box})

    def observe(self, observation: Observation, lanes: Lanes) -> Observation:
        coords = observation["coords"]
        origin = gather(coords, observation["current_node"])
        relative = [coords[..., axis] - origin[:, axis, None] for axis in (0, 1)]
        return {**observation, "coords": array_namespace(coords).stack(relative, axis=-1)}


class FixedCoordinates(Transform):
    """Base class of transforms of the coordinates that are fixed for an episode: computed once, copied every step."""

    needs = ("coords",)
    fixed: dict[str, Array]  # results of `compute` for all lanes

    def __init__(self, env: Any, inner_space: spaces.Space[Any], num_lanes: int) -> None:
        super().__init__(env, inner_space, num_lanes)
        if self.inner_space["coords"].low.min() < 0:
            raise ValueError(
                f"{type(self).__name__}: coords change with every step; apply it before RelativeCoordinates"
            )

    def compute(self, coords: Array, lanes: Lanes) -> dict[str, Array]:
        """Return the transformed coordinates, and other data for `observe`, of episodes that begin in some lanes."""
        raise NotImplementedError

    def begin(self, lanes: Lanes, observation: Observation) -> None:
        coords = observation["coords"]
        if len(lanes) == self.num_lanes:
            self.fixed = self.compute(coords, lanes)
            return
        index = like(lanes, coords)
        for key, rows in self.compute(coords[index], lanes).items():
            self.fixed[key][index] = rows

    def observe(self, observation: Observation, lanes: Lanes) -> Observation:
        return {**observation, "coords": self.fixed["coords"][like(lanes, observation["coords"])]}


class RescaleCoordinates(FixedCoordinates):
    def compute(self, coords: Array, lanes: Lanes) -> dict[str, Array]:
        xp = array_namespace(coords)
        x, y = (coords[..., axis] - xp.min(coords[..., axis], axis=1, keepdims=True) for axis in (0, 1))
        side = xp.maximum(xp.max(x, axis=1, keepdims=True), xp.max(y, axis=1, keepdims=True))
        side = xp.where(side >= SMALLEST_BOX, side, xp.ones_like(side))
        return {"coords": xp.stack([x / side, y / side], axis=-1), "side": side}

    def observe(self, observation: Observation, lanes: Lanes) -> Observation:
        side, problem = self.fixed["side"][like(lanes, observation["coords"])], self.env.problem
        lengths = {key: observation[key] / side for key in problem.length_observations if key in observation}
        matrices = {key: observation[key] / side[..., None] for key in problem.observed.per_edge if key in observation}
        return super().observe({**observation, **lengths, **matrices}, lanes)


class RandomSymmetry(FixedCoordinates):
    def compute(self, coords: Array, lanes: Lanes) -> dict[str, Array]:
        generators = self.env.np_random  # one, or a tuple with one per lane
        if isinstance(generators, np.random.Generator):
            generators = (generators,)
        index = np.array([generators[lane].integers(8) for lane in lanes])
        return {"coords": symmetry(coords, index)}


class ScaleReward(Transform):
    def __init__(self, env: Any, inner_space: spaces.Space[Any], num_lanes: int, solver: str, **settings: Any) -> None:
        super().__init__(env, inner_space, num_lanes)
        self.solver = make_solver(solver, **settings)
        self.solver.check(env.problem)
        self.solver.load()
        self.divisor = np.ones(num_lanes)

    def begin(self, lanes: Lanes, observation: Observation) -> None:
        instance = select(self.env.instance, lanes)
        solution = self.solver.solve(self.env.problem, instance, num_workers=0)  # no processes to start every time
        if solution.failed.any():
            row = int(np.argmax(solution.failed))
            raise RuntimeError(
                f"ScaleReward: {self.solver.label} found no tour in lane {lanes[row]}: {solution.status[row]}"
            )
        self.divisor[lanes] = np.where(solution.cost == 0, 1.0, np.abs(solution.cost))

    def reward(self, rewards: Array) -> Array:
        return rewards / like(self.divisor, rewards)


def flat_space(space: spaces.Space[Any]) -> spaces.Box:
    """Return the space of the vectors of `flatten`: that of `gymnasium.spaces.flatten` in float32."""
    flat: Any = spaces.flatten_space(space)
    return spaces.Box(flat.low.astype(np.float32), flat.high.astype(np.float32))


def flatten(observation: Observation, space: Any) -> Array:
    """Join the observations of B lanes in the order of their `spaces.Dict`, nodes one-hot: float32 (B, features)."""
    mask = observation["action_mask"]
    xp, where, num_lanes = array_namespace(mask), device(mask), mask.shape[0]
    vectors = xp.empty((num_lanes, spaces.flatdim(space)), dtype=xp.float32, device=where)
    end = 0
    for key, part in space.items():
        values = observation[key]
        if isinstance(part, spaces.Discrete):
            values = values[:, None] == xp.arange(int(part.n), device=where)
        start, end = end, end + math.prod(values.shape[1:])
        vectors[:, start:end] = xp.reshape(values, (num_lanes, end - start))
    return vectors


def like(values: npt.NDArray[Any], array: Array) -> Array:
    """Convert a NumPy array to the backend and device of another."""
    return array_namespace(array).asarray(values, device=device(array))


def row(observation: Any, place: int) -> Any:
    """Return one lane's row of observations."""
    if isinstance(observation, dict):
        return {key: values[place] for key, values in observation.items()}
    return observation[place]
