"""A trained VRPTW policy as the epoch router of the dynamic VRPTW."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from routing_agents.trained.model import TrainedModel
from routing_gym.arrays import to_numpy
from routing_gym.dynamic.days import Day, unit_square
from routing_gym.dynamic.solver import pad
from routing_gym.problems import VRP, VRPInstance

HALF_SECOND = 0.5  # added to ends of time windows against float32 rounding; it allows no more, as times are integers


@dataclass(frozen=True)
class ModelRouter:
    """Routes decoded from a trained VRPTW policy: `ModelRouter(routing_agents.load("VRPTW-50"))`.

    The policy reads coordinates; masks and lengths are those of the durations.

    Attributes:
        model: Model trained on VRPTW.
        decoding: Decoding strategy: "greedy", "starts" or "sampling".
        seed: Random seed for sampled tours.
    """

    model: TrainedModel
    decoding: str = "greedy"
    seed: int = 1

    def __call__(self, day: Day, chosen: Any, leaving: Any) -> Any:
        return pad([self.route(day, row, np.flatnonzero(chosen[row]), int(leaving[row])) for row in range(len(chosen))])

    def route(self, day: Day, row: int, slots: Any, leaving: int) -> list[int]:
        """Route the requests in some slots of one row; return their ids, with 0 between routes.

        Raises:
            ValueError: The day has no coordinates.
        """
        if not len(slots):
            return []
        if day.coords is None:
            raise ValueError("ModelRouter needs coordinates, and the day has none; use PyVRPRouter")
        nodes = np.concatenate([[0], day.customer[row, slots]])
        durations = day.durations[row][np.ix_(nodes, nodes)]
        scale = float(max(durations.max(), 1))  # unit of times and durations: the longest duration is 1
        demand, service = (np.concatenate([[0], values[row, slots]]) for values in (day.demand, day.service_time))
        windows = np.concatenate([[[leaving, day.closing[row]]], day.time_window[row, slots]]) - leaving
        windows = np.maximum(windows + np.array([0.0, HALF_SECOND]), 0.0)

        def times(values: Any) -> Any:
            return (values / scale).astype(np.float32)[None]

        instance = VRPInstance(
            unit_square(day.coords[row, nodes].astype(np.float64))[None],
            demand[None],
            day.capacity[row : row + 1],
            times(np.where(np.eye(len(nodes), dtype=bool), 0, durations)),
            ready_time=times(windows[:, 0]),
            due_time=times(windows[:, 1]),
            service_time=times(service),
        )
        problem = VRP(len(slots), time_windows=True)
        found = self.model.solve_batch(problem, instance, self.decoding, self.seed)
        ids = np.concatenate([[0], slots + 1])
        return [int(stop) for stop in ids[to_numpy(found.actions[0])]]
