"""Subproblems of a TSP tour as instances of TSPFE: edges of nearby cities are removed, other paths become fixed edges.

Large-neighbourhood search solves them (`routing_agents.search.segments`); `windows` generates them for training.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from routing_gym.arrays import FloatArray, IntArray, euclidean
from routing_gym.problem import AnyProblem
from routing_gym.problems.checks import check_instance_type
from routing_gym.problems.tspfe import TSPFEInstance
from routing_gym.solvers.constructive.greedy_edge import greedy_tour
from routing_gym.solvers.constructive.local_search import improve_all

POOL_TOURS, POOL_CITIES, POOL_SEED = 64, 300, 20
WINDOWS_PER_TOUR = 8  # most subproblems of one tour in a batch


@dataclass(frozen=True)
class Windows:
    """W subproblems of k cities each: first the relevant cities in the order of the tour, then twins."""

    cities: IntArray  # int64 (W, k)
    partner: IntArray  # int64 (W, k), column of the other end of a fixed edge; the city's own column for none
    falls: npt.NDArray[np.bool_]  # (W, k), whether the edge to the next city is removed
    count: IntArray  # int64 (W,), number of cities without twins


def choose_windows(
    near: IntArray, tour: IntArray, place: IntArray, centres: IntArray, size: int, most: int
) -> IntArray:
    """For each centre, select nearby unassigned cities and their neighbours on the tour.

    Including the neighbours removes all edges of the cities around the centre, even long ones.

    Args:
        near: Nearest cities of each city, itself first: int64 (n, m).
        tour: Tour: int64 (n,).
        place: Position of each city on the tour: int64 (n,).
        centres: Centres in the order in which they are tried: int64, any number.
        size: Number of cities of a subproblem.
        most: Largest number of subproblems.

    Returns:
        Cities of the subproblems: int64 (W, size), no city twice.
    """
    free = np.ones(len(near), dtype=bool)
    windows: list[IntArray] = []
    for centre in centres:
        if free[centre]:
            around = near[centre]
            where = place[around]
            cities = np.stack([around, tour[where - 1], tour[(where + 1) % len(tour)]], axis=1).ravel()
            cities = cities[np.sort(np.unique(cities, return_index=True)[1])]
            cities = cities[free[cities]][:size]
            if len(cities) == size:
                free[cities] = False
                windows.append(cities)
                if len(windows) == most:
                    break
    return np.array(windows).reshape(-1, size)


def contract(tour: IntArray, place: IntArray, chosen: IntArray) -> Windows:
    """Contract the paths outside the subproblems to fixed edges.

    A city whose two neighbours on the tour are outside its subproblem is merged into the path through it. To keep k
    cities per subproblem, cities without a fixed edge get a twin at the same location, joined to them by a fixed edge.
    Subproblems with too few such cities are left out.

    Args:
        tour: Tour: int64 (n,).
        place: Position of each city on the tour: int64 (n,).
        chosen: Cities of each subproblem: int64 (W, k).
    """
    size = chosen.shape[1]
    places = np.sort(place[chosen], axis=1)
    after = np.roll(places, -1, axis=1) - places
    after[:, -1] += len(tour)
    leaves = after > 1  # a path outside leads to the next city of the subproblem
    enters = np.roll(leaves, 1, axis=1)
    passed, free = leaves & enters, ~leaves & ~enters
    enough = free.sum(axis=1) >= passed.sum(axis=1)
    places, leaves, enters, passed = (x[enough] for x in (places, leaves, enters, passed))
    order = np.argsort(passed, axis=1, kind="stable")
    cities = np.take_along_axis(tour[places], order, axis=1)
    leaves, enters, passed = (np.take_along_axis(x, order, axis=1) for x in (leaves, enters, passed))
    count = size - passed.sum(axis=1)[:, None]
    column = np.arange(size)
    partner = np.where(leaves, (column + 1) % count, np.where(enters, (column - 1) % count, column))
    singles = np.argsort(leaves | enters, axis=1, kind="stable")  # those without a fixed edge first
    rows, twins = np.nonzero(passed)
    originals = singles[rows, twins - count[rows, 0]]
    cities[rows, twins] = cities[rows, originals]
    partner[rows, twins], partner[rows, originals] = originals, twins
    return Windows(cities, partner, ~leaves & ~passed, count[:, 0])


def windows(problem: AnyProblem, rng: np.random.Generator, batch_size: int) -> TSPFEInstance:
    """Draw subproblems of a fixed pool of tours.

    The tours are built by greedy edge insertion; every second one is then improved by 2-opt and Or-opt. The
    subproblems, their rotations and reflections, and the order of their cities are random.

    Args:
        problem: TSPFE.
        rng: Random number generator.
        batch_size: Number of instances B.

    Raises:
        ValueError: The problem is another one, or has more cities than the tours.
    """
    check_instance_type(problem, TSPFEInstance, "windows of a tour are instances of TSPFE only")
    if problem.num_nodes > POOL_CITIES:
        raise ValueError(
            f"num_nodes is {problem.num_nodes}, but tours have {POOL_CITIES} cities; choose at most as many"
        )
    places, tours, near = tour_pool()
    coords, partner, missing = [], [], batch_size
    while missing > 0:
        index = rng.integers(POOL_TOURS)
        tour, place = tours[index], np.argsort(tours[index])
        centres = rng.permutation(POOL_CITIES)[: 2 * WINDOWS_PER_TOUR]
        chosen = choose_windows(near[index], tour, place, centres, problem.num_nodes, min(missing, WINDOWS_PER_TOUR))
        found = contract(tour, place, chosen)
        coords.append(places[index][found.cities])
        partner.append(found.partner)
        missing -= len(found.cities)
    order = np.argsort(rng.random((batch_size, problem.num_nodes)), axis=1)
    column = np.argsort(order, axis=1)  # column of each city in the random order
    mates = np.take_along_axis(column, np.take_along_axis(np.concatenate(partner), order, axis=1), axis=1)
    views = random_views(np.concatenate(coords), rng)
    return TSPFEInstance(np.take_along_axis(views, order[:, :, None], axis=1), mates)


@cache
def tour_pool() -> tuple[FloatArray, IntArray, IntArray]:
    """Compute the tours for `windows`: coordinates (P, n, 2), tours (P, n), and each city's nearest cities (P, n, n).

    This takes about ten seconds, once per process.
    """
    coords = np.random.default_rng(POOL_SEED).random((POOL_TOURS, POOL_CITIES, 2))
    tours = np.stack([greedy_tour(points) for points in coords])
    distances = euclidean(coords[:, :, None], coords[:, None])
    for index in range(0, POOL_TOURS, 2):  # one at a time: more would not fit into the processor's cache
        improve_all(tours[index : index + 1], distances[index : index + 1], reverses=True, moves_segments=True)
    return coords, tours, np.argsort(distances, axis=2, kind="stable")


def random_views(coords: FloatArray, rng: np.random.Generator) -> npt.NDArray[np.float32]:
    """Rotate B sets of points (B, A, 2) by random angles, reflect half of them, and fit them into the unit square."""
    angle = rng.uniform(0, 2 * np.pi, len(coords))
    cosine, sine = np.cos(angle), np.sin(angle)
    mirror = rng.choice([-1.0, 1.0], len(coords))
    turn = np.array([[cosine, -sine], [mirror * sine, mirror * cosine]])  # (2, 2, B)
    turned = np.einsum("ijb,baj->bai", turn, coords)
    turned -= turned.min(axis=1, keepdims=True)
    extent = turned.max(axis=(1, 2), keepdims=True)
    return np.asarray(turned / np.where(extent > 0, extent, 1), dtype=np.float32)
