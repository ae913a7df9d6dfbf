"""The pointer network's tasks against values worked out by hand and brute force, and the solved examples on disk."""

import itertools
import json

import numpy as np
import pytest

from routing_agents.policies.pointer import labels
from routing_agents.policies.pointer.labels import Block, labelled
from routing_agents.policies.pointer.sequences import (
    PADDING,
    arrange,
    counter_clockwise,
    incentres,
    signed_area,
    stack,
    triangle_order,
)
from routing_agents.policies.pointer.tasks import TASKS, is_simple, solve_tours, tour_lengths, triangles

TSP, HULL, DELAUNAY = (TASKS[name] for name in ("tsp", "convex-hull", "delaunay"))
SQUARE = np.array([[[0.0, 0.0], [0.5, 0.4], [1.0, 1.0], [1.0, 0.0], [0.0, 1.0]]], dtype=np.float32)  # 1 is inside


def answers(*rows):
    return stack([list(row) for row in rows], max(map(len, rows)))


def draw(size, count=200, seed=0):
    return np.random.default_rng(seed).random((count, size, 2), dtype=np.float32)


@pytest.mark.parametrize("size", [2, 3, 5, 7])
def test_optimal_tours_equal_brute_force(size):
    points = draw(size, 20)
    tours = np.array([[0, *rest] for rest in itertools.permutations(range(1, size))])
    shortest = [tour_lengths(np.repeat(p[None], len(tours), axis=0), tours).min() for p in points]
    assert tour_lengths(points, solve_tours(points, "optimal")) == pytest.approx(shortest, abs=1e-6)


def test_labels_beyond_held_karp_are_close_to_optimal(monkeypatch):
    """With 12 cities both ways of labelling are at hand."""
    points = draw(12, 200)
    best = tour_lengths(points, solve_tours(points, "optimal"))
    monkeypatch.setattr("routing_agents.policies.pointer.tasks.MAX_NODES", 11)
    near = tour_lengths(points, solve_tours(points, "optimal"))
    assert (near < best + 1e-6).mean() > 0.98
    assert near.mean() / best.mean() - 1 < 1e-4


@pytest.mark.parametrize("name", ["a1", "a2", "a3"])
def test_cheap_labels_are_tours(name):
    if name == "a3":
        pytest.importorskip("networkx")
    points = draw(8, 10)
    assert TSP.metrics(points, solve_tours(points, name), solve_tours(points, "optimal"))["valid"] == 1


def test_hull_of_a_square_with_a_point_inside():
    """Corners 0 (0, 0), 3 (1, 0), 2 (1, 1), 4 (0, 1): counter-clockwise from the lowest index; 1 lies inside."""
    hull = HULL.canonical(SQUARE, HULL.solve(SQUARE, "optimal"))
    assert hull.tolist() == [[0, 3, 2, 4, PADDING]]
    assert signed_area(SQUARE, hull).tolist() == [1.0]


def test_hull_leaves_out_points_on_an_edge_and_duplicates():
    """(0.5, 0) lies between two corners; (0, 0) is there twice, and either of the two may stand for it."""
    points = np.array([[[0, 0], [0.5, 0], [1, 0], [0, 1], [0, 0]]], dtype=np.float32)
    (hull,) = HULL.canonical(points, HULL.solve(points, "optimal")).tolist()
    assert hull[:3] in ([0, 2, 3], [2, 3, 4])
    assert set(hull[3:]) == {PADDING}


@pytest.mark.parametrize("task", [HULL, DELAUNAY], ids=lambda task: task.name)
def test_points_on_a_line_are_refused(task):
    line = np.array([[0.1, 0.1], [0.5, 0.5], [0.9, 0.9]], dtype=np.float32)
    with pytest.raises(ValueError, match="row 1: the 3 points lie on a line"):
        task.solve(np.stack([SQUARE[0, [0, 2, 3]], line]), "optimal")


def test_duplicates_have_no_triangulation():
    with pytest.raises(ValueError, match=r"row 0: points that repeat others: . \(of .\); remove them first"):
        DELAUNAY.solve(np.concatenate([SQUARE, SQUARE[:, :1]], axis=1), "optimal")


def test_where_points_lie_does_not_matter():
    """Fifty points a few metres apart, in coordinates of a map: the triangles of the same points at the origin."""
    points = np.random.default_rng(0).random((1, 50, 2)) * 10
    there = DELAUNAY.solve(points + np.array([5e5, 5.5e6]), "optimal")
    assert triangles(there[0]) == triangles(DELAUNAY.solve(points, "optimal")[0])


@pytest.mark.parametrize("task", [HULL, DELAUNAY], ids=lambda task: task.name)
def test_points_that_are_none_are_refused(task):
    points = np.concatenate([SQUARE, SQUARE])
    for value in (np.nan, np.inf):
        points[1, 2, 0] = value
        with pytest.raises(ValueError, match=rf"row 1: point 2 is at \[ *{value} .*; expected finite numbers"):
            task.solve(points, "optimal")
    with pytest.raises(ValueError, match="row 0: 2 points; expected at least 3"):
        task.solve(SQUARE[:, :2], "optimal")


def test_hulls_equal_brute_force():
    """An edge is on the hull if all other points lie on its left."""
    points = draw(7, 50)
    found = HULL.canonical(points, HULL.solve(points, "optimal"))
    for one, answer in zip(points.astype(float), found, strict=True):
        on_left = {
            (i, j)
            for i, j in itertools.permutations(range(7), 2)
            if all(np.linalg.det([one[j] - one[i], one[k] - one[i]]) > 0 for k in range(7) if k not in (i, j))
        }
        corners = answer[answer != PADDING].tolist()
        assert set(zip(corners, corners[1:] + corners[:1], strict=True)) == on_left
        assert corners[0] == min(corners)


def test_triangulations_equal_brute_force():
    """A triangle belongs to it if no other point lies inside the circle round it."""
    points = draw(6, 30)
    found = DELAUNAY.solve(points, "optimal").reshape(30, -1, 3)
    for one, answer in zip(points.astype(float), found, strict=True):
        ours = {tuple(sorted(t)) for t in answer.tolist() if t[0] != PADDING}
        outside = {
            corners
            for corners in itertools.combinations(range(6), 3)
            if not any(in_circle(one, corners, k) for k in range(6) if k not in corners)
        }
        assert ours == outside


def in_circle(points, corners, k):
    """Whether point k is nearer to the centre of the circle round three points than they are."""
    a, b, c = points[list(corners)]
    matrix = 2 * np.array([b - a, c - a])
    centre = np.linalg.solve(matrix, [b @ b - a @ a, c @ c - a @ a])
    return np.linalg.norm(points[k] - centre) < np.linalg.norm(a - centre)


def test_incentre_of_a_3_4_5_triangle():
    """Right angle at the origin, legs 3 and 4: the inscribed circle has radius (3 + 4 - 5) / 2 = 1."""
    points = np.array([[[0, 0], [3, 0], [0, 4]]], dtype=np.float32)
    assert incentres(points, np.array([[[0, 1, 2]]])).tolist() == [[[1.0, 1.0]]]


def test_order_of_triangles():
    """Incentres at x = 1 and x = 11: the left triangle comes first, whatever the order of indices was."""
    points = np.array([[[10, 0], [13, 0], [10, 4], [0, 0], [3, 0], [0, 4]]], dtype=np.float32)
    ordered = triangle_order(points, answers([2, 0, 1, 5, 4, 3, PADDING, PADDING, PADDING]))
    assert ordered.tolist() == [[3, 4, 5, 0, 1, 2, PADDING, PADDING, PADDING]]


def test_counter_clockwise_from_the_lowest_index():
    """Clockwise 4, 2, 3, 0 becomes 0, 3, 2, 4; a triangle that was turned only is turned back."""
    turned = counter_clockwise(np.repeat(SQUARE, 2, axis=0), answers([4, 2, 3, 0], [3, 2, 0]))
    assert turned.tolist() == [[0, 3, 2, 4], [0, 3, 2, PADDING]]


def test_tour_without_area_goes_to_the_lower_neighbour():
    line = np.array([[[0, 0], [0.5, 0.5], [1, 1]]], dtype=np.float32)
    assert counter_clockwise(line, answers([0, 2, 1])).tolist() == [[0, 1, 2]]


@pytest.mark.parametrize("order", ["sorted", "given"])
@pytest.mark.parametrize("task", TASKS.values(), ids=lambda task: task.name)
def test_arranged_examples_are_solved_examples(task, order):
    """What comes of symmetries and another order is what solving the turned points anew gives."""
    points = draw(8, 100)
    solved = task.solve(points, "optimal")
    turned, moved = arrange(points, solved, order, np.random.default_rng(1))
    assert not np.array_equal(turned, points)
    again = task.canonical(turned, task.solve(turned, "optimal"))
    assert np.array_equal(task.canonical(turned, moved), again)
    if order == "sorted":
        assert (np.diff(turned[..., 0], axis=1) >= 0).all()


def test_tour_metrics_by_hand():
    """Square: 4 around; crossing diagonals 2 + 2 sqrt 2 = 4.828, a gap of 20.71 %; the third tour repeats a city."""
    points = np.repeat(SQUARE[:, [0, 3, 2, 4]], 3, axis=0)
    right = answers(*[[0, 1, 2, 3]] * 3)
    metrics = TSP.metrics(points, answers([0, 1, 2, 3], [0, 2, 1, 3], [0, 0, 1, 2]), right)
    assert metrics["valid"] == pytest.approx(2 / 3)
    assert metrics["length"] == pytest.approx((4 + 2 + 2 * 2**0.5) / 2)
    assert metrics["gap"] == pytest.approx((4 + 2 + 2 * 2**0.5) / 2 / 4 - 1)


def test_hull_metrics_by_hand():
    """Another start counts as accurate; half of the square covers 0.5; the crossing one is no simple polygon."""
    points = np.repeat(SQUARE, 4, axis=0)
    right = HULL.canonical(points, HULL.solve(points, "optimal"))
    predicted = answers([2, 4, 0, 3], [0, 3, 2], [0, 2, 3, 4], [0, 3])
    metrics = HULL.metrics(points, predicted, right)
    assert metrics["accuracy"] == 0.25
    assert metrics["valid"] == 0.5
    assert metrics["area"] == pytest.approx(0.75)


def test_triangle_metrics_by_hand():
    """Any order of triangles and corners counts; of four triangles two are there in the second answer."""
    points = np.repeat(SQUARE, 2, axis=0)
    right = DELAUNAY.canonical(points, DELAUNAY.solve(points, "optimal"))
    predicted = answers([3, 2, 1, 4, 1, 0, 0, 3, 1, 2, 4, 1], [0, 1, 4, 1, 2, 3, 0, 2, 3])
    assert DELAUNAY.metrics(points, predicted, right) == {"accuracy": 0.5, "coverage": 0.75}


def test_simple_polygons():
    """Too few corners, a corner twice, edges that cross, edges that touch (the origin lies on 1-2), a triangle."""
    points = np.array([[[0, 0], [-1, 0], [1, 0], [1, 1], [-1, 1]]], dtype=np.float32)
    rows = answers([0, 1], [1, 2, 1, 3], [1, 3, 2, 4], [1, 2, 3, 0, 4], [1, 2, 3])
    assert is_simple(np.repeat(points, 5, axis=0), rows).tolist() == [False, False, False, False, True]


def test_examples_are_kept_and_extended(tmp_path, monkeypatch):
    monkeypatch.setattr(labels, "SIZE", 10)
    first = labelled(HULL, "optimal", {5: 10, 6: 3}, 1, tmp_path)
    assert [len(first[n][0]) for n in (5, 6)] == [10, 3]
    written = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    more = labelled(HULL, "optimal", {5: 15}, 1, tmp_path)
    assert np.array_equal(more[5][0][:10], first[5][0])
    assert np.array_equal(more[5][1][:10], first[5][1])
    assert all(path.stat().st_mtime_ns == time for path, time in written.items())
    assert not np.array_equal(labelled(HULL, "optimal", {5: 10}, 2, tmp_path)[5][0], first[5][0])


def test_several_processes_solve_the_same(tmp_path):
    alone = labelled(HULL, "optimal", {4: 5_000}, 1, tmp_path / "alone")
    shared = labelled(HULL, "optimal", {4: 5_000}, 1, tmp_path / "shared", workers=2)
    assert np.array_equal(alone[4][1], shared[4][1])


def test_damaged_and_foreign_examples(tmp_path, monkeypatch):
    monkeypatch.setattr(labels, "SIZE", 10)
    block = Block("convex-hull", "optimal", 5, 1, 0)
    block.path(tmp_path).write_bytes(block.solve())
    path = block.path(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    with pytest.raises(ValueError, match=f"{path}: no solved instances, or damaged"):
        block.read(tmp_path)
    sealed = bytearray(whole)
    sealed[sealed.rfind(b"PK\1\2") + 8] |= 1  # the flag of encrypted files
    path.write_bytes(sealed)
    with pytest.raises(ValueError, match=f"{path}: no solved instances, or damaged"):
        block.read(tmp_path)
    path.write_bytes(Block("convex-hull", "optimal", 6, 1, 0).solve())
    with pytest.raises(ValueError, match='holds .*"num_points": 6.* expected .*"num_points": 5.* delete it'):
        block.read(tmp_path)
    about = json.dumps({**json.loads(json.dumps(block.__dict__))})
    points = np.zeros((10, 5, 2), np.float32)
    for answers in (np.full((10, 5), 5, np.int16), np.full((10, 5), -1, np.int16), np.zeros((10, 0), np.int16)):
        np.savez(path, about=about, points=points, answers=answers)
        with pytest.raises(ValueError, match=r"answers int16 \(10, .\) do not fit 10 instances of 5; delete it"):
            block.read(tmp_path)
    np.savez(path, about=about, points=points, answers=np.zeros((10, 5)))
    with pytest.raises(ValueError, match=r"answers float64 \(10, 5\) do not fit"):
        block.read(tmp_path)


@pytest.mark.parametrize(
    ("task", "name", "size", "message"),
    [
        (HULL, "optimal", 2, "convex-hull needs at least 3 points, got 2"),
        (HULL, "a1", 5, "convex-hull has no labels 'a1'; choose one of optimal"),
        (TSP, "a4", 5, "tsp has no labels 'a4'; choose one of optimal, a1, a2, a3"),
    ],
)
def test_what_a_task_cannot_do(tmp_path, task, name, size, message):
    with pytest.raises(ValueError, match=message):
        labelled(task, name, {size: 1}, 1, tmp_path)
