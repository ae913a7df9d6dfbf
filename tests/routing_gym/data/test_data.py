"""Reading and writing of TSPLIB, CVRPLIB and OPLib files and tours."""

import errno
import math
import os
import pickle
import threading
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from helpers import ATSP_TEXT, CVRP_TEXT, FIXED_TEXT, OP_TEXT, ROUTES, SEQUENCE, SHARED, TOUR, TSP_TEXT
from routing_gym import ATSP, TSPFE, data
from routing_gym.data.tsplib.matrix import FORMATS
from routing_gym.data.tsplib.metrics import file_distances, planar
from routing_gym.files import write_atomically
from routing_gym.problem import InfeasibleTour
from routing_gym.solvers import ExactMIP

LIBRARIES = SHARED / "data"
FILES = sorted(path for ending in ("tsp", "vrp", "oplib") for path in LIBRARIES.glob(f"*/*.{ending}"))

needs_libraries = pytest.mark.skipif(not FILES, reason=f"{LIBRARIES} is missing")


def write(folder: Path, text: str, name: str = "file.txt") -> Path:
    path = folder / name
    path.write_bytes(text.encode())
    return path


def read(folder: Path, text: str) -> data.FileInstance:
    return data.read_instance(write(folder, text))


@needs_libraries
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_file_reads_and_round_trips(path, tmp_path):
    """Written and read again, a file has the same values; all known solutions score what they state."""
    first = data.read_instance(path)
    first.problem.validate(first.instance)
    data.write_instance(tmp_path / "copy", first)
    second = data.read_instance(tmp_path / "copy")
    for field in ("name", "comments", "metric", "scale", "problem", "cost_limit"):
        assert getattr(first, field) == getattr(second, field)
    for field in ("ids", "coords", "distances"):
        np.testing.assert_array_equal(getattr(first, field), getattr(second, field))
    assert (first.scores is None) == (second.scores is None)
    for key, values in vars(first.instance).items():
        np.testing.assert_array_equal(values, getattr(second.instance, key))
    assert first.best_known is not None  # each file of the library has one
    if first.best_tour is not None:  # CVRPLIB and OPLib: `read_solution` has compared it with the stated cost
        assert first.cost(first.best_tour) == first.best_known
        assert data.write_tour(tmp_path / "tour", first, first.best_tour) == first.best_known
        np.testing.assert_array_equal(data.read_solution(tmp_path / "tour", first).actions, first.best_tour)
        cost = first.problem.objective(first.instance, first.best_tour[None])[0]  # the instance allows it, too
        assert cost == pytest.approx(first.best_cost, rel=1e-5)


@needs_libraries
def test_stated_costs_of_the_library():
    """The numbers that its .sol files and its list `solutions` state."""
    stated = {"X-n101-k25.vrp": 27591, "A-n32-k5.vrp": 784, "berlin52.tsp": 7542, "ulysses16.tsp": 6859}
    stated |= {"eil51-gen2-50.oplib": 1668, "st70-gen3-50.oplib": 2108, "kroA100-gen1-50.oplib": 55}
    best = {path.name: data.read_instance(path).best_known for path in FILES if path.name in stated}
    assert best == stated


@needs_libraries
@pytest.mark.parametrize("name", ["bayg29", "gr17"])
def test_optima_of_explicit_matrices_are_the_published_ones(name):
    pytest.importorskip("scipy")
    file = data.read_instance(LIBRARIES / "tsplib" / f"{name}.tsp")
    solution = ExactMIP().solve(file.problem, file.instance, num_workers=0)
    assert (file.problem.name, file.cost(solution.actions[0])) == ("ATSP", file.best_known)


def test_explicit_matrix_by_hand(tmp_path):
    """1, 2, 3 and back: 2 + 1 + 7 = 10; the other way round 3 + 4 + 5 = 12. The diagonal counts for nothing."""
    file = read(tmp_path, ATSP_TEXT)
    assert (file.problem, file.coords, file.scale, file.metric) == (ATSP(3), None, 7.0, "EXPLICIT")
    assert file.distances.tolist() == [[0, 2, 3], [5, 0, 1], [7, 4, 0]]
    np.testing.assert_allclose(file.instance.distances[0] * 7, file.distances, atol=1e-6)
    assert (file.cost([0, 1, 2]), data.write_tour(tmp_path / "file.tour", file, [2, 1, 0])) == (10, 12)
    assert data.read_instance(file.path).best_known == 12
    data.write_instance(tmp_path / "copy", file)
    np.testing.assert_array_equal(data.read_instance(tmp_path / "copy").distances, file.distances)


@given(drawn=st.data(), size=st.integers(2, 6))
@settings(max_examples=60)
def test_every_format_of_explicit_matrices(drawn, size, tmp_path_factory):
    """The numbers in the order that the format's name says, with line breaks anywhere."""
    layout, numbers = drawn.draw(st.sampled_from(FORMATS)), drawn.draw(st.permutations(range(1, size * size + 1)))
    matrix = np.array(numbers).reshape(size, size)
    matrix = np.maximum(matrix, matrix.T) * (1 - np.eye(size, dtype=int))
    listed = []
    for first in range(size):
        for second in range(size):
            row, column = (second, first) if layout.endswith("COL") else (first, second)
            kept = layout == "FULL_MATRIX" or (column > row if layout.startswith("UPPER") else column < row)
            if kept or (row == column and "DIAG" in layout):
                listed += [str(matrix[row, column]), drawn.draw(st.sampled_from(" \n"))]
    head = f"TYPE : TSP\nDIMENSION : {size}\nEDGE_WEIGHT_TYPE : EXPLICIT\nEDGE_WEIGHT_FORMAT : {layout}\n"
    file = read(tmp_path_factory.getbasetemp(), f"{head}EDGE_WEIGHT_SECTION\n{''.join(listed)}\nEOF\n")
    assert file.distances.tolist() == matrix.tolist()


def test_fixed_edges(tmp_path):
    """The diagonal from 1 to 2 is fixed: with it 5 + 3 + 5 + 3 = 16, where 14 is the rectangle's."""
    file = read(tmp_path, FIXED_TEXT)
    assert (file.problem, file.instance.partner.tolist()) == (TSPFE(4), [[1, 0, 2, 3]])
    assert data.write_tour(tmp_path / "file.tour", file, [0, 1, 2, 3]) == 16
    with pytest.raises(InfeasibleTour, match="a fixed edge joins city 0 and city 1"):
        file.cost([0, 2, 1, 3])
    data.write_instance(tmp_path / "copy", file)
    assert data.read_instance(tmp_path / "copy").instance.partner.tolist() == [[1, 0, 2, 3]]


@needs_libraries
@pytest.mark.parametrize("name", ["burma14", "ulysses16", "att48", "berlin52", "eil51", "st70", "kroA100", "lin105"])
def test_optimal_tours_have_the_published_length(name):
    """A solver that works on our matrix finds the optimum that TSPLIB publishes, and nothing below it."""
    fast_tsp = pytest.importorskip("fast_tsp")
    file = data.read_instance(LIBRARIES / "tsplib" / f"{name}.tsp")
    for _ in range(20):  # of 0.2 s; one is nearly always enough
        tour = np.array(fast_tsp.find_tour(file.distances.tolist(), duration_seconds=0.2))
        if file.cost(tour) <= file.best_known:
            break
    assert file.cost(tour) == file.best_known
    scaled = file.problem.objective(file.instance, tour[None])[0] * file.scale
    assert scaled == pytest.approx(file.best_known, rel=1e-6)


@needs_libraries
def test_geo_distances_as_published():
    """First rows of TSPLIB's own matrices of burma14 and ulysses16."""
    burma = [0, 153, 510, 706, 966, 581, 455, 70, 160, 372, 157, 567, 342, 398]
    ulysses = [0, 509, 501, 312, 1019, 736, 656, 60, 1039, 726, 2314, 479, 448, 479, 619, 150]
    for name, row in (("burma14", burma), ("ulysses16", ulysses)):
        np.testing.assert_array_equal(data.read_instance(LIBRARIES / "tsplib" / f"{name}.tsp").distances[0], row)


@pytest.mark.parametrize(
    ("metric", "point", "expected"),
    [
        ("EUC_2D", (1.5, 2.0), 3),  # 2.5 rounds up
        ("EUC_2D", (1, 1), 1),  # 1.414
        ("CEIL_2D", (1, 1), 2),
        ("CEIL_2D", (3, 4), 5),
        ("ATT", (10, 0), 4),  # sqrt(100 / 10) = 3.16, rounded to 3, is too short
        ("ATT", (3, 1), 1),  # sqrt(10 / 10)
        ("GEO", (1.00, 0.0), 112),  # one degree: 3.141592 / 180 * 6378.388 = 111.32, plus 1, cut
        ("GEO", (0.30, 0.0), 56),  # thirty minutes: 55.66
        ("GEO", (-0.30, 0.0), 56),  # degrees are cut towards zero: 0 degrees, -30 minutes
        ("GEO", (83.13, 0.0), 9264),  # 83 degrees 13 minutes: 9263.9996 with TSPLIB's pi, 9264.0015 with the true one
        ("GEO", (0.0, 0.0), 1),  # two cities in one place, by the definition
    ],
)
def test_metrics_by_hand(metric, point, expected):
    distances = file_distances(np.array([(0.0, 0.0), point]), metric)
    assert distances.tolist() == [[0, expected], [expected, 0]]


@pytest.mark.parametrize("longitude", [0.0, 85.0, 180.0])
def test_points_on_the_globe_become_a_map_by_hand(longitude):
    """Around a centre on the equator, 9 degrees are 3.141592 / 20 * 6378.388 km each way; east is right, north up."""
    east, west = ((longitude + step + 180) % 360 - 180 for step in (9, -9))
    points = np.array([(0, east), (0, west), (9, longitude), (-9, longitude), (0, longitude)])
    nine = 3.141592 / 20 * 6378.388
    expected = np.array([(nine, 0), (-nine, 0), (0, nine), (0, -nine), (0, 0)])
    np.testing.assert_allclose(planar(points, "GEO"), expected, atol=0.01)  # TSPLIB's pi closes no circle
    assert planar(points, "EUC_2D") is points


def test_a_map_of_a_region_keeps_its_lengths():
    """Within 1,500 km of the centre, at 60 degrees north and across the date line, all but rounding is within 1 %."""
    rng = np.random.default_rng(1)
    points = np.stack([np.round(rng.uniform(55, 65, 50)), (np.round(rng.uniform(170, 190, 50)) + 180) % 360 - 180], 1)
    lengths, places = file_distances(points, "GEO"), planar(points, "GEO")
    mapped = np.hypot(*(places[:, None] - places).transpose(2, 0, 1))
    np.testing.assert_allclose(mapped, lengths, rtol=0.01, atol=1.0)


@given(st.lists(st.tuples(st.integers(-5000, 5000), st.integers(-5000, 5000)), min_size=2, max_size=8))
@settings(max_examples=50)
def test_metrics_equal_exact_integer_arithmetic(points):
    """With s the sum of squares: nint(sqrt(s)) = (isqrt(4 s) + 1) // 2; the others are ceilings."""

    def ceil_sqrt(numerator: int, denominator: int) -> int:
        root = math.isqrt(numerator // denominator)
        return root + (denominator * root * root < numerator)

    euc, ceil, att = (file_distances(np.array(points, dtype=float), name) for name in ("EUC_2D", "CEIL_2D", "ATT"))
    for i, (x, y) in enumerate(points):
        for j, (u, v) in enumerate(points):
            square = (x - u) ** 2 + (y - v) ** 2
            assert euc[i, j] == (math.isqrt(4 * square) + 1) // 2
            assert ceil[i, j] == ceil_sqrt(square, 1)
            assert att[i, j] == ceil_sqrt(square, 10)


def city_file(size: int, metric: str) -> str:
    coords = np.random.default_rng(1).integers(0, 3000, (size, 2))
    rows = "".join(f"{i} {x} {y}\n" for i, (x, y) in enumerate(coords, start=1))
    return f"TYPE : TSP\nDIMENSION : {size}\nEDGE_WEIGHT_TYPE : {metric}\nNODE_COORD_SECTION\n{rows}EOF\n"


def test_large_files_do_without_a_matrix(tmp_path):
    """5,000 cities: at no time while they are read and scored are there 4 bytes for each pair (100 MB).

    There are 55 MB, nearly all of them the reader's bound on a file's size.
    """
    path = write(tmp_path, city_file(5000, "EUC_2D"))
    tracemalloc.start()
    data.read_instance(path, max_matrix_nodes=4999).cost(np.arange(5000))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * 5000**2


@pytest.mark.parametrize("metric", ["EUC_2D", "CEIL_2D", "ATT"])
def test_costs_without_a_matrix_are_the_files(metric, tmp_path):
    path, tour = write(tmp_path, city_file(200, metric)), np.arange(200)
    file, usual = data.read_instance(path, max_matrix_nodes=199), data.read_instance(path, max_matrix_nodes=200)
    assert file.instance.distances is None
    np.testing.assert_array_equal(usual.instance.distances[0], (usual.distances / usual.scale).astype(np.float32))
    assert file.cost(tour) == usual.cost(tour) == usual.distances[tour, np.roll(tour, -1)].sum()


@pytest.mark.parametrize("text", [OP_TEXT, ATSP_TEXT, CVRP_TEXT.replace("EUC_2D", "GEO")], ids=["OP", "ATSP", "GEO"])
def test_what_needs_a_matrix_has_one(text, tmp_path):
    """OP's limit is in the file's integers, ATSP has no coordinates, and GEO's are degrees."""
    assert data.read_instance(write(tmp_path, text), max_matrix_nodes=0).instance.distances is not None


def test_cvrp_with_depot_3(tmp_path):
    """Depot (30, 40); actions 1, 2, 3 are nodes 1 (0, 0), 2 (0, 40) and 4 (30, 0), the scale is 40.

    1 and 2 fill one vehicle (2 + 3 = 5): 50 + 40 + 30 = 120; node 4 takes 40 + 40: together 200.
    """
    file = read(tmp_path, CVRP_TEXT)
    assert (file.name, file.comments, file.scale, file.ids.tolist()) == ("square", ("one", "two"), 40.0, [3, 1, 2, 4])
    assert file.instance.coords.tolist() == [[[0.75, 1.0], [0.0, 0.0], [0.0, 1.0], [0.75, 0.0]]]
    assert file.instance.distances[0, 0].tolist() == [0.0, 1.25, 0.75, 1.0]
    assert (file.instance.demand.tolist(), file.instance.capacity.tolist()) == ([[0, 2, 3, 5]], [5])
    assert (file.problem.num_nodes, file.best_known, file.problem.maximises) == (3, None, False)
    assert file.cost([1, 2, 0, 3, 0]) == 200
    with pytest.raises(InfeasibleTour, match="row 0, step 2: load 10 exceeds capacity 5"):
        file.cost([1, 2, 3, 0])


def test_cvrp_tour_in_the_files_numbers(tmp_path):
    """CVRPLIB counts nodes from 0, so that nodes 1, 2 and 4 are written as 0, 1 and 3."""
    file = read(tmp_path, CVRP_TEXT)
    assert data.write_tour(tmp_path / "file.sol", file, np.array([1, 2, 0, 3, 0, 0])) == 200
    assert (tmp_path / "file.sol").read_text() == "Route #1: 0 1\nRoute #2: 3\nCost 200\n"
    again = data.read_instance(file.path)
    assert (again.best_known, again.best_tour.tolist()) == (200, [1, 2, 0, 3, 0])


def test_tsp_tour_files(tmp_path):
    """A 3 x 4 rectangle: around it 14; crossing twice 5 + 4 + 5 + 4 = 18. The list knows 13 and no tour."""
    file = read(tmp_path, TSP_TEXT)
    assert data.write_tour(tmp_path / "file.tour", file, [0, 1, 2, 3]) == 3 + 5 + 5 + 3
    assert data.read_solution(tmp_path / "file.tour", file).actions.tolist() == [0, 1, 2, 3]
    assert data.write_tour(tmp_path / "file.opt.tour", file, [3, 1, 2, 0]) == 14
    again = data.read_instance(file.path)
    assert (again.best_known, again.best_tour.tolist()) == (14, [3, 1, 2, 0])
    write(tmp_path, "other : 5\nfile : 13 (never reached)\n", "solutions")
    again = data.read_instance(file.path)
    assert (again.best_known, again.best_tour) == (13, None)
    write(tmp_path, "file : 12 (CEIL_2D)\nfile : 13 (EUC_2D)\n", "solutions")
    assert data.read_instance(file.path).best_known == 13
    assert read(tmp_path, CVRP_TEXT).best_known is None  # a TSP and a CVRP may have one name


def test_op_counts_the_depots_score_and_checks_the_limit_in_integers(tmp_path):
    """Nodes at 0, 10 and 11: node 2 costs 20, the limit; node 3 costs 22. Depot 7 + node 2's 5 = 12."""
    file = read(tmp_path, OP_TEXT)
    assert file.problem.maximises
    assert (file.cost([1, 0]), file.cost([0]), file.length([1, 0])) == (12, 7, 20)
    assert file.instance.prize.tolist() == [[0.0, 5.0, 6.0]]
    assert file.problem.action_mask(file.instance, file.problem.initial(file.instance)).tolist() == [
        [True, True, False]
    ]
    with pytest.raises(InfeasibleTour, match="row 0, step 1: length 22 exceeds COST_LIMIT 20"):
        file.cost([2, 0])
    assert data.write_tour(tmp_path / "file.sol", file, [1, 0]) == 12
    again = data.read_instance(file.path)
    assert (again.best_known, again.best_tour.tolist()) == (12, [1, 0])


@st.composite
def orienteering_files(draw: st.DrawFn, largest: int) -> tuple[str, list[int]]:
    """An OP file with its limit at the length of a tour, one less or one more, and that tour."""
    coordinate = st.integers(0, largest)
    points = draw(st.lists(st.tuples(coordinate, coordinate), min_size=3, max_size=6))
    tour = draw(st.permutations(range(1, len(points))))
    distances = file_distances(np.array(points, dtype=float), "EUC_2D")
    limit = max(0, int(distances[[0, *tour], [*tour, 0]].sum()) + draw(st.integers(-1, 1)))
    coords = "".join(f"{i} {x} {y}\n" for i, (x, y) in enumerate(points, start=1))
    scores = "".join(f"{i} 1\n" for i in range(1, len(points) + 1))
    head = f"TYPE : OP\nDIMENSION : {len(points)}\nCOST_LIMIT : {limit}\nEDGE_WEIGHT_TYPE : EUC_2D\n"
    return f"{head}NODE_COORD_SECTION\n{coords}NODE_SCORE_SECTION\n{scores}DEPOT_SECTION\n1\n-1\n", tour


def masks_along(file: data.FileInstance, tour: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Masks of the unvisited at each step of a tour, by the environment and by the rule in integers."""
    state, node, length = file.problem.initial(file.instance), 0, 0
    masks, rules = [], []
    for step, following in enumerate(tour):
        rest = tour[step:]
        masks.append(file.problem.action_mask(file.instance, state)[0, rest])
        rules.append(length + file.distances[node, rest] + file.distances[rest, 0] <= file.cost_limit)
        length, node = length + file.distances[node, following], following
        state, _ = file.problem.step(file.instance, state, np.array([node]))
    return np.concatenate(masks), np.concatenate(rules)


@given(drawn=orienteering_files(largest=10**6))
@settings(max_examples=80)
def test_op_mask_is_exact_to_one_unit(drawn, tmp_path_factory):
    file = read(tmp_path_factory.getbasetemp(), drawn[0])
    assume(file.cost_limit < 2_700_000)  # beyond, float32 is too coarse
    np.testing.assert_array_equal(*masks_along(file, drawn[1]))


@given(drawn=orienteering_files(largest=10**9))
@settings(max_examples=60)
def test_op_mask_errs_on_the_safe_side_where_float32_is_too_coarse(drawn, tmp_path_factory):
    masks, rules = masks_along(read(tmp_path_factory.getbasetemp(), drawn[0]), drawn[1])
    assert not (masks & ~rules).any()


def test_op_limit_is_exact_where_float32_is_too_coarse(tmp_path):
    """At 800,000,000 one unit is below float32's resolution of 2**-24; tours are still told apart."""
    text = OP_TEXT.replace("2 10 0", "2 400000000 0").replace("3 11 0", "3 400000001 0").replace(": 20", ": 800000000")
    file = read(tmp_path, text)
    assert file.cost([1, 0]) == 12
    with pytest.raises(InfeasibleTour, match="length 800000002 exceeds COST_LIMIT 800000000"):
        file.cost([2, 0])


def test_a_limit_that_allows_no_tour_but_the_empty_one(tmp_path):
    """Over coordinates of some ten million, a COST_LIMIT of 0 is 0.5 / 10^7 - 5e-7 < 0 sides of the square."""
    (tmp_path / "far.oplib").write_text(OP_TEXT.replace("COST_LIMIT : 20", "COST_LIMIT : 0").replace("10 0", "1e7 0"))
    file = data.read_instance(tmp_path / "far.oplib")
    file.problem.validate(file.instance)
    assert file.cost(np.array([0])) == 7  # the depot's own score


def test_no_escape_sequence_reaches_the_terminal(tmp_path):
    """Neither from a file's name nor from old files, whose bytes from 0x80 to 0x9f are punctuation in cp1252."""
    (tmp_path / "a\x1b[31mb.tsp").touch()
    with pytest.raises(data.InvalidFile, match=r"/a\\x1b\[31mb.tsp: the file is empty") as caught:
        data.read_instance(tmp_path / "a\x1b[31mb.tsp")
    assert "\x1b" not in str(pickle.loads(pickle.dumps(caught.value)))
    (tmp_path / "old.tsp").write_bytes(TSP_TEXT.replace("square", "the \x93square\x94\x81").encode("latin-1"))
    assert data.read_instance(tmp_path / "old.tsp").name == "the \u201csquare\u201d\ufffd"


def test_all_nodes_in_one_place(tmp_path):
    file = read(tmp_path, TSP_TEXT.replace("2 3 4", "2 0 0").replace("3 0 4", "3 0 0").replace("4 3 0", "4 0 0"))
    file.problem.validate(file.instance)
    assert (file.scale, file.cost([0, 1, 2, 3])) == (1.0, 0)


INVALID = [  # the text, a part and its replacement, and the error
    (TSP_TEXT, "DIMENSION : 4", "DIMENSION : 5", r":9: NODE_COORD_SECTION: found 4 nodes, .* 5; node 5 is missing"),
    (TSP_TEXT, "DIMENSION : 4", "DIMENSION : 3", ":9: NODE_COORD_SECTION: found node 4, expected 1 to DIMENSION 3"),
    (TSP_TEXT, "DIMENSION : 4", "DIMENSION : -4", r":3: DIMENSION: found '-4', expected an integer of at least 2"),
    (TSP_TEXT, "DIMENSION : 4", "DIMENSION : 1_0", r":3: DIMENSION: found '1_0', expected an integer"),
    (TSP_TEXT, "DIMENSION : 4", "DIMENSION : 4\nDIMENSION : 4", ":4: DIMENSION is given again; .* line 3"),
    (TSP_TEXT, "DIMENSION : 4\n", "", ":9: the file ends without DIMENSION"),
    (TSP_TEXT, "TYPE : TSP\n", "", ":9: the file ends without TYPE"),
    (TSP_TEXT, "NODE_COORD_SECTION\n1 0 0\n2 3 4\n3 0 4\n4 3 0\n", "", ":5: the file ends without NODE_COORD_SECTION"),
    (TSP_TEXT, "4 3 0\nEOF\n", "4 3", ":9: NODE_COORD_SECTION: found '4 3', expected 'node x y'"),
    (TSP_TEXT, "4 3 0", "3 3 0", ":9: NODE_COORD_SECTION: node 3 is already given in line 8"),
    (TSP_TEXT, "4 3 0", "4 nan 0", r":9: coordinate: found 'nan', expected a number of at most 1e\+09"),
    (TSP_TEXT, "4 3 0", "4 1e999 0", ":9: coordinate: found '1e999'"),
    (TSP_TEXT, "4 3 0", "4 3 -inf", ":9: coordinate: found '-inf'"),
    (TSP_TEXT, "4 3 0", "4 3 0x1", ":9: coordinate: found '0x1'"),
    (TSP_TEXT, "2 3 4\n3 0 4\n4 3 0", "2 0 1e-300\n3 0 0\n4 0 0", ":5: all nodes lie within 1e-300"),
    (TSP_TEXT, "EOF\n", "EOF\n1 2 3\n", ":11: found '1 2 3' after EOF"),
    (TSP_TEXT, "NAME : square", "1 2 3", ":1: found '1 2 3', expected a line 'KEYWORD : value'"),
    (TSP_TEXT, "NAME : square", "NAME square", ":1: found 'NAME square', expected a line 'KEYWORD : value'"),
    (TSP_TEXT, "TYPE : TSP", "TYPE : TSP\nCAPACITY : 3", ":3: CAPACITY is not allowed with TYPE TSP"),
    (TSP_TEXT, ": square", ": \x9b31m", r":1: found control character '\\x9b', expected a text file"),
    (TSP_TEXT, "4 3 0", "4 3 \0", r":9: found control character '\\x00', expected a text file"),
    (ATSP_TEXT, " 7\n4", "\n4", ":8: EDGE_WEIGHT_SECTION: found 8 numbers, expected 9: FULL_MATRIX with DIMENSION 3"),
    (ATSP_TEXT, "4 9999", "4 9999 6", ":8: EDGE_WEIGHT_SECTION: found 10 numbers, expected 9: FULL_MATRIX"),
    (ATSP_TEXT, "FULL_MATRIX", "UPPER_ROW", ":7: EDGE_WEIGHT_SECTION: found 9 numbers, expected 3: UPPER_ROW with"),
    (ATSP_TEXT, "5 9999", "-5 9999", ":7: EDGE_WEIGHT_SECTION: found '-5', expected an integer of at least 0"),
    (ATSP_TEXT, "5 9999", "5.5 9999", ":7: EDGE_WEIGHT_SECTION: found '5.5', expected an integer"),
    (ATSP_TEXT, ": ATSP", ": TSP", ":6: from node 1 to 2 it is 2, and back 5; if this is meant, expected TYPE : ATSP"),
    (ATSP_TEXT, "EDGE_WEIGHT_FORMAT : FULL_MATRIX\n", "", ":8: the file ends without EDGE_WEIGHT_FORMAT"),
    (ATSP_TEXT, "EDGE_WEIGHT_SECTION\n9999 2 3\n5 9999 1 7\n4 9999\n", "", ":5: the file ends without EDGE_WEIGHT_S"),
    (TSP_TEXT, "EOF", "EDGE_WEIGHT_SECTION\n1\nEOF", ":10: EDGE_WEIGHT_SECTION has no place with EDGE_WEIGHT_TYPE EUC"),
    (FIXED_TEXT, "1 2\n-1", "1 2 3\n-1", ":11: fixed edge: found node 3 alone, expected two nodes"),
    (FIXED_TEXT, "1 2\n", "3 3\n", ":11: fixed edge: joins node 3 with itself; leave it out"),
    (FIXED_TEXT, "1 2\n-1", "1 5\n-1", ":11: fixed edge: found node 5, expected 1 to 4"),
    (FIXED_TEXT, "1 2\n-1", "1 2\n", ":13: FIXED_EDGES_SECTION does not end; expected -1"),
    (CVRP_TEXT, "4 5 ", "4 6 ", ":18: demand: found 6, expected at most the CAPACITY 5"),
    (CVRP_TEXT, "4 5 ", "4 -5 ", ":18: demand: found '-5', expected an integer of at least 0"),
    (CVRP_TEXT, "3 0\r", "3 1\r", ":17: DEMAND_SECTION: found demand 1 at the depot, node 3; expected 0"),
    (CVRP_TEXT, "\t3\r\n -1", "\t5\r\n -1", ":20: found depot 5, expected a node from 1 to 4"),
    (CVRP_TEXT, "\t3\r\n -1", "\t3", ":20: DEPOT_SECTION does not end; expected -1"),
    (CVRP_TEXT, "\t3\r\n -1", " -1", ":19: found no depot, expected one"),
    (CVRP_TEXT, "CAPACITY : 5", "CAPACITY : 0", ":7: CAPACITY: found '0', expected an integer of at least 1"),
    (CVRP_TEXT, "CAPACITY : 5", "CAPACITY : 9999999999999", ":7: CAPACITY: found '9999999999999'.* 12 digits"),
    (OP_TEXT, "COST_LIMIT : 20", "COST_LIMIT : 20.5", ":4: COST_LIMIT: found '20.5', expected an integer"),
    (OP_TEXT, "3 6\n", "", ":12: NODE_SCORE_SECTION: found 2 nodes, expected DIMENSION 3; node 3 is missing"),
    (CVRP_TEXT, "EUC_2D", "EXPLICIT", "the file ends without EDGE_WEIGHT_FORMAT"),
    (
        CVRP_TEXT,
        "DEMAND_SECTION",
        "EDGE_WEIGHT_SECTION\n0\nDEMAND_SECTION",
        ":14: EDGE_WEIGHT_SECTION has no place with",
    ),
]
UNSUPPORTED = [
    (TSP_TEXT, "TYPE : TSP", "TYPE : HCP", r":2: TYPE 'HCP' is not supported; supported are files of TYPE TSP, ATSP"),
    (TSP_TEXT, "TYPE : TSP", "TYPE : ATSP", ":4: .* 'EUC_2D' is not supported with TYPE ATSP; expected EXPLICIT"),
    (ATSP_TEXT, "FULL_MATRIX", "FUNCTION", ":4: EDGE_WEIGHT_FORMAT 'FUNCTION' .* expected one of FULL_MATRIX, UPPER_"),
    (ATSP_TEXT, ": 3", ": 3000", ":2: DIMENSION 3000 exceeds 2000, the most with EDGE_WEIGHT_TYPE EXPLICIT"),
    (FIXED_TEXT, "EUC_2D", "EXPLICIT", ":5: NODE_COORD_SECTION is not supported with EDGE_WEIGHT_TYPE EXPLICIT"),
    (
        FIXED_TEXT,
        "1 2\n",
        "1 2\n4 1\n",
        ":12: node 1 has a fixed edge in line 11 already; .* contract a chain of edges",
    ),
    (TSP_TEXT, "EUC_2D", "EUC_3D", ":4: EDGE_WEIGHT_TYPE 'EUC_3D' is not supported; .* EUC_2D, CEIL_2D, ATT, GEO"),
    (TSP_TEXT, "DIMENSION : 4", "DIMENSION : 999999999", r":3: DIMENSION 999999999 exceeds 10000; .* max_nodes"),
    (TSP_TEXT, "TYPE", "EDGE_WEIGHT_FORMAT : FULL_MATRIX\nTYPE", ":2: EDGE_WEIGHT_FORMAT 'FULL_MATRIX' is not"),
    (TSP_TEXT, "TYPE", "MIN_TRUCKS : 3\nTYPE", ":2: keyword 'MIN_TRUCKS' is not supported; supported are COMMENT"),
    (
        CVRP_TEXT,
        "CAPACITY",
        "DISTANCE : 200\r\nCAPACITY",
        r":7: a maximum route duration \(DISTANCE\) is not supported",
    ),
    (CVRP_TEXT, "\t3\r\n -1", "3\r\n4\r\n -1", r":21: multiple depots \(2\) are not supported; expected one"),
]


@pytest.mark.parametrize(("text", "part", "replacement", "message"), INVALID)
def test_invalid_files(text, part, replacement, message, tmp_path):
    assert part in text
    with pytest.raises(data.InvalidFile, match=message):
        read(tmp_path, text.replace(part, replacement, 1))


@pytest.mark.parametrize(("text", "part", "replacement", "message"), UNSUPPORTED)
def test_unsupported_files(text, part, replacement, message, tmp_path):
    assert part in text
    with pytest.raises(data.UnsupportedFile, match=message):
        read(tmp_path, text.replace(part, replacement, 1))


@pytest.mark.parametrize(("old", "new"), [("2 3 4", "2 1e6 4"), ("3 0 4", "3 0 -1e6"), ("4 3 0", "4 90.01 0")])
def test_places_that_are_not_on_earth(old, new, tmp_path):
    """GEO coordinates are degrees; the arcs between 10^6 of them were lengths all the same."""
    with pytest.raises(data.InvalidFile, match=r"coordinate: found .*, expected a number of at most (90|360)$"):
        read(tmp_path, TSP_TEXT.replace("EUC_2D", "GEO").replace(old, new))


def test_files_that_are_no_files(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        data.read_instance(tmp_path / "nowhere")
    with pytest.raises(data.InvalidFile, match="not a regular file"):
        data.read_instance(tmp_path)
    with pytest.raises(data.InvalidFile, match="not a regular file"):
        data.read_instance("/dev/zero")
    with pytest.raises(data.InvalidFile, match="the file is empty"):
        read(tmp_path, "")
    with pytest.raises(data.InvalidFile, match="larger than 1,048,789 bytes"):
        data.read_instance(write(tmp_path, " " * 2**21), max_nodes=1)


def test_end_of_file_as_a_keyword(tmp_path):
    assert read(tmp_path, TSP_TEXT.replace("EOF", "EOF :")).problem.num_nodes == 4


@pytest.mark.parametrize(
    ("instance", "solution", "part", "replacement", "message"),
    [
        (TSP_TEXT, TOUR, "3\n4", "3\n3", ":3: not a tour of .*: row 0, step 3: node 2 is already visited"),
        (TSP_TEXT, TOUR, "3\n4", "3\n5", ":6: found node 5, expected 1 to 4 as in"),
        (TSP_TEXT, TOUR, "3\n4\n-1\n-1\n", "3\n4\n", ":7: TOUR_SECTION does not end; expected -1"),
        (TSP_TEXT, TOUR, "-1\n-1", "-1\n1", ":8: TOUR_SECTION: found 1 after the closing -1"),
        (TSP_TEXT, TOUR, ": 4", ": 5", ":2: DIMENSION: found '5', expected 4"),
        (TSP_TEXT, TOUR, ": TOUR", ": TSP", ":1: TYPE: found 'TSP', expected TOUR"),
        (CVRP_TEXT, ROUTES, "200", "199", ":4: found cost 199, but the routes cost 200"),
        (CVRP_TEXT, ROUTES, "200", "199.0", ":4: found cost 199, but the routes cost 200"),
        (CVRP_TEXT, ROUTES, "200", "1e99", ":4: found '1e99', expected an integer"),
        (CVRP_TEXT, ROUTES, "cost 200\n", "", ":3: the file ends without its cost; expected 'Cost 200'"),
        (CVRP_TEXT, ROUTES, "2 : 3", "2 : 2", ":2: found the depot, 2, within a route"),
        (CVRP_TEXT, ROUTES, "2 : 3", "2 : x", ":2: found 'x', expected an integer"),
        (CVRP_TEXT, ROUTES, "2 : 3", "2 : 0", ":4: not a tour of .* node 1 is already visited"),
        (CVRP_TEXT, ROUTES, "0 1\nroute 2 : 3", "0 1 3", ":3: not a tour of .* load 10 exceeds capacity 5"),
        (CVRP_TEXT, ROUTES, "cost 200\n", "cost 200\ntime 3\n", ":5: found 'time 3' after the cost"),
        (CVRP_TEXT, ROUTES, "route", "rout", ":2: found 'rout 2 : 3', expected 'Route #1"),
        (OP_TEXT, SEQUENCE, "12", "13", ":3: ROUTE_SCORE: found '13', but the sequence and its instance give 12"),
        (OP_TEXT, SEQUENCE, "1\n2\n", "2\n", ":5: found no depot at the start, expected node 1"),
        (OP_TEXT, SEQUENCE, "1\n2\n", "1\n3\n", ":5: not a tour of .* length 22 exceeds COST_LIMIT 20"),
    ],
)
def test_invalid_solutions(instance, solution, part, replacement, message, tmp_path):
    file = read(tmp_path, instance)
    path = write(tmp_path, solution, "solution")
    data.read_solution(path, file)
    assert part in solution
    path.write_text(solution.replace(part, replacement, 1))
    with pytest.raises(data.InvalidFile, match=f"solution{message}"):
        data.read_solution(path, file)


def test_routes_of_unrounded_distances(tmp_path):
    """CVRPLIB's older sets state such costs, and their instances do not tell."""
    file = read(tmp_path, CVRP_TEXT)
    assert data.read_solution(write(tmp_path, ROUTES.replace("200", "200.00"), "solution"), file).cost == 200
    write(tmp_path, ROUTES.replace("200", "199.83"), "file.sol")
    with pytest.raises(data.UnsupportedFile, match=r"file.sol:4: cost 199.83 is of distances that are not rounded"):
        data.read_instance(file.path)


def test_a_file_name_is_a_name_only_where_it_can_be_written(tmp_path):
    """A file of a system with another encoding; one with a line break, which would be another line of a tour."""
    for name in ("Gr\udcf6\udcdfe.tsp", "ein\nzwei.tsp"):
        path = tmp_path / name
        path.write_text(
            "TYPE: TSP\nDIMENSION: 3\nEDGE_WEIGHT_TYPE: EUC_2D\nNODE_COORD_SECTION\n1 0 0\n2 3 0\n3 3 4\nEOF\n"
        )
        name = data.read_instance(path).name
        assert name.encode()
        assert len(name.splitlines()) == 1


def test_a_pipe_is_written_to(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    received = []
    reader = threading.Thread(target=lambda: received.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    write_atomically(tmp_path / "pipe", b"a plan")
    reader.join(10)
    assert received == [b"a plan"]
    assert (tmp_path / "pipe").is_fifo()


def test_a_link_stays_one(tmp_path):
    (tmp_path / "file").write_text("old")
    (tmp_path / "link").symlink_to("file")
    write_atomically(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "new"


@pytest.mark.parametrize(
    "line", ["route" + " " * 10**6 + "x", "cost" + " " * 10**6 + "1 x", "route #1: " + "1" * 10**6]
)
def test_hostile_lines_take_no_time(line, tmp_path):
    """A pattern that tries every way to split the blanks would need hours."""
    file = read(tmp_path, CVRP_TEXT)
    with pytest.raises(data.InvalidFile, match=":1: found '"):
        data.read_solution(write(tmp_path, line, "solution"), file)


def test_a_corrupt_solution_beside_an_instance_is_named(tmp_path):
    write(tmp_path, TOUR.replace("1 2", "1 1"), "file.tour")
    with pytest.raises(data.InvalidFile, match=r"file\.tour:3: not a tour"):
        read(tmp_path, TSP_TEXT)
    (tmp_path / "file.tour").unlink()
    write(tmp_path, "file : about 14\n", "solutions")
    with pytest.raises(data.InvalidFile, match="solutions:1: found 'about', expected an integer"):
        read(tmp_path, TSP_TEXT)


def test_failed_writes_leave_what_was_there(tmp_path, monkeypatch):
    file = read(tmp_path, TSP_TEXT)
    path = write(tmp_path, "precious", "file.tour")
    with pytest.raises(InfeasibleTour, match="node 1 is already visited"):
        data.write_tour(path, file, [0, 1, 1, 3])
    with pytest.raises(OSError, match="nowhere"):
        data.write_tour(tmp_path / "nowhere" / "file.tour", file, [0, 1, 2, 3])

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr("routing_gym.files.os.fsync", full)
    with pytest.raises(OSError, match="no space left"):
        data.write_tour(path, file, [0, 1, 2, 3])
    assert path.read_text() == "precious"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file.tour", "file.txt"]


def test_errors_survive_the_way_between_processes():
    error = pickle.loads(pickle.dumps(data.InvalidFile(Path("a.tsp"), 3, "found x")))
    assert (str(error), error.path, error.line) == ("a.tsp:3: found x", Path("a.tsp"), 3)
