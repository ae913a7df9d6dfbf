"""The search over routes: it keeps all limits, finds what brute force finds, and combines routes that it was given."""

from __future__ import annotations

from itertools import pairwise, permutations

import numpy as np
import pytest

import routing_agents
from routing_gym.planning import InvalidInput, read_task
from routing_gym.planning.fitting import fit
from routing_gym.planning.insertion import best_place
from routing_gym.planning.plan import plan_of
from routing_gym.planning.recombine import Pool
from routing_gym.planning.routes import Rules
from routing_gym.planning.search import Search
from routing_gym.solvers.external import plans

pytestmark = pytest.mark.usefixtures("processor_time")

RNG = np.random.default_rng(8)
POINTS = RNG.uniform(0, 10, (8, 2))
COLUMNS = {"x": POINTS[:, 0], "y": POINTS[:, 1], "demand": [0, 3, 2, 4, 1, 3, 2, 4]}


def cheapest(rules: Rules, stops: tuple[int, ...]) -> float:
    """Return the least cost of routes that visit stops, by brute force: all orders, cut in all ways."""
    best = [0.0] + [float("inf")] * (2 ** len(stops) - 1)  # by set of stops
    for chosen in range(1, 2 ** len(stops)):
        inside = [node for k, node in enumerate(stops) if chosen >> k & 1]
        made = [route.cost for order in permutations(inside) if (route := rules.route(order)) is not None]
        best[chosen] = min(made, default=float("inf"))
    for chosen in range(1, 2 ** len(stops)):
        part = chosen
        while part := (part - 1) & chosen:
            best[chosen] = min(best[chosen], best[part] + best[chosen ^ part])
    return best[-1]


@pytest.mark.parametrize("columns", [{}, {"pickup": [0, 0, 1, 0, 0, 1, 0, 0]}, {"backhaul": [0, 0, 1, 0, 0, 1, 0, 0]}])
def test_search_finds_the_cheapest_routes(columns):
    """Seven stops: the cheapest of all sets of routes is found by trying all of them."""
    task = read_task(COLUMNS | columns, vehicles={"capacity": 8, "max_length": 26})
    found = Search(Rules(task), ()).run(0.4)
    rules = Rules(task)
    assert not found.absent
    assert found.cost == pytest.approx(sum(rules.route(nodes).cost for nodes in found.routes))
    assert found.cost == pytest.approx(cheapest(rules, tuple(task.stops)))


def test_stops_that_are_often_left_out_displace_others():
    """Stop 1 is left out in the current plan. At first, none was ever left out: 0 times before, and now 1 + 1.

    Then 1 was left out in three rounds, and another plan leaves 2 and 3 out for the second time: 2 + 2 > 3. After two
    more rounds with 1, it is 3 + 3 > 5, after two more still 4 + 1 < 7 with 2 and 4. Stop 5 may be left out.
    """
    columns = COLUMNS | {"penalty": ["", "", "", "", "", 1, "", ""]}
    search = Search(Rules(read_task(columns, vehicles={"capacity": 8})), ())
    search.absent = [1]
    assert not search.leaves_easier([2, 3], True)
    assert [search.leaves_easier([1], kept) for kept in (True, False, True)] == [True, False, True]
    assert not search.leaves_easier([2, 3], True)
    assert all(search.leaves_easier([1, 5], True) for _ in range(2))
    assert not search.leaves_easier([2, 3], True)
    assert all(search.leaves_easier([1], True) for _ in range(2))
    assert search.leaves_easier([2, 4], False)
    assert search.leaves_easier([], False)


@pytest.mark.parametrize("limit", [{"max_length": 32}, {"max_duration": 45}])
def test_the_best_position_of_a_stop(limit):
    """The extra cost of a stop on a route, even on an empty one, is the least of all positions that keep the limits."""
    rng = np.random.default_rng(3)
    stops = {"demand": [0, 1, 2, 3, 1, 0, 0, 0, 0], "pickup": [0] * 5 + [1, 2, 1, 3], "service": [0] + [3] * 8}
    stops |= {"earliest": [0, *rng.integers(0, 20, 8)], "latest": [90, *rng.integers(25, 60, 8)]}
    vehicles = {"count": 1, "capacity": 5, "fixed_cost": 10} | limit
    rules = Rules(read_task(stops, distances=rng.uniform(1, 9, (9, 9)), vehicles=vehicles, speed=60))
    found = []
    for size in [0, 1, 2, 3, 4] * 20:
        nodes: tuple[int, ...] = ()
        *first, last = rng.permutation(np.arange(1, 9))[: size + 1].tolist()
        for node in first:
            nodes = nodes if rules.route((*nodes, node)) is None else (*nodes, node)
        made = (rules.route((*nodes[:k], last, *nodes[k:])) for k in range(len(nodes) + 1))
        costs = [route.cost for route in made if route is not None]
        extra, place = best_place(rules, (last,), rules.route(nodes), 0, np.inf)
        found.append(bool(place))
        assert bool(place) == bool(costs)
        assert extra == pytest.approx(min(costs, default=np.inf) - rules.route(nodes).cost)
    assert 10 < sum(found) < 90  # some have no position


def test_first_routes_save_most():
    """Two stops on each side, capacity 2: 2 x 11 for each side. One by one in the table's order, both routes cross."""
    task = read_task(
        {"x": [0, -10, 10, -11, 11], "y": [0, 0, 0, 0, 0], "demand": [0, 1, 1, 1, 1]}, vehicles={"capacity": 2}
    )
    assert Search(Rules(task), ()).cost == pytest.approx(44)


def test_first_routes_with_pickups_at_other_stops():
    """A unit from 1 to 2 and a unit from 3 to 4, all on one way: 2 x 4. Routes merged at their ends go there twice."""
    table = {"id": list("D1324"), "x": [0, 1, 2, 3, 4], "y": [0] * 5, "demand": [0, 0, 0, 1, 1]}
    task = read_task(table | {"pickup_at": ["", "", "", "1", "3"]}, vehicles={"capacity": 2})
    assert Search(Rules(task), ()).cost == pytest.approx(8)


def test_large_plans_begin_below_those_of_nearest_neighbours():
    rng = np.random.default_rng(0)
    table = dict(zip("xy", rng.uniform(0, 100, (2, 200)), strict=True)) | {"demand": [0, *rng.integers(1, 10, 199)]}
    costs = [
        routing_agents.solve(table, vehicles={"capacity": 50}, seconds=0.1, solver=solver).cost
        for solver in ("search", "nearest-neighbour")
    ]
    assert costs[0] < costs[1]


TYPES = [  # a van that must be back early, two bicycles for short routes, a truck that leaves late
    {"name": "van", "count": 1, "capacity": 8, "max_length": 40, "earliest": 0, "latest": 25},
    {"name": "bicycle", "count": 2, "capacity": 4, "max_length": 16, "earliest": 0, "latest": 90},
    {"name": "truck", "count": 1, "capacity": 12, "max_length": 60, "earliest": 20, "latest": 90},
]
VEHICLES = {key: [row[key] for row in TYPES] for key in TYPES[0]}


def cheapest_by_type(rules: Rules, stops: tuple[int, ...]) -> float:
    """Like `cheapest`, where each vehicle has one route, or none, within the limits of its type."""
    whole = 2 ** len(stops)
    vehicles = [kind for kind in rules.kinds for _ in range(kind.most_routes)]
    best = [0.0] + [float("inf")] * (whole - 1)
    for kind in vehicles:
        alone = [0.0] * whole
        for chosen in range(1, whole):
            inside = [node for k, node in enumerate(stops) if chosen >> k & 1]
            made = [route.cost for order in permutations(inside) if (route := kind.route(order)) is not None]
            alone[chosen] = min(made, default=float("inf"))
        best = [
            min(best[chosen ^ part] + alone[part] for part in range(chosen + 1) if part & chosen == part)
            for chosen in range(whole)
        ]
    return best[-1]


COSTS = {"fixed_cost": [6, 0, 9], "cost_per_unit": [1, 2.5, 0.75]}


@pytest.mark.parametrize("costs", [{}, COSTS], ids=["lengths", "costs"])
@pytest.mark.parametrize("minimise", ["km", "minutes"])
def test_vehicles_that_differ(minimise, costs):
    """Seven stops, three types: the cheapest of all ways to give each vehicle a route."""
    task = read_task(COLUMNS, vehicles=VEHICLES | costs, minimise=minimise)
    assert "capacity 4 to 12, routes of at most 16 to 60 km" in task.sentence
    found = Search(Rules(task), ()).run(0.6)
    rules = Rules(task)
    assert not found.absent
    assert found.cost == pytest.approx(cheapest_by_type(rules, tuple(task.stops)))
    assert len(found.routes) == 4
    made = [rules.kinds[task.type_of(number)].route(nodes) for number, nodes in enumerate(found.routes)]
    assert found.cost == pytest.approx(sum(route.cost for route in made))
    plan = plan_of(Rules(task), found.routes, found.absent, "search")
    assert plan.cost == pytest.approx(found.cost)
    if costs:
        factors = dict(zip(VEHICLES["name"], zip(*costs.values(), strict=True), strict=True))
        priced = [(*factors[route.vehicle.split()[0]], route.km) for route in plan.routes]  # a km takes a minute
        assert plan.cost == pytest.approx(sum(fixed + factor * km for fixed, factor, km in priced))
        assert plan.unit == "cost"
    names = ("van", "bicycle 1", "bicycle 2", "truck")
    assert tuple(task.vehicle(number) for number in range(4)) == names


SERVED = {"vehicles": ["", "van; truck", "", "bicycle", "truck", "", ["bicycle", "van"], ""]}


def test_vehicles_that_may_serve_a_stop():
    """The cheapest of all ways, and each stop has a vehicle that it names."""
    task = read_task(COLUMNS | SERVED, vehicles=VEHICLES)
    rules = Rules(task)
    found = Search(Rules(task), ()).run(0.6)
    assert not found.absent
    assert found.cost == pytest.approx(cheapest_by_type(rules, tuple(task.stops)))
    for number, nodes in enumerate(found.routes):
        name = task.vehicle(number).split()[0]
        assert all(name in SERVED["vehicles"][node] for node in nodes if SERVED["vehicles"][node])


@pytest.mark.parametrize(
    "columns",
    [{}, {"pickup": [0, 0, 1, 0, 0, 1, 0, 0]}, COSTS, SERVED],
    ids=["plain", "pickup", "costs", "served"],
)
@pytest.mark.parametrize("name", plans.SOLVERS)
def test_classical_solvers_know_types(name, columns):
    """Each of the trips finds a vehicle whose limits it keeps; without pickups, costs are the least."""
    pytest.importorskip(name)
    costs = columns if columns is COSTS else {}
    task = read_task(COLUMNS if costs else COLUMNS | columns, vehicles=VEHICLES | costs)
    rules = Rules(task)
    routes, absent = fit(rules, plans.SOLVERS[name](task, 0.5, 1))
    assert absent == []
    if "pickup" not in columns:
        assert sum(route.cost for route in routes) == pytest.approx(
            cheapest_by_type(rules, tuple(task.stops)), rel=1e-4
        )


DEPOTS = {"name": ["a", "b"], "count": [2, 2], "capacity": [8, 6], "depot": ["0", "5"], "latest": [60, 45]}


@pytest.mark.parametrize("solver", ["search", *plans.SOLVERS])
@pytest.mark.parametrize("columns", [{}, {"open": [True, True]}, {"backhaul": [0, 0, 1, 0, 0, 0, 1, 0]}])
def test_vehicles_of_two_depots(solver, columns):
    """Row 5 is the second depot: the cheapest of all ways for six stops, added up along each route's own depot."""
    if solver != "search":
        pytest.importorskip(solver)
    fleet = {**DEPOTS, **({"open": columns["open"]} if "open" in columns else {})}
    stops = {**COLUMNS, "demand": [0, 3, 2, 4, 1, 0, 2, 4]} | {key: columns[key] for key in columns if key != "open"}
    task = read_task(stops, vehicles=fleet)
    assert task.stops == [1, 2, 3, 4, 6, 7]
    assert "6 stops and 2 depots" in task.sentence
    rules = Rules(task)
    if solver == "search":
        found = Search(Rules(task), ()).run(0.6)
        trips, absent = found.routes, found.absent
    else:
        routes, absent = fit(rules, plans.SOLVERS[solver](task, 0.5, 1))
        trips = rules.by_vehicle(routes)
    plan = plan_of(Rules(task), trips, absent, solver)
    assert not plan.unserved
    assert plan.cost == pytest.approx(cheapest_by_type(rules, tuple(task.stops)), rel=1e-4)
    for route in plan.routes:
        rows = route.rows
        assert rows[0] == (0 if route.vehicle.startswith("a") else 5)
        assert ("open" in columns) or rows[-1] == rows[0]
        km = [np.hypot(*(POINTS[before] - POINTS[after])) for before, after in pairwise(rows)]
        assert route.km == pytest.approx(sum(km))
        assert route.visits[-1].arrival <= (60 if rows[0] == 0 else 45) or "open" in columns


AWAY = {  # one way is 10, 10 and 20 minutes; a and b open late, so that a vehicle that serves c first waits for them
    "id": list("dabc"),
    "x": [0, 10, 0, -20],
    "y": [0, 0, 10, 0],
    "demand": [0, 1, 1, 1],
    "earliest": [0, 100, 120, 0],
    "latest": [500, 200, 200, 400],
    "service": [0, 5, 5, 5],
}


@pytest.mark.parametrize("solver", ["search", "pyvrp", "ortools"])
def test_vehicles_that_may_not_be_away_for_long(solver):
    """Without the limit, one vehicle serves all. a and b take 20 + sqrt(200) + 2 x 5 minutes, c takes 2 x 20 + 5."""
    if solver != "search":
        pytest.importorskip(solver)
    vehicles = {"count": 3, "capacity": 3, "max_duration": 45}
    plan = routing_agents.solve(AWAY, vehicles=vehicles, seconds=0.3, solver=solver, speed=60)
    away = sorted(route.visits[-1].arrival - route.visits[0].departure for route in plan.routes)
    assert away == pytest.approx([30 + 200**0.5, 45])
    assert "vehicles away for at most 45 minutes" in plan.task.sentence
    plan = routing_agents.solve(AWAY, vehicles=vehicles | {"max_duration": 44.9}, seconds=0.3, solver=solver, speed=60)
    (left_out,) = plan.unserved
    assert (left_out.id, left_out.reason) == ("c", "duration")
    assert left_out.explanation == "45 minutes there and back; a vehicle may be away for 44.9"


@pytest.mark.parametrize("limit", [{}, {"max_length": 400, "minimise": "minutes"}])
def test_costs_in_small_units(limit):
    """With high costs, PyVRP's penalties were too small for feasible plans, and costs 60 % higher."""
    pytest.importorskip("pyvrp")
    rng = np.random.default_rng(0)
    stops = {"x": rng.uniform(0, 100, 40), "y": rng.uniform(0, 100, 40), "demand": [0, *rng.integers(5, 20, 39)]}
    fleet = {"count": [3, 2, 2, 2], "capacity": [80, 60, 50, 40]}
    costs = []
    for unit in (1, 10_000):
        vehicles = fleet | {"cost_per_unit": unit * np.array([1.6, 1.3, 1.1, 1.0])}
        plan = routing_agents.solve(stops, vehicles=vehicles, solver="pyvrp", seconds=0.5, speed=60, **limit)
        assert not plan.unserved
        costs.append(plan.cost / unit)
    assert costs[1] < 1.1 * costs[0]


@pytest.mark.parametrize("name", plans.SOLVERS)
def test_no_stop_is_left_out_for_an_optional_one(name):
    """The vehicle of 8 units has room for two of three stops; the optional ones A and B cost less without M."""
    pytest.importorskip(name)
    columns = {"x": [19.4, 9.3, 7.1, 3.2], "y": [4.8, 18, 10.2, 19.2], "demand": [0, 3, 3, 3], "pickup": [0, 0, 2, 3]}
    table = {"id": list("DMAB"), **columns, "penalty": ["", "", 25.2, 24.1]}
    vehicles = {"count": 1, "capacity": 8, "cost_per_unit": 0.5}
    plan = routing_agents.solve(table, vehicles=vehicles, solver=name, seconds=0.4)
    assert "M" not in [stop.id for stop in plan.unserved]
    assert len(plan.unserved) == 1


def test_pyvrp_knows_windows_shorter_than_its_unit():
    """The stop 1 km away opens for a moment between two hundredths of a second."""
    pytest.importorskip("pyvrp")
    columns = {"x": [0, 1], "y": [0, 0], "demand": [0, 1], "earliest": [0, 5.00003], "latest": [60, 5.00003]}
    plan = routing_agents.solve(columns, vehicles={"capacity": 5}, solver="pyvrp", seconds=0.2)
    assert (plan.cost, plan.unserved) == (2.0, ())


def test_times_away_that_differ_by_vehicle():
    """Only the van may be away for the 45 minutes of c, and then serves nothing else; the bicycle serves a or b."""
    vehicles = {"name": ["van", "bicycle"], "count": [1, 1], "capacity": [3, 3], "max_duration": [45, 26]}
    plan = routing_agents.solve(AWAY | {"penalty": ["", 1, 1, ""]}, vehicles=vehicles, seconds=0.3, speed=60)
    assert [[stop.id for stop in route.stops] for route in plan.routes if route.vehicle == "van"] == [["c"]]
    with pytest.raises(InvalidInput, match="fixed: not supported with max_duration; leave one of them out"):
        routing_agents.solve(AWAY, vehicles=vehicles, start=plan, fixed=1)
    late = AWAY | {"earliest": [0, 100, 120, 300]}  # the van is back before c opens
    vehicles = {"count": [1, 1], "capacity": [3, 3], "latest": [100, 500], "max_duration": [60, 44]}
    plan = routing_agents.solve(late, vehicles=vehicles, seconds=0.1, solver="search", speed=60)
    (left_out,) = (stop for stop in plan.unserved if stop.id == "c")
    assert left_out.explanation == "45 minutes there and back; a vehicle may be away for 44"
    with pytest.raises(InvalidInput, match="vehicles of OP must be alike, without hours, costs and max_duration"):
        read_task({"x": [0, 1], "y": [0, 1], "prize": [0, 1]}, vehicles={"max_duration": 5}, max_length=9)


@pytest.mark.parametrize(("fixed_cost", "vehicles"), [(0, 3), (30, 2)])
def test_fixed_costs_save_vehicles(fixed_cost, vehicles):
    """Three stops each in the east and west, two in the north: these are split where a third vehicle is dear."""
    stops = {
        "x": [0, 10, 10, 10, -10, -10, -10, 0, 0],
        "y": [0, 0, 0.1, -0.1, 0, 0.1, -0.1, 10, 10.1],
        "demand": [0, *[2] * 8],
    }
    task = read_task(stops, vehicles={"count": 4, "capacity": 8, "fixed_cost": fixed_cost})
    found = Search(Rules(task), [[1, 2, 3], [4, 5, 6], [7, 8]]).run(0.3)
    plan = plan_of(Rules(task), found.routes, found.absent, "search")
    assert len(plan.routes) == vehicles
    assert plan.cost == pytest.approx(plan.km + vehicles * fixed_cost)


@pytest.mark.parametrize("solver", plans.SOLVERS)
def test_solvers_tell_lengths_of_cheap_vehicles_apart_beside_a_dear_one(solver):
    """The vehicle that costs 100,000 a km is not used; lengths of the others count as exactly as without it."""
    fleet = {"count": [4, 1], "capacity": [8, 8], "cost_per_unit": [1, 100_000]}
    task = read_task(COLUMNS, vehicles=fleet)
    plan = plan_of(Rules(task), plans.SOLVERS[solver](task, 1.0, 1), (), solver)
    alone = Rules(read_task(COLUMNS, vehicles={"capacity": 8}))
    assert plan.cost == pytest.approx(cheapest(alone, tuple(alone.task.stops)))


def test_stops_that_are_cheaper_together_on_a_dearer_type():
    """Each stop alone is nearer to the depot A, whose vehicles hold one unit; those of B hold both, for 4.2 in all."""
    stops = {"id": list("ABPQ"), "x": [0, 4, 1.9, 1.9], "y": [0, 0, 0, 0], "demand": [0, 0, 1, 1]}
    task = read_task(stops, vehicles={"count": [2, 1], "capacity": [1, 2], "depot": ["A", "B"]})
    assert Search(Rules(task), ()).run(0.5).cost == pytest.approx(4.2)


def test_no_type_has_more_routes_than_vehicles():
    """An emptied route leaves its vehicle free, and is not exchanged for another route's, which would use it twice."""
    task = read_task(COLUMNS, vehicles={"count": [1, 4], "capacity": [9, 6]})
    search = Search(Rules(task), ())
    big, small = search.rules.kinds
    for _ in range(300):
        routes = [big.route(()), small.route((1,)), small.route((2,))]
        search.exchange(routes, [0, 1, 2])
        assert [route.kind for route in routes if route.nodes].count(0) <= 1


def test_stops_that_are_worth_a_route_together_only():
    """Eight stops at one place, each for a penalty of 4, and a way of 10 there and back."""
    task = read_task(
        {"x": [0] + 8 * [5], "y": 9 * [0], "demand": [0] + 8 * [1], "penalty": [0] + 8 * [4]}, vehicles={"capacity": 9}
    )
    found = Search(Rules(task), ()).run(0.3)
    assert found.cost == pytest.approx(10)


def test_no_vehicle_is_left_for_a_stop():
    """One bicycle of one unit and one of two: of stops with 2, 2 and 1 units, one with 2 is left out."""
    stops = {"id": ["D", "A", "B", "C"], "x": [0, 1, 1, 0], "y": [0, 0, 1, 1], "demand": [0, 2, 2, 1]}
    task = read_task(stops, vehicles={"capacity": [1, 2]})
    found = Search(Rules(task), ()).run(0.1)
    plan = plan_of(Rules(task), found.routes, found.absent, "search")
    (left_out,) = plan.unserved
    assert task.delivery[left_out.row] == 2
    assert left_out.explanation == "no vehicle has 2 units free; all 2 vehicles are in use; one more could serve it"
    loads = {route.vehicle: route.visits[0].load for route in plan.routes}
    assert loads == {"1": 1, "2": 2}


def test_the_best_choice_of_routes():
    """Of a square's corners at 2 km: two pairs of neighbours, 2 + 2 + 2 x sqrt(2) each, out of six routes."""
    task = read_task(
        {"x": [0, 2, 0, -2, 0], "y": [0, 0, 2, 0, -2], "demand": [0, 1, 1, 1, 1]}, vehicles={"capacity": 2}
    )
    pool = Pool(Rules(task))
    pool.add([pool.rules.route(nodes) for nodes in ([1, 2], [3, 4], [1, 3], [2, 4], [1], [2])])
    routes, absent = pool.best(float("inf"), 5.0)
    assert {frozenset(route.nodes) for route in routes} == {frozenset({1, 2}), frozenset({3, 4})}
    assert absent == []
    assert sum(route.cost for route in routes) == pytest.approx(8 + 4 * 2**0.5)
    assert pool.best(8 + 4 * 2**0.5, 5.0) is None  # nothing is better


def test_the_best_choice_keeps_the_number_of_vehicles():
    """One vehicle of two stops: leaving the two cheap ones out costs 1 + 1, the others stay."""
    stops = {"x": [0, 2, 2, -9, -9], "y": [0, 0, 1, 0, 1], "demand": [0, 1, 1, 1, 1], "penalty": [0, 1, 1, 99, 99]}
    task = read_task(stops, vehicles={"count": 1, "capacity": 2})
    pool = Pool(Rules(task))
    pool.add([pool.rules.route(nodes) for nodes in ([1, 2], [3, 4])])
    routes, absent = pool.best(float("inf"), 5.0)
    assert [route.nodes for route in routes] == [(3, 4)]
    assert absent == [1, 2]


@pytest.mark.parametrize("name", plans.SOLVERS)
def test_classical_solvers_keep_backhauls_last_and_routes_short(name):
    """With a limit in km, PyVRP's one matrix of lengths has to forbid deliveries after pickups, too."""
    pytest.importorskip(name)
    rng = np.random.default_rng(0)
    points, backhaul = rng.uniform(0, 10, (16, 2)), np.arange(16) % 3 == 1
    stops = {"x": points[:, 0], "y": points[:, 1], "demand": [0, *[2] * 15], "backhaul": backhaul.astype(int)}
    task = read_task(stops, vehicles={"capacity": 10, "max_length": 40})
    rules = Rules(task)
    trips = plans.SOLVERS[name](task, 0.5, 1)
    assert sorted(node for trip in trips for node in trip) == list(task.stops)
    assert all(rules.route(trip) is not None for trip in trips)


def test_an_interrupt_keeps_the_best_routes():
    """Ctrl-C in the thirtieth round: the routes so far, which cost no more than the start, all stops once."""
    task = read_task(COLUMNS, vehicles={"capacity": 8})
    search = Search(Rules(task), [[1, 4], [2, 5], [3], [6], [7]])
    start, insert, rounds = search.cost, search.insert, []

    def interrupted(*given):
        rounds.append(given)
        if len(rounds) == 30:
            raise KeyboardInterrupt
        return insert(*given)

    search.insert = interrupted
    found = search.run(60.0)
    assert found.interrupted
    assert found.rounds == 29
    assert found.cost <= start
    assert sorted(node for route in found.routes for node in route) == list(task.stops)


def test_stops_that_stay_are_not_recombined():
    """The first two stops of the first vehicle stay at its head, whatever it costs."""
    task = read_task(COLUMNS, vehicles={"capacity": 8})
    found = Search(Rules(task), [[7, 1], [2, 5], [3, 4], [6]], locked=[2, 0, 0, 0]).run(0.3)
    assert found.routes[0][:2] == (7, 1)
    assert sorted(node for route in found.routes for node in route) == list(task.stops)
