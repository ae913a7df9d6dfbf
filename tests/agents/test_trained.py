"""Published weights: which are taken, what is written beside them, and that half precision changes nothing."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import am_reinforce
import evaluate
import routing_agents
import solve as solve_script
from benchmarks.quality import publish_weights
from benchmarks.quality.publish_weights import greedy_cost
from helpers import SQUARE, TINY, TINY_POINTER
from routing_agents import checkpoint, trained
from routing_agents.policies.attention.decoding import solve
from routing_agents.policies.attention.saved import load_model
from routing_gym.arrays import to_backend
from routing_gym.problems import make_problem


def test_nearest_size_by_ratio(tmp_path):
    """33 lies between 20 and 50: 33 / 20 = 1.65 is more than 50 / 33 = 1.52. 31: 1.55 is less than 1.61."""
    for name in ("tsp-20", "tsp-50", "sdvrp-20"):
        (tmp_path / f"{name}.safetensors").touch()
    assert trained.find_weights("TSP", 33, tmp_path).name == "tsp-50.safetensors"
    assert trained.find_weights("TSP", 31, tmp_path).name == "tsp-20.safetensors"
    assert trained.find_weights("TSP", 1000, tmp_path).name == "tsp-50.safetensors"
    with pytest.raises(ValueError, match=r"no weights for CVRP in .*; train some: .*routing/CVRP-20"):
        trained.find_weights("CVRP", 20, tmp_path)
    for name in ("ovrpbltw-50", "vrptw-20"):
        (tmp_path / f"{name}.safetensors").touch()
    assert trained.find_weights("VRPL", 20, tmp_path).name == "ovrpbltw-50.safetensors"
    assert trained.find_weights("VRPTW", 50, tmp_path).name == "vrptw-20.safetensors"


def test_weights_that_read_matrices_are_for_instances_with_matrices(tmp_path):
    """Even of another problem of the family, or of another size; without any, those that read coordinates."""
    for name in ("cvrp-20", "ovrpbltw-50", "cvrp-matrices-50", "ovrpbltw-matrices-50"):
        (tmp_path / f"{name}.safetensors").touch()
    found = {
        (name, matrices): trained.find_weights(name, 20, tmp_path, matrices=matrices).stem
        for name in ("CVRP", "VRPTW")
        for matrices in (False, True)
    }
    assert found == {
        ("CVRP", False): "cvrp-20",
        ("CVRP", True): "cvrp-matrices-50",
        ("VRPTW", False): "ovrpbltw-50",
        ("VRPTW", True): "ovrpbltw-matrices-50",
    }
    (tmp_path / "cvrp-matrices-50.safetensors").unlink()
    assert trained.find_weights("CVRP", 20, tmp_path, matrices=True).stem == "ovrpbltw-matrices-50"
    (tmp_path / "tsp-20.safetensors").touch()
    assert trained.find_weights("TSP", 20, tmp_path, matrices=True).stem == "tsp-20"


def test_weights_of_a_family_are_for_problems_without_other_attributes(tmp_path):
    """MDVRPB has no weights among those of OVRPBLTW, but of MDOVRPMBLTW; HFVRP among neither."""
    for name in ("ovrpbltw-50", "mdovrpmbltw-50"):
        (tmp_path / f"{name}.safetensors").touch()
    assert trained.find_weights("VRPB", 50, tmp_path).stem == "ovrpbltw-50"
    assert trained.find_weights("MDVRPB", 50, tmp_path).stem == "mdovrpmbltw-50"
    with pytest.raises(ValueError, match="no weights for HFVRP"):
        trained.find_weights("HFVRP", 50, tmp_path)


def test_models_are_of_float32_whatever_the_default_is():
    coords = np.random.default_rng(0).random((12, 2))
    expected = routing_agents.load("TSP-20").solve(coords, decoding="greedy")
    torch.set_default_dtype(torch.float64)
    try:
        found = routing_agents.load("TSP-20").solve(coords, decoding="greedy")
    finally:
        torch.set_default_dtype(torch.float32)
    assert found.tour == expected.tour


def test_command_of_the_card():
    args = replace(TINY, env_kwargs={"prize": "uniform"}, sizes=(5, 9), force_starts=True)
    run = {"args": args.to_json()}
    command, second = publish_weights.commands([run, run], "am_reinforce.py", am_reinforce.Args)
    assert command.endswith(" --name step-1")
    assert second == command.replace("--name step-1", "--init-from runs/step-1 --name step-2")
    assert "--env-kwargs prize uniform " in command
    assert "--sizes 5 9 " in command
    assert "--force-starts " in command
    assert "--embed-dim 16 --num-heads 4 --num-layers 1 --feed-forward-dim 16 " in command
    (command,) = publish_weights.commands([{"args": TINY_POINTER.to_json()}], "am_reinforce.py", am_reinforce.Args)
    assert "--model pointer --" in command
    assert "--pointer.units 16 --pointer.num-layers 1 --pointer.num-heads 4 " in command


def test_commands_of_a_mean():
    """The next run starts from the mean; `publish_weights.py` takes the run and the weights from before it."""
    run = {"args": TINY.to_json()}
    mean = {**run, "mean": {"share": 0.75, "step": 1}}
    _, _, first, third, second = publish_weights.commands([run, mean, mean], "am_reinforce.py", am_reinforce.Args)
    assert first == "python benchmarks/quality/publish_weights.py runs/step-2 --start runs/step-1 --share 0.75"
    assert "--init-from runs/step-2/mean.safetensors --name step-3" in third
    assert second == "python benchmarks/quality/publish_weights.py runs/step-3 --start runs/step-1 --share 0.75"


def test_publish_refuses_what_is_not_finished(tmp_path):
    """Nothing is written: no leftover, no weights without their log."""
    args = replace(TINY, env_id="routing/TSP-20", epochs=1, runs=tmp_path)
    run = am_reinforce.main(replace(args, name="run"))
    out = publish_weights.Args(run, size=20, out=tmp_path / "weights", logs=tmp_path / "logs")
    with pytest.raises(ValueError, match="--size must be an integer of at least 1, got 0"):
        publish_weights.main(replace(out, size=0))
    with pytest.raises(ValueError, match="20, 50 or 100"):
        publish_weights.main(replace(out, run=am_reinforce.main(replace(args, env_id="routing/TSP-10", name="ten"))))
    (run / "curve.png").unlink()
    with pytest.raises(FileNotFoundError, match=r"run has no curve.png: the run has not ended"):
        publish_weights.main(out)
    assert not (tmp_path / "weights").exists()


@pytest.fixture
def run(tmp_path):
    """The folder of a run that began with the weights of another."""
    args = replace(TINY, env_id="routing/TSP-20", epochs=2, runs=tmp_path, force_starts=True)
    first = am_reinforce.main(replace(args, name="first"))
    return am_reinforce.main(replace(args, name="run", learning_rate=1e-3, seed=2, init_from=first))


def test_publish_find_and_solve(run, tmp_path, monkeypatch, capsys):
    """Half precision may move the costs of weights that have hardly learnt by any amount; see the next test."""
    monkeypatch.setattr(publish_weights, "TOLERANCE", 1.0)
    out, logs = tmp_path / "weights", tmp_path / "logs"
    path = publish_weights.main(publish_weights.Args(run, size=50, out=out, logs=logs))
    assert path == out / "tsp-20.safetensors"
    tensors, header = checkpoint.load(path)
    assert {value.dtype for value in tensors.values() if value.is_floating_point()} == {torch.float16}
    card = json.loads((out / "tsp-20.json").read_text())
    assert "--learning-rate 0.01 --num-tours 4 --force-starts" in card["commands"][0]
    assert "--seed 2 " in card["commands"][1]
    assert card["instances"] in (48, 72, 96)  # one epoch of 24, or two, of each run: up to the best
    costs = {"greedy": path, "greedy_in_float32": run / "best.safetensors"}
    assert card["paper_test_set"] == {"instances": 50, **{k: greedy_cost(file, 50) for k, file in costs.items()}}
    assert str(tmp_path) not in json.dumps([card, header])
    assert sorted(file.name for file in logs.iterdir()) == ["tsp-20-step-2.jsonl"]

    monkeypatch.setattr(trained.find_weights, "__defaults__", (out,))
    (tmp_path / "square.tsp").write_text(SQUARE)
    (solved,) = solve_script.main(solve_script.Args((tmp_path / "square.tsp",), out=tmp_path / "solved"))
    assert solved.weights == path
    table = evaluate.main(evaluate.Args("random/TSP-20", size=4))
    assert [row.method for row in table.rows] == ["trained"]
    assert f"trained: {path}" in capsys.readouterr().err


def test_publish_a_mean(run, tmp_path, monkeypatch):
    """A quarter of the first run's weights; the history of a later run keeps the share."""
    monkeypatch.setattr(publish_weights, "TOLERANCE", 1.0)
    args = publish_weights.Args(
        run, tmp_path / "first", 0.75, size=20, out=tmp_path / "weights", logs=tmp_path / "logs"
    )
    path = publish_weights.main(args)
    (before, _), (after, _), (mean, header) = map(
        checkpoint.load, (tmp_path / "first" / "best.safetensors", run / "best.safetensors", run / "mean.safetensors")
    )
    floats = [key for key in mean if mean[key].is_floating_point()]
    assert all(torch.allclose(mean[key], 0.25 * before[key] + 0.75 * after[key]) for key in floats)
    assert checkpoint.last_run(header)["mean"] == {"share": 0.75, "step": 1}
    card = json.loads(path.with_suffix(".json").read_text())
    assert card["paper_test_set"]["greedy_in_float32"] == greedy_cost(run / "mean.safetensors", 20)
    with pytest.raises(ValueError, match="tsp-50.safetensors: not weights that led to those of .*run"):
        publish_weights.main(replace(args, start=publish_weights.WEIGHTS / "tsp-50.safetensors"))
    with pytest.raises(ValueError, match="--start and --share belong together"):
        replace(args, share=1.0)
    with pytest.raises(ValueError, match="--share must be above 0 and at most 1, got 0"):
        replace(args, share=0)


def test_publish_refuses_what_is_worse(run, tmp_path, monkeypatch):
    """Half precision moves 5.00 to 5.01, by 0.2 %, where 0.1 % is allowed; 5 is more than the 4 of those there."""
    args = publish_weights.Args(run, size=50, out=tmp_path / "weights", logs=tmp_path / "logs")
    costs = {".safetensors": 5.0, ".candidate": 5.01}
    monkeypatch.setattr(publish_weights, "greedy_cost", lambda path, size: costs[path.suffix])
    with pytest.raises(ValueError, match=r"half precision moves the mean greedy cost from 5\.0000 to 5\.0100"):
        publish_weights.main(args)
    assert list(args.out.iterdir()) == []
    there = args.out / "tsp-20.safetensors"
    there.touch()
    monkeypatch.setattr(publish_weights, "greedy_cost", lambda path, size: 4.0 if path == there else 5.0)
    with pytest.raises(
        ValueError, match=r"best.safetensors costs 5\.0000, but .*tsp-20.safetensors only 4\.0000; delete"
    ):
        publish_weights.main(args)


def test_paths_of_this_machine_are_shortened():
    """Inside the repository they start there; elsewhere only the name is left; what is no path stays."""
    root = publish_weights.ROOT
    values = {"runs": str(root / "runs" / "a"), "history": [{"init_from": "/home/me/b"}], "env_id": "routing/TSP-20"}
    short = {"runs": "runs/a", "history": [{"init_from": "b"}], "env_id": "routing/TSP-20"}
    assert publish_weights.portable(values) == short


def test_one_model_for_the_vrp_family():
    """Asked for a problem without weights of its own, it is loaded as that problem's, and solves its instances."""
    model = trained.load("OVRPL-20")
    assert (model.path.stem, model.problem) == ("ovrpbltw-50", make_problem("OVRPL", 50))
    instance = make_problem("OVRPL", 20).generate(np.random.default_rng(0), 1)
    solved = model.solve(instance, decoding="greedy")
    assert solved.cost == make_problem("OVRPL", 20).objective(instance, solved.actions[None])[0]
    with pytest.raises(ValueError, match="was trained on OVRPL; the instances are VRPB: take a model for VRPB"):
        model.check(make_problem("VRPB", 20))


@pytest.mark.parametrize("path", sorted(trained.WEIGHTS.glob("*.safetensors")), ids=lambda path: path.stem)
def test_weights_keep_what_their_card_says(path):
    """The first 200 of the card's 10,000 instances: their mean is within four standard errors of the card's."""
    card = json.loads(path.with_suffix(".json").read_text())
    model, problem, header = load_model(path)
    assert publish_weights.portable([card, header]) == [card, header]  # no path of the machine that made them
    assert path.stem == f"{problem.name.lower()}{'-matrices' * problem.matrices}-{problem.num_nodes}"
    instance = publish_weights.test_set(problem, 200)
    cost = solve(model, problem, to_backend(instance, "torch")).cost
    figures = card.get("paper_test_set") or card["random_test_set"]
    assert abs(cost.mean() - figures["greedy"]) < 4 * cost.std() / 200**0.5
