"""Worker of `train_throughput.py` for rl4co: its attention model, environment and rollout baseline.

Run by the interpreter of rl4co's own virtual environment; see requirements-rl4co.txt.

Where there is a choice, the option that is faster for rl4co is used: a plain loop around its `training_step` instead of
Lightning's trainer, loaders and loggers; the baseline's greedy costs computed from the current batch, like in its
`RolloutBaseline.rollout`, instead of through a data set; no check of the tours. With bfloat16, training and decoding
run under autocast, which is the effect of its trainer's default precision on a CPU.
"""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Callable
from typing import Any

import torch
from rl4co.envs import get_env
from rl4co.models import AttentionModel
from timing import timing
from worker import Job, serve


def prepare(job: Job) -> tuple[Callable[[], object], dict[str, Any]]:
    """Build the function that a job times: a training step with the rollout baseline, or greedy decoding."""
    problem, size = job["problem"].split("-")
    device, batch_size = job["device"], job["batch_size"]
    env = get_env(problem.lower(), generator_params={"num_loc": int(size)}, check_solution=False, device=device)
    model = AttentionModel(env, baseline="rollout_only", batch_size=batch_size).to(device)
    frozen = model.baseline.policy = copy.deepcopy(model.policy).eval()
    optimizer = model.configure_optimizers()

    def autocast() -> torch.autocast:
        return torch.autocast(device, torch.bfloat16, enabled=job["precision"] == "bfloat16")

    def draw() -> Any:
        return env.generator(batch_size).to(device)

    def greedy(batch: Any) -> torch.Tensor:
        with torch.inference_mode(), autocast():
            return frozen(env.reset(batch.clone()), env, decode_type="greedy")["reward"]

    def train() -> None:
        batch = draw()
        batch.set("extra", greedy(batch).clone())
        with autocast():
            loss = model.training_step(batch, 0)["loss"]
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.policy.parameters(), 1.0)
        optimizer.step()

    if job["task"] == "greedy":
        held_out = draw()
        return lambda: greedy(held_out), {}
    return train, {}


if __name__ == "__main__":
    warnings.filterwarnings("ignore", module="lightning")  # warnings that there is no trainer
    logging.disable(logging.WARNING)
    serve(("rl4co", "torch", "tensordict", "torchrl"), timing(prepare))
