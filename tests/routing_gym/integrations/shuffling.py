"""A solver for the tests of Ray, whose workers import it: without pytest, they start faster."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from routing_gym.problems import make_problem
from routing_gym.solvers import RowSolver


@dataclass(frozen=True)
class Shuffle(RowSolver):
    """A random tour; before that, what the row's first coordinate says. `folder` is for a row that fails only once."""

    name: ClassVar[str] = "shuffle"
    problems: ClassVar[tuple[str, ...]] = ("TSP",)

    time_limit: float = 1.0
    pause: float = 0.0
    folder: str = ""

    @property
    def hard_limit(self):
        return 3 * self.time_limit

    def solve_row(self, problem, instance, seed):
        kind = round(float(instance.coords[0, 0, 0]) * 10)
        if kind == 1:
            raise RuntimeError("no luck")
        if kind == 2:
            time.sleep(600)
        killed = Path(self.folder) / "killed"
        if kind == 3 or (kind == 4 and not killed.exists()):
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(self.pause)
        return np.random.default_rng(seed).permutation(problem.num_nodes), "feasible"


def batch(*kinds, num_nodes=6):
    problem = make_problem("TSP", num_nodes)
    coords = problem.generate(np.random.default_rng(0), len(kinds)).coords.copy()
    coords[:, 0, 0] = np.array(kinds) / 10
    return problem, problem.instance_type(coords)
