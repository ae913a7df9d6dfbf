"""Means, gaps, intervals and tables, by hand."""

import csv
import io
import json
import math
import sys
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest

from routing_gym.evaluate import compare, controlled_mean, gap_interval, mean_interval
from routing_gym.problems import make_problem
from routing_gym.solvers import FarthestInsertion, HeldKarp, NearestNeighbour, Solution

TSP = make_problem("TSP", 3)


def solution(cost, seconds=1.0, is_bound=False):
    cost = np.array(cost, dtype=np.float64)
    status = tuple("died" if np.isnan(value) else "feasible" for value in cost)
    return Solution(np.zeros((len(cost), 3), np.int64), cost, np.full(len(cost), seconds), status, is_bound)


def test_mean_interval_by_hand():
    """Values 1, 2, 3: mean 2, standard deviation 1, error 1 / sqrt(3) = 0.57735, times t(2) = 4.30265: 2.4841."""
    mean, low, high = mean_interval(np.array([1.0, 2.0, 3.0]))
    assert (mean, low, high) == pytest.approx((2.0, 2 - 2.48414, 2 + 2.48414), abs=1e-4)


def test_gap_interval_by_hand():
    """Costs 1.1, 2.1, 3.4 over 1, 2, 3: differences 0.1, 0.1, 0.4, mean 0.2, gap 0.2 / 2 = 10 %.

    Residuals difference - 0.1 x reference: 0, -0.1, 0.1. Standard deviation 0.1, error of the ratio
    0.1 / sqrt(3) / 2 = 0.028868, times t(2) = 4.30265: 12.4207 percent points.
    """
    gap, low, high = gap_interval(np.array([1.1, 2.1, 3.4]), np.array([1.0, 2.0, 3.0]))
    assert (gap, low, high) == pytest.approx((10.0, 10 - 12.4207, 10 + 12.4207), abs=1e-3)


def test_gap_of_prizes_is_positive_where_less_is_collected():
    """Prizes 9 and 9 against 10 and 10, as negative costs: a gap of 10 % of the reference."""
    gap, low, high = gap_interval(np.array([-9.0, -9.0]), np.array([-10.0, -10.0]))
    assert (gap, low, high) == pytest.approx((10.0, 10.0, 10.0))


def test_intervals_hold_the_truth_19_times_in_20():
    """Gaps of 5 % on average; of 2,000 samples of 10 instances, 95 % +- 4 standard errors (2 %) must cover it."""
    rng = np.random.default_rng(0)
    reference = rng.uniform(3, 5, (2000, 10))
    cost = reference * (1 + rng.normal(0.05, 0.03, reference.shape))
    intervals = [gap_interval(*rows) for rows in zip(cost, reference, strict=True)]
    assert np.mean([low <= 5 <= high for _, low, high in intervals]) == pytest.approx(0.95, abs=0.02)


def test_too_few_instances_have_no_interval():
    mean, low, high = mean_interval(np.array([4.0]))
    assert mean == 4.0
    assert math.isnan(low)
    assert math.isnan(high)
    assert math.isnan(mean_interval(np.array([])).value)
    assert math.isnan(gap_interval(np.array([1.0]), np.array([0.0])).value)  # no reference to be relative to


def test_control_variate_by_hand():
    """Costs twice the control's: exact, 2 x the control's mean over the whole set."""
    control = np.array([1.0, 2.0, 4.0])
    assert controlled_mean(2 * control, control, 3.0) == pytest.approx((6.0, 6.0, 6.0))


def test_control_variate_narrows_the_interval():
    """Cost = control + noise a tenth as wide: the interval shrinks about tenfold, and holds the mean 4."""
    rng = np.random.default_rng(1)
    control = rng.normal(4, 1, 500)
    cost = control + rng.normal(0, 0.1, 500)
    plain, controlled = mean_interval(cost), controlled_mean(cost, control, 4.0)
    assert (controlled.high - controlled.low) < (plain.high - plain.low) / 5
    assert controlled.low <= 4.0 <= controlled.high
    with pytest.raises(ValueError, match="at least 3 instances, got 2"):
        controlled_mean(cost[:2], control[:2], 4.0)


def test_compare_counts_wins_failures_and_time():
    """A: 1, 2, 3 and B: 1, 3, failed: A wins all three, B ties on the first. B's gap: 4 over 3 = 33.3 %."""
    table = compare(TSP, {"A": solution([1, 2, 3], 0.5), "B": solution([1, 3, np.nan], 2.0)}, "A")
    a, b = table.rows
    assert (a.wins, a.failed, a.seconds, a.total_seconds) == (3, 0, 0.5, 1.5)
    assert (b.wins, b.failed, b.seconds, b.total_seconds) == (1, 1, 2.0, 6.0)
    assert a.gap.value == 0.0
    assert b.gap.value == pytest.approx(100 / 3)
    assert b.mean.value == 2.0


def test_a_bound_wins_nothing():
    table = compare(
        TSP, {"best": solution([1, 1], is_bound=True), "A": solution([2, 3]), "B": solution([3, 3])}, "best"
    )
    assert [row.wins for row in table.rows] == [0, 2, 1]
    assert "best (bound)" in table.markdown() == table._repr_markdown_() == str(table)


def test_prizes_are_shown_positive():
    table = compare(make_problem("OP", 3), {"A": solution([-4, -6])}, "A")
    assert table.objective == "prize"
    assert table.rows[0].mean.value == 5.0


def test_a_method_that_failed_everywhere_has_a_row():
    table = compare(TSP, {"A": solution([1, 2]), "B": solution([np.nan, np.nan])}, "A")
    assert table.rows[1].failed == 2
    assert table.rows[1].wins == 0
    assert table.rows[1].cells()[1:5] == ("-", "-", "-", "-")
    assert json.loads(table.json())["rows"][1]["mean"] is None


def test_the_most_frequent_reason_of_failures_is_shown():
    """Two of the three rows that failed died, on two lines; the row that is feasible has no reason."""
    failed = replace(solution([np.nan] * 3 + [1]), status=("late", "died:\n9", "died:\n9", "feasible"))
    table = compare(TSP, {"A": solution([1, 2, 3, 4]), "B": failed}, "A")
    assert [record["reason"] for record in json.loads(table.json())["rows"]] == ["", "died: 9"]
    assert table.markdown().endswith("|\n\nB failed on 3 of 4: died: 9\n")
    if find_spec("rich"):
        assert table.text().endswith("\nB failed on 3 of 4: died: 9\n")


def test_all_methods_may_fail_on_an_instance():
    """Nobody wins an instance that nobody solved."""
    table = compare(TSP, {"A": solution([1, np.nan]), "B": solution([2, np.nan])}, "A")
    assert [row.wins for row in table.rows] == [1, 0]


def real_table():
    problem = make_problem("TSP", 8)
    instance = problem.generate(np.random.default_rng(0), 20)
    solvers = (HeldKarp(), FarthestInsertion(), NearestNeighbour())
    solutions = {solver.label: solver.solve(problem, instance) for solver in solvers}
    return compare(problem, solutions, "held-karp", {"seed": 0, "commit": "abc"})


def test_all_formats_show_the_same_numbers():
    table = real_table()
    records = json.loads(table.json())["rows"]
    rows = list(csv.DictReader(table.csv().splitlines()))
    for row, record, written in zip(table.rows, records, rows, strict=True):
        assert record["method"] == written["method"] == row.method
        for name in ("mean", "gap"):
            interval = getattr(row, name)
            values = (interval.value, interval.low, interval.high)
            assert values == tuple(record[key] for key in (name, f"{name}_low", f"{name}_high"))
            assert values == tuple(float(written[key]) for key in (name, f"{name}_low", f"{name}_high"))
        line = next(line for line in table.markdown().splitlines() if line.startswith(f"| {row.method} "))
        assert f"{row.mean.value:.4f}" in line
    assert json.loads(table.json())["about"] == {"seed": 0, "commit": "abc"}
    assert table.title == "TSP-8, 20 instances, mean cost, gap to held-karp, seed 0, commit abc"


def test_text_holds_every_cell():
    pytest.importorskip("rich")
    table = real_table()
    text = table.text()
    assert all(cell in text for row in table.rows for cell in row.cells())
    assert table.title in text


@pytest.mark.parametrize("encoding", ["utf-8", "cp1252"])
def test_text_can_be_printed(encoding, monkeypatch):
    """Windows encodes redirected output as cp1252, which has no box characters."""
    pytest.importorskip("rich")
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding=encoding))
    print(real_table().text(), flush=True)


def test_plot_writes_a_file(tmp_path):
    pytest.importorskip("matplotlib")
    real_table().plot(tmp_path / "gap.png")
    assert (tmp_path / "gap.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("package", "extra", "show"),
    [
        ("rich.table", "solvers", lambda table, folder: table.text()),
        ("matplotlib.figure", "render", lambda table, folder: table.plot(folder / "x.png")),
    ],
)
def test_missing_packages_name_their_extra(package, extra, show, tmp_path, monkeypatch):
    table = real_table()
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"pip install \"\.\[{extra}\]\""):
        show(table, tmp_path)


def test_unknown_references_and_unequal_batches_are_refused():
    with pytest.raises(ValueError, match="no method 'C' to refer to; the methods are A"):
        compare(TSP, {"A": solution([1])}, "C")
    with pytest.raises(ValueError, match=r"the same instances, got different numbers: \{'A': 1, 'B': 2\}"):
        compare(TSP, {"A": solution([1]), "B": solution([1, 2])}, "A")
