"""Train the attention model with sb3-contrib's MaskablePPO, and the library's own MLP for comparison.

    python examples/sb3_maskable_ppo.py                              # TSP-20, both policies
    python examples/sb3_maskable_ppo.py --env-id routing/CVRP-20 --policy attention

The model is saved at every point of the learning curve.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # before torch is loaded, as in am_reinforce.py

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import tyro

from routing_agents.policies.attention.model import ModelConfig
from routing_agents.policies.attention.sb3_policy import DEFAULT_CONFIG, AttentionPolicy, LaneRolloutBuffer
from routing_agents.runs import check_integers, check_numbers, held_out_instances, make_folder
from routing_agents.terminal import command_line
from routing_agents.training.tuning import keep_freed_memory
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


@dataclass(frozen=True)
class Args:
    """Arguments of a run."""

    advanced = ("num_minibatches", "num_epochs", "model", "evaluations", "threads", "runs")

    env_id: str = "routing/TSP-20"
    """Environment id, such as routing/CVRP-50 or routing/VRPTW-20."""
    policy: Literal["attention", "mlp", "both"] = "both"
    """Policy to train: the attention model, Stable-Baselines3's MultiInputPolicy, or both in turn."""
    total_steps: int = 150_000
    """Number of environment steps per policy, in whole rollouts: in each, every lane takes as many steps as there are
    actions (whole tours for the TSP)."""
    num_envs: int = 128
    """Number of lanes."""
    num_minibatches: int = 4
    """Number of minibatches per epoch; divides the lanes."""
    num_epochs: int = 4
    """Number of passes over each rollout."""
    learning_rate: float = 5e-4
    """Adam's initial learning rate, which falls linearly to zero."""
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
    """Name of the run's folder. Default: the environment, the seed and the time."""

    def __post_init__(self) -> None:
        check_integers(self, "total_steps", "num_envs", "num_minibatches", "num_epochs", "evaluations", "held_out")
        check_integers(self, "seed", "threads", least=0)
        check_numbers(self, "learning_rate")
        if self.num_envs % self.num_minibatches:
            raise ValueError(f"--num-minibatches {self.num_minibatches} does not divide --num-envs {self.num_envs}")


class HeldOut(BaseCallback):
    """Callback that measures the greedy cost during training, and saves the model.

    Args:
        problem: Problem of the instances.
        instance: Held-out instances.
        interval: Number of steps between measurements.
        path: File of the model.
    """

    def __init__(self, problem: AnyProblem, instance: Any, interval: float, path: Path) -> None:
        super().__init__()
        self.problem, self.instance, self.interval, self.path = problem, instance, interval, path
        self.curve: list[dict[str, float]] = []

    def _on_rollout_start(self) -> None:
        if self.num_timesteps >= len(self.curve) * self.interval:
            self.measure()

    def _on_step(self) -> bool:
        return True

    def _on_training_end(self) -> None:
        self.measure()
        self.logger.dump(self.num_timesteps)

    def measure(self) -> None:
        """Add a point to the curve, and save the model."""
        cost = mean_cost(self.problem, self.instance, greedy(self.model, self.problem, self.instance))
        self.curve.append({"steps": self.num_timesteps, "greedy": cost})
        self.logger.record("eval/greedy_cost", cost)
        self.model.save(self.path)
        print(f"{self.path.stem:>10} {self.num_timesteps:>10,} steps  greedy {cost:.4f}")


def mean_cost(problem: AnyProblem, instance: Any, policy: Policy) -> float:
    """Return the mean cost of a policy's tours, one for each instance."""
    return float(rollout(problem, instance, policy).cost.mean(dtype=np.float64))


def greedy(model: MaskablePPO, problem: AnyProblem, instance: Any) -> Policy:
    """Return the policy that takes the most probable action."""
    static = problem.observe_static(instance)

    def policy(observation: dict[str, Any]) -> Any:
        mask = observation["action_mask"]
        return model.predict({**static, **observation}, deterministic=True, action_masks=mask)[0]

    return policy


def train(args: Args, name: str, folder: Path, instance: Any) -> list[dict[str, float]]:
    """Train MaskablePPO with one of the policies, all else being the same, and save it; return its learning curve."""
    env = RoutingVecEnv(args.env_id, num_envs=args.num_envs)
    num_steps = int(env.action_space.n)
    special: dict[str, Any] = {"policy": "MultiInputPolicy"}
    if name == "attention":
        config = {"config": args.model}
        special = {"policy": AttentionPolicy, "policy_kwargs": config, "rollout_buffer_class": LaneRolloutBuffer}
    model = MaskablePPO(
        **special,
        env=VecMonitor(env),
        n_steps=num_steps,
        batch_size=args.num_envs * num_steps // args.num_minibatches,
        n_epochs=args.num_epochs,
        learning_rate=lambda progress_remaining: args.learning_rate * progress_remaining,
        gamma=1.0,  # the return is minus the cost
        max_grad_norm=1.0,
        tensorboard_log=str(folder / "tensorboard"),
        seed=args.seed,  # also the seed of the environment
        device="cpu",
    )
    callback = HeldOut(env.vector_env.problem, instance, args.total_steps / args.evaluations, folder / f"{name}.zip")
    model.learn(args.total_steps, callback, tb_log_name=name)
    return callback.curve


def main(args: Args) -> Path:
    """Train according to `args`; return the folder of the run."""
    keep_freed_memory()
    if args.threads:
        torch.set_num_threads(args.threads)
    problem = RoutingVecEnv(args.env_id, num_envs=1).vector_env.problem
    title = f"{problem.name.lower()}-{problem.num_nodes}-sb3"
    folder = make_folder(args.runs, args.name, title, args.seed, resumable=False)
    instance = held_out_instances(problem, args.held_out)
    rng = np.random.default_rng(args.seed)
    costs = {
        "random": mean_cost(problem, instance, lambda seen: sample_actions(seen["action_mask"], rng)),
        "nearest neighbour": float(NearestNeighbour().solve(problem, instance).cost.mean()),
    }
    curves: dict[str, list[dict[str, float]]] = {}
    for policy in ("attention", "mlp") if args.policy == "both" else (args.policy,):
        curves[policy] = train(args, policy, folder, instance)
        costs[policy] = curves[policy][-1]["greedy"]
    arguments = {key: value for key, value in dataclasses.asdict(args).items() if key != "runs"}
    document = {"arguments": arguments, "costs": costs, "curves": curves}
    (folder / "curves.json").write_text(json.dumps(document, indent=2) + "\n")
    print(f"Mean cost of {args.held_out:,} held-out instances, greedy:")
    print(*(f"{name:>20} {cost:.4f}" for name, cost in costs.items()), sep="\n")
    print(f"{folder}: curves.json, models (.zip); curves: tensorboard --logdir {folder}")
    return folder


if __name__ == "__main__":
    command_line(main, Args, __doc__)
