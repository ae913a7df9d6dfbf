"""Tianshou: `TianshouVectorEnv` plays what its DummyVectorEnv plays, and its algorithms learn on it."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import InvalidAction, ResetNeeded

import routing_gym

REASON = "Tianshou has an environment of its own: make test-integrations"
tianshou_env = pytest.importorskip("tianshou.env", reason=REASON)

from tianshou.algorithm import DQN  # noqa: E402
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy  # noqa: E402
from tianshou.algorithm.optim import AdamOptimizerFactory  # noqa: E402
from tianshou.data import Batch, Collector, VectorReplayBuffer  # noqa: E402
from tianshou.utils.net.common import Net  # noqa: E402

import tianshou_ppo  # noqa: E402
from routing_gym.integrations.tianshou import TianshouEnv, TianshouVectorEnv  # noqa: E402

LANES = 4


def dummy(env_id, flat):
    return tianshou_env.DummyVectorEnv([lambda: TianshouEnv(gym.make(env_id), flat=flat) for _ in range(LANES)])


def choose(rng, masks, wild):
    """Draw a legal node for each lane, but any node with probability `wild`."""
    legal = [rng.choice(np.flatnonzero(mask)) for mask in masks]
    return np.where(rng.random(len(masks)) < wild, rng.integers(masks.shape[1], size=len(masks)), legal)


def assert_same(ours, theirs):
    """Compare a Batch with Tianshou's array of dictionaries."""
    theirs = Batch(theirs)
    assert set(ours.keys()) == set(theirs.keys())
    for key, value in ours.items():
        if isinstance(value, Batch):
            assert_same(value, theirs[key])
        else:
            assert value.dtype == theirs[key].dtype
            np.testing.assert_array_equal(value, theirs[key])


@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.parametrize("name", ["TSP", "SDVRP", "ATSP"])
def test_equals_dummy_vector_env(name, flat):
    """Illegal actions end some episodes early, so that lanes start anew at different steps."""
    env_id = f"routing/{name}-10"
    ours, theirs = TianshouVectorEnv(env_id, LANES, flat=flat), dummy(env_id, flat)
    assert len(ours) == len(theirs)
    assert ours.observation_space[0] == TianshouEnv(gym.make(env_id), flat=flat).observation_space
    assert ours.action_space == theirs.action_space
    assert ours.seed(7) == [7, 8, 9, 10]
    theirs.seed(7)
    observations, _ = ours.reset()
    expected, _ = theirs.reset()
    rng, endings = np.random.default_rng(0), np.zeros((40, LANES), dtype=bool)
    for step in range(40):
        assert_same(observations, expected)
        actions = choose(rng, observations.mask, wild=0.05)
        observations, rewards, terminated, truncated, infos = ours.step(actions)
        expected, expected_rewards, expected_terminated, expected_truncated, expected_infos = theirs.step(actions)
        assert_same(observations, expected)
        for found, wanted in ((rewards, expected_rewards), (terminated, expected_terminated)):
            assert found.dtype == wanted.dtype
            np.testing.assert_array_equal(found, wanted)
        assert not truncated.any()
        assert not expected_truncated.any()
        for info, wanted in zip(infos, expected_infos, strict=True):
            assert info == {key: wanted[key] for key in ("env_id", "illegal_action", "cost")}
        ended = np.flatnonzero(terminated)
        if len(ended):
            observations[ended], _ = ours.reset(ended)
            fresh, _ = theirs.reset(ended)
            expected[ended] = fresh
        endings[step] = terminated
    assert endings.sum(axis=0).min() >= 2
    assert (endings.any(axis=1) & ~endings.all(axis=1)).any()  # at different steps


def test_lanes_are_left_out_as_in_dummy_vector_env():
    """Lanes 0 and 2 stop after their first episode; left out for longer than an episode, they disturb nobody."""
    ours, theirs = TianshouVectorEnv("routing/TSP-10", LANES), dummy("routing/TSP-10", flat=True)
    for env in (ours, theirs):
        env.seed(1)
        env.reset()
    lanes = np.array([1, 3])
    for _ in range(2):
        for node in range(10):
            observations, rewards, *_ = ours.step(np.array([node, node]), lanes)
            expected, expected_rewards, *_ = theirs.step(np.array([node, node]), lanes)
            assert_same(observations, expected)
            np.testing.assert_array_equal(rewards, expected_rewards)
        assert_same(ours.reset(lanes)[0], theirs.reset(lanes)[0])
    with pytest.raises(ResetNeeded, match=r"lane 0: its episode has ended, or a step left it out; call reset\(\[0\]\)"):
        ours.step(np.zeros(LANES, dtype=np.int64))
    assert_same(ours.reset()[0], theirs.reset()[0])  # the lanes' generators are where they should be


def test_a_step_that_is_refused_leaves_no_lane_out():
    env = TianshouVectorEnv("routing/TSP-10", 3)
    env.reset()
    with pytest.raises(InvalidAction, match="node 99 does not exist"):
        env.step(np.array([99]), [0])
    env.step(np.array([0, 1, 2]))


def test_attributes_of_lanes():
    ours, theirs = TianshouVectorEnv("routing/TSP-10", LANES), dummy("routing/TSP-10", flat=True)
    for env in (ours, theirs):
        env.seed(1)
        env.reset()
        env.step(np.arange(LANES))
    for key in ("action_space", "tour", "np_random_seed"):
        assert list(ours.get_env_attr(key)) == list(theirs.get_env_attr(key)), key
    assert ours.get_env_attr("tour", [2])[0].tolist() == [2]
    (instance,) = ours.get_env_attr("instance", 3)
    np.testing.assert_array_equal(instance.coords, theirs.get_env_attr("instance", 3)[0].coords)


def test_ended_episodes_must_be_reset():
    env = TianshouVectorEnv("routing/TSP-10", 2)
    env.reset()
    env.step(np.array([4, 5]))
    _, _, terminated, _, infos = env.step(np.array([1, 5]))  # illegal in lane 1
    assert terminated.tolist() == [False, True]
    assert [info["illegal_action"] for info in infos] == [False, True]
    with pytest.raises(ResetNeeded, match="lane 1: its episode has ended"):
        env.step(np.array([2, 1]))
    with pytest.raises(InvalidAction, match=r"action: expected shape \(1,\), one per lane; got \(2,\)"):
        env.step(np.array([2, 1]), [0])
    env.reset([1])
    env.step(np.array([2, 1]))


def test_reset_takes_a_seed():
    """A Collector passes it on with gym_reset_kwargs={"seed": 3}; the lanes get 3, 4, ..., like from `seed`."""
    seeded, env = (TianshouVectorEnv("routing/TSP-10", LANES) for _ in range(2))
    seeded.seed(3)
    env.reset(seed=3)
    assert_same(env.reset()[0], seeded.reset()[0])


def test_instances_of_ones_own():
    """A square of side 0.5: four sides are 2; and one half as large. Lane 1 plays its own a second time."""
    square = np.array([[0, 0], [0.5, 0], [0.5, 0.5], [0, 0.5]], dtype=np.float32)
    options = {"instance": routing_gym.TSPInstance(coords=np.stack([square, square / 2]))}
    env = TianshouVectorEnv("routing/TSP", 2, num_nodes=4, render_mode="ansi")
    env.reset(options=options)
    for node in range(4):
        *_, infos = env.step(np.array([node, node]))
    assert [info["cost"] for info in infos] == [2.0, 1.0]
    env.reset([1], options=options)
    for node in range(4):
        *_, infos = env.step(np.array([node]), [1])
    assert infos[0]["cost"] == 1.0
    assert "0" in env.render()[0]
    env.close()


def q_network(env):
    """A policy and an algorithm that know the mask: DQN on the flat observations."""
    space, actions = env.observation_space[0]["obs"], env.action_space[0]
    net = Net(state_shape=space.shape, action_shape=actions.n, hidden_sizes=(64, 64))
    policy = DiscreteQLearningPolicy(model=net, action_space=actions, eps_training=0.3)
    return DQN(policy=policy, optim=AdamOptimizerFactory(lr=2e-3), gamma=1.0, target_update_freq=50)


def test_the_attention_model_learns(capsys):
    """An illegal action would raise. Greedy tours must be a fifth shorter than random ones."""
    sizes = {"embed_dim": 32, "num_heads": 2, "num_layers": 1, "feed_forward_dim": 32, "normalization": "instance"}
    greedy, random = tianshou_ppo.main(
        tianshou_ppo.Args(
            epochs=1,
            epoch_steps=5_120,
            num_envs=64,
            batch_size=1280,
            minibatch_size=256,
            model=tianshou_ppo.ModelConfig(**sizes),
            held_out=256,
            progress=False,
        )
    )
    assert greedy < 0.8 * random
    assert "greedy" in capsys.readouterr().out


def test_unmasked_algorithms_are_told_what_they_need():
    """`random=True` samples from the action space without a mask, as an unmasked actor would."""
    for flat in (True, False):
        env = TianshouVectorEnv("routing/TSP-10", 8, flat=flat, on_illegal="raise")
        collector = Collector(q_network(TianshouVectorEnv("routing/TSP-10", 8)), env, VectorReplayBuffer(160, 8))
        with pytest.raises(InvalidAction, match="is illegal") as caught:
            collector.collect(n_step=160, random=True, reset_before_collect=True)
        assert 'needs on_illegal="terminate", the default' in caught.value.__notes__[0]
    env = TianshouVectorEnv("routing/TSP-10", 8)
    stats = Collector(q_network(env), env, VectorReplayBuffer(160, 8)).collect(
        n_step=160, random=True, reset_before_collect=True
    )
    assert stats.lens.min() < 10


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"autoreset_mode": "NextStep"}, "needs autoreset_mode='Disabled', got 'NextStep'; pass autoreset_mode="),
        ({"copy": False}, "Tianshou needs copy=True, got False; pass copy=True"),
        ({"backend": "torch"}, "Tianshou needs backend='numpy', got 'torch'; pass backend='numpy'"),
    ],
)
def test_refuses_what_it_cannot_carry(settings, message):
    with pytest.raises(ValueError, match=message):
        TianshouVectorEnv("routing/TSP-10", 2, **settings)
    made = routing_gym.RoutingVectorEnv("TSP", 10, 2, **{"autoreset_mode": "Disabled", **settings})
    with pytest.raises(ValueError, match=message):
        TianshouVectorEnv(made)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"repeats": 0}, "--repeats must be an integer of at least 1, got 0"),
        ({"batch_size": 100}, "--batch-size 100 is not a multiple of --num-envs 128"),
    ],
)
def test_arguments_of_the_script(changes, message):
    with pytest.raises(ValueError, match=message):
        tianshou_ppo.Args(**changes)


def test_arguments():
    made = routing_gym.RoutingVectorEnv("TSP", 10, 2, autoreset_mode="Disabled")
    assert TianshouVectorEnv(made).vector_env is made
    with pytest.raises(TypeError, match=r'num_envs is missing; as in TianshouVectorEnv\("routing/TSP-10"'):
        TianshouVectorEnv("routing/TSP-10")
    with pytest.raises(TypeError, match="num_envs, reward: only with an id"):
        TianshouVectorEnv(made, 2, reward="sparse")
    with pytest.raises(TypeError, match="a RoutingVectorEnv without wrappers .*; got OrderEnforcing"):
        TianshouVectorEnv(gym.make("routing/TSP-10"))
    with pytest.raises(TypeError, match="expected the Dict observations of a RoutingEnv"):
        TianshouEnv(TianshouEnv(gym.make("routing/TSP-10")))
    with pytest.raises(AttributeError, match="make another TianshouVectorEnv, with another generator"):
        TianshouVectorEnv(made).set_env_attr("generator", None)
