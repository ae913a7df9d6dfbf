"""Base of training runs on a game: common arguments, evaluation of the policy, and pictures."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
import tyro
from torch import nn

from routing_agents import runs
from routing_agents.multi_agent.extractor import Layout
from routing_agents.multi_agent.networks import AgentNetwork, NetworkConfig, Output
from routing_agents.multi_agent.pictures import draw_attention, listening
from routing_agents.multi_agent.players import compare, greedy, heuristic, play_one
from routing_agents.multi_agent.saved import describe, load_policy
from routing_agents.runs import MOST_COUNT, check_integers, check_numbers, stream
from routing_agents.training.report import Column
from routing_agents.training.trainer import RunArgs, Trainer
from routing_gym.arrays import select, to_backend
from routing_gym.multi_agent import CompetitiveOP, pictures
from routing_gym.multi_agent.heuristics import rival_aware
from routing_gym.render.figure import pixels

MOST_AGENTS = 1024  # memory grows with their square
LEAST_RATE = 0.02  # share of the learning rate at the end of a run


@dataclass(frozen=True)
class GameArgs(RunArgs):
    """Arguments that all runs on a game have."""

    advanced = ("cooperation", "policy", "critic", "held_out", "max_grad_norm", "threads", "log", "runs")

    num_agents: int = 8
    """Number of vehicles m."""
    num_customers: int | None = None
    """Number of customers n. Default: two per vehicle."""
    rivals_seen: int = 3
    """Number of nearest rivals that a vehicle observes; 0 leaves them to the mixing layers."""
    cooperation: float = 0.0
    """Fraction of a vehicle's reward that is the mean of all gains."""
    central_policy: bool = False
    """Let each policy read the observations of all vehicles, through the mixing layer of `--policy.mixing`."""
    policy: NetworkConfig = NetworkConfig("attention-own", token_width=64, share_heads=True)
    """Networks of the policies, by default one for all vehicles. Their mixing layer takes effect with
    `--central-policy`."""
    critic: NetworkConfig = NetworkConfig("attention-own")
    """Networks of the values or action values, with one head per vehicle."""
    seed: int = 1
    """Random seed for the weights, the games and the actions."""
    epochs: int = 20
    """Number of epochs; each ends with an evaluation and a checkpoint."""
    steps_per_epoch: int = 20
    """Number of steps per epoch, each with new games."""
    games: int = 128
    """Number of games per step."""
    held_out: int = 512
    """Number of games in which the policy is compared with the rival-aware heuristic after each epoch."""
    max_grad_norm: float = 1.0
    """Largest norm of the gradients; larger ones are scaled down."""
    device: str = "auto"
    """Device for training: cpu, cuda, or auto for cuda where there is one."""
    threads: int = 0
    """Number of CPU threads; 0 uses all cores."""
    log: Literal["tensorboard", "wandb"] = "tensorboard"
    """Log of the metrics: TensorBoard, or TensorBoard and Weights & Biases (wandb)."""
    runs: Path = Path("runs")
    """Folder in which run folders are made."""
    name: str = ""
    """Name of the run's folder. Default: the algorithm, the number of vehicles, the seed and the time."""
    resume: Annotated[Path | None, tyro.conf.arg(metavar="RUN")] = None
    """Folder of a run to resume, with the arguments it was started with."""

    def __post_init__(self) -> None:
        check_integers(self, "seed", "rivals_seen", least=0)
        check_integers(self, "epochs", "steps_per_epoch")
        check_integers(self, "games", "held_out", most=MOST_COUNT)
        check_integers(self, "num_agents", most=MOST_AGENTS)
        check_numbers(self, "max_grad_norm")
        check_integers(self, "threads", least=0, most=runs.MOST_THREADS)


class GameTrainer(Trainer):
    """One run: the game, its networks and optimisers, and its progress.

    A script derives a class from it, which creates `model` and `optimizers`, and implements `learn`.

    Args:
        args: Arguments of the run.
        game: Game to learn.

    Attributes:
        model: Networks by name; "policy" is the one that plays.
        rivals: Player that the policy is compared with, by default the rival-aware heuristic.
        rivals_name: Its name in tables and pictures.
    """

    shown: ClassVar[tuple[Column, ...]]  # numbers that `learn` returns, as columns of the live table
    remedy = "a lower learning rate"
    best_is = ("among", 1)  # in one seat among the rivals
    rivals_name = "the rival-aware heuristic"

    model: nn.ModuleDict

    def __init__(self, args: Any, game: CompetitiveOP) -> None:
        super().__init__(args)
        self.game = game
        self.rivals = heuristic(rival_aware)
        self.held_out = to_backend(runs.held_out_instances(game, args.held_out), "torch", self.device)

    @abstractmethod
    def learn_games(self, instance: Any, generator: torch.Generator) -> dict[str, float]:
        """Play games, learn from them, and return the metrics to log.

        Args:
            instance: `args.games` games on the run's device.
            generator: Random number generator for everything in this step.
        """

    def learn(self) -> dict[str, float]:
        return self.learn_games(*self.draw(self.step))

    def make_policy(self, output: Output, generator: torch.Generator) -> AgentNetwork:
        """Build the policies, central or not, with new weights."""
        args = self.args
        config = args.policy if args.central_policy else dataclasses.replace(args.policy, mixing="own")
        return AgentNetwork(Layout.of(self.game), config, args.num_agents, output, generator=generator)

    @property
    def policy(self) -> AgentNetwork:
        """The network that plays."""
        policy = self.model["policy"]
        assert isinstance(policy, AgentNetwork)
        return policy

    @property
    def attentive(self) -> AgentNetwork | None:
        """The network whose attention can be drawn: that of the policies, otherwise of the values; None without any."""
        for network in (self.policy, self.model["critic"]):
            if isinstance(network, AgentNetwork) and network.config.mixing.startswith("attention"):
                return None if network.action_size else network
        return None

    @property
    def title(self) -> str:
        return f"{self.script.removesuffix('.py')}-m{self.args.num_agents}"

    @property
    def columns(self) -> tuple[Column, ...]:
        return (
            Column("epoch", ".0f"),
            *self.shown,
            Column("self_play", ".3f", curve=f"all seats, over {self.rivals_name}"),
            Column("among", ".3f", curve="one seat among such rivals"),
            Column("instances_per_second", ".0f", title="games/s"),
        )

    @property
    def batch_size(self) -> int:
        games: int = self.args.games
        return games

    def decayed(self, start: float) -> float:
        """Return a learning rate or a coefficient of this step: it falls linearly from `start` to 2 % of it."""
        return start * (1 - (1 - LEAST_RATE) * self.step / self.args.total_steps)

    def draw(self, step: int) -> tuple[Any, torch.Generator]:
        """Return the games and the random number generator of a step, which depend on the seed and the step only."""
        rng = stream(self.args.seed, runs.TRAINING_STREAM, step)
        instance = to_backend(self.game.generate(rng, self.args.games), "torch", self.device)
        return instance, torch.Generator(self.device).manual_seed(int(rng.integers(2**63)))

    def end_epoch(self) -> dict[str, float]:
        """Compare the policy with the rivals, and return the metrics to log."""
        results = compare(self.game, self.held_out, greedy(self.policy), self.rivals, self.device)
        return {"epoch": self.epoch, "instances": self.instances, **self.end_sums(), **results}

    def describe(self) -> dict[str, Any]:
        return {**describe(self.game, self.policy), **super().describe()}

    def picture(self, policy: AgentNetwork | None = None, path: Path | None = None) -> np.ndarray:
        """Draw the first held-out game, played by a policy, as pixels (height, width, 3); write a file if asked.

        If one of the networks has attention, the picture shows the game halfway, with the attention of vehicle 0;
        otherwise it shows the end.
        """
        first = to_backend(select(self.held_out, slice(0, 1)), "torch", "cpu")
        policy = (self.policy if policy is None else policy).cpu()
        states, seen = play_one(self.game, first, greedy(policy))
        instance = to_backend(first, "numpy")
        if (attentive := self.attentive) is not None:
            half = self.game.num_ticks // 2
            weights = listening(attentive.cpu(), seen[half])
            figure = draw_attention(self.game, instance, states[: half + 1], weights, agent=0)
        else:
            figure = pictures.draw(self.game, instance, states)
        self.model.to(self.device)
        if path is not None:
            figure.savefig(path)
        return pixels(figure)

    def results(self, folder: Path) -> list[str]:
        policy, _, header = load_policy(folder / runs.BEST, self.device)
        self.picture(policy, folder / "game.png")
        best = header["metrics"]
        return [
            f"Best policy, relative to {self.rivals_name}: {best['among']:.3f} in one seat among such rivals, "
            f"{best['self_play']:.3f} in self-play (epoch {best['epoch']:.0f}).",
            f"Learning curve: {folder}/curve.png    a game: {folder}/game.png",
        ]
