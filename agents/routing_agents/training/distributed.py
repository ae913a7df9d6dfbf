"""Training in several processes that `torchrun` starts. With one process, tensors are returned unchanged.

On a CPU, two processes of one thread each train faster than two threads of one process;
benchmarks/training/train_throughput.py measures the difference.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.run import main as torchrun

from routing_agents import checkpoint, runs
from routing_agents.header import CheckpointError
from routing_agents.policies.attention.decoding import on_originals, solve
from routing_agents.policies.protocol import PolicyNetwork
from routing_gym import arrays
from routing_gym.arrays import select
from routing_gym.problem import AnyProblem
from routing_gym.solvers.runtime.executors import usable_cores

T = TypeVar("T")
# Process groups that were left. DistributedDataParallel would free its group with Python's lock held, and wait for a
# thread of gloo that may need the lock to free its last tensor: a deadlock on a busy machine.
KEPT: list[Any] = []
ENDED = "ROUTING_GYM_ENDED"  # environment variable: file that the first process makes when it ends normally


def launched() -> bool:
    """Return whether `torchrun` started this process."""
    return dist.is_torchelastic_launched()


def check_alone() -> None:
    """Check that this process is not one of several that `torchrun` started, for scripts that do not share their work.

    Raises:
        ValueError: It is one of several.
    """
    if launched() and (processes := int(os.environ["WORLD_SIZE"])) > 1:
        raise ValueError(
            f"torchrun started {processes} processes, and each would do all of the work; this script runs as one "
            "process: start it with python"
        )


def choose_processes(args: Any) -> int:
    """Return the number of processes to start: that of the resumed run, or that of `--processes`.

    Raises:
        CheckpointError: The run's checkpoint is damaged.
        ValueError: Several processes are asked for on Windows.
    """
    if args.resume is not None:
        path = args.resume / runs.LAST
        processes = checkpoint.load(path)[1].get("processes", 1) if path.is_file() else 1
        if not 1 <= processes <= runs.MOST_THREADS:  # an integer, see `header.TYPES`
            raise CheckpointError(f"{path}: found processes {processes!r}, expected 1 to {runs.MOST_THREADS}")
    elif args.processes:
        processes = args.processes
    else:
        several = not runs.WINDOWS and runs.choose_device(args.device) == "cpu" and usable_cores() > 1
        processes = 2 if several and args.batch_size % 2 == 0 else 1
    if processes > 1 and runs.WINDOWS:  # torch has no libuv there
        raise ValueError(
            f"the run has {processes} processes, which torchrun cannot connect on Windows; start one with --processes 1"
        )
    return processes


def launch(processes: int, script: str, arguments: list[str]) -> int:
    """Run a script in several processes on this machine, like `torchrun`; return the exit status."""
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # the script prints its own errors
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # torchrun's choice, without its warning
    os.environ.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "3600")  # else a step of over 30 s is killed, unsaved
    with tempfile.TemporaryDirectory() as folder:
        os.environ[ENDED] = str(ended := Path(folder) / "ended")
        try:
            # "--", or torchrun would take --log for one of its own options.
            torchrun(["--standalone", f"--nproc-per-node={processes}", "--", script, *arguments])
        except ChildFailedError:
            return 1
        except SignalException as error:  # Ctrl-C or SIGTERM: the processes receive it, too, and save the run
            if not ended.exists():
                print("stopped before the first step", file=sys.stderr)
                return 128 + error.sigval
    return 0


def start(device: str) -> str:
    """Join the other processes, if `torchrun` started this one; return the device of this process.

    Raises:
        ValueError: The processes on this machine cannot have a CUDA device each.
    """
    device = own_device(device)
    if launched() and not dist.is_initialized():
        dist.init_process_group("cpu:gloo,cuda:nccl" if device.startswith("cuda") else "gloo")
    if device.startswith("cuda:"):
        torch.cuda.set_device(device)
    return device


def own_device(device: str) -> str:
    """Return the device of this process: of several processes, each has a CUDA device of its own.

    Raises:
        ValueError: There are fewer devices than processes on this machine.
    """
    if not launched() or not device.startswith("cuda"):
        return device
    index, processes = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
    if processes > (torch.cuda.device_count() if device == "cuda" else 1):
        raise ValueError(
            f"--device {device}: each of the {processes} processes on this machine needs a CUDA device of its own, "
            f"and there are {torch.cuda.device_count()}; start fewer, with --device cuda, or give --device cpu"
        )
    return f"cuda:{index}" if device == "cuda" else device


def stop() -> None:
    """Leave the process group."""
    if dist.is_initialized():
        KEPT.append(dist.group.WORLD)
        dist.destroy_process_group()


def leave() -> None:
    """Exit a process that `torchrun` started, with status 0 and without Python's own shutdown.

    On a busy machine, a thread of gloo that still holds its last tensor would abort a process that shuts down.
    """
    if launched():
        sys.stdout.flush()
        sys.stderr.flush()
        if ENDED in os.environ and os.environ["RANK"] == "0":
            Path(os.environ[ENDED]).touch()
        os._exit(0)


def world_size() -> int:
    """Return the number of processes."""
    return dist.get_world_size() if dist.is_initialized() else 1


def rank() -> int:
    """Return the rank of this process; the process of rank 0 logs and saves."""
    return dist.get_rank() if dist.is_initialized() else 0


def parallel(module: nn.Module, may_skip: bool = False) -> nn.Module:
    """Wrap a module in torch's DistributedDataParallel, which averages its gradients over the processes.

    Args:
        module: Module that returns the loss.
        may_skip: Whether some parameters may get no gradient, which takes a search for them in each step.
    """
    if not dist.is_initialized():
        return module
    return nn.parallel.DistributedDataParallel(module, find_unused_parameters=may_skip)


def mean(x: Tensor) -> Tensor:
    """Average a tensor over the processes."""
    if not dist.is_initialized():
        return x
    total = x.clone()
    dist.all_reduce(total)
    return total / world_size()


def any_of(flag: bool) -> bool:
    """Return whether the flag is set in any process."""
    if not dist.is_initialized():
        return flag
    count = torch.tensor(int(flag))
    dist.all_reduce(count)
    return bool(count)


def share_buffers(model: nn.Module) -> None:
    """Copy the buffers of the first process, the running statistics of batch normalisation, to the others."""
    if dist.is_initialized():
        for buffer in model.buffers():
            dist.broadcast(buffer, src=0)


def by_first(function: Callable[[], T]) -> T:
    """Call a function in the first process only; return its result, or raise its exception, in all processes."""
    if not dist.is_initialized():
        return function()
    outcome: list[Any] = [None, None]
    if rank() == 0:
        try:
            outcome[0] = function()
        except Exception as error:  # raised below, in every process
            outcome[1] = error
    dist.broadcast_object_list(outcome, src=0)
    if outcome[1] is not None:
        raise outcome[1]
    result: T = outcome[0]
    return result


def greedy_cost(model: PolicyNetwork, problem: AnyProblem, instance: Any) -> Tensor:
    """Return the greedy cost (B,) of every instance, as `TrainedModel` decodes it; each process decodes its share."""
    if not dist.is_initialized():
        return decoded_cost(model, problem, instance)
    mine = torch.arange(rank(), arrays.batch_size(instance), world_size(), device=arrays.device_of(instance))
    cost = torch.zeros(arrays.batch_size(instance), device=arrays.device_of(instance))
    if len(mine):
        cost[mine] = decoded_cost(model, problem, select(instance, mine))
    dist.all_reduce(cost)  # each entry is a cost from one process, and zeros from the others
    return cost


def decoded_cost(model: PolicyNetwork, problem: AnyProblem, instance: Any) -> Tensor:
    """Return the greedy cost (B,) of instances that are decoded after `Problem.rescale`."""
    rescaled = problem.rescale(instance)
    return on_originals(problem, instance, rescaled, solve(model, problem, rescaled)).cost


def lost(error: RuntimeError) -> bool:
    """Return whether an error is caused by a lost connection to another process."""
    return dist.is_initialized() and any(word in str(error) for word in ("gloo", "Gloo", "NCCL", "onnection"))
