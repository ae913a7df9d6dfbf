"""Instances of the VRP family as tasks: the search's routes are tours with the same cost, within the file's limits."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from helpers import DEPOTS_TEXT, EXPLICIT_TEXT, FLEET_TEXT, PAIRS_TEXT, PRIZES_TEXT, SHARED, SITES_TEXT, VRPB_TEXT
from routing_gym import data
from routing_gym.planning.from_instance import actions_of, stops_of, task_of, task_of_file
from routing_gym.planning.insertion import best_place
from routing_gym.planning.routes import Rules
from routing_gym.planning.search import Search
from routing_gym.planning.task import Task
from routing_gym.problems import make_problem
from routing_gym.problems.vrp.attributes import COMBINATIONS
from routing_gym.solvers.external import plans

NAMES = np.random.default_rng(4).choice(sorted(COMBINATIONS), 24, replace=False).tolist()


@pytest.mark.parametrize("name", NAMES)
def test_routes_are_tours_of_the_instance(name):
    """All attributes, with and without matrices: the problem's own check accepts the tour, and its cost is the same."""
    for matrices in (False, True):
        problem = make_problem(name, 10, matrices=matrices)
        instance = problem.generate(np.random.default_rng(2), 1)
        task = task_of(problem, instance)
        found = Search(Rules(task), ()).run(0.03)
        tour = actions_of(task, found.routes, found.absent)
        assert problem.penalties or not found.absent
        assert problem.objective(instance, tour[None])[0] == pytest.approx(found.cost, rel=1e-5)
        assert sorted(stops_of(problem, tour)) == sorted(list(route) for route in found.routes if route)


def read(folder, text) -> tuple[data.FileInstance, Task]:
    path = folder / "file.vrp"
    path.write_text(text)
    file = data.read_instance(path)
    return file, task_of_file(file)


@pytest.mark.parametrize("solver", plans.SOLVERS)
def test_classical_solvers_serve_backhauls_after_a_delivery(solver, tmp_path):
    pytest.importorskip(solver)
    _, task = read(tmp_path, VRPB_TEXT)
    assert plans.SOLVERS[solver](task, 0.2, 1) == [[1, 2]]


TEXTS = {
    "fleet": (FLEET_TEXT, 3.79),
    "depots": (DEPOTS_TEXT, 14000),
    "pairs": (PAIRS_TEXT, 12000),
    "longest route": (FLEET_TEXT.replace("CAPACITY_SECTION", "VEHICLES_MAX_DISTANCE : 20\nCAPACITY_SECTION"), 3.79),
    "backhauls": (VRPB_TEXT, 14),
    "sites": (SITES_TEXT, None),
    "prizes": (PRIZES_TEXT, None),
    "explicit": (EXPLICIT_TEXT, None),
}


@pytest.mark.parametrize(("text", "best"), TEXTS.values(), ids=TEXTS)
def test_files_are_solved_in_their_own_integers(text, best, tmp_path):
    """The file's exact check accepts the tour.

    Fleet, in hundreds: 200 + 3 x (10 + sqrt(10)) for stops 2 and 4, 100 + 2 x 20 for stop 3, whose route has a length
    of exactly 20. Depots: 6 + 8. Backhauls: 4 + 7 + 3; two routes cost as much, but one would have a backhaul only.
    """
    file, task = read(tmp_path, text)
    found = Search(Rules(task), ()).run(0.3)
    cost = file.cost(actions_of(task, found.routes, found.absent))
    if best is not None:
        assert cost == best


@pytest.mark.parametrize("solver", plans.SOLVERS)
@pytest.mark.parametrize("minutes", [10, 9.9])
def test_classical_solvers_keep_durations(solver, minutes, tmp_path):
    """The second vehicle needs 4 + 2 + 4 for its stop, which is left out if it may not be away for so long."""
    pytest.importorskip(solver)
    _, task = read(tmp_path, DEPOTS_TEXT.replace("VEHICLES_MAX_DURATION : 10\n", ""))
    task = replace(task, types=tuple(replace(kind, max_minutes=1000.0 * minutes) for kind in task.types))
    routes = plans.SOLVERS[solver](task, 0.2, 1)
    assert sorted(filter(None, routes)) == ([[2], [3]] if minutes == 10 else [[2]])


def test_real_fleets_are_solved():
    """The durations of this file's routes are limited, and all customers must be served by its eight vehicles."""
    path = SHARED / "fleets" / "SDVRPTW-PR01.vrp"
    if not path.exists():
        pytest.skip(f"{path} is missing")
    file = data.read_instance(path)
    task = task_of_file(file)
    found = Search(Rules(task), ()).run(1.0)
    tour = actions_of(task, found.routes, found.absent)
    assert file.best_known <= file.cost(tour) < 1.2 * file.best_known
    assert found.cost == file.cost(tour)


def test_limits_of_a_file(tmp_path):
    """Two vehicles in all; a day of 10 is too short to serve stop 4 with another, which takes over 20."""
    _, task = read(tmp_path, DEPOTS_TEXT)
    assert [kind.max_minutes for kind in task.types] == [10_000, 10_000]
    assert [kind.count for kind in task.types] == [1, 1]
    assert np.isinf(task.penalty).all()  # the penalties of the instance stand for this
    assert np.isfinite(read(tmp_path, PRIZES_TEXT)[1].penalty[1:]).sum() == 3
    assert task.count == 2
    assert read(tmp_path, EXPLICIT_TEXT)[1].count == 2
    assert read(tmp_path, PAIRS_TEXT)[1].count == 1


def least_duration(rules: Rules, stops: tuple[int, ...]) -> float:
    """Return the least time from departure to return over all departures in whole minutes; inf if none is in time."""
    best = np.inf
    for departure in range(100):
        time = float(departure)
        for before, node in pairwise((0, *stops, 0)):
            time += rules.minutes[before][node]
            if time > rules.due[node]:
                break
            time = max(time, rules.ready[node]) + rules.service[node]
        else:
            best = min(best, time - departure)
    return best


def test_the_duration_of_a_route():
    """A vehicle leaves as late as its windows allow, so that it waits least; brute force over all departures."""
    rng = np.random.default_rng(5)
    problem = make_problem("VRPTW", 8)
    task = task_of(problem, problem.generate(rng, 1))
    minutes = rng.integers(1, 9, (9, 9)).astype(float)
    task = replace(task, minutes=minutes, km=minutes, service=np.r_[0.0, rng.integers(0, 4, 8)], capacity=99)
    kept = 0
    for _ in range(200):
        ready = np.r_[0.0, rng.integers(0, 40, 8)]
        due = np.r_[99.0, ready[1:] + rng.integers(5, 40, 8)]
        rules = Rules(replace(task, ready=ready, due=due))
        stops = tuple(rng.permutation(np.arange(1, 9))[:3].tolist())
        least = least_duration(rules, stops)
        if rules.route(stops) is None:
            assert least == np.inf
            continue
        kept += 1
        for most, allowed in ((least, True), (least - 1, False)):
            limited = Rules(replace(task, ready=ready, due=due, max_minutes=most))
            assert (limited.route(stops) is not None) is allowed
            shorter = limited.route(stops[:2])
            if shorter is not None:
                _, place = best_place(limited, (stops[2],), shorter, 2, np.inf)
                assert bool(place) is allowed
    assert kept > 50


def test_a_depot_may_close_before_the_last_service_of_open_routes():
    """Customers 2 and 3 are served until 1.2 and 1.8 at the earliest, and the depot of OVRPTW closes at 1.2."""
    columns = {"x": [0, 0.5, 0.9, 0.2], "y": [0, 0, 0.3, 0.9], "demand": [0, 2, 2, 2], "capacity": 6}
    times = {"ready_time": [0, 0, 0, 1.5], "due_time": [1.2, 2, 2, 2], "service_time": [0, 0.3, 0.3, 0.3]}
    own = data.from_columns("OVRPTW", columns | times)
    rules = Rules(task_of(own.problem, own.instance))
    assert all(rules.route((node,)) is not None for node in (1, 2, 3))
    assert own.problem.objective(own.instance, np.array([[1, 2, 0, 3, 0]])).shape == (1,)
