"""The dynamic environments: both forms, single and vector, costs, illegal actions."""

from dataclasses import dataclass, replace
from itertools import pairwise

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import InvalidAction, ResetNeeded
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

from routing_gym.arrays import concatenate
from routing_gym.dynamic import policies, rules
from routing_gym.dynamic.days import NEVER, ResampledDays
from routing_gym.dynamic.routers import nearest
from routing_gym.dynamic.wrappers import ApplyMask
from routing_gym.problem import InfeasibleTour, InvalidInstance


@pytest.fixture
def make(settings, day):
    """Make an environment that has been reset to the day."""

    def made(**arguments):
        env = gym.make("routing/DVRPTW", **settings, **arguments)
        env.reset(seed=0, options={"instance": day})
        return env

    return made


@pytest.mark.parametrize("arguments", [{}, {"action": "route"}, {"observe_durations": True}])
def test_check_env(arguments, settings, recwarn):
    for days in ({"num_epochs": 2, "requests": 2.0}, settings):
        check_env(gym.make("routing/DVRPTW", **days, **arguments).unwrapped)
    assert not recwarn.list


def test_days_without_coordinates_have_no_pictures(settings):
    """A mode that is declared must work: `check_env` renders each of them."""
    settings = settings | {"static": replace(settings["static"], coords=None)}
    check_env(gym.make("routing/DVRPTW", **settings).unwrapped)
    for make in (gym.make, gym.make_vec):
        with pytest.raises(ValueError, match="render_mode must be None, ansi; got 'rgb_array'"):
            make("routing/DVRPTW", render_mode="rgb_array", **settings)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"max_episode_steps": 3}, 'native vector environment has no limit.* vectorization_mode="sync"'),
        ({"observe_durations": "no"}, "observe_durations must be True or False, got 'no'"),
    ],
)
def test_bad_arguments_of_the_vector_environment(arguments, match):
    with pytest.raises(ValueError, match=match):
        gym.make_vec("routing/DVRPTW", **arguments)


def test_a_day_by_hand(make):
    """Both leave: 10 to request 1, 12 on to 2, 25 home. Then request 3 must leave: 10 there, 10 back."""
    env = make()
    assert env.unwrapped.must_go_action().tolist() == [0] * 6
    _, reward, terminated, _, info = env.step(np.array([1, 1, 0, 0, 0, 0]))
    assert (reward, terminated, info["routes"], info["num_deferred"]) == (-47.0, False, [[1, 2]], 0)
    assert info["new_requests"]["time_window"].tolist() == [[60, 90]]
    assert info["must_go"].tolist() == [False, False, True, False, False, False]
    assert info["action_mask"].tolist() == [0, 0, 1, 0, 0, 0]
    _, reward, terminated, _, info = env.step(env.unwrapped.must_go_action())
    assert (reward, terminated, info["cost"]) == (-20.0, False, 67.0)
    _, reward, terminated, _, info = env.step(np.zeros(6, np.int8))
    assert (reward, terminated, info["routes"]) == (0.0, True, [])
    with pytest.raises(ResetNeeded, match="the day has ended"):
        env.step(np.zeros(6, np.int8))


def test_waiting_saves(make):
    """Request 1 waits and leaves with 3 in epoch 1: 10 there, nothing between, 10 back. At 3, one need not wait."""
    env = make()
    _, reward, _, _, info = env.step(np.array([0, 1, 0, 0, 0, 0]))
    assert (reward, info["num_deferred"]) == (-45.0, 1)
    _, reward, _, _, info = env.step(np.array([1, 0, 1, 0, 0, 0]))
    assert (reward, info["routes"]) == (-20.0, [[3, 1]])


def test_a_day_node_by_node(make):
    env = make(action="route")
    depot, wait = 0, 7
    rewards, masks = [], []
    for action in (1, 2, depot, wait, 3, depot, wait, wait):
        observation, reward, terminated, _, info = env.step(action)
        rewards.append(reward)
        masks.append(observation["action_mask"].tolist())
    assert rewards == [-10.0, -12.0, -25.0, 0.0, -10.0, -10.0, 0.0, 0.0]
    assert masks[0] == [1, 0, 1, 0, 0, 0, 0, 0]  # at request 1: home, or to 2
    assert masks[2] == [0, 0, 0, 0, 0, 0, 0, 1]  # at the depot, nothing open: wait
    assert masks[3] == [0, 0, 0, 1, 0, 0, 0, 0]  # request 3 must leave: no waiting
    assert terminated
    assert info["cost"] == 67.0


def test_an_illegal_visit_changes_nothing(make):
    """With 2 of 5 delivered to request 1; request 2 waits, but is left to no later epoch yet."""
    env = make(action="route")
    before, *_, info = env.step(1)
    assert (before["free_capacity"].tolist(), info["num_deferred"]) == (pytest.approx([0.6]), 0)
    after, _, terminated, _, info = env.step(1)
    assert (terminated, info["illegal_action"]) == (True, True)
    for key in ("free_capacity", "time", "current", "position"):
        assert np.array_equal(after[key], before[key])


def test_must_go_action_is_no_node(make):
    with pytest.raises(TypeError, match='must_go_action\\(\\) needs action="dispatch"'):
        make(action="route").unwrapped.must_go_action()


def test_observations(make):
    env = make()
    observation, _ = env.reset(options={"instance": env.unwrapped.day})
    assert observation["action_mask"].tolist() == [2, 2, 0, 0, 0, 0]
    assert observation["time_window"][:3] * 400 == pytest.approx(np.array([[100, 150], [100, 300], [0, 0]]))  # 3 hidden
    assert observation["depot_durations"][:2] * 400 == pytest.approx(np.array([[10, 10], [20, 25]]))
    assert observation["demand"][:3].tolist() == pytest.approx([0.4, 0.4, 0.0])
    assert observation["coords"][:3].tolist() == [[1, 0], [1, 1], [0, 0]]
    assert observation["epochs_left"] == 1.0
    observation, *_ = env.step(np.array([0, 1, 0, 0, 0, 0]))
    assert observation["time_window"][:3] * 400 == pytest.approx(np.array([[100, 150], [0, 0], [60, 90]]))
    assert observation["departure"] * 400 == pytest.approx(50.0)
    known = env.unwrapped.known_day
    assert known.arrival[0].tolist() == [0, 0, 1, NEVER, NEVER, NEVER]


@pytest.mark.parametrize("action", ["dispatch", "route"])
def test_the_state_tells_nothing_of_future_requests(make, action):
    """Latest departures are 140, 280 and 80, latest starts of service 150, 300 and 90; request 3 arrives in epoch 1."""
    env = make(action=action).unwrapped
    assert env.known_state.latest_departure[0, :3].tolist() == [140, 280, -1]
    if action == "route":
        assert env.known_state.latest_start[0, :3].tolist() == [150, 300, -1]
        return
    env.step(np.zeros(6, np.int8))
    assert env.known_state.latest_departure[0, :3].tolist() == [140, 280, 80]


def test_lanes_tell_nothing_of_future_requests(settings, day):
    envs = gym.make_vec("routing/DVRPTW", num_envs=2, **settings).unwrapped
    envs.reset(options={"instance": concatenate([day, day])})
    assert envs.known_state.latest_departure[:, :3].tolist() == [[140, 280, -1]] * 2
    assert envs.known_day.arrival.tolist() == [[0, 0, *[NEVER] * 4]] * 2


@dataclass(frozen=True)
class OneRequest:
    """Source of days with one request for customer 1 in the first epoch, on the maps of another source."""

    other: ResampledDays
    demand: int = 2
    num_slots, num_locations, has_coords = 1, 3, True

    def draw(self, generators):
        day = self.other.draw(generators)
        names = ("arrival", "customer", "time_window", "demand", "service_time")
        first = {name: getattr(day, name)[:, :1] for name in names}
        window = np.tile([40, 150], (len(generators), 1, 1))
        ones = np.ones_like(first["customer"])
        return replace(day, **(first | {"customer": ones, "time_window": window, "demand": self.demand * ones}))

    def redraw(self, day, generators):
        return self.draw(generators)


def test_a_source_of_ones_own(settings):
    source = OneRequest(ResampledDays(**settings))
    envs = gym.make_vec("routing/DVRPTW", num_envs=2, source=source)
    envs.reset(seed=0)
    total = np.zeros(2)
    for _ in range(3):
        _, reward, *_ = envs.step(envs.unwrapped.must_go_action())
        total += reward
    assert total.tolist() == [-20.0, -20.0]
    broken = OneRequest(ResampledDays(**settings), demand=9)
    for env in (gym.make("routing/DVRPTW", source=broken), gym.make_vec("routing/DVRPTW", num_envs=2, source=broken)):
        with pytest.raises(InvalidInstance, match="row 0, request 1: demand exceeds the capacity"):
            env.reset(seed=0)
    with pytest.raises(ValueError, match="source has its own settings; leave out max_requests"):
        gym.make("routing/DVRPTW", source=source, max_requests=2)
    with pytest.raises(ValueError, match="source has its own settings; leave out static"):
        gym.make("routing/DVRPTW", source=source, static="FILE")
    for wrong, found in (
        (OneRequest, "the class OneRequest"),
        ([], "one without num_slots, num_locations, has_coords"),
    ):
        with pytest.raises(TypeError, match=f"source: expected an object like a DaySource, got {found}"):
            gym.make("routing/DVRPTW", source=wrong)


@pytest.mark.parametrize(
    ("arguments", "actions", "match"),
    [
        ({}, [[1, 1, 0, 0, 0, 0], [0] * 6], "request 3 must leave in epoch 1 .* and is left behind; dispatch it"),
        ({}, [[0, 0, 1, 0, 0, 0]], "request 3 does not exist yet in epoch 0"),
        ({}, [[1, 0, 0, 0, 0, 0], [1, 0, 1, 0, 0, 0]], "request 1 has left already in epoch 1"),
        ({"action": "route"}, [0], "at the depot already"),
        ({"action": "route"}, [3], "request 3 does not exist yet"),
        ({"action": "route"}, [1, 1], "request 1 has been visited"),
        ({"action": "route"}, [1, 7], "wait: the vehicle is away from the depot"),
        ({"action": "route"}, [7, 7], "wait: request 3 must leave in epoch 1"),
        ({"action": "route"}, [7, 1, 3], "request 3 cannot be served in time"),
        ({"action": "route"}, [7, 3, 1, 2], "request 2 does not fit: the route would exceed the capacity 5"),
    ],
)
def test_illegal_actions(make, arguments, actions, match):
    """The last action is illegal: it ends the day below every legal return, or raises."""
    env, strict = make(**arguments), make(on_illegal="raise", **arguments)
    for action in actions[:-1]:
        *_, info = env.step(np.array(action))
        assert not info["illegal_action"]
        strict.step(np.array(action))
    cost = info["cost"] if len(actions) > 1 else 0.0
    _, reward, terminated, _, info = env.step(np.array(actions[-1]))
    assert terminated
    assert info["illegal_action"]
    assert info["cost"] == cost
    left = (3 - env.unwrapped.state.dispatched.sum()) / 3
    assert reward - cost == pytest.approx(-(1 + 3 * 400) * (1 + left))  # no route is longer than the day
    with pytest.raises(InvalidAction, match=match):
        strict.step(np.array(actions[-1]))


@pytest.mark.parametrize(
    ("arguments", "action", "match"),
    [
        ({}, [1, 0], r"expected shape \(6,\), got \(2,\)"),
        ({}, [2, 0, 0, 0, 0, 0], "expected 0 and 1, got 2"),
        ({}, [0.5, 0, 0, 0, 0, 0], "expected 0 and 1, got 0.5"),
        ({}, [np.nan, 0, 0, 0, 0, 0], "expected 0 and 1, got nan"),
        ({}, ["a"] * 6, "expected 0 and 1, got <U1"),
        ({}, [[1], [1, 0]], r"expected shape \(6,\), got sequences of different lengths"),
        ({"action": "route"}, 8, "action 8 does not exist; 0 is the depot, 1 to 6 requests, 7 waits"),
        ({"action": "route"}, -1, "action -1 does not exist"),
    ],
)
def test_actions_that_do_not_exist(make, arguments, action, match):
    with pytest.raises(InvalidAction, match=match):
        make(**arguments).step(action)


@pytest.mark.parametrize("kind", [bool, np.int8, np.float32])
def test_what_the_action_space_contains_is_taken(make, kind):
    env = make()
    action = np.array([0, 1, 0, 0, 0, 0], dtype=kind)
    assert env.action_space.contains(action)
    assert env.step(action)[1] == -45.0


@pytest.mark.parametrize(
    ("tour", "match"),
    [
        ([1], "request 2 was to leave in this epoch; no route visits it"),
        ([1, 2, 1], "request 1: it is visited more than once"),
        ([1, 2, 3], "request 3: it was not to leave in this epoch"),
        ([1, 2, 9], "request 9: there is no such request"),
    ],
)
def test_routers_are_checked(make, tour, match):
    env = make(router=lambda day, chosen, leaving: [tour])
    with pytest.raises(InfeasibleTour, match=match):
        env.step(np.array([1, 1, 0, 0, 0, 0]))


def test_a_router_may_write_to_what_it_gets(make, day):
    """Whatever it does to the mask, both requests must be visited: 10 + 12 + 25 away."""

    def router(day, chosen, leaving):
        chosen[:] = False
        leaving[:] = 0
        return [[1, 2]]

    assert make(router=router).step(np.array([1, 1, 0, 0, 0, 0]))[1] == -47.0
    assert policies.play(day, policies.greedy, lambda day, chosen, leaving: [leave(chosen)], None).tolist() == [67]


def leave(chosen):
    """Return the route of a router that ticks off the requests of one day."""
    route = (np.flatnonzero(chosen[0]) + 1).tolist()
    chosen[:] = False
    return route


def test_nobody_leaves(make):
    """Without numbers, NumPy's array of the tours is float64."""
    env = make(router=lambda day, chosen, leaving: np.array([[]]))
    assert env.step(np.zeros(6, int))[1] == 0.0


@pytest.mark.parametrize("tours", [None, [[1], [2, 1]], [1, 2], [["a"]]])
def test_what_is_no_tour_of_a_router(make, tours):
    env = make(router=lambda day, chosen, leaving: tours)
    with pytest.raises(ValueError, match=r"tours: expected integers of shape \(1, T\), got "):
        env.step(np.array([1, 1, 0, 0, 0, 0]))


@pytest.mark.parametrize(
    ("changes", "tour", "match"),
    [
        ({"capacity": np.array([3])}, [1, 2], "step 1: request 2: the route exceeds the capacity"),
        ({"time_window": np.tile([100, 104], (1, 6, 1))}, [1, 2], "step 1: request 2: the vehicle is late"),
        ({"closing": np.array([141])}, [1, 2], "step 2: back at the depot: the vehicle is late"),  # back at 142
    ],
)
def test_routes_are_checked(day, changes, tour, match):
    chosen = np.array([[True, True, False, False, False, False]])
    with pytest.raises(InfeasibleTour, match=match):
        rules.route_cost(replace(day, **changes), chosen, np.array([tour]), np.zeros(1, int))


def test_vehicles_that_stay_are_not_late(day):
    """The last epoch leaves at 100, the depot has closed at 90, and nobody drives."""
    none = np.zeros((1, 6), bool)
    assert rules.route_cost(replace(day, closing=np.array([90])), none, np.array([[0, 0]]), np.array([100])) == [0]


def test_rows_of_routes_are_independent(settings):
    """Random sets of requests of many days at once are routed and priced as each alone; costs as summed one by one."""
    source = ResampledDays(**{**settings, "max_requests": 8})
    days = source.draw([np.random.default_rng(seed) for seed in range(40)])
    chosen = (days.arrival == 0) & (np.random.default_rng(0).random(days.arrival.shape) < 0.7)
    leaving = np.zeros(40, int)
    tours = nearest(days, chosen, leaving)
    costs = rules.route_cost(days, chosen, tours, leaving)
    for row in range(40):
        alone = source.draw([np.random.default_rng(row)])
        tour = nearest(alone, chosen[[row]], leaving[:1])[0]
        assert np.trim_zeros(tour).tolist() == np.trim_zeros(tours[row]).tolist()
        nodes = [0, *(alone.customer[0, request - 1] if request else 0 for request in tour), 0]
        assert costs[row] == sum(source.static.durations[leg] for leg in pairwise(nodes))


def same(ours, theirs):
    """Compare what two vector environments return, keys, dtypes and objects included."""
    if isinstance(ours, dict):
        assert ours.keys() == theirs.keys()
        for key in ours:
            same(ours[key], theirs[key])
    elif isinstance(ours, np.ndarray) and ours.dtype != object:
        assert ours.dtype == theirs.dtype
        assert np.array_equal(ours, theirs)
    elif isinstance(ours, np.ndarray):
        for one, other in zip(ours, theirs, strict=True):
            same(one, other)
    else:
        assert type(ours) is type(theirs)
        assert ours == theirs


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
@pytest.mark.parametrize(
    "arguments",
    [
        {"num_epochs": 3, "requests": 4.0, "observe_durations": True},
        {"num_epochs": 2, "requests": 2.0, "action": "route"},
        "static",
    ],
)
def test_vector_environments_equal_single_ones(arguments, mode, settings):
    """Lane by lane, in observations, rewards and infos; a few actions are illegal, so that lanes get out of step."""
    static = arguments == "static"
    arguments = settings | {"max_requests": 5} if static else arguments
    native = gym.make_vec("routing/DVRPTW", num_envs=3, autoreset_mode=mode, **arguments)
    sync = gym.make_vec(
        "routing/DVRPTW",
        num_envs=3,
        vectorization_mode="sync",
        vector_kwargs={"autoreset_mode": AutoresetMode(mode)},
        **arguments,
    )
    ours, theirs = native.reset(seed=5), sync.reset(seed=5)
    rng, space, num_illegal = np.random.default_rng(0), native.single_action_space, 0
    space.seed(1)
    for _ in range(25):
        same(ours[0], theirs[0])
        same(ours[-1], theirs[-1])
        masks = ours[0]["action_mask"]
        actions = np.stack([space.sample(mask=mask) if rng.random() < 0.95 else space.sample() for mask in masks])
        ours, theirs = native.step(actions), sync.step(actions)
        for one, other in zip(ours[1:4], theirs[1:4], strict=True):
            same(one, other)
        num_illegal += (ours[1] < (-400 if static else -50_000)).sum()
    assert num_illegal


@pytest.mark.parametrize("action", ["dispatch", "route"])
def test_rendering(make, action):
    env = make(action=action, render_mode="ansi")
    for step in [np.array([1, 1, 0, 0, 0, 0])] if action == "dispatch" else [1, 2, 0, 7]:
        env.step(step)
    assert env.render() == "epoch 1, driven 47: 1 open, 1 must leave\nroute 1, 2"
    env = make(action=action, render_mode="rgb_array")
    before = env.render()
    assert before.shape == (400, 400, 3)
    env.step(1 if action == "route" else np.array([1, 0, 0, 0, 0, 0]))
    assert (env.render() != before).any()


def test_masks_are_applied(make):
    """The wrapper dispatches request 3, which must leave, and not request 4, which does not exist."""
    env = ApplyMask(make())
    env.step(np.array([0, 1, 1, 1, 1, 1]))
    _, reward, _, _, info = env.step(np.array([1, 0, 0, 1, 0, 0]))
    assert not info["illegal_action"]
    assert (reward, info["routes"]) == (-20.0, [[3, 1]])
    for wrong, match in ((1, r"expected shape \(6,\), got \(\)"), ([0.7] * 6, "expected 0 and 1, got 0.7")):
        with pytest.raises(InvalidAction, match=match):
            env.step(wrong)
    with pytest.raises(TypeError, match='expected routing/DVRPTW with action="dispatch"'):
        ApplyMask(make(action="route"))


def test_a_day_of_ones_own_is_copied(settings, day):
    """NumPy's new axes have stride 0, like maps that lanes share, but the caller may write to them."""
    durations = np.array(day.durations[0], dtype=np.int64)
    env = gym.make("routing/DVRPTW", **settings)
    env.reset(options={"instance": replace(day, durations=durations[None])})
    durations[:] = 0
    assert env.step(np.array([0, 1, 0, 0, 0, 0]))[1] == -45.0


def test_lanes_reset_apart(settings, day):
    """Lane 1 starts another day, once drawn and once given; the others go on, and share their map until then."""
    envs = gym.make_vec("routing/DVRPTW", num_envs=3, autoreset_mode="Disabled", **settings)
    envs.reset(seed=0)
    envs.step(envs.unwrapped.must_go_action())
    mask = np.array([False, True, False])
    _, info = envs.reset(seed=7, options={"reset_mask": mask})
    assert info["epoch"].tolist() == [0, 0, 0]  # zeros where `_epoch` is False
    assert info["_epoch"].tolist() == [False, True, False]
    assert envs.unwrapped.state.epoch.tolist() == [1, 0, 1]
    assert envs.unwrapped.instance.durations.strides[0] == 0
    other = replace(day, durations=day.durations + np.array([[0, 5, 5], [5, 0, 5], [5, 5, 0]], dtype=np.int32))
    observation, _ = envs.reset(options={"reset_mask": mask, "instance": concatenate([other] * 3)})
    assert observation["depot_durations"][1, :2] * 400 == pytest.approx(np.array([[15, 15], [25, 30]]))
    assert envs.unwrapped.instance.durations[:, 0, 1].tolist() == [10, 15, 10]
    _, rewards, *_ = envs.step(np.stack([*envs.unwrapped.must_go_action()[:1], [1, 1, 0, 0, 0, 0], [0] * 6]))
    assert rewards[1] == -15 - 17 - 30
