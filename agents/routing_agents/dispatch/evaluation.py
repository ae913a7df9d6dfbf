"""Comparison of policies on the same days with the same router, and pictures of a day."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from routing_agents.terminal import plain_console
from routing_gym.arrays import select
from routing_gym.dynamic import policies
from routing_gym.dynamic.days import Day, DaySource, ResampledDays
from routing_gym.dynamic.generated import GeneratedDays
from routing_gym.dynamic.oracle import hindsight_cost, solve_in_hindsight
from routing_gym.dynamic.pictures import draw_day, save_animation
from routing_gym.dynamic.policies import Policy
from routing_gym.dynamic.routers import Router
from routing_gym.dynamic.solver import Limits
from routing_gym.dynamic.static import read_static
from routing_gym.render.figure import pixels
from routing_gym.solvers.runtime.work import Executor


def make_source(static: str, requests: float) -> DaySource:
    """Return the source of days: a file's customers, with `requests` candidates per epoch, or generated days.

    Raises:
        ValueError: The file has no coordinates, which the network reads, or no request can wait.
    """
    if static:
        source = ResampledDays(read_static(static), max_requests=round(requests))
        if source.epochs[0] == source.epochs[1]:
            told = f"all time windows open in one epoch of {source.epoch_duration}, so that no request can wait"
            raise ValueError(f"{static}: {told}; there is nothing to decide")
        if not source.has_coords:
            raise ValueError(f"{static}: expected a NODE_COORD_SECTION, whose coordinates the network reads")
        return source
    return GeneratedDays(requests=requests)


def simple_policies() -> dict[str, Policy]:
    """Return the policies without learning or scenario sampling."""
    return {
        "greedy": policies.greedy,
        "lazy": policies.lazy,
        "random": policies.random,
        "threshold": policies.Threshold(1.0),
    }


def costs(day: Day, chosen: Mapping[str, Policy], router: Router) -> dict[str, Any]:
    """Play days with each policy; return driving durations int64 (B,) by name."""
    return {name: policies.play(day, policy, router, np.random.default_rng(0)) for name, policy in chosen.items()}


def hindsight(day: Day, limits: Limits, executor: Executor | None = None) -> Any:
    """Return the driving duration of each day in hindsight: int64 (B,)."""
    ((_, tours),) = solve_in_hindsight([day], limits, executor)
    return np.array([hindsight_cost(day, row, tour) for row, tour in enumerate(tours)])


def versus(cost: Any, reference: Any) -> tuple[float, float]:
    """Return the mean of the days' gaps in per cent, and half the width of its 95 % confidence interval."""
    ratio = 100 * (cost / reference - 1)
    return float(ratio.mean()), float(1.96 * ratio.std(ddof=1) / np.sqrt(len(ratio))) if len(ratio) > 1 else 0.0


def compare(
    day: Day, source: DaySource, learned: Mapping[str, Policy], router: Router, executor: Executor | None = None
) -> None:
    """Print a table of the learned and all other policies; the executor solves the days in hindsight."""
    limits = Limits(seconds=None, iterations=60)
    everyone = simple_policies() | {"scenario sampling": policies.ScenarioSampling(source, limits)} | dict(learned)
    found = costs(day, everyone, router)
    found["hindsight"] = hindsight(day, Limits(seconds=None, iterations=2000), executor)
    console = plain_console()
    console.print(f"{'policy':<20}{'duration':>12}{'over greedy, %':>20}")
    for name, cost in found.items():
        mean, half = versus(cost, found["greedy"])
        console.print(f"{name:<20}{cost.mean():>12.0f}{mean:>+12.2f} +- {half:.2f}")


def picture_of(day: Day, policy: Policy, router: Router, path: Path | None = None) -> Any:
    """Draw the first day, played by a policy; return pixels (height, width, 3), and write a PNG and a GIF if asked."""
    one = select(day, [0])
    epochs = list(policies.epochs(one, policy, router, np.random.default_rng(0)))
    figure = draw_day(one, 0, epochs)
    if path is not None:
        figure.savefig(path)
        save_animation(path.with_suffix(".gif"), one, 0, epochs)
    return pixels(figure)
