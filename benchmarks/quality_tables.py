"""The tables of the figures that solution_quality.py measures, with those of the papers."""

from __future__ import annotations

from typing import Any

from routing_gym.problems.vrp import PRESETS

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
OTHERS = tuple(f"{name}-{size}" for name in ("PDP", "MTSP", "ATSP", "TSPFE", *PRESETS) for size in (20, 50))
POMO = {  # Kwon et al. (2020), tables 2 and 3: gap of the TSP, cost of the CVRP
    "TSP-20": "0.00 %",
    "TSP-50": "0.03 %",
    "TSP-100": "0.14 %",
    "CVRP-20": "6.14",
    "CVRP-50": "10.42",
    "CVRP-100": "15.73",
}


def value_cell(figures: dict[str, Any] | None) -> str:
    """Show a mean, prizes positive."""
    return "-" if figures is None else f"{abs(figures['mean'][0]):.3f}"


def cell(figures: dict[str, Any] | None, reference: dict[str, Any] | None = None) -> str:
    """Show a mean, prizes positive: its 95 % half-width if estimated, its gap to the reference, the time it took."""
    if figures is None:
        return "-"
    value, low, high = figures["mean"]
    text = value_cell(figures)
    if figures["instances"] < figures["settings"]["size"]:
        text += f" ± {(high - low) / 2:.3f}"
    if reference is not None:
        gap = (value - reference["mean"][0]) / abs(reference["mean"][0])
        text += f" ({gap:.2%})"
    seconds = figures["seconds_per_instance"]
    return f"{text}, {seconds:.2g} s" if seconds >= 0.1 else f"{text}, {1000 * seconds:.2g} ms"


def solver_cell(row: dict[str, Any]) -> str:
    """Show the solver's mean, its time and its name."""
    reference = row.get("reference")
    return "-" if reference is None else f"{cell(reference)}, {reference['settings']['solver'].split()[0]}"


def file_cell(figures: dict[str, Any]) -> str:
    """Show a cost in the file's integers, its gap to the best known and the seconds it took."""
    gap = "" if figures["gap"] is None else f" ({figures['gap']:.1%})"
    return f"{figures['cost']}{gap}, {figures['seconds']:.2g} s"


def markdown(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Return a table in Markdown."""
    return "\n".join("| " + " | ".join(row) + " |" for row in (header, ("---",) * len(header), *rows))


def tables(results: dict[str, Any]) -> dict[str, str]:
    """Return the tables: of our weights and the solvers, of the original weights, and of instance files."""
    ours, originals = [], []
    for name, published in PAPER.items():
        if name not in results:
            continue
        row, known = results[name], tuple("-" if value is None else f"{value:.2f}" for value in published)
        columns = ("greedy", "multi-start", "symmetries", "sampling")
        cells = (cell(row.get(key), row.get("reference")) for key in columns)
        ours.append((name, *cells, solver_cell(row), *known, POMO.get(name, "-")))
        if "original greedy" in row:
            pairs = zip(("original greedy", "original sampling"), known[:2], strict=True)
            originals.append((name, *(text for key, paper in pairs for text in (cell(row.get(key)), paper))))
    others = [
        (name, *(cell(row.get(key), row.get("reference")) for key in ("greedy", "best of 128")), solver_cell(row))
        for name, row in ((name, results[name]) for name in OTHERS if name in results)
    ]
    files = [
        (
            name,
            row["problem"],
            "-" if row["best known"] is None else str(row["best known"]),
            row["weights"],
            file_cell(row["greedy"]),
            file_cell(row["starts"]),
        )
        for name, row in results.get("files", {}).items()
    ]
    paper = ("paper: greedy", "1,280 samples", "best known")
    return {
        "ours": markdown(("", "greedy", "multi-start", "x 8", "samples", "solver", *paper, "POMO x 8"), ours),
        "others": markdown(("", "greedy", "best of 128", "solver"), others),
        "original": markdown(("", "greedy", "paper", "1,280 samples", "paper"), originals),
        "files": markdown(("", "", "best known", "weights", "greedy", "best of many"), files),
    }
