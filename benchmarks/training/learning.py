"""Compare losses, averages of weights, networks, numbers of tours and batch sizes after equal processor time.

    python benchmarks/training/learning.py      # one core, four hours

"transfer" trains CVRP-50 from the published weights for CVRP-20, and "transfer to 100" TSP-100 from those for TSP-50.
"from scratch" trains TSP-20 from random weights, "longer" does so for four times as long, and "larger from scratch"
trains TSP-50. "fine-tuning" starts from the published weights for CVRP-50, and "labels for trained weights" from those
for TSP-50. In each stage, every arm differs from the first in one argument of agents/am_reinforce.py or in one class of
learning_ways.py. It gets as many steps as fit into the same processor seconds; the seconds of a step are measured
beforehand, in turn. Runs of one seed train on the same instances. A run is evaluated by the greedy tours of fixed
held-out instances, and on some of them by the best of 128 tours: 16 samples under each of the eight symmetries. Moving
averages of the weights are evaluated in the same runs; the time that they take does not count. Each run is kept in
--runs when it is finished, and not measured again with the same steps, instances and initial weights. The figures are
those of all runs that are kept with these instances and weights. The intervals are Student's, over seeds, for the
differences of runs with the same seed.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from am_reinforce import Args as TrainingArgs
from am_reinforce import ReinforceTrainer
from benchmarks.output import OUT, Figures, finish
from benchmarks.training import learning_tables
from benchmarks.training.learning_stages import STAGES, Arm
from routing_agents import checkpoint
from routing_agents.evaluation.methods import weights_digest
from routing_agents.policies.attention.decoding import Decoding, solve
from routing_agents.policies.attention.model import ModelConfig
from routing_agents.policies.protocol import PolicyNetwork
from routing_agents.runs import check_integers, check_numbers
from routing_agents.terminal import command_line
from routing_agents.trained import WEIGHTS
from routing_agents.training.averaging import WeightAverage
from routing_agents.training.tuning import keep_freed_memory
from routing_gym.arrays import select, to_backend
from routing_gym.solvers import FastTSP

ROOT = Path(__file__).parents[2]
COMMIT = "607ccca"  # its weights, from which the published figures start, lack nearness
DECAYS = (0.97,)  # decays of averages of weights; in runs of 300 steps or fewer, larger ones have the same effect
SAMPLES, SYMMETRIES = 16, 8
ENTROPY_STEPS = 20  # number of the last steps of a run over which the entropy is averaged


@dataclass(frozen=True)
class Args:
    """Arguments of the benchmark."""

    stages: tuple[str, ...] = tuple(STAGES)
    """Stages to run."""
    arms: tuple[str, ...] = ()
    """Labels of the arms to run beside the first of each stage; none for all."""
    seeds: tuple[int, ...] = (1, 2, 3)
    """Random seeds; one run of each arm for each."""
    scale: float = 1.0
    """Factor of the processor seconds of every run."""
    held_out: int = 1_000
    """Number of held-out instances for greedy tours."""
    sampled: int = 200
    """Number of those that are also sampled."""
    weights: Path = WEIGHTS
    """Folder of the weights that stages start from, which are networks without nearness."""
    runs: Path = ROOT / "runs" / "learning"
    """Folder in which finished runs are kept."""
    out: Path = OUT / "learning.json"
    """Where the figures go. The docs show those in benchmarks/results."""

    def __post_init__(self) -> None:
        check_integers(self, "seeds", least=0)
        check_numbers(self, "scale")
        check_integers(self, "held_out", "sampled")
        if self.sampled > self.held_out:
            raise ValueError(f"--sampled {self.sampled} of {self.held_out} held-out instances; take fewer")
        if unknown := set(self.stages) - STAGES.keys():
            raise ValueError(f"--stages: unknown {', '.join(sorted(unknown))}; choose from {', '.join(STAGES)}")
        labels = {arm.label for stage in self.stages for arm in STAGES[stage].arms}
        if unknown := set(self.arms) - labels:
            raise ValueError(f"--arms: unknown {', '.join(sorted(unknown))}; choose from {', '.join(sorted(labels))}")

    def chosen(self, stage: str) -> list[Arm]:
        """Return the arms of a stage that are to be run."""
        first, *others = STAGES[stage].arms
        return [first, *(arm for arm in others if not self.arms or arm.label in self.arms)]


def initial_weights(args: Args, stage: str) -> Path | None:
    """Return the weights that a stage starts from; None if it starts from random ones."""
    weights: Path | None = STAGES[stage].settings.get("init_from")
    return weights and args.weights / weights.name


def check_weights(args: Args) -> None:
    """Check the weights that the stages start from.

    Raises:
        ValueError: They have nearness, which the networks of all arms lack: `warm_start` would leave it out.
    """
    for stage in args.stages:
        weights = initial_weights(args, stage)
        if weights is not None and checkpoint.load(weights)[1]["model"].get("nearness"):
            raise ValueError(
                f"{weights} is a network with nearness, but stage {stage!r} trains networks without it; give a folder "
                f"with the weights of commit {COMMIT} as --weights (docs/research/2026-11-learning.md has the command)"
            )


def settings_of(args: Args, stage: str) -> Figures:
    """Return what the figures of all runs of a stage depend on."""
    weights = initial_weights(args, stage)
    digest = None if weights is None else weights_digest(weights)
    return {"held_out": args.held_out, "sampled": args.sampled, "weights": digest}


def training_args(args: Args, stage: str, arm: Arm, seed: int, steps: int) -> TrainingArgs:
    """Return the arguments of am_reinforce.py for a run."""
    base = TrainingArgs(epochs=1, steps_per_epoch=steps, held_out=args.held_out, processes=1, threads=1, seed=seed)
    base = replace(base, attention=ModelConfig())  # the paper's network
    return replace(base, **{**STAGES[stage].settings, "init_from": initial_weights(args, stage), **arm.changes})


def seconds_per_step(args: Args, stage: str, rounds: int = 3, steps: int = 8) -> dict[str, float]:
    """Return the processor seconds of a step of each arm: the least over some rounds, in which the arms take turns.

    The steps of a round are spread over a run, because the steps of a run may differ. They are measured once, and the
    result is kept.
    """
    path = args.runs / f"{stage} seconds.json"
    kept: dict[str, float] = json.loads(path.read_text()) if path.exists() else {}
    arms = [arm for arm in args.chosen(stage) if arm.label not in kept and not arm.same_steps]
    trainers = {arm.label: arm.trainer(training_args(args, stage, arm, 0, 10 * steps)) for arm in arms}
    for trainer in trainers.values():
        trainer.update()  # the first step allocates memory
    for _ in range(rounds):
        for label, trainer in trainers.items():
            began = time.process_time()
            for number in range(steps):
                trainer.step = 10 * number
                trainer.update()
            kept[label] = min(kept.get(label, math.inf), (time.process_time() - began) / steps)
    path.write_text(json.dumps(kept, indent=2) + "\n")
    first, *others = args.chosen(stage)
    return kept | {arm.label: kept[first.label] for arm in others if arm.same_steps}


def train(trainer: ReinforceTrainer) -> tuple[dict[float, WeightAverage], float, float]:
    """Train to the end; return averages of the weights by their decay, processor seconds, and entropy at the end."""
    averages = {decay: WeightAverage(trainer.model, decay) for decay in DECAYS}
    seconds, total = 0.0, trainer.args.total_steps
    before: float | Tensor = 0.0  # the sum of the entropies before the last steps
    while trainer.step < total:
        if trainer.step == max(0, total - ENTROPY_STEPS):
            before = trainer.sums.get("entropy", 0.0)
        began = time.process_time()
        trainer.update()
        seconds += time.process_time() - began
        for average in averages.values():
            average.update(trainer.model, trainer.step)
    return averages, seconds, float(trainer.sums["entropy"] - before) / min(ENTROPY_STEPS, total)


def costs(args: Args, trainer: ReinforceTrainer, model: PolicyNetwork) -> dict[str, float]:
    """Return the mean costs of greedy tours, and of the best of many tours."""
    first = select(trainer.held_out, slice(0, args.sampled))
    many = Decoding(num_tours=SAMPLES, sample=True, symmetries=SYMMETRIES)
    best = solve(model, trainer.problem, first, many, torch.Generator().manual_seed(1), tours_at_once=1024)
    greedy = solve(model, trainer.problem, trainer.held_out)
    return {"greedy": mean(greedy.cost), "best": mean(best.cost)}


def mean(cost: Tensor) -> float:
    """Return the mean of costs, added up in double precision."""
    return float(cost.double().mean())


def reference(args: Args, stage: str) -> dict[str, float]:
    """Return the reference costs: those of the weights that a stage starts from, or those of fast-tsp."""
    path, settings = args.runs / f"{stage} reference.json", settings_of(args, stage)
    kept: Figures = json.loads(path.read_text()) if path.exists() else {}
    if kept.get("settings") != settings:
        trainer = ReinforceTrainer(training_args(args, stage, Arm(""), 0, 1))
        if trainer.args.init_from is not None:
            found = costs(args, trainer, trainer.model.eval())
        else:
            solver = FastTSP()
            solver.load()
            cost = solver.solve(trainer.problem, to_backend(trainer.held_out, "numpy"), num_workers=1).cost
            found = {"greedy": float(cost.mean()), "best": float(cost[: args.sampled].mean())}
        kept = {"settings": settings, "costs": found}
        path.write_text(json.dumps(kept) + "\n")
    result: dict[str, float] = kept["costs"]
    return result


def run(args: Args, stage: str, arm: Arm, seed: int, steps: int) -> Figures:
    """Return the figures of a run, which are read from disk if it was finished before."""
    path = args.runs / f"{stage}, {arm.label}, {seed}.json"
    key = {"stage": stage, "arm": arm.label, "seed": seed, "steps": steps, **settings_of(args, stage)}
    if path.exists():
        figures: Figures = json.loads(path.read_text())
        if all(figures.get(name) == value for name, value in key.items()):
            return figures
    trainer = arm.trainer(training_args(args, stage, arm, seed, steps))
    averages, seconds, entropy = train(trainer)
    trainer.model.eval()
    figures = {**key, "instances": trainer.instances, "seconds": seconds, "entropy": entropy}
    figures["latest"] = costs(args, trainer, trainer.model)
    for decay, average in averages.items():
        average.measure(trainer.latest_observations())
        figures[f"average {decay}"] = costs(args, trainer, average.model)
    path.write_text(json.dumps(figures) + "\n")
    return figures


def kept(args: Args) -> list[Figures]:
    """Return the figures of all runs that are kept with the same settings, by stage, arm and seed."""
    keys = [(name, arm.label) for name, stage in STAGES.items() for arm in stage.arms]
    order = {key: number for number, key in enumerate(keys)}
    found = [json.loads(path.read_text()) for path in sorted(args.runs.glob("*, *, *.json"))]
    found = [one for one in found if settings_of(args, one["stage"]).items() <= one.items()]
    return sorted(found, key=lambda one: (order[one["stage"], one["arm"]], one["seed"]))


def interval(values: Sequence[float]) -> tuple[float, float | None]:
    """Return a mean, and half the width of its 95 % interval by Student's distribution; None for a single value."""
    x = np.asarray(values, dtype=float)
    if len(x) < 2:
        return float(x.mean()), None
    return float(x.mean()), float(stats.t.ppf(0.975, len(x) - 1) * x.std(ddof=1) / math.sqrt(len(x)))


def summary(runs: list[Figures], references: dict[str, dict[str, float]]) -> list[Figures]:
    """Return for each stage and arm, and each set of weights, the gaps and their differences from the first arm's.

    All in per cent of the reference. The differences are those of runs with the same seed; an average of weights is
    compared with the latest weights of the same runs.
    """
    rows = []
    for stage, relative_to in references.items():
        mine = [one for one in runs if one["stage"] == stage]
        for label in dict.fromkeys(one["arm"] for one in mine):
            arm = {one["seed"]: one for one in mine if one["arm"] == label}
            first = {one["seed"]: one for one in mine if one["arm"] == mine[0]["arm"]}
            for weights in ("latest", *(f"average {decay}" for decay in DECAYS)):
                row: Figures = {"stage": stage, "arm": label, "weights": weights, "seeds": len(arm)}
                row["steps"] = next(iter(arm.values()))["steps"]
                row["seconds"] = float(np.mean([one["seconds"] for one in arm.values()]))
                row["entropy"] = float(np.mean([one["entropy"] for one in arm.values()]))
                for kind, cost in relative_to.items():
                    row[kind] = interval([100 * (one[weights][kind] / cost - 1) for one in arm.values()])
                    others = first if weights == "latest" else arm
                    row[f"{kind} less"] = interval(
                        [
                            100 * (arm[seed][weights][kind] - others[seed]["latest"][kind]) / cost
                            for seed in arm
                            if seed in others
                        ]
                    )
                rows.append(row)
    return rows


def main(args: Args) -> Figures:
    """Measure, print a table after each seed, and write the figures."""
    keep_freed_memory()
    torch.set_num_threads(1)
    check_weights(args)
    args.runs.mkdir(parents=True, exist_ok=True)
    for stage in args.stages:
        reference(args, stage)
        seconds_per_step(args, stage)
    figures: Figures = {}
    for seed in args.seeds:
        for stage in args.stages:
            for arm in args.chosen(stage):
                steps = max(1, round(args.scale * STAGES[stage].seconds / seconds_per_step(args, stage)[arm.label]))
                latest = run(args, stage, arm, seed, steps)["latest"]
                print(f"{stage}, {arm.label}, seed {seed}: {latest}", flush=True)
        runs = kept(args)
        stages = list(dict.fromkeys(one["stage"] for one in runs))
        references = {stage: reference(args, stage) for stage in stages}
        times = {stage: seconds_per_step(args, stage) for stage in stages}
        rows = summary(runs, references)
        figures = {"references": references, "seconds_per_step": times, "table": rows, "runs": runs}
        figures = finish(
            args,
            figures,
            *(f"{stage}\n{learning_tables.arms(stage, figures)}" for stage in stages),
            learning_tables.averages(figures),
        )
    return figures


if __name__ == "__main__":
    command_line(main, Args, __doc__)
