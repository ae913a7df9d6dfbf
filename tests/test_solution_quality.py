"""The benchmark of tours: its columns, and that nothing is measured twice."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

import checkpoint
import solution_quality
from attention_model import AttentionModel, ModelConfig
from embeddings import FEATURES
from routing_gym.problems import TSP
from solution_quality import Args


@pytest.fixture
def args(tmp_path):
    config = ModelConfig(embed_dim=16, num_heads=4, num_layers=1, feed_forward_dim=16)
    model = AttentionModel(FEATURES["TSP"], config, torch.Generator().manual_seed(5))
    weights = checkpoint.prefixed("model", model.state_dict())
    checkpoint.save(tmp_path / "tsp-20.safetensors", weights, checkpoint.describe(TSP(20), model))
    sets = ("TSP-20", "CVRP-20")  # no weights for the second
    return Args(None, tmp_path, sets, 30, 4, 12, (6, 0, 0), workers=1, out=tmp_path / "figures.json")


def test_columns_are_measured_once(args, monkeypatch):
    results = solution_quality.main(args)
    assert list(results) == ["TSP-20"]
    row = results["TSP-20"]
    assert {name: column["instances"] for name, column in row.items()} == {
        "greedy": 30,
        "sampling": 12,
        "search": 30,
        "reference": 6,
    }
    means = {name: column["mean"][0] for name, column in row.items()}
    assert means["reference"] < means["search"] < means["greedy"]  # the optimum, the best of 160 tours, one tour
    monkeypatch.setattr(solution_quality.TestSet, "decode", None)  # whatever is measured again now fails
    assert solution_quality.main(args) == json.loads(json.dumps(results))
    with pytest.raises(TypeError, match="not callable"):
        solution_quality.main(replace(args, samples=5))
    weights = args.own / "tsp-20.safetensors"
    tensors, header = checkpoint.load(weights)
    checkpoint.save(weights, {key: value + 1e-3 for key, value in tensors.items()}, header)
    with pytest.raises(TypeError, match="not callable"):  # the weights are others
        solution_quality.main(args)


def test_unknown_set(args):
    with pytest.raises(ValueError, match="--sets: no TSP-30; choose among TSP-20, TSP-50"):
        solution_quality.main(replace(args, sets=("TSP-30",)))
