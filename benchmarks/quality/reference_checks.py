"""Compare the reference solvers with stronger solutions of the same instances.

    python benchmarks/quality/reference_checks.py --peers ../shared/reference/vrp_family_50.npz

Each reference has the same time limit as in solution_quality.py. The stronger solutions are proven optima, those of
another solver, or those of the same solver with five times the time; with `--peers` also the best known solutions of
MVMoE's test instances (HGS, LKH or OR-Tools, 200 s). Each row is written as soon as it is measured, and is not measured
again with the same settings.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.hardware import describe_machine
from benchmarks.output import OUT, Figures, read_figures, write_figures
from benchmarks.quality.quality_tables import reference_checks
from benchmarks.quality.solution_quality import OTHER_SEED, reference_solver
from routing_agents.terminal import command_line
from routing_gym.arrays import FloatArray, select
from routing_gym.data.peers import VARIANTS, load_peer_npz
from routing_gym.evaluate import mean_interval
from routing_gym.problem import AnyProblem
from routing_gym.problems import make_problem
from routing_gym.solvers import Solver, make_solver

LONGER = 5  # factor of the time limit
STRONGER: dict[str, tuple[str, dict[str, float]] | None] = {  # None: the same solver, with more time
    "TSP-20": ("milp", {}),
    "TSP-50": ("milp", {}),
    "TSP-100": ("fast-tsp", {"time_limit": 2.0}),
    "CVRP-20": ("pyvrp", {"time_limit": 1.5}),
    "CVRP-50": ("pyvrp", {"time_limit": 10.0}),
    "CVRP-100": None,
    "SDVRP-20": None,
    "SDVRP-50": None,
    "SDVRP-100": None,
    "OP-50": None,
    "PDP-20": None,
    "PDP-50": None,
    "MTSP-20": None,
    "MTSP-50": None,
    "VRPTW-20": None,
    "VRPB-20": None,
    "VRPB-50": None,
}


@dataclass(frozen=True)
class Args:
    """Arguments of the benchmark."""

    sets: tuple[str, ...] = tuple(STRONGER)
    """What to compare on random instances: problem and size."""
    peers: Path | None = None
    """MVMoE's test instances with their best known costs, an .npz file."""
    variants: tuple[str, ...] = ("CVRP", *VARIANTS)
    """Which problems of that file."""
    size: int = 50
    """Instances of each."""
    workers: int = 1
    """Processes of the solvers; more than there are idle cores would take time from each other."""
    out: Path = OUT / "reference_checks.json"
    """Where the figures go; those of an earlier run are continued. The docs show those in benchmarks/results."""


@dataclass(frozen=True)
class Check:
    """Comparison of a reference with a stronger solution of the same instances."""

    problem: AnyProblem
    instance: Any
    stronger: Solver | FloatArray
    stronger_name: str

    @property
    def solver(self) -> Solver:
        """The reference solver."""
        return reference_solver(self.problem)

    def settings(self) -> dict[str, Any]:
        """Return the settings that the figures depend on, apart from the machine."""
        size = len(self.instance.coords)
        return {"size": size, "reference": self.solver.label, "stronger": self.stronger_name}

    def costs(self, solver: Solver, workers: int) -> FloatArray:
        """Solve the instances and return the costs.

        Raises:
            RuntimeError: The solver failed on some instances.
        """
        found = solver.solve(self.problem, self.instance, seed=1234, num_workers=workers, progress=True)
        if found.failed.any():
            raise RuntimeError(f"{solver.label} failed on {found.failed.sum()} instances: {set(found.status)}")
        return np.asarray(found.cost, dtype=np.float64)

    def measure(self, workers: int) -> dict[str, Any]:
        """Return both mean costs, and the mean of the gaps in per cent with its 95 % interval."""
        cost = self.costs(self.solver, workers)
        best = self.costs(self.stronger, workers) if isinstance(self.stronger, Solver) else self.stronger
        gaps = 100 * (cost - best) / np.abs(best)
        means = {"cost": float(cost.mean()), "stronger_cost": float(best.mean())}
        return {**means, "gap": mean_interval(gaps), "worse": int((gaps > 1e-3).sum())}


def checks(args: Args) -> Iterator[tuple[str, Check]]:
    """Yield the checks by name: random instances, then MVMoE's test instances."""
    for name in args.sets:
        kind, _, size = name.partition("-")
        problem = make_problem(kind, int(size))
        instance = problem.generate(np.random.default_rng(OTHER_SEED), args.size)
        other = STRONGER[name]
        solver = reference_solver(problem, LONGER) if other is None else make_solver(other[0], **other[1])
        yield name, Check(problem, instance, solver, solver.label)
    for name in args.variants if args.peers is not None else ():
        found = load_peer_npz(args.peers, name)
        assert found.best_known is not None
        rows = slice(0, args.size)
        best = found.best_known[rows]
        title = f"{name}-{found.problem.num_nodes}, MVMoE's"
        yield title, Check(found.problem, select(found.instance, rows), best, "best known (HGS, LKH, OR-Tools: 200 s)")


def main(args: Args) -> Figures:
    """Measure the missing rows and print the table."""
    if unknown := [name for name in args.sets if name not in STRONGER]:
        raise ValueError(f"--sets: no {', '.join(unknown)}; choose among {', '.join(STRONGER)}")
    results = read_figures(args.out)
    for name, check in checks(args):
        if results.get(name, {}).get("settings") != check.settings():
            figures = check.measure(args.workers)
            results[name] = {**figures, "settings": check.settings(), "machine": describe_machine()}
            write_figures(args.out, results)
    print(reference_checks(results))
    return results


if __name__ == "__main__":
    command_line(main, Args, __doc__)
