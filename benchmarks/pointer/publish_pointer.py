"""Publish the best weights of a pointer network's run: in half precision, with a card that describes them.

    python benchmarks/pointer/publish_pointer.py runs/NAME      # NAME.safetensors and NAME.json

The weights go to agents/routing_agents/weights/pointer, the log of the run to benchmarks/results/training. Weights are
refused if rounding to half precision changes their main metric by more than 0.005.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro

from benchmarks.hardware import describe_machine
from benchmarks.quality.publish_weights import check_ended, check_rounding, commands, install, save_candidate
from pointer_network import BEST_IS
from pointer_network import Args as TrainingArgs
from routing_agents import checkpoint
from routing_agents.policies.pointer.decoding import evaluate
from routing_agents.policies.pointer.labels import labelled
from routing_agents.policies.pointer.saved import PUBLISHED, load_network
from routing_agents.runs import BEST, HELD_OUT_SEED
from routing_agents.terminal import command_line

ROOT = Path(__file__).parents[2]
TOLERANCE = 0.005  # absolute change of the metric in `BEST_IS`


@dataclass(frozen=True)
class Args:
    """Arguments of the script."""

    run: tyro.conf.Positional[Path]
    """The folder of a run; its name becomes that of the weights."""
    size: int = 1_000
    """Held-out instances on which rounding may not cost anything."""
    examples: Path = ROOT / "runs" / ".examples"
    """Where solved instances are kept."""
    out: Path = PUBLISHED
    """Folder of the weights and their cards."""
    logs: Path = ROOT / "benchmarks" / "results" / "training"
    """Folder of the logs."""


def metrics(path: Path, args: Args) -> dict[str, float]:
    """Measure weights on held-out instances of the largest size they were trained on."""
    model, task, header = load_network(path)
    size = header["args"]["sizes"][1]
    points, right = labelled(task, "optimal", {size: args.size}, HELD_OUT_SEED, args.examples, 1, True)[size]
    return evaluate(model, task, points, right, order=header["order"])


def main(args: Args) -> Path:
    """Write weights, card and log; return the path of the weights.

    Raises:
        ValueError: Half precision changes the metric too much, or the run is one of am_reinforce.py.
        OSError: The run has not ended, or a file cannot be written.
    """
    best = args.run / BEST
    tensors, header = checkpoint.load(best)
    if "settings" in header:
        raise ValueError(f"{best}: a run of am_reinforce.py; expected one of pointer_network.py")
    runs = [*header.get("history", []), header]
    check_ended(args.run)
    name, _ = BEST_IS[header["task"]]
    before = metrics(best, args)
    path = args.out / f"{args.run.name}.safetensors"
    candidate = save_candidate(path, tensors, header)
    after = metrics(candidate, args)
    check_rounding(candidate, best, name, before[name], after[name], TOLERANCE)
    card = {
        "commands": commands(runs, "pointer_network.py", TrainingArgs),
        "seed": header["args"]["seed"],
        "examples": sum(run["metrics"]["instances"] for run in runs),
        "hours": round(sum(run["seconds"] for run in runs) / 3600, 2),
        "held_out": {"instances": args.size, **after},
        "held_out_in_float32": before,
        "arguments": header["args"],
        "published_on": describe_machine(),
    }
    install(candidate, path, card, args.run, args.logs / f"pointer-{args.run.name}.jsonl")
    print(f"{path}: {path.stat().st_size / 1e6:.1f} MB, {name} {after[name]:.4f} (float32: {before[name]:.4f})")
    return path


if __name__ == "__main__":
    command_line(main, Args, __doc__)
