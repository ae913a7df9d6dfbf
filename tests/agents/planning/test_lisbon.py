"""The example in examples/lisbon: its script makes its files, and the four steps of a planner work on them."""

from __future__ import annotations

import csv
import json
import runpy
from datetime import datetime
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

import routing_agents
import solve as solve_script
from helpers import ROOT

pytestmark = pytest.mark.usefixtures("processor_time")

pyproj = pytest.importorskip("pyproj")
LISBON = ROOT / "examples" / "lisbon"
STOPS, VANS, DURATIONS = (str(LISBON / name) for name in ("stops.csv", "vans.csv", "durations.csv"))
TABLE = pd.read_csv(STOPS)
MATRIX = pd.read_csv(DURATIONS, index_col=0).to_numpy()
CAPACITY, SPEED = 60, 30  # of each van; the planner's default in km/h


def test_the_script_makes_the_files(tmp_path):
    runpy.run_path(str(LISBON / "make.py"))["main"](tmp_path)
    for name in ("stops.csv", "vans.csv", "durations.csv"):
        assert (tmp_path / name).read_text() == (LISBON / name).read_text()
    assert len(TABLE) == 41
    assert (MATRIX != MATRIX.T).any()


def geodesic(table):
    """Return km between all stops, one pair at a time."""
    geod, size = pyproj.Geod(ellps="WGS84"), len(table)
    places = list(zip(table["lon"], table["lat"], strict=True))
    return np.array([[geod.inv(*places[i], *places[j])[2] / 1000 for j in range(size)] for i in range(size)])


def clock(text):
    """Return a time in minutes after midnight."""
    return (datetime.strptime(text, "%H:%M") - datetime(1900, 1, 1)).total_seconds() / 60


def check(rows, km, minutes, table=TABLE, pickup=None):
    """Recompute a written plan stop by stop: km, minutes of driving, windows, loads; return both totals and the served.

    Args:
        rows: Of the CSV file that the planner writes.
        km: Between all stops, or None where the plan's km are not known.
        minutes: Between all stops.
        table: The stops.
        pickup: Amounts that are picked up.
    """
    served, total_km, total_minutes = [], 0.0, 0.0
    pickup = np.zeros(len(table)) if pickup is None else pickup
    for vehicle in sorted({row["vehicle"] for row in rows if row["vehicle"]}):
        nodes = [int(row["row"]) for row in rows if row["vehicle"] == vehicle]
        assert nodes[0] == nodes[-1] == 0
        load, now = sum(table["demand"][node] for node in nodes), clock("08:00")
        for before, node in pairwise(nodes):
            assert load <= CAPACITY
            total_minutes += minutes[before, node]
            total_km += 0 if km is None else km[before, node]
            now += minutes[before, node]
            assert now <= clock(table["latest"][node] if node else "18:00") + 1e-6
            now = max(now, clock(table["earliest"][node])) + table["service"][node]
            load += pickup[node] - table["demand"][node]
        served += nodes[1:-1]
    left = [int(row["row"]) for row in rows if not row["vehicle"]]
    assert sorted(served + left) == list(range(1, len(table)))
    return total_km, total_minutes, left


def rows_of(plan):
    """Return the rows of the CSV file of a plan."""
    return list(csv.DictReader(plan.to_csv().splitlines()))


@pytest.mark.parametrize("solver", ["trained", "pyvrp", "ortools"])
def test_four_steps_in_python(solver):
    """Latitudes and longitudes, a matrix, three vans for goods of four, a pickup: each is one call."""
    if solver != "trained":
        pytest.importorskip(solver)
    km = geodesic(TABLE)
    options = {"solver": solver, "seconds": 1.0}
    plan = routing_agents.solve(STOPS, vehicles=VANS, **options)
    total, _, left = check(rows_of(plan), km, km * 60 / SPEED)
    assert (plan.cost, plan.unit, left) == (pytest.approx(total), "km", [])

    plan = routing_agents.solve(STOPS, vehicles=VANS, durations=DURATIONS, **options)
    total, driven, left = check(rows_of(plan), km, MATRIX)
    assert (plan.cost, plan.unit, left) == (pytest.approx(driven), "minutes", [])
    assert plan.km == pytest.approx(total)

    fleet = {"count": 3, "capacity": CAPACITY, "earliest": "08:00", "latest": "18:00"}
    plan = routing_agents.solve(STOPS, vehicles=fleet, durations=DURATIONS, **options)
    _, driven, left = check(rows_of(plan), km, MATRIX)
    assert plan.cost == pytest.approx(driven)
    assert sum(TABLE["demand"]) - sum(TABLE["demand"][left]) <= 3 * CAPACITY
    assert [stop.row for stop in plan.unserved] == left
    assert {stop.reason for stop in plan.unserved} <= {"capacity", "window", "fleet"}

    stops = TABLE.assign(pickup=0)
    stops.loc[8, ["demand", "pickup"]] = [0, 12]
    plan = routing_agents.solve(stops, vehicles=VANS, durations=DURATIONS, **options)
    _, driven, left = check(rows_of(plan), km, MATRIX, stops, stops["pickup"])
    assert (plan.cost, left) == (pytest.approx(driven), [])


def test_four_steps_in_the_shell(tmp_path, capsys):
    """The same from the command: what it prints and what it writes."""
    km = geodesic(TABLE)
    stops = TABLE.assign(pickup=0)
    stops.loc[8, ["demand", "pickup"]] = [0, 12]
    stops.to_csv(tmp_path / "pickup.csv", index=False)
    (tmp_path / "three.csv").write_text("count,capacity,earliest,latest\n3,60,08:00,18:00\n")
    steps = [
        (STOPS, VANS, None),
        (STOPS, VANS, DURATIONS),
        (STOPS, str(tmp_path / "three.csv"), DURATIONS),
        (str(tmp_path / "pickup.csv"), VANS, DURATIONS),
    ]
    for number, (stops, vehicles, durations) in enumerate(steps):
        out = tmp_path / str(number)
        args = solve_script.Args(
            (ROOT / stops,), vehicles=vehicles, durations=durations, solver="search", seconds=0.5, out=out
        )
        (plan,) = solve_script.main(args)
        table = pd.read_csv(stops)
        written = list(csv.DictReader((out / f"{ROOT.joinpath(stops).stem}.csv").read_text().splitlines()))
        minutes = km * 60 / SPEED if durations is None else MATRIX
        total, driven, left = check(written, km, minutes, table, table.get("pickup"))
        assert plan.cost == pytest.approx(total if durations is None else driven)
        assert bool(left) == (number == 2)
        printed = capsys.readouterr().out
        assert f"cost ({plan.unit}) {plan.cost:.2f}, {plan.km:.1f} km" in printed
        assert ("stops are left out" in printed) == (number == 2)
    assert json.loads(plan.to_json())["unit"] == "minutes"
