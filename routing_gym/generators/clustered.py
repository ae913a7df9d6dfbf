"""Generators with clustered nodes, and with depots, demands and capacities like CVRPLIB's set X.

    env = gym.make("routing/CVRP-50", generator=partial(set_x, CVRP(50)))
    python agents/am_reinforce.py --env-id routing/CVRP-50 --generator x

The distribution of CVRPLIB's set X is that of Uchoa et al. (2017), "New benchmark instances for the Capacitated Vehicle
Routing Problem", section 4. Here it is scaled to the unit square, with any number of customers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from routing_gym.generators.roads import roads
from routing_gym.problem import AnyProblem, instance_fields
from routing_gym.problems.checks import check_instance_type
from routing_gym.problems.cvrp import CVRPInstance

FEWEST_SEEDS, MOST_SEEDS = 3, 8
DECAY = 0.04  # decay length of the distance from a cluster's seed: 40 on the 1,000 x 1,000 grid of set X
ROUTE_SIZES = (3.0, 6.0, 25.0)  # customers per route: least, most frequent and most
DEMANDS = ((1, 1), (1, 10), (5, 10), (1, 100), (50, 100))  # least and most; `demands` has two more kinds
Floats = npt.NDArray[np.float64]


def uniform(problem: AnyProblem, rng: np.random.Generator, batch_size: int) -> Any:
    """Draw instances with `Problem.generate`."""
    return problem.generate(rng, batch_size)


def mixed(problem: AnyProblem, rng: np.random.Generator, batch_size: int) -> Any:
    """Draw instances whose nodes are uniform, clustered, or half of each; other fields are those of `Problem.generate`.

    For a problem without coordinates, such as ATSP, half of the matrices are those of `Problem.generate`, and half
    those of `roads`.

    Args:
        problem: Any problem.
        rng: Random number generator.
        batch_size: Number of instances B.
    """
    if "coords" not in instance_fields(problem):
        instance, streets = problem.generate(rng, batch_size), roads(problem, rng, batch_size)
        is_street = rng.random((batch_size, 1, 1)) < 0.5
        return replace(instance, distances=np.where(is_street, streets.distances, instance.distances))
    uniforms = rng.random((batch_size, problem.num_uniforms))
    # The coordinates are drawn from the first uniforms of an instance.
    nodes = 2 * problem.num_actions
    uniforms[:, :nodes] = places(rng, uniforms[:, :nodes].reshape(batch_size, -1, 2)).reshape(batch_size, nodes)
    return problem.from_uniforms(uniforms)


def set_x(problem: AnyProblem, rng: np.random.Generator, batch_size: int) -> CVRPInstance:
    """Draw instances of CVRP or SDVRP with the distribution of CVRPLIB's set X.

    For each instance, the kinds of depot (central, corner, random), of customers (uniform, clustered, half of
    each) and of demands (seven kinds) are random. The capacity is for routes of 3 to 25 customers.

    Args:
        problem: CVRP or SDVRP, with the default capacity.
        rng: Random number generator.
        batch_size: Number of instances B.

    Raises:
        ValueError: The problem is another one, or has a capacity of its own.
    """
    check_instance_type(problem, CVRPInstance, "set X has instances of CVRP and SDVRP only")
    if problem != type(problem)(problem.num_nodes, matrices=problem.matrices):
        raise ValueError("instances of set X have capacities of their own; leave out capacity")
    size = problem.num_nodes
    coords = rng.random((batch_size, size + 1, 2))
    depot = rng.integers(3, size=batch_size)
    coords[depot == 0, 0] = 0.5
    coords[depot == 1, 0] = 0.0
    coords[:, 1:] = places(rng, coords[:, 1:])
    demand = np.zeros((batch_size, size + 1), np.int64)
    demand[:, 1:] = demands(rng, coords[:, 1:])
    route_size = rng.triangular(*ROUTE_SIZES, size=batch_size)
    capacity = np.ceil(route_size * demand.sum(axis=1) / size).astype(np.int64)
    return CVRPInstance(coords.astype(np.float32), demand, np.maximum(capacity, demand.max(axis=1)))


def places(rng: np.random.Generator, points: Floats) -> Floats:
    """Return a copy of points (B, n, 2) in which all, half or none of each row are moved into clusters."""
    shape = points.shape[:2]
    num_moved = rng.choice([0, shape[1] // 2, shape[1]], size=(len(points), 1))
    moved = np.arange(shape[1]) >= shape[1] - num_moved
    num_seeds = rng.integers(FEWEST_SEEDS, MOST_SEEDS + 1, size=(len(points), 1))
    seeds = rng.random((len(points), MOST_SEEDS, 2))
    points = points.copy()
    while moved.any():
        rows, columns = np.nonzero(moved)
        # With the density exp(-distance / DECAY) in the plane, the distance follows Gamma(2).
        distance, angle = rng.gamma(2.0, DECAY, len(rows)), rng.uniform(0, 2 * np.pi, len(rows))
        chosen = seeds[rows, (rng.random(len(rows)) * num_seeds[rows, 0]).astype(int)]
        found = chosen + distance[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
        inside = ((found >= 0) & (found < 1)).all(axis=1)
        points[rows[inside], columns[inside]] = found[inside]
        moved[rows[inside], columns[inside]] = False
    return points


def demands(rng: np.random.Generator, customers: Floats) -> npt.NDArray[np.int64]:
    """Draw the demands (B, n) of customers (B, n, 2).

    Each row has one of seven kinds: one of the five ranges `DEMANDS`; by quadrant, small demands (1 to 50) in two
    opposite quadrants and large ones (51 to 100) in the others; or many small ones (1 to 10) and few large ones (50 to
    100).
    """
    shape = customers.shape[:2]
    kind = rng.integers(len(DEMANDS) + 2, size=(len(customers), 1))
    ranges = np.array([*DEMANDS, (1, 50), (1, 10)])
    least, most = (np.broadcast_to(ranges[kind, end], shape).copy() for end in (0, 1))
    even = (customers[..., 0] < 0.5) == (customers[..., 1] < 0.5)
    few = rng.random(shape) > rng.uniform(0.7, 0.95, size=(len(customers), 1))
    for large, low in (((kind == len(DEMANDS)) & even, 51), ((kind == len(DEMANDS) + 1) & few, 50)):
        least[large], most[large] = low, 100
    return rng.integers(least, most + 1)
