"""Train the attention model with RLlib's PPO: env runners in their own processes, on one machine or several.

    make .venv-integrations/.ready                                   # Ray pins an older Gymnasium
    .venv-integrations/bin/python examples/rllib_ppo.py                # TSP-10, two env runners
    .venv-integrations/bin/python examples/rllib_ppo.py --env-id routing/CVRP-20 --iterations 300
    ... examples/rllib_ppo.py --address auto --num-env-runners 32      # on a cluster that `ray start` has made

Each env runner steps a native vector environment, and illegal actions have probability zero. The machines of a cluster
need this repository at the same path.
"""

from __future__ import annotations

import os

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # read when Ray is loaded

import logging
from dataclasses import asdict, dataclass
from typing import Any

import gymnasium as gym
import torch
import tyro
from rich.progress import track
from torch import Tensor

from routing_agents.policies.attention.actor_critic import SMALL, ActorCritic, mean_costs
from routing_agents.policies.attention.model import ModelConfig
from routing_agents.runs import check_integers, check_numbers
from routing_agents.terminal import command_line
from routing_gym.integrations.rllib import make_env
from routing_gym.optional import explain_missing

with explain_missing("RLlib", "rllib", script=__name__ == "__main__"):
    import ray
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.core.columns import Columns
    from ray.rllib.core.rl_module.apis.value_function_api import ValueFunctionAPI
    from ray.rllib.core.rl_module.rl_module import RLModuleSpec
    from ray.rllib.core.rl_module.torch import TorchRLModule
    from ray.tune import register_env


@dataclass(frozen=True)
class Args:
    """Arguments of a run."""

    advanced = ("model",)

    env_id: str = "routing/TSP-10"
    """Environment id, such as routing/TSP-10."""
    seed: int = 1
    """Random seed for the weights, the instances and the sampled actions."""
    iterations: int = 60
    """Number of rounds of sampling and learning."""
    num_env_runners: int = 2
    """Number of processes that sample; each needs a core."""
    num_envs: int = 64
    """Number of lanes per env runner."""
    batch_size: int = 2560
    """Number of steps per iteration, over all env runners."""
    minibatch_size: int = 512
    """Number of steps per optimiser step."""
    epochs: int = 4
    """Number of passes over a batch."""
    learning_rate: float = 1e-3
    """Adam's learning rate throughout."""
    held_out: int = 512
    """Number of held-out instances for the result."""
    model: tyro.conf.OmitArgPrefixes[ModelConfig] = SMALL
    """Sizes of the network."""
    address: str | None = None
    """Address of a Ray cluster, such as "auto". Default: Ray starts on this machine for the run."""

    def __post_init__(self) -> None:
        check_integers(self, "iterations", "num_envs", "batch_size", "minibatch_size", "epochs", "held_out")
        check_integers(self, "seed", "num_env_runners", least=0)
        check_numbers(self, "learning_rate")


class AttentionModule(TorchRLModule, ValueFunctionAPI):
    """`ActorCritic` for RLlib's PPO; `model_config` has "problem", a name, and "sizes", arguments of `ModelConfig`."""

    def setup(self) -> None:
        self.actor_critic = ActorCritic(self.model_config["problem"], ModelConfig(**self.model_config["sizes"]))

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Tensor]:
        logits, _ = self.actor_critic(batch[Columns.OBS]["observations"])
        return {Columns.ACTION_DIST_INPUTS: logits}

    def _forward_train(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Tensor]:
        logits, state = self.actor_critic(batch[Columns.OBS]["observations"])
        return {Columns.ACTION_DIST_INPUTS: logits, Columns.EMBEDDINGS: state}

    def compute_values(self, batch: dict[str, Any], embeddings: Tensor | None = None) -> Tensor:
        if embeddings is None:
            _, embeddings = self.actor_critic(batch[Columns.OBS]["observations"])
        return self.actor_critic.value(embeddings)


def configure(args: Args, problem: str) -> PPOConfig:
    """Convert arguments to RLlib's configuration; `problem` is the problem's name."""
    logging.getLogger("ray.rllib").setLevel(logging.ERROR)
    register_env("routing", make_env)
    return (
        PPOConfig()
        .environment("routing", env_config={"env_id": args.env_id, "flat": False, "on_illegal": "raise"})
        .env_runners(
            num_env_runners=args.num_env_runners,
            num_envs_per_env_runner=args.num_envs,
            gym_env_vectorize_mode="vector_entry_point",
            rollout_fragment_length="auto",
        )
        .learners(num_learners=0, num_gpus_per_learner=0)
        .rl_module(
            rl_module_spec=RLModuleSpec(
                module_class=AttentionModule, model_config={"problem": problem, "sizes": asdict(args.model)}
            )
        )
        .training(
            lr=args.learning_rate,
            gamma=1.0,  # the return is minus the cost of the tour
            lambda_=0.95,
            train_batch_size_per_learner=args.batch_size,
            minibatch_size=args.minibatch_size,
            num_epochs=args.epochs,
            vf_clip_param=float("inf"),  # larger squared errors of the value have no gradient; default: 10
            grad_clip=1.0,
            entropy_coeff=0.0,
            use_kl_loss=False,
        )
        .fault_tolerance(restart_failed_env_runners=False)  # an error ends the run, with its traceback
        .debugging(seed=args.seed, log_level="ERROR")
    )


def main(args: Args) -> tuple[float, float]:
    """Train; return the mean cost of the greedy tours, and of random ones, on held-out instances."""
    torch.manual_seed(args.seed)  # RLlib takes the initial weights from the global generator
    problem: Any = gym.make(args.env_id).unwrapped.problem
    config = configure(args, problem.name)
    size = {} if args.address else {"num_cpus": args.num_env_runners + 1}
    quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
    ray.init(address=args.address or "local", **quiet, **size)
    try:
        algorithm = config.build_algo()
        for _ in track(range(args.iterations), "training"):
            result = algorithm.train()
        mean = result["env_runners"].get("episode_return_mean")  # missing if no episode has ended
        print("mean return of the latest episodes:", "none has ended" if mean is None else f"{mean:.3f}")
        actor_critic = algorithm.get_module().actor_critic
        greedy, random = mean_costs(problem, actor_critic, args.seed + 1_000_000, args.held_out)
        algorithm.stop()
    finally:
        ray.shutdown()
    print(f"mean cost on {args.held_out} held-out instances: greedy {greedy:.3f}, random {random:.3f}")
    return greedy, random


if __name__ == "__main__":
    command_line(main, Args, __doc__)
