"""The wrappers, on every problem: what they show, and that lane i shows what the single environment does."""

import functools
import itertools

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import Autoreset, TimeLimit
from hypothesis import given
from hypothesis import strategies as st

import routing_gym
from problem_names import ONE_OF_EACH
from routing_gym import CVRPInstance, OPInstance, PCTSPInstance, TSPInstance, sample_actions, wrappers
from routing_gym.arrays import converter, to_numpy
from routing_gym.solvers import SOLVERS, make_solver
from routing_gym.solvers.runtime.base import NO_NODE
from routing_gym.testing.compare import difference

NAMES = ("RescaleCoordinates", "RandomSymmetry", "RelativeCoordinates", "ScaleReward", "FlattenObservation")
CHANGE_NO_COORDS = ("ScaleReward", "FlattenObservation")
WITH_COORDS = [name for name in ONE_OF_EACH if name != "ATSP"]
MODES = [mode.value for mode in AutoresetMode]


def make(problem, *names, num_nodes=6, **keywords):
    """Make a single environment with some wrappers, the first innermost."""
    env = gym.make(f"routing/{problem}", num_nodes=num_nodes, **keywords)
    for name in names:
        env = getattr(wrappers, name)(env)
    return env


def make_vector(problem, *names, num_nodes=6, num_envs=3, **keywords):
    """As `make`, for the native vector environment."""
    envs = gym.make_vec(f"routing/{problem}", num_envs, num_nodes=num_nodes, **keywords)
    for name in names:
        envs = getattr(wrappers.vector, name)(envs)
    return envs


def play(env, seed, options=None):
    """Play one random legal episode; return its observations, its rewards and its last info."""
    rng = np.random.default_rng(seed)
    observation, info = env.reset(seed=seed, options=options)
    observations, rewards, terminated = [observation], [], False
    while not terminated:
        action = sample_actions(info["action_mask"][None], rng)[0]
        observation, reward, terminated, _, info = env.step(action)
        observations.append(observation)
        rewards.append(reward)
    return observations, rewards, info


def mixed_actions(envs, rng):
    """Draw mostly legal actions; the illegal ones bring the lanes out of step."""
    legal = sample_actions(envs.action_masks(), rng)
    return np.where(rng.random(envs.num_envs) < 0.1, rng.integers(0, envs.single_action_space.n, envs.num_envs), legal)


def assert_same(found, expected):
    """The tolerance is for sums over tours padded to another length."""
    assert difference(found, expected, tolerance=1e-12) is None


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("problem", ONE_OF_EACH)
def test_lane_i_is_the_single_environment_i(problem, mode):
    """Gymnasium's SyncVectorEnv over wrapped single environments is the reference, `final_obs` included."""
    names = NAMES if problem in WITH_COORDS else CHANGE_NO_COORDS
    native = make_vector(problem, *names, autoreset_mode=mode)
    singles = [functools.partial(make, problem, *names)] * 3
    reference = gym.vector.SyncVectorEnv(singles, autoreset_mode=AutoresetMode(mode))
    assert native.observation_space == reference.observation_space
    assert native.single_observation_space == reference.single_observation_space
    assert_same(native.reset(seed=7), reference.reset(seed=7))
    rng = np.random.default_rng(0)
    num_episodes = 0
    while num_episodes < 9:
        actions = mixed_actions(native, rng)
        found = native.step(actions)
        assert_same(found, reference.step(actions))
        assert found[0] in native.observation_space
        ended = found[2]
        num_episodes += ended.sum()
        if mode == "Disabled" and ended.any():
            options = {"reset_mask": ended}
            assert_same(native.reset(options=options), reference.reset(options=options))


@pytest.mark.parametrize("name", ["RandomSymmetry", "ScaleReward"])
def test_a_lane_reset_by_hand_does_not_start_anew_once_more(name):
    """After the illegal action in all lanes, lane 0 is reset by `reset_mask`, the others by the next step."""
    native, singles = make_vector("CVRP", name), [functools.partial(make, "CVRP", name)] * 3
    reference = gym.vector.SyncVectorEnv(singles)
    options = {"reset_mask": np.array([True, False, False])}
    for envs in (native, reference):
        envs.reset(seed=3)
        envs.step(np.zeros(3, dtype=np.int64))
    assert_same(native.reset(options=options), reference.reset(options=options))
    for actions in ([1, 1, 1], [2, 2, 2]):
        assert_same(native.step(np.array(actions)), reference.step(np.array(actions)))


@pytest.mark.parametrize("mode", MODES[:2])
def test_torch_lanes_are_the_numpy_lanes(mode):
    pytest.importorskip("torch")
    arrays = make_vector("OP", *NAMES, autoreset_mode=mode)
    tensors = make_vector("OP", *NAMES, autoreset_mode=mode, backend="torch")
    arrays.reset(seed=1)
    tensors.reset(seed=1)
    rng = np.random.default_rng(1)
    for _ in range(12):
        actions = mixed_actions(arrays, rng)
        assert difference(tensors.step(actions), arrays.step(actions), tolerance=1e-6) is None


@pytest.mark.filterwarnings("ignore:.*is different from the unwrapped version")  # of every wrapped environment
@pytest.mark.parametrize("name", NAMES)
def test_gymnasium_checker_passes(name):
    check_env(make("OP", name))


@pytest.mark.parametrize("name", NAMES)
def test_recorded_in_the_spec(name):
    env = make("OP", name)
    again = gym.make(gym.envs.registration.EnvSpec.from_json(env.spec.to_json()))
    assert type(again) is type(env)
    assert_same(play(again, 5), play(env, 5))


def test_arguments_are_recorded_in_the_spec():
    env = wrappers.ScaleReward(gym.make("routing/TSP", num_nodes=6), solver="2-opt", start="nearest-neighbour")
    again = gym.make(gym.envs.registration.EnvSpec.from_json(env.spec.to_json()))
    assert again.transform.solver == env.transform.solver == make_solver("2-opt", start="nearest-neighbour")


@pytest.mark.parametrize("name", NAMES)
def test_masks_stay_within_reach(name):
    """Where sb3-contrib's `get_action_masks` and people look; the vector environment under Gymnasium's wrappers too."""
    env, envs = make("CVRP", name), make_vector("CVRP", name)
    _, info = env.reset(seed=0)
    assert env.get_wrapper_attr("action_masks")().tolist() == env.action_masks().tolist()
    assert env.action_masks().tolist() == info["action_mask"].tolist() == [0, 1, 1, 1, 1, 1, 1]
    _, infos = envs.reset(seed=0)
    assert envs.action_masks().tolist() == infos["action_mask"].tolist()
    recorded = getattr(wrappers.vector, name)(gym.wrappers.vector.RecordEpisodeStatistics(make_vector("CVRP")))
    recorded.reset(seed=0)
    assert recorded.action_masks().tolist() == infos["action_mask"].tolist()


@pytest.mark.parametrize("problem", ONE_OF_EACH)
def test_flattening_is_gymnasiums_in_float32(problem):
    plain, flat = make(problem), make(problem, "FlattenObservation")
    space = plain.observation_space
    for expected, found in zip(play(plain, 2)[0], play(flat, 2)[0], strict=True):
        assert found.dtype == np.float32
        assert found.tolist() == spaces.flatten(space, expected).astype(np.float32).tolist()
        assert_same(spaces.unflatten(space, found), expected)


def square(*points):
    return np.array([points], dtype=np.float32)


def test_rescaling_a_tsp_by_hand():
    """The box is 0.5 wide and 0.25 high, its corner at (0.25, 0.5): subtract the corner, divide by 0.5."""
    instance = TSPInstance(square((0.25, 0.5), (0.75, 0.5), (0.5, 0.75)))
    observation, _ = make("TSP", "RescaleCoordinates", num_nodes=3).reset(options={"instance": instance})
    assert observation["coords"].tolist() == [[0, 0], [1, 0], [0.5, 0.5]]


@pytest.mark.parametrize(("extent", "expected"), [(0.0, 0.0), (1e-7, np.float32(1e-7)), (1e-5, 1.0)])
def test_rescaling_leaves_the_size_of_a_point(extent, expected):
    """Below 1e-6 the box is moved only."""
    instance = TSPInstance(square((0, 0), (extent, 0)))
    observation, _ = make("TSP", "RescaleCoordinates", num_nodes=2).reset(options={"instance": instance})
    assert observation["coords"].tolist() == [[0, 0], [expected, 0]]


def test_rescaling_takes_all_lengths_along():
    """Nodes in a box of side 0.5: budget 1.5 becomes 3, and 2 after the leg of 0.5; penalty 0.25 becomes 0.5."""
    coords, prize = square((0.5, 0.5), (1.0, 0.5)), np.array([[0, 0.5]], dtype=np.float32)
    env = make("OP", "RescaleCoordinates", num_nodes=1)
    instance = OPInstance(coords, prize, max_length=np.array([1.5], dtype=np.float32))
    observation, _ = env.reset(options={"instance": instance})
    assert observation["remaining_length"].tolist() == [3.0]
    assert observation["prize"].tolist() == [0.0, 0.5]
    assert env.step(1)[0]["remaining_length"].tolist() == [2.0]
    env = make("PCTSP", "RescaleCoordinates", num_nodes=1)
    observation, _ = env.reset(options={"instance": PCTSPInstance(coords, prize, penalty=prize / 2)})
    assert observation["penalty"].tolist() == [0.0, 0.5]
    assert observation["remaining_prize"].tolist() == [1.0]


def test_rescaling_takes_matrices_along():
    """A box of side 0.5."""
    instance = TSPInstance(square((0.5, 0.5), (1.0, 0.5)), distances=np.array([[[0, 0.75], [1, 0]]], dtype=np.float32))
    observation, _ = make("TSP", "RescaleCoordinates", num_nodes=2, matrices=True).reset(options={"instance": instance})
    assert observation["distances"].tolist() == [[0, 1.5], [2, 0]]


def test_relative_coordinates_by_hand():
    """Depot (0.5, 0.5), customer (1, 0.25): seen from the depot (0.5, -0.25), and the depot from there the opposite."""
    one = np.array([1])
    instance = CVRPInstance(square((0.5, 0.5), (1.0, 0.25)), demand=np.array([[0, 1]]), capacity=one)
    env = make("CVRP", "RelativeCoordinates", num_nodes=1)
    observation, _ = env.reset(options={"instance": instance})
    assert observation["coords"].tolist() == [[0, 0], [0.5, -0.25]]
    assert env.step(1)[0]["coords"].tolist() == [[-0.5, 0.25], [0, 0]]
    assert env.observation_space["coords"] == spaces.Box(-1.0, 1.0, (2, 2), np.float32)


EIGHT = [  # of the unit square, written out
    lambda x, y: (x, y),
    lambda x, y: (1 - x, y),
    lambda x, y: (x, 1 - y),
    lambda x, y: (1 - x, 1 - y),
    lambda x, y: (y, x),
    lambda x, y: (1 - y, x),
    lambda x, y: (y, 1 - x),
    lambda x, y: (1 - y, 1 - x),
]


def symmetry_of(seen, coords):
    """Return which of the eight turns `coords` into `seen`."""
    x, y = coords[:, 0], coords[:, 1]
    (found,) = [number for number, turn in enumerate(EIGHT) if np.array_equal(np.stack(turn(x, y), axis=1), seen)]
    return found


@pytest.mark.parametrize("problem", WITH_COORDS)
def test_symmetry_is_one_of_the_eight_for_the_whole_episode(problem):
    env = make(problem, "RandomSymmetry")
    observations, rewards, info = play(env, 4)
    instance = env.unwrapped.instance
    symmetries = {symmetry_of(observation["coords"], instance.coords[0]) for observation in observations}
    assert len(symmetries) == 1
    _, plain_rewards, plain_info = play(make(problem), 4)  # the first episode is on the same instance
    assert rewards == plain_rewards
    assert info["cost"] == plain_info["cost"]
    assert info["cost"] == pytest.approx(
        env.unwrapped.problem.objective(instance, env.unwrapped.tour[None])[0], abs=1e-5
    )


def test_all_eight_symmetries_occur_equally():
    """2,000 lanes: each of the eight in 250, give or take five standard deviations of 15."""
    envs = make_vector("TSP", "RandomSymmetry", num_nodes=2, num_envs=2000)
    observations, _ = envs.reset(seed=0)
    pairs = zip(observations["coords"], envs.unwrapped.instance.coords, strict=True)
    counts = np.bincount([symmetry_of(seen, coords) for seen, coords in pairs], minlength=8)
    assert np.abs(counts - 250).max() < 75


@pytest.mark.parametrize("reward", ["dense", "sparse"])
@pytest.mark.parametrize("problem", ONE_OF_EACH)
def test_return_is_the_cost_over_the_solvers(problem, reward):
    env = make(problem, "ScaleReward", reward=reward)
    _, rewards, info = play(env, 6)
    instance = env.unwrapped.instance
    reference = make_solver("nearest-neighbour").solve(env.unwrapped.problem, instance).cost[0]
    assert sum(rewards) * abs(reference) == pytest.approx(-info["cost"])


def test_rewards_stay_where_the_solver_pays_nothing():
    """All cities in one place: every tour has length 0."""
    env = make("TSP", "ScaleReward", num_nodes=3)
    _, rewards, _ = play(env, 0, options={"instance": TSPInstance(square((0.5, 0.5), (0.5, 0.5), (0.5, 0.5)))})
    assert rewards == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("single", [True, False])
def test_bad_solvers_are_refused(single):
    env, wrapper = (
        (make("CVRP"), wrappers.ScaleReward) if single else (make_vector("CVRP"), wrappers.vector.ScaleReward)
    )
    with pytest.raises(ValueError, match="2-opt does not solve CVRP; it solves TSP"):
        wrapper(env, solver="2-opt")
    with pytest.raises(ValueError, match="unknown solver 'nearest'"):
        wrapper(env, solver="nearest")
    with pytest.raises(TypeError, match="nearest-neighbour has no setting time_limit"):
        wrapper(env, time_limit=1.0)


def test_a_solver_without_a_tour_is_named(monkeypatch):
    """The second lane's row fails."""
    nearest = SOLVERS["nearest-neighbour"]

    class Failing(nearest):
        def tours(self, problem, instance, rows, seed):
            tours = super().tours(problem, instance, rows, seed)
            tours[1] = NO_NODE
            return tours

    monkeypatch.setitem(SOLVERS, "nearest-neighbour", Failing)
    with pytest.raises(RuntimeError, match="nearest-neighbour found no tour in lane 1"):
        make_vector("TSP", "ScaleReward").reset(seed=0)


def test_coordinates_that_are_not_there_cannot_be_changed():
    with pytest.raises(TypeError, match="needs coords in a Dict observation, got action_mask, current_node, dis"):
        make("ATSP", "RescaleCoordinates")


@pytest.mark.parametrize("name", ["RescaleCoordinates", "RelativeCoordinates", "RandomSymmetry", "FlattenObservation"])
@pytest.mark.parametrize("build", [make, make_vector])
def test_flattened_observations_cannot_be_changed(build, name):
    with pytest.raises(TypeError, match=f"{name} needs (coords|action_mask).*Box.*before FlattenObservation"):
        build("TSP", "FlattenObservation", name)


@pytest.mark.parametrize("name", ["RescaleCoordinates", "RandomSymmetry"])
@pytest.mark.parametrize("build", [make, make_vector])
def test_relative_coordinates_come_last(build, name):
    """The two compute the coordinates once per episode, relative ones move with every step."""
    with pytest.raises(ValueError, match=f"{name}: coords change with every step; apply it before RelativeCoordinates"):
        build("TSP", "RelativeCoordinates", name)


def test_other_environments_are_refused():
    sync = gym.make_vec("routing/TSP-10", 2, vectorization_mode="sync")
    with pytest.raises(TypeError, match="expected a RoutingVectorEnv, got SyncVectorEnv; .* as in (gym.*)$") as raised:
        wrappers.vector.RandomSymmetry(sync)
    advice = str(raised.value).partition(" as in ")[2].replace("...", "'routing/TSP-10'")
    assert eval(advice, {"gym": gym, "routing_gym": routing_gym}).num_envs == 1
    dynamic = gym.make_vec("routing/DVRPTW", 2)
    with pytest.raises(TypeError, match="got DynamicVRPTWVectorEnv; use a wrapper of gymnasium.wrappers.vector"):
        wrappers.vector.FlattenObservation(dynamic)
    with pytest.raises(TypeError, match="expected a RoutingEnv, got CartPoleEnv; use a wrapper of gymnasium.wrappers"):
        wrappers.ScaleReward(gym.make("CartPole-v1"))
    with pytest.raises(ValueError, match=r"RandomSymmetry: apply it before gymnasium.wrappers.Autoreset"):
        wrappers.RandomSymmetry(TimeLimit(Autoreset(gym.make("routing/TSP-10")), 5))


class EveryRank:
    """Stands in for a generator: draws the given ranks, and checks that they were asked for."""

    def __init__(self, ranks):
        self.ranks = np.array(ranks)

    def integers(self, low, high):
        assert low == 0
        assert (self.ranks < high).all()
        return self.ranks


def test_sampler_is_uniform():
    """Three legal nodes, then two: each of the 3 x 2 pairs of ranks, equally likely, gives another pair of nodes."""
    mask = np.array([[1, 0, 1, 1], [0, 1, 0, 1]], dtype=np.int8)
    pairs = [tuple(sample_actions(mask, EveryRank(ranks))) for ranks in itertools.product(range(3), range(2))]
    assert sorted(pairs) == list(itertools.product((0, 2, 3), (1, 3)))


@given(
    rows=st.integers(1, 12).flatmap(
        lambda width: st.lists(st.lists(st.booleans(), min_size=width, max_size=width).filter(any), min_size=1)
    ),
    seed=st.integers(0, 2**32 - 1),
)
def test_sampler_draws_legal_nodes_and_any_of_them(rows, seed):
    mask = np.array(rows)
    actions = sample_actions(mask, np.random.default_rng(seed))
    assert actions.dtype == np.int64
    assert mask[np.arange(len(mask)), actions].all()
    counts = mask.sum(axis=1)
    for rank in range(counts.max()):
        drawn = sample_actions(mask, EveryRank(np.minimum(rank, counts - 1)))
        assert mask[np.arange(len(mask)), drawn].all()
        assert [row[:node].sum() for row, node in zip(mask, drawn, strict=True)] == np.minimum(
            rank, counts - 1
        ).tolist()


def test_sampler_draws_the_same_for_every_backend_and_type():
    torch = pytest.importorskip("torch")
    mask = np.random.default_rng(0).random((20, 9)) < 0.5
    mask[:, 4] = True
    expected = sample_actions(mask, np.random.default_rng(1))
    assert sample_actions(mask.astype(np.int8), np.random.default_rng(1)).tolist() == expected.tolist()
    drawn = sample_actions(torch.tensor(mask), np.random.default_rng(1))
    assert isinstance(drawn, torch.Tensor)
    assert drawn.dtype == torch.int64
    assert drawn.tolist() == expected.tolist()


@pytest.mark.parametrize("shape", [(), (2,), (5, 4)])
@pytest.mark.parametrize("backend", ["numpy", "torch", "jax"])
def test_sampler_takes_any_leading_axes(shape, backend):
    """The actions of (256, 8) masks are those of 2,048 rows."""
    mask = np.random.default_rng(0).random((*shape, 9)) < 0.5
    mask[..., 4] = True
    if backend != "numpy":
        pytest.importorskip(backend)
    actions = sample_actions(converter(backend)(mask), np.random.default_rng(1))
    assert tuple(actions.shape) == shape
    rows = sample_actions(mask.reshape(-1, 9), np.random.default_rng(1))
    assert to_numpy(actions).ravel().tolist() == rows.tolist()


def test_sampler_refuses_what_it_cannot_draw_from():
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="row 2 has no legal node; pass the observation's mask"):
        sample_actions(np.array([[1, 0], [0, 1], [0, 0], [0, 0]]), rng)
    with pytest.raises(ValueError, match=r"expected 0 and 1.*, call single_action_space.sample\(mask=row\)"):
        sample_actions(np.array([[2, 0, 1]], np.int8), rng)
    with pytest.raises(ValueError, match="row 1, 2 has no legal node"):
        sample_actions(np.arange(6).reshape(2, 3, 1) < 5, rng)
    with pytest.raises(ValueError, match=r"expected shape \(..., A\), such as one row per lane; got array\(1\)"):
        sample_actions(np.array(1), rng)
    with pytest.raises(TypeError, match=r"rng: expected a numpy.random.Generator, .*default_rng\(0\), got 0"):
        sample_actions(np.ones((2, 3)), 0)
