"""`RoutingVecEnv`: plays what `DummyVecEnv` plays, and Stable-Baselines3 and sb3-contrib train on it."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import InvalidAction
from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.utils import get_action_masks, is_masking_supported
from stable_baselines3 import PPO
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecMonitor

import routing_gym
from routing_gym.integrations.sb3 import RoutingVecEnv

LANES = 4


def dummy(env_id, num_envs=LANES, **settings):
    return DummyVecEnv([lambda: gym.make(env_id, **settings) for _ in range(num_envs)])


def choose(rng, masks, wild):
    """Draw a legal node for each lane, but any node with probability `wild`."""
    legal = [rng.choice(np.flatnonzero(mask)) for mask in masks]
    return np.where(rng.random(len(masks)) < wild, rng.integers(masks.shape[1], size=len(masks)), legal)


def assert_same(ours, theirs):
    """Compare values and dtypes; of dictionaries, entry by entry."""
    if isinstance(theirs, dict):
        assert ours.keys() == theirs.keys()
        for key, value in theirs.items():
            assert_same(ours[key], value)
        return
    assert np.asarray(ours).dtype == np.asarray(theirs).dtype
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("name", ["TSP", "SDVRP", "ATSP"])
def test_equals_dummy_vec_env(name):
    """Illegal actions end some episodes early, so that lanes of the TSP, too, start anew at different steps."""
    ours, theirs = RoutingVecEnv(f"routing/{name}-10", num_envs=LANES), dummy(f"routing/{name}-10")
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    assert ours.seed(7) == theirs.seed(7) == [7, 8, 9, 10]
    assert_same(ours.reset(), theirs.reset())
    rng, endings = np.random.default_rng(0), np.zeros((60, LANES), dtype=bool)
    for step in range(60):
        masks = get_action_masks(ours)
        assert_same(masks, get_action_masks(theirs))
        actions = choose(rng, masks, wild=0.05)
        observations, rewards, dones, infos = ours.step(actions)
        expected = theirs.step(actions)
        assert_same(observations, expected[0])
        assert_same(rewards, expected[1])
        assert_same(dones, expected[2])
        for lane, done in enumerate(dones):
            assert_same(infos[lane], expected[3][lane] if done else {})
            assert_same(ours.reset_infos[lane], theirs.reset_infos[lane])
        endings[step] = dones
    assert endings.sum(axis=0).min() >= 2
    assert (endings.any(axis=1) & ~endings.all(axis=1)).any()  # desynchronised


def test_seeds_count_once_and_go_on():
    """Without a new seed, the next reset goes on with the lanes' generators, as in DummyVecEnv."""
    ours, theirs = RoutingVecEnv("routing/CVRP-10", num_envs=2), dummy("routing/CVRP-10", 2)
    for env in (ours, theirs):
        env.seed(3)
    first = ours.reset()
    assert_same(first, theirs.reset())
    second = ours.reset()
    assert_same(second, theirs.reset())
    assert (first["coords"] != second["coords"]).any()
    ours.seed(3)
    assert_same(ours.reset(), first)


def test_what_was_returned_stays():
    env = RoutingVecEnv("routing/TSP-10", num_envs=2)
    env.seed(0)
    observations = env.reset()
    kept = {key: value.copy() for key, value in observations.items()}
    _, rewards, dones, infos = env.step(np.array([1, 2]))
    env.step(np.array([1, 3]))  # illegal in lane 0
    assert_same(observations, kept)
    assert rewards.tolist() == [0.0, 0.0]  # the first city costs nothing
    assert not dones.any()
    assert infos == [{}, {}]


def test_instances_of_ones_own():
    """A square of side 0.5: four sides are 2; `set_options` counts once, and each lane has its own row."""
    square = np.array([[[0, 0], [0.5, 0], [0.5, 0.5], [0, 0.5]]], dtype=np.float32)
    instances = [routing_gym.TSPInstance(coords=coords) for coords in (square, square / 2)]
    env = RoutingVecEnv("routing/TSP", num_envs=2, num_nodes=4)
    env.set_options([{"instance": instance} for instance in instances])
    env.reset()
    for node in range(4):
        _, _, dones, infos = env.step(np.array([node, node]))
    assert dones.all()
    assert [info["cost"] for info in infos] == [2.0, 1.0]
    env.set_options({"instance": instances[1]})
    np.testing.assert_array_equal(env.reset()["coords"], np.concatenate([square / 2] * 2))
    assert (env.reset()["coords"] != square / 2).any()
    env.set_options([{"instance": instances[0]}, {}])
    with pytest.raises(ValueError, match="give an instance to each of the 2 lanes, not to 1"):
        env.reset()
    env.set_options({"instances": instances[0]})
    with pytest.raises(ValueError, match="unknown instances; known are instance"):
        env.reset()


def test_attributes_of_lanes():
    env = RoutingVecEnv(routing_gym.RoutingVectorEnv("OP", 10, num_envs=3, autoreset_mode="SameStep"))
    env.seed(5)
    env.reset()
    env.step(np.array([1, 2, 3]))
    assert [tour.tolist() for tour in env.get_attr("tour")] == [[1], [2], [3]]
    assert env.get_attr("problem", indices=[0, 2]) == [routing_gym.OP(10)] * 2
    assert env.get_attr("np_random_seed", indices=1) == [6]
    assert env.get_attr("action_space", 0) == [gym.spaces.Discrete(11)]
    assert env.get_attr("observation_space", 0) == [env.observation_space]
    single = gym.make("routing/OP-10")
    single.reset(seed=7)
    assert_same(env.get_attr("instance", 2)[0].coords, single.unwrapped.instance.coords)
    with pytest.raises(AttributeError, match="no attribute 'tours'"):
        env.get_attr("tours")
    with pytest.raises(AttributeError, match="get_state is a method; env_method calls action_masks and render"):
        env.get_attr("get_state")
    assert [env.has_attr(name) for name in ("action_masks", "generator", "tour", "get_state", "tours")] == [
        *[True] * 3,
        *[False] * 2,
    ]


def test_generator_can_be_changed():
    env = RoutingVecEnv("routing/TSP-10", num_envs=2)
    corner = routing_gym.TSPInstance(coords=np.linspace(0, 0.1, 20, dtype=np.float32).reshape(1, 10, 2))
    env.set_attr("generator", lambda rng, batch_size: corner)
    np.testing.assert_array_equal(env.reset()["coords"], np.concatenate([corner.coords] * 2))
    with pytest.raises(ValueError, match="all lanes share one generator; leave indices out"):
        env.set_attr("generator", None, indices=0)
    with pytest.raises(AttributeError, match="only generator can be changed; make another RoutingVecEnv for problem"):
        env.set_attr("problem", routing_gym.TSP(20))


def test_methods_of_lanes():
    env = VecMonitor(RoutingVecEnv("routing/TSP-10", num_envs=3))
    env.reset()
    env.step(np.array([4, 5, 6]))
    assert is_masking_supported(env)
    assert [np.flatnonzero(~mask).tolist() for mask in env.env_method("action_masks")] == [[4], [5], [6]]
    assert [np.flatnonzero(~mask).tolist() for mask in env.env_method("action_masks", indices=[2, 0])] == [[6], [4]]
    assert env.env_is_wrapped(Monitor) == [False] * 3
    assert env.env_is_wrapped(Monitor, indices=1) == [False]
    with pytest.raises(AttributeError, match="expected action_masks or render, got 'get_state'; call others on"):
        env.env_method("get_state")


def test_pictures_are_tiled():
    """Three lanes are tiled two by two."""
    pytest.importorskip("matplotlib")
    env = RoutingVecEnv("routing/TSP-10", num_envs=3, render_mode="rgb_array")
    env.reset()
    height, width, channels = env.get_images()[0].shape
    assert env.render().shape == (2 * height, 2 * width, channels)
    text = RoutingVecEnv("routing/TSP-10", num_envs=2, render_mode="ansi")
    text.reset()
    assert all(isinstance(picture, str) for picture in text.env_method("render"))
    text.close()


def test_maskable_ppo_obeys_masks(tmp_path):
    """An illegal action would raise; a TSP-10 episode has 10 steps; the model can be saved and loaded."""
    env = VecMonitor(RoutingVecEnv("routing/TSP-10", num_envs=8, on_illegal="raise"), info_keywords=("cost",))
    model = MaskablePPO("MultiInputPolicy", env, n_steps=20, batch_size=80, n_epochs=2, seed=0, device="cpu")
    before = model.policy.action_net.weight.detach().clone()
    model.learn(480)
    assert (model.policy.action_net.weight != before).any()
    assert [episode["l"] for episode in model.ep_info_buffer] == [10] * 48
    for episode in model.ep_info_buffer:
        assert episode["r"] == pytest.approx(-episode["cost"], rel=1e-5)
    model.save(tmp_path / "model")
    loaded = MaskablePPO.load(tmp_path / "model", env=env, device="cpu")
    observations = env.reset()
    chosen = [
        m.predict(observations, deterministic=True, action_masks=get_action_masks(env))[0] for m in (model, loaded)
    ]
    np.testing.assert_array_equal(*chosen)


def test_ppo_learns_without_masks():
    env = VecMonitor(RoutingVecEnv("routing/CVRP-10", num_envs=4), info_keywords=("illegal_action",))
    model = PPO("MultiInputPolicy", env, n_steps=30, batch_size=60, n_epochs=1, seed=0, device="cpu").learn(240)
    assert any(episode["illegal_action"] for episode in model.ep_info_buffer)


def test_ppo_is_told_of_masks():
    env = RoutingVecEnv("routing/TSP-10", num_envs=4, on_illegal="raise")
    model = PPO("MultiInputPolicy", env, n_steps=30, batch_size=60, seed=0, device="cpu")
    with pytest.raises(InvalidAction, match='knows no masks .* needs on_illegal="terminate"; sb3_contrib.MaskablePPO'):
        model.learn(120)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"autoreset_mode": "NextStep"}, "needs autoreset_mode='SameStep', got 'NextStep'; pass autoreset_mode="),
        ({"copy": False}, "needs copy=True, got False; pass copy=True"),
        ({"backend": "torch"}, "needs backend='numpy', got 'torch'; pass backend='numpy'"),
    ],
)
def test_refuses_what_it_cannot_carry(settings, message):
    with pytest.raises(ValueError, match=message):
        RoutingVecEnv("routing/TSP-10", num_envs=2, **settings)
    made = routing_gym.RoutingVectorEnv("TSP", 10, 2, **{"autoreset_mode": "SameStep", **settings})
    with pytest.raises(ValueError, match=message):
        RoutingVecEnv(made)


def test_arguments():
    made = routing_gym.RoutingVectorEnv("TSP", 10, 2, autoreset_mode="SameStep")
    with pytest.raises(TypeError, match=r'num_envs is missing; as in RoutingVecEnv\("routing/TSP-10", num_envs=64\)'):
        RoutingVecEnv("routing/TSP-10")
    with pytest.raises(TypeError, match="num_envs, reward: only with an id"):
        RoutingVecEnv(made, num_envs=2, reward="sparse")
    with pytest.raises(TypeError, match="Other keywords of RoutingVectorEnv"):
        RoutingVecEnv("routing/TSP-10", num_envs=2, rewards="sparse")
    with pytest.raises(TypeError, match="a RoutingVectorEnv without wrappers .*; got OrderEnforcing"):
        RoutingVecEnv(gym.make("routing/TSP-10"))
    for other in ("routing/DVRPTW", "CartPole-v1", "MountainCar-v0"):
        with pytest.raises(TypeError, match=f"env: expected an id .*use Stable-Baselines3's own .*; got '{other}'"):
            RoutingVecEnv(other, num_envs=2)
