"""Compare simulation-guided beam search under the eight symmetries with greedy tours and the best of many tours.

    python benchmarks/quality/beam_search.py --peers ../shared/reference/vrp_family_50.npz

The first instances of the paper's test sets, of road-like VRPTW, and of pairs of pickup and delivery, relative to a
solver on the same instances; with `--peers` also MVMoE's test instances, relative to the best known costs beside them.
Each set is written as soon as it is measured, and is not measured again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import evaluate
from benchmarks.hardware import describe_machine
from benchmarks.output import OUT, Figures, read_figures, write_figures
from benchmarks.quality.quality_tables import beam_search
from routing_agents.terminal import command_line

GREEDY, BEAM = "trained", "trained:beam=4,expansion=4,symmetries=8"
SAMPLES = "trained:num_tours=16,sample=true,symmetries=8"
SETS = {  # solver and best of many tours, and number of instances
    "paper/TSP-50": ("fast-tsp", "trained:num_tours=50,force_starts=true,symmetries=8", 200),
    "paper/TSP-100": ("fast-tsp", "trained:num_tours=100,force_starts=true,symmetries=8", 100),
    "paper/CVRP-50": ("hygese:time_limit=0.3", SAMPLES, 200),
    "paper/CVRP-100": ("hygese:time_limit=1", SAMPLES, 100),
    "random/VRPTW-matrices-50": ("pyvrp:time_limit=2", SAMPLES, 50),
    "random/PDVRP-50": ("pyvrp:time_limit=2", SAMPLES, 50),
    "random/PDVRPTW-50": ("pyvrp:time_limit=2", SAMPLES, 50),
}
VARIANTS = ("CVRP", "OVRP", "VRPL", "VRPTW", "OVRPL", "OVRPTW", "VRPLTW", "OVRPLTW")  # of MVMoE's tables
PEERS = 200  # instances of each variant
KEPT = ("mean", "gap", "gap_low", "gap_high", "seconds")


@dataclass(frozen=True)
class Args:
    """Arguments of the benchmark."""

    peers: Path | None = None
    """MVMoE's test instances of all variants (.npz), with best known costs."""
    out: Path = OUT / "beam_search.json"
    """Where the figures go; those of an earlier run are continued. The docs show those in benchmarks/results."""


def sets(args: Args) -> Iterator[tuple[str, evaluate.Args]]:
    """Yield the name of each set, and the arguments of its evaluation."""
    for name, (solver, many, size) in SETS.items():
        yield name, evaluate.Args(name, (solver, GREEDY, many, BEAM), size=size, workers=1)
    for problem in VARIANTS if args.peers is not None else ():
        methods = (GREEDY, SAMPLES, BEAM)
        yield f"MVMoE/{problem}-50", evaluate.Args(str(args.peers), methods, problem=problem, size=PEERS, workers=1)


def measured(run: evaluate.Args) -> dict[str, Any]:
    """Evaluate a set; return mean cost, gap to the first method (in per cent) and seconds per instance of each one."""
    table = evaluate.main(run)
    assert table is not None  # it is no shard
    rows = {row["method"]: {key: row[key] for key in KEPT} for row in json.loads(table.json())["rows"]}
    return {"instances": run.size, "methods": rows}


def main(args: Args) -> Figures:
    """Measure the sets that the results file lacks; write the figures, and print the table of all."""
    if args.peers is not None and not args.peers.is_file():
        raise FileNotFoundError(f"--peers {args.peers}: no such file; name MVMoE's test instances (.npz)")
    figures = read_figures(args.out, "sets") or {"machine": describe_machine(), "sets": {}}
    for name, run in sets(args):
        if name not in figures["sets"]:
            figures["sets"][name] = measured(run)
            write_figures(args.out, figures)
    print(beam_search(figures))
    return figures


if __name__ == "__main__":
    command_line(main, Args, __doc__, stopped="stopped; the sets before are kept")
