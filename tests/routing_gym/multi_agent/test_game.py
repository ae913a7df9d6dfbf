"""CompetitiveOP: its contract, values worked by hand, and brute force on tiny instances."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from routing_gym import CompetitiveOP, CompetitiveOPInstance, InvalidInstance
from routing_gym.arrays import converter, select, to_backend, to_numpy
from routing_gym.multi_agent import heuristics
from routing_gym.multi_agent.optimum import cooperative_optimum
from routing_gym.sampling import sample_actions
from routing_gym.testing import ContractViolation, check_game

BACKENDS = ["numpy", "torch"]
SETTINGS = [
    {},
    {"control": "velocity"},
    {"rivals_seen": 2, "cooperation": 0.3},
    {"num_listed": 20, "rivals_seen": 9},  # more than there are
    {"num_customers": 1, "num_ticks": 1},
]


def make(game, coords, start, prize, backend="numpy"):
    """One instance."""
    arrays = np.array([coords], np.float32), np.array([start], np.float32), np.array([prize])
    instance = CompetitiveOPInstance(*arrays)
    game.validate(instance)
    return to_backend(instance, backend)


def play(game, instance, actions):
    """Step through actions (B, T, m); return all states, and gains (B, T, m)."""
    move = converter("numpy" if isinstance(instance.coords, np.ndarray) else "torch")
    states, gains = [game.initial(instance)], []
    for action in np.moveaxis(actions, 1, 0):
        state, gained = game.step(instance, states[-1], move(action))
        states.append(state)
        gains.append(to_numpy(gained))
    return states, np.stack(gains, axis=1)


@pytest.mark.parametrize(("num_agents", "settings"), list(zip([2, 3, 8, 2, 1], SETTINGS, strict=True)), ids=str)
def test_contract(num_agents, settings):
    pytest.importorskip("torch")
    check_game(CompetitiveOP(num_agents, **settings))


def test_defaults():
    """n = 2m, a step of 0.08 / sqrt(4) = 0.04, a radius of half of it, 16 ticks, 8 listed, no rivals."""
    game = CompetitiveOP(4)
    assert (game.num_customers, game.step_length, game.radius) == (8, 0.04, 0.02)
    assert (game.num_ticks, game.num_listed, game.rivals_seen, game.cooperation) == (16, 8, 0, 0.0)


def test_a_vehicle_drives_and_lands_exactly(backend):
    """A customer 0.25 away at steps of 0.1: at 0.1, 0.2, and then 0.25, where it collects its 40 hundredths."""
    game = CompetitiveOP(1, 1, num_ticks=4, step_length=0.1)
    instance = make(game, [[0.75, 0.5]], [[0.5, 0.5]], [40], backend)
    states, gains = play(game, instance, np.ones((1, 4, 1), int))
    x = [float(state.position[0, 0, 0]) for state in states]
    assert x == pytest.approx([0.5, 0.6, 0.7, 0.75, 0.75], abs=1e-12)
    assert x[3] == 0.75
    assert gains.ravel().tolist() == [0, 0, 0.4, 0]


def test_three_steps_reach_what_is_three_steps_away(backend):
    """In float32, 0.8 is 1e-8 more than three steps of 0.1 from 0.5."""
    game = CompetitiveOP(1, 1, num_ticks=3, step_length=0.1)
    instance = make(game, [[0.8, 0.5]], [[0.5, 0.5]], [40], backend)
    assert play(game, instance, np.ones((1, 3, 1), int))[1].ravel().tolist() == [0, 0, 0.4]


def test_nothing_is_collected_after_the_last_tick(backend):
    """Two customers in one place: the one collected is gone from the state of critics, the other is not to be had."""
    game = CompetitiveOP(1, 2, num_ticks=1, step_length=0.125)
    instance = make(game, [[0.5, 0.5], [0.5, 0.5]], [[0.5, 0.625]], [40, 50], backend)
    states, gains = play(game, instance, np.ones((1, 2, 1), int))
    assert gains.ravel().tolist() == [0.4, 0]
    assert not to_numpy(game.action_mask(instance, states[1]))[..., 1:].any()
    customers = to_numpy(game.global_state(instance, states[1]))[0, 4:12].reshape(2, 4)
    assert customers[:, 2:] == pytest.approx(np.array([[0, 0], [0.5, 1]]))


def test_an_equal_distance_duel_pays_one_half_each(backend):
    """Both are 0.2 from a prize of 0.31: each gets 0.155; with another sharer, a third of it."""
    game = CompetitiveOP(2, 1, num_ticks=3, step_length=0.1)
    instance = make(game, [[0.5, 0.5]], [[0.3, 0.5], [0.5, 0.7]], [31], backend)
    _, gains = play(game, instance, np.ones((1, 3, 2), int))
    assert gains[0].tolist() == [[0, 0], [0.155, 0.155], [0, 0]]
    trio = CompetitiveOP(3, 1, num_ticks=3, step_length=0.1)
    instance = make(trio, [[0.5, 0.5]], [[0.3, 0.5], [0.5, 0.7], [0.5, 0.3]], [30], backend)
    assert play(trio, instance, np.ones((1, 3, 3), int))[1].sum(axis=1)[0].tolist() == [0.1, 0.1, 0.1]


def test_the_nearer_one_takes_all():
    """0.1 against 0.2 away: the first arrives in tick 1; the other finds nothing left to choose."""
    game = CompetitiveOP(2, 1, num_ticks=3, step_length=0.1)
    instance = make(game, [[0.5, 0.5]], [[0.4, 0.5], [0.7, 0.5]], [50])
    states, gains = play(game, instance, np.ones((1, 3, 2), int))
    assert gains.sum(axis=1)[0].tolist() == [0.5, 0]
    assert not game.action_mask(instance, states[1])[..., 1:].any()
    assert states[-1].position[0, 1] == pytest.approx([0.6, 0.5])  # its one move, then illegal actions: it stays


def test_only_what_can_be_reached_in_time_is_legal(backend):
    """0.3 away at steps of 0.1: legal with 3 ticks left, after a tick of waiting no more."""
    game = CompetitiveOP(1, 2, num_ticks=3, step_length=0.1, num_listed=3)
    instance = make(game, [[0.8, 0.5], [0.9, 0.5]], [[0.5, 0.5]], [50, 60], backend)
    states, _ = play(game, instance, np.zeros((1, 1, 1), int))
    masks = [to_numpy(game.action_mask(instance, state))[0, 0].tolist() for state in states]
    assert masks == [[True, True, False, False], [True, False, False, False]]


def test_one_may_change_ones_mind():
    """A step of 0.1 to the right, then back to the customer 0.2 to the left, which is 0.3 away: ticks 2 to 4."""
    game = CompetitiveOP(1, 2, num_ticks=4, step_length=0.1)
    instance = make(game, [[0.8, 0.5], [0.3, 0.5]], [[0.5, 0.5]], [50, 60])
    # At first 1 is the left one (0.2), 2 the right one (0.3); at x = 0.6 the right one is nearer.
    _, gains = play(game, instance, np.array([[[2], [2], [1], [1]]]))
    assert gains.sum() == pytest.approx(0.6)
    assert game.replay(instance, np.array([[[2], [2], [1], [1]]])).item() == pytest.approx(0.6)


def test_velocity_is_cut_to_the_disc_and_the_square(backend):
    """(3, 4) is 5 long: cut to (0.6, 0.8), a step of 0.1 gives (0.06, 0.08); at the wall, x stays 1."""
    game = CompetitiveOP(2, 1, num_ticks=2, step_length=0.1, control="velocity")
    instance = make(game, [[0.5, 0.1]], [[0.5, 0.5], [0.98, 0.5]], [50], backend)
    states, _ = play(game, instance, np.array([[[[3.0, 4.0], [1.0, 0.0]]]], np.float32))
    assert to_numpy(states[1].position)[0] == pytest.approx(np.array([[0.56, 0.58], [1.0, 0.5]]), abs=1e-7)


def test_any_finite_velocity_counts(backend):
    """Squares of 1e200 overflow; it moves as (1, 0) does."""
    game = CompetitiveOP(1, 1, num_ticks=1, step_length=0.1, control="velocity")
    instance = make(game, [[0.6, 0.5]], [[0.5, 0.5]], [50], backend)
    for velocity in ([1.0, 0.0], [1e200, 0.0]):
        assert play(game, instance, np.array([[[velocity]]]))[1].ravel().tolist() == [0.5]


def test_what_is_gone_is_gone_however_far_one_drives():
    """A step as long as the mark of customers that are not there."""
    check_game(CompetitiveOP(2, step_length=1e6))
    game = CompetitiveOP(1, 1, step_length=2e6)
    instance = make(game, [[0.6, 0.5]], [[0.5, 0.5]], [80])
    states, gains = play(game, instance, np.ones((1, 3, 1), int))
    assert gains.sum() == pytest.approx(0.8)
    assert heuristics.rival_aware(game, instance, states[-1]).tolist() == [[0]]


def test_velocity_collects_within_the_radius(backend):
    """From 0.5625 by 0.125 to 0.6875, then by 0.03125 to 0.71875: 0.03125 from both, the radius exactly."""
    game = CompetitiveOP(1, 2, num_ticks=2, step_length=0.125, radius=0.03125, control="velocity")
    instance = make(game, [[0.75, 0.5], [0.75, 0.5]], [[0.5625, 0.5]], [50, 25], backend)
    actions = np.array([[[[1.0, 0.0]], [[0.25, 0.0]]]], np.float32)
    _, gains = play(game, instance, actions)
    assert gains.ravel().tolist() == [0, 0.75]


def test_what_one_agent_sees(backend):
    """Two steps of 0.1 in 4 ticks: the whole way is 0.4.

    At (0.6, 0.5) after a tick to the right: 3 of 4 ticks left, 0.1 from the centre over 0.3 still to travel.
    The customer is 0.2 away, half the whole way, with a prize of 0.5. The rival is 0.3 below: 0.75 of it.
    """
    game = CompetitiveOP(2, 1, num_ticks=4, step_length=0.1, num_listed=2, rivals_seen=2)
    instance = make(game, [[0.8, 0.5]], [[0.5, 0.5], [0.6, 0.2]], [50], backend)
    states, _ = play(game, instance, np.array([[[1, 0]]]))
    seen = {key: to_numpy(value)[0, 0] for key, value in game.observe(instance, states[1]).items()}
    assert seen["self"] == pytest.approx([0.6, 0.5, 1, 0, 0.75, 1 / 3, 0], abs=1e-6)
    assert seen["customers"] == pytest.approx(np.array([[1, 0.5, 0, 0.5, 0.5], [0] * 5]), abs=1e-6)
    assert seen["rivals"] == pytest.approx(np.array([[1, 0, -0.75, 0.75], [0] * 4]), abs=1e-6)
    assert seen["action_mask"].tolist() == [1, 1, 0]
    whole = to_numpy(game.global_state(instance, states[1]))[0]
    assert whole == pytest.approx([0.6, 0.5, 1, 0, 0.6, 0.2, 0, 0, 0.8, 0.5, 0.5, 1, 0.75], abs=1e-6)


def test_observations_do_not_grow():
    spaces = [CompetitiveOP(m, rivals_seen=3).observation_space() for m in (2, 32)]
    assert [[box.shape for box in space.values()] for space in spaces] == [[(9,), (8, 5), (3, 4), (7,)]] * 2


def test_rewards_share_the_mean():
    """Gains 1 and 0 at c = 0.4: 0.6 + 0.4 * 0.5 = 0.8 and 0.2."""
    assert CompetitiveOP(2, cooperation=0.4).rewards(np.array([[1.0, 0.0]]))[0] == pytest.approx([0.8, 0.2])


def every_plan(game, instance):
    """Play every sequence of joint actions; return them (N, T, m), and gains (N, m)."""
    joint = list(itertools.product(range(game.num_actions), repeat=game.num_agents))
    plans = np.array(list(itertools.product(joint, repeat=game.num_ticks)))
    many = select(instance, np.zeros(len(plans), int))
    return plans, play(game, many, plans)[1].sum(axis=1)


def open_orienteering(game, instance):
    """Try every order of every number of customers, for one vehicle."""
    points = [instance.start[0, 0], *instance.coords[0]]
    best = 0
    for count in range(game.num_customers + 1):
        for order in itertools.permutations(range(1, game.num_customers + 1), count):
            legs = itertools.pairwise([0, *order])
            ticks = sum(max(1, math.ceil(math.dist(points[a], points[b]) / game.step_length - 1e-6)) for a, b in legs)
            if ticks <= game.num_ticks:
                best = max(best, sum(int(instance.prize[0, c - 1]) for c in order))
    return best / 100


@pytest.mark.parametrize("seed", range(5))
def test_one_agent_is_open_orienteering(seed):
    """The best of 4^6 action sequences is the best order of customers, and the subset program's."""
    game = CompetitiveOP(1, 3, num_ticks=6, step_length=0.17)
    instance = game.generate(np.random.default_rng(seed), 1)
    expected = open_orienteering(game, instance)
    assert every_plan(replace(game, num_listed=3), instance)[1].max() == pytest.approx(expected)
    assert cooperative_optimum(game, instance)[0] == pytest.approx(expected)
    larger = CompetitiveOP(1, 6, step_length=0.1)
    instance = larger.generate(np.random.default_rng(seed), 1)
    assert cooperative_optimum(larger, instance)[0] == pytest.approx(open_orienteering(larger, instance))


@pytest.mark.parametrize("seed", range(5))
def test_at_full_cooperation_the_best_plan_is_an_equilibrium(seed):
    """Of 16^3 joint plans, the best collects the cooperative optimum; at c = 1 nobody gains by leaving it."""
    game = CompetitiveOP(2, 3, num_ticks=3, step_length=0.3, num_listed=3, cooperation=1.0)
    instance = game.generate(np.random.default_rng(seed), 1)
    plans, gains = every_plan(game, instance)
    assert gains.sum(axis=1).max() == pytest.approx(cooperative_optimum(game, instance)[0])
    rewards, best = game.rewards(gains), np.argmax(gains.sum(axis=1))
    for agent in (0, 1):
        same_other = (plans[:, :, 1 - agent] == plans[best, :, 1 - agent]).all(axis=1)
        assert same_other.sum() == 4**3
        assert rewards[same_other, agent].max() <= rewards[best, agent] + 1e-12


def test_disjoint_reach_decomposes():
    """Two corners 1.27 apart, ways of 0.4: together they collect what each collects alone."""
    game = CompetitiveOP(2, 6, num_ticks=4, step_length=0.1, num_listed=3)
    alone = CompetitiveOP(1, 3, num_ticks=4, step_length=0.1, num_listed=3)
    rng = np.random.default_rng(0)
    coords = np.concatenate([rng.uniform(0, 0.1, (20, 3, 2)), rng.uniform(0.9, 1, (20, 3, 2))], axis=1)
    start = np.repeat([[[0.05, 0.05], [0.95, 0.95]]], 20, axis=0)
    both = CompetitiveOPInstance(coords.astype(np.float32), start.astype(np.float32), rng.integers(1, 101, (20, 6)))
    actions = rng.integers(0, 4, (20, 4, 2))
    together = play(game, both, actions)[1]
    for agent, mine in enumerate((slice(0, 3), slice(3, 6))):
        own = CompetitiveOPInstance(both.coords[:, mine], both.start[:, agent : agent + 1], both.prize[:, mine])
        assert np.array_equal(play(alone, own, actions[:, :, agent : agent + 1])[1][..., 0], together[..., agent])


def test_optimum_with_many_vehicles_bounds_every_heuristic():
    game = CompetitiveOP(4)
    instance = game.generate(np.random.default_rng(0), 30)
    best = cooperative_optimum(game, instance)
    for heuristic in heuristics.HEURISTICS.values():
        assert (collected(game, instance, heuristic) <= best + 1e-9).all()


def test_optimum_refuses_what_it_cannot_do():
    game = CompetitiveOP(2, 13)
    with pytest.raises(ValueError, match="at most 12 customers, got 13"):
        cooperative_optimum(game, game.generate(np.random.default_rng(0), 1))
    game = CompetitiveOP(2, control="velocity")
    with pytest.raises(ValueError, match='needs control="target"'):
        cooperative_optimum(game, game.generate(np.random.default_rng(0), 1))


def collected(game, instance, policy):
    """Play a policy to the end; return what all agents have collected: (B,)."""
    state, gained = game.initial(instance), 0
    for _ in range(game.num_ticks):
        state, gains = game.step(instance, state, policy(game, instance, state))
        gained = gained + to_numpy(gains).sum(axis=1)
    return gained


def random_policy(rng):
    """Choose among the customers in reach; stay only where there is none."""

    def policy(game, instance, state):
        mask = game.action_mask(instance, state)
        mask[..., 0] &= ~mask[..., 1:].any(axis=-1)
        return sample_actions(mask.reshape(-1, game.num_actions), rng).reshape(-1, game.num_agents)

    return policy


@pytest.mark.parametrize(
    ("num_agents", "shares"), [(2, (0.58, 0.78, 0.81, 0.89)), (8, (0.50, 0.72, 0.75, 0.84))], ids=["m=2", "m=8"]
)
def test_shares_are_those_of_the_prototype(num_agents, shares):
    """Another program, with other random instances, found these: random, nearest, per tick, rival-aware."""
    game = CompetitiveOP(num_agents)
    instance = game.generate(np.random.default_rng(1), 1000)
    prizes = game.remaining(instance, game.initial(instance))
    policies = [random_policy(np.random.default_rng(0)), *heuristics.HEURISTICS.values()]
    found = [np.mean(collected(game, instance, policy) / prizes) for policy in policies]
    assert found == pytest.approx(shares, abs=0.02)
    assert found == sorted(found)


@pytest.mark.parametrize("control", ["target", "velocity"])
def test_heuristics_agree_on_torch(control):
    pytest.importorskip("torch")
    game = CompetitiveOP(4, control=control)
    instance = game.generate(np.random.default_rng(0), 50)
    for heuristic in heuristics.HEURISTICS.values():
        found = [collected(game, to_backend(instance, backend), heuristic) for backend in BACKENDS]
        assert found[0] == pytest.approx(found[1], abs=1e-9)


def test_rival_aware_leaves_a_lost_customer_alone():
    """The rich customer is 0.1 from the rival and 0.2 from us; the poor one, on our other side, is ours."""
    game = CompetitiveOP(2, 2, num_ticks=4, step_length=0.1)
    instance = make(game, [[0.7, 0.5], [0.3, 0.5]], [[0.5, 0.5], [0.8, 0.5]], [100, 10])
    choices = [h(game, instance, game.initial(instance))[0].tolist() for h in heuristics.HEURISTICS.values()]
    assert choices == [[1, 1], [1, 1], [2, 1]]  # 1 is the rich one: equally far, with the lower number


class Uneven(CompetitiveOP):
    """Pays the first agent a little more: agents are not exchangeable, and prize is not conserved."""

    def step(self, instance, state, action):
        new_state, gains = super().step(instance, state, action)
        gains[:, 0] *= 1.01
        return new_state, gains


class Forgetful(CompetitiveOP):
    """Shows agents in their order: the second sees more than the first."""

    def observe(self, instance, state):
        seen = super().observe(instance, state)
        seen["self"][:, 1:, 2] = 0
        return seen


def test_the_suite_takes_a_game():
    with pytest.raises(TypeError, match="takes a game, .*, got 'COP'"):
        check_game("COP")


@pytest.mark.parametrize(
    ("broken", "told"), [(Uneven(3), "less is left"), (Forgetful(3), "not exchangeable in what they see")]
)
def test_the_suite_finds_what_is_broken(broken, told):
    with pytest.raises(ContractViolation, match=told):
        check_game(broken)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"num_agents": 0}, "num_agents must be an integer of at least 1, got 0"),
        ({"num_agents": 2.5}, "num_agents must be an integer"),
        ({"num_agents": 2, "rivals_seen": -1}, "rivals_seen must be an integer of at least 0, got -1"),
        ({"num_agents": 2, "step_length": 0.0}, "step_length must be positive and finite, got 0.0"),
        ({"num_agents": 2, "radius": math.nan}, "radius must be positive and finite, got nan"),
        ({"num_agents": 2, "cooperation": 1.5}, r"cooperation must be in \[0, 1\], got 1.5"),
        ({"num_agents": 2, "cooperation": "all"}, r"cooperation must be in \[0, 1\], got 'all'"),
        ({"num_agents": 2, "control": "wheel"}, "control must be one of target, velocity; got 'wheel'"),
    ],
)
def test_settings_out_of_range(arguments, told):
    with pytest.raises(ValueError, match=told):
        CompetitiveOP(**arguments)


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("coords", np.full((1, 2, 2), np.nan, np.float32), r"coords: row 0, index \(0, 0\) is nan"),
        ("coords", np.zeros((1, 3, 2), np.float32), r"coords: expected shape \(B, 2, 2\), got \(1, 3, 2\)"),
        ("start", np.full((1, 1, 2), 1.5, np.float32), "start: .* is 1.5, expected in .*0, 1.*scale both axes"),
        ("start", np.zeros((2, 1, 2), np.float32), "one batch size, got"),
        ("prize", np.array([[0, 5]]), r"prize: row 0, index \(0,\) is 0, expected in \[1, 100\]; prizes are in hundr"),
        ("prize", np.array([[0.5, 0.5]]), "prize: expected integers .*, got floating-point numbers"),
    ],
)
def test_instances_that_make_no_sense(field, value, told):
    game = CompetitiveOP(1)
    instance = game.generate(np.random.default_rng(0), 1)
    with pytest.raises(InvalidInstance, match=told):
        game.validate(replace(instance, **{field: value}))


@pytest.mark.parametrize(
    ("control", "actions", "told"),
    [
        ("target", np.zeros((1, 17, 2), int), r"shape \(1, T, 2\) with T at most 16; got \(1, 17, 2\)"),
        ("target", np.zeros((1, 1, 3), int), r"got \(1, 1, 3\)"),
        ("target", np.zeros((1, 1, 2)), "expected integers, got float64"),
        ("target", np.array([[[0, 9]]]), "row 0, tick 0, agent 1 is 9; actions are 0 to 8"),
        ("velocity", np.zeros((1, 1, 2), int), r"shape \(1, T, 2, 2\)"),
        ("velocity", np.full((1, 1, 2, 2), np.nan), "row 0, tick 0, agent 0 is nan; velocities must be finite"),
    ],
)
def test_replay_refuses_what_is_no_game(control, actions, told):
    game = CompetitiveOP(2, control=control)
    with pytest.raises(ValueError, match=told):
        game.replay(game.generate(np.random.default_rng(0), 1), actions)


def test_velocities_have_no_mask():
    game = CompetitiveOP(2, control="velocity")
    instance = game.generate(np.random.default_rng(0), 1)
    with pytest.raises(TypeError, match="every velocity is legal"):
        game.action_mask(instance, game.initial(instance))
