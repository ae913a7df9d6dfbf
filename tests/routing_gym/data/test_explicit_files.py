"""Files of every TYPE with EXPLICIT distances, with and without coordinates."""

import re
from contextlib import suppress

import numpy as np
import pytest

import helpers
from routing_gym import data
from routing_gym.data.tsplib.fleet_rules import FleetRules
from routing_gym.problem import InfeasibleTour
from routing_gym.rollout import rollout
from routing_gym.sampling import sample_actions

EUCLIDEAN = ("CVRP", "OP", "VRPB", "VRPTW", "FLEET", "DEPOTS", "SITES", "PAIRS", "PRIZES")


def explicit(text, folder, coords):
    """Replace the lengths of a file by whole distances, smaller by one to a node of a smaller number."""
    path = folder / "file.vrp"
    path.write_text(text)
    euclidean = data.read_instance(path)
    numbers = np.unique(euclidean.ids, return_index=True)[1]
    points = euclidean.coords[numbers]
    matrix = np.linalg.norm(points[:, None] - points, axis=2).astype(int)
    matrix = np.maximum(matrix - np.tril(np.ones_like(matrix), -1), 0)
    rows = "\n".join(" ".join(map(str, row)) for row in matrix.tolist())
    section = f"EDGE_WEIGHT_SECTION\n{rows}\n"
    text = re.sub("EUC_2D", "EXPLICIT\nEDGE_WEIGHT_FORMAT : FULL_MATRIX", text)
    given = re.search(r"NODE_COORD_SECTION[^A-Z]*", text)[0]
    path.write_text(text.replace(given, section + given * coords))
    return euclidean, data.read_instance(path), matrix


def any_tour(file):
    """Return the first of some random tours that keeps the rules of the file, which may say more than the masks."""
    rng = np.random.default_rng(1)
    for _ in range(1000):
        tour = rollout(file.problem, file.instance, lambda seen: sample_actions(seen["action_mask"], rng)).actions[0]
        with suppress(InfeasibleTour):
            file.cost(tour)
            return tour
    raise AssertionError("no tour found")


@pytest.mark.parametrize("coords", [True, False], ids=["coords", "bare"])
@pytest.mark.parametrize("name", EUCLIDEAN)
def test_distances_are_those_of_the_file(name, coords, tmp_path):
    """Costs in the file's integers equal the objective of the scaled instance, in the file's unit."""
    euclidean, file, matrix = explicit(getattr(helpers, f"{name}_TEXT"), tmp_path, coords)
    problem, instance = file.problem, file.instance
    problem.validate(instance)
    assert (problem.name, file.unit, file.coords is not None) == (euclidean.problem.name, 1, coords)
    np.testing.assert_array_equal(file.distances, matrix[np.ix_(file.ids - 1, file.ids - 1)])
    np.testing.assert_allclose(instance.distances[0] * file.scale, file.distances, atol=1e-5)
    assert 0 <= instance.coords.min() <= instance.coords.max() <= 1
    tour = any_tour(file)
    scale = -1 if problem.maximises else file.scale
    depots_score = file.scores[0] if problem.maximises else 0
    assert file.cost(tour) - depots_score == pytest.approx(problem.objective(instance, tour[None])[0] * scale, abs=1e-4)
    if isinstance(file.rules, FleetRules):
        return  # read only
    data.write_instance(tmp_path / "copy.vrp", file)
    again = data.read_instance(tmp_path / "copy.vrp")
    np.testing.assert_array_equal(again.distances, file.distances)
    assert again.cost(tour) == file.cost(tour)
    assert (again.coords is None) == (not coords)


def test_a_distance_of_0_is_not_the_number_of_the_depot(tmp_path):
    """Customer 2 of the file lies at the depot; the first row above the diagonal begins with this distance."""
    rows = "EXPLICIT\nEDGE_WEIGHT_FORMAT : UPPER_ROW\nEDGE_WEIGHT_SECTION\n0 4\n5"
    path = tmp_path / "file.vrp"
    path.write_text(helpers.SITES_TEXT.replace("EUC_2D", rows))
    assert data.read_instance(path).distances[0, 2:].tolist() == [0, 4]
