"""Trained models, ready to solve: the published weights, or those of a run."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from routing_agents.policies.attention.decoding import GREEDY, Decoding, evaluation_mode, num_symmetries, solve
from routing_agents.policies.protocol import PolicyNetwork
from routing_agents.search.large_neighbourhood import Improved, Report, improve, neighbourhoods_of
from routing_agents.search.neighbourhood import Legs
from routing_gym import render
from routing_gym.arrays import any_array, batch_size, cast_instance, to_backend, to_numpy
from routing_gym.data.own import OwnInstance, as_floats, from_columns
from routing_gym.problem import AnyProblem
from routing_gym.rollout import Rollout

DECODINGS = ("greedy", "starts", "sampling")


@dataclass(frozen=True, eq=False)
class SolvedInstance:
    """A tour of one instance.

    Attributes:
        problem: The rules.
        instance: The instance, one row, in the unit square.
        actions: int64 (T,), as the environment takes them.
        cost: The problem's cost in the owner's units, such as the length; for OP, the prize.
    """

    problem: AnyProblem
    instance: Any
    actions: np.ndarray
    cost: float

    @property
    def tour(self) -> list[int]:
        """The rows in the order of the visits, the depots before, after and between routes; see `Problem.visits`."""
        return self.problem.visits(self.actions)

    @property
    def routes(self) -> list[list[int]]:
        """The rows that each vehicle visits, see `Problem.routes`; without a depot one closed route."""
        return [route.nodes for route in self.problem.routes(self.instance, self.actions)]

    def save(self, path: str | Path, title: str | None = None) -> None:
        """Draw the tour into a .png file."""
        render.save(path, self.problem, self.instance, self.actions, title=title or self.title)

    @property
    def title(self) -> str:
        """Title of the picture."""
        return f"{self.problem.name}: {self.cost:g}"

    def _repr_png_(self) -> bytes:
        """Let notebooks show the picture."""
        picture = io.BytesIO()
        render.draw(self.problem, self.instance, self.actions, title=self.title).savefig(picture, format="png")
        return picture.getvalue()


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """A network and the problem that it has learnt to solve. Get one from `load`.

    Attributes:
        network: In evaluation mode.
        problem: What it was trained on; it solves instances of any size.
        path: Its checkpoint.
        variants: Whether it also solves the problems that lack some of the problem's attributes.
    """

    network: PolicyNetwork
    problem: AnyProblem
    path: Path
    variants: bool = False

    def __repr__(self) -> str:
        return f"TrainedModel({self.problem.name}, trained with {self.problem.num_nodes} nodes, {self.path})"

    def solve(
        self,
        coords: Any = None,
        *,
        decoding: str | Decoding = "starts",
        seed: int = 1,
        **columns: Any,
    ) -> SolvedInstance:
        """Solve one instance, in your own units.

        Args:
            coords: Numbers (A, 2), as an array, a list, or two columns of a DataFrame. Row 0 is the depot, where the
                problem has one. Or one instance of the problem, such as `TSPInstance`, in its unit square.
            decoding: "greedy"; "starts": greedy tours from up to 128 first nodes, or where the first node matters
                128 sampled tours, under the eight symmetries of the square; "sampling": 128 sampled tours under
                these; or a `Decoding`. The best tour counts; of stochastic problems the greedy one.
            seed: Random seed for sampled tours.
            **columns: The problem's other columns, which `model.problem.columns` lists: CVRP takes `demand` and
                `capacity`, VRPTW also `ready_time`, `due_time` and `service_time`, ATSP only `distances`. A model that
                was trained with `matrices` solves `distances` without coordinates, too.

        Raises:
            ValueError: Something is missing, left over, or holds what it must not; with row, value and remedy.
        """
        given = {key: value for key, value in columns.items() if value is not None}
        if isinstance(coords, self.problem.instance_type):
            return self.solve_instance(coords, given, decoding, seed)
        if coords is not None:
            points = as_floats("coords", coords)
            if points.ndim != 2 or points.shape[1] != 2:
                raise ValueError(f"coords has shape {points.shape}; expected (nodes, 2): x and y of each node")
            given |= {"x": points[:, 0], "y": points[:, 1]}
        return self.solve_own(from_columns(self.problem, given), decoding, seed)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the problems that the network solves."""
        return tuple(self.problem.variants) if self.variants else (self.problem.name,)

    def as_read(self, problem: AnyProblem) -> AnyProblem:
        """Return a problem with the observations that the network reads: with matrices, or without."""
        return replace(problem, matrices=self.problem.matrices)

    def check(self, problem: AnyProblem, found: str = "the instances are") -> None:
        """Raise ValueError where the model was not trained on a problem; `found` leads to its name in the error."""
        if problem.name not in self.names:
            raise ValueError(f"{self.path} was trained on {self.problem.name}; {found} {problem.name}")

    def solve_own(self, own: OwnInstance, decoding: str | Decoding = "starts", seed: int = 1) -> SolvedInstance:
        """Solve an instance made of a user's own numbers; see `routing_gym.data.own`."""
        found = self.solve_batch(own.problem, own.instance, choose_decoding(decoding, own.problem), seed)
        actions = to_numpy(found.actions[0])
        return SolvedInstance(own.problem, own.instance, actions, own.cost(actions))

    def solve_instance(
        self, instance: Any, others: dict[str, Any], decoding: str | Decoding, seed: int
    ) -> SolvedInstance:
        """Solve one row of the problem's instance dataclass."""
        if others:
            raise ValueError(f"{', '.join(others)}: the instance has its own; leave them out")
        if batch_size(instance) != 1:
            raise ValueError(f"the instance has {batch_size(instance)} rows; solve_batch takes several")
        instance = cast_instance(instance)
        depots = self.problem.num_depots
        if depots > 1 and (leading := int((instance.demand[0].cumsum() == 0).sum())) != depots:
            told = f"the instance does not say how many of its nodes are depots; {leading} without demand come first"
            raise ValueError(f"{told}, expected {depots}: call solve_batch(problem, instance)")
        num_nodes = any_array(instance).shape[1] - self.problem.num_depots
        problem = replace(self.problem, num_nodes=num_nodes)
        problem.validate(instance)
        found = self.solve_batch(problem, instance, choose_decoding(decoding, problem), seed)
        actions = to_numpy(found.actions[0])
        cost = float(problem.objective(instance, actions[None])[0])
        return SolvedInstance(problem, instance, actions, -cost if problem.maximises else cost)

    def solve_batch(
        self,
        problem: AnyProblem,
        instance: Any,
        decoding: Decoding = GREEDY,
        seed: int = 1,
        tours_at_once: int | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> Rollout:
        """Solve any number of instances; the results are on the network's device.

        Args:
            problem: The rules, of the instances' size.
            instance: B instances, on any backend.
            decoding: How.
            seed: Of sampled tours.
            tours_at_once: Tours decoded at a time; by default 1,024, or fewer where instances are large.
            progress: Called with the number of instances done.

        Returns:
            Actions (B, T); their costs are those of `problem.rescale(instance)`.

        Raises:
            ValueError: Another problem than the network's, or a decoding that the problem does not allow.
            MemoryError: Torch cannot allocate what the tours need.
        """
        self.check(problem)
        problem = self.as_read(problem)
        if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or not 0 <= seed < 2**63:
            raise ValueError(f"seed must be an integer from 0 to 2^63 - 1, got {seed!r}")
        device = next(self.network.parameters()).device
        instance = to_backend(problem.rescale(cast_instance(instance)), "torch", str(device))
        generator = torch.Generator(device).manual_seed(int(seed))
        return solve(self.network, problem, instance, decoding, generator, tours_at_once, progress)

    def improve(
        self,
        problem: AnyProblem,
        instance: Any,
        actions: np.ndarray,
        seconds: float,
        seed: int = 1,
        report: Report | None = None,
        legs: Legs | None = None,
    ) -> Improved:
        """Improve a tour by large-neighbourhood search, whose parts this network solves; see `load_repair`.

        Args:
            problem: The rules, of the instance's size.
            instance: One row, on any backend.
            actions: Integers (T,), a complete tour.
            seconds: Time. The round begun before it is over is completed.
            seed: Of the choice of parts and of sampled tours.
            report: Called every second with the seconds so far and the best actions, and once at the end.
            legs: Lengths of ways between nodes (int64 arrays), in sides of the unit square; by default those of the
                instance. For large files, whose instances have no matrix of their distances.

        Raises:
            ValueError: Not one tour, the time is not positive, tours of the problem cannot be improved, or its parts
                are instances of another problem than the network's.
        """
        problem = self.as_read(problem)
        kind = neighbourhoods_of(problem)
        wanted, _ = kind.repaired_by(problem)
        if wanted not in self.names:
            raise ValueError(f"{self.path} was trained on {self.problem.name}; parts of {problem.name} are {wanted}")
        actions = np.asarray(actions)
        if actions.ndim != 1:
            raise ValueError(f"actions: expected one tour, of shape (T,), got {actions.shape}; pass actions[0]")
        problem.objective(instance, actions[None])  # refuses what is no tour
        with evaluation_mode(self.network):
            given = cast_instance(problem.rescale(instance))
            search = kind(problem, self.network, given, actions, seed, legs=legs)
            return improve(search, seconds, report)


def choose_decoding(decoding: str | Decoding, problem: AnyProblem, tours: int = 128) -> Decoding:
    """Convert a name to a decoding strategy that the problem allows.

    For a stochastic problem it is greedy: comparing tours would use values that only a visit reveals.

    Raises:
        ValueError: Unknown name, or sampled tours of a stochastic problem.
    """
    if isinstance(decoding, Decoding):
        return decoding
    if decoding not in DECODINGS:
        raise ValueError(f"decoding must be one of {', '.join(DECODINGS)}, or a Decoding; got {decoding!r}")
    if problem.stochastic and decoding == "sampling":
        told = "comparing its tours would use values that only a visit reveals; decode greedily"
        raise ValueError(f"decoding: {problem.name} is stochastic: {told}")
    if decoding == "greedy" or problem.stochastic:
        return GREEDY
    symmetries = num_symmetries(problem)
    if decoding == "starts" and problem.any_first_node:
        return Decoding(min(tours, problem.num_nodes), force_starts=True, symmetries=symmetries)
    return Decoding(tours, sample=True, symmetries=symmetries)
