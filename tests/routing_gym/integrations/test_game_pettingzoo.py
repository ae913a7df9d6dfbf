"""The PettingZoo environment, under PettingZoo's own tests and ours; SuperSuit, TorchRL and RLlib where installed."""

import numpy as np
import pytest
from gymnasium.error import InvalidAction, ResetNeeded
from gymnasium.utils.env_checker import data_equivalence

from routing_gym import CompetitiveOP
from routing_gym.multi_agent.environments import GameVectorEnv
from routing_gym.sampling import sample_actions

pettingzoo = pytest.importorskip("pettingzoo", reason='PettingZoo is not installed: pip install ".[pettingzoo]"')

from routing_gym.integrations.pettingzoo import GameParallelEnv  # noqa: E402

GAMES = [
    CompetitiveOP(3, rivals_seen=2),
    CompetitiveOP(3, control="velocity", cooperation=0.5),
    CompetitiveOP(1, num_ticks=1),
]


@pytest.mark.parametrize("game", GAMES, ids=str)
def test_pettingzoo_api(game):
    from pettingzoo.test import parallel_api_test

    parallel_api_test(GameParallelEnv(game), num_cycles=100)
    parallel_api_test(GameParallelEnv(game), num_cycles=3)  # and ends in the middle


@pytest.mark.parametrize("game", GAMES, ids=str)
def test_pettingzoo_seeding(game):
    from pettingzoo.test import parallel_seed_test

    parallel_seed_test(lambda: GameParallelEnv(game))


@pytest.mark.filterwarnings("ignore:Observation is not a NumPy array")  # but a dict, with the mask in it
@pytest.mark.filterwarnings("ignore:Observation space for each agent probably should be")  # the same
def test_pettingzoo_turn_by_turn():
    """The AEC form that PettingZoo makes of it passes the tests of that form."""
    from pettingzoo.test import api_test
    from pettingzoo.utils import parallel_to_aec

    api_test(parallel_to_aec(GameParallelEnv(GAMES[0])), num_cycles=50)


def legal(env, observations, rng):
    """Draw a legal action for every agent."""
    if env.game.num_actions is None:
        return {agent: rng.uniform(-1, 1, 2).astype(np.float32) for agent in env.agents}
    masks = np.stack([observations[agent]["action_mask"] for agent in env.agents])
    return dict(zip(env.agents, sample_actions(masks, rng), strict=True))


@pytest.mark.parametrize("game", GAMES, ids=str)
def test_seeds_decide_everything(game):
    """Two environments agree through three games, legal actions and all; another seed differs.

    PettingZoo's own seed test plays unmasked actions, and in 1.27.0 looks at one step only.
    """
    first, second, other = (GameParallelEnv(game) for _ in range(3))
    assert not data_equivalence(first.reset(seed=1), other.reset(seed=2))
    rngs = np.random.default_rng(0), np.random.default_rng(0)
    for number in range(3):
        seed = 1 if number == 0 else None
        returned = first.reset(seed=seed), second.reset(seed=seed)
        ticks = 0
        while first.agents:
            assert data_equivalence(*returned)
            assert np.array_equal(first.state(), second.state())
            actions = [legal(env, some[0], rng) for env, some, rng in zip((first, second), returned, rngs, strict=True)]
            returned = first.step(actions[0]), second.step(actions[1])
            ticks += 1
        assert data_equivalence(*returned)
        assert ticks == game.num_ticks


@pytest.mark.parametrize("game", GAMES, ids=str)
def test_it_plays_as_lane_i_of_the_batched_environment(game):
    """Seed 4 + 1 is lane 1 of seed 4: observations, rewards, infos and ends of two games."""
    env, lanes = GameParallelEnv(game), GameVectorEnv(game, 2, autoreset_mode="Disabled")
    rng = np.random.default_rng(0)
    for seed in (4, None):
        seen, infos = env.reset(seed=None if seed is None else seed + 1)
        batch, batch_info = lanes.reset(seed=seed)
        while env.agents:
            for row, agent in enumerate(env.possible_agents):
                assert all(np.array_equal(value, batch[key][1, row]) for key, value in seen[agent].items())
                assert all(np.array_equal(value, batch_info[key][1, row]) for key, value in infos[agent].items())
            assert np.array_equal(env.state(), lanes.global_state()[1])
            actions = legal(env, seen, rng)
            rows = np.stack([actions[agent] for agent in env.agents])
            seen, rewards, terminated, _, infos = env.step(actions)
            batch, batch_rewards, batch_terminated, _, batch_info = lanes.step(np.stack([rows, rows]))
            assert list(rewards.values()) == batch_rewards[1].tolist()
            assert set(terminated.values()) == {bool(batch_terminated[1])}


def test_spaces_are_one_object_per_agent():
    env = GameParallelEnv(GAMES[0])
    first, second = (env.action_space(agent) for agent in env.possible_agents[:2])
    assert first is env.action_space("vehicle_0")
    assert first is not second
    assert env.observation_space("vehicle_0") is env.observation_space("vehicle_0")
    env.reset(seed=0)
    assert env.state() in env.state_space


def test_returned_arrays_stay_as_they_are():
    env = GameParallelEnv(GAMES[0])
    seen, infos = env.reset(seed=0)
    before = {key: value.copy() for key, value in seen["vehicle_1"].items()}
    mask = infos["vehicle_1"]["action_mask"].copy()
    env.step(dict.fromkeys(env.agents, 1))
    assert all(np.array_equal(value, seen["vehicle_1"][key]) for key, value in before.items())
    assert np.array_equal(infos["vehicle_1"]["action_mask"], mask)


def test_illegal_actions_are_reported():
    """One customer: action 2 names none; it is a stay, for the agent that chose it."""
    env = GameParallelEnv(CompetitiveOP(2, 1))
    env.reset(seed=0)
    position = env.state()[:2]
    *_, infos = env.step({"vehicle_0": 2, "vehicle_1": 0})
    assert [infos[agent]["illegal_action"] for agent in env.agents] == [True, False]
    assert np.array_equal(env.state()[:2], position)


def test_an_instance_of_ones_own():
    game = GAMES[0]
    instance = game.generate(np.random.default_rng(3), 2)
    env = GameParallelEnv(game)
    with pytest.raises(ValueError, match="exactly 1 row, got 2"):
        env.reset(options={"instance": instance})
    with pytest.raises(TypeError, match="expected a CompetitiveOPInstance, got int"):
        env.reset(options={"instance": 3})


def test_bad_input():
    env = GameParallelEnv(GAMES[0])
    with pytest.raises(ResetNeeded, match=r"before state\(\)"):
        env.state()
    with pytest.raises(ResetNeeded, match="ended or not begun"):
        env.step({})
    env.reset(seed=0)
    with pytest.raises(InvalidAction, match="actions: expected a dict, one for each agent; got NoneType"):
        env.step(None)
    with pytest.raises(TypeError, match="options: expected a dict or None, got int"):
        env.reset(options=3)
    with pytest.raises(InvalidAction, match=r"missing \['vehicle_2'\], unknown \['vehicle_7'\]"):
        env.step({"vehicle_0": 0, "vehicle_1": 0, "vehicle_7": 0})
    with pytest.raises(InvalidAction, match="^vehicle_1: action 9 does not exist; actions are 0 to 8"):
        env.step({"vehicle_0": 0, "vehicle_1": 9, "vehicle_2": 0})
    with pytest.raises(InvalidAction, match=r"vehicle_1: expected an action of shape \(\), got \(2,\)"):
        env.step({"vehicle_0": 0, "vehicle_1": [0, 0], "vehicle_2": 0})
    for action, found in ((0.5, "float64"), (True, "bool")):
        with pytest.raises(InvalidAction, match=f"^vehicle_2: expected an integer, got {found}"):
            env.step({"vehicle_0": 0, "vehicle_1": 0, "vehicle_2": action})
    while env.agents:
        env.step(dict.fromkeys(env.agents, 0))
    with pytest.raises(ResetNeeded, match="ended"):
        env.step(dict.fromkeys(env.possible_agents, 0))
    with pytest.raises(TypeError, match="expected a Game"):
        GameParallelEnv("CompetitiveOP")
    with pytest.raises(ValueError, match="render_mode must be None, rgb_array, ansi"):
        GameParallelEnv(GAMES[0], render_mode="human")


def test_integers_of_several_types():
    """NumPy would stack uint64 and int64 as floats."""
    env = GameParallelEnv(GAMES[0])
    env.reset(seed=0)
    *_, infos = env.step({"vehicle_0": np.uint64(1), "vehicle_1": 0, "vehicle_2": np.int8(1)})
    assert not any(info["illegal_action"] for info in infos.values())


def test_frames():
    """A frame for each tick, no two alike while vehicles move; text counts the ticks."""
    pytest.importorskip("matplotlib")
    env = GameParallelEnv(GAMES[0], render_mode="rgb_array")
    seen, _ = env.reset(seed=0)
    frames, rng = [env.render()], np.random.default_rng(0)
    for _ in range(3):
        seen, *_ = env.step(legal(env, seen, rng))
        frames.append(env.render())
    assert {(frame.shape, frame.dtype) for frame in frames} == {((660, 600, 3), np.dtype(np.uint8))}
    assert all((frames[i] != frames[i + 1]).any() for i in range(3))
    text = GameParallelEnv(GAMES[0], render_mode="ansi")
    text.reset(seed=0)
    assert "3 vehicles: tick 0" in text.render()
    with pytest.warns(UserWarning, match="render_mode"):
        assert GameParallelEnv(GAMES[0]).render() is None


def test_supersuit_vectorises():
    """Each vehicle of each game becomes a lane; a game that ends begins anew by itself."""
    supersuit = pytest.importorskip("supersuit")
    lanes = supersuit.pettingzoo_env_to_vec_env_v1(GameParallelEnv(GAMES[0]))
    games = supersuit.concat_vec_envs_v1(lanes, 2, num_cpus=0, base_class="gymnasium")
    seen, _ = games.reset(seed=0)
    ends = 0
    for _ in range(2 * 16):
        seen, _, terminated, *_ = games.step(sample_actions(seen["action_mask"], np.random.default_rng(0)))
        ends += np.sum(terminated)
    assert ends == 2 * 2 * 3  # games in a row, side by side, vehicles


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore:PettingZoo in TorchRL is tested using version")
def test_torchrl_wraps():
    """A rollout of legal random actions, masks and global states beside it, takes one game."""
    pytest.importorskip("torchrl")
    from torchrl.envs import PettingZooWrapper

    env = GameParallelEnv(GAMES[0], mask_in_infos=False)
    wrapped = PettingZooWrapper(env, return_state=True, use_mask=True, categorical_actions=True, device="cpu")
    batch = wrapped.rollout(20)
    assert batch["next", "vehicle", "reward"].shape == (16, 3, 1)
    assert batch["vehicle", "action_mask"].shape == (16, 3, 9)
    assert batch["state"].shape == (16, *env.state_space.shape)
    assert not batch["next", "vehicle", "info", "illegal_action"].any()


def test_rllib_wraps():
    """One game; RLlib says when all are done."""
    pytest.importorskip("ray")
    from ray.rllib.env.wrappers.pettingzoo_env import ParallelPettingZooEnv

    env = ParallelPettingZooEnv(GameParallelEnv(GAMES[0]))
    env.reset(seed=0)
    for tick in range(16):
        *_, terminated, truncated, _ = env.step(dict.fromkeys(env.par_env.agents, 0))
        assert terminated["__all__"] == (tick == 15)
        assert not truncated["__all__"]
