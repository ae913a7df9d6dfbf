"""Training: exact resumes, stopping, what is written, and what is refused."""

from __future__ import annotations

import errno
import importlib
import json
import multiprocessing
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.summary.writer import event_file_writer

import am_reinforce
import pointer_network
import routing_agents
from am_reinforce import Args, ReinforceTrainer, TrainingDivergedError
from helpers import (
    AGENTS,
    ROOT,
    SMALL,
    TINY,
    TINY_POINTER,
    DeepSets,
    assert_same_run,
    check_resumption,
    logged,
    start,
    stop_after,
    wait_for_epoch,
)
from problem_names import ONE_OF_EACH
from routing_agents import checkpoint, runs
from routing_agents.policies.attention.decoding import solve
from routing_agents.policies.attention.model import NETWORKS, ModelConfig
from routing_agents.policies.attention.saved import load_model
from routing_agents.policies.pointer.model import PointerConfig
from routing_agents.runs import choose_device, reference_cost
from routing_agents.training import loop
from routing_agents.training.baselines import ExponentialBaseline, NoBaseline, RolloutBaseline, SharedBaseline
from routing_agents.training.report import Report
from routing_agents.training.stopping import StopRequest
from routing_gym.arrays import to_backend
from routing_gym.data import load_npz, save_npz
from routing_gym.generators import GENERATORS
from routing_gym.problems import PROBLEMS, TSP, make_problem
from routing_gym.solvers import FastTSP


@pytest.fixture
def tiny(tmp_path):
    return replace(TINY, runs=tmp_path)


@pytest.fixture(scope="module")
def trained_once(tmp_path_factory):
    """A run of one epoch, made once."""
    return am_reinforce.main(replace(TINY, epochs=1, runs=tmp_path_factory.mktemp("runs"), name="run"))


@pytest.fixture
def run(trained_once, tiny):
    """A copy of it, to be spoilt."""
    return shutil.copytree(trained_once, tiny.runs / "run")


@pytest.mark.parametrize(
    ("baseline", "precision", "steps"),
    [
        ("rollout", "bfloat16", 7),
        ("exponential", "float32", 7),
        ("critic", "float32", 6),
        ("symmetries", "float32", 7),
        ("average", "bfloat16", 7),
        ("pointer", "float32", 6),
    ],
)
def test_resumed_run_equals_uninterrupted_run(tiny, monkeypatch, baseline, steps, precision):
    """Four epochs of three steps, stopped after epoch 2 (6 steps) or within epoch 3, against four in one go."""
    if baseline == "pointer":
        tiny, baseline = replace(TINY_POINTER, runs=tiny.runs), "rollout"
    if baseline == "symmetries":
        tiny, baseline = replace(tiny, symmetries=True), "shared"
    if baseline == "average":
        tiny, baseline = replace(tiny, average=0.8, loss="preference", sizes=(6, 9)), "shared"
    # Event files of one process and second are read in the order of this number as text, in which 10 is before 9.
    monkeypatch.setattr(event_file_writer, "_global_uid", event_file_writer.AtomicCounter(0))
    folders = check_resumption(
        monkeypatch, am_reinforce, ReinforceTrainer, replace(tiny, baseline=baseline, precision=precision), steps
    )
    curves = [EventAccumulator(str(folder / "tensorboard")).Reload() for folder in folders]
    assert [[point.step for point in curve.Scalars("eval/greedy_cost")] for curve in curves] == [[24, 48, 72, 96]] * 2


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_training_lowers_the_cost_of_every_problem(tiny, name):
    """Thirty steps with ten-node instances: the last epoch samples cheaper tours than the first."""
    args = replace(
        tiny, env_id=f"routing/{name}-10", epochs=2, steps_per_epoch=15, batch_size=32, baseline="shared", num_tours=8
    )
    folder = am_reinforce.main(args)
    first, last = logged(folder)
    assert last["cost"] < first["cost"]
    for file in ("args.json", "best.safetensors", "curve.png", "solution.png", "tensorboard"):
        assert (folder / file).exists(), file


def test_rollout_baseline_is_replaced_only_by_a_better_policy(tiny):
    """The t-test of a policy against itself finds no difference; against a trained one it does."""
    trainer = ReinforceTrainer(replace(tiny, baseline="rollout"))
    baseline = trainer.baseline
    assert isinstance(baseline, RolloutBaseline)
    assert baseline.end_epoch(trainer.model) == {"baseline_p_value": 1.0, "baseline_replaced": 0.0}
    shared = ReinforceTrainer(replace(tiny, baseline="shared", steps_per_epoch=40, batch_size=32))
    for _ in range(60):
        shared.update()
    before = baseline.frozen_cost.mean()
    metrics = baseline.end_epoch(shared.model)
    assert metrics["baseline_replaced"] == 1.0
    assert metrics["baseline_p_value"] < 0.05
    assert baseline.frozen_cost.mean() < before
    assert baseline.redraws == 1
    assert shared.model.training


def test_rollout_baseline_resumes_with_the_instances_of_its_last_draw(tiny):
    """The policy was replaced once, so that these are the second ones; a new run begins with the first."""
    first, second = (ReinforceTrainer(replace(tiny, baseline="rollout")).baseline for _ in range(2))
    first.freeze(first.frozen)
    second.load(first.tensors(), Path("run"))
    assert second.redraws == 1
    assert torch.equal(second.instance.coords, first.instance.coords)
    assert torch.equal(second.evaluate(second.frozen), first.frozen_cost)


def test_rollout_baseline_draws_from_the_distribution_of_the_training(tiny, monkeypatch):
    def corner(problem, rng, size):
        instance = problem.generate(rng, size)
        return replace(instance, coords=instance.coords / 10)

    monkeypatch.setitem(GENERATORS, "corner", corner)
    trainer = ReinforceTrainer(replace(tiny, baseline="rollout", generator="corner"))
    assert trainer.baseline.instance.coords.max() <= 0.1


def test_learning_rates_are_those_of_the_steps(tiny):
    """Means of each epoch's steps: 12 steps, from 0.01 down by a twelfth at each."""
    rates = [row["learning_rate"] for row in logged(am_reinforce.main(tiny))]
    assert rates == pytest.approx([0.01 * left / 12 for left in (11, 8, 5, 2)])


def test_baseline_values_by_hand():
    """Costs (1, 2, 6) of one instance: the others' means are 4, 3.5 and 1.5. The average starts at the
    first batch mean 3 and moves to 0.8 x 3 + 0.2 x 8 = 4 after a batch of mean 8."""
    cost = torch.tensor([[1.0, 2.0, 6.0]])
    shared = SharedBaseline(PROBLEMS["OP"](5), 3)
    assert shared.value(None, None, cost).tolist() == [[4.0, 3.5, 1.5]]
    assert SharedBaseline(PROBLEMS["TSP"](5), 3, force_starts=True).force_starts
    with pytest.raises(ValueError, match="force_starts: the first node of a tour matters in OP"):
        SharedBaseline(PROBLEMS["OP"](5), 3, force_starts=True)
    average = ExponentialBaseline()
    assert average.value(None, None, cost).item() == pytest.approx(3.0)
    assert average.value(None, None, torch.tensor([[8.0]])).item() == pytest.approx(4.0)
    assert NoBaseline().value(None, None, cost).tolist() == [[0.0, 0.0, 0.0]]


def test_average_weights_are_evaluated_and_saved_for_use(tiny):
    """The run goes on from the latest weights; best.safetensors holds the average, and its cost is the logged one."""
    folder = am_reinforce.main(replace(tiny, average=0.5, epochs=1))
    last, best = (checkpoint.load(folder / f"{name}.safetensors")[0] for name in ("last", "best"))
    average, latest = checkpoint.group(last, "average"), checkpoint.group(last, "model")
    assert all(torch.equal(value, average[name]) for name, value in checkpoint.group(best, "model").items())
    assert not torch.equal(average["embed_node.weight"], latest["embed_node.weight"])
    mean = "layers.0.attention_norm.norm.running_mean"
    assert not torch.equal(average[mean], latest[mean])
    model, problem, header = load_model(folder)
    trainer = ReinforceTrainer(tiny)
    model.multiply_in(header["args"]["precision"])
    cost = solve(model, problem, trainer.held_out).cost.double().mean()
    assert cost.item() == pytest.approx(logged(folder)[0]["greedy"])


def loss_of_a_step(trainer):
    """Return a step's loss, and its gradient by the first weights of the network."""
    loss, _ = trainer.loss(trainer.problem, *trainer.draw(trainer.problem, trainer.step))
    return loss.item(), torch.autograd.grad(loss, trainer.model.embed_node.weight)[0]


@pytest.mark.parametrize("name", ["TSP", "OP", "PDP"])
def test_symmetries_seen_alike_change_nothing(tiny, monkeypatch, name):
    """If all symmetries showed the same, the tours, the loss and its gradient would be the shared baseline's."""
    tiny = replace(tiny, env_id=f"routing/{name}-10", baseline="shared", precision="float32")
    usual, gradient = loss_of_a_step(ReinforceTrainer(tiny))
    other, _ = loss_of_a_step(ReinforceTrainer(replace(tiny, symmetries=True)))
    assert abs(other - usual) > 1e-4
    monkeypatch.setattr("routing_agents.policies.attention.views.symmetry", lambda coords, index: coords)
    loss, same_gradient = loss_of_a_step(ReinforceTrainer(replace(tiny, symmetries=True)))
    assert loss == pytest.approx(usual, rel=1e-4)
    torch.testing.assert_close(same_gradient, gradient, rtol=1e-3, atol=1e-5)


def test_tour_k_is_sampled_under_symmetry_k(tiny, monkeypatch):
    """Two instances, four tours: the network sees each instance as it is, mirrored at either axis, and turned round."""
    trainer = ReinforceTrainer(replace(tiny, baseline="shared", symmetries=True, batch_size=2))
    instance, choose = trainer.draw(trainer.problem, trainer.step)
    encode, seen = trainer.model.encode, []
    monkeypatch.setattr(trainer.model, "encode", lambda observation: seen.append(observation) or encode(observation))
    trainer.loss(trainer.problem, instance, choose)
    x, y = instance.coords.unbind(-1)
    expected = torch.stack([torch.stack(view, -1) for view in ((x, y), (1 - x, y), (x, 1 - y), (1 - x, 1 - y))], dim=1)
    torch.testing.assert_close(seen[0]["coords"], expected.flatten(0, 1))


def test_there_are_eight_symmetries(tiny):
    with pytest.raises(ValueError, match="9 tours exceed the 8 symmetries; choose fewer tours"):
        am_reinforce.main(replace(tiny, baseline="shared", symmetries=True, num_tours=9))
    assert list(tiny.runs.iterdir()) == []


@pytest.mark.parametrize("changes", [{"baseline": "rollout"}, {"baseline": "shared", "force_starts": True}])
def test_symmetries_belong_to_the_shared_baseline(changes):
    with pytest.raises(ValueError, match="--symmetries makes .* leave out --(baseline rollout|force-starts)"):
        Args(symmetries=True, **changes)


def test_interrupt_from_outside_saves_and_says_how_to_go_on(tmp_path):
    """SIGTERM to the real process and the one that it starts: exit status 0, a checkpoint, and the resume command."""
    command = [AGENTS / "am_reinforce.py", *SMALL, "--epochs", 100_000, "--runs", tmp_path, "--processes", 2]
    with start(*command) as process:
        wait_for_epoch(process, 2)
        process.terminate()
        rest = process.stdout.read()
    assert process.exitcode == 0, rest
    assert f"--resume {tmp_path / 'run'}" in rest
    assert checkpoint.load(tmp_path / "run" / "last.safetensors")[1]["step"] >= 10


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_tensors_of_a_checkpoint_do_not_keep_its_file(tmp_path):
    """A resumed run holds tensors that it read; Windows cannot replace a file that is mapped into memory."""
    path = tmp_path / "last.safetensors"
    checkpoint.save(path, {"model.weight": torch.zeros(3)}, {})
    tensors, _ = checkpoint.load(path)
    assert str(path) not in Path("/proc/self/maps").read_text()
    assert tensors["model.weight"].tolist() == [0, 0, 0]


def test_an_epoch_is_saved_before_it_is_shown(tiny, monkeypatch):
    """`| head -1` closes the output, and rich then ends the process."""
    monkeypatch.setattr(Report, "show_epoch", lambda report: sys.exit(1))
    with pytest.raises(SystemExit, match="1"):
        am_reinforce.main(replace(tiny, name="mine"))
    assert checkpoint.load(tiny.runs / "mine" / "last.safetensors")[1]["step"] == tiny.steps_per_epoch
    assert [row["epoch"] for row in logged(tiny.runs / "mine")] == [1]


def test_a_full_disk_ends_the_run_with_the_command_that_resumes_it(tiny, monkeypatch):
    def full(report, metrics, picture):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Report, "log_epoch", full)
    with pytest.raises(OSError, match="No space left on device; the last checkpoint is sound. .*--resume .*mine"):
        am_reinforce.main(replace(tiny, name="mine"))


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="Windows has no SIGHUP")
@pytest.mark.parametrize("ignored", [False, True])
def test_a_closed_terminal_stops_a_run_unless_nohup_keeps_it(ignored):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)
    try:
        with StopRequest() as stop:
            signal.raise_signal(signal.SIGHUP)
        assert stop.requested is not ignored
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_second_sigterm_leaves_time_to_save():
    """A cluster sends one to all processes of a job, and a plan forwards its own. A second Ctrl-C ends the run."""
    before = signal.getsignal(signal.SIGINT)
    with StopRequest() as stop:
        signal.raise_signal(signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) == stop.request
        assert signal.getsignal(signal.SIGINT) == before


def test_runs_that_begin_in_the_same_second_have_folders_of_their_own(tmp_path):
    assert len({runs.make_folder(tmp_path, "", "tsp-20", 1) for _ in range(3)}) == 3


def test_existing_run_is_left_alone(tiny):
    folder = am_reinforce.main(replace(tiny, epochs=1, name="mine"))
    before = (folder / "best.safetensors").read_bytes()
    with pytest.raises(FileExistsError, match="--resume .*mine, or choose another --name"):
        am_reinforce.main(replace(tiny, name="mine"))
    assert (folder / "best.safetensors").read_bytes() == before


def test_folder_that_cannot_be_made(tiny, tmp_path):
    """A file where the runs' folder should be: refused before any training."""
    (tmp_path / "file").write_text("mine")
    with pytest.raises(NotADirectoryError, match="file/run"):
        am_reinforce.main(replace(tiny, runs=tmp_path / "file", name="run"))
    assert (tmp_path / "file").read_text() == "mine"


def test_training_instances_are_not_those_of_a_test_set_with_the_same_seed(tiny):
    """NumPy takes the seeds 1 and (1, 0, 0, 0) for the same."""
    trainer = ReinforceTrainer(tiny)
    tested = trainer.problem.generate(np.random.default_rng(tiny.seed), 8)
    assert not np.isin(trainer.draw(trainer.problem, 0)[0].coords, tested.coords).any()


@pytest.mark.parametrize(("share", "norm", "moves"), [(1.0, 1.0, True), (0.0, 1.0, False), (1.0, 1e-12, False)])
def test_the_critic_follows_rate_and_clipping(tiny, share, norm, moves):
    """Gradients of 1e-12 are less than Adam's epsilon."""
    args = replace(tiny, baseline="critic", optimizer="muon", max_grad_norm=norm)
    baseline, problem = ReinforceTrainer(args).baseline, make_problem("TSP", 10)
    instance = to_backend(problem.generate(np.random.default_rng(0), 4), "torch")
    assert baseline.learning_rate == 5e-4
    before = torch.nn.utils.parameters_to_vector(baseline.critic.parameters()).detach()
    baseline.rate_share = share
    baseline.value(problem, instance, torch.ones(4, 1))
    after = torch.nn.utils.parameters_to_vector(baseline.critic.parameters()).detach()
    assert (float((after - before).abs().max()) > 1e-5) == moves


def test_diverging_training_stops_and_keeps_batch_and_checkpoint(tiny):
    """A learning rate of 1e30 throws the weights out of the range of float32 in the first step."""
    diverging = replace(tiny, learning_rate=1e30, name="diverging")
    found = r"gradient of the model in step 1 is not finite.* batch is in .*diverged-0.npz. .* lower --learning-rate"
    with pytest.raises(TrainingDivergedError, match=found):
        am_reinforce.main(diverging)
    trainer, folder = ReinforceTrainer(diverging), tiny.runs / "diverging"
    tensors, header = checkpoint.load(folder / "last.safetensors")
    assert header["step"] == 0
    assert all(tensors[f"model.{name}"].equal(value) for name, value in trainer.model.state_dict().items())
    _, batch = load_npz(folder / "diverged-0.npz")
    trainer.step = 1
    assert np.array_equal(batch.coords, trainer.draw(trainer.problem, trainer.step)[0].coords)


def test_log_cut_short_by_a_kill(tiny, monkeypatch):
    """Half a line at the end of the log is dropped; the resumed run writes that epoch anew."""
    with monkeypatch.context() as patch:
        stop_after(patch, ReinforceTrainer, 6)
        folder = am_reinforce.main(tiny)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"epoch": 3, "inst')
    am_reinforce.main(Args(resume=folder))
    assert [row["epoch"] for row in logged(folder)] == [1, 2, 3, 4]


def kill_and_resume(args: Args, seconds: float) -> None:
    """Start a run, kill it after up to so many seconds, resume it, kill it...; print where it began each time.

    A run that made no progress since the last kill gets 1.5 times as long.
    """
    importlib.import_module("torch._dynamo")  # two seconds, which each child would spend when it makes its Adam
    folder, rng, began = args.runs / args.name, np.random.default_rng(1), -1
    for _ in range(10):
        if (folder / "last.safetensors").exists():
            before, began = began, checkpoint.load(folder / "last.safetensors")[1]["step"]
            print("began at step", began, flush=True)
            seconds *= 1.5 if began == before else 1.0
            args = Args(resume=folder)
        else:  # killed between making the folder and writing into it
            shutil.rmtree(folder, ignore_errors=True)
        process = multiprocessing.get_context("fork").Process(target=am_reinforce.main, args=(args,))
        process.start()
        process.join(rng.uniform(0, seconds))
        process.kill()
        process.join()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks processes that have imported torch, ten times")
def test_kills_change_nothing(tiny):
    """Killed at ten random moments and resumed each time, a run ends with the weights of an undisturbed one."""
    args = replace(tiny, env_id="routing/CVRP-10", epochs=20, steps_per_epoch=2)
    started = time.perf_counter()
    whole = am_reinforce.main(replace(args, name="whole"))
    seconds = (time.perf_counter() - started) / 6
    call = "from helpers import *; from test_am_reinforce import *; from pathlib import *; "
    call += f"kill_and_resume({replace(args, name='killed')}, {seconds})"
    paths = os.pathsep.join(map(str, (AGENTS, ROOT, ROOT / "tests", Path(__file__).parent)))
    killed = subprocess.run(
        [sys.executable, "-c", call], env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True
    )
    assert killed.returncode == 0, killed.stderr
    began = {line for line in killed.stdout.splitlines() if line.startswith("began")}
    assert len(began) > 3, killed.stdout  # it did get on between the kills
    am_reinforce.main(Args(resume=tiny.runs / "killed"))
    assert_same_run(whole, tiny.runs / "killed")


def test_warm_start_keeps_what_fits(tiny, capsys):
    """TSP-10 to TSP-12 keeps all; CVRP to SDVRP adds the projection of what is left; other sizes are refused."""
    small = replace(tiny, epochs=1, baseline="none")
    tsp = am_reinforce.main(replace(small, name="tsp"))
    cvrp = am_reinforce.main(replace(small, env_id="routing/CVRP-10", name="cvrp"))
    same = ReinforceTrainer(replace(tiny, env_id="routing/TSP", env_kwargs={"num_nodes": "12"}, init_from=tsp))
    assert same.started_from.endswith("of TSP with 10 nodes; new: none")
    weights = checkpoint.group(checkpoint.load(tsp / "best.safetensors")[0], "model")
    assert all(torch.equal(value, weights[name]) for name, value in same.model.state_dict().items())
    (origin,) = same.history
    assert origin["args"]["env_id"] == tiny.env_id
    assert origin["seconds"] > 0
    (latest,) = ReinforceTrainer(replace(tiny, init_from=tsp / "last.safetensors")).history
    assert latest["metrics"] == {"instances": 3 * 8}  # steps of so many
    am_reinforce.main(replace(small, env_id="routing/SDVRP-10", init_from=cvrp / "best.safetensors", name="sdvrp"))
    assert "of CVRP with 10 nodes; new: project_step.weight" in capsys.readouterr().out
    with pytest.raises(checkpoint.CheckpointError, match="a network with embed_dim 16, .*; add --embed-dim 16 --num-"):
        ReinforceTrainer(replace(tiny, init_from=tsp, attention=ModelConfig(embed_dim=32)))
    other = replace(tiny.attention, embed_dim=32, feed_forward_dim=8, glimpse_layer=4, nearness=True)
    differ = re.escape("embed_dim 16, feed_forward_dim 16; add --embed-dim 16 --feed-forward-dim 16")
    with pytest.raises(checkpoint.CheckpointError, match=rf"best\.safetensors: a network with {differ}$"):
        ReinforceTrainer(replace(tiny, init_from=tsp, attention=other))
    published = ReinforceTrainer(replace(tiny, init_from=Path("TSP-20"), attention=ModelConfig()))
    assert "tsp-20.safetensors: kept" in published.started_from
    with pytest.raises(ValueError, match="'tsp-7' is neither a run or checkpoint, nor"):
        ReinforceTrainer(replace(tiny, init_from=Path("tsp-7")))
    sdvrp = tiny.runs / "sdvrp"
    fewer = ReinforceTrainer(replace(tiny, env_id="routing/CVRP-10", init_from=sdvrp))
    assert fewer.started_from.endswith("new: none; left out: project_step.weight")
    changed = ReinforceTrainer(
        replace(tiny, init_from=tsp, attention=replace(tiny.attention, normalization="instance"))
    )
    assert "new: none; left out: layers.0.attention_norm.norm.num_batches_tracked" in changed.started_from
    assert changed.started_from.endswith("; normalization instance instead of batch")
    with pytest.raises(checkpoint.CheckpointError, match="with instance normalization; .*: add --normalization inst"):
        ReinforceTrainer(replace(tiny, init_from=Path("OVRPBLTW-50"), attention=ModelConfig()))


def test_warm_start_refuses_a_header_without_sizes(tiny):
    path = tiny.runs / "other.safetensors"
    path.parent.mkdir(parents=True, exist_ok=True)
    checkpoint.save(path, {"model.x": torch.zeros(1)}, {"problem": "TSP", "model": "attention"})
    with pytest.raises(checkpoint.CheckpointError, match="model in its header is 'attention'; expected an object"):
        ReinforceTrainer(replace(tiny, init_from=path))


def test_a_pointer_network_goes_on_from_solved_examples(tiny, tmp_path):
    """As one network: what `pointer_network.py` trained is trained on by reinforcement, and solves a user's cities."""
    args = pointer_network.Args(
        sizes=(5, 5),
        solved=8,
        epochs=1,
        steps_per_epoch=2,
        batch_size=4,
        held_out=4,
        model=TINY_POINTER.pointer,
        workers=1,
    )
    learnt = pointer_network.main(replace(args, examples=tmp_path / "examples", runs=tmp_path, threads=1))
    args = replace(TINY_POINTER, runs=tiny.runs, init_from=learnt, env_id="routing/TSP-10")
    assert ReinforceTrainer(args).started_from.endswith("of the task tsp; new: none")
    model = routing_agents.load(am_reinforce.main(args))
    assert model.problem.num_nodes == 10
    assert sorted(model.solve([[0, 0], [3, 0], [3, 4]]).tour) == [0, 1, 2]
    with pytest.raises(checkpoint.CheckpointError, match="of another kind: it has encoder, .*, and this one embed_dim"):
        ReinforceTrainer(replace(tiny, init_from=learnt))
    units = replace(args.pointer, units=8, mask_chosen=False)
    with pytest.raises(checkpoint.CheckpointError, match=r"; add --pointer\.units 16 --pointer\.mask-chosen$"):
        ReinforceTrainer(replace(args, pointer=units))


def test_a_generator_of_ones_own(tiny, monkeypatch):
    """Its instances are trained on, and the held-out ones come from a file; the problem, and so all else, stays."""
    problem = make_problem("CVRP", 10)
    args = replace(tiny, env_id="routing/CVRP-10", generator="corner", held_out_file=str(tiny.runs / "corner.npz"))
    with pytest.raises(ValueError, match="--generator 'corner': choose one of uniform, .*, or add one of your own"):
        ReinforceTrainer(args)

    def corner(problem, rng, batch_size):
        instance = problem.generate(rng, batch_size)
        return replace(instance, coords=instance.coords / 4)

    monkeypatch.setitem(GENERATORS, "corner", corner)
    instance = corner(problem, np.random.default_rng(0), 5)
    save_npz(args.held_out_file, problem, instance)
    trainer = ReinforceTrainer(replace(args, held_out=3))
    assert trainer.batch()[1].coords.max() <= 0.25
    assert torch.equal(trainer.held_out.coords, torch.tensor(instance.coords[:3]))
    folder = am_reinforce.main(replace(args, epochs=1))
    Path(args.held_out_file).unlink()  # the run has its own
    am_reinforce.main(Args(resume=folder))
    assert all(
        str(tiny.runs).encode() not in (folder / file).read_bytes() for file in ("best.safetensors", "args.json")
    )
    monkeypatch.delitem(GENERATORS, "corner")
    assert routing_agents.load(folder).problem == problem  # whoever uses it needs no generator
    with pytest.raises(ValueError, match="--generator 'corner': choose one of"):
        am_reinforce.main(Args(resume=folder))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (lambda problem, rng, _: problem.generate(rng, 3), "drew 3 instances, expected 2"),
        (lambda *_: None, "instance: expected a CVRPInstance, got NoneType"),
        (
            lambda _, rng, size: make_problem("VRPTW", 10).generate(rng, size),
            "expected a CVRPInstance, got VRPInstance",
        ),
        (lambda problem, rng, size: times_ten(problem.generate(rng, size)), r"coords: row 0, .* expected in \[0, 1\]"),
    ],
)
def test_bad_generators(tiny, monkeypatch, changed, message):
    monkeypatch.setitem(GENERATORS, "bad", changed)
    with pytest.raises(ValueError, match=f"--generator bad: .*{message}"):
        ReinforceTrainer(replace(tiny, env_id="routing/CVRP-10", generator="bad"))


def times_ten(instance):
    return replace(instance, coords=instance.coords * 10)


@pytest.mark.parametrize("env_id", ["routing/CVRP-11", "routing/SDVRP-10"])
def test_held_out_instances_of_something_else(tiny, env_id):
    path, problem = tiny.runs / "ten.npz", make_problem("CVRP", 10)
    save_npz(path, problem, problem.generate(np.random.default_rng(0), 2))
    with pytest.raises(ValueError, match=r"--held-out-file .*ten.npz: instances of CVRP\(num_nodes=10.*; expected .*"):
        ReinforceTrainer(replace(tiny, env_id=env_id, held_out_file=str(path)))


def test_a_network_of_ones_own(tiny, monkeypatch):
    """Its layers replace the encoder's; training, resuming and loading find it by name."""

    args = replace(tiny, env_id="routing/CVRP-10", model="deep-sets", epochs=2, name="mine")
    with pytest.raises(ValueError, match="--model 'deep-sets': choose one of attention, pointer, or add one"):
        am_reinforce.main(args)
    monkeypatch.setitem(NETWORKS, "deep-sets", DeepSets)
    folder, _ = check_resumption(monkeypatch, am_reinforce, ReinforceTrainer, args, 3)
    assert type(routing_agents.load(folder).network) is DeepSets
    started = ReinforceTrainer(replace(args, env_id="routing/CVRP-12", init_from=folder))
    assert "new: none" in started.started_from
    with pytest.raises(
        checkpoint.CheckpointError, match="best.safetensors: a network of kind .*; add --model deep-sets"
    ):
        ReinforceTrainer(replace(args, model="attention", init_from=folder))
    first, same = (ReinforceTrainer(args).model.layers[0] for _ in range(2))
    assert torch.equal(first.bias, same.bias)  # also what the layer draws itself depends on the seed
    assert (first.gain.weight == 1).all()
    assert (first.others.weight == 0).all()
    monkeypatch.delitem(NETWORKS, "deep-sets")
    with pytest.raises(
        checkpoint.CheckpointError, match="a network of kind 'deep-sets'; known are attention, and those that are"
    ):
        routing_agents.load(folder)


def test_range_of_sizes(tiny):
    """Batches of 5 to 8 nodes, each size drawn; the problem's own rules, such as capacities, follow the size."""
    trainer = ReinforceTrainer(replace(tiny, env_id="routing/CVRP-10", sizes=(5, 8)))
    drawn = []
    for trainer.step in range(40):
        problem = trainer.batch_problem(trainer.step)
        assert problem == PROBLEMS["CVRP"](problem.num_nodes)
        drawn.append(problem.num_nodes)
    assert set(drawn) == {5, 6, 7, 8}
    kwargs = {"num_nodes": "10", "capacity": "12"}  # the first is not for batches
    trainer = ReinforceTrainer(replace(tiny, env_id="routing/CVRP", env_kwargs=kwargs, sizes=(5, 5)))
    assert trainer.batch_problem(trainer.step) == PROBLEMS["CVRP"](5, capacity=12)
    folder = am_reinforce.main(replace(tiny, env_id="routing/CVRP-10", sizes=(5, 8), baseline="rollout"))
    assert load_model(folder)[1].num_nodes == 10


def of_variants(tiny: Args, env_id: str) -> Args:
    return replace(tiny, env_id=env_id, variants=True, attention=replace(tiny.attention, normalization="instance"))


def test_variants_with_pairs(tiny):
    trainer = ReinforceTrainer(of_variants(tiny, "routing/PDVRPTW-10"))
    drawn = {trainer.batch_problem(trainer.step).name for trainer.step in range(30)}
    assert drawn == {"PDVRP", "PDVRPTW"}
    for trainer.step in range(5):
        trainer.update()


def test_one_model_for_a_family(tiny):
    """Batches of VRPTW and CVRP, each drawn; the model solves both, and no others. What CVRP lacks are zeros to it."""
    trainer = ReinforceTrainer(args := of_variants(tiny, "routing/VRPTW-10"))
    drawn = {trainer.batch_problem(trainer.step) for trainer.step in range(20)}
    assert drawn == {make_problem("CVRP", 10), make_problem("VRPTW", 10)}
    model = routing_agents.load(am_reinforce.main(replace(args, epochs=1)))
    for name in ("CVRP", "VRPTW"):
        problem = make_problem(name, 12)
        instance = problem.generate(np.random.default_rng(0), 2)
        assert problem.objective(instance, model.solve_batch(problem, instance).actions.numpy()).shape == (2,)
    with pytest.raises(ValueError, match="was trained on VRPTW; the instances are VRPL"):
        model.check(make_problem("VRPL", 10))
    problem = make_problem("CVRP", 10)
    seen = problem.observe(
        instance := to_backend(problem.generate(np.random.default_rng(0), 2), "torch", "cpu"), problem.initial(instance)
    )
    zeros = dict.fromkeys(("ready_time", "due_time", "service_time"), torch.zeros(2, 11))
    assert torch.equal(model.network.encode_nodes(seen), model.network.encode_nodes({**seen, **zeros}))
    with pytest.raises(KeyError, match="demand"):
        model.network.encode_nodes({"coords": seen["coords"]})


def test_variants_are_of_the_vrp_family(tiny):
    with pytest.raises(ValueError, match="--variants takes a problem of the VRP family, .*; got routing/TSP-10"):
        ReinforceTrainer(replace(tiny, variants=True))
    with pytest.raises(ValueError, match="--variants: each batch has one problem, .* add --normalization instance"):
        ReinforceTrainer(replace(tiny, env_id="routing/VRPTW-10", variants=True))
    limited = replace(tiny, env_id="routing/VRPL-10", env_kwargs={"max_length": "2.9"})
    with pytest.raises(ValueError, match="--variants: all have num_nodes, capacity and matrices; leave out max_length"):
        ReinforceTrainer(replace(limited, variants=True))


def test_instances_are_read_as_trained_models_read_them(tiny, tmp_path, monkeypatch):
    """Days twice as long as generated ones: the logged greedy cost is that of the loaded model."""

    def long(problem, rng, count):
        drawn = problem.generate(rng, count)
        return replace(drawn, due_time=2 * drawn.due_time, ready_time=2 * drawn.ready_time)

    monkeypatch.setitem(GENERATORS, "long", long)
    problem = make_problem("VRPTW", 10)
    held_out = long(problem, np.random.default_rng(0), 8)
    save_npz(tmp_path / "long.npz", problem, held_out)
    args = replace(tiny, env_id="routing/VRPTW-10", generator="long", held_out_file=str(tmp_path / "long.npz"))
    folder = am_reinforce.main(replace(args, epochs=1))
    (row,) = logged(folder)
    assert row["greedy"] == pytest.approx(float(routing_agents.load(folder).solve_batch(problem, held_out).cost.mean()))
    read, _ = ReinforceTrainer(args).draw(problem, 0)
    assert read.due_time.max() <= problem.generate(np.random.default_rng(0), 1).due_time.max() * 1.01


def test_all_instances_are_drawn(tiny, monkeypatch):
    monkeypatch.setitem(GENERATORS, "few", lambda problem, rng, count: problem.generate(rng, min(count, 2)))
    with pytest.raises(ValueError, match="--generator few: drew 2 instances, expected"):
        am_reinforce.main(replace(tiny, generator="few"))
    with pytest.raises(ValueError, match="instances of set X have capacities of their own; leave out capacity"):
        ReinforceTrainer(replace(tiny, env_id="routing/CVRP-10", generator="x", env_kwargs={"capacity": "15"}))


def test_profile(tiny):
    folder = am_reinforce.main(replace(tiny, profile=True))
    assert "traceEvents" in json.loads((folder / "trace.json").read_text())


def test_resume_refuses_other_arguments(run):
    with pytest.raises(ValueError, match="leave out --epochs, --learning-rate"):
        am_reinforce.main(Args(resume=run, epochs=9, learning_rate=1.0))


def test_a_run_goes_on_on_its_device_or_another(tiny):
    """Without --device, on that of its beginning: auto would take a GPU."""
    folder = am_reinforce.main(replace(tiny, epochs=1, device="cpu"))
    for given, expected in (({}, "cpu"), ({"device": "cuda"}, "cuda")):
        args, saved = loop.resumed(ReinforceTrainer, Args(resume=folder, **given))
        assert (args.device, args.epochs, saved.path) == (expected, 1, folder / "last.safetensors")


def test_resume_of_a_finished_run_changes_nothing(run, capsys):
    before = [(run / name).read_bytes() for name in ("last.safetensors", "args.json", "metrics.jsonl")]
    am_reinforce.main(Args(resume=run))
    assert [(run / name).read_bytes() for name in ("last.safetensors", "args.json", "metrics.jsonl")] == before
    assert (
        f"This run had ended already.\nTrain longer in a new run, with --init-from {run}\n" in capsys.readouterr().out
    )


def test_prizes_are_shown_as_prizes(tiny, capsys):
    """The table, the curve and the last lines; the shared baseline's mean, which is the mean cost, has no column."""
    folder = am_reinforce.main(replace(tiny, env_id="routing/OP-5", epochs=1))
    out, (row,) = capsys.readouterr().out, logged(folder)
    assert row["greedy"] < 0
    assert f"{'epoch':>12}{'prize':>12}{'greedy':>12}{'inst/s':>12}" in out
    assert f"{1:>12}{-row['cost']:>12.4f}{-row['greedy']:>12.4f}" in out
    assert f"Best greedy prize on held-out instances: {-row['greedy']:.4f} (epoch 1)." in out
    shown = ReinforceTrainer(replace(tiny, env_id="routing/OP-5", baseline="none")).columns
    assert [(column.title or column.key, column.sign) for column in shown][:4] == [
        ("epoch", 1),
        ("prize", -1),
        ("baseline", -1),
        ("greedy", -1),
    ]
    assert shown[1].curve == "sampled prize, training"


def test_resume_without_its_log(tiny, capsys):
    """The best checkpoint knows its own figures; a log that is damaged is named, with the line."""
    folder = am_reinforce.main(tiny)
    best = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Best greedy cost")]
    (folder / "metrics.jsonl").write_text('{"epoch": 1}\n?\n')
    with pytest.raises(ValueError, match=r"metrics.jsonl:2: not a line of the log; mend or delete it"):
        am_reinforce.main(Args(resume=folder))
    (folder / "metrics.jsonl").unlink()
    am_reinforce.main(Args(resume=folder))
    assert best[0] in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensors, header: header.pop("sums"), "lacks 'sums'"),
        (lambda tensors, header: header.pop("best"), "lacks 'best'"),
        (
            lambda tensors, header: [tensors.pop(key) for key in list(tensors) if key.startswith("muon.")],
            "the state of muon does not fit: missing 0.average",
        ),
        (
            lambda tensors, header: tensors.update({"muon.0.average": torch.zeros(3)}),
            r"the state of muon does not fit: 0.average has shape \(3,\), expected",
        ),
        (lambda tensors, header: header.update(sums={"cost": "low"}), "sums is 'low'; expected a number"),
        (lambda tensors, header: header.update(step=-1), "step is -1; expected 0 to 3"),
        (
            lambda tensors, header: header["args"].update(magic=1),
            "its arguments are not those of this version: .*magic",
        ),
    ],
)
def test_resume_of_an_incomplete_checkpoint(run, change, message):
    path = run / "last.safetensors"
    tensors, header = checkpoint.load(path)
    change(tensors, header)
    checkpoint.save(path, tensors, header)
    with pytest.raises(checkpoint.CheckpointError, match=message):
        am_reinforce.main(Args(resume=path.parent))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epochs": 0}, "--epochs must be an integer of at least 1, got 0"),
        ({"learning_rate": 0.0}, "--learning-rate must be a positive number of at most .*, got 0.0"),
        ({"threads": 10**6}, "--threads must be at most 1024, got 1000000"),
        ({"seed": -1}, "--seed must be an integer of at least 0, got -1"),
        ({"average": 1.0}, r"--average must be a number in \[0, 0.9999\], got 1.0"),
        ({"loss": "preference", "baseline": "rollout"}, "--loss preference compares several .* take shared"),
        ({"decay": 2.0}, r"--decay must be in \(0, 1\]"),
        ({"model": "pointer"}, "--embed-dim has no effect on --model pointer; leave it out"),
        ({"pointer": PointerConfig(units=16)}, "--pointer.units has no effect on --model attention; leave it out"),
        ({"sizes": (20, 10)}, r"--sizes takes the smallest and the largest .* from 2 on, got \(20, 10\)"),
        (
            {"baseline": "critic", "force_starts": True},
            "--force-starts has no effect: --baseline critic samples one",
        ),
        ({"sizes": (3, 10), "force_starts": True}, "--num-tours is 4, --sizes starts at 3; choose fewer tours"),
    ],
)
def test_bad_arguments(changes, message):
    with pytest.raises(ValueError, match=message):
        replace(TINY, **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"device": "gpu"}, "--device must be cpu, cuda, cuda:1 etc. or auto, got 'gpu'"),
        ({"env_id": "CartPole-v1"}, "--env-id 'CartPole-v1' is not a routing problem"),
        (
            {"env_id": "routing/OP-10", "model": "pointer", "attention": Args.attention},
            "--model pointer answers TSP only, got routing/OP-10",
        ),
        ({"env_id": "routing/TSP"}, "--env-id routing/TSP: the number of nodes is missing; give routing/TSP-20"),
        ({"env_kwargs": {"num_nodes": "7"}}, "num_nodes is given twice; routing/TSP-10 has 10 nodes"),
        ({"name": "a/b"}, "--name 'a/b': use letters, digits"),
        ({"env_kwargs": {"capacty": "3"}}, "--env-kwargs: .*TSP has no setting capacty"),
    ],
)
def test_refused_before_a_folder_is_made(tiny, tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        am_reinforce.main(replace(tiny, **changes))
    assert list(tmp_path.iterdir()) == []


def test_cuda_where_there_is_none(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert choose_device("auto") == "cpu"
    with pytest.raises(ValueError, match="--device cuda: torch finds 0 CUDA devices here; use cpu"):
        choose_device("cuda")


def test_the_second_of_one_cuda_devices(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert choose_device("cuda:0") == "cuda:0"
    with pytest.raises(ValueError, match="--device cuda:1: torch finds 1 CUDA devices here"):
        choose_device("cuda:1")


def test_a_stranger_s_checkpoint_imports_nothing(run, tmp_path, monkeypatch):
    """`gym.make("module:id")` would import the module: here one that leaves a mark."""
    tensors, header = checkpoint.load(run / "last.safetensors")
    (tmp_path / "stranger.py").write_text("from pathlib import Path; Path('mark').touch()")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    header["args"]["env_id"] = "stranger:routing/TSP-10"
    checkpoint.save(run / "last.safetensors", tensors, header)
    with pytest.raises(ValueError, match="'stranger:routing/TSP-10' is not a routing problem"):
        am_reinforce.main(Args(resume=run))
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize(
    "values",
    [
        {"epochs": "9"},
        {"threads": None},
        {"model": 3},
        {"sizes": [1]},
        {"batch_size": 2.5},
        {"env_kwargs": ["prize"]},
        {"attention": []},
        {"held_out": 10**10},
    ],
)
def test_odd_arguments_in_a_checkpoint(run, values):
    path = run / "last.safetensors"
    tensors, header = checkpoint.load(path)
    header["args"] |= values
    checkpoint.save(path, tensors, header)
    with pytest.raises(checkpoint.CheckpointError, match="its arguments are not those of this version"):
        am_reinforce.main(Args(resume=path.parent))


def test_checkpoints_are_readable_by_whom_the_umask_allows(tmp_path):
    """safetensors' own `save_file` writes files that only their owner can read."""
    (tmp_path / "other").write_bytes(b"x")
    checkpoint.save(tmp_path / "last.safetensors", {"x": torch.ones(2)}, {})
    assert (tmp_path / "last.safetensors").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_checkpoints_hold_no_path(tiny):
    folder = am_reinforce.main(replace(tiny, epochs=1, name="first"))
    folder = am_reinforce.main(replace(tiny, epochs=1, name="second", init_from=folder))
    for file in ("best.safetensors", "last.safetensors", "args.json"):
        assert str(tiny.runs).encode() not in (folder / file).read_bytes()


def test_one_process_at_a_time(run):
    """While another process holds the lock of a run's folder, nobody else trains in it."""
    hold = "import sys, filelock; lock = filelock.FileLock(sys.argv[1]); lock.acquire(); "
    hold += "print('held', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", hold, run / "lock"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(ValueError, match="another process is training in it"):
            am_reinforce.main(Args(resume=run))
        other.stdin.close()
    am_reinforce.main(Args(resume=run))


def test_a_run_killed_before_its_first_checkpoint_starts_again(tiny):
    (tiny.runs / "mine").mkdir()
    (tiny.runs / "mine" / "last.safetensors.1a2b3c4d.partial").write_bytes(b"half")
    assert (am_reinforce.main(replace(tiny, epochs=1, name="mine")) / "best.safetensors").exists()


def test_checkpoints_of_before_name_their_tours_otherwise(run):
    """`num_tours` was called `num_starts`, the attention model `model`; the paths were in the checkpoint too."""
    path = run / "last.safetensors"
    tensors, header = checkpoint.load(path)
    header["args"] |= {
        "num_starts": header["args"].pop("num_tours"),
        "runs": "elsewhere",
        "init_from": "a",
        "resume": None,
        "model": header["args"].pop("attention"),
    }
    del header["args"]["pointer"]
    checkpoint.save(path, tensors, header)
    assert loop.resumed(ReinforceTrainer, Args(resume=path.parent))[0].num_tours == 4


def test_resume_takes_a_run(tmp_path):
    with pytest.raises(ValueError, match="--resume takes the folder of a run"):
        am_reinforce.main(Args(resume=tmp_path))


def test_shared_baseline_needs_two_tours(tiny):
    with pytest.raises(ValueError, match="num_tours >= 2, got 1"):
        am_reinforce.main(replace(tiny, baseline="shared", num_tours=1))


def test_problem_settings_from_the_command_line(tiny):
    trainer = ReinforceTrainer(
        replace(tiny, env_id="routing/OP-10", env_kwargs={"prize": "uniform", "max_length": "1.5"})
    )
    assert trainer.problem == PROBLEMS["OP"](10, prize="uniform", max_length=1.5)


class Bomb:
    def __reduce__(self):
        return os.system, ("touch exploded",)


def test_checkpoints_that_are_none(run, tmp_path, monkeypatch):
    """Missing, a pickle that would run code, cut short, somebody else's, and weights without a run."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "bad.safetensors"
    with pytest.raises(checkpoint.CheckpointError, match="no such file"):
        load_model(path)
    path.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(checkpoint.CheckpointError, match="damaged or of another format"):
        load_model(path)
    assert not (tmp_path / "exploded").exists()
    whole = (run / "best.safetensors").read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(checkpoint.CheckpointError, match="damaged or of another format"):
        load_model(path)
    from safetensors.numpy import save_file

    save_file({"x": np.zeros(3)}, path)
    with pytest.raises(checkpoint.CheckpointError, match="written by something else"):
        load_model(path)
    (run / "last.safetensors").write_bytes(whole)
    with pytest.raises(checkpoint.CheckpointError, match="holds weights only"):
        am_reinforce.main(Args(resume=run))


def test_weights_that_do_not_fit_are_listed(run, tmp_path):
    tensors, header = checkpoint.load(run / "best.safetensors")
    tensors["model.extra"] = torch.zeros(1)
    tensors["model.project_mean.weight"] = torch.zeros(2, 2)
    del tensors["model.placeholder"]
    checkpoint.save(tmp_path / "odd.safetensors", tensors, header)
    with pytest.raises(
        checkpoint.CheckpointError,
        match=r"missing placeholder; project_mean.weight has shape \(2, 2\), expected \(16, 16\); unexpected extra",
    ):
        load_model(tmp_path / "odd.safetensors")
    tensors |= {f"model.{number}": torch.zeros(1) for number in range(9)}
    checkpoint.save(tmp_path / "odd.safetensors", tensors, header)
    with pytest.raises(checkpoint.CheckpointError, match="unexpected 5; and 4 more$"):
        load_model(tmp_path / "odd.safetensors")


@pytest.mark.parametrize(
    "value", [torch.full((16,), torch.nan), torch.ones(16, dtype=torch.complex64), torch.ones(16).to(torch.float8_e5m2)]
)
def test_weights_that_are_no_numbers(tiny, run, tmp_path, value):
    path = run / "best.safetensors"
    tensors, header = checkpoint.load(path)
    name = next(name for name in tensors if name.endswith("contract.bias"))
    checkpoint.save(path, {**tensors, name: value}, header)
    for read in (load_model, lambda path: ReinforceTrainer(replace(tiny, init_from=path))):
        with pytest.raises(
            checkpoint.CheckpointError, match=r"contract.bias (is not finite|holds (C64|F8_E5M2); expected)"
        ):
            read(path)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"num_heads": 0}, "num_heads must be an integer of at least 1, got 0"),
        ({"embed_dim": -8}, "embed_dim must be an integer of at least 1, got -8"),
        ({"num_layers": 1.5}, "model.num_layers is 1.5; expected an integer"),
        ({"tanh_clipping": "ten"}, "model.tanh_clipping is 'ten'; expected a number"),
        ({"embed_dim": 32}, r"has shape \(16, 2\), expected \(32, 2\)"),
        ({"embed_dim": 8 * 10**15}, "the largest size is 8000000000000000 and num_layers 1; expected"),
        ({"num_layers": 10**9}, "the largest size is 1000000000 and num_layers 1000000000; expected"),
    ],
)
def test_header_that_describes_no_model(run, tmp_path, sizes, message):
    tensors, header = checkpoint.load(run / "best.safetensors")
    header["model"] |= sizes
    checkpoint.save(tmp_path / "odd.safetensors", tensors, header)
    with pytest.raises(checkpoint.CheckpointError, match=message):
        load_model(tmp_path / "odd.safetensors")


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("[]", r"its header is \[\]; expected an object"),
        ("null", "its header is None; expected an object"),
        ("{", "its header is no JSON"),
        ('{"step": ' + "9" * 5000 + "}", "its header is no JSON"),
        ('{"a": ' * 100_000, "its header is no JSON"),
        ('{"settings": ' + '{"a": ' * 300 + "1" + "}" * 301, "its header is nested more than 32 levels deep"),
        ('{"settings": []}', r"settings in its header is \[\]; expected an object"),
        ('{"history": 3, "step": 1}', "history in its header is 3; expected a list"),
    ],
)
def test_headers_of_strangers(tiny, tmp_path, header, message):
    """Whoever reads it: the model, a warm start, a resumed run."""
    path = tmp_path / "last.safetensors"
    save_file({"model.x": torch.zeros(1)}, path, metadata={"format": checkpoint.FORMAT, "header": header})
    readers = (load_model, lambda path: ReinforceTrainer(replace(tiny, init_from=path)))
    for read in (*readers, lambda path: am_reinforce.main(Args(resume=path.parent))):
        with pytest.raises(checkpoint.CheckpointError, match=message):
            read(path)


def test_a_missing_solver_names_its_extra(tiny, monkeypatch, capsys):
    """In square brackets, which a terminal's markup would swallow."""

    def missing(solver):
        raise ImportError('pip install "routing-gym[solvers]"')

    monkeypatch.setattr(FastTSP, "load", missing)
    assert reference_cost(TSP(4), None, tiny.runs) is None
    assert 'The gap is not shown: pip install "routing-gym[solvers]"' in capsys.readouterr().out


@pytest.mark.parametrize(("count", "expected"), [(40, 0), (41, 3)])
def test_few_references_are_solved_without_processes(tmp_path, monkeypatch, count, expected):
    """At 0.05 s each: 40 take 2 s, less than processes need to start."""
    asked = []

    def solve(solver, problem, instance, *, num_workers, **others):
        asked.append(num_workers)
        return SimpleNamespace(failed=np.zeros(count, dtype=bool), cost=np.ones(count))

    monkeypatch.setattr(FastTSP, "solve", solve)
    monkeypatch.setattr(runs, "usable_cores", lambda: 3)
    assert reference_cost(TSP(4), TSP(4).generate(np.random.default_rng(0), count), tmp_path) == 1.0
    assert asked == [expected]


def test_failed_save_keeps_the_previous_checkpoint(tmp_path, monkeypatch):
    """The disk fills up while writing: the old file stays, and nothing half-written is left."""
    path = tmp_path / "last.safetensors"
    checkpoint.save(path, {"x": torch.ones(2)}, {"step": 1})

    def full_disk(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(OSError, match="No space left on device: .*last.safetensors"):
        checkpoint.save(path, {"x": torch.zeros(2)}, {"step": 2})
    assert checkpoint.load(path)[1] == {"step": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["last.safetensors"]
