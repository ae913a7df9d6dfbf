"""Beam search: keep the most probable partial tours at every step."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from routing_agents.attention.decoding import cheapest, evaluation_mode, pad
from routing_agents.attention.memory import chunk_size
from routing_agents.attention.model import AttentionModel
from routing_gym import arrays
from routing_gym.arrays import concatenate, select
from routing_gym.problem import AnyProblem
from routing_gym.rollout import Rollout


@torch.no_grad()
def beam_search(
    model: AttentionModel,
    problem: AnyProblem,
    instance: Any,
    width: int,
    batch_size: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Rollout:
    """Search in evaluation mode, chunk by chunk; return the cheapest tour of each instance's last beam.

    Width 1 is greedy decoding.

    Args:
        model: The network; its training mode is restored.
        problem: The rules.
        instance: Any number of instances, on the model's device.
        width: Partial tours kept per instance.
        batch_size: Partial tours at a time, which bounds the memory, but never fewer than `width`; by default
            1,024, or as many as fit into the free memory (see `memory.chunk_size`).
        progress: Called with the number of instances done after each chunk.

    Raises:
        ValueError: `width` or `batch_size` is not positive.
        MemoryError: Not even the beam of one instance fits; not raised where `batch_size` is given.
    """
    if width < 1:
        raise ValueError(f"the beam's width must be at least 1, got {width}")
    chunk, _ = chunk_size(model, problem, instance, width, batch_size, together=True)
    parts = []
    with evaluation_mode(model):
        for start in range(0, arrays.batch_size(instance), chunk):
            rows = select(instance, slice(start, start + chunk))
            parts.append(search(model, problem, rows, width))
            if progress is not None:
                progress(arrays.batch_size(rows))
    longest = max(part.actions.shape[1] for part in parts)
    return concatenate([Rollout(pad(part.actions, longest), part.cost, None) for part in parts])


def search(model: AttentionModel, problem: AnyProblem, instance: Any, width: int) -> Rollout:
    """Search one chunk of B instances; row b * width + k is beam k of instance b."""
    encoding = model.encode(problem.observe_static(instance))
    batch_size, device = arrays.batch_size(instance), arrays.device_of(instance)
    firsts = torch.arange(0, batch_size * width, width, device=device)[:, None]
    if width > 1:
        instance = select(instance, torch.arange(batch_size, device=device).repeat_interleave(width))
    state = problem.initial(instance)
    # One tour to begin with: the other beams are as good as impossible until it has branched out.
    score = torch.full((batch_size, width), -math.inf, device=device)
    score[:, 0] = 0.0
    cost = torch.zeros(batch_size * width, device=device)
    actions = torch.empty(batch_size * width, problem.horizon, dtype=torch.int64, device=device)
    parents = torch.empty_like(actions)
    for step in range(problem.horizon):
        observation = problem.observe_dynamic(instance, state)
        observation["action_mask"] = problem.action_mask(instance, state)
        queries = {key: value.unflatten(0, (-1, width)) for key, value in observation.items()}
        log_probabilities = model.logits(encoding, queries).log_softmax(dim=-1)
        score, beam, action = branch(score, log_probabilities)
        action, parent = action.flatten(), (firsts + beam).flatten()
        actions[:, step], parents[:, step] = action, parent
        state, step_cost = problem.step(instance, select(state, parent), action)
        cost = cost[parent] + step_cost
        if not problem.fixed_length and bool(problem.done(instance, state).all()):
            break
    return cheapest(trace(actions[:, : step + 1], parents), cost, batch_size)


def trace(actions: Tensor, parents: Tensor) -> Tensor:
    """Follow the last beams back to their first actions: (rows, T), from what each step chose and whom it continued."""
    rows = torch.arange(len(actions), device=actions.device)
    tours = torch.empty_like(actions)
    for step in range(actions.shape[1] - 1, -1, -1):
        tours[:, step] = actions[rows, step]
        rows = parents[rows, step]
    return tours


def branch(score: Tensor, log_probabilities: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Choose the `width` most probable continuations of all beams.

    Where there are fewer, the rest repeats a beam's most probable action, at a score of -inf.

    Args:
        score: (B, width), log-probabilities of the beams.
        log_probabilities: (B, width, A), of their next actions.

    Returns:
        The new scores, and whose continuation by which action they are: (B, width) each.
    """
    width, num_actions = log_probabilities.shape[1:]
    total = score[..., None] + log_probabilities
    best, index = total.flatten(1).topk(width, dim=1)
    beam, action = index // num_actions, index % num_actions
    fallback = log_probabilities.argmax(dim=-1).gather(1, beam)
    return best, beam, torch.where(best == -math.inf, fallback, action)
