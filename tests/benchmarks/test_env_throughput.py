"""`benchmarks/env_throughput.py` on a tiny problem."""

import importlib.util
import json
import sys

import numpy as np
import pytest

from helpers import BENCHMARKS

torch = pytest.importorskip("torch")
pytest.importorskip("tyro")
pytest.importorskip("rich")

SCRIPT = BENCHMARKS / "env_throughput.py"


@pytest.fixture
def script(monkeypatch):
    spec = importlib.util.spec_from_file_location("env_throughput", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.syspath_prepend(SCRIPT.parent)  # for its sibling, hardware.py
    monkeypatch.setitem(sys.modules, "env_throughput", module)  # dataclasses look their module up
    spec.loader.exec_module(module)
    threads = torch.get_num_threads()
    yield module
    torch.set_num_threads(threads)  # `main` measures on one


def test_figures(script, tmp_path, capsys):
    """Two lanes: sync, native on two backends with and without copies, and two bare transitions, for one problem."""
    out = tmp_path / "results" / "figures.json"
    args = script.Args(problems=("CVRP-10",), lanes=(2,), repeats=1, work=2, out=out)
    figures = script.main(args)
    assert json.loads(out.read_text()) == json.loads(json.dumps(figures))
    assert [row["kind"] for row in figures["rows"]] == ["sync", *["native"] * 4, *["transition"] * 2]
    assert all(row["steps_per_second"] > 0 for row in figures["rows"])
    native = figures["rows"][1]
    assert native["times_sync"] == native["steps_per_second"] / figures["rows"][0]["steps_per_second"]
    assert {"commit", "processor", "versions"} <= figures["machine"].keys()
    parts = figures["breakdown"][0]
    names = ("step and mask", "instances", "copies", "bookkeeping")
    assert sum(parts[name] for name in names) == pytest.approx(parts["all"])
    assert "CVRP-10" in capsys.readouterr().out


def test_policy_draws_uniformly_among_the_legal(script):
    """Two of three nodes are legal: each in about half of 4,000 draws (standard deviation 32)."""
    mask = np.tile(np.array([1, 0, 1], dtype=np.int8), (4000, 1))
    actions = script.random_legal(np.random.default_rng(0), mask)
    assert set(actions.tolist()) == {0, 2}
    assert abs((actions == 0).sum() - 2000) < 160


def test_bars_are_reported(script, tmp_path, capsys, monkeypatch):
    """100 times SyncVectorEnv is below the 150 asked of TSP-50."""

    def measured(args, problem, lanes):
        shared = {"problem": problem, "lanes": lanes, "backend": "numpy", "copy": True, "microseconds_per_call": 1.0}
        rates = {"sync": 10.0, "native": 1000.0, "transition": 3000.0}
        return [{**shared, "kind": kind, "steps_per_second": rate} for kind, rate in rates.items()]

    monkeypatch.setattr(script, "measure", measured)
    monkeypatch.setattr(script, "breakdown", lambda *_: {"problem": "TSP-50", "lanes": 1024})
    figures = script.main(script.Args(problems=("TSP-50",), lanes=(1024,), out=tmp_path / "figures.json"))
    assert figures["bars"] == [{"problem": "TSP-50", "times_sync": 100.0, "bar": 150, "reached": False}]
    assert "100 x sync; at least 150: MISSED" in capsys.readouterr().out
