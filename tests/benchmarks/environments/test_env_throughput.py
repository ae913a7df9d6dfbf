"""`benchmarks/environments/env_throughput.py` on a tiny problem."""

import json

import numpy as np
import pytest
import torch

from benchmarks.environments import env_throughput


@pytest.fixture
def restore_threads():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)  # `main` measures on one


@pytest.mark.usefixtures("restore_threads")
def test_figures(tmp_path, capsys):
    """Two lanes: sync, native on two backends with and without copies, and two bare transitions, for one problem."""
    out = tmp_path / "results" / "figures.json"
    args = env_throughput.Args(problems=("CVRP-10",), lanes=(2,), repeats=1, work=2, out=out)
    figures = env_throughput.main(args)
    assert json.loads(out.read_text()) == json.loads(json.dumps(figures))
    assert [row["kind"] for row in figures["rows"]] == ["sync", *["native"] * 4, *["transition"] * 2]
    assert all(row["steps_per_second"] > 0 for row in figures["rows"])
    native = figures["rows"][1]
    assert native["times_sync"] == native["steps_per_second"] / figures["rows"][0]["steps_per_second"]
    assert {"commit", "processor", "versions"} <= figures["machine"].keys()
    parts = figures["breakdown"][0]
    names = ("step and mask", "instances", "copies", "bookkeeping")
    assert sum(parts[name] for name in names) == pytest.approx(parts["all"])
    assert "CVRP-10" in capsys.readouterr().out


def test_policy_draws_uniformly_among_the_legal():
    """Two of three nodes are legal: each in about half of 4,000 draws (standard deviation 32)."""
    mask = np.tile(np.array([1, 0, 1], dtype=np.int8), (4000, 1))
    actions = env_throughput.random_legal(np.random.default_rng(0), mask)
    assert set(actions.tolist()) == {0, 2}
    assert abs((actions == 0).sum() - 2000) < 160
