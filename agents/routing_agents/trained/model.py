"""Trained models, ready to solve: the published weights, or those of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from routing_agents.policies.attention.decoding import (
    GREEDY,
    Decoding,
    evaluation_mode,
    num_symmetries,
    on_originals,
    solve,
)
from routing_agents.policies.attention.model import AttentionModel
from routing_agents.policies.protocol import PolicyNetwork
from routing_agents.search.beam import Beam, simulation_guided_search
from routing_agents.search.large_neighbourhood import Improved, Report, improve, neighbourhoods_of
from routing_agents.search.neighbourhood import Legs
from routing_gym import render
from routing_gym.arrays import IntArray, any_array, batch_size, cast_instance, to_backend, to_numpy
from routing_gym.data.own import OwnInstance, as_floats, from_columns, given_columns
from routing_gym.problem import AnyProblem, InfeasibleTour
from routing_gym.problems.checks import checked_instance
from routing_gym.render.figure import png
from routing_gym.rollout import Rollout

DECODINGS = ("greedy", "starts", "sampling", "beam")
Strategy = Decoding | Beam
ROUNDING = 1e-5  # relative; tours are compared in float32 during the search


@dataclass(frozen=True, eq=False)
class SolvedInstance:
    """A tour of one instance.

    Attributes:
        problem: Problem of the instance.
        instance: Batch of one: the instance in the unit square.
        actions: Actions of the environment, int64 (T,).
        cost: Cost of the problem in the user's units, such as the length; for OP, the prize.
    """

    problem: AnyProblem
    instance: Any
    actions: np.ndarray
    cost: float

    def __repr__(self) -> str:
        objective = "prize" if self.problem.maximises else "cost"
        return f"SolvedInstance({self.problem.name}, {self.problem.num_nodes} nodes, {objective} {self.cost:.10g})"

    @property
    def tour(self) -> list[int]:
        """Nodes (input rows) in the order of the visits, with depots around all routes; see `Problem.visits`."""
        return self.problem.visits(self.actions)

    @property
    def routes(self) -> list[list[int]]:
        """Nodes (input rows) that each vehicle visits, see `Problem.routes`; without a depot, one closed route."""
        return [route.nodes for route in self.problem.routes(self.instance, self.actions)]

    def save(self, path: str | Path, title: str | None = None) -> None:
        """Draw the tour into a .png file."""
        render.save(path, self.problem, self.instance, self.actions, title=title or self.title)

    @property
    def title(self) -> str:
        """Title of the picture."""
        return f"{self.problem.name}: {self.cost:g}"

    def _repr_png_(self) -> bytes:
        """Return the picture as PNG data, for notebooks."""
        return png(render.draw(self.problem, self.instance, self.actions, title=self.title))


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """A network and the problem that it was trained to solve. `load` returns one.

    Attributes:
        network: Network in evaluation mode.
        problem: Problem that it was trained on; it solves instances of any size.
        path: Path of its checkpoint.
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
        decoding: str | Strategy = "starts",
        seed: int = 1,
        **columns: Any,
    ) -> SolvedInstance:
        """Solve one instance, in your own units.

        Args:
            coords: Coordinates (A, 2), as an array or a list. Row 0 is the depot, if the problem has one. Or a table,
                such as a DataFrame or a dictionary, with the columns x and y, and others of the problem. Or one
                instance: the result of `routing_gym.data.from_columns`, or, in its unit square, an instance of the
                problem such as `TSPInstance`.
            decoding: Decoding strategy. "greedy": one greedy tour. "starts": greedy tours from up to 128 first nodes
                or, if the first node matters, 128 sampled tours, under each of the eight symmetries of the square; for
                stochastic problems one greedy tour. "sampling": 128 sampled tours under each symmetry. "beam":
                simulation-guided beam search, which finds better tours and takes 7 to 40 times as long with 50 or
                100 nodes; the time grows with the cube of their number. Or a `Decoding` or `Beam`. The best tour is
                returned.
            seed: Random seed for sampled tours.
            **columns: The problem's other columns, which `model.problem.columns` lists: CVRP takes `demand` and
                `capacity`, VRPTW also `ready_time`, `due_time` and `service_time`, ATSP only `distances`. A model that
                was trained with `matrices` also solves `distances` without coordinates.

        Raises:
            TypeError: The instance is one of another problem.
            ValueError: A column is missing, unknown, given twice, or holds an invalid value (the message has row, value
                and remedy); or the decoding or the seed is invalid.
            MemoryError: See `solve_batch`.
        """
        given = {key: value for key, value in columns.items() if value is not None}
        if is_dataclass(coords):
            return self.solve_instance(coords, given, decoding, seed)
        if isinstance(coords, Mapping) or any(isinstance(name, str) for name in getattr(coords, "columns", ())):
            table = given_columns(coords)
        elif coords is not None:
            points = as_floats("coords", coords)
            if points.ndim != 2 or points.shape[1] != 2:
                raise ValueError(f"coords has shape {points.shape}; expected (nodes, 2): x and y of each node")
            table = {"x": points[:, 0], "y": points[:, 1]}
        else:
            table = {}
        if twice := sorted(table.keys() & given.keys()):
            raise ValueError(f"{', '.join(twice)}: in `coords` and in an argument, too; leave one of them out")
        return self.solve_own(from_columns(self.problem, table | given), decoding, seed)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the problems that the network solves."""
        return tuple(self.problem.variants) if self.variants else (self.problem.name,)

    def as_read(self, problem: AnyProblem) -> AnyProblem:
        """Return a problem with the observations that the network reads: with matrices, or without."""
        return replace(problem, matrices=self.problem.matrices)

    def check(self, problem: AnyProblem, found: str = "the instances are") -> None:
        """Raise ValueError if the model was not trained on a problem; `found` precedes its name in the error."""
        if problem.name not in self.names:
            told = f"{self.path} was trained on {self.problem.name}; {found} {problem.name}"
            raise ValueError(f"{told}: take a model for {problem.name}")

    def solve_own(self, own: OwnInstance, decoding: str | Strategy = "starts", seed: int = 1) -> SolvedInstance:
        """Solve an instance made from a user's own numbers; see `routing_gym.data.own`."""
        actions = self.first_tour(own.problem, own.instance, decoding, seed)
        return SolvedInstance(own.problem, own.instance, actions, own.cost(actions))

    def solve_instance(
        self, instance: Any, others: dict[str, Any], decoding: str | Strategy, seed: int
    ) -> SolvedInstance:
        """Solve one instance: a batch of one of the problem's instance dataclass, or the result of `from_columns`."""
        if others:
            raise ValueError(f"{', '.join(others)}: the instance has its own; leave them out")
        if isinstance(instance, OwnInstance):
            return self.solve_own(instance, decoding, seed)
        if not isinstance(instance, self.problem.instance_type):
            expected, found = self.problem.instance_type.__name__, type(instance).__name__
            raise TypeError(f"coords: {self.path} solves {self.problem.name}; expected a {expected}, got a {found}")
        if batch_size(instance) != 1:
            raise ValueError(f"the instance has {batch_size(instance)} rows; solve_batch takes several")
        instance = cast_instance(instance)
        depots = self.problem.num_depots
        if depots > 1 and (leading := int((instance.demand[0].cumsum() == 0).sum())) != depots:
            told = f"the instance does not say how many of its nodes are depots; {leading} without demand come first"
            raise ValueError(f"{told}, expected {depots}: call solve_batch(problem, instance)")
        num_nodes = any_array(instance).shape[1] - self.problem.num_depots
        problem = replace(self.problem, num_nodes=num_nodes)
        actions = self.first_tour(problem, instance, decoding, seed)
        cost = float(problem.objective(instance, actions[None])[0])
        return SolvedInstance(problem, instance, actions, -cost if problem.maximises else cost)

    @torch.inference_mode()  # faster than `no_grad`; its tensors do not leave this function
    def first_tour(self, problem: AnyProblem, instance: Any, decoding: str | Strategy, seed: int) -> IntArray:
        """Return the tour of the first instance of a batch: integers (T,)."""
        found = self.solve_batch(problem, instance, decoding, seed)
        return np.asarray(to_numpy(found.actions[0]))

    def solve_batch(
        self,
        problem: AnyProblem,
        instance: Any,
        decoding: str | Strategy = GREEDY,
        seed: int = 1,
        tours_at_once: int | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> Rollout:
        """Solve any number of instances; the results are on the network's device.

        Args:
            problem: Problem of the instances, with their size.
            instance: Batch of B instances, on any backend.
            decoding: Decoding strategy, or its name as for `solve`.
            seed: Random seed for sampled tours.
            tours_at_once: Number of tours decoded at a time; by default 1,024, or fewer if instances are large.
            progress: Function that is called with the number of instances done.

        Returns:
            Actions (B, T) and their costs (B,).

        Raises:
            ValueError: The network was not trained on the problem, the problem does not allow the decoding, or the seed
                is invalid.
            TypeError: The instances are those of another problem.
            InvalidInstance: The instances are malformed, or not in the unit square.
            MemoryError: Torch cannot allocate the memory that the tours need.
        """
        self.check(problem)
        instance = checked_instance(problem, instance)
        decoding, as_read = choose_decoding(decoding, problem), self.as_read(problem)
        check_seed(seed)
        device = next(self.network.parameters()).device
        rescaled = as_read.rescale(instance)
        on_device = to_backend(rescaled, "torch", str(device))
        generator = torch.Generator(device).manual_seed(int(seed))
        if isinstance(decoding, Beam):
            assert isinstance(self.network, AttentionModel)  # pointer networks have a class of their own
            widths = decoding.width, decoding.expansion
            found = simulation_guided_search(
                self.network, as_read, on_device, *widths, tours_at_once, progress, decoding.symmetries
            )
        else:
            found = solve(self.network, as_read, on_device, decoding, generator, tours_at_once, progress)
        return on_originals(problem, instance, rescaled, found)

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
        """Improve a tour by large-neighbourhood search, whose subproblems this network solves; see `load_repair`.

        Args:
            problem: Problem of the instance, with its size.
            instance: Batch of one, on any backend.
            actions: Complete tour, integers (T,).
            seconds: Time limit in seconds. A round that has begun is completed.
            seed: Random seed for the choice of subproblems and for sampled tours.
            report: Function that is called every second with the seconds so far and the best actions, and once at the
                end.
            legs: Function that returns the lengths of edges between nodes (int64 arrays), in sides of the unit square;
                by default those of the instance. It serves large files, whose instances have no distance matrix.

        Raises:
            ValueError: `instance` has several rows, `actions` is not one tour, the time is not positive, the seed is
                invalid, tours of the problem cannot be improved, or the network was not trained on its subproblems; or
                the problem refuses the tour that was found, or finds it longer, because its class inherits
                `plain_routes` or `subproblem` by mistake.
        """
        problem = self.as_read(problem)
        kind = neighbourhoods_of(problem)
        wanted, _ = kind.repaired_by(problem)
        if wanted not in self.names:
            told = f"{self.path} was trained on {self.problem.name}; subproblems of {problem.name} are {wanted}"
            raise ValueError(f"{told}: take load_repair(problem)")
        check_seed(seed)
        if (rows := batch_size(instance)) != 1:
            raise ValueError(f"the instance has {rows} rows; improve takes one at a time")
        actions = np.asarray(actions)
        if actions.ndim != 1:
            raise ValueError(f"actions: expected one tour, of shape (T,), got {actions.shape}; pass actions[0]")
        given_cost = problem.objective(instance, actions[None])[0]  # raises if the actions are not a tour
        with evaluation_mode(self.network):
            given = cast_instance(problem.rescale(instance))
            search = kind(problem, self.network, given, actions, int(seed), legs=legs)
            found = improve(search, seconds, report)
        remedy = f"set plain_routes and subproblem in {type(problem).__name__}, see routing_gym.Problem"
        try:
            cost = problem.objective(instance, found.actions[None])[0]
        except InfeasibleTour as error:
            raise ValueError(f"{problem.name}: the search on routes breaks its rules ({error}); {remedy}") from error
        if legs is None and cost > given_cost + ROUNDING * max(1.0, abs(given_cost)):
            told = f"the search on routes makes the cost {cost:g} from {given_cost:g}, which is no sum of lengths"
            raise ValueError(f"{problem.name}: {told}; {remedy}")
        return found


def check_seed(seed: int) -> None:
    """Raise ValueError if a seed is no integer that torch and NumPy accept."""
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or not 0 <= seed < 2**63:
        raise ValueError(f"seed must be an integer from 0 to 2^63 - 1, got {seed!r}")


def choose_decoding(decoding: str | Strategy, problem: AnyProblem, tours: int = 128) -> Strategy:
    """Convert a name to a decoding strategy that the problem allows.

    For a stochastic problem, it is greedy decoding: comparing tours would use values that only a visit reveals.

    Raises:
        ValueError: The name is unknown, or is "sampling" or "beam" for a stochastic problem.
    """
    if isinstance(decoding, Strategy):
        return decoding
    if decoding not in DECODINGS:
        raise ValueError(f"decoding must be one of {', '.join(DECODINGS)}, or a Decoding or Beam; got {decoding!r}")
    if problem.stochastic and decoding in ("sampling", "beam"):
        told = "comparing its tours would use values that only a visit reveals; decode greedily"
        raise ValueError(f"decoding: {problem.name} is stochastic: {told}")
    if decoding == "greedy" or problem.stochastic:
        return GREEDY
    symmetries = num_symmetries(problem)
    if decoding == "beam":
        return Beam(symmetries=symmetries)
    if decoding == "starts" and problem.any_first_node:
        return Decoding(min(tours, problem.num_nodes), force_starts=True, symmetries=symmetries)
    return Decoding(tours, sample=True, symmetries=symmetries)
