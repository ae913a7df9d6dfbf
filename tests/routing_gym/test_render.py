"""Pictures and texts of tours: what is drawn where, for every problem and backend."""

from __future__ import annotations

import dataclasses
import errno
import gc
import pickle
import sys
import weakref
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from problem_names import ONE_OF_EACH
from routing_gym import render
from routing_gym.arrays import to_backend
from routing_gym.problem import AnyProblem
from routing_gym.problems import (
    CVRP,
    OP,
    PDP,
    SDVRP,
    SPCTSP,
    TSP,
    CVRPInstance,
    OPInstance,
    SPCTSPInstance,
    TSPInstance,
    make_problem,
)
from routing_gym.render.figure import COLOURS, WINDOW
from routing_gym.render.text import length, replay, to_text

COORDS = np.array([[[0, 0], [0.3, 0.4], [0.6, 0.8]]], dtype=np.float32)  # 0.5 and 1.0 from the depot


def square() -> TSPInstance:
    return TSPInstance(np.array([[[0, 0], [0, 1], [1, 1], [1, 0]]], dtype=np.float32))


def two_customers(capacity: int = 5) -> CVRPInstance:
    return CVRPInstance(COORDS, np.array([[0, 3, 3]]), np.array([capacity]))


def random_episode(problem: AnyProblem, rng: np.random.Generator) -> tuple[Any, list[int]]:
    """Play random legal actions to the end."""
    instance = problem.generate(rng, 1)
    state, tour = problem.initial(instance), []
    while not problem.done(instance, state)[0]:
        action = rng.choice(np.flatnonzero(problem.action_mask(instance, state)[0]))
        tour.append(int(action))
        state, _ = problem.step(instance, state, np.array([action]))
    return instance, tour


def paths(figure: Figure) -> list[list[list[float]]]:
    """Return the corner points of every trip drawn, joined over its parts."""
    trips = [line.get_segments() for line in figure.axes[0].collections if hasattr(line, "get_segments")]
    return [np.concatenate([parts[0], *(part[1:] for part in parts[1:])]).tolist() for parts in trips]


def node_areas(figure: Figure, label: str | None = None) -> dict[tuple[float, float], float]:
    """Return the marker area at every place: of the unvisited, or of the visited (no label)."""
    for marks in figure.axes[0].collections:
        if hasattr(marks, "get_sizes") and (
            marks.get_label() == label or (label is None and marks.get_label()[0] == "_")
        ):
            places = np.round(marks.get_offsets(), 3).tolist()
            if places:
                return {(x, y): area for (x, y), area in zip(places, marks.get_sizes(), strict=True)}
    return {}


@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_text_of_cvrp(backend):
    """Round trips of 2 x 0.5 and 2 x 1.0; each carries 3 of 5."""
    instance = to_backend(two_customers(), backend)
    assert to_text(CVRP(2), instance, [1, 0, 2, 0]) == (
        "CVRP-2: cost 3.000, steps 4, complete\n"
        "route 1: 0 -> 1 -> 0; load 3 of 5, length 1.000\n"
        "route 2: 0 -> 2 -> 0; load 3 of 5, length 2.000"
    )


def test_text_of_unfinished_cvrp():
    """Customer 1 lies 0.5 away; the way back is not travelled yet."""
    assert to_text(CVRP(2), two_customers(), np.array([1])) == (
        "CVRP-2: cost 0.500, steps 1, incomplete\nroute 1: 0 -> 1; load 3 of 5, length 0.500\nunvisited: 2"
    )


def test_text_of_sdvrp_counts_what_is_delivered():
    """Capacity 5: 3 for customer 1 and 2 for customer 2, then the last 1; 0.5 + 0.5 + 1 = 2 and 2 x 1 = 2."""
    assert to_text(SDVRP(2), two_customers(), [1, 2, 0, 2, 0]) == (
        "SDVRP-2: cost 4.000, steps 5, complete\n"
        "route 1: 0 -> 1 -> 2 -> 0; load 5 of 5, length 2.000\n"
        "route 2: 0 -> 2 -> 0; load 1 of 5, length 2.000"
    )


def test_text_of_op_names_the_prize_not_the_cost():
    instance = OPInstance(COORDS, np.array([[0, 0.25, 0.5]], dtype=np.float32), np.array([1.5], dtype=np.float32))
    assert to_text(OP(2), instance, [1, 0]) == (
        "OP-2: prize 0.250, steps 2, complete\nroute 1: 0 -> 1 -> 0; prize 0.250, length 1.000\nunvisited: 2"
    )
    assert to_text(OP(2), instance, []).startswith("OP-2: prize 0.000, steps 0, incomplete")


def test_text_of_spctsp_shows_the_real_prize():
    """Expected 0.5, real 1: one visit suffices. Length 1.0, penalty of customer 2 is 0.25."""
    half = np.array([[0, 0.5, 0.5]], dtype=np.float32)
    instance = SPCTSPInstance(COORDS, expected_prize=half, penalty=half / 2, real_prize=2 * half)
    text = to_text(SPCTSP(2), instance, [1, 0])
    assert text.startswith("SPCTSP-2: cost 1.250, steps 2, complete\nroute 1: 0 -> 1 -> 0; prize 1.000, length 1.000")


def test_text_of_tsp_closes_the_tour_at_the_end_only():
    """Four sides of 1; after three cities two sides are travelled."""
    assert "0 -> 1 -> 2 -> 3 -> 0; length 4.000" in to_text(TSP(4), square(), [0, 1, 2, 3])
    unfinished = to_text(TSP(4), square(), [0, 1, 2])
    assert "cost 2.000" in unfinished
    assert "0 -> 1 -> 2; length 2.000\nunvisited: 3" in unfinished


def test_distances_of_a_file_replace_coordinates():
    """Distances of 0.25 everywhere: 4 x 0.25 = 1."""
    distances = (0.25 * (1 - np.eye(4, dtype=np.float32)))[None]
    text = to_text(TSP(4), dataclasses.replace(square(), distances=distances), [0, 1, 2, 3])
    assert "cost 1.000" in text
    assert "length 1.000" in text


def test_long_tours_are_shortened():
    """100 cities and the return are 101 names; 20 at each end leave 61."""
    coords = np.random.default_rng(0).random((1, 100, 2)).astype(np.float32)
    assert "18 -> 19 -> (61 more) -> 81 -> 82" in to_text(TSP(100), TSPInstance(coords), range(100))


@pytest.mark.parametrize(("problem", "tour"), [(TSP(4), [0, 1, 2, 3]), (CVRP(2), [1, 0, 2, 0])])
def test_trailing_zeros_are_ignored(problem, tour):
    instance = square() if isinstance(problem, TSP) else two_customers()
    assert to_text(problem, instance, [*tour, 0, 0]) == to_text(problem, instance, tour)
    assert paths(render.draw(problem, instance, [*tour, 0, 0])) == paths(render.draw(problem, instance, tour))


@settings(max_examples=30, deadline=None)
@given(name=st.sampled_from(["TSP", "CVRP", "SDVRP"]), num_nodes=st.integers(2, 12), seed=st.integers(0, 2**32))
def test_trips_add_up_to_the_objective(name, num_nodes, seed):
    problem = make_problem(name, num_nodes)
    instance, tour = random_episode(problem, np.random.default_rng(seed))
    actions, cost, done = replay(problem, instance, tour)
    routes = problem.routes(instance, actions)
    objective = problem.objective(instance, np.array([tour]))[0]
    assert done
    assert sum(length(instance, route.nodes) for route in routes) == pytest.approx(objective, abs=1e-5)
    assert cost == pytest.approx(objective, abs=1e-5)


def test_every_trip_has_a_line_of_its_own_colour():
    figure = render.draw(CVRP(2), two_customers(), [1, 0, 2, 0])
    near, far = COORDS[0, 1].tolist(), COORDS[0, 2].tolist()
    assert paths(figure) == [[[0, 0], near, [0, 0]], [[0, 0], far, [0, 0]]]
    lines = [line for line in figure.axes[0].collections if hasattr(line, "get_segments")]
    assert [to_hex(line.get_colors()[0]) for line in lines] == [colour.lower() for colour in COLOURS[:2]]


def test_unfinished_tours_stay_open_and_ring_the_current_node():
    figure = render.draw(TSP(4), square(), [0, 1, 2])
    assert paths(figure) == [[[0, 0], [0, 1], [1, 1]]]
    rings = [line.get_xydata().tolist() for line in figure.axes[0].lines if line.get_label() == "current"]
    assert rings == [[[1, 1]]]
    finished = render.draw(TSP(4), square(), [0, 1, 2, 3])
    assert paths(finished)[0][-1] == [0, 0]
    assert not [line for line in finished.axes[0].lines if line.get_label() == "current"]


def test_sizes_grow_with_demand_and_the_unvisited_are_hollow():
    instance = dataclasses.replace(two_customers(9), demand=np.array([[0, 2, 8]]))
    figure = render.draw(CVRP(2), instance, [1])
    visited, unvisited = node_areas(figure), node_areas(figure, "unvisited")
    assert list(visited) == [(0.3, 0.4)]
    assert list(unvisited) == [(0.6, 0.8)]
    assert unvisited[0.6, 0.8] > 2 * visited[0.3, 0.4]
    hollow = next(marks for marks in figure.axes[0].collections if marks.get_label() == "unvisited")
    assert [to_hex(colour) for colour in hollow.get_facecolors()] == ["#ffffff"]
    legend = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert legend == ["depot", "demand 2.7", "8", "unvisited", "current"]  # 8 / 3 = 2.67


def test_equal_values_need_no_sizes():
    instance = OPInstance(COORDS, np.array([[0, 1, 1]], dtype=np.float32), np.array([2], dtype=np.float32))
    areas = node_areas(render.draw(OP(2), instance, [1, 2, 0]))
    assert len(set(areas.values())) == 1
    assert not node_areas(render.draw(OP(2), instance, [1, 2, 0]), "unvisited")


def test_a_split_customer_shows_both_trips():
    figure = render.draw(SDVRP(2), two_customers(), [1, 2, 0, 2, 0])
    marks = next(
        marks for marks in figure.axes[0].collections if hasattr(marks, "get_sizes") and len(marks.get_offsets())
    )
    first, second = (colour.lower() for colour in COLOURS[:2])
    assert [to_hex(colour) for colour in marks.get_facecolors()] == [first, first]
    assert [to_hex(colour) for colour in marks.get_edgecolors()] == [first, second]


@pytest.mark.parametrize(
    ("cost", "title", "expected"),
    [(None, None, "TSP-4: cost 4.000"), (7542, None, "TSP-4: cost 7542"), (7542, "berlin52, 7542", "berlin52, 7542")],
)
def test_title(cost, title, expected):
    figure = render.draw(TSP(4), square(), [0, 1, 2, 3], cost, title)
    assert figure.axes[0].get_title() == expected


def test_draws_on_given_axes_at_equal_scales():
    figure = Figure()
    _, right = figure.subplots(1, 2)
    assert render.draw(TSP(4), square(), [0, 1, 2, 3], axes=right) is figure
    assert right.get_xlim() == right.get_ylim() == pytest.approx((-0.03, 1.03))
    assert right.get_aspect() == 1.0
    assert len(right.collections) > 0


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_pixels(name):
    """Empty, half and whole tours differ; NumPy and torch agree; the size never changes."""
    problem = make_problem(name, 10)
    instance, tour = random_episode(problem, np.random.default_rng(1))
    frames = [render.to_rgb_array(problem, instance, tour[:steps]) for steps in (0, len(tour) // 2, len(tour))]
    assert [(frame.shape, frame.dtype) for frame in frames] == [((660, 600, 3), np.uint8)] * 3
    assert not np.array_equal(frames[0], frames[1])
    assert not np.array_equal(frames[1], frames[2])
    of_tensors = render.to_rgb_array(problem, to_backend(instance, "torch"), torch.tensor(tour))
    np.testing.assert_array_equal(of_tensors, frames[2])


def test_pictures_leave_nothing_behind():
    figure = render.draw(TSP(4), square(), [0, 1])
    render.to_rgb_array(TSP(4), square(), [0, 1])
    reference = weakref.ref(figure)
    del figure
    gc.collect()
    assert reference() is None
    assert plt.get_fignums() == []


def test_notebooks_display_what_save_writes(tmp_path):
    path = tmp_path / "tour.png"
    render.save(path, TSP(4), square(), [0, 1])
    figure = pickle.loads(pickle.dumps(render.draw(TSP(4), square(), [0, 1])))
    assert figure._repr_png_() == path.read_bytes()


@pytest.mark.filterwarnings("default")
def test_show_without_a_window(recwarn, monkeypatch):
    """Without a display it does nothing; in a notebook, it warns once."""
    pytest.importorskip("matplotlib_inline")
    plt.switch_backend("agg")
    render.show(TSP(4), square(), [])
    assert not recwarn
    monkeypatch.setattr("matplotlib.get_backend", lambda **_: "inline")
    for tour in ([], [0], [0, 1]):
        render.show(TSP(4), square(), tour)
    assert plt.get_fignums() == []
    assert ['use render_mode="rgb_array"' in str(warning.message) for warning in recwarn] == [True]


def test_show_reuses_one_window_and_does_not_block(monkeypatch):
    pauses: list[float] = []
    monkeypatch.setattr("matplotlib.backends.registry.backend_registry.resolve_backend", lambda name: (name, "tk"))
    monkeypatch.setattr(plt, "pause", pauses.append)
    monkeypatch.setattr(plt, "show", lambda **settings: pytest.fail("show() may block"))
    try:
        render.show(TSP(4), square(), [0])
        render.show(TSP(4), square(), [0, 1, 2, 3])
        assert plt.get_figlabels() == [WINDOW]
        assert [axes.get_title() for axes in plt.figure(WINDOW).axes] == ["TSP-4: cost 4.000"]
        assert len(pauses) == 2
        assert max(pauses) < 0.01
    finally:
        plt.close("all")


def test_save_writes_the_pixels(tmp_path):
    path = tmp_path / "tour.png"
    render.save(path, TSP(4), square(), [0, 1, 2, 3])
    picture = np.round(255 * plt.imread(path)[..., :3]).astype(np.uint8)
    np.testing.assert_array_equal(picture, render.to_rgb_array(TSP(4), square(), [0, 1, 2, 3]))
    assert list(tmp_path.iterdir()) == [path]


def test_failed_save_keeps_the_old_picture(tmp_path, monkeypatch):
    path = tmp_path / "tour.png"
    path.write_bytes(b"old")

    def full_disk(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        render.save(path, TSP(4), square(), [0, 1])
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_save_refuses_other_formats_and_missing_folders(tmp_path):
    with pytest.raises(ValueError, match=r"tour\.jpg: pictures are saved as PNG"):
        render.save(tmp_path / "tour.jpg", TSP(4), square(), [0])
    with pytest.raises(FileNotFoundError, match="missing"):
        render.save(tmp_path / "missing" / "tour.png", TSP(4), square(), [0])


@pytest.mark.parametrize(
    ("tour", "message"),
    [
        ([[0, 1]], r"tour: expected shape \(T,\), got \(1, 2\)"),
        ([0.5], "expected integers, got float64"),
        ([0, 4], "step 1: node 4 does not exist; nodes are 0 to 3"),
        ([-1], "node -1 does not exist"),
    ],
)
def test_bad_tours(tour, message):
    with pytest.raises(ValueError, match=message):
        to_text(TSP(4), square(), tour)
    with pytest.raises(ValueError, match=message):
        render.draw(TSP(4), square(), tour)


def test_nodes_at_one_place_have_arrows(recwarn):
    problem = TSP(4, matrices=True)
    instance = problem.generate(np.random.default_rng(0), 1)
    instance.coords[0, 1] = instance.coords[0, 0]
    render.to_rgb_array(problem, instance, [0, 1, 2, 3])
    assert not recwarn.list


def test_several_rows_are_refused():
    with pytest.raises(ValueError, match="expected one row, got 2"):
        render.draw(TSP(5), TSP(5).generate(np.random.default_rng(0), 2), [])


def test_without_matplotlib_text_works_and_pictures_name_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert to_text(TSP(4), square(), []).startswith("TSP-4: cost 0.000")
    for function in (render.draw, render.to_rgb_array, render.show):
        with pytest.raises(ImportError, match=r'pip install "\.\[render\]"'):
            function(TSP(4), square(), [])


def test_arrows_from_pickups_to_deliveries():
    """Node 1 is picked up for node 2, node 3 for node 4."""
    pytest.importorskip("matplotlib")
    problem = PDP(4)
    instance = dataclasses.replace(problem.generate(np.random.default_rng(0), 1), pickup=np.array([[0, 0, 1, 0, 3]]))
    axes = render.draw(problem, instance, []).axes[0]
    arrows = [text for text in axes.texts if text.arrow_patch is not None]
    np.testing.assert_allclose([arrow.xyann for arrow in arrows], instance.coords[0, [1, 3]])
    np.testing.assert_allclose([arrow.xy for arrow in arrows], instance.coords[0, [2, 4]])
    assert "delivery" in [text.get_text() for text in axes.get_legend().get_texts()]
