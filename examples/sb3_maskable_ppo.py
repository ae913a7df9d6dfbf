"""Train the attention model with sb3-contrib's MaskablePPO, and the library's own MLP beside it.

    python examples/sb3_maskable_ppo.py                              # TSP-20, both policies
    python examples/sb3_maskable_ppo.py --env-id routing/CVRP-20 --policy attention

Ctrl-C stops after the current step and saves.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # before torch is loaded, as in am_reinforce.py

import dataclasses
import json
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import tyro
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from routing_agents.policies.attention.model import ModelConfig
from routing_agents.policies.attention.sb3_policy import DEFAULT_CONFIG, AttentionPolicy, LaneRolloutBuffer
from routing_agents.runs import HELD_OUT_SEED, HELD_OUT_STREAM, StopRequest, check_at_least, check_positive, stream
from routing_agents.terminal import command_line, plain_console
from routing_agents.training.tuning import keep_freed_memory
from routing_gym.files import write_atomically
from routing_gym.integrations.sb3 import RoutingVecEnv
from routing_gym.optional import explain_missing
from routing_gym.problem import AnyProblem
from routing_gym.rollout import Policy, rollout
from routing_gym.sampling import sample_actions
from routing_gym.solvers import NearestNeighbour

with explain_missing("sb3-contrib", "sb3", script=__name__ == "__main__"):
    from sb3_contrib import MaskablePPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.vec_env import VecMonitor

POLICIES = ("attention", "mlp")


@dataclass(frozen=True)
class Args:
    """Arguments of a run."""

    advanced = ("num_steps", "num_epochs", "gae_lambda", "max_grad_norm", "model", "evaluations", "threads", "runs")

    env_id: str = "routing/TSP-20"
    """Environment id, such as routing/CVRP-50 or routing/VRPTW-20."""
    policy: Literal["attention", "mlp", "both"] = "both"
    """Policy to train: the attention model, Stable-Baselines3's MultiInputPolicy, or both in turn."""
    total_steps: int = 150_000
    """Number of environment steps per policy, in whole rollouts."""
    num_envs: int = 128
    """Number of lanes."""
    num_steps: int = 0
    """Number of steps per lane between updates; 0 takes as many as there are actions (whole tours for TSP)."""
    num_minibatches: int = 4
    """Number of minibatches per epoch; divides the lanes."""
    num_epochs: int = 4
    """Number of passes over each rollout."""
    learning_rate: float = 5e-4
    """Adam's initial learning rate, which falls linearly to zero."""
    gae_lambda: float = 0.95
    """Lambda of generalised advantage estimation."""
    max_grad_norm: float = 1.0
    """Largest norm of the gradients; larger ones are scaled down."""
    model: tyro.conf.OmitArgPrefixes[ModelConfig] = DEFAULT_CONFIG
    """Sizes of the attention model; any normalisation except batch."""
    evaluations: int = 20
    """Number of points of the learning curve."""
    held_out: int = 1_000
    """Number of held-out instances for the greedy cost, the same in all runs."""
    seed: int = 1
    """Random seed for the weights, the training instances and the sampled actions."""
    threads: int = 0
    """Number of CPU threads; 0 uses all cores."""
    runs: Path = Path("runs")
    """Folder in which run folders are made."""
    name: str = ""
    """Name of the run's folder. Default: the problem, the seed and the time."""

    def __post_init__(self) -> None:
        check_at_least(1, self, "total_steps", "num_envs", "num_minibatches", "num_epochs", "evaluations", "held_out")
        check_at_least(0, self, "num_steps", "seed", "threads")
        check_positive(self, "learning_rate", "max_grad_norm")
        if self.num_envs % self.num_minibatches:
            raise ValueError(f"--num-minibatches {self.num_minibatches} does not divide --num-envs {self.num_envs}")


class HeldOut(BaseCallback):
    """Measures the greedy cost as training goes on, shows and logs it, and saves the model.

    Args:
        problem: The rules.
        instance: The held-out instances.
        interval: Steps between measurements.
        path: Where the model goes.
        progress: Has one task, which counts the steps.
        stop: Ends the training when it is requested.
    """

    def __init__(
        self,
        problem: AnyProblem,
        instance: Any,
        interval: float,
        path: Path,
        progress: Progress,
        stop: StopRequest,
    ) -> None:
        super().__init__()
        self.problem, self.instance, self.interval, self.path = problem, instance, interval, path
        self.progress, self.stop = progress, stop
        self.curve: list[dict[str, float]] = []
        self.seconds, self.since = 0.0, time.perf_counter()

    def _on_rollout_start(self) -> None:
        if self.num_timesteps >= len(self.curve) * self.interval:
            self.measure()

    def _on_step(self) -> bool:
        self.progress.update(self.progress.task_ids[0], completed=self.num_timesteps)
        return not self.stop.requested

    def _on_training_end(self) -> None:
        self.measure()
        self.logger.dump(self.num_timesteps)

    def measure(self) -> None:
        """Add a point to the curve; its own time does not count."""
        self.seconds += time.perf_counter() - self.since
        cost = mean_cost(self.problem, self.instance, greedy(self.model, self.problem, self.instance))
        self.curve.append({"steps": self.num_timesteps, "seconds": self.seconds, "greedy": cost})
        self.logger.record("eval/greedy_cost", cost)
        self.model.save(self.path)
        name = f"{self.path.stem:>10}"
        self.progress.console.print(f"{name} {self.num_timesteps:>10,} steps {self.seconds:>8.1f} s  greedy {cost:.4f}")
        self.since = time.perf_counter()


def mean_cost(problem: AnyProblem, instance: Any, policy: Policy) -> float:
    """Play every instance once."""
    return float(rollout(problem, instance, policy).cost.mean(dtype=np.float64))


def greedy(model: MaskablePPO, problem: AnyProblem, instance: Any) -> Policy:
    """Take the most probable action."""
    static = problem.observe_static(instance)

    def policy(observation: dict[str, Any]) -> Any:
        mask = observation["action_mask"]
        return model.predict({**static, **observation}, deterministic=True, action_masks=mask)[0]

    return policy


def make_model(args: Args, name: str, env: RoutingVecEnv, folder: Path) -> MaskablePPO:
    """Build MaskablePPO with one of the policies; all else is the same."""
    num_steps = args.num_steps or int(env.action_space.n)
    rate = args.learning_rate
    special: dict[str, Any] = {"policy": "MultiInputPolicy"}
    if name == "attention":
        config = {"config": args.model}
        special = {"policy": AttentionPolicy, "policy_kwargs": config, "rollout_buffer_class": LaneRolloutBuffer}
    return MaskablePPO(
        **special,
        env=VecMonitor(env),
        n_steps=num_steps,
        batch_size=args.num_envs * num_steps // args.num_minibatches,
        n_epochs=args.num_epochs,
        learning_rate=lambda progress_remaining: rate * progress_remaining,
        gamma=1.0,  # the return is minus the cost
        gae_lambda=args.gae_lambda,
        max_grad_norm=args.max_grad_norm,
        tensorboard_log=str(folder / "tensorboard"),
        seed=args.seed,  # of the environment, too
        device="cpu",
    )


def train(args: Args, name: str, folder: Path, instance: Any, stop: StopRequest) -> list[dict[str, float]]:
    """Train one policy and save it; return its learning curve."""
    env = RoutingVecEnv(args.env_id, num_envs=args.num_envs)
    model = make_model(args, name, env, folder)
    problem = env.vector_env.problem
    columns = (TextColumn(name), MofNCompleteColumn(), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns) as progress:
        progress.add_task(name, total=args.total_steps)
        callback = HeldOut(
            problem, instance, args.total_steps / args.evaluations, folder / f"{name}.zip", progress, stop
        )
        model.learn(args.total_steps, callback, tb_log_name=name)
    return callback.curve


def make_folder(args: Args, problem: AnyProblem) -> Path:
    """Make the folder of the run.

    Raises:
        FileExistsError: There is one.
    """
    size = f"{problem.name.lower()}-{problem.num_nodes}"
    folder = args.runs / (args.name or f"{size}-sb3-seed{args.seed}-{datetime.now():%Y%m%d-%H%M%S}")
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise FileExistsError(f"{folder} exists; choose another --name") from None
    return folder


def report(args: Args, folder: Path, costs: dict[str, float], curves: dict[str, list[dict[str, float]]]) -> None:
    """Write the curves and print the final costs."""
    arguments = {name: value for name, value in dataclasses.asdict(args).items() if name != "runs"}
    document = {"arguments": arguments, "costs": costs, "curves": curves}
    write_atomically(folder / "curves.json", (json.dumps(document, indent=2) + "\n").encode())
    table = Table("policy", "steps", "mean cost", title=f"{args.env_id}: {args.held_out:,} held-out instances, greedy")
    for name, cost in costs.items():
        steps = f"{curves[name][-1]['steps']:,}" if name in curves else ""
        table.add_row(name, steps, f"{cost:.4f}")
    console = plain_console()
    console.print(table)
    console.print(f"{folder}: curves.json, models (.zip); curves: tensorboard --logdir {folder}", soft_wrap=True)


def main(args: Args) -> Path:
    """Train as `args` say; return the folder of the run."""
    keep_freed_memory()
    if args.threads:
        torch.set_num_threads(args.threads)
    problem = RoutingVecEnv(args.env_id, num_envs=1).vector_env.problem
    folder = make_folder(args, problem)
    instance = problem.generate(stream(HELD_OUT_SEED, HELD_OUT_STREAM, 0), args.held_out)
    rng = np.random.default_rng(args.seed)
    costs = {
        "random": mean_cost(problem, instance, lambda seen: sample_actions(seen["action_mask"], rng)),
        "nearest neighbour": float(NearestNeighbour().solve(problem, instance).cost.mean()),
    }
    curves: dict[str, list[dict[str, float]]] = {}
    with StopRequest() as stop:
        for name in POLICIES if args.policy == "both" else (args.policy,):
            if not stop.requested:
                curves[name] = train(args, name, folder, instance, stop)
                costs[name] = curves[name][-1]["greedy"]
    report(args, folder, costs, curves)
    return folder


if __name__ == "__main__":
    command_line(main, Args, __doc__)
