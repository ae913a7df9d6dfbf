"""Decoding in chunks: the same tours, in bounded memory."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.quality import large_instances
from benchmarks.quality.large_instances import Case
from problem_names import ONE_OF_EACH
from routing_agents.policies.attention import decoding
from routing_agents.policies.attention.decoding import GREEDY, Decoding, num_symmetries, solve
from routing_agents.policies.attention.features import features_named
from routing_agents.policies.attention.memory import chunk_size
from routing_agents.policies.attention.model import AttentionModel, ModelConfig
from routing_agents.search.beam import beam_search
from routing_gym.arrays import to_backend
from routing_gym.problems import make_problem

SMALL = ModelConfig(embed_dim=16, num_heads=4, num_layers=2, feed_forward_dim=32)
on_linux = pytest.mark.skipif(not Path("/proc/meminfo").exists(), reason="reads /proc")


def small(name: str, num_nodes: int = 7, batch_size: int = 6):
    problem = make_problem(name, num_nodes)
    instance = to_backend(problem.generate(np.random.default_rng(3), batch_size), "torch")
    return problem, instance, AttentionModel(features_named(name), SMALL, torch.Generator().manual_seed(5))


@pytest.mark.parametrize(("name", "batch_size"), [("TSP", 1), ("SDVRP", 9), *((name, 3) for name in ONE_OF_EACH)])
def test_chunks_change_nothing(name, batch_size):
    """Chunks of one tour, of a part of an instance's five tours, and of one instance with all five."""
    problem, instance, model = small(name)
    several = min(2, num_symmetries(problem))
    ways = [GREEDY, Decoding(symmetries=num_symmetries(problem))]
    if problem.any_first_node:
        ways += [Decoding(5, force_starts=True), Decoding(5, force_starts=True, symmetries=several)]
    for way in ways:
        whole = solve(model, problem, instance, way, tours_at_once=1000)
        chunked = solve(model, problem, instance, way, tours_at_once=batch_size)
        torch.testing.assert_close(chunked.cost, whole.cost)
        assert torch.equal(chunked.actions, whole.actions)


@pytest.mark.parametrize(
    ("name", "num_nodes", "num_tours", "options", "expected"),
    [
        ("TSP", 7, 1, {}, (1024, 1)),
        ("TSP", 7, 100, {}, (10, 100)),
        ("TSP", 7, 1280, {}, (1, 1024)),
        ("TSP", 7, 1280, {"together": True}, (1, 1280)),
        ("TSP", 2**10, 1, {}, (128, 1)),  # 2^17 / 2^10
        ("TSP", 2**18, 5, {}, (1, 1)),
        ("ATSP", 2**10, 1, {}, (2, 1)),  # 2^10 nodes and 2^20 / 20 pairs: 53,452 of 131,072
        ("TSP", 2**10, 1, {"scored": True}, (14, 1)),  # (1 + 2^10 / 2^7) times as many
    ],
)
def test_chunks(name, num_nodes, num_tours, options, expected):
    """At most 1,024 tours, and 2^17 nodes of them, at a time."""
    problem, model = make_problem(name, num_nodes), AttentionModel(features_named(name), SMALL)
    assert chunk_size(model, problem, 2000, num_tours, None, **options) == expected


def test_tours_at_once_override_the_choice():
    problem, instance, model = small("TSP")
    assert chunk_size(model, problem, 6, 5, 2) == (1, 2)
    assert beam_search(model, problem, instance, 3, tours_at_once=2).cost.isfinite().all()
    with pytest.raises(ValueError, match="tours_at_once must be an integer of at least 1, got 0"):
        solve(model, problem, instance, tours_at_once=0)


def test_torch_says_when_memory_is_too_little(monkeypatch):
    def allocate(*_):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")

    problem, instance, model = small("TSP")
    monkeypatch.setattr(decoding, "best_tours", allocate)
    with pytest.raises(MemoryError, match="tried to allocate 9 bytes; free some memory, or decode fewer tours"):
        solve(model, problem, instance)


@on_linux
@pytest.mark.parametrize("case", [Case("TSP", 2000), Case("TSP", 300, decoding=Decoding(300, force_starts=True))])
def test_memory_grows_with_the_nodes_not_with_their_square(case):
    """At most 70 MB. The scores of all pairs of 2,000 nodes would take 8 heads x 4 bytes x A^2 = 128 MB; logits of
    300 tours and nodes, kept at each of 300 steps, 4 x 300^3 bytes = 108 MB."""
    row = large_instances.measure_apart(case)
    assert row["peak_bytes"] - row["before_bytes"] < 70 * 10**6


@on_linux
def test_figures(tmp_path, monkeypatch):
    monkeypatch.setattr(large_instances, "measure_apart", large_instances.measure)  # processes: see above
    args = large_instances.Args(("TSP",), (5,), batch=3, batch_nodes=5, out=tmp_path / "figures.json")
    rows = large_instances.main(args)["rows"]
    assert json.loads(args.out.read_text())["rows"] == rows
    assert [(row["num_nodes"], row["num_instances"], row["steps"]) for row in rows] == [
        (5, 1, 5),
        (5, 3, 5),
    ]
    assert (tmp_path / "large_instances.png").read_bytes().startswith(b"\x89PNG")
