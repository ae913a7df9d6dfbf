"""Routes by PyVRP, prizes, the day in hindsight, and the policies that learn nothing."""

from dataclasses import replace
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest

from routing_gym.arrays import select
from routing_gym.dynamic import GeneratedDays, policies, rules
from routing_gym.dynamic.days import NEVER
from routing_gym.dynamic.oracle import (
    dispatch_epochs,
    hindsight_cost,
    solve_hindsight,
    solve_in_hindsight,
)
from routing_gym.dynamic.routers import nearest
from routing_gym.dynamic.solver import Limits, PyVRPRouter, prize_collecting
from routing_gym.problem import InfeasibleTour
from routing_gym.solvers.runtime.pool import Processes

pytest.importorskip("pyvrp")
FEW = Limits(seconds=None, iterations=60)


def routes_of(tour):
    """Cut a tour into the sets of its routes."""
    ids = "".join(chr(64 + stop) if stop else " " for stop in tour).split()
    return sorted([ord(letter) - 64 for letter in route] for route in ids)


def test_hindsight_by_hand(day):
    """Request 1 opens from 92 to 110. Cheapest: 3 and 1 together, once 3 has arrived, 10 + 0 + 10; 2 alone, 20 + 25.

    Others: 1 and 2 then 3, 47 + 20; 3 and 2 then 1, 47 + 20; each alone, 20 + 45 + 20. Three exceed the capacity, and
    2 before 1 (20 + 14 + 10) is late.
    """
    day.time_window[0, 0] = [92, 110]
    tour = solve_hindsight(day, 0, FEW)
    assert routes_of(tour) == [[2], [3, 1]]
    assert hindsight_cost(day, 0, tour) == 65
    assert dispatch_epochs(day, 0, tour).tolist() == [1, 0, 1, NEVER, NEVER, NEVER]
    for wrong, match in (([3, 1], "request 2 was to leave"), ([99, 0], "request 99: there is no such request")):
        with pytest.raises(InfeasibleTour, match=match):
            hindsight_cost(day, 0, wrong)


@pytest.mark.parametrize(
    ("prize", "required", "expected"),
    [
        ([25, 40], [False, False], [[2, 1]]),  # together 20 + 14 + 10, worth 65; alone 1 gains 5, 2 nothing
        ([40, 20], [False, False], [[1]]),  # 1 alone costs 20; 2 on the way 24 more than that
        ([5, 5], [False, False], []),
        ([-9, 30], [True, False], [[2, 1]]),  # one has to go to 1
        ([-9, 5], [True, False], [[1]]),
        ([-9, -9], [False, True], [[2]]),
    ],
)
def test_prizes_by_hand(day, prize, required, expected):
    is_open = np.array([True, True, False, False, False, False])
    prizes, flags = np.zeros(6, int), np.zeros(6, bool)
    prizes[:2], flags[:2] = prize, required
    assert routes_of(prize_collecting(day, 0, is_open, flags, 0, prizes, FEW)) == expected


def test_pyvrp_routes_are_legal_and_shorter():
    """On 10 random days, all of the second epoch's requests: checked by `route_cost`, 5 % shorter than `nearest`."""
    days = GeneratedDays(requests=12.0).draw([np.random.default_rng(seed) for seed in range(10)])
    chosen, leaving = days.arrival == 1, days.margin + days.epoch_duration
    ours = rules.route_cost(days, chosen, PyVRPRouter(FEW)(days, chosen, leaving), leaving)
    assert ours.sum() < 0.95 * rules.route_cost(days, chosen, nearest(days, chosen, leaving), leaving).sum()


def test_pyvrp_by_name():
    env = gym.make("routing/DVRPTW", router=PyVRPRouter(FEW), num_epochs=1, requests=3.0)
    env.reset(seed=0)
    _, reward, *_, info = env.step(env.unwrapped.must_go_action())
    assert reward < 0
    assert sum(map(len, info["routes"])) == (env.unwrapped.day.arrival < NEVER).sum()


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"seconds": None}, "set at least one"),
        ({"seconds": 0.0}, "seconds must be a positive number"),
        ({"seconds": "1"}, "seconds must be a positive number"),
        ({"iterations": 0}, "iterations must be an integer of at least 1"),
        ({"seed": -1}, "seed must be an integer of at least 0"),
    ],
)
def test_bad_limits(arguments, match):
    with pytest.raises(ValueError, match=match):
        Limits(**arguments)


def test_a_number_is_no_limit():
    for make in (PyVRPRouter, lambda limits: policies.ScenarioSampling(GeneratedDays(), limits)):
        with pytest.raises(TypeError, match=r"limits: expected Limits, such as Limits\(seconds=0.5\); got 0.05"):
            make(0.05)


def test_threshold_by_hand(day):
    """Latest departures 140, 280 and 80 (for instance 150 - 10)."""
    rng = np.random.default_rng(0)
    state = rules.initial(day)
    assert state.latest_departure[0, :3].tolist() == [140, 280, 80]
    for epochs, expected in (
        (0, [0, 0, 0]),
        (1, [0, 0, 0]),
        (2, [1, 0, 0]),
        (float("inf"), [1, 1, 0]),  # all that are open
    ):  # what 150 is too late for
        chosen = policies.Threshold(epochs)(rules.known_part(day, state), state, rng)
        assert chosen[0, :3].tolist() == expected
    later = rules.dispatch(state, np.zeros_like(state.dispatched))
    assert policies.lazy(day, later, rng)[0, :3].tolist() == [False, False, True]
    assert policies.greedy(day, later, rng)[0, :3].tolist() == [True, True, True]


@pytest.mark.parametrize("epochs", [-1, float("nan")])
def test_thresholds_that_make_no_sense(epochs):
    with pytest.raises(ValueError, match=f"epochs must be 0 or more, got {epochs}"):
        policies.Threshold(epochs)


def test_policies_that_break_rules_are_refused(day):
    for policy, match in (
        (lambda day, state, rng: np.zeros(day.arrival.shape, bool), "request 3 must leave and was left behind"),
        (lambda day, state, rng: np.ones(day.arrival.shape, bool), "request 3 is not open and was dispatched"),
        (lambda day, state, rng: [1, 2], r"policy: expected bool \(1, 6\), a mask .* got int64 \(2,\)"),
        (lambda day, state, rng: np.full(day.arrival.shape, 2), "policy: expected a mask .* got 2"),
    ):
        with pytest.raises(ValueError, match=match):
            policies.play(day, policy, nearest, np.random.default_rng(0))


def test_policies_see_what_has_arrived(day):
    """Request 3, which arrives in epoch 1, changes nothing that a policy gets before. Integers are a mask, too."""
    seen = []

    def policy(day, state, rng):
        seen.append((day, state))
        return policies.lazy(day, state, rng).astype(np.int8)

    other = replace(day, time_window=day.time_window + 10 * (day.arrival == 1)[..., None])
    costs = [policies.play(one, policy, nearest, np.random.default_rng(0)).tolist() for one in (day, other)]
    assert costs == [[67], [67]]
    (first, state), (again, later) = seen[0], seen[3]
    for one, two in ((first, again), (state, later)):
        assert all(
            np.array_equal(mine, theirs) for mine, theirs in zip(vars(one).values(), vars(two).values(), strict=True)
        )


def test_the_fast_router_ends_where_no_vehicle_can_serve_a_request(day):
    with pytest.raises(ValueError, match="row 0: a request cannot be served, even alone; see `check_day`"):
        policies.play(replace(day, demand=9 * (day.demand > 0)), policies.greedy, nearest, np.random.default_rng(0))


def test_rows_play_alone():
    """Days of a batch cost what each costs alone, also where they end in different epochs."""
    source = GeneratedDays(requests=4.0, num_epochs=3)
    days = source.draw([np.random.default_rng(seed) for seed in range(5)])
    days = replace(days, last_epoch=np.array([2, 3, 2, 4, 2]))
    rng = np.random.default_rng(0)
    together = policies.play(days, policies.lazy, nearest, rng)
    assert together.tolist() == [policies.play(select(days, [row]), policies.lazy, nearest, rng)[0] for row in range(5)]


def test_scenarios_save_and_hindsight_bounds():
    """On 3 days scenario sampling is more than 10 % below greedy, and no policy is below hindsight."""
    source = GeneratedDays(num_epochs=3)
    days = source.draw([np.random.default_rng(seed) for seed in range(3)])
    router = PyVRPRouter(FEW)
    scenarios = policies.ScenarioSampling(source, FEW, scenarios=4)
    greedy, sampled, again = (
        policies.play(days, policy, router, np.random.default_rng(0))
        for policy in (policies.greedy, scenarios, scenarios)
    )
    assert sampled.tolist() == again.tolist()
    assert sampled.mean() < 0.9 * greedy.mean()
    limits = Limits(seconds=None, iterations=300)
    alone = [solve_hindsight(days, row, limits) for row in range(3)]
    hindsight = [hindsight_cost(days, row, tour) for row, tour in enumerate(alone)]
    assert (np.array(hindsight) < sampled).all()
    batches = [select(days, [0, 1]), select(days, [2])]
    by_workers = solve_in_hindsight(batches, limits, Processes(2))
    assert [tours for _, tours in by_workers] == [alone[:2], alone[2:]]


def test_scenarios_need_the_clock_of_the_days():
    (days,) = (GeneratedDays(num_epochs=3).draw([np.random.default_rng(0)]),)
    other = GeneratedDays(num_epochs=3, epoch_duration=1800)
    with pytest.raises(ValueError, match="epoch_duration: the days have 3600, the source .* has 1800"):
        policies.play(days, policies.ScenarioSampling(other, FEW), nearest, np.random.default_rng(0))
    larger = policies.ScenarioSampling(GeneratedDays(num_epochs=3, capacity=400), FEW)
    with pytest.raises(ValueError, match="capacity: the days have 50, the source .* has 400"):
        policies.play(days, larger, nearest, np.random.default_rng(0))
    with pytest.raises(TypeError, match="source: expected one that has redraw, see DaySource; got SimpleNamespace"):
        policies.ScenarioSampling(SimpleNamespace(num_slots=1))


def test_bad_shares():
    with pytest.raises(ValueError, match="expected 0 <= postpone < dispatch <= 1"):
        policies.ScenarioSampling(GeneratedDays(), dispatch=0.1)
