"""Search for good settings of am_reinforce.py with Ray Tune: ASHA stops bad runs early.

    make .venv-integrations/.ready                                 # Ray pins an older Gymnasium
    .venv-integrations/bin/python examples/tune.py --samples 8
    .venv-integrations/bin/python examples/tune.py --resume runs/tune
    ... examples/tune.py --address auto --samples 64               # on a Ray cluster

Each trial is a run of the script in its own process and folder, so a resumed search continues its runs where they
stopped. Change `SPACE` to search other settings. The machines of a cluster need this repository at the same path, and
--runs on a shared file system.
"""

from __future__ import annotations

import os

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # read when Ray is loaded

import json
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from routing_agents.cli import script_path
from routing_agents.runs import LAST, check_integers, check_numbers
from routing_agents.terminal import command_line, plain_console
from routing_gym.optional import explain_missing

with explain_missing("Ray Tune", "rllib", script=__name__ == "__main__"):
    import ray
    from ray import tune
    from ray.tune.schedulers import ASHAScheduler

SPACE = {"learning-rate": tune.loguniform(3e-4, 1e-2), "num-tours": tune.choice([4, 8, 16])}
METRIC = "greedy"  # cost of the held-out instances
STOP_LIMIT = 60.0  # seconds that a run has to save its checkpoint


@dataclass(frozen=True)
class Args:
    """Arguments of a search."""

    advanced = ("grace", "cores", "train", "runs")

    env_id: str = "routing/TSP-20"
    """Problem and number of nodes."""
    samples: int = 8
    """Number of trials."""
    epochs: int = 16
    """Number of epochs of a trial that is not stopped."""
    grace: int = 2
    """Number of epochs before a trial may be stopped."""
    cores: float = 1
    """Number of cores of each trial."""
    train: str = ""
    """Further options of am_reinforce.py, in quotes, such as --train="--batch-size 128"."""
    seed: int = 1
    """Random seed for the settings, and of each run."""
    runs: Path = Path("runs")
    """Folder in which the folder of the search is made."""
    name: str = "tune"
    """Name of that folder."""
    resume: Path | None = None
    """Folder of a search to continue; other options then have no effect, except for --address."""
    address: str | None = None
    """Address of a Ray cluster, such as "auto". Default: Ray starts on this machine for the search."""

    def __post_init__(self) -> None:
        check_integers(self, "samples", "epochs", "grace")
        check_numbers(self, "cores")


class Trial(tune.Trainable):  # type: ignore[misc]  # Ray's types are not checked
    """A run of am_reinforce.py; each of Tune's iterations is an epoch."""

    def setup(self, config: dict[str, Any]) -> None:
        """Start the run, or continue it if its folder has a checkpoint."""
        runs = Path(config["runs"])
        self.folder, self.epoch = runs / self.trial_id, 0
        command = [sys.executable, str(script_path("am_reinforce.py"))]
        if (self.folder / LAST).exists():
            command += ["--resume", str(self.folder)]
        else:
            settings = {"env-id", "epochs", "seed", *SPACE}
            command += [f"--{name}={config[name]}" for name in sorted(settings)]
            command += [*shlex.split(config["train"]), "--processes=1", f"--threads={max(1, int(config['cores']))}"]
            command += [f"--runs={runs}", f"--name={self.trial_id}"]
        runs.mkdir(parents=True, exist_ok=True)
        self.log = (runs / f"{self.trial_id}.log").open("ab")
        self.process = subprocess.Popen(command, stdout=self.log, stderr=subprocess.STDOUT)

    def step(self) -> dict[str, Any]:
        """Wait for the next epoch; return its metrics.

        Raises:
            RuntimeError: The run ended before that epoch.
        """
        metrics = self.folder / "metrics.jsonl"
        while True:
            ended = self.process.poll() is not None  # checked before reading, so that no line is missed
            lines = metrics.read_text().rpartition("\n")[0].splitlines() if metrics.exists() else []
            if len(lines) > self.epoch:
                self.epoch += 1
                row = json.loads(lines[self.epoch - 1])
                return {METRIC: row[METRIC], "epoch": self.epoch, tune.result.DONE: self.epoch == self.config["epochs"]}
            if ended:
                status = self.process.returncode
                raise RuntimeError(f"{self.folder}: the run ended with status {status}; {self.log.name} says why")
            time.sleep(0.2)

    def cleanup(self) -> None:
        """Stop the run, which saves its checkpoint."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_LIMIT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Do nothing: the run's folder holds all that it needs."""

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Do nothing, like `save_checkpoint`."""


def make_tuner(args: Args) -> Any:
    """Return the search: a new one, or that of `args.resume`.

    Raises:
        ValueError: There is no search to resume, or the folder of a new search exists.
    """
    folder = (args.resume or args.runs / args.name).resolve()
    trainable = tune.with_resources(Trial, {"cpu": args.cores})
    if args.resume is not None:
        if not tune.Tuner.can_restore(str(folder)):
            raise ValueError(f"--resume {args.resume}: no search of Ray Tune is there; start one with --name")
        return tune.Tuner.restore(str(folder), trainable, resume_unfinished=True, restart_errored=True)
    if folder.exists():
        raise ValueError(f"{folder} exists; continue it with --resume {folder}, or choose another --name")
    fixed = {"env-id": args.env_id, "epochs": args.epochs, "seed": args.seed, "train": args.train, "cores": args.cores}
    scheduler = ASHAScheduler(max_t=args.epochs, grace_period=args.grace)
    return tune.Tuner(
        trainable,
        param_space={**SPACE, **fixed, "runs": str(folder / "runs")},
        tune_config=tune.TuneConfig(metric=METRIC, mode="min", num_samples=args.samples, scheduler=scheduler),
        run_config=tune.RunConfig(name=folder.name, storage_path=str(folder.parent), verbose=0),
    )


def main(args: Args) -> dict[str, Any]:
    """Run the search; print the best settings and return them.

    Raises:
        ValueError: See `make_tuner`.
        RuntimeError: Every trial failed.
    """
    tuner = make_tuner(args)
    ray.init(args.address or "local", log_to_driver=False, include_dashboard=False if args.address is None else None)
    try:
        results = tuner.fit()
    finally:
        ray.shutdown()
    for error in results.errors:
        plain_console(stderr=True).print(str(error).strip().splitlines()[-1], soft_wrap=True)
    best = results.get_best_result(METRIC, "min")
    found = {name: best.config[name] for name in SPACE}
    stopped = sum(result.metrics["epoch"] < result.config["epochs"] for result in results if result.metrics)
    told = f"best of {len(results)} trials, of which {stopped} were stopped early: {found}"
    plain_console().print(f"{told}, {METRIC} {best.metrics[METRIC]:.4f}", soft_wrap=True)
    return found


if __name__ == "__main__":
    command_line(
        main, Args, __doc__, (RuntimeError,), stopped="stopped; continue with --resume and the search's folder"
    )
