"""How good tours of instance files are: one greedy tour, the best of many, and these improved by search.

    python benchmarks/search_on_files.py ../shared/data/cvrplib/X-*.vrp --seconds 30
    python benchmarks/doc_tables.py                                                    # writes the table of the docs

Gaps are to the best known cost that lies beside each file, in the file's own integers; files without one, and of
problems whose tours no search improves, are left out. One thread. Each file is written as soon as it is solved; one
that is there with the same settings and weights is not solved again.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import tyro
from rich.console import Console

from hardware import describe_machine, digest
from routing_agents import load
from routing_agents.repair.search import NEIGHBOURHOODS
from routing_agents.runs import check_positive
from routing_agents.trained import choose_decoding, find_weights, load_repair
from routing_gym import data
from routing_gym.files import write_atomically

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Args:
    """Arguments of the benchmark."""

    files: tyro.conf.Positional[tuple[Path, ...]]
    """TSPLIB and CVRPLIB files."""
    seconds: float = 30.0
    """Of search for each file, after the best of many tours."""
    seed: int = 1
    """Of the search."""
    out: Path = ROOT / "benchmarks" / "results" / "search_on_files.json"
    """Where the figures go."""

    def __post_init__(self) -> None:
        check_positive(self, "seconds")
        if not self.files:
            raise ValueError("name at least one .tsp or .vrp file")


def measure(file: data.FileInstance, args: Args) -> dict[str, Any]:
    """Solve one file in the three ways: their gaps, and wall-clock seconds."""
    assert file.best_known is not None
    model = load(find_weights(file.problem.name, file.problem.num_nodes))
    figures: dict[str, Any] = {
        "problem": file.problem.name,
        "nodes": file.problem.num_nodes,
        "weights": model.path.stem,
    }
    actions = None
    for name, decoding in (("greedy", "greedy"), ("best of many", "starts")):
        started = time.perf_counter()
        found = model.solve_batch(file.problem, file.instance, choose_decoding(decoding, file.problem))
        seconds, actions = time.perf_counter() - started, found.actions[0].numpy()
        figures[name] = {"gap": file.cost(actions) / file.best_known - 1, "seconds": seconds}
    repair = load_repair(file.problem)
    improved = repair.improve(file.problem, file.instance, actions, args.seconds, args.seed)
    if improved.interrupted:  # not a measurement
        raise KeyboardInterrupt(f"while {file.name} was searched")
    gap = file.cost(improved.actions) / file.best_known - 1
    return {**figures, "repair": repair.path.stem, "improved": {"gap": gap, "seconds": improved.seconds}}


def main(args: Args) -> dict[str, Any]:
    """Solve the files; return and write the figures.

    Raises:
        ValueError: A file cannot be read.
        OSError: The figures cannot be written.
    """
    torch.set_num_threads(1)
    results: dict[str, Any] = json.loads(args.out.read_text()) if args.out.exists() else {}
    console = Console(stderr=True)
    for path in args.files:
        file = data.read_instance(path)
        if file.best_known is None or file.problem.name not in NEIGHBOURHOODS:
            console.print(f"{path.name}: left out", markup=False)
            continue
        weights = find_weights(file.problem.name, file.problem.num_nodes)
        used = {"weights": digest(weights), "repair": digest(load_repair(file.problem).path)}
        settings = {"seconds": args.seconds, "seed": args.seed, **used}
        if results.get(path.stem, {}).get("settings") != settings:
            results[path.stem] = {**measure(file, args), "settings": settings, "machine": describe_machine()}
            args.out.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(args.out, (json.dumps(results, indent=2, sort_keys=True) + "\n").encode())
        gaps = {name: results[path.stem][name]["gap"] for name in ("greedy", "best of many", "improved")}
        console.print(path.stem, *(f"{name} {gap:.2%}" for name, gap in gaps.items()), markup=False)
    return results


if __name__ == "__main__":
    try:
        main(tyro.cli(Args, description=__doc__))
    except (ValueError, OSError, ImportError) as error:
        sys.exit(f"search_on_files: {error}")
    except KeyboardInterrupt:
        sys.exit("search_on_files: stopped; the files before are kept")
