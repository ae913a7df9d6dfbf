"""The attention policy of MaskablePPO: masks, ratios, grouping, checkpoints, and a real learning check."""

import dataclasses
import json

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.evaluation import evaluate_policy
from stable_baselines3 import PPO
from stable_baselines3.common.utils import obs_as_tensor
from stable_baselines3.common.vec_env import DummyVecEnv, VecMonitor

import sb3_maskable_ppo
from benchmarks.training import sb3_curves
from problem_names import ONE_OF_EACH
from routing_agents.policies.attention.features import features_named
from routing_agents.policies.attention.model import ModelConfig
from routing_agents.policies.attention.sb3_policy import AttentionPolicy, LaneRolloutBuffer, find_features, group_rows
from routing_gym.integrations.sb3 import RoutingVecEnv

LANES = 4
SMALL = ModelConfig(embed_dim=16, num_heads=2, num_layers=1, feed_forward_dim=16, normalization="instance")


def make_model(env_id="routing/TSP-10", num_envs=LANES, config=SMALL, **settings):
    """Illegal actions raise."""
    env = VecMonitor(RoutingVecEnv(env_id, num_envs=num_envs, on_illegal="raise"))
    defaults = {"n_steps": 8, "batch_size": 16, "n_epochs": 2, "gamma": 1.0, "seed": 0, "device": "cpu"}
    defaults |= {"policy_kwargs": {"config": config}, "rollout_buffer_class": LaneRolloutBuffer}
    return MaskablePPO(AttentionPolicy, env, **{**defaults, **settings})


def played(model, num_steps=9):
    """Observations and masks of random legal play; lanes start anew by themselves."""
    env, rng = model.get_env(), np.random.default_rng(0)
    observation = env.reset()
    for _ in range(num_steps):
        mask = np.stack(env.env_method("action_masks"))
        yield observation, mask
        observation, *_ = env.step([rng.choice(np.flatnonzero(row)) for row in mask])


def tensors(observation):
    return obs_as_tensor({key: value.copy() for key, value in observation.items()}, "cpu")


def collect(model):
    """Fill the rollout buffer without an update."""
    _, callback = model._setup_learn(1_000)
    assert model.collect_rollouts(model.env, callback, model.rollout_buffer, model.n_steps)


def largest_log_ratio(model):
    """Of PPO's probability ratios, over the whole buffer, before any update."""
    model.policy.set_training_mode(True)
    return max(
        (
            model.policy.evaluate_actions(batch.observations, batch.actions.long().flatten(), batch.action_masks)[1]
            - batch.old_log_prob
        )
        .abs()
        .max()
        .item()
        for batch in model.rollout_buffer.get(model.batch_size)
    )


@pytest.mark.parametrize("name", ["TSP", "SDVRP", "ATSP"])
def test_it_trains_and_plays_legally(name):
    """Illegal actions raise, in training, with and without masks passed from outside."""
    model = make_model(f"routing/{name}-10").learn(64)
    evaluate_policy(model, model.get_env(), n_eval_episodes=LANES)
    evaluate_policy(model, model.get_env(), n_eval_episodes=LANES, deterministic=False, use_masking=False)
    for observation, mask in played(model):
        distribution = model.policy.get_distribution(tensors(observation)).distribution
        assert ((distribution.probs > 0).numpy() == mask).all()


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_methods_agree_with_the_attention_model(name):
    """Whatever way they are asked, logits are the model's, with and without gradients, one lane or many."""
    policy = (model := make_model(f"routing/{name}-10")).policy
    network = policy.features_extractor.model
    for observation, mask in played(model):
        given = tensors(observation)
        queries = {key: value[:, None] for key, value in given.items()}
        queries["action_mask"] = queries["action_mask"].bool()
        with torch.no_grad():
            expected = network.logits(network.encode(given), queries)[:, 0].log_softmax(dim=-1)
            actions, values, log_probs = policy(given, action_masks=mask)
            kept = policy.get_distribution(given, mask).distribution.log_prob(actions)
        torch.testing.assert_close(log_probs, expected.gather(1, actions[:, None])[:, 0])
        torch.testing.assert_close(kept, log_probs)
        scored = policy.evaluate_actions(given, actions, torch.as_tensor(mask))
        torch.testing.assert_close(scored[1].detach(), log_probs)
        torch.testing.assert_close(scored[0].detach(), values)
        torch.testing.assert_close(policy.predict_values(given).detach(), values)
        best, _ = model.predict(observation, deterministic=True, action_masks=mask)
        np.testing.assert_array_equal(best, expected.argmax(dim=-1))
        lane = {key: value[1] for key, value in observation.items()}
        assert model.predict(lane, deterministic=True, action_masks=mask[1])[0] == best[1]


@pytest.mark.parametrize("normalization", ["instance", "layer", "none"])
def test_ratios_are_one_before_the_first_update(normalization):
    """Batches of other sizes round differently, by a few units of the seventh digit, and no more."""
    model = make_model("routing/CVRP-10", config=dataclasses.replace(SMALL, normalization=normalization))
    collect(model)
    assert largest_log_ratio(model) < 1e-5
    model.train()
    assert largest_log_ratio(model) > 1e-4


def test_encodings_are_kept_until_weights_or_instances_change():
    """Within an episode all lanes are encoded once; then the lane that shows another instance; then all, anew."""
    model = make_model()
    network, encoded = model.policy.features_extractor.model, []
    encode = network.encode
    network.encode = lambda static: encoded.append(len(static["coords"])) or encode(static)
    for observation, mask in played(model, 8):
        model.predict(observation, action_masks=mask)
    assert encoded == [LANES]
    observation["coords"][2] *= 0.5
    model.predict(observation, action_masks=mask)
    assert encoded == [LANES, 1]
    network.embed_node.weight.data += 1.0  # not noted by autograd
    model.predict(observation, action_masks=mask)
    assert encoded == [LANES, 1, LANES]


def test_rows_are_grouped():
    """Rows 0, 2, 3 are the same, and so are 1, 4."""
    rows = torch.tensor([[5.0, 1.0], [0.0, 2.0], [5.0, 1.0], [5.0, 1.0], [0.0, 2.0]])
    table, group, place = group_rows(rows)
    assert sorted(table.tolist()) == [[0, 2, 3], [1, 4, 1]]
    assert table[group, place].tolist() == [0, 1, 2, 3, 4]


def test_minibatches_are_whole_lanes():
    """Each of two minibatches holds all eight steps of two lanes, in order; all four lanes come."""
    model = make_model("routing/TSP-10")
    collect(model)
    stored = model.rollout_buffer.observations["coords"].copy()  # (steps, lanes, ...)
    seen = [batch.observations["coords"].numpy().reshape(2, 8, -1) for batch in model.rollout_buffer.get(16)]
    lanes = stored.swapaxes(0, 1).reshape(LANES, 8, -1)
    found = [np.flatnonzero((lanes == one).all(axis=(1, 2))).tolist() for batch in seen for one in batch]
    assert sorted(found) == [[0], [1], [2], [3]]


def test_saved_and_loaded(tmp_path):
    """The loaded model plays the same, and trains on; the policy alone can be saved, too."""
    model = make_model("routing/PCTSP-10").learn(32)
    model.save(tmp_path / "model")
    model.policy.save(tmp_path / "policy")
    loaded = MaskablePPO.load(tmp_path / "model", env=model.get_env(), device="cpu")
    policy = AttentionPolicy.load(tmp_path / "policy", device="cpu")
    assert loaded.policy.config == policy.config == SMALL
    for observation, mask in played(model):
        chosen = [one.predict(observation, deterministic=True, action_masks=mask)[0] for one in (model, loaded, policy)]
        np.testing.assert_array_equal(chosen[0], chosen[1])
        np.testing.assert_array_equal(chosen[0], chosen[2])
    loaded.learn(32)


def test_works_on_single_environments():
    """An illegal action would raise."""
    env = DummyVecEnv([lambda: gym.make("routing/OP-10", on_illegal="raise")] * 2)
    model = MaskablePPO(
        AttentionPolicy, env, n_steps=8, batch_size=8, policy_kwargs={"config": SMALL}, seed=0, device="cpu"
    )
    assert model.learn(16).num_timesteps == 16


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_features_are_found(name):
    space = gym.make(f"routing/{name}-10").observation_space
    assert find_features(space) == features_named(name)


def test_flat_observations_are_refused():
    flat = DummyVecEnv([lambda: gym.wrappers.FlattenObservation(gym.make("routing/TSP-10"))])
    with pytest.raises(
        ValueError, match=r"of a routing environment, unflattened, as those of .*; got Box\(0.0, 1.0, \(50,\), float64"
    ):
        MaskablePPO(AttentionPolicy, flat)
    other = spaces.Dict({"coords": spaces.Box(0, 1, (6, 2)), "speed": spaces.Box(0, 1, (1,))})
    with pytest.raises(
        ValueError, match="got the observations coords, speed. A problem of your own must have been registered"
    ):
        find_features(other)


def test_arguments_of_the_mlp_are_refused():
    env = RoutingVecEnv("routing/TSP-10", num_envs=2)
    with pytest.raises(TypeError, match="AttentionPolicy got .*use_sde; it needs sb3_contrib.MaskablePPO"):
        PPO(AttentionPolicy, env)
    with pytest.raises(TypeError, match="arguments net_arch; .* sizes go in `config`"):
        MaskablePPO(AttentionPolicy, env, policy_kwargs={"net_arch": [64]})


def test_batch_normalization_is_refused():
    with pytest.raises(ValueError, match="ratios are wrong from the start; pass 'instance', 'layer' or 'none'"):
        make_model(config=ModelConfig())


TINY = sb3_maskable_ppo.Args(
    env_id="routing/TSP-10",
    total_steps=10_000,
    num_envs=64,
    num_epochs=4,
    learning_rate=2e-3,
    model=dataclasses.replace(SMALL, embed_dim=32, num_heads=4, feed_forward_dim=64),
    evaluations=2,
    held_out=200,
    threads=1,
    name="run",
)


def test_learns_what_the_mlp_does_not(tmp_path, capsys):
    """After 1,000 tours of TSP-10, greedy tours must be 40 % shorter than random ones, and beat nearest neighbour's.

    Untrained, the attention model already joins nodes that look alike, so that must fall, too.
    """
    folder = sb3_maskable_ppo.main(dataclasses.replace(TINY, runs=tmp_path))
    document = json.loads((folder / "curves.json").read_text())
    costs, curves = document["costs"], document["curves"]
    assert costs["attention"] < min(0.6 * costs["random"], 0.9 * curves["attention"][0]["greedy"])
    assert costs["attention"] < min(costs["nearest neighbour"], 0.7 * costs["mlp"])
    for name, curve in curves.items():
        assert [point["steps"] for point in curve] == [0, 5_120, 10_240]  # whole rollouts of 640
        assert costs[name] == curve[-1]["greedy"]
        assert (folder / f"{name}.zip").exists()
        assert list((folder / "tensorboard").glob(f"{name}_*/events*"))
    assert "nearest neighbour" in capsys.readouterr().out
    out = tmp_path / "all.json"
    sb3_curves.main(sb3_curves.Args(runs=(folder, folder), out=out))
    assert json.loads(out.read_text())["runs"] == [document, document]
    assert (tmp_path / "sb3_curves.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_envs": 6}, "--num-minibatches 4 does not divide --num-envs 6"),
        ({"learning_rate": 0.0}, "--learning-rate must be a positive number of at most .*, got 0.0"),
    ],
)
def test_arguments(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(TINY, **changes)


def test_a_run_is_not_overwritten(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine").touch()
    with pytest.raises(FileExistsError, match="run exists; choose another --name"):
        sb3_maskable_ppo.main(dataclasses.replace(TINY, runs=tmp_path))
