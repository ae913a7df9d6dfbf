"""`benchmarks/train_throughput.py`: its operation count by hand, and one tiny run."""

from __future__ import annotations

import json

import pytest
import torch

import train_throughput
from attention_model import AttentionModel, ModelConfig
from embeddings import FEATURES


def test_operations_of_the_paper_model():
    """TSP-20, d = 128, hidden 512, three layers.

    Per node and layer: 4 d^2 + 2 d 512 = 196,608 multiplications, twice that with additions; attention
    4 x 20 x 128 per node. 3 x 20 x (393,216 + 10,240) = 24,207,360. Projections 2 x 20 x 5 x 128^2 =
    3,276,800. A step trains (three encodings) and rolls out greedily (one): 4 x 27,484,160; each of
    (1 sampled + 3 scored + 1 greedy) x 20 steps reads 6 x 20 x 128: 100 x 15,360 = 1,536,000.
    """
    model = AttentionModel(FEATURES["TSP"], ModelConfig())
    assert train_throughput.encoder_operations(model, 20) == 24_207_360 + 3_276_800
    step = train_throughput.step_operations(model, 20, num_tours=1, num_steps=20, rollout=True)
    assert step == 4 * 27_484_160 + 1_536_000


def test_figures(tmp_path):
    threads = torch.get_num_threads()
    args = train_throughput.Args(
        env_ids=("routing/CVRP-10",), threads=(1,), batch_size=4, steps=1, out=tmp_path / "figures.json"
    )
    rows = train_throughput.main(args)
    torch.set_num_threads(threads)
    written = json.loads((tmp_path / "figures.json").read_text())
    assert written["rows"] == rows
    assert {row["baseline"] for row in rows} == {"rollout", "shared"}
    for row in rows:
        expected = row["operations_per_instance"] * row["instances_per_second"] / row["matrix_product_rate"]
        assert row["share_of_rate"] == pytest.approx(expected)
