"""`benchmarks/environments/integrations.py` on a tiny problem."""

import json

import pytest
import torch

from benchmarks.environments import integrations


@pytest.fixture
def restore_threads():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)  # `main` measures on one


@pytest.mark.usefixtures("restore_threads")
def test_figures(tmp_path, capsys):
    """One run of one episode for each side: masks cost time, so steps alone are faster than with masks."""
    out = tmp_path / "results" / "figures.json"
    args = integrations.Args(problem="TSP-10", lanes=2, repeats=1, episodes=1, epochs=1, batch_size=20, out=out)
    figures = integrations.main(args)
    assert json.loads(out.read_text()) == figures
    dummy, native = figures["sb3"]
    assert (dummy["env"], native["env"]) == ("DummyVecEnv", "RoutingVecEnv")
    for row in (dummy, native):
        assert row["steps_per_second"] > row["steps_and_masks_per_second"] > row["learn_steps_per_second"] > 0
    keys = ("steps_per_second", "steps_and_masks_per_second", "learn_steps_per_second")
    assert figures["times_dummy"] == {key: native[key] / dummy[key] for key in keys}
    assert {"commit", "processor", "versions"} <= figures["machine"].keys()
    assert "RoutingVecEnv" in capsys.readouterr().out
