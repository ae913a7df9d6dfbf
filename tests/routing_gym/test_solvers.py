"""Solvers against brute force, and what happens to rows that crash, hang, die or are infeasible."""

import itertools
import math
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from problem_names import ONE_OF_EACH
from routing_gym.arrays import batch_size, cast_instance, concatenate, select, to_backend
from routing_gym.data import from_columns
from routing_gym.data.tsplib.instance import orienteering_instance, scale_distances
from routing_gym.problem import InfeasibleTour, InvalidInstance, Problem
from routing_gym.problems import (
    LISTED,
    PROBLEMS,
    TSP,
    OPInstance,
    PCTSPInstance,
    SDVRPInstance,
    TSPInstance,
    make_problem,
)
from routing_gym.problems.vrp import ORIGINAL, PRESETS, VRP, VRPInstance
from routing_gym.solvers import (
    REFERENCES,
    SOLVERS,
    Christofides,
    ExactMIP,
    FarthestInsertion,
    FastTSP,
    HeldKarp,
    Hygese,
    NearestInsertion,
    NearestNeighbour,
    OfflineMIP,
    OrOpt,
    ORTools,
    PyVRP,
    RandomInsertion,
    RowSolver,
    Solution,
    TwoOpt,
    TwoOptOrOpt,
    make_solver,
)
from routing_gym.solvers.constructive import local_search as search
from routing_gym.solvers.exact.milp import relax, solve_integer
from routing_gym.solvers.exact.milp_program import Program
from routing_gym.solvers.external.hygese import scale_demand
from routing_gym.solvers.external.split_delivery import best_replay, merge_copies, replay, unit_copies
from routing_gym.solvers.runtime import cache, pool
from routing_gym.solvers.runtime.base import distance_matrix
from routing_gym.solvers.runtime.long_edges import shorten_long_edges
from routing_gym.solvers.runtime.rows import RowResult, RowWork, row_seed
from routing_gym.solvers.runtime.work import Work
from routing_gym.testing.exhaustive import check_exhaustively

LIMIT = 60.0  # seconds, which no test reaches: see `limited_by_work`
ITERATIONS = 1000
OTHERS = set(PRESETS) - {"VRPTW"}  # of its family
PAIRS = [
    (solver, problem) for solver in SOLVERS for problem in SOLVERS[solver].problems or ONE_OF_EACH if problem in LISTED
]


def draw(name, num_nodes, batch_size, seed=0):
    problem = make_problem(name, num_nodes)
    return problem, problem.generate(np.random.default_rng(seed), batch_size)


@pytest.fixture(autouse=True)
def limited_by_work(monkeypatch):
    """Let heuristics that would use all of their time end after some work: no result depends on a busy machine.

    fast-tsp needs nothing: up to 15 cities it is exact, and ends by itself.
    """
    if find_spec("hygese"):
        hygese = import_module("hygese")
        by_work = partial(hygese.AlgorithmParameters, nbIter=ITERATIONS)  # with a time limit it starts again and again
        monkeypatch.setattr(hygese, "AlgorithmParameters", lambda timeLimit, nbIter, seed: by_work(seed=seed))
    if find_spec("pyvrp"):
        stop = import_module("pyvrp.stop")
        monkeypatch.setattr(stop, "MaxRuntime", lambda seconds: stop.MaxIterations(ITERATIONS))
    if find_spec("ortools"):
        pywrapcp = import_module("ortools.constraint_solver.pywrapcp")
        default = pywrapcp.DefaultRoutingSearchParameters

        def limited():
            parameters = default()
            parameters.solution_limit = ITERATIONS
            return parameters

        monkeypatch.setattr(pywrapcp, "DefaultRoutingSearchParameters", limited)


def patient(name, limit=LIMIT):
    """Make a solver by name, with a time limit that it does not reach."""
    for package in SOLVERS[name].packages:
        pytest.importorskip(package)
    return make_solver(name, time_limit=limit) if issubclass(SOLVERS[name], RowSolver) else make_solver(name)


def test_instances_of_another_problem_are_refused():
    """TSPFE's fixed edges would be lost."""
    instance = make_problem("TSPFE", 8).generate(np.random.default_rng(0), 1)
    with pytest.raises(TypeError, match="instance: expected a TSPInstance, got TSPFEInstance"):
        make_solver("2-opt").solve(make_problem("TSP", 8), instance)


def brute_force(problem, instance):
    """Least objective of each row over every order of every set of customers, with returns anywhere."""
    nodes = range(problem.num_actions)
    if not problem.has_depot:
        sequences = [[0, *rest] for rest in itertools.permutations(nodes[1:])]
    elif problem.name in ("CVRP", "MTSP", *ORIGINAL):
        sequences = [
            [node for pair in zip(order, returns, strict=True) for node in (pair[0], *[0] * pair[1])]
            for order in itertools.permutations(nodes[1:])
            for returns in itertools.product((0, 1), repeat=problem.num_nodes - 1)
            for returns in [(*returns, 1)]
        ]
    else:
        sequences = [[*order, 0] for size in nodes for order in itertools.permutations(nodes[1:], size)]
    best = np.full(batch_size(instance), np.inf)
    for row in range(len(best)):
        one = select(instance, slice(row, row + 1))
        for sequence in sequences:
            try:
                best[row] = min(best[row], problem.objective(one, np.array([sequence]))[0])
            except InfeasibleTour:
                continue
    return best


def random_metric(instance, seed=0, low=0.1):
    """Give an instance a symmetric matrix of distances that has nothing to do with its coordinates, if any.

    From 0.5 to 1, lengths keep the triangle inequality.
    """
    num_rows, size = batch_size(instance), getattr(instance, "coords", instance.distances).shape[1]
    lengths = np.triu(np.random.default_rng(seed).uniform(low, 1.0, (num_rows, size, size)), 1)
    return replace(instance, distances=(lengths + lengths.transpose(0, 2, 1)).astype(np.float32))


def replay_cost(problem, instance, actions):
    """Play tours step by step, and fail at the first action that the mask forbids."""
    state, cost = problem.initial(instance), np.zeros(len(actions))
    for action in actions.T:
        action = np.where(problem.done(instance, state) & problem.has_depot, 0, action)
        assert problem.action_mask(instance, state)[np.arange(len(action)), action].all()
        state, step_cost = problem.step(instance, state, action)
        cost += step_cost
    assert problem.done(instance, state).all()
    return cost


# --- exactness ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["TSP", "CVRP", "OP", "PCTSP", "PDP", "MTSP", "TSPFE", "ATSP"])
def test_held_karp_equals_brute_force(name):
    problem, instance = draw(name, 4 if PROBLEMS[name].has_depot else 6, 5)
    if name == "MTSP":
        instance = replace(instance, num_salesmen=np.array([1, 2, 3, 4, 9]))
    solution = HeldKarp().solve(problem, instance)
    np.testing.assert_allclose(solution.cost, brute_force(problem, instance), atol=1e-9)
    assert set(solution.status) == {"optimal"}


def test_held_karp_takes_asymmetric_distances():
    problem, instance = draw("TSP", 6, 4)
    lengths = np.random.default_rng(1).random((4, 6, 6)).astype(np.float32) * (1 - np.eye(6, dtype=np.float32))
    instance = replace(instance, distances=lengths)
    np.testing.assert_allclose(HeldKarp().solve(problem, instance).cost, brute_force(problem, instance), atol=1e-9)


@pytest.mark.parametrize("name", ["VRPL", "OVRPTW", "VRPLTW"])
def test_held_karp_takes_durations_and_lengths_without_the_triangle_inequality(name):
    """On streets, the fastest way is not always the shortest; masks forbid some tours then, but not `objective`."""
    rng = np.random.default_rng(3)
    problem = make_problem(name, 4, matrices=True)
    instance = problem.generate(rng, 6)
    lengths = rng.uniform(0.1, 1.0, instance.distances.shape).astype(np.float32)
    changes = {"max_length": np.full(6, 2.2, np.float32)} if problem.max_length is not None else {}
    instance = replace(instance, distances=lengths * (1 - np.eye(5, dtype=np.float32)), **changes)
    problem.validate(instance)
    solution = HeldKarp().solve(problem, instance)
    np.testing.assert_allclose(solution.cost, brute_force(problem, instance), atol=1e-6)


@pytest.mark.parametrize("metric", ["plane", "random", "with very long edges"])
@pytest.mark.parametrize(
    ("solver", "name"),
    [
        (FastTSP(LIMIT), "TSP"),
        (ExactMIP(), "TSP"),
        (ExactMIP(), "OP"),
        (ExactMIP(), "PCTSP"),
        (ExactMIP(), "TSPFE"),
        (ExactMIP(), "ATSP"),
        (Hygese(LIMIT), "CVRP"),
        (PyVRP(LIMIT), "CVRP"),
        (PyVRP(LIMIT), "OP"),
        (PyVRP(LIMIT), "PDP"),
        (PyVRP(LIMIT, iterations=100), "MTSP"),
        (ORTools(LIMIT), "PCTSP"),
        (ORTools(LIMIT), "PDP"),
        (ORTools(LIMIT), "MTSP"),
        (ORTools(LIMIT), "TSPFE"),
        (ORTools(LIMIT), "ATSP"),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_packages_find_the_optimum_of_small_instances(solver, name, metric):
    """As good as dynamic programming at n = 8, in an instance's own metric too (PyVRP rounds to 1e-4).

    Some matrices have 1e9 where there is no road. Beside such lengths, integers and tolerances hide all others.
    """
    for package in solver.packages:
        pytest.importorskip(package)
    problem, instance = draw(name, 8, 4, seed=3)
    if metric != "plane":
        instance = random_metric(instance, low=0.5 if name == "OP" else 0.1)
    if metric == "with very long edges":
        far = np.random.default_rng(1).random(instance.distances.shape) < 0.1
        far = (far | far.swapaxes(1, 2)) & (instance.distances > 0)
        far[:, 0] = far[:, :, 0] = False
        instance = replace(instance, distances=np.where(far, np.float32(1e9), instance.distances))
    solution = solver.solve(problem, instance, num_workers=0)
    np.testing.assert_allclose(solution.cost, HeldKarp().solve(problem, instance).cost, atol=1e-6)


def test_mip_finds_tours_of_length_0_beside_very_long_edges():
    """Quick tours also have length 0 here, which bounds the edges of no other tour."""
    lengths = np.triu(np.random.default_rng(0).choice([0.5, 1.0, 1e9, 1e9, 1e9], (9, 9)), 2)
    lengths[0, 8] = 0.0
    problem, instance = make_problem("TSP", 9), draw("TSP", 9, 1)[1]
    instance = replace(instance, distances=(lengths + lengths.T)[None].astype(np.float32))
    assert ExactMIP().solve(problem, instance, num_workers=0).cost == 0


def test_edges_are_not_shortened_where_costs_are_no_lengths():
    """Each city earns more than its edges cost."""

    @dataclass(frozen=True)
    class Earning(TSP):
        def step(self, instance, state, action):
            state, cost = super().step(instance, state, action)
            return state, cost - 1.5

        longest_useful_edge = Problem.longest_useful_edge

    lengths = np.where(np.eye(6, dtype=bool), 0.0, 1.0).astype(np.float32)
    lengths[1, 2] = lengths[2, 1] = 1e9
    instance = replace(draw("TSP", 6, 1)[1], distances=lengths[None])
    assert shorten_long_edges(make_problem("TSP", 6), instance, 0).distances.max() == 12
    np.testing.assert_array_equal(shorten_long_edges(Earning(6), instance, 0).distances[0], lengths)


@pytest.mark.parametrize("name", ["TSP", "OP", "PCTSP", "ATSP"])
def test_mip_where_the_first_solutions_have_subtours(name):
    """n = 11: larger than what the pairs and triples of the relaxation forbid by themselves."""
    pytest.importorskip("scipy")
    problem, instance = draw(name, 11, 4, seed=5)
    solution = ExactMIP().solve(problem, instance, num_workers=0)
    np.testing.assert_allclose(solution.cost, HeldKarp().solve(problem, instance).cost, atol=1e-9)
    assert set(solution.status) == {"optimal"}


@pytest.mark.parametrize("name", ["OP", "PCTSP"])
def test_mip_where_nodes_coincide_and_limits_are_met_exactly(name):
    """Nodes on a grid of 4 x 4, tours of round lengths, prizes in quarters that sum to 1."""
    pytest.importorskip("scipy")
    rng = np.random.default_rng(3)
    coords = (rng.integers(0, 4, (12, 7, 2)) / 4).astype(np.float32)
    prize, penalty = np.zeros((2, 12, 7), dtype=np.float32)
    prize[:, 1:] = rng.integers(1, 5, (12, 6)) / 4
    penalty[:, 1:] = rng.random((12, 6)) / 5
    if name == "OP":
        instance = OPInstance(coords, prize, (rng.integers(4, 12, 12) / 4).astype(np.float32))
    else:
        instance = PCTSPInstance(coords, prize, penalty)
    solution = ExactMIP().solve(make_problem(name, 6), instance, num_workers=0)
    np.testing.assert_allclose(solution.cost, HeldKarp().solve(make_problem(name, 6), instance).cost, atol=1e-6)


def test_mip_uses_a_limit_up_where_coordinates_are_large():
    """Around a rectangle of a million by half a million is the limit, 0.5 / 10^6 of slack: less than HiGHS's 1e-6."""
    pytest.importorskip("scipy")
    coords = np.array([[[0.0, 0.0], [1.0, 0.0], [1.0, 0.5], [0.0, 0.5]]], dtype=np.float32)
    distances = np.rint(1e6 * np.hypot(*(coords[0, :, None] - coords[0, None]).T)).astype(np.int64)
    instance = orienteering_instance(coords, scale_distances(distances, 1e6), np.array([0, 5, 7, 3]), 3_000_000, 1e6)
    solution = ExactMIP().solve(make_problem("OP", 3), instance, num_workers=0)
    assert solution.cost.tolist() == [-15.0]


@pytest.mark.parametrize("name", ["TSP", "PCTSP"])
def test_mip_is_exact_where_all_lengths_are_small(name):
    """In a square of side 1e-6, tours differ by less than HiGHS's tolerance of 1e-6."""
    pytest.importorskip("scipy")
    problem, instance = draw(name, 10, 16)
    instance = replace(instance, coords=instance.coords * np.float32(1e-6))
    if name == "PCTSP":
        instance = replace(instance, penalty=instance.penalty * np.float32(1e-6))
    found, best = (solver.solve(problem, instance, num_workers=0) for solver in (ExactMIP(), HeldKarp()))
    np.testing.assert_allclose(found.cost, best.cost, rtol=1e-9)


@pytest.mark.parametrize("prizes", [(0.504, 0.500), (2e-6, 1e-6), (1.000005, 1.0), (5e7 + 4, 5e7)])
def test_mip_takes_prizes_as_they_are(prizes):
    """Of two customers at 0.5 only one can be visited; prizes were rounded to hundredths or lost in a tolerance."""
    pytest.importorskip("scipy")
    for order in (prizes, prizes[::-1]):
        instance = OPInstance(
            coords=np.array([[[0.5, 0.5], [0.5, 0.0], [0.5, 1.0]]], dtype=np.float32),
            prize=np.array([[0.0, *order]], dtype=np.float32),
            max_length=np.array([1.5], dtype=np.float32),
        )
        solution = ExactMIP().solve(make_problem("OP", 2), instance, num_workers=0)
        assert solution.cost[0] == -float(np.float32(max(prizes)))


def test_mip_stays_at_home_where_the_maximum_length_is_zero():
    """Customer 1 lies at the depot and costs no way; the limit of 0 was taken for -1e-6, which no tour keeps."""
    pytest.importorskip("scipy")
    coords = np.array([[[0, 0], [0, 0], [1, 0]]], dtype=np.float32)
    instance = OPInstance(coords, np.array([[0, 0.5, 1]], dtype=np.float32), np.zeros(1, dtype=np.float32))
    solution = ExactMIP().solve(make_problem("OP", 2), instance, num_workers=0)
    assert (solution.cost.tolist(), solution.status) == ([-0.5], ("optimal",))


def test_mip_beside_a_huge_penalty():
    """One customer may not be left out at any price; the others are as in Held and Karp's optimum."""
    pytest.importorskip("scipy")
    problem, instance = draw("PCTSP", 8, 6)
    instance.penalty[:, 3] = 1e9
    found, best = (solver.solve(problem, instance, num_workers=0) for solver in (ExactMIP(), HeldKarp()))
    np.testing.assert_allclose(found.cost, best.cost, rtol=1e-9)


def test_mip_is_not_lenient_as_highs_is():
    """HiGHS lets a constraint slip by 1e-6; a tour that is longer than its limit by less is no solution."""
    pytest.importorskip("scipy")
    program = Program.of_tours(np.array([[0.0, 1.0, 2.0], [1.0, 0.0, 1.0], [2.0, 1.0, 0.0]]))
    program.cost[1:3] = -1.0
    program.add_limit(program.edges, program.lengths, -np.inf, 4.0 - 1e-8)  # to node 2 and back is 4
    values = solve_integer(program, *relax(program, [], math.inf), 1.0, math.inf)
    assert program.tour(values) == [0, 1]
    assert program.keeps_limits(values)
    program.add_limit(np.array([1, 2]), np.ones(2), 1.0 + 1e-8, np.inf)  # more than one node must be visited
    assert not program.keeps_limits(values)
    columns, weights, low, _ = program.constraints[-1]
    assert (columns.tolist(), weights.tolist(), low) == ([2], [1.0], 1.0)


@pytest.mark.parametrize("solver", [HeldKarp(), ExactMIP(), ORTools(LIMIT)], ids=lambda solver: solver.name)
def test_prizes_that_sum_to_one_on_paper_suffice(solver):
    """0.9 + 0.1 is 2e-8 less than 1 in float32; the third customer, far away, may then be left out."""
    for package in solver.packages:
        pytest.importorskip(package)
    instance = PCTSPInstance(
        np.array([[[0.0, 0.0], [0.1, 0.0], [0.2, 0.0], [1.0, 1.0]]], dtype=np.float32),
        np.array([[0.0, 0.9, 0.1, 0.5]], dtype=np.float32),
        np.array([[0.0, 0.3, 0.3, 0.1]], dtype=np.float32),
    )
    problem = make_problem("PCTSP", 3)
    assert solver.solve(problem, instance, num_workers=0).cost == pytest.approx([0.5])
    state, _ = problem.step(instance, problem.initial(instance), np.array([1]))
    state, _ = problem.step(instance, state, np.array([2]))
    assert problem.action_mask(instance, state)[0].tolist() == [True, False, False, True]
    check_exhaustively(problem, instance)


@pytest.mark.parametrize("name", ORIGINAL)
@pytest.mark.parametrize("solver", [HeldKarp(), PyVRP(LIMIT)], ids=lambda solver: solver.name)
def test_solvers_equal_brute_force_on_the_vrp_family(solver, name):
    """Four customers; the limit on lengths is a tenth above the way to the farthest customer and back."""
    for package in solver.packages:
        pytest.importorskip(package)
    problem, instance = draw(name, 4, 2)
    if problem.max_length is not None:
        alone = distance_matrix(instance)[:, 0].max(axis=1) * (1 if problem.open_routes else 2)
        instance = replace(instance, max_length=1.1 * alone)
    solution = solver.solve(problem, instance, num_workers=0)
    np.testing.assert_allclose(solution.cost, brute_force(problem, cast_instance(instance)), atol=1e-6)


@pytest.mark.parametrize(
    ("solver", "name"),
    [*((PyVRP(LIMIT), name) for name in ("CVRP", "OP", "VRPB", "VRPL", "VRPTW")), (ORTools(LIMIT), "PCTSP")],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
@pytest.mark.parametrize("unit", [2.0**-13, 2.0**24])
def test_lengths_in_any_unit(solver, name, unit):
    """Packages that take integers round as in the unit square, whether ways are counted in miles or in steps."""
    pytest.importorskip(solver.packages[0])
    problem, instance = draw(name, 6, 2)
    instance = cast_instance(replace(instance, distances=distance_matrix(instance)))
    fields = ("distances", "max_length", "ready_time", "due_time", "service_time", "penalty")
    given = {field: value for field in fields if (value := getattr(instance, field, None)) is not None}
    scaled = replace(instance, **{field: value * np.float32(unit) for field, value in given.items()})
    costs = [solver.solve(problem, one, num_workers=0).cost for one in (instance, scaled)]
    np.testing.assert_allclose(costs[1] / (1 if name == "OP" else unit), costs[0], rtol=1e-6)


@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e4])
def test_costs_of_vehicles_in_any_unit(unit):
    """The stop at 1 costs 2 (1.49), less than 2 (0.51) + 2.5; the one at 3 costs 6 (0.51) + 2.5."""
    pytest.importorskip("pyvrp")
    stops = {"x": [0, 0, 1, 3], "y": [0, 0, 0, 0], "demand": [0, 0, 1, 1], "vehicle_capacity": [1, 1, 0, 0]}
    fleet = {"cost_per_length": [1.49 * unit, 0.51 * unit, 0, 0], "fixed_cost": [0, 2.5 * unit, 0, 0]}
    own = from_columns("HFVRP", stops | fleet | {"depot": [1, 1, 0, 0], "capacity": 1})
    solution = PyVRP(LIMIT).solve(own.problem, own.instance, num_workers=0)
    assert own.cost(solution.actions[0]) == pytest.approx(8.54 * unit, rel=1e-6)


@pytest.mark.parametrize("dearest", [2.0, 3e4, 1e9])
def test_costs_of_vehicles_that_differ_much(dearest):
    """The vehicles at 1 per length serve both stops, 1 away and 0.1 apart; those at 1.4 and a dearer type stay."""
    pytest.importorskip("pyvrp")
    stops = {"x": [0, 0, 0, 1, 1], "y": [0, 0, 0, 0, 0.1], "demand": [0, 0, 0, 1, 1], "capacity": 2}
    fleet = {"vehicle_capacity": [2, 2, 2, 0, 0], "cost_per_length": [1.4, 1, dearest, 0, 0], "fixed_cost": [0] * 5}
    own = from_columns("HFVRP", stops | fleet | {"depot": [1, 1, 1, 0, 0]})
    solution = PyVRP(LIMIT).solve(own.problem, own.instance, num_workers=0)
    assert own.cost(solution.actions[0]) == pytest.approx(1.1 + np.sqrt(1.01))


def test_limits_of_vehicles_without_costs_per_length():
    """Both stops on one route would be 4 > 2.5, so two vehicles drive, at 1 each; of the free type there are none."""
    pytest.importorskip("pyvrp")
    stops = {"x": [0, 0, 0, 1, -1], "y": [0] * 5, "demand": [0, 0, 0, 1, 1], "depot": [1, 1, 1, 0, 0]}
    fleet = {"vehicle_capacity": [2, 2, 2, 0, 0], "cost_per_length": [0, 1, 0, 0, 0], "fixed_cost": [1, 0, 0, 0, 0]}
    own = from_columns("HFVRPL", stops | fleet | {"num_vehicles": [9, 9, 0, 0, 0], "capacity": 2, "max_length": 2.5})
    solution = PyVRP(LIMIT).solve(own.problem, own.instance, num_workers=0)
    assert own.cost(solution.actions[0]) == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("demand", "least", "cost"), [(1, 20.0, 1.0), (1, 2e3, 1.0), (10**8, 2e8, 1.0), (10**8, 200.0, 1e-6)]
)
def test_the_smaller_penalty_is_paid_at_any_scale(demand, least, cost):
    """One vehicle has room for one of two stops: for that at 1.5, whose penalty is 4.5 times the other's."""
    pytest.importorskip("pyvrp")
    stops = {"x": [0, 1, 1.5], "y": [0, 0, 0], "demand": [0, demand, demand], "capacity": demand, "depot": [1, 0, 0]}
    fleet = {"vehicle_capacity": [demand, 0, 0], "cost_per_length": [cost, 0, 0], "num_vehicles": [1, 0, 0]}
    given = stops | fleet | {"fixed_cost": [0] * 3, "penalty": [0, least, 4.5 * least]}
    own = from_columns("PCHFVRP", given)
    solution = PyVRP(LIMIT).solve(own.problem, own.instance, num_workers=0)
    assert own.cost(solution.actions[0]) == pytest.approx(least + 3 * cost)


@pytest.mark.parametrize("penalty", [10.0, 1e6])
def test_stops_that_no_vehicle_may_serve(penalty):
    """Stop 2 is left out, so the tour is that to stop 1 and back."""
    pytest.importorskip("pyvrp")
    stops = {"x": [0, 1, 2], "y": [0, 0, 0], "demand": [0, 1, 1], "capacity": 5, "depot": [1, 0, 0]}
    fleet = {"vehicle_capacity": [5, 0, 0], "cost_per_length": [1, 0, 0], "fixed_cost": [0] * 3}
    own = from_columns("PCHFVRP", stops | fleet | {"penalty": [0, penalty, penalty]})
    instance = replace(own.instance, eligible=np.array([[[False, True, False]]]))
    solution = PyVRP(LIMIT).solve(own.problem, instance, num_workers=0)
    assert solution.cost[0] * own.scale == pytest.approx(penalty + 2)


@pytest.mark.parametrize("penalty", [10.0, 1e6])
def test_what_is_forbidden_is_left_out_at_any_penalty(penalty):
    """The backhaul at 1 must be served at 1 to 2, the linehaul behind it at 5: which may not come after it."""
    pytest.importorskip("pyvrp")
    stops = {"x": [0, 1, 2], "y": [0, 0, 0], "demand": [0, 1, 1], "capacity": 5, "backhaul": [0, 1, 0]}
    windows = {"ready_time": [0, 1, 5], "due_time": [100, 2, 6], "service_time": [0, 0, 0]}
    fleet = {"vehicle_capacity": [5, 0, 0], "cost_per_length": [1, 0, 0], "num_vehicles": [1, 0, 0]}
    given = stops | windows | fleet | {"depot": [1, 0, 0], "fixed_cost": [0] * 3, "penalty": [0, penalty, penalty]}
    own = from_columns("PCHFVRPBTW", given)
    solution = PyVRP(LIMIT).solve(own.problem, own.instance, num_workers=0)
    assert own.cost(solution.actions[0]) == pytest.approx(penalty + 2)


@pytest.mark.parametrize(
    ("name", "factor", "more"),
    [("CVRP", 0, 0), ("CVRP", 20_000, 0), ("SDVRP", 20_000, 0), ("CVRP", 2**35, 1), ("SDVRP", 2**35, 1)],
)
def test_hygese_takes_demands_of_any_size(name, factor, more):
    """HGS refuses a largest demand of 0 or over 100,000, and the package hygese then dies of signal 11.

    Demands of one unit more have no common divisor; with half a unit of the old size, the same customers fit.
    """
    pytest.importorskip("hygese")
    problem, instance = draw(name, 8, 2)
    best = HeldKarp().solve(make_problem("CVRP", 8), replace(instance, demand=instance.demand * min(factor, 1))).cost
    demand = instance.demand * factor + more * (np.arange(9) > 0)
    instance = replace(instance, demand=demand, capacity=instance.capacity * max(factor, 1) + factor // 2)
    found = Hygese(0.2).solve(problem, instance)  # in a worker: this process is to survive
    assert not found.failed.any(), found.status
    assert (found.cost <= best + 1e-6).all()


def test_demands_are_rounded_so_that_no_vehicle_is_overloaded():
    """300,001 + 150,001 exceed 450,001 by 1: over 100,000, a fourth, rounded up, 75,001 + 37,501 and 112,500 do too.

    Multiples of 20,000 are divided by it exactly. A customer who fills a vehicle still fits when rounded.
    """
    demand, capacity = scale_demand(np.array([0, 300_001, 150_001]), 450_001)
    assert (demand.tolist(), capacity) == ([0, 75_001, 37_501], 112_500)
    demand, capacity = scale_demand(np.array([0, 180_000, 20_000]), 399_999)
    assert (demand.tolist(), capacity) == ([0, 9, 1], 19)
    demand, capacity = scale_demand(np.array([0, 300_001, 1]), 300_001)
    assert (demand.tolist(), capacity) == ([0, 75_000, 1], 75_000)


@pytest.mark.parametrize("name", ["VRPL", "OVRPL", "VRPTW", "OVRPTW"])
def test_pyvrp_serves_a_customer_who_is_just_reached(name):
    """Rounded up, the way to the farthest customer is longer than the limit, and one ends after the window."""
    pytest.importorskip("pyvrp")
    problem, instance = draw(name, 5, 4)
    away = distance_matrix(instance)[:, 0]
    if problem.time_windows:
        due = np.full_like(instance.due_time, 1e13)
        due[:, 3] = away[:, 3]
        instance = replace(instance, ready_time=0 * due, due_time=due, service_time=0 * due)
    else:
        limit = (away.max(axis=1) * (1 if problem.open_routes else 2)).astype(np.float32)
        instance = replace(instance, max_length=limit)
    problem.validate(instance)
    assert not PyVRP(LIMIT).solve(problem, instance, num_workers=0).failed.any()


@pytest.mark.parametrize(("opens", "cost"), [(2.0, 0.2), (0.7, 0.4)])
def test_pyvrp_knows_windows_that_exclude_a_pair(opens, cost):
    """The pickup opens at 2, after the delivery closes: both penalties of 0.1; or both open for a moment, at 0.7."""
    pytest.importorskip("pyvrp")
    problem = VRP(num_nodes=2, pairs=True, time_windows=True, penalties=True)
    early = np.array([[0, opens, 0]], dtype=np.float32)
    late = np.array([[9, opens, 1]], dtype=np.float32)
    instance = VRPInstance(
        coords=np.array([[[0, 0], [0.1, 0], [0.2, 0]]], dtype=np.float32),
        demand=np.array([[0, 1, 1]]),
        capacity=np.array([5]),
        pickup=np.array([[0, 0, 1]]),
        ready_time=early,
        due_time=late,
        service_time=0 * late,
        penalty=np.array([[0, 0.1 if opens > 1 else 9, 0.1]], dtype=np.float32),
    )
    problem.validate(instance)
    found = PyVRP(LIMIT).solve(problem, instance, num_workers=0)
    assert found.cost == pytest.approx([cost])


@pytest.mark.parametrize("solver", [ORTools(LIMIT), PyVRP(LIMIT)], ids=lambda solver: solver.name)
def test_several_deliveries_of_one_pickup(solver):
    pytest.importorskip(solver.packages[0])
    problem, instance = draw("PDP", 6, 4)
    pickup = np.array([[0, 0, 1, 1, 0, 4, 4], [0, 2, 0, 2, 2, 2, 2], [0, 0, 0, 0, 3, 3, 1], [0, 6, 6, 6, 6, 6, 0]])
    instance = replace(instance, pickup=pickup)
    found = solver.solve(problem, instance, num_workers=0)
    np.testing.assert_allclose(found.cost, brute_force(problem, instance), atol=1e-6)


@pytest.mark.parametrize("solver", [ORTools(LIMIT), PyVRP(LIMIT)], ids=lambda solver: solver.name)
def test_deliveries_follow_pickups_where_nodes_coincide(solver):
    """Five customers in the corners of the square: legs of length 0 order nobody, where lengths are compared."""
    pytest.importorskip(solver.packages[0])
    problem, instance = draw("PDP", 5, 2)
    corners = [[[0, 1], [0, 0], [0, 1], [1, 1], [1, 1], [0, 0]], [[0, 0], [0, 0], [1, 1], [1, 0], [1, 0], [1, 1]]]
    pickup = np.array([[0, 0, 4, 4, 0, 4], [0, 2, 0, 2, 0, 2]])
    instance = replace(instance, coords=np.array(corners, dtype=np.float32), pickup=pickup)
    found = solver.solve(problem, instance, num_workers=0)
    np.testing.assert_allclose(found.cost, HeldKarp().solve(problem, instance).cost, atol=1e-6)


def test_mip_stays_at_home_where_nobody_can_be_reached():
    """The nearest customer is 0.5 away: a way of 1.0, and 0.9 is allowed."""
    pytest.importorskip("scipy")
    instance = OPInstance(
        np.array([[[0.0, 0.0], [0.5, 0.0], [0.5, 0.5]]], dtype=np.float32),
        np.array([[0, 1, 1]], dtype=np.float32),
        np.array([0.9], dtype=np.float32),
    )
    solution = ExactMIP().solve(make_problem("OP", 2), instance, num_workers=0)
    assert solution.cost.tolist() == [0.0]
    assert solution.actions.tolist() == [[0]]


@pytest.mark.parametrize("solver", [ExactMIP(), PyVRP(LIMIT)], ids=lambda solver: solver.name)
def test_tours_of_op_run_in_the_direction_that_is_legal(solver):
    """The near customer is 1 away, the far one 3, and 1 from the near one: a tour of 5, all that is allowed.

    To the far one first and directly back would be 6.
    """
    pytest.importorskip(solver.packages[0])
    coords, prize = np.zeros((2, 3, 2), dtype=np.float32), np.array([[0, 1, 1]] * 2, dtype=np.float32)
    lengths = [[[0, 1, 3], [1, 0, 1], [3, 1, 0]], [[0, 3, 1], [3, 0, 1], [1, 1, 0]]]
    instance = OPInstance(coords, prize, np.full(2, 5.0, np.float32), np.array(lengths, dtype=np.float32))
    found = solver.solve(make_problem("OP", 2), instance, num_workers=0)
    assert found.actions.tolist() == [[1, 2, 0], [2, 1, 0]]


@pytest.mark.parametrize("solver", [ExactMIP(), PyVRP(LIMIT)], ids=lambda solver: solver.name)
def test_op_with_distances_that_have_nothing_to_do_with_places(solver):
    """The shortest ways back are detours: the program is exact all the same, and PyVRP's tours are legal."""
    pytest.importorskip(solver.packages[0])
    problem, instance = draw("OP", 8, 12, seed=1)
    instance = replace(random_metric(instance), max_length=np.full(12, 1.5, np.float32))
    found, best = (one.solve(problem, instance, num_workers=0) for one in (solver, HeldKarp()))
    assert not found.failed.any(), found.status
    assert (found.cost >= best.cost - 1e-6).all()
    if solver.name == "milp":
        np.testing.assert_allclose(found.cost, best.cost, atol=1e-6)


@pytest.mark.parametrize("scale", [1.0, 1e6])
def test_pyvrp_stays_at_home_where_nobody_can_be_reached(scale):
    """Prizes of millions outweighed PyVRP's penalties for the limit, and it found no feasible tour."""
    pytest.importorskip("pyvrp")
    problem, instance = draw("OP", 20, 3)
    instance = replace(instance, prize=instance.prize * np.float32(scale), max_length=np.full(3, 0.01, np.float32))
    found = PyVRP(LIMIT).solve(problem, instance, num_workers=0)
    assert (found.cost.tolist(), set(found.status)) == ([0.0] * 3, {"feasible"})


def test_mip_visits_everyone_where_the_prizes_do_not_suffice():
    """Prizes 0.4 + 0.4 < 1, so both must be visited: 0.3 + 0.3 + sqrt(0.18), though their penalties are 0."""
    pytest.importorskip("scipy")
    instance = PCTSPInstance(
        np.array([[[0.0, 0.0], [0.3, 0.0], [0.0, 0.3]]], dtype=np.float32),
        np.array([[0, 0.4, 0.4]], dtype=np.float32),
        np.zeros((1, 3), dtype=np.float32),
    )
    solution = ExactMIP().solve(make_problem("PCTSP", 2), instance, num_workers=0)
    assert solution.cost[0] == pytest.approx(0.6 + math.sqrt(0.18), abs=1e-6)


def test_offline_bound_knows_the_real_prizes():
    """SPCTSP with the real prizes known is PCTSP with those prizes."""
    pytest.importorskip("scipy")
    problem, instance = draw("SPCTSP", 8, 4)
    known = PCTSPInstance(instance.coords, instance.real_prize, instance.penalty)
    solution = OfflineMIP().solve(problem, instance, num_workers=0)
    np.testing.assert_allclose(solution.cost, HeldKarp().solve(make_problem("PCTSP", 8), known).cost, atol=1e-9)
    assert solution.is_bound


@pytest.mark.parametrize(("solver", "name"), PAIRS)
def test_every_tour_can_be_played(solver, name):
    """Each action is legal in the environment, and the steps cost what `objective` says."""
    problem, instance = draw(name, 7, 3, seed=7)
    solution = patient(solver).solve(problem, instance, num_workers=0)
    assert not solution.failed.any(), solution.status
    np.testing.assert_allclose(replay_cost(problem, instance, solution.actions), solution.cost, atol=1e-5)
    assert solution.actions.dtype == np.int64
    assert (solution.seconds > 0).all()


@pytest.mark.parametrize(("solver", "name"), PAIRS)
def test_the_smallest_instances(solver, name):
    problem, instance = draw(name, PROBLEMS[name].min_nodes, 2)
    made = patient(solver, 2.0)  # PDP has one tour then: OR-Tools seeks others to the end
    solution = made.solve(problem, instance, num_workers=0)
    assert not solution.failed.any(), solution.status


def test_the_page_says_who_solves_what():
    """docs/reference/solvers.md against the solvers' own attributes."""
    page = (Path(__file__).parents[2] / "docs" / "reference" / "solvers.md").read_text()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if line.startswith("| `")]
    assert [name.strip("`") for name, *_ in rows] == list(SOLVERS)
    exact = [name for name, solver in SOLVERS.items() if solver.is_bound or solver in (HeldKarp, ExactMIP)]
    for cells, (name, solver) in zip(rows, SOLVERS.items(), strict=True):
        _, solves, quality, package, limit = cells
        family = "the VRP family" + ("" if "MDVRP" in (solver.problems or ()) else " with O, B, L and TW")
        known = [family if one == "VRPTW" else one for one in solver.problems or () if one not in OTHERS]
        assert solves == (", ".join(known) or "every problem")
        assert quality.startswith("exact" if name in exact else "heuristic")
        assert package == (
            ", ".join(dict.fromkeys(one.split(".")[0].replace("_", "-") for one in solver.packages)) or "-"
        )
        assert limit == (f"{solver().time_limit:g} s" if issubclass(solver, RowSolver) else "-")
        assert (f"`{name}`" in page[page.index("must be symmetric") :].split("\n\n")[0]) == solver.needs_symmetry


def test_references_solve_their_problems():
    assert [name for name, solver in REFERENCES.items() if name not in SOLVERS[solver].problems] == []
    paper = ["TSP", "CVRP", "SDVRP", "OP", "PCTSP", "SPCTSP"]
    assert set(REFERENCES) == {*paper, "PDP", "MTSP", "TSPFE", "ATSP", *PRESETS}


# --- construction and local search -------------------------------------------------------------------------


def test_nearest_neighbour_by_hand():
    """On a line at 0, 0.2, 0.9, 0.3, 0.6: from 0 to 0.2, 0.3, 0.6, 0.9 and back."""
    coords = np.array([[[0, 0], [0.2, 0], [0.9, 0], [0.3, 0], [0.6, 0]]], dtype=np.float32)
    solution = NearestNeighbour().solve(make_problem("TSP", 5), TSPInstance(coords))
    assert solution.actions.tolist() == [[0, 1, 3, 4, 2]]
    assert solution.cost[0] == pytest.approx(1.8, abs=1e-6)


def test_nearest_neighbour_of_pctsp_returns_as_soon_as_it_may():
    """Prizes 0.6 each: after the two nearest, at 0.1 and 0.2, it goes home and pays 0.5 for the third."""
    coords = np.array([[[0, 0], [0.2, 0], [0.9, 0], [0.1, 0]]], dtype=np.float32)
    instance = PCTSPInstance(
        coords, np.array([[0, 0.6, 0.6, 0.6]], np.float32), np.array([[0, 0.5, 0.5, 0.5]], np.float32)
    )
    solution = NearestNeighbour().solve(make_problem("PCTSP", 3), instance)
    assert solution.actions.tolist() == [[3, 1, 0]]
    assert solution.cost[0] == pytest.approx(0.4 + 0.5, abs=1e-6)


def slow_insertion(distances, first, next_city):
    """Insertion for one instance as the textbook has it."""
    tour = [first]
    while len(tour) < len(distances):
        outside = [city for city in range(len(distances)) if city not in tour]
        city = next_city(outside, [min(distances[city][inside] for inside in tour) for city in outside])
        detours = [
            distances[a][city] + distances[city][b] - distances[a][b]
            for a, b in zip(tour, tour[1:] + tour[:1], strict=True)
        ]
        tour.insert(int(np.argmin(detours)) + 1, city)
    return tour


def test_christofides_keeps_its_bound():
    """At most 3/2 of the optimum (Christofides 1976); on a regular hexagon the tree and the matching are its rim."""
    pytest.importorskip("networkx")
    problem, instance = draw("TSP", 8, 50)
    cost, best = (solver.solve(problem, instance, num_workers=0).cost for solver in (Christofides(), HeldKarp()))
    assert (cost >= best - 1e-6).all()
    assert (cost <= 1.5 * best).all()
    angle = np.arange(6) * np.pi / 3
    hexagon = TSPInstance((0.5 + 0.4 * np.stack([np.cos(angle), np.sin(angle)], axis=-1))[None].astype(np.float32))
    found = Christofides().solve(make_problem("TSP", 6), hexagon, num_workers=0)
    assert found.cost[0] == pytest.approx(6 * 0.4, abs=1e-5)  # the side of a hexagon is its radius


@pytest.mark.parametrize("solver", [NearestInsertion(), FarthestInsertion()], ids=lambda solver: solver.name)
def test_insertion_equals_the_textbook(solver):
    problem, instance = draw("TSP", 9, 6)
    tours = solver.solve(problem, instance).actions
    for row, points in enumerate(instance.coords.astype(np.float64)):
        distances = np.linalg.norm(points[:, None] - points, axis=-1)
        if solver.name == "nearest-insertion":
            expected = slow_insertion(distances, 0, lambda outside, near: outside[int(np.argmin(near))])
        else:
            first = int(np.argmax(distances.max(axis=1)))
            expected = slow_insertion(distances, first, lambda outside, near: outside[int(np.argmax(near))])
        assert tours[row].tolist() == expected


def test_random_insertion_depends_on_seed_and_row_only():
    problem, instance = draw("TSP", 12, 30)
    whole = RandomInsertion().solve(problem, instance, seed=4)
    part = RandomInsertion().solve(problem, select(instance, slice(0, 7)), seed=4)
    np.testing.assert_array_equal(whole.actions[:7], part.actions)
    assert (RandomInsertion().solve(problem, instance, seed=5).actions != whole.actions).any()
    one = select(instance, slice(0, 1))
    same = RandomInsertion().solve(problem, concatenate([one] * 20), seed=4)
    assert len({tuple(tour) for tour in same.actions.tolist()}) > 1  # rows draw differently


def test_two_opt_uncrosses_a_square():
    """The diagonals of the unit square cost 2 + 2 sqrt(2), its sides 4."""
    coords = np.array([[[0, 0], [1, 1], [0, 1], [1, 0]]], dtype=np.float32)
    distances = np.linalg.norm(coords[:, :, None] - coords[:, None], axis=-1).astype(np.float64)
    tours = np.array([[0, 1, 2, 3]])
    search.improve_all(tours, distances, reverses=True, moves_segments=False)
    assert make_problem("TSP", 4).objective(TSPInstance(coords), tours)[0] == pytest.approx(4.0)


@pytest.mark.parametrize("solver", [TwoOpt, OrOpt, TwoOptOrOpt], ids=lambda solver: solver.name)
def test_local_search_ends_where_no_move_helps(solver):
    """Every 2-opt move (turn a part around) and every Or-opt move of the end result, by the objective."""
    problem, instance = draw("TSP", 9, 5)
    solution = solver(start="nearest-neighbour").solve(problem, instance)
    start = NearestNeighbour().solve(problem, instance)
    assert solution.cost.sum() < start.cost.sum()
    for row, tour in enumerate(solution.actions.tolist()):
        neighbours = []
        for i, j in itertools.combinations(range(10), 2):
            if solver.reverses:
                neighbours.append(tour[:i] + tour[i:j][::-1] + tour[j:])
            if solver.moves_segments and j - i <= 3:
                rest, segment = tour[:i] + tour[j:], tour[i:j]
                for place in range(len(rest) + 1):
                    neighbours += [rest[:place] + part + rest[place:] for part in (segment, segment[::-1])]
        one = concatenate([select(instance, slice(row, row + 1))] * len(neighbours))
        assert problem.objective(one, np.array(neighbours)).min() >= solution.cost[row] - 1e-9


# --- split deliveries --------------------------------------------------------------------------------------


def best_by_search(problem, instance):
    """Least cost of one instance over all sequences of legal actions."""
    best = np.inf
    stack = [(problem.initial(instance), 0.0)]
    while stack:
        state, cost = stack.pop()
        if problem.done(instance, state).all():
            best = min(best, cost)
        elif cost < best:
            for action in np.flatnonzero(problem.action_mask(instance, state)[0]):
                following, step_cost = problem.step(instance, state, np.array([action]))
                stack.append((following, cost + float(step_cost[0])))
    return best


def test_splitting_saves_a_trip():
    """Three customers of 2 units, capacity 3, at distance 0.5 in one place: 2 trips instead of 3, 2.0 for 3.0.

    Trip one serves a whole customer and half of another, trip two the rest.
    """
    pytest.importorskip("hygese")
    coords = np.array([[[0, 0], [0.5, 0], [0.5, 0], [0.5, 0]]], dtype=np.float32)
    instance = SDVRPInstance(coords, np.array([[0, 2, 2, 2]]), np.array([3]))
    assert Hygese(LIMIT).solve(make_problem("CVRP", 3), instance, num_workers=0).cost[0] == pytest.approx(3.0)
    assert Hygese(LIMIT).solve(make_problem("SDVRP", 3), instance, num_workers=0).cost[0] == pytest.approx(2.0)


def test_split_deliveries_lie_between_the_optimum_and_cvrp():
    pytest.importorskip("hygese")
    problem = make_problem("SDVRP", 4, capacity=9)
    instance = problem.generate(np.random.default_rng(0), 4)
    cost = Hygese(LIMIT).solve(problem, instance, num_workers=0).cost
    optimum = [best_by_search(problem, select(instance, slice(row, row + 1))) for row in range(4)]
    assert (cost >= np.array(optimum) - 1e-5).all()
    assert (cost <= HeldKarp().solve(make_problem("CVRP", 4, capacity=9), instance).cost + 1e-9).all()


def test_parts_of_a_customer():
    """9 = 1 + 2 + 4 + 2; a trip over parts 1, 2 (customer 1) and 5 (customer 2) visits 1 and 2 once each."""
    owners, units = unit_copies(np.array([0, 9, 1]))
    assert owners.tolist() == [0, 1, 1, 1, 1, 2]
    assert units.tolist() == [0, 1, 2, 4, 2, 1]
    assert merge_copies([[1, 2, 5], [3, 4]], owners) == [[1, 2], [1]]


def test_replay_serves_what_is_left_over():
    """Capacity 3, demands 3 and 3: the plan gives 2 of 3 units to customer 1 first, but a visit delivers all 3.

    Customer 2 then gets nothing on trip one, 3 units on trip two; the second visit of 1 is left out.
    Without trip two, a further trip serves 2.
    """
    demand = np.array([0, 3, 3])
    assert replay([[1, 2], [2, 1]], demand, 3) == [[1], [2]]
    assert replay([[1, 2]], demand, 3) == [[1], [2]]


def test_best_replay_puts_the_split_customer_last():
    """Capacity 4, demands 3, 2, 3 on a line at 0.1, 0.2, 0.3. Planned: [2, 1] and [2, 3], one unit of 2 on each.

    Driven as planned, trip one empties 2 and lacks a unit for 1: a third trip. Turned around, both trips
    deliver 1 unit to 2 at their end.
    """
    points = np.array([0, 0.1, 0.2, 0.3])
    distances = np.abs(points[:, None] - points)
    demand = np.array([0, 3, 2, 3])
    assert len(replay([[2, 1], [2, 3]], demand, 4)) == 3
    trips = best_replay([[2, 1], [2, 3]], demand, 4, distances, np.random.default_rng(0))
    assert sorted(map(sorted, trips)) == [[1, 2], [2, 3]]


# --- the protocol ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Faulty(RowSolver):
    """Fails in the way that the row's first coordinate says; else returns the cities in order."""

    name: ClassVar[str] = "faulty"
    problems: ClassVar[tuple[str, ...]] = ("TSP",)

    time_limit: float = 1.0

    @property
    def hard_limit(self):
        return 3 * self.time_limit  # long enough for the rows that end, on a busy machine too

    def solve_row(self, problem, instance, seed):
        kind = round(float(instance.coords[0, 0, 0]) * 10)
        if kind == 1:
            raise RuntimeError("no luck")
        if kind == 2:
            time.sleep(600)
        if kind == 3:
            os._exit(7)
        if kind == 4:
            return [0] * problem.num_nodes, "feasible"
        if kind == 6:
            os.kill(os.getpid(), signal.SIGSEGV)
        if kind == 5:
            return [0.0, 1.5, 2.0, 3.0], "feasible"
        return list(range(problem.num_nodes)), "feasible"


class CannotStart(Faulty):
    def load(self):
        if multiprocessing.parent_process() is not None:
            raise RuntimeError("not here")


def faulty_batch(*kinds):
    problem, instance = draw("TSP", 4, len(kinds))
    coords = instance.coords.copy()
    coords[:, 0, 0] = np.array(kinds) / 10
    return problem, replace(instance, coords=coords)


@pytest.mark.parametrize("num_workers", [1, 2])
def test_a_failing_row_costs_one_row(num_workers):
    problem, instance = faulty_batch(0, 1, 2, 3, 4, 0, 6)
    solution = Faulty().solve(problem, instance, num_workers=num_workers)
    assert solution.failed.tolist() == [False, True, True, True, True, False, True]
    assert solution.status[0] == "feasible"
    assert solution.status[1] == "RuntimeError: no luck"
    assert solution.status[2].startswith("timed out: stopped after")
    assert solution.status[3] == "died: the worker process ended with exit code 7"
    assert solution.status[4] == "infeasible: step 1: node 0 is already visited; visit each node once"
    assert solution.status[6] == "died: the worker process ended by SIGSEGV"
    assert (solution.actions[1:5] == -1).all()
    np.testing.assert_allclose(
        solution.cost[[0, 5]], problem.objective(select(instance, np.array([0, 5])), solution.actions[[0, 5]])
    )


class TwoPartsError(Exception):
    def __init__(self, first, second):
        super().__init__(f"{first} and {second}")


class RaisesTwoParts(Work):
    name = "two parts"

    def do(self, key):
        raise TwoPartsError("this", "that")


def test_an_exception_that_cannot_be_pickled():
    with pytest.raises(RuntimeError, match="TwoPartsError: this and that"):
        list(pool.Processes(1).run(RaisesTwoParts(), [(0, (0,))]))


def test_a_tour_of_fractions_fails():
    solution = Faulty().solve(*faulty_batch(5, 0), num_workers=0)
    assert solution.status == ("TypeError: faulty returned float64 of shape (4,), expected integers (T,)", "feasible")


def test_failing_rows_in_this_process():
    problem, instance = faulty_batch(0, 1, 4)
    solution = Faulty().solve(problem, instance, num_workers=0)
    assert solution.status == (
        "feasible",
        "RuntimeError: no luck",
        "infeasible: step 1: node 0 is already visited; visit each node once",
    )


def test_all_rows_may_fail():
    problem, instance = faulty_batch(1, 1)
    solution = Faulty().solve(problem, instance, num_workers=0)
    assert solution.failed.all()


@pytest.mark.parametrize("error", [EOFError, ConnectionResetError])
def test_workers_end_quietly_with_their_parent(error, monkeypatch):
    """After Ctrl-C the pipe is closed, or reset where an answer was on its way."""

    class Gone:
        def send(self, ready):
            assert ready

        def recv(self):
            raise error

    monkeypatch.setattr("signal.signal", lambda *_: None)  # this process keeps its Ctrl-C
    monkeypatch.setattr(pool, "end_with_parent", lambda: None)
    pool.serve(Gone(), RowWork(Counting(), make_problem("TSP", 3), 0))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds processes in /proc")
def test_workers_end_with_a_parent_that_is_killed(tmp_path):
    """Also in the middle of a task."""
    script = tmp_path / "script.py"
    script.write_text(
        "from test_solvers import Faulty, faulty_batch\n"
        "if __name__ == '__main__':\n"
        "    Faulty(time_limit=600.0).solve(*faulty_batch(2), num_workers=1)\n"
    )
    paths = os.pathsep.join(sys.path)
    with subprocess.Popen([sys.executable, script], env=os.environ | {"PYTHONPATH": paths}) as parent:
        deadline = time.monotonic() + 60
        while len(descendants(parent.pid)) < 3 and time.monotonic() < deadline:  # tracker, fork server, worker
            time.sleep(0.1)
        workers = descendants(parent.pid)
        time.sleep(1)  # the worker begins its task
        parent.kill()
    deadline = time.monotonic() + 30
    while any(map(runs, workers)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(map(runs, workers))


def runs(pid):
    """Return whether a process runs; one that has ended stays a zombie (Z) until it is waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except FileNotFoundError:
        return False


def descendants(pid):
    """Return the processes below a process."""
    try:
        children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []
    return children + [one for child in children for one in descendants(child)]


def test_workers_that_do_not_start_say_what_to_do():
    problem, instance = faulty_batch(0)
    with pytest.raises(RuntimeError, match="__main__.*num_workers=0"):
        CannotStart().solve(problem, instance)


def test_a_time_limit_that_is_too_short_fails_the_row():
    pytest.importorskip("scipy")
    problem, instance = draw("TSP", 8, 1)
    solution = ExactMIP(time_limit=1e-6).solve(problem, instance, num_workers=0)
    assert solution.failed.all()
    assert solution.status[0] == "TimedOut: not proven optimal within the time limit"


def test_workers_give_the_same_tours_as_this_process():
    pytest.importorskip("fast_tsp")
    problem, instance = draw("TSP", 10, 6)
    here = FastTSP(LIMIT).solve(problem, instance, num_workers=0)
    np.testing.assert_array_equal(FastTSP(LIMIT).solve(problem, instance, num_workers=2).actions, here.actions)


def test_iterations_give_the_same_tours_again():
    """However long they take; within a tenth of a second the second run might get further than the first."""
    pytest.importorskip("pyvrp")
    problem, instance = draw("CVRP", 15, 2)
    solver = PyVRP(time_limit=60, iterations=50)
    first, second = (solver.solve(problem, instance, num_workers=0) for _ in range(2))
    np.testing.assert_array_equal(first.actions, second.actions)
    assert first.seconds.max() < 30


def test_progress_bar_needs_rich(capsys, monkeypatch):
    problem, instance = draw("TSP", 5, 2)
    monkeypatch.setitem(sys.modules, "rich.progress", None)
    with pytest.raises(ImportError, match=r"pip install \"\.\[solvers\]\""):
        NearestNeighbour().solve(problem, instance, progress=True)
    monkeypatch.undo()
    pytest.importorskip("rich")
    assert NearestNeighbour().solve(problem, instance, progress=True).cost.shape == (2,)


def test_row_seeds_differ():
    seeds = {row_seed(seed, row) for seed in range(20) for row in range(50)}
    assert len(seeds) == 1000
    assert all(0 <= seed < 2**31 for seed in seeds)


def test_instances_may_be_torch():
    pytest.importorskip("torch")
    problem, instance = draw("TSP", 7, 3)
    solution = HeldKarp().solve(problem, to_backend(instance, "torch"))
    np.testing.assert_array_equal(solution.cost, HeldKarp().solve(problem, instance).cost)


def test_score_marks_infeasible_rows():
    problem, instance = draw("TSP", 3, 3)
    solution = Solution.score(problem, instance, [[0, 1, 2], [0, 0, 2], [2, 1, 0]], seconds=1.5)
    assert solution.failed.tolist() == [False, True, False]
    assert solution.seconds.tolist() == [0.5, 0.5, 0.5]
    assert solution.cost[0] == pytest.approx(problem.objective(select(instance, [0]), np.array([[0, 1, 2]]))[0])


def test_score_takes_failed_rows_for_failed():
    """A row with one -1 is one; what it says of itself cannot be that it is feasible."""
    problem, instance = draw("TSP", 3, 3)
    tours = [[0, 1, -1], [0, 1, 2], [-1, -1, -1]]
    solution = Solution.score(problem, instance, tours, 0.0)
    assert solution.failed.tolist() == [True, False, True]
    assert solution.actions.tolist() == [[-1, -1, -1], [0, 1, 2], [-1, -1, -1]]
    assert solution.status == ("no tour", "feasible", "no tour")
    told = Solution.score(problem, instance, tours, 0.0, ["late", "optimal", "dead"])
    assert told.status == ("late", "optimal", "dead")


@pytest.mark.parametrize(
    ("actions", "settings", "message"),
    [
        ([[0.9, 1.2, 2.7]] * 3, {}, r"actions: expected integers of shape \(3, T\), got float64 of shape \(3, 3\)"),
        ([[0, 1, 2]] * 2, {}, r"actions: expected integers of shape \(3, T\), got int64 of shape \(2, 3\)"),
        ([0, 1, 2], {}, r"actions: expected integers of shape \(3, T\), got int64 of shape \(3,\)"),
        ([[0, 1, 2]] * 3, {"seconds": [1.0, 2.0]}, "seconds: expected one for all or 3, got 2"),
        ([[0, 1, 2]] * 3, {"status": ["feasible"]}, "status: expected one for all or 3, got 1"),
    ],
)
def test_score_refuses_what_does_not_fit(actions, settings, message):
    problem, instance = draw("TSP", 3, 3)
    with pytest.raises(ValueError, match=message):
        Solution.score(problem, instance, actions, **{"seconds": 0.0, **settings})


# --- bad input ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("package", ["fast_tsp", "hygese", "networkx", "pyvrp", "scipy.optimize"])
def test_a_missing_package_names_its_extra(package, monkeypatch):
    solver = next(solver for solver in SOLVERS.values() if package in solver.packages)
    monkeypatch.setitem(sys.modules, package, None)
    problem, instance = draw(solver.problems[0], 5, 1)
    with pytest.raises(ImportError, match=rf"{package} cannot be imported .*pip install \"\.\[solvers\]\""):
        solver().solve(problem, instance)


def test_an_unsupported_problem_names_the_supported_ones():
    problem, instance = draw("CVRP", 5, 1)
    with pytest.raises(ValueError, match="milp does not solve CVRP; it solves TSP, OP, PCTSP"):
        ExactMIP().solve(problem, instance)


def test_settings_are_validated():
    with pytest.raises(ValueError, match="fast-tsp: time_limit must be positive and finite, got 0"):
        FastTSP(time_limit=0)
    with pytest.raises(ValueError, match="fast-tsp: time_limit must be at most 1,000,000 s, got 1e[+]30"):
        FastTSP(time_limit=1e30)
    with pytest.raises(ValueError, match="time_limit must be positive and finite, got nan"):
        Hygese(time_limit=math.nan)
    with pytest.raises(ValueError, match="fast-tsp: time_limit must be positive and finite, got 'long'"):
        FastTSP(time_limit="long")
    with pytest.raises(ValueError, match="pyvrp: iterations must be an integer of at least 1, got 0"):
        PyVRP(iterations=0)
    with pytest.raises(ValueError, match="2-opt: start must be one of nearest-neighbour"):
        TwoOpt(start="greedy")
    with pytest.raises(ValueError, match="unknown solver 'lkh'; choose one of nearest-neighbour"):
        make_solver("lkh")
    with pytest.raises(TypeError, match="fast-tsp has no setting timelimit; it has time_limit"):
        make_solver("fast-tsp", timelimit=1)


def test_malformed_instances_and_arguments_are_refused():
    problem, instance = draw("TSP", 5, 2)
    with pytest.raises(InvalidInstance, match="coords: row 0"):
        NearestNeighbour().solve(problem, TSPInstance(instance.coords * 9))
    for num_workers in (-1, 1.5, True):
        with pytest.raises(ValueError, match=f"num_workers must be an integer of at least 0, got {num_workers}"):
            NearestNeighbour().solve(problem, instance, num_workers=num_workers)
    with pytest.raises(ValueError, match="held-karp takes at most 12 nodes, got 13"):
        HeldKarp().solve(*draw("TSP", 13, 1))
    lengths = np.zeros((2, 5, 5), dtype=np.float32)
    lengths[1, 0, 1] = 1
    for solver in (TwoOpt(), FastTSP(), ExactMIP()):
        with pytest.raises(ValueError, match=f"{solver.name} needs symmetric distances, but those of row 1 are"):
            solver.solve(problem, replace(instance, distances=lengths))


# --- the cache ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Counting(RowSolver):
    """Counts what it solves."""

    name: ClassVar[str] = "counting"
    problems: ClassVar[tuple[str, ...]] = ("TSP",)
    solved: ClassVar[list[int]] = []

    time_limit: float = 1.0
    stop_after: int = 10**9

    def solve_row(self, problem, instance, seed):
        if len(self.solved) >= self.stop_after:
            raise KeyboardInterrupt("stopped by hand")
        self.solved.append(seed)
        return np.random.default_rng(seed).permutation(problem.num_nodes), "feasible"


@pytest.fixture
def counting():
    Counting.solved.clear()
    return Counting()


def test_a_second_run_does_not_solve_again(counting, tmp_path):
    problem, instance = draw("TSP", 6, 5)
    first = counting.solve(problem, instance, num_workers=0, cache=tmp_path / "new")
    second = counting.solve(problem, instance, num_workers=0, cache=tmp_path / "new")
    assert len(Counting.solved) == 5
    np.testing.assert_array_equal(first.actions, second.actions)
    np.testing.assert_array_equal(first.cost, second.cost)
    np.testing.assert_array_equal(first.seconds, second.seconds)


def test_a_longer_batch_finds_its_first_rows_solved(counting, tmp_path):
    problem, instance = draw("TSP", 6, 5)
    counting.solve(problem, select(instance, slice(0, 3)), num_workers=0, cache=tmp_path)
    whole = counting.solve(problem, instance, num_workers=0, cache=tmp_path)
    assert len(Counting.solved) == 5
    np.testing.assert_array_equal(whole.actions, counting.solve(problem, instance, num_workers=0).actions)


@pytest.mark.parametrize("change", ["seed", "settings", "instance", "place", "version"])
def test_anything_that_changes_the_result_is_solved_anew(change, counting, tmp_path, monkeypatch):
    problem, instance = draw("TSP", 6, 2)
    monkeypatch.setattr(Counting, "packages", ("numpy.linalg",))
    counting.solve(problem, instance, num_workers=0, cache=tmp_path)
    if change == "version":  # of a package that the solver uses
        monkeypatch.setattr(cache, "version", lambda package: "0.0")
    if change == "place":
        instance = select(instance, np.array([1, 0]))  # a row's seed depends on its place
    if change == "instance":
        instance = replace(instance, coords=np.roll(instance.coords, 1, axis=1))
    solver = replace(counting, time_limit=2.0) if change == "settings" else counting
    solver.solve(problem, instance, num_workers=0, cache=tmp_path, seed=int(change == "seed"))
    assert len(Counting.solved) == 4


def test_an_interrupted_run_keeps_what_it_had(counting, tmp_path):
    problem, instance = draw("TSP", 6, 5)
    stopped = replace(counting, stop_after=3)
    with pytest.raises(KeyboardInterrupt, match="stopped by hand"):
        stopped.solve(problem, instance, num_workers=0, cache=tmp_path)
    done = Counting.solved.copy()
    Counting.solved.clear()
    stopped.solve(problem, instance, num_workers=0, cache=tmp_path)
    assert len(done) == 3
    assert Counting.solved == [row_seed(0, 3), row_seed(0, 4)]


def test_two_runs_keep_each_others_rows(counting, tmp_path):
    """Both begin with an empty cache, and each solves a row of its own."""
    problem, instance = draw("TSP", 6, 2)
    stores = [cache.Store(tmp_path, counting, problem, instance, 0) for _ in range(2)]
    for row, store in enumerate(stores):
        store.add(row, RowResult(np.arange(6), 1.0, "feasible"))
        store.save()
    assert cache.Store(tmp_path, counting, problem, instance, 0).known().keys() == {0, 1}


def test_two_runs_that_save_at_the_same_time_keep_each_others_rows(counting, tmp_path, monkeypatch):
    """One begins to save while the other has read the file and not written it yet."""
    problem, instance = draw("TSP", 6, 2)
    first, second = (cache.Store(tmp_path, counting, problem, instance, 0) for _ in range(2))
    for row, store in enumerate((first, second)):
        store.add(row, RowResult(np.arange(6), 1.0, "feasible"))
    other, write = threading.Thread(target=second.save), cache.write

    def late(*arguments):
        if not other.ident:
            other.start()
            other.join(0.2)
        write(*arguments)

    monkeypatch.setattr(cache, "write", late)
    first.save()
    other.join()
    assert cache.Store(tmp_path, counting, problem, instance, 0).known().keys() == {0, 1}


def test_a_cache_without_the_package_of_its_locks_is_refused_before_any_work(counting, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "filelock", None)
    with pytest.raises(ImportError, match=r"filelock cannot be imported .*solvers"):
        counting.solve(*draw("TSP", 6, 2), num_workers=0, cache=tmp_path)
    assert Counting.solved == []


def test_settings_of_a_solver_may_be_numpy_scalars(counting, tmp_path):
    problem, instance = draw("TSP", 6, 2)
    replace(counting, time_limit=np.float32(1)).solve(problem, instance, num_workers=0, cache=tmp_path)
    counting.solve(problem, instance, num_workers=0, cache=tmp_path)
    assert len(Counting.solved) == 2


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such modes")
def test_a_cache_can_be_shared(counting, tmp_path):
    problem, instance = draw("TSP", 6, 2)
    counting.solve(problem, instance, num_workers=0, cache=tmp_path / "cache")
    (tmp_path / "mine").touch()
    (file,) = (tmp_path / "cache").iterdir()
    assert file.stat().st_mode == (tmp_path / "mine").stat().st_mode


def test_failed_rows_are_tried_again(tmp_path):
    problem, instance = faulty_batch(0, 1)
    first = Faulty().solve(problem, instance, num_workers=0, cache=tmp_path)
    (file,) = tmp_path.iterdir()
    with np.load(file) as content:
        assert len(content["key"]) == 1
    again = Faulty().solve(problem, instance, num_workers=0, cache=tmp_path)
    assert again.failed.tolist() == first.failed.tolist() == [False, True]


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04 cut off"])
def test_a_damaged_cache_is_named(content, counting, tmp_path):
    problem, instance = draw("TSP", 6, 2)
    counting.solve(problem, instance, num_workers=0, cache=tmp_path)
    (file,) = tmp_path.iterdir()
    file.write_bytes(content)
    with pytest.raises(ValueError, match=rf"{file.name}: no solver cache, or damaged .*; delete it"):
        counting.solve(problem, instance, num_workers=0, cache=tmp_path)


def test_a_failed_write_leaves_the_old_file(counting, tmp_path, monkeypatch):
    problem, instance = draw("TSP", 6, 4)
    counting.solve(problem, select(instance, slice(0, 2)), num_workers=0, cache=tmp_path)
    (file,) = tmp_path.iterdir()
    before = file.read_bytes()

    def full(stream, **arrays):
        stream.write(b"half")
        raise OSError("no space left")

    monkeypatch.setattr(np, "savez_compressed", full)
    with pytest.warns(UserWarning, match="solutions are not kept for later runs: no space left"):
        assert not counting.solve(problem, instance, num_workers=0, cache=tmp_path).failed.any()
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [before]


def fleet_of(problem, counts, costs):
    """Return an instance whose vehicles have no fixed costs."""
    instance, zeros = problem.generate(np.random.default_rng(1), 1), [0] * problem.num_nodes
    return replace(
        instance,
        num_vehicles=np.array([[*counts, *zeros]]),
        cost_per_length=np.array([[*costs, *zeros]], np.float32),
        fixed_cost=np.zeros_like(instance.fixed_cost),
    )


def test_pyvrp_does_not_overload_a_cheap_vehicle():
    """One vehicle costs a ten-thousandth of the others, and cannot serve all customers."""
    problem = make_problem("HFOVRP", 6)
    solved = PyVRP(iterations=200, time_limit=60).solve(problem, fleet_of(problem, [6, 0, 1], [1e4, 0, 1]))
    assert solved.status == ("feasible",)


def test_pyvrp_ignores_vehicles_that_do_not_exist():
    problem = make_problem("HFVRP", 12)
    solver = PyVRP(iterations=50, time_limit=60)
    first, second = (solver.solve(problem, fleet_of(problem, [0, 12, 12], [cost, 1, 2])).actions for cost in (1, 1e8))
    assert (first == second).all()


def test_negative_seeds_and_batches_are_refused():
    problem = make_problem("TSP", 5)
    with pytest.raises(ValueError, match="generate: batch_size must not be negative, got -1"):
        problem.generate(np.random.default_rng(0), -1)
    with pytest.raises(ValueError, match="seed must be an integer of at least 0, got -1"):
        NearestNeighbour().solve(problem, problem.generate(np.random.default_rng(0), 1), seed=-1)
