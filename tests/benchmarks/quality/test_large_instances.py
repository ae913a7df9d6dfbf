"""Decoding in chunks: the same tours, in the memory that is free, or a clear error."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.quality import large_instances
from benchmarks.quality.large_instances import Case
from problem_names import ONE_OF_EACH
from routing_agents.policies.attention import decoding, memory
from routing_agents.policies.attention.decoding import GREEDY, Decoding, num_symmetries, solve
from routing_agents.policies.attention.features import FEATURES
from routing_agents.policies.attention.memory import WORKSPACE, Footprint, chunk_size, footprint, free_memory
from routing_agents.policies.attention.model import AttentionModel, ModelConfig
from routing_agents.search.beam import beam_search
from routing_gym.arrays import to_backend
from routing_gym.problems import TSPInstance, make_problem

CPU = torch.device("cpu")
SMALL = ModelConfig(embed_dim=16, num_heads=4, num_layers=2, feed_forward_dim=32)
on_linux = pytest.mark.skipif(not Path("/proc/meminfo").exists(), reason="reads /proc")


def small(name: str, num_nodes: int = 7, batch_size: int = 6):
    problem = make_problem(name, num_nodes)
    instance = to_backend(problem.generate(np.random.default_rng(3), batch_size), "torch")
    return problem, instance, AttentionModel(FEATURES[name], SMALL, torch.Generator().manual_seed(5))


@pytest.fixture
def free(monkeypatch):
    """Return a function that says how many bytes there seem to be free."""
    return lambda number: monkeypatch.setattr(memory, "free_memory", lambda device: number)


@pytest.mark.parametrize(("name", "batch_size"), [("TSP", 1), ("SDVRP", 9), *((name, 3) for name in ONE_OF_EACH)])
def test_chunks_change_nothing(name, batch_size):
    """Chunks of one tour, of a part of an instance's five tours, and of one instance with all five."""
    problem, instance, model = small(name)
    several = min(2, num_symmetries(problem))
    ways = [GREEDY, Decoding(symmetries=num_symmetries(problem))]
    if problem.any_first_node:
        ways += [Decoding(5, force_starts=True), Decoding(5, force_starts=True, symmetries=several)]
    for way in ways:
        whole = solve(model, problem, instance, way, batch_size=1000)
        chunked = solve(model, problem, instance, way, batch_size=batch_size)
        torch.testing.assert_close(chunked.cost, whole.cost)
        assert torch.equal(chunked.actions, whole.actions)


def test_distances_count_where_they_are_copied():
    """(7, 7) float32 distances: 196 bytes for each of several tours; a single tour copies nothing."""
    problem, instance, model = small("TSP")
    exact = TSPInstance(instance.coords, torch.zeros(6, 7, 7))
    with_distances, without = footprint(model, problem, exact), footprint(model, problem, instance)
    assert with_distances == replace(without, copy=without.copy + 196)
    assert with_distances.peak(3, 1) == without.peak(3, 1)


@pytest.mark.parametrize(
    ("num_tours", "budget", "expected"),
    [
        (1, 140, (6, 1)),  # 20 + 2 x 6 x 10
        (1, 139, (5, 1)),
        (1, 20, (1, 1)),  # needs 40, more than half of what is free but not more than all
        (5, 76, (2, 5)),  # 20 + 2 x 2 x (4 + 5 x 2)
        (5, 75, (1, 5)),
        (5, 47, (1, 4)),  # a part of the tours: 20 + 2 x (4 + 4 x 2) = 44
        (5, 20, (1, 1)),
    ],
)
def test_as_many_as_fit_into_half_of_what_is_free(free, monkeypatch, num_tours, budget, expected):
    """Millions of bytes: an instance 10 while encoded, then 4, and 2 for each of several tours."""
    monkeypatch.setattr(memory, "footprint", lambda *args: Footprint(10**7, 4 * 10**6, 10**6, 10**6))
    free(2 * budget * 10**6)
    problem, instance, model = small("TSP")
    assert chunk_size(model, problem, instance, num_tours, None) == expected


def test_never_more_than_1024_tours(free):
    free(10**15)
    problem, instance, model = small("TSP", batch_size=2000)
    assert chunk_size(model, problem, instance, 1, None) == (1024, 1)
    assert chunk_size(model, problem, instance, 100, None) == (10, 100)
    assert chunk_size(model, problem, instance, 1280, None) == (1, 1024)
    assert chunk_size(model, problem, instance, 1280, None, together=True) == (1, 1280)


def test_too_little_memory_is_said_before_any_work(free):
    problem, instance, model = small("TSP")
    model.encode = None  # any use would raise TypeError
    free(WORKSPACE)
    with pytest.raises(MemoryError, match="TSP with 7 nodes: decoding 1 tour .* 0.02 GB .* set the batch size to 1"):
        solve(model, problem, instance)
    with pytest.raises(MemoryError, match="decoding 3 tours at a time"):
        beam_search(model, problem, instance, 3)


def test_a_batch_size_overrides_the_choice(free):
    problem, instance, model = small("TSP")
    free(0)
    assert solve(model, problem, instance, batch_size=2).cost.isfinite().all()
    assert beam_search(model, problem, instance, 3, batch_size=2).cost.isfinite().all()
    with pytest.raises(ValueError, match="batch_size must be at least 1, got 0"):
        solve(model, problem, instance, batch_size=0)


def fake_system(root: Path, files: dict[str, str]) -> Path:
    """Lay out a Linux with 8 GB available; `files` adds to it or replaces parts."""
    standard = {
        "proc/meminfo": "MemTotal: 9000000 kB\nMemAvailable:    8000000 kB\n",
        "proc/self/cgroup": "0::/\n",
        "proc/self/statm": "1000 500 0 0 0 0 0\n",
    }
    for name, text in {**standard, **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_free_memory_of_a_plain_system(tmp_path):
    """8,000,000 kB of 1,024 bytes."""
    assert free_memory(CPU, fake_system(tmp_path, {})) == 8_192_000_000


def test_free_memory_in_a_group_of_version_2(tmp_path):
    """The parent's limit 2 GB, of which 1.5 are used and 0.4 of these are cached files: 0.9 are left."""
    group = "sys/fs/cgroup/batch"
    files = {
        "proc/self/cgroup": "0::/batch/job\n",
        f"{group}/memory.max": "2000000000\n",
        f"{group}/memory.current": "1500000000\n",
        f"{group}/memory.stat": "anon 1\ninactive_file 400000000\n",
        f"{group}/job/memory.max": "max\n",
    }
    assert free_memory(CPU, fake_system(tmp_path, files)) == 900_000_000


def test_free_memory_under_a_limit_of_the_address_space(tmp_path, monkeypatch):
    """`ulimit -v` at 2,000 MB, of which 1,024 are taken."""
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(resource, "getrlimit", lambda which: (2_000_000_000, resource.RLIM_INFINITY))
    system = fake_system(tmp_path, {"proc/self/status": "VmPeak: 9 kB\nVmSize:  1000000 kB\n"})
    assert free_memory(CPU, system) == 2_000_000_000 - 1_024_000_000


def test_torch_says_when_memory_is_too_little(monkeypatch):
    def allocate(*_):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")

    problem, instance, model = small("TSP")
    monkeypatch.setattr(decoding, "best_tours", allocate)
    with pytest.raises(MemoryError, match="tried to allocate 9 bytes; free some memory, or set a smaller batch size"):
        solve(model, problem, instance)


def test_free_memory_elsewhere(tmp_path):
    assert free_memory(CPU, tmp_path) == 4 * 10**9


def test_free_memory_of_a_gpu(monkeypatch):
    """1 GB that nobody has, and 2 of the 5 GB that torch holds."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (10**9, 8 * 10**9))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 5 * 10**9)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 3 * 10**9)
    assert free_memory(torch.device("cuda")) == 3 * 10**9


@on_linux
@pytest.mark.parametrize(
    "case",
    [
        Case("TSP", 50, 256),  # encoding takes most
        Case("SDVRP", 50, 256),
        Case("OP", 200, decoding=Decoding(1000, sample=True)),  # the tours take most
    ],
    ids=lambda case: f"{case.problem}-{case.decoding.num_tours}",
)
def test_estimate_is_above_the_measured_peak(case):
    """A refusal must be right, and a chunk that is chosen must fit; see `Footprint.peak`."""
    row = large_instances.measure_apart(case)
    used = row["peak_bytes"] - row["before_bytes"]
    assert used < row["estimated_bytes"] < 2.5 * used


@on_linux
@pytest.mark.parametrize("case", [Case("TSP", 2000), Case("TSP", 300, decoding=Decoding(300, force_starts=True))])
def test_memory_grows_with_the_nodes_not_with_their_square(case):
    """At most 60 MB. The scores of all pairs of 2,000 nodes would take 8 heads x 4 bytes x A^2 = 128 MB; logits of
    300 tours and nodes, kept at each of 300 steps, 4 x 300^3 bytes = 108 MB."""
    row = large_instances.measure_apart(case)
    assert row["peak_bytes"] - row["before_bytes"] < 60 * 10**6


@on_linux
def test_figures(tmp_path):
    args = large_instances.Args(
        ("TSP",), (5,), batch=3, batch_nodes=5, out=tmp_path / "figures.json", plot=tmp_path / "plot.png"
    )
    rows = large_instances.main(args)["rows"]
    assert json.loads(args.out.read_text())["rows"] == rows
    assert [(row["num_nodes"], row["num_instances"], row["steps"]) for row in rows] == [
        (5, 1, 5),
        (5, 3, 5),
    ]
    assert args.plot.read_bytes().startswith(b"\x89PNG")
