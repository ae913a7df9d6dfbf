"""No file, however damaged, makes a reader hang or raise anything but its own error."""

import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helpers import (
    ATSP_TEXT,
    CVRP_TEXT,
    DEPOTS_TEXT,
    EXPLICIT_TEXT,
    FIXED_TEXT,
    FLEET_TEXT,
    OP_TEXT,
    PAIRS_TEXT,
    PRIZES_TEXT,
    ROUTES,
    SEQUENCE,
    SITES_TEXT,
    SOLOMON_TEXT,
    TOUR,
    TSP_TEXT,
    VRPB_TEXT,
    VRPTW_TEXT,
)
from routing_gym import data
from routing_gym.data.paper import paper_columns
from routing_gym.problems import make_problem

fuzz = settings(max_examples=80, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])

TEXTS = [TSP_TEXT, CVRP_TEXT, OP_TEXT, ATSP_TEXT, FIXED_TEXT, VRPTW_TEXT, SOLOMON_TEXT, VRPB_TEXT]
FLEETS = [FLEET_TEXT, DEPOTS_TEXT, SITES_TEXT, PAIRS_TEXT, PRIZES_TEXT, EXPLICIT_TEXT]
NAMES = ["tsp", "vrp", "oplib", "atsp", "fixed", "vrptw", "solomon", "vrpb"]
NAMES += ["fleet", "depots", "sites", "pairs", "prizes", "explicit"]
# What is likely to upset a reader of numbers and keywords.
FRAGMENTS = [b"nan", b"inf", b"-1", b"0", b"1e999", b"99999999999999999999", b"\0", b"\xff", b"\r", b"EOF", b":", b"-"]
FRAGMENTS += [b"DIMENSION : 1000000000\n", b"TYPE : OP\n", b"GEO", b"CEIL_2D", b"\n\n", b"_SECTION", b"#", b"\xd9\xa1"]


@st.composite
def damaged(draw: st.DrawFn, original: bytes) -> bytes:
    """Cut, flip, repeat, drop or overwrite parts of a valid file, up to four times."""
    result = original
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(result)))
        kind = draw(st.sampled_from(["cut", "flip", "insert", "overwrite", "drop line", "repeat line", "swap lines"]))
        if kind == "cut":
            result = result[:place]
        elif kind == "flip":
            flipped = bytes(byte ^ 1 << draw(st.integers(0, 7)) for byte in result[place : place + 1])
            result = result[:place] + flipped + result[place + 1 :]
        elif kind == "insert":
            result = result[:place] + draw(st.sampled_from(FRAGMENTS) | st.binary(max_size=6)) + result[place:]
        elif kind == "overwrite":
            fragment = draw(st.sampled_from(FRAGMENTS) | st.binary(max_size=6))
            result = result[:place] + fragment + result[place + len(fragment) :]
        else:
            lines = result.split(b"\n")
            first, second = (draw(st.integers(0, len(lines) - 1)) for _ in range(2))
            if kind == "swap lines":
                lines[first], lines[second] = lines[second], lines[first]
            else:
                lines[first : first + 1] = [] if kind == "drop line" else [lines[first]] * 2
            result = b"\n".join(lines)
    return result


def read_damaged(reader: Callable[[Path], object], path: Path, content: bytes, has_lines: bool) -> object:
    """Read a file; return None where it is refused as it should be."""
    path.write_bytes(content)
    try:
        return reader(path)
    except data.FileError as error:
        refusal = error
    assert str(refusal).startswith(str(path))
    assert refusal.line is not None or not has_lines or not content
    return None


@pytest.mark.parametrize("text", [*TEXTS, *FLEETS], ids=NAMES)
@given(draw=st.data())
@fuzz
def test_damaged_instances(text, draw, tmp_path):
    content = draw.draw(damaged(text.encode()) | st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
    file = read_damaged(data.read_instance, tmp_path / "file.txt", content, has_lines=True)
    if file is not None:
        assert isinstance(file, data.FileInstance)
        file.problem.validate(file.instance)


@pytest.mark.parametrize(
    ("instance", "solution"),
    [(TSP_TEXT, TOUR), (CVRP_TEXT, ROUTES), (OP_TEXT, SEQUENCE)],
    ids=["tour", "routes", "sequence"],
)
@given(draw=st.data())
@fuzz
def test_damaged_solutions(instance, solution, draw, tmp_path):
    (tmp_path / "file.txt").write_bytes(instance.encode())
    file = data.read_instance(tmp_path / "file.txt")
    content = draw.draw(damaged(solution.encode()) | st.binary(max_size=200))
    read = read_damaged(lambda path: data.read_solution(path, file), tmp_path / "solution", content, has_lines=True)
    if read is not None:
        assert isinstance(read, data.FileTour)
        assert file.cost(read.actions) == read.cost


@pytest.mark.parametrize("name", ["TSP", "CVRP", "PCTSP"])
@given(draw=st.data())
@fuzz
def test_damaged_pickles(name, draw, tmp_path):
    columns = list(paper_columns(name, 20, size=2).values())
    columns = [column[:, :3] if column.ndim > 1 and column.shape[1] == 20 else column for column in columns]
    rows = [column.tolist() for column in columns]
    original = pickle.dumps(rows[0] if name == "TSP" else list(zip(*rows, strict=True)), draw.draw(st.integers(2, 5)))
    content = draw.draw(damaged(original) | st.binary(max_size=200))
    read = read_damaged(lambda path: data.load_pickle(path, name), tmp_path / "set.pkl", content, has_lines=False)
    if read is not None:
        problem, instance = read
        problem.validate(instance)


@pytest.mark.parametrize("name", ["TSP", "OP", "OVRPBLTW"])
@given(draw=st.data())
@fuzz
def test_damaged_npz(name, draw, tmp_path):
    problem = make_problem(name, 3)
    data.save_npz(tmp_path / "good.npz", problem, problem.generate(np.random.default_rng(0), 2))
    content = draw.draw(damaged((tmp_path / "good.npz").read_bytes()) | st.binary(max_size=200))
    read = read_damaged(data.load_npz, tmp_path / "set.npz", content, has_lines=False)
    if read is not None:
        problem, instance = read
        problem.validate(instance)
