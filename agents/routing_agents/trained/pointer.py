"""A pointer network for tours as a `TrainedModel`: for solve.py, evaluate.py and `routing_agents.load`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from routing_agents.header import CheckpointError
from routing_agents.policies.attention.best import better_of
from routing_agents.policies.attention.decoding import GREEDY
from routing_agents.policies.pointer.decoding import predict
from routing_agents.policies.pointer.model import PointerNetwork
from routing_agents.policies.pointer.policy import PointerPolicy
from routing_agents.policies.pointer.sequences import Order
from routing_agents.policies.pointer.tasks import TASKS, Task
from routing_agents.search.beam import Beam
from routing_agents.trained.model import Strategy, TrainedModel, choose_decoding
from routing_gym.problem import AnyProblem
from routing_gym.problems import make_problem
from routing_gym.problems.checks import checked_instance
from routing_gym.problems.geometry import symmetry
from routing_gym.rollout import Rollout


@dataclass(frozen=True, eq=False)
class TrainedPointer(TrainedModel):
    """A pointer network for the TSP; `order` is the order in which it reads the cities."""

    network: PointerNetwork  # type: ignore[assignment]  # solved by beam search, not decoded like a policy network
    order: Order = "sorted"

    @classmethod
    def of(cls, network: PointerNetwork, task: Task, path: Path, header: dict[str, Any]) -> TrainedPointer:
        """Build a model from the contents of a checkpoint.

        Raises:
            CheckpointError: The network was trained for another task than tours, or the header lacks its size.
        """
        if task.name != "tsp":
            raise CheckpointError(
                f"{path}: a pointer network for {task.name}, which is no routing problem; tsp is needed"
            )
        try:  # trained by reinforcement learning, or on solved examples
            num_nodes = header["settings"]["num_nodes"] if "settings" in header else header["args"]["sizes"][1]
            problem = make_problem(PointerPolicy.problem, num_nodes)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise CheckpointError(
                f"{path}: its header does not say how many cities it learnt with ({error})"
            ) from error
        return cls(network, problem, path, order=header["order"])

    def check(self, problem: AnyProblem, found: str = "the instances are") -> None:
        """Check a problem like `TrainedModel.check`; a network with a dictionary of answers takes one size only."""
        super().check(problem, found)
        size = self.network.fixed_size
        if size not in (None, problem.num_nodes):
            raise ValueError(
                f"{self.path} takes {size} cities, {found} {problem.name} with {problem.num_nodes}; networks trained "
                "with --answer pointer take any number"
            )

    def solve_batch(
        self,
        problem: AnyProblem,
        instance: Any,
        decoding: str | Strategy = GREEDY,
        seed: int = 1,
        tours_at_once: int | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> Rollout:
        """Solve instances like `TrainedModel.solve_batch`, by beam search instead of tours from several starts.

        For each symmetry, the answer is the most probable tour of a beam of width `decoding.num_tours`; the shortest
        answer is returned. `predict` determines how many instances are decoded at a time.

        Raises:
            ValueError: Sampled or completed tours are requested, or the network does not solve the problem.
        """
        self.check(problem)
        decoding = choose_decoding(decoding, problem)
        if isinstance(decoding, Beam) or decoding.sample:
            told = "a pointer network neither samples tours nor completes them; choose greedy or starts"
            raise ValueError(f"{self.path}: {told}")
        instance = checked_instance(problem, instance)
        coords = problem.rescale(instance).coords
        settings: dict[str, Any] = {"order": self.order, "width": decoding.num_tours, "each_once": True}
        device, found = self.network.begin.device, []
        for index in range(decoding.symmetries):
            tours = predict(self.network, TASKS["tsp"], symmetry(coords, index), **settings)
            cost = problem.objective(instance, tours)
            costs = torch.as_tensor(cost, dtype=torch.float32, device=device)
            found.append(Rollout(torch.as_tensor(tours, device=device), costs, None))
        if progress is not None:
            progress(len(coords))
        return better_of(found)
