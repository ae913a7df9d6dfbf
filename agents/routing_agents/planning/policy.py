"""Decode tours with a trained policy and convert them to routes of a planning task."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from routing_agents.policies.attention.decoding import GREEDY, evaluation_mode, num_symmetries, sampling_choice
from routing_agents.policies.attention.decoding import decode as rollout_of
from routing_agents.policies.attention.views import symmetric_views
from routing_agents.trained import TrainedModel, choose_decoding, load
from routing_gym.arrays import cast_instance, to_backend, to_numpy
from routing_gym.data.own import OwnInstance
from routing_gym.planning.instances import plain_instance, routes_in
from routing_gym.planning.routes import Rules
from routing_gym.planning.task import Task
from routing_gym.problems.matrices import has_matrices

TOURS = 16  # number of tours if time is short; more tours take seconds
ENOUGH_SECONDS = 8.0  # time limit from which on 128 tours in eight symmetries are decoded
SAMPLED, TEMPERATURE = 64, 1.5  # tours per symmetry at a time; hotter than the policy, for more diverse routes
SAMPLING = 0.1  # share of the time for sampled tours
LARGE = 200  # number of nodes above which only one greedy tour is decoded


@dataclass(frozen=True)
class PolicyTours:
    """Tours of a policy.

    Attributes:
        routes: Stops of each vehicle of a plain task, without the depot.
        pool: Stops of each route of many sampled tours.
        weights: Name of the weights.
        notes: A note if the policy planned on coordinates, although its tours are scored on a matrix.
        seconds: Time of decoding in seconds, without loading.
    """

    routes: list[list[int]]
    pool: list[list[int]]
    weights: str
    notes: tuple[str, ...]
    seconds: float


def published(own: OwnInstance) -> TrainedModel:
    """Load the published weights for an instance.

    Raises:
        ValueError: There are none for the problem.
    """
    name = f"{own.problem.name}-{max(own.problem.num_nodes, 1)}"
    return load(name, matrices=has_matrices(own.instance))


def decode(own: OwnInstance, seconds: float, seed: int, model: TrainedModel) -> Any:
    """Return the actions of a policy on an instance; more tours are decoded if there is more time.

    Raises:
        ValueError: The model was not trained on the problem.
    """
    model.check(own.problem)
    decoding = choose_decoding("starts", own.problem, 128 if seconds >= ENOUGH_SECONDS else TOURS)
    if own.problem.num_nodes > LARGE:
        decoding = GREEDY
    return model.solve_own(own, decoding, seed).actions


def policy_tours(rules: Rules, seconds: float, seed: int, model: TrainedModel | None) -> PolicyTours:
    """Decode tours of a plain task.

    Raises:
        ValueError: There are no weights for the problem, or no stop can be served.
    """
    own, rows = plain_instance(rules)
    model = model or published(own)
    started = time.perf_counter()
    routes = routes_in(own, rows, np.asarray(decode(own, seconds, seed, model)))
    pool: list[list[int]] = []
    generator = torch.Generator(next(model.network.parameters()).device).manual_seed(seed)
    while own.problem.num_nodes <= LARGE and time.perf_counter() - started < SAMPLING * seconds:
        for tour in sampled(own, model, generator):
            pool += routes_in(own, rows, tour)
    elapsed = time.perf_counter() - started
    return PolicyTours(routes, pool, model.path.stem, plane_notes(model, rules.task), elapsed)


def plane_notes(model: TrainedModel, task: Task) -> tuple[str, ...]:
    """Return a note if a task has its own matrix, and the network reads only coordinates."""
    if task.straight or model.problem.observed.per_edge:
        return ()
    told = f"{model.path.stem} reads coordinates only"
    return (f"{told}; the search and the costs use the exact lengths and durations",)


def sampled(own: OwnInstance, model: TrainedModel, generator: torch.Generator) -> Any:
    """Return sampled tours of an instance under all symmetries of the square: int64 (tours, T)."""
    problem, device = model.as_read(own.problem), str(next(model.network.parameters()).device)
    instance = to_backend(problem.rescale(cast_instance(own.instance)), "torch", device)
    with evaluation_mode(model.network), torch.no_grad():
        views, observation = symmetric_views(problem, instance, range(num_symmetries(problem)))
        encoding = model.network.encode(observation)
        choose = sampling_choice(generator, TEMPERATURE)
        return to_numpy(rollout_of(model.network, problem, views, encoding, choose, SAMPLED).actions)
