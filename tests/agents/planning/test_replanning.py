"""Plans that are continued during the day: what vehicles have driven and loaded stays as it is."""

import json

import numpy as np
import pytest

import routing_agents
from routing_agents.planning.replanning import Previous, counts_at

pytestmark = pytest.mark.usefixtures("processor_time")


def table(rows):
    """Columns of rows (id, x, y, demand, earliest, latest); distances are km and minutes."""
    keys = ("id", "x", "y", "demand", "earliest", "latest")
    return dict(zip(keys, map(list, zip(*rows, strict=True)), strict=True))


MORNING = [("D", 0, 0, 0, 480, 1200), ("A", 10, 0, 1, 0, 500), ("B", 70, 0, 1, 0, 1200)]


def visits(plan, vehicle):
    """Id, arrival and departure of each visit of a vehicle."""
    return [(one.id, one.arrival, one.departure) for r in plan.routes if r.vehicle == vehicle for one in r.visits]


@pytest.mark.parametrize("count", [2, None])
def test_nobody_leaves_in_the_past(count):
    """At 10:00, N has been closed for an hour; M is open, and an idle vehicle goes there at 10:00."""
    fleet = {"capacity": 2} | ({} if count is None else {"count": count})
    first = routing_agents.solve(table(MORNING), vehicles=fleet, seconds=0.3, solver="search")
    later = table([*MORNING, ("N", -10, 0, 1, 0, 540), ("M", -20, 0, 1, 0, 1200)])
    plan = routing_agents.solve(later, vehicles=fleet, start=first, fixed=600, seconds=0.3)
    assert [(one.id, one.reason) for one in plan.unserved] == [("N", "window")]
    assert visits(plan, "1") == visits(first, "1")
    assert visits(plan, "2") == [("D", 600, 600), ("M", 620, 620), ("D", 640, 640)]


def test_goods_stay_on_their_vehicle():
    """Both have left when E moves next to A: the second still delivers it, and the new order finds no vehicle."""
    rows = [*MORNING[:2], ("B", 12, 0, 1, 0, 1200), ("C", -10, 0, 1, 0, 1200), ("E", -12, 0, 1, 0, 1200)]
    fleet = {"count": 2, "capacity": 4, "max_length": 40}
    first = routing_agents.solve(table(rows), vehicles=fleet, seconds=0.3, solver="search")
    served = {route.vehicle: {one.id for one in route.stops} for route in first.routes}
    assert sorted(map(sorted, served.values())) == [["A", "B"], ["C", "E"]]
    moved = [row if row[0] != "E" else ("E", 11, 0, 1, 0, 1200) for row in rows] + [("F", 11, 1, 1, 0, 1200)]
    plan = routing_agents.solve(table(moved), vehicles={**fleet, "max_length": 90}, start=first, fixed=481, seconds=0.3)
    assert {route.vehicle: {one.id for one in route.stops} for route in plan.routes} == served
    assert [(one.id, one.reason) for one in plan.unserved] == [("F", "fleet")]
    assert "without its goods" in plan.unserved[0].explanation
    assert [route.visits[0].load for route in plan.routes] == [2, 2]


def test_goods_may_be_fetched_by_a_vehicle_on_the_road():
    """A pickup needs nothing from the depot; a vehicle that is back gets nothing more."""
    rows = table(MORNING)
    fleet = {"count": 1, "capacity": 2}
    first = routing_agents.solve({**rows, "pickup": [0, 0, 0]}, vehicles=fleet, seconds=0.3, solver="search")
    later = {**table([*MORNING, ("P", 40, 0, 0, 0, 1200)]), "pickup": [0, 0, 0, 1]}
    for now, reason in ((495, None), (555, "fleet")):
        plan = routing_agents.solve(later, vehicles=fleet, start=first, fixed=now, seconds=0.3)
        assert [one.reason for one in plan.unserved] == ([] if reason is None else [reason])
        assert {"A", "B"} < {one.id for one in plan.routes[0].visits}


def test_the_times_of_driven_stops_stay(tmp_path):
    """A was reached at 490 and B is due at 550; with doubled durations from now on, B keeps 550 and the way back 140.

    A's window has closed since; that does not matter.
    """
    fleet = {"count": 1, "capacity": 2}
    first = routing_agents.solve(table(MORNING), vehicles=fleet, seconds=0.3, solver="search")
    assert visits(first, "1") == [("D", 480, 480), ("A", 490, 490), ("B", 550, 550), ("D", 620, 620)]
    path = tmp_path / "plan.json"
    first.to_json(path)
    rows = [row if row[0] != "A" else ("A", 10, 0, 1, 0, 485) for row in MORNING]
    points = np.array([row[1] for row in rows], dtype=float)
    minutes = 2 * np.abs(points[:, None] - points)
    plan = routing_agents.solve(table(rows), vehicles=fleet, durations=minutes, start=path, fixed=495, seconds=0.3)
    assert visits(plan, "1") == [("D", 480, 480), ("A", 490, 490), ("B", 550, 550), ("D", 690, 690)]
    assert plan.minutes == pytest.approx(210)
    assert json.loads(plan.to_json())["routes"][0]["minutes"] == pytest.approx(210)


@pytest.mark.parametrize("now", [615, 700])
def test_the_way_back_stays(now, tmp_path):
    """On the way back from 560 to 620, or at home since: slower roads do not change the return, nor the cost."""
    fleet = {"count": 1, "capacity": 2}
    first = routing_agents.solve(table(MORNING), vehicles=fleet, seconds=0.3, solver="search")
    path = tmp_path / "plan.json"
    first.to_json(path)
    points = np.array([row[1] for row in MORNING], dtype=float)
    minutes = 9 * np.abs(points[:, None] - points)
    for start in (first, path):
        plan = routing_agents.solve(
            table(MORNING), vehicles=fleet, durations=minutes, start=start, fixed=now, seconds=0.3
        )
        assert visits(plan, "1") == visits(first, "1")
        assert plan.cost == first.cost


def test_waiting_at_the_last_stop_is_no_service(tmp_path):
    """Open routes end at A at 495 and B at 555. At 700, one vehicle leaves A or B for C; 5 minutes stay 5 minutes."""
    fleet = {"count": 2, "capacity": 1, "open": True}
    rows = {**table(MORNING), "service": [0, 5, 5]}
    plan = routing_agents.solve(rows, vehicles=fleet, seconds=0.3, solver="search")
    later = {**table([*MORNING, ("C", 12, 0, 0, 0, 1200)]), "service": [0, 5, 5, 5], "pickup": [0, 0, 0, 1]}
    path = tmp_path / "plan.json"
    for now in (700, 705):
        plan = routing_agents.solve(later, vehicles=fleet, start=plan, fixed=now, seconds=0.3)
        stops = {one.id: one for route in plan.routes for one in route.stops}
        assert [stops[key].service for key in "ABC"] == [5, 5, 5]
        assert stops["C"].arrival >= 702  # 2 from A
        last = {route.stops[-1].id: route.stops[-1].departure for route in plan.routes}
        assert last.keys() - {"C"} < {"A", "B"}
        assert {last[key] for key in last.keys() - {"C"}} <= {495, 555}
        plan.to_json(path)
        plan = path


def test_who_is_about_to_leave_has_not_left():
    """From the depot at 480, from A at 495: at these moments the next stop is not fixed yet."""
    times = ((480.0, 480.0, 0.0, 480.0), (490.0, 490.0, 5.0, 495.0), (550.0, 550.0, 0.0, 550.0))
    previous = Previous(("1",), (("A", "B"),), (times,), (0.0,), ((),), None)
    assert [counts_at(previous, now) for now in (480, 481, 495, 496)] == [[0], [1], [1], [2]]


@pytest.mark.parametrize("seed", range(6))
def test_random_days(seed):
    """Kept visits keep their times, others begin after now, and each vehicle that has left delivers what it loaded."""
    rng = np.random.default_rng(seed)
    rows = [("D", 0, 0, 0, 480, 1000)]
    for k in range(12):
        x, y = rng.integers(-30, 30, 2).tolist()
        opens = int(rng.integers(480, 700))
        rows.append((f"S{k}", x, y, int(rng.integers(0, 4)), opens, opens + int(rng.integers(60, 300))))
    vehicles = {"name": ["a", "b", "c", "d"], "capacity": [9, 9, 14, 14], "earliest": [480, 540, 480, 600]}
    first = routing_agents.solve(table(rows[:9]), vehicles=vehicles, seconds=0.3, solver="search")
    now = int(rng.integers(500, 700))
    plan = routing_agents.solve(table(rows), vehicles=vehicles, start=first, fixed=now, seconds=0.3)
    before = {route.vehicle: route for route in first.routes}
    demand = {row[0]: row[3] for row in rows}
    for route in plan.routes:
        past = before.get(route.vehicle)
        kept = 0 if past is None else min(sum(one.departure < now for one in past.visits[:-1]), len(past.stops))
        for k in range(1, len(route.visits)):
            if k <= kept:
                assert route.visits[k].arrival == past.visits[k].arrival
                assert route.visits[k].id == past.visits[k].id
            elif k < len(route.visits) - 1:
                assert route.visits[k - 1].departure >= now
        goods = {one.id for one in route.stops if demand[one.id]}
        if kept:
            assert goods <= {one.id for one in past.stops}
        else:
            aboard = [other for other in first.routes if other.visits[0].departure < now]
            assert goods.isdisjoint(one.id for other in aboard for one in other.stops)
        assert (
            max(one.load for one in route.visits) <= dict(zip("abcd", vehicles["capacity"], strict=True))[route.vehicle]
        )


def test_goods_that_are_not_delivered_stay_on_board(tmp_path):
    """B closes after its six units were loaded: with the four for A, the van has no room for ten from P.

    A third plan, which continues the JSON file of the second one, still counts them.
    """
    stops = {"id": ["D", "A", "B", "P"], "x": [0, 10, 20, 30], "y": [0] * 4, "demand": [0, 4, 6, 0]}
    stops |= {"pickup": [0, 0, 0, 10], "latest": [500] * 4}
    van = {"name": ["v1"], "count": [1], "capacity": [10]}
    plan = routing_agents.solve(stops, vehicles=van, solver="search", seconds=0.1)
    assert [visit.id for visit in plan.routes[0].stops] == ["A", "B", "P"]
    closed = stops | {"latest": [500, 500, 15, 500]}
    for start in (plan, tmp_path / "plan.json"):
        plan = routing_agents.solve(closed, vehicles=van, start=start, fixed=5, seconds=0.1)
        plan.to_json(tmp_path / "plan.json")
        assert [visit.load for visit in plan.routes[0].visits] == [10, 6, 6]
        assert [stop.id for stop in plan.unserved] == ["B", "P"]
        assert plan.unserved[1].reason == "capacity"
    cancelled = {key: [value for k, value in enumerate(values) if k != 2] for key, values in stops.items()}
    plan = routing_agents.solve(cancelled, vehicles=van, start=plan, fixed=5, seconds=0.1)
    assert plan.routes[0].visits[0].load == 10


def test_goods_stay_on_their_vehicle_while_their_stop_is_left_out(tmp_path):
    """B is closed for a while after its goods have left on the first van: the second has none of them to deliver.

    Goods that have come back to the depot may leave again on any van that has not left.
    """
    stops = {"id": ["D", "A", "B"], "x": [0, 10, 20], "y": [0] * 3, "demand": [0, 4, 6], "latest": [500] * 3}
    vans = {"name": ["v1", "v2"], "count": [1, 1], "capacity": [10, 10]}
    first = routing_agents.solve(stops, vehicles=vans, solver="search", seconds=0.1)
    assert [route.goods_for for route in first.routes] == [("A", "B")]
    closed = stops | {"latest": [500, 500, 15]}
    plan = routing_agents.solve(closed, vehicles=vans, start=first, fixed=5, seconds=0.1)
    assert [(stop.id, stop.reason) for stop in plan.unserved] == [("B", "window")]
    plan.to_json(tmp_path / "plan.json")
    for start in (plan, tmp_path / "plan.json"):
        for now, served in ((8, {"v1": ["A", "B"]}), (15, {"v1": ["A"]}), (30, {"v1": ["A"], "v2": ["B"]})):
            later = routing_agents.solve(stops, vehicles=vans, start=start, fixed=now, seconds=0.1)
            assert {route.vehicle: [stop.id for stop in route.stops] for route in later.routes} == served


def test_times_count_from_the_same_midnight(tmp_path):
    """A stop of the day before is added; what was driven keeps its date, and nobody leaves before the fixed time."""
    stops = {"id": ["D", "A", "B"], "x": [0, 10, 20], "y": [0] * 3, "demand": [0, 1, 1]}
    stops |= {"earliest": ["2026-05-05T08:00"] * 3, "latest": ["2026-05-05T18:00"] * 3}
    vans = {"name": ["v1", "v2"], "count": [1, 1], "capacity": [10, 10]}
    plan = routing_agents.solve(stops, vehicles=vans, solver="search", seconds=0.1)
    added = {"id": "E", "x": 5, "y": 5, "demand": 1, "earliest": "2026-05-04T08:00", "latest": "2026-05-05T18:00"}
    more = {key: [*values, added[key]] for key, values in stops.items()}
    plan.to_json(tmp_path / "plan.json")
    for start in (plan, tmp_path / "plan.json"):
        later = routing_agents.solve(more, vehicles=vans, start=start, fixed="2026-05-05T08:05", seconds=0.1)
        first, *others = later.routes
        assert later.task.at(first.visits[0].departure) == "2026-05-05T08:00"
        assert all(later.task.at(route.visits[0].departure) >= "2026-05-05T08:05" for route in others)
    undated = stops | {"earliest": ["08:00"] * 3, "latest": ["18:00"] * 3}
    with pytest.raises(ValueError, match="start: only one of plan and stops has dates or a time zone"):
        routing_agents.solve(undated, vehicles=vans, start=plan, fixed="2026-05-05T08:05", seconds=0.1)


def test_no_solver_returns_a_worse_plan_than_the_start():
    rng = np.random.default_rng(0)
    stops = {"x": rng.random(40), "y": rng.random(40), "demand": [0] + [1] * 39}
    plan = routing_agents.solve(stops, vehicles={"capacity": 9}, solver="search", seconds=0.5)
    found = routing_agents.solve(stops, vehicles={"capacity": 9}, start=plan, solver="nearest-neighbour", seconds=0.1)
    assert found.cost <= plan.cost + 1e-9  # sums of the same lengths in another order
    assert found.solver == "start"


def test_a_stop_without_room_does_not_miss_a_window():
    """P is added after the van has left; its nine units and A's exceed the capacity, and there are no windows."""
    stops = {"id": ["D", "A", "B", "P"], "x": [0, 10, 20, 5], "y": [0, 0, 0, 3], "demand": [0, 4, 6, 0]}
    stops |= {"pickup": [0, 9, 0, 9]}
    van = {"name": ["v1"], "count": [1], "capacity": [15]}
    before = {key: values[:3] for key, values in stops.items()}
    plan = routing_agents.solve(before, vehicles=van, solver="search", seconds=0.1)
    later = routing_agents.solve(stops, vehicles=van, start=plan, fixed=5, seconds=0.1)
    assert [(stop.id, stop.reason) for stop in later.unserved] == [("P", "capacity")]
