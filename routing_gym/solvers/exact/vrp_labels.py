"""Shortest routes through every set of customers, with the attributes of the VRP family, for `HeldKarp`.

Source: Desrochers, Desrosiers and Solomon (1992), "A new optimization algorithm for the vehicle routing problem with
    time windows". If vehicles wait for windows, a longer path may arrive earlier. Each set of customers and last
    customer therefore has several labels (length, time), none of which is both longer and later than another.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from routing_gym.arrays import FloatArray
from routing_gym.problems.checks import TOLERANCE
from routing_gym.problems.vrp import VRP
from routing_gym.solvers.runtime.base import distance_matrix


class Label(NamedTuple):
    """Path from the depot through a set of customers."""

    length: float
    time: float  # end of service at the last customer
    nodes: tuple[int, ...]


def shortest_routes(problem: VRP, instance: Any) -> tuple[FloatArray, list[tuple[int, ...]]]:
    """Find the shortest feasible route through each set of customers.

    Masks allow fewer routes if lengths or durations violate the triangle inequality; see `VRP`.

    Args:
        problem: Problem of the VRP family.
        instance: One instance: a batch of size 1.

    Returns:
        Lengths (2^n,), infinite if no route serves the set, and the customers of each route in order; bit k of a set
        stands for node k + 1.
    """
    num_sets, matrix = 2**problem.num_nodes, distance_matrix(instance)[0]
    distances, durations = matrix.tolist(), (matrix if instance.durations is None else instance.durations[0]).tolist()
    longest = np.inf if instance.max_length is None else float(instance.max_length[0]) + TOLERANCE / 2
    ready = service = [0.0] * problem.num_actions
    due = [np.inf] * problem.num_actions
    if problem.time_windows:
        ready, service = instance.ready_time[0].tolist(), instance.service_time[0].tolist()
        due = (instance.due_time[0].astype(np.float64) + TOLERANCE / 2).tolist()
    backhaul = np.zeros(problem.num_actions, dtype=bool) if instance.backhaul is None else instance.backhaul[0]
    fits = fitting_sets(instance, backhaul)
    lengths = np.full(num_sets, np.inf)
    routes: list[tuple[int, ...]] = [()] * num_sets
    lengths[0] = 0.0
    ends: list[dict[int, list[Label]]] = [{} for _ in range(num_sets)]
    ends[0][0] = [Label(0.0, ready[0], ())]
    for visited in range(num_sets):
        for node, labels in ends[visited].items():
            for label in labels if visited else ():
                length, time = label.length, label.time
                if not problem.open_routes:
                    length, time = length + distances[node][0], time + durations[node][0]
                    if length > longest or time > due[0]:
                        continue
                if length < lengths[visited]:
                    lengths[visited], routes[visited] = length, label.nodes
            for after in range(1, problem.num_actions):
                larger = visited | 1 << after - 1
                if larger == visited or not fits[larger] or (backhaul[node] and not backhaul[after]):
                    continue
                known = ends[larger].setdefault(after, [])
                for label in labels:
                    length, time = label.length + distances[node][after], label.time + durations[node][after]
                    if length <= longest and time <= due[after]:
                        end = max(time, ready[after]) + service[after]
                        keep_best(known, Label(length, end, (*label.nodes, after)))
    return lengths, routes


def keep_best(known: list[Label], new: Label) -> None:
    """Add a label, unless another is neither longer nor later; remove labels that the new one dominates."""
    if not any(label.length <= new.length and label.time <= new.time for label in known):
        known[:] = [label for label in known if label.length < new.length or label.time < new.time] + [new]


def fitting_sets(instance: Any, backhaul: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Mark the sets of customers whose deliveries and backhauls each fit into a vehicle: (2^n,)."""
    sets = np.arange(2 ** (len(backhaul) - 1))[:, None] >> np.arange(len(backhaul) - 1) & 1
    loads = [sets @ (instance.demand[0] * kind)[1:] for kind in (backhaul, ~backhaul)]
    return np.asarray(np.maximum(*loads) <= instance.capacity[0])
