"""Plans of runs: interruptions, plateaus, what is refused; and when a run has trained enough, by hand."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

import am_reinforce
from am_reinforce import Args
from helpers import AGENTS, TINY, assert_same_run, logged, start
from routing_agents import runs
from routing_agents.arguments import flags
from routing_agents.training import plan
from routing_agents.training.plan import check_unchanged, follow, read_plan
from routing_agents.training.stopping import hours, is_plateau, reason_to_stop

SMALL = """
epochs = 6
steps-per-epoch = 3
batch-size = 8
held-out = 8
num_tours = 4
embed-dim = 16
num-heads = 4
num-layers = 1
feed-forward-dim = 16
threads = 1
processes = 1
"""


def test_hours_by_hand():
    """3,600 instances at 1 a second take an hour, 3,600 more at 2 a second half an hour."""
    rows = [{"instances": 3600, "instances_per_second": 1.0}, {"instances": 7200, "instances_per_second": 2.0}]
    assert hours(rows) == [1.0, 1.5]
    assert reason_to_stop(rows, 0, 1.6) == ""
    assert reason_to_stop(rows, 0, 1.5) == "Ended by --hours 1.5, after 2 epochs."
    assert reason_to_stop([], 0, 1.0) == reason_to_stop([], 3, None) == ""


@pytest.mark.parametrize(
    ("costs", "expected"),
    [
        ([10.0, 9.0], False),  # fewer epochs than patience and one to compare with
        ([10.0, 9.995, 9.992], True),  # 0.008 less, not 0.01
        ([10.0, 9.995, 9.98], False),  # 0.02 less
        ([9.0, 10.0, 9.5], True),
        ([-10.0, -10.005, -10.004], True),  # prizes
        ([-10.0, -10.005, -10.02], False),
    ],
)
def test_plateau_by_hand(costs, expected):
    """Patience of two epochs: at least a thousandth less than the best before."""
    assert is_plateau(costs, 2) == expected


def test_a_run_ends_on_a_plateau_and_stays_ended(tmp_path, capsys):
    """Weights that hardly move: the first epoch, and two in which the cost does not fall. A resumed run adds none."""
    args = replace(TINY, runs=tmp_path, name="run", learning_rate=1e-12, epochs=50, patience=2)
    folder = am_reinforce.main(args)
    assert len(logged(folder)) == 3
    am_reinforce.main(Args(resume=folder))
    assert len(logged(folder)) == 3
    assert capsys.readouterr().out.count("Ended by --patience 2: the cost fell by less than 0.1% in the last 2") == 2
    assert (folder / "solution.png").exists()


def test_a_run_ends_with_its_time(tmp_path):
    folder = am_reinforce.main(replace(TINY, runs=tmp_path, name="run", epochs=50, hours=1e-9))
    assert len(logged(folder)) == 1


def write(tmp_path, text):
    path = tmp_path / "plan.toml"
    path.write_text(text)
    return path


def test_entries_are_arguments(tmp_path):
    """Dashes or underscores; the network's sizes beside the rest; and back to a command line."""
    text = """
[large]
env-id = "routing/CVRP-50"
env_kwargs = {capacity = 30}
sizes = [20, 60]
nearness = false
symmetries = false
hours = 2
init-from = "TSP-20"
"""
    (entry,) = read_plan(write(tmp_path, text), tmp_path, Args)
    assert entry.args.env_kwargs == {"capacity": "30"}
    assert entry.args.sizes == (20, 60)
    assert not entry.args.attention.nearness
    assert entry.args.init_from.name == "TSP-20"
    expected = "--env-id routing/CVRP-50 --env-kwargs capacity 30 --sizes 20 60 --hours 2 --init-from TSP-20"
    assert list(flags(entry.args, Args())) == [*expected.split(), "--no-nearness"]


def test_networks_of_a_plan_have_the_defaults_of_the_command(tmp_path):
    text = "[wide]\nembed-dim = 64\n[paper]\nnearness = false\nvariants = false"
    wide, paper = read_plan(write(tmp_path, text), tmp_path, Args)
    assert wide.args.attention == replace(Args().attention, embed_dim=64)
    assert not paper.args.attention.nearness
    assert list(flags(paper.args, Args())) == ["--no-nearness"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no run; write a table"),
        ("epochs = 3", "epochs stands outside of a table"),
        ("[a", "no TOML file: "),
        ("[a]\nlearning_rat = 1", r"\[a\]: no argument learning_rat; there are env-id, .*learning-rate.*num-layers"),
        ("[b]\nepochs = 'many'", r"\[b\]: epochs is 'many'; expected an integer"),
        ("[b]\nepochs = 0", r"\[b\]: --epochs must be an integer of at least 1, got 0"),
        ("[b]\nname = 'c'", r"\[b\]: leave out name: the table has the name"),
        ("[b]\nembed-dim = 12", r"\[b\]: embed_dim 12 is not a multiple of num_heads 8"),
        ("[b]\nenv-id = 'routing/XYZ-20'", r"\[b\]: --env-id 'routing/XYZ-20' is not a routing problem"),
        ("[b]\ninit-from = 3", r"\[b\]: init-from is 3; expected the path"),
        ("['b/c']\nepochs = 3", r"\[b/c\]: --name 'b/c': use letters"),
        (
            "[b]\ninit-from = 'TSP-20'\nembed-dim = 64",
            r"\[b\]: .*tsp-20.*: a network with embed_dim 128; add --embed-dim 128",
        ),
        (
            "[a]\nembed-dim = 64\n[b]\ninit-from = 'RUNS/a'",
            r"\[b\]: .*a: a network with embed_dim 64; add --embed-dim 64",
        ),
        ("[a]\nmodel = 'pointer'\n[b]\ninit-from = 'RUNS/a'", r"\[b\]: .*a: a network of another kind: it has encoder"),
        ("[b]\ninit-from = 'TSPP-20'", r"\[b\]: 'TSPP-20' is neither a run or checkpoint"),
        ("[b]\ngenerator = 'x'", r"\[b\]: .*TSP"),
        ("[b]\nmodel = 'atention'", r"\[b\]: --model 'atention': choose one of attention, pointer, or add"),
        ("[b]\nheld-out-file = 'no.npz'", r"\[b\]: no.npz"),
        ("[b]\nbatch-size = 15\nprocesses = 2", r"\[b\]: --batch-size 15 cannot be shared by 2 processes"),
        ("[b]\nlog = 'wandb'", r"\[b\]: wandb cannot be imported"),
        ("[b]\nnum-tours = 1", r"\[b\]: the shared baseline compares tours of one instance"),
        ("[b]\nmodel = 'pointer'\nenv-id = 'routing/CVRP-10'", r"\[b\]: --model pointer answers TSP only"),
        ("[b]\ndevice = 'cuda:99'", r"\[b\]: --device cuda:99: torch finds"),
        ("[b]\nloss = 'mse'", r"\[b\]: loss is 'mse'; expected one of reinforce, preference, best-anchored"),
    ],
)
def test_bad_plans(tmp_path, monkeypatch, text, message):
    monkeypatch.setitem(sys.modules, "wandb", None)
    text = text.replace("RUNS", str(tmp_path / "runs"))
    with pytest.raises(ValueError, match=message) as caught:
        follow(Args(plan=write(tmp_path, text), runs=tmp_path / "runs"), "no-script.py")
    assert "plan.toml: " in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "runs").exists()


def test_a_plan_takes_no_other_arguments(tmp_path):
    with pytest.raises(ValueError, match="--plan holds the arguments of the runs; leave out --epochs"):
        follow(Args(plan=tmp_path / "plan.toml", epochs=3), "no-script.py")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("epochs = 1\n", "epochs = 9\n", "--epochs 1, the plan says 9; give the table"),
        ("epochs = 1\n", "", "--epochs 1, the plan says 16"),
        ("learning-rate = 1e-3\n", "", "--learning-rate 0.001, the plan says 0.003"),
        ("[run]\n", "[run]\ninit-from = 'TSP-20'\n", "--init-from None, the plan says TSP-20"),
        ("precision = 'auto'\n", "precision = 'bfloat16'\n", "--precision float32, the plan says bfloat16"),
    ],
)
def test_a_plan_that_changed_under_its_run(tmp_path, monkeypatch, old, new, message):
    """What the run chose itself, such as the precision, is no change."""
    monkeypatch.setattr("am_reinforce.choose_precision", lambda precision, device: "float32")
    text = f"[run]\nenv-id = 'routing/TSP-10'\nprecision = 'auto'\nlearning-rate = 1e-3\n{SMALL}"
    text = text.replace("epochs = 6", "epochs = 1")
    (entry,) = read_plan(write(tmp_path, text), tmp_path, Args)
    am_reinforce.main(replace(entry.args, runs=tmp_path, name="run"))
    check_unchanged(entry)
    with pytest.raises(ValueError, match=rf"\[run\]: .* was started with {message}"):
        follow(Args(plan=write(tmp_path, text.replace(old, new, 1)), runs=tmp_path), "no-script.py")


@pytest.mark.parametrize(("windows", "sent"), [(False, [signal.SIGTERM]), (True, [])])
def test_a_stopped_plan_stops_its_run(tmp_path, monkeypatch, windows, sent):
    """On Windows, Ctrl-C reaches the run by itself, and SIGTERM would kill it unsaved."""
    signals, statuses = [], iter([None, None, 0])

    def wait(seconds):
        if (status := next(statuses)) is None:
            raise subprocess.TimeoutExpired("run", seconds)
        return status

    (entry,) = read_plan(write(tmp_path, f"[first]\n{SMALL}"), tmp_path, Args)
    monkeypatch.setattr(runs, "WINDOWS", windows)
    process = SimpleNamespace(wait=wait, send_signal=signals.append)
    assert plan.watch(process, [entry], entry, SimpleNamespace(requested=True)) == 0
    assert signals == sent


def test_a_run_without_progress_is_given_up(tmp_path, capfd):
    """A script that fails at once is started three times; the next run gets its turn; the status is 1."""
    script = tmp_path / "script.py"
    script.write_text("import sys; print('started', sys.argv[-3]); sys.exit('bad' in sys.argv)")
    path = write(tmp_path, "[bad]\nepochs = 3\n[good]\nepochs = 4")
    assert follow(Args(plan=path, runs=tmp_path / "runs"), str(script)) == 1
    out, err = capfd.readouterr()
    assert [out.count(f"started {name}") for name in ("bad", "good")] == [plan.ATTEMPTS, 1]
    assert err.endswith("Failed, see above: bad\n")
    assert "| good | TSP-20 | 0 of 4 |" in (tmp_path / "runs" / "progress.md").read_text()


def children(pid):
    return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


def wait_for(condition, seconds=300):
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, "waited too long"
        time.sleep(0.02)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds a process in /proc")
def test_interrupted_plan_equals_uninterrupted_runs(tmp_path):
    """The first run is killed in an epoch, and goes on by itself. Then the plan is killed: the same command waits for
    the run that it left behind, and goes on with the second, which starts from the first."""
    runs = tmp_path / "plan"
    first = f"[first]\nenv-id = 'routing/TSP-10'\n{SMALL}".replace("epochs = 6", "epochs = 20")
    second = f"[second]\nenv-id = 'routing/TSP-12'\ninit-from = '{runs / 'first'}'\n{SMALL}"
    path = write(tmp_path, first + second)
    command = [AGENTS / "am_reinforce.py", "--plan", path, "--runs", runs]
    log = runs / "first" / "metrics.jsonl"
    with start(*command) as process:
        wait_for(lambda: log.exists() and log.read_text().count("\n") >= 2)
        killed = children(process.pid)[0]
        os.kill(killed, signal.SIGKILL)
        wait_for(lambda: children(process.pid) not in ([], [killed]))
        process.kill()
    with start(*command) as process:
        told = process.stdout.read()
    assert process.exitcode == 0, told
    assert "| second | TSP-12 | 6 of 6 | 144 |" in told
    assert (runs / "progress.png").exists()
    for entry in read_plan(path, tmp_path / "whole", Args):
        whole = am_reinforce.main(replace(entry.args, runs=tmp_path / "whole", name=entry.name))
        assert_same_run(whole, runs / entry.name)
