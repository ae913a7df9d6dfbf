"""Learning curves of Stable-Baselines3's PPO, which does not use masks, beside those of sb3-contrib's MaskablePPO.

    python benchmarks/training/plain_ppo.py                                 # all four problems, two hours
    python benchmarks/training/plain_ppo.py --curves PPO/TSP-20 MaskablePPO/TSP-20

Writes figures and a picture of all curves in `--folder`. Each curve has its own file there, which is written when the
curve is complete; it is not measured again.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from sb3_contrib import MaskablePPO
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback

from benchmarks.output import OUT, Figures, check_kept, finish, keep, read_kept, save_picture
from routing_agents.runs import check_integers
from routing_agents.terminal import command_line
from routing_gym.integrations.sb3 import RoutingVecEnv

ROOT = Path(__file__).parents[2]
ALGORITHMS: dict[str, Any] = {"PPO": PPO, "MaskablePPO": MaskablePPO}
STEPS = {"TSP-20": 300_000, "CVRP-20": 600_000, "OP-20": 600_000, "TSP-50": 2_000_000}  # the curves' lengths
HELD_OUT_SEED = 10**6
SETTINGS = {"n_steps": 128, "batch_size": 512, "gamma": 1.0}  # the rest are the library's defaults


@dataclass(frozen=True)
class Args:
    """Arguments of the benchmark."""

    curves: tuple[str, ...] = tuple(f"{algorithm}/{size}" for size in STEPS for algorithm in ALGORITHMS)
    """What to measure where it is missing."""
    num_envs: int = 16
    """Lanes."""
    points: int = 50
    """Points of a curve."""
    held_out: int = 500
    """Instances played greedily at each of them."""
    seed: int = 0
    """Random seed for instances, network and actions."""
    threads: int = 1
    """CPU threads."""
    folder: Path = ROOT / "runs" / "plain_ppo"
    """Where complete curves lie, all with the same settings."""
    out: Path = OUT / "plain_ppo.json"
    """Where the figures go. The docs show those in benchmarks/results."""

    def __post_init__(self) -> None:
        check_integers(self, "num_envs", "points", "held_out", "threads")
        check_integers(self, "seed", least=0)

    @property
    def settings(self) -> Figures:
        """Settings that all curves of a folder have in common."""
        return {key: getattr(self, key) for key in ("num_envs", "points", "held_out", "seed")}


class Curve(BaseCallback):
    """Callback that, at regular steps, summarises the training episodes (sampled) and held-out ones (greedy)."""

    def __init__(self, total_steps: int, args: Args, held_out: RoutingVecEnv) -> None:
        super().__init__()
        self.marks = np.linspace(0, total_steps, args.points + 1)[1:].tolist()
        self.held_out = held_out
        self.episodes: list[dict[str, Any]] = []
        self.points: list[Figures] = []

    def _on_step(self) -> bool:
        self.episodes += [self.locals["infos"][lane] for lane in np.flatnonzero(self.locals["dones"])]
        if self.marks and self.num_timesteps >= self.marks[0]:
            greedy = play_greedily(self.model, self.held_out)
            self.points.append(
                {"steps": self.num_timesteps, "greedy": summary(greedy), "sampled": summary(self.episodes)}
            )
            self.marks, self.episodes = self.marks[1:], []
        return True


def play_greedily(model: Any, env: RoutingVecEnv) -> list[dict[str, Any]]:
    """Play one held-out episode in each lane with the most probable actions; return the infos of their ends."""
    env.seed(HELD_OUT_SEED)
    observation = env.reset()
    ends: dict[int, dict[str, Any]] = {}
    while len(ends) < env.num_envs:
        masks = {"action_masks": env.vector_env.action_masks()} if isinstance(model, MaskablePPO) else {}
        actions, _ = model.predict(observation, deterministic=True, **masks)
        observation, _, dones, infos = env.step(actions)
        for lane in np.flatnonzero(dones).tolist():
            ends.setdefault(lane, infos[lane])
    return list(ends.values())


def summary(episodes: list[dict[str, Any]]) -> Figures:
    """Return the share of legal episodes, and the mean cost of these; None if no episode is legal."""
    costs = [end["cost"] for end in episodes if not end["illegal_action"]]
    return {
        "episodes": len(episodes),
        "legal": len(costs) / max(1, len(episodes)),
        "cost": float(np.mean(costs)) if costs else None,
    }


def measure(name: str, args: Args) -> Figures:
    """Train for the whole length of a curve."""
    algorithm, size = name.split("/")
    torch.manual_seed(args.seed)
    env = RoutingVecEnv(f"routing/{size}", num_envs=args.num_envs)
    model = ALGORITHMS[algorithm]("MultiInputPolicy", env, **SETTINGS, seed=args.seed, device="cpu")
    curve = Curve(STEPS[size], args, RoutingVecEnv(f"routing/{size}", num_envs=args.held_out))
    start = time.perf_counter()
    model.learn(STEPS[size], callback=curve)
    return {
        "seconds": time.perf_counter() - start,
        "points": curve.points,
    }


def draw(curves: dict[str, Figures], out: Path) -> None:
    """Plot legality above and cost below, a column for each problem; lines are greedy, dotted lines are sampled."""
    sizes = [size for size in STEPS if any(name.endswith(f"/{size}") for name in curves)]
    figure = Figure(figsize=(3.6 * len(sizes), 5), layout="constrained")
    columns = figure.subplots(2, len(sizes), squeeze=False, sharex="col").T
    for (legality, cost), size in zip(columns, sizes, strict=True):
        for number, algorithm in enumerate(ALGORITHMS):
            if f"{algorithm}/{size}" not in curves:
                continue
            points = curves[f"{algorithm}/{size}"]["points"]
            for kind, line in (("greedy", "-"), ("sampled", ":")):
                style = {"label": f"{algorithm}, {kind}", "color": f"C{number}", "linestyle": line}
                legality.plot([p["steps"] for p in points], [100 * p[kind]["legal"] for p in points], **style)
                reached = [(p["steps"], p[kind]["cost"]) for p in points if p[kind]["cost"] is not None]
                cost.plot(*zip(*reached, strict=True), **style) if reached else None
        legality.set(title=f"routing/{size}", ylim=(-3, 103))
        cost.set(xlabel="environment steps")
        cost.locator_params(axis="x", nbins=3)
        cost.xaxis.set_major_formatter("{x:,.0f}")
        for axes in (legality, cost):
            axes.grid(alpha=0.3)
    columns[0][0].set(ylabel="legal episodes, %")
    columns[0][1].set(ylabel="mean cost of the legal ones")
    columns[0][0].legend(fontsize="small")
    save_picture(figure, out, "plain_ppo.png", dpi=90)


def main(args: Args) -> Figures:
    """Measure the missing curves, then write and draw all curves."""
    known = [f"{algorithm}/{size}" for size in STEPS for algorithm in ALGORITHMS]
    unknown = set(args.curves) - set(known)
    if unknown:
        raise ValueError(f"unknown curves {sorted(unknown)}; choose from {', '.join(known)}")
    check_kept(args.folder, args.settings)
    torch.set_num_threads(args.threads)
    files = {name: args.folder / f"{name.replace('/', '-')}.json" for name in known}
    for name in args.curves:
        if read_kept(files[name], args.settings) is None:
            keep(files[name], args.settings, measure(name, args))
    found = {name: read_kept(path, args.settings) for name, path in files.items()}
    curves = {name: curve for name, curve in found.items() if curve is not None}
    draw(curves, args.out)
    return finish(args, {"settings": SETTINGS, "curves": curves})


if __name__ == "__main__":
    command_line(main, Args, __doc__)
