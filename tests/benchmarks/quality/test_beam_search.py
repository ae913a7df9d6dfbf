"""The benchmark of beam search on tiny sets: what it writes, and what it does not measure again."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

import evaluate
from benchmarks.quality import beam_search
from benchmarks.quality.quality_tables import beam_search as table


def test_sets_are_measured_once(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(beam_search, "SETS", {"random/TSP-8": ("held-karp", beam_search.SAMPLES, 3)})
    args = beam_search.Args(out=tmp_path / "figures.json")
    figures = beam_search.main(args)
    assert json.loads(args.out.read_text()) == figures
    found = figures["sets"]["random/TSP-8"]["methods"]
    assert found["held-karp"]["gap"] == 0
    assert found[beam_search.GREEDY]["gap"] >= found[beam_search.BEAM]["gap"] > -1e-3
    monkeypatch.setattr(evaluate, "main", lambda run: 1 / 0)
    assert beam_search.main(args) == figures
    assert "| TSP-8 | 3 | " in table(figures)
    assert capsys.readouterr().out.endswith(table(figures) + "\n")
    with pytest.raises(FileNotFoundError, match=r"--peers nix.npz: no such file; name MVMoE's test instances"):
        beam_search.main(replace(args, peers=Path("nix.npz")))
