"""`benchmarks/pointer/pointer_tables.py` and `publish_pointer.py`, on a network of seconds."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

import pointer_network
from benchmarks import doc_tables
from benchmarks.pointer import pointer_tables, publish_pointer
from benchmarks.quality.publish_weights import rounded
from routing_agents import checkpoint
from routing_agents.policies.pointer import labels
from routing_agents.policies.pointer.model import PointerConfig
from routing_agents.policies.pointer.saved import load_network


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setattr(labels, "SIZE", 10)
    args = pointer_network.Args(
        task="convex-hull",
        sizes=(5, 6),
        solved=10,
        epochs=1,
        steps_per_epoch=2,
        batch_size=4,
        held_out=10,
        model=PointerConfig(units=16, num_heads=4, num_layers=1),
        precision="float32",
        threads=1,
        workers=1,
        examples=tmp_path / "examples",
        runs=tmp_path,
        name="hull",
    )
    return pointer_network.main(args)


def test_published_weights_are_those_of_the_run_rounded(run, tmp_path):
    args = publish_pointer.Args(run, 10, tmp_path / "examples", tmp_path / "weights", tmp_path / "logs")
    path = publish_pointer.main(args)
    card = json.loads(path.with_suffix(".json").read_text())
    assert card["examples"] == 8
    (command,) = card["commands"]
    assert command.startswith("python agents/pointer_network.py --task convex-hull --sizes 5 6 --solved 10")
    assert "--units 16" in command
    published, best = load_network(path)[0].state_dict(), load_network(run)[0].state_dict()
    assert all(
        torch.equal(published[key], rounded(value).to(published[key].dtype))
        for key, value in best.items()
        if value.is_floating_point()
    )
    assert (tmp_path / "logs" / "pointer-hull.jsonl").exists()


def test_a_card_tells_of_the_runs_before(run, tmp_path):
    """A run of 4 examples that began with the weights of one of 8."""
    header = checkpoint.load(run / "best.safetensors")[1]
    sizes = {"model": PointerConfig(**header["model"]), "sizes": (7, 7), "steps_per_epoch": 1}
    args = replace(pointer_network.Args.from_json(header["args"]), **sizes, init_from=run, name="larger")
    larger = pointer_network.main(replace(args, runs=tmp_path, examples=tmp_path / "examples", workers=1))
    paths = (tmp_path / "examples", tmp_path / "weights", tmp_path / "logs")
    card = json.loads(publish_pointer.main(publish_pointer.Args(larger, 10, *paths)).with_suffix(".json").read_text())
    assert card["examples"] == 12
    assert "--init-from runs/step-1 --name step-2" in card["commands"][1]


def test_figures_are_measured_kept_and_shown(run, tmp_path, monkeypatch):
    monkeypatch.setattr(pointer_tables, "PAPER", {"convex-hull 5-6": {5: {"accuracy": 0.5, "area": 0.9}}})
    monkeypatch.setattr(doc_tables, "PAPER_POINTER", pointer_tables.PAPER)
    monkeypatch.setattr(pointer_tables, "PAPER_LABELS", {5: {"optimal": 2.12}})
    monkeypatch.setattr(pointer_tables, "PUBLISHED", tmp_path / "none")
    out = tmp_path / "pointer_network.json"
    args = pointer_tables.Args((run,), 10, label_size=5, batch_size=2, examples=tmp_path / "examples", out=out)
    first = pointer_tables.main(args)
    assert [(row["model"], row["n"], row["examples"]) for row in first["rows"]] == [("hull", 5, 8)]
    first["rows"].append({**first["rows"][0], "model": "other"})
    out.write_text(json.dumps(first))
    assert [row["model"] for row in pointer_tables.main(replace(args))["rows"]] == ["other", "hull"]
    shown = doc_tables.table("pointer-quality", tmp_path)
    assert "| convex-hull 5-6 | transformer | 5 | 50.0%, 90.0% |" in shown
    assert "n = 10 | n = 20 | n = 50" in doc_tables.table("pointer-throughput", tmp_path)


def test_operations_by_hand():
    """d = 2, n = 3, 1 step, LSTM: (3 + 1) x 8 x 4 + 3 x 4 + 4 + 3 x 2 = 150; times 2 times 3 = 900."""
    assert pointer_tables.operations(PointerConfig(encoder="lstm", units=2), 3, 1) == 900
