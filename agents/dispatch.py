"""Train a policy for the dynamic VRPTW, which decides which requests leave now and which wait.

    python agents/dispatch.py                             # imitation of the oracle
    python agents/dispatch.py --algorithm fenchel-young   # prizes for PyVRP, learned through it
    python agents/dispatch.py --algorithm ppo             # reinforcement learning, fast router
    python agents/dispatch.py --static FILE               # days of a file with explicit durations
    python agents/dispatch.py --resume runs/NAME          # continue a run
    python agents/dispatch.py --evaluate runs/NAME        # compare a run with other policies

The network scores every open request (attention over requests). `imitation`: a positive score means "leave", and
training maximises the likelihood of the decisions in the day's solution in hindsight. `fenchel-young`: the score is a
prize, PyVRP serves the requests that are worth their prizes, and training changes the prizes until PyVRP's solutions
are those in hindsight; Baty, Jungel, Klein, Parmentier and Schiffer (2024), "Combinatorial optimization-enriched
machine learning to solve the dynamic vehicle routing problem with time windows". `ppo`: "leave" or "wait" is sampled
for each request; Schulman et al. (2017).

Every random number is a function of the seed and the step. Ctrl-C stops after the current step and saves the run.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # see am_reinforce.py; read when torch is loaded

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
import tyro
from torch import Tensor

from routing_agents import checkpoint, runs
from routing_agents.dispatch.evaluation import compare, make_source, picture_of
from routing_agents.dispatch.network import SMALL, RequestNetwork, Requests, open_requests
from routing_agents.dispatch.policy import KIND, PRIZE_UNIT, Learned, lessons, load_policy, worthwhile
from routing_agents.policies.attention.model import ModelConfig
from routing_agents.runs import MOST_COUNT, TrainingDivergedError, check_integers, check_numbers, stream
from routing_agents.terminal import command_line
from routing_agents.training import loop
from routing_agents.training.policy_gradient import clipped_losses, gae
from routing_agents.training.report import Column
from routing_agents.training.trainer import RunArgs, Trainer
from routing_gym.dynamic import rules
from routing_gym.dynamic.days import Day
from routing_gym.dynamic.observations import observe
from routing_gym.dynamic.oracle import solve_in_hindsight
from routing_gym.dynamic.policies import greedy, play
from routing_gym.dynamic.routers import nearest
from routing_gym.dynamic.solver import Limits, PyVRPRouter
from routing_gym.solvers.runtime.executors import ExecutorName, executor_of

Algorithm = Literal["imitation", "fenchel-young", "ppo"]
NOISE_STREAM = 99  # stream of random numbers, in addition to those of `runs`
REQUESTS, LEAST_REQUESTS = 12.0, 2.0  # in an epoch
Decision = tuple[Requests, Tensor, Tensor]  # open requests; leave (1) or wait (0) for each; log-probabilities of these


@dataclass(frozen=True)
class Args(RunArgs):
    """Arguments of a run."""

    local = ("runs", "resume", "evaluate", "executor", "workers", "address")
    beside_resume = ("executor", "workers", "address")
    device: ClassVar[str] = "cpu"  # most time is spent in PyVRP and in simulating days, which use the CPU only
    advanced = ("network", "noise", "samples", "clip_coef", "ent_coef", "update_epochs", "max_grad_norm")
    advanced += ("threads", "executor", "workers", "address", "log")

    algorithm: Algorithm = "imitation"
    """Training algorithm: imitation of the oracle, prizes learned with a Fenchel-Young loss, or PPO."""
    static: Annotated[str | None, tyro.conf.arg(metavar="FILE")] = None
    """VRPLIB file with explicit durations and coordinates from which days are sampled. Default: generated days."""
    requests: float | None = None
    """Mean number of requests in an epoch of generated days; with --static, the candidates drawn in an epoch. Default:
    12."""
    days: int = 8
    """Number of days per step."""
    oracle_iterations: int = 300
    """Iterations of PyVRP for a day in hindsight."""
    router_iterations: int = 100
    """Iterations of PyVRP in each epoch: as a router in evaluations, and to choose requests by their prizes."""
    noise: float = 300.0
    """Standard deviation of the perturbation of prizes (fenchel-young), in seconds."""
    samples: int = 2
    """Number of perturbed problems per epoch of a day (fenchel-young)."""
    clip_coef: float = 0.2
    """Clipping range (ppo)."""
    ent_coef: float = 0.01
    """Weight of the entropy bonus (ppo)."""
    update_epochs: int = 3
    """Number of passes over the days of a step (imitation and ppo)."""
    learning_rate: float = 1e-3
    """Adam's initial learning rate, which falls linearly to 2 %."""
    max_grad_norm: float = 1.0
    """Largest norm of the gradient; a larger one is scaled down."""
    network: ModelConfig = SMALL
    """Sizes of the network."""
    held_out: int = 10
    """Number of days on which the policy is compared with greedy dispatching after each epoch."""
    epochs: int = 10
    """Number of epochs; each ends with an evaluation and a checkpoint."""
    steps_per_epoch: int = 20
    """Number of steps per epoch, each with new days."""
    seed: int = 1
    """Random seed for the weights, the days and the actions."""
    executor: ExecutorName | None = None
    """Where the oracle solves its days, ahead of the training: in worker processes, or on Ray. Default: in this
    process."""
    workers: int | None = None
    """Number of the oracle's worker processes. Default: the number of cores, on Ray that of the cluster."""
    address: str | None = None
    """Address of a Ray cluster: auto, HOST:6379 or ray://HOST:10001. Default: Ray starts on this machine."""
    threads: int = 0
    """Number of CPU threads; 0 uses all cores."""
    log: Literal["tensorboard", "wandb"] = "tensorboard"
    """Log of the metrics: TensorBoard, or TensorBoard and Weights & Biases (wandb)."""
    runs: Path = Path("runs")
    """Folder in which run folders are made."""
    name: str = ""
    """Name of the run's folder. Default: the algorithm, the seed and the time."""
    resume: Annotated[Path | None, tyro.conf.arg(metavar="RUN")] = None
    """Folder of a run to resume, with the arguments it was started with."""
    evaluate: Annotated[Path | None, tyro.conf.arg(metavar="RUN")] = None
    """Folder of a run to compare with other policies on held-out days, instead of training. Defaults of --static and
    --requests: the run's; --static "" for generated days."""

    def __post_init__(self) -> None:
        check_integers(self, "seed", least=0)
        check_integers(self, "threads", least=0, most=runs.MOST_THREADS)
        check_integers(self, "epochs", "steps_per_epoch", "oracle_iterations", "router_iterations", "update_epochs")
        check_integers(self, "days", "held_out", "samples", most=MOST_COUNT)
        check_numbers(self, "requests", "noise", "clip_coef", "learning_rate", "max_grad_norm")
        check_numbers(self, "ent_coef", zero=True)
        if self.requests is not None and self.requests < LEAST_REQUESTS:
            told = "with fewer, whole days have none"
            raise ValueError(f"--requests must be at least {LEAST_REQUESTS:g}, got {self.requests:g}: {told}")
        if self.static and self.requests is not None and not float(self.requests).is_integer():
            raise ValueError(f"--requests must be an integer with --static, got {self.requests:g}")
        if self.workers is not None and self.executor in (None, "inline"):
            raise ValueError(f"--workers {self.workers} has no effect without --executor processes or ray; add one")
        if self.evaluate is not None and self.resume is not None:
            raise ValueError("--evaluate and --resume: a run is either compared or continued; leave out one of them")
        if self.executor is not None and self.algorithm == "ppo" and self.evaluate is None and self.resume is None:
            raise ValueError(f"--executor {self.executor} has no effect: ppo asks no oracle; leave it out")

    def of_days(self, static: str, requests: float) -> Args:
        """Return the arguments with these days where none are given."""
        chosen = {"static": static if self.static is None else self.static, "requests": self.requests or requests}
        return dataclasses.replace(self, **chosen)


class DispatchTrainer(Trainer):
    """Trainer of the network of one run, with one method per algorithm."""

    script = "dispatch.py"
    remedy = "a lower --learning-rate"
    best_is = ("versus_greedy", -1)
    columns = (
        Column("epoch", ".0f"),
        Column("loss", ".4f"),
        Column("leave", ".3f"),
        Column("versus_greedy", "+.2f", title="over greedy, %", curve="driving duration over greedy's, in %"),
        Column("instances_per_second", ".1f", title="days/s"),
    )

    def __init__(self, args: Args) -> None:
        args = args.of_days("", REQUESTS)
        super().__init__(args)
        self.source = make_source(args.static, args.requests)
        self.model = RequestNetwork(args.network, torch.Generator().manual_seed(args.seed)).to(self.device)
        trained = [weight for name, weight in self.model.named_parameters() if self.trains(name)]
        self.optimizers = {"adam": torch.optim.Adam(trained, lr=args.learning_rate)}
        self.router = PyVRPRouter(Limits(seconds=None, iterations=args.router_iterations))
        self.held_out = self.draw(runs.HELD_OUT_SEED, runs.HELD_OUT_STREAM, 0, args.held_out)
        self.greedy_cost = play(self.held_out, greedy, self.router, np.random.default_rng(0))
        limits = Limits(seconds=None, iterations=args.oracle_iterations)
        solved = solve_in_hindsight(self.days_ahead(), limits, executor_of(args))
        self.oracle = (lessons(day, tours) for day, tours in solved)

    def trains(self, name: str) -> bool:
        """Return whether a weight is trained; those of the value head are trained by PPO only."""
        return self.args.algorithm == "ppo" or not name.startswith("value.")

    @property
    def title(self) -> str:
        return f"dispatch-{self.args.algorithm}"

    @property
    def batch_size(self) -> int:
        return self.args.days

    def draw(self, seed: int, purpose: int, step: int, count: int) -> Day:
        """Draw days that depend on seed, purpose and step only."""
        return self.source.draw(stream(seed, purpose, step).spawn(count))

    def learn(self) -> dict[str, float]:
        generator = torch.Generator().manual_seed(int(stream(self.args.seed, NOISE_STREAM, self.step).integers(2**63)))
        ways = {"imitation": self.imitate, "fenchel-young": self.learn_prizes, "ppo": self.ppo}
        return ways[self.args.algorithm](generator)

    def days_of(self, step: int) -> Day:
        """Return the days of a step."""
        return self.draw(self.args.seed, runs.TRAINING_STREAM, step, self.args.days)

    def days_ahead(self) -> Iterator[Day]:
        """Yield the days of all remaining steps.

        The current step is read when the first days are drawn, which is after a resumed run is restored.
        """
        yield from map(self.days_of, range(self.step, self.args.total_steps))

    def imitate(self, generator: torch.Generator) -> dict[str, float]:
        """Learn the oracle's decisions: cross-entropy over all requests that could have waited."""
        lesson = next(self.oracle)
        free = lesson.requests.free
        for _ in range(self.args.update_epochs):
            scores = self.model(lesson.requests)[0]
            loss = F.binary_cross_entropy_with_logits(scores[free], lesson.leaves[free])
            self.descend(loss, self.learning_rate)
        return {"loss": loss.item(), "leave": float((scores[free] > 0).float().mean())}

    def learn_prizes(self, generator: torch.Generator) -> dict[str, float]:
        """Train the predicted prizes so that the oracle's choice becomes optimal.

        The gradient of the perturbed Fenchel-Young loss with respect to the prizes is the mean choice at perturbed
        prizes minus the oracle's (Berthet et al. 2020, "Learning with differentiable perturbed optimizers").
        """
        lesson, args = next(self.oracle), self.args
        free, scores = lesson.requests.free, self.model(lesson.requests)[0]
        limits = Limits(seconds=None, iterations=args.router_iterations)
        chosen = torch.zeros_like(scores)
        for _ in range(args.samples):
            noise = args.noise / PRIZE_UNIT * torch.randn(scores.shape, generator=generator)
            prizes = (PRIZE_UNIT * (scores.detach() + noise)).round().long()
            served = worthwhile(lesson.day, lesson.state, lesson.requests.spread(prizes, lesson.day.num_slots), limits)
            chosen += torch.from_numpy(served).gather(1, lesson.requests.slot) / args.samples
        gradient = (chosen - lesson.leaves) * free
        self.descend((gradient * scores).sum() / free.sum(), self.learning_rate)
        wrong = gradient.abs().sum() / free.sum()
        return {"loss": wrong.item(), "leave": float(chosen[free].mean())}

    def ppo(self, generator: torch.Generator) -> dict[str, float]:
        """Simulate days with the fast router, then train with PPO; every request is a separate actor."""
        with torch.no_grad():
            steps, rewards, values = self.rollout(self.days_of(self.step), generator)
        terminated = torch.zeros_like(rewards, dtype=torch.bool)
        terminated[-1] = True
        next_value = torch.zeros_like(rewards[0])
        advantages = gae(rewards, values, terminated, next_value, gamma=1.0, gae_lambda=0.95)  # (T, B)

        # The T steps have different numbers of open requests; those that were free to wait are concatenated.
        free = [requests.free for requests, _, _ in steps]
        leaves = torch.cat([leave[mask] for (_, leave, _), mask in zip(steps, free, strict=True)])
        old_log_p = torch.cat([log_p[mask] for (_, _, log_p), mask in zip(steps, free, strict=True)])
        advantage = torch.cat([x[:, None].expand(mask.shape)[mask] for x, mask in zip(advantages, free, strict=True)])
        for _ in range(self.args.update_epochs):
            outputs = [self.model(requests) for requests, _, _ in steps]
            scores = torch.cat([score[mask] for (score, _), mask in zip(outputs, free, strict=True)])
            losses = clipped_losses(log_probability(scores, leaves), old_log_p, advantage, self.args.clip_coef)
            entropy = (F.softplus(scores) - scores * scores.sigmoid()).mean()
            value_loss = F.mse_loss(torch.stack([value for _, value in outputs]), advantages + values)
            loss = losses["policy_loss"] + 0.5 * value_loss - self.args.ent_coef * entropy
            self.descend(loss, self.learning_rate)
        return {"loss": loss.item(), "leave": float(leaves.mean()), "reward": float(rewards.sum(dim=0).mean())}

    def rollout(self, day: Day, generator: torch.Generator) -> tuple[list[Decision], Tensor, Tensor]:
        """Simulate days; return the decisions, and rewards and values (T, B), in units of the depot's closing time."""
        state, steps, rewards, values = rules.initial(day), [], [], []
        while not rules.done(day, state).all():
            requests = open_requests(observe(day, state))
            scores, value = self.model(requests)
            leaves = (torch.rand(scores.shape, generator=generator) < scores.sigmoid()).float()
            steps.append((requests, leaves, log_probability(scores, leaves)))
            chosen = rules.must_go(day, state) | requests.spread((leaves > 0) & requests.free, day.num_slots)
            leaving = rules.departure(day, state)
            cost = rules.route_cost(day, chosen, nearest(day, chosen, leaving), leaving)
            rewards.append(torch.from_numpy(-cost / day.closing).float())
            values.append(value)
            state = rules.dispatch(state, chosen)
        return steps, torch.stack(rewards), torch.stack(values)

    @property
    def learning_rate(self) -> float:
        """Learning rate of the current step, which falls linearly to 2 % of the initial one."""
        return self.args.learning_rate * (1 - 0.98 * self.step / self.args.total_steps)

    def policy(self) -> Learned:
        """Return the current policy."""
        reading = "prizes" if self.args.algorithm == "fenchel-young" else "logits"
        return Learned(self.model, reading, self.router.limits)

    def end_epoch(self) -> dict[str, float]:
        cost = play(self.held_out, self.policy(), self.router, np.random.default_rng(0))
        versus = 100 * float((cost / self.greedy_cost).mean() - 1)
        return {"epoch": self.epoch, "instances": self.instances, **self.end_sums(), "versus_greedy": versus}

    def describe(self) -> dict[str, Any]:
        config = dataclasses.asdict(self.model.config)
        return {"network": KIND, "config": config, "reading": self.policy().reading, **super().describe()}

    def picture(self) -> np.ndarray:
        return picture_of(self.held_out, self.policy(), self.router)

    def results(self, folder: Path) -> list[str]:
        best = load_policy(folder, self.router.limits)
        picture_of(self.held_out, best, self.router, folder / "day.png")
        days = f"{self.args.held_out} held-out days"
        return [
            f"Best weights:   {-self.best:+.2f} % over greedy's driving duration, the mean of {days}",
            f"A day by epoch: {folder / 'day.png'}",
            f"Evaluate:       {runs.command(self.script, '--evaluate', folder)}",
        ]


def log_probability(scores: Tensor, leaves: Tensor) -> Tensor:
    """Return the log-probability of each request's decision."""
    return -F.binary_cross_entropy_with_logits(scores, leaves, reduction="none")


def main(args: Args) -> Path:
    """Train or evaluate according to `args`; return the folder of the run."""
    if args.evaluate is not None:
        return evaluate(args)
    return loop.train(DispatchTrainer, args)


def evaluate(args: Args) -> Path:
    """Compare a trained policy with others on held-out days, by default like its training days; return its folder."""
    router, path = PyVRPRouter(Limits(seconds=None, iterations=args.router_iterations)), args.evaluate / runs.BEST
    learned = load_policy(path, router.limits)
    trained = checkpoint.read_arguments(checkpoint.load(path)[1], path, Args.from_json)
    args = args.of_days(trained.static, trained.requests)
    source = make_source(args.static, args.requests)
    where = f"of {args.static}" if args.static else "on random maps"
    print(f"{args.held_out} days {where}, {args.requests:g} requests an epoch")
    days = source.draw(stream(runs.HELD_OUT_SEED, runs.EVALUATION_STREAM, 0).spawn(args.held_out))
    compare(days, source, {"learned": learned}, router, executor_of(args))
    picture_of(days, learned, router, args.evaluate / "day.png")
    print(f"A day by epoch: {args.evaluate / 'day.png'}, animated: {args.evaluate / 'day.gif'}")
    return args.evaluate


if __name__ == "__main__":
    command_line(main, Args, __doc__, (TrainingDivergedError,))
