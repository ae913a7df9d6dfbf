"""`benchmarks/dynamic/dispatch_policies.py`: days are kept with their settings, and arguments are checked."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

pytest.importorskip("pyvrp")
from benchmarks.dynamic import dispatch_policies as script


@pytest.fixture
def args(tmp_path, monkeypatch):
    monkeypatch.setattr(script, "speed", lambda args: {})
    few = dict.fromkeys(("router_iterations", "scenario_iterations", "oracle_iterations"), 2)
    return script.Args(settings=("default",), days=2, requests=2.0, folder=tmp_path / "days", out=tmp_path / "a", **few)


def test_days_are_played_once(args, monkeypatch):
    """Six policies; other settings are refused before a day is played."""
    figures = script.main(args)
    assert list(figures["settings"]["default"]) == [
        *("greedy", "lazy", "random", "threshold"),
        *("scenario sampling", "hindsight"),
    ]
    assert figures["settings"]["default"]["greedy"]["versus_greedy"] == 0
    assert (figures["learned"], figures["files"]) == ({}, [])
    monkeypatch.setattr(script.Measurement, "durations", None)
    assert script.main(args)["settings"] == figures["settings"] == json.loads(args.out.read_text())["settings"]
    for change, told in (("days", "days 2, not 3"), ("scenario_iterations", "scenario_iterations 2, not 3")):
        with pytest.raises(ValueError, match=f"{told}; move it away, or name another --folder"):
            script.main(replace(args, **{change: 3}))
    with pytest.raises(ValueError, match=r"default-greedy.json: measured with sources .*'requests': 2.0.*, not"):
        script.main(replace(args, requests=3.0))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"settings": ("nonsense",)}, "--settings: unknown nonsense; choose from default, 6 requests an epoch"),
        ({"settings": ()}, "--settings: name at least one of default, .*, or give --static"),
        ({"days": 0}, "--days must be an integer of at least 1, got 0"),
        ({"requests": 0.0}, "--requests must be a positive number"),
    ],
)
def test_bad_arguments(changes, message):
    with pytest.raises(ValueError, match=message):
        script.Args(**changes)


def test_a_folder_without_files_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"--static .*nix: no \.txt files in it; name a folder of VRPLIB files"):
        script.main(script.Args(static=tmp_path / "nix"))
