"""What a trained policy makes of a task: its tours, as the task's routes."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from routing_agents.policies.attention.decoding import GREEDY
from routing_agents.trained import TrainedModel, choose_decoding, load
from routing_gym.data.own import OwnInstance
from routing_gym.planning.instances import plain_instance, trips_in
from routing_gym.planning.task import Task

TOURS = 16  # sampled first; many take seconds
ENOUGH_SECONDS = 8.0  # for 128 tours in eight symmetries
LARGE = 200  # nodes, from which on one tour is enough to begin with


@dataclass(frozen=True)
class PolicyTours:
    """Tours of a policy.

    Attributes:
        trips: Stops of each vehicle of a plain task, without the depot.
        weights: Name of the weights.
        plane: The policy planned on coordinates, and its tours are scored on a matrix.
        seconds: How long it took, without loading.
    """

    trips: list[list[int]]
    weights: str
    plane: bool
    seconds: float


def decode(own: OwnInstance, seconds: float, seed: int, model: TrainedModel | None = None) -> tuple[Any, TrainedModel]:
    """Return the actions of a policy on an instance, and its model: the more tours, the more time there is.

    Raises:
        ValueError: There are no weights for the problem.
    """
    model = model or load(f"{own.problem.name}-{max(own.problem.num_nodes, 1)}")
    model.check(own.problem)
    decoding = choose_decoding("starts", own.problem, 128 if seconds >= ENOUGH_SECONDS else TOURS)
    if own.problem.num_nodes > LARGE:
        decoding = GREEDY
    return model.solve_own(own, decoding, seed).actions, model


def policy_tours(task: Task, seconds: float, seed: int, model: TrainedModel | None = None) -> PolicyTours:
    """Decode tours of a plain task.

    Raises:
        ValueError: There are no weights for the problem, or no stop can be served.
    """
    own, rows = plain_instance(task)
    model = model or load(f"{own.problem.name}-{own.problem.num_nodes}")
    started = time.perf_counter()
    actions, model = decode(own, seconds, seed, model)
    coordinates = any(column.kind == "coords" for column in own.problem.columns)
    elapsed = time.perf_counter() - started
    return PolicyTours(
        trips_in(own, rows, np.asarray(actions)), model.path.stem, coordinates and not task.straight, elapsed
    )
