"""Nearest neighbour: always visit the nearest legal node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from routing_gym.arrays import IntArray
from routing_gym.problem import AnyProblem
from routing_gym.problems.geometry import MAX_FLOAT, lengths_from
from routing_gym.solvers.runtime.base import BatchSolver


@dataclass(frozen=True)
class NearestNeighbour(BatchSolver):
    """Nearest neighbour, for every problem with coordinates or distances, using its mask and step.

    The TSP tour starts at city 0. With a depot, the vehicle returns when no customer is legal. In PCTSP and SPCTSP it
    returns as soon as the mask allows it, since no customer must be visited and visits are not the objective.
    """

    name: ClassVar[str] = "nearest-neighbour"
    problems: ClassVar[None] = None

    def tours(self, problem: AnyProblem, instance: Any, rows: IntArray, seed: int) -> IntArray:
        state = problem.initial(instance)
        node = np.zeros(len(rows), dtype=np.int64)
        steps = []
        if not problem.has_depot:
            state, _ = problem.step(instance, state, node)
            steps.append(node)
        single_trip = problem.horizon == problem.num_nodes + 1
        returns_early = single_trip and not problem.visits_all and not problem.maximises
        while not problem.done(instance, state).all():
            mask = problem.action_mask(instance, state)
            length = lengths_from(instance, node)
            if problem.has_depot:
                length[:, : problem.num_depots] = -1.0 if returns_early else MAX_FLOAT
            node = np.argmin(np.where(mask, length, np.inf), axis=1)
            state, _ = problem.step(instance, state, node)
            steps.append(node)
        return np.stack(steps, axis=1)
