"""`RoutingEnv`: what the checkers of tests/test_contracts.py do not look at."""

import copy
import pickle
import re
import tracemalloc
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.error import InvalidAction, ResetNeeded

import routing_gym
from problem_names import ONE_OF_EACH
from routing_gym import (
    CVRP,
    OP,
    PCTSP,
    SDVRP,
    TSP,
    CVRPInstance,
    InvalidInstance,
    OPInstance,
    PCTSPInstance,
    RoutingEnv,
    RoutingVectorEnv,
    TSPInstance,
)
from routing_gym.arrays import concatenate, to_backend
from routing_gym.problems import PROBLEMS, make_problem

SQUARE = TSPInstance(np.array([[[0, 0], [1, 0], [1, 1], [0, 1]]], dtype=np.float32))
PAIR = CVRPInstance(  # customers at 0.5 to the right and to the top, too heavy for one trip
    np.array([[[0, 0], [0.5, 0], [0, 0.5]]], dtype=np.float32), np.array([[0, 3, 3]]), np.array([5])
)
PRIZES = PCTSPInstance(
    np.array([[[0, 0], [0.5, 0], [0, 0.5]]], dtype=np.float32),
    np.array([[0, 0.5, 0.5]], dtype=np.float32),
    np.array([[0, 0.25, 0.25]], dtype=np.float32),
)
LINE = OPInstance(  # customers at 0.25 and 0.75 to the right
    np.array([[[0, 0], [0.25, 0], [0.75, 0]]], dtype=np.float32),
    np.array([[0, 0.5, 1]], dtype=np.float32),
    np.array([2], dtype=np.float32),
)


def play_random(env, rng, info):
    """Play an episode to its end; return the rewards."""
    rewards, terminated = [], False
    while not terminated:
        _, reward, terminated, _, info = env.step(rng.choice(np.flatnonzero(info["action_mask"])))
        rewards.append(reward)
    return rewards


# --- registration


@pytest.mark.parametrize("name", [name for name in ONE_OF_EACH if PROBLEMS[name].__name__ in routing_gym.__all__])
def test_the_docstring_names_every_id(name):
    """It is the specification; some of the VRP family's ids stand for all."""
    assert re.search(rf"\b{name}\b", RoutingEnv.__doc__)


def test_the_docstring_names_every_observation():
    spaces = [make_problem(name, kind.min_nodes).observation_space() for name, kind in PROBLEMS.items()]
    assert sorted({key for space in spaces for key in space if f"`{key}`" not in RoutingEnv.__doc__}) == []


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_ids(name):
    for size in (10, 20, 50, 100, 200, 500, 1000):
        problem = gym.make(f"routing/{name}-{size}").unwrapped.problem
        assert (problem.name, problem.num_nodes) == (name, size)
        assert gym.spec(f"routing/{name}-{size}").max_episode_steps is None
    assert gym.make(f"routing/{name}", num_nodes=13).unwrapped.problem == make_problem(name, 13)


def test_specs_survive_json():
    env = gym.make("routing/OP-20", prize="uniform", max_length=1.5, reward="sparse")
    again = gym.make(EnvSpec.from_json(env.spec.to_json()))
    assert again.unwrapped.problem == OP(20, prize="uniform", max_length=1.5)
    assert again.spec == env.spec


def test_a_problem_can_be_passed():
    assert RoutingEnv(CVRP(7, capacity=12)).problem == CVRP(7, capacity=12)


@pytest.mark.parametrize("name", [name for name in ONE_OF_EACH if not make_problem(name, 4).observed.per_edge])
def test_making_a_large_environment_needs_no_matrix(name):
    """With 2,000 nodes, the bounds of one matrix of float32 would take 2 x 4 x 2,000**2 bytes = 32 MB."""
    tracemalloc.start()
    gym.make(f"routing/{name}", num_nodes=2_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16e6


@pytest.mark.parametrize("env_class", [RoutingEnv, RoutingVectorEnv])
@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            {"num_nodes": 10, "capacity": 9},
            TypeError,
            "an unexpected keyword argument 'capacity': TSP has no setting capacity; it has matrices. Other .*: pro",
        ),
        (
            {"num_nodes": 10, "rewards": "dense"},
            TypeError,
            "TSP has no setting rewards.* generator, reward, on_illegal",
        ),
        ({"problem": "CVRP"}, TypeError, r'num_nodes is missing; as in gym.make\("routing/CVRP", num_nodes=50\)'),
        ({"problem": CVRP(5), "num_nodes": 5}, TypeError, "num_nodes: already fixed by the CVRP passed as `problem`"),
        ({"problem": CVRP(5), "capacity": 9}, TypeError, "capacity: already fixed by the CVRP"),
        (
            {"problem": TSP},
            TypeError,
            r"problem: expected a name such as 'TSP' or a Problem such as TSP\(50\), got <cl",
        ),
        ({"problem": "VRP", "num_nodes": 5}, ValueError, "unknown problem 'VRP'; choose one of TSP, CVRP"),
        ({"num_nodes": 1}, ValueError, "TSP: num_nodes must be at least 2, got 1"),
        ({"num_nodes": 5, "generator": "windows"}, TypeError, "generator: expected a function of .*, got 'windows'"),
        ({"num_nodes": 5, "reward": "spares"}, ValueError, "reward must be one of dense, sparse; got 'spares'"),
        ({"num_nodes": 5, "on_illegal": "stop"}, ValueError, "on_illegal must be one of terminate, raise; got 'stop'"),
        ({"num_nodes": 5, "render_mode": "png"}, ValueError, "render_mode must be None, .*rgb_array, ansi; got 'png'"),
    ],
)
def test_bad_arguments(env_class, arguments, error, message):
    with pytest.raises(error, match=message):
        env_class(**arguments)


# --- steps


def test_a_tsp_episode():
    """Around the square: rewards 0, -1, -1 and, with the closing edge, -2."""
    env = RoutingEnv("TSP", 4)
    observation, info = env.reset(options={"instance": SQUARE})
    assert observation["coords"].tolist() == SQUARE.coords[0].tolist()
    assert info["cost"] == 0.0
    rewards, costs, ends = [], [], []
    for action in (3, 2, 1, 0):
        observation, reward, terminated, truncated, info = env.step(action)
        rewards.append(reward)
        costs.append(info["cost"])
        ends.append((terminated, truncated))
    assert rewards == [0, -1, -1, -2]
    assert costs == [0, 1, 2, 4]
    assert ends == [(False, False)] * 3 + [(True, False)]
    assert (observation["current_node"], observation["first_node"]) == (0, 3)
    assert env.tour.tolist() == [3, 2, 1, 0]


def test_types_of_what_step_returns():
    env = RoutingEnv("CVRP", 5)
    for observation, *reward, info in (env.reset(seed=0), env.step(1)):
        assert {key: type(value) for key, value in info.items()} == {
            "action_mask": np.ndarray,
            "illegal_action": bool,
            "cost": float,
        }
        assert info["action_mask"].dtype == observation["action_mask"].dtype == np.int8
        assert type(observation["current_node"]) is np.int64
        assert [type(value) for value in reward] in ([], [float, bool, bool])


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_dense_and_sparse_rewards_have_the_same_sum(name):
    sums = []
    for reward in ("dense", "sparse"):
        env = RoutingEnv(name, 8, reward=reward)
        rewards = play_random(env, np.random.default_rng(1), env.reset(seed=1)[1])
        sums.append(sum(rewards))
        if reward == "sparse":
            assert not any(rewards[:-1])
    assert sums[0] == pytest.approx(sums[1])
    assert sums[0] == pytest.approx(-env.problem.objective(env.instance, env.tour[None])[0], abs=1e-5)


def test_three_ways_to_read_the_mask():
    env = RoutingEnv("CVRP", 5)
    observation, info = env.reset(seed=0)
    for action in (1, 2):
        expected = env.action_masks()
        assert expected.dtype == np.bool_
        assert np.array_equal(observation["action_mask"], expected)
        assert np.array_equal(info["action_mask"], expected)
        assert expected[env.action_space.sample(mask=observation["action_mask"])]
        observation, _, _, _, info = env.step(action)


# --- illegal actions


@pytest.mark.parametrize("reward", ["dense", "sparse"])
@pytest.mark.parametrize(
    ("problem", "instance", "actions", "episode_return"),
    [
        # Twice the way from the middle to each city, 4 x 0.5 sqrt(2); 2, then 1 of 4 cities left.
        (TSP(4), SQUARE, [0, 1, 0], -(1 + 4 * 2**0.5) * (1 + 2 / 4)),
        (TSP(4), SQUARE, [0, 1, 2, 0], -(1 + 4 * 2**0.5) * (1 + 1 / 4)),
        # To both customers and back, 1 + 1; all, one and none of them left.
        (CVRP(2), PAIR, [0], -(1 + 2) * 2),
        (CVRP(2), PAIR, [1, 2], -(1 + 2) * (1 + 1 / 2)),
        (CVRP(2), PAIR, [1, 0, 2, 1], -(1 + 2)),
        (SDVRP(2), PAIR, [1, 2, 2], -(1 + 3) * (1 + 1 / 6)),  # one trip more; 3 + 2 of 3 + 3 delivered
        # The middle of the square is sqrt(2)/2 from the depot and 1/2 from the customers, twice that more than 0.25.
        (PCTSP(2), PRIZES, [1, 1], -(1 + 2 * (2**0.5 / 2 + 1 / 2 + 1 / 2)) * (1 + 1 / 2)),
        (OP(2), LINE, [1, 1], -(1 + 1 / 1.5)),  # a legal tour costs 0 at most; a prize of 1 of 1.5 left
    ],
)
def test_illegal_actions_end_the_episode(problem, instance, actions, episode_return, reward):
    """The return is -(1 + an upper bound on any legal cost) (1 + the share that was left), and the state stays."""
    env = RoutingEnv(problem, reward=reward)
    observation, info = env.reset(options={"instance": instance})
    total = 0.0
    for number, action in enumerate(actions, start=1):
        before, state = observation, env.state
        assert not info["illegal_action"]
        observation, value, terminated, truncated, info = env.step(action)
        total += value
        assert (terminated, truncated) == (number == len(actions), False)
    assert info["illegal_action"]
    assert total == pytest.approx(episode_return)
    assert {key: np.asarray(value).tolist() for key, value in observation.items()} == {
        key: np.asarray(value).tolist() for key, value in before.items()
    }
    assert vars(env.state).keys() == vars(state).keys()
    assert all(np.array_equal(value, vars(state)[key]) for key, value in vars(env.state).items())
    assert env.tour.tolist() == actions[:-1]
    with pytest.raises(ResetNeeded, match=r"the episode has ended; call reset\(\) before step\(\)"):
        env.step(0)


@pytest.mark.parametrize(
    ("problem", "instance", "actions", "message"),
    [
        (TSP(4), SQUARE, [0, 0], "^node 0 is illegal: city 0 is already visited; choose one where action_mask is 1"),
        (CVRP(2), PAIR, [0], "node 0 is illegal: the vehicle is already at the depot and customers remain"),
        (CVRP(2), PAIR, [1, 2], "node 2 is illegal: demand 3 exceeds the free capacity 2; return to the depot"),
        (
            OP(2),
            replace(LINE, max_length=np.float32([0.4])),
            [1],
            "node 1 is illegal: node 1 and the way back are longer",
        ),
    ],
)
def test_illegal_actions_raise_if_asked_to(problem, instance, actions, message):
    env = RoutingEnv(problem, on_illegal="raise")
    env.reset(options={"instance": instance})
    for action in actions[:-1]:
        env.step(action)
    with pytest.raises(InvalidAction, match=message):
        env.step(actions[-1])
    assert env.tour.tolist() == actions[:-1]
    legal = int(np.flatnonzero(env.action_masks())[0])
    env.step(legal)  # nothing has happened; the episode goes on
    assert env.tour.tolist() == [*actions[:-1], legal]


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (5, "^node 5 does not exist; nodes are 0 to 4$"),
        (-1, "node -1 does not exist; nodes are 0 to 4"),
        (1.0, "actions: expected integers, got float64"),
        (True, "actions: expected integers, got bool"),
        (None, "actions: expected integers, got object"),
        ("1", "actions: expected integers, got <U1"),
        (np.array([1]), r"actions: expected a single integer, shape \(\); got shape \(1,\)"),
        ([[1], [2, 3]], "actions: setting an array element"),
    ],
)
@pytest.mark.parametrize("on_illegal", ["terminate", "raise"])
def test_actions_that_are_no_nodes_always_raise(action, message, on_illegal):
    env = RoutingEnv("TSP", 5, on_illegal=on_illegal)
    env.reset(seed=0)
    with pytest.raises(InvalidAction, match=message):
        env.step(action)
    assert env.tour.tolist() == []


@pytest.mark.parametrize("action", [1, np.int32(1), np.uint8(1), np.array(1)])
def test_integers_of_all_kinds_are_actions(action):
    env = RoutingEnv("TSP", 5)
    env.reset(seed=0)
    env.step(action)
    assert env.tour.tolist() == [1]


@pytest.mark.parametrize("use", ["action_masks()", "get_state()", "instance", "state", "tour", "step(0)", "render()"])
def test_before_the_first_reset(use):
    env = RoutingEnv("TSP", 5, render_mode="ansi")
    with pytest.raises(ResetNeeded, match=re.escape(f"call reset() before {use.replace('0', '')}") + "$"):
        eval(f"env.{use}", {"env": env})


# --- instances


def test_seeds():
    env = RoutingEnv("CVRP", 5)
    first, second = (env.reset(seed=3)[0]["coords"], env.reset()[0]["coords"])
    assert not np.array_equal(first, second)
    again = RoutingEnv("CVRP", 5)
    assert np.array_equal(again.reset(seed=3)[0]["coords"], first)
    assert np.array_equal(again.reset()[0]["coords"], second)
    assert np.array_equal(env.reset(seed=3)[0]["coords"], first)


def test_what_happens_in_an_episode_does_not_change_the_next_instance():
    following = []
    for num_steps in (0, 3):
        env = RoutingEnv("SPCTSP", 8)
        _, info = env.reset(seed=5)
        for _ in range(num_steps):
            _, _, _, _, info = env.step(np.flatnonzero(info["action_mask"])[-1])
        following.append(env.reset()[0]["coords"])
    assert np.array_equal(*following)


def test_seeded_instances_are_those_of_generate():
    env = RoutingEnv("OP", 6)
    env.reset(seed=9)
    second, _ = env.reset()
    expected = OP(6).generate(gym.utils.seeding.np_random(9)[0], 2)
    assert np.array_equal(second["coords"], expected.coords[1])


def test_an_instance_serves_one_reset():
    env = RoutingEnv("TSP", 4)
    env.reset(seed=0)
    expected = env.reset()[0]["coords"]
    env.reset(seed=0)
    given, _ = env.reset(options={"instance": SQUARE})
    assert np.array_equal(given["coords"], SQUARE.coords[0])
    assert np.array_equal(env.reset()[0]["coords"], expected)  # and takes nothing from the generator


def test_the_instance_passed_in_is_copied():
    mine = copy.deepcopy(PAIR)
    options = {"instance": mine}
    env = RoutingEnv("CVRP", 2)
    env.reset(options=options)
    assert list(options) == ["instance"]
    assert options["instance"] is mine
    mine.demand[0, 1] = 1
    assert env.instance.demand[0, 1] == 3
    env.instance.demand[0, 1] = 2
    env.state.served[0, 2] = True
    assert env.instance.demand[0, 1] == 3
    assert env.action_masks().tolist() == [False, True, True]


def test_lists_and_other_widths_are_cast():
    """float64 coordinates and int32 demands are what a user's own code gives."""
    env = RoutingEnv("CVRP", 2)
    instance = CVRPInstance(PAIR.coords.astype(np.float64), PAIR.demand.astype(np.int32), [5])
    env.reset(options={"instance": instance})
    assert (env.instance.coords.dtype, env.instance.demand.dtype, env.instance.capacity.dtype) == (
        np.float32,
        np.int64,
        np.int64,
    )


def test_torch_instances_are_accepted():
    pytest.importorskip("torch")
    env = RoutingEnv("CVRP", 2)
    env.reset(options={"instance": to_backend(PAIR, "torch")})
    assert isinstance(env.instance.coords, np.ndarray)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"instance": SQUARE}, TypeError, r"options\['instance'\]: expected a CVRPInstance, got a? ?TSPInstance"),
        ({"instance": make_problem("VRPTW", 4).generate(np.random.default_rng(0), 1)}, TypeError, "got VRPInstance"),
        ({"instance": None}, TypeError, r"options\['instance'\]: expected a CVRPInstance, got NoneType"),
        ({"instance": concatenate([PAIR, PAIR])}, ValueError, r"options\['instance'\]: expected exactly 1 row, got 2"),
        ({"instance": replace(PAIR, coords=PAIR.coords + 0.6)}, InvalidInstance, "coords: row 0, .* scale both axes"),
        ({"instance": replace(PAIR, coords=PAIR.coords * np.nan)}, InvalidInstance, "coords: row 0, .* is nan"),
        ({"instance": replace(PAIR, coords=PAIR.coords[:, :2])}, InvalidInstance, "coords: expected shape"),
        ({"instance": replace(PAIR, demand=-PAIR.demand)}, InvalidInstance, "demand: row 0"),
        ({"instance": replace(PAIR, demand=2 * PAIR.demand)}, InvalidInstance, "has demand 6, expected 0 to the cap"),
        (
            {"instance": replace(PAIR, demand=PAIR.demand.astype(float))},
            InvalidInstance,
            r"demand: expected integers \(e.g. .astype\(np.int64\)\), got floating-point numbers$",
        ),
        (
            {"instance": replace(PAIR, coords=PAIR.demand[..., None].repeat(2, axis=-1))},
            InvalidInstance,
            r"coords: expected floating-point numbers \(e.g. .astype\(np.float32\)\), got integers$",
        ),
        ({"instances": PAIR}, ValueError, "options: unknown instances; known are instance"),
        (5, TypeError, r"options: expected a mapping such as \{'instance': ...\}, got int"),
        ({"reset_mask": np.array([True])}, ValueError, "options: unknown reset_mask; known are instance"),
    ],
)
def test_bad_options(options, error, message):
    env = RoutingEnv("CVRP", 2)
    env.reset(seed=0)
    before = env.get_state()
    with pytest.raises(error, match=message):
        env.reset(seed=1, options=options)
    assert env.get_state().generators == before.generators  # nothing has happened
    env.step(1)


def clustered(rng, batch_size):
    instance = TSP(6).generate(rng, batch_size)
    return replace(instance, coords=instance.coords / 10)


def test_generator():
    env = RoutingEnv("TSP", 6, generator=clustered)
    drawn = [env.reset(seed=1)[0]["coords"], env.reset()[0]["coords"]]
    expected = TSP(6).generate(gym.utils.seeding.np_random(1)[0], 2).coords / 10
    assert np.array_equal(drawn, expected)


@pytest.mark.parametrize(
    ("generator", "error", "message"),
    [
        (lambda rng, _: TSP(6).generate(rng, 2), ValueError, r"generator\(rng, 1\): expected exactly 1 row, got 2"),
        (
            lambda rng, _: TSP(5).generate(rng, 1),
            InvalidInstance,
            r"coords: expected shape \(B, 6, 2\), got \(1, 5, 2\)",
        ),
        (lambda rng, _: rng.random((1, 6, 2)), TypeError, r"generator\(rng, 1\): expected a TSPInstance, got ndarray"),
    ],
)
def test_bad_generators(generator, error, message):
    with pytest.raises(error, match=message):
        RoutingEnv("TSP", 6, generator=generator).reset(seed=0)


# --- state


def test_set_state_goes_back():
    env = RoutingEnv("SDVRP", 6)
    _, info = env.reset(seed=2)
    for _ in range(3):
        _, _, _, _, info = env.step(np.flatnonzero(info["action_mask"])[-1])
    snapshot = env.get_state()

    def rest(env):
        rewards = play_random(env, np.random.default_rng(0), {"action_mask": env.action_masks()})
        return rewards, env.tour.tolist(), env.reset()[0]["coords"].tolist()

    expected = rest(env)
    env.set_state(snapshot)
    assert rest(env) == expected
    other = RoutingEnv("SDVRP", 6)
    other.set_state(snapshot)  # without a reset before it
    assert rest(other) == expected


def test_a_snapshot_stays_as_it_was():
    env = RoutingEnv("CVRP", 2)
    env.reset(options={"instance": PAIR})
    env.step(1)
    snapshot = env.get_state()
    env.step(0)
    env.set_state(snapshot)
    env.step(0)
    env.step(2)
    assert snapshot.state.node.tolist() == [1]
    assert snapshot.state.served.tolist() == [[False, True, False]]
    assert snapshot.history.tolist() == [[1]]
    env.set_state(snapshot)
    assert env.tour.tolist() == [1]


def test_a_snapshot_after_an_illegal_action():
    env = RoutingEnv("TSP", 4)
    env.reset(seed=0)
    env.step(2)
    env.step(2)
    snapshot = env.get_state()
    env.reset()
    env.set_state(snapshot)
    assert env.tour.tolist() == [2]
    with pytest.raises(ResetNeeded, match="the episode has ended"):
        env.step(1)


@pytest.mark.parametrize(
    ("source", "error", "message"),
    [
        (
            RoutingEnv("TSP", 5),
            ValueError,
            r"the state is of TSP\(num_nodes=5, .*\) in 1 lanes, not TSP\(num_nodes=4, .*\) in 1",
        ),
        (RoutingEnv("OP", 4), ValueError, r"the state is of OP\(.*, not TSP"),
        (None, TypeError, "set_state needs what get_state returned, got NoneType"),
    ],
)
def test_states_of_something_else(source, error, message):
    if source is not None:
        source.reset(seed=0)
    with pytest.raises(error, match=message):
        RoutingEnv("TSP", 4).set_state(source and source.get_state())


def test_copies_and_pickles_go_on_alike():
    env = RoutingEnv("PCTSP", 6)
    env.reset(seed=0)
    env.step(1)
    expected = None
    for twin in (env, copy.deepcopy(env), pickle.loads(pickle.dumps(env))):
        found = play_random(twin, np.random.default_rng(0), {"action_mask": twin.action_masks()})
        expected = expected or found
        assert found == expected


# --- rendering


def test_human_mode_draws_on_reset_and_step(monkeypatch):
    drawn = []
    monkeypatch.setattr("routing_gym.render.show", lambda problem, instance, tour, cost, _: drawn.append((tour, cost)))
    env = RoutingEnv("TSP", 4, render_mode="human")
    env.reset(options={"instance": SQUARE})
    env.step(0)
    env.step(1)
    assert [tour.tolist() for tour, _ in drawn] == [[], [0], [0, 1]]
    assert [cost for _, cost in drawn] == [0, 0, 1]


def test_close_closes_the_window_of_this_environment(monkeypatch):
    """Stand-in for a display."""
    pyplot = pytest.importorskip("matplotlib.pyplot")
    monkeypatch.setattr("matplotlib.backends.registry.backend_registry.resolve_backend", lambda _: ("agg", "gui"))
    monkeypatch.setattr(pyplot, "pause", lambda seconds: None)
    env, other = RoutingEnv("TSP", 4, render_mode="human"), RoutingEnv("TSP", 4, render_mode="human")
    env.reset(seed=0)
    window = pyplot.get_figlabels()
    other.reset(seed=0)
    assert len(pyplot.get_figlabels()) == 2
    other.close()
    other.close()
    assert pyplot.get_figlabels() == window
    env.close()
    assert pyplot.get_figlabels() == []


def test_render_without_a_mode_says_so():
    env = RoutingEnv("TSP", 4)
    env.reset(seed=0)
    with pytest.warns(UserWarning, match=r"render\(\) does nothing: make the environment with a render_mode"):
        assert env.render() is None


def test_repr_names_the_problem():
    assert repr(RoutingEnv("TSP", 4)) == "RoutingEnv(TSP(num_nodes=4, matrices=False))"


# --- wrappers


def test_version():
    assert routing_gym.__version__.count(".") == 2
