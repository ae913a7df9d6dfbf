"""Publish the best weights of a run: rounded to half precision, with a card that describes them.

    python benchmarks/quality/publish_weights.py runs/NAME      # tsp-20.safetensors and .json, say
    python benchmarks/quality/publish_weights.py runs/NAME --start first.safetensors --share 0.75

The weights go to agents/routing_agents/weights, where `agents/solve.py` and `agents/evaluate.py` find them by problem
and size. The log of the run goes to benchmarks/results/training. Weights are refused if rounding to half precision
changes their mean greedy cost by more than 0.1 %, or if the published weights are better.

With `--start` and `--share`, a mean of the weights before and after the run is published. After a run on instances of
another kind, it may be better than both on those of a third kind (Wortsman et al. 2022, "Robust fine-tuning of
zero-shot models").
"""

from __future__ import annotations

import json
import shlex
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro
from torch import Tensor

from am_reinforce import Args as TrainingArgs
from benchmarks.hardware import describe_machine
from routing_agents import checkpoint
from routing_agents.arguments import flags
from routing_agents.policies.attention.decoding import solve
from routing_agents.policies.attention.saved import load_model
from routing_agents.runs import BEST, check_integers
from routing_agents.terminal import command_line
from routing_agents.trained import WEIGHTS
from routing_gym.arrays import select, to_backend
from routing_gym.data.paper import NAMES as PAPER_PROBLEMS
from routing_gym.data.paper import TEST_SEED, paper_test_set
from routing_gym.files import write_atomically
from routing_gym.problem import AnyProblem

ROOT = Path(__file__).parents[2]

SCRIPT, MEAN = "benchmarks/quality/publish_weights.py", "mean.safetensors"
TOLERANCE = 1e-3  # relative change of the mean greedy cost


@dataclass(frozen=True)
class Args:
    """Arguments of the script."""

    run: tyro.conf.Positional[Path]
    """The folder of a run."""
    start: Path | None = None
    """Checkpoint from before the run, or from before an earlier one, to publish a mean of its weights and the run's."""
    share: float = 1.0
    """Share of the run's weights in this mean."""
    size: int = 10_000
    """First instances of the paper's test set (of 10,000 random ones where the paper has none), whose mean greedy
    cost must not move and is written on the card."""
    out: Path = WEIGHTS
    """Folder of the weights and their cards."""
    logs: Path = ROOT / "benchmarks" / "results" / "training"
    """Folder of the logs."""

    def __post_init__(self) -> None:
        check_integers(self, "size")
        if not 0 < self.share <= 1:
            raise ValueError(f"--share must be above 0 and at most 1, got {self.share}")
        if (self.start is None) != (self.share == 1):
            raise ValueError("--start and --share belong together: give both, with a share below 1, or neither")


def commands(runs: list[dict[str, Any]], script: str, args_type: type[Any]) -> list[str]:
    """Return the commands that reproduce the weights; each starts from the weights of the previous one.

    Args:
        runs: Headers of the runs, in order.
        script: Script in `agents` that trained them.
        args_type: Class of the script's arguments.
    """
    lines, usual = [], args_type()
    weights: list[str] = []  # of each step: its run, or the mean that replaces the run's
    for step, run in enumerate(runs, 1):
        given = flags(replace(args_type.from_json(run["args"]), name=usual.name), usual)
        start = ["--init-from", weights[-1]] if weights else []
        lines.append(shlex.join(["python", f"agents/{script}", *given, *start, "--name", f"step-{step}"]))
        folder = f"runs/step-{step}"
        if mean := run.get("mean"):
            first = weights[mean["step"] - 1]
            lines.append(f"python {SCRIPT} {folder} --start {first} --share {mean['share']}")
        weights.append(f"{folder}/{MEAN}" if mean else folder)
    return lines


def mean_weights(run: Path, start: Path, share: float) -> Path:
    """Write the mean of a run's best weights and of earlier ones that led to them to the run's folder; return the path.

    Raises:
        ValueError: The earlier weights did not lead to the run, or are those of another network.
    """
    tensors, header = checkpoint.load(run / BEST)
    first, before = checkpoint.load(start / BEST if start.is_dir() else start)
    earlier = [*before.get("history", []), checkpoint.last_run(before)]
    shapes = [{key: value.shape for key, value in weights.items()} for weights in (first, tensors)]
    if earlier != header.get("history", [])[: len(earlier)] or shapes[0] != shapes[1]:
        raise ValueError(f"--start {start}: not weights that led to those of {run}, with tensors of the same shapes")
    floats = [key for key, value in tensors.items() if value.is_floating_point()]
    mean = {key: torch.lerp(first[key].to(tensors[key]), tensors[key], share) for key in floats}
    checkpoint.save(run / MEAN, tensors | mean, {**header, "mean": {"share": share, "step": len(earlier)}})
    return run / MEAN


def hours(runs: list[dict[str, Any]], on_gpu: bool) -> float:
    """Return the hours of the runs whose device argument is a GPU, or those of the other runs."""
    seconds = (run["seconds"] for run in runs if run["args"].get("device", "auto").startswith("cuda") == on_gpu)
    return round(sum(seconds) / 3600, 2)


def portable(value: Any) -> Any:
    """Replace absolute paths in a document: by paths relative to the repository, or by file names outside of it."""
    if isinstance(value, dict):
        return {key: portable(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [portable(entry) for entry in value]
    if not isinstance(value, str) or not Path(value).is_absolute():
        return value
    path = Path(value)
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name


def in_paper(problem: AnyProblem) -> bool:
    """Return whether the paper has test sets of a problem, which are on the plane."""
    return problem.name in PAPER_PROBLEMS and not problem.matrices


def test_set(problem: AnyProblem, size: int) -> Any:
    """Return the first instances of the paper's test set; for a problem that the paper lacks, random ones."""
    if in_paper(problem):
        return select(paper_test_set(problem.name, problem.num_nodes), slice(0, size))
    return problem.generate(np.random.default_rng(TEST_SEED), size)


def greedy_cost(path: Path, size: int) -> float:
    """Return the mean greedy cost on the test set."""
    model, problem, _ = load_model(path)
    return float(solve(model, problem, to_backend(test_set(problem, size), "torch")).cost.double().mean())


def check_ended(run: Path) -> None:
    """Raise FileNotFoundError if a run has not ended; its learning curve is drawn at the end."""
    for file in ("metrics.jsonl", "curve.png"):
        if not (run / file).exists():
            raise FileNotFoundError(f"{run} has no {file}: the run has not ended")


def rounded(weights: Tensor) -> Tensor:
    """Round to half precision; matrices further, to multiples of a power of two.

    The step is 1.6 to 3.1 % of the matrix's root mean square. The file for TSP-50 then takes 0.94 instead of 1.31 MB in
    the history of the repository.
    """
    if weights.ndim < 2:
        return weights.half()
    step = torch.ldexp(torch.ones(()), torch.frexp(weights.square().mean().sqrt()).exponent - 6)
    return ((weights / step).round() * step).half()


def save_candidate(path: Path, tensors: dict[str, Tensor], header: dict[str, Any]) -> Path:
    """Save rounded weights beside the file that they may replace; return the path."""
    halves = {key: rounded(value) if value.is_floating_point() else value for key, value in tensors.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    candidate = path.with_suffix(".candidate")
    checkpoint.save(candidate, halves, header)
    return candidate


def check_rounding(candidate: Path, best: Path, name: str, before: float, after: float, tolerance: float) -> None:
    """Delete the weights in half precision if their metric differs too much from that of a run's best weights.

    Raises:
        ValueError: Half precision changes the metric by more than the tolerance.
    """
    if abs(after - before) > tolerance:
        candidate.unlink()
        raise ValueError(f"{best}: half precision moves {name} from {before:.4f} to {after:.4f}")


def install(candidate: Path, path: Path, card: dict[str, Any], run: Path, log: Path) -> None:
    """Move the weights to their path, write their card, and copy the run's log."""
    log.parent.mkdir(parents=True, exist_ok=True)
    candidate.replace(path)
    write_atomically(path.with_suffix(".json"), (json.dumps(card, indent=2) + "\n").encode())
    shutil.copy(run / "metrics.jsonl", log)


def main(args: Args) -> Path:
    """Write weights, card and log; return the path of the weights.

    Raises:
        ValueError: Half precision changes the cost too much, the published weights are better, the file does not
            record how its weights were trained, or the paper has no test set of their size.
        OSError: The run has not ended, or a file cannot be written.
    """
    check_ended(args.run)
    best = args.run / BEST if args.start is None else mean_weights(args.run, args.start, args.share)
    tensors, header = checkpoint.load(best)
    header = portable(header)
    runs = [*header.get("history", []), header]
    if not all({"args", "metrics", "seconds"} <= run.keys() for run in runs):
        raise ValueError(f"{best}: does not say how its weights were made; train them with agents/am_reinforce.py")
    before = greedy_cost(best, args.size)
    _, problem, _ = load_model(best)
    name = f"{problem.name.lower()}{'-matrices' if problem.matrices else ''}-{problem.num_nodes}"
    path = args.out / f"{name}.safetensors"
    if path.exists() and (there := greedy_cost(path, args.size)) < before:
        raise ValueError(f"{best} costs {before:.4f}, but {path} only {there:.4f}; delete that to replace it")
    candidate = save_candidate(path, tensors, header)
    after = greedy_cost(candidate, args.size)
    check_rounding(candidate, best, "the mean greedy cost", before, after, TOLERANCE * abs(before))
    card = {
        "commands": commands(runs, "am_reinforce.py", TrainingArgs),
        "seed": header["args"]["seed"],
        "instances": sum(run["metrics"]["instances"] for run in runs),
        "hours": hours(runs, on_gpu=False),
        **({"gpu_hours": on_gpu} if (on_gpu := hours(runs, on_gpu=True)) else {}),
        f"{'paper' if in_paper(problem) else 'random'}_test_set": {
            "instances": args.size,
            "greedy": after,
            "greedy_in_float32": before,
        },
        "held_out": header["metrics"],
        "arguments": header["args"],
        "published_on": describe_machine(),
    }
    install(candidate, path, card, args.run, args.logs / f"{name}-step-{len(runs)}.jsonl")
    print(f"{path}: {path.stat().st_size / 1e6:.1f} MB, mean greedy cost {after:.4f} (float32: {before:.4f})")
    return path


if __name__ == "__main__":
    command_line(main, Args, __doc__)
