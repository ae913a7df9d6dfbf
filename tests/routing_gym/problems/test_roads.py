"""Street networks by hand, and problems whose instances are matrices: contracts, observations, own numbers."""

from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest

from problem_names import ONE_OF_EACH
from routing_gym import CVRP, TSP, TSPInstance, data, make_problem
from routing_gym.arrays import euclidean, to_backend, use_jax
from routing_gym.problem import instance_fields
from routing_gym.problems.matrices import (
    NO_STREET,
    fastest_ways,
    has_matrices,
    is_passed,
    num_junctions,
    num_road_uniforms,
    road_matrices,
    scaled_like,
    streets,
)
from routing_gym.testing import check_problem, check_vector_env

ON_STREETS = [name for name in ONE_OF_EACH if name != "ATSP"] + ["VRPTW"]


@pytest.mark.parametrize("name", ON_STREETS)
@pytest.mark.filterwarnings("ignore:check_problem. .*not installed, so only:UserWarning")
def test_problems_keep_their_contract_with_matrices(name):
    check_problem(make_problem(name, 6, matrices=True), batch_size=8)


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_vector_env_with_matrices():
    check_vector_env("routing_gym:routing/CVRP-10", matrices=True)


def test_instances_without_matrices_show_what_these_stand_for():
    """In one batch and alone: straight lines. The node at (0.6, 0.8) is 1 away from the origin."""
    coords = np.array([[[0, 0], [0.6, 0.8]]], dtype=np.float32)
    env = gym.make("routing/TSP", num_nodes=2, matrices=True)
    observation, _ = env.reset(options={"instance": TSPInstance(coords)})
    assert observation["distances"].tolist() == pytest.approx(np.array([[0, 1], [1, 0]]), abs=1e-6)
    assert "distances" not in gym.make("routing/TSP-10").observation_space.spaces


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("ATSP", True, "ATSP: matrices are for problems with coordinates and distances; leave it out"),
        ("TSP", "yes", "TSP: matrices must be True or False, got 'yes'"),
    ],
)
def test_matrices_that_are_refused(name, value, message):
    with pytest.raises(ValueError, match=message):
        make_problem(name, 5, matrices=value)


def test_which_pairs_a_third_node_separates():
    """Above the middle of a side of length 1, at 0.1 within its circle, at 0.6 (0.78 from both ends) outside.

    At 0.6 the squares 0.61 + 0.61 exceed 1, so a street stays; but both ways are shorter than 1, so that it is not one
    between neighbours.
    """
    for height, apart, nearer in ((0.1, True, True), (0.6, False, True), (0.9, False, False)):
        points = np.array([[[0, 0], [1, 0], [0.5, height]]])
        d = euclidean(points[:, :, None], points[:, None])
        assert is_passed(d * d, lambda a, b: a + b)[0, 0, 1] == apart
        assert is_passed(d, np.maximum)[0, 0, 1] == nearer


@pytest.mark.parametrize(
    ("chance", "forth", "back"), [(0.1, False, False), (0.3, True, False), (0.7, False, True), (0.9, True, True)]
)
def test_streets_by_hand(chance, forth, back):
    """The side of length 1 of the triangle above may be closed or one-way; the two others, of 0.781, may not.

    Its speed: 0.1 is less than 0.2, so it is fast, 2; 0.6 is half way from 0.2 to 1, so it is half way from 0.5 to 1.
    """
    points = np.array([[[0, 0], [1, 0], [0.5, 0.6]]], dtype=np.float32)
    for speed, duration in ((0.1, 1 / 2), (0.6, 1 / 0.75)):
        uniforms = np.full((1, 3, 3), 0.6)
        uniforms[0, 0, 1], uniforms[0, 1, 0] = speed, chance
        lengths, durations = streets(points, uniforms)
        assert lengths[0, 0, 1] == 1
        assert durations[0, 0, 1] == pytest.approx(duration if forth else NO_STREET)
        assert durations[0, 1, 0] == pytest.approx(duration if back else NO_STREET)
        assert durations[0, [0, 2, 1, 2], [2, 0, 2, 1]] == pytest.approx(0.781025 / 0.75)


@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_lengths_are_those_of_the_fastest_ways(backend):
    """From 0 to 1: directly 1 in a time of 5, by 2 a length of 4 in a time of 2. From 1 to 0 the direct way only."""
    pytest.importorskip(backend)
    lengths = np.array([[[0, 1, 2], [1, 0, 2], [2, 2, 0]]], dtype=np.float32)
    durations = np.array([[[0, 5, 1], [3, 0, 9], [9, 1, 0]]], dtype=np.float32)
    found = fastest_ways(*(to_backend(TSPInstance(x), backend).coords for x in (lengths, durations)))
    expected = [[[0, 4, 2], [1, 0, 3], [3, 2, 0]]], [[[0, 2, 1], [3, 0, 4], [4, 1, 0]]]
    for ways, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.asarray(ways), wanted, atol=1e-6)


def test_matrices_are_scaled():
    """A mean of 2 becomes one of 1; but then 3 is left of 6, more than the diagonal: all is divided by 6 / 1.414."""
    ways = np.array([[[0.0, 2], [2, 0]], [[0, 2], [6, 0]]])
    straight = np.array([[[0, 1.0], [1, 0]], [[0, 1], [3, 0]]])
    np.testing.assert_allclose(scaled_like(ways, straight), [[[0, 1], [1, 0]], [[0, 2**0.5 / 3], [2**0.5, 0]]])


def test_roads_are_like_roads():
    """Every node is reached; ways are in the mean as long as straight lines, and differ from the way back."""
    rng = np.random.default_rng(3)
    coords = rng.random((40, 21, 2)).astype(np.float32)
    matrices = road_matrices(coords, rng.random((40, num_road_uniforms(21))))
    straight = euclidean(coords[:, :, None], coords[:, None])
    for ways in matrices:
        assert ways.dtype == np.float32
        assert ways.max() <= 2**0.5 + 1e-6
        assert ways.mean() == pytest.approx(straight.mean(), rel=0.05)
        assert (np.abs(ways - np.swapaxes(ways, 1, 2)) > 0.01).mean() > 0.2
        assert np.corrcoef(ways.ravel(), straight.ravel())[0, 1] > 0.9
    assert num_junctions(21) == 6  # one for four nodes, and one for the one that is left
    pace = matrices[1] / np.maximum(matrices[0], 1e-3)
    assert pace.std() > 0.1  # there are fast and slow ways


def test_jax_draws_the_same_roads():
    """Of the same numbers: the durations, up to rounding; of ways that take as long either may be chosen."""
    pytest.importorskip("jax")
    jax, problem = use_jax(), CVRP(12, matrices=True)
    uniforms = np.random.default_rng(5).random((6, problem.num_uniforms), dtype=np.float32)
    drawn, ours = jax.jit(problem.from_uniforms)(uniforms), problem.from_uniforms(uniforms)
    assert np.mean(np.abs(np.asarray(drawn.distances) - ours.distances) < 1e-4) > 0.99
    problem.validate(to_backend(problem.generate(np.random.default_rng(1), 3), "numpy"))


def test_own_matrix_without_coordinates():
    """Three stops on a line, 3 and 4 apart: places that reproduce it, and the cost in the owner's unit, 3 + 4 + 7."""
    own = data.from_columns("TSP", {"distances": [[0, 3, 7], [3, 0, 4], [7, 4, 0]]}, matrices=True)
    assert own.cost(np.array([0, 1, 2])) == pytest.approx(14)
    straight = euclidean(own.instance.coords[:, :, None], own.instance.coords[:, None])
    np.testing.assert_allclose(straight, own.instance.distances, atol=1e-6)
    with pytest.raises(ValueError, match="TSP needs x, y; x, y missing"):
        data.from_columns("TSP", {"distances": [[0, 3], [3, 0]]})


def test_every_problem_with_coordinates_has_the_setting():
    for name in ONE_OF_EACH:
        fields = instance_fields(make_problem(name, 4))
        assert ("coords" in fields) == (name != "ATSP")
    assert TSP(5, matrices=True).observed.per_edge == ("distances",)
    assert TSP(5).observed.per_edge == ()


def test_rounded_straight_lines_are_no_matrices():
    """In whatever unit; streets are, and so are lengths without coordinates."""
    instance = make_problem("CVRP", 20).generate(np.random.default_rng(0), 2)
    assert not has_matrices(instance)
    lengths = euclidean(instance.coords[:, :, None], instance.coords[:, None])
    for unit in (1e-3, 1.0, 60.0):
        assert not has_matrices(replace(instance, distances=np.round(100 * lengths) / 100 * unit))
    assert has_matrices(make_problem("CVRP", 20, matrices=True).generate(np.random.default_rng(0), 2))
    assert has_matrices(make_problem("ATSP", 8).generate(np.random.default_rng(0), 1))
    assert not has_matrices(make_problem("TSP", 8).generate(np.random.default_rng(0), 1))
