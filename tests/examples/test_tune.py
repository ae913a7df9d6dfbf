"""The search for settings: a trial is a run of am_reinforce.py that continues where it was stopped."""

from __future__ import annotations

import pytest

from helpers import logged

pytest.importorskip("ray.tune", reason="Ray is in the environment of make test-integrations")
import tune

pytestmark = pytest.mark.filterwarnings("default")  # Ray's own
TRAIN = "--batch-size 8 --steps-per-epoch 2 --held-out 8 --embed-dim 16 --baseline-size 8"


def settings(runs, **changes):
    fixed = {"env-id": "routing/TSP-6", "epochs": 2, "seed": 1, "train": TRAIN, "cores": 1, "runs": str(runs)}
    return {**fixed, "learning-rate": 1e-3, "num-tours": 4, **changes}


def test_a_trial_continues_where_it_was_stopped(tmp_path):
    """Stopped after its first epoch; the second trial object reports that epoch again, and then trains the other."""
    first = tune.Trial(settings(tmp_path))
    reported = [first.train()]
    first.stop()
    second = tune.Trial(settings(tmp_path))
    again = [second.train(), second.train()]
    second.stop()
    (run,) = [path for path in tmp_path.iterdir() if path.is_dir()]
    greedy = [row["greedy"] for row in logged(run)]
    assert [row["greedy"] for row in again] == greedy
    assert again[0]["greedy"] == reported[0]["greedy"]
    assert [row["done"] for row in again] == [False, True]


def test_a_run_that_fails_says_where(tmp_path):
    trial = tune.Trial(settings(tmp_path, train="--no-such-option"))
    with pytest.raises(RuntimeError, match=r"default: the run ended with status \d; .*default.log says why"):
        trial.step()
    trial.stop()


def test_folders_of_searches(tmp_path):
    with pytest.raises(ValueError, match="no search of Ray Tune is there"):
        tune.make_tuner(tune.Args(resume=tmp_path))
    (tmp_path / "tune").mkdir()
    with pytest.raises(ValueError, match="tune exists; continue it with --resume"):
        tune.make_tuner(tune.Args(runs=tmp_path))
