"""The batched environment of games: seeds, autoreset, actions that are refused, pictures."""

import pickle

import numpy as np
import pytest
from gymnasium.error import InvalidAction, ResetNeeded

from routing_gym import CompetitiveOP, InvalidInstance
from routing_gym.arrays import select, to_numpy
from routing_gym.multi_agent.environments import GameVectorEnv
from routing_gym.multi_agent.heuristics import rival_aware
from routing_gym.testing.compare import difference

GAME = CompetitiveOP(3, num_ticks=4, step_length=0.1)
MODES = ["NextStep", "SameStep", "Disabled"]


def draw(rng, env, low=0):
    return rng.integers(low, env.game.num_actions, (env.num_envs, env.game.num_agents))


def episode(env, seed, actions):
    """Everything that a lane's first game returns: observations, rewards, infos."""
    return [env.reset(seed=seed), *(env.step(action) for action in actions)]


def test_a_lane_plays_its_seed_whatever_the_others_do():
    """Lane 2 of seed 5 is the single lane of seed 7, through three games."""
    many, one = (GameVectorEnv(GAME, n, autoreset_mode="SameStep") for n in (4, 1))
    rng = np.random.default_rng(0)
    seen, alone = many.reset(seed=5)[0], one.reset(seed=7)[0]
    for _ in range(3 * GAME.num_ticks):
        assert all(np.array_equal(seen[key][2], alone[key][0]) for key in seen)
        actions = draw(rng, many)
        seen, rewards, ended, *_ = many.step(actions)
        alone, reward, end, *_ = one.step(actions[2:3])
        assert np.array_equal(rewards[2], reward[0])
        assert ended[2] == end[0]


@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_rewards_are_those_of_the_game(backend):
    """The rewards of a game add up to replay; everyone ends in tick 4; infos and spaces agree."""
    if backend == "torch":
        pytest.importorskip("torch")
    env = GameVectorEnv(GAME, 5, backend=backend, autoreset_mode="Disabled")
    rng = np.random.default_rng(0)
    instance = GAME.generate(rng, 5)
    seen, info = env.reset(seed=0, options={"instance": instance})
    actions = [draw(rng, env) for _ in range(4)]
    total = 0
    for tick, action in enumerate(actions):
        assert {key: to_numpy(value) for key, value in seen.items()} in env.observation_space
        assert action in env.action_space
        mask = to_numpy(info["action_mask"])
        seen, rewards, terminated, truncated, info = env.step(action)
        illegal = np.take_along_axis(mask, action[..., None], axis=-1)[..., 0] == 0
        assert np.array_equal(to_numpy(info["illegal_action"]), illegal)
        assert to_numpy(terminated).tolist() == [tick == 3] * 5
        assert not to_numpy(truncated).any()
        assert to_numpy(rewards).shape == (5, 3)
        total = total + to_numpy(rewards)
    assert illegal.any()
    assert total == pytest.approx(GAME.replay(instance, np.stack(actions, axis=1)))
    assert total == pytest.approx(to_numpy(info["gained"]))
    assert to_numpy(env.global_state()).shape == (5, 4 * 3 + 4 * 6 + 1)
    with pytest.raises(ResetNeeded, match="lane 0: the episode has ended"):
        env.step(actions[0])


def test_the_modes_differ_in_resets_only():
    """Their first games agree; SameStep returns the last observation as final_obs, NextStep a step earlier."""
    rng = np.random.default_rng(0)
    envs = {mode: GameVectorEnv(GAME, 2, autoreset_mode=mode) for mode in MODES}
    actions = [draw(rng, envs["Disabled"]) for _ in range(5)]
    played = {mode: episode(env, 3, actions[:4]) for mode, env in envs.items()}
    for mode in MODES:
        assert difference(played[mode][:4], played["Disabled"][:4]) is None
    assert difference(played["NextStep"][4], played["Disabled"][4]) is None
    last = played["SameStep"][4]
    final = last[4]["final_obs"][1]
    assert all(np.array_equal(final[key], value[1]) for key, value in played["Disabled"][4][0].items())
    assert np.array_equal(last[4]["final_info"]["gained"], played["Disabled"][4][4]["gained"])
    following, rewards, terminated, _, info = envs["NextStep"].step(actions[4])
    assert difference(following, last[0]) is None  # the same second game
    assert not rewards.any()
    assert not terminated.any()
    assert not info["gained"].any()


def test_some_lanes_start_anew():
    """After two ticks lane 1 begins again: its clock is full, and it ends two steps after lane 0."""
    env = GameVectorEnv(GAME, 2, autoreset_mode="Disabled", render_mode="ansi")
    env.reset(seed=0)
    for _ in range(2):
        env.step(np.ones((2, 3), int))
    seen, _ = env.reset(options={"reset_mask": np.array([False, True])})
    assert seen["self"][:, 0, 4].tolist() == [0.5, 1.0]
    assert ["tick 2" in text for text in env.render()] == [True, False]
    assert "tick 0" in env.render()[1]
    env.step(np.ones((2, 3), int))
    assert env.step(np.ones((2, 3), int))[2].tolist() == [True, False]


def test_velocities():
    """No mask in observation and info; float32 and float64 are taken."""
    env = GameVectorEnv(CompetitiveOP(2, control="velocity"), 3)
    seen, info = env.reset(seed=0)
    assert "action_mask" not in seen
    assert set(info) == {"gained", "_gained"}
    assert env.step(env.action_space.sample())[1].shape == (3, 2)
    env.step(np.zeros((3, 2, 2)))


@pytest.mark.parametrize(
    ("control", "actions", "told"),
    [
        ("target", np.zeros((2, 4), int), r"expected shape \(2, 3\), one row per lane; got \(2, 4\)"),
        ("target", np.zeros((2, 3)), "expected integers, got float64"),
        ("target", [[0, 0, 0], [0, 9, 0]], "lane 1: agent 1: action 9 does not exist; actions are 0 to 8"),
        ("target", [[0, 0, 0], [0, 0, -1]], "lane 1: agent 2: action -1 does not exist"),
        ("target", [[0], [0, 1]], "actions: "),
        ("target", np.array([["a"] * 3] * 2, object), "expected integers, got object"),
        ("velocity", np.zeros((2, 3), np.float32), r"expected shape \(2, 3, 2\)"),
        ("velocity", np.zeros((2, 3, 2), int), "expected floats, got int64"),
        ("velocity", np.full((2, 3, 2), np.nan), r"lane 0: agent 0: action \[nan, nan\] does not exist; veloc"),
    ],
)
def test_actions_that_are_refused(control, actions, told):
    env = GameVectorEnv(CompetitiveOP(3, control=control), 2)
    env.reset(seed=0)
    with pytest.raises(InvalidAction, match=told):
        env.step(actions)


def test_other_bad_input():
    env = GameVectorEnv(GAME, 2)
    with pytest.raises(ResetNeeded, match=r"reset\(\) before step\(\)"):
        env.step(np.zeros((2, 3), int))
    with pytest.raises(ResetNeeded, match="before global_state"):
        env.global_state()
    with pytest.raises(ValueError, match="exactly 2 rows, got 3"):
        env.reset(options={"instance": GAME.generate(np.random.default_rng(0), 3)})
    with pytest.raises(InvalidInstance, match=r"coords: expected shape \(B, 6, 2\)"):
        env.reset(options={"instance": CompetitiveOP(4).generate(np.random.default_rng(0), 2)})
    with pytest.raises(ValueError, match="unknown sead"):
        env.reset(options={"sead": 1})
    with pytest.raises(TypeError, match=r"expected a Game such as CompetitiveOP\(8\), got 'CompetitiveOP'"):
        GameVectorEnv("CompetitiveOP", 2)
    with pytest.raises(ValueError, match="num_envs must be an integer of at least 1, got 0"):
        GameVectorEnv(GAME, 0)
    with pytest.raises(ValueError, match="render_mode must be None, rgb_array, ansi; got 'human'"):
        GameVectorEnv(GAME, 2, render_mode="human")


def test_a_pickled_environment_goes_on():
    """Both copies play the same game after it, the drawing of the next one included."""
    env = GameVectorEnv(GAME, 2, autoreset_mode="SameStep")
    env.reset(seed=0)
    other = pickle.loads(pickle.dumps(env))
    for _ in range(6):
        assert difference(other.step(np.ones((2, 3), int)), env.step(np.ones((2, 3), int))) is None


def test_pictures_of_a_played_game():
    """Drawn where vehicles went; text names who has what: a vehicle on its customer has collected it."""
    pytest.importorskip("matplotlib")
    env = GameVectorEnv(GAME, 2, autoreset_mode="Disabled", render_mode="rgb_array")
    env.reset(seed=0)
    before = env.render()
    for _ in range(4):
        env.step(rival_aware(GAME, env.instance, env.state))
    after = env.render()
    assert [picture.shape for picture in after] == [(660, 600, 3)] * 2
    assert all((first != second).any() for first, second in zip(before, after, strict=True))


def test_text_says_who_shared_what():
    """Two vehicles 0.05 from customer 0 at a step of 0.1 land on it together."""
    game = CompetitiveOP(2, 1, num_ticks=2, step_length=0.1)
    env = GameVectorEnv(game, 1, autoreset_mode="Disabled", render_mode="ansi")
    instance = game.generate(np.random.default_rng(0), 1)
    instance.coords[:], instance.start[:], instance.prize[:] = 0.5, [[0.45, 0.5], [0.55, 0.5]], 60
    env.reset(options={"instance": instance})
    env.step([[1, 1]])
    assert env.render()[0].splitlines() == [
        "CompetitiveOP, 2 vehicles: tick 1, prize 0.60 of 0.60",
        "vehicle 0 at (0.500, 0.500): customers 0",
        "vehicle 1 at (0.500, 0.500): customers 0",
    ]
    assert select(env.state, [0]).position.tolist() == [[[0.5, 0.5], [0.5, 0.5]]]


def test_text_says_who_was_within_the_radius():
    """0.02 and 0.03 away with a radius of 0.05: they share the customer."""
    game = CompetitiveOP(2, 1, num_ticks=2, step_length=0.1, radius=0.05, control="velocity")
    env = GameVectorEnv(game, 1, autoreset_mode="Disabled", render_mode="ansi")
    instance = game.generate(np.random.default_rng(0), 1)
    instance.coords[:], instance.start[:] = 0.5, [[0.48, 0.5], [0.53, 0.5]]
    env.reset(options={"instance": instance})
    env.step(np.zeros((1, 2, 2), np.float32))
    assert [line.endswith("customers 0") for line in env.render()[0].splitlines()[1:]] == [True, True]
