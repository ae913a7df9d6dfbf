"""Time in which each way of training the attention model reaches a given gap, on the same machine and instances.

    python benchmarks/training/time_to_quality.py --rl4co-python VENV/bin/python    # writes figures and a plot

Runs agents/am_reinforce.py with its defaults, with the paper's optimiser and with the paper's baseline, and
agents/ppo.py, one after the other on all cores (`taskset` gives fewer), and reads from their logs the greedy gap to the
optimum on the same held-out instances. rl4co (0.7.0) runs in its own virtual environment; see
benchmarks/peers/rl4co_time_to_quality.py. Time is measured from the first training step. It includes the evaluation on
the held-out instances, for all of them, but not imports and set-up. Each curve is kept in --runs when it is finished,
and not measured again; delete that folder to measure them again. The published runs took 40 minutes on two cores.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from matplotlib.figure import Figure

from benchmarks import speed_tables
from benchmarks.hardware import describe_machine
from benchmarks.output import OUT, Figures, finish, save_picture
from benchmarks.worker_process import WorkerError, check_python
from routing_agents.runs import check_integers, check_numbers, held_out_instances, reference_cost
from routing_agents.terminal import command_line
from routing_gym.arrays import to_backend

ROOT = Path(__file__).parents[2]

NETWORK = "--no-nearness"  # the paper's network, which is also rl4co's
ADAM = f"{NETWORK} --optimizer adam --decay 0.3333333333333333"
TARGETS = (0.05, 0.03, 0.02, 0.01)
Curve = dict[str, Any]  # label, command, seed, and per evaluation: seconds, instances, gap


@dataclass(frozen=True)
class Args:
    """Arguments of the benchmark."""

    commands: tuple[str, ...] = (
        f"REINFORCE, shared baseline: am_reinforce.py {NETWORK}",
        f"REINFORCE, shared baseline, Adam: am_reinforce.py {ADAM} --epochs 26",
        f"REINFORCE, rollout baseline, Adam: am_reinforce.py {ADAM} --baseline rollout --epochs 9",
        "PPO: ppo.py --epochs 10",
    )
    """LABEL: SCRIPT ARGUMENTS, scripts in agents/; the first is the default run, the others are as long as it takes
    to see where they go."""
    env_id: str = "routing/TSP-20"
    """A TSP, for the gap needs a quick exact solver."""
    seeds: tuple[int, ...] = (1,)
    """Runs of each command; medians count."""
    threads: int = os.cpu_count() or 1
    """CPU threads of rl4co."""
    held_out: int = 1_000
    """Instances on which the gap is measured."""
    rl4co_python: Path | None = None
    """Interpreter of a virtual environment with rl4co; without one rl4co is left out."""
    rl4co_seconds: float = 300.0
    """Length of rl4co's run, which has no end of its own."""
    runs: Path = ROOT / "runs" / "time-to-quality"
    """Where run folders and finished curves are kept."""
    out: Path = OUT / "time_to_quality.json"
    """Where the figures go. The docs show those in benchmarks/results."""

    def __post_init__(self) -> None:
        check_integers(self, "threads", "held_out")
        check_integers(self, "seeds", least=0)
        check_numbers(self, "rl4co_seconds")
        for command in self.commands:
            if not all(part.strip() for part in command.partition(":")):
                raise ValueError(f"--commands: expected LABEL: SCRIPT ARGUMENTS, got {command!r}")


def read_metrics(path: Path) -> Curve:
    """Read the gap over time from a run's log; the seconds of an epoch are its instances divided by their rate."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    instances = [row["instances"] for row in rows]
    rates = [row["instances_per_second"] for row in rows]
    seconds = np.cumsum(np.diff(instances, prepend=0) / np.array(rates))
    return {"seconds": seconds.tolist(), "instances": instances, "gap": [row["gap"] for row in rows]}


def run_script(args: Args, command: str, seed: int) -> Curve:
    """Train with one of our scripts."""
    script, *arguments = shlex.split(command)
    name = f"run-{len(list(args.runs.glob('run-*'))) + 1}"
    common = {"env-id": args.env_id, "seed": seed, "held-out": args.held_out}
    common |= {"runs": args.runs, "name": name}
    options = [text for key, value in common.items() for text in (f"--{key}", str(value))]
    subprocess.run([sys.executable, ROOT / "agents" / script, *arguments, *options], check=True)
    return read_metrics(args.runs / name / "metrics.jsonl")


def run_rl4co(args: Args, problem: Any, held_out: Any, reference: float, seed: int) -> Curve:
    """Train with rl4co in its own environment, and rescore its tours by our rules."""
    instances, played = args.runs / "held_out.npz", args.runs / f"rl4co-{seed}.npz"
    np.savez(instances, coords=held_out.coords)
    script = ROOT / "benchmarks" / "peers" / "rl4co_time_to_quality.py"
    options = ["--seconds", str(args.rl4co_seconds), "--threads", str(args.threads), "--seed", str(seed)]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    subprocess.run(
        [args.rl4co_python.absolute(), script, instances.resolve(), played.resolve(), *options],
        check=True,
        env=environment,
        cwd=args.runs,
    )
    curve = np.load(played)
    costs = [float(problem.objective(held_out, actions).mean()) for actions in curve["actions"]]
    return {
        "seconds": curve["seconds"].tolist(),
        "instances": curve["instances"].tolist(),
        "gap": [cost / reference - 1 for cost in costs],
        "settings": json.loads(str(curve["settings"])),
    }


def measure(args: Args) -> list[Curve]:
    """Return all curves; those that were finished before are read from disk.

    Raises:
        WorkerError: `--rl4co-python` cannot be run.
        ValueError: The problem has no exact solver.
    """
    if args.rl4co_python is not None:
        check_python("rl4co", args.rl4co_python)
    problem = gym.make(args.env_id, disable_env_checker=True).unwrapped.problem
    held_out = held_out_instances(problem, args.held_out)
    args.runs.mkdir(parents=True, exist_ok=True)
    reference = reference_cost(problem, to_backend(held_out, "torch"), args.runs / ".references")
    if reference is None:
        raise ValueError(f"--env-id {args.env_id}: the gap needs a TSP and its solver, pip install fast-tsp")
    commands = [tuple(part.strip() for part in command.split(":", 1)) for command in args.commands]
    if args.rl4co_python is not None:
        commands.append(("rl4co, rollout baseline", f"rl4co --seconds {args.rl4co_seconds}"))
    curves = []
    for seed in args.seeds:
        for label, command in commands:
            key = {"label": label, "command": command, "seed": seed}
            key |= {"threads": args.threads, "env_id": args.env_id, "held_out": args.held_out}
            path = args.runs / f"{label}, seed {seed}.json"
            curve = json.loads(path.read_text()) if path.exists() else None
            if curve is None or any(curve.get(name) != value for name, value in key.items()):
                ours = not command.startswith("rl4co ")
                measured = (
                    run_script(args, command, seed) if ours else run_rl4co(args, problem, held_out, reference, seed)
                )
                curve = {**key, "machine": describe_machine(), **measured}
                path.write_text(json.dumps(curve) + "\n")
            curves.append(curve)
    return curves


def seconds_to(curve: Curve, target: float) -> float:
    """Return the time of the first evaluation with a gap of at most `target`, infinity if there is none."""
    return next((s for s, gap in zip(curve["seconds"], curve["gap"], strict=True) if gap <= target), float("inf"))


def summary(curves: list[Curve]) -> list[dict[str, Any]]:
    """Return the seconds to each target, the final gap and the total seconds, as medians over the seeds."""
    rows = []
    for label in dict.fromkeys(curve["label"] for curve in curves):
        mine = [curve for curve in curves if curve["label"] == label]
        seconds = [float(np.median([seconds_to(curve, target) for curve in mine])) for target in TARGETS]
        end = float(np.median([curve["gap"][-1] for curve in mine]))
        after = float(np.median([curve["seconds"][-1] for curve in mine]))
        reached = {f"{target:.0%}": s if np.isfinite(s) else None for target, s in zip(TARGETS, seconds, strict=True)}
        rows.append({"label": label, "seconds_to": reached, "final_gap": end, "seconds": after})
    return rows


def draw(curves: list[Curve], args: Args) -> None:
    """Plot gap against time, both on logarithmic scales."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    problem = args.env_id.removeprefix("routing/")
    title = f"{problem}, {args.threads} CPU cores"
    axes = figure.add_subplot(xlabel="training time [s]", ylabel="greedy gap to the optimum [%]", title=title)
    labels = list(dict.fromkeys(curve["label"] for curve in curves))
    for curve in curves:
        color = f"C{labels.index(curve['label'])}"
        first = curve is next(other for other in curves if other["label"] == curve["label"])
        axes.plot(
            curve["seconds"],
            [100 * gap for gap in curve["gap"]],
            color=color,
            label=curve["label"] if first else None,
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    for target in TARGETS:
        axes.axhline(100 * target, color="black", linewidth=0.5, linestyle=":")
    axes.set_yticks([100 * target for target in TARGETS], [f"{target:.0%}" for target in TARGETS])
    axes.legend()
    save_picture(figure, args.out, "time_to_quality.png", dpi=120)


def main(args: Args) -> Figures:
    """Measure, print a table, draw the plot and write the figures."""
    curves = measure(args)
    rows = summary(curves)
    draw(curves, args)
    figures = {"table": rows, "curves": curves}
    return finish(args, figures, speed_tables.time_to_quality(figures))


if __name__ == "__main__":
    command_line(main, Args, __doc__, (subprocess.CalledProcessError, WorkerError))
