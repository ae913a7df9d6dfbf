"""Two processes, with the environment that torchrun gives them, against one process with both halves of each batch."""

from __future__ import annotations

import os
import re
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
import torch
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.run import get_args_parser
from torch.distributed.run import main as torchrun

import am_reinforce
from am_reinforce import Args, ReinforceTrainer
from helpers import AGENTS, SMALL, TINY, logged, run_script, start, wait_for_epoch
from routing_agents import checkpoint, runs
from routing_agents.policies.attention.model import ModelConfig
from routing_agents.training import distributed
from routing_gym.arrays import concatenate


def run_two(*command: object, function: Callable[[], None] = run_script) -> None:
    """Run a script in two processes with the environment that torchrun gives them; see `start`."""
    several = {"WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "TORCHELASTIC_RUN_ID": "run"}
    several |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    with (
        start(*command, RANK=0, LOCAL_RANK=0, **several, function=function) as first,
        start(*command, RANK=1, LOCAL_RANK=1, **several, function=function) as second,
    ):
        output = first.stdout.read() + second.stdout.read()
    assert (first.exitcode, second.exitcode) == (0, 0), output


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class BothHalves(ReinforceTrainer):
    """Plays the parts of two processes in one."""

    def draw(self, problem, step):
        halves = []
        for rank in (0, 1):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(distributed, "rank", lambda rank=rank: rank)
                patch.setattr(distributed, "world_size", lambda: 2)
                halves.append(super().draw(problem, step))
        instances, choices = zip(*halves, strict=True)

        def choose(logits):
            parts = zip(choices, logits.chunk(2), strict=True)
            return torch.cat([choice(part) for choice, part in parts])

        return concatenate(list(instances)), choose


@pytest.mark.parametrize("baseline", ["rollout", "critic"])
def test_two_processes_equal_one_with_both_halves(tmp_path, baseline):
    """Three epochs with instance normalisation, which does not look across instances."""
    sizes = {"embed_dim": 16, "num_heads": 4, "num_layers": 1, "feed_forward_dim": 16}
    model = ModelConfig(**sizes, normalization="instance", nearness=True)
    args = replace(
        TINY,
        env_id="routing/CVRP-10",
        baseline=baseline,
        attention=model,
        learning_rate=1e-3,
        precision="float32",
        epochs=3,
        batch_size=16,
    )
    one = am_reinforce.main(replace(args, runs=tmp_path, name="one"), BothHalves)
    command = [AGENTS / "am_reinforce.py", "--env-id", args.env_id, "--baseline", baseline, "--epochs", 3]
    command += ["--steps-per-epoch", "3", "--batch-size", "16", "--learning-rate", "1e-3", "--baseline-size", "32"]
    command += ["--threads", 1, "--held-out", "16", "--precision", "float32", "--normalization", "instance"]
    command += [word for key, size in sizes.items() for word in (f"--{key.replace('_', '-')}", str(size))]
    run_two(*command, "--runs", tmp_path, "--name", "two")
    expected, _ = checkpoint.load(one / "last.safetensors")
    found, header = checkpoint.load(tmp_path / "two" / "last.safetensors")
    assert header["processes"] == 2
    assert expected.keys() == found.keys()
    for key in expected:
        # Instance normalisation cancels a bias: its gradient is rounding noise, which Adam blows up, as it does
        # some of the critic's; what the critic predicts is in the log.
        if key.endswith("contract.bias") or key.startswith(("baseline.critic", "baseline.optimizer")):
            continue
        torch.testing.assert_close(
            found[key], expected[key], rtol=0, atol=5e-4, msg=lambda text, key=key: f"{key}: {text}"
        )
    for row, other in zip(logged(one), logged(tmp_path / "two"), strict=True):
        assert other == pytest.approx(row, rel=1e-4)
    with pytest.raises(checkpoint.CheckpointError, match="2 processes, resumed with 1; start it by torchrun"):
        am_reinforce.main(Args(resume=tmp_path / "two"))


def starved() -> None:
    """Resume a run and starve its connection's threads in the last step, so that they hold a tensor when it ends."""
    any_of, left = distributed.any_of, 40 - checkpoint.load(Path(sys.argv[-1]) / runs.LAST)[1]["step"]

    def starve(flag):
        nonlocal left
        left -= 1
        core = {min(os.sched_getaffinity(0))}
        for thread in [int(path.name) for path in Path("/proc/self/task").iterdir()] if left == 0 else ():
            os.sched_setaffinity(thread, core)
            if thread != os.getpid():
                os.sched_setscheduler(thread, os.SCHED_IDLE, os.sched_param(0))
        return any_of(flag)

    if os.environ["RANK"] == "1":  # which has nothing to report at the end
        distributed.any_of = starve
    run_script()


@pytest.fixture
def without_variables(monkeypatch):
    """Remove the variables that `launch` sets, and restore them afterwards."""
    for name in (distributed.ENDED, "TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "OMP_NUM_THREADS"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


@pytest.mark.usefixtures("without_variables")
@pytest.mark.parametrize("saved", [True, False])
def test_the_status_of_a_run_that_is_stopped_says_whether_it_was_saved(saved, monkeypatch, capsys):
    """Stand-in for torchrun: SIGTERM arrives, and the first process ends in good order, or was still importing."""

    def stopped(arguments):
        if saved:
            Path(os.environ[distributed.ENDED]).touch()
        raise SignalException("stopped", signal.SIGTERM)

    monkeypatch.setattr(distributed, "torchrun", stopped)
    assert distributed.launch(2, "script.py", []) == (0 if saved else 128 + signal.SIGTERM)
    assert ("before the first step" in capsys.readouterr().err) is not saved
    assert int(os.environ["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"]) >= 600  # torchrun's own is 30 s, less than a long step


@pytest.mark.usefixtures("without_variables")
def test_options_of_the_script_are_not_torchruns(monkeypatch):
    """torchrun has --log-dir and --logs-specs, and accepts abbreviations."""
    given = []
    monkeypatch.setattr(distributed, "torchrun", given.extend)
    assert distributed.launch(2, "script.py", ["--log", "wandb"]) == 0
    parsed = get_args_parser().parse_args(given)
    assert (parsed.training_script, parsed.training_script_args) == ("script.py", ["--log", "wandb"])


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="finds a process in /proc and starves threads: Linux only")
def test_a_killed_process_ends_the_run_which_can_be_resumed(tmp_path):
    """The resumed run is starved: PyTorch aborts a process whose connection releases a tensor during shutdown."""
    command = ["torchrun", "--standalone", "--nproc-per-node=2", AGENTS / "am_reinforce.py", *SMALL]
    with start(*command, "--epochs", 8, "--runs", tmp_path, function=torchrun) as process:
        wait_for_epoch(process, 2)
        os.kill(children(process.pid)[1], signal.SIGKILL)
        rest = process.stdout.read()
    assert process.exitcode != 0
    assert "another process of the run is gone; the last checkpoint is sound" in rest
    assert f"python agents/am_reinforce.py --resume {tmp_path / 'run'}" in rest
    run_two(AGENTS / "am_reinforce.py", "--resume", tmp_path / "run", function=starved)
    assert checkpoint.load(tmp_path / "run" / "last.safetensors")[1]["step"] == 40


def test_windows_trains_in_one_process(monkeypatch):
    """torchrun cannot connect several there: torch has no libuv."""
    monkeypatch.setattr(distributed, "usable_cores", lambda: 2)
    assert distributed.choose_processes(Args(device="cpu")) == 2
    monkeypatch.setattr(runs, "WINDOWS", True)
    assert distributed.choose_processes(Args(device="cpu")) == 1
    with pytest.raises(ValueError, match="has 2 processes, which torchrun cannot connect on Windows"):
        distributed.choose_processes(Args(processes=2))
    assert runs.quoted("solve.py", "--checkpoint", r"runs\a b") == r'solve.py --checkpoint "runs\a b"'


@pytest.mark.parametrize("device", ["cuda", "cuda:0"])
def test_two_processes_do_not_share_a_cuda_device(monkeypatch, device):
    """NCCL refuses that, from deep inside."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    for name, value in {"TORCHELASTIC_RUN_ID": "run", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match="each of the 2 processes on this machine needs a CUDA device of its own"):
        distributed.start(device)


def machine(port: int, *arguments: object) -> AbstractContextManager[BaseProcess]:
    """Start what one of two machines runs, as docs/how-to/several-machines.md writes it."""
    launcher = ["torchrun", "--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d"]
    launcher.append(f"--rdzv-endpoint=127.0.0.1:{port}")
    return start(*launcher, AGENTS / "am_reinforce.py", *arguments, function=torchrun)


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="finds a process in /proc: Linux only")
def test_a_machine_that_dies_ends_the_run_which_both_resume(tmp_path):
    """The launcher and the process of rank 1 are killed; the other machine says so, and both continue the run."""
    port, command = free_port(), [*SMALL, "--epochs", 12, "--runs", tmp_path]
    with machine(port, *command) as one, machine(port, *command) as other:
        metrics, deadline = tmp_path / "run" / "metrics.jsonl", time.monotonic() + 240
        while not (metrics.exists() and metrics.read_text().count("\n") >= 2) and time.monotonic() < deadline:
            time.sleep(0.1)
        machines = {rank: launcher for launcher in (one, other) for rank in children(launcher.pid)}
        for process in (machines[1].pid, children(machines[1].pid)[1]):
            os.kill(process, signal.SIGKILL)
        rest = machines[0].stdout.read()
    assert machines[0].exitcode != 0
    assert "another process of the run is gone; the last checkpoint is sound" in rest
    command = ["--resume", tmp_path / "run"]
    with machine(port, *command) as one, machine(port, *command) as other:
        rest = one.stdout.read() + other.stdout.read()
    assert (one.exitcode, other.exitcode) == (0, 0), rest
    assert checkpoint.load(tmp_path / "run" / "last.safetensors")[1]["step"] == 60


def children(launcher: int) -> dict[int, int]:
    """Return the processes of torchrun by their ranks."""
    found = {}
    for child in Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split():
        rank = re.search(rb"\0RANK=(\d+)\0", Path(f"/proc/{child}/environ").read_bytes())
        if rank is not None:
            found[int(rank[1])] = int(child)
    return found
