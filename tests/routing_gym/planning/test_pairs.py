"""Deliveries from other stops: both on one route, the pickup first; everything equals what brute force finds."""

from __future__ import annotations

from itertools import pairwise, permutations

import numpy as np
import pytest

import routing_agents
from routing_agents.planning.planner import solve_task
from routing_gym.planning import InvalidInput, read_task
from routing_gym.planning.fitting import fit
from routing_gym.planning.insertion import best_place
from routing_gym.planning.instances import plain_instance
from routing_gym.planning.plan import plan_of
from routing_gym.planning.routes import Rules
from routing_gym.planning.search import Search
from routing_gym.solvers.external import plans

pytestmark = pytest.mark.usefixtures("processor_time")

POINTS = np.random.default_rng(8).uniform(0, 10, (8, 2))
WAYS = np.linalg.norm(POINTS[:, None] - POINTS[None], axis=-1)
SOURCES = [0, 0, 5, 0, 1, 0, 0, 3]  # stop 4 gets what is picked up at 1, stop 2 that of 5, stop 7 that of 3
DEMAND = [0, 0, 3, 0, 4, 0, 2, 5]  # stop 6 gets 2 units from the depot
READY, DUE = [0, 8, 0, 0, 0, 0, 10, 0], [90, 60, 70, 25, 45, 60, 30, 80]
STOPS = {
    "id": list("dabcefgh"),
    "x": POINTS[:, 0],
    "y": POINTS[:, 1],
    "demand": DEMAND,
    "pickup_at": ["dabcefgh"[source] if source else "" for source in SOURCES],
}
WINDOWS = {"earliest": READY, "latest": DUE, "service": [0] + 7 * [1]}
COLUMNS = {
    "plain": {},
    "windows": WINDOWS,
    "collected": {"pickup": [0, 0, 0, 0, 0, 0, 2, 0], "demand": [*DEMAND[:6], 0, 5]},
}


def cost_of(order: tuple[int, ...], capacity: int, max_km: float, columns: dict[str, list[int]]) -> float:
    """Return the km of a route, inf if it breaks a rule; written from the rules alone."""
    collected = "pickup" in columns
    load, time, km, done = 0 if collected or 6 not in order else 2, 0.0, 0.0, []
    for before, node in pairwise((0, *order, 0)):
        km, time = km + WAYS[before, node], time + WAYS[before, node]
        if columns is WINDOWS:
            if time > DUE[node]:
                return np.inf
            time = max(time, READY[node]) + (node > 0)
        if SOURCES[node]:
            if SOURCES[node] not in done:
                return np.inf
            load -= DEMAND[node]
        elif node in SOURCES and node:
            load += DEMAND[SOURCES.index(node)]
            if SOURCES.index(node) not in order:
                return np.inf
        elif node == 6:
            load += 2 if collected else -2
        if load > capacity:
            return np.inf
        done.append(node)
    return km if km <= max_km else np.inf


def cheapest(vehicles: list[tuple[int, float]], columns: dict[str, list[int]]) -> float:
    """Return the least km of all ways to give each vehicle, of a capacity and a longest route, some stops in order."""
    whole = 2**7
    best = [0.0] + [np.inf] * (whole - 1)  # by set of stops
    for capacity, max_km in vehicles:
        alone = [0.0] * whole
        for chosen in range(1, whole):
            inside = [node for node in range(1, 8) if chosen >> (node - 1) & 1]
            alone[chosen] = min(cost_of(order, capacity, max_km, columns) for order in permutations(inside))
        best = [
            min(best[chosen ^ part] + alone[part] for part in range(chosen + 1) if part & chosen == part)
            for chosen in range(whole)
        ]
    return best[-1]


@pytest.mark.parametrize("solver", ["search", "pyvrp", "ortools"])
@pytest.mark.parametrize("columns", COLUMNS.values(), ids=COLUMNS)
def test_the_cheapest_plan(solver, columns):
    """A van of 9 units and a bicycle of 5 for short routes: the plan is the best of all, or with PyVRP nearly so."""
    fleet = {"name": ["van", "bicycle"], "count": [1, 1], "capacity": [9, 5], "max_length": [60, 26]}
    task = read_task(STOPS | columns, vehicles=fleet, speed=60)
    assert task.problem == ("PDVRPLTW" if columns is WINDOWS else "PDVRPL")
    assert "3 pairs of pickup and delivery" in task.sentence
    if solver == "search":
        found = Search(Rules(task), ()).run(1.0)
        trips, absent = found.routes, found.absent
    else:
        pytest.importorskip(solver)
        routes, absent = fit(Rules(task), plans.SOLVERS[solver](task, 0.5, 1))
        trips = Rules(task).by_vehicle(routes)
    plan = plan_of(Rules(task), trips, absent, solver)
    assert not plan.unserved
    best = cheapest([(9, 60.0), (5, 26.0)], columns)
    assert best * (1 - 1e-4) <= plan.cost <= best * (1.05 if solver == "pyvrp" else 1 + 1e-4)
    assert max(visit.load for route in plan.routes for visit in route.visits) <= 9
    assert all(
        route.visits[-1].load == (2 if columns is COLUMNS["collected"] and "g" in [s.id for s in route.stops] else 0)
        for route in plan.routes
    )


@pytest.mark.parametrize("windows", [False, True])
def test_the_best_positions_of_a_pair(windows):
    """The positions and extra costs of a pair on a route are the cheapest of all that keep the limits."""
    rng = np.random.default_rng(3)
    rows = 17  # stop k + 8 gets what is picked up at stop k
    stops = {
        "id": [str(k) for k in range(rows)],
        "demand": [0] * 9 + [2, 3] * 4,
        "pickup_at": [""] * 9 + [str(k) for k in range(1, 9)],
    }
    if windows:
        stops |= {"earliest": [0, *rng.integers(0, 20, 16)], "latest": [90, *rng.integers(30, 80, 16)]}
        stops |= {"service": [0] + 16 * [1]}
    ways = rng.uniform(1, 9, (rows, rows))
    task = read_task(stops, distances=ways, vehicles={"count": 1, "capacity": 7, "max_length": 35}, speed=60)
    rules, found = Rules(task), 0
    for _ in range(60):
        pickups = rng.permutation(np.arange(1, 9))
        nodes: tuple[int, ...] = ()
        for node in pickups[:4].tolist():
            nodes = min(orders(nodes, node, rules), key=lambda order: rules.route(order).cost, default=nodes)
        route, unit = rules.route(nodes), (int(pickups[4]), int(pickups[4]) + 8)
        extra, place = best_place(rules, unit, route, 0, np.inf)
        costs = [rules.route(order).cost for order in orders(nodes, unit[0], rules)]
        assert bool(place) == bool(costs)
        if costs:
            assert extra == pytest.approx(min(costs) - route.cost)
            assert rules.with_unit(unit, route, place).cost == pytest.approx(min(costs))
            found += 1
    assert 10 < found < 60  # some routes have no position


def orders(nodes: tuple[int, ...], pickup: int, rules: Rules) -> list[tuple[int, ...]]:
    """Return all routes that keep the limits, with a pickup and its delivery in any positions."""
    made = (
        (*nodes[:first], pickup, *nodes[first:second], pickup + 8, *nodes[second:])
        for second in range(len(nodes) + 1)
        for first in range(second + 1)
    )
    return [order for order in made if rules.route(order) is not None]


@pytest.mark.parametrize("solver", ["search", "pyvrp", "ortools"])
def test_a_pair_is_left_out_together(solver):
    """One bicycle cannot carry 5 units: both stops of the pair are left out, for one reason."""
    if solver != "search":
        pytest.importorskip(solver)
    plan = routing_agents.solve(STOPS, vehicles={"count": 2, "capacity": 4}, solver=solver, seconds=0.5)
    assert [(stop.id, stop.reason) for stop in plan.unserved] == [("c", "capacity"), ("h", "capacity")]
    optional = STOPS | {"penalty": [0, "", "", 0.1, "", "", "", 0.05]}
    plan = routing_agents.solve(optional, vehicles={"count": 2, "capacity": 9}, solver=solver, seconds=0.5)
    assert [(stop.id, stop.reason) for stop in plan.unserved] == [("c", "price"), ("h", "price")]
    assert all("more than its penalty of 0.15 km" in stop.explanation for stop in plan.unserved)
    assert plan.cost == pytest.approx(plan.km + 0.15)


@pytest.mark.parametrize("solver", ["search", "pyvrp", "ortools"])
def test_a_pair_whose_delivery_closes_before_the_pickup_opens(solver):
    """Nobody can serve it; both stops have a penalty of 1, and the other stop is 3 km away."""
    if solver != "search":
        pytest.importorskip(solver)
    stops = {"id": list("dpqs"), "x": [0, 1, 2, 3], "y": 4 * [0], "demand": [0, 0, 1, 1]}
    stops |= {
        "pickup_at": ["", "", "p", ""],
        "earliest": [0, 20, 0, 0],
        "latest": [99, 30, 10, 99],
        "penalty": ["", 1, 1, ""],
    }
    plan = routing_agents.solve(stops, vehicles={"capacity": 2}, solver=solver, seconds=0.2)
    assert [stop.id for stop in plan.unserved] == ["p", "q"]
    assert plan.cost == pytest.approx(6 + 2)


def test_missing_windows_leave_time_for_the_pickup():
    """10 to the pickup, 30 there, 10 on to the delivery, and 20 home."""
    stops = {"id": list("DPQ"), "x": [0, 10, 20], "y": [0] * 3, "demand": [0, 0, 1], "pickup_at": ["", "", "P"]}
    stops |= {"earliest": [0, 5, 0], "service": [0, 30, 0]}
    own, _ = plain_instance(Rules(read_task(stops, vehicles={"capacity": 1})))
    assert own.columns["due_time"].tolist() == [70, 70, 70]


def test_a_pair_that_is_in_time_via_another_stop():
    """From the pickup at 1 to the delivery it is 9 minutes directly, and 2 via the stop between them: d, p, s, q."""
    ways = [[0, 1, 5, 5], [1, 0, 1, 9], [5, 1, 0, 1], [5, 9, 1, 0]]
    stops = {"id": list("dpsq"), "demand": [0, 1, 1, 1], "pickup_at": ["", "", "", "p"], "latest": ["", "", "", 3]}
    plan = routing_agents.solve(stops, vehicles={"capacity": 2}, durations=ways, solver="search", seconds=0.1)
    assert (plan.cost, plan.routes[0].rows) == (8, [0, 1, 2, 3, 0])
    with pytest.raises(
        InvalidInput, match="row 3, column latest: found '2.0'; no vehicle is at p, then here, and back"
    ):
        read_task(stops | {"latest": ["", "", "", 2]}, vehicles={"capacity": 2}, durations=ways)


@pytest.mark.parametrize("solver", ["search", "pyvrp", "ortools"])
def test_a_pair_that_no_single_vehicle_may_serve(solver):
    """The van may serve the pickup only, and the bike the delivery; both are a km away, with a penalty of 9."""
    if solver != "search":
        pytest.importorskip(solver)
    stops = {"id": list("dpqs"), "x": [0, 1, 1, 3], "y": 4 * [0], "demand": [0, 0, 1, 1], "penalty": ["", 9, 9, ""]}
    stops |= {"pickup_at": ["", "", "p", ""], "vehicles": ["", "van", "bike", ""]}
    vehicles = {"name": ["van", "bike"], "count": [1, 1], "capacity": [2, 2]}
    plan = routing_agents.solve(stops, vehicles=vehicles, solver=solver, seconds=0.2)
    assert [(stop.id, stop.reason) for stop in plan.unserved] == [("p", "fleet"), ("q", "fleet")]
    assert "no vehicle may serve both" in plan.unserved[0].explanation
    assert plan.cost == pytest.approx(6 + 18)


def test_policies_know_pairs_and_no_deliveries_from_the_depot():
    task = read_task(STOPS | {"demand": [*DEMAND[:6], 0, 5]}, vehicles={"count": 2, "capacity": 9})
    own, rows = plain_instance(Rules(task))
    assert own.problem.name == "PDVRP"
    assert own.instance.pickup[0].tolist() == SOURCES
    assert own.instance.demand[0].tolist() == [0, 4, 3, 5, 4, 3, 0, 5]
    assert rows == list(range(8))
    plan = solve_task(task, "trained", 0.3)
    assert list(plan.costs) == ["policy pdovrpltw-50", "pdovrpltw-50 and search"]
    assert not plan.unserved
    with pytest.raises(ValueError, match="some from the depot; only the solvers auto, search, pyvrp"):
        plain_instance(Rules(read_task(STOPS, vehicles={"count": 2, "capacity": 9})))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"pickup_at": ["", "", "f", "", "z", "", "", ""]},
            "row 4, column pickup_at: found 'z'; expected the id of a stop, or an empty cell for none",
        ),
        ({"pickup_at": ["", "", "b", "", "", "", "", ""]}, "row 2.*it is the stop itself; use two rows"),
        ({"pickup_at": ["", "", "f", "", "", "a", "", ""]}, "row 2.*it is a stop that gets something itself"),
        ({"pickup_at": ["", "", "f", "", "f", "", "", ""]}, "row 4.*row 2.*gets what is picked up there"),
        ({"pickup_at": ["a", "", "", "", "", "", "", ""]}, "row 0.*vehicles start in this row"),
        ({"demand": [0, 3, 3, 0, 4, 0, 2, 5]}, "row 4.*found the demands 3 and 4"),
        ({"pickup": [0, 0, 0, 0, 0, 4, 0, 0]}, "row 5, column pickup: found 4.*this stop is one of a pair"),
        (
            WINDOWS | {"earliest": [0, 44, 0, 0, 0, 0, 10, 0]},
            "row 4, column latest.*no vehicle is at a, then here, and",
        ),
        (
            WINDOWS | {"latest": [33, 60, 70, 25, 45, 60, 30, 80], "earliest": 3 * [0] + [24] + 4 * [0]},
            "row 7.*back in",
        ),
    ],
)
def test_errors_say_where(changes, message):
    with pytest.raises(InvalidInput, match=message):
        read_task(STOPS | changes, vehicles={"count": 2, "capacity": 9}, speed=60)


@pytest.mark.parametrize(
    ("changes", "vehicles", "message"),
    [
        (
            {},
            {"count": [1, 1], "capacity": [9, 9], "depot": ["d", "f"]},
            "row 2, column pickup_at.*vehicles start there",
        ),
        ({}, {"count": [1, 1], "capacity": [9, 9], "depot": ["d", "b"]}, "row 2, column pickup_at.*start in this row"),
        (
            {"vehicles": ["", "van", "", "", "bike", "", "", ""]},
            {"name": ["van", "bike"], "count": [1, 1], "capacity": [9, 5]},
            "row 4, column vehicles.*no vehicle may serve this stop and a, where its goods are picked up",
        ),
    ],
)
def test_errors_of_vehicles(changes, vehicles, message):
    with pytest.raises(InvalidInput, match=message):
        read_task(STOPS | {"demand": 8 * [0]} | changes, vehicles=vehicles)


def test_problems_beside_pairs():
    with pytest.raises(InvalidInput, match="CVRP has no pickups at other stops; leave the column pickup_at out"):
        read_task(STOPS, vehicles={"capacity": 9}, problem="CVRP")
    assert read_task(STOPS, vehicles={"capacity": 9}, problem="PDVRPTW").problem == "PDVRPTW"
    assert read_task(STOPS | {"pickup_at": 8 * [""]}, vehicles={"capacity": 9}).problem == "CVRP"


def test_what_knows_no_pairs_says_so():
    vehicles = {"count": 2, "capacity": 9}
    plan = routing_agents.solve(STOPS, vehicles=vehicles, solver="search", seconds=0.2)
    with pytest.raises(InvalidInput, match="fixed: not supported with pickups at other stops"):
        routing_agents.solve(STOPS, vehicles=vehicles, start=plan, fixed={"1": 1}, seconds=0.2)
    again = routing_agents.solve(STOPS, vehicles=vehicles, start=plan, solver="search", seconds=0.2)
    assert again.cost <= plan.cost + 1e-9
