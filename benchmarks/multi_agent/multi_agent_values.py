"""Compare networks for the values of a game: values of fixed policies, fitted to their returns.

    python benchmarks/multi_agent/multi_agent_values.py --seeds 1 2 3 4 5    # 20 minutes on one core
    python benchmarks/multi_agent/multi_agent_values.py --agents 8 --seeds 1       # a part of it

All vehicles play `prize_per_tick`, so many head for the same customers. The m values v^i of each kind of network are
fitted in turn to the prizes that each vehicle still collects, on the same new games in the same order. They are then
measured on held-out games, by the share of variance that they explain. The observation of a vehicle does not contain
its rivals: a network has information on them from its mixing layer only.

Writes figures and a picture of all cells in `--folder`. Each cell has its own file there, which is written when the
cell is complete; it is not measured again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from benchmarks.output import OUT, Figures, check_kept, finish, keep, read_kept, save_picture
from benchmarks.quality.quality_tables import markdown
from routing_agents.multi_agent.extractor import Layout, flatten
from routing_agents.multi_agent.networks import AgentNetwork, Mixing, NetworkConfig
from routing_agents.runs import check_integers, check_numbers
from routing_agents.terminal import command_line
from routing_agents.training.tuning import keep_freed_memory
from routing_gym import CompetitiveOP
from routing_gym.multi_agent.environments import GameVectorEnv
from routing_gym.multi_agent.heuristics import prize_per_tick

ROOT = Path(__file__).parents[2]
ARMS: dict[Mixing, str] = {
    "own": "own observation only",
    "concatenation-narrow": "concatenation, equal parameters",
    "concatenation": "concatenation, equal width",
    "mean": "own and mean",
    "attention": "attention",
    "attention-own": "own and attention",
}
HELD_OUT_SEED = 10**6


@dataclass(frozen=True)
class Args:
    """Arguments of the benchmark."""

    agents: tuple[int, ...] = (2, 4, 8, 16)
    """Numbers of vehicles, m."""
    customers: tuple[int, ...] = (1, 4)
    """Numbers of customers for each vehicle, n / m: the fewer, the more contested."""
    seeds: tuple[int, ...] = (1, 2)
    """Random seed for weights and games."""
    steps: int = 500
    """Batches that each network is fitted to."""
    games: int = 32
    """Games in a batch."""
    ticks: int = 4
    """How many ticks of each are in the batch, drawn at random."""
    held_out: int = 256
    """Games on which the values are measured."""
    learning_rate: float = 2e-3
    """Adam's initial learning rate, which falls linearly to zero."""
    threads: int = 1
    """CPU threads."""
    folder: Path = ROOT / "runs" / "multi_agent_values"
    """Where complete cells lie."""
    out: Path = OUT / "multi_agent_values.json"
    """Where the figures go. The docs show those in benchmarks/results."""

    def __post_init__(self) -> None:
        check_integers(self, "agents", "customers", "seeds", "steps", "games", "ticks", "held_out", "threads")
        check_numbers(self, "learning_rate")
        if self.ticks > (most := CompetitiveOP(2).num_ticks):
            raise ValueError(f"--ticks must be at most {most}, of which a game has no more, got {self.ticks}")

    @property
    def settings(self) -> Figures:
        """Settings that all cells of a folder have in common."""
        return {key: getattr(self, key) for key in ("steps", "games", "ticks", "held_out", "learning_rate")}


def play(game: CompetitiveOP, rng: np.random.Generator, games: int) -> tuple[Tensor, Tensor]:
    """Play games with the fixed policy.

    Returns:
        Observations of the vehicles at every tick, (games * T, m, F), and their returns from then on, (games * T, m).
    """
    env = GameVectorEnv(game, games, autoreset_mode="Disabled", copy=False)
    observation, _ = env.reset(options={"instance": game.generate(rng, games)})
    seen, gains = [], []
    for _ in range(game.num_ticks):
        seen.append(flatten({key: torch.as_tensor(value) for key, value in observation.items()}))
        observation, gain, *_ = env.step(prize_per_tick(game, env.instance, env.state))
        gains.append(torch.as_tensor(gain, dtype=torch.float32))
    returns = torch.stack(gains).flip(0).cumsum(0).flip(0)  # (T, games, m)
    return torch.stack(seen).flatten(0, 1), returns.flatten(0, 1)


def explained(network: AgentNetwork, seen: Tensor, returns: Tensor) -> float:
    """Return the share of the variance of the returns that the values explain."""
    with torch.no_grad():
        values = torch.cat([network(part) for part in seen.split(1024)])
    return 1 - float((returns - values).square().mean() / returns.var(correction=0))


def listened(network: AgentNetwork, seen: Tensor) -> Figures:
    """Return the share of attention to rivals for the two nearest, this share by chance, and attention to oneself."""
    weights = torch.cat([network.attention(part).mean(dim=1) for part in seen.split(1024)])  # (B, m, m)
    num_agents = weights.shape[-1]
    oneself = torch.eye(num_agents, dtype=torch.bool)
    distance = torch.cdist(seen[..., :2], seen[..., :2]).masked_fill(oneself, np.inf)
    nearest = distance.topk(2, largest=False).indices
    to_rivals = 1 - weights.diagonal(dim1=1, dim2=2)
    share = float(weights.gather(-1, nearest).sum(-1).mean() / to_rivals.mean())
    return {"nearest_two": share, "by_chance": 2 / (num_agents - 1), "oneself": 1 - float(to_rivals.mean())}


def measure(num_agents: int, customers: int, seed: int, args: Args) -> Figures:
    """Fit and measure all kinds of networks in one cell."""
    game = CompetitiveOP(num_agents, num_customers=customers * num_agents)
    networks = {
        arm: AgentNetwork(
            Layout.of(game), NetworkConfig(arm), num_agents, generator=torch.Generator().manual_seed(seed)
        )
        for arm in ARMS
    }
    optimizers = {arm: torch.optim.Adam(network.parameters(), foreach=True) for arm, network in networks.items()}
    seconds = dict.fromkeys(ARMS, 0.0)
    for step in range(args.steps):
        rng = np.random.default_rng((seed, step))
        seen, returns = play(game, rng, args.games)
        rows = rng.choice(len(seen), args.games * args.ticks, replace=False)
        seen, returns = seen[rows], returns[rows]
        for arm, network in networks.items():
            started = time.perf_counter()
            loss = (network(seen) - returns).square().mean()
            optimizers[arm].zero_grad()
            loss.backward()
            optimizers[arm].param_groups[0]["lr"] = args.learning_rate * (1 - step / args.steps)
            optimizers[arm].step()
            seconds[arm] += time.perf_counter() - started
    held_out = play(game, np.random.default_rng(HELD_OUT_SEED), args.held_out)
    rows = {
        arm: {
            "explained": explained(network, *held_out),
            "trunk_parameters": network.trunk_size(),
            "seconds": seconds[arm],
        }
        for arm, network in networks.items()
    }
    for arm in ("attention", "attention-own") if num_agents > 3 else ():  # with three, the two nearest are all rivals
        rows[arm]["attention"] = listened(networks[arm], held_out[0])
    return {"agents": num_agents, "customers": customers, "seed": seed, "arms": rows}


def mean_explained(cells: list[Figures], num_agents: int, customers: int, arm: str) -> list[float]:
    """List the variance that an arm explains at one m and n / m, one number for each seed."""
    found = [cell for cell in cells if (cell["agents"], cell["customers"]) == (num_agents, customers)]
    return [cell["arms"][arm]["explained"] for cell in found]


def leads(cells: list[Figures], arm: str, other: str) -> dict[tuple[int, int], list[float]]:
    """Return the leads of one arm over another in explained variance, by m and n / m, one number for each seed."""
    found: dict[tuple[int, int], list[float]] = {}
    for cell in cells:
        lead = cell["arms"][arm]["explained"] - cell["arms"][other]["explained"]
        found.setdefault((cell["agents"], cell["customers"]), []).append(lead)
    return found


def interaction(leads: Mapping[tuple[int, ...], list[float]], rng: np.random.Generator) -> Figures:
    """Return the growth of a lead when m doubles, with a 95 % bootstrap interval.

    The growth is the slope of the mean lead over log2 m. Leads are drawn with replacement within each group, which
    keeps its number of seeds. There is no interval if a group has a single seed.

    Args:
        leads: Leads of all seeds by group; the key of a group is m, and perhaps more.
        rng: Random number generator of the bootstrap.
    """
    doublings = np.log2([agents for agents, *_ in leads])

    def slope(means: list[float]) -> float:
        return float(np.polyfit(doublings, means, 1)[0])

    per_doubling = slope([float(np.mean(seeds)) for seeds in leads.values()])
    if min(map(len, leads.values())) < 2:
        return {"per_doubling": per_doubling, "interval": None}
    drawn = [slope([rng.choice(seeds, len(seeds)).mean() for seeds in leads.values()]) for _ in range(2000)]
    low, high = np.quantile(drawn, (0.025, 0.975)).tolist()
    return {"per_doubling": per_doubling, "interval": [low, high]}


def draw(cells: list[Figures], out: Path) -> None:
    """Plot the explained variance over m, a panel for each n / m; thin bars from the worst to the best seed."""
    ratios = sorted({cell["customers"] for cell in cells})
    figure = Figure(figsize=(max(8.2, 3.7 * len(ratios)), 4), layout="constrained")
    for axes, ratio in zip(figure.subplots(1, len(ratios), squeeze=False, sharey=True)[0], ratios, strict=True):
        sizes = sorted({cell["agents"] for cell in cells if cell["customers"] == ratio})
        for arm, label in ARMS.items():
            values = [mean_explained(cells, size, ratio, arm) for size in sizes]
            (line,) = axes.plot(sizes, [np.mean(seeds) for seeds in values], marker="o", ms=4, label=label)
            axes.vlines(
                sizes, [min(seeds) for seeds in values], [max(seeds) for seeds in values], color=line.get_color()
            )
        axes.set_xscale("log", base=2)
        axes.set(xlabel="vehicles, m", title=f"n / m = {ratio}", xticks=sizes, xticklabels=sizes)
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel("explained variance, held out")
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    save_picture(figure, out, "multi_agent_values.png", dpi=90)


def table(figures: Figures) -> str:
    """Return the explained variance by n / m and m, as the mean over seeds; the best is bold."""
    cells = figures["cells"]
    lines = []
    for customers, agents in sorted({(cell["customers"], cell["agents"]) for cell in cells}):
        found = [mean_explained(cells, agents, customers, arm) for arm in ARMS]
        means = [float(np.mean(seeds)) for seeds in found]
        shown = [f"**{mean:.3f}**" if mean == max(means) else f"{mean:.3f}" for mean in means]
        lines.append((str(customers), str(agents), str(len(found[0])), *shown))
    return markdown(("n / m", "m", "seeds", *ARMS.values()), lines)


def main(args: Args) -> Figures:
    """Measure the missing cells, then write and draw all cells."""
    keep_freed_memory()
    torch.set_num_threads(args.threads)
    check_kept(args.folder, args.settings)
    for seed, customers, num_agents in product(args.seeds, args.customers, args.agents):  # seed by seed
        path = args.folder / f"{num_agents}-agents-{customers}-customers-seed{seed}.json"
        if read_kept(path, args.settings) is None:
            keep(path, args.settings, measure(num_agents, customers, seed, args))
    cells = [json.loads(path.read_text()) for path in sorted(args.folder.glob("*.json"))]
    draw(cells, args.out)
    pairs = [(arm, other) for arm in ("attention", "attention-own") for other in ("concatenation", "mean", "own")]
    rng = np.random.default_rng(0)
    grown = {f"{arm} over {other}": interaction(leads(cells, arm, other), rng) for arm, other in pairs}
    figures = {"cells": cells, "interaction": grown}
    return finish(args, figures, table(figures))


if __name__ == "__main__":
    command_line(main, Args, __doc__)
