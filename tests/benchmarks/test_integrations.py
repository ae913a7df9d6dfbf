"""`benchmarks/integrations.py` on a tiny problem."""

import json

import pytest
import torch

import integrations


@pytest.fixture
def restore_threads():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)  # `main` measures on one


@pytest.mark.usefixtures("restore_threads")
def test_figures(tmp_path, capsys):
    """One run of one episode for each side: masks cost time, so steps alone are faster than with masks."""
    out = tmp_path / "results" / "figures.json"
    args = integrations.Args(problem="TSP-10", lanes=2, repeats=1, episodes=1, epochs=1, batch_size=20, out=out)
    figures = integrations.main(args)
    assert json.loads(out.read_text()) == figures
    dummy, native = figures["sb3"]
    assert (dummy["env"], native["env"]) == ("DummyVecEnv", "RoutingVecEnv")
    for row in (dummy, native):
        assert row["steps_per_second"] > row["steps_and_masks_per_second"] > row["learn_steps_per_second"] > 0
    assert figures["bar"]["times_dummy"] == native["steps_per_second"] / dummy["steps_per_second"]
    learn = native["learn_steps_per_second"] / dummy["learn_steps_per_second"]
    assert figures["learn_bar"] == {"times_dummy": learn, "bar": 3, "reached": learn >= 3}
    assert {"commit", "processor", "versions"} <= figures["machine"].keys()
    assert "RoutingVecEnv" in capsys.readouterr().out


@pytest.mark.usefixtures("restore_threads")
def test_bars_are_reported(tmp_path, capsys, monkeypatch):
    """150 steps per second are 15 times 10, below the 20 asked; with masks 100 are 20 times 5; `learn`: 3 times."""
    rates = {"DummyVecEnv": (10.0, 5.0), "RoutingVecEnv": (150.0, 100.0)}
    rows = [
        {"problem": "TSP-50", "lanes": 256, "env": name, "steps_per_second": step, "steps_and_masks_per_second": both}
        for name, (step, both) in rates.items()
    ]
    monkeypatch.setattr(integrations, "measure", lambda args: rows)
    monkeypatch.setattr(integrations, "measure_learn", lambda args: {"DummyVecEnv": 2.0, "RoutingVecEnv": 6.0})
    figures = integrations.main(integrations.Args(out=tmp_path / "figures.json"))
    assert figures["bar"] == {"times_dummy": 15.0, "times_dummy_with_masks": 20.0, "bar": 20, "reached": False}
    assert figures["learn_bar"] == {"times_dummy": 3.0, "bar": 3, "reached": True}
    printed = capsys.readouterr().out
    assert "15.0 x DummyVecEnv; at least 20: MISSED; with masks 20.0 x" in printed
    assert "MaskablePPO.learn: 3.0 x; at least 3: reached" in printed
