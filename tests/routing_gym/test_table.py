"""CSV files as people have them, and what is wrong with some."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing_gym.data.own import from_columns, read_csv
from routing_gym.files import InvalidFile
from routing_gym.problem import InfeasibleTour


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


def test_two_columns_need_no_names(tmp_path):
    (tmp_path / "own.csv").write_text("1,2\n3,4\n")
    assert read_csv(tmp_path / "own.csv")[0]["y"].tolist() == [2, 4]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("\n\n", "the file has no rows"),
        ("1,2,3\n", ":1: found 3 columns without names; start with a line such as x,y"),
        ("\n\nlon,lat\n1,2\n", ":3: found the columns 'lon, lat'; expected x and y among them"),
        ("\nx,y,X\n1,2,3\n", ":2: found the column x twice"),
        (f"x,y\n{'1' * 200_000},2\n", ":2: field larger than field limit"),
        ("x,y\n1,2\n\n3\n", ":4: found 1 cells, expected 2: '3'"),
        ("x,y\n1,2\n1,5,2,5\n", ":3: found 4 cells, expected 2: '1,5,2,5'"),
        ("x,y\n1,two\n", ":2: y: found 'two', expected a number"),
        ("x,y\n1,\n", ":2: y: found '', expected a number"),
        ("x,y\n1,inf\n", ":2: y: found 'inf', expected a number"),
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
    own = from_columns("CVRP", columns, capacity=4)
    assert own.cost([1, 2, 0]) == pytest.approx(1200)
    assert own.cost([1, 0, 2, 0]) == pytest.approx(1600)
    with pytest.raises(InfeasibleTour, match="exceeds capacity 3"):
        from_columns("CVRP", columns, capacity=3).cost([1, 2, 0])
    own = from_columns(
        "PCTSP", {**columns, "demand": None, "prize": [0, 1, 2], "penalty": [0, 50, 70]}, required_prize=2
    )
    assert own.cost([2, 0]) == pytest.approx(1050)
    with pytest.raises(InfeasibleTour, match="prize"):
        own.cost([1, 0])
    own = from_columns("OP", {"x": [0, 300, 300], "y": [0, 0, 400], "prize": [0, 1, 2]}, max_length=1000)
    assert own.cost([2, 0]) == 2
    with pytest.raises(InfeasibleTour, match="length"):
        own.cost([1, 2, 0])


def test_the_vrp_family_has_no_columns():
    with pytest.raises(ValueError, match="no instance of VRPTW can be made of a table; TSP, CVRP, SDVRP, OP and PCTSP"):
        from_columns("VRPTW", {"x": [0, 1], "y": [0, 1], "demand": [0, 1]}, capacity=3)
