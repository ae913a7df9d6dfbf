"""VRPTW and VRPB files: real ones with their published solutions, small ones by hand, and damaged ones."""

from dataclasses import replace

import numpy as np
import pytest

import am_reinforce
import solve as solve_script
from helpers import EXPLICIT_TEXT, SHARED, SOLOMON_TEXT, TINY, VRPB_TEXT, VRPTW_TEXT
from routing_gym import data
from routing_gym.planning.from_instance import task_of_file
from routing_gym.problem import InfeasibleTour
from routing_gym.solvers import PyVRP

PUBLISHED = {
    "vrptw/C101.txt": 827.3,
    "vrptw/C1_2_1.txt": 2698.6,
    "vrptw/C1_10_2.vrp": 41337.8,
    "vrptw/RC208.vrp": 776.1,
    "vrptw/RC2_10_5.vrp": 25797.5,
    "vrpb/X-n524-50-k125.vrp": 154156,
    "vrpb/X-n548-50-k25.vrp": 52902,
}


def read(folder, text, name="file.txt"):
    path = folder / name
    path.write_bytes(text.encode())
    return data.read_instance(path)


# --- real files


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_solutions_cost_what_is_published(name, tmp_path):
    """Played step by step they are legal, though windows are tight; written and read again, all stays the same."""
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"{path} is missing")
    first = data.read_instance(path)
    problem, instance, tour = first.problem, first.instance, first.best_tour
    problem.validate(instance)
    assert first.best_known == first.cost(tour) == PUBLISHED[name]
    state = problem.initial(instance)
    for action in tour:
        assert problem.action_mask(instance, state)[0, action]
        state, _ = problem.step(instance, state, np.array([action]))
    assert problem.done(instance, state).all()
    data.write_instance(tmp_path / "copy", first)
    second = data.read_instance(tmp_path / "copy")
    for key, values in vars(instance).items():
        np.testing.assert_array_equal(values, getattr(second.instance, key))
    assert (second.problem, second.unit, second.rules.num_vehicles) == (problem, first.unit, first.rules.num_vehicles)
    assert second.cost(tour) == PUBLISHED[name]
    assert data.write_tour(tmp_path / "tour", first, tour) == PUBLISHED[name]
    assert data.read_solution(tmp_path / "tour", first).cost == PUBLISHED[name]


# --- by hand


@pytest.mark.parametrize("text", [VRPTW_TEXT, SOLOMON_TEXT, VRPTW_TEXT.replace("TYPE : VRPTW", "TYPE : CVRPTW")])
def test_windows_by_hand(text, tmp_path):
    """Customer 2, 3 to the right: wait from 3 to 5, away at 7, at customer 1 at 14 as it closes. 3 + 7 + 4 = 14 long.

    The other way round, customer 2 is reached at 4 + 2 + 7 = 13, and closes at 8.
    """
    file = read(tmp_path, text)
    assert (file.name, file.problem.name, file.unit, file.problem.capacity) == ("line", "VRPTW", 10, 9)
    assert file.distances.tolist() == [[0, 40, 30], [40, 0, 70], [30, 70, 0]]
    assert file.cost([2, 1, 0]) == 14.0
    assert file.cost([1, 0, 2, 0]) == 14.0
    with pytest.raises(InfeasibleTour, match="row 0, step 1: arrival time 13.0 at node 2 exceeds 8.0; return to the"):
        file.cost([1, 2, 0])
    assert file.instance.distances[0, 1].tolist() == pytest.approx([4 / 7, 0, 1])
    state, _ = file.problem.step(file.instance, file.problem.initial(file.instance), np.array([2]))
    assert file.problem.action_mask(file.instance, state)[0].tolist() == [True, True, False]
    assert data.write_tour(tmp_path / "tour", file, np.array([2, 1, 0])) == 14.0
    assert (tmp_path / "tour").read_text() == "Route #1: 2 1\nCost 14.0\n"


def test_windows_are_exact_to_a_tenth(tmp_path):
    """As above with the window of customer 1 a unit shorter: 14 is too late, for masks too."""
    file = read(tmp_path, VRPTW_TEXT.replace("2 0 14", "2 0 13"))
    state, _ = file.problem.step(file.instance, file.problem.initial(file.instance), np.array([2]))
    assert file.problem.action_mask(file.instance, state)[0].tolist() == [True, False, False]
    with pytest.raises(InfeasibleTour, match="arrival time 14.0 at node 1 exceeds 13.0"):
        file.cost([2, 1, 0])


def test_windows_are_exact_to_a_tenth_on_wide_maps(tmp_path):
    """Customer 2 is 99,002.1 away by way of customer 1, and closes at 99,002."""
    wide = VRPTW_TEXT[: VRPTW_TEXT.index("NODE_COORD_SECTION")] + (
        "NODE_COORD_SECTION\n1 0 0\n2 99000 0\n3 99000 2.1\nDEMAND_SECTION\n1 0\n2 1\n3 1\n"
        "TIME_WINDOW_SECTION\n1 0 200000\n2 0 200000\n3 0 99002\nDEPOT_SECTION\n1\n-1\nEOF\n"
    )
    file = read(tmp_path, wide.replace("SERVICE_TIME : 2", "SERVICE_TIME : 0"))
    state, _ = file.problem.step(file.instance, file.problem.initial(file.instance), np.array([1]))
    assert file.problem.action_mask(file.instance, state)[0].tolist() == [True, False, False]
    with pytest.raises(InfeasibleTour, match="arrival time 99002.1 at node 2 exceeds 99002.0"):
        file.cost([1, 2, 0])


def test_lengths_are_cut_to_tenths(tmp_path):
    """From (4, 0) to (0, 1): sqrt(17) = 4.1231, which counts as 4.1."""
    assert read(tmp_path, VRPTW_TEXT.replace("2 0 0", "2 0 1", 1)).distances[0, 1] == 41


DETOUR_TEXT = """TYPE : VRPTW
DIMENSION : 3
VEHICLES : 2
CAPACITY : 9
SERVICE_TIME : 0
EDGE_WEIGHT_TYPE : EXPLICIT
EDGE_WEIGHT_FORMAT : FULL_MATRIX
EDGE_WEIGHT_SECTION
0 1 100
1 0 1
3 1 0
DEMAND_SECTION
1 0
2 1
3 1
TIME_WINDOW_SECTION
1 0 90
2 0 50
3 0 50
DEPOT_SECTION
1
-1
EOF
"""


@pytest.mark.parametrize(
    ("matrix", "tour", "cost"), [("0 1 100\n1 0 1\n3", [1, 2, 0], 5), ("0 1 1\n1 0 1\n100", [2, 1, 0], 3)]
)
@pytest.mark.parametrize("kind", ["VRPTW", "MDVRPTW"])
def test_a_customer_that_is_in_time_only_together_with_another(kind, matrix, tour, cost, tmp_path):
    """Node 3 is 100 from the depot, or to it, but near node 2."""
    text = DETOUR_TEXT.replace("VRPTW", kind, 1).replace("0 1 100\n1 0 1\n3", matrix)
    file = read(tmp_path, text)
    assert (file.problem.name, file.cost(tour)) == ("PCVRPTW", cost)
    file.problem.validate(file.instance)
    solution = PyVRP(time_limit=1, iterations=50).solve(file.problem, file.instance, num_workers=0)
    assert file.cost(solution.actions[0]) == cost
    with pytest.raises(InfeasibleTour, match="node 2 is left out, which the file forbids"):
        file.cost([1, 0, 0])
    assert np.isinf(task_of_file(file).penalty).all()
    if kind == "VRPTW":
        data.write_instance(tmp_path / "copy", file)
        assert data.read_instance(tmp_path / "copy").cost(tour) == cost
    with pytest.raises(data.InvalidFile, match="reaches it"):
        read(tmp_path, text.replace("3 0 50", "3 0 0"))


@pytest.mark.parametrize("keyword", ["VEHICLES_MAX_DISTANCE", "VEHICLES_MAX_DURATION"])
def test_a_customer_that_is_within_a_limit_only_together_with_another(keyword, tmp_path):
    """The same without narrow windows. Via node 2 in both directions, node 3 would be within 4, but not within 3."""
    text = DETOUR_TEXT.replace("VRPTW", "MDVRPTW", 1).replace(" 50", " 500").replace(" 90", " 900")
    text = text.replace("SERVICE_TIME", f"{keyword} : 50\nSERVICE_TIME")
    assert read(tmp_path, text).cost([1, 2, 0]) == 5
    with pytest.raises(data.InvalidFile, match="node 3: no vehicle that may serve it reaches it in time"):
        read(tmp_path, text.replace(" : 50\n", " : 3\n"))


def test_the_number_of_vehicles(tmp_path):
    file = read(tmp_path, VRPTW_TEXT.replace("VEHICLES : 2", "VEHICLES : 1"))
    with pytest.raises(InfeasibleTour, match="row 0, step 2: route 2 is one too many, VEHICLES are 1; serve more"):
        file.cost([1, 0, 2, 0])


def test_backhauls_by_hand(tmp_path):
    """9 out to node 1 and 9 back from node 2: 4 + 7 + 3."""
    file = read(tmp_path, VRPB_TEXT.replace("VRPB", "VRPB (a remark)"))
    assert (file.problem.name, file.instance.backhaul.tolist()) == ("VRPB", [[False, False, True]])
    assert file.cost([1, 2, 0]) == 14
    with pytest.raises(InfeasibleTour, match="row 0, step 2: the route of node 2 holds backhauls only, which files of"):
        file.cost([1, 0, 2, 0])
    with pytest.raises(InfeasibleTour, match="row 0, step 1: node 1, a linehaul, comes after node 2, a backhaul"):
        file.cost([2, 1, 0])


def test_explicit_durations_by_hand(tmp_path):
    """The depot is the file's node 3. Out 5 to node 1, wait until 10, service 2, 7 on to 2: too late at 8.

    The other way 6 to node 2, service until 8, 3 on to node 1 at 11, and 4 back: 13; each alone 5 + 4 + 6 + 2 = 17.
    """
    file = read(tmp_path, EXPLICIT_TEXT)
    problem, instance = file.problem, file.instance
    problem.validate(instance)
    assert (problem.name, file.unit, file.ids.tolist()) == ("VRPTW", 1, [3, 1, 2])
    assert file.distances.tolist() == [[0, 5, 6], [4, 0, 7], [2, 3, 0]]
    assert (file.cost([2, 1, 0]), file.cost([1, 0, 2, 0])) == (13, 17)
    assert problem.objective(instance, np.array([[2, 1, 0]]))[0] * file.scale == pytest.approx(13)
    with pytest.raises(InfeasibleTour, match="step 1: arrival time 19.0 at node 2 exceeds 8.0"):
        file.cost([1, 2, 0])
    state, _ = problem.step(instance, problem.initial(instance), np.array([1]))
    assert problem.action_mask(instance, state)[0].tolist() == [True, False, False]
    data.write_instance(tmp_path / "copy", file)
    again = data.read_instance(tmp_path / "copy")
    assert (again.cost([2, 1, 0]), again.rules.windows.tolist()) == (13, file.rules.windows.tolist())
    np.testing.assert_array_equal(again.instance.distances, instance.distances)


def test_real_durations_are_solved(tmp_path):
    """A tour of a classical solver keeps time windows to the second, and costs its whole seconds."""
    path = SHARED / "ortec" / "ORTEC-VRPTW-ASYM-852a6910-d1-n202-k20.txt"
    if not path.exists():
        pytest.skip(f"{path} is missing")
    file = data.read_instance(path)
    solution = PyVRP(time_limit=1).solve(file.problem, file.instance)
    cost = file.cost(solution.actions[0])
    assert cost == int(cost) == pytest.approx(solution.cost[0] * file.scale, abs=0.1)
    assert data.write_tour(tmp_path / "tour.sol", file, solution.actions[0]) == cost


# --- bad files

SECTION = "SERVICE_TIME_SECTION\n1 0\n2 2\n3 2\n"


@pytest.mark.parametrize(
    ("text", "part", "replacement", "message"),
    [
        (VRPTW_TEXT, "2 0 14", "2 15 14", ":18: the window closes at 14, before it opens at 15"),
        (
            VRPTW_TEXT,
            "2 0 14\n",
            "",
            ":18: TIME_WINDOW_SECTION: found 2 nodes, expected DIMENSION 3; node 2 is missing",
        ),
        (VRPTW_TEXT, "2 0 14", "2 0", ":18: TIME_WINDOW_SECTION: found '2 0', expected 'node opens closes'"),
        (VRPTW_TEXT, "2 0 14", "2 0 1.5", ":18: time: found '1.5', expected an integer of at least 0"),
        (VRPTW_TEXT, "2 0 14", "2 0 3", ":18: this customer cannot be served: .* reaches it at 4.0, after 3.0"),
        (VRPTW_TEXT, "1 0 30", "1 0 9", ":18: this customer cannot be served: .* is back at 10.0, after 9.0"),
        (VRPTW_TEXT, "2 4\n", "2 10\n", ":14: demand: found 10, expected at most the CAPACITY 9"),
        (VRPTW_TEXT, "SERVICE_TIME : 2\n", "", ":22: the file ends without SERVICE_TIME"),
        (VRPTW_TEXT, "DEPOT_S", SECTION + "DEPOT_S", ":20: found SERVICE_TIME too; expected one of them"),
        (
            VRPTW_TEXT.replace("SERVICE_TIME : 2\n", ""),
            "DEPOT_S",
            SECTION.replace("1 0", "1 3") + "DEPOT_S",
            ":20: found service time 3 at the depot; expected 0",
        ),
        (EXPLICIT_TEXT, "1 10 20", "1 0 4", ":21: this customer cannot be served: .* reaches it at 5.0, after 4.0"),
        (EXPLICIT_TEXT, "3 0 30", "3 0 15", ":21: this customer cannot be served: .* is back at 16.0, after 15.0"),
        (EXPLICIT_TEXT, "3 0 2\n", "3 0\n", ":11: EDGE_WEIGHT_SECTION: found 8 numbers, expected 9: FULL_MATRIX with"),
        (VRPTW_TEXT, "VEHICLES : 2\n", "", ":22: the file ends without VEHICLES"),
        (VRPTW_TEXT, "TYPE : VRPTW", "TYPE : CVRP", ":4: VEHICLES is not allowed with TYPE CVRP, only with VRPT"),
        (SOLOMON_TEXT, "CUST NO.", "NUMBER", ":8: found 'NUMBER .*, expected CUST NO., as in Solomon's files"),
        (SOLOMON_TEXT, "2         9", "2", ":5: found '2', expected number and capacity of vehicles"),
        (SOLOMON_TEXT, "30    0", "30", ":10: found '0 .* 30', expected number, x, y, demand, ready time, due date,"),
        (SOLOMON_TEXT, "    1      0", "    2      0", ":11: found customer '2', expected 1; 0 is the depot"),
        (SOLOMON_TEXT, "5    8    2", "9    8    2", ":12: the window closes at 8, before it opens at 9"),
        (SOLOMON_TEXT, "5    8    2", "5    2    2", ":12: the window closes at 2, before it opens at 5"),
        (SOLOMON_TEXT, "    2      7    0    5", "    2      7    0    10", ":12: demand: found 10, expected at most"),
        (SOLOMON_TEXT, SOLOMON_TEXT[30:], "", ":4: found 'NUMBER     CA', expected NUMBER CAPACITY, as in"),
        (VRPB_TEXT, "2\t0\n3\t9", "2\t3\n3\t9", ":16: node 2 has a demand and a backhaul; set one of them to 0"),
        (VRPB_TEXT, "3\t9\n", "3\t10\n", ":17: backhaul: found 10, expected at most the CAPACITY 9"),
        (VRPB_TEXT, "3\t9\n", "", ":16: BACKHAUL_SECTION: found 2 nodes, expected DIMENSION 3; node 3 is missing"),
    ],
)
def test_bad_files(text, part, replacement, message, tmp_path):
    assert part in text
    with pytest.raises(data.InvalidFile, match=message):
        read(tmp_path, text.replace(part, replacement, 1))


@pytest.mark.parametrize("metric", ["CEIL_2D", "ATT", "GEO"])
def test_windows_are_in_tenths_of_euclidean_lengths(tmp_path, metric):
    with pytest.raises(data.UnsupportedFile, match=f":7: EDGE_WEIGHT_TYPE '{metric}' .*; VRPTW counts tenths of Eucl"):
        read(tmp_path, VRPTW_TEXT.replace("EUC_2D", metric))


def test_times_that_float32_cannot_tell_apart(tmp_path):
    with pytest.raises(data.UnsupportedFile, match=":17: time 200001 exceeds 200000; choose a larger unit"):
        read(tmp_path, VRPTW_TEXT.replace("1 0 30", "1 0 200001"))


def test_solutions_with_another_cost(tmp_path):
    (tmp_path / "file.sol").write_text("Route #1: 2 1\nCost 14.1\n")
    with pytest.raises(data.InvalidFile, match="file.sol:2: found cost 14.1, but the routes cost 14.0 on"):
        read(tmp_path, VRPTW_TEXT)
    (tmp_path / "file.sol").write_text("Route #1: 2 1\nCost 14.05\n")
    with pytest.raises(data.UnsupportedFile, match="file.sol:2: cost 14.05 is of exact lengths; only lengths cut to"):
        read(tmp_path, VRPTW_TEXT)


# --- solve.py


def test_solve_says_which_limit_a_tour_violates(tmp_path, monkeypatch):
    """Two routes, and a file that has one vehicle."""
    tiny = replace(TINY, runs=tmp_path, env_id="routing/VRPTW-5", epochs=1)
    read(tmp_path, VRPTW_TEXT.replace("VEHICLES : 2", "VEHICLES : 1").replace("2 0 14", "2 0 13"))
    args = solve_script.Args((tmp_path / "file.txt",), am_reinforce.main(tiny), out=tmp_path / "out", tours=4)
    with pytest.raises(ValueError, match="file.txt: the tour found violates a limit of the file: .* VEHICLES are 1"):
        solve_script.main(args)
