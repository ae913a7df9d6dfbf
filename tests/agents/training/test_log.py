"""Metrics on Weights & Biases; runs in the environment of `make test-integrations`, and offline."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import pytest

import am_reinforce
from am_reinforce import Args
from helpers import TINY, logged

WANDB = replace(TINY, name="run", epochs=2, log="wandb")


def test_metrics_reach_weights_and_biases(tmp_path, monkeypatch):
    """Its file of a run that is offline has all values of metrics.jsonl in plain text. A resumed run keeps its id."""
    wandb = pytest.importorskip("wandb", reason="wandb is in the environment of make test-integrations")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    folder = am_reinforce.main(replace(WANDB, runs=tmp_path))
    wandb.teardown()  # its service writes the end of the file after the run has finished
    (file,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    content = file.read_bytes()
    rows = logged(folder)
    assert [json.dumps(row["greedy"]).encode() in content for row in rows] == [True, True]
    assert b"eval/greedy_cost" in content
    assert b"eval/solution" in content
    am_reinforce.main(Args(resume=folder))
    assert {path.name for path in folder.glob("wandb/offline-run-*/run-*.wandb")} == {file.name}


def test_wandb_that_cannot_log_is_named_before_work_starts(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ImportError, match=r'wandb cannot be imported .*: pip install "\.\[wandb\]"'):
        am_reinforce.main(replace(WANDB, runs=tmp_path))
    assert not list(tmp_path.iterdir())
