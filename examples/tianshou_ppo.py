"""Train the attention model with Tianshou's PPO on the native vector environment.

    make .venv-integrations/.ready                                      # Tianshou needs an older pandas
    .venv-integrations/bin/python examples/tianshou_ppo.py                # TSP-10
    .venv-integrations/bin/python examples/tianshou_ppo.py --env-id routing/CVRP-20 --epochs 50

Tianshou's PPO does not use the mask. It passes the mask to the actor, which gives illegal actions probability zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import tyro
from torch import Tensor, nn

from routing_agents.policies.attention.actor_critic import SMALL, ActorCritic, mean_costs
from routing_agents.policies.attention.model import ModelConfig
from routing_agents.runs import check_integers, check_numbers
from routing_agents.terminal import command_line
from routing_gym.optional import explain_missing

with explain_missing("Tianshou", "tianshou", script=__name__ == "__main__"):
    from tianshou.algorithm import PPO
    from tianshou.algorithm.modelfree.reinforce import DiscreteActorPolicy
    from tianshou.algorithm.optim import AdamOptimizerFactory
    from tianshou.data import Batch, Collector, VectorReplayBuffer
    from tianshou.trainer import OnPolicyTrainerParams

    from routing_gym.integrations.tianshou import TianshouVectorEnv


@dataclass(frozen=True)
class Args:
    """Arguments of a run."""

    advanced = ("model",)

    env_id: str = "routing/TSP-10"
    """Environment id, such as routing/TSP-10."""
    seed: int = 1
    """Random seed for the weights, the instances and the sampled actions."""
    epochs: int = 10
    """Number of epochs, each with a progress bar."""
    epoch_steps: int = 15_360
    """Number of environment steps per epoch."""
    num_envs: int = 128
    """Number of lanes."""
    batch_size: int = 2560
    """Number of environment steps between updates, a multiple of `num_envs`."""
    minibatch_size: int = 512
    """Number of steps per optimiser step."""
    repeats: int = 4
    """Number of passes over a batch."""
    learning_rate: float = 1e-3
    """Adam's learning rate throughout."""
    held_out: int = 512
    """Number of held-out instances for the result."""
    model: tyro.conf.OmitArgPrefixes[ModelConfig] = SMALL
    """Sizes of the network."""
    progress: bool = True
    """Show Tianshou's progress bars."""

    def __post_init__(self) -> None:
        counts = ("epochs", "epoch_steps", "num_envs", "batch_size", "minibatch_size", "repeats", "held_out")
        check_integers(self, *counts)
        check_integers(self, "seed", least=0)
        check_numbers(self, "learning_rate")
        if self.batch_size % self.num_envs:
            raise ValueError(f"--batch-size {self.batch_size} is not a multiple of --num-envs {self.num_envs}")


class Actor(nn.Module):
    """`ActorCritic` with the interface of an actor of Tianshou."""

    def __init__(self, actor_critic: ActorCritic) -> None:
        super().__init__()
        self.actor_critic = actor_critic

    def forward(self, obs: Batch, state: Any = None, info: Any = None) -> tuple[Tensor, Any]:
        return self.actor_critic(tensors(obs))[0], state


class TianshouCritic(nn.Module):
    """`ActorCritic` with the interface of a critic of Tianshou."""

    def __init__(self, actor_critic: ActorCritic) -> None:
        super().__init__()
        self.actor_critic = actor_critic

    def forward(self, obs: Batch) -> Tensor:
        return self.actor_critic.value(self.actor_critic(tensors(obs))[1])


def tensors(obs: Batch) -> dict[str, Tensor]:
    """Move the observations (B, ...) from Tianshou's Batch to torch."""
    return {key: torch.as_tensor(value) for key, value in obs.obs.items()}


def make_algorithm(args: Args, env: TianshouVectorEnv) -> PPO:
    """Build the algorithm, with its policy and critic."""
    actor_critic = ActorCritic(env.vector_env.problem.name, args.model, torch.Generator().manual_seed(args.seed))
    policy = DiscreteActorPolicy(
        actor=Actor(actor_critic), action_space=env.vector_env.single_action_space, deterministic_eval=True
    )
    return PPO(
        policy=policy,
        critic=TianshouCritic(actor_critic),
        optim=AdamOptimizerFactory(lr=args.learning_rate),
        gamma=1.0,  # the return is minus the cost of the tour
        gae_lambda=0.95,
        ent_coef=0.0,
        max_grad_norm=1.0,
        max_batchsize=args.minibatch_size,
    )


def main(args: Args) -> tuple[float, float]:
    """Train; return the mean cost of the greedy tours, and of random ones, on held-out instances."""
    torch.manual_seed(args.seed)  # Tianshou samples actions and shuffles with the global generators
    np.random.seed(args.seed)  # noqa: NPY002
    env = TianshouVectorEnv(args.env_id, args.num_envs, flat=False, on_illegal="raise")
    env.seed(args.seed)
    algorithm = make_algorithm(args, env)
    collector = Collector(algorithm, env, VectorReplayBuffer(args.batch_size, args.num_envs))
    algorithm.run_training(
        OnPolicyTrainerParams(
            training_collector=collector,
            max_epochs=args.epochs,
            epoch_num_steps=args.epoch_steps,
            collection_step_num_env_steps=args.batch_size,
            batch_size=args.minibatch_size,
            update_step_num_repetitions=args.repeats,
            verbose=False,
            show_progress=args.progress,
        )
    )
    actor_critic = algorithm.critic.actor_critic
    greedy, random = mean_costs(env.vector_env.problem, actor_critic, args.seed + 1_000_000, args.held_out)
    print(f"mean cost on {args.held_out} held-out instances: greedy {greedy:.3f}, random {random:.3f}")
    return greedy, random


if __name__ == "__main__":
    command_line(main, Args, __doc__)
