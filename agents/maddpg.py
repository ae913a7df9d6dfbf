"""Train vehicles that steer freely in `CompetitiveOP` with MADDPG.

    python agents/maddpg.py                                      # 4 vehicles
    python agents/maddpg.py --num-agents 8 --critic.mixing concatenation
    python agents/maddpg.py --central-policy --rivals-seen 0     # policies that observe all
    python agents/maddpg.py --resume runs/NAME                   # continue a run

The policies are deterministic, and the action values are centralised: Lowe et al. (2017), "Multi-Agent Actor-Critic for
Mixed Cooperative-Competitive Environments". The centralised networks are those of Wang, "Deep Reinforcement Learning",
chapter 16 (figure 16.9). The action values q^i([o^1 .. o^m], [a^1 .. a^m]) depend on the observations and actions of
all vehicles. A policy mu(o^i) depends on its own observation only; with --central-policy, on those of all vehicles,
mu^i([o^1 .. o^m]).

Every random number is a function of the seed and the step, so a resumed run repeats an uninterrupted one bit for bit,
wherever it was stopped: the checkpoint holds the actions of the games in the replay buffer, and the resumed run plays
these games again. Ctrl-C stops after the current step and saves the run.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # see am_reinforce.py; read when torch is loaded

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from routing_agents import checkpoint
from routing_agents.multi_agent.extractor import Layout, flatten
from routing_agents.multi_agent.networks import AgentNetwork, NetworkConfig
from routing_agents.multi_agent.training import GameArgs, GameTrainer
from routing_agents.runs import MOST_COUNT, TrainingDivergedError, check_integers, check_numbers
from routing_agents.terminal import command_line
from routing_agents.training import loop
from routing_agents.training.report import Column
from routing_gym.multi_agent import CompetitiveOP
from routing_gym.multi_agent.environments import GameVectorEnv
from routing_gym.multi_agent.heuristics import nearest

ACTION_SIZE = 2


@dataclass(frozen=True)
class Args(GameArgs):
    """Arguments of a run."""

    advanced = (*GameArgs.advanced, "buffer", "updates", "n_steps", "tau", "noise", "explore")

    num_agents: int = 4
    """Number of vehicles m."""
    policy: NetworkConfig = NetworkConfig("attention-own", share_heads=True)
    """Networks of the policies, by default one for all vehicles. Their mixing layer takes effect with
    `--central-policy`."""
    games: int = 32
    """Number of games per step."""
    steps_per_epoch: int = 50
    """Number of steps per epoch, each with new games."""
    policy_learning_rate: float = 3e-4
    """Initial learning rate of the policies' Adam, which falls linearly to 2 %."""
    critic_learning_rate: float = 1e-3
    """Initial learning rate of the action values' Adam, which falls linearly to 2 %."""
    buffer: int = 256
    """Number of steps whose games the replay buffer holds."""
    updates: int = 8
    """Number of optimiser steps per training step."""
    batch_size: int = 256
    """Number of ticks per optimiser step, each with all vehicles of a game."""
    n_steps: int = 4
    """Number of ticks whose rewards are summed before the action value is added."""
    tau: float = 0.02
    """Fraction by which the target networks move towards the networks in each optimiser step."""
    noise: float = 0.3
    """Initial standard deviation of the exploration noise, relative to the longest move in a tick; it falls like the
    learning rates."""
    explore: float = 0.5
    """Initial fraction of vehicles, drawn for each game, that drive to the nearest customer with noise instead; it
    falls like the learning rates. Without them, vehicles hardly meet a customer at first."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integers(self, "updates", "n_steps")
        check_integers(self, "buffer", "batch_size", most=MOST_COUNT)
        check_numbers(self, "policy_learning_rate", "critic_learning_rate", "tau", "noise")
        if self.tau > 1:
            raise ValueError(f"--tau must be in (0, 1], got {self.tau}")
        check_numbers(self, "explore", zero=True, most=1)


class Buffer:
    """Replay buffer of the games of the last C = `capacity` steps, with G games per step and T ticks per game.

    Attributes:
        seen: Flat observations (C, G, T + 1, m, F), including those after the last tick.
        actions: Actions (C, G, T, m, 2).
        rewards: Rewards (C, G, T, m).
    """

    def __init__(self, game: CompetitiveOP, capacity: int, games: int, device: str) -> None:
        ticks, agents = game.num_ticks, game.num_agents
        self.seen = torch.zeros(capacity, games, ticks + 1, agents, Layout.of(game).size, device=device)
        self.actions = torch.zeros(capacity, games, ticks, agents, ACTION_SIZE, device=device)
        self.rewards = torch.zeros(capacity, games, ticks, agents, device=device)

    def put(self, step: int, seen: Tensor, actions: Tensor, rewards: Tensor) -> None:
        """Store the games of a step, and overwrite the oldest."""
        slot = step % len(self.seen)
        self.seen[slot], self.actions[slot], self.rewards[slot] = seen, actions, rewards

    def sample(self, steps: int, size: int, ahead: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Sample `size` ticks from the stored games, after `steps` steps of the run.

        Returns:
            Observations (B, m, F), actions (B, m, 2), the summed rewards of the next `ahead` ticks (B, m), the
            observations after these ticks (B, m, F), and 1 if the game continues after them, else 0: float32 (B, 1).
        """
        _, games, ticks = self.rewards.shape[:3]
        filled = min(steps, len(self.seen))
        drawn = torch.randint(filled * games * ticks, (size,), generator=generator, device=generator.device)
        place, tick = drawn // ticks, drawn % ticks
        slot, game = place // games, place % games
        now, later = (slot, game, tick), (tick + ahead).clamp(max=ticks)
        tick_of = torch.arange(ticks, device=generator.device)
        counted = ((tick_of >= tick[:, None]) & (tick_of < later[:, None])).float()  # (B, T)
        rewards = torch.einsum("bt,btm->bm", counted, self.rewards[slot, game])
        goes_on = (later < ticks).float()[:, None]
        return self.seen[now], self.actions[now], rewards, self.seen[slot, game, later], goes_on


class MaddpgTrainer(GameTrainer):
    """Trainer of the policies and action values of one run."""

    script = "maddpg.py"
    shown = (Column("gain", ".4f"), Column("value_loss", ".5f"), Column("q", ".3f"))

    def __init__(self, args: Args) -> None:
        settings = {"rivals_seen": args.rivals_seen, "cooperation": args.cooperation}
        game = CompetitiveOP(args.num_agents, args.num_customers, control="velocity", **settings)
        super().__init__(args, game)
        generator = torch.Generator().manual_seed(args.seed)
        policy = self.make_policy("vector", generator)
        critic = AgentNetwork(Layout.of(game), args.critic, args.num_agents, "value", ACTION_SIZE, generator)
        learning = {"policy": policy, "critic": critic}
        targets = {f"target_{name}": copy.deepcopy(network) for name, network in learning.items()}
        self.model = nn.ModuleDict({**targets, **learning}).to(self.device)
        self.optimizers = {name: torch.optim.Adam(self.model[name].parameters()) for name in learning}
        self.envs = GameVectorEnv(game, args.games, autoreset_mode="Disabled", backend="torch", device=self.device)
        self.buffer = Buffer(game, args.buffer, args.games, self.device)

    @torch.no_grad()
    def play(self, instance: Any, step: int, generator: torch.Generator | None, actions: Tensor | None = None) -> float:
        """Play G games by the policies with noise, or by given actions; store the games, and return the mean gain."""
        observation, info = self.envs.reset(options={"instance": instance})
        seen, taken, rewards = [flatten(observation)], [], []
        if actions is None:
            drawn = torch.rand(self.args.games, self.game.num_agents, 1, generator=generator, device=self.device)
            explores = drawn < self.decayed(self.args.explore)
        for tick in range(self.game.num_ticks):
            if actions is None:
                to_nearest = nearest(self.game, self.envs.instance, self.envs.state)
                action = torch.where(explores, to_nearest, self.policy(seen[-1]))
                noise = torch.randn(action.shape, generator=generator, device=self.device)
                action = (action + self.decayed(self.args.noise) * noise).clamp(-1, 1)
            else:
                action = actions[:, tick]
            observation, reward, _, _, info = self.envs.step(action)
            seen.append(flatten(observation))
            taken.append(action)
            rewards.append(reward.float())
        self.buffer.put(step, *(torch.stack(x, dim=1) for x in (seen, taken, rewards)))
        return float(info["gained"].mean())

    def learn_games(self, instance: Any, generator: torch.Generator) -> dict[str, float]:
        """Play games, then make `args.updates` optimiser steps on ticks of the buffer; return the metrics to log."""
        gain, sums = self.play(instance, self.step, generator), {"value_loss": 0.0, "q": 0.0}
        for _ in range(self.args.updates):
            batch = self.buffer.sample(self.step + 1, self.args.batch_size, self.args.n_steps, generator)
            losses = self.improve(batch, generator)
            for key, value in losses.items():
                sums[key] += value / self.args.updates
        return {"gain": gain, **sums}

    def improve(self, batch: tuple[Tensor, ...], generator: torch.Generator) -> dict[str, float]:
        """Update critic, policies and target networks once (Lowe et al. 2017, algorithm 1); return the losses."""
        seen, actions, rewards, after, goes_on = batch
        target_policy, target_critic, policy, critic = self.model.values()
        with torch.no_grad():  # y^i = r^i + .. + q'^i(o', mu'(o')), undiscounted: a game has few ticks
            y = rewards + goes_on * target_critic(torch.cat([after, target_policy(after)], dim=-1))
        value_loss = (critic(torch.cat([seen, actions], dim=-1)) - y).square().mean()
        self.descend(value_loss, self.decayed(self.args.critic_learning_rate), "critic")

        # A policy is improved with the other vehicles' actions fixed: in each row for one vehicle, drawn at random.
        one = torch.randint(self.game.num_agents, (len(seen), 1), generator=generator, device=self.device)
        own = torch.zeros_like(rewards).scatter(1, one, 1.0)[..., None]
        mixed = own * policy(seen) + (1 - own) * actions
        q = critic(torch.cat([seen, mixed], dim=-1)).gather(1, one).mean()
        self.descend(-q, self.decayed(self.args.policy_learning_rate), "policy")

        with torch.no_grad():
            for network, target in ((policy, target_policy), (critic, target_critic)):
                for new, old in zip(network.parameters(), target.parameters(), strict=True):
                    old.lerp_(new, self.args.tau)
        return {"value_loss": value_loss.item(), "q": q.item()}

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return the actions in the buffer, from which the rest of it is recomputed."""
        return {"more.actions": self.buffer.actions}, {}

    def restore(self, tensors: dict[str, Tensor], header: dict[str, Any], path: Path) -> None:
        """Restore the result of `state`, and play the games of the buffer again."""
        actions = checkpoint.fitting("more.actions", self.buffer.actions, tensors, path)
        for step in range(max(0, self.step - self.args.buffer), self.step):
            self.play(self.draw(step)[0], step, None, actions[step % self.args.buffer])


def main(args: Args) -> Path:
    """Train according to `args`; return the folder of the run."""
    return loop.train(MaddpgTrainer, args)


if __name__ == "__main__":
    command_line(main, Args, __doc__, (TrainingDivergedError,))
