"""Tables, matrices and vehicles: what is accepted, and the one error for what is not."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import polars as pl
import pytest

import routing_agents
from routing_gym.files import InvalidFile
from routing_gym.planning import InvalidInput, read_task

pytestmark = pytest.mark.usefixtures("processor_time")

STOPS = {
    "id": ["D", "A", "B"],
    "lat": [38.70, 38.75, 38.80],
    "lon": [-9.10, -9.15, -9.20],
    "demand": [0, 2, 3],
    "earliest": ["08:00", "09:00", "10:30"],
    "latest": ["18:00", "10:00", "12:00"],
    "service": [0, 5, 10],
}
MATRIX = np.array([[0.0, 7, 9], [8, 0, 5], [11, 6, 0]])
FLEET = {"count": 2, "capacity": 5}


def stops(**changes):
    return {**STOPS, **changes}


@pytest.mark.parametrize("kind", [dict, pd.DataFrame, pl.DataFrame])
def test_tables_of_all_kinds(kind):
    """Minutes after midnight: 08:00 is 480, 10:30 is 630."""
    task = read_task(kind(STOPS), vehicles=FLEET)
    assert task.problem == "VRPTW"
    assert task.ready.tolist() == [480, 540, 630]
    assert list(task.ids) == ["D", "A", "B"]


def test_a_spreadsheet_with_a_mark_and_semicolons(tmp_path):
    """Excel's export: a byte-order mark, semicolons, decimal commas; other names for the same columns."""
    (tmp_path / "stops.csv").write_bytes(
        b"\xef\xbb\xbfLatitude;Longitude;Demand\r\n38,70;-9,10;0\r\n38,75;-9,15;2\r\n38,80;-9,20;3\r\n"
    )
    task = read_task(tmp_path / "stops.csv", vehicles=FLEET)
    assert task.problem == "CVRP"
    assert task.points[1] == pytest.approx([38.75, -9.15])


def test_matrices_in_other_units_are_noted():
    """Five km apart: 600 minutes are perhaps seconds, and 5,000 km metres; 10 minutes and 6 km are not doubtful."""
    table = {"lat": [38.7, 38.7], "lon": [-9.1, -9.158]}
    far = np.array([[0, 1], [1, 0]], dtype=float)
    usual = read_task(table, vehicles={"count": 1}, durations=10 * far, distances=6 * far).notes
    assert not any("divide" in note for note in usual)
    doubtful = read_task(table, vehicles={"count": 1}, durations=600 * far, distances=5000 * far).notes
    assert any(note.startswith("durations: 119 minutes per km") and "divide seconds by 60" in note for note in doubtful)
    assert any(note.startswith("distances: 991 km per km") and "divide metres by 1000" in note for note in doubtful)


@pytest.mark.parametrize("labels", [False, True])
def test_thousands_in_a_matrix(tmp_path, labels):
    rows = ["0;1.234;2,5", "1;0;1", "2;1;0"]
    if labels:
        rows = [";D;a;b", *(f"{key};{row}" for key, row in zip("Dab", rows, strict=True))]
    (tmp_path / "m.csv").write_text("\n".join(rows))
    table = {"id": ["D", "a", "b"], "x": [0, 1, 2], "y": [0, 0, 0]}
    with pytest.raises(InvalidInput, match="from D to a.: found '1.234'; expected a number without thousands"):
        read_task(table, vehicles={"count": 1}, durations=tmp_path / "m.csv")


@pytest.mark.parametrize(
    "text", ["0,0;1,5;2,5\n1,5;0,0;1,2\n2,5;1,2;0,0\n", ";D;a;b\nD;-;1,5;2,5\na;1,5;-;1,2\nb;2,5;1,2;-\n"]
)
def test_decimal_commas_in_a_matrix(tmp_path, text):
    (tmp_path / "m.csv").write_text(text)
    table = {"id": ["D", "a", "b"], "x": [0, 1, 2], "y": [0, 0, 0]}
    task = read_task(table, vehicles={"count": 1}, durations=tmp_path / "m.csv")
    assert task.minutes[0].tolist() == [0, 1.5, 2.5]


@pytest.mark.parametrize("shape", ["(60000, 60000)", "(10000000000000000000000000000000, 1)"])
def test_an_array_file_that_claims_too_much(tmp_path, shape):
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    (tmp_path / "m.npy").write_bytes(
        b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + bytes(80)
    )
    with pytest.raises(InvalidFile, match=r"m.npy: no .npy file of numbers"):
        read_task({"x": [0, 1], "y": [0, 0]}, vehicles={"count": 1}, durations=tmp_path / "m.npy")


def test_a_capacity_without_amounts_is_noted():
    table = {"x": [0, 1, 2], "y": [0, 0, 0]}
    assert "capacity: no effect, since the stops have neither demand nor pickup" in (
        read_task(table, vehicles={"count": 2, "capacity": 1}).notes
    )
    assert not any(
        "no effect" in note for note in read_task({**table, "demand": [0, 1, 1]}, vehicles={"capacity": 1}).notes
    )


@pytest.mark.parametrize(
    ("pickup", "demand", "amounts", "told"),
    [
        ([0, 1, 0, 1], [0, 5, 5, 5], [0, 5, 0, 5], ["only 0 and 1, read as flags: the demand of stops with 1"]),
        (["no", "yes", "no", "yes"], [0, 5, 5, 5], [0, 5, 0, 5], []),
        (["no", "yes", "no", "yes"], [0, 5, 5, 0], [0, 5, 0, 0], ["stops, row 3 has no demand, so nothing is"]),
        ([0, 1, 0, 1], [0, 5, 5, 0], [0, 1, 0, 1], ["only 0 and 1, read as amounts: stops, row 3 has 1 and no demand"]),
        ([0, 1, 0, 2], [0, 5, 5, 5], [0, 1, 0, 2], []),
        ([0, 1, 0, 1], [0, 0, 5, 0], [0, 1, 0, 1], []),
        ([0, 0, 0, 0], [0, 5, 5, 5], [0, 0, 0, 0], []),
    ],
)
def test_pickups_that_can_be_read_in_two_ways_are_noted(pickup, demand, amounts, told):
    task = read_task({"x": [0, 1, 2, 3], "y": [0, 0, 0, 0], "demand": demand, "pickup": pickup}, capacity=9)
    assert task.pickup.tolist() == amounts
    assert len(task.notes) == len(told)
    assert all(f"pickup: {one}" in note for one, note in zip(told, task.notes, strict=True))


@pytest.mark.parametrize(
    ("columns", "vehicles", "notes"),
    [
        (
            {"demand": [0, 2, 3]},
            {"count": [2, 3], "capacity": [8, 1]},
            ("vehicles tiny 1 and 2 more: not used; the capacity is 1, and the least amount of a stop is 2",),
        ),
        (
            {"vehicles": ["", "big", "big"]},
            {"count": [2, 1], "capacity": [8, 8]},
            ("vehicle tiny: not used; all stops name other vehicles",),
        ),
        (
            {"vehicles": ["", "tiny", "big"]},
            {"count": [2, 1], "capacity": [8, 1.5]},
            ("vehicle tiny: not used; the capacity is 1.5, and the least amount of a stop is 2",),
        ),
        ({"vehicles": ["", "tiny", "big"]}, {"count": [2, 1], "capacity": [8, 2]}, ()),
    ],
)
def test_types_that_can_serve_no_stop_are_noted(columns, vehicles, notes):
    table = {"x": [0, 1, 2], "y": [0, 0, 0], "demand": [0, 2, 3], **columns, "penalty": ["", 9, 9]}
    assert read_task(table, vehicles={"name": ["big", "tiny"]} | vehicles).notes == notes


def test_costs_name_no_unit():
    """Minutes or km, whichever is minimised: a column cost_per_km would be of minutes."""
    table = {"x": [0, 1], "y": [0, 0], "demand": [0, 1]}
    with pytest.raises(InvalidInput, match=r"no column cost_per_km is known; did you mean cost_per_unit\?"):
        read_task(table, vehicles={"capacity": 1, "cost_per_km": 2})


def test_iso_times():
    days = {
        "earliest": ["2026-01-05T08:00"] * 3,
        "latest": ["2026-01-05T18:00", "2026-01-05T11:00", "2026-01-06T01:00"],
    }
    task = read_task(stops(**days), vehicles=FLEET)
    assert np.diff(task.due).tolist() == [-420, 840]  # 7 h earlier, then 14 h later


@pytest.mark.parametrize("day", ["", "2026-01-05T"])
def test_times_with_and_without_dates_are_rounded_alike(day):
    task = read_task(stops(earliest=[f"{day}06:00"] * 3, latest=[f"{day}18:00"] * 3), vehicles=FLEET)
    assert [task.at(time) for time in (420.9996, 420.999, 421)] == [f"{day}07:01", f"{day}07:00", f"{day}07:01"]


def test_a_misspelt_column_is_noted():
    table = {"x": [0, 1], "y": [0, 0], "demands": [0, 1], "colour": ["", "red"]}
    assert read_task(table).notes == ("columns that are not used: demands, colour; demands: did you mean demand?",)
    with pytest.raises(InvalidInput, match=r"OP needs prize.*; prizes: did you mean prize\?"):
        read_task({"x": [0, 1], "y": [0, 0], "prizes": [0, 1]}, problem="OP")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lat": [98.7, 38.75, 38.8]}, "row 0, column lat: found 98.7; .*-90 to 90; exchange lat and lon"),
        ({"service": [0, 480 * 60, 5]}, "row 1, column service: found 28800"),
        ({"latest": ["18:00", "08:30", "12:00"]}, "row 1, column latest: .*closes before it opens.*or add 24 hours"),
        ({"earliest": ["08:00", "9 am", "10:30"]}, "row 1, column earliest: found '9 am'"),
        ({"id": ["D", "A", "A"]}, "row 2, column id: found 'A'; .* has the same id"),
        ({"demand": [0, -2, 3]}, "row 1, column demand: found -2"),
        ({"demand": ["0", "1,5", "3"]}, "row 1, column demand: found '1,5'; expected a decimal point"),
        ({"demand": ["0", "1,500", "3"]}, "row 1, column demand: found '1,500'"),
        ({"lon": [-9.1, "west", -9.2]}, "row 1, column lon: found 'west'"),
        ({"earliest": ["08:00", "9.30", "10:30"]}, "row 1, column earliest: found '9.30'; other times, .* are HH:MM"),
        ({"latest": ["18:00", "2026-01-05T10:00", "12:00"]}, "row 1, column latest: .*'18:00', are HH:MM"),
        (
            {
                "earliest": ["2026-01-05T08:00"] * 3,
                "latest": ["2026-01-05T18:00", "2062-01-05T10:00", "2026-01-05T12:00"],
            },
            "row 1, column latest: found '2062-01-05T10:00'; it is more than 31 days after 2026-01-05",
        ),
        ({"lat": [38.7, 38.75, -60.0], "lon": [-9.1, -9.15, 170.0]}, "km"),
    ],
)
def test_errors_of_tables_say_where(changes, message):
    with pytest.raises(InvalidInput, match=message):
        read_task(stops(**changes), vehicles=FLEET)


FASTER_VIA_A = np.array([[0.0, 1, 9], [1, 0, 1], [9, 1, 0]])  # from and to B it is 9 minutes directly, 2 via A
NO_WINDOWS = {"id": ["D", "A", "B"], "demand": [0, 1, 1]}


@pytest.mark.parametrize(
    ("columns", "vehicles", "cost"),
    [
        ({"latest": ["", "", 2]}, {}, 11),
        ({"latest": [11, "", ""]}, {}, 11),
        ({}, {"max_length": 11}, 11),
        ({}, {"max_duration": 11}, 11),
        ({}, {"max_length": 5, "open": True}, 2),
    ],
)
def test_stops_that_are_nearer_via_others(columns, vehicles, cost):
    """One route serves A and B: 11 minutes, or 2 if it is open; there and back to B alone it is 18."""
    vehicles = {"capacity": 2} | vehicles
    ways = {"durations": FASTER_VIA_A, "distances": FASTER_VIA_A}
    plan = routing_agents.solve(NO_WINDOWS | columns, vehicles=vehicles, **ways, solver="search", seconds=0.1)
    assert (plan.cost, plan.unserved, len(plan.routes)) == (cost, (), 1)
    (note,) = plan.notes
    unit = "km" if "max_length" in vehicles else "minutes"
    assert f"from D to B it is 9 {unit} directly, but 2 via other stops; a route with B alone breaks a limit" in note


def test_rounding_makes_no_way_nearer_via_others():
    """Stops at 10.04 and 20.08 km, rounded to 0.1 km: 20.1 directly, 20 via A."""
    km = [[0, 10.0, 20.1], [10.0, 0, 10.0], [20.1, 10.0, 0]]
    task = read_task(
        {"id": list("DAB"), "demand": [0, 1, 1]}, vehicles={"capacity": 2, "max_length": 40.1}, distances=km
    )
    assert task.notes == ()


def test_ways_via_others_that_keep_no_limit():
    """B is reached at 2, and not via A if A opens at 5, cannot be served by the van, or takes 4 minutes."""
    late = {**NO_WINDOWS, "latest": ["", "", 4]}
    for columns in ({"earliest": [0, 5, 0]}, {"service": [0, 4, 0]}, {"vehicles": ["", "bike", "van"]}):
        vehicles = {"capacity": [2, 2], "name": ["van", "bike"]} if "vehicles" in columns else {"capacity": 2}
        with pytest.raises(
            InvalidInput, match="row 2, column latest: found '4.0'; a vehicle that leaves at 0.0 arrives"
        ):
            read_task(late | columns, vehicles=vehicles, durations=FASTER_VIA_A)
    with pytest.raises(
        InvalidInput, match="row 2, column latest: found '1.0'; a vehicle that leaves at 0.0 arrives at 2.0"
    ):
        read_task(late | {"latest": ["", "", 1]}, vehicles={"capacity": 2}, durations=FASTER_VIA_A)
    assert not read_task(NO_WINDOWS, vehicles={"capacity": 2}, durations=FASTER_VIA_A, distances=FASTER_VIA_A).notes


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (MATRIX[:2], "durations: found 2 rows of 3 numbers; expected 3 rows and columns"),
        (MATRIX[:2, :2], "durations: found 2 rows of 2 numbers; expected 3 rows and columns"),
        (MATRIX - 6, r"durations, row 0, column 0|durations, row 1, column 2 \(from A to B\): found -1"),
        (np.where(MATRIX == 5, np.nan, MATRIX), r"durations, row 1, column 2 \(from A to B\)"),
    ],
)
def test_errors_of_matrices_say_where(matrix, message):
    with pytest.raises(InvalidInput, match=message):
        read_task(STOPS, vehicles=FLEET, durations=matrix)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (",D,A,B\nD,0,7,9\nB,8,0,5\nA,11,6,0\n", "m.csv, row 1: found 'B', and the stop in row 1 is 'A'"),
        (",D,B,A\nD,0,7,9\nB,8,0,5\nA,11,6,0\n", "m.csv, column 1: found 'b', and the stop in row 1 is 'A'"),
        ("0,,9\n8,0,5\n11,6,0\n", r"m.csv, row 0, column 1 \(from D to A\): found no value"),
        ("0;1.234,5;9\n8;0;5\n11;6;0\n", r"m.csv, row 0, column 1 \(from D to A\): found '1.234,5'.*thousands"),
    ],
)
def test_errors_of_matrix_files(tmp_path, text, message):
    (tmp_path / "m.csv").write_text(text)
    with pytest.raises(InvalidInput, match=message):
        read_task(STOPS, vehicles=FLEET, durations=tmp_path / "m.csv")


@pytest.mark.parametrize(
    "text",
    ['"0","7","9"\n"8","0","5"\n"11","6","0"\n', "0,7,9,\n8,0,5,\n11,6,0,\n", ",D,A,B\nD,0,7,9\nA,8,0,5\nB,11,6,0\n"],
)
def test_matrix_files(tmp_path, text):
    """Quoted numbers, a separator at the end of each line, ids of the stops."""
    (tmp_path / "m.csv").write_text(text)
    assert read_task(STOPS, vehicles=FLEET, durations=tmp_path / "m.csv").minutes == pytest.approx(MATRIX)


def test_the_empty_corner_of_a_matrix_alone(tmp_path):
    """Labels that are numbers leave it empty, and so does an empty diagonal, if that is how lengths are given."""
    for text, ids in [(",5,6\n5,0,9\n6,8,0\n", ("5", "6")), (",7,9\n8,,5\n11,6,\n", ("0", "1", "2"))]:
        (tmp_path / "m.csv").write_text(text)
        assert read_task(None, durations=tmp_path / "m.csv").ids == ids
    (tmp_path / "m.csv").write_text(",7,9\n7,,5\n9,5,\n")
    with pytest.raises(InvalidInput, match="m.csv: the first row may hold labels or lengths; write 0 on the diagonal"):
        read_task(None, durations=tmp_path / "m.csv")


def test_the_order_of_a_matrix_in_a_frame():
    frame = pd.DataFrame(MATRIX, index=["D", "A", "B"], columns=["D", "A", "B"])
    assert read_task(STOPS, vehicles=FLEET, durations=frame).minutes == pytest.approx(MATRIX)
    with pytest.raises(InvalidInput, match="durations, column 1: found 'B', and the stop in row 1 is 'A'"):
        read_task(STOPS, vehicles=FLEET, durations=frame[["D", "B", "A"]])
    with pytest.raises(InvalidInput, match="durations, row 1: found 'B', and the stop in row 1 is 'A'"):
        read_task(STOPS, vehicles=FLEET, durations=frame.loc[["D", "B", "A"]])


@pytest.mark.parametrize(("units", "factor"), [("km", 1.0), ("mi", 1.609344), ("m", 0.001)])
def test_openrouteservice(units, factor):
    answer = {"distances": MATRIX.tolist(), "metadata": {"query": {"units": units}}}
    assert read_task(STOPS, vehicles=FLEET, distances=answer).km == pytest.approx(MATRIX * factor)


@pytest.mark.parametrize("query", [{"units": "furlong"}, {"units": ["m"]}])
def test_unknown_units(query):
    answer = {"distances": MATRIX.tolist(), "metadata": {"query": query}}
    with pytest.raises(InvalidInput, match="distances: found lengths in .*; expected m, km, mi"):
        read_task(STOPS, vehicles=FLEET, distances=answer)
    assert read_task(STOPS, vehicles=FLEET, distances={**answer, "metadata": {"query": None}}).km[0, 1] == 0.007


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PK\x03\x04rest", "found a spreadsheet, expected a text file; save the sheet as CSV"),
        ("id,lat,lon\n".encode("utf-16"), "found text in UTF-16, expected UTF-8"),
        (b"Stops of Monday,,\nid,lat,lon\nD,1,1\n", ":1: found one cell, expected the names of columns"),
        (b"D,38.7,-9.1\nA,38.8,-9.2\n", ":1: found the number '38.7' among the names of columns"),
        (b"id|lat|lon\nD|1|1\nA|2|2\n", "found the columns .*; name those of the coordinates lat and lon"),
    ],
)
def test_files_that_are_no_table(tmp_path, content, message):
    (tmp_path / "stops.csv").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_task(tmp_path / "stops.csv", vehicles={"count": 2})


def test_pandas_index_and_lazy_polars():
    """After `set_index("id")` the ids are still the stops' ids."""
    assert read_task(pd.DataFrame(STOPS).set_index("id"), vehicles=FLEET).ids == ("D", "A", "B")
    assert read_task(pl.DataFrame(STOPS).lazy(), vehicles=FLEET).ids == ("D", "A", "B")


@pytest.mark.parametrize(
    "vehicles", [{"max_length": [9, 8]}, {"max_length": 9, "fixed_cost": 4}, {"max_length": 9, "latest": 50}]
)
def test_vehicles_of_other_problems_are_alike(vehicles):
    """Orienteering has one vehicle; its length is that of the whole tour."""
    with pytest.raises(InvalidInput, match="vehicles of OP must be alike, without hours, costs and max_duration"):
        read_task({"x": [0, 1, 2], "y": [0, 1, 1], "prize": [0, 3, 4]}, vehicles=vehicles)


@pytest.mark.parametrize(
    ("vehicles", "problem"),
    [
        ({"count": 2}, "MTSP"),
        ({"count": 2, "max_duration": 50}, "CVRP"),
        ({"max_duration": 50}, "CVRP"),
        ({"count": 2, "latest": 50}, "CVRP"),
        ({"count": [1, 1], "cost_per_unit": [1, 2]}, "CVRP"),
        ({"count": [1, 1], "depot": ["0", "2"]}, "CVRP"),
    ],
)
def test_vehicles_of_stops_without_amounts(vehicles, problem):
    """Only vehicles that are alike and without limits are salesmen."""
    assert read_task({"x": [0, 1, 2, 3], "y": [0, 0, 0, 0]}, vehicles=vehicles).problem == problem


def test_missing_values_are_those_of_the_problem_that_lacks_the_fewest():
    stops = {"x": [0, 1], "y": [0, 0], "latest": [9, 9], "prize": [0, 1]}
    with pytest.raises(InvalidInput, match="no problem has all of latest, max_length, prize; OP, .* has no latest"):
        read_task(stops, vehicles={"max_length": 3})
    with pytest.raises(InvalidInput, match=r'CVRP needs capacity; for example, write vehicles=\{"count": 3, "cap'):
        read_task({"x": [0, 1], "y": [0, 0], "demand": [0, 1]}, vehicles=3)
    with pytest.raises(InvalidInput, match="OP needs max_length; PCTSP needs penalty, required_prize; add what"):
        read_task({"x": [0, 1], "y": [0, 0], "prize": [0, 1]})
    with pytest.raises(InvalidInput, match="MTSP must be alike, .*; plan each type on its own, or give count instead"):
        read_task({"x": [0, 1, 2], "y": [0, 0, 0]}, vehicles={"max_duration": 9}, num_salesmen=2)


def test_vehicles_that_differ():
    """Equal rows are one type; vehicles without a name keep the number of their row."""
    table = {"capacity": [4, 9, 4], "latest": ["17:00", "18:00", "17:00"]}
    task = read_task(STOPS, vehicles=table)
    assert [(kind.count, kind.capacity, kind.due[0], kind.vehicles) for kind in task.types] == [
        (2, 4 * task.units, 1020.0, ("1", "3")),
        (1, 9 * task.units, 1080.0, ("2",)),
    ]
    assert [task.vehicle(number) for number in range(3)] == ["1", "3", "2"]
    assert [task.type_of(number) for number in range(3)] == [0, 0, 1]
    assert (task.count, task.capacity, task.due[0]) == (3, 9 * task.units, 1080.0)


@pytest.mark.parametrize(
    ("vehicles", "count", "names"),
    [
        ({"capacity": 5}, None, ()),  # describes all vehicles
        ({"Capacity": 5, "name": "van"}, 1, ("van",)),
        ({"capacity": [5]}, 1, ()),  # a row is a vehicle
        (pd.DataFrame({"capacity": [5]}), 1, ()),
        ({"name": ["van", "truck"], "count": [1, 2], "capacity": [5, 5]}, 3, ("van", "truck 1", "truck 2")),
    ],
)
def test_numbers_and_names_of_equal_vehicles(vehicles, count, names):
    task = read_task(STOPS, vehicles=vehicles)
    assert (task.count, task.vehicles) == (count, names)


@pytest.mark.parametrize(
    ("vehicles", "message"),
    [
        (
            {"capacity": [4, 5], "speed": [30, 40]},
            "speed: found 40; the first vehicle has 30.0; vehicles may differ in",
        ),
        (
            {"capacity": [4, None]},
            "capacity: .*expected a number in every row or in none; write a large one for no limit",
        ),
        (
            {"count": [1, 1], "capacity": [4, 4], "depot": ["D", "X"]},
            "vehicles, column depot: found 'X'; expected the id of a row of the stops",
        ),
        (
            {"count": [1, 1], "capacity": [4, 4], "depot": ["D", "A"]},
            "demand: .*vehicles start in this row; set it to 0",
        ),
        (
            {"count": 2, "capacity": 4, "depot": "A"},
            "column depot: no vehicle starts in the first row of the stops, D;",
        ),
        ({"depot": "D"}, "vehicles: expected the number of vehicles of each type or depot; add count"),
        ({"capacity": [4, 5], "name": ["van", "van"]}, "name: found 'van'; another row has the same name"),
        (
            {"capacity": [4, 5, 6], "count": [2, 1, 1], "name": ["van", "truck", "van 1"]},
            "row 2, column name: found 'van 1'; an earlier row has a vehicle with the name 'van 1', too: .* rename one",
        ),
        (
            {"capacity": [4, 5], "count": [1, 2], "name": ["van 2", "van"]},
            "row 1, column name: found 'van'; an earlier row has a vehicle with the name 'van 2', too",
        ),
        ({"capacity": [4, 5], "latest": ["17:00", "00:10"]}, "vehicles: found hours that end before they begin"),
        ({"capacity": [4, 5], "latest": ["17:00", "00:00"]}, "vehicles: found hours.*change earliest or latest"),
    ],
)
def test_vehicles_that_cannot_differ(vehicles, message):
    with pytest.raises(InvalidInput, match=message):
        read_task(STOPS, vehicles=vehicles)


@pytest.mark.parametrize(
    ("vehicles", "message"),
    [
        (
            {"name": ["van", "truck"]},
            "column vehicles: found 'lorry'; there is no vehicle lorry; name those of van, truck",
        ),
        ({"count": [1, 2]}, "vehicles: the stops name vehicles; expected a column name here, too"),
    ],
)
def test_stops_that_name_vehicles(vehicles, message):
    with pytest.raises(InvalidInput, match=message):
        read_task({**STOPS, "vehicles": ["", "van", "lorry"]}, vehicles={**vehicles, "capacity": [4, 4]})


@pytest.mark.parametrize(
    ("shift", "message"),
    [
        ({"earliest": "17:00", "latest": "09:00"}, "vehicles: found hours that end before they begin"),
        ({"earliest": "2026-01-05T08:00"}, "vehicles, column earliest: found 2026-01-05T08:00:00; .* times, HH:MM"),
    ],
)
def test_shifts(shift, message):
    with pytest.raises(InvalidInput, match=message):
        read_task(STOPS, vehicles={**FLEET, **shift})


def test_osrm(tmp_path):
    """OSRM's seconds are minutes here; a pair without a way is null, and named."""
    table = (MATRIX * 60).tolist()
    path = tmp_path / "table.json"
    path.write_text(json.dumps({"code": "Ok", "durations": table}))
    assert read_task(STOPS, vehicles=FLEET, durations=path).minutes == pytest.approx(MATRIX)
    table[1][2] = None
    path.write_text(json.dumps({"code": "Ok", "durations": table}))
    with pytest.raises(InvalidInput, match=r"row 1, column 2 \(from A to B\): found no value \(null\)"):
        read_task(STOPS, vehicles=FLEET, durations=path)
