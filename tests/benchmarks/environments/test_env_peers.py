"""`benchmarks/environments/env_peers.py`: our side on a tiny problem, its reading of the peers, and its errors."""

import importlib
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import worker_process
from benchmarks.environments import env_peers
from helpers import BENCHMARKS, fake_peers

WAYS = {
    "routing-gym-jax": {"scan": 120.0, "call per step": 60.0, "transitions alone, scan": 240.0},
    "rl4co": {"loop, its own policy": 10.0, "loop, ranked policy": 20.0, "transitions alone": 40.0},
    "jumanji": {
        "scan, ranked policy": 30.0,
        "call per step, its own policy": 5.0,
        "transitions alone, scan": 80.0,
        "transitions alone, call per step with resets": 8.0,
    },
}


@pytest.fixture
def args(monkeypatch, tmp_path):
    """Arguments for a tiny run with two fake peers and our own side, all run by this Python."""
    if shutil.which("taskset") is None:
        pytest.skip("needs taskset")
    shutil.copy(BENCHMARKS / "peers" / "routing_gym_worker.py", tmp_path)
    fake_peers(tmp_path, monkeypatch, WAYS)
    monkeypatch.setenv("PYTHONPATH", str(BENCHMARKS.parent))
    here = Path(sys.executable)
    tiny = {"problems": ("CVRP-10",), "lanes": (2,), "repeats": 1, "seconds": 0.001}
    return env_peers.Args(rl4co_python=here, jumanji_python=here, out=tmp_path / "results" / "figures.json", **tiny)


def test_figures(args, capsys):
    """The fake peers take turns with our own side; their steps per second come back as they say them."""
    figures = env_peers.main(args)
    assert json.loads(args.out.read_text()) == json.loads(json.dumps(figures))
    rates = {(row["library"], row["way"]): row["steps_per_second"] for row in figures["rows"]}
    for peer, expected in WAYS.items():
        assert {way: rate for (library, way), rate in rates.items() if library == peer} == pytest.approx(expected)
        assert figures["machine"]["peers"][peer] == {"numpy": np.__version__}
    ours = {way: rate for (library, way), rate in rates.items() if library == "routing-gym"}
    assert list(ours) == ["vector env", "vector env, copy=False", "rollout", "transitions alone"]
    assert all(rate > 0 for rate in ours.values())
    assert "CVRP-10" in capsys.readouterr().out


def test_comparison_takes_the_fastest_way_of_a_peer():
    """The compiled loop makes 120.

    60 / 20 = 3 times rl4co's fastest loop, 60 / 10 = 6 times the shipped one; 90 / 30 = 3 times Jumanji's fastest
    loop, 90 / 5 = 18 times the shipped one."""
    ours = {"vector env": 50.0, "vector env, copy=False": 90.0, "rollout": 60.0, "transitions alone": 120.0}
    rows = [
        {"problem": "TSP-50", "lanes": 64, "library": library, "way": way, "steps_per_second": rate}
        for library, ways in {"routing-gym": ours, **WAYS}.items()
        for way, rate in ways.items()
    ]
    rl4co, jumanji = env_peers.compare(rows)
    assert (rl4co["times_fastest"], rl4co["times_shipped"], rl4co["transitions_alone_times"]) == (3.0, 6.0, 3.0)
    assert (jumanji["fastest_way"], jumanji["times_fastest"], jumanji["times_shipped"]) == (
        "scan, ranked policy",
        3.0,
        18.0,
    )
    assert jumanji["transitions_alone_times"] == 120.0 / 80.0
    assert (rl4co["compiled_times_fastest"], jumanji["compiled_times_fastest"]) == (120.0 / 20.0, 120.0 / 30.0)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("print('hello')", "rl4co: expected a JSON object with versions; got 'hello'"),
        ("print('[1]')", "rl4co: expected a JSON object with versions; got '\\[1\\]'"),
    ],
)
def test_peer_that_fails(args, tmp_path, code, message):
    (tmp_path / "rl4co_worker.py").write_text(code)
    with pytest.raises(worker_process.WorkerError, match=message):
        env_peers.main(args)
    assert not args.out.exists()


@pytest.fixture
def ours(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS / "peers")
    return importlib.import_module("routing_gym_worker")


def test_our_policy_draws_uniformly_among_the_legal(ours):
    """Two of three nodes are legal: each in about half of 4,000 draws (standard deviation 32)."""
    mask = np.tile(np.array([1, 0, 1], dtype=np.int8), (4000, 1))
    actions = ours.random_legal(mask, np.random.default_rng(0))
    assert set(actions.tolist()) == {0, 2}
    assert abs((actions == 0).sum() - 2000) < 160


def test_steps_are_counted_up_to_the_return(ours):
    """1-2-0 takes 3 steps, 2-0-1-0 takes 4; the zeros after them are no steps."""
    actions = np.array([[1, 2, 0, 0, 0], [2, 0, 1, 0, 0]])
    assert ours.count_steps(actions, has_depot=True) == 7
    assert ours.count_steps(actions, has_depot=False) == 10


def test_vector_env_counts_transitions_only(ours):
    """TSP-5, 3 lanes, NEXT_STEP: 2 rounds of 6 calls, one of which resets: 2 x 5 x 3 transitions."""
    play = ours.prepare("TSP", 5, 3, seed=0)["vector env"]
    assert play(2)[0] == 30


def test_our_compiled_loop_counts_every_lane(monkeypatch):
    """TSP-5 in 300 lanes: a round is a scan of 5 x 3 steps (1,024 // 300 = 3), or an episode."""
    pytest.importorskip("jax")
    monkeypatch.syspath_prepend(BENCHMARKS / "peers")
    ways = importlib.import_module("routing_gym_jax_worker").prepare("TSP", 5, 300, seed=0)
    assert ways["scan"](1)[0] == 15 * 300
    assert ways["transitions alone, scan"](1)[0] == 5 * 300
