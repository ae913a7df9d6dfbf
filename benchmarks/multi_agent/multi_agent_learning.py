"""Compare kinds of networks in MAPPO and MADDPG, against heuristics and against each other.

    python benchmarks/multi_agent/multi_agent_learning.py    # all, hours on one core
    python benchmarks/multi_agent/multi_agent_learning.py --groups policies --agents 8     # a part of it

Three groups of runs, which differ in one network only:

- values: MAPPO with decentralised policies that see three rivals, half of these heuristics; the kind of the values.
- policies: MAPPO in self-play, with central policies, where vehicles see no rivals; the kind of the policies.
- steering: MADDPG with decentralised policies that see three rivals; the kind of the action values.

Policies are those of the last epoch. Each plays the held-out games in all seats, in one seat among rival-aware
heuristics, and in one seat among the policies of each other kind (cross-play). The first two are repeated with another
number of vehicles if the network supports any number. With `--response-epochs`, a best response to MAPPO's policies is
trained, too: one vehicle continues to learn from their weights, among vehicles that do not learn. The change of the
lead of attention with m has a bootstrap interval if there are several seeds.

Writes figures and a picture of all complete runs in `--folder`, with the figures of other groups and m that `--out`
has. An interrupted run continues where it stopped.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

import maddpg
import mappo
from benchmarks.multi_agent import multi_agent_tables
from benchmarks.multi_agent.multi_agent_values import ARMS, interaction, listened
from benchmarks.output import OUT, Figures, finish, read_figures, save_picture
from routing_agents import checkpoint
from routing_agents.multi_agent.extractor import flatten
from routing_agents.multi_agent.networks import AgentNetwork, Mixing, NetworkConfig
from routing_agents.multi_agent.players import Player, collected, greedy, heuristic, seated, seats
from routing_agents.multi_agent.training import GameTrainer
from routing_agents.runs import LAST, check_integers
from routing_agents.terminal import command_line
from routing_agents.training.tuning import keep_freed_memory
from routing_gym.arrays import to_backend
from routing_gym.multi_agent import CompetitiveOP
from routing_gym.multi_agent.environments import GameVectorEnv
from routing_gym.multi_agent.heuristics import rival_aware

ROOT = Path(__file__).parents[2]
Group = Literal["values", "policies", "steering"]
TITLES: dict[Group, str] = {
    "values": "MAPPO: the values' network",
    "policies": "MAPPO: the central policies' network",
    "steering": "MADDPG: the action values' network",
}
EPOCHS: dict[Group, int] = {"values": 20, "policies": 20, "steering": 40}  # of 10 steps each
HELD_OUT_SEED = 10**6
GENTLE = {"learning_rate": 5e-4, "ent_coef": 0.01}  # for a best response, which starts from trained weights
SAME_GAMES = 1024  # agent-games in a step of MAPPO, for every m


@dataclass(frozen=True)
class Args:
    """Arguments of the benchmark."""

    groups: tuple[Group, ...] = get_args(Group)
    """What to run where it is missing."""
    agents: tuple[int, ...] = (8,)
    """Numbers of vehicles, m."""
    mixings: tuple[Mixing, ...] = ("attention-own", "concatenation", "mean", "own")
    """Kinds of networks."""
    seeds: tuple[int, ...] = (1,)
    """Random seed for weights, games and actions."""
    held_out: int = 4096
    """Games on which the policies are measured."""
    transfer: tuple[int, ...] = (16,)
    """Numbers of vehicles that policies play with beside the one they were trained with."""
    response_epochs: int = 0
    """Epochs of 10 steps in which one vehicle learns, by MAPPO, a best response to each run's policies; 0 for none."""
    threads: int = 1
    """CPU threads."""
    folder: Path = ROOT / "runs" / "multi_agent_learning"
    """Where the runs lie."""
    out: Path = OUT / "multi_agent_learning.json"
    """Where the figures go; those of an earlier run are continued. The docs show those in benchmarks/results."""

    def __post_init__(self) -> None:
        check_integers(self, "agents", "seeds", "held_out", "transfer", "threads")


def settings(group: Group, num_agents: int, mixing: Mixing, seed: int, args: Args) -> tuple[Any, Any]:
    """Return the script of a run, and its arguments."""
    name = f"{group}-m{num_agents}-{mixing}-seed{seed}"
    common = {"num_agents": num_agents, "seed": seed, "epochs": EPOCHS[group], "threads": args.threads}
    common |= {"runs": args.folder, "name": name, "device": "cpu"}
    common["steps_per_epoch"] = 10
    if group == "steering":
        return maddpg, maddpg.Args(**common, critic=NetworkConfig(mixing))
    common["games"] = max(1, SAME_GAMES // num_agents)
    if group == "values":
        return mappo, mappo.Args(**common, critic=NetworkConfig(mixing))
    policy = NetworkConfig(mixing, token_width=64, share_heads=True)
    return mappo, mappo.Args(**common, central_policy=True, rivals_seen=0, heuristics=0.0, policy=policy)


def complete(folder: Path) -> bool:
    """Return whether a run is complete."""
    if not (folder / LAST).exists():
        return False
    header = checkpoint.load(folder / LAST)[1]
    return bool(header["step"] == header["args"]["epochs"] * header["args"]["steps_per_epoch"])


def train(script: Any, given: Any) -> Path:
    """Train a run to its end unless it is complete; return its folder.

    Raises:
        ValueError: The folder holds a run with other arguments.
    """
    folder: Path = given.runs / given.name
    if (folder / LAST).exists():
        there, wanted = checkpoint.load(folder / LAST)[1]["args"], json.loads(json.dumps(given.to_json()))
        if others := [key for key, value in wanted.items() if there.get(key) != value and key != "threads"]:
            raise ValueError(
                f"{folder}: a run with another {', '.join(others)}; move it away, or name another --folder"
            )
    if not complete(folder):
        script.main(type(given)(resume=folder) if (folder / LAST).exists() else given)
    return folder


def restore(folder: Path) -> GameTrainer:
    """Return the trainer of a run with its last weights."""
    tensors, header = checkpoint.load(folder / LAST)
    known = {"mappo.py": (mappo.MappoTrainer, mappo.Args), "maddpg.py": (maddpg.MaddpgTrainer, maddpg.Args)}
    trainer_type, args_type = known[header["script"]]
    trainer: GameTrainer = trainer_type(args_type.from_json(header["args"]))
    trainer.model.load_state_dict(checkpoint.group(tensors, "model"))
    return trainer


def ratio(gained: Tensor, reference: Tensor) -> Figures:
    """Return the ratio of the means of two arrays (B,) over the same games, and its standard error (delta method)."""
    share = gained.mean() / reference.mean()
    error = (gained - share * reference).std() / reference.mean() / len(gained) ** 0.5
    return {"mean": float(share), "standard_error": float(error)}


def attention_shares(trainer: GameTrainer, games: int) -> dict[str, Figures]:
    """Return the result of `listened` in self-play for each network with attention, by its name in the run.

    Networks that read actions are left out. The result is empty for two vehicles, which have one rival each.
    """
    if trainer.game.num_agents < 3:
        return {}
    networks = {name: trainer.model[name] for name in ("policy", "critic")}
    listening = {
        name: network
        for name, network in networks.items()
        if isinstance(network, AgentNetwork)
        and network.config.mixing.startswith("attention")
        and not network.action_size
    }
    env = GameVectorEnv(trainer.game, games, autoreset_mode="Disabled", backend="torch")
    observation, _ = env.reset(seed=HELD_OUT_SEED)
    seen, play = [], greedy(trainer.policy)
    for _ in range(trainer.game.num_ticks):
        seen.append(flatten(observation))
        observation, *_ = env.step(play(env, observation))
    return {name: listened(network, torch.cat(seen)) for name, network in listening.items()}


def against_heuristics(game: CompetitiveOP, player: Player, held_out: int) -> Figures:
    """Return the prizes of a policy in all seats, and in one among rival-aware heuristics, relative to theirs."""
    instance = to_backend(game.generate(np.random.default_rng(HELD_OUT_SEED), held_out), "torch")
    one, aware = seats(held_out, game.num_agents), heuristic(rival_aware)
    reference, together = collected(game, instance, aware), collected(game, instance, player)
    whole = game.remaining(instance, game.initial(instance)).sum()
    return {
        "self_play": ratio(together.mean(dim=1), reference.mean(dim=1)),
        "among": ratio(collected(game, instance, seated(player, aware))[one], reference[one]),
        "share_of_prizes": float(together.sum() / whole),
        "share_of_heuristics": float(reference.sum() / whole),
    }


def intruders(game: CompetitiveOP, players: dict[str, Player], name: str, held_out: int) -> Figures:
    """Return the prizes of each other policy in one seat among the policies `name`, relative to the latter's there."""
    instance = to_backend(game.generate(np.random.default_rng(HELD_OUT_SEED), held_out), "torch")
    one, hosts = seats(held_out, game.num_agents), players[name]
    own = collected(game, instance, hosts)[one]
    others = {other: player for other, player in players.items() if other != name}
    return {other: ratio(collected(game, instance, seated(guest, hosts))[one], own) for other, guest in others.items()}


def best_response(host: GameTrainer, folder: Path, args: Args) -> Figures | None:
    """Return the prizes of a best response in one seat among the policies of a run, relative to the latter's there.

    None for MADDPG, and if no response is requested and none has been trained.
    """
    response = args.folder / "responses" / folder.name
    if args.response_epochs and host.script == "mappo.py":
        where = {"runs": response.parent, "name": response.name, "respond_to": str((folder / LAST).resolve())}
        train(mappo, replace(host.args, epochs=args.response_epochs, **GENTLE, **where))
    if not complete(response):
        return None
    players = {"host": greedy(host.policy), "response": greedy(restore(response).policy)}
    return intruders(host.game, players, "host", args.held_out)["response"]


def measure(folders: list[Path], args: Args) -> list[Figures]:
    """Measure all runs of one group and one m, against heuristics and each other."""
    trainers = {folder: restore(folder) for folder in folders}
    players = {folder.name: greedy(trainer.policy) for folder, trainer in trainers.items()}
    rows = []
    for folder, trainer in trainers.items():
        game, name = trainer.game, folder.name
        log = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        curve = [{key: row[key] for key in ("instances", "self_play", "among")} for row in log]
        others = args.transfer if trainer.policy.any_number else ()
        games = {m: replace(game, num_agents=m, num_customers=None, step_length=None, radius=None) for m in others}
        rows.append(
            {
                **describe(name),
                "games": log[-1]["instances"],
                "seconds": checkpoint.load(folder / LAST)[1]["seconds"],
                **against_heuristics(game, players[name], args.held_out),
                "games_to_heuristic": next((row["instances"] for row in curve if row["among"] >= 1), None),
                "intruders": intruders(game, players, name, args.held_out),
                "best_response": best_response(trainer, folder, args),
                "transfer": {m: against_heuristics(other, players[name], args.held_out) for m, other in games.items()},
                "attention": attention_shares(trainer, 256),
                "curve": curve,
            }
        )
    return rows


def interactions(rows: list[Figures]) -> list[Figures]:
    """Return the growth of the lead of attention over each other kind with the same seed when m doubles."""
    found: dict[tuple[Group, Mixing, str], dict[tuple[int], list[float]]] = {}
    of = {(row["group"], row["agents"], row["seed"], row["mixing"]): row for row in rows}
    for (group, agents, seed, mixing), row in of.items():
        attention = of.get((group, agents, seed, "attention-own"))
        if mixing == "attention-own" or attention is None:
            continue
        for key in ("self_play", "among"):
            leads = found.setdefault((group, mixing, key), {})
            leads.setdefault((agents,), []).append(attention[key]["mean"] - row[key]["mean"])
    rng = np.random.default_rng(0)
    return [
        {"group": group, "other": mixing, "measure": key, **interaction(leads, rng)}
        for (group, mixing, key), leads in found.items()
        if len(leads) > 1
    ]


def describe(name: str) -> Figures:
    """Split the name of a run's folder into its parts.

    Raises:
        ValueError: The name is not that of a run of this benchmark.
    """
    match = re.fullmatch(r"(values|policies|steering)-m(\d+)-([a-z-]+)-seed(\d+)", name)
    if match is None or match[3] not in ARMS:
        raise ValueError(f"{name}: not the folder of a run, such as values-m8-mean-seed1")
    return {"group": match[1], "agents": int(match[2]), "mixing": match[3], "seed": int(match[4]), "name": name}


def draw(rows: list[Figures], out: Path) -> None:
    """Plot the prizes of one learner among heuristics and, dotted, of all in self-play, against the games played."""
    panels = sorted({(row["group"], row["agents"]) for row in rows})
    columns = min(4, len(panels))
    height = -(-len(panels) // columns)
    figure = Figure(figsize=(3.7 * columns, 3.7 * height), layout="constrained")
    for place, (group, agents) in enumerate(panels):
        axes = figure.add_subplot(height, columns, place + 1)
        labels = dict(ARMS)  # one label for all seeds
        for row in rows:
            if (row["group"], row["agents"]) == (group, agents):
                seen = [point["instances"] for point in row["curve"]]
                style = {"color": f"C{list(ARMS).index(row['mixing'])}"}
                label = labels.pop(row["mixing"], None)
                axes.plot(seen, [point["among"] for point in row["curve"]], **style, label=label)
                axes.plot(seen, [point["self_play"] for point in row["curve"]], **style, linestyle=":")
        axes.axhline(1.0, color="black", lw=0.8)
        axes.set(xlabel="games", title=f"{TITLES[group]}, m = {agents}")
        axes.title.set_fontsize("small")
        axes.locator_params(axis="x", nbins=4)
        axes.legend(fontsize="x-small")
        axes.grid(alpha=0.3)
        if place % columns == 0:
            axes.set_ylabel("return over the rival-aware heuristic's")
    save_picture(figure, out, "multi_agent_learning.png", dpi=80)


def main(args: Args) -> Figures:
    """Train the missing runs, then measure, write and draw all complete runs."""
    keep_freed_memory()
    torch.set_num_threads(args.threads)
    for seed, group, agents, mixing in product(args.seeds, args.groups, args.agents, args.mixings):
        train(*settings(group, agents, mixing, seed, args))
    done: dict[tuple[Group, int], list[Path]] = {}
    for folder in sorted(args.folder.iterdir()):
        if folder.is_dir() and complete(folder):
            run = describe(folder.name)
            done.setdefault((run["group"], run["agents"]), []).append(folder)
    before = read_figures(args.out, "rows", "interaction").get("rows", [])
    rows = [row for row in before if (row["group"], row["agents"]) not in done]
    for folders in done.values():
        rows += measure(folders, args)
    rows.sort(key=lambda row: (row["group"], row["agents"], row["mixing"], row["seed"]))
    draw(rows, args.out)
    figures = {"rows": rows, "interaction": interactions(rows)}
    return finish(args, figures, multi_agent_tables.learning(figures))


if __name__ == "__main__":
    command_line(main, Args, __doc__)
