"""`benchmarks/training/learning.py`: intervals and differences by hand, a tiny run, and what is not measured twice."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from benchmarks.training import learning as script
from benchmarks.training import learning_stages, learning_tables
from routing_agents.policies.attention.model import ModelConfig
from routing_gym.solvers import make_solver


def test_interval_by_hand():
    """Mean 2, deviation 1; for three values 4.3027 / sqrt(3) = 2.4842. One value has none."""
    mean, half = script.interval([1.0, 2.0, 3.0])
    assert mean == 2.0
    assert half == pytest.approx(4.3027 / math.sqrt(3), abs=1e-4)
    assert script.interval([1.0]) == (1.0, None)


def test_differences_are_those_of_the_same_seed():
    """Costs 102 and 104 against 101 and 102, the reference is 100: 1 and 2 % less. The average against the latest:
    1 % less in both runs of the first arm, nothing in the other."""
    runs = [
        {"stage": "longer", "arm": arm, "seed": seed, "steps": 5, "seconds": 2.0, "entropy": 1.0}
        | {"latest": {"greedy": cost}, f"average {script.DECAYS[0]}": {"greedy": average}}
        for arm, seed, cost, average in (
            ("default", 1, 102.0, 101.0),
            ("default", 2, 104.0, 103.0),
            ("batches of 128", 2, 102.0, 102.0),
            ("batches of 128", 1, 101.0, 101.0),
        )
    ]
    rows = script.summary(runs, {"longer": {"greedy": 100.0}})
    found = {(row["arm"], row["weights"] == "latest"): row["greedy less"][0] for row in rows}
    expected = {("default", True): 0.0, ("default", False): -1.0}
    expected |= {("batches of 128", True): -1.5, ("batches of 128", False): 0.0}
    assert found == pytest.approx(expected)
    assert rows[0]["greedy"][0] == pytest.approx(3.0)
    assert rows[2]["greedy less"][1] == pytest.approx(12.7062 * 0.5, abs=1e-3)  # deviation sqrt(1/2) over sqrt(2)


def test_table():
    """The first arm is what the others differ from; one seed has no interval."""
    row = {"stage": "longer", "weights": "latest", "seeds": 1, "steps": 5, "seconds": 2.0, "entropy": 1.0}
    first = {**row, "arm": "a", "greedy": [3, 0.5], "best": [1, 0.1], "greedy less": [0, 0], "best less": [0, 0]}
    other = {
        **row,
        "arm": "b",
        "greedy": [2, None],
        "best": [1, None],
        "greedy less": [-1, 0.2],
        "best less": [0, None],
    }
    lines = learning_tables.arms("longer", {"table": [first, other, {**first, "weights": "average 0.97"}]}).splitlines()
    assert lines[2:] == [
        "| a | 1 | 5 | 2 | 3.00 ± 0.50 |  | 1.00 ± 0.10 |  | 1.0 |",
        "| b | 1 | 5 | 2 | 2.00 | -1.00 ± 0.20 | 1.00 | +0.00 | 1.0 |",
    ]


def test_tiny_run_is_kept(tmp_path, monkeypatch):
    """Two arms, two seeds; asked again, nothing is trained."""
    model = ModelConfig(embed_dim=16, num_heads=4, num_layers=1, feed_forward_dim=16)
    tiny = {"env_id": "routing/TSP-10", "batch_size": 8, "attention": model}
    monkeypatch.setattr(
        script,
        "STAGES",
        {"longer": learning_stages.Stage(1e-9, tiny, (learning_stages.Arm("default"), learning_stages.SMALLER))},
    )
    args = script.Args(
        stages=("longer",),
        seeds=(1, 2),
        held_out=4,
        sampled=2,
        runs=tmp_path / "runs",
        out=tmp_path / "figures.json",
    )
    figures = script.main(args)
    assert [(one["arm"], one["seed"], one["steps"]) for one in figures["runs"]] == [
        (arm, seed, 1) for arm in ("default", "batches of 128") for seed in (1, 2)
    ]
    assert all(one["latest"]["best"] < one["latest"]["greedy"] for one in figures["runs"])

    def train(trainer):
        raise AssertionError("measured twice")

    monkeypatch.setattr(script, "train", train)
    assert json.loads(json.dumps(script.main(args)["runs"])) == json.loads(args.out.read_text())["runs"]
    for changed in (replace(args, seeds=(3,)), replace(args, sampled=3)):
        with pytest.raises(AssertionError, match="measured twice"):
            script.main(changed)


def test_references_and_runs_depend_on_instances_and_weights(tmp_path, monkeypatch):
    """Asked for fewer instances, the reference is measured again; runs with other weights are not shown."""
    monkeypatch.setattr(script, "FastTSP", lambda: make_solver("nearest-neighbour"))
    args = script.Args(stages=("from scratch",), held_out=4, sampled=2, runs=tmp_path)
    few = replace(args, held_out=3, sampled=1)
    costs = script.reference(args, "from scratch")
    assert script.reference(few, "from scratch") != costs == script.reference(args, "from scratch")
    run = {"stage": "transfer", "arm": "REINFORCE", "seed": 1, "steps": 1, **script.settings_of(args, "transfer")}
    (tmp_path / "transfer, REINFORCE, 1.json").write_text(json.dumps(run))
    assert (script.kept(args), script.kept(few)) == ([run], [])
    (tmp_path / "cvrp-20.safetensors").write_bytes(b"other weights")
    assert script.kept(replace(args, weights=tmp_path)) == []


def test_weights_with_nearness_are_refused(tmp_path):
    """Today's published weights for CVRP-50 have it; the networks of the stage would leave it out."""
    args = script.Args(stages=("transfer", "fine-tuning"), runs=tmp_path / "runs")
    told = r"cvrp-50.safetensors is a network with nearness, but stage 'fine-tuning' .* of commit 607ccca as --weights"
    with pytest.raises(ValueError, match=told):
        script.main(args)
    assert not args.runs.exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stages": ("none",)}, "--stages: unknown none; choose from transfer"),
        ({"arms": ("none",)}, "--arms: unknown none; choose from 10 neighbours"),
        ({"sampled": 2000}, "--sampled 2000 of 1000 held-out instances; take fewer"),
    ],
)
def test_bad_arguments(changes, message):
    with pytest.raises(ValueError, match=message):
        script.Args(**changes)
