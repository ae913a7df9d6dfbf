"""Plans of `routing_agents.solve`: recomputed from the table, with a small fleet, pickups, and what has been driven."""

from __future__ import annotations

import _thread
import csv
import json
import re
import signal
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Timer
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pytest

import routing_agents
import solve as solve_script
from routing_agents.planning import planner
from routing_agents.planning.command import fixed_of
from routing_agents.terminal import STOPPED
from routing_gym.files import InvalidFile
from routing_gym.planning import InvalidInput, read_task
from routing_gym.planning.text import plan_text
from routing_gym.solvers import ExactMIP, TimedOut
from routing_gym.solvers.external import plans

pytestmark = pytest.mark.usefixtures("processor_time")

RNG = np.random.default_rng(4)
COORDS = RNG.uniform(0, 10, (11, 2))  # km
STOPS = {
    "id": ["D", *"ABCDEFGHIJ".lower()],
    "name": ["depot", "<script>alert(1)</script>", *(f"stop {k}" for k in range(2, 11))],
    "x": COORDS[:, 0],
    "y": COORDS[:, 1],
    "demand": [0, *RNG.integers(1, 5, 10)],
    "earliest": [0, *RNG.integers(0, 60, 10)],
    "latest": [600, *RNG.integers(120, 300, 10)],
    "service": [0, *[3] * 10],
}
FLEET = {"count": 4, "capacity": 12, "speed": 30}
MINUTES = np.hypot(*(COORDS[:, None] - COORDS).transpose(2, 0, 1)) * 2 * RNG.uniform(1, 1.3, (11, 11))
np.fill_diagonal(MINUTES, 0)


def check(plan, minutes, cost):
    """Recompute times, loads and the cost of a plan from the table, stop by stop."""
    served, total = [], 0.0
    for route in plan.routes:
        rows = route.rows
        assert rows[0] == rows[-1] == 0
        load = sum(STOPS["demand"][row] for row in rows)
        assert load <= FLEET["capacity"]
        clock = route.visits[0].departure
        for before, visit in zip(rows, route.visits[1:], strict=False):
            clock += minutes[before, visit.row]
            assert visit.arrival == pytest.approx(clock, abs=1e-6)
            clock = max(clock, STOPS["earliest"][visit.row])
            assert clock <= STOPS["latest"][visit.row] + 1e-6
            clock += STOPS["service"][visit.row]
            load -= STOPS["demand"][visit.row]
            assert visit.load == pytest.approx(load)
            total += cost[before, visit.row]
        served += rows[1:-1]
    assert sorted([*served, *(stop.row for stop in plan.unserved)]) == list(range(1, 11))
    assert plan.cost == pytest.approx(total)


@pytest.mark.parametrize("solver", ["auto", "trained", "pyvrp", "ortools"])
def test_a_plan_of_coordinates(solver):
    """Minutes at 30 km/h are twice the km."""
    km = np.hypot(*(COORDS[:, None] - COORDS).transpose(2, 0, 1))
    plan = routing_agents.solve(STOPS, vehicles=FLEET, solver=solver, seconds=1.0)
    check(plan, km * 2, km)
    assert not plan.unserved
    assert plan.cost == min(plan.costs.values())


def test_a_plan_of_an_asymmetric_matrix():
    plan = routing_agents.solve(STOPS, vehicles=FLEET, durations=MINUTES, seconds=0.6)
    check(plan, MINUTES, MINUTES)
    assert plan.unit == "minutes"
    assert "policy vrptw-matrices-50" in plan.costs
    assert not any("reads coordinates only" in note for note in plan.notes)


def test_a_policy_that_reads_coordinates_says_so_where_there_is_a_matrix():
    model = routing_agents.load("VRPTW-20")
    plan = routing_agents.solve(STOPS, vehicles=FLEET, durations=MINUTES, seconds=0.4, solver=model)
    assert any("reads coordinates only" in note for note in plan.notes)


def test_a_fleet_that_is_too_small_names_what_it_leaves_out():
    plan = routing_agents.solve(STOPS, vehicles={**FLEET, "count": 1}, durations=MINUTES, seconds=0.4)
    check(plan, MINUTES, MINUTES)
    assert plan.unserved
    assert {stop.reason for stop in plan.unserved} <= {"capacity", "window", "fleet"}
    assert all(stop.id in str(plan) for stop in plan.unserved)
    assert re.fullmatch(r"Plan\(VRPTW, stops: \d+, routes: 1, left out: \d+, minutes: [\d.]+, by .+\)", repr(plan))


DIFFERING = {"name": ["van", "truck"], "count": [3, 1], "capacity": [8, 16], "latest": [150, 600]}


@pytest.mark.parametrize("solver", ["auto", "pyvrp", "ortools"])
def test_vehicles_that_differ(solver):
    """Loads and hours are those of each vehicle's type."""
    pytest.importorskip("pyvrp" if solver == "auto" else solver)
    plan = routing_agents.solve(STOPS, vehicles=DIFFERING, durations=MINUTES, solver=solver, seconds=1.0)
    assert {route.vehicle for route in plan.routes} <= {"van 1", "van 2", "van 3", "truck"}
    assert len({route.vehicle for route in plan.routes}) == len(plan.routes)
    for route in plan.routes:
        kind = int(route.vehicle == "truck")
        assert sum(STOPS["demand"][row] for row in route.rows) <= DIFFERING["capacity"][kind]
        assert route.visits[-1].arrival <= DIFFERING["latest"][kind]
    assert not plan.unserved


def test_a_solver_of_equal_vehicles_plans_with_the_largest():
    pytest.importorskip("hygese")
    stops = {key: STOPS[key] for key in ("x", "y", "demand")}
    plan = routing_agents.solve(stops, vehicles={"capacity": [9, 9, 9, 16]}, solver="hygese", seconds=0.5)
    assert any("without types of vehicles" in note for note in plan.notes)
    loads = {route.vehicle: route.visits[0].load for route in plan.routes}
    assert all(load <= (16 if vehicle == "4" else 9) for vehicle, load in loads.items())


def test_what_the_truck_has_driven_stays():
    """It is the last vehicle, and keeps its number."""
    first = routing_agents.solve(STOPS, vehicles=DIFFERING, durations=MINUTES, solver="search", seconds=0.4)
    driven = [visit.id for route in first.routes if route.vehicle == "truck" for visit in route.stops[:1]]
    again = {"start": first, "fixed": {"truck": 1}, "solver": "search", "seconds": 0.2}
    second = routing_agents.solve(STOPS, vehicles=DIFFERING, durations=MINUTES, **again)
    (route,) = [route for route in second.routes if route.vehicle == "truck"]
    assert [route.stops[0].id] == driven
    for route in second.routes:
        load = sum(STOPS["demand"][row] for row in route.rows)
        assert load <= DIFFERING["capacity"][int(route.vehicle == "truck")]


def test_a_stop_is_a_pickup():
    """Two units are delivered to a and b each, and four picked up at c: a vehicle of 4 does it in one route."""
    stops = {"x": [0.0, 1, 2, 3], "y": [0.0, 0, 0, 0], "demand": [0, 2, 2, 0], "pickup": [0, 0, 0, 4]}
    plan = routing_agents.solve(stops, vehicles={"capacity": 4}, seconds=0.4)
    (route,) = plan.routes
    assert route.rows == [0, 1, 2, 3, 0]
    assert [visit.load for visit in route.visits] == [4, 2, 0, 4, 4]
    assert plan.cost == pytest.approx(6)


def test_what_has_been_driven_stays():
    first = routing_agents.solve(STOPS, vehicles=FLEET, durations=MINUTES, seconds=0.4)
    route = max(first.routes, key=lambda one: len(one.stops))
    kept = [visit.id for visit in route.stops[:2]]
    second = routing_agents.solve(
        STOPS, vehicles=FLEET, durations=MINUTES, seconds=0.3, start=first, fixed={route.vehicle: 2}
    )
    check(second, MINUTES, MINUTES)
    (same,) = [one for one in second.routes if one.vehicle == route.vehicle]
    assert [visit.id for visit in same.stops[:2]] == kept
    assert second.cost <= first.cost + 1e-9
    with pytest.raises(InvalidInput, match="fixed: it keeps stops of a previous plan; give that as start"):
        routing_agents.solve(STOPS, vehicles=FLEET, seconds=0.2, fixed={"1": 2})


def test_plans_that_cannot_be_continued(tmp_path):
    """A plan that visits a stop twice; a stop that has become the depot is none any more; streets of no vehicle."""
    first = routing_agents.solve(STOPS, vehicles=FLEET, solver="search", seconds=0.1)
    document = json.loads(first.to_json())
    document["routes"][0]["visits"][1]["id"] = document["routes"][-1]["visits"][-2]["id"]
    (tmp_path / "plan.json").write_text(json.dumps(document))
    with pytest.raises(InvalidInput, match="start: the plan visits [a-j] twice"):
        routing_agents.solve(STOPS, vehicles=FLEET, seconds=0.1, start=tmp_path / "plan.json")
    moved = {**STOPS, "id": ["a", "D", *STOPS["id"][2:]]}
    assert routing_agents.solve(moved, vehicles=FLEET, solver="search", seconds=0.1, start=first).routes
    with pytest.raises(InvalidInput, match="geometry: found no vehicle 9 in the plan"):
        first.with_geometry({"9": [[1, 2], [3, 4]]})
    with pytest.raises(InvalidInput, match="geometry: expected a GeoJSON LineString"):
        first.with_geometry({"1": {"routes": {"a": 1}}})
    with pytest.raises(InvalidInput, match=r"found the position \[1e\+308, 0.0\]; expected numbers of at most 1e\+100"):
        first.with_geometry({"1": [[0, 0], [1e308, 0]]})
    lisbon = routing_agents.solve({"lat": [38.7, 38.8], "lon": [-9.1, -9.2]}, solver="search", seconds=0.1)
    with pytest.raises(InvalidInput, match=r"found the position \[1000000.0, 10.0\]; expected degrees, the longitude"):
        lisbon.with_geometry({"1": [[-9.1, 38.7], [1e6, 10]]})


UNFIT = ["Bob;=1+2", "Bob\n=1+2", ' ;" @x', "a\x0bb\x1b[2J", "\ud83d", "\u202enav\ufffe", "-5", "12-14 Main St; flat 3"]
SHOWN = ["Bob;=1+2", "Bob =1+2", ';" @x', r"a b\x1b[2J", r"\ud83d", r"nav\ufffe", "-5", "12-14 Main St; flat 3"]


def test_names_fit_every_file_that_shows_them(tmp_path):
    """Line breaks and control characters, half a character, a changed direction; formulas, also after a semicolon."""
    size = len(UNFIT)
    stops = {"id": ["D", *(f"{name} " for name in UNFIT)], "name": ["depot", *UNFIT], "x": [0, *range(1, size + 1)]}
    plan = routing_agents.solve({**stops, "y": [0] * (size + 1)}, vehicles={"name": ["a\x0b"]}, seconds=0.1)
    assert plan.routes[0].vehicle == "a"
    assert sorted(visit.name for visit in plan.routes[0].stops) == sorted(SHOWN)
    assert sorted(visit.id for visit in plan.routes[0].stops) == sorted(SHOWN)
    plan.to_html(tmp_path / "map.html")
    ElementTree.fromstring(plan.gantt(tmp_path / "gantt.svg"))  # raises if it is no XML
    rows = list(csv.DictReader(plan.to_csv(tmp_path / "plan.csv").splitlines()))
    cells = {row["name"] for row in rows}
    assert {"Bob;'=1+2", ";'\" @x", "-5", "12-14 Main St; flat 3"} < cells
    table = [line for line in plan_text(plan).splitlines() if line.startswith("  ")]
    assert len(table) == len(rows) + 1  # a header


@pytest.mark.parametrize(
    ("place", "key", "value", "message"),
    [
        (1, "arrival", 10**400, "OverflowError"),
        (1, "departure", float("nan"), "vehicle 1: times are negative, or before"),
        (1, "arrival", -1e9, "vehicle 1: times are negative, or before"),
        (2, "arrival", 0.0, "vehicle 1: times are negative, or before"),
    ],
)
def test_plans_with_wrong_times(tmp_path, place, key, value, message):
    stops = {"x": [0, 1, 2], "y": [0, 0, 0], "demand": [0, 1, 1]}
    plan = routing_agents.solve(stops, vehicles={"count": 1, "capacity": 2}, solver="search", seconds=0.1)
    document = json.loads(plan.to_json())
    document["routes"][0]["visits"][place][key] = value
    (tmp_path / "plan.json").write_text(json.dumps(document))
    with pytest.raises(InvalidFile, match=message):
        routing_agents.solve(stops, vehicles={"count": 1, "capacity": 2}, start=tmp_path / "plan.json", seconds=0.1)


def test_plans_with_a_vehicle_twice(tmp_path):
    first = routing_agents.solve(STOPS, vehicles=FLEET, solver="search", seconds=0.1)
    document = json.loads(first.to_json())
    document["routes"][1]["vehicle"] = document["routes"][0]["vehicle"]
    (tmp_path / "plan.json").write_text(json.dumps(document))
    with pytest.raises(InvalidFile, match="no plan that --json wrote .vehicle . has two routes"):
        routing_agents.solve(STOPS, vehicles=FLEET, seconds=0.1, start=tmp_path / "plan.json")


def test_files_of_the_command(tmp_path, capsys):
    """The table of the terminal; text from the table is text in the page and in GeoJSON."""
    names = [key for key in STOPS if key not in ("x", "y")]
    lines = [",".join(["lat", "lon", *names])]
    for row in range(11):
        point = [f"{38.7 + COORDS[row, 1] / 100:.5f}", f"{-9.1 + COORDS[row, 0] / 100:.5f}"]
        lines.append(",".join([*point, *(str(STOPS[key][row]) for key in names)]))
    (tmp_path / "stops.csv").write_text("\n".join(lines))
    files = {name: tmp_path / f"plan.{name}" for name in ("map", "geojson", "json")}
    args = solve_script.Args(
        (tmp_path / "stops.csv",), vehicles="4", capacity=12, seconds=0.4, out=tmp_path / "out", **files
    )
    (plan,) = solve_script.main(args)
    assert "stops.csv: 10 stops and a depot: VRPTW, at most 4 vehicles, capacity 12" in capsys.readouterr().out
    assert "<script>alert" not in files["map"].read_text()
    features = json.loads(files["geojson"].read_text())["features"]
    assert sum(feature["geometry"]["type"] == "LineString" for feature in features) == len(plan.routes)
    assert len(json.loads(files["json"].read_text())["routes"]) == len(plan.routes)
    assert len((tmp_path / "out" / "stops.csv").read_text().splitlines()) > 11
    with pytest.raises(FileExistsError, match="give --overwrite"):
        solve_script.main(args)


SQUARE = {"x": [0, 10, 20, 30, 20], "y": [0, 5, 0, 5, 10]}
LOADED = {**SQUARE, "demand": [0, 4, 4, 4, 4]}


@pytest.mark.parametrize(
    ("stops", "vehicles", "problem", "unused"),
    [
        (LOADED, {"capacity": 8}, "TSP", "capacity, demand"),
        (LOADED, {"capacity": 99, "max_length": 45}, "CVRP", "max_length"),
        ({**LOADED, "pickup": [0, 20, 0, 7, 0]}, {"capacity": 16}, "CVRP", "pickup"),
        (LOADED, {"count": [1, 1], "capacity": [16, 12], "max_length": [30, 40]}, "CVRP", "max_length"),
    ],
)
def test_what_the_problem_has_not_is_not_used(stops, vehicles, problem, unused):
    plan = routing_agents.solve(stops, vehicles=vehicles, problem=problem, solver="search", seconds=0.1)
    assert f"{problem} has no {unused}: not used" in plan.notes
    assert not plan.unserved
    assert max(visit.load for route in plan.routes for visit in route.visits) in (0, 16)


def test_limits_in_km_where_minutes_are_minimised():
    """At 30 km/h, a route of 30 km takes 60 minutes; other minutes do not follow from km."""
    prizes = {**SQUARE, "prize": [0, 1, 2, 3, 4]}
    limit = {"vehicles": {"max_length": 46}, "seconds": 0.1}
    plan = routing_agents.solve(prizes, speed=30, minimise="minutes", **limit)
    assert plan.km == pytest.approx(22.36 * 2, abs=0.2)
    assert plan.cost == 5  # of the stops 1 and 4
    with pytest.raises(InvalidInput, match="max_length is in km, and the minutes that are minimised do not"):
        routing_agents.solve(prizes, durations=np.full((5, 5), 5.0) - 5 * np.eye(5), **limit)


@pytest.mark.parametrize("windows", [{}, {"latest": [999, "", ""]}], ids=["plain", "windows"])
def test_pyvrp_minimises_minutes_where_km_are_limited(windows):
    """One way through A and B and back is 6 km and 12 minutes in one route, 10 km and 4 + 5 minutes in two.

    B alone is 6 km, all that is allowed; with time windows PyVRP minimises km, says so, and is not used by auto.
    """
    pytest.importorskip("pyvrp")
    pytest.importorskip("ortools")
    table = {"id": list("DAB"), "demand": [0, 1, 1], **windows}
    limits = {"vehicles": {"capacity": 2, "max_length": 6, "count": 2}, "seconds": 0.4}
    ways = {"distances": [[0, 2, 3], [2, 0, 1], [3, 1, 0]], "durations": [[0, 2, 2.5], [2, 0, 8], [2.5, 8, 0]]}
    plan = routing_agents.solve(table, solver="pyvrp", **limits, **ways)
    said = any("pyvrp minimised km instead of minutes" in note for note in plan.notes)
    assert (plan.cost, said) == ((12.5, True) if windows else (9, False))
    auto = routing_agents.solve(table, **limits, **ways)
    assert (auto.cost, "pyvrp" in auto.costs, "ortools" in auto.costs) == (9, not windows, bool(windows))


def test_loads_of_split_deliveries_and_of_prizes():
    half = {**SQUARE, "demand": [0, 3, 3, 3, 1]}
    plan = routing_agents.solve(half, capacity=5, problem="SDVRP", seconds=0.1)
    delivered = np.zeros(5)
    for route in plan.routes:
        loads = [visit.load for visit in route.visits]
        for visit, before in zip(route.visits[1:], loads, strict=False):
            delivered[visit.row] += before - visit.load
    assert delivered.tolist() == half["demand"]
    prizes = {**SQUARE, "prize": [0, 5, 6, 5, 7], "penalty": [0, 50, 50, 50, 50]}
    (route,) = routing_agents.solve(prizes, required_prize=10, seconds=0.1).routes
    assert [visit.load for visit in route.visits][-2:] == [23, 23]


def test_tours_with_fixed_edges_begin_in_the_first_row():
    coords = np.random.default_rng(0).uniform(0, 100, (13, 2))
    plan = routing_agents.solve({"x": coords[:, 0], "y": coords[:, 1], "partner": [1, 0, *range(2, 13)]}, seconds=0.1)
    assert plan.routes[0].rows[0] == plan.routes[0].rows[-1] == 0


def test_why_no_vehicle_serves_a_stop():
    """The vehicle with room for it may not drive so far, and the one that may has no room."""
    stops = {"x": [0, 20, 1], "y": [0, 0, 0], "demand": [0, 10, 1]}
    vehicles = {"capacity": [5, 20], "max_length": [100, 10]}
    (left_out,) = routing_agents.solve(stops, vehicles=vehicles, solver="search", seconds=0.1).unserved
    assert (left_out.reason, left_out.explanation) == (
        "distance",
        "40.0 km there and back; a route of a vehicle with room for it may have 10",
    )


def test_a_stop_in_time_only_via_another_is_left_out_for_its_price():
    """From the first stop it is in time, and costs 1 + 9 - 1 minutes more than without it."""
    stops = {"id": ["D", "A", "B"], "demand": [0, 1, 1], "latest": ["", "", 5], "penalty": ["", "", 8]}
    ways = [[0, 1, 9], [1, 0, 1], [9, 1, 0]]
    plan = routing_agents.solve(stops, vehicles={"capacity": 2}, durations=ways, solver="search", seconds=0.1)
    assert [(stop.id, stop.reason) for stop in plan.unserved] == [("B", "price")]


@pytest.mark.parametrize(("stops", "seconds"), [(200, "0.1"), (201, "0.18")])
def test_pyvrp_gets_most_of_the_time_with_many_stops(stops, seconds):
    """0.2 seconds: one half, or nine tenths of it."""
    pytest.importorskip("pyvrp")
    points = np.random.default_rng(0).uniform(0, 10, (stops + 1, 2))
    table, lines = {"x": points[:, 0], "y": points[:, 1], "demand": [0] + [1] * stops}, []
    plan = routing_agents.solve(table, vehicles={"capacity": 20}, seconds=0.2, progress=lines.append)
    assert f"pyvrp: {seconds} s" in lines
    assert len(plan.costs) == 3


def test_pyvrp_gets_half_of_the_time_with_many_pairs():
    """Its search has few neighbours there."""
    ids = [str(row) for row in range(301)]
    table = {"id": ids, "x": range(301), "y": [0] * 301, "demand": [0] * 151 + [1] * 150}
    task = read_task(table | {"pickup_at": [""] * 151 + ids[1:151]}, vehicles={"capacity": 9})
    assert planner.policy_share(task, "pyvrp") == 0.5


@pytest.mark.parametrize(
    ("text", "fixed"),
    [("11:30", "11:30"), ("90", "90"), ("L08", ["L08"]), ("L08, a:b", ["L08", "a:b"]), ("7,", ["7"]), (None, None)],
)
def test_fixed_names_a_time_or_ids(text, fixed):
    assert fixed_of(text) == fixed


def test_a_map_without_coordinates_is_refused_before_planning(tmp_path):
    (tmp_path / "ids.csv").write_text("id\na\nb\n")
    (tmp_path / "minutes.csv").write_text("0,5\n5,0\n")
    args = solve_script.Args(
        (tmp_path / "ids.csv",), durations=tmp_path / "minutes.csv", map=tmp_path / "plan.html", out=tmp_path / "out"
    )
    with pytest.raises(ValueError, match=r"--map: .*ids.csv has no columns lat and lon, or x and y, to draw"):
        solve_script.main(args)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("text", "second"),
    [
        ("0,7,3\n4,0,9\n5,6,0\n", "2"),
        (",0,1,2\n0,0,7,3\n1,4,0,9\n2,5,6,0\n", "2"),
        ("a,b,Main St 5\n0,7,3\n4,0,9\n5,6,0\n", "main_st_5"),
        (",a,b,C 1\na,0,7,3\nb,4,0,9\nC 1,5,6,0\n", "C 1"),
    ],
)
def test_a_matrix_alone_is_planned(tmp_path, text, second):
    """The tour 0, 2, 1 takes 3 + 6 + 4 minutes."""
    matrix = tmp_path / "minutes.csv"
    matrix.write_text(text)
    args = solve_script.Args((), durations=matrix, solver="search", seconds=0.1, out=tmp_path / "out")
    (plan,) = solve_script.main(args)
    assert (plan.cost, plan.routes[0].visits[1].id) == (13.0, second)
    assert (tmp_path / "out" / "minutes.csv").is_file()
    with pytest.raises(ValueError, match=r"--map: .*minutes.csv has no columns lat and lon, or x and y, to draw"):
        solve_script.main(replace(args, map=tmp_path / "plan.html", overwrite=True))


@pytest.fixture
def ctrl_c():
    """Python's handler of Ctrl-C, which programs that a shell starts in the background lack."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("solver", plans.SOLVERS)
def test_ctrl_c_keeps_what_a_classical_solver_found(solver):
    timer = Timer(1.0, _thread.interrupt_main)

    def progress(line):
        if line == f"{solver}: 60 s":  # it begins now
            timer.start()

    plan = routing_agents.solve(STOPS, vehicles=FLEET, solver=solver, seconds=60, progress=progress)
    timer.join()
    assert plan.seconds < 30
    assert plan.notes == (STOPPED,)
    assert not plan.unserved
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("ctrl_c")
def test_a_second_ctrl_c_discards_it(monkeypatch):
    def solve(task, seconds, seed, stop):
        _thread.interrupt_main()
        assert any(stop() for _ in range(10**8))
        raise KeyboardInterrupt

    monkeypatch.setitem(plans.SOLVERS, "pyvrp", solve)
    plan = routing_agents.solve(STOPS, vehicles=FLEET, seconds=0.2)
    assert f"{STOPPED}; what pyvrp found is discarded" in plan.notes


def test_plans_are_made_in_other_threads():
    with ThreadPoolExecutor(1) as pool:
        plan = pool.submit(routing_agents.solve, STOPS, vehicles=FLEET, solver="pyvrp", seconds=0.2).result()
    assert not plan.unserved


def test_a_late_plan_says_so(monkeypatch):
    clock = SimpleNamespace(now=0.0)

    def solve(task, seconds, seed, stop):
        clock.now += 12.0
        return [list(range(1, 11))]

    monkeypatch.setattr(planner, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    monkeypatch.setitem(plans.SOLVERS, "pyvrp", solve)
    (note,) = routing_agents.solve(STOPS, vehicles=FLEET, solver="pyvrp", seconds=6).notes
    assert note.startswith("the solvers took 12 s instead of 6: with 11 rows, preparing the solvers")
    assert not routing_agents.solve(STOPS, vehicles=FLEET, solver="pyvrp", seconds=8).notes


def test_geojson_needs_latitudes_and_longitudes():
    plan = routing_agents.solve(SQUARE, solver="search", seconds=0.1)
    with pytest.raises(InvalidInput, match="stops: GeoJSON needs the columns lat and lon, .* use to_json or to_html"):
        plan.to_geojson()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"geojson": "m.geojson"}, "--geojson: .*stops.csv has no columns lat and lon; add them, or give --json"),
        ({"gantt": "g.png"}, "--gantt .*g.png: the chart is written as SVG; end the name with .svg"),
        ({"map": "m.html", "json": "m.html"}, "--map and --json are the same file, .*m.html; choose another"),
        ({"json": "stops.csv"}, "the input and --json are the same file, .*stops.csv; choose another"),
        ({"map": "."}, "--map: .* is a folder; give the name of a file"),
        ({"vehicles": "-3"}, "--vehicles -3: expected a number of at least 1, or an existing CSV file of vehicles"),
        ({"vehicles": "0"}, "--vehicles 0: expected a number of at least 1, or an existing"),
        ({"vehicles": "vans.cvs"}, "--vehicles vans.cvs: expected a number of at least 1, or an existing"),
    ],
)
def test_options_are_refused_before_planning(tmp_path, given, message):
    (tmp_path / "stops.csv").write_text("x,y,demand\n0,0,0\n1,1,1\n")
    paths = {name: value if name == "vehicles" else tmp_path / value for name, value in given.items()}
    args = solve_script.Args((tmp_path / "stops.csv",), capacity=5, out=tmp_path / "out", **paths)
    with pytest.raises((ValueError, OSError), match=message):
        solve_script.main(args)
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_made_is_found_before_planning(tmp_path, monkeypatch):
    (tmp_path / "stops.csv").write_text("x,y,demand\n0,0,0\n1,1,1\n")
    (tmp_path / "out").write_text("a file")
    monkeypatch.setattr("routing_agents.planning.command.solve", None)
    args = solve_script.Args((tmp_path / "stops.csv",), capacity=5, out=tmp_path / "out")
    with pytest.raises(OSError, match="--out .*out: no file can be written there"):
        solve_script.main(args)


def test_a_refused_table_leaves_no_folder(tmp_path):
    (tmp_path / "stops.csv").write_text("x,y,demand\n0,0,0\n1,1,-1\n")
    args = solve_script.Args((tmp_path / "stops.csv",), capacity=5, seconds=0.1, out=tmp_path / "out")
    with pytest.raises(ValueError, match="column demand: found '-1'"):
        solve_script.main(args)
    assert not (tmp_path / "out").exists()
    (tmp_path / "out").mkdir()  # one that existed before stays
    with pytest.raises(ValueError, match="column demand: found '-1'"):
        solve_script.main(args)
    assert (tmp_path / "out").is_dir()


def test_a_table_that_does_not_exist(tmp_path):
    args = solve_script.Args((tmp_path / "stops.csv",), capacity=5, out=tmp_path / "out")
    with pytest.raises((ValueError, OSError), match=r"stops.csv: there is no such file; give the path of an existing"):
        solve_script.main(args)


def test_a_plan_is_printed_before_it_is_written(tmp_path, capsys, monkeypatch):
    def full(path, data):
        raise OSError("no space left on device")

    (tmp_path / "stops.csv").write_text("x,y,demand\n0,0,0\n1,1,1\n")
    monkeypatch.setattr("routing_gym.planning.plan.write_atomically", full)
    args = solve_script.Args((tmp_path / "stops.csv",), capacity=5, seconds=0.1, solver="search", out=tmp_path / "out")
    with pytest.raises(OSError, match="no space"):
        solve_script.main(args)
    assert "vehicle 1: 1 stop, " in capsys.readouterr().out


PRIZES = {**SQUARE, "prize": [0, 1, 2, 3, 4]}


def test_a_second_solver_plans_if_the_first_does_not_finish(monkeypatch):
    """The limit allows all prizes: 1 + 2 + 3 + 4."""

    def late(self, problem, instance, seed):
        raise TimedOut("not proven optimal")

    monkeypatch.setattr(ExactMIP, "solve_row", late)
    plan = routing_agents.solve(PRIZES, vehicles={"max_length": 100}, seconds=0.4)
    assert plan.costs["pyvrp"] == 10
    assert any("milp did not plan" in note for note in plan.notes)


def test_the_shortest_of_equal_prizes_is_planned(monkeypatch):
    """All plans collect all prizes; the tour of the policy crosses itself."""
    model = routing_agents.load("OP-20")
    longer = np.array([1, 3, 2, 4, 0])
    monkeypatch.setattr("routing_agents.planning.others.decode", lambda *arguments: longer)
    monkeypatch.setattr(type(model), "improve", lambda *arguments: SimpleNamespace(actions=longer, interrupted=False))
    plan = routing_agents.solve(PRIZES, vehicles={"max_length": 100}, seconds=10)
    assert plan.solver == "milp"
    assert len(set(plan.costs.values())) == 1


def test_prizes_that_do_not_suffice():
    """All prizes are 10; a stop without a penalty may not be left out for free."""
    columns = PRIZES | {"penalty": [0, 1, 1, 1, 1]}
    plan = routing_agents.solve(columns, vehicles={"required_prize": 11}, solver="milp", seconds=1)
    assert "all prizes add up to 10, less than required_prize 11: no stop is left out" in plan.notes
    assert not plan.unserved
    tenths = columns | {"prize": [0, 0.7, 0.7, 0.7, 0]}  # whose sum is less than 2.1 by rounding
    plan = routing_agents.solve(tenths, vehicles={"required_prize": 2.1}, solver="milp", seconds=1)
    assert not any("add up" in note for note in plan.notes)
    with pytest.raises(InvalidInput, match=r"row 2, column penalty: .*needs a number for each stop"):
        routing_agents.solve(columns | {"penalty": [0, 1, None, 1, 1]}, vehicles={"required_prize": 11})


def test_real_prizes_are_on_board():
    """The expected prizes are 1 to 4, the real ones 2 each."""
    columns = PRIZES | {"penalty": [0, 50, 50, 50, 50], "real_prize": [0, 2, 2, 2, 2]}
    plan = routing_agents.solve(columns, vehicles={"required_prize": 10}, solver="nearest-neighbour", seconds=1)
    assert [visit.load for visit in plan.routes[0].stops] == [2, 4, 6, 8]
    assert "all prizes add up to 8, less than required_prize 10: no stop is left out" in plan.notes


def test_what_is_minimised():
    """The longest route, and a prize that is maximised; a policy of the plane is scored on the ground."""
    points = {"lat": 50 + COORDS[:, 1] / 100, "lon": 7 + COORDS[:, 0] / 100}
    plan = routing_agents.solve(points, vehicles=2, problem="MTSP", seconds=0.2)
    assert plan.task.sentence.endswith("MTSP, at most 2 vehicles, minimises the longest route (km)")
    assert f"longest route (km) {plan.cost:.2f}" in str(plan)
    assert any(note.endswith("the search and the costs use the exact lengths and durations") for note in plan.notes)
    plan = routing_agents.solve(PRIZES, vehicles={"max_length": 46}, seconds=0.1)
    assert plan.task.sentence.endswith("maximises the prize")
    assert f"\nprize {plan.cost:.2f}, " in str(plan)
    plan = routing_agents.solve(points, vehicles={"fixed_cost": 5}, seconds=0.1)
    assert f"\ncost {plan.cost:.2f}, " in str(plan)


@pytest.mark.parametrize(
    ("times", "limit"), [({"latest": [300, 300, 50, 60, 300]}, {}), ({}, {"max_length": [60, 60]})]
)
def test_policies_plan_stops_that_only_the_second_depot_can_serve(times, limit):
    """B is 110 km from the first depot: too late for its window, or too far for its vehicle."""
    stops = {"id": ["D", "E", "A", "B", "C"], "x": [0, 100, 10, 110, 90], "y": [0] * 5, "demand": [0, 0, 1, 1, 1]}
    vans = {"name": ["v1", "v2"], "count": [1, 1], "capacity": [10, 10], "depot": ["D", "E"]}
    plan = routing_agents.solve(stops | times, vehicles=vans | limit, solver="trained", seconds=0.1)
    assert (plan.cost, plan.unserved) == (60, ())
