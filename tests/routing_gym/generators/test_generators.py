"""Generators of instances unlike the papers' uniform ones."""

from functools import partial

import gymnasium as gym
import numpy as np
import pytest

from problem_names import ONE_OF_EACH
from routing_gym.generators import GENERATORS, mixed, set_x, settings
from routing_gym.generators.clustered import DEMANDS, demands, places
from routing_gym.problem import instance_fields
from routing_gym.problems import make_problem


@pytest.mark.parametrize("name", ONE_OF_EACH)
@pytest.mark.parametrize("kind", GENERATORS)
def test_instances_are_valid_and_follow_their_seed(name, kind):
    problem = make_problem(name, 12)
    if kind == "windows" and name != "TSPFE":
        with pytest.raises(ValueError, match=f"windows of a tour are instances of TSPFE only, not of {name}"):
            GENERATORS[kind](problem, np.random.default_rng(1), 3)
        return
    if kind == "x" and name not in ("CVRP", "SDVRP"):
        with pytest.raises(ValueError, match=f"set X has instances of CVRP and SDVRP only, not of {name}"):
            GENERATORS[kind](problem, np.random.default_rng(1), 3)
        return
    if kind == "salesmen" and name != "MTSP":
        with pytest.raises(
            ValueError, match=f"numbers of salesmen are drawn for instances of MTSP only, not of {name}"
        ):
            GENERATORS[kind](problem, np.random.default_rng(1), 3)
        return
    if kind == "settings" and "capacity" not in instance_fields(problem):
        with pytest.raises(ValueError, match=f"drawn for CVRP, SDVRP and the VRP family only, not for {name}"):
            GENERATORS[kind](problem, np.random.default_rng(1), 3)
        return
    if kind == "random" and name == "OVRPBLTW":
        with pytest.raises(ValueError, match="has time windows, which random matrices break"):
            GENERATORS[kind](problem, np.random.default_rng(1), 3)
        return
    first, second = (GENERATORS[kind](problem, np.random.default_rng(1), 12) for _ in range(2))
    problem.validate(first)
    assert all(np.array_equal(x, vars(second)[key]) for key, x in vars(first).items() if x is not None)


def test_environments_take_them():
    env = gym.make("routing/CVRP-20", generator=partial(set_x, make_problem("CVRP", 20)))
    observation, _ = env.reset(seed=3)
    assert observation["demand"].max() <= 1
    lanes = gym.make_vec("routing/TSP-20", num_envs=3, generator=partial(mixed, make_problem("TSP", 20)))
    assert lanes.reset(seed=3)[0]["coords"].shape == (3, 20, 2)


def test_each_setting_stays_the_default_in_half_of_the_instances():
    problem, rng = make_problem("PCHFVRPTW", 10), np.random.default_rng(2)
    usual = problem.generate(np.random.default_rng(2), 1000)  # the first random numbers are the same
    drawn = settings(problem, rng, 1000)
    problem.validate(drawn)
    fields = ("capacity", "vehicle_capacity", "fixed_cost", "penalty", "service_time", "due_time")
    differ = {field: getattr(drawn, field) != getattr(usual, field) for field in fields}
    shares = {field: np.mean(changed.reshape(1000, -1).any(axis=1)) for field, changed in differ.items()}
    assert all(0.4 < share < 0.6 for share in shares.values()), shares
    limited = drawn.num_vehicles[:, :3].max(axis=1) <= 5
    assert 0.4 < limited.mean() < 0.6
    assert (drawn.num_vehicles[~limited, :3] == problem.num_actions).all()
    assert drawn.num_vehicles[:, 3:].max() == 0


def to_nearest(points):
    """Mean distance of the points (B, n, 2) of each row to the nearest other one."""
    away = np.linalg.norm(points[:, :, None] - points[:, None], axis=-1) + 9 * np.eye(points.shape[1])
    return away.min(axis=2).mean(axis=1)


def test_a_third_of_the_rows_is_uniform_and_the_others_are_clustered():
    """The mean distance to the nearest of 100 points is about 0.5 / sqrt(100) = 0.05 where they are uniform."""
    rng = np.random.default_rng(5)
    drawn = rng.random((300, 100, 2))
    points = places(rng, drawn)
    assert points.min() >= 0
    assert points.max() < 1
    still = (points == drawn).all(axis=2).sum(axis=1)  # uniform points stay where they were
    assert set(still) == {0, 50, 100}
    nearest = to_nearest(points)
    assert nearest[still == 100].mean() == pytest.approx(0.05, abs=0.005)
    assert nearest[still == 0].mean() < 0.035


def test_mixed_instances_are_mixed():
    """By the distance to the nearest city, as above: a third of the rows is uniform, a third clustered."""
    coords = mixed(make_problem("TSP", 100), np.random.default_rng(5), 300).coords
    nearest = to_nearest(coords)
    assert np.mean(nearest > 0.045) > 0.25
    assert np.mean(nearest < 0.035) > 0.25


def test_half_of_the_mixed_matrices_are_streets():
    """The longest of 30 x 30 edges is below 0.5 in random matrices, and above 1 along streets."""
    distances = mixed(make_problem("ATSP", 30), np.random.default_rng(5), 400).distances
    assert 0.4 < np.mean(distances.max(axis=(1, 2)) > 0.75) < 0.6


def test_demands_of_all_kinds():
    """Each row keeps to one of the seven kinds: five ranges, by quadrant, or many small and few large."""
    rng = np.random.default_rng(6)
    customers = rng.random((700, 60, 2))
    even = (customers[..., 0] < 0.5) == (customers[..., 1] < 0.5)
    kinds, narrow_first = [0] * 7, (0, 2, 1, 4, 5, 6, 3)
    for row, drawn in enumerate(demands(rng, customers)):
        ranges = [(drawn.min() >= low) & (drawn.max() <= high) for low, high in DEMANDS]
        by_quadrant = (drawn[even[row]] > 50).all() and (drawn[~even[row]] <= 50).all()
        few_large = not ((drawn > 10) & (drawn < 50)).any() and 0.5 < (drawn <= 10).mean() < 1
        found = [*ranges, by_quadrant, few_large]
        assert any(found), drawn
        kinds[next(kind for kind in narrow_first if found[kind])] += 1
    assert min(kinds) > 54  # 100 each but for chance: five standard deviations are 46


def test_capacities_of_set_x():
    """For routes of 3 to 25 customers: between 3 and 25 mean demands, but never below the largest demand."""
    instance = set_x(make_problem("CVRP", 80), np.random.default_rng(7), 500)
    mean, largest = instance.demand[:, 1:].mean(axis=1), instance.demand.max(axis=1)
    assert (instance.capacity >= np.maximum(3 * mean, largest)).all()
    assert (instance.capacity <= np.maximum(25 * mean + 1, largest)).all()
    corner, centre = (np.isclose(instance.coords[:, 0], place).all(axis=1).mean() for place in (0.0, 0.5))
    assert corner == pytest.approx(1 / 3, abs=0.1)
    assert centre == pytest.approx(1 / 3, abs=0.1)
