"""`benchmarks/environments/road_matrices.py` on tiny batches."""

import json

from benchmarks.environments import road_matrices


def test_figures(tmp_path, capsys):
    """Streets take longer than no streets."""
    out = tmp_path / "figures.json"
    figures = road_matrices.main(road_matrices.Args(problems=("CVRP-9", "ATSP-9"), batch_size=20, repeats=2, out=out))
    rates = figures["instances_per_second"]
    assert json.loads(out.read_text())["instances_per_second"] == rates
    assert rates["CVRP-9"]["its own"] > rates["CVRP-9"]["on streets"] > 0
    assert "ATSP" in capsys.readouterr().out
