"""`benchmarks/training/train_throughput.py`: its arithmetic by hand, and one tiny run of ours."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import worker_process
from benchmarks.hardware import describe_machine
from benchmarks.training import operation_counts, train_throughput
from benchmarks.worker_process import WorkerError
from routing_agents.policies.attention.features import features_named
from routing_agents.policies.attention.model import AttentionModel, ModelConfig
from routing_agents.training.tuning import fast_precision


def test_operations_of_the_paper_model():
    """TSP-20, d = 128, hidden 512, three layers.

    Per node and layer: 4 d^2 + 2 d 512 = 196,608 multiplications, twice that with additions; attention
    4 x 20 x 128 per node. 3 x 20 x (393,216 + 10,240) = 24,207,360. Projections 2 x 20 x 5 x 128^2 =
    3,276,800. A step trains (three encodings) and rolls out greedily (one): 4 x 27,484,160; each of
    (1 sampled + 3 scored + 1 greedy) x 20 steps reads 6 x 20 x 128: 100 x 15,360 = 1,536,000.
    """
    model = AttentionModel(features_named("TSP"), ModelConfig())
    assert operation_counts.encoder_operations(model, 20) == 24_207_360 + 3_276_800
    step = operation_counts.step_operations(model, 20, num_tours=1, num_steps=20, rollout=True)
    assert step == 4 * 27_484_160 + 1_536_000


def test_operations_of_greedy_decoding():
    """As above: one encoding and 20 steps that read 6 x 20 x 128 each; CVRP-20 has 21 nodes."""
    assert operation_counts.task_operations("greedy", "TSP-20", 1, 20) == 27_484_160 + 20 * 15_360
    more_steps = operation_counts.task_operations("greedy", "CVRP-20", 1, 31)
    assert more_steps - operation_counts.task_operations("greedy", "CVRP-20", 1, 30) == 6 * 21 * 128


def row(library: str, precision: str, threads: int, processes: int, speed: float) -> dict[str, Any]:
    cell = {"task": "rollout", "problem": "TSP-20", "batch_size": 512}
    names = {"library": library, "precision": precision, "threads": threads, "processes": processes}
    return {**cell, **names, "instances_per_second": speed}


def test_comparison_takes_the_fastest_of_both_on_as_many_cores():
    """One core: 300 / 200; two cores: 390 / 260 = 1.5 with two threads, 520 / 260 = 2 with two processes."""
    rows = [
        row("routing-gym", "float32", 1, 1, 150.0),
        row("routing-gym", "bfloat16", 1, 1, 300.0),
        row("rl4co", "float32", 1, 1, 200.0),
        row("rl4co", "bfloat16", 1, 1, 100.0),
        row("routing-gym", "bfloat16", 2, 1, 390.0),
        row("routing-gym", "bfloat16", 1, 2, 520.0),
        row("rl4co", "float32", 2, 1, 260.0),
    ]
    one, two = train_throughput.compare(rows)
    assert (one["cores"], one["times_rl4co"], one["times_rl4co_any_processes"]) == (1, 1.5, 1.5)
    assert (two["cores"], two["times_rl4co"], two["times_rl4co_any_processes"]) == (2, 1.5, 2.0)
    assert train_throughput.compare(rows[:2]) == []


def test_figures_without_rl4co_and_bfloat16(tmp_path, monkeypatch, capsys):
    """On a processor that emulates bfloat16: by default it was measured for over twenty minutes."""
    monkeypatch.setattr(train_throughput, "fast_precision", lambda device: "float32")
    args = train_throughput.Args(
        problems=("CVRP-10",),
        tasks=("rollout",),
        threads=(1,),
        batch_sizes=(4,),
        rounds=1,
        memory_problems=(),
        out=tmp_path / "figures.json",
    )
    figures = train_throughput.main(args)
    assert json.loads(args.out.read_text()) == json.loads(json.dumps(figures))
    assert [(row["threads"], row["processes"]) for row in figures["rows"]] == [(1, 1)]
    assert {row["precision"] for row in figures["rows"]} == {"float32"}
    assert "bfloat16 is skipped: cpu has no instructions for bfloat16" in capsys.readouterr().err
    with pytest.raises(ValueError, match="--precisions bfloat16: cpu has no instructions .*; choose float32"):
        train_throughput.main(replace(args, precisions=("bfloat16",)))
    for row in figures["rows"]:
        expected = row["operations_per_instance"] * row["instances_per_second"] / row["matrix_product_rate"]
        assert row["share_of_rate"] == pytest.approx(expected)
    assert figures["comparisons"] == []
    assert figures["rl4co"] is None


def test_processor_time_is_of_one_thread():
    with pytest.raises(ValueError, match="--clock processor adds up the seconds of all threads: give --threads 1"):
        train_throughput.Args(clock="processor")


def test_limits_of_instruction_sets(monkeypatch):
    """With AVX2 only, bfloat16 is emulated whatever the processor; figures name the limits they were measured under."""
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "avx2")
    monkeypatch.delenv("ATEN_CPU_CAPABILITY", raising=False)
    monkeypatch.delenv("MKL_ENABLE_INSTRUCTIONS", raising=False)
    assert fast_precision("cpu") == "float32"
    assert describe_machine()["instructions_limited"] == {"ONEDNN_MAX_CPU_ISA": "avx2"}


def test_rl4co_missing(tmp_path):
    """This interpreter has no rl4co, and the other does not exist."""
    hint = "make its environment with `python3 -m venv .venv-rl4co .*, or name another with --rl4co-python"
    with pytest.raises(WorkerError, match=f"rl4co ended with status 1: .*No module named 'rl4co'; {hint}"):
        train_throughput.main(train_throughput.Args(rl4co_python=Path(sys.executable)))
    with pytest.raises(WorkerError, match=f"python does not exist; {hint}"):
        train_throughput.main(train_throughput.Args(rl4co_python=tmp_path / "python"))
    for path in (Path("/dev/null"), tmp_path):
        with pytest.raises(WorkerError, match=f"{path} is no program that can be run; {hint}"):
            train_throughput.main(train_throughput.Args(rl4co_python=path))


def test_last_words_of_a_worker(tmp_path, monkeypatch):
    monkeypatch.setattr(worker_process, "PEERS", tmp_path)
    greeting = "print('{\"versions\": {}}', flush=True)"
    (tmp_path / "broken.py").write_text(f"{greeting}\ninput()\nraise ValueError('no such device')\n")
    with worker_process.start("peer", "broken.py") as worker:
        worker.ask({})
        with pytest.raises(WorkerError, match="peer ended with status 1: ValueError: no such device"):
            worker.answer()
