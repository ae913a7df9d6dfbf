"""Write the tables of README.md and docs/ from the figures in benchmarks/results.

    python benchmarks/doc_tables.py     # after a benchmark; a test fails where a page does not show its figures

A table stands between the lines `<!-- table: NAME -->` and `<!-- end of table -->`; everything else on a page is kept.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import multi_agent_tables
from pointer_tables import PAPER as PAPER_POINTER
from pointer_tables import PAPER_LABELS
from quality_tables import PAPER, markdown, tables, value_cell
from routing_gym.files import write_atomically

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
TABLE = re.compile(r"(?<=<!-- table: )([\w-]+)( -->\n).*?(\n?<!-- end of table -->)", re.DOTALL)
OURS, JAX, RL4CO, JUMANJI = "routing-gym", "routing-gym-jax", "rl4co", "jumanji"
OWN = {RL4CO: "loop, its own policy", JUMANJI: "call per step, its own policy"}  # the loop that a peer ships
Figures = Any  # what a file in benchmarks/results holds


def rate(value: float) -> str:
    """Show something per second in thousands or millions."""
    return f"{value / 1e6:.2f} M" if value >= 999_500 else f"{value / 1e3:.0f} k"


def env_throughput(figures: Figures) -> str:
    """Ours on both backends, and times Gymnasium's SyncVectorEnv where that was measured."""
    rows = {(row["problem"], row["lanes"], row["kind"], row["backend"], row["copy"]): row for row in figures["rows"]}
    lines = []
    for problem, lanes in dict.fromkeys(key[:2] for key in rows):
        sync = rows.get((problem, lanes, "sync", "numpy", True))
        cells = [rate(sync["steps_per_second"]) if sync else "-"]
        for backend, copy in (("numpy", True), ("numpy", False), ("torch", True)):
            ours = rows[problem, lanes, "native", backend, copy]["steps_per_second"]
            cells.append(f"{rate(ours)} ({times(ours / sync['steps_per_second'])})" if sync else rate(ours))
        lines.append((problem, f"{lanes:,}", *cells))
    return markdown(("", "lanes", "SyncVectorEnv", "NumPy", "NumPy, `copy=False`", "torch (CPU)"), lines)


def times(ratio: float) -> str:
    """Show how many times as fast something is."""
    return f"{ratio:.0f} x" if ratio >= 20 else f"{ratio:.1f} x"


def peer_rates(figures: Figures) -> dict[tuple[str, int], dict[str, tuple[float, float, float]]]:
    """Return, by problem and lanes, for each peer: our rate, that of its own loop, and that of its fastest."""
    rates = {(row["problem"], row["lanes"], row["library"], row["way"]): row for row in figures["rows"]}
    found: dict[tuple[str, int], dict[str, tuple[float, float, float]]] = {}
    for row in figures["comparisons"]:
        key = row["problem"], row["lanes"]
        ways = ((OURS, row["ours"]), (row["peer"], OWN[row["peer"]]), (row["peer"], row["fastest_way"]))
        ours, own, best = (rates[(*key, *way)]["steps_per_second"] for way in ways)
        found.setdefault(key, {})[row["peer"]] = ours, own, best
    return found


def env_peers(figures: Figures) -> str:
    """Ours, rl4co's and Jumanji's loops as they ship, and the fastest that we could make of theirs."""
    lines = []
    for (problem, lanes), peers in peer_rates(figures).items():
        cells = [
            text
            for ours, own, best in (peers[RL4CO], peers[JUMANJI])
            for text in (rate(ours), *(f"{rate(theirs)} ({ours / theirs:.1f} x)" for theirs in (own, best)))
        ]
        lines.append((problem, f"{lanes:,}", *cells))
    ours, jumanji = ("ours, `rollout`", "rl4co, own", "rl4co, best"), ("Jumanji, own", "Jumanji, best")
    return markdown(("", "lanes", *ours, "ours, vector env", *jumanji), lines)


def rl4co_peers(figures: Figures) -> str:
    """Ours and rl4co's loops for the problems that Jumanji has not."""
    lines = []
    for (problem, lanes), peers in peer_rates(figures).items():
        ours, own, best = peers[RL4CO]
        theirs = (f"{rate(value)} ({ours / value:.1f} x)" for value in (own, best))
        lines.append((problem, f"{lanes:,}", rate(ours), *theirs))
    return markdown(("", "lanes", "ours, `rollout`", "rl4co, own", "rl4co, best"), lines)


def problem_lines(figures: Figures) -> str:
    """Lines of code of each problem, ours and the others'."""
    libraries = (OURS, RL4CO, JUMANJI)
    rows = [(name, *(str(row.get(key, "-")) for key in libraries)) for name, row in figures["lines"].items()]
    return markdown(("lines of code", "ours", "rl4co 0.7.0", "Jumanji 1.1.2"), rows)


def jax_peers(figures: Figures) -> str:
    """On JAX: compiled loops, steps called from Python and the transition alone, beside Jumanji's fastest."""
    rows = figures["rows"]
    lines = []
    for problem, lanes in dict.fromkeys((row["problem"], row["lanes"]) for row in rows):
        here = [row for row in rows if (row["problem"], row["lanes"]) == (problem, lanes)]
        cells, compiling = [], []
        for kind in ("scan", "call per step", "transitions alone, scan"):
            ways = [[r for r in here if r["library"] == name and r["way"].startswith(kind)] for name in (JAX, JUMANJI)]
            ours, theirs = (max(way, key=lambda row: row["steps_per_second"]) for way in ways)
            ratio = ours["steps_per_second"] / theirs["steps_per_second"]
            cells += [rate(ours["steps_per_second"]), f"{rate(theirs['steps_per_second'])} ({ratio:.1f} x)"]
            compiling += [f"{row['seconds_to_compile']:.1f}" for row in (ours, theirs)]
        lines.append((problem, f"{lanes:,}", *cells, *compiling[:2]))
    loops, calls, alone = ("loop", "Jumanji's"), ("called", "Jumanji's"), ("transition", "Jumanji's")
    return markdown(("", "lanes", *loops, *calls, *alone, "compiling, s", "Jumanji's"), lines)


def speeds(figures: Figures, task: str, problem: str, cores: int) -> tuple[float, float, float]:
    """Return instances per second: ours in one process, ours in as many as there are cores, rl4co's."""
    rows = [row for row in figures["rows"] if (row["task"], row["problem"]) == (task, problem)]

    def fastest(library: str, processes: int) -> float:
        wanted = (library, processes, cores // processes)
        found = [row for row in rows if (row["library"], row["processes"], row["threads"]) == wanted]
        return max(row["instances_per_second"] for row in found)

    return fastest(OURS, 1), fastest(OURS, cores), fastest(RL4CO, 1)


def train_throughput(figures: Figures) -> str:
    """Training and greedy decoding, each side in its faster precision, on one core and on two."""
    lines = []
    for task, label in (("rollout", "training"), ("greedy", "greedy decoding")):
        for problem in figures["arguments"]["problems"]:
            one, _, peer = speeds(figures, task, problem, 1)
            threads, processes, peers = speeds(figures, task, problem, 2)
            single = (f"{one:,.0f}", f"{peer:,.0f}", f"{one / peer:.1f} x")
            double = (f"{processes:,.0f}", f"{threads:,.0f}", f"{peers:,.0f}")
            ratio = f"{processes / peers:.1f} x ({threads / peers:.1f} x)"
            lines.append((f"{problem}, {label}", *single, *double, ratio))
    header = ("instances/s", "1 core", "rl4co", "", "2 cores: 2 processes", "2 threads", "rl4co", "")
    return markdown(header, lines)


def time_to_quality(figures: Figures) -> str:
    """Seconds to each gap, and where each run ended."""
    targets = list(figures["table"][0]["seconds_to"])
    lines = []
    for row in figures["table"]:
        reached = (
            "-" if row["seconds_to"][target] is None else f"{row['seconds_to'][target]:.0f}" for target in targets
        )
        lines.append((row["label"], *reached, f"{row['final_gap']:.2%} after {row['seconds']:.0f} s"))
    return markdown(("seconds to a greedy gap of", *targets, "at the end"), lines)


def large_instances(figures: Figures) -> str:
    """Seconds and gigabytes by problem and number of nodes."""
    lines = [
        (
            row["problem"],
            f"{row['num_nodes']:,}",
            f"{row['num_instances']:,}",
            f"{row['seconds']:.2g}" if row["seconds"] < 10 else f"{row['seconds']:.0f}",
            f"{row['peak_bytes'] / 1e9:.2f}",
        )
        for row in figures["rows"]
    ]
    return markdown(("", "nodes", "instances", "seconds", "GB"), lines)


def gap_by_size(figures: Figures) -> str:
    """Gaps by problem and number of nodes, one column for each of the weights: greedy, and best of 8."""
    lines, heads = [], ["weights for 50", "the same, nearness 2", "weights for 100"]
    for row in figures["rows"]:
        gaps = [f"{gap:.1%}" for gap in row["gaps"].values()]
        cells = map(", ".join, zip(gaps[::2], gaps[1::2], strict=True))
        lines.append((row["problem"], f"{row['size']:,}", str(row["instances"]), *cells))
    return markdown(("", "nodes", "instances", *heads), lines)


def integrations(figures: Figures) -> str:
    """Steps per second of Stable-Baselines3's environment and of ours."""
    keys = ("steps_per_second", "steps_and_masks_per_second", "learn_steps_per_second")
    lines = [(row["env"], *(rate(row[key]) for key in keys)) for row in figures["sb3"]]
    dummy, native = figures["sb3"]
    lines.append(("", *(times(native[key] / dummy[key]) for key in keys)))
    return markdown(("steps per second", "`step`", "`step` and masks", "`MaskablePPO.learn`"), lines)


def sb3_curves(figures: Figures) -> str:
    """Costs on held-out instances after training, and of what needs none."""
    runs = figures["runs"]
    names = {
        "random": "random",
        "mlp": "MultiInputPolicy, greedy",
        "nearest neighbour": "nearest neighbour",
        "attention": "AttentionPolicy, greedy",
    }
    lines = [(label, *(f"{run['costs'][name]:.2f}" for run in runs)) for name, label in names.items()]
    return markdown(("", *(run["arguments"]["env_id"].removeprefix("routing/") for run in runs)), lines)


def plain_ppo(figures: Figures) -> str:
    """From which step on episodes are legal without masks, and the costs with and without."""
    lines = []
    for name, curve in figures["curves"].items():
        points = curve["points"]
        cells = [name.replace("/", ", "), f"{points[-1]['steps']:,}"]
        for kind in ("greedy", "sampled"):
            below = max((point["steps"] for point in points if point[kind]["legal"] < 0.9), default=0)
            since = next((f"{point['steps']:,}" for point in points if point["steps"] > below), "-")
            last = points[-1][kind]
            cells += [since, f"{last['legal']:.0%}", "-" if last["cost"] is None else f"{last['cost']:.2f}"]
        lines.append(tuple(cells))
    ends = ("90 % legal from", "legal at the end", "cost")
    return markdown(("", "steps", *(f"{end}, greedy" for end in ends), *(f"{end}, sampled" for end in ends)), lines)


def quality(part: str, figures: Figures) -> str:
    """One of the tables of solution quality."""
    return tables(figures)[part]


def short_results(figures: Figures) -> str:
    """Our weights for 50 nodes and the paper's, for the README."""
    lines = []
    for name in (name for name in PAPER if name.endswith("-50")):
        greedy, many, _ = PAPER[name]
        ours = (value_cell(figures[name].get(key)) for key in ("greedy", "symmetries", "reference"))
        lines.append((name, *ours, f"{greedy:.2f}", "-" if many is None else f"{many:.2f}"))
    return markdown(("mean cost", "greedy", "best of many", "solver", "paper: greedy", "1,280 samples"), lines)


def short_speed(env: Figures, peers: Figures, training: Figures) -> str:
    """Our speed and that of others, for the README."""
    rows = {(row["problem"], row["lanes"], row["kind"], row["backend"], row["copy"]): row for row in env["rows"]}
    sync, native = (rows["TSP-50", 1024, kind, "numpy", True]["steps_per_second"] for kind in ("sync", "native"))
    lines = [("environment steps/s, 1,024 lanes", rate(native), f"SyncVectorEnv: {rate(sync)}", times(native / sync))]
    for lanes in (1024, 64):
        for peer, label in ((RL4CO, "rl4co"), (JUMANJI, "Jumanji")):
            ours, _, best = peer_rates(peers)["TSP-50", lanes][peer]
            what = f"steps/s of a whole loop, {lanes:,} lanes"
            lines.append((what, rate(ours), f"{label}: {rate(best)}", times(ours / best)))
    for task, what in (
        ("rollout", "training, instances/s, 2 cores"),
        ("greedy", "greedy decoding, instances/s, 2 cores"),
    ):
        _, ours, theirs = speeds(training, task, "TSP-50", 2)
        lines.append((what, f"{ours:,.0f}", f"rl4co: {theirs:,.0f}", times(ours / theirs)))
    return markdown(("TSP-50", "ours", "", ""), lines)


def pointer_quality(figures: Figures) -> str:
    """One row per network and size: its figures beside the paper's, in the paper's order; others come last."""
    places, lines = {name: place for place, name in enumerate(PAPER_POINTER)}, []

    def place(row: Figures) -> tuple[int, str, int, str]:
        return places.get(row["trained"], len(places)), row["trained"], row["n"], row["encoder"]

    for row in sorted(figures["rows"], key=place):
        if row["width"] > 1:  # shown in the row of greedy decoding
            continue
        beam = [one for one in figures["rows"] if one["width"] > 1 and same_test(one, row)]
        published = PAPER_POINTER.get(row["trained"], {}).get(row["n"], {})
        if "length" in row:
            ours = f"{beam[0]['length']:.3f} ({row['length']:.3f})" if beam else f"({row['length']:.3f})"
            theirs = f"{published['length']:.2f}" if published else "-"
        else:
            second = "area" if "area" in row else "coverage"
            ours = f"{row['accuracy']:.1%}, {row[second]:.1%}" + (" FAIL" if row.get("valid", 1) < 0.99 else "")
            theirs = f"{published['accuracy']:.1%}, {published[second]:.1%}" if published else "-"
            theirs = theirs.replace("nan%", "FAIL")
        trained = f"{row['examples']:,}", f"{60 * row['hours']:.0f} min"
        lines.append((row["trained"], row["encoder"], str(row["n"]), theirs, ours, *trained))
    return markdown(("trained on", "encoder", "n", "paper", "ours", "examples", "trained for"), lines)


def same_test(one: Figures, other: Figures) -> bool:
    """Say whether two rows are of one network and one size."""
    return (one["model"], one["n"]) == (other["model"], other["n"])


def pointer_labels(figures: Figures) -> str:
    """Mean tour lengths: the paper's optimum and algorithms, and ours."""
    lines = []
    for row in figures["labels"]:
        published = PAPER_LABELS[row["n"]]
        pairs = (
            f"{row[key]:.2f}" + (f" ({published[key]:.2f})" if key in published else "")
            for key in ("optimal", "a1", "a2", "a3")
        )
        lines.append((str(row["n"]), *pairs))
    return markdown(("n, ours (the paper's)", "optimal", "A1", "A2", "A3"), lines)


def pointer_throughput(figures: Figures) -> str:
    """Examples per second of processor time, and the share of the machine's products."""
    rows = figures["throughput"]
    sizes = list(dict.fromkeys(row["n"] for row in rows))
    lines = []
    for encoder, units in dict.fromkeys((row["encoder"], row["units"]) for row in rows):
        found = {row["n"]: row for row in rows if (row["encoder"], row["units"]) == (encoder, units)}
        cells = (f"{found[n]['examples_per_second']:,.0f} ({found[n]['share']:.0%})" for n in sizes)
        lines.append((encoder, str(units), *cells))
    return markdown(("encoder", "units", *(f"n = {n}" for n in sizes)), lines)


def search_on_files(figures: Figures) -> str:
    """Mean gaps of files of one problem and of like size."""
    lines = []
    for problem, least, most in (
        ("TSP", 0, 99),
        ("TSP", 100, 199),
        ("TSP", 200, 399),
        ("TSP", 400, 1002),
        ("CVRP", 100, 199),
        ("CVRP", 200, 302),
    ):
        rows = [row for row in figures.values() if row["problem"] == problem and least <= row["nodes"] <= most]
        if not rows:
            continue
        means = []
        for name in ("greedy", "best of many", "improved"):
            gap, seconds = (sum(row[name][key] for row in rows) / len(rows) for key in ("gap", "seconds"))
            means.append(f"{gap:.2%}, {seconds:.2g} s")
        lines.append((f"{problem}, {least} to {most} nodes", str(len(rows)), *means))
    return markdown(("", "files", "greedy", "best of many", "and search"), lines)


WRITERS: dict[str, tuple[Callable[..., str], tuple[str, ...]]] = {  # by name: what writes it, and of which figures
    "short-results": (short_results, ("solution_quality",)),
    "short-speed": (short_speed, ("env_throughput", "env_peers", "train_throughput")),
    **{
        f"quality-{part}": (partial(quality, part), ("solution_quality",))
        for part in ("ours", "others", "original", "files")
    },
    "search-on-files": (search_on_files, ("search_on_files",)),
    "env-throughput": (env_throughput, ("env_throughput",)),
    "env-peers": (env_peers, ("env_peers",)),
    "problem-lines": (problem_lines, ("problem_lines",)),
    "rl4co-peers": (rl4co_peers, ("env_peers_rl4co",)),
    "jax-peers": (jax_peers, ("env_peers_jax",)),
    "train-throughput": (train_throughput, ("train_throughput",)),
    "time-to-quality": (time_to_quality, ("time_to_quality",)),
    "gap-by-size": (gap_by_size, ("gap_by_size",)),
    "large-instances": (large_instances, ("large_instances",)),
    "integrations": (integrations, ("integrations",)),
    "sb3-curves": (sb3_curves, ("sb3_curves",)),
    "pointer-quality": (pointer_quality, ("pointer_network",)),
    "pointer-labels": (pointer_labels, ("pointer_network",)),
    "pointer-throughput": (pointer_throughput, ("pointer_network",)),
    "plain-ppo": (plain_ppo, ("plain_ppo",)),
    "game-throughput": (multi_agent_tables.game_throughput, ("game_throughput",)),
    "multi-agent-values": (multi_agent_tables.values, ("multi_agent_values",)),
    "multi-agent-interaction": (multi_agent_tables.interaction, ("multi_agent_values",)),
    "multi-agent-listening": (multi_agent_tables.listening, ("multi_agent_values",)),
    "multi-agent-learning": (multi_agent_tables.learning, ("multi_agent_learning",)),
    "multi-agent-cross-play": (multi_agent_tables.cross_play, ("multi_agent_learning",)),
}


def table(name: str, results: Path = RESULTS) -> str:
    """Return a table in Markdown."""
    write, files = WRITERS[name]
    return write(*(json.loads((results / f"{file}.json").read_text()) for file in files))


def renewed(text: str, results: Path = RESULTS) -> str:
    """Return a page with its tables up to date.

    Raises:
        ValueError: A table has a name that is not known.
    """

    def replace(match: re.Match[str]) -> str:
        name, start, end = match.groups()
        if name not in WRITERS:
            raise ValueError(f"no table {name}; choose among {', '.join(WRITERS)}")
        return f"{name}{start}{table(name, results)}\n{end.lstrip()}"

    return TABLE.sub(replace, text)


def pages(root: Path = ROOT) -> list[Path]:
    """List the pages that may hold tables."""
    return [root / "README.md", *sorted(root.glob("docs/*.md"))]


def main(root: Path = ROOT) -> list[Path]:
    """Write the tables; return the pages that changed."""
    changed = []
    for page in pages(root):
        before = page.read_text()
        if (after := renewed(before)) != before:
            write_atomically(page, after.encode())
            changed.append(page)
    return changed


if __name__ == "__main__":
    try:
        print("changed:", *main())
    except (ValueError, OSError) as error:
        sys.exit(f"doc_tables: {error}")
