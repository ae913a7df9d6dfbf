"""Beam search: keep the partial tours that are most probable, or those whose greedy completions are cheapest."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from routing_agents.policies.attention.best import better_of, cheapest, pad
from routing_agents.policies.attention.decoding import (
    as_tensors,
    check_kinds,
    check_symmetries,
    greedy_choice,
    in_chunks,
)
from routing_agents.policies.attention.memory import chunk_size
from routing_agents.policies.attention.model import AttentionModel, Encoding
from routing_agents.policies.attention.views import symmetric_views
from routing_gym import arrays
from routing_gym.arrays import select, to_backend
from routing_gym.problem import AnyProblem
from routing_gym.rollout import Rollout, rollout


@dataclass(frozen=True)
class Beam:
    """Settings of `simulation_guided_search`.

    Attributes:
        width: Number of partial tours kept per instance and symmetry.
        expansion: Number of actions by which each of them is continued.
        symmetries: Number of views of each instance; see `Decoding`.
    """

    width: int = 4
    expansion: int = 4
    symmetries: int = 8

    def __post_init__(self) -> None:
        check_kinds(self)
        check_widths(self.width, self.expansion)
        check_symmetries(self.symmetries)


def check_widths(width: int, expansion: int) -> None:
    """Raise ValueError if the width or the expansion is not positive."""
    if min(width, expansion) < 1:
        raise ValueError(f"width and expansion must be at least 1, got {width} and {expansion}")


def check_completions(problem: AnyProblem) -> None:
    """Raise ValueError if a problem is stochastic: completing tours would use values that only a visit reveals."""
    if problem.stochastic:
        raise ValueError(f"{problem.name}: completing tours uses values that only a visit reveals; decode greedily")


@torch.no_grad()
def beam_search(
    model: AttentionModel,
    problem: AnyProblem,
    instance: Any,
    width: int,
    tours_at_once: int | None = None,
    progress: Callable[[int], None] | None = None,
    symmetries: int = 1,
) -> Rollout:
    """Search in evaluation mode, chunk by chunk; return the cheapest tour of each instance's last beam.

    Width 1 is greedy decoding.

    Args:
        model: Attention model; its training mode is restored.
        problem: Problem of the instances.
        instance: Any number of instances, on the model's device.
        width: Number of partial tours kept per instance and symmetry.
        tours_at_once: Number of partial tours at a time, which limits the memory, but never fewer than an instance has;
            by default 1,024, or fewer if instances are large (see `memory.chunk_size`).
        progress: Called with the number of instances done after each chunk.
        symmetries: Number of views of each instance, which are searched separately; see `Decoding`.

    Raises:
        ValueError: The batch is empty, `width` or `tours_at_once` is not positive, or the problem does not allow the
            symmetries.
        MemoryError: Torch cannot allocate the memory for the beams of a chunk.
    """
    if width < 1:
        raise ValueError(f"the beam's width must be at least 1, got {width}")
    check_symmetries(symmetries, problem)
    find = partial(search_views, partial(search, width=width), symmetries)
    return search_in_chunks(find, model, problem, instance, width, tours_at_once, progress, symmetries)


@torch.no_grad()
def simulation_guided_search(
    model: AttentionModel,
    problem: AnyProblem,
    instance: Any,
    width: int,
    expansion: int,
    tours_at_once: int | None = None,
    progress: Callable[[int], None] | None = None,
    symmetries: int = 1,
) -> Rollout:
    """Run the search of Choo et al. (2022), "Simulation-guided beam search for neural combinatorial optimization".

    Every step continues each partial tour by its most probable actions, completes all of these greedily, and keeps
    those whose completions are cheapest. The result is the cheapest completion of all. It is never worse than the
    greedy tour, which is found with width and expansion 1.

    Args:
        model: Attention model; its training mode is restored.
        problem: Problem of the instances.
        instance: Any number of instances, on the model's device.
        width: Number of partial tours kept per instance and symmetry.
        expansion: Number of actions by which each of them is continued.
        tours_at_once: Number of tours completed at a time, but never fewer than an instance has; see `beam_search`.
        progress: Called with the number of instances done after each chunk.
        symmetries: Number of views of each instance; see `beam_search`.

    Raises:
        ValueError: The batch is empty; `width`, `expansion` or `tours_at_once` is not positive; the problem does not
            allow the symmetries; or it is stochastic: completing tours would use values that only a visit reveals.
        MemoryError: See `beam_search`.
    """
    check_widths(width, expansion)
    check_completions(problem)
    check_symmetries(symmetries, problem)
    find = partial(search_views, partial(search_by_simulation, width=width, expansion=expansion), symmetries)
    return search_in_chunks(find, model, problem, instance, width * expansion, tours_at_once, progress, symmetries)


def search_in_chunks(
    search_chunk: Callable[[AttentionModel, AnyProblem, Any], Rollout],
    model: AttentionModel,
    problem: AnyProblem,
    instance: Any,
    num_tours: int,
    tours_at_once: int | None,
    progress: Callable[[int], None] | None,
    views: int,
    scored: bool = False,
) -> Rollout:
    """Search in evaluation mode, in chunks of as many instances as fit with `num_tours` tours per view."""
    count = arrays.batch_size(instance)
    fit, _ = chunk_size(model, problem, count, num_tours, tours_at_once, together=True, views=views, scored=scored)
    return in_chunks(partial(search_chunk, model, problem), model, instance, max(1, fit // views), progress)


def search_views(
    search_rows: Callable[[AttentionModel, AnyProblem, Any, Encoding], Rollout],
    symmetries: int,
    model: AttentionModel,
    problem: AnyProblem,
    instance: Any,
) -> Rollout:
    """Search one chunk of instances under each of the symmetries; return the cheapest tour of each instance."""
    views, observation = symmetric_views(problem, instance, range(symmetries))
    found = search_rows(model, problem, views, model.encode(observation))
    return cheapest(found.actions, found.cost, arrays.batch_size(instance))


class Simulation:
    """Scores and greedy completions of partial tours of B instances; row b * k + i is tour i of the k of instance b.

    Args:
        model: Policy network.
        problem: Problem of the instances.
        instance: The instances, on the model's device.
        encoding: Their encoding.
        num_tours: Largest number of tours of each instance.
    """

    def __init__(
        self, model: AttentionModel, problem: AnyProblem, instance: Any, encoding: Encoding, num_tours: int
    ) -> None:
        self.problem, self.batch_size = problem, arrays.batch_size(instance)
        self.score = model.stepwise_logits(encoding, num_tours)
        self.device = torch.device(arrays.device_of(instance))
        self.on_cpu = self.device.type == "cpu"  # then the rules run on NumPy, which is faster; see `decode`
        self.given = to_backend(instance, "numpy") if self.on_cpu else instance
        self.copies: dict[int, Any] = {}  # see `repeated`

    def for_rules(self, x: Tensor) -> Any:
        """Return a tensor as the backend of the rules takes it."""
        return x.numpy() if self.on_cpu else x

    def repeated(self, num_tours: int) -> Any:
        """Return the instances, `num_tours` times each, in consecutive rows; copied once for each number."""
        if num_tours not in self.copies:
            rows = torch.arange(self.batch_size, device=self.device).repeat_interleave(num_tours)
            self.copies[num_tours] = select(self.given, self.for_rules(rows))
        return self.copies[num_tours]

    def logits(self, observation: dict[str, Any]) -> Tensor:
        """Score the actions of the current tours, of which every instance has the same number: (rows, A)."""
        seen = as_tensors(observation) if self.on_cpu else observation
        return self.score({key: value.unflatten(0, (self.batch_size, -1)) for key, value in seen.items()}).flatten(0, 1)

    def complete(self, num_tours: int, state: Any, steps: int) -> tuple[Tensor, Tensor]:
        """Complete tours greedily in `steps` steps at most; return the actions and their cost."""
        rows = self.repeated(num_tours)
        played = rollout(self.problem, rows, self.most_probable, state=state, max_steps=steps)
        return torch.as_tensor(played.actions), torch.as_tensor(played.cost)

    def most_probable(self, observation: dict[str, Any]) -> Any:
        """Return the most probable action of each tour."""
        return self.for_rules(greedy_choice(self.logits(observation)))


def search_by_simulation(
    model: AttentionModel, problem: AnyProblem, instance: Any, encoding: Encoding, width: int, expansion: int
) -> Rollout:
    """Search one chunk of B instances; for the rows see `Simulation`.

    Each partial tour is kept with its greedy completion, which is also that of its first continuation. Only the other
    continuations are completed.
    """
    expansion = min(expansion, problem.num_actions)
    simulation = Simulation(model, problem, instance, encoding, width * expansion)
    batch_size, device, for_rules = simulation.batch_size, simulation.device, simulation.for_rules
    beams, state, cost = 1, problem.initial(simulation.given), torch.zeros(batch_size, device=device)
    tours, total = simulation.complete(beams, state, problem.horizon)  # `cost` is that of the partial tours only
    best = Rollout(tours, total, None)
    for step in range(problem.horizon if expansion > 1 else 0):
        rows = simulation.repeated(beams)
        observation = {**problem.observe_dynamic(rows, state), "action_mask": problem.action_mask(rows, state)}
        planned = tours[:, step : step + 1]
        likely, action = simulation.logits(observation).scatter(1, planned, math.inf).topk(expansion)
        # If fewer actions are legal, the first one is repeated, at an infinite cost.
        impossible = likely == -math.inf
        action = torch.where(impossible, planned, action).flatten()
        parents = torch.arange(len(cost), device=device).repeat_interleave(expansion)
        others = torch.arange(len(action), device=device).unflatten(0, (-1, expansion))[:, 1:].flatten()
        beams *= expansion
        rows = simulation.repeated(beams)
        state, step_cost = problem.step(rows, select(state, for_rules(parents)), for_rules(action))
        cost = (cost[parents] + torch.as_tensor(step_cost)).masked_fill(impossible.flatten(), math.inf)
        tours, total = tours[parents], total[parents]
        tours[others, step], total[others] = action[others], cost[others]
        if left := problem.horizon - step - 1:
            rest, rest_cost = simulation.complete(len(others) // batch_size, select(state, for_rules(others)), left)
            longest = max(tours.shape[1], step + 1 + rest.shape[1])
            tours = pad(tours, longest)
            tours[others, step + 1 :], total[others] = pad(rest, longest - step - 1), total[others] + rest_cost
        best = better_of([best, cheapest(tours, total, batch_size)])
        if not problem.fixed_length and bool(problem.done(rows, state).all()):
            break
        totals = total.unflatten(0, (batch_size, -1))  # (B, tours of each)
        beams = min(width, beams)
        kept = totals.topk(beams, largest=False).indices
        kept = (kept + torch.arange(0, len(total), totals.shape[1], device=device)[:, None]).flatten()
        state, cost, tours, total = select(state, for_rules(kept)), cost[kept], tours[kept], total[kept]
    return best


def search(model: AttentionModel, problem: AnyProblem, instance: Any, encoding: Encoding, width: int) -> Rollout:
    """Search one chunk of B instances; row b * width + k is beam k of instance b."""
    batch_size, device = arrays.batch_size(instance), arrays.device_of(instance)
    firsts = torch.arange(0, batch_size * width, width, device=device)[:, None]
    score_actions = model.stepwise_logits(encoding, width)
    if width > 1:
        instance = select(instance, torch.arange(batch_size, device=device).repeat_interleave(width))
    state = problem.initial(instance)
    # The search starts with one tour: the other beams have a score of -inf until it has branched.
    score = torch.full((batch_size, width), -math.inf, device=device)
    score[:, 0] = 0.0
    cost = torch.zeros(batch_size * width, device=device)
    actions = torch.empty(batch_size * width, problem.horizon, dtype=torch.int64, device=device)
    parents = torch.empty_like(actions)
    for step in range(problem.horizon):
        observation = problem.observe_dynamic(instance, state)
        observation["action_mask"] = problem.action_mask(instance, state)
        queries = {key: value.unflatten(0, (-1, width)) for key, value in observation.items()}
        log_probabilities = score_actions(queries).log_softmax(dim=-1)
        score, beam, action = branch(score, log_probabilities)
        action, parent = action.flatten(), (firsts + beam).flatten()
        actions[:, step], parents[:, step] = action, parent
        state, step_cost = problem.step(instance, select(state, parent), action)
        cost = cost[parent] + step_cost
        if not problem.fixed_length and bool(problem.done(instance, state).all()):
            break
    return cheapest(trace(actions[:, : step + 1], parents), cost, batch_size)


def trace(actions: Tensor, parents: Tensor) -> Tensor:
    """Return the tours of the last beams (rows, T) from the actions and the parent beams of every step."""
    rows = torch.arange(len(actions), device=actions.device)
    tours = torch.empty_like(actions)
    for step in range(actions.shape[1] - 1, -1, -1):
        tours[:, step] = actions[rows, step]
        rows = parents[rows, step]
    return tours


def branch(score: Tensor, log_probabilities: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Choose the `width` most probable continuations of all beams.

    If there are fewer, the rest repeats a beam's most probable action, with a score of -inf.

    Args:
        score: Log-probabilities of the beams: (B, width).
        log_probabilities: Log-probabilities of their next actions: (B, width, A).

    Returns:
        New scores, and the beam and action of each continuation: (B, width) each.
    """
    width, num_actions = log_probabilities.shape[1:]
    total = score[..., None] + log_probabilities
    best, index = total.flatten(1).topk(width, dim=1)
    beam, action = index // num_actions, index % num_actions
    fallback = log_probabilities.argmax(dim=-1).gather(1, beam)
    return best, beam, torch.where(best == -math.inf, fallback, action)
