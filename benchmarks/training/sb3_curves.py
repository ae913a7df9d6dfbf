"""Draw the learning curves of runs of examples/sb3_maskable_ppo.py: the attention model and the MLP in MaskablePPO.

    python examples/sb3_maskable_ppo.py --threads 1 --name sb3-tsp
    python examples/sb3_maskable_ppo.py --threads 1 --name sb3-cvrp --env-id routing/CVRP-20
    python benchmarks/training/sb3_curves.py runs/sb3-tsp runs/sb3-cvrp

The last command writes the curves, and a picture beside them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro
from matplotlib.figure import Figure

from benchmarks.output import OUT, finish, save_picture
from routing_agents.terminal import command_line

LABELS = {"attention": "AttentionPolicy", "mlp": "MultiInputPolicy"}
LEVELS = {"random": ":", "nearest neighbour": "--"}  # costs without a curve, and their line styles


@dataclass(frozen=True)
class Args:
    """Arguments of the drawing."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of runs, one picture each, side by side."""
    out: Path = OUT / "sb3_curves.json"
    """Where the figures go. The docs show those in benchmarks/results."""


def draw(runs: list[dict[str, Any]], out: Path) -> None:
    """Plot the greedy cost against the steps of the environment."""
    figure = Figure(figsize=(5 * len(runs), 3.6), layout="constrained")
    for axes, run in zip(figure.subplots(1, len(runs), squeeze=False)[0], runs, strict=True):
        for name, curve in run["curves"].items():
            axes.plot([point["steps"] for point in curve], [point["greedy"] for point in curve], label=LABELS[name])
        for name, style in LEVELS.items():
            axes.axhline(run["costs"][name], color="black", linestyle=style, linewidth=1, label=name)
        axes.set(title=run["arguments"]["env_id"], xlabel="environment steps", ylabel="mean cost, greedy, held out")
        axes.locator_params(axis="x", nbins=4)
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.grid(alpha=0.3)
        axes.legend()
    save_picture(figure, out, "sb3_curves.png", dpi=90)


def main(args: Args) -> dict[str, Any]:
    """Collect the runs' curves, write and draw them."""
    for folder in args.runs:
        if not (folder / "curves.json").is_file():
            raise FileNotFoundError(
                f"{folder / 'curves.json'} does not exist; `python examples/sb3_maskable_ppo.py --name NAME` writes it "
                "into runs/NAME"
            )
    runs = [json.loads((folder / "curves.json").read_text()) for folder in args.runs]
    draw(runs, args.out)
    return finish(args, {"runs": runs})


if __name__ == "__main__":
    command_line(main, Args, __doc__)
