"""`benchmarks/quality/planner.py`: the four steps, and PyVRP called directly."""

import json

import pytest

from benchmarks.quality import planner

pytestmark = pytest.mark.usefixtures("processor_time")


def test_four_steps(tmp_path):
    """Both costs are added up here again; three vans hold 180 of 228 units, so that stops are left out."""
    pytest.importorskip("pyvrp")
    pytest.importorskip("pyproj")
    rows = planner.main(planner.Args(seconds=0.3, seeds=(1,), out=tmp_path / "figures.json"))["steps"]
    assert [row["step"] for row in rows] == ["coordinates", "matrix", "three vans", "pickup"]
    assert all(row["ours"] == min(row["costs"].values()) for row in rows)
    assert rows[2]["ours"] > 5 * planner.PRICE  # ten units at most a stop: 48 units are five stops
    assert json.loads((tmp_path / "figures.json").read_text())["steps"] == rows
    assert all(row["pyvrp"] < 2 * row["ours"] for row in rows)


def test_an_interruption_leaves_the_rows_before(tmp_path, monkeypatch):
    pytest.importorskip("pyvrp")
    plans = iter([[[1]]])

    def plan(task, seconds, seed):
        if not (found := list(next(plans, []))):
            raise KeyboardInterrupt("second step")
        return found

    monkeypatch.setattr(planner, "pyvrp_plan", plan)
    with pytest.raises(KeyboardInterrupt, match="second step"):
        planner.main(planner.Args(seconds=0.1, seeds=(1,), out=tmp_path / "figures.json"))
    assert [row["step"] for row in json.loads((tmp_path / "figures.json").read_text())["steps"]] == ["coordinates"]
