"""`RoutingTensorDictEnv`, and TorchRL's own wrappers: legal actions, the rewards of Gymnasium's `step`; PPO learns."""

import multiprocessing

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import InvalidAction

pytest.importorskip("torchrl.collectors", reason='needs TorchRL: pip install ".[torchrl]"')

import torch
from tensordict import TensorDict
from torchrl.collectors import Collector
from torchrl.envs import ActionMask, GymEnv, GymWrapper, RewardSum, TransformedEnv
from torchrl.envs.utils import check_env_specs

import routing_gym
import torchrl_ppo
from routing_gym.integrations.torchrl import RoutingTensorDictEnv

multiprocessing.set_start_method(None, force=True)  # TorchRL sets it, for everybody, as it is imported
LANES = 4


def native(name, backend="numpy"):
    return RoutingTensorDictEnv(f"routing/{name}-10", LANES, on_illegal="raise", backend=backend)


def wrapped_vector(name):
    envs = gym.make_vec(f"routing/{name}-10", num_envs=LANES, autoreset_mode="Disabled", on_illegal="raise")
    return TransformedEnv(GymWrapper(envs, categorical_action_encoding=True), ActionMask())


def wrapped_single(name):
    env = GymEnv(f"routing/{name}-10", on_illegal="raise", categorical_action_encoding=True)
    return TransformedEnv(env, ActionMask())


MAKE = {
    "native": native,
    "native-torch": lambda name: native(name, "torch"),
    "native-transformed": lambda name: TransformedEnv(native(name), RewardSum()),
    "GymWrapper": wrapped_vector,
    "GymEnv": wrapped_single,
}


@pytest.mark.parametrize("name", ["TSP", "SDVRP", "ATSP"])
@pytest.mark.parametrize("make", MAKE)
def test_rollouts(make, name):
    """An illegal action would raise. A lane of the TSP ends every 10 steps, any other within 40."""
    env = MAKE[make](name)
    check_env_specs(env, seed=0, break_when_any_done="both")
    torch.manual_seed(0)
    played = env.rollout(200, break_when_any_done=False)
    assert played.shape == (*env.batch_size, 200)
    ended = played["next", "done"].sum(dim=-2)
    assert (ended == 20).all() if name == "TSP" else (ended >= 5).all()
    assert (played["next", "terminated"] == played["next", "done"]).all()
    assert played["action_mask"].gather(-1, played["action"][..., None]).all()


@pytest.mark.parametrize("backend", ["numpy", "torch"])
@pytest.mark.parametrize("name", ["TSP", "SDVRP", "ATSP"])
def test_plays_what_the_vector_env_plays(name, backend):
    """Step by step by hand, finished lanes reset by a mask; also after a second `set_seed`."""
    env = native(name, backend)
    by_hand = gym.make_vec(f"routing/{name}-10", num_envs=LANES, autoreset_mode="Disabled", backend=backend)
    for seed in (7, 8):
        env.set_seed(seed)
        torch.manual_seed(0)
        played = env.rollout(60, break_when_any_done=False)
        observations, _ = by_hand.reset(seed=seed)
        for step in range(60):
            now, after = played[:, step], played["next"][:, step]
            for key, value in observations.items():
                np.testing.assert_array_equal(now[key], value)
            observations, rewards, terminated, _, _ = by_hand.step(now["action"].numpy())
            np.testing.assert_allclose(after["reward"][:, 0], rewards, rtol=1e-6)
            np.testing.assert_array_equal(after["done"][:, 0], terminated)
            for key, value in observations.items():
                np.testing.assert_array_equal(after[key], value)
            if terminated.any():
                observations, _ = by_hand.reset(options={"reset_mask": terminated})


def test_returns_of_the_single_env():
    """Lane i plays the instance of `seed + i`; the sum of its rewards is minus the cost of its tour."""
    env = TransformedEnv(native("CVRP"), RewardSum())
    env.set_seed(3)
    torch.manual_seed(0)
    played = env.rollout(40, break_when_any_done=False)
    for lane in range(LANES):
        single = gym.make("routing/CVRP-10", on_illegal="raise")
        single.reset(seed=3 + lane)
        end = played["next", "done"][lane, :, 0].int().argmax()
        for action in played["action"][lane, : end + 1]:
            _, _, terminated, _, info = single.step(action.item())
        assert terminated
        assert played["next", "episode_reward"][lane, end].item() == pytest.approx(-info["cost"], rel=1e-5)


@pytest.mark.parametrize("make", ["native", "native-torch", "native-transformed"])
def test_lanes_that_have_ended_wait_for_the_others(make):
    """Their last step is repeated; until then, each lane plays what the single environment plays."""
    env = MAKE[make]("OP")
    env.set_seed(3)
    torch.manual_seed(0)
    played = env.rollout(40, break_when_any_done=False, break_when_all_done=True)
    assert played["next", "done"][:, -1].all()
    assert not played["next", "done"][:, -2].all()
    for lane, tour in enumerate(env.vector_env.tour):
        single = gym.make("routing/OP-10", on_illegal="raise")
        single.reset(seed=3 + lane)
        for step, action in enumerate(tour):
            _, reward, terminated, *_ = single.step(action)
            assert played["action"][lane, step] == action
            assert played["next", "reward"][lane, step].item() == pytest.approx(reward)
        assert terminated
        assert (played["action"][lane, step:] == 0).all()
        assert (played["next", "done"][lane, :, 0].nonzero() >= step).all()


def test_random_actions_are_uniform():
    """Three cities, the first one visited: the other two, each with probability 1/2; 4 standard deviations."""
    env = RoutingTensorDictEnv("routing/TSP", 1000, num_nodes=3)
    env.reset()
    env.step(TensorDict(action=torch.zeros(1000, dtype=torch.int64), batch_size=1000))
    torch.manual_seed(0)
    counts = env.rand_action()["action"].bincount(minlength=3)
    assert counts[0] == 0
    assert abs(counts[1].item() - 500) < 4 * (1000 / 4) ** 0.5


def test_instances_of_ones_own():
    """A square of side 0.5: four sides are 2."""
    square = np.array([[[0, 0], [0.5, 0], [0.5, 0.5], [0, 0.5]]] * 2, dtype=np.float32)
    env = TransformedEnv(RoutingTensorDictEnv("routing/TSP", 2, num_nodes=4), RewardSum())
    step = env.reset(options={"instance": routing_gym.TSPInstance(coords=square)})
    for node in range(4):
        step = env.step_mdp(env.step(step.set("action", torch.full((2,), node))))
    assert step["done"].all()
    assert step["episode_reward"].tolist() == [[-2.0], [-2.0]]


def test_collector():
    """Ten steps are an episode of the TSP, whichever lane."""
    env = native("TSP")
    collector = Collector(env, env.rand_action, frames_per_batch=20 * LANES, total_frames=40 * LANES)
    batches = list(collector)
    assert [batch.shape for batch in batches] == [(LANES, 20)] * 2
    for batch in batches:
        assert batch["next", "done"][:, :, 0].nonzero()[:, 1].tolist() == [9, 19] * LANES


def test_ppo_learns(capsys):
    """Random tours have 10 legs of 0.5214 each, the mean distance of two points; these must be 15 % shorter."""
    result = torchrl_ppo.main(torchrl_ppo.Args(env_id="routing/TSP-10", iterations=8))
    assert result["random"] == pytest.approx(-10 * 0.5214, abs=0.1)
    assert result["trained"] > 0.85 * result["random"]
    assert "trained -" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"autoreset_mode": "NextStep"},
            "TorchRL needs autoreset_mode='Disabled', got 'NextStep'; pass autoreset_mode=",
        ),
        ({"copy": False}, "TorchRL needs copy=True, got False; pass copy=True"),
    ],
)
def test_refuses_what_it_cannot_carry(settings, message):
    with pytest.raises(ValueError, match=message):
        RoutingTensorDictEnv("routing/TSP-10", num_envs=2, **settings)
    made = routing_gym.RoutingVectorEnv("TSP", 10, 2, **{"autoreset_mode": "Disabled", **settings})
    with pytest.raises(ValueError, match=message):
        RoutingTensorDictEnv(made)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"minibatch": 0}, "--minibatch must be an integer of at least 1, got 0"),
        ({"learning_rate": -1.0}, "--learning-rate must be a positive number of at most .*, got -1.0"),
    ],
)
def test_arguments_of_the_script(changes, message):
    with pytest.raises(ValueError, match=message):
        torchrl_ppo.Args(**changes)


def test_arguments():
    made = routing_gym.RoutingVectorEnv("TSP", 10, 2, autoreset_mode="Disabled")
    assert RoutingTensorDictEnv(made).batch_size == (2,)
    with pytest.raises(TypeError, match=r'as in RoutingTensorDictEnv\("routing/TSP-10", num_envs=64\)'):
        RoutingTensorDictEnv("routing/TSP-10")
    with pytest.raises(TypeError, match="num_envs: only with an id"):
        RoutingTensorDictEnv(made, num_envs=2)
    one_hot = TensorDict(action=torch.eye(10, dtype=torch.int64)[:2], batch_size=2)
    env = RoutingTensorDictEnv(made)
    env.reset()
    with pytest.raises(InvalidAction, match=r"expected shape \(2,\), one per lane; got shape \(2, 10\)"):
        env.step(one_hot)
