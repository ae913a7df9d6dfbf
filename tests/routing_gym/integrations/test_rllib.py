"""RLlib: what `make_env` gives, and, where Ray is installed (`make test-integrations`), training on it."""

import os
from importlib.util import find_spec

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.error import InvalidAction

from helpers import AGENTS, ROOT
from routing_gym.integrations.rllib import RLlibEnv, RLlibVectorEnv, make_env
from routing_gym.problems import PROBLEMS

needs_ray = pytest.mark.skipif(
    find_spec("ray") is None, reason="Ray has an environment of its own: make test-integrations"
)


def first_legal(observation):
    return observation["action_mask"].argmax(axis=-1)


@pytest.mark.parametrize("name", ["TSP", "OP", "ATSP"])
def test_single_environment(name):
    """Flat observations are those of `gymnasium.spaces.flatten`, and the mask is an input like the others."""
    env_id = f"routing/{name}-10"
    plain, nested, flat = gym.make(env_id), make_env({"env_id": env_id, "flat": False}), make_env({"env_id": env_id})
    expected, _ = plain.reset(seed=3)
    seen, info = nested.reset(seed=3)
    vector, _ = flat.reset(seed=3)
    terminated = False
    while not terminated:
        assert seen in nested.observation_space
        assert vector in flat.observation_space
        np.testing.assert_array_equal(seen["action_mask"], expected["action_mask"])
        assert seen["observations"].keys() == expected.keys()
        assert seen["observations"] in plain.observation_space
        for key, value in expected.items():
            np.testing.assert_array_equal(seen["observations"][key], value)
        np.testing.assert_allclose(vector["observations"], spaces.flatten(plain.observation_space, expected))
        action = first_legal(seen)
        expected, reward, terminated, _, _ = plain.step(action)
        seen, same_reward, *_, info = nested.step(action)
        vector, *_ = flat.step(action)
        assert same_reward == reward
    assert info["cost"] > 0 or PROBLEMS[name].maximises


@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.parametrize("name", ["TSP", "SDVRP"])
def test_lanes_equal_single_environments(name, flat):
    config = {"env_id": f"routing/{name}-10", "flat": flat}
    env, singles = make_env({**config, "num_envs": 2}), [make_env(config) for _ in range(2)]
    assert isinstance(env, RLlibVectorEnv)
    assert env.single_observation_space == singles[0].observation_space
    seen, _ = env.reset(seed=[4, 7])
    rows = [single.reset(seed=seed)[0] for single, seed in zip(singles, [4, 7], strict=True)]
    assert seen in env.observation_space
    for _ in range(9):
        for lane, row in enumerate(rows):
            inner, outer = row["observations"], seen["observations"]
            for key in inner if not flat else [...]:
                np.testing.assert_array_equal(outer[key][lane] if key is not ... else outer[lane], inner[key])
            np.testing.assert_array_equal(seen["action_mask"][lane], row["action_mask"])
        actions = first_legal(seen)
        seen, *_ = env.step(actions)
        rows = [single.step(action)[0] for single, action in zip(singles, actions, strict=True)]


def test_env_runners_play_different_instances():
    """RLlib seeds env runner k with seed + k; with seed + lane, 7 of 8 lanes would be the next runner's."""
    played = []
    for worker in (1, 2):
        env = make_env({"env_id": "routing/TSP-10", "num_envs": 8, "flat": False})
        played.append(env.reset(seed=100 + worker)[0]["observations"]["coords"])
        np.testing.assert_array_equal(env.reset(seed=100 + worker)[0]["observations"]["coords"], played[-1])
    assert len(np.unique(np.concatenate(played)[:, 0, 0])) == 16


@pytest.mark.parametrize("num_envs", [None, 2])
def test_unmasked_algorithms_are_told_what_they_need(num_envs):
    env = make_env({"env_id": "routing/TSP-10", "on_illegal": "raise", "num_envs": num_envs})
    env.reset(seed=0)
    actions = 3 if num_envs is None else np.array([3, 3])
    env.step(actions)
    with pytest.raises(InvalidAction, match="node 3 is illegal") as caught:
        env.step(actions)
    assert 'needs on_illegal="terminate", the default' in caught.value.__notes__[0]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"autoreset_mode": "SameStep"}, "needs autoreset_mode='NextStep', got 'SameStep'; pass autoreset_mode="),
        ({"copy": False}, "RLlib needs copy=True, got False; pass copy=True"),
        ({"backend": "torch"}, "RLlib needs backend='numpy', got 'torch'; pass backend='numpy'"),
    ],
)
def test_refuses_what_it_cannot_carry(settings, message):
    with pytest.raises(ValueError, match=message):
        make_env({"env_id": "routing/TSP-10", "num_envs": 2, **settings})


def test_arguments():
    with pytest.raises(TypeError, match='"env_id" is missing; as in env_config'):
        make_env({"reward": "sparse"})
    with pytest.raises(TypeError, match="rewards"):
        make_env({"env_id": "routing/TSP-10", "rewards": "sparse"})
    with pytest.raises(TypeError, match="expected the Dict observations of a RoutingEnv"):
        RLlibEnv(RLlibEnv(gym.make("routing/TSP-10")))
    with pytest.raises(TypeError, match="a RoutingVectorEnv without wrappers .*; got SyncVectorEnv"):
        RLlibVectorEnv(gym.make_vec("routing/TSP-10", num_envs=2, vectorization_mode="sync"))


@needs_ray
def test_the_attention_model_learns(capsys, monkeypatch):
    """With two env runners; an illegal action would raise. Greedy tours must be a fifth shorter than random ones."""
    paths = os.pathsep.join(map(str, (ROOT / "examples", AGENTS)))
    monkeypatch.setenv("PYTHONPATH", paths)  # of Ray's workers, which know the folder of a script, but not pytest's
    import rllib_ppo

    sizes = {"embed_dim": 32, "num_heads": 2, "num_layers": 1, "feed_forward_dim": 32, "normalization": "instance"}
    with pytest.raises(ValueError, match="--num-env-runners must be an integer of at least 0, got -1"):
        rllib_ppo.Args(num_env_runners=-1)
    args = rllib_ppo.Args(
        num_envs=32,
        batch_size=1280,
        minibatch_size=256,
        iterations=4,
        model=rllib_ppo.ModelConfig(**sizes),
        held_out=256,
    )
    greedy, random = rllib_ppo.main(args)
    assert greedy < 0.8 * random
    assert not rllib_ppo.ray.is_initialized()
    assert "greedy" in capsys.readouterr().out


@needs_ray
@pytest.mark.filterwarnings("ignore:.*rllib-single-agent-env-v0 already in registry:UserWarning")  # RLlib's own name
@pytest.mark.parametrize("mode", ["vector_entry_point", "sync"])
def test_module_of_rllib_obeys_the_mask(mode):
    """An illegal action would raise; the episodes of a TSP-10 have 10 steps."""
    import ray
    from ray import tune
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.core.rl_module.rl_module import RLModuleSpec
    from ray.rllib.examples.rl_modules.classes.action_masking_rlm import ActionMaskingTorchRLModule

    ray.init("local", num_cpus=1, include_dashboard=False, log_to_driver=False)
    try:
        tune.register_env("routing", make_env)
        config = PPOConfig().environment("routing", env_config={"env_id": "routing/TSP-10", "on_illegal": "raise"})
        config.env_runners(num_env_runners=0, num_envs_per_env_runner=8, gym_env_vectorize_mode=mode)
        config.rl_module(rl_module_spec=RLModuleSpec(module_class=ActionMaskingTorchRLModule))
        config.training(train_batch_size_per_learner=160, minibatch_size=80, num_epochs=1).debugging(seed=0)
        algorithm = config.build_algo()
        episodes = algorithm.train()["env_runners"]
        algorithm.stop()
    finally:
        ray.shutdown()
    assert episodes["num_episodes"] >= 8
    assert episodes["episode_len_min"] == episodes["episode_len_max"] == 10
