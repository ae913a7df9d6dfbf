"""Published weights: which are taken, what is written beside them, and that half precision changes nothing."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

import am_reinforce
import evaluate
import publish_weights
import solve as solve_script
from helpers import SQUARE, TINY
from routing_agents import checkpoint, trained
from routing_agents.attention.decoding import solve
from routing_gym.arrays import select, to_backend
from routing_gym.data.paper import paper_test_set


def test_nearest_size_by_ratio(tmp_path):
    """33 lies between 20 and 50: 33 / 20 = 1.65 is more than 50 / 33 = 1.52. 31: 1.55 is less than 1.61."""
    for name in ("tsp-20", "tsp-50", "sdvrp-20"):
        (tmp_path / f"{name}.safetensors").touch()
    assert trained.find_weights("TSP", 33, tmp_path).name == "tsp-50.safetensors"
    assert trained.find_weights("TSP", 31, tmp_path).name == "tsp-20.safetensors"
    assert trained.find_weights("TSP", 1000, tmp_path).name == "tsp-50.safetensors"
    with pytest.raises(ValueError, match=r"no weights for CVRP in .*; train some: .*routing/CVRP-20"):
        trained.find_weights("CVRP", 20, tmp_path)


def test_command_of_the_card():
    args = replace(TINY, env_kwargs={"prize": "uniform"}, sizes=(5, 9), force_starts=True)
    run = {"args": args.to_json()}
    command, second = publish_weights.commands([run, run])
    assert command.endswith(" --name step-1")
    assert second == command.replace("--name step-1", "--init-from runs/step-1 --name step-2")
    assert "--env-kwargs prize uniform " in command
    assert "--sizes 5 9 " in command
    assert "--force-starts " in command
    assert "--embed-dim 16 --num-heads 4 --num-layers 1 --feed-forward-dim 16 " in command


def test_publish_refuses_what_is_not_finished(tmp_path):
    """Nothing is written: no leftover, no weights without their log."""
    args = replace(TINY, env_id="routing/TSP-20", epochs=1, runs=tmp_path)
    run = am_reinforce.main(replace(args, name="run"))
    out = publish_weights.Args(run, size=20, out=tmp_path / "weights", logs=tmp_path / "logs")
    with pytest.raises(ValueError, match="--size must be at least 1, got 0"):
        publish_weights.main(replace(out, size=0))
    with pytest.raises(ValueError, match="20, 50 or 100"):
        publish_weights.main(replace(out, run=am_reinforce.main(replace(args, env_id="routing/TSP-10", name="ten"))))
    (run / "curve.png").unlink()
    with pytest.raises(FileNotFoundError, match=r"run has no curve.png: the run has not ended"):
        publish_weights.main(out)
    assert not (tmp_path / "weights").exists()


def test_publish_find_and_solve(tmp_path, monkeypatch, capsys):
    args = replace(TINY, env_id="routing/TSP-20", epochs=2, runs=tmp_path, force_starts=True)
    first = am_reinforce.main(replace(args, name="first"))
    run = am_reinforce.main(replace(args, name="run", learning_rate=1e-3, seed=2, init_from=first))
    out, logs = tmp_path / "weights", tmp_path / "logs"
    path = publish_weights.main(publish_weights.Args(run, size=50, out=out, logs=logs))
    assert path == out / "tsp-20.safetensors"
    assert {value.dtype for value in checkpoint.load(path)[0].values() if value.is_floating_point()} == {torch.float16}
    card = json.loads((out / "tsp-20.json").read_text())
    assert "--learning-rate 0.01 --num-starts 4 --force-starts" in card["commands"][0]
    assert "--seed 2 " in card["commands"][1]
    assert card["instances"] in (48, 72, 96)  # one epoch of 24, or two, of each run: up to the best
    assert card["paper_test_set"]["greedy"] == pytest.approx(card["paper_test_set"]["greedy_in_float32"], rel=1e-3)
    assert sorted(file.name for file in logs.iterdir()) == ["tsp-20-step-2.jsonl", "tsp-20-step-2.png"]
    untrained = am_reinforce.main(replace(args, name="untrained", learning_rate=1e-9))
    with pytest.raises(ValueError, match=r"tsp-20.safetensors only \d\.\d+; delete that to replace it"):
        publish_weights.main(publish_weights.Args(untrained, size=50, out=out, logs=logs))

    monkeypatch.setattr(trained.find_weights, "__defaults__", (out,))
    (tmp_path / "square.tsp").write_text(SQUARE)
    (solved,) = solve_script.main(solve_script.Args((tmp_path / "square.tsp",), out=tmp_path / "solved"))
    assert solved.weights == path
    table = evaluate.main(evaluate.Args("random/TSP-20", size=4))
    assert [row.method for row in table.rows] == ["trained"]
    assert f"trained: {path}" in capsys.readouterr().err


@pytest.mark.parametrize("path", sorted(trained.WEIGHTS.glob("*.safetensors")), ids=lambda path: path.stem)
def test_weights_keep_what_their_card_says(path):
    """The first 500 of the card's 10,000 instances: their mean is within four standard errors of the card's."""
    card = json.loads(path.with_suffix(".json").read_text())
    model, problem, _ = checkpoint.load_model(path)
    assert path.stem == f"{problem.name.lower()}-{problem.num_nodes}"
    instance = select(paper_test_set(problem.name, problem.num_nodes), slice(0, 500))
    cost = solve(model, problem, to_backend(instance, "torch")).cost
    assert abs(cost.mean() - card["paper_test_set"]["greedy"]) < 4 * cost.std() / 500**0.5
