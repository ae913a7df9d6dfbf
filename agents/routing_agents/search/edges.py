"""Any problem: remove edges of the tour near a random node, and replace them with a policy for the same problem.

A round decodes many tours at once. If the current node has kept its edge and the end of the edge is legal, the tour
follows the edge; otherwise the policy chooses. All actions respect the mask, so all rules of the problem hold.
Destroy and repair: Shaw (1998). Repair by a policy: Hottung, Tierney (2020), "Neural large neighborhood search for the
capacitated vehicle routing problem", where edges are removed too.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from routing_agents.policies.attention.decoding import make_policy, num_symmetries, play_policy, sampling_choice
from routing_agents.policies.attention.views import symmetric_views
from routing_agents.search.neighbourhood import Effort, Neighbourhoods
from routing_gym.arrays import FloatArray, IntArray, select, to_backend, to_numpy
from routing_gym.problem import AnyProblem

SMALLEST = 3  # smallest number of nodes whose edges are removed
MOST_ENTRIES = 50_000  # tours of a round times nodes; limits time and memory


class EdgeSearch(Neighbourhoods):
    """Search that improves a tour by replacing edges."""

    default_effort: ClassVar[Effort] = Effort(size=16, views=8, tours=16)

    @classmethod
    def repaired_by(cls, problem: AnyProblem) -> tuple[str, int]:
        return problem.name, max(problem.num_nodes, 1)

    def take_up(self, actions: IntArray) -> None:
        self.tour, self.best = actions, float(self.problem.objective(self.instance, actions[None])[0])
        symmetries = range(min(self.effort.views, num_symmetries(self.problem)))
        self.num_tours = max(1, min(self.effort.tours, MOST_ENTRIES // self.problem.num_actions // len(symmetries)))
        given = to_backend(self.instance, "torch", self.device)
        with torch.no_grad():
            views, observation = symmetric_views(self.problem, given, symmetries)
            self.encoding = self.network.encode(observation)
        self.num_rows = len(symmetries) * self.num_tours
        rows = torch.arange(len(symmetries), device=self.device).repeat_interleave(self.num_tours)
        self.rows = select(views, rows)
        nodes = np.arange(self.problem.num_actions)
        lengths: FloatArray = self.legs(nodes[:, None], nodes[None])
        near = np.argsort(np.minimum(lengths, lengths.T), axis=1, kind="stable")
        self.near = torch.as_tensor(near, device=self.device)

    def actions(self) -> IntArray:
        return self.tour

    def cost(self) -> float:
        return self.best

    def round(self) -> None:
        with torch.no_grad():
            played = play_policy(self.problem, self.rows, self.policy())
        row = int(played.cost.argmin())
        tour: Any = to_numpy(played.actions[row])
        cost = float(self.problem.objective(self.instance, tour[None])[0])
        if cost <= self.best:  # equal costs too, for diversity
            self.tour, self.best = tour, cost

    def policy(self) -> Any:
        """Return the policy of a round: it follows the edges that are kept; without one, the network chooses."""
        edges, kept = self.edges(), self.kept()
        order = torch.rand(kept.shape, generator=self.generator, device=self.device)  # ranks several edges of the depot
        every = torch.arange(self.num_rows, device=self.device)
        free = make_policy(self.network, self.encoding, sampling_choice(self.generator), self.num_tours)

        def choose(observation: dict[str, Tensor]) -> Tensor:
            node = observation["current_node"]
            follow = edges[node] & observation["action_mask"] & kept[every, node][:, None]
            along = torch.where(follow, order, -1.0).argmax(dim=1)
            return torch.where(follow.any(dim=1), along, free(observation))

        return choose

    def edges(self) -> Tensor:
        """Return a mask of the tour's edges from row to column: bool (A, A); a depot may have several."""
        size, ends = self.problem.num_actions, self.tour.tolist()
        nodes = [0, *ends] if self.problem.has_depot else [*ends, ends[0]]
        edges = torch.zeros(size, size, dtype=torch.bool, device=self.device)
        edges[nodes[:-1], nodes[1:]] = True
        edges.fill_diagonal_(False)
        return edges

    def kept(self) -> Tensor:
        """Return a mask of the nodes that keep their edges, all except those near a random node: bool (rows, A)."""
        size = self.problem.num_actions
        most = min(self.effort.size, size)
        centres = torch.randint(size, (self.num_rows,), generator=self.generator, device=self.device)
        least = min(SMALLEST, most)
        count = torch.randint(least, most + 1, (self.num_rows, 1), generator=self.generator, device=self.device)
        near = self.near[centres][:, :most]
        gone = torch.arange(most, device=self.device) < count
        kept = torch.ones(self.num_rows, size, dtype=torch.bool, device=self.device)
        return kept.scatter(1, near, ~gone)
