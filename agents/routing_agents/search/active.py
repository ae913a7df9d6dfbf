"""Efficient active search: sample tours, and make steps of the best tour so far more probable."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from routing_agents.policies.attention.best import better_of, cheapest
from routing_agents.policies.attention.decoding import (
    Choice,
    decode,
    greedy_choice,
    log_probability,
    num_symmetries,
    play_policy,
    sampling_choice,
)
from routing_agents.policies.attention.model import AttentionModel, Encoding
from routing_agents.policies.attention.operations import take_nodes
from routing_agents.policies.attention.views import symmetric_views
from routing_agents.search.beam import check_completions, search_in_chunks
from routing_gym import arrays
from routing_gym.arrays import select
from routing_gym.problem import AnyProblem
from routing_gym.rollout import Policy, Rollout

TOURS = 128  # sampled per instance and iteration, under all symmetries together
ALPHA, SIGMA = 0.7, 4.0  # the paper's names: weights of the policy's probabilities, and of the best tour's steps
# These were compared with (0.5, 10), (1, 10) and (1, 40) on ten random CVRP-50 instances. One symmetry per iteration,
# in turn, was no better than sampling.
LEARNING_RATE, IMITATION = 0.0041, 0.013  # of the embeddings, with Adam; weight of the best tour so far
# On 16 CVRP-50 instances with 50 iterations, 0.02 and 0.05 with weights of 0.1 and 0.5 were the same to 0.1 %.


@torch.no_grad()
def active_search(
    model: AttentionModel,
    problem: AnyProblem,
    instance: Any,
    iterations: int,
    generator: torch.Generator,
    embeddings: bool = False,
    tours_at_once: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Rollout:
    """Run the search of Hottung et al. (2022), "Efficient active search for combinatorial optimization problems".

    Every iteration samples 128 tours of each instance, 16 in each view if there are several (see `num_symmetries`).
    The greedy tours come first, so that the result is never worse.

    With a table (EAS-Tab), a step from node to node is sampled with probability proportional to q^alpha Q, where q is
    the policy's probability and Q is the instance's entry of the table: sigma / q^alpha for the steps of the best tour
    so far, with the q at the time of the step, otherwise 1. With embeddings (EAS-Emb), the logit keys of each instance
    and symmetry are trained by gradient descent, so that short tours, and the best so far, become more probable.

    Args:
        model: Attention model; its training mode is restored.
        problem: Problem of the instances.
        instance: Any number of instances, on the model's device.
        iterations: Number of iterations after the greedy tours.
        generator: Random number generator for the sampled actions. All instances share it, so that the tours of one
            depend on the others.
        embeddings: Whether to adapt embeddings instead of a table: slower, and equally good on CVRP-50 after 100
            iterations.
        tours_at_once: Number of tours at a time, but never fewer than those of one instance; see `beam_search`.
        progress: Called with the number of instances done after each chunk.

    Raises:
        ValueError: The batch is empty; `iterations` or `tours_at_once` is not positive; or the problem is stochastic:
            completing tours would use values that only a visit reveals.
        MemoryError: See `beam_search`.
    """
    if iterations < 1:
        raise ValueError(f"iterations must be at least 1, got {iterations}")
    check_completions(problem)
    chunk_search = search_by_embeddings if embeddings else search_by_table
    search, views = partial(chunk_search, iterations=iterations, generator=generator), num_symmetries(problem)
    num_tours = TOURS // views
    return search_in_chunks(search, model, problem, instance, num_tours, tours_at_once, progress, views, embeddings)


def search_by_table(
    model: AttentionModel, problem: AnyProblem, instance: Any, iterations: int, generator: torch.Generator
) -> Rollout:
    """Search one chunk of B instances; row (b * S + s) * K + k is tour k of instance b under symmetry s."""
    batch_size, symmetries, device = arrays.batch_size(instance), num_symmetries(problem), arrays.device_of(instance)
    views, observation = symmetric_views(problem, instance, range(symmetries))
    encoding = model.encode(observation)
    # Logarithms of Q, which is 1 for the greedy tours.
    table = torch.zeros(batch_size, problem.num_actions, problem.num_actions, device=device)
    best, log_q = play(model, problem, views, encoding, table, greedy_choice, 1)
    table = log_table(problem, best.actions, log_q)
    draw = sampling_choice(generator)
    for _ in range(iterations):
        found, log_q = play(model, problem, views, encoding, table, draw, TOURS // symmetries)
        better = (found.cost < best.cost)[:, None, None]
        table = torch.where(better, log_table(problem, found.actions, log_q), table)
        best = better_of([best, found])
    return best


def play(
    model: AttentionModel,
    problem: AnyProblem,
    views: Any,
    encoding: Encoding,
    table: Tensor,
    choose: Choice,
    num_tours: int,
) -> tuple[Rollout, Tensor]:
    """Decode `num_tours` tours of every view; return each instance's best, and log q of its steps (B, T)."""
    score, batch_size, num_views = model.stepwise_logits(encoding, num_tours), len(table), arrays.batch_size(views)
    if num_tours > 1:
        views = select(views, torch.arange(num_views, device=table.device).repeat_interleave(num_tours))
    log_q = torch.zeros(num_views * num_tours, problem.horizon, device=table.device)
    step = 0

    def policy(observation: dict[str, Tensor]) -> Tensor:
        nonlocal step
        queries = {key: value.unflatten(0, (-1, num_tours)) for key, value in observation.items()}
        log_p = score(queries).log_softmax(dim=-1)
        logits = ALPHA * log_p
        if problem.has_depot or step > 0:  # without a depot, the first step has no origin
            logits += take_nodes(table, observation["current_node"].view(batch_size, -1)).view_as(logits)
        action = choose(logits)
        log_q[:, step] = log_p.gather(2, action[..., None]).flatten()
        step += 1
        return action.flatten()

    played = play_policy(problem, views, policy)
    best = played.cost.view(batch_size, -1).argmin(dim=1)
    best = best + torch.arange(0, len(log_q), len(log_q) // batch_size, device=table.device)
    return Rollout(played.actions[best], played.cost[best], None), log_q[best, :step]


def log_table(problem: AnyProblem, actions: Tensor, log_q: Tensor) -> Tensor:
    """Return log Q (B, A, A), from node to node, of tours (B, T) whose steps had probabilities q."""
    num_nodes = problem.num_actions
    start = torch.zeros_like(actions[:, :1]) if problem.has_depot else actions[:, :1]
    node = torch.cat([start, actions[:, :-1]], dim=1)
    # A step from a node to itself is not an edge: it starts a tour without a depot, or pads a finished tour.
    log_factor = (math.log(SIGMA) - ALPHA * log_q).masked_fill(node == actions, 0.0)
    table = torch.zeros(len(actions), num_nodes**2, device=actions.device)
    table = table.scatter_reduce(1, node * num_nodes + actions, log_factor, "amax")
    return table.unflatten(1, (num_nodes, num_nodes))


def search_by_embeddings(
    model: AttentionModel, problem: AnyProblem, instance: Any, iterations: int, generator: torch.Generator
) -> Rollout:
    """Search one chunk of B instances; the order of the rows is that of `search_by_table`."""
    batch_size, symmetries = arrays.batch_size(instance), num_symmetries(problem)
    views, observation = symmetric_views(problem, instance, range(symmetries))
    encoding, draw = model.encode(observation), sampling_choice(generator)
    keys = encoding.logit_keys.clone().requires_grad_()
    optimizer = torch.optim.Adam([keys], lr=LEARNING_RATE)
    played = decode(model, problem, views, encoding, greedy_choice)
    best = cheapest(played.actions, played.cost, batch_size)
    for _ in range(iterations):
        encoding = replace(encoding, logit_keys=keys)
        played = decode(model, problem, views, encoding.detach(), draw, TOURS // symmetries, record=True)
        best = better_of([best, cheapest(played.actions, played.cost, batch_size)])
        incumbent = play_policy(problem, views, follow(best.actions.repeat_interleave(symmetries, dim=0)), record=True)
        with torch.enable_grad():
            log_p = log_probability(model, encoding, played)
            cost = played.cost.view_as(log_p)
            advantage = cost - cost.mean(dim=1, keepdim=True)
            # Summed, not averaged: every view has its own embeddings.
            loss = (advantage * log_p).mean(dim=1).sum() - IMITATION * log_probability(model, encoding, incumbent).sum()
            (keys.grad,) = torch.autograd.grad(loss, [keys])
        optimizer.step()
    return best


def follow(actions: Tensor) -> Policy:
    """Return a policy that follows given tours (B, T) and ignores the observations."""
    steps = iter(actions.T)
    return lambda observation: next(steps)
