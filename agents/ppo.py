"""Train the attention model with masked PPO on the native torch vectorised environment, like CleanRL.

    python agents/ppo.py                                           # TSP-20
    python agents/ppo.py --env-id routing/CVRP-50 --total-timesteps 50000000
    tensorboard --logdir runs

The script follows Huang et al. (2022), "CleanRL", and Wan et al. (2023), "RLOR: A Flexible Framework of Deep
Reinforcement Learning for Operation Research". These parts are specific to routing:

- The instance does not change during an episode. It is therefore encoded once per rollout and played in several lanes,
  and an update scores all their steps in one parallel pass over a new encoding.
- A lane that completes its tour starts the same instance again, so that no lane waits for longer tours. A rollout has
  as many steps as the longest possible tour; the value head estimates the rest of the tours that are cut off.
- Illegal actions have probability zero; the environment raises an error if one is played nevertheless.
- By default, the return is not discounted, so that it is minus the cost of the tour.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # see am_reinforce.py; read when torch is loaded

import dataclasses
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import torch
import tyro
from rich.progress import track
from torch import Tensor, nn
from torch.utils.tensorboard import SummaryWriter

from routing_agents import checkpoint
from routing_agents.policies.attention.decoding import Choice, sampling_choice, solve
from routing_agents.policies.attention.features import Features, features_of
from routing_agents.policies.attention.model import AttentionModel, Encoding, ModelConfig
from routing_agents.policies.attention.saved import describe
from routing_agents.policies.attention.value import ValueHead
from routing_agents.runs import (
    MOST_COUNT,
    MOST_THREADS,
    TRAINING_STREAM,
    check_integers,
    check_numbers,
    choose_device,
    command,
    held_out_instances,
    make_folder,
    problem_of,
    quoted,
    read_settings,
    reference_cost,
    shown_cost,
    stream,
)
from routing_agents.terminal import command_line, plain_console
from routing_agents.training.held_out import compared
from routing_agents.training.policy_gradient import clipped_losses, gae
from routing_agents.training.tuning import choose_precision, keep_freed_memory
from routing_gym.arrays import select, to_backend
from routing_gym.envs.vector import RoutingVectorEnv
from routing_gym.files import write_atomically
from routing_gym.problem import AnyProblem


@dataclass(frozen=True)
class Args:
    """Arguments of a run."""

    advanced = ("env_kwargs", "anneal_lr", "gamma", "gae_lambda", "num_minibatches", "update_epochs", "clip_coef")
    advanced += ("vf_coef", "max_grad_norm", "eval_every", "held_out", "model", "threads", "runs")

    env_id: str = "routing/TSP-20"
    """Environment id, such as routing/CVRP-50 or routing/VRPTW-20."""
    env_kwargs: dict[str, str] = dataclasses.field(default_factory=dict)
    """Settings of the problem, such as `--env-kwargs prize uniform`."""
    seed: int = 1
    """Random seed for the weights, the training instances and the sampled tours."""
    total_timesteps: int = 20_000_000
    """Number of environment steps over all lanes, rounded down to whole rollouts."""
    num_envs: int = 1024
    """Number of lanes. A rollout takes as many steps in each as the longest tour may have."""
    lanes_per_instance: int = 8
    """Number of lanes that play the same instance, encoded once."""
    learning_rate: float = 1e-3
    """Adam's initial learning rate."""
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
    eval_every: int = 20
    """Number of rollouts between measurements of the greedy cost, each of which saves the model if it is the best."""
    held_out: int = 1_000
    """Number of held-out instances for the greedy cost and the gap, the same as those of am_reinforce.py."""
    model: tyro.conf.OmitArgPrefixes[ModelConfig] = ModelConfig(normalization="instance")
    """Sizes of the network. Batch normalisation is refused: the probability of an action would depend on the rest of
    the minibatch, and its ratio to the old one would mean nothing."""
    device: str = "auto"
    """Device for training: cpu, cuda, or auto for cuda where there is one."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of the encoder's matrix products in training; auto takes bfloat16 if the processor has instructions for
    it."""
    threads: int = 0
    """Number of CPU threads; 0 uses all cores."""
    runs: Path = Path("runs")
    """Folder in which run folders are made."""
    name: str = ""
    """Name of the run's folder. Default: the problem, "ppo", the seed and the time."""

    def __post_init__(self) -> None:
        check_integers(self, "num_envs", "lanes_per_instance", "num_minibatches", "held_out", most=MOST_COUNT)
        check_integers(self, "total_timesteps", "update_epochs", "eval_every")
        check_integers(self, "seed", least=0)
        check_integers(self, "threads", least=0, most=MOST_THREADS)
        check_numbers(self, "learning_rate", "max_grad_norm", "clip_coef")
        check_numbers(self, "gamma", "gae_lambda", zero=True, most=1)
        check_numbers(self, "ent_coef", "vf_coef", zero=True)
        if self.num_envs % (self.lanes_per_instance * self.num_minibatches):
            raise ValueError(
                f"--num-envs {self.num_envs} is not a multiple of --lanes-per-instance {self.lanes_per_instance} times "
                f"--num-minibatches {self.num_minibatches}"
            )
        if self.model.normalization == "batch":
            raise ValueError("--normalization batch does not go with PPO; choose instance, layer or none")


class Agent(nn.Module):
    """Policy (the attention model) and value head over one encoding."""

    def __init__(self, features: Features, config: ModelConfig, generator: torch.Generator) -> None:
        super().__init__()
        self.actor = AttentionModel(features, config, generator)
        self.critic = ValueHead(config.embed_dim, generator)

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


def update(
    agent: Agent, optimizer: torch.optim.Optimizer, rollout: Experience, generator: torch.Generator, args: Args
) -> dict[str, float]:
    """Make `update_epochs` passes of PPO (Schulman et al. 2017) over a rollout; return the losses that CleanRL logs."""
    logged: dict[str, list[Tensor]] = {}
    for _ in range(args.update_epochs):
        order = torch.randperm(len(rollout.actions), generator=generator, device=generator.device)
        for rows in order.chunk(args.num_minibatches):
            losses = minibatch_losses(agent, rollout, rows, args)
            loss = losses["policy_loss"] - args.ent_coef * losses["entropy"] + args.vf_coef * losses["value_loss"]
            optimizer.zero_grad()
            loss.backward()
            if not nn.utils.clip_grad_norm_(agent.parameters(), args.max_grad_norm).isfinite():
                raise FloatingPointError("the gradient is not finite; start again with a lower --learning-rate")
            optimizer.step()
            for key, x in losses.items():
                logged.setdefault(key, []).append(x.detach())
    returns = rollout.advantages + rollout.values
    unexplained = (rollout.advantages.var() / returns.var()).item()
    means = {key: torch.stack(values).mean().item() for key, values in logged.items()}
    return {**means, "explained_variance": 1 - unexplained}


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
    problem = problem_of(args.env_id, args.env_kwargs)
    given = {**read_settings(args.env_kwargs), "num_nodes": problem.num_nodes}
    ours = {"backend": "torch", "device": device, "autoreset_mode": "Disabled", "on_illegal": "raise", "copy": False}
    return gym.make_vec(f"routing/{problem.name}", num_envs=args.num_envs, **ours, **given)


class Log:
    """Files of a run: TensorBoard's scalars, metrics.jsonl, and the best model so far.

    Args:
        args: The run's arguments.
        problem: Problem to train on.
        device: Device of the model.

    Raises:
        FileExistsError: The folder exists and is not empty.
    """

    def __init__(self, args: Args, problem: AnyProblem, device: str) -> None:
        self.problem, self.console = problem, plain_console()
        title = f"{problem.name.lower()}-{problem.num_nodes}-ppo"
        self.folder = make_folder(args.runs, args.name, title, args.seed, resumable=False)
        self.args = {key: value for key, value in dataclasses.asdict(args).items() if key != "runs"}
        write_atomically(self.folder / "args.json", (json.dumps(self.args, indent=2) + "\n").encode())
        self.held_out = to_backend(held_out_instances(problem, args.held_out), "torch", device)
        self.reference = reference_cost(problem, self.held_out, args.runs / ".references")
        self.writer = SummaryWriter(str(self.folder / "tensorboard"))
        self.best_cost = float("inf")
        self.since, self.instances = time.perf_counter(), 0
        self.console.print(f"{self.folder}: logs and checkpoint; {torch.get_num_threads()} threads", soft_wrap=True)

    def scalars(self, values: dict[str, float], global_step: int) -> None:
        """Log numbers to TensorBoard."""
        for key, value in values.items():
            self.writer.add_scalar(key, value, global_step)

    def evaluate(self, actor: AttentionModel, instances: int, global_step: int, values: dict[str, float]) -> None:
        """Measure the greedy cost on the held-out instances, save the model if it is the best, and log.

        Args:
            actor: Policy to evaluate.
            instances: Number of instances seen so far.
            global_step: Number of environment steps so far.
            values: Further values to log.
        """
        greedy = float(solve(actor, self.problem, self.held_out).cost.double().mean())
        row = {"greedy": greedy, **compared(greedy, self.reference)}
        self.scalars({f"charts/{key}": value for key, value in row.items()}, global_step)
        now = time.perf_counter()
        row["instances_per_second"] = (instances - self.instances) / (now - self.since)
        self.since, self.instances = now, instances
        row = {"global_step": global_step, "instances": instances, **row, **values}
        with (self.folder / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")
        if greedy < self.best_cost:
            self.best_cost = greedy
            header = {**describe(self.problem, actor), "metrics": row, "args": self.args}
            weights = checkpoint.prefixed("model", actor.state_dict())
            checkpoint.save(self.folder / "best.safetensors", weights, header)
        name, shown = shown_cost(self.problem, greedy)
        gap = f"   gap {row['gap']:.2%}" if "gap" in row else ""
        self.console.print(
            f"step {global_step:>11,}   return {values['charts/episodic_return']:.4f}   "
            f"greedy {name} {shown:.4f}{gap}   {row['instances_per_second']:.0f} instances/s"
        )


def main(args: Args) -> Path:
    """Train according to `args`; return the folder of the run."""
    keep_freed_memory()
    if args.threads:
        torch.set_num_threads(args.threads)
    device = choose_device(args.device)
    envs = make_envs(args, device)
    problem = envs.problem
    batch_size = args.num_envs * problem.horizon
    num_iterations = args.total_timesteps // batch_size
    if num_iterations < 1:
        raise ValueError(f"--total-timesteps {args.total_timesteps} is less than one rollout, which is {batch_size}")
    agent = Agent(features_of(problem), args.model, torch.Generator().manual_seed(args.seed)).to(device)
    agent.actor.multiply_in(choose_precision(args.precision, device))
    optimizer = torch.optim.Adam(agent.parameters(), args.learning_rate, eps=1e-5)
    generator = torch.Generator(device).manual_seed(args.seed)
    log = Log(args, problem, device)
    choose = sampling_choice(generator)
    num_instances = args.num_envs // args.lanes_per_instance
    instance = problem.generate(stream(args.seed, TRAINING_STREAM, 0), num_instances)
    untrained = abs(collect(agent, envs, instance, choose, args).episodic_return)
    reward_scale = 1 / max(untrained, 1e-6)  # so that values are about one, whatever the problem and its size
    for iteration in track(range(1, num_iterations + 1), "rollouts", console=log.console):
        started = time.perf_counter()
        left = 1 - (iteration - 1) / num_iterations
        learning_rate = optimizer.param_groups[0]["lr"] = args.learning_rate * (left if args.anneal_lr else 1.0)
        instance = problem.generate(stream(args.seed, TRAINING_STREAM, iteration), num_instances)
        rollout = collect(agent, envs, instance, choose, args, reward_scale)
        losses = update(agent, optimizer, rollout, generator, args)
        values = {
            "charts/episodic_return": rollout.episodic_return,
            "charts/episodic_length": rollout.episodic_length,
            "charts/learning_rate": learning_rate,
            "charts/SPS": batch_size / (time.perf_counter() - started),
            **{f"losses/{key}": value for key, value in losses.items()},
        }
        log.scalars(values, iteration * batch_size)
        if iteration % args.eval_every == 0 or iteration == num_iterations:
            log.evaluate(agent.actor, iteration * num_instances, iteration * batch_size, values)
    log.writer.close()
    name, best = shown_cost(problem, log.best_cost)
    log.console.print(
        f"Best greedy {name} on held-out instances: {best:.4f}\n"
        f"Curves:       {quoted('tensorboard', '--logdir', log.folder)}\n"
        f"Solve a file: {command('solve.py', '--checkpoint', log.folder)} FILE...",
        soft_wrap=True,
    )
    return log.folder


if __name__ == "__main__":
    command_line(main, Args, __doc__, (FloatingPointError,), stopped="stopped; what the last evaluation saved is sound")
