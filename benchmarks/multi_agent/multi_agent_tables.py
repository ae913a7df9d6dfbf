"""Tables of the pages on the multi-agent game, from the figures of the game's benchmarks."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.multi_agent.multi_agent_values import ARMS
from benchmarks.quality.quality_tables import markdown

Figures = Any  # contents of a file in benchmarks/results


def game_throughput(figures: Figures) -> str:
    """Return million agent steps per second, batched and in a loop, and in other libraries, which have other games."""
    rows = {(row["agents"], row["kind"], row["lanes"]): row for row in figures["rows"]}
    kinds = list(dict.fromkeys(key[1:] for key in rows))
    lines = []
    for agents in dict.fromkeys(key[0] for key in rows):
        found = [rows[agents, *kind] for kind in kinds]
        cells: list[str] = []
        for row in found:
            cells.append(f"{row['agent_steps_per_second'] / 1e6:.{3 if row['kind'] == 'loop' else 2}f}")
            cells += [f"{row['times_loop']:.0f} x"] if row["kind"] == "batched" else []
        lines.append((str(agents), *cells))
    titles = {"loop": "PettingZoo loop", "vmas": "VMAS", "jaxmarl": "JaxMARL"}
    header: list[str] = []
    for kind, lanes in kinds:
        header.append(f"{titles.get(kind, kind)}, {lanes:,} games")
        header += ["ratio to the loop"] if kind == "batched" else []
    return markdown(("million agent steps/s, m", *header), lines)


def growth(row: Figures) -> tuple[str, str]:
    """Return the growth per doubling of m and its interval, as text."""
    interval = "one seed" if row["interval"] is None else "{:+.3f} to {:+.3f}".format(*row["interval"])
    return f"{row['per_doubling']:+.3f}", interval


def interaction(figures: Figures) -> str:
    """Return the growth of leads when m doubles."""
    lines = []
    for pair, row in figures["interaction"].items():
        arm, other = (ARMS[name] for name in pair.split(" over "))
        lines.append((f"{arm} over {other}", *growth(row)))
    return markdown(("lead in explained variance", "per doubling of m", "95 % interval"), lines)


def learning_interaction(figures: Figures) -> str:
    """Return the growth of the leads of attention among learners when m doubles."""
    titles = {"self_play": "self-play", "among": "one among heuristics"}
    lines = []
    for row in figures["interaction"]:
        lead = f"own and attention over {ARMS[row['other']]}"
        lines.append((NAMES[row["group"]], lead, titles[row["measure"]], *growth(row)))
    return markdown(("network of", "lead", "in", "per doubling of m", "95 % interval"), lines)


def listening(figures: Figures) -> str:
    """Return the share of attention to rivals that the two nearest get, as the mean over seeds."""
    lines = []
    for customers, agents in sorted({(cell["customers"], cell["agents"]) for cell in figures["cells"]}):
        same = [cell for cell in figures["cells"] if (cell["customers"], cell["agents"]) == (customers, agents)]
        rows = [[cell["arms"][arm].get("attention") for cell in same] for arm in ("attention", "attention-own")]
        if None not in rows[0]:
            shares = [f"{np.mean([row['nearest_two'] for row in arm]):.0%}" for arm in rows]
            lines.append((str(customers), str(agents), *shares, f"{rows[0][0]['by_chance']:.0%}"))
    return markdown(("n / m", "m", "attention", "own and attention", "by chance"), lines)


def by_seed(rows: list[Figures | None]) -> str:
    """Return the ratios of several seeds side by side, as text; "-" if there are none."""
    return " / ".join(f"{row['mean']:.3f}" for row in rows if row) or "-"


NAMES = {"values": "values", "policies": "central policies", "steering": "action values (MADDPG)"}


def learning(figures: Figures) -> str:
    """Return the results of runs by seed: against heuristics, with the number of vehicles of training and another."""
    kinds: dict[tuple[str, int, str], list[Figures]] = {}
    for row in figures["rows"]:
        kinds.setdefault((row["group"], row["agents"], row["mixing"]), []).append(row)
    sizes = sorted({m for row in figures["rows"] for m in row["transfer"]}, key=int)
    lines = []
    for (group, agents, mixing), rows in sorted(kinds.items()):
        others = [row["transfer"].get(sizes[0]) for row in rows]
        transfer = [by_seed([other and other[key] for other in others]) for key in ("self_play", "among")]
        reached = (row["games_to_heuristic"] for row in rows)
        lines.append(
            (
                NAMES[group],
                str(agents),
                ARMS[mixing],
                *(by_seed([row[key] for row in rows]) for key in ("self_play", "among")),
                " / ".join("-" if games is None else f"{games:,}" for games in reached),
                "-" if transfer == ["-", "-"] else f"{transfer[0]}; {transfer[1]}",
                by_seed([row.get("best_response") for row in rows]),
            )
        )
    header = ("network of", "m", "kind", "self-play", "one among heuristics", "games until 1")
    return markdown((*header, f"the first two, with {', '.join(map(str, sizes))} vehicles", "best response"), lines)


def cross_play(figures: Figures) -> str:
    """Return the prizes of each policy in one seat among policies of other kinds, relative to the latter's there."""
    found: dict[tuple[str, int, str], dict[str, list[Figures]]] = {}
    names = {row["name"]: row for row in figures["rows"]}
    for host in figures["rows"]:
        for name, result in host["intruders"].items():
            guest = names[name]
            if guest["mixing"] != host["mixing"]:
                hosts = found.setdefault((host["group"], host["agents"], guest["mixing"]), {})
                hosts.setdefault(host["mixing"], []).append(result)
    lines = []
    for (group, agents, guest), hosts in sorted(found.items()):
        cells = (f"{ARMS[host]}: {np.mean([row['mean'] for row in results]):.3f}" for host, results in hosts.items())
        lines.append((f"{NAMES[group]}, m = {agents}", ARMS[guest], "; ".join(cells)))
    return markdown(("network of", "one policy trained with", "in one seat among those trained with"), lines)
