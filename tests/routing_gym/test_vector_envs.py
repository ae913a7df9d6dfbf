"""`RoutingVectorEnv`: what `check_vector_env` in tests/test_contracts.py does not look at."""

import copy
import pickle
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.error import InvalidAction, ResetNeeded
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers.vector import RecordEpisodeStatistics

from problem_names import ONE_OF_EACH
from routing_gym import CVRP, OP, TSP, InvalidInstance, RoutingEnv, RoutingVectorEnv
from routing_gym.arrays import concatenate, select, to_numpy
from routing_gym.problems import make_problem
from routing_gym.testing.compare import difference

MODES = [mode.value for mode in AutoresetMode]


def choose(rng, info):
    mask = to_numpy(info["action_mask"])
    return np.argmax(rng.random(mask.shape) * mask, axis=1)


def to_end(env, rng, info):
    """Play until lane 0 has ended its episode; return what the last step did."""
    while True:
        result = env.step(choose(rng, info))
        info = result[-1]
        if result[2][0]:
            return result


def test_make_vec_gives_the_native_env():
    env = gym.make_vec("routing/CVRP-20", num_envs=7, capacity=25)
    assert isinstance(env, RoutingVectorEnv)
    assert env.problem == CVRP(20, capacity=25)
    assert env.num_envs == 7
    assert env.action_space.shape == (7,)


@pytest.mark.parametrize("mode", MODES)
def test_specs_survive_json(mode):
    env = gym.make_vec("routing/TSP-20", num_envs=3, autoreset_mode=mode, reward="sparse")
    again = gym.make_vec(EnvSpec.from_json(env.spec.to_json()))
    assert (again.num_envs, again.problem, again.autoreset_mode) == (3, TSP(20), AutoresetMode(mode))


def test_the_mode_is_kept_per_instance():
    envs = [RoutingVectorEnv("TSP", 5, autoreset_mode=mode) for mode in AutoresetMode]
    assert [env.metadata["autoreset_mode"] for env in envs] == list(AutoresetMode)
    assert "autoreset_mode" not in RoutingVectorEnv.metadata


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"num_envs": 0}, ValueError, "num_envs must be an integer of at least 1, got 0"),
        ({"num_envs": 2.0}, ValueError, "num_envs must be an integer of at least 1, got 2.0"),
        ({"autoreset_mode": "NextEpisode"}, ValueError, "one of NextStep, SameStep, Disabled; got 'NextEpisode'"),
        ({"backend": "cupy"}, ValueError, "backend=.cupy.: environments write to their arrays; choose numpy or torch$"),
        ({"backend": "jax"}, ValueError, "choose numpy or torch; for JAX, use routing_gym.integrations.jax"),
        ({"device": "cuda"}, ValueError, "device=.cuda.: NumPy arrays live on the CPU; leave it out, or take another"),
        ({"backend": "torch", "device": "gpu"}, ValueError, "device=.gpu. cannot be used; torch sees the cpu"),
        ({"backend": "torch", "device": "mps"}, ValueError, "device=.mps. cannot be used: costs are float64"),
        (
            {"render_mode": "human"},
            ValueError,
            "RoutingVectorEnv: render_mode must be None, rgb_array, ansi; got 'human'",
        ),
        ({"copy": "no"}, ValueError, "copy must be True or False, got 'no'"),
        ({"max_episode_steps": 3}, ValueError, 'no limit of steps.* call make_vec with vectorization_mode="sync"'),
    ],
)
def test_bad_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        RoutingVectorEnv("TSP", 5, **arguments)


# --- seeds


def test_lists_of_seeds():
    env = RoutingVectorEnv("TSP", 5, num_envs=3)
    observation, _ = env.reset(seed=[7, 5, None])
    expected = [RoutingEnv("TSP", 5).reset(seed=seed)[0]["coords"] for seed in (7, 5)]
    assert np.array_equal(observation["coords"][:2], expected)
    assert env.np_random_seed[:2] == (7, 5)
    env.reset(seed=np.int64(7))
    assert env.np_random_seed == (7, 8, 9)
    assert len(env.np_random) == 3
    with pytest.raises(ValueError, match="seed: expected 3 seeds, one per lane, got 2"):
        env.reset(seed=[1, 2])
    for seed, kind in ((1.0, "float"), ({1, 2, 3}, "set"), (np.array(3), "ndarray")):
        with pytest.raises(TypeError, match=f"seed: expected an integer or one per lane, got {kind}"):
            env.reset(seed=seed)
    with pytest.raises(gym.error.Error, match="actual value: -1"):
        env.reset(seed=[1, -1, 2])
    assert env.np_random_seed == (7, 8, 9)


def test_unseeded_lanes_differ():
    observation, _ = RoutingVectorEnv("TSP", 5, num_envs=3).reset()
    assert len(np.unique(observation["coords"][:, 0, 0])) == 3


# --- autoreset


def test_without_autoreset_finished_lanes_must_be_reset(backend):
    env = RoutingVectorEnv("TSP", 3, num_envs=3, autoreset_mode="Disabled", backend=backend)
    first, _ = env.reset(seed=0)
    env.step([0, 1, 2])
    _, _, terminated, _, _ = env.step([1, 1, 0])
    assert to_numpy(terminated).tolist() == [False, True, False]
    with pytest.raises(ResetNeeded, match=r"lane 1: the episode has ended; autoreset is disabled"):
        env.step([2, 0, 1])
    mask = np.array([False, True, False])
    options = {"reset_mask": mask}
    observation, info = env.reset(options=options)
    assert list(options) == ["reset_mask"]
    changed = (to_numpy(observation["coords"]) != to_numpy(first["coords"])).any(axis=(1, 2))
    assert changed.tolist() == [False, True, False]
    assert to_numpy(info["_cost"]).tolist() == to_numpy(info["_action_mask"]).tolist() == mask.tolist()
    assert to_numpy(info["action_mask"]).tolist() == [[0, 0, 0], [1, 1, 1], [0, 0, 0]]
    assert to_numpy(observation["action_mask"]).tolist() == [[0, 0, 1], [1, 1, 1], [0, 1, 0]]
    env.step([2, 0, 1])
    assert [tour.tolist() for tour in env.tour] == [[0, 1, 2], [0], [2, 0, 1]]


def test_some_lanes_step(backend):
    """Lane 1 ends by an illegal action and lane 2 waits; both stay as they are while lane 0 ends."""
    env = RoutingVectorEnv("TSP", 3, num_envs=3, autoreset_mode="Disabled", backend=backend)
    env.reset(seed=0)
    for actions, mask in ([0, 0, 0], [True] * 3), ([1, 0, 1], [True, True, False]), ([2, 9, 9], [True, False, False]):
        observation, rewards, terminated = env.step_some(actions, np.array(mask))
    assert terminated.tolist() == [True, True, False]
    assert rewards[1:].tolist() == [0, 0]
    assert observation["current_node"].tolist() == [2, 0, 0]
    assert [tour.tolist() for tour in env.tour] == [[0, 1, 2], [0], [0]]
    with pytest.raises(ResetNeeded, match="lane 1: the episode has ended; leave the lane out of the mask, or reset it"):
        env.step_some([0, 1, 1], np.array([False, True, True]))
    with pytest.raises(TypeError, match="mask: expected bool, got int64"):
        env.step_some([0, 0, 1], np.array([0, 0, 1]))
    restarting = RoutingVectorEnv("TSP", 3, num_envs=3, backend=backend)
    restarting.reset(seed=0)
    with pytest.raises(ValueError, match='step_some: needs autoreset_mode="Disabled", got'):
        restarting.step_some([0, 0, 1], np.array([True, True, False]))


def test_reset_mask_may_come_from_torch_and_go_with_seeds():
    torch = pytest.importorskip("torch")
    env = RoutingVectorEnv("TSP", 3, num_envs=2, autoreset_mode="Disabled")
    env.reset(seed=0)
    observation, _ = env.reset(seed=20, options={"reset_mask": torch.tensor([False, True])})
    expected = [RoutingEnv("TSP", 3).reset(seed=seed)[0]["coords"] for seed in (0, 21)]
    assert np.array_equal(observation["coords"], expected)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"reset_mask": np.ones(3, bool)}, ValueError, r"options\['reset_mask'\]: expected shape \(2,\), got \(3,\)"),
        ({"reset_mask": np.ones(2)}, TypeError, r"options\['reset_mask'\]: expected bool, got float64"),
        ({"reset_mask": np.zeros(2, bool)}, ValueError, r"options\['reset_mask'\]: mark at least one lane"),
        ({"resetmask": np.ones(2, bool)}, ValueError, "options: unknown resetmask; known are instance, reset_mask"),
        ({"instance": 1}, TypeError, r"options\['instance'\]: expected a TSPInstance, got int"),
    ],
)
def test_bad_options(options, error, message):
    env = RoutingVectorEnv("TSP", 3, num_envs=2)
    env.reset(seed=0)
    with pytest.raises(error, match=message):
        env.reset(options=options)


def test_some_lanes_cannot_be_first():
    env = RoutingVectorEnv("TSP", 3, num_envs=2)
    with pytest.raises(ResetNeeded, match=r"call reset\(\) before step\(\)"):
        env.step([0, 0])
    with pytest.raises(ResetNeeded, match=r"call reset\(\) before reset\(options=\{'reset_mask': ...\}\)$"):
        env.reset(options={"reset_mask": np.array([True, False])})


# --- instances


def test_a_whole_batch_of_instances(backend):
    """It serves one reset; the lanes then draw what they would have drawn."""
    batch = CVRP(4).generate(np.random.default_rng(5), 3)
    env = RoutingVectorEnv("CVRP", 4, num_envs=3, backend=backend)
    options = {"instance": batch}
    observation, info = env.reset(seed=1, options=options)
    assert options == {"instance": batch}
    assert np.array_equal(to_numpy(observation["coords"]), batch.coords)
    result = to_end(env, np.random.default_rng(0), info)
    observation = env.step(choose(np.random.default_rng(0), result[-1]))[0]
    assert np.array_equal(to_numpy(observation["coords"])[0], RoutingEnv("CVRP", 4).reset(seed=1)[0]["coords"])
    assert np.array_equal(batch.coords, CVRP(4).generate(np.random.default_rng(5), 3).coords)  # untouched


@pytest.mark.parametrize("rows", [1, 2, 4])
def test_the_number_of_instances_must_be_exact(rows):
    env = RoutingVectorEnv("TSP", 4, num_envs=3)
    batch = TSP(4).generate(np.random.default_rng(0), rows)
    with pytest.raises(ValueError, match=rf"options\['instance'\]: expected exactly 3 rows, got {rows}"):
        env.reset(options={"instance": batch})


def test_invalid_instances_name_the_row():
    batch = TSP(4).generate(np.random.default_rng(0), 3)
    batch.coords[2, 1, 0] = np.nan
    with pytest.raises(InvalidInstance, match=r"coords: row 2, index \(1, 0\) is nan"):
        RoutingVectorEnv("TSP", 4, num_envs=3).reset(options={"instance": batch})


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_a_metric_of_its_own_in_some_lanes(name, backend):
    """Lanes that start anew are Euclidean again, like single environments; illegal actions cost what they would."""
    problem = make_problem(name, 4)
    batch = problem.generate(np.random.default_rng(5), 2)
    ones = np.ones((2, problem.num_actions, problem.num_actions), np.float32)
    batch = replace(batch, distances=np.float32(0.1) * (ones - np.eye(problem.num_actions, dtype=np.float32)))
    env = RoutingVectorEnv(name, 4, num_envs=2, backend=backend)
    singles = [RoutingEnv(name, 4) for _ in range(2)]
    rng = np.random.default_rng(0)
    _, info = env.reset(seed=3, options={"instance": batch})
    for lane, single in enumerate(singles):
        single.reset(seed=3 + lane, options={"instance": select(batch, [lane])})
    ended = np.zeros(2, dtype=bool)
    for _ in range(40):
        actions = np.where(rng.random(2) < 0.15, rng.integers(problem.num_actions, size=2), choose(rng, info))
        _, reward, terminated, _, info = env.step(actions)
        for lane, single in enumerate(singles):
            if ended[lane]:
                single.reset()
                continue
            _, expected, end, _, _ = single.step(actions[lane])
            assert float(reward[lane]) == pytest.approx(expected, abs=1e-5)
            assert bool(terminated[lane]) == end
        ended = to_numpy(terminated)


def test_instances_without_a_metric_join_one_that_has_it():
    """The other way round: a partial reset brings distances into a batch that had none."""
    env = RoutingVectorEnv("TSP", 3, num_envs=2, autoreset_mode="Disabled")
    env.reset(seed=0)
    coords = env.instance.coords
    batch = replace(env.instance, distances=np.ones((2, 3, 3), np.float32) - np.eye(3, dtype=np.float32))
    env.reset(options={"instance": batch, "reset_mask": np.array([False, True])})
    rewards = sum(env.step([city, city])[1] for city in range(3))
    assert rewards[0] == pytest.approx(-TSP(3).objective(select(replace(batch, distances=None), [0]), [[0, 1, 2]])[0])
    assert rewards[1] == -3
    assert np.array_equal(env.instance.coords, coords)


def mixed(rng, batch_size):
    """With distances in half of the cases."""
    instance = TSP(4).generate(rng, batch_size)
    if rng.random() < 0.5:
        return replace(instance, distances=np.ones((1, 4, 4), np.float32) - np.eye(4, dtype=np.float32))
    return instance


def test_fleets_without_limits_join_one_that_has_them():
    """None stands for any number of vehicles, which may serve all: the others draw such instances."""
    problem = make_problem("HFVRP", 4)
    batch = problem.generate(np.random.default_rng(0), 2)
    depots = batch.vehicle_capacity > 0
    limits = {"num_vehicles": np.where(depots, 4, 0), "eligible": np.ones((2, problem.num_depots, 7), bool)}
    envs = gym.make_vec("routing/HFVRP", num_envs=2, num_nodes=4)
    _, info = envs.reset(seed=1, options={"instance": replace(batch, **limits)})
    rng, ended = np.random.default_rng(3), np.zeros(2, bool)
    while not ended.any():
        _, _, ended, _, info = envs.step(choose(rng, info))
    assert not ended.all()
    envs.step(choose(rng, info))
    fields = envs.unwrapped.instance
    assert np.array_equal(fields.num_vehicles > 0, fields.vehicle_capacity > 0)
    assert fields.eligible.all()


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_a_lane_whose_generator_failed_does_not_play_on(mode):
    """Lane 0 ends by an illegal action; until an instance can be drawn for it, it stays ended."""
    problem, broken = TSP(4), False

    def generator(rng, batch_size):
        if broken:
            raise OSError("no instances today")
        return problem.generate(rng, batch_size)

    env = RoutingVectorEnv(problem, num_envs=2, generator=generator, autoreset_mode=mode)
    env.reset(seed=0)
    env.step([1, 1])
    if mode == "NextStep":
        env.step([1, 2])
    broken = True
    for _ in range(2):
        with pytest.raises(OSError, match="no instances today"):
            env.step([1, 3])
    broken = False
    env.reset(options={"reset_mask": [False, True]})
    _, rewards, *_ = env.step([2, 2])
    assert len(env.tour[0]) == 0
    assert rewards[0] == 0.0 or mode == "SameStep"


def test_generator_is_called_per_lane():
    env = RoutingVectorEnv("TSP", 4, num_envs=6, generator=mixed)
    observation, _ = env.reset(seed=0)
    rewards = sum(env.step([city] * 6)[1] for city in range(4))
    for lane in range(6):
        single = RoutingEnv("TSP", 4, generator=mixed)
        assert np.array_equal(single.reset(seed=lane)[0]["coords"], observation["coords"][lane])
        assert sum(single.step(city)[1] for city in range(4)) == pytest.approx(rewards[lane])
    assert 0 < sum(rewards == -4) < 6


# --- actions


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ([0, 0, 5], "^lane 2: node 5 does not exist; nodes are 0 to 4$"),
        ([0, -1, 0], "^lane 1: node -1 does not exist; nodes are 0 to 4$"),
        (np.array([0, 2**63, 0], np.uint64), "^lane 1: node 9223372036854775808 does not exist; nodes are 0 to 4$"),
        ([0.0, 1.0, 2.0], "actions: expected integers, got (torch.)?float64"),
        ([True, False, True], "actions: expected integers, got (torch.)?bool"),
        ([0, 1], r"actions: expected shape \(3,\), one per lane; got shape \(2,\)"),
        ([[0], [1], [2]], r"actions: expected shape \(3,\), one per lane; got shape \(3, 1\)"),
        (0, r"actions: expected shape \(3,\), one per lane; got shape \(\)"),
        ([0, None, 1], "actions: (expected integers, got object|can't convert np.ndarray of type numpy.object_)"),
    ],
)
def test_bad_actions(actions, message, backend):
    env = RoutingVectorEnv("TSP", 5, num_envs=3, backend=backend)
    env.reset(seed=0)
    with pytest.raises(InvalidAction, match=message):
        env.step(actions)
    assert [tour.tolist() for tour in env.tour] == [[], [], []]


def test_illegal_actions_raise_if_asked_to(backend):
    """The first lane at fault is named, and nothing has happened in the others."""
    env = RoutingVectorEnv("TSP", 5, num_envs=3, on_illegal="raise", backend=backend)
    env.reset(seed=0)
    env.step([4, 3, 2])
    with pytest.raises(InvalidAction, match="^lane 1: node 3 is illegal: city 3 is already visited; choose one where"):
        env.step([0, 3, 2])
    env.step([0, 1, 1])
    assert [tour.tolist() for tour in env.tour] == [[4, 0], [3, 1], [2, 1]]


def test_actions_of_either_backend(backend):
    torch = pytest.importorskip("torch")
    env = RoutingVectorEnv("TSP", 7, num_envs=2, backend=backend)
    env.reset(seed=0)
    env.step(torch.tensor([0, 1]))
    env.step(np.array([1, 2], dtype=np.int32))
    env.step(torch.tensor([2, 3], dtype=torch.uint8))
    env.step(np.broadcast_to(np.int64(4), (2,)))  # read-only: torch would warn
    env.step(np.array([6, 5])[::-1])  # torch takes neither negative strides
    env.step(np.array([6, 5], dtype=">i4"))  # nor other byte orders
    assert [tour.tolist() for tour in env.tour] == [[0, 1, 2, 4, 5, 6], [1, 2, 3, 4, 6, 5]]


def test_actions_are_copied(backend):
    """A user who reuses one array for the actions must not change the past."""
    env = RoutingVectorEnv("CVRP", 5, num_envs=2, backend=backend)
    env.reset(seed=0)
    actions = env._episodes.move(np.array([1, 2]))
    env.step(actions)
    actions[0] = 4
    assert to_numpy(env.state.node).tolist() == [1, 2]
    assert [tour.tolist() for tour in env.tour] == [[1], [2]]


# --- what belongs to whom


def flat(value):
    """All arrays in a nested structure."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.dtype == object):
        return [array for item in value for array in flat(item)]
    return [] if value is None else [to_numpy(value)]


@pytest.mark.parametrize("name", ["TSP", "SDVRP", "OVRPBLTW"])
@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_with_copy_nothing_is_shared(name, mode, backend):
    """Overwriting everything that was returned changes nothing that follows."""
    results = []
    for spoil in (False, True):
        env = RoutingVectorEnv(name, 4, num_envs=3, autoreset_mode=mode, backend=backend)
        rng, result, recorded = np.random.default_rng(0), env.reset(seed=0), []
        for _ in range(25):
            recorded.append(copy.deepcopy(result))
            actions = np.where(rng.random(3) < 0.1, 0, choose(rng, result[-1]))
            returned = [*result, env.action_masks(), *(vars(batch) for batch in (env.instance, env.state))]
            for array in flat(returned) if spoil else []:
                if array.ndim and array.flags.writeable:
                    array.fill(1)
            result = env.step(actions)
        results.append(recorded)
    assert difference(*results) is None


def test_without_copy_observations_may_be_shared():
    env = RoutingVectorEnv("CVRP", 5, num_envs=3, copy=False)
    first, _ = env.reset(seed=0)
    second = env.step([1, 1, 1])[0]
    assert first["coords"] is second["coords"]


# --- state


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_set_state_goes_back_even_across_autoresets(mode, backend):
    env = RoutingVectorEnv("CVRP", 4, num_envs=3, autoreset_mode=mode, backend=backend)
    rng = np.random.default_rng(1)
    _, info = env.reset(seed=2)
    for _ in range(12):
        _, _, _, _, info = env.step(choose(rng, info))
    snapshot, tours = env.get_state(), env.tour

    def rest(env):
        rng, info, results = np.random.default_rng(0), {"action_mask": env.action_masks()}, []
        for _ in range(30):
            results.append(env.step(choose(rng, info)))
            info = results[-1][-1]
        return results, env.tour

    expected = rest(env)
    other = RoutingVectorEnv("CVRP", 4, num_envs=3, autoreset_mode=mode, backend=backend)
    for again in (env, other, pickle.loads(pickle.dumps(env))):
        again.set_state(snapshot)
        assert difference(again.tour, tours) is None
        assert difference(rest(again), expected) is None


def test_states_of_another_number_of_lanes():
    source = RoutingVectorEnv("TSP", 5, num_envs=2)
    source.reset(seed=0)
    with pytest.raises(
        ValueError,
        match=r"of TSP\(num_nodes=5, matrices=False\) in 2 lanes, not TSP\(num_nodes=5, matrices=False\) in 3",
    ):
        RoutingVectorEnv("TSP", 5, num_envs=3).set_state(source.get_state())


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_tours_cost_what_the_rewards_say(name):
    """Each finished tour, rescored by `objective`, equals minus the rewards of its episode."""
    env = RoutingVectorEnv(name, 5, num_envs=4)
    rng, returns, checked = np.random.default_rng(0), np.zeros(4), 0
    _, info = env.reset(seed=0)
    for _ in range(40):
        instance = env.instance
        _, reward, terminated, _, info = env.step(choose(rng, info))
        returns += to_numpy(reward)
        for lane in np.flatnonzero(to_numpy(terminated)):
            cost = float(env.problem.objective(select(instance, [lane]), env.tour[lane][None])[0])
            assert cost == pytest.approx(-returns[lane], abs=1e-5)
            assert cost == pytest.approx(float(info["cost"][lane]), abs=1e-5)
            returns[lane] = 0
            checked += 1
    assert checked >= 8


def test_the_history_of_actions_does_not_grow():
    """Kept only as far back as the oldest running episode began."""
    env = RoutingVectorEnv("CVRP", 5, num_envs=4)
    rng = np.random.default_rng(0)
    _, info = env.reset(seed=0)
    for _ in range(200):
        _, _, _, _, info = env.step(choose(rng, info))
    assert len(env._episodes.history) <= CVRP(5).horizon + 1


# --- torch


def test_everything_is_a_tensor_on_the_device():
    torch = pytest.importorskip("torch")
    env = RoutingVectorEnv("CVRP", 4, num_envs=3, backend="torch", device="cpu", autoreset_mode="SameStep")
    observation, info = env.reset(seed=0)
    rng = np.random.default_rng(0)
    observation, reward, terminated, truncated, info = to_end(env, rng, info)
    everything = [observation, reward, terminated, truncated, {k: v for k, v in info.items() if k != "final_obs"}]
    leaves = [leaf for item in everything for leaf in tensors(item)] + tensors(info["final_obs"][0])
    assert len(leaves) > 20
    assert all(isinstance(leaf, torch.Tensor) and leaf.device.type == "cpu" for leaf in leaves)
    assert (reward.dtype, terminated.dtype, observation["current_node"].dtype) == (
        torch.float64,
        torch.bool,
        torch.int64,
    )
    assert isinstance(env.action_masks(), torch.Tensor)


def tensors(value):
    return [leaf for item in value.values() for leaf in tensors(item)] if isinstance(value, dict) else [value]


@pytest.mark.parametrize(("name", "mode"), list(zip(["TSP", "SDVRP", "ATSP"], MODES, strict=True)))
def test_on_an_accelerator(name, mode):
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    device, cpu = (
        RoutingVectorEnv(name, 10, num_envs=64, backend="torch", device=device, autoreset_mode=mode)
        for device in ("cuda", "cpu")
    )
    rng, (_, info) = np.random.default_rng(0), device.reset(seed=0)
    cpu.reset(seed=0)
    for _ in range(60):
        actions = choose(rng, info)
        found, expected = device.step(actions), cpu.step(actions)
        assert found[1].device.type == "cuda"
        assert difference(found, expected, tolerance=1e-5) is None
        info = found[-1]
        if mode == "Disabled" and bool(found[2].any()):
            options = {"reset_mask": found[2]}
            device.reset(options=options)
            cpu.reset(options=options)
            info = {"action_mask": device.action_masks()}


# --- rendering and wrappers


def test_render_gives_one_frame_per_lane():
    pytest.importorskip("matplotlib")
    for mode, kind in (("ansi", str), ("rgb_array", np.ndarray)):
        env = gym.make_vec("routing/OP-10", num_envs=2, render_mode=mode)
        env.reset(seed=0)
        env.step([1, 2])
        frames = env.render()
        assert [type(frame) for frame in frames] == [kind, kind]
        single = RoutingEnv("OP", 10, render_mode=mode)
        single.reset(seed=1)
        single.step(2)
        assert np.array_equal(frames[1], single.render())


def test_render_without_a_mode_says_so():
    env = RoutingVectorEnv("TSP", 4)
    env.reset(seed=0)
    with pytest.warns(UserWarning, match=r"render\(\) does nothing"):
        assert env.render() is None


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_episode_statistics(mode):
    """Gymnasium's wrapper reads the mode from the metadata. Two cities: twice their distance."""
    env = RecordEpisodeStatistics(RoutingVectorEnv("TSP", 2, num_envs=3, autoreset_mode=mode))
    observation, _ = env.reset(seed=0)
    expected = -2 * np.linalg.norm(observation["coords"][:, 0] - observation["coords"][:, 1], axis=1)
    env.step(np.array([0, 0, 0]))
    info = env.step(np.array([1, 1, 1]))[-1]
    episode = info["final_info"]["episode"] if "episode" in info.get("final_info", {}) else info["episode"]
    assert episode["r"] == pytest.approx(expected)
    assert episode["l"].tolist() == [2, 2, 2]


def test_a_batch_may_be_put_together_from_parts():
    parts = [OP(3).generate(np.random.default_rng(seed), 2) for seed in range(2)]
    observation, _ = RoutingVectorEnv("OP", 3, num_envs=4).reset(options={"instance": concatenate(parts)})
    assert np.array_equal(observation["prize"], np.concatenate([part.prize for part in parts]))
