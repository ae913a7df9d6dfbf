"""Learned dispatching: exact resumption, what is learnt, padding, prizes, wrong input."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import dispatch
import routing_agents
from helpers import check_resumption, logged
from routing_agents.dispatch.evaluation import compare, make_source, versus
from routing_agents.dispatch.network import SMALL, RequestNetwork, open_requests
from routing_agents.dispatch.policy import Learned, lessons, load_policy, worthwhile
from routing_agents.dispatch.router import ModelRouter
from routing_agents.header import CheckpointError
from routing_agents.policies.attention.model import ModelConfig
from routing_gym.arrays import select
from routing_gym.dynamic import GeneratedDays, rules
from routing_gym.dynamic.days import NEVER
from routing_gym.dynamic.observations import observe
from routing_gym.dynamic.oracle import solve_in_hindsight
from routing_gym.dynamic.policies import greedy, play
from routing_gym.dynamic.solver import Limits, PyVRPRouter

pytest.importorskip("pyvrp")
SIZES = ModelConfig(embed_dim=8, num_heads=2, num_layers=1, feed_forward_dim=8, normalization="layer")
TINY = dispatch.Args(
    requests=4.0, days=2, oracle_iterations=20, router_iterations=5, held_out=2, epochs=2, steps_per_epoch=2, threads=1
)
LINE = """TYPE : VRPTW
DIMENSION : 2
EDGE_WEIGHT_TYPE : EXPLICIT
EDGE_WEIGHT_FORMAT : FULL_MATRIX
CAPACITY : 5
EDGE_WEIGHT_SECTION
0 10 10 0
DEMAND_SECTION
1 0
2 3
DEPOT_SECTION
1 -1
SERVICE_TIME_SECTION
1 0
2 5
TIME_WINDOW_SECTION
1 0 20000
2 40 16000
"""
FEW = Limits(seconds=None, iterations=20)


@pytest.fixture(scope="module")
def days():
    return GeneratedDays(requests=6.0).draw([np.random.default_rng(seed) for seed in range(4)])


@pytest.mark.parametrize("algorithm", ["fenchel-young", "ppo"])  # imitation draws nothing that they do not
def test_resumed_run_equals_uninterrupted_run(tmp_path, monkeypatch, algorithm):
    """Two epochs of two steps, stopped within epoch 2, against two in one go; then, a worker solves the days."""
    args = replace(TINY, algorithm=algorithm, network=SIZES, runs=tmp_path)
    oracle = {} if algorithm == "ppo" else {"executor": "processes", "workers": 1}
    _, parts = check_resumption(monkeypatch, dispatch, dispatch.DispatchTrainer, args, 3, **oracle)
    for file in ("args.json", "curve.png", "day.png", "day.gif", "tensorboard"):
        assert (parts / file).exists(), file


def test_imitation_learns(tmp_path):
    """Eight steps: the best policy is 5 % below greedy."""
    args = replace(TINY, runs=tmp_path, requests=10.0, days=6, epochs=2, steps_per_epoch=4, learning_rate=3e-3)
    assert min(row["versus_greedy"] for row in logged(dispatch.main(args))) < -5


def test_padding_changes_no_score(days):
    """A day's requests have the same scores alone as beside days with more of them."""
    state = replace(rules.initial(days), epoch=np.array([0, 1, 2, 3]))
    network = RequestNetwork(SMALL, torch.Generator().manual_seed(0))
    together = open_requests(observe(days, state))
    scores, values = network(together)
    for row in range(4):
        alone = open_requests(observe(select(days, [row]), select(state, [row])))
        count = int(together.exists[row].sum())
        assert count == alone.exists.sum() > 0
        score, value = network(alone)
        assert torch.allclose(score[0, :count], scores[row, :count], atol=1e-5)
        assert torch.allclose(value[0], values[row], atol=1e-5)


def test_slots_survive_the_way_there_and_back(days):
    state = replace(rules.initial(days), epoch=np.array([0, 1, 2, 3]))
    requests = open_requests(observe(days, state))
    assert np.array_equal(requests.spread(requests.exists, days.num_slots), rules.open_requests(days, state))
    must = rules.must_go(days, state)
    free = rules.open_requests(days, state) & ~must
    assert np.array_equal(requests.spread(requests.free, days.num_slots), free)


def test_lessons_are_legal_and_complete(days):
    """In each day, every request leaves in exactly one lesson or is forced to; those that must leave do."""
    ((_, tours),) = solve_in_hindsight([days], FEW)
    lesson = lessons(days, tours)
    must = lesson.requests.exists & ~lesson.requests.free
    assert (lesson.leaves[must] == 1).all()
    assert 0 < lesson.leaves[lesson.requests.free].mean() < 1
    assert (lesson.day.arrival[np.arange(len(lesson.leaves))[:, None], lesson.requests.slot] < 6).any()


def test_prizes_decide(days):
    """At prizes of 0 only what must leave does; at prizes above any way there and back, everything."""
    state = rules.initial(days)
    for _ in range(2):
        state = rules.dispatch(state, rules.must_go(days, state))
    must, is_open = rules.must_go(days, state), rules.open_requests(days, state)
    nothing, much = np.zeros(must.shape, int), np.full(must.shape, 20_000)
    assert np.array_equal(worthwhile(days, state, nothing, FEW), must)
    assert np.array_equal(worthwhile(days, state, much, FEW), is_open)
    assert (is_open & ~must).any()


def test_policies_are_read_and_compared(tmp_path, capsys):
    folder = dispatch.main(replace(TINY, runs=tmp_path, epochs=1, steps_per_epoch=1, network=SIZES))
    policy = load_policy(folder, FEW)
    assert isinstance(policy, Learned)
    assert policy.network.config == SIZES
    dispatch.main(dispatch.Args(evaluate=folder, held_out=1, router_iterations=5))
    assert "1 days on random maps, 4 requests an epoch" in capsys.readouterr().out
    source = make_source("", 3.0)
    days = source.draw([np.random.default_rng(seed) for seed in range(2)])
    compare(days, source, {"learned": policy}, PyVRPRouter(FEW))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[-8:]] == (
        ["policy", "greedy", "lazy", "random", "threshold", "scenario", "learned", "hindsight"]
    )


WEEK = """NAME : week
TYPE : VRPTW
DIMENSION : 3
VEHICLES : 2
EDGE_WEIGHT_TYPE : EXPLICIT
EDGE_WEIGHT_FORMAT : FULL_MATRIX
CAPACITY : 5
EDGE_WEIGHT_SECTION
0 10 20 10 0 12 20 12 0
NODE_COORD_SECTION
1 0 0
2 0 10
3 0 20
DEMAND_SECTION
1 0
2 3
3 2
DEPOT_SECTION
1
-1
SERVICE_TIME_SECTION
1 0
2 5
3 5
TIME_WINDOW_SECTION
1 0 20000
2 40 16000
3 8000 16000
EOF
"""


def test_evaluations_take_what_is_not_given_from_the_run(tmp_path, monkeypatch, capsys):
    """Each of the two options alone. With one epoch, there is nothing to decide."""
    path = tmp_path / "week.txt"
    path.write_text(WEEK)
    args = replace(TINY, runs=tmp_path, epochs=1, steps_per_epoch=1, network=SIZES, algorithm="ppo")
    folder = dispatch.main(replace(args, static=str(path), requests=2.0, name="week"))
    monkeypatch.setattr(dispatch, "compare", lambda *_: None)
    monkeypatch.setattr(dispatch, "picture_of", lambda *_: None)
    capsys.readouterr()
    for given, told in (
        ({}, f"of {path}, 2 requests"),
        ({"requests": 12.0}, f"of {path}, 12 requests"),
        ({"static": ""}, "on random maps, 2 requests"),
        ({"static": "", "requests": 5.5}, "on random maps, 5.5 requests"),
    ):
        dispatch.main(dispatch.Args(evaluate=folder, held_out=1, router_iterations=5, **given))
        assert f"1 days {told} an epoch" in capsys.readouterr().out
    path.write_text(WEEK.replace("8000", "80"))
    with pytest.raises(ValueError, match="week.txt: all time windows open in one epoch of 3600, so that no request"):
        dispatch.main(replace(args, static=str(path)))


def test_versus_by_hand():
    """90 and 120 of 100: +5 on average; standard deviation 21.2, so 1.96 * 21.2 / sqrt 2 = 29.4 to both sides."""
    assert versus(np.array([90, 120]), np.array([100, 100])) == pytest.approx((5.0, 29.4))


def test_wrong_input(tmp_path):
    with pytest.raises(ValueError, match="normalization must be layer or none"):
        RequestNetwork(ModelConfig())
    with pytest.raises(ValueError, match="--days must be an integer of at least 1"):
        dispatch.Args(days=0)
    with pytest.raises(CheckpointError, match="no such file"):
        load_policy(tmp_path, FEW)
    (tmp_path / "line.txt").write_text(LINE)
    with pytest.raises(ValueError, match="line.txt:.* the file ends without VEHICLES"):
        dispatch.main(replace(TINY, static=str(tmp_path / "line.txt"), runs=tmp_path))
    with pytest.raises(FileNotFoundError, match="nowhere"):
        dispatch.main(replace(TINY, static=str(tmp_path / "nowhere"), runs=tmp_path))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"requests": 0.5}, "--requests must be at least 2, got 0.5"),
        ({"static": "file", "requests": 6.5}, "--requests must be an integer with --static, got 6.5"),
        ({"ent_coef": float("nan")}, "--ent-coef must be"),
        ({"workers": 2}, "--workers 2 has no effect without --executor processes or ray"),
        ({"evaluate": Path("a"), "resume": Path("b")}, "--evaluate and --resume"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        dispatch.Args(**arguments)


def test_trained_policy_routes(days):
    """The published VRPTW policy serves everything in time on asymmetric durations: `play` checks its routes."""
    router = ModelRouter(routing_agents.load("VRPTW-20"))
    cost = play(days, greedy, router, np.random.default_rng(0))
    alone = sum(days.depot_durations()) * (days.arrival < NEVER)
    assert (cost < 0.9 * alone.sum(axis=1)).all()
    with pytest.raises(ValueError, match="ModelRouter needs coordinates"):
        play(replace(days, coords=None), greedy, router, np.random.default_rng(0))
