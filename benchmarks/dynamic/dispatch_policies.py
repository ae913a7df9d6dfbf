"""Policies for the dynamic VRPTW on held-out days, relative to greedy; and the speed of the vector environment.

    python benchmarks/dynamic/dispatch_policies.py --learned runs/imitation runs/fenchel-young runs/ppo
    python benchmarks/dynamic/dispatch_policies.py --learned ... --static ortec             # days of files, too

Every policy plays the same days with the same router: PyVRP, with the same number of iterations in every epoch. Writes
figures, and a picture beside them. Each setting and policy has its own file in `--folder`, which is written when its
days are complete; it is not measured again with the same settings and weights.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from matplotlib.figure import Figure

import routing_gym  # noqa: F401  # registers the environment
from benchmarks.output import OUT, Figures, finish, keep, read_kept, save_picture
from routing_agents.dispatch.evaluation import hindsight, simple_policies, versus
from routing_agents.dispatch.policy import Learned, load_policy
from routing_agents.evaluation.methods import weights_digest
from routing_agents.runs import EVALUATION_STREAM, check_integers, check_numbers, stream
from routing_agents.terminal import command_line
from routing_gym.dynamic import GeneratedDays, ResampledDays, policies, read_static
from routing_gym.dynamic.days import DaySource
from routing_gym.dynamic.solver import Limits, PyVRPRouter

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

    def __post_init__(self) -> None:
        check_integers(self, "days", "fewer_days", "candidates", "lanes", "threads")
        check_integers(self, "router_iterations", "scenario_iterations", "oracle_iterations")
        check_numbers(self, "requests")
        if unknown := set(self.settings) - SETTINGS.keys():
            raise ValueError(f"--settings: unknown {', '.join(sorted(unknown))}; choose from {', '.join(SETTINGS)}")
        if not self.settings and self.static is None:
            raise ValueError(f"--settings: name at least one of {', '.join(SETTINGS)}, or give --static")
        if len({path.name for path in self.learned}) < len(self.learned):
            raise ValueError("--learned: two folders have the same name, by which the table shows them; rename one")

    @property
    def files(self) -> list[Path]:
        """Files of `static`."""
        return [] if self.static is None else sorted(self.static.glob("*.txt"))

    @property
    def digests(self) -> dict[str, str]:
        """Digests of the learned policies' weights by name."""
        return {path.name: weights_digest(path) for path in self.learned}


def sources(args: Args) -> dict[str, tuple[list[DaySource], int]]:
    """Return the sources of days of each setting, and the number of its days.

    Raises:
        ValueError: The folder of `--static` has no files.
    """
    if args.static is not None and not args.files:
        raise ValueError(f"--static {args.static}: no .txt files in it; name a folder of VRPLIB files")
    found: dict[str, tuple[list[DaySource], int]] = {}
    for name in args.settings:
        days = args.days if name == DEFAULT else args.fewer_days
        found[name] = ([GeneratedDays(**{"requests": args.requests, **SETTINGS[name]})], days)
    if args.static is not None:
        files = args.files[: args.fewer_days]
        resampled: list[DaySource] = [ResampledDays(read_static(file), max_requests=args.candidates) for file in files]
        found["files"] = resampled, args.fewer_days
    return found


@dataclass(frozen=True)
class Measurement:
    """The days of one setting, played by one policy.

    Attributes:
        args: Arguments of the benchmark.
        setting: Name of the setting.
        days_from: Sources of its days.
        count: Number of days.
        policy: Name of the policy.
        learned: Learned policies by name.
    """

    args: Args
    setting: str
    days_from: list[DaySource]
    count: int
    policy: str
    learned: dict[str, Learned]

    @property
    def file(self) -> Path:
        """File in which the days are kept."""
        return self.args.folder / f"{self.setting}-{self.policy}.json".replace(" ", "_")

    @property
    def settings(self) -> Figures:
        """Settings that the durations depend on."""
        found: Figures = {"days": self.count, "sources": [about(source) for source in self.days_from]}
        if self.policy == "hindsight":
            return found | {"oracle_iterations": self.args.oracle_iterations}
        if self.policy == "scenario sampling":
            found["scenario_iterations"] = self.args.scenario_iterations
        if self.policy in self.learned:
            found["weights"] = self.args.digests[self.policy]
        return found | {"router_iterations": self.args.router_iterations}

    def durations(self) -> list[int]:
        """Play the days; return their driving durations."""
        total: list[int] = []
        for number, source in enumerate(self.days_from):
            share = len(range(number, self.count, len(self.days_from)))
            day = source.draw(stream(HELD_OUT_SEED, EVALUATION_STREAM, number).spawn(share))
            if self.policy == "hindsight":
                found = hindsight(day, limits(self.args.oracle_iterations))
            else:
                sampling = policies.ScenarioSampling(source, limits(self.args.scenario_iterations))
                policy = (simple_policies() | self.learned | {"scenario sampling": sampling})[self.policy]
                router = PyVRPRouter(limits(self.args.router_iterations))
                found = policies.play(day, policy, router, np.random.default_rng(0))
            total += found.tolist()
        return total


def limits(iterations: int) -> Limits:
    """Return the limits of a search that stops after its iterations."""
    return Limits(seconds=None, iterations=iterations)


def about(source: DaySource) -> Figures:
    """Return the settings of a source; a file has its name."""
    if isinstance(source, ResampledDays):
        return {"file": source.static.name, "candidates": source.max_requests}
    return asdict(source)  # type: ignore[call-overload]


def measurements(args: Args) -> list[Measurement]:
    """List the measurements, setting by setting.

    Raises:
        ValueError: The folder holds some that were made with other settings.
    """
    learned = {path.name: load_policy(path, limits(args.router_iterations)) for path in args.learned}
    names = (*simple_policies(), *learned, "scenario sampling", "hindsight")
    found = [
        Measurement(args, setting, *days, name, learned) for setting, days in sources(args).items() for name in names
    ]
    for one in found:
        read_kept(one.file, one.settings)
    return found


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
    results: dict[str, dict[str, Any]] = {}
    greedy = np.zeros(0)
    for one in measurements(args):
        kept = read_kept(one.file, one.settings) or keep(one.file, one.settings, {"durations": one.durations()})
        cost = np.array(kept["durations"])
        greedy = cost if one.policy == "greedy" else greedy  # the first policy of each setting
        mean, half = versus(cost, greedy)
        print(f"{one.setting:<24}{one.policy:<20}{mean:+8.2f} %", flush=True)
        results.setdefault(one.setting, {})[one.policy] = {
            "duration": round(float(cost.mean())),
            "versus_greedy": round(mean, 2),
            "interval": round(half, 2),
            "days": len(cost),
        }
    draw(results, args.out)
    given = {"learned": args.digests, "files": [file.name for file in args.files]}
    figures = {**given, "settings": results, "speed": speed(args)}
    return finish(args, figures)


if __name__ == "__main__":
    command_line(main, Args, __doc__)
