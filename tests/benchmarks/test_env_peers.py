"""`benchmarks/env_peers.py`: our side on a tiny problem, its reading of the peers, and what it says when they fail."""

import importlib.util
import json
import shutil
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from helpers import BENCHMARKS

pytest.importorskip("torch")
pytest.importorskip("tyro")
pytest.importorskip("rich")

FAKE_PEER = """
    import time
    from worker import serve

    def prepare(problem, num_nodes, lanes, seed):
        def way(rate):
            def play(rounds):
                return rounds * 1000 * lanes, rounds * 1000 * lanes / rate
            return play
        return {ways}

    serve(("numpy",), prepare)
"""
WAYS = {
    "rl4co": {"loop, its own policy": 10.0, "loop, ranked policy": 20.0, "transitions alone": 40.0},
    "jumanji": {
        "scan, ranked policy": 30.0,
        "call per step, its own policy": 5.0,
        "transitions alone, scan": 80.0,
        "transitions alone, call per step with resets": 8.0,
    },
}


def load(name, path, monkeypatch):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def script(monkeypatch, tmp_path):
    """The benchmark, with two fake peers beside our own side; run by this Python."""
    if shutil.which("taskset") is None:
        pytest.skip("needs taskset")
    monkeypatch.syspath_prepend(BENCHMARKS)  # for its sibling, hardware.py
    module = load("env_peers", BENCHMARKS / "env_peers.py", monkeypatch)
    for name in ("worker.py", "routing_gym_worker.py"):
        shutil.copy(BENCHMARKS / "peers" / name, tmp_path)
    for peer, rates in WAYS.items():
        ways = ", ".join(f"{way!r}: way({rate})" for way, rate in rates.items())
        code = textwrap.dedent(FAKE_PEER).replace("{ways}", f"{{{ways}}}")
        (tmp_path / f"{peer}_worker.py").write_text(code)
    monkeypatch.setattr(module, "PEERS", tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(BENCHMARKS.parent))
    return module


@pytest.fixture
def args(script, tmp_path):
    here = Path(sys.executable)
    tiny = {"problems": ("CVRP-10",), "lanes": (2,), "repeats": 1, "seconds": 0.001}
    return script.Args(rl4co_python=here, jumanji_python=here, out=tmp_path / "results" / "figures.json", **tiny)


def test_figures(script, args, capsys):
    """The fake peers take turns with our own side; their steps per second come back as they say them."""
    figures = script.main(args)
    assert json.loads(args.out.read_text()) == json.loads(json.dumps(figures))
    rates = {(row["library"], row["way"]): row["steps_per_second"] for row in figures["rows"]}
    for peer, expected in WAYS.items():
        assert {way: rate for (library, way), rate in rates.items() if library == peer} == pytest.approx(expected)
        assert figures["machine"]["peers"][peer] == {"numpy": np.__version__}
    ours = {way: rate for (library, way), rate in rates.items() if library == "routing-gym"}
    assert list(ours) == ["vector env", "vector env, copy=False", "rollout", "transitions alone"]
    assert all(rate > 0 for rate in ours.values())
    assert "CVRP-10" in capsys.readouterr().out


def test_comparison_takes_the_fastest_way_of_a_peer(script):
    """At 64 lanes: 60 / 20 = 3 times rl4co's fastest loop, 60 / 10 = 6 times the shipped one, at least 1.5 wanted;
    90 / 30 = 3 times Jumanji's fastest loop, 90 / 5 = 18 times the shipped one, at least 5 wanted."""
    ours = {"vector env": 50.0, "vector env, copy=False": 90.0, "rollout": 60.0, "transitions alone": 120.0}
    rows = [
        {"problem": "TSP-50", "lanes": 64, "library": library, "way": way, "steps_per_second": rate}
        for library, ways in {"routing-gym": ours, **WAYS}.items()
        for way, rate in ways.items()
    ]
    rl4co, jumanji = script.compare(rows)
    assert (rl4co["times_fastest"], rl4co["times_shipped"], rl4co["transitions_alone_times"]) == (3.0, 6.0, 3.0)
    assert (rl4co["reached"], rl4co["reached_as_shipped"]) == (True, True)
    assert (jumanji["fastest_way"], jumanji["times_fastest"], jumanji["times_shipped"]) == (
        "scan, ranked policy",
        3.0,
        18.0,
    )
    assert jumanji["transitions_alone_times"] == 120.0 / 80.0
    assert (jumanji["reached"], jumanji["reached_as_shipped"]) == (False, True)


def test_bars(script):
    """As issue 4 asks."""
    assert [script.bar("TSP-50", "rl4co", lanes) for lanes in (1, 64, 1024, 8192)] == [1.5, 1.5, 3.0, 3.0]
    assert [script.bar("CVRP-50", "rl4co", lanes) for lanes in (1, 64, 1024, 8192)] == [1.5, 1.5, 2.0, 2.0]
    assert [script.bar("TSP-50", "jumanji", lanes) for lanes in (1, 64, 1024, 8192)] == [None, 5.0, 5.0, 5.0]


def test_missing_python(script, args, tmp_path):
    missing = script.Args(rl4co_python=tmp_path / "nowhere", jumanji_python=args.jumanji_python)
    message = "nowhere does not exist; make it with `python3 -m venv .venv-rl4co && .venv-rl4co/bin/pip install -r"
    with pytest.raises(script.PeerError, match=message):
        script.main(missing)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            "import rl4co_is_not_installed",
            "rl4co ended with status 1: ModuleNotFoundError: No module named 'rl4co_is_no",
        ),
        ("print('hello')", "rl4co: expected a JSON object with versions; got 'hello'"),
        ("print('[1]')", "rl4co: expected a JSON object with versions; got '\\[1\\]'"),
    ],
)
def test_peer_that_fails(script, args, tmp_path, code, message):
    (tmp_path / "rl4co_worker.py").write_text(code)
    with pytest.raises(script.PeerError, match=message):
        script.main(args)
    assert not args.out.exists()


@pytest.fixture
def ours(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS / "peers")
    return load("routing_gym_worker", BENCHMARKS / "peers" / "routing_gym_worker.py", monkeypatch)


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
    """TSP-5, 3 lanes, NEXT_STEP: 2 rounds of 6 calls, one of which starts anew: 2 x 5 x 3 transitions."""
    play = ours.prepare("TSP", 5, 3, seed=0)["vector env"]
    assert play(2)[0] == 30
