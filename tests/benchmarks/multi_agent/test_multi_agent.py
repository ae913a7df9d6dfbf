"""The experiments on games: complete parts are kept, and the statistics are those of arithmetic."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import mappo
from benchmarks.multi_agent import game_throughput, multi_agent_tables
from benchmarks.multi_agent import multi_agent_learning as learning
from benchmarks.multi_agent import multi_agent_values as values
from helpers import fake_peers
from routing_agents import checkpoint
from routing_agents.multi_agent.networks import NetworkConfig
from routing_agents.runs import LAST
from routing_gym import CompetitiveOP


@pytest.fixture
def args(tmp_path):
    where = {"folder": tmp_path / "cells", "out": tmp_path / "out.json"}
    return values.Args(agents=(2, 4), customers=(1, 2), seeds=(1,), steps=2, games=2, held_out=4, **where)


def test_cells_are_measured_once(args, monkeypatch):
    """Four cells, then one of a second seed; the first four are not measured again, and all are in the figures."""
    assert len(values.main(args)["cells"]) == 4
    measured, measure = [], values.measure

    def noted(*given):
        measured.append(given[:3])
        return measure(*given)

    monkeypatch.setattr(values, "measure", noted)
    figures = values.main(replace(args, agents=(4,), customers=(2,), seeds=(1, 2)))
    assert measured == [(4, 2, 2)]
    assert json.loads(json.dumps(figures)) == json.loads(args.out.read_text())
    assert [len(values.mean_explained(figures["cells"], 4, customers, "mean")) for customers in (1, 2)] == [1, 2]
    assert (args.out.parent / "multi_agent_values.png").exists()
    rows = [row.split("|")[1:4] for row in values.table(figures).splitlines()[2:]]
    assert [[int(cell) for cell in row] for row in rows] == [[1, 2, 1], [1, 4, 1], [2, 2, 1], [2, 4, 2]]
    assert len(multi_agent_tables.interaction(figures).splitlines()) == 2 + 6
    assert len(multi_agent_tables.listening(figures).splitlines()) == 2 + 2  # of m = 4, for each n / m
    with pytest.raises(
        ValueError, match="seed1.json: measured with steps 2, not 3; move it away, or name another --fo"
    ):
        values.main(replace(args, steps=3, seeds=(3,)))
    assert measured == [(4, 2, 2)]  # refused before the first measurement


def test_returns_are_what_is_still_collected():
    """At the first tick all of a vehicle's gains, at each later one less by what came between."""
    game = CompetitiveOP(3)
    seen, returns = values.play(game, np.random.default_rng(0), 5)
    assert seen.shape == (16 * 5, 3, 47)
    by_tick = returns.view(16, 5, 3)
    assert (by_tick[:-1] >= by_tick[1:]).all()
    assert (by_tick[0] > 0).any()
    assert (by_tick[0].sum(dim=1) <= 6.0).all()  # of six customers, at most 1 each


def test_leads_by_hand():
    """One arm explains 0.1 and 0.2 more than another at m = 2 with two seeds, 0.3 at m = 4 with one."""
    cells = [
        {"agents": m, "customers": 1, "arms": {"attention": {"explained": 0.5 + lead}, "mean": {"explained": 0.5}}}
        for m, lead in ((2, 0.1), (2, 0.2), (4, 0.3))
    ]
    found = values.leads(cells, "attention", "mean")
    assert found == {(2, 1): pytest.approx([0.1, 0.2]), (4, 1): pytest.approx([0.3])}


def test_interaction_by_hand():
    """Leads of 0.1 log2 m have the slope 0.1, whatever is drawn; those of 0.2, 0.2, 0.2 have 0."""
    rng = np.random.default_rng(0)
    found = values.interaction({(2,): [0.1] * 2, (4,): [0.2] * 2, (8,): [0.3] * 2}, rng)
    assert [found["per_doubling"], *found["interval"]] == pytest.approx([0.1] * 3)
    found = values.interaction({(2,): [0.1], (4,): [0.2] * 2, (8,): [0.3] * 2}, rng)
    assert (found["per_doubling"], found["interval"]) == (pytest.approx(0.1), None)
    found = values.interaction({(2,): [0.1, 0.3], (4,): [0.0, 0.4], (8,): [0.2, 0.2]}, rng)
    assert found["per_doubling"] == pytest.approx(0.0)
    assert found["interval"][0] < -0.03 < 0.03 < found["interval"][1]


def test_listening_by_hand():
    """Four agents in a row at 0, 1, 3, 9; each gives 0.4 to itself, and to the others 0.3, 0.2, 0.1 by number.

    Nearest two of agent 0: 1 and 2, with 0.3 + 0.2 of 0.6; of 1: 0 and 2, the same; of 2: 1 and 0, the same; of 3:
    2 and 1, 0.2 + 0.1. Mean: (3 * 0.5 + 0.3) / 4 / 0.6 = 0.75. By chance 2 / 3.
    """
    weights = torch.tensor([[4, 3, 2, 1], [3, 4, 2, 1], [3, 2, 4, 1], [3, 2, 1, 4]]) / 10

    class Known:
        def attention(self, seen):
            return weights.expand(len(seen), 2, 4, 4)

    seen = torch.zeros(5, 4, 47)
    seen[..., 0] = torch.tensor([0.0, 1.0, 3.0, 9.0])
    found = values.listened(Known(), seen)
    assert found["nearest_two"] == pytest.approx((3 * 0.5 + 0.3) / 4 / 0.6)
    assert found["by_chance"] == pytest.approx(2 / 3)
    assert found["oneself"] == pytest.approx(0.4)


def test_ratio_by_hand():
    """Means 3 and 2: 1.5. Residuals 2 - 1.5, 4 - 4.5: standard deviation sqrt(0.5), over 2 sqrt(2): 0.25."""
    found = learning.ratio(torch.tensor([2.0, 4.0]), torch.tensor([1.0, 3.0]))
    assert [found["mean"], found["standard_error"]] == pytest.approx([1.5, 0.25])


def test_learners_are_run_once_and_compared(tmp_path, monkeypatch):
    """Two kinds of central policies for three vehicles; a run cut off goes on; a second call trains nothing."""
    monkeypatch.setattr(learning, "SAME_GAMES", 12)
    monkeypatch.setitem(learning.EPOCHS, "policies", 1)
    where = {"folder": tmp_path / "runs", "out": tmp_path / "out.json"}
    args = learning.Args(
        groups=("policies",), agents=(3,), mixings=("attention-own", "concatenation"), held_out=8, **where
    )
    script, given = learning.settings("policies", 3, "attention-own", 1, args)
    trainer = mappo.MappoTrainer(given)
    mappo_folder = args.folder / given.name
    mappo_folder.mkdir(parents=True)
    trainer.save(mappo_folder / "last.safetensors")  # as if killed at once
    figures = learning.main(replace(args, transfer=(4,), response_epochs=1))
    assert script is mappo
    attention, concatenation = figures["rows"]
    assert [attention["mixing"], concatenation["mixing"]] == ["attention-own", "concatenation"]
    assert list(attention["transfer"]) == [4]
    assert concatenation["transfer"] == {}  # made for three vehicles
    assert list(attention["intruders"]) == [concatenation["name"]]
    assert {name: row["by_chance"] for name, row in attention["attention"].items()} == {"policy": 1, "critic": 1}
    assert list(concatenation["attention"]) == ["critic"]
    assert attention["best_response"]["mean"] > 0
    assert checkpoint.load(args.folder / "responses" / given.name / LAST)[1]["args"]["learning_rate"] == 5e-4
    monkeypatch.setattr(mappo, "main", None)
    again = learning.main(replace(args, transfer=(4,)))  # finds the best responses that were learnt
    assert again["rows"] == figures["rows"]
    written = json.loads(args.out.read_text())
    assert len(multi_agent_tables.learning(written).splitlines()) == 2 + 2
    assert len(multi_agent_tables.cross_play(written).splitlines()) == 2 + 2
    monkeypatch.setitem(learning.EPOCHS, "policies", 2)
    with pytest.raises(ValueError, match="policies-m3-attention-own-seed1: a run with another epochs; move it away"):
        learning.main(args)


def test_interaction_among_learners_by_hand():
    """With attention 0.2 more than with the mean at m = 2, 0.3 at m = 4: 0.1 per doubling; seeds without a peer out."""

    def row(mixing, agents, value, seed=1):
        measured = {key: {"mean": value, "standard_error": 0.0} for key in ("self_play", "among")}
        return {"group": "values", "agents": agents, "mixing": mixing, "seed": seed, **measured}

    rows = [row("attention-own", 2, 1.2), row("mean", 2, 1.0), row("attention-own", 4, 1.3), row("mean", 4, 1.0)]
    found = learning.interactions([*rows, row("mean", 4, 0.0, seed=2), row("concatenation", 4, 1.0)])
    assert [(one["other"], one["measure"]) for one in found] == [("mean", "self_play"), ("mean", "among")]
    assert [one["per_doubling"] for one in found] == pytest.approx([0.1, 0.1])
    shown = multi_agent_tables.learning_interaction({"interaction": found}).splitlines()[2]
    assert shown == "| values | own and attention over own and mean | self-play | +0.100 | one seed |"


def test_figures_of_other_groups_are_kept(tmp_path):
    """A folder without runs: what was measured before stays."""
    written = learning.ROOT / "benchmarks" / "results" / "multi_agent_learning.json"
    out, folder = tmp_path / "out.json", tmp_path / "runs"
    out.write_text(written.read_text())
    folder.mkdir()
    learning.main(learning.Args(groups=(), folder=folder, out=out))
    assert json.loads(out.read_text())["rows"] == json.loads(written.read_text())["rows"]


def test_groups_differ_in_one_network():
    args = learning.Args()
    for group, network in (("values", "critic"), ("policies", "policy"), ("steering", "critic")):
        (_, one), (_, other) = (learning.settings(group, 4, mixing, 1, args) for mixing in ("mean", "own"))
        changed = {key for key, value in vars(one).items() if value != getattr(other, key)}
        assert changed == {"name", network}
        assert getattr(one, network) == replace(getattr(other, network), mixing="mean")
    assert isinstance(one.critic, NetworkConfig)


def test_names_of_others_are_refused():
    with pytest.raises(ValueError, match="other: not the folder of a run, such as values-m8-mean-seed1"):
        learning.describe("other")


def test_other_libraries_play_beside_ours(tmp_path, monkeypatch):
    """A fake one that says it makes 5 million agent-steps a second, whatever it is asked for."""
    fake_peers(tmp_path, monkeypatch, {"vmas": {"games": 5e6}})
    here = Path(sys.executable)
    tiny = {"agents": (2,), "lanes": (2,), "loop_lanes": 2, "repeats": 1, "games": 1, "out": tmp_path / "out.json"}
    figures = game_throughput.main(game_throughput.Args(peers=("vmas",), vmas_python=here, **tiny))
    assert figures["machine"]["peers"] == {"vmas": {"numpy": np.__version__}}
    table = multi_agent_tables.game_throughput(figures).splitlines()
    assert table[0].endswith("| VMAS, 2 games |")
    assert table[2].endswith("| 5.00 |")
