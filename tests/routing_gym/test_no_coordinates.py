"""ATSP: values worked out by hand; and a problem without coordinates in everything that serves all problems."""

from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import pytest

from routing_gym import ATSP, ATSPInstance, InvalidInstance, RoutingEnv, render
from routing_gym.arrays import batch_size, device_of, to_backend
from routing_gym.problems.matrices import shortest_paths
from routing_gym.render.figure import positions
from routing_gym.render.text import to_text
from routing_gym.rollout import rollout
from routing_gym.sampling import sample_actions
from routing_gym.testing import check_vector_env

ONE_WAY = np.array([[[0, 1, 9], [9, 0, 2], [3, 9, 0]]], dtype=np.float32)  # 0 -> 1 -> 2 -> 0 is 6, backwards 27


@dataclass(frozen=True)
class Unregistered(ATSP):
    """A problem of a user's own."""


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_vector_envs_take_a_problem_that_is_in_no_registry():
    gym.register(
        "test/ATSP-v0",
        "routing_gym.envs:RoutingEnv",
        vector_entry_point="routing_gym.envs:RoutingVectorEnv",
        kwargs={"problem": Unregistered(5)},
    )
    try:
        check_vector_env("test/ATSP-v0")
    finally:
        del gym.registry["test/ATSP-v0"]


def test_episodes_by_hand():
    """The tour 0, 1, 2 costs 1 + 2 + 3 = 6 and the other way round 9 + 9 + 9 = 27; no tour more than 3 x 9."""
    env = RoutingEnv(ATSP(3))
    observation, _ = env.reset(options={"instance": ATSPInstance(ONE_WAY)})
    np.testing.assert_array_equal(observation["distances"], ONE_WAY[0])
    assert [env.step(node)[1] for node in (0, 1, 2)] == [0.0, -1.0, -5.0]
    problem, both = ATSP(3), ATSPInstance(np.concatenate([ONE_WAY, ONE_WAY]))
    assert problem.objective(both, np.array([[0, 1, 2], [2, 1, 0]])).tolist() == [6.0, 27.0]
    assert problem.cost_bound(both).tolist() == [27.0, 27.0]


def test_generated_instances_are_shortest_paths():
    """From 0 to 2 by 1: 1 + 2 = 3, not 9; from 1 to 0 by 2: 5; from 2 to 1 by 0: 4. All are millionths below 1."""
    expected = [[[0, 1, 3], [5, 0, 2], [3, 4, 0]]]
    assert shortest_paths(ONE_WAY).tolist() == expected
    uniforms = np.full((1, 4), 0.25)
    assert ATSP(2).from_uniforms(uniforms).distances.tolist() == [[[0, 0.25], [0.25, 0]]]
    distances = ATSP(9).generate(np.random.default_rng(0), 5).distances
    detours = (distances[:, :, :, None] + distances[:, None]).min(axis=2)
    np.testing.assert_allclose(distances, detours, atol=1e-7)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        ((0, 0, 1), -1, r"distances: row 0, index \(0, 1\) is -1.0, expected finite and at least 0"),
        ((0, 2, 1), np.nan, r"distances: row 0, index \(2, 1\) is nan, expected finite"),
        ((0, 1, 1), 2, "distances: the way from a node to itself must be 0, but row 0, node 1 is 2.0 away from itself"),
    ],
)
def test_matrices_that_make_no_sense(place, value, message):
    distances = ONE_WAY.copy()
    distances[place] = value
    with pytest.raises(InvalidInstance, match=message):
        ATSP(3).validate(ATSPInstance(distances))
    with pytest.raises(InvalidInstance, match=r"distances: expected shape \(B, 3, 3\), got \(1, 2, 3\)"):
        ATSP(3).validate(ATSPInstance(ONE_WAY[:, :2]))


@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_rollout_and_its_size_and_device(backend):
    if backend == "torch":
        pytest.importorskip("torch")
    problem = ATSP(6)
    instance = to_backend(problem.generate(np.random.default_rng(0), 4), backend)
    assert (batch_size(instance), str(device_of(instance))) == (4, "cpu")
    rng = np.random.default_rng(1)
    played = rollout(problem, instance, lambda seen: sample_actions(seen["action_mask"], rng))
    np.testing.assert_allclose(played.cost, problem.objective(instance, played.actions), atol=1e-5)


def test_nodes_without_coordinates_are_drawn_on_a_circle():
    """Four nodes: at the right, above, at the left and below of the middle of the unit square."""
    pytest.importorskip("matplotlib")
    problem = ATSP(4)
    instance = problem.generate(np.random.default_rng(0), 1)
    np.testing.assert_allclose(positions(problem, instance), [[1, 0.5], [0.5, 1], [0, 0.5], [0.5, 0]], atol=1e-6)
    assert render.to_rgb_array(problem, instance, [0, 2, 1, 3]).shape == (660, 600, 3)
    expected = "ATSP-3: cost 6.000, steps 3, complete\nroute 1: 0 -> 1 -> 2 -> 0; length 6.000"
    assert to_text(ATSP(3), ATSPInstance(ONE_WAY), [0, 1, 2]) == expected
