"""The paper's test sets, the original code's pickles, and our own .npz."""

import hashlib
import io
import os
import pickle
import re
import struct
import zipfile
from copy import deepcopy

import numpy as np
import pytest

from problem_names import ONE_OF_EACH
from routing_gym import data
from routing_gym.arrays import any_array
from routing_gym.data.npz import npz_bytes, open_npz
from routing_gym.data.paper import NAMES, paper_columns, to_instance
from routing_gym.data.pickles import PlainUnpickler
from routing_gym.problem import InvalidInstance
from routing_gym.problems import TSP, CVRPInstance, TSPInstance, make_problem

SMALL = {name: make_problem(name, 5) for name in ONE_OF_EACH}


def sha256(values: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()[:12]


def assert_same(first: object, second: object) -> None:
    assert type(first) is type(second)
    for key, values in vars(first).items():
        other = getattr(second, key)
        assert (values is None) == (other is None)
        if values is not None:
            assert values.dtype == other.dtype
            np.testing.assert_array_equal(values, other)


@pytest.mark.parametrize(
    ("num_nodes", "coords", "demand", "prize"),
    [
        (20, "04f192096ef8", "68d8cc4eba7a", "9c9b6a67ee05"),
        (50, "9f2fc1297d3a", "302aeb78e7ca", "6e8bf59d0fb0"),
        (100, "e16413180f18", "d9e9143e34e3", "83cdd91727c1"),
    ],
)
def test_paper_sets_are_the_originals(num_nodes, coords, demand, prize):
    """SHA-256 of what the authors' own generator draws (first 12 digits, C order)."""
    assert sha256(paper_columns("TSP", num_nodes)["coords"]) == coords
    assert sha256(paper_columns("CVRP", num_nodes)["depot"]) == "de838427abcc"
    assert sha256(paper_columns("SDVRP", num_nodes)["demand"]) == demand
    assert sha256(paper_columns("OP", num_nodes)["prize"]) == prize


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("num_nodes", [20, 50, 100])
def test_paper_sets_are_valid_instances(name, num_nodes):
    instance = data.paper_test_set(name, num_nodes, size=50)
    make_problem(name, num_nodes).validate(instance)


def test_paper_sets_have_the_papers_ranges():
    """OP-50: length 3, prizes in hundredths. PCTSP-20: penalties below 3 x 2 / 20, prizes below 4 / 20."""
    op = data.paper_test_set("OP", 50, prize="uniform")
    assert op.max_length.tolist() == [3.0] * 10_000
    hundredths = op.prize[:, 1:].astype(np.float64) * 100
    np.testing.assert_allclose(hundredths, np.round(hundredths), atol=1e-4)
    assert (hundredths.round().min(), hundredths.round().max()) == (1, 100)
    assert (data.paper_test_set("OP", 20, prize="constant", size=3).prize[:, 1:] == 1).all()
    pctsp = data.paper_test_set("SPCTSP", 20)
    assert 0.299 < pctsp.penalty.max() < 0.3
    assert 0.199 < pctsp.expected_prize.max() < 0.2
    ratio = pctsp.real_prize[:, 1:] / pctsp.expected_prize[:, 1:]
    assert 1.99 < ratio.max() <= 2.0
    assert (data.paper_test_set("CVRP", 100, size=2).capacity == 50).all()


def test_paper_sets_leave_the_global_generator_alone():
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    first = data.paper_test_set("TSP", 20, size=10)
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002
    assert_same(first, data.paper_test_set("TSP", 20, size=10))
    assert (first.coords != data.paper_test_set("TSP", 20, seed=4321, size=10).coords).any()


def test_paper_sets_that_do_not_exist():
    with pytest.raises(ValueError, match="no test set with num_nodes=30; choose 20, 50 or 100"):
        data.paper_test_set("TSP", 30)
    for name in ("VRP", "OVRP"):  # a new problem's name fell through to SPCTSP
        with pytest.raises(ValueError, match=f"the paper has no test set of '{name}'; choose one of TSP, CVRP"):
            data.paper_test_set(name, 20)
        with pytest.raises(ValueError, match=f"the paper has no test set of '{name}'"):
            to_instance(name, paper_columns("SPCTSP", 20, size=1))
    with pytest.raises(ValueError, match="prize must be one of constant, uniform, distance; got 'dist'"):
        data.paper_test_set("OP", 20, prize="dist")


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("name", NAMES)
def test_pickles_in_the_authors_layout(name, protocol, tmp_path):
    """The authors' `list(zip(depot.tolist(), loc.tolist(), ...))`, in every protocol."""
    columns = paper_columns(name, 20, size=30)
    lists = [column.tolist() for column in columns.values()]  # drawn in the order of the layout
    rows = lists[0] if name == "TSP" else list(zip(*lists, strict=True))
    (tmp_path / "original.pkl").write_bytes(pickle.dumps(rows, protocol))
    problem, instance = data.load_pickle(tmp_path / "original.pkl", name)
    assert problem == make_problem(name, 20)
    assert_same(instance, data.paper_test_set(name, 20, size=30))


class Code:
    """Unpickled by `pickle.loads`, this makes a folder."""

    def __init__(self, path: object) -> None:
        self.path = path

    def __reduce__(self) -> object:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickles_that_run_code_are_refused(protocol, tmp_path):
    bomb = tmp_path / "bomb.pkl"
    bomb.write_bytes(pickle.dumps([Code(tmp_path / "ran")], protocol))
    with pytest.raises(data.InvalidFile, match="instruction .* is not allowed; only lists, tuples and numbers"):
        data.load_pickle(bomb, "TSP")
    assert not (tmp_path / "ran").exists()
    with pytest.raises(pickle.UnpicklingError, match=r"it asks for .*mkdir; only lists, tuples and numbers"):
        PlainUnpickler(io.BytesIO(bomb.read_bytes())).load()  # nor without the check before
    assert not (tmp_path / "ran").exists()
    pickle.loads(bomb.read_bytes())
    assert (tmp_path / "ran").exists()  # the bomb was live


def shared_lists(depth: int) -> list:
    """Nest ten references to one list in the next: 10**depth numbers in a few hundred bytes."""
    result: list = [0.5] * 10
    for _ in range(depth):
        result = [result] * 10
    return result


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (pickle.dumps(shared_lists(12), 4), "instruction BINGET at byte .* is not allowed"),
        (b"\x80\x04" + b"]" * 2000 + b".", "lists within .* bytes"),
        (b"\x80\x02]r\xff\xff\xff\x7f.", "memo index 2147483647 at byte 3 is out of order"),
        (b"\x80\x05\x96" + struct.pack("<Q", 2**40) + b"\x00.", "refused pickle: ValueError: .*bytearray8"),
        (b"\x80\x04\x8e" + struct.pack("<Q", 2**40) + b"\x00.", "refused pickle: ValueError: .*bytes8"),
        (pickle.dumps(np.ones(2), 4), "instruction .* at byte .* is not allowed"),
        (pickle.dumps([{}], 4), "instruction EMPTY_DICT at byte .* is not allowed"),
        (pickle.dumps([[[0.5, 0.5], [0.5, "x"]]], 4), "instruction SHORT_BINUNICODE at byte .* is not allowed"),
        (pickle.dumps([[[0.5, 0.5], [0.5, True]]], 4), "instruction NEWTRUE at byte .* is not allowed"),
        (pickle.dumps([], 4), "TSP: found a list of 0, expected a list of instances"),
        (pickle.dumps(3.0, 4), "TSP: found a float, expected a list of instances"),
        (
            pickle.dumps([[[0.5, 0.5] for _ in range(n)] for n in (3, 2)], 4),
            "coords: expected numbers, as many",
        ),
        (pickle.dumps([[0.5, 0.5]], 4), r"coords: found shape \(1, 2\), expected \(1, 2, 2\)"),
        (pickle.dumps([[[0.5, 0.5], [0.5, 10**400]]], 4), "int too large"),
        (pickle.dumps([[[0.5, 0.5], [0.5, 1e300]]], 4), "coords: row 0, .* is inf, expected in"),
        (pickle.dumps([[[0.5, 0.5], [0.5, 2]]], 4), "coords: row 0, .* is 2.0, expected in .*0, 1"),
        (pickle.dumps([[[0.5, 0.5], [0.5, 0]]], 4)[:-5], "refused pickle"),
        (pickle.dumps([[[0.5, 0.5], [0.5, 0]]], 4) + b"x", "1 bytes follow the end"),
        (b"NAME : a280\n", "refused pickle"),
    ],
)
def test_bad_pickles(content, message, tmp_path):
    (tmp_path / "bad.pkl").write_bytes(content)
    with pytest.raises(data.InvalidFile, match=rf"bad\.pkl: .*{message}"):
        data.load_pickle(tmp_path / "bad.pkl", "TSP")


def test_bad_vehicle_routing_pickles(tmp_path):
    good = ([0.5, 0.5], [[0.1, 0.2]], [3], 30.0)
    for index, value, message in (
        (2, [3.5], "demand: expected whole numbers from 0"),
        (2, [float("nan")], "demand: expected whole numbers from 0"),
        (2, [31], "demand: row 0, customer 1 has demand 31, expected 0 to the capacity 30"),
        (2, 3, r"demand: found shape .*2,.*, expected .*2, 1"),
        (3, [30.0], r"capacity: found shape .*2, 1.*, expected .*2,"),
    ):
        bad = tuple(value if column == index else good[column] for column in range(4))
        (tmp_path / "bad.pkl").write_bytes(pickle.dumps([bad, deepcopy(bad)]))
        with pytest.raises(data.InvalidFile, match=rf"bad\.pkl: CVRP: {message}"):
            data.load_pickle(tmp_path / "bad.pkl", "CVRP")
    (tmp_path / "bad.pkl").write_bytes(pickle.dumps([good, deepcopy(good)[:3]]))
    with pytest.raises(data.InvalidFile, match="instance 1: found a tuple of 3, expected .depot, coords, demand, cap"):
        data.load_pickle(tmp_path / "bad.pkl", "CVRP")
    with pytest.raises(ValueError, match="no layout of pickles is known for 'VRP'"):
        data.load_pickle(tmp_path / "bad.pkl", "VRP")


def test_files_too_large_to_be_read_are_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr("routing_gym.data.npz.MAX_BYTES", 1_000)
    with pytest.raises(ValueError, match=r"100 instances take .* bytes, and files of more than 1,000 are not read"):
        data.save_npz(tmp_path / "x", TSP(2), TSP(2).generate(np.random.default_rng(0), 100))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_npz_round_trip(name, tmp_path):
    problem = SMALL[name]
    instance = problem.generate(np.random.default_rng(1), 4)
    data.save_npz(tmp_path / "set.npz", problem, instance)
    again = data.load_npz(tmp_path / "set.npz")
    assert again[0] == problem
    assert_same(again[1], instance)
    assert any_array(again[1]).flags.writeable


def test_npz_keeps_settings_and_distances(tmp_path):
    problem = make_problem("CVRP", 1, capacity=12)
    coords = np.array([[[0, 0], [1, 1]]], np.float32)
    distances = np.array([[[0, 2], [3, 0]]], np.float32)
    instance = CVRPInstance(coords, np.array([[0, 4]]), np.array([17]), distances)
    data.save_npz(tmp_path / "set.npz", problem, instance)
    again = data.load_npz(tmp_path / "set.npz")
    assert again[0].capacity == 12
    assert_same(again[1], instance)


def test_npz_refuses_what_it_could_not_read_back(tmp_path):
    with pytest.raises(InvalidInstance, match="coords: expected shape"):
        data.save_npz(tmp_path / "x.npz", TSP(3), TSPInstance(np.zeros((1, 2, 2))))

    class Mine(TSP):
        name = "mine"

    with pytest.raises(ValueError, match="Mine is not in the registry"):
        data.save_npz(tmp_path / "x.npz", Mine(2), TSPInstance(np.zeros((1, 2, 2))))
    assert not list(tmp_path.iterdir())


def test_damaged_results_are_named(tmp_path):
    """Whichever byte is wrong, and wherever the file ends."""
    path, content = tmp_path / "x.npz", npz_bytes(key=np.array(["a", "b"]), cost=np.arange(40.0))
    flipped = [content[:at] + bytes([content[at] ^ 255]) + content[at + 1 :] for at in range(len(content))]
    messages = []
    for damaged in (*flipped, *(content[:end] for end in range(len(content)))):
        path.write_bytes(damaged)
        try:
            with open_npz(path, "costs", "delete it") as file:
                assert [file[name].shape for name in ("key", "cost")] == [(2,), (40,)]
        except ValueError as error:
            messages.append(str(error))
    assert len(messages) > 1.5 * len(content)
    told = re.compile(rf"{path}: no costs, or damaged \(.*\); delete it", re.DOTALL)
    assert all(told.fullmatch(message) for message in messages)


def npz(header: object, **arrays: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **({} if header is None else {"problem": np.array(header)}), **arrays)
    return buffer.getvalue()


def npz_member(contents: bytes, compression: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        archive.writestr("coords.npy", contents)
    return buffer.getvalue()


def npy_header(text: str) -> bytes:
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


COORDS = np.zeros((1, 2, 2), np.float32)
HEADER = '{"problem": "TSP", "num_nodes": 2}'


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (npz(None, coords=COORDS), "found no text array 'problem'; expected a file of save_npz"),
        (npz(HEADER), "found arrays ; expected coords for TSP"),
        (npz(HEADER, coords=COORDS, demand=COORDS), "found arrays coords, demand; expected coords for TSP"),
        (npz(HEADER, coords=COORDS + np.float32(np.nan)), "coords: row 0, .* is nan"),
        (npz(HEADER, coords=COORDS.astype(np.float64)), "coords: expected a float32 array, got dtype float64"),
        (npz(HEADER.replace("2", "3"), coords=COORDS), r"coords: expected shape \(B, 3, 2\), got \(1, 2, 2\)"),
        (npz(HEADER.replace("2", "true"), coords=COORDS), "num_nodes must be an integer, got True"),
        (npz(HEADER.replace("TSP", "VRP"), coords=COORDS), "unknown problem 'VRP'"),
        (npz(HEADER.replace("}", ', "speed": 3}'), coords=COORDS), "TSP has no setting speed"),
        (
            npz('{"problem": "OP", "num_nodes": 1, "max_length": "x"}', coords=COORDS),
            "OP: max_length must be positive and finite, got 'x'",
        ),
        (npz('{"problem": "OP", "num_nodes": 1' + "0" * 400 + "}", coords=COORDS), "too large"),
        (npz('{"problem": "TSP"}', coords=COORDS), "problem: num_nodes is missing"),
        (npz("[" * 5000, coords=COORDS), "problem|recursion|Expecting"),
        (npz("[1]", coords=COORDS), r"problem: found \[1\], expected an object"),
        (npz("{", coords=COORDS), "Expecting property name"),
        (npz_member(b"\0" * 10**7, zipfile.ZIP_DEFLATED), "the members overlap or are compressed"),
        (npz_member(b"\0", zipfile.ZIP_DEFLATED), r"coords\.npy is compressed"),
        (npz_member(npy_header("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,)}")), "reshape"),
        (npz_member(npy_header("{'descr': '|O', 'fortran_order': False, 'shape': ()}") + b"x" * 8), "OBJECT array"),
        (npz_member(npy_header("__import__('os').mkdir('ran')")), "not a readable .npz file"),
        (npz(HEADER, coords=COORDS)[:-30], "not a readable .npz file: BadZipFile"),
        (b"TYPE : TSP", "not a readable .npz file: BadZipFile"),
        (b"", "the file is empty"),
    ],
)
def test_bad_npz(content, message, tmp_path):
    (tmp_path / "bad.npz").write_bytes(content)
    with pytest.raises(data.InvalidFile, match=rf"(?s)bad\.npz: .*({message})"):
        data.load_npz(tmp_path / "bad.npz")
