"""Steps per second inside reinforcement-learning libraries: our adapters against the libraries' own.

    python benchmarks/environments/integrations.py

Stable-Baselines3: `RoutingVecEnv` against `DummyVecEnv` over single environments made by `gym.make`, with the same
seeds and actions, in one process on one thread, in turn, several times; medians are reported. Lanes are reset
automatically, so the time to draw instances is included. "step" is `VecEnv.step` alone; "step and masks" adds the
masks that sb3-contrib's MaskablePPO needs before each step. The time to draw the actions is not included. "learn" is
`MaskablePPO("MultiInputPolicy").learn` end to end, updates included.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.utils import get_action_masks
from stable_baselines3 import __version__ as sb3_version
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv

from benchmarks import speed_tables
from benchmarks.arguments import check_problems
from benchmarks.environments.env_throughput import random_legal
from benchmarks.output import OUT, Figures, finish
from routing_agents.runs import check_integers
from routing_agents.terminal import command_line
from routing_gym.integrations.sb3 import RoutingVecEnv

KEYS = ("steps_per_second", "steps_and_masks_per_second", "learn_steps_per_second")


@dataclass(frozen=True)
class Args:
    """Arguments of the benchmark."""

    problem: str = "TSP-50"
    """What to step, as in the ids after "routing/"."""
    lanes: int = 256
    """Number of lanes."""
    repeats: int = 5
    """Runs of each side, in turn; the median counts."""
    episodes: int = 2
    """Episodes per lane and run."""
    epochs: int = 10
    """Passes of `learn` over its rollouts of one episode per lane; 10 are MaskablePPO's own."""
    batch_size: int = 1024
    """Steps per minibatch of `learn`."""
    seed: int = 0
    """Random seed for instances and actions."""
    out: Path = OUT / "integrations.json"
    """Where the figures go. The docs show those in benchmarks/results."""

    def __post_init__(self) -> None:
        check_problems(self.problem)
        check_integers(self, "lanes", "repeats", "episodes", "epochs", "batch_size")


class Player:
    """Timed run of a `VecEnv` with random legal actions."""

    def __init__(self, env: VecEnv, seed: int) -> None:
        self.env = env
        self.rng = np.random.default_rng(seed)
        env.seed(seed)
        env.reset()

    def run(self, num_steps: int) -> tuple[float, float]:
        """Return the seconds that the steps took, and those that the masks took."""
        in_steps = in_masks = 0.0
        for _ in range(num_steps):
            started = time.perf_counter()
            masks = get_action_masks(self.env)
            in_masks += time.perf_counter() - started
            actions = random_legal(self.rng, masks)
            started = time.perf_counter()
            self.env.step(actions)
            in_steps += time.perf_counter() - started
        return in_steps, in_masks


def make_envs(args: Args) -> dict[str, VecEnv]:
    """Make both environments."""
    env_id = f"routing/{args.problem}"
    return {
        "DummyVecEnv": DummyVecEnv([lambda: gym.make(env_id) for _ in range(args.lanes)]),
        "RoutingVecEnv": RoutingVecEnv(env_id, num_envs=args.lanes),
    }


def measure(args: Args) -> list[Figures]:
    """Measure both environments in turn."""
    num_nodes = int(args.problem.split("-")[1])
    num_steps = num_nodes * args.episodes
    players = {name: Player(env, args.seed) for name, env in make_envs(args).items()}
    for player in players.values():
        player.run(num_nodes // 2)  # not timed
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in players}
    for _ in range(args.repeats):
        for name, player in players.items():
            times[name].append(player.run(num_steps))
    transitions = args.lanes * num_steps
    return [
        {
            "problem": args.problem,
            "lanes": args.lanes,
            "env": name,
            "steps_per_second": transitions / statistics.median(step for step, _ in pairs),
            "steps_and_masks_per_second": transitions / statistics.median(map(sum, pairs)),
            "slowest_over_fastest": max(step for step, _ in pairs) / min(step for step, _ in pairs),
        }
        for name, pairs in times.items()
    ]


def measure_learn(args: Args) -> dict[str, float]:
    """Measure `MaskablePPO.learn` on both environments in turn; return the median steps per second."""
    num_nodes = int(args.problem.split("-")[1])
    settings: dict[str, Any] = {"n_epochs": args.epochs, "batch_size": args.batch_size, "gamma": 1.0, "device": "cpu"}
    models = {
        name: MaskablePPO("MultiInputPolicy", env, n_steps=num_nodes, seed=args.seed, **settings)
        for name, env in make_envs(args).items()
    }
    num_steps = args.lanes * num_nodes * args.episodes
    times: dict[str, list[float]] = {name: [] for name in models}
    for _ in range(args.repeats):
        for name, model in models.items():
            started = time.perf_counter()
            model.learn(num_steps)
            times[name].append(time.perf_counter() - started)
    return {name: num_steps / statistics.median(seconds) for name, seconds in times.items()}


def main(args: Args) -> Figures:
    """Measure, print a table, and write the figures."""
    torch.set_num_threads(1)
    dummy, native = rows = measure(args)
    learn = measure_learn(args)
    for row in rows:
        row["learn_steps_per_second"] = learn[row["env"]]
    times = {key: native[key] / dummy[key] for key in KEYS}
    about = {"stable-baselines3": sb3_version}
    figures = {"sb3": rows, "times_dummy": times}
    return finish(args, figures, speed_tables.integrations(figures), about=about)


if __name__ == "__main__":
    command_line(main, Args, __doc__, stopped="stopped; nothing is written")
