"""Costs of a planner's four steps on the example in examples/lisbon, against PyVRP called directly.

    python benchmarks/quality/planner.py --seconds 10

The steps: latitudes and longitudes with time windows; a matrix of durations instead; three vans instead of five; one
stop is a pickup. Each is solved by one call of `routing_agents.solve`, and by `pyvrp_plan` in this file, which is the
code that a user of PyVRP would write. Both have the same wall-clock seconds and one thread. With three vans, both may
leave out stops at the same price.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.table import Table

from benchmarks.output import OUT, Figures, finish
from routing_agents.planning.planner import solve_task
from routing_agents.runs import check_integers, check_numbers
from routing_agents.terminal import command_line
from routing_gym.planning import Task, read_task
from routing_gym.planning.table import read_table

ROOT = Path(__file__).parents[2]
LISBON = ROOT / "examples" / "lisbon"
PICKUP, AMOUNT = 8, 12  # row of the stop that becomes a pickup, and the amount picked up there
PRICE = 100.0  # minutes for each stop that is left out with three vans
SCALE = 1000  # PyVRP takes integers
TOLERANCE = 1e-6


@dataclass(frozen=True)
class Args:
    """Arguments of the benchmark."""

    seconds: float = 10.0
    """Seconds of each method on each step."""
    seeds: tuple[int, ...] = (1, 2, 3)
    """Random seeds."""
    out: Path = OUT / "planner.json"
    """Where the figures go. The docs show those in benchmarks/results."""

    def __post_init__(self) -> None:
        check_numbers(self, "seconds")
        check_integers(self, "seeds", least=0)


def steps() -> dict[str, Task]:
    """Return the task of each step."""
    stops = dict(read_table(LISBON / "stops.csv", "stops").columns)
    size = len(stops["id"])
    fleet: dict[str, Any] = {"count": 5, "capacity": 60, "earliest": "08:00", "latest": "18:00"}
    matrix = LISBON / "durations.csv"
    optional = stops | {"penalty": [PRICE] * size}
    fetched = stops | {"pickup": [AMOUNT * (row == PICKUP) for row in range(size)]}
    fetched["demand"] = ["0" if row == PICKUP else cell for row, cell in enumerate(stops["demand"])]
    return {
        "coordinates": read_task(stops, vehicles=fleet),
        "matrix": read_task(stops, vehicles=fleet, durations=matrix),
        "three vans": read_task(optional, vehicles={**fleet, "count": 3}, durations=matrix),
        "pickup": read_task(fetched, vehicles=fleet, durations=matrix),
    }


def pyvrp_plan(task: Task, seconds: float, seed: int) -> list[list[int]]:
    """Plan with PyVRP, and return the stops of each route."""
    import pyvrp
    from pyvrp.stop import MaxRuntime

    model = pyvrp.Model()
    model.add_depot(model.add_location(0, 0))
    shift = {"tw_early": int(task.ready[0] * SCALE), "tw_late": int(task.due[0] * SCALE)}
    model.add_vehicle_type(task.count or 1, int(task.capacity or 0), **shift)
    for row in task.stops:
        window = {"tw_early": int(task.ready[row] * SCALE), "tw_late": int(task.due[row] * SCALE)}
        optional = {"required": False, "prize": int(PRICE * SCALE)} if np.isfinite(task.penalty[row]) else {}
        amounts = {"delivery": int(task.delivery[row]), "pickup": int(task.pickup[row])}
        model.add_client(
            model.add_location(0, 0), **amounts, service_duration=int(task.service[row] * SCALE), **window, **optional
        )
    for i, one in enumerate(model.locations):
        for j, other in enumerate(model.locations):
            duration = int(np.ceil(task.minutes[i, j] * SCALE))
            model.add_edge(one, other, distance=round(task.costs[i, j] * SCALE), duration=duration)
    found = model.solve(MaxRuntime(seconds), seed=seed, display=False)
    assert found.is_feasible()
    return [[stop.idx + 1 for stop in route if stop.is_client()] for route in found.best.routes()]


def cost_of(task: Task, routes: list[list[int]]) -> float:
    """Return the cost of routes, added up from the matrix, with the price of the stops left out."""
    ways = [[0, *route, 0] for route in routes if route]
    driven = sum(float(task.costs[way[:-1], way[1:]].sum()) for way in ways)
    return driven + PRICE * (len(task.stops) - sum(len(way) - 2 for way in ways))


def main(args: Args) -> Figures:
    """Run the four steps with both methods; the figures are written after each run."""
    torch.set_num_threads(1)
    rows = []
    table = Table("step", "unit", "seed", "routing_agents.solve", "PyVRP", "by", title=f"{args.seconds:g} s each")
    for name, task in steps().items():
        for seed in args.seeds:
            plan = solve_task(task, "auto", args.seconds, seed)
            theirs = cost_of(task, pyvrp_plan(task, args.seconds, seed))
            routes = [[visit.row for visit in route.stops] for route in plan.routes]
            assert abs(cost_of(task, routes) - plan.cost) < TOLERANCE
            rows.append({"step": name, "seed": seed, "ours": plan.cost, "pyvrp": theirs, "costs": dict(plan.costs)})
            finish(args, {"steps": rows})
            table.add_row(name, plan.unit, str(seed), f"{plan.cost:.2f}", f"{theirs:.2f}", plan.solver)
    return finish(args, {"steps": rows}, table)


if __name__ == "__main__":
    command_line(main, Args, __doc__)
