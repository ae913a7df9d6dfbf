"""Environment steps per second: the native vector environment against Gymnasium's SyncVectorEnv.

    python benchmarks/environments/env_throughput.py

Both play the same problem with the same rules and seeds, in one process on one thread, in turn, several times; medians
are reported. Lanes are reset automatically (NEXT_STEP), so the time to draw instances is included. A step in which a
lane is reset counts as a step, in both environments. Actions come from a policy that draws uniformly among the legal
ones; its time is not included. The transition alone, `Problem.step` and `Problem.action_mask`, is also measured, on one
batch of instances.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from rich.table import Table

from benchmarks import speed_tables
from benchmarks.arguments import check_problems
from benchmarks.output import OUT, Figures, finish
from routing_agents.runs import check_integers
from routing_agents.terminal import command_line
from routing_gym.arrays import Array, converter, to_backend, to_numpy
from routing_gym.envs.arguments import draw_instances
from routing_gym.sampling import sample_actions


@dataclass(frozen=True)
class Args:
    """Arguments of the benchmark."""

    problems: tuple[str, ...] = ("TSP-50", "CVRP-50")
    """What to step, as in the ids after "routing/"."""
    lanes: tuple[int, ...] = (1, 64, 1024, 8192)
    """Numbers of lanes."""
    most_sync_lanes: int = 1024
    """SyncVectorEnv runs up to this many."""
    repeats: int = 5
    """Runs of each configuration, in turn with the others; the median counts."""
    work: int = 2048
    """Lanes x episodes of a run; at least 2 and at most 10 episodes."""
    seed: int = 0
    """Random seed for instances and actions."""
    out: Path = OUT / "env_throughput.json"
    """Where the figures go. The docs show those in benchmarks/results."""

    def __post_init__(self) -> None:
        check_problems(*self.problems)
        check_integers(self, "lanes", "most_sync_lanes", "repeats", "work")


@dataclass(frozen=True)
class Configuration:
    """One row of the table."""

    problem: str
    lanes: int
    kind: str
    """"native", "sync" or "transition"."""
    backend: str = "numpy"
    copy: bool = True


def configurations(args: Args, problem: str, lanes: int) -> list[Configuration]:
    """Return the configurations that are measured in turn for one problem and number of lanes."""
    sync = [Configuration(problem, lanes, "sync")] if lanes <= args.most_sync_lanes else []
    native = [
        Configuration(problem, lanes, "native", backend, copy)
        for backend in ("numpy", "torch")
        for copy in (True, False)
    ]
    bare = [Configuration(problem, lanes, "transition", backend) for backend in ("numpy", "torch")]
    return [*sync, *native, *bare]


def random_legal(rng: np.random.Generator, mask: Array) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Draw uniformly among the legal actions of each row, as NumPy."""
    return to_numpy(sample_actions(mask, rng))


def make_run(args: Args, configuration: Configuration) -> Callable[[int], float]:
    """Prepare a configuration; return a function that runs a number of steps and returns their seconds."""
    rng = np.random.default_rng(args.seed)
    if configuration.kind == "transition":
        return transition_run(rng, configuration)
    native = configuration.kind == "native"
    keywords: Figures = {"backend": configuration.backend, "copy": configuration.copy} if native else {}
    mode = "vector_entry_point" if native else "sync"
    env = gym.make_vec(
        f"routing_gym:routing/{configuration.problem}", configuration.lanes, vectorization_mode=mode, **keywords
    )
    observation, _ = env.reset(seed=args.seed)
    move = converter(configuration.backend)

    def run(num_steps: int) -> float:
        nonlocal observation
        seconds = 0.0
        for _ in range(num_steps):
            actions = move(random_legal(rng, observation["action_mask"]))
            started = time.perf_counter()
            observation, *_ = env.step(actions)
            seconds += time.perf_counter() - started
        return seconds

    return run


def transition_run(rng: np.random.Generator, configuration: Configuration) -> Callable[[int], float]:
    """Prepare `Problem.step` and `Problem.action_mask` alone, like `make_run`; the instances are always the same."""
    problem = gym.make(f"routing_gym:routing/{configuration.problem}").unwrapped.problem  # type: ignore[attr-defined]
    instance = to_backend(problem.generate(rng, configuration.lanes), configuration.backend)
    move = converter(configuration.backend)

    def run(num_steps: int) -> float:
        seconds = 0.0
        for step in range(num_steps):
            if step % problem.num_nodes == 0:
                state = problem.initial(instance)
                mask = problem.action_mask(instance, state)
            actions = move(random_legal(rng, mask))
            started = time.perf_counter()
            state, _ = problem.step(instance, state, actions)
            mask = problem.action_mask(instance, state)
            seconds += time.perf_counter() - started
        return seconds

    return run


def measure(args: Args, problem: str, lanes: int) -> list[Figures]:
    """Measure all configurations of one problem and number of lanes, in turn."""
    num_nodes = int(problem.split("-")[1])
    num_steps = (num_nodes + 1) * min(10, max(2, args.work // lanes))
    runs = [(configuration, make_run(args, configuration)) for configuration in configurations(args, problem, lanes)]
    for _, run in runs:
        run(num_nodes + 1)  # not timed
    seconds: dict[Configuration, list[float]] = {configuration: [] for configuration, _ in runs}
    for _ in range(args.repeats):
        for configuration, run in runs:
            seconds[configuration].append(run(num_steps))
    return [
        {
            **asdict(configuration),
            "steps_per_second": lanes * num_steps / statistics.median(times),
            "microseconds_per_call": 1e6 * statistics.median(times) / num_steps,
            "slowest_over_fastest": max(times) / min(times),
        }
        for configuration, times in seconds.items()
    ]


def generation_time(args: Args, problem: str, lanes: int) -> float:
    """Return the microseconds to draw one instance for every lane."""
    rules = gym.make(f"routing_gym:routing/{problem}").unwrapped.problem  # type: ignore[attr-defined]
    generators = [np.random.default_rng(args.seed + lane) for lane in range(lanes)]
    times = []
    for _ in range(args.repeats):
        started = time.perf_counter()
        draw_instances(rules, generators, None)
        times.append(time.perf_counter() - started)
    return 1e6 * statistics.median(times)


def breakdown(args: Args, rows: list[Figures], problem: str, lanes: int) -> Figures:
    """Measure the parts of a NumPy step, in microseconds per call for all lanes together."""
    time_of = {(row["kind"], row["copy"]): row["microseconds_per_call"] for row in rows if row["backend"] == "numpy"}
    num_nodes = int(problem.split("-")[1])
    parts = {
        "step and mask": time_of["transition", True],
        "instances": generation_time(args, problem, lanes) / (num_nodes + 1),
        "copies": time_of["native", True] - time_of["native", False],
    }
    rest = time_of["native", True] - sum(parts.values())
    return {"problem": problem, "lanes": lanes, "all": time_of["native", True], **parts, "bookkeeping": rest}


def parts(shares: list[Figures]) -> Table:
    """Return a table of the parts of a step's time."""
    table = Table(*shares[0], title="Where the time goes: microseconds per call, NumPy, copies on")
    for row in shares:
        table.add_row(*(f"{value:.0f}" if isinstance(value, float) else str(value) for value in row.values()))
    return table


def main(args: Args) -> Figures:
    """Measure, print tables, and write the figures."""
    torch.set_num_threads(1)
    rows, shares = [], []
    for problem in args.problems:
        for lanes in args.lanes:
            measured = measure(args, problem, lanes)
            sync = next((row["steps_per_second"] for row in measured if row["kind"] == "sync"), None)
            for row in measured:
                row["times_sync"] = row["steps_per_second"] / sync if sync and row["kind"] == "native" else None
            rows += measured
            shares.append(breakdown(args, measured, problem, lanes))
            figures = {"rows": rows, "breakdown": shares}
            finish(args, figures)
    return finish(args, figures, speed_tables.env_throughput(figures), parts(shares))


if __name__ == "__main__":
    command_line(main, Args, __doc__)
