"""Decoding of tours with a policy network: an instance is encoded once for any number of tours."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from routing_agents.policies.attention.best import better_of, cheapest, pad
from routing_agents.policies.attention.memory import chunk_size, named_memory_errors
from routing_agents.policies.attention.views import symmetric_views
from routing_agents.policies.protocol import Encoded, PolicyNetwork
from routing_gym import arrays
from routing_gym.arrays import concatenate, select, to_backend, to_numpy
from routing_gym.problem import AnyProblem, instance_fields
from routing_gym.rollout import Policy, Rollout, rollout

Choice = Callable[[Tensor], Tensor]  # logits (..., A) -> actions (...)


def greedy_choice(logits: Tensor) -> Tensor:
    """Take the most probable action."""
    return logits.argmax(dim=-1)


def sampling_choice(generator: torch.Generator, temperature: float = 1.0) -> Choice:
    """Return a function that draws actions from softmax(logits / temperature), with one random number each.

    `torch.multinomial` is slower on a CPU, because it draws a random number for every node.
    """

    def choose(logits: Tensor) -> Tensor:
        reached = (logits / temperature).softmax(dim=-1).cumsum(dim=-1)
        whole = reached[..., -1:]  # 1, but for rounding
        drawn = torch.rand(whole.shape, generator=generator, device=whole.device) * whole
        drawn = torch.minimum(drawn, torch.nextafter(whole, torch.zeros_like(whole)))  # the product may round up
        action = torch.searchsorted(reached, drawn, right=True)[..., 0]
        return action.clamp(max=logits.shape[-1] - 1)  # NaN, from diverged weights, is found nowhere

    return choose


def make_policy(
    model: PolicyNetwork, encoding: Any, choose: Choice, num_tours: int = 1, first_actions: Tensor | None = None
) -> Policy:
    """Return a policy for `rollout` on instances, each of which is repeated `num_tours` times in consecutive rows.

    Args:
        model: Policy network.
        encoding: Encoding of B instances.
        choose: Function that chooses actions from logits (B, num_tours, A).
        num_tours: Number of tours per instance.
        first_actions: Forced actions of the first step: int64 (B * num_tours,).
    """
    forced = first_actions
    logits = model.stepwise_logits(encoding, num_tours, skip=int(first_actions is not None))

    def policy(observation: dict[str, Tensor]) -> Tensor:
        nonlocal forced
        if forced is not None:
            action, forced = forced, None
            return action
        queries = {key: value.view(-1, num_tours, *value.shape[1:]) for key, value in observation.items()}
        return choose(logits(queries)).flatten()

    return policy


@torch.no_grad()
def decode(
    model: PolicyNetwork,
    problem: AnyProblem,
    instance: Any,
    encoding: Any,
    choose: Choice,
    num_tours: int = 1,
    force_starts: bool = False,
    record: bool = False,
    first_tour: int = 0,
) -> Rollout:
    """Decode `num_tours` tours of every instance from one encoding.

    Args:
        model: Policy network.
        problem: Problem of the instances.
        instance: B instances, on the model's device.
        encoding: Encoding of the instances.
        choose: Function that chooses actions from logits.
        num_tours: Number of tours per instance; row b * num_tours + k of the result is tour k of instance b.
        force_starts: Whether tour k starts at the k-th node (customer), as in POMO.
        record: Whether to keep the observations, for `log_probability`.
        first_tour: Number of the first tour, if the tours of the instances are decoded in several calls.
    """
    batch_size, device = arrays.batch_size(instance), arrays.device_of(instance)
    if num_tours > 1:
        instance = select(instance, torch.arange(batch_size, device=device).repeat_interleave(num_tours))
    starts = None
    if force_starts:
        starts = first_nodes(problem, first_tour + num_tours, device)[first_tour:].repeat(batch_size)
    return play_policy(problem, instance, make_policy(model, encoding, choose, num_tours, starts), record)


def play_policy(problem: AnyProblem, instance: Any, policy: Policy, record: bool = False) -> Rollout:
    """Run a policy on tensors; see `rollout`.

    On the CPU, the rules run on NumPy, which shares the tensors' memory and is faster, above all for few rows.
    """
    if torch.device(arrays.device_of(instance)).type != "cpu":
        return rollout(problem, instance, policy, record=record)
    rows = to_backend(instance, "numpy")
    played = rollout(problem, rows, lambda observation: policy(as_tensors(observation)).numpy(), record=record)
    seen = None if played.observations is None else as_tensors(played.observations)
    return Rollout(torch.from_numpy(played.actions), torch.from_numpy(played.cost), seen)


def as_tensors(observation: dict[str, np.ndarray]) -> dict[str, Tensor]:
    """Return tensors that share the memory of NumPy arrays."""
    return {key: torch.from_numpy(value) for key, value in observation.items()}


def first_nodes(problem: AnyProblem, num_tours: int, device: torch.device | str = "cpu") -> Tensor:
    """Return the first `num_tours` nodes that are not depots.

    Raises:
        ValueError: There are fewer nodes, or the problem's tours must not be forced to start at any node.
    """
    if not problem.any_first_node:
        raise ValueError(f"force_starts: the first node of a tour matters in {problem.name}; sample instead")
    if num_tours > problem.num_nodes:
        raise ValueError(
            f"num_tours is {num_tours}, with forced starts at {problem.num_nodes} nodes; choose at most that many"
        )
    return torch.arange(num_tours, device=device) + problem.num_depots


def log_probability(model: PolicyNetwork, encoding: Encoded, played: Rollout, skip: int = 0) -> Tensor:
    """Compute the log-probabilities of recorded tours in one parallel pass over all their steps.

    Args:
        model: Policy network.
        encoding: Encoding of B instances, with its computation graph.
        played: B * K recorded episodes.
        skip: Number of leading steps that were forced and therefore have no probability.

    Returns:
        float32 (B, K), differentiable.
    """
    assert played.observations is not None
    batch_size = len(encoding.keys)
    # The observations of K tours of T steps, (B K, T, ...), become (B, K, T, ...).
    observation = {key: value.unflatten(0, (batch_size, -1)) for key, value in played.observations.items()}
    actions = played.actions[:, skip:].unflatten(0, (batch_size, -1))  # (B, K, T)
    log_p = model.tour_logits(encoding, observation, skip).log_softmax(dim=-1)
    return log_p.gather(3, actions[..., None])[..., 0].sum(dim=-1)


def check_symmetries(symmetries: int, problem: AnyProblem | None = None) -> None:
    """Check a number of views, and that instances of the problem, if given, have as many.

    Raises:
        ValueError: The number is not 1 to 8, or the instances have fewer views.
    """
    if not 1 <= symmetries <= 8:
        raise ValueError(f"symmetries must be 1 to 8, got {symmetries}")
    if problem is not None and symmetries > num_symmetries(problem):
        raise ValueError(f"{symmetries} symmetries, but {problem.name} has neither coordinates nor a matrix; choose 1")


KINDS = {bool: (bool, "true or false"), int: (Integral, "an integer"), float: (Real, "a number")}


def check_kinds(settings: Any) -> None:
    """Check that the fields of a dataclass are of the kinds of their default values.

    Raises:
        ValueError: A field is not.
    """
    for field in fields(settings):
        value = getattr(settings, field.name)
        kind, words = KINDS[type(field.default)]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise ValueError(f"{field.name} must be {words}, got {value!r}")


@dataclass(frozen=True)
class Decoding:
    """Decoding strategy of a trained model; the best tour found is kept.

    Attributes:
        num_tours: Number of tours per instance and symmetry.
        sample: Whether to sample actions instead of taking the most probable.
        temperature: Divisor of the logits before sampling.
        force_starts: Whether tour k starts at the k-th node, as in POMO; for problems with `any_first_node`.
        symmetries: Number of symmetries of the square, 1 to 8, under which each instance is decoded; for problems with
            matrices only, of orders of the nodes.
    """

    num_tours: int = 1
    sample: bool = False
    temperature: float = 1.0
    force_starts: bool = False
    symmetries: int = 1

    def __post_init__(self) -> None:
        check_kinds(self)
        if self.num_tours < 1:
            raise ValueError(f"num_tours must be at least 1, got {self.num_tours}")
        if self.num_tours > 1 and not (self.sample or self.force_starts):
            raise ValueError(f"{self.num_tours} greedy tours from one start are the same; set sample or force_starts")
        check_symmetries(self.symmetries)
        if not 0 < self.temperature < math.inf:
            raise ValueError(f"temperature must be positive and finite, got {self.temperature}")
        if self.temperature != 1 and not self.sample:
            raise ValueError(f"temperature {self.temperature} has no effect without sample; leave it out")


GREEDY = Decoding()


@torch.no_grad()
def solve(
    model: PolicyNetwork,
    problem: AnyProblem,
    instance: Any,
    decoding: Decoding = GREEDY,
    generator: torch.Generator | None = None,
    tours_at_once: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Rollout:
    """Decode every instance in evaluation mode, chunk by chunk, and keep the best tour of each.

    Args:
        model: Policy network; its training mode is restored.
        problem: Problem of the instances.
        instance: Any number of instances, as NumPy arrays or on the model's device.
        decoding: Decoding strategy; greedy by default.
        generator: Random number generator for the sampled actions.
        tours_at_once: Number of tours decoded at a time, which limits the memory; by default 1,024, or fewer if
            instances are large (see `memory.chunk_size`). Sampled tours depend on it.
        progress: Called with the number of instances done after each chunk.

    Returns:
        Actions (B, T), padded with each row's closing action, and cost (B,).

    Raises:
        ValueError: The batch is empty, the generator for sampling is missing, the problem does not allow the forced
            starts or the symmetries, or `tours_at_once` is not positive.
        MemoryError: Torch cannot allocate the memory for the tours of a chunk.
    """
    if decoding.sample and generator is None:
        raise ValueError("sampling draws random numbers: pass a generator")
    if decoding.force_starts:
        first_nodes(problem, decoding.num_tours)  # refuses before any work
    check_symmetries(decoding.symmetries, problem)
    if not torch.is_tensor(arrays.any_array(instance)):
        instance = to_backend(instance, "torch", str(next(model.parameters()).device))
    choose = sampling_choice(generator, decoding.temperature) if decoding.sample and generator else greedy_choice
    encodings, tours_of_each = chunk_size(
        model, problem, arrays.batch_size(instance), decoding.num_tours, tours_at_once, views=decoding.symmetries
    )
    chunk = min(encodings, arrays.batch_size(instance))
    views = encodings // chunk  # symmetries at a time: all of them if there are few instances
    groups = [range(decoding.symmetries)[first : first + views] for first in range(0, decoding.symmetries, views)]

    def solve_rows(rows: Any) -> Rollout:
        return better_of([best_tours(model, problem, rows, decoding, choose, tours_of_each, group) for group in groups])

    return in_chunks(solve_rows, model, instance, chunk, progress)


def on_originals(problem: AnyProblem, instance: Any, rescaled: Any, found: Rollout) -> Rollout:
    """Return tours of rescaled instances with their costs on the original ones; see `Problem.rescale`."""
    if rescaled is instance:
        return found
    cost = problem.objective(to_backend(instance, "numpy"), to_numpy(found.actions))
    return replace(found, cost=torch.as_tensor(cost, dtype=found.cost.dtype, device=found.cost.device))


def in_chunks(
    solve_rows: Callable[[Any], Rollout],
    model: PolicyNetwork,
    instance: Any,
    chunk: int,
    progress: Callable[[int], None] | None,
) -> Rollout:
    """Solve `chunk` instances at a time in evaluation mode; see `solve` for `progress` and the result.

    Raises:
        MemoryError: Torch cannot allocate the memory for the tours of a chunk.
    """
    parts = []
    with evaluation_mode(model), named_memory_errors():
        for start in range(0, arrays.batch_size(instance), chunk):
            rows = select(instance, slice(start, start + chunk))
            parts.append(solve_rows(rows))
            if progress is not None:
                progress(arrays.batch_size(rows))
    longest = max(part.actions.shape[1] for part in parts)
    return concatenate([Rollout(pad(part.actions, longest), part.cost, None) for part in parts])


def num_symmetries(problem: AnyProblem) -> int:
    """Return the number of views of an instance: symmetries of the square, or orders of the codes of nodes."""
    return 8 if "coords" in instance_fields(problem) or problem.observed.per_edge else 1


@contextmanager
def evaluation_mode(model: PolicyNetwork) -> Iterator[None]:
    """Context manager: put a model into evaluation mode, and restore its mode afterwards, also after an error."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


def best_tours(
    model: PolicyNetwork,
    problem: AnyProblem,
    instance: Any,
    decoding: Decoding,
    choose: Choice,
    tours_of_each: int,
    symmetries: range,
) -> Rollout:
    """Decode all tours under some of the symmetries, `tours_of_each` at a time; return the best of each instance."""
    views, observation = symmetric_views(problem, instance, symmetries)
    encoding = model.encode(observation)
    found = []
    for first in range(0, decoding.num_tours, tours_of_each):
        num_tours = min(tours_of_each, decoding.num_tours - first)
        played = decode(model, problem, views, encoding, choose, num_tours, decoding.force_starts, first_tour=first)
        found.append(cheapest(played.actions, played.cost, arrays.batch_size(instance)))
    return better_of(found)
