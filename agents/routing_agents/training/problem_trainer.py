"""Base class of the trainers whose policy constructs solutions of a problem: what a run shows of held-out instances."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import Any

import numpy as np

from routing_agents import checkpoint, runs
from routing_agents.policies.attention.decoding import solve
from routing_agents.policies.attention.model import NETWORKS
from routing_agents.policies.attention.saved import USUAL
from routing_agents.policies.protocol import PolicyNetwork
from routing_agents.training.report import Column
from routing_agents.training.trainer import Trainer
from routing_gym import render
from routing_gym.arrays import select, to_backend
from routing_gym.problem import AnyProblem


def check_network(name: str, *others: str) -> None:
    """Check the name of a network.

    Raises:
        ValueError: It is neither among `NETWORKS` nor among the others.
    """
    if name not in (known := (*NETWORKS, *others)):
        raise ValueError(
            f"--model {name!r}: choose one of {', '.join(known)}, or add one of your own to "
            "routing_agents.policies.attention.model.NETWORKS, in a module that ROUTING_GYM_MODULES names"
        )


class ProblemTrainer(Trainer):
    """Trainer with the greedy cost of held-out instances, the gap, and a solved instance.

    A script sets `problem` and `held_out`; the network is named by its argument `model`. The metrics of its epochs
    include "cost", the mean cost of sampled tours, and "greedy", that of greedy tours of the held-out instances.

    Attributes:
        problem: Problem of the run.
        held_out: Held-out instances on the run's device.
    """

    best_is = ("greedy", -1)

    problem: AnyProblem
    held_out: Any

    @property
    @abstractmethod
    def result(self) -> PolicyNetwork:
        """The policy that is evaluated and saved for use."""

    @property
    def own_network(self) -> bool:
        """Whether the user added the network to `NETWORKS`."""
        return self.args.model in NETWORKS.keys() - {USUAL}

    def describe(self) -> dict[str, Any]:
        return {**({"network": self.args.model} if self.own_network else {}), **super().describe()}

    @property
    def columns(self) -> tuple[Column, ...]:
        """Columns of the live table; prizes, which are negative costs, are shown as prizes."""
        name, sign = runs.shown_cost(self.problem, 1)
        return (
            Column("epoch", ".0f"),
            Column("cost", ".4f", title=name, curve=f"sampled {name}, training", sign=sign),
            Column("greedy", ".4f", curve=f"greedy {name}, held out", sign=sign),
            *([] if self.reference is None else [Column("gap", ".2%")]),
            Column("instances_per_second", ".0f", title="inst/s"),
        )

    def find_reference(self, cache: Path) -> float | None:
        return runs.reference_cost(self.problem, self.held_out, cache)

    def compared(self, metrics: dict[str, float]) -> dict[str, float]:
        """Return the gap to the reference, if there is one; for prizes, which are negative costs, the shortfall."""
        if self.reference is None:
            return {}
        return {"gap": (metrics["greedy"] - self.reference) / abs(self.reference)}

    def solve_first(self) -> tuple[Any, list[int]]:
        """Return the first held-out instance, as NumPy arrays, and its greedy tour."""
        first = select(self.held_out, slice(0, 1))
        tour: list[int] = solve(self.result, self.problem, first).actions[0].tolist()
        return to_backend(first, "numpy"), tour

    def picture(self) -> np.ndarray:
        return render.to_rgb_array(self.problem, *self.solve_first())

    def results(self, folder: Path) -> list[str]:
        tensors, header = checkpoint.load(folder / runs.BEST)
        checkpoint.load_weights(self.result, checkpoint.group(tensors, "model"), folder / runs.BEST)
        render.save(folder / "solution.png", self.problem, *self.solve_first())
        best = header["metrics"]
        name, greedy = runs.shown_cost(self.problem, best["greedy"])
        side = "below" if self.problem.maximises else "above"
        gaps = self.compared(best)
        gap = f", {gaps['gap']:.2%} {side} the reference" if gaps else ""
        return [
            f"Best greedy {name} on held-out instances: {greedy:.4f}{gap} (epoch {best['epoch']:.0f}).",
            f"Learning curve: {folder}/curve.png    a solved instance: {folder}/solution.png",
            f"Solve a file:   {runs.command('solve.py', '--checkpoint', folder)} FILE...",
        ]
