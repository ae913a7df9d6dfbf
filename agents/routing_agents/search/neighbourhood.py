"""Base class of the neighbourhoods: lengths in the instance's metric, and decoding of subproblems."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch

from routing_agents.policies.attention.decoding import decode, greedy_choice, sampling_choice
from routing_agents.policies.attention.views import symmetric_views
from routing_agents.policies.protocol import PolicyNetwork
from routing_gym.arrays import FloatArray, IntArray, to_backend, to_numpy
from routing_gym.problem import AnyProblem, instance_fields

Legs = Callable[[IntArray, IntArray], FloatArray]  # edge lengths from nodes to nodes, in arrays of any shape
MIN_GAIN = 1e-6  # in sides of the unit square; smaller gains may be rounding errors


@dataclass(frozen=True)
class Effort:
    """Settings of the repair step.

    Attributes:
        size: Largest number of nodes of a subproblem.
        views: Number of views of each subproblem that are decoded, such as random rotations.
        tours: Number of tours in each view.
    """

    size: int
    views: int
    tours: int


class Neighbourhoods(ABC):
    """Search that improves a tour of one instance, subproblem by subproblem.

    Args:
        problem: Problem of the instance.
        network: Policy for the problem of the subproblems, in evaluation mode.
        instance: One instance: a NumPy batch of size 1.
        actions: Complete tour: int64 (T,).
        seed: Random seed for the choice of subproblems and for sampled tours.
        effort: Settings of the repair step.
        legs: Function that returns edge lengths, in sides of the unit square; by default those of the instance.
    """

    parts: ClassVar[str] = ""  # name of the problem of the subproblems; empty if it is the tour's problem
    trained_with: ClassVar[str] = ""  # options of am_reinforce.py for the policy that solves the subproblems
    default_effort: ClassVar[Effort]

    def __init__(
        self,
        problem: AnyProblem,
        network: PolicyNetwork,
        instance: Any,
        actions: IntArray,
        seed: int,
        effort: Effort | None = None,
        legs: Legs | None = None,
    ) -> None:
        self.problem, self.network, self.instance = problem, network, instance
        self.matrices = network.features.coords and bool(network.features.per_edge)
        self.coords = (
            instance.coords[0].astype(np.float64) if "coords" in instance_fields(problem) else np.empty((0, 2))
        )
        self.effort = effort or self.default_effort
        self.legs = legs or self.instance_legs
        self.rng = np.random.default_rng(seed)
        self.device = str(next(network.parameters()).device)
        self.generator = torch.Generator(self.device).manual_seed(seed)
        self.take_up(np.asarray(actions))

    @classmethod
    @abstractmethod
    def repaired_by(cls, problem: AnyProblem) -> tuple[str, int]:
        """Return the name of the subproblems' problem, and the size for which `find_weights` finds its policy."""

    @abstractmethod
    def take_up(self, actions: IntArray) -> None:
        """Start from a tour."""

    @abstractmethod
    def round(self) -> None:
        """Solve many disjoint subproblems in one decode, and accept those that got better."""

    @abstractmethod
    def actions(self) -> IntArray:
        """Return the actions of the best tour so far: int64 (T,)."""

    @abstractmethod
    def cost(self) -> float:
        """Return the length of the best tour so far, in sides of the unit square."""

    def instance_legs(self, origin: IntArray, destination: IntArray) -> FloatArray:
        """Return edge lengths, in arrays of any shape, in the metric of the instance."""
        if self.instance.distances is not None:
            return self.instance.distances[0][origin, destination].astype(np.float64)
        way = self.coords[origin] - self.coords[destination]
        return np.hypot(way[..., 0], way[..., 1])

    def lengths_of(self, nodes: IntArray, views: int) -> npt.NDArray[np.float32] | None:
        """Return lengths between the nodes (G, k) of subproblems, each `views` times; None if they are not read."""
        if not self.matrices:
            return None
        return np.repeat(self.legs(nodes[:, :, None], nodes[:, None]).astype(np.float32), views, axis=0)

    def play(self, problem: AnyProblem, parts: Any, num_tours: int, sample: bool) -> IntArray:
        """Decode `num_tours` tours of each of B subproblems (NumPy): int64 (B * num_tours, T)."""
        problem, parts = replace(problem, matrices=self.matrices), to_backend(parts, "torch", self.device)
        choose = sampling_choice(self.generator) if sample else greedy_choice
        with torch.no_grad():
            encoding = self.network.encode(symmetric_views(problem, parts, range(1))[1])
            played = decode(self.network, problem, parts, encoding, choose, num_tours, force_starts=not sample)
        return to_numpy(played.actions)
