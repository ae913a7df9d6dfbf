"""Agent-steps per second of the game: the batched environment against a loop over PettingZoo environments.

    python benchmarks/multi_agent/game_throughput.py
    python benchmarks/multi_agent/game_throughput.py --peers vmas jaxmarl  # from environments of their own:
    python3 -m venv .venv-vmas && .venv-vmas/bin/pip install -r benchmarks/peers/requirements-vmas.txt
    python3 -m venv .venv-jaxmarl && .venv-jaxmarl/bin/pip install -r benchmarks/peers/requirements-jaxmarl.txt

Both play the same game with the same rules and seeds, in one process on one thread, in turn, several times; medians
are reported. Lanes are reset automatically, or as soon as they end, so the time to draw instances is included. Every
step returns observations, masks and rewards of all agents. Actions are drawn beforehand from all actions, so their
time is not included. One step of one lane is m agent-steps.

VMAS and JaxMARL lack this game. Their `simple_spread` is measured instead: as many vehicles, which drive to as many
landmarks, under the same conditions, each library in its own process. It simulates physics, with collisions. In
JaxMARL, all steps of a game are one compiled call, which only a policy written in JAX can use.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Literal

import numpy as np

from benchmarks.multi_agent import multi_agent_tables
from benchmarks.output import OUT, Figures, finish
from benchmarks.worker_process import ONE_THREAD, WorkerError, WorkerProcess, start
from routing_agents.runs import check_integers
from routing_agents.terminal import command_line
from routing_gym import CompetitiveOP
from routing_gym.integrations.pettingzoo import GameParallelEnv
from routing_gym.multi_agent.environments import GameVectorEnv

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Args:
    """Arguments of the benchmark."""

    agents: tuple[int, ...] = (2, 8, 32)
    """Numbers of vehicles."""
    lanes: tuple[int, ...] = (256, 1024)
    """Numbers of games side by side."""
    loop_lanes: int = 256
    """Number of lanes of the loop over single environments."""
    repeats: int = 5
    """Runs of each configuration, in turn with the others; the median counts."""
    games: int = 2
    """Whole games in a run of the batched environment."""
    seed: int = 0
    """Random seed for instances and actions."""
    peers: tuple[Literal["vmas", "jaxmarl"], ...] = ()
    """Whom to measure beside ours."""
    vmas_python: Path = ROOT / ".venv-vmas" / "bin" / "python"
    """Python of the virtual environment with VMAS."""
    jaxmarl_python: Path = ROOT / ".venv-jaxmarl" / "bin" / "python"
    """Python of the virtual environment with JaxMARL."""
    out: Path = OUT / "game_throughput.json"
    """Where the figures go. The docs show those in benchmarks/results."""

    def __post_init__(self) -> None:
        check_integers(self, "agents", "lanes", "loop_lanes", "repeats", "games")
        check_integers(self, "seed", least=0)


def batched_run(game: CompetitiveOP, lanes: int, seed: int) -> Callable[[int], float]:
    """Prepare the batched environment; return a function that runs a number of steps and returns their seconds."""
    env = GameVectorEnv(game, lanes, autoreset_mode="SameStep", copy=False)
    env.reset(seed=seed)
    actions = np.random.default_rng(seed).integers(0, game.num_actions or 0, (16, lanes, game.num_agents))

    def run(num_steps: int) -> float:
        started = time.perf_counter()
        for step in range(num_steps):
            env.step(actions[step % len(actions)])
        return time.perf_counter() - started

    return run


def loop_run(game: CompetitiveOP, lanes: int, seed: int) -> Callable[[int], float]:
    """Prepare a loop over PettingZoo environments, like `batched_run`."""
    envs = [GameParallelEnv(game) for _ in range(lanes)]
    for lane, env in enumerate(envs):
        env.reset(seed=seed + lane)
    drawn = np.random.default_rng(seed).integers(0, game.num_actions or 0, (16, lanes, game.num_agents))
    actions = [[dict(zip(envs[0].possible_agents, row, strict=True)) for row in step] for step in drawn.tolist()]

    def run(num_steps: int) -> float:
        started = time.perf_counter()
        for step in range(num_steps):
            for env, action in zip(envs, actions[step % len(actions)], strict=True):
                env.step(action)
                if not env.agents:
                    env.reset()
        return time.perf_counter() - started

    return run


def peer_run(worker: WorkerProcess, num_agents: int, lanes: int, seed: int) -> Callable[[int], float]:
    """Prepare another library in its own process, like `batched_run`; seconds are scaled to the number of steps."""
    settings = {"problem": "simple_spread", "num_nodes": num_agents, "lanes": lanes, "seed": seed, "seconds": 0.5}

    def run(num_steps: int) -> float:
        worker.do({"prepare": settings}, "ways")
        played = worker.do({"time": "games"}, "steps", "seconds")
        return num_steps * num_agents * lanes / float(played["steps"]) * float(played["seconds"])

    return run


def measure(args: Args, num_agents: int, workers: list[WorkerProcess]) -> list[Figures]:
    """Measure all configurations of one number of agents, in turn."""
    game = CompetitiveOP(num_agents)
    kinds = [("loop", args.loop_lanes), *(("batched", lanes) for lanes in args.lanes)]
    runs = {
        (kind, lanes): (loop_run if kind == "loop" else batched_run)(game, lanes, args.seed) for kind, lanes in kinds
    }
    for worker, lanes in product(workers, args.lanes):
        runs[worker.name, lanes] = peer_run(worker, num_agents, lanes, args.seed)
    steps = {key: game.num_ticks if key[0] == "loop" else game.num_ticks * args.games for key in runs}
    for key, run in runs.items():
        run(2 if key[0] == "loop" else steps[key])  # not timed
    seconds: dict[tuple[str, int], list[float]] = {key: [] for key in runs}
    for _ in range(args.repeats):
        for key, run in runs.items():
            seconds[key].append(run(steps[key]))
    rows = [
        {
            "agents": num_agents,
            "kind": kind,
            "lanes": lanes,
            "agent_steps_per_second": num_agents * lanes * steps[kind, lanes] / statistics.median(times),
            "slowest_over_fastest": max(times) / min(times),
        }
        for (kind, lanes), times in seconds.items()
    ]
    for row in rows:
        row["times_loop"] = float(row["agent_steps_per_second"]) / float(rows[0]["agent_steps_per_second"])
    return rows


def main(args: Args) -> Figures:
    """Measure, print a table, and write the figures."""
    with ExitStack() as resources:
        workers = [
            resources.enter_context(start(name, f"{name}_worker.py", getattr(args, f"{name}_python"), **ONE_THREAD))
            for name in args.peers
        ]
        rows = [row for num_agents in args.agents for row in measure(args, num_agents, workers)]
        peers = {worker.name: worker.versions for worker in workers}
    figures = {"rows": rows}
    return finish(args, figures, multi_agent_tables.game_throughput(figures), about={"peers": peers})


if __name__ == "__main__":
    command_line(main, Args, __doc__, (WorkerError,), stopped="stopped; nothing is written")
