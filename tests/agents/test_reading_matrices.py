"""A model that reads matrices, from its training to a user's own: saved, loaded, evaluated, improved."""

from dataclasses import replace

import numpy as np
import pytest

import am_reinforce
import evaluate
import routing_agents
from helpers import TINY
from routing_gym.data import load_npz, save_npz
from routing_gym.problems import make_problem

RNG = np.random.default_rng(7)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of one epoch on CVRP-5 on streets."""
    folder = tmp_path_factory.mktemp("runs")
    args = replace(TINY, env_id="routing/CVRP-5", env_kwargs={"matrices": "True"}, epochs=1, runs=folder)
    return am_reinforce.main(args)


def test_a_matrix_is_solved_and_decides(run):
    """Without coordinates; and with them, another matrix than the straight lines leads to other embeddings."""
    model = routing_agents.load(run)
    matrix = RNG.uniform(5, 60, (7, 7))
    columns = {"demand": [0, 3, 2, 4, 1, 5, 2], "capacity": 8}
    solved = model.solve(distances=matrix, **columns)
    legs = zip(solved.tour, solved.tour[1:], strict=False)
    assert solved.cost == pytest.approx(sum(matrix[i, j] for i, j in legs), rel=1e-5)
    assert model.solve(RNG.random((7, 2)), **columns).cost > 0
    static = model.problem.observe_static(model.problem.generate(RNG, 2))
    assert set(static) == {"coords", "distances", "demand"}


def test_files_are_evaluated_and_improved(run, tmp_path, capsys):
    """Instances without the setting are read with straight lines."""
    model, problem = routing_agents.load(run), make_problem("CVRP", 5, matrices=True)
    instance = problem.generate(RNG, 3)
    save_npz(tmp_path / "roads.npz", problem, instance)
    assert load_npz(tmp_path / "roads.npz")[0] == problem
    methods = (str(run), f"{run}:beam=2", "nearest-neighbour")
    args = evaluate.Args(str(tmp_path / "roads.npz"), methods, executor="inline", cache=tmp_path / "cache")
    evaluate.main(args)
    assert capsys.readouterr().out.count("CVRP") > 0
    plain = make_problem("CVRP", 5)
    one = plain.generate(RNG, 1)
    actions = model.solve_batch(plain, one).actions.numpy()[0]
    better = model.improve(plain, one, actions, 0.1).actions
    costs = [float(plain.objective(one, tour[None])[0]) for tour in (better, actions)]
    assert costs[0] <= costs[1] + 1e-6
