"""Plans with large penalties, fixed costs, hours of work and solvers of one problem, with costs by hand."""

from __future__ import annotations

import numpy as np
import pytest

import routing_agents
from routing_gym.planning import InvalidInput, read_task, timetable
from routing_gym.planning.integers import Numbers
from routing_gym.planning.routes import Rules

pytestmark = pytest.mark.usefixtures("processor_time")

PLANNERS = ["search", "pyvrp", "ortools", "auto"]
CROSS = {"x": [0, 1, 0, -1, 0, 1], "y": [0, 0, 1, 0, -1, 1], "demand": [0, 1, 1, 1, 1, 1]}


@pytest.mark.parametrize("unit", [1e3, 1e9])
@pytest.mark.parametrize("solver", PLANNERS)
def test_penalties_far_above_the_lengths(solver, unit):
    """A vehicle for one stop serves the dearest one, 1 away; the others cost 1, 2, 3 and 4 units."""
    stops = CROSS | {"penalty": ["", *(unit * number for number in (1, 2, 3, 9, 4))]}
    plan = routing_agents.solve(stops, vehicles={"count": 1, "capacity": 1}, seconds=0.2, solver=solver)
    assert [route.rows for route in plan.routes] == [[0, 4, 0]]
    assert plan.cost == pytest.approx(10 * unit + 2)


@pytest.mark.parametrize("solver", PLANNERS)
def test_a_required_stop_comes_before_any_penalties(solver):
    """Stop 2 has no penalty: it is served, though it is 5 away and the others cost 9,000."""
    stops = CROSS | {"x": [0, 1, 5, -1, 0, 1], "penalty": ["", 1000, "", 3000, 1000, 4000]}
    plan = routing_agents.solve(stops, vehicles={"count": 1, "capacity": 1}, seconds=0.2, solver=solver)
    assert [route.rows for route in plan.routes] == [[0, 2, 0]]


def test_the_price_of_a_required_stop_exceeds_the_cost_of_a_dear_vehicle():
    """Seven stops on a circle of radius 10: its 72 lengths may cost 100 each if one stop needs the cheap vehicle."""
    angles = np.arange(7) * 2 * np.pi / 7
    stops = {"x": [0, *10 * np.cos(angles), 1], "y": [0, *10 * np.sin(angles), 0], "demand": [0] + [1] * 8}
    fleet = {"name": ["cheap", "dear"], "count": [1, 1], "capacity": [20, 20], "cost_per_unit": [1, 100]}
    numbers = Numbers(read_task(stops, vehicles=fleet))
    assert (numbers.price > 100 * (20 + 6 * 20 * np.sin(np.pi / 7)) * numbers.scale).all()


def test_pyvrp_does_not_overload_vehicles_with_large_fixed_costs():
    """Four vehicles hold 12 stops exactly. A fifth one would cost 2,000, more than an overload of one unit did."""
    rng = np.random.default_rng(0)
    parts = [(a, b, 50 - a - b) for a, b in rng.integers(5, 20, (4, 2)).tolist()]
    points = rng.uniform(0, 10, (2, 13))
    stops = {"x": points[0], "y": points[1], "demand": [0, *np.ravel(parts)]}
    plan = routing_agents.solve(stops, vehicles={"capacity": 50, "fixed_cost": 2000}, seconds=1, solver="pyvrp")
    assert len(plan.routes) == 4


@pytest.mark.parametrize("solver", ["pyvrp", "ortools"])
def test_lengths_count_beside_enormous_penalties(solver):
    """All stops are served, on a line whose shortest tour has 58 units, however large the penalties are."""
    stops = {"x": range(30), "y": [0] * 30, "demand": [0] + [1] * 29, "penalty": ["", 1e15, 1e6, *[1e12] * 27]}
    plan = routing_agents.solve(stops, vehicles={"capacity": 29, "fixed_cost": 1e11}, seconds=0.2, solver=solver)
    assert plan.cost == pytest.approx(58 + 1e11)


@pytest.mark.parametrize("solver", PLANNERS)
@pytest.mark.parametrize("penalties", [["", 1, ""], ["", "", 1e18]])
def test_a_required_stop_comes_first_where_lengths_do_not_count(solver, penalties):
    stops = {"x": [0, 0, 0], "y": [0, 0, 0], "demand": [0, 1, 1], "penalty": penalties}
    plan = routing_agents.solve(stops, vehicles={"count": 1, "capacity": 1}, seconds=0.1, solver=solver)
    assert [stop.row for stop in plan.unserved] == [2 if penalties[1] == "" else 1]


def test_repair_takes_the_cheapest_type():
    """Three pairs of neighbours; the routes of a solver of CVRP, with 10 units each, fit one large vehicle only."""
    stops = {"x": [0, 10, 10.1, -10, -10.1, 0, 0.1], "y": [0, 0, 0, 0, 0, 10, 10], "demand": [0] + [5] * 6}
    fleet = {"name": ["mid", "cheap", "large"], "count": [5, 5, 1], "capacity": [9, 9, 10], "fixed_cost": [500, 1, 1]}
    plan = routing_agents.solve(stops, vehicles=fleet, seconds=0.1, solver="nearest-neighbour")
    assert {route.vehicle.split()[0] for route in plan.routes} == {"cheap", "large"}
    assert plan.cost < 110


@pytest.mark.parametrize("solver", [*PLANNERS, "nearest-neighbour"])
def test_vehicles_that_stay_at_their_last_stop_work_until_their_latest(solver):
    """Each stop takes 30 of 60 minutes, and no two are near enough. When the depot closes does not matter."""
    stops = {"x": [0, 10, 20, 0], "y": [0, 0, 0, 15], "demand": [0, 1, 1, 1], "service": [0, 30, 30, 30]}
    hours = {"count": 3, "capacity": 9, "latest": 60, "open": True}
    plan = routing_agents.solve(stops | {"latest": [20, "", "", ""]}, vehicles=hours, seconds=0.1, solver=solver)
    assert sorted(route.visits[-1].departure for route in plan.routes) == [40, 45, 50]
    with pytest.raises(InvalidInput, match=r"vehicles, column latest: found 60.0; .* only 3 is done at 65.0"):
        routing_agents.solve(stops | {"service": [0, 30, 30, 50]}, vehicles=hours)


@pytest.mark.parametrize(
    ("changes", "vehicles", "omitted"),
    [
        ({"penalty": ["", "", 3, ""]}, {}, "CVRP, without penalties;"),
        ({"pickup": [0, 2, 2, 2]}, {}, "VRPMB, without pickups at the stops of deliveries;"),
        ({}, {"max_duration": 300}, "CVRP, without max_duration;"),
        ({}, {"fixed_cost": 9}, "CVRP, without costs of vehicles;"),
        ({}, {"capacity": 6, "count": 1}, "CVRP, without the number of vehicles;"),
        ({}, {"max_length": 300}, None),
        ({}, {"count": 2}, None),
    ],
)
def test_solvers_of_one_problem_say_what_they_ignore(changes, vehicles, omitted):
    stops = {"x": [0, 5, 10, 5], "y": [0, 0, 0, 3], "demand": [0, 6, 6, 6]} | changes
    plan = routing_agents.solve(stops, vehicles={"capacity": 18} | vehicles, seconds=0.1, solver="nearest-neighbour")
    assert [note for note in plan.notes if "without" in note] == (
        [] if omitted is None else [f"nearest-neighbour solved {omitted} routes that break a limit were changed"]
    )


@pytest.mark.parametrize("solver", PLANNERS)
@pytest.mark.parametrize("limit", ["max_duration", "max_length"])
def test_a_limit_may_be_huge(solver, limit):
    stops = {"x": [0, 10, 20], "y": [0, 0, 0], "demand": [0, 4, 4]}
    fleet = {"count": 1, "capacity": 20, limit: 2e16}
    assert routing_agents.solve(stops, vehicles=fleet, seconds=0.1, solver=solver).cost == pytest.approx(40)


def test_reasons_of_many_stops_are_found_at_once(monkeypatch):
    """Rules without a limit, a table of all pairs of stops, are made once for all stops that are left out."""
    made = []
    monkeypatch.setattr(timetable, "Rules", lambda task: made.append(task) or Rules(task))
    rng = np.random.default_rng(0)
    task = read_task(
        {"x": rng.random(31), "y": rng.random(31), "demand": [0] + [1] * 30}, vehicles={"count": 1, "capacity": 9}
    )
    found = timetable.explained(Rules(task), [list(range(1, 10))], range(10, 31))
    assert [stop.reason for stop in found] == ["capacity"] * 21
    assert len(made) == 1
