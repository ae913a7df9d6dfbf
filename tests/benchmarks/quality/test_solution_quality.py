"""The benchmark of tours: its columns, and that nothing is measured twice."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from benchmarks.quality import quality_tables, solution_quality
from benchmarks.quality.solution_quality import Args
from helpers import SQUARE
from routing_agents import checkpoint
from routing_agents.policies.attention.features import features_named
from routing_agents.policies.attention.model import AttentionModel, ModelConfig
from routing_agents.policies.attention.saved import describe
from routing_gym.data.paper import paper_test_set
from routing_gym.problems import make_problem


def save_untrained(folder, name):
    """Save the weights of a small model that has learnt nothing."""
    config = ModelConfig(embed_dim=16, num_heads=4, num_layers=1, feed_forward_dim=16)
    model = AttentionModel(features_named(name), config, torch.Generator().manual_seed(5))
    header = describe(make_problem(name, 20), model)
    checkpoint.save(folder / f"{name.lower()}-20.safetensors", checkpoint.prefixed("model", model.state_dict()), header)


@pytest.fixture
def args(tmp_path):
    save_untrained(tmp_path, "TSP")
    sets = ("TSP-20", "CVRP-20")  # no weights for the second
    return Args(None, tmp_path, sets, 30, 4, 12, (15, 1, 1), (6, 0, 0), workers=1, out=tmp_path / "figures.json")


def test_columns_are_measured_once(args, monkeypatch):
    results = solution_quality.main(args)
    assert list(results) == ["TSP-20"]
    row = results["TSP-20"]
    assert {name: column["instances"] for name, column in row.items()} == {
        "greedy": 30,
        "sampling": 12,
        "multi-start": 15,
        "symmetries": 15,
        "reference": 6,
    }
    means = {name: column["mean"][0] for name, column in row.items()}
    assert means["reference"] < means["symmetries"] < means["multi-start"] < means["greedy"]  # of 160, 20, 1 tours
    monkeypatch.setattr(solution_quality.TestSet, "decode", None)  # whatever is measured again now fails
    assert solution_quality.main(args) == json.loads(json.dumps(results))
    with pytest.raises(TypeError, match="not callable"):
        solution_quality.main(replace(args, samples=5))
    weights = args.own / "tsp-20.safetensors"
    tensors, header = checkpoint.load(weights)
    checkpoint.save(weights, {key: value + 1e-3 for key, value in tensors.items()}, header)
    with pytest.raises(TypeError, match="not callable"):  # the weights are others
        solution_quality.main(args)


def test_problems_that_the_paper_has_not(args):
    """Random instances: greedy, the best of 128 samples, and PyVRP on the first six."""
    save_untrained(args.own, "VRPTW")
    (row,) = solution_quality.main(replace(args, sets=("VRPTW-20",))).values()
    assert {name: column["instances"] for name, column in row.items()} == {
        "greedy": 30,
        "best of 128": 30,
        "reference": 6,
    }
    assert row["reference"]["mean"][0] < row["best of 128"]["mean"][0] < row["greedy"]["mean"][0]
    assert solution_quality.TestSet(args, "VRPL-20").own is None


@pytest.mark.parametrize("name", ["CVRP", "SPCTSP"])
def test_fewer_instances_are_the_first_of_the_papers(args, name):
    first = solution_quality.TestSet(args, f"{name}-20").instances()
    assert len(first.coords) == 30
    assert (first.coords == paper_test_set(name, 20).coords[:30]).all()


def test_damaged_figures_are_named(args):
    args.out.write_text("{")
    with pytest.raises(ValueError, match="figures.json: not the figures of this script"):
        solution_quality.main(args)


def test_columns_where_the_first_node_matters(args):
    """Several samples in place of several starts, and no choice among tours where prizes show on the way only."""
    for name in ("PCTSP", "SPCTSP"):
        save_untrained(args.own, name)
    results = solution_quality.main(replace(args, sets=("PCTSP-20", "SPCTSP-20"), samples=0, reference_size=(0, 0, 0)))
    means = {name: column["mean"][0] for name, column in results["PCTSP-20"].items()}
    assert list(means) == ["greedy", "multi-start", "symmetries"]
    assert means["symmetries"] < min(means["multi-start"], means["greedy"])  # the best of 128, 16, 1 tours
    assert list(results["SPCTSP-20"]) == ["greedy"]


def test_files(args, tmp_path):
    path = tmp_path / "square.tsp"
    path.write_text(SQUARE)
    results = solution_quality.main(replace(args, sets=(), files=(path,)))
    row = results["files"]["square"]
    assert (row["problem"], row["best known"], row["weights"]) == ("TSP", None, "tsp-20")
    assert row["starts"]["cost"] == 40
    assert f"| square | TSP | - | tsp-20 | {row['greedy']['cost']} | - | " in quality_tables.tables(results)["files"]


def test_tables():
    """A mean over all instances, one estimated from a part, a prize, a gap of a prize."""
    settings = {"settings": {"size": 100}}
    results = {
        "OP-20": {
            "greedy": {"mean": [-4.5, -4.6, -4.4], "instances": 100, "seconds_per_instance": 0.002, **settings},
            "reference": {
                "mean": [-5.0, -5.25, -4.75],
                "instances": 10,
                "seconds_per_instance": 2.0,
                "settings": {"size": 100, "solver": "milp 600 s"},
            },
        }
    }
    tables = quality_tables.tables(results)
    rows = {
        "ours": "| OP-20 | 4.500 | - | - | - | 5.000 ± 0.250 | 5.19 | 5.30 | 5.39 | - |",
        "gaps": "| OP-20 | 10.00 | - | - | - |",
        "times": "| OP-20 | 2 | - | - | - | 2,000 | milp |",
    }
    assert {part: tables[part].splitlines()[2:] for part in rows} == {part: [row] for part, row in rows.items()}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"size": 10_001}, "--size must be at most 10000, got 10001"),
        ({"sampling_size": 0}, "--sampling-size must be an integer of at least 1, got 0"),
        ({"search_size": (0, 0, 0)}, "--search-size must be integers of at least 1"),
        ({"samples": -1}, "--samples must be an integer of at least 0, got -1"),
        ({"sets": ("TSP-30",)}, "--sets: no TSP-30; choose among TSP-20, TSP-50"),
        ({"files": (Path("nix.tsp"),)}, "--files: no file nix.tsp"),
        ({"weights": Path("nix")}, "--weights nix: no such folder"),
    ],
)
def test_bad_arguments(changes, message):
    """They are refused before anything is measured."""
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        solution_quality.Args(**changes)
