"""CSV files as people have them, and what is wrong with some."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing_gym.data.own import from_columns, read_csv, recognise
from routing_gym.files import InvalidFile
from routing_gym.problem import InfeasibleTour, InvalidInstance
from routing_gym.problems import LISTED, make_problem
from routing_gym.rollout import rollout
from routing_gym.sampling import sample_actions


@pytest.mark.parametrize(
    "text",
    [
        "x,y,demand\n1.5,2,0\n3,4,7\n",
        "\ufeffX , Y,Demand\r\n1.5,2,0\r\n\r\n3,4,7",  # a byte order mark, blanks, capitals, Windows line ends
        'name;x;y;demand\n\'a;1,5;2;0\n"b;c";3;4;7\n;;;\n',  # semicolons, decimal commas, quotes, an empty row
        "y\tdemand\tx\n2\t0\t1,5\n4\t7\t3e0\n",
    ],
)
def test_read_csv(tmp_path, text):
    (tmp_path / "own.csv").write_text(text, encoding="utf-8")
    columns, unused = read_csv(tmp_path / "own.csv")
    assert unused == (("name",) if "name" in text else ())
    assert {name: values.tolist() for name, values in columns.items()} == {"x": [1.5, 3], "y": [2, 4], "demand": [0, 7]}


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_tables_of_other_libraries(library):
    table = pytest.importorskip(library).DataFrame({"x": [0, 3], "y": [0, 4]})
    assert from_columns("TSP", table).cost(np.array([0, 1])) == pytest.approx(10)


def test_a_matrix_of_points_is_no_table():
    for points in (np.zeros((3, 2)), [[0, 0], [1, 1]]):
        with pytest.raises(TypeError, match=f"^columns: expected columns by name, .*, got {type(points).__name__}"):
            from_columns("TSP", points)


def test_a_matrix_alone():
    with pytest.raises(ValueError, match="TSP needs x, y; x, y missing; for a matrix alone, take ATSP, or matrices="):
        from_columns("TSP", {"distances": [[0, 1], [1, 0]]})


def test_counts_have_no_unit():
    with pytest.raises(ValueError, match="num_salesmen is 1.5; expected an integer$"):
        from_columns("MTSP", {"x": [0, 1, 2], "y": [0, 1, 0], "num_salesmen": 1.5})


def test_the_largest_of_different_vehicles():
    """Its capacity is that of the instance; the message does not take the instance for a row of the table."""
    table = {"x": [0, 0, 1], "y": [0, 0, 1], "depot": [1, 1, 0], "demand": [0, 0, 5], "vehicle_capacity": [5, 15, 0]}
    costs = {"fixed_cost": [0, 0, 0], "cost_per_length": [1, 1, 0]}
    with pytest.raises(InvalidInstance, match="^capacity: found 20; expected 15, the capacity of the largest vehicle"):
        from_columns("HFVRP", table | costs | {"capacity": 20})


def test_two_columns_need_no_names(tmp_path):
    (tmp_path / "own.csv").write_text("1,2\n3,4\n")
    assert read_csv(tmp_path / "own.csv")[0]["y"].tolist() == [2, 4]
    (tmp_path / "own.csv").write_text("1,5;2\n3;4,5\n")
    assert read_csv(tmp_path / "own.csv")[0]["y"].tolist() == [2, 4.5]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x;y;name\n38.779;2;a\n38.712;3;12,5\n", [38.779, 38.712]),  # a comma in text is none in numbers
        ("x;y;vehicles\n1.500;2;1,2\n0.125;3;2\n", [1.5, 0.125]),
        ("x;y\n38,779;2\n38,712;3\n", [38.779, 38.712]),
        ('x,y,"note; remark"\n1.5,2,a\n2.5,3,b\n', [1.5, 2.5]),  # separators are counted outside of quotes
        ("1,5;2,5\n3,5;4,5\n", [1.5, 3.5]),
        ("id;x;y\n1.1;1,5;2,5\n1.2;3,5;4,5\n", [1.5, 3.5]),
        ("x;y;note, a, b, c\n1.5;2;a\n2.5;3;b\n", [1.5, 2.5]),
        ("x;y;demand\n1.5;2;1,5\n2.5;3;2\n", [1.5, 2.5]),  # coordinates from a map, demands typed
    ],
)
def test_commas_and_points(tmp_path, text, expected):
    (tmp_path / "own.csv").write_text(text)
    assert read_csv(tmp_path / "own.csv")[0]["x"].tolist() == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('x\ty\n1.5\t"1,200"\n', ":2: y: found '1,200'; expected a number without thousands separators"),
        ("id;x;y\nA;1,5;2\nB;3,5x;4\n", ":3: x: found '3,5x'; expected a number"),
        ("", "the file is empty"),
        ("\n\n", "the file has no rows"),
        ("1,2,3\n", ":1: found 3 columns without names; start with a line of names, such as id,lat,lon or x,y"),
        ("\n\nlon,lat\n1,2\n", ":3: found the columns 'lon, lat'; expected x and y among them"),
        ("\nx,y,X\n1,2,3\n", ":2: found the column 'x' twice"),
        (f"x,y\n{'1' * 200_000},2\n", ":2: field larger than field limit"),
        ("x;y\n1,5;1.500\n", ":2: y: found '1.500'; expected a number without thousands separators, since"),
        ("x;y;latitude\n1.500;2;52,5\n", ":2: x: found '1.500'; expected a number without thousands separators"),
        ("x;y\n1.234,5;2\n", ":2: x: found '1.234,5'; expected a number without thousands separators"),
        ("x,y\n", ":1: the file has a header and no rows"),
        ("x,y\n1,2\n\n3\n", ":4: found 1 cells, expected 2; put text"),
        ("x,y\n1,2\n1,5,2,5\n", ":3: found 4 cells, expected 2; .* thousands separators"),
        ("x,y\n1,two\n", ":2: y: found 'two'; expected a number"),
        ("x,y\n1,\n", ":2: y: found ''; expected a number"),
        ("x,y\n1,inf\n", ":2: y: found 'inf'; expected a number"),
        ("x,y\n1,\x00\n", "found control character"),
    ],
)
def test_csv_that_cannot_be_read(tmp_path, text, message):
    (tmp_path / "own.csv").write_text(text)
    with pytest.raises(InvalidFile, match=message):
        read_csv(tmp_path / "own.csv")


@given(st.binary(max_size=80))
def test_no_file_raises_anything_else(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("csv") / "own.csv"
    path.write_bytes(data)
    try:
        columns, _ = read_csv(path)
    except InvalidFile:
        return
    assert all(np.isfinite(values).all() for values in columns.values())


def test_costs_are_in_own_units_and_tours_are_checked():
    """Legs of 3, 4 and 5 hundred; both customers of demand 2 need a capacity of 4."""
    columns = {"x": [0, 300, 300], "y": [0, 0, 400], "demand": [0, 2, 2]}
    own = from_columns("CVRP", {**columns, "capacity": 4})
    assert own.cost([1, 2, 0]) == pytest.approx(1200)
    assert own.cost([1, 0, 2, 0]) == pytest.approx(1600)
    with pytest.raises(InfeasibleTour, match="exceeds capacity 3"):
        from_columns("CVRP", {**columns, "capacity": 3}).cost([1, 2, 0])
    own = from_columns(
        "PCTSP",
        {**columns, "demand": None, "prize": [0, 1, 2], "penalty": [0, 50, 70], "required_prize": 2},
    )
    assert own.cost([2, 0]) == pytest.approx(1050)
    with pytest.raises(InfeasibleTour, match="prize"):
        own.cost([1, 0])
    own = from_columns("OP", {"x": [0, 300, 300], "y": [0, 0, 400], "prize": [0, 1, 2], "max_length": 1000})
    assert own.cost([2, 0]) == 2
    with pytest.raises(InfeasibleTour, match="length"):
        own.cost([1, 2, 0])


def test_a_remote_stop_has_the_scale_of_its_coordinates():
    """Its edges are very long, but no longer than its coordinates say."""
    x = np.array([0.0, 1, 2, 3, 4, 500])
    own = from_columns("CVRP", {"x": x, "y": 0 * x, "demand": x > 0, "capacity": 9, "distances": abs(x[:, None] - x)})
    assert own.scale == pytest.approx(500)


@pytest.mark.parametrize(("matrix", "minutes"), [(False, 300), (True, 30)])
def test_errors_are_in_own_units(matrix, minutes):
    """Customer 1 is 300 away, or 30 by a matrix of another unit."""
    lengths = np.array([[0, 30, 50], [30, 0, 40], [50, 40, 0]])
    columns = {"x": [0, 300, 300], "y": [0, 0, 400], "demand": [0, 2, 2], "capacity": 4, "ready_time": [0, 0, 0]}
    columns |= {"due_time": [9999, 20, 9999], "service_time": [0, 0, 0], "distances": lengths if matrix else None}
    found = f"due_time: node 1: the way from the depot takes until {minutes}, and the window closes at 20"
    with pytest.raises(InvalidInstance, match=found):
        from_columns("VRPTW", columns)


def test_windows_of_a_table_are_kept_in_its_own_units():
    """Legs of 300 and 400 minutes: customer 2, 500 away, closes at 700, so it cannot come after customer 1 at 300 + 50.

    Its window opens at 690: 500 is too early, 690 the start of service. Both alone: 2 x 300 + 2 x 500 = 1600.
    """
    columns = {
        "x": [0, 300, 300],
        "y": [0, 0, 400],
        "demand": [0, 1, 1],
        "capacity": 2,
        "ready_time": [0, 0, 690],
        "due_time": [1500, 1500, 700],
        "service_time": [0, 50, 0],
    }
    own = from_columns("VRPTW", columns)
    assert own.cost([1, 0, 2, 0]) == pytest.approx(1600)
    with pytest.raises(InfeasibleTour, match="arrival time"):
        own.cost([1, 2, 0])
    late = from_columns("VRPTW", {**columns, "due_time": [1500, 1500, 750]})  # 300 + 50 + 400: just in time
    assert late.cost([1, 2, 0]) == 1200


def test_a_matrix_has_a_unit_of_its_own():
    """Coordinates in degrees, a matrix in minutes: 7 there, 3 back."""
    matrix = [[9999, 7], [3, 9999]]
    columns = {"x": [9.1, 9.2], "y": [38.7, 38.8], "demand": [0, 1], "capacity": 1}
    own = from_columns("CVRP", {**columns, "distances": matrix})
    assert own.cost([1, 0]) == pytest.approx(10)
    assert from_columns("ATSP", {"distances": matrix}).cost([1, 0]) == pytest.approx(10)


def test_very_long_edges_do_not_count_in_the_scale():
    """Beside 1e9 between nodes 1 and 2, tours of 20 would be within the tolerance of any limit."""
    matrix = np.array([[0, 10, 10], [10, 0, 1e9], [10, 1e9, 0]])
    assert from_columns("ATSP", {"distances": matrix}).scale == 10
    assert from_columns("ATSP", {"distances": matrix * 1e12 / 10}).scale == 1e12
    places = {"x": [0, 10, 0], "y": [0, 0, 10], "demand": [0, 1, 1], "capacity": 2}
    own = from_columns("VRPL", {**places, "distances": matrix, "max_length": 20})
    assert own.scale < 20
    assert own.cost([1, 0, 2, 0]) == pytest.approx(40)
    with pytest.raises(InfeasibleTour, match="length"):
        own.cost([1, 2, 0])


@pytest.mark.parametrize("name", LISTED)
def test_every_problem_is_made_of_its_columns(name):
    """What is generated, written as a table in units 50 times larger, comes back; a tour costs 50 times as much."""
    problem = make_problem(name, 6)
    instance = problem.generate(np.random.default_rng(3), 1)
    table = {"required_prize": 1.0, "depot": np.arange(problem.num_actions) < problem.num_depots}
    for column in problem.columns:
        value = getattr(instance, column.target, None) if column.target else None
        if value is None:
            continue
        factor = 50 if column.kind in ("coords", "length", "time", "matrix") else 1
        value = value[0].astype(np.float64) * factor if value.dtype != bool else value[0]
        if column.kind == "coords":
            table |= {"x": value[:, 0], "y": value[:, 1]}
        else:
            table[column.name] = value if column.per == "node" else value.item()
    table = {key: value for key, value in table.items() if key in {k for c in problem.columns for k in c.keys}}
    own = from_columns(name, table)
    rng = np.random.default_rng(1)
    actions = rollout(problem, instance, lambda seen: sample_actions(seen["action_mask"], rng)).actions
    cost = float(problem.objective(instance, actions)[0]) * (-1 if problem.maximises else 50)
    assert own.cost(actions[0]) == pytest.approx(cost, rel=1e-5)
    assert own.problem == make_problem(name, 6)
    without = {key: value for key, value in table.items() if key not in ("x", "distances")}
    with pytest.raises(ValueError, match=rf"{name} needs .*(x|distances) missing"):
        from_columns(name, without)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"demand": [1, 1, 1]}, "demand of row 0, the depot, is 1; set it to 0"),
        ({"demand": [0, 1.5, 1]}, "demand of row 1 is 1.5; expected an integer: choose a smaller unit"),
        ({"demand": [0, -1, 1]}, "demand of row 1 is -1; expected a number from 0"),
        ({"demand": [0, 1]}, "the columns have different lengths"),
        ({"backhaul": [0, 2, 0]}, "backhaul of row 1 is 2; expected 0 or 1"),
        ({"pickup": [0, 0, 1]}, "VRPB has no pickup; it takes x, y, demand, capacity, distances, backhaul"),
        ({"distances": [[0, 1], [1, 0], [1, 1]]}, "distances has shape .3, 2.; expected a square matrix"),
        (
            {"distances": [[0, 1, 1], [1, 0, -4], [1, 1, 0]]},
            "distances of row 1, column 2 is -4; expected a number from 0",
        ),
        ({"capacity": 2.5}, "capacity is 2.5; expected an integer"),
        ({"capacity": "2"}, "capacity must be a positive number of at most 1e.100, got '2'"),
        ({"capacity": 10**400}, "capacity must be a positive number of at most 1e.100, got 1000"),
        ({"demand": [0, 10**400, 1]}, "demand: not numbers .int too large"),
    ],
)
def test_columns_that_are_refused(changes, message):
    columns = {"x": [0, 1, 2], "y": [0, 1, 0], "demand": [0, 1, 1], "capacity": 2, "backhaul": [0, 1, 0]}
    with pytest.raises(ValueError, match=message):
        from_columns("VRPB", {**columns, **changes})


@pytest.mark.parametrize(
    ("columns", "numbers", "problem"),
    [
        (["x", "y"], [], "TSP"),
        (["x", "y"], ["num_salesmen"], "MTSP"),
        (["x", "y", "partner"], [], "TSPFE"),
        (["x", "y", "pickup"], [], "PDP"),
        (["x", "y", "demand"], [], "CVRP"),
        (["x", "y", "demand"], ["capacity", "max_length"], "VRPL"),
        (["x", "y", "demand", "ready_time", "due_time", "service_time"], ["capacity"], "VRPTW"),
        (["x", "y", "prize", "penalty"], [], "PCTSP"),
    ],
)
def test_the_columns_name_the_problem(columns, numbers, problem):
    assert recognise(columns, numbers) == problem
    with pytest.raises(ValueError, match="no problem has the columns"):
        recognise([*columns, "prize", "demand"])
