"""Tables of the benchmarks of quality, with the figures of the papers."""

from __future__ import annotations

from typing import Any

from routing_gym.problems.vrp import ORIGINAL

PAPER = {  # Kool et al. (2019), table 1: greedy, best of 1,280 samples, best known; OP is a prize
    "TSP-20": (3.85, 3.84, 3.84),
    "TSP-50": (5.80, 5.73, 5.70),
    "TSP-100": (8.12, 7.94, 7.76),
    "CVRP-20": (6.40, 6.25, 6.10),
    "CVRP-50": (10.98, 10.62, 10.38),
    "CVRP-100": (16.80, 16.23, 15.65),
    "SDVRP-20": (6.39, 6.25, None),
    "SDVRP-50": (10.92, 10.59, None),
    "SDVRP-100": (16.83, 16.27, None),
    "OP-20": (5.19, 5.30, 5.39),
    "OP-50": (15.64, 16.07, 16.17),
    "OP-100": (31.62, 32.68, 33.19),
    "PCTSP-20": (3.18, 3.15, 3.13),
    "PCTSP-50": (4.60, 4.52, 4.48),
    "PCTSP-100": (6.25, 6.08, 5.98),
    "SPCTSP-20": (3.26, None, None),
    "SPCTSP-50": (4.65, None, None),
    "SPCTSP-100": (6.32, None, None),
}
OTHERS = tuple(f"{name}-{size}" for name in ("PDP", "MTSP", "ATSP", "TSPFE", *ORIGINAL) for size in (20, 50))
DEPOTS = ("VRPMB-50", "MDVRP-50", "MDVRPTW-50", "MDOVRPMBLTW-50")  # some of the 32 that RouteFinder adds
FLEETS = ("HFVRP-50", "PCVRP-50", "PCHFMDOVRPMBLTW-50", "PDVRP-50", "PDVRPTW-50")  # some of the 152 with HF, PC or PD
ROADS = tuple(f"{name}-matrices-50" for name in ("CVRP", *ORIGINAL))  # on streets, see routing_gym.problems.matrices
PUBLISHED = {  # gaps in per cent of the best of many tours, where generator and rules are the same
    "PDP-20": "Heter-POMO 0.46",  # NCS (2024), table 3: 4.584 and LKH's 4.563
    "PDP-50": "Heter-POMO 1.93",  # 6.995 and LKH's 6.862
    "ATSP-20": "MatNet 0.01",  # UniteFormer, table 6: best of 128 views times n starts, 1.540 and CPLEX's 1.540
    "ATSP-50": "MatNet 0.14",  # 1.561 and 1.559
    "OVRP-50": "MVMoE 2.42",  # Zhou et al. (2024), tables 1 and 2: MVMoE/4E, best of 400; to HGS, LKH or OR-Tools
    "VRPL-50": "MVMoE 0.06",
    "VRPTW-50": "MVMoE 3.38",
    "OVRPTW-50": "MVMoE 3.24",
    "OVRPL-50": "MVMoE 2.47",
    "VRPLTW-50": "MVMoE 2.32",
    "OVRPLTW-50": "MVMoE 3.43",
    "VRPB-50": "RouteFinder 3.08",  # CoEKS (2026), table 5: RF-TE; to PyVRP
    "OVRPB-50": "RouteFinder 2.54",
}
# Gaps like those of POMO below and PUBLISHED above.
WITH_BEAMS = {"paper/TSP-50": "POMO 0.03", "paper/TSP-100": "POMO 0.14", "MVMoE/CVRP-50": "MVMoE 0.91"}
POMO = {  # Kwon et al. (2020), tables 2 and 3: gap of the TSP, cost of the CVRP
    "TSP-20": "0.00 %",
    "TSP-50": "0.03 %",
    "TSP-100": "0.14 %",
    "CVRP-20": "6.14",
    "CVRP-50": "10.42",
    "CVRP-100": "15.73",
}


def value_cell(figures: dict[str, Any] | None) -> str:
    """Return a mean as text, prizes positive."""
    return "-" if figures is None else f"{abs(figures['mean'][0]):.3f}"


def mean_cell(figures: dict[str, Any] | None) -> str:
    """Return a mean as text, prizes positive; with its 95 % half-width if it is estimated."""
    if figures is None:
        return "-"
    _, low, high = figures["mean"]
    estimated = figures["instances"] < figures["settings"]["size"]
    return value_cell(figures) + (f" ± {(high - low) / 2:.3f}" if estimated else "")


def gap_cell(figures: dict[str, Any] | None, reference: dict[str, Any] | None) -> str:
    """Return the gap to the reference in per cent as text."""
    if figures is None or reference is None:
        return "-"
    value, best = figures["mean"][0], reference["mean"][0]
    return f"{100 * (value - best) / abs(best):.2f}"


def time_cell(figures: dict[str, Any] | None) -> str:
    """Return the time per instance in milliseconds as text, with two digits."""
    return "-" if figures is None else two_digits(1000 * figures["seconds_per_instance"])


def two_digits(value: float) -> str:
    """Round to two significant digits, without an exponent."""
    return f"{float(f'{value:.2g}'):,.10g}"


def solver_name(row: dict[str, Any]) -> str:
    """Return the name of the reference solver."""
    reference = row.get("reference")
    return "-" if reference is None else reference["settings"]["solver"].split()[0]


def file_cells(figures: dict[str, Any]) -> tuple[str, str, str]:
    """Return a cost in the integers of the file, its gap in per cent, and its seconds."""
    gap = "-" if figures["gap"] is None else f"{100 * figures['gap']:.1f}"
    return str(figures["cost"]), gap, two_digits(figures["seconds"])


def markdown(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Return a table in Markdown."""
    return "\n".join("| " + " | ".join(row) + " |" for row in (header, ("---",) * len(header), *rows))


METHODS = ("greedy", "multi-start", "symmetries", "sampling")
HEADS = ("greedy", "multi-start", "x 8", "samples")


def paper_tables(results: dict[str, Any]) -> dict[str, str]:
    """Return the tables of our weights on the paper's instances: costs, gaps, times; and of the original weights."""
    costs, gaps, times, originals = [], [], [], []
    for name, published in PAPER.items():
        if name not in results:
            continue
        row, known = results[name], tuple("-" if value is None else f"{value:.2f}" for value in published)
        reference, ours = row.get("reference"), [row.get(key) for key in METHODS]
        costs.append((name, *map(mean_cell, ours), mean_cell(reference), *known, POMO.get(name, "-")))
        gaps.append((name, *(gap_cell(one, reference) for one in ours)))
        times.append((name, *map(time_cell, ours), time_cell(reference), solver_name(row)))
        if "original greedy" in row:
            originals.append(
                (
                    name,
                    *(mean_cell(row.get("original greedy")), known[0], time_cell(row.get("original greedy"))),
                    *(mean_cell(row.get("original sampling")), known[1], time_cell(row.get("original sampling"))),
                )
            )
    paper = ("paper: greedy", "paper: 1,280 samples", "best known", "POMO x 8")
    ways = ("greedy", "paper", "time, ms", "1,280 samples", "paper", "time, ms")
    return {
        "ours": markdown(("mean cost", *HEADS, "solver", *paper), costs),
        "gaps": markdown(("gap, %", *HEADS), gaps),
        "times": markdown(("time per instance, ms", *HEADS, "solver", "name of the solver"), times),
        "original": markdown(("mean cost", *ways), originals),
    }


def reference_checks(results: dict[str, Any]) -> str:
    """Return the table of the gaps of references to stronger solutions."""
    rows = []
    for name, row in results.items():
        gap, low, high = row["gap"]
        settings = row["settings"]
        means = (f"{abs(row[key]):.3f}" for key in ("cost", "stronger_cost"))
        gaps = (f"{gap:.2f} ± {(high - low) / 2:.2f}", f"{row['worse']} of {settings['size']}")
        rows.append((name, settings["reference"], next(means), settings["stronger"], next(means), *gaps))
    heads = ("instances", "reference", "mean", "stronger", "mean", "gap, %", "worse on")
    return markdown(heads, rows)


def tables(results: dict[str, Any]) -> dict[str, str]:
    """Return the tables: of our weights and the solvers, of the original weights, and of instance files."""
    others = []
    for name in (name for name in (*OTHERS, *DEPOTS, *FLEETS, *ROADS) if name in results):
        row, cells = results[name], []
        for key in ("greedy", "best of 128"):
            cells += [mean_cell(row.get(key)), gap_cell(row.get(key), row.get("reference")), time_cell(row.get(key))]
        reference = row.get("reference")
        solver = (mean_cell(reference), time_cell(reference), solver_name(row))
        others.append((name, *cells, *solver, PUBLISHED.get(name, "-")))
    files = [
        (
            *(name, row["problem"], "-" if row["best known"] is None else str(row["best known"]), row["weights"]),
            *(*file_cells(row["greedy"]), *file_cells(row["starts"])),
        )
        for name, row in results.get("files", {}).items()
    ]
    ways = ("greedy", "gap, %", "time, ms", "best of 128", "gap, %", "time, ms", "solver", "time, ms", "name")
    file_ways = ("greedy", "gap, %", "time, s", "best of many", "gap, %", "time, s")
    return {
        **paper_tables(results),
        "others": markdown(("mean cost", *ways, "published gap, %"), others),
        "files": markdown(("file", "problem", "best known", "weights", *file_ways), files),
    }


def gap_by_size(figures: dict[str, Any]) -> str:
    """Return the gaps by problem and number of nodes, with two columns for each of the weights: greedy, best of 8."""
    lines, heads = [], ["weights for 50", "weights for 100"]
    for row in figures["rows"]:
        gaps = (f"{100 * gap:.1f}" for gap in row["gaps"].values())
        lines.append((row["problem"], f"{row['size']:,}", str(row["instances"]), *gaps))
    ways = (f"{head}: {way}" for head in heads for way in ("greedy", "best of 8"))
    return markdown(("gap, %", "nodes", "instances", *ways), lines)


def other_settings(figures: dict[str, Any]) -> str:
    """Return the gaps by problem and value of a setting."""
    lines = []
    for row in figures["rows"]:
        value = row["value"] if isinstance(row["value"], str) else f"{row['value']:g}"
        value += " (default)" if row["default"] else ""
        gaps = (f"{100 * gap:.1f}".replace("-0.0", "0.0") for gap in row["gaps"].values())
        lines.append((row["problem"], f"`{row['setting']}`", value, row["solver"], *gaps))
    return markdown(("gap, %", "setting", "value", "solver", *figures["rows"][0]["gaps"]), lines)


def planning_variants(figures: Any) -> str:
    """Return, by variant, the mean gaps of policy and search to the classical solver, and the search's greatest gap."""
    lines = []
    for name in figures["arguments"]["variants"]:
        rows = [row for row in figures["instances"] if row["variant"] == name]
        policy, search = ([100 * (row[key] / row["classical"] - 1) for row in rows] for key in ("policy", "search"))
        means = (sum(policy) / len(rows), sum(search) / len(rows), max(search))
        lines.append((name, str(len(rows)), *(f"{value:.2f}".replace("-0.00", "0.00") for value in means)))
    return markdown(("gap, %", "instances", "policy", "and search", "greatest"), lines)


def family_files(figures: Any) -> str:
    """Return the gaps of files of the VRP family: of the best of many tours, of this tour improved, and of PyVRP."""
    lines = []
    for name, row in figures["files"].items():
        gaps = ("-" if row[way] is None else f"{100 * row[way]:.2f}" for way in ("best of many", "improved", "pyvrp"))
        lines.append((name, row["problem"], str(row["customers"]), f"{row['best known']:.10g}", *gaps))
    ways = ("best of many, %", "and search, %", "PyVRP, %")
    return markdown(("file", "problem", "customers", "best known", *ways), lines)


def beam_search(figures: Any) -> str:
    """Return gaps and times of greedy tours, of the best of many tours, and of beam search, beside published gaps."""
    lines = []
    for name, row in figures["sets"].items():
        reference, *methods = row["methods"].items()
        source, _, problem = name.partition("/")
        published = PUBLISHED.get(problem) if source == "MVMoE" else None
        cells = [f"{reference[1]['mean']:.3f}", reference[0].partition(":")[0]]
        for method, found in methods:
            half = f" ± {(found['gap_high'] - found['gap_low']) / 2:.2f}" * ("beam" in method)
            cells += [f"{found['gap']:.2f}{half}", two_digits(1000 * found["seconds"])]
        label = f"{problem}, MVMoE's" if source == "MVMoE" else problem
        lines.append((label, str(row["instances"]), *cells, WITH_BEAMS.get(name, published or "-")))
    ways = ("greedy, %", "time, ms", "best of many, %", "time, ms", "beam search, %", "time, ms", "published, %")
    return markdown(("set", "instances", "mean cost", "reference", *ways), lines)


def planner(figures: Any) -> str:
    """Return the mean costs of the planner's steps, ours and PyVRP's, and how often ours is at most PyVRP's."""
    steps = list(dict.fromkeys(row["step"] for row in figures["steps"]))
    lines = []
    for step in steps:
        rows = [row for row in figures["steps"] if row["step"] == step]
        means = (sum(row[key] for row in rows) / len(rows) for key in ("ours", "pyvrp"))
        equal = sum(row["ours"] <= row["pyvrp"] + 1e-6 for row in rows)
        lines.append((step, *(f"{value:.2f}" for value in means), f"{equal} of {len(rows)}"))
    return markdown(("step", "`solve`", "PyVRP", "at most PyVRP's"), lines)
