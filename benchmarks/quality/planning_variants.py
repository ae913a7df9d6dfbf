"""Cost of the policy's search on each VRP variant, against PyVRP after the same seconds.

    python benchmarks/quality/planning_variants.py --seconds 30 --instances 20     # the whole comparison, 6 hours

For every instance, `routing_agents.solve` runs with the solver "trained" (the published policy, then the search of
`routing_gym.planning`), then the classical solver; each has the same wall-clock seconds, one thread, after loading.
Both costs are added up by the planner, not reported by the solvers. Every finished instance is written to --out; a
later run with the same customers, seconds and seed continues from there.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.table import Table

from benchmarks.output import OUT, Figures, check_same, finish, read_figures
from routing_agents.planning.planner import solve_task
from routing_agents.runs import check_integers, check_numbers
from routing_agents.terminal import command_line
from routing_gym.data.own import columns_of
from routing_gym.planning import Task, read_task
from routing_gym.problems import make_problem
from routing_gym.problems.vrp import ORIGINAL
from routing_gym.solvers.external.plans import strongest

VARIANTS = (*ORIGINAL, "PDVRP", "PDVRPTW")


@dataclass(frozen=True)
class Args:
    """Arguments of the benchmark."""

    variants: tuple[str, ...] = VARIANTS
    """Problems to compare on."""
    customers: int = 50
    """Customers of each instance."""
    instances: int = 4
    """Instances of each problem."""
    seconds: float = 5.0
    """Seconds of each solver on each instance."""
    seed: int = 1
    """Random seed for instances and solvers."""
    out: Path = OUT / "planning_variants.json"
    """Where the figures go; those of an earlier run are continued. The docs show those in benchmarks/results."""

    def __post_init__(self) -> None:
        check_numbers(self, "seconds")
        check_integers(self, "customers", "instances")
        check_integers(self, "seed", least=0)
        if unknown := set(self.variants).difference(VARIANTS):
            raise ValueError(f"--variants: unknown {', '.join(sorted(unknown))}; choose from {', '.join(VARIANTS)}")


def task_of(name: str, customers: int, seed: int, number: int) -> Task:
    """Generate an instance and return it as a planning task."""
    instance = make_problem(name, customers).generate(np.random.default_rng([seed, number]), 1)
    values: dict[str, Any] = {}
    for column in columns_of(name):
        if not column.required:
            continue
        value = 1.0 if column.target is None else getattr(instance, column.target)[0]
        if column.kind == "coords":
            values |= {"x": value[:, 0].astype(float), "y": value[:, 1].astype(float)}
        else:
            values[column.name] = np.asarray(value, dtype=float) if column.per == "node" else float(value)
    numbers = {
        column.name: values.pop(column.name) for column in columns_of(name) if np.ndim(values.get(column.name, [])) == 0
    }
    if "pickup" in values:
        values["pickup_at"] = values.pop("pickup")
    return read_task(values, problem=name, **numbers)


def compare(name: str, number: int, args: Args) -> Figures:
    """Return the costs of the policy, of its search and of the classical solver on one instance."""
    task = task_of(name, args.customers, args.seed, number)
    first, improved = solve_task(task, "trained", args.seconds, args.seed).costs.values()
    solver = strongest(task)
    if solver is None:
        raise ImportError('no classical solver is installed: pip install ".[solvers]"')
    rival = solve_task(task, solver, args.seconds, args.seed)
    assert not rival.unserved
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    costs = {"policy": first, "search": improved, "classical": rival.cost}
    return {"variant": name, "number": number, **costs, "solver": solver, "load": load}


def measured(args: Args) -> list[Figures]:
    """Return the figures of an earlier run; empty if there are none.

    Raises:
        ValueError: They are those of another number of customers, other seconds or another seed.
    """
    document = read_figures(args.out, "arguments", "instances")
    check_same(args.out, document, customers=args.customers, seconds=args.seconds, seed=args.seed)
    return list(document.get("instances", []))


def gaps(rows: list[Figures], name: str) -> np.ndarray:
    """Return the gaps of a variant's searches to the classical solver, in per cent."""
    return np.array([100 * (row["search"] / row["classical"] - 1) for row in rows if row["variant"] == name])


def table_of(rows: list[Figures], args: Args) -> Table:
    """Return a table with the mean and the greatest gap of each variant."""
    table = Table(
        "variant",
        "instances",
        "policy",
        "search",
        "worst",
        title=f"gap to the classical solver after {args.seconds:g} s, %",
    )
    for name in args.variants:
        own = gaps(rows, name)
        if own.size:
            first = np.mean([100 * (row["policy"] / row["classical"] - 1) for row in rows if row["variant"] == name])
            table.add_row(name, str(own.size), f"{first:+.2f}", f"{own.mean():+.2f}", f"{own.max():+.2f}")
    return table


def main(args: Args) -> Figures:
    """Run the comparison; instances that have been measured are skipped."""
    torch.set_num_threads(1)
    rows = measured(args)
    done = {(row["variant"], row["number"]) for row in rows}
    for number in range(args.instances):
        for name in args.variants:
            if (name, number) not in done:
                rows.append(compare(name, number, args))
                finish(args, {"instances": rows})
    return finish(args, {"instances": rows}, table_of(rows, args))


if __name__ == "__main__":
    command_line(main, Args, __doc__)
