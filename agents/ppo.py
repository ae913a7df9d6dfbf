"""Train the attention model with masked PPO on the native torch vectorised environment, like CleanRL.

    python agents/ppo.py                                           # TSP-20
    python agents/ppo.py --env-id routing/CVRP-50 --epochs 100
    python agents/ppo.py --env-id routing/TSP-50 --init-from runs/NAME --learning-rate 1e-4
    python agents/ppo.py --resume runs/NAME                        # continues where the run stopped

The script follows Huang et al. (2022), "CleanRL", and Wan et al. (2023), "RLOR: A Flexible Framework of Deep
Reinforcement Learning for Operation Research". These parts are specific to routing:

- The instance does not change during an episode. It is therefore encoded once per rollout and played in several lanes,
  and an update scores all their steps in one parallel pass over a new encoding.
- A lane that completes its tour starts the same instance again, so that no lane waits for longer tours. A rollout has
  as many steps as the longest possible tour; the value head estimates the rest of the tours that are cut off.
- Illegal actions have probability zero; the environment raises an error if one is played nevertheless.
- By default, the return is not discounted, so that it is minus the cost of the tour.

Every random number is a function of the seed and the step, so a resumed run repeats an uninterrupted one bit for bit,
wherever it was stopped. Ctrl-C stops after the current step and saves the run.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # see am_reinforce.py; read when torch is loaded

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import gymnasium as gym
import numpy as np
import torch
import tyro
from torch import Tensor, nn

from routing_agents import runs
from routing_agents.optimizers import make_optimizers
from routing_agents.policies.attention.decoding import Choice, sampling_choice, solve
from routing_agents.policies.attention.features import Features, features_of
from routing_agents.policies.attention.model import AttentionModel, Encoding, ModelConfig, make_network
from routing_agents.policies.attention.saved import USUAL, describe, warm_start
from routing_agents.policies.attention.value import ValueHead
from routing_agents.runs import MOST_COUNT, TrainingDivergedError, check_integers, check_numbers, stream
from routing_agents.terminal import command_line
from routing_agents.trained import find_checkpoint
from routing_agents.training import held_out, loop
from routing_agents.training.policy_gradient import clipped_losses, gae
from routing_agents.training.problem_trainer import ProblemTrainer, check_network
from routing_agents.training.trainer import RunArgs
from routing_agents.training.tuning import choose_precision
from routing_gym.arrays import select, to_backend
from routing_gym.envs.vector import RoutingVectorEnv
from routing_gym.problem import AnyProblem

LEARNING_RATES = {"muon": 3e-3, "adam": 1e-3}


@dataclass(frozen=True)
class Args(RunArgs):
    """Arguments of a run."""

    local = ("runs", "init_from", "resume")
    advanced = ("env_kwargs", "anneal_lr", "gamma", "gae_lambda", "num_minibatches", "update_epochs", "clip_coef")
    advanced += ("vf_coef", "max_grad_norm", "held_out", "attention", "threads", "log", "runs")

    env_id: str = "routing/TSP-20"
    """Environment id, such as routing/CVRP-50 or routing/VRPTW-20."""
    env_kwargs: dict[str, str] = dataclasses.field(default_factory=dict)
    """Settings of the problem, such as `--env-kwargs prize uniform`."""
    seed: int = 1
    """Random seed for the weights, the training instances and the sampled tours."""
    epochs: int = 48
    """Number of epochs; each ends with an evaluation and a checkpoint."""
    steps_per_epoch: int = 20
    """Number of steps per epoch, each a rollout with new instances and the passes over it."""
    num_envs: int = 1024
    """Number of lanes. A rollout takes as many steps in each as the longest tour may have."""
    lanes_per_instance: int = 8
    """Number of lanes that play the same instance, encoded once."""
    optimizer: Literal["muon", "adam"] = "muon"
    """Optimiser: Muon (with Adam for vectors), which learns more from each rollout, or Adam."""
    learning_rate: float | None = None
    """Initial learning rate. Default: 3e-3 with Muon, 1e-3 with Adam."""
    anneal_lr: bool = True
    """Decrease the learning rate linearly to zero."""
    gamma: float = 1.0
    """Discount factor; with 1 the return is minus the cost."""
    gae_lambda: float = 0.99
    """Lambda of generalised advantage estimation: 1 uses the rewards to the end of the tour, 0 the value head only."""
    num_minibatches: int = 4
    """Number of minibatches into which the instances of a rollout are split, one optimiser step each."""
    update_epochs: int = 2
    """Number of passes over a rollout."""
    clip_coef: float = 0.2
    """Clipping range of PPO: the largest relative change of an action's probability that is rewarded."""
    ent_coef: float = 0.01
    """Weight of the entropy bonus."""
    vf_coef: float = 0.5
    """Weight of the value loss."""
    max_grad_norm: float = 1.0
    """Largest norm of the gradients; larger ones are scaled down."""
    held_out: int = 1_000
    """Number of held-out instances, those of am_reinforce.py, for the greedy cost and, for TSP, the gap."""
    model: str = USUAL
    """Kind of network: attention, the attention model; or one that you add to
    routing_agents.policies.attention.model.NETWORKS. It stays in evaluation mode, without dropout."""
    attention: tyro.conf.OmitArgPrefixes[ModelConfig] = ModelConfig(normalization="instance")
    """Sizes and options of the network. Batch normalisation is refused: the probability of an action would depend on
    the rest of the minibatch, and its ratio to the old one would mean nothing."""
    device: str = "auto"
    """Device for training: cpu, cuda, or auto for cuda where there is one."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of the encoder's matrix products in training; auto takes bfloat16 if the processor has instructions for
    it."""
    threads: int = 0
    """Number of CPU threads; 0 uses all cores."""
    init_from: Annotated[Path | None, tyro.conf.arg(metavar="RUN")] = None
    """Run, checkpoint or published weights such as TSP-50 whose weights the policy starts from, of any problem and
    size, where they fit. The default learning rates are for random weights; give a lower one, such as 1e-4."""
    log: Literal["tensorboard", "wandb"] = "tensorboard"
    """Log of the metrics: TensorBoard, or TensorBoard and Weights & Biases (wandb)."""
    runs: Path = Path("runs")
    """Folder in which run folders are made."""
    name: str = ""
    """Name of the run's folder. Default: the problem, "ppo", the seed and the time."""
    resume: Annotated[Path | None, tyro.conf.arg(metavar="RUN")] = None
    """Folder of a run to resume, with the arguments it was started with."""

    def __post_init__(self) -> None:
        check_integers(self, "num_envs", "lanes_per_instance", "num_minibatches", "held_out", most=MOST_COUNT)
        check_integers(self, "epochs", "steps_per_epoch", "update_epochs")
        check_integers(self, "seed", least=0)
        check_integers(self, "threads", least=0, most=runs.MOST_THREADS)
        check_numbers(self, "learning_rate", "max_grad_norm", "clip_coef")
        check_numbers(self, "gamma", "gae_lambda", zero=True, most=1)
        check_numbers(self, "ent_coef", "vf_coef", zero=True)
        if self.num_envs % (self.lanes_per_instance * self.num_minibatches):
            raise ValueError(
                f"--num-envs {self.num_envs} is not a multiple of --lanes-per-instance {self.lanes_per_instance} times "
                f"--num-minibatches {self.num_minibatches}"
            )
        if self.attention.normalization == "batch":
            raise ValueError("--normalization batch does not go with PPO; choose instance, layer or none")


class Agent(nn.Module):
    """Policy (the attention model) and value head over one encoding."""

    def __init__(self, actor: AttentionModel, generator: torch.Generator) -> None:
        super().__init__()
        self.actor = actor
        self.critic = ValueHead(actor.config.embed_dim, generator)

    def value(self, encoding: Encoding, observation: dict[str, Tensor]) -> Tensor:
        """Return the values (B, Q)."""
        return self.critic(encoding, self.actor.query(encoding, observation), observation["action_mask"])

    def act(self, encoding: Encoding, observation: dict[str, Tensor], choose: Choice) -> tuple[Tensor, Tensor, Tensor]:
        """Return actions, their log-probabilities and the values, (B, Q) each."""
        logits = self.actor.logits(encoding, observation)
        action = choose(logits)
        log_p = logits.log_softmax(dim=-1).gather(-1, action[..., None]).squeeze(-1)
        return action, log_p, self.value(encoding, observation)

    def evaluate(
        self, encoding: Encoding, observation: dict[str, Tensor], action: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return log-probabilities of given actions, entropies of the policy and values, (B, Q) each."""
        log_p = self.actor.logits(encoding, observation).log_softmax(dim=-1)
        entropy = -(log_p.exp() * log_p.masked_fill(~observation["action_mask"], 0.0)).sum(dim=-1)
        return log_p.gather(-1, action[..., None]).squeeze(-1), entropy, self.value(encoding, observation)


@dataclass(frozen=True)
class Experience:
    """T steps in each of N lanes, grouped by instance: K lanes play each of B instances, so that Q = K T."""

    static: dict[str, Tensor]  # (B, A, ...), inputs of the encoder
    observations: dict[str, Tensor]  # (B, Q, ...), inputs of the decoder
    actions: Tensor  # int64 (B, Q)
    log_p: Tensor  # (B, Q), of the actions, when they were taken
    values: Tensor  # (B, Q), when the actions were taken
    advantages: Tensor  # (B, Q)
    episodic_return: float  # mean over the first episode of each lane, which is always complete
    episodic_length: float


def decoder_inputs(features: Features, observation: dict[str, Tensor], num_lanes: int) -> dict[str, Tensor]:
    """Copy the inputs of the decoder, and reshape them from (B K, ...) to (B, K, ...)."""
    inputs = {key: observation[key].unflatten(0, (-1, num_lanes)).clone() for key in features.dynamic_keys}
    return {**inputs, "action_mask": observation["action_mask"].unflatten(0, (-1, num_lanes)).bool()}


@torch.no_grad()
def collect(
    agent: Agent, envs: RoutingVectorEnv, instance: Any, choose: Choice, args: Args, reward_scale: float = 1.0
) -> Experience:
    """Play instances, which are encoded once, for as many steps as the longest possible tour has.

    Args:
        agent: Policy and value head.
        envs: Vectorised environment of B K lanes with autoreset disabled.
        instance: Batch of B instances on the CPU; lanes b K to b K + K - 1 play instance b.
        choose: Function that samples actions from logits.
        args: The run's arguments.
        reward_scale: Factor of the rewards from which advantages and values are computed.
    """
    features, num_lanes = agent.actor.features, args.lanes_per_instance
    # First, put instance b into lanes b K to b K + K - 1, and encode it once.
    instance = select(instance, np.arange(envs.num_envs) // num_lanes)
    observation, _ = envs.reset(options={"instance": instance})
    static = {key: observation[key][::num_lanes].clone() for key in features.static_keys}
    encoding = agent.actor.encode(static)
    # Then play T steps in all lanes and record them; a lane whose episode ends plays its instance again.
    steps = []
    for _ in range(envs.problem.horizon):
        inputs = decoder_inputs(features, observation, num_lanes)
        action, log_p, value = agent.act(encoding, inputs, choose)
        observation, reward, terminated, _, _ = envs.step(action.flatten())
        if terminated.any():  # the same instance again: its encoding is still valid, and no lane waits
            observation, _ = envs.reset(options={"instance": instance, "reset_mask": terminated})
        outcome = {"reward": reward.float().view_as(value), "terminated": terminated.view_as(value).clone()}
        steps.append({**inputs, **outcome, "action": action, "log_p": log_p, "value": value})
    next_value = agent.value(encoding, decoder_inputs(features, observation, num_lanes))

    # Finally, compute the advantages backwards from the last step, and flatten the K T steps of each instance.
    played = {key: torch.stack([step[key] for step in steps]) for key in steps[0]}  # (T, B, K, ...)
    reward, terminated = played["reward"], played["terminated"]
    first = terminated.cumsum(0) == terminated  # no episode ended before this step
    scaled = reward_scale * reward
    played["advantage"] = gae(scaled, played["value"], terminated, next_value, args.gamma, args.gae_lambda)
    played = {key: x.movedim(0, 2).flatten(1, 2) for key, x in played.items()}  # (B, Q, ...)
    return Experience(
        static=static,
        observations={key: played[key] for key in inputs},
        actions=played["action"],
        log_p=played["log_p"],
        values=played["value"],
        advantages=played["advantage"],
        episodic_return=float((reward * first).sum(0).mean()),
        episodic_length=float(first.sum(0).float().mean()),
    )


def minibatch_losses(agent: Agent, rollout: Experience, rows: Tensor, args: Args) -> dict[str, Tensor]:
    """Return the losses over all steps of some instances, in one pass over one encoding with gradients."""
    encoding = agent.actor.encode({key: x[rows] for key, x in rollout.static.items()})
    observations = {key: x[rows] for key, x in rollout.observations.items()}
    log_p, entropy, values = agent.evaluate(encoding, observations, rollout.actions[rows])
    advantages = rollout.advantages[rows]
    returns = advantages + rollout.values[rows]
    return {
        "value_loss": 0.5 * (values - returns).square().mean(),
        "entropy": entropy.mean(),
        **clipped_losses(log_p, rollout.log_p[rows], advantages, args.clip_coef),
    }


def make_envs(args: Args, device: str) -> RoutingVectorEnv:
    """Make the vectorised environment.

    Raises:
        ValueError: The problem lacks one of the settings.
    """
    problem = runs.problem_of(args.env_id, args.env_kwargs)
    given = {**runs.read_settings(args.env_kwargs), "num_nodes": problem.num_nodes}
    ours = {"backend": "torch", "device": device, "autoreset_mode": "Disabled", "on_illegal": "raise", "copy": False}
    return gym.make_vec(f"routing/{problem.name}", num_envs=args.num_envs, **ours, **given)


class PPOTrainer(ProblemTrainer):
    """State of one run: agent, optimiser and progress.

    Args:
        args: The run's arguments.

    Attributes:
        reward_scale: Factor of the rewards; it makes the mean return of the first rollout 1 or -1, so that values are
            about one, whatever the problem and its size. 0 before the first step.
    """

    script = "ppo.py"

    model: Agent

    def __init__(self, args: Args) -> None:
        super().__init__(args)
        # Chosen once and saved, so that a resumed run uses the same precision.
        args = dataclasses.replace(args, precision=choose_precision(args.precision, self.device))
        if args.learning_rate is None:
            args = dataclasses.replace(args, learning_rate=LEARNING_RATES[args.optimizer])
        self.args = args
        check_network(args.model)
        self.envs = make_envs(args, self.device)
        self.problem = self.envs.problem
        generator = torch.Generator().manual_seed(args.seed)
        self.model = Agent(make_network(args.model, features_of(self.problem), args.attention, generator), generator)
        if args.init_from is not None:
            weights, _ = find_checkpoint(args.init_from, matrices=self.problem.matrices)
            self.started_from, self.history = warm_start(self.model.actor, weights)
        self.model.to(self.device).actor.multiply_in(args.precision)
        self.model.eval()  # with dropout, the ratio of probabilities would not be 1 before the first update
        self.optimizers = make_optimizers(self.model, args.optimizer, args.learning_rate)
        self.held_out = to_backend(held_out.instances(self.problem, args.held_out), "torch", self.device)
        self.reward_scale = 0.0

    @property
    def title(self) -> str:
        return f"{self.problem.name.lower()}-{self.problem.num_nodes}-ppo"

    @property
    def result(self) -> AttentionModel:
        return self.model.actor

    @property
    def batch_size(self) -> int:
        """Number of instances per step."""
        return int(self.args.num_envs // self.args.lanes_per_instance)

    @property
    def learning_rate(self) -> float:
        """Learning rate of the current step."""
        left = 1 - self.step / self.args.total_steps
        return float(self.args.learning_rate * (left if self.args.anneal_lr else 1.0))

    def draw(self, step: int) -> tuple[Any, torch.Generator]:
        """Return the instances (NumPy) and the random number generator of a step."""
        rng = stream(self.args.seed, runs.TRAINING_STREAM, step)
        instance = self.problem.generate(rng, self.batch_size)
        return instance, torch.Generator(self.device).manual_seed(int(rng.integers(2**63)))

    def batch(self) -> tuple[AnyProblem, Any]:
        return self.problem, self.draw(self.step)[0]

    def learn(self) -> dict[str, float]:
        instance, generator = self.draw(self.step)
        choose = sampling_choice(generator)
        if not self.reward_scale:
            first = collect(self.model, self.envs, instance, choose, self.args)
            self.reward_scale = 1 / max(abs(first.episodic_return), 1e-6)
        rollout = collect(self.model, self.envs, instance, choose, self.args, self.reward_scale)
        return self.improve(rollout, generator)

    def improve(self, rollout: Experience, generator: torch.Generator) -> dict[str, float]:
        """Make `update_epochs` passes of PPO (Schulman et al. 2017) over a rollout; return the metrics to log."""
        args = self.args
        logged: dict[str, list[Tensor]] = {}
        for _ in range(args.update_epochs):
            order = torch.randperm(len(rollout.actions), generator=generator, device=generator.device)
            for rows in order.chunk(args.num_minibatches):
                losses = minibatch_losses(self.model, rollout, rows, args)
                loss = losses["policy_loss"] - args.ent_coef * losses["entropy"] + args.vf_coef * losses["value_loss"]
                self.descend(loss, self.learning_rate)
                for key, x in losses.items():
                    logged.setdefault(key, []).append(x.detach())
        returns = rollout.advantages + rollout.values
        unexplained = (rollout.advantages.var() / returns.var()).item()
        return {
            "cost": -rollout.episodic_return,
            "learning_rate": self.learning_rate,
            "episodic_length": rollout.episodic_length,
            **{key: torch.stack(values).mean().item() for key, values in logged.items()},
            "explained_variance": 1 - unexplained,
        }

    def end_epoch(self) -> dict[str, float]:
        """Evaluate the policy on the held-out instances, and return the metrics to log."""
        greedy = solve(self.result, self.problem, self.held_out).cost
        return {
            "epoch": self.epoch,
            "instances": self.instances,
            "global_step": self.step * self.args.num_envs * self.problem.horizon,
            **self.end_sums(),
            "greedy": float(greedy.double().mean()),
        }

    def describe(self) -> dict[str, Any]:
        return {**describe(self.problem, self.result), **super().describe()}

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        return {}, {"reward_scale": self.reward_scale}

    def restore(self, tensors: dict[str, Tensor], header: dict[str, Any], path: Path) -> None:
        self.reward_scale = header["reward_scale"]


def main(args: Args) -> Path:
    """Train according to `args`; return the folder of the run."""
    return loop.train(PPOTrainer, args)


if __name__ == "__main__":
    command_line(main, Args, __doc__, (TrainingDivergedError,))
