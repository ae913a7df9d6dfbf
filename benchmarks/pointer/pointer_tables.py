"""Measure pointer networks, and compare them with the paper's figures; docs/research shows the tables.

    python benchmarks/pointer/pointer_tables.py                      # the published weights, labels and speed
    python benchmarks/pointer/pointer_tables.py runs/A runs/B        # other networks; other figures in --out are kept

All networks are measured on the same held-out instances, which have their own seed. Vinyals et al. (2015) trained with
a million examples. The row of each of our networks has its number of examples and its training time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import tyro
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from benchmarks.output import OUT, Figures, finish, read_figures, save_picture
from routing_agents.policies.pointer.decoding import evaluate, predict
from routing_agents.policies.pointer.labels import labelled
from routing_agents.policies.pointer.model import PointerConfig, PointerNetwork, log_likelihood
from routing_agents.policies.pointer.pictures import draw_row
from routing_agents.policies.pointer.saved import PUBLISHED, load_network
from routing_agents.policies.pointer.tasks import TASKS, TSP_LABELS, Task, solve_tours, tour_lengths
from routing_agents.terminal import command_line
from routing_agents.training.tuning import fast_precision, keep_freed_memory

ROOT = Path(__file__).parents[2]
# By training (see `trained_on`) and number of points: tables 1 to 3 and section 4.3; the area is nan where the paper
# prints FAIL. Reinforcement: Bello et al. (2016), greedy, as quoted by Kool et al. (2019) in table 1.
PAPER: dict[str, dict[int, dict[str, float]]] = {
    "tsp 5-20": {
        n: {"length": length}
        for n, length in zip((5, 10, 20, 25, 30, 40, 50), (2.12, 2.87, 3.88, 4.30, 4.72, 5.91, 7.66), strict=True)
    },
    "tsp 50-50, labels a1": {50: {"length": 6.42}},
    "tsp 50-50, labels a3": {50: {"length": 6.09}},
    "tsp 20, reinforcement": {20: {"length": 3.89}},
    "convex-hull 50-50": {50: {"accuracy": 0.726, "area": 0.999}},
    "convex-hull 50-50, answer attention": {50: {"accuracy": 0.389, "area": 0.997}},
    "convex-hull 50-50, answer sequence": {50: {"accuracy": 0.019, "area": math.nan}},
    "convex-hull 5-50": {
        n: {"accuracy": a, "area": b}
        for n, a, b in zip(
            (5, 10, 50, 100, 200, 500),
            (0.920, 0.870, 0.696, 0.503, 0.221, 0.013),
            (0.996, 0.998, 0.999, 0.999, 0.999, 0.992),
            strict=True,
        )
    },
    "delaunay 5-5": {5: {"accuracy": 0.807, "coverage": 0.930}},
    "delaunay 10-10": {10: {"accuracy": 0.226, "coverage": 0.813}},
    "delaunay 50-50": {50: {"accuracy": 0.0, "coverage": 0.528}},
}
PAPER_LABELS = {  # mean lengths of the paper's optimal tours and of its algorithms
    5: {"optimal": 2.12, "a1": 2.18, "a2": 2.12, "a3": 2.12},
    10: {"optimal": 2.87, "a1": 3.07, "a2": 2.87, "a3": 2.87},
    20: {"optimal": 3.83, "a1": 4.24, "a2": 3.86, "a3": 3.85},
    50: {"a1": 6.46, "a2": 5.84, "a3": 5.79},
}
HELD_OUT_SEED = 20150609  # not the seed of a training run: its best weights were chosen on its own held-out instances


@dataclass(frozen=True)
class Args:
    """Arguments of the benchmark."""

    models: tyro.conf.Positional[tuple[Path, ...]] = ()
    """Runs or checkpoints; by default the published ones."""
    size: int = 10_000
    """Held-out instances of each size."""
    width: int = 4
    """Width of the beam, for TSP."""
    label_size: int = 1_000
    """Instances, the first of them, that are solved by a1, a2 and a3."""
    batch_size: int = 128
    """Examples per batch, where the speed of training is measured."""
    threads: int = 1
    """CPU threads."""
    examples: Path = ROOT / "runs" / ".examples"
    """Where solved instances are kept."""
    out: Path = OUT / "pointer_network.json"
    """Where the figures go; those of an earlier run are continued. The docs show those in benchmarks/results."""


def measure(path: Path, args: Args) -> Iterator[Figures]:
    """Measure one network on all sizes that the paper has for it, or else on the largest size of its training."""
    model, task, header = load_network(path)
    trained, high = trained_on(task, header)
    trainings = [*header.get("history", []), header]  # also earlier runs, which led to the initial weights
    about = {
        "model": path.name if path.is_dir() else path.stem,
        "trained": trained,
        "encoder": model.config.encoder,
        "answer": model.config.answer,
        "units": model.config.units,
        "masks": model.masks,
        "order": header["order"],
        "examples": sum(one["metrics"]["instances"] for one in trainings),
        "hours": sum(one["seconds"] for one in trainings) / 3600,
    }
    for n in PAPER.get(trained, {high: {}}):
        points, right = labelled(task, "optimal", {n: args.size}, HELD_OUT_SEED, args.examples, 1, True)[n]
        for width in (1, args.width) if task.name == "tsp" else (1,):
            started = time.perf_counter()
            metrics = evaluate(model, task, points, right, order=header["order"], width=width)
            yield {**about, "n": n, "width": width, **metrics, "seconds": time.perf_counter() - started}


def trained_on(task: Task, header: Figures) -> tuple[str, int]:
    """Return the name of a network's training, as in `PAPER`, and the largest number of points in it."""
    args = header["args"]
    if "settings" in header:  # trained by am_reinforce.py
        before = " after examples" if header.get("history") else ""
        return f"{task.name} {header['settings']['num_nodes']}, reinforcement{before}", header["settings"]["num_nodes"]
    low, high = args["sizes"]
    labels = "" if args["labels"] == "optimal" else f", labels {args['labels']}"
    answer = "" if header["model"]["answer"] == "pointer" else f", answer {header['model']['answer']}"
    return f"{task.name} {low}-{high}{labels}{answer}", high


def measure_labels(args: Args) -> list[Figures]:
    """Return the mean lengths of optimal tours and of our choice of A1, A2 and A3, on the same instances."""
    rows = []
    for n in PAPER_LABELS:
        points, right = labelled(TASKS["tsp"], "optimal", {n: args.size}, HELD_OUT_SEED, args.examples, 1, True)[n]
        points, right = points[: args.label_size], right[: args.label_size]
        lengths = {"optimal": tour_lengths(points, right).mean()}
        for name in tuple(TSP_LABELS)[1:]:
            lengths[name] = tour_lengths(points, solve_tours(points, name)).mean()
        rows.append({"n": n, **lengths})
    return rows


def operations(config: PointerConfig, n: int, steps: int) -> int:
    """Return the multiplications and additions of a training step per example; a backward pass counts as two forward.

    Only matrix products count: 8 d^2 weights per step of an LSTM; 12 d^2 weights and twice n d per point in a layer of
    a transformer.
    """
    d = config.units
    encoder = n * 8 * d * d
    if config.encoder == "transformer":
        encoder = config.num_layers * (n * 12 * d * d + 2 * n * n * d)
    pointing = n * d * d + steps * d * d + steps * n * d
    return 3 * 2 * (encoder + steps * 8 * d * d + pointing)


def products_per_second(precision: str) -> float:
    """Return the machine's multiplications and additions per second in a product of 1024 x 1024 matrices."""
    matrix = torch.randn(1024, 1024).to(getattr(torch, precision))
    for _ in range(3):
        matrix @ matrix
    started = time.process_time()
    for _ in range(20):
        matrix @ matrix
    return 20 * 2 * 1024**3 / (time.process_time() - started)


def throughput(task: Task, config: PointerConfig, n: int, precision: str, batch_size: int) -> Figures:
    """Measure examples per second of processor time, forward and backward, and the share of matrix products' rate."""
    rng = np.random.default_rng(0)
    points = torch.as_tensor(rng.random((batch_size, n, 2), dtype=np.float32))
    answers = torch.as_tensor(np.argsort(rng.random((batch_size, n)), axis=1))
    model = PointerNetwork(config, task.holds)
    model.multiply_in(precision)
    times = []
    for _ in range(6):
        started = time.process_time()
        log_p, _ = log_likelihood(model, points, answers)
        log_p.mean().backward()
        times.append(time.process_time() - started)
    rate = batch_size / float(np.median(times[1:]))
    share = rate * operations(config, n, n) / products_per_second(precision)
    return {"encoder": config.encoder, "units": config.units, "n": n, "examples_per_second": rate, "share": share}


def draw_tasks(args: Args) -> None:
    """Draw one held-out instance of each published network: the input, the right answer, the network's answer."""
    paths = sorted(PUBLISHED.glob("*.safetensors"))
    figure = Figure(figsize=(7.5, 2.7 * len(paths)), layout="constrained")
    for axes, path in zip(figure.subplots(len(paths), 3, squeeze=False), paths, strict=True):
        model, task, header = load_network(path)
        n = min(header["args"]["sizes"][1], 20)
        points, right = labelled(task, "optimal", {n: 1}, HELD_OUT_SEED, args.examples)[n]
        each_once = task.holds == "every"
        predicted = predict(model, task, points, order=header["order"], width=args.width, each_once=each_once)
        draw_row(axes, task, points[0], (None, right[0], predicted[0]))
        axes[0].set_ylabel(task.name)
    save_picture(figure, args.out, "pointer_networks.png")


def measure_speeds(args: Args) -> list[Figures]:
    """Measure the speed of training by encoder, units and number of points."""
    precision = fast_precision("cpu")
    return [
        throughput(TASKS["tsp"], PointerConfig(encoder=encoder, units=units), n, precision, args.batch_size)
        for encoder in ("transformer", "lstm")
        for units in (128, 256)
        for n in (10, 20, 50)
    ]


def main(args: Args) -> Figures:
    """Measure, and write the figures."""
    keep_freed_memory()
    torch.set_num_threads(args.threads)
    old = read_figures(args.out, "rows", "labels", "throughput")
    kept = old if args.models else {}
    rows = []
    console = Console()
    for path in args.models or sorted(PUBLISHED.glob("*.safetensors")):
        for row in measure(path, args):
            console.print({key: round(value, 4) if isinstance(value, float) else value for key, value in row.items()})
            rows.append(row)
    names = {row["model"] for row in rows}
    rows = [*(row for row in old.get("rows", []) if row["model"] not in names), *rows]
    table = Table("network", "n", "width", "result")
    for row in rows:
        shown = {key: row[key] for key in ("length", "gap", "accuracy", "area", "coverage", "valid") if key in row}
        table.add_row(row["model"], str(row["n"]), str(row["width"]), str({k: round(v, 4) for k, v in shown.items()}))
    figures = {
        "rows": rows,
        "labels": kept.get("labels") or measure_labels(args),
        "throughput": kept.get("throughput") or measure_speeds(args),
    }
    if any(PUBLISHED.glob("*.safetensors")):
        draw_tasks(args)
    return finish(args, figures, table)


if __name__ == "__main__":
    command_line(main, Args, __doc__, stopped="stopped; nothing is written")
