"""Train rl4co's attention model on the TSP with rl4co's defaults, and record its greedy tours over time.

    VENV/bin/python benchmarks/peers/rl4co_time_to_quality.py HELD_OUT.npz CURVE.npz --seconds 600 --threads 2

Runs in its own virtual environment (pip install torch==2.13.0, then rl4co==0.7.0), which lacks routing-gym. It is
started by benchmarks/training/time_to_quality.py, which exports the held-out instances and rescores the tours. Model,
optimiser, baseline, batch and epoch size, precision and gradient clipping are the defaults of `AttentionModel` and
`RL4COTrainer`. There are two differences, both in favour of rl4co: its own validation is left out, and the policy is
put into training mode at the start of each epoch. The baseline's rollouts leave it in evaluation mode, and Lightning
does not change that back since version 2.2, so batch normalisation would never update its statistics.
"""

from __future__ import annotations

import argparse
import json
import time
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import lightning
import numpy as np
import torch
from rl4co.envs import TSPEnv
from rl4co.models import AttentionModel
from rl4co.utils import RL4COTrainer
from tensordict import TensorDict


class TimeIsUp(Exception):
    """Signal to end the run at once; an orderly stop would first prepare the next epoch, for minutes."""


class Clock(lightning.Callback):
    """Callback that solves the held-out instances greedily at intervals, and ends the run when its time is over.

    Time is measured from the first training step. It includes these evaluations.

    Args:
        coords: Held-out instances, float32 (B, A, 2).
        seconds: Length of the run.
        every: Seconds between evaluations.
    """

    def __init__(self, coords: torch.Tensor, seconds: float, every: float) -> None:
        self.instances = TensorDict({"locs": coords}, batch_size=[len(coords)])
        self.total, self.every = seconds, every
        self.seen = 0
        self.seconds: list[float] = []
        self.num_instances: list[int] = []
        self.actions: list[np.ndarray] = []

    def on_train_start(self, trainer: lightning.Trainer, model: Any) -> None:
        self.started = time.perf_counter()

    def on_train_epoch_start(self, trainer: lightning.Trainer, model: Any) -> None:
        model.policy.train()

    def on_train_batch_end(
        self, trainer: lightning.Trainer, model: Any, outputs: Any, batch: TensorDict, batch_idx: int
    ) -> None:
        self.seen += len(batch["locs"])
        elapsed = time.perf_counter() - self.started
        if elapsed >= self.every * (len(self.seconds) + 1) or elapsed >= self.total:
            self.evaluate(model)
            if elapsed >= self.total:
                raise TimeIsUp

    def evaluate(self, model: Any) -> None:
        """Record the greedy tours, decoded in evaluation mode, and the time."""
        model.policy.eval()
        with torch.inference_mode():
            played = model.policy(model.env.reset(self.instances.clone()), model.env, phase="test", return_actions=True)
        model.policy.train()
        self.seconds.append(time.perf_counter() - self.started)
        self.num_instances.append(self.seen)
        self.actions.append(played["actions"].numpy())
        print(f"{self.seconds[-1]:7.1f} s {self.seen:9} instances  greedy {-played['reward'].mean():.4f}", flush=True)


def main(args: argparse.Namespace) -> None:
    """Train for the given time and write the curve."""
    torch.set_num_threads(args.threads)
    lightning.seed_everything(args.seed)
    coords = torch.from_numpy(np.load(args.held_out)["coords"])
    clock = Clock(coords, args.seconds, args.every)
    model = AttentionModel(TSPEnv(generator_params={"num_loc": coords.shape[1]}))
    trainer = RL4COTrainer(
        max_epochs=1_000_000,  # `Clock` ends the run
        accelerator="cpu",
        callbacks=[clock],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        limit_val_batches=0,
        num_sanity_val_steps=0,
    )
    with suppress(TimeIsUp):
        trainer.fit(model)
    versions = {name: version(name) for name in ("rl4co", "torch", "torchrl", "tensordict", "lightning")}
    settings = {
        "versions": versions,
        "precision": trainer.precision,
        "learning_rate": model.optimizer_kwargs["lr"],
        "data": model.data_cfg,
    }
    np.savez(
        args.curve,
        seconds=clock.seconds,
        instances=clock.num_instances,
        actions=np.stack(clock.actions),
        settings=json.dumps(settings),
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("held_out", type=Path, help="coords: float32 (B, A, 2)")
    parser.add_argument(
        "curve", type=Path, help="to be written: seconds (E,), instances (E,), actions (E, B, A), settings"
    )
    parser.add_argument("--seconds", type=float, default=600.0, help="length of the run")
    parser.add_argument("--every", type=float, default=10.0, help="seconds between evaluations")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads")
    parser.add_argument("--seed", type=int, default=1, help="of everything")
    main(parser.parse_args())
