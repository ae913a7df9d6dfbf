"""Train vehicles that play `CompetitiveOP` against each other with MAPPO.

    python agents/mappo.py                                      # 8 vehicles
    python agents/mappo.py --num-agents 16 --critic.mixing mean
    python agents/mappo.py --central-policy --rivals-seen 0     # policies that observe all
    python agents/mappo.py --respond-to runs/NAME               # learn to exploit others
    python agents/mappo.py --resume runs/NAME                   # continue a run

The algorithm is that of Yu et al. (2022), "The Surprising Effectiveness of PPO in Cooperative Multi-Agent Games", with
a separate reward, and therefore a separate value, for each vehicle, and without normalised values. The centralised
networks are those of Wang, "Deep Reinforcement Learning", chapter 16. Training is centralised: the values v^i([o^1 ..
o^m]) depend on the observations of all vehicles. Execution is decentralised: a policy pi(o^i) depends on its own
observation only; with --central-policy, on those of all vehicles, pi^i([o^1 .. o^m]).

Every random number is a function of the seed and the step, so a resumed run repeats an uninterrupted one bit for bit,
wherever it was stopped. Ctrl-C stops after the current step and saves the run.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # see am_reinforce.py; read when torch is loaded

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro
from torch import Tensor, nn

from routing_agents.multi_agent.extractor import Layout, flatten
from routing_agents.multi_agent.networks import AgentNetwork
from routing_agents.multi_agent.players import greedy, masked_logits
from routing_agents.multi_agent.saved import load_policy, load_values
from routing_agents.multi_agent.training import GameArgs, GameTrainer
from routing_agents.policies.attention.decoding import sampling_choice
from routing_agents.runs import TrainingDivergedError, check_integers, check_numbers
from routing_agents.terminal import command_line
from routing_agents.training import loop
from routing_agents.training.policy_gradient import clipped_losses, gae
from routing_agents.training.report import Column
from routing_gym.multi_agent import CompetitiveOP
from routing_gym.multi_agent.environments import GameVectorEnv

LEAST_DECISIONS = 2  # of a minibatch, whose advantages have no standard deviation otherwise


@dataclass(frozen=True)
class Args(GameArgs):
    """Arguments of a run."""

    advanced = (*GameArgs.advanced, "gae_lambda", "num_minibatches", "update_epochs", "clip_coef", "ent_coef")

    heuristics: float = 0.5
    """Fraction of vehicles, drawn for each game, that the rival-aware heuristic plays, so that policies learn to play
    against others than themselves; 0 is self-play."""
    respond_to: Annotated[str, tyro.conf.arg(metavar="RUN")] = ""
    """Run to whose policy a best response is learnt: in each game that policy plays all vehicles but one, drawn at
    random, and no heuristic plays. Training starts from its weights, and compares with that policy after each epoch."""
    learning_rate: float = 2e-3
    """Adam's initial learning rate, which falls linearly to 2 %."""
    gae_lambda: float = 0.95
    """Lambda of generalised advantage estimation: 1 uses the rewards to the end of the game, 0 the values only."""
    num_minibatches: int = 4
    """Number of minibatches into which the steps of all games are split, one optimiser step each."""
    update_epochs: int = 3
    """Number of passes over the games of a step."""
    clip_coef: float = 0.2
    """Clipping range of PPO: the largest relative change of an action's probability that is rewarded."""
    ent_coef: float = 0.04
    """Initial weight of the entropy bonus, which falls like the learning rate."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integers(self, "num_minibatches", "update_epochs")
        check_numbers(self, "learning_rate", "clip_coef")
        if not 0 <= self.heuristics < 1:
            raise ValueError(f"--heuristics must be in [0, 1), got {self.heuristics}")
        check_numbers(self, "gae_lambda", zero=True, most=1)
        check_numbers(self, "ent_coef", zero=True)


@dataclass(frozen=True)
class Experience:
    """All ticks of G games, flattened to S = T G rows."""

    observations: Tensor  # (S, m, F)
    masks: Tensor  # (S, m, A)
    actions: Tensor  # int64 (S, m)
    log_p: Tensor  # (S, m), of the actions when they were taken
    advantages: Tensor  # (S, m)
    returns: Tensor  # (S, m), targets of the values
    learns: Tensor  # bool (S, m), whether the trained policy chose the action
    gain: float  # mean over the vehicles that the trained policy plays, in all games
    explained_variance: float


class MappoTrainer(GameTrainer):
    """Trainer of the policies and values of one run."""

    script = "mappo.py"
    shown = (
        Column("gain", ".4f"),
        Column("entropy", ".3f"),
        Column("explained_variance", ".3f", title="explained"),
    )

    def __init__(self, args: Args) -> None:
        if args.respond_to:
            args = replace(args, respond_to=str(Path(args.respond_to).resolve()))
        game = CompetitiveOP(
            args.num_agents, args.num_customers, rivals_seen=args.rivals_seen, cooperation=args.cooperation
        )
        super().__init__(args, game)
        generator = torch.Generator().manual_seed(args.seed)
        policy = self.make_policy("choice", generator)
        critic = AgentNetwork(Layout.of(game), args.critic, args.num_agents, "value", generator=generator)
        learning = {"policy": policy, "critic": critic}
        self.model = nn.ModuleDict(learning).to(self.device)
        self.optimizers = {name: torch.optim.Adam(network.parameters(), eps=1e-5) for name, network in learning.items()}
        if args.respond_to:
            self.model["rival"] = self.begin_with(Path(args.respond_to))  # in the model, so that checkpoints hold it
            self.rivals, self.rivals_name = greedy(self.model["rival"]), "the policy that it responds to"
        self.envs = GameVectorEnv(game, args.games, autoreset_mode="Disabled", backend="torch", device=self.device)

    def begin_with(self, path: Path) -> AgentNetwork:
        """Load the weights of another run, and return its policy.

        Raises:
            ValueError: The run is of another game, or its networks have another configuration.
        """
        policy, game, _ = load_policy(path, self.device)
        critic, _, _ = load_values(path, self.device)
        for name, theirs, ours in (
            ("game", game, self.game),
            ("policy", policy.config, self.policy.config),
            ("critic", critic.config, self.model["critic"].config),
        ):
            if theirs != ours:
                raise ValueError(f"--respond-to {path}: its {name} is {theirs}, and this run's {ours}")
        self.policy.load_state_dict(policy.state_dict())
        self.model["critic"].load_state_dict(critic.state_dict())
        return policy.requires_grad_(False)

    def draw_learners(self, generator: torch.Generator) -> Tensor:
        """Draw the vehicles that the trained policy plays: bool (G, m).

        For a best response, these are one vehicle in each game; otherwise at least one in all games.
        """
        drawn = torch.rand(self.args.games, self.game.num_agents, generator=generator, device=self.device)
        if self.args.respond_to:
            return nn.functional.one_hot(drawn.argmax(dim=1), self.game.num_agents).bool()
        learns = drawn >= self.args.heuristics
        return learns | ~learns.any()

    @torch.no_grad()
    def play(self, instance: Any, generator: torch.Generator) -> Experience:
        """Play G games to their end, and compute advantages and returns."""
        choose = sampling_choice(generator)
        observation, info = self.envs.reset(options={"instance": instance})
        learns = self.draw_learners(generator)
        steps: list[tuple[Tensor, ...]] = []
        for _ in range(self.game.num_ticks):
            seen, mask = flatten(observation), observation["action_mask"].bool()
            log_p = masked_logits(self.policy, seen, mask).log_softmax(dim=-1)
            action = choose(log_p)
            if self.args.heuristics or self.args.respond_to:
                action = torch.where(learns, action, self.rivals(self.envs, observation))
            observation, reward, _, _, info = self.envs.step(action)
            steps.append((seen, mask, action, log_p.gather(-1, action[..., None]).squeeze(-1), reward.float()))
        seen, masks, actions, log_p, rewards = (torch.stack(x) for x in zip(*steps, strict=True))  # (T, G, m, ...)

        values = self.model["critic"](seen.flatten(0, 1)).view_as(rewards)
        terminated = torch.zeros_like(rewards, dtype=torch.bool)
        terminated[-1] = True
        next_value = torch.zeros_like(rewards[0])
        advantages = gae(rewards, values, terminated, next_value, gamma=1.0, gae_lambda=self.args.gae_lambda)
        collected = rewards.flip(0).cumsum(0).flip(0)  # by each vehicle from each tick on
        errors = (collected - values)[:, learns]
        return Experience(
            observations=seen.flatten(0, 1),
            masks=masks.flatten(0, 1),
            actions=actions.flatten(0, 1),
            log_p=log_p.flatten(0, 1),
            advantages=advantages.flatten(0, 1),
            returns=(advantages + values).flatten(0, 1),
            learns=learns.expand_as(rewards).flatten(0, 1),
            gain=float(info["gained"][learns].mean()),
            explained_variance=1 - float(errors.square().mean() / collected[:, learns].var()),
        )

    def learn_games(self, instance: Any, generator: torch.Generator) -> dict[str, float]:
        """Play games, then make `update_epochs` passes of PPO (Schulman et al. 2017) over all ticks."""
        args, rollout = self.args, self.play(instance, generator)
        sums: dict[str, Tensor] = {}
        updates = 0
        for _ in range(args.update_epochs):
            order = torch.randperm(len(rollout.actions), generator=generator, device=self.device)
            for rows in order.chunk(args.num_minibatches):
                if rollout.learns[rows].sum() < LEAST_DECISIONS:
                    continue
                losses = self.losses(rollout, rows)
                policy_loss = losses["policy_loss"] - self.decayed(args.ent_coef) * losses["entropy"]
                self.descend(policy_loss, self.decayed(args.learning_rate), "policy")
                self.descend(losses["value_loss"], self.decayed(args.learning_rate), "critic")
                updates += 1
                for key, value in losses.items():
                    sums[key] = sums.get(key, 0.0) + value.detach().double()
        if not updates:
            told = f"--num-minibatches {args.num_minibatches}: each holds fewer than {LEAST_DECISIONS} decisions"
            raise ValueError(f"{told} of vehicles that learn; give fewer, or more --games")
        means = {key: value.item() / updates for key, value in sums.items()}
        return {"gain": rollout.gain, "explained_variance": rollout.explained_variance, **means}

    def losses(self, rollout: Experience, rows: Tensor) -> dict[str, Tensor]:
        """Return the losses and the entropy of some ticks.

        The vehicles of a game stay together, because each value depends on the observations of all.
        """
        seen, learns = rollout.observations[rows], rollout.learns[rows]
        log_p = masked_logits(self.policy, seen, rollout.masks[rows]).log_softmax(dim=-1)
        entropy = -(log_p.exp() * log_p.masked_fill(~rollout.masks[rows], 0.0)).sum(dim=-1)
        taken = log_p.gather(-1, rollout.actions[rows][..., None]).squeeze(-1)
        errors = self.model["critic"](seen) - rollout.returns[rows]
        before = (rollout.log_p[rows][learns], rollout.advantages[rows][learns])
        return {
            **clipped_losses(taken[learns], *before, self.args.clip_coef),
            "entropy": entropy[learns].mean(),
            "value_loss": errors[learns].square().mean(),
        }


def main(args: Args) -> Path:
    """Train according to `args`; return the folder of the run."""
    return loop.train(MappoTrainer, args)


if __name__ == "__main__":
    command_line(main, Args, __doc__, (TrainingDivergedError,))
