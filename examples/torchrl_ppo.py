"""Train the attention model with TorchRL's PPO on any of the routing problems.

    python examples/torchrl_ppo.py                                    # TSP-20
    python examples/torchrl_ppo.py --env-id routing/CVRP-20 --iterations 300

TorchRL's losses use single steps, not tours, so the model encodes the instance again at every step. `am_reinforce.py`
encodes it once per tour.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from rich.progress import Progress
from torch import Tensor, nn

import routing_gym  # noqa: F401  (registers the ids)
from routing_agents.policies.attention.features import features_of
from routing_agents.policies.attention.model import AttentionModel, ModelConfig
from routing_agents.runs import check_integers, check_numbers
from routing_agents.terminal import command_line
from routing_gym.optional import explain_missing

with explain_missing("TorchRL", "torchrl", script=__name__ == "__main__"):
    from tensordict import TensorDictBase
    from tensordict.nn import TensorDictModule
    from torchrl.collectors import Collector
    from torchrl.envs import ExplorationType, RewardSum, TransformedEnv, set_exploration_type
    from torchrl.modules import MaskedCategorical, ProbabilisticActor
    from torchrl.objectives import ClipPPOLoss
    from torchrl.objectives.value import GAE

    from routing_gym.integrations.torchrl import RoutingTensorDictEnv

MODEL = ModelConfig(  # small; no batch normalisation, whose batches would differ between playing and learning
    embed_dim=32, num_heads=4, num_layers=1, feed_forward_dim=64, normalization="layer"
)


@dataclass(frozen=True)
class Args:
    """Arguments of a run."""

    env_id: str = "routing/TSP-20"
    """Environment id that names a size, such as routing/TSP-20."""
    seed: int = 1
    """Random seed for the weights, the instances and the actions."""
    num_envs: int = 64
    """Number of lanes."""
    iterations: int = 100
    """Number of iterations; in each, every lane plays as many steps as the longest episode has, and the model learns
    from them."""
    epochs: int = 3
    """Number of passes over the steps of an iteration."""
    minibatch: int = 320
    """Number of environment steps per optimiser step."""
    learning_rate: float = 2e-3
    """Adam's learning rate throughout."""
    evaluation: int = 1000
    """Number of lanes in which the result is measured."""
    device: str = "cpu"
    """Device for playing and learning, such as cuda."""

    def __post_init__(self) -> None:
        check_integers(self, "num_envs", "iterations", "epochs", "minibatch", "evaluation")
        check_integers(self, "seed", least=0)
        check_numbers(self, "learning_rate")


class Policy(nn.Module):
    """The attention model, as a function of one step's observation."""

    def __init__(self, model: AttentionModel, keys: list[str]) -> None:
        super().__init__()
        self.model = model
        self.keys = keys

    def forward(self, *values: Tensor) -> Tensor:
        """Return logits (B, A) for observations (B, ...) in the order of `keys`."""
        observation = dict(zip(self.keys, values, strict=True))
        encoding = self.model.encode(observation)
        return self.model.logits(encoding, {key: value[:, None] for key, value in observation.items()})[:, 0]


class TorchRLCritic(nn.Module):
    """Network that estimates the remaining return from the coordinates, the mask and the current node."""

    def __init__(self, hidden: int = 64) -> None:
        super().__init__()
        self.per_node = nn.Sequential(nn.Linear(5, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.value = nn.Linear(hidden, 1)

    def forward(self, coords: Tensor, action_mask: Tensor, current_node: Tensor) -> Tensor:
        """Return values (..., 1) for coordinates (..., A, 2), masks (..., A) and nodes (...)."""
        here = coords.gather(-2, current_node[..., None, None].expand(*current_node.shape, 1, 2))
        nodes = torch.cat([coords, coords - here, action_mask[..., None].to(coords.dtype)], dim=-1)
        return self.value(self.per_node(nodes).mean(dim=-2))


def make_env(args: Args, num_envs: int) -> TransformedEnv:
    """Make the lanes; "episode_reward" is the sum of the rewards of an episode so far."""
    backend = {} if args.device == "cpu" else {"backend": "torch", "device": args.device}
    try:
        env = RoutingTensorDictEnv(args.env_id, num_envs, on_illegal="raise", **backend)
    except TypeError as error:  # no size in the id, or another environment than ours
        raise ValueError(f"--env-id {args.env_id}: {error}") from error
    return TransformedEnv(env, RewardSum())


def make_actor(env: TransformedEnv, seed: int) -> ProbabilisticActor:
    """Build the policy for TorchRL: from observations to legal actions and their log-probabilities."""
    model = AttentionModel(features_of(env.vector_env.problem), MODEL, torch.Generator().manual_seed(seed))
    keys = list(env.vector_env.single_observation_space)
    return ProbabilisticActor(
        TensorDictModule(Policy(model, keys), in_keys=keys, out_keys=["logits"]),
        in_keys={"logits": "logits", "mask": "action_mask"},
        distribution_class=MaskedCategorical,
        return_log_prob=True,
    ).to(env.device)


def train(args: Args, env: TransformedEnv, actor: ProbabilisticActor) -> None:
    """Improve the actor with PPO (Schulman et al. 2017)."""
    read = ["coords", "action_mask", "current_node"]
    critic = TensorDictModule(TorchRLCritic(), in_keys=read, out_keys=["state_value"])
    estimate_advantage = GAE(gamma=1.0, lmbda=0.95, value_network=critic.to(env.device))
    loss = ClipPPOLoss(actor, critic, entropy_coeff=0.01, critic_coeff=0.5, normalize_advantage=True)
    optimizer = torch.optim.Adam(loss.parameters(), args.learning_rate)
    frames = args.num_envs * env.vector_env.problem.horizon
    collector = Collector(
        env,
        actor,
        frames_per_batch=frames,
        total_frames=frames * args.iterations,
        auto_register_policy_transforms=False,  # those are for recurrent policies
    )
    with Progress() as progress:
        task = progress.add_task("training", total=args.iterations)
        for batch in collector:  # (lanes, steps)
            for _ in range(args.epochs):
                with torch.no_grad():
                    estimate_advantage(batch)
                steps = batch.reshape(-1)
                for index in torch.randperm(len(steps)).split(args.minibatch):
                    losses = loss(steps[index])
                    optimizer.zero_grad()
                    (losses["loss_objective"] + losses["loss_critic"] + losses["loss_entropy"]).backward()
                    nn.utils.clip_grad_norm_(loss.parameters(), 1.0)
                    optimizer.step()
            progress.update(task, advance=1, description=f"mean return {finished(batch['next']):.3f}")
    collector.shutdown()


def finished(played: TensorDictBase) -> float:
    """Return the mean return of the episodes that end in a batch of steps."""
    return played["episode_reward"][played["done"]].mean().item()


def main(args: Args) -> dict[str, float]:
    """Train according to `args`; return the mean return of random and of greedy actions on new instances."""
    torch.manual_seed(args.seed)  # TorchRL draws from torch's global generator
    env = make_env(args, args.num_envs)
    env.set_seed(args.seed)
    actor = make_actor(env, args.seed)
    train(args, env, actor)

    fresh = make_env(args, args.evaluation)
    result = {}
    for name, policy in (("random", fresh.rand_action), ("trained", actor)):
        fresh.set_seed(args.seed + args.num_envs)  # lane i has seed + i: none repeats training
        with torch.no_grad(), set_exploration_type(ExplorationType.DETERMINISTIC):
            result[name] = finished(
                fresh.rollout(env.vector_env.problem.horizon, policy, break_when_any_done=False)["next"]
            )
    print("mean return:", ", ".join(f"{name} {value:.3f}" for name, value in result.items()))
    return result


if __name__ == "__main__":
    command_line(main, Args, __doc__, stopped="stopped")
