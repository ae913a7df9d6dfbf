"""Generator of CVRP and the VRP family with other settings than the default: `am_reinforce.py --generator settings`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from routing_gym.problem import AnyProblem, instance_fields

# Least and most: factors of the default settings, and vehicles of each depot node where their number is limited.
CAPACITIES, FIXED_COSTS, PENALTIES, VEHICLES = (0.5, 8.0), (0.1, 10.0), (0.3, 20.0), (1, 5)


def settings(problem: AnyProblem, rng: np.random.Generator, batch_size: int) -> Any:
    """Draw instances with other capacities, costs, penalties, time windows and numbers of vehicles.

    Each of these stays as `Problem.generate` draws it in half of the instances. In the others, capacities, fixed costs
    and penalties are multiplied by one factor per instance, service times are shortened, a share of the customers can
    be served all day, and with HF and PC the numbers of vehicles are limited.

    Args:
        problem: CVRP, SDVRP or a problem of the VRP family.
        rng: Random number generator.
        batch_size: Number of instances B.

    Raises:
        ValueError: The problem is another one.
    """
    if not {"demand", "capacity"} <= instance_fields(problem):
        found = f"not for {problem.name}; choose another generator"
        raise ValueError(f"settings are drawn for CVRP, SDVRP and the VRP family only, {found}")
    instance: Any = problem.generate(rng, batch_size)
    given = {key: value for key, value in vars(instance).items() if value is not None}
    new: dict[str, Any] = {}

    def changes() -> npt.NDArray[np.bool_]:
        """Draw the instances (B, 1) in which a setting is not the default."""
        return rng.random((batch_size, 1)) < 0.5

    def factors(least: float, most: float) -> npt.NDArray[np.float64]:
        """Draw factors (B, 1), log-uniformly; half of them are 1."""
        drawn = np.exp(rng.uniform(np.log(least), np.log(most), (batch_size, 1)))
        return np.where(changes(), drawn, 1.0)

    capacity = np.ceil(given["capacity"] * factors(*CAPACITIES)[:, 0]).astype(np.int64)
    new["capacity"] = np.maximum(capacity, given["demand"].max(axis=1))
    for field, bounds in (("fixed_cost", FIXED_COSTS), ("penalty", PENALTIES)):
        if field in given:
            new[field] = (given[field] * factors(*bounds)).astype(np.float32)
    if "vehicle_capacity" in given:
        share = given["vehicle_capacity"] / given["capacity"][:, None]
        new["vehicle_capacity"] = np.ceil(share * new["capacity"][:, None]).astype(np.int64)
        if "penalty" in given:
            least, most = VEHICLES
            drawn = np.where(changes(), rng.integers(least, most + 1, share.shape), problem.num_actions)
            new["num_vehicles"] = np.where(share > 0, drawn, 0)
    if "service_time" in given:
        shorter = np.where(changes(), rng.random((batch_size, 1)), 1.0)
        new["service_time"] = (given["service_time"] * shorter).astype(np.float32)
        all_day = changes() & (rng.random(given["due_time"].shape) < rng.random((batch_size, 1)))
        for field in ("ready_time", "due_time"):
            new[field] = np.where(all_day, given[field][:, :1], given[field])
    return replace(instance, **new)
