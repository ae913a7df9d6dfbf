"""`benchmarks/training/time_to_quality.py`: its clock and table by hand, a tiny run, and what is not measured twice."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.training import time_to_quality as script


def test_curve_of_a_log(tmp_path):
    """100 instances at 50 a second take 2 s, the next 300 at 100 a second 3 s, which makes 5."""
    rows = [{"instances": 100, "instances_per_second": 50.0, "gap": 0.2}]
    rows += [{"instances": 400, "instances_per_second": 100.0, "gap": 0.04}]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    curve = script.read_metrics(tmp_path / "metrics.jsonl")
    assert curve == {"seconds": [2.0, 5.0], "instances": [100, 400], "gap": [0.2, 0.04]}
    assert script.seconds_to(curve, 0.05) == 5.0
    assert script.seconds_to(curve, 0.03) == float("inf")


def test_table_has_medians():
    """Three seeds reach 5 % after 1, 2 and 9 seconds: 2. Two of them reach 3 %, after 4 and 9: 9. One reaches 2 %."""
    ends = {1: [0.05, 0.02], 2: [0.05, 0.03], 9: [0.05, 0.03]}
    curves = [
        {"label": "ours", "seconds": [first, second], "gap": gaps}
        for (first, gaps), second in zip(ends.items(), (4, 9, 10), strict=True)
    ]
    (row,) = script.summary(curves)
    assert row["seconds_to"] == {"5%": 2.0, "3%": 9.0, "2%": None, "1%": None}
    assert (row["final_gap"], row["seconds"]) == (0.03, 9.0)


TINY = "--epochs 2 --steps-per-epoch 1 --num-envs 16 --lanes-per-instance 4 --num-minibatches 2 --embed-dim 16"


def test_tiny_run_is_kept(tmp_path, monkeypatch):
    """One curve of two evaluations; asked again, nothing is run; with another seed or other instances, it is."""
    args = script.Args(
        commands=(f"PPO: ppo.py {TINY}",),
        env_id="routing/TSP-10",
        threads=1,
        held_out=8,
        runs=tmp_path / "runs",
        out=tmp_path / "figures.json",
    )
    figures = script.main(args)
    (curve,) = figures["curves"]
    assert curve["instances"] == [4, 8]
    assert 0 < curve["seconds"][0] < curve["seconds"][1]
    assert json.loads(args.out.read_text())["table"] == json.loads(json.dumps(figures["table"]))
    assert (tmp_path / "time_to_quality.png").stat().st_size > 0

    def run(*arguments):
        raise AssertionError("measured twice")

    monkeypatch.setattr(script, "run_script", run)
    assert script.main(args)["curves"] == [curve]
    for others in ({"seeds": (2,)}, {"held_out": 9}):
        with pytest.raises(AssertionError, match="measured twice"):
            script.main(replace(args, **others))


def test_tours_of_the_peer_are_rescored(tmp_path, monkeypatch):
    """Four cities on a unit square: round the square costs 4; across it twice 2 + 2 sqrt(2)."""
    problem = script.gym.make("routing/TSP", num_nodes=4).unwrapped.problem
    square = np.array([[[0, 0], [0, 1], [1, 1], [1, 0]]], dtype=np.float32)
    held_out = problem.instance_type(coords=square)

    def run(command, **options):
        assert np.array_equal(np.load(command[2])["coords"], square)
        actions = np.array([[[0, 2, 1, 3]], [[0, 1, 2, 3]]])
        np.savez(command[3], seconds=[1.0, 2.0], instances=[5, 6], actions=actions, settings='{"a": 1}')

    monkeypatch.setattr(subprocess, "run", run)
    args = script.Args(runs=tmp_path, rl4co_python=tmp_path / "python")
    curve = script.run_rl4co(args, problem, held_out, 4.0, seed=1)
    assert curve["gap"] == pytest.approx([(2 + 2 * 2**0.5) / 4 - 1, 0.0])
    assert curve["settings"] == {"a": 1}


def test_needs_a_tsp(tmp_path):
    with pytest.raises(ValueError, match="the gap needs a TSP"):
        script.main(script.Args(env_id="routing/CVRP-10", runs=tmp_path))


def test_commands_have_labels():
    with pytest.raises(ValueError, match="expected LABEL: SCRIPT ARGUMENTS, got 'ppo.py'"):
        script.Args(commands=("ppo.py",))
