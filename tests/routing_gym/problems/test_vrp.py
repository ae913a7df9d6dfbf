"""The VRP family: values worked out by hand, and all fifteen presets against the core of the contract."""

import re
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest

from routing_gym import CVRP, VRP, CVRPInstance, InfeasibleTour, InvalidInstance, VRPInstance, make_problem, render
from routing_gym.arrays import cast_instance, to_backend
from routing_gym.data.own import from_columns
from routing_gym.problems.vrp import ORIGINAL, PRESETS
from routing_gym.problems.vrp.pairs import delivery_order
from routing_gym.render.text import to_text
from routing_gym.rollout import rollout
from routing_gym.testing.exhaustive import check_exhaustively
from routing_gym.testing.problem import check_generate, check_objective, play

# On a line: the depot at 0, customers at 0.3, 0.1 and 0.2. Each asks for 5, a vehicle holds 10.
LINE = np.array([[[0.0, 0.5], [0.3, 0.5], [0.1, 0.5], [0.2, 0.5]]])
# The depot in the middle, a customer at 0.4 to either side.
SIDES = np.array([[[0.5, 0.5], [0.1, 0.5], [0.9, 0.5]]])
BACKHAUL = {"backhaul": np.array([[False, True, False, False]])}
WINDOWS = {
    "ready_time": np.array([[0.0, 0.5, 0.0, 0.0]]),
    "due_time": np.array([[1.0, 0.6, 0.2, 0.35]]),
    "service_time": np.array([[0.0, 0.1, 0.1, 0.1]]),
}


def make(coords, backend="numpy", demand=5, capacity=10, **attributes):
    goods = np.full(coords.shape[:2], demand)
    goods[:, 0] = 0
    return to_backend(cast_instance(VRPInstance(coords, goods, np.array([capacity]), **attributes)), backend)


def masks(problem, instance, *actions):
    """Play; return the mask before each action and after the last, as lists of nodes, and the costs."""
    state, found, costs = problem.initial(instance), [], []
    for action in (*actions, None):
        found.append(np.flatnonzero(np.asarray(problem.action_mask(instance, state)[0])).tolist())
        if action is not None:
            state, cost = problem.step(instance, state, 0 * instance.capacity + action)
            costs.append(round(float(cost[0]), 6))
    return found, costs


# --- the presets


def test_fifteen_presets_are_named_as_in_the_literature():
    names = ["VRPTW", "VRPL", "VRPLTW", "VRPB", "VRPBTW", "VRPBL", "VRPBLTW"]
    assert [*names, "OVRP", *("O" + name for name in names)] == ORIGINAL
    assert [make_problem(name, 5).name for name in PRESETS] == list(PRESETS)
    assert gym.make("routing/OVRPBLTW-20").unwrapped.problem == VRP(20, None, True, True, 3.0, True)
    assert make_problem("VRPTW", 5, max_length=2.9).name == "VRPLTW"
    assert make_problem("OVRPBLTW", 5).variants == ("CVRP", *ORIGINAL)
    assert make_problem("OVRPL", 5).variants == ("CVRP", "VRPL", "OVRP", "OVRPL")
    assert make_problem("PDVRPTW", 5).variants == ("PDVRP", "PDVRPTW")


@pytest.mark.parametrize("name", sorted(set(ORIGINAL) - {"VRPTW", "OVRPBLTW"}))  # these: in test_contracts.py
def test_presets_keep_the_core_of_the_contract(name):
    """Random episodes, and brute force on three customers, of which one is a backhaul."""
    problem = make_problem(name, 10)
    instance = check_generate(problem, 8, 0)
    check_objective(problem, instance, play(problem, instance, np.random.default_rng(0)))
    small = make_problem(name, 3)
    check_exhaustively(small, small.generate(np.random.default_rng(0), 1))


@pytest.mark.parametrize("name", ORIGINAL)
def test_an_absent_attribute_is_absent(name):
    problem = make_problem(name, 5)
    instance = problem.generate(np.random.default_rng(0), 2)
    state = problem.initial(instance)
    attributes, windows = problem.attributes, {"ready_time", "due_time", "service_time"}
    given = {key for key, value in vars(instance).items() if value is not None}
    expected = {"B": {"backhaul"}, "L": {"max_length"}, "TW": windows}
    present = set().union(*(fields for letters, fields in expected.items() if letters in attributes))
    assert given == {"coords", "demand", "capacity"} | present
    kept = {key for key in ("length", "longest", "time", "latest") if getattr(state, key) is not None}
    assert kept == ({"length", "longest"} if "L" in attributes else set()) | (
        {"time", "latest"} if "TW" in attributes else set()
    )
    seen = set(problem.observation_space()) - set(CVRP(5).observation_space())
    shown = {"O": "open_routes", "L": "remaining_length", "TW": "current_time"}
    dynamic = {key for letters, key in shown.items() if letters in attributes}
    assert seen == (present - {"max_length"}) | dynamic


def test_instances_of_the_generator():
    """A fifth are backhauls; windows are 0.1 to 1 to each side of a time to serve, cut at 0 and 3."""
    problem = make_problem("VRPBLTW", 50)
    instance = problem.generate(np.random.default_rng(0), 200)
    problem.validate(instance)
    assert instance.backhaul.sum(axis=1).tolist() == [10] * 200
    assert not instance.backhaul[:, :41].any()
    assert (instance.max_length == 3).all()
    assert (instance.due_time[:, 0] == 3).all()
    assert (instance.ready_time[:, 0] == 0).all()
    ready, due = instance.ready_time[:, 1:], instance.due_time[:, 1:]
    away = np.linalg.norm(instance.coords[:, 1:] - instance.coords[:, :1], axis=-1)
    assert np.allclose(instance.service_time[:, 1:], 0.2)
    assert ready.min() >= 0
    assert due.max() <= 3
    whole = (ready > 0) & (due < 3)
    assert 0.2 - 1e-6 <= (due - ready)[whole].min() < 0.25
    assert 1.8 < (due - ready)[whole].max() <= 2 + 1e-6
    middle = ((ready + due) / 2)[whole] - away[whole]
    assert middle.min() >= -1e-6
    assert (middle <= 2.8 - 2 * away[whole] + 1e-6).all()


@pytest.mark.parametrize("name", ["VRP{}TW", "OVRP{}TW", "MDVRP{}TW", "PDVRP{}TW"])
def test_time_windows_of_generated_instances_imply_the_length_limit(name):
    """Random tours that serve customers as long as any is legal; see docs/reference/environments.md."""
    limited, without = make_problem(name.format("L"), 20), make_problem(name.format(""), 20)
    rng = np.random.default_rng(0)
    instance = limited.generate(rng, 200)
    unlimited = replace(instance, max_length=None)
    is_customer = without.is_customer(np.arange(without.num_actions))
    tours = rollout(
        without,
        unlimited,
        lambda seen: ((rng.random(seen["action_mask"].shape) + is_customer) * seen["action_mask"]).argmax(axis=1),
    ).actions
    assert np.array_equal(limited.objective(instance, tours), without.objective(unlimited, tours))
    with pytest.raises(InfeasibleTour, match="length"):
        limited.objective(replace(instance, max_length=instance.max_length * 0.8), tours)


def test_customers_in_the_far_corner_can_be_served():
    """From corner to corner it is 1.41421 there and back: 2.82843, which leaves 0.17157 of 3 for the service."""
    problem = make_problem("VRPLTW", 1)
    uniforms = np.array([[0.0, 0.0, 1.0, 1.0, 0.5, 0.5, 0.5]])
    instance = problem.from_uniforms(uniforms)
    problem.validate(instance)
    assert instance.service_time[0, 1] == pytest.approx(0.17157, abs=1e-5)


def test_needs_an_attribute():
    with pytest.raises(
        ValueError, match="VRP: give at least one of max_length, open_routes, backhauls, .*; CVRP has none"
    ):
        VRP(5)
    with pytest.raises(ValueError, match="VRPL: max_length must be at least 2.8284, the way to the farthest .* back"):
        VRP(5, max_length=2.0)
    with pytest.raises(ValueError, match="OVRPL: max_length must be at least 1.4142, the way to the farthest cust"):
        VRP(5, max_length=1.4, open_routes=True)


# --- open routes


def test_the_way_home_is_free(backend):
    """Out to 0.3; out to 0.1, on to 0.2: 0.3 + 0.1 + 0.1."""
    problem, instance = make_problem("OVRP", 3), make(LINE, backend)
    _, costs = masks(problem, instance, 1, 0, 2, 3, 0)
    assert costs == pytest.approx([0.3, 0.0, 0.1, 0.1, 0.0])
    assert float(problem.objective(instance, np.array([[1, 0, 2, 3, 0, 0]]))[0]) == pytest.approx(0.5)


# --- backhauls


def test_deliveries_come_first(backend):
    """10 delivered leave room for 10 to fetch; a vehicle that fetches first only goes home after it."""
    problem, instance = make_problem("VRPB", 3), make(LINE, backend, **BACKHAUL)
    found, costs = masks(problem, instance, 2, 3, 1, 0)
    assert found == [[1, 2, 3], [0, 1, 3], [0, 1], [0], [0]]
    assert costs == pytest.approx([0.1, 0.1, 0.1, 0.3])
    assert masks(problem, instance, 1)[0] == [[1, 2, 3], [0]]
    assert float(problem.objective(instance, np.array([[1, 0, 3, 2, 0]]))[0]) == pytest.approx(1.0)
    with pytest.raises(InfeasibleTour, match="row 0, step 1: node 2, a linehaul, comes after node 1, a backhaul; ret"):
        problem.objective(instance, np.array([[1, 2, 3, 0]]))


def test_goods_fetched_count_apart(backend):
    """Two backhauls of 6 do not fit into 10 together; one fits after a delivery of 6."""
    problem = make_problem("VRPB", 3)
    instance = make(LINE, backend, demand=6, backhaul=np.array([[False, True, False, True]]))
    assert masks(problem, instance, 2, 3, 0, 1)[0] == [[1, 2, 3], [0, 1, 3], [0], [1], [0]]
    with pytest.raises(InfeasibleTour, match="row 0, step 2: load 12 exceeds capacity 10 at node 1; return"):
        problem.objective(instance, np.array([[2, 3, 1, 0]]))
    state = problem.initial(instance)
    state, _ = problem.step(instance, state, 0 * instance.capacity + 3)
    seen = problem.observe_dynamic(instance, state)
    assert float(seen["free_capacity"][0, 0]) == pytest.approx(0.4)


def test_goods_on_board_limit_pickups_and_the_peak_deliveries(backend):
    """5 of 10 delivered at customer 2: the vehicle is empty, but left full to a half, so 5 more fit at the start."""
    problem, instance = make_problem("VRPMB", 3), make(LINE, backend, **BACKHAUL)
    state, _ = problem.step(instance, problem.initial(instance), 0 * instance.capacity + 2)
    seen = problem.observe_dynamic(instance, state)
    assert [float(seen[key][0, 0]) for key in ("free_capacity", "free_for_pickups")] == [0.5, 1.0]


def test_small_instances_have_a_backhaul():
    assert make_problem("VRPB", 3).generate(np.random.default_rng(0), 1).backhaul.tolist() == [[False] * 3 + [True]]


# --- pairs


def test_the_farthest_delivery_comes_first():
    """Pairs 1 and 3, 2 and 4: without windows 3, 0.2 away, is due after 4, 0.4 away."""
    line = np.stack([[0.0, 0.1, 0.3, 0.2, 0.4], [0.5] * 5], axis=-1)[None]
    instance = make(line, pickup=np.array([[0, 0, 0, 1, 2]]), max_length=np.array([4.5]))
    order, position = delivery_order(make_problem("PDVRPL", 4), instance)
    assert order.tolist() == [[4, 3]]
    assert position.tolist() == [[2, 1, 0, 1, 0]]


def test_pairs_drawn_at_the_last_moment_can_be_served():
    """From a corner across to the next and back by the third, as late and with windows as narrow as can be drawn."""
    problem = make_problem("PDVRPTW", 2)
    late = np.nextafter(1.0, 0.0)
    problem.validate(problem.from_uniforms(np.array([[0, 0, 1, 0, 1, 1, 0.5, 0.5, late, late, 0, 0]])))


# --- several depots, and customers left out


def test_finished_vehicles_of_another_depot_stay_at_the_first():
    """Depot 1 opens at 0.2; after the return to it, action 0 is legal and changes nothing."""
    line, goods = np.stack([[0.0, 0.0, 0.3], [0.5] * 3], axis=-1)[None], np.array([[0, 0, 5]])
    windows = {"ready_time": np.array([[0.0, 0.2, 0.0]]), "due_time": np.full((1, 3), 3.0)}
    windows["service_time"] = np.zeros((1, 3))
    instance = cast_instance(VRPInstance(line, goods, np.array([10]), **windows))
    problem = make_problem("MDVRPTW", 1, num_depots=2)
    state = problem.initial(instance)
    for action in (1, 2, 1):
        state, _ = problem.step(instance, state, np.array([action]))
    assert problem.done(instance, state).all()
    assert problem.action_mask(instance, state).tolist() == [[True, False, False]]
    again, cost = problem.step(instance, state, np.array([0]))
    assert cost.tolist() == [0]
    for field, value in vars(state).items():
        np.testing.assert_array_equal(getattr(again, field), value, field)


def test_a_tour_that_leaves_all_out_is_complete(backend):
    """The depot once more is the end: no customer is served, and all penalties are paid."""
    problem, instance = make_problem("PCVRP", 3), make(LINE, backend, penalty=np.array([[0, 0.25, 0.5, 1.0]]))
    state, cost = problem.step(instance, problem.initial(instance), 0 * instance.capacity)
    assert (float(cost[0]), float(problem.progress(instance, state)[0])) == (1.75, 1.0)


# --- vehicles


def fleet_of(*numbers):
    """Two types at one place, of 1 and 3 per length and 0.25 and 0.5 per route; customers at 0.3 and 0.1."""
    line, goods = np.stack([[0.0, 0.0, 0.3, 0.1], [0.5] * 4], axis=-1)[None], np.array([[0, 0, 5, 5]])
    types = {"vehicle_capacity": np.array([[10, 10, 0, 0]]), "fixed_cost": np.array([[0.25, 0.5, 0, 0]])}
    types |= {"cost_per_length": np.array([[1.0, 3.0, 0, 0]])}
    types |= {"num_vehicles": np.array([[*numbers, 0, 0]])} if numbers else {}
    return make_problem("HFVRP", 2, num_depots=2), cast_instance(VRPInstance(line, goods, np.array([10]), **types))


def test_the_bound_is_each_customer_alone_in_the_dearest_vehicle():
    """3 x (0.6 + 0.2) and twice 0.5."""
    problem, instance = fleet_of()
    assert problem.objective(instance, np.array([[1, 2, 1, 3, 1]]))[0] == pytest.approx(3.4)
    assert problem.cost_bound(instance)[0] == pytest.approx(3.4)


def test_useful_edges_cost_no_more_than_a_tour_in_the_cheapest_vehicle():
    problem, instance = fleet_of()
    dear = replace(instance, cost_per_length=2 * instance.cost_per_length)
    free = replace(instance, cost_per_length=instance.cost_per_length * np.array([[0, 1, 1, 1]], dtype=np.float32))
    assert problem.longest_useful_edge(dear, np.array([3.0]))[0] == 1.5
    assert problem.longest_useful_edge(free, np.array([3.0]))[0] == np.inf


def test_one_type_suffices_for_all_customers_or_some_may_be_left_out():
    fleet_of(2, 1)[0].validate(fleet_of(2, 1)[1])
    problem, instance = fleet_of(1, 1)
    with pytest.raises(InvalidInstance, match="node 2: no vehicle of a type with at least 2 vehicles can serve it"):
        problem.validate(instance)


def test_vehicles_become_scarce(backend):
    """Of three vehicles, two are left on the first route; without a limit, there are four at each of two nodes."""
    problem, limited = fleet_of(2, 1)
    limited, endless = (to_backend(each, backend) for each in (limited, fleet_of()[1]))
    assert float(problem.observe_dynamic(endless, problem.initial(endless))["scarcity"][0, 0]) == pytest.approx(1 / 9)
    state, seen = problem.initial(limited), []
    for action in (2, 0, 3):
        seen.append(float(problem.observe_dynamic(limited, state)["scarcity"][0, 0]))
        state, _ = problem.step(limited, state, 0 * limited.capacity + action)
    assert seen == pytest.approx([1 / 4, 1 / 3, 1 / 3])


@pytest.mark.parametrize("factor", [0.01, 1.0, 300.0])
def test_costs_of_vehicles_become_familiar_and_good_tours_stay_good(factor):
    """All costs of a row are multiplied by one number, so that the same tours are optimal."""
    problem, rng = make_problem("PCHFVRP", 20), np.random.default_rng(0)
    usual = problem.generate(rng, 3)
    costs = ("fixed_cost", "cost_per_length", "penalty")
    instance = replace(usual, **{field: getattr(usual, field) * np.float32(factor) for field in costs})
    seen = problem.rescale(instance)
    dearest = seen.cost_per_length.max(axis=1)
    assert (dearest == usual.cost_per_length.max(axis=1)).all() if factor == 1 else np.ptp(dearest) < 1e-6
    ratios = []
    for _ in range(5):
        tours = rollout(problem, instance, lambda seen: np.argmax(seen["action_mask"] * rng.random((3, 23)), axis=1))
        ratios.append(problem.objective(seen, tours.actions) / problem.objective(instance, tours.actions))
    by = dearest / instance.cost_per_length.max(axis=1)
    np.testing.assert_allclose(ratios, np.broadcast_to(by, (5, 3)), rtol=1e-5)


def test_costs_of_nothing_stay():
    problem, instance = fleet_of()
    free = replace(instance, cost_per_length=0 * instance.cost_per_length)
    assert (problem.rescale(free).fixed_cost == free.fixed_cost).all()


def test_penalties_that_no_trip_reaches_are_lowered():
    """To twice the distance of the farthest customer; with 20 customers, no generated penalty is larger."""
    problem = make_problem("PCVRP", 20)
    drawn = problem.generate(np.random.default_rng(0), 2)
    large = replace(drawn, penalty=1e6 * drawn.penalty)
    seen = problem.rescale(large)
    trips = 2 * np.linalg.norm(drawn.coords - drawn.coords[:, :1], axis=2).max(axis=1, keepdims=True)
    np.testing.assert_allclose(seen.penalty[:, 1:], np.broadcast_to(trips, (2, 20)), rtol=1e-6)
    assert (seen.penalty[:, 0] == 0).all()


# --- a limit on lengths


@pytest.mark.parametrize(("name", "limit", "second"), [("VRPL", 1.2, []), ("OVRPL", 1.2, [2]), ("OVRPL", 1.1, [])])
def test_both_sides_are_too_far(backend, name, limit, second):
    """West 0.4, then east 0.8: 1.2, and 1.6 with the way home."""
    problem, instance = make_problem(name, 2), make(SIDES, backend, max_length=np.array([limit]))
    problem.validate(cast_instance(instance))
    assert masks(problem, instance, 1)[0] == [[1, 2], [0, *second]]
    tour = np.array([[1, 2, 0]])
    if second:
        assert float(problem.objective(instance, tour)[0]) == pytest.approx(1.2)
    else:
        with pytest.raises(InfeasibleTour, match=r"length 1.[26] at node [02] exceeds 1.[12]; return to the depot"):
            problem.objective(instance, tour)
    state, _ = problem.step(instance, problem.initial(instance), 0 * instance.capacity + 1)
    left = problem.observe_dynamic(instance, state)
    assert float(left["remaining_length"][0, 0]) == pytest.approx(limit - 0.4, abs=1e-6)


# --- time windows


def test_windows(backend):
    """At 0.1, away at 0.2; at 0.3, away at 0.4; at 0.5 as it opens, away at 0.6, home at 0.9. The way is 0.6 long."""
    problem, instance = make_problem("VRPTW", 3), make(LINE, backend, demand=1, **WINDOWS)
    found, costs = masks(problem, instance, 2, 3, 1, 0)
    assert found == [[1, 2, 3], [0, 1, 3], [0, 1], [0], [0]]
    assert costs == pytest.approx([0.1, 0.1, 0.1, 0.3])
    assert float(problem.objective(instance, np.array([[2, 3, 1, 0]]))[0]) == pytest.approx(0.6)


def test_waiting_takes_time(backend):
    """There at 0.3, wait until 0.5, away at 0.6: too late for both others. The next route starts at 0 again."""
    problem, instance = make_problem("VRPTW", 3), make(LINE, backend, demand=1, **WINDOWS)
    assert masks(problem, instance, 1, 0)[0] == [[1, 2, 3], [0], [2, 3]]
    state, _ = problem.step(instance, problem.initial(instance), 0 * instance.capacity + 1)
    assert float(problem.observe_dynamic(instance, state)["current_time"][0, 0]) == pytest.approx(0.6)
    with pytest.raises(InfeasibleTour, match="row 0, step 1: arrival time 0.8 at node 2 exceeds 0.2; return to the"):
        problem.objective(instance, np.array([[1, 2, 3, 0]]))


def test_the_depot_closes(backend):
    """Customer 3 open until 0.95: from 1, away at 0.6, it is reached at 0.7, left at 0.8, and home is at 1.0."""
    windows = WINDOWS | {"due_time": np.array([[0.99, 0.6, 0.2, 0.95]])}
    closed, opened = make_problem("VRPTW", 3), make_problem("OVRPTW", 3)
    instance = make(LINE, backend, demand=1, **windows)
    assert masks(closed, instance, 1)[0][1] == [0]
    assert masks(opened, instance, 1)[0][1] == [0, 3]
    with pytest.raises(InfeasibleTour, match="row 0, step 2: arrival time 1 at node 0 exceeds 0.99"):
        closed.objective(instance, np.array([[1, 3, 0, 2, 0]]))
    assert float(opened.objective(instance, np.array([[1, 3, 0, 2, 0]]))[0]) == pytest.approx(0.3 + 0.1 + 0.1)


@pytest.mark.parametrize("closes", [3.0, 5.0, 12.0, 33.0, 1e13])
def test_long_days_become_familiar(closes, backend):
    """3 stays; 12 = 4 x 3 becomes 3; 33 = 11 x 3 is nearer to 8 than to 16 by ratio; at most a sixteenth."""
    by = {3.0: 1, 5.0: 2, 12.0: 4, 33.0: 8, 1e13: 16}[closes]
    windows = WINDOWS | {"due_time": np.array([[closes, 0.6, 0.2, 0.35]])}
    instance = make(LINE, backend, distances=np.ones((1, 4, 4)), **windows)
    seen = make_problem("VRPTW", 3).rescale(instance)
    for field in ("coords", "distances", "ready_time", "due_time", "service_time"):
        np.testing.assert_array_equal(getattr(seen, field) * by, getattr(instance, field))
    assert seen.capacity is instance.capacity


def test_tours_of_familiar_instances_are_tours():
    """Customer 3 closes 6e-6 before it is reached by way of customer 1: in days of 3 instead of 40 that is nothing."""
    problem, none = make_problem("OVRPTW", 3), np.zeros((1, 4))
    instance = make(LINE, demand=1, ready_time=none, service_time=none, due_time=np.array([[40, 40, 40, 0.4 - 6e-6]]))
    assert 3 in masks(problem, problem.rescale(instance), 1)[0][1]
    assert 3 not in masks(problem, instance, 1)[0][1]
    assert problem.objective(instance, np.array([[1, 3, 0, 2, 0]]))[0] == pytest.approx(0.3 + 0.1 + 0.1)


def test_durations_of_ones_own_in_another_unit_than_lengths():
    """Metres and minutes: out to 1 in 30, on to 2 in 20, and home, 3 + 5 + 4 km; 2 closes 1 minute too early for that.

    Customer 1 is reached at 30 and left at 35; customer 2 at 55.
    """
    stops = {"x": [0, 3000, 0], "y": [0, 0, 4000], "demand": [0, 1, 1], "capacity": 5, "ready_time": [0, 0, 0]}
    stops |= {"due_time": [500, 30, 55], "service_time": [0, 5, 5]}
    durations = [[0, 30, 40], [30, 0, 20], [60, 20, 0]]
    own = from_columns("VRPTW", {**stops, "durations": durations})
    assert own.cost(np.array([1, 2, 0])) == pytest.approx(12_000)
    assert own.scale == 4000
    late = from_columns("VRPTW", {**stops, "durations": durations, "due_time": [500, 30, 54]})
    with pytest.raises(InfeasibleTour, match="arrival time"):
        late.cost(np.array([1, 2, 0]))
    with pytest.raises(
        InvalidInstance, match="node 2: the way from the depot takes until 40, and the window closes at 39"
    ):
        from_columns("VRPTW", {**stops, "durations": durations, "due_time": [500, 30, 39]})


@pytest.mark.parametrize("flag", ["open_routes", "backhauls", "time_windows"])
def test_flags_are_true_or_false(flag):
    assert VRP(3, **{flag: np.True_}) == VRP(3, **{flag: True})
    with pytest.raises(ValueError, match=f"VRP: {flag} must be True or False, got 'no'"):
        VRP(3, **{flag: "no"})


def test_windows_that_open_at_the_last_moment():
    """Open at 0.6, away at 0.7, home at 1.0 as the depot closes: in float32, 1 - 0.3 - 0.1 is 2e-8 before 0.6."""
    windows = WINDOWS | {"ready_time": np.array([[0.0, 0.6, 0.0, 0.0]])}
    problem, instance = make_problem("VRPTW", 3), make(LINE, demand=1, **windows)
    problem.validate(instance)
    assert masks(problem, instance)[0] == [[1, 2, 3]]


def test_lengths_times_and_costs_become_familiar_together():
    """A day of 12 instead of 3: all in the unit of lengths is a quarter, but not the cost per length."""
    problem = make_problem("PCHFVRPLTW", 4)
    drawn = problem.generate(np.random.default_rng(0), 2)
    seen = problem.rescale(replace(drawn, due_time=4 * drawn.due_time))
    for field in ("coords", "max_length", "ready_time", "service_time", "fixed_cost", "penalty"):
        np.testing.assert_array_equal(4 * getattr(seen, field), getattr(drawn, field))
    np.testing.assert_array_equal(seen.due_time, drawn.due_time)
    np.testing.assert_array_equal(seen.cost_per_length, drawn.cost_per_length)


def test_a_depot_that_opens_late():
    """Vehicles leave at 0.05: too late for a customer 0.1 away that closes at 0.14, in time until 0.15."""
    late = {key: value.copy() for key, value in WINDOWS.items()}
    late["ready_time"][0, 0], late["due_time"][0, 2] = 0.05, 0.15
    problem = make_problem("VRPTW", 3)
    instance = make(LINE, demand=1, **late)
    problem.validate(instance)
    assert masks(problem, instance, 3, 0)[0][2] == [1, 2]
    late["due_time"][0, 2] = 0.14
    with pytest.raises(InvalidInstance, match="row 0, node 2: the way from the depot takes until 0.15, and the window"):
        problem.validate(make(LINE, demand=1, **late))


# --- bad input


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        (
            "VRPTW",
            {"ready_time": (1, 0.7)},
            "due_time: row 0, node 1: the window closes at 0.6, before it opens at",
        ),
        (
            "VRPTW",
            {"due_time": (2, 0.09)},
            "due_time: row 0, node 2: the way from the depot takes until 0.1, .* 0.09",
        ),
        (  # by less than a tour may be late, but by more than masks allow
            "VRPTW",
            {"due_time": (2, 0.1 - 1e-6)},
            "due_time: row 0, node 2: the way from the depot takes until 0.1, .* closes at 0.09",
        ),
        (
            "VRPTW",
            {"due_time": (0, 0.8)},
            "node 1: a vehicle that serves it alone is back at 0.9, .* at 0.8; let",
        ),
        ("VRPTW", {"service_time": (0, 0.1)}, "service_time: row 0 gives the depot .* 0.1.*, expected 0"),
        (
            "VRPTW",
            {"service_time": (1, -0.1)},
            r"service_time: row 0, index \(1,\) is -0.1.*, expected finite and",
        ),
        ("VRPTW", {"due_time": (1, np.nan)}, r"due_time: row 0, index \(1,\) is nan"),
        ("VRPTW", {"demand": (1, 11)}, "demand: row 0, customer 1 has demand 11, expected 0 to the capacity 10"),
        ("VRPTW", {"service_time": None}, "service_time: expected a float32 array, got NoneType"),
        (
            "VRPTW",
            {"max_length": np.array([1.0])},
            "max_length: VRPTW has none; leave it out, or choose a pro",
        ),
        (
            "VRPLTW",
            {"max_length": np.array([0.5])},
            "node 1: a route to it alone is 0.6 long, above the limit 0.5;",
        ),
        ("VRPLTW", {"max_length": np.array(1.0)}, r"max_length: expected shape \(B,\), got \(\)"),
        ("VRPBTW", {"backhaul": np.array([[0, 1, 0, 0]])}, "backhaul: expected booleans .*, got integers"),
        (
            "VRPBTW",
            {"backhaul": np.ones((1, 4), bool)},
            r"backhaul: row 0 gives the depot .index 0. True, exp",
        ),
        ("VRPBTW", {"backhaul": np.ones((1, 3), bool)}, r"backhaul: expected shape \(B, 4\), got \(1, 3\)"),
    ],
)
def test_bad_instances(name, changes, message):
    fields = dict(vars(make(LINE, demand=1, **WINDOWS)))
    for field, change in changes.items():
        if isinstance(change, tuple):
            fields[field] = fields[field].copy()
            fields[field][0, change[0]] = change[1]
        else:
            fields[field] = change
    with pytest.raises(InvalidInstance, match=message):
        make_problem(name, 3).validate(cast_instance(VRPInstance(**fields)))


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("PDVRPTW", {"demand": np.ones((1, 4), int)}, r"demand: expected shape \(B, 5\), got \(1, 4\)"),
        ("HFVRP", {"capacity": np.ones(2, int)}, "one batch size, got"),
        ("HFVRP", {"capacity": np.ones((1, 1), int)}, r"capacity: expected shape \(B,\), got \(1, 1\)"),
        (
            "PCVRP",
            {"penalty": np.float32([[0, 1e20, 1, 1, 1]])},
            r"penalty: row 0, index \(1,\) is 1.*e\+20, expected in",
        ),
        (  # three depot nodes, pickups 3 and 4, deliveries 5 and 6: a vehicle would be left with goods on board
            "PDHFVRP",
            {"eligible": np.array([[[True] * 7, [True] * 5 + [False, True], [True] * 7]])},
            "eligible: row 0: vehicles of depot node 1 may serve only one of customer 5 and its pickup, customer 3;",
        ),
    ],
)
def test_bad_instances_of_attributes(name, changes, message):
    problem = make_problem(name, 4)
    instance = replace(problem.generate(np.random.default_rng(0), 1), **changes)
    with pytest.raises(InvalidInstance, match=message):
        problem.validate(instance)


def test_settings_from_numpy_are_kept_as_integers():
    assert type(make_problem("MDVRP", 4, num_depots=np.int64(2)).num_depots) is int
    with pytest.raises(ValueError, match="VRPL: max_length must be positive and finite, got 1e.39"):
        make_problem("VRPL", 4, max_length=1e39)


def test_a_late_depot_does_not_matter_on_open_routes():
    """Home would be at 0.9, the depot closes at 0.8."""
    windows = WINDOWS | {"due_time": np.array([[0.8, 0.6, 0.2, 0.35]])}
    make_problem("OVRPTW", 3).validate(make(LINE, demand=1, **windows))


def test_instances_of_cvrp_are_refused():
    env = gym.make("routing/VRPTW", num_nodes=3)
    plain = CVRPInstance(LINE, np.array([[0, 1, 1, 1]]), np.array([10]))
    with pytest.raises(TypeError, match="expected a VRPInstance, got CVRPInstance"):
        env.reset(options={"instance": plain})


@pytest.mark.parametrize(
    ("actions", "node", "reason"),
    [
        ((), 0, "the vehicle is already at the depot and customers remain"),
        ((2,), 2, "customer 2 is already served"),
        ((1,), 2, "customer 2 is a linehaul, and the vehicle has been at a backhaul; return to the depot"),
        ((3, 0, 1), 2, "customer 2 is a linehaul, and"),
        ((3,), 1, r"customer 1 would be reached at 0.4, later than 0.35"),
        ((3,), 2, r"the way to customer 2 and home is longer than the limit 0.39; return to the depot \(0\)"),
    ],
)
def test_why_illegal(actions, node, reason, backend):
    """From 3, at 0.2 and away at 0.3: to 1 is until 0.4; to 2 and home is 0.1 + 0.1 further than 0.2, together 0.4."""
    problem = make_problem("VRPBLTW", 3)
    windows = WINDOWS | {"ready_time": np.zeros((1, 4)), "due_time": np.array([[3.0, 0.35, 3.0, 3.0]])}
    limit = 0.7 if node == 1 or actions != (3,) else 0.39
    instance = make(LINE, backend, demand=1, max_length=np.array([limit]), **BACKHAUL, **windows)
    state = problem.initial(instance)
    for action in actions:
        state, _ = problem.step(instance, state, 0 * instance.capacity + action)
    assert not bool(problem.action_mask(instance, state)[0, node])
    assert re.search(reason, problem.why_illegal(instance, state, 0, node))


# --- pictures


def test_text_says_what_is_fetched_and_leaves_the_way_home_out():
    """Delivered 5, fetched 5, on 0.1 + 0.2; then 0.2 out."""
    instance = make(LINE, **BACKHAUL)
    text = to_text(make_problem("OVRPB", 3), instance, np.array([2, 1, 0, 3, 0]))
    assert "route 1: 0 -> 2 -> 1; delivery 5 of 10, pickup 5 of 10, length 0.300" in text
    assert "route 2: 0 -> 3; delivery 5 of 10, pickup 0 of 10, length 0.200" in text


def test_dials_show_the_windows():
    """Customer 1, open from 0.5 to 0.6 of 1: half a turn from the top, 216 degrees at the end."""
    pytest.importorskip("matplotlib")
    figure = render.draw(make_problem("VRPTW", 3), make(LINE, demand=1, **WINDOWS), np.array([2]))
    dials = figure.axes[0].collections[1]
    first, *others = (arc / np.linalg.norm(arc[0]) for arc in dials.get_segments())
    assert dials.get_offsets()[0].tolist() == pytest.approx([0.3, 0.5])
    assert len(others) == 2
    assert first[0] == pytest.approx([0, -1], abs=1e-6)
    assert first[-1] == pytest.approx([np.sin(np.radians(216)), np.cos(np.radians(216))], abs=1e-6)
    assert "time window" in {text.get_text() for text in figure.axes[0].get_legend().get_texts()}
