"""Policies for the dynamic VRPTW on held-out days, relative to greedy; and the speed of the vector environment.

    python benchmarks/dynamic/dispatch_policies.py --learned runs/imitation runs/fenchel-young runs/ppo
    python benchmarks/dynamic/dispatch_policies.py --learned ... --static ../shared/ortec   # days of files, too

Every policy plays the same days with the same router: PyVRP, with the same number of iterations in every epoch. Writes
figures, and a picture beside them. Each setting and policy has its own file in `--folder`, which is written when its
days are complete; it is not measured again.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from matplotlib.figure import Figure

import routing_gym  # noqa: F401  # registers the environment
from benchmarks.output import OUT, Figures, finish, save_picture
from routing_agents.dispatch.evaluation import hindsight, simple_policies, versus
from routing_agents.dispatch.policy import load_policy
from routing_agents.runs import EVALUATION_STREAM, stream
from routing_agents.terminal import command_line
from routing_gym.dynamic import GeneratedDays, ResampledDays, policies, read_static
from routing_gym.dynamic.days import DaySource
from routing_gym.dynamic.solver import Limits, PyVRPRouter
from routing_gym.files import write_atomically

ROOT = Path(__file__).parents[2]
HELD_OUT_SEED = 10**6  # no training uses this seed
DEFAULT = "default"
SETTINGS: dict[str, dict[str, Any]] = {
    DEFAULT: {},
    "6 requests an epoch": {"requests": 6.0},
    "24 requests an epoch": {"requests": 24.0},
    "half-hour windows": {"window": 0.5},
    "two-hour windows": {"window": 2.0},
    "capacity 25": {"capacity": 25},
    "capacity 100": {"capacity": 100},
}
COLOURS = ("#332288", "#CC6677", "#117733", "#DDAA33", "#88CCEE", "#882255", "#44AA99", "#AA4499", "#999933")


@dataclass(frozen=True)
class Args:
    """Arguments of the benchmark."""

    learned: tuple[Path, ...] = ()
    """Folders of runs of agents/dispatch.py, named like the policies in the table."""
    static: Path | None = None
    """Folder of VRPLIB files with explicit durations."""
    settings: tuple[str, ...] = tuple(SETTINGS)
    """Settings to measure where they are missing."""
    days: int = 100
    """Days of the default setting."""
    fewer_days: int = 30
    """Days of each other setting, and of all files together."""
    requests: float = 12.0
    """Mean number of requests in an epoch, where the setting does not change it."""
    candidates: int = 20
    """Candidates in an epoch of the files; the competition's 100 take five times as long and more."""
    router_iterations: int = 100
    """Iterations of PyVRP in each epoch."""
    scenario_iterations: int = 60
    """Iterations of PyVRP in each scenario."""
    oracle_iterations: int = 3000
    """Iterations of PyVRP for a day in hindsight."""
    lanes: int = 1024
    """Lanes of the vector environment whose speed is measured."""
    threads: int = 1
    """CPU threads."""
    folder: Path = ROOT / "runs" / "dispatch-policies"
    """Where complete measurements lie."""
    out: Path = OUT / "dispatch.json"
    """Where the figures go. The docs show those in benchmarks/results."""


def sources(args: Args) -> dict[str, tuple[list[DaySource], int]]:
    """Return the sources of days of each setting, and the number of its days."""
    found: dict[str, tuple[list[DaySource], int]] = {}
    for name in args.settings:
        days = args.days if name == DEFAULT else args.fewer_days
        found[name] = ([GeneratedDays(**{"requests": args.requests, **SETTINGS[name]})], days)
    if args.static is not None:
        files = sorted(args.static.glob("*.txt"))
        resampled: list[DaySource] = [ResampledDays(read_static(file), max_requests=args.candidates) for file in files]
        found["files"] = resampled, args.fewer_days
    return found


def measure(args: Args, setting: str, days_from: list[DaySource], count: int) -> dict[str, Any]:
    """Return the driving durations of all policies on one setting, int64 (count,) by name."""
    router = PyVRPRouter(Limits(seconds=None, iterations=args.router_iterations))
    limits = Limits(seconds=None, iterations=args.scenario_iterations)
    learned = {path.name: load_policy(path, router.limits) for path in args.learned}
    costs: dict[str, Any] = {}
    for name in (*simple_policies(), *learned, "scenario sampling", "hindsight"):
        file = args.folder / f"{setting}-{name}.json".replace(" ", "_")
        if not file.exists():
            total: list[int] = []
            for number, source in enumerate(days_from):
                share = len(range(number, count, len(days_from)))
                day = source.draw(stream(HELD_OUT_SEED, EVALUATION_STREAM, number).spawn(share))
                every = simple_policies() | learned | {"scenario sampling": policies.ScenarioSampling(source, limits)}
                if name == "hindsight":
                    found = hindsight(day, Limits(seconds=None, iterations=args.oracle_iterations))
                else:
                    found = policies.play(day, every[name], router, np.random.default_rng(0))
                total += found.tolist()
            write_atomically(file, json.dumps(total).encode())
        costs[name] = np.array(json.loads(file.read_text()))
        print(f"{setting:<24}{name:<20}{versus(costs[name], costs['greedy'])[0]:+8.2f} %", flush=True)
    return costs


def speed(args: Args) -> Figures:
    """Measure the steps per second of the vector environment and of a single one; all requests are dispatched."""
    lanes = gym.make_vec("routing/DVRPTW", num_envs=args.lanes)
    observation, _ = lanes.reset(seed=0)
    steps, seconds = 21, 0.0  # three days and their resets
    for _ in range(steps):
        actions = (observation["action_mask"] > 0).astype(np.int8)
        started = time.perf_counter()
        observation, *_ = lanes.step(actions)
        seconds += time.perf_counter() - started
    vector = steps * args.lanes / seconds
    single = gym.make("routing/DVRPTW")
    observation, _ = single.reset(seed=0)
    steps, seconds = 700, 0.0
    for _ in range(steps):
        action = (observation["action_mask"] > 0).astype(np.int8)
        started = time.perf_counter()
        observation, _, terminated, *_ = single.step(action)
        if terminated:
            observation, _ = single.reset()
        seconds += time.perf_counter() - started
    return {"lanes_per_second": round(vector), "single_per_second": round(steps / seconds)}


def draw(figures: dict[str, dict[str, Any]], out: Path) -> None:
    """Draw the policies' durations relative to greedy, by setting, with their intervals."""
    figure = Figure(figsize=(9, 4.5), layout="constrained")
    axes = figure.add_subplot()
    names = [name for name in next(iter(figures.values())) if name != "greedy"]
    for number, name in enumerate(names):
        x = np.arange(len(figures)) + 0.8 * (number / len(names) - 0.5)
        means = [setting[name]["versus_greedy"] for setting in figures.values()]
        halves = [setting[name]["interval"] for setting in figures.values()]
        axes.bar(x, means, 0.8 / len(names), yerr=halves, label=name, color=COLOURS[number % len(COLOURS)])
    axes.set_xticks(np.arange(len(figures)), [name.replace(" ", "\n") for name in figures], fontsize=8)
    axes.axhline(0, color="#222222", lw=0.8)
    axes.set_ylabel("driving duration relative to greedy, %")
    axes.legend(fontsize=7, ncols=4)
    save_picture(figure, out, "research/dispatch.png")


def main(args: Args) -> Figures:
    """Measure the missing days; draw and write the figures of all settings in `args`."""
    torch.set_num_threads(args.threads)
    args.folder.mkdir(parents=True, exist_ok=True)
    results: dict[str, dict[str, Any]] = {}
    for setting, (days_from, count) in sources(args).items():
        costs = measure(args, setting, days_from, count)
        results[setting] = {}
        for name, cost in costs.items():
            mean, half = versus(cost, costs["greedy"])
            results[setting][name] = {
                "duration": round(float(cost.mean())),
                "versus_greedy": round(mean, 2),
                "interval": round(half, 2),
                "days": len(cost),
            }
    draw(results, args.out)
    return finish(args, {"settings": results, "speed": speed(args)}, about={"busy": "other programs ran beside it"})


if __name__ == "__main__":
    command_line(main, Args, __doc__)
