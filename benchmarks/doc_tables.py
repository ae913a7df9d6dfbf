"""Write the tables of README.md and docs/ from the figures in benchmarks/results.

    python benchmarks/doc_tables.py     # after a benchmark; a test fails where a page does not show its figures

A table stands between the lines `<!-- table: NAME -->` and `<!-- end of table -->`; everything else on a page is kept.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import problem_lines, speed_tables
from benchmarks.multi_agent import multi_agent_tables, multi_agent_values
from benchmarks.pointer.pointer_tables import PAPER as PAPER_POINTER
from benchmarks.pointer.pointer_tables import PAPER_LABELS
from benchmarks.quality import quality_tables
from benchmarks.quality.quality_tables import PAPER, gap_by_size, markdown, tables, two_digits, value_cell
from benchmarks.training import learning_tables
from routing_agents.terminal import command_line
from routing_gym.files import write_atomically

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
RECIPES = ("tsp-20", "tsp-50", "tsp-100", "cvrp-20", "cvrp-50", "cvrp-100", "op-50")  # cards of weights
TABLE = re.compile(r"(?<=<!-- table: )([\w-]+)( -->\n).*?(\n?<!-- end of table -->)", re.DOTALL)
Figures = Any  # contents of a file in benchmarks/results


def sb3_curves(figures: Figures) -> str:
    """Return the costs on held-out instances after training, and those of methods without training."""
    runs = figures["runs"]
    names = {
        "random": "random",
        "mlp": "MultiInputPolicy, greedy",
        "nearest neighbour": "nearest neighbour",
        "attention": "AttentionPolicy, greedy",
    }
    lines = [(label, *(f"{run['costs'][name]:.2f}" for run in runs)) for name, label in names.items()]
    return markdown(("", *(run["arguments"]["env_id"].removeprefix("routing/") for run in runs)), lines)


def executors(figures: Figures) -> str:
    """Return the core hours per million instances: seconds on Ray, its start included, times the number of workers."""
    decoded, workers = figures["TSP-20 decoded greedily"], figures["arguments"]["workers"]
    lines = [("TSP-20, published weights, greedily", decoded["instances"], workers * decoded["seconds"])]
    for name, label in (
        ("CVRP-50 by pyvrp", "CVRP-50, `pyvrp`, {iterations} iterations"),
        ("TSP-50 by fast-tsp", "TSP-50, `fast-tsp`, {time_limit:g} s"),
    ):
        found = figures[name]
        lines.append((label.format(**found["settings"]), found["rows"], workers * found["seconds"]["ray"]))
    rows = [
        (label, f"{rows:,}", f"{1000 * seconds / rows:.2f}", f"{seconds / rows * 1e6 / 3600:.1f}")
        for label, rows, seconds in lines
    ]
    return markdown(("work", "measured", "ms per instance on a core", "core hours per million"), rows)


def executors_compared(figures: Figures) -> str:
    """Return the equality and overhead of Ray and worker processes, and the memory for many decoded instances."""
    cvrp, tsp, short, decoded = (
        figures[name] for name in ("CVRP-50 by pyvrp", "TSP-50 by fast-tsp", "overhead", "TSP-20 decoded greedily")
    )
    each = short["main process, seconds per row"]
    rows = [
        ("CVRP-50 by `pyvrp`: rows with equal tours, of all", f"{cvrp['equal tours']:,} of {cvrp['rows']:,}"),
        ("TSP-50 by `fast-tsp`: rows with equal costs, of all", f"{tsp['equal costs']:,} of {tsp['rows']:,}"),
        ("rows of 10 ms: time on Ray, relative to processes", f"{100 * short['ray over processes']:+.1f} %"),
        ("processor time of the command for each such row: processes", f"{1000 * each['processes']:.1f} ms"),
        ("processor time of the command for each such row: Ray", f"{1000 * each['ray']:.1f} ms"),
        (f"{decoded['instances']:,} TSP-20 decoded: peak of a worker", f"{decoded['worker, bytes'] / 1e9:.2f} GB"),
        ("the same: peak of the command", f"{decoded['main process, bytes'] / 1e9:.2f} GB"),
    ]
    return markdown(("measured", ""), rows)


def recipes(*cards: Figures) -> str:
    """Return the hours and greedy costs of published weights, from their cards."""
    rows = []
    for card in cards:
        problem = card["arguments"]["env_id"].removeprefix("routing/")
        greedy = abs(card["paper_test_set"]["greedy"])
        on_gpu = f"{60 * card['gpu_hours']:.0f}" if "gpu_hours" in card else "-"
        rows.append((problem, f"{card['instances'] / 1e6:.1f} M", f"{card['hours']:.1f}", on_gpu, f"{greedy:.3f}"))
    return markdown(("weights", "training instances", "core hours", "GPU minutes", "greedy"), rows)


def plain_ppo(figures: Figures) -> str:
    """Return the step from which episodes are legal without masks, and the costs with and without masks."""
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
    """Return one of the tables of solution quality."""
    return tables(figures)[part]


def short_results(figures: Figures) -> str:
    """Return the costs of our weights for 50 nodes and those of the paper, for the README."""
    lines = []
    for name in (name for name in PAPER if name.endswith("-50")):
        greedy, many, _ = PAPER[name]
        ours = (value_cell(figures[name].get(key)) for key in ("greedy", "symmetries", "reference"))
        lines.append((name, *ours, f"{greedy:.2f}", "-" if many is None else f"{many:.2f}"))
    return markdown(("mean cost", "greedy", "best of many", "solver", "paper: greedy", "1,280 samples"), lines)


def pointer_quality(figures: Figures) -> str:
    """Return one row per network and size: its figures beside the paper's, in the paper's order; others come last."""
    places, lines = {name: place for place, name in enumerate(PAPER_POINTER)}, []

    def place(row: Figures) -> tuple[int, str, int, str]:
        return places.get(row["trained"], len(places)), row["trained"], row["n"], row["encoder"]

    for row in sorted(figures["rows"], key=place):
        if row["width"] > 1:  # shown in the row of greedy decoding
            continue
        beam = [one for one in figures["rows"] if one["width"] > 1 and same_test(one, row)]
        published = PAPER_POINTER.get(row["trained"], {}).get(row["n"], {})
        if "length" in row:
            found = f"{beam[0]['length']:.3f}, {beam[0]['gap']:.1%} " if beam else ""
            ours = f"{found}({row['length']:.3f})"
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
    """Return whether two rows have the same network and size."""
    return (one["model"], one["n"]) == (other["model"], other["n"])


def pointer_labels(figures: Figures) -> str:
    """Return the mean tour lengths of the optimum and the algorithms, the paper's and ours."""
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
    """Return the examples per second of processor time, and the share of the machine's rate of matrix products."""
    rows = figures["throughput"]
    sizes = list(dict.fromkeys(row["n"] for row in rows))
    lines = []
    for encoder, units in dict.fromkeys((row["encoder"], row["units"]) for row in rows):
        found = {row["n"]: row for row in rows if (row["encoder"], row["units"]) == (encoder, units)}
        cells = (f"{found[n]['examples_per_second']:,.0f} ({found[n]['share']:.0%})" for n in sizes)
        lines.append((encoder, str(units), *cells))
    return markdown(("encoder", "units", *(f"n = {n}" for n in sizes)), lines)


def search_on_files(figures: Figures) -> str:
    """Return the mean gaps of files of one problem and of similar size."""
    lines, shown = [], 0
    if len({row[part]["settings"]["seconds"] for row in figures.values() for part in ("ours", "solvers")}) > 1:
        raise ValueError("search_on_files.json: files had different seconds; measure all with the same")
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
        shown += len(rows)
        means = []
        for name in ("greedy", "best of many", "improved", "2-opt+or-opt", "fast-tsp", "pyvrp", "hygese"):
            found = [part[name] for row in rows for part in (row["ours"], row["solvers"]) if name in part]
            gap, seconds = (sum(way[key] for way in found) / len(rows) for key in ("gap", "seconds"))
            means += [f"{100 * gap:.2f}", two_digits(seconds)] if found else ["-", "-"]
        lines.append((f"{problem}, {least} to {most} nodes", str(len(rows)), *means))
    if shown < len(figures):
        raise ValueError(f"search_on_files.json: {len(figures) - shown} files are of no size that the table has")
    ways = ("greedy", "best of many", "and search", "2-opt, Or-opt", "fast-tsp", "PyVRP", "hygese")
    return markdown(("mean gap, %", "files", *(head for way in ways for head in (way, "time, s"))), lines)


WRITERS: dict[str, tuple[Callable[..., str], tuple[str, ...]]] = {  # by name: function and files of a table
    "short-results": (short_results, ("solution_quality",)),
    "short-speed": (
        speed_tables.short_speed,
        ("env_throughput", "env_peers", "train_throughput", "train_throughput_avx2"),
    ),
    "executors": (executors, ("executors",)),
    "executors-compared": (executors_compared, ("executors",)),
    "recipes": (recipes, tuple(f"../../agents/routing_agents/weights/{name}" for name in RECIPES)),
    **{
        f"quality-{part}": (partial(quality, part), ("solution_quality",))
        for part in ("ours", "gaps", "times", "others", "original", "files")
    },
    "reference-checks": (quality_tables.reference_checks, ("reference_checks",)),
    "search-on-files": (search_on_files, ("search_on_files",)),
    "planning-variants": (quality_tables.planning_variants, ("planning_variants",)),
    "family-files": (quality_tables.family_files, ("family_files",)),
    "beam-search": (quality_tables.beam_search, ("beam_search",)),
    "planner": (quality_tables.planner, ("planner",)),
    "env-throughput": (speed_tables.env_throughput, ("env_throughput",)),
    "env-peers": (speed_tables.env_peers, ("env_peers",)),
    "problem-lines": (problem_lines.table, ("problem_lines",)),
    "rl4co-peers": (speed_tables.rl4co_peers, ("env_peers_rl4co",)),
    "jax-peers": (speed_tables.jax_peers, ("env_peers_jax",)),
    "rl4co-peers-avx2": (speed_tables.rl4co_peers, ("env_peers_avx2",)),
    "one-core-avx2": (speed_tables.one_core, ("train_throughput_avx2",)),
    "train-throughput-h200": (speed_tables.one_core, ("train_throughput_h200",)),
    "train-throughput": (speed_tables.train_throughput, ("train_throughput",)),
    "time-to-quality": (speed_tables.time_to_quality, ("time_to_quality",)),
    **{
        f"learning-{stage.replace(' ', '-')}": (partial(learning_tables.arms, stage), ("learning",))
        for stage in ("transfer", "from scratch", "longer", "fine-tuning")
    },
    **{
        f"learning-{stage.replace(' ', '-')}": (partial(learning_tables.arms, stage), ("learning_labels",))
        for stage in ("larger from scratch", "labels for trained weights", "transfer to 100")
    },
    "learning-averages": (learning_tables.averages, ("learning",)),
    "gap-by-size": (gap_by_size, ("gap_by_size",)),
    "other-settings": (quality_tables.other_settings, ("other_settings",)),
    "large-instances": (speed_tables.large_instances, ("large_instances",)),
    "integrations": (speed_tables.integrations, ("integrations",)),
    "sb3-curves": (sb3_curves, ("sb3_curves",)),
    "pointer-quality": (pointer_quality, ("pointer_network",)),
    "pointer-labels": (pointer_labels, ("pointer_network",)),
    "pointer-throughput": (pointer_throughput, ("pointer_network",)),
    "plain-ppo": (plain_ppo, ("plain_ppo",)),
    "game-throughput": (multi_agent_tables.game_throughput, ("game_throughput",)),
    "multi-agent-values": (multi_agent_values.table, ("multi_agent_values",)),
    "multi-agent-interaction": (multi_agent_tables.interaction, ("multi_agent_values",)),
    "multi-agent-listening": (multi_agent_tables.listening, ("multi_agent_values",)),
    "multi-agent-learning": (multi_agent_tables.learning, ("multi_agent_learning",)),
    "multi-agent-learning-interaction": (multi_agent_tables.learning_interaction, ("multi_agent_learning",)),
    "multi-agent-cross-play": (multi_agent_tables.cross_play, ("multi_agent_learning",)),
}


def table(name: str, results: Path = RESULTS) -> str:
    """Return a table in Markdown."""
    write, files = WRITERS[name]
    return write(*(json.loads((results / f"{file}.json").read_text()) for file in files))


def renewed(text: str, results: Path = RESULTS) -> str:
    """Return a page with its tables up to date.

    Raises:
        ValueError: The name of a table is unknown.
    """

    def replace(match: re.Match[str]) -> str:
        name, start, end = match.groups()
        if name not in WRITERS:
            raise ValueError(f"no table {name}; choose among {', '.join(WRITERS)}")
        return f"{name}{start}{table(name, results)}\n{end.lstrip()}"

    return TABLE.sub(replace, text)


def pages(root: Path = ROOT) -> list[Path]:
    """List the pages that may hold tables."""
    written = (page for page in root.glob("docs/**/*.md") if root / "docs" / "environments" not in page.parents)
    return [root / "README.md", *sorted(written)]


@dataclass(frozen=True)
class Args:
    """Arguments of the script."""

    root: Path = ROOT
    """Folder with README.md and docs."""


def main(args: Args) -> list[Path]:
    """Write the tables; print and return the pages that changed."""
    changed = []
    for page in pages(args.root):
        before = page.read_text()
        if (after := renewed(before)) != before:
            write_atomically(page, after.encode())
            changed.append(page)
    print("changed:", *changed) if changed else print("nothing changed")
    return changed


if __name__ == "__main__":
    command_line(main, Args, __doc__)
