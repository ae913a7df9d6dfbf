"""TSP with fixed edges: values worked out by hand."""

from itertools import pairwise, permutations

import numpy as np
import pytest

from routing_gym import TSPFE, InfeasibleTour, InvalidInstance, TSPFEInstance, render
from routing_gym.arrays import cast_instance, to_backend
from routing_gym.problems.tspfe import from_fixed_edge, with_fixed_edges

PROBLEM = TSPFE(4)
# The corners of the unit square, in order; a fixed edge along one diagonal.
COORDS = np.array([[[0, 0], [1, 0], [1, 1], [0, 1]]], dtype=np.float32)
PARTNER = np.array([[2, 1, 0, 3]])


@pytest.fixture(params=["numpy", "torch"])
def instance(request):
    if request.param == "torch":
        pytest.importorskip("torch")
    return to_backend(cast_instance(TSPFEInstance(COORDS, PARTNER)), request.param)


@pytest.mark.parametrize("tour", [[0, 2, 1, 3], [2, 0, 1, 3], [1, 0, 2, 3], [0, 1, 3, 2], [3, 2, 0, 1]])
def test_every_tour_along_the_diagonal_takes_both(instance, tour):
    """Two diagonals and two sides: 2 sqrt(2) + 2, from whichever city, also where the fixed edge closes the tour."""
    assert float(PROBLEM.objective(instance, np.array([tour]))[0]) == pytest.approx(2 * 2**0.5 + 2)


def test_the_other_end_comes_next(instance):
    state, masks = PROBLEM.initial(instance), []
    for action in (1, 2, 0, 3):
        masks.append(PROBLEM.action_mask(instance, state)[0].tolist())
        state, _ = PROBLEM.step(instance, state, instance.partner[:, 0] * 0 + action)
    assert bool(PROBLEM.done(instance, state)[0])
    assert masks == [
        [True, True, True, True],
        [True, False, True, True],
        [True, False, False, False],
        [False, False, False, True],
    ]


def test_why_illegal(instance):
    state = PROBLEM.initial(instance)
    state, _ = PROBLEM.step(instance, state, instance.partner[:, 0] * 0 + 2)
    assert PROBLEM.why_illegal(instance, state, 0, 2) == "city 2 is already visited"
    assert PROBLEM.why_illegal(instance, state, 0, 1) == "a fixed edge leads from city 2 to city 0, which comes next"


def test_tours_without_a_fixed_edge_are_refused(instance):
    reason = "row 0, step 0: a fixed edge joins city 0 and city 2, which is not visited right before or after it; do"
    with pytest.raises(InfeasibleTour, match=reason):
        PROBLEM.objective(instance, np.array([[0, 1, 2, 3]]))


def test_tours_start_with_the_fixed_edge_that_would_close_them():
    """0 and 2 at both ends: the walk starts at the last city. In the second row they are neighbours already."""
    tours, partner = np.array([[0, 1, 3, 2], [1, 0, 2, 3]]), PARTNER.repeat(2, axis=0)
    assert from_fixed_edge(tours, partner).tolist() == [[2, 0, 1, 3], [1, 0, 2, 3]]
    assert from_fixed_edge(np.array([[0, 1]]), np.array([[1, 0]])).tolist() == [[0, 1]]


def test_generated_instances_have_up_to_half_as_many_fixed_edges_as_cities():
    """0 to 3 of 7 cities, each as often as the others: 250 of 1,000 each, within 5 standard deviations of 14."""
    partner = TSPFE(7).generate(np.random.default_rng(0), 1000).partner
    assert (np.take_along_axis(partner, partner, axis=1) == np.arange(7)).all()
    num_edges, counts = np.unique((partner != np.arange(7)).sum(axis=1) // 2, return_counts=True)
    assert num_edges.tolist() == [0, 1, 2, 3]
    assert abs(counts - 250).max() < 70


def test_fixed_edges_are_drawn():
    pytest.importorskip("matplotlib")
    figure = render.draw(PROBLEM, TSPFEInstance(COORDS, PARTNER), np.array([], dtype=np.int64))
    (band,) = (line for line in figure.axes[0].lines if line.get_label() == "fixed edge")
    assert band.get_xydata().tolist() == [[0, 0], [1, 1]]


@pytest.mark.parametrize(
    ("partner", "message"),
    [
        ([1, 2, 1, 3], "partner: row 0, city 0 has a fixed edge to city 1, which has one to city 2; give both ends"),
        ([1, 1, 2, 3], "partner: row 0, city 0 has a fixed edge to city 1, which has none; give both ends"),
        ([0, 1, 2, 4], r"partner: row 0, index \(3,\) is 4, expected in \[0, 3\]"),
    ],
)
def test_contradictory_fixed_edges(partner, message):
    with pytest.raises(InvalidInstance, match=message):
        PROBLEM.validate(TSPFEInstance(COORDS, np.array([partner])))


def test_shortest_tours_of_lengthened_distances_have_the_fixed_edge():
    """A diagonal of a square with sides of 10: 2 x 10 + 2 x 14.1 with it, 4 x 10 without."""
    distances = 10 * np.linalg.norm(COORDS[:, :, None] - COORDS[:, None], axis=-1)
    ways = with_fixed_edges(distances, PARTNER)[0]
    tours = [(0, *rest) for rest in permutations(range(1, 4))]
    best = min(tours, key=lambda tour: sum(ways[a, b] for a, b in pairwise((*tour, 0))))
    assert 2 in (best[1], best[-1])
