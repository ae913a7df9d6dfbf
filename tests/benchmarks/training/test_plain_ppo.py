"""`benchmarks/training/plain_ppo.py`: curves are measured once, and the figures hold all of them."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("sb3_contrib")
from benchmarks.training import plain_ppo


def test_complete_curves_are_kept(tmp_path, monkeypatch):
    """Two lanes, one update each; masked episodes are all legal; a second run measures only what is missing."""
    monkeypatch.setattr(plain_ppo, "STEPS", {"TSP-10": 20, "OP-10": 20})
    monkeypatch.setattr(plain_ppo, "SETTINGS", {"n_steps": 10, "batch_size": 20, "gamma": 1.0})
    places = {"folder": tmp_path / "curves", "out": tmp_path / "out.json"}
    small = {"num_envs": 2, "points": 2, "held_out": 3} | places
    plain_ppo.main(plain_ppo.Args(curves=("MaskablePPO/TSP-10",), **small))
    kept = (places["folder"] / "MaskablePPO-TSP-10.json").read_bytes()
    plain_ppo.main(plain_ppo.Args(curves=("MaskablePPO/TSP-10", "PPO/OP-10"), **small))
    assert (places["folder"] / "MaskablePPO-TSP-10.json").read_bytes() == kept
    curves = json.loads(places["out"].read_text())["curves"]
    assert list(curves) == ["MaskablePPO/TSP-10", "PPO/OP-10"]
    assert [point["steps"] for point in curves["MaskablePPO/TSP-10"]["points"]] == [10, 20]
    assert all(point["greedy"]["legal"] == 1.0 for point in curves["MaskablePPO/TSP-10"]["points"])
    assert [point["greedy"]["episodes"] for point in curves["PPO/OP-10"]["points"]] == [3, 3]
    with pytest.raises(
        ValueError, match="PPO-TSP-10.json: measured with seed 0, not 1; move it away, or name another --f"
    ):
        plain_ppo.main(plain_ppo.Args(curves=("PPO/OP-10",), **small, seed=1))
    assert (tmp_path / "plain_ppo.png").stat().st_size > 0


def test_unknown_curves_are_refused():
    with pytest.raises(ValueError, match=r"unknown curves \['PPO/VRP'\]; choose from PPO/TSP-20, MaskablePPO/TSP-20"):
        plain_ppo.main(plain_ppo.Args(curves=("PPO/VRP",)))
