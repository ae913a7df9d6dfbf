"""Large-neighbourhood search: never worse, always legal, and what it refuses."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch

import routing_agents
import solve as solve_script
from helpers import CVRP_TEXT
from routing_agents.evaluation import sources
from routing_agents.policies.attention.decoding import solve
from routing_agents.policies.attention.features import features_named
from routing_agents.policies.attention.model import AttentionModel, ModelConfig
from routing_agents.search.edges import EdgeSearch
from routing_agents.search.large_neighbourhood import Improved, improve, neighbourhoods_of
from routing_agents.search.neighbourhood import Effort
from routing_agents.search.routes import RouteSearch
from routing_agents.search.segments import WindowSearch
from routing_agents.trained import TrainedModel, load_repair
from routing_gym import data
from routing_gym.data import read_instance, save_npz
from routing_gym.generators.subproblems import choose_windows, contract
from routing_gym.problem import InfeasibleTour
from routing_gym.problems import LISTED, PROBLEMS, make_problem
from routing_gym.problems.cvrp import CVRPInstance
from routing_gym.problems.tsp import TSP
from routing_gym.problems.tspfe import TSPFE, TSPFEInstance
from routing_gym.rollout import rollout
from routing_gym.sampling import sample_actions
from routing_gym.solvers import make_solver
from routing_gym.solvers.constructive.greedy_edge import greedy_tour

pytestmark = pytest.mark.usefixtures("processor_time")

CONFIG = ModelConfig(embed_dim=16, num_heads=4, num_layers=1, feed_forward_dim=16)


def untrained(name):
    return AttentionModel(features_named(name), CONFIG, torch.Generator().manual_seed(0)).eval()


def tour_search(num_cities=60, seed=0, effort=None):
    problem = make_problem("TSP", num_cities)
    instance = problem.generate(np.random.default_rng(seed), 1)
    start = np.random.default_rng(seed).permutation(num_cities)
    return problem, WindowSearch(problem, untrained("TSPFE"), instance, start, seed, effort)


def route_search(num_customers=40, seed=0):
    problem = make_problem("CVRP", num_customers)
    instance = problem.generate(np.random.default_rng(seed), 1)
    start = make_solver("nearest-neighbour").solve(problem, instance).actions[0]
    return problem, RouteSearch(problem, untrained("CVRP"), instance, start, seed, Effort(size=20, views=2, tours=8))


@pytest.mark.parametrize("make", [tour_search, route_search])
def test_rounds_never_lengthen_a_tour(make):
    """The cost that the search believes in is `objective`'s, which also refuses what is no tour."""
    problem, search = make()
    first = cost = search.cost()
    for _ in range(15):
        search.round()
        assert search.cost() <= cost + 1e-9
        cost = search.cost()
        assert problem.objective(search.instance, search.actions()[None])[0] == pytest.approx(cost, rel=1e-5)
    assert cost < first


@pytest.mark.parametrize("name", [name for name in LISTED if not PROBLEMS[name].stochastic])
def test_edges_are_repaired_by_the_own_policy(name):
    """From a tour of the untrained policy: `objective` accepts every tour, and the cost never rises."""
    problem = make_problem(name, 8)
    instance = problem.generate(np.random.default_rng(3), 1)
    network = untrained(name)
    start = solve(network, problem, instance).actions[0].numpy()
    search = EdgeSearch(problem, network, instance, start, 1, Effort(size=5, views=8, tours=8))
    costs = [search.cost()]
    for _ in range(6):
        search.round()
        costs.append(float(problem.objective(instance, search.actions()[None])[0]))
        assert costs[-1] == pytest.approx(search.cost())
    assert costs == sorted(costs, reverse=True)
    assert costs[-1] < costs[0] or problem.maximises  # the first may have the greatest prize


def test_random_numbers_are_drawn_on_the_device(monkeypatch):
    """A generator of another device is refused, which shows only where there is one."""
    devices, draw = [], torch.randint
    monkeypatch.setattr(
        torch, "randint", lambda *args, **options: devices.append(options["device"]) or draw(*args, **options)
    )
    problem = make_problem("OP", 20)
    model, instance = routing_agents.load("OP-20"), problem.generate(np.random.default_rng(0), 1)
    model.improve(problem, instance, model.solve_batch(problem, instance).actions[0].numpy(), 0.1)
    assert len(devices) >= 2


def test_edges_that_are_kept_are_followed():
    """With all edges kept, every episode plays the tour again, though the policy is untrained."""
    problem = make_problem("PDP", 10)
    instance = problem.generate(np.random.default_rng(0), 1)
    network = untrained("PDP")
    start = solve(network, problem, instance).actions[0].numpy()
    search = EdgeSearch(problem, network, instance, start, 0, Effort(size=1, views=1, tours=4))
    search.kept = lambda: torch.ones(4, problem.num_actions, dtype=torch.bool)
    played = rollout(problem, search.rows, search.policy())
    assert (played.actions.numpy() == start).all()


def random_part_tours(windows, seed):
    """Play TSPFE at random on the windows: tours that keep their fixed edges."""
    num_windows, size = windows.cities.shape
    problem = TSPFE(size)
    part = TSPFEInstance(np.zeros((num_windows, size, 2), dtype=np.float32), windows.partner)
    problem.validate(part)
    rng, state, tours = np.random.default_rng(seed), problem.initial(part), []
    for _ in range(size):
        action = sample_actions(problem.action_mask(part, state), rng)
        state, _ = problem.step(part, state, action)
        tours.append(action)
    return np.stack(tours, axis=1)


@pytest.mark.parametrize("seed", range(5))
def test_windows_put_together(seed):
    """Whatever comes out of a window, the whole stays one tour and changes by what the window changed, or not at all.

    The windows of one round are taken over one after the other, so that later ones find other paths around them.
    """
    problem, search = tour_search(seed=seed)
    rng = np.random.default_rng(seed)
    for _ in range(4):
        chosen = choose_windows(search.near, search.tour, search.place, rng.permutation(60), 12, 5)
        windows = contract(search.tour, search.place, chosen)
        fallen = search.fallen_length(windows)
        for window, tour in enumerate(random_part_tours(windows, seed)):
            before = search.length()
            cities, after = windows.cities[window], np.roll(tour, -1)
            legs = search.legs(cities[tour], cities[after])
            is_fixed = windows.partner[window][tour] == after
            is_fixed |= windows.partner[window][after] == tour
            new = legs[~is_fixed].sum()
            search.accept(windows, window, tour)
            problem.objective(search.instance, search.tour[None])
            change = search.length() - before
            was_taken = change == pytest.approx(new - fallen[window], abs=1e-9)
            assert was_taken or (window > 0 and change == pytest.approx(0, abs=1e-9))


def test_a_window_may_hold_the_whole_tour():
    """Nothing is outside, so nothing is fixed: four corners of a square, visited crosswise, come to 4 again."""
    corners = np.array([[[0, 0], [1, 1], [1, 0], [0, 1]]], dtype=np.float32)
    problem = make_problem("TSP", 4)
    search = WindowSearch(problem, untrained("TSPFE"), problem.instance_type(corners), np.arange(4), 0)
    for _ in range(30):
        search.round()
    assert search.cost() == pytest.approx(4)


def test_kicks_leave_a_tour_that_no_window_improves():
    """The twelfth round without a gain exchanges two paths, by three new edges; `actions` stays the best."""
    problem, search = tour_search(num_cities=30)
    search.repair = lambda: None
    for _ in range(11):
        search.round()
    np.testing.assert_array_equal(search.tour, search.best)
    search.round()
    assert sorted(search.tour) == list(range(30))
    following = [set(zip(tour, np.roll(tour, -1), strict=True)) for tour in (search.best, search.tour)]
    assert len(following[0] - following[1]) == 3
    assert problem.objective(search.instance, search.actions()[None])[0] == pytest.approx(search.cost(), rel=1e-5)


@pytest.mark.parametrize(("sizes", "groups"), [((100, 140), {2}), ((100, 141), {1}), ((241, 242), set())])
def test_long_routes_go_together_up_to_a_limit(sizes, groups):
    """240 customers in two routes may be solved anew together, 241 may not; nor may one route of 241."""
    problem = make_problem("CVRP", sum(sizes), capacity=sum(sizes))
    instance = problem.generate(np.random.default_rng(0), 1)
    first = np.arange(1, sizes[0] + 1)
    start = np.concatenate([first, [0], np.arange(sizes[0] + 1, sum(sizes) + 1), [0]])
    instance = replace(instance, demand=np.minimum(instance.demand, 1))
    search = RouteSearch(problem, untrained("CVRP"), instance, start, 0)
    chosen = [group for _ in range(20) for group in search.choose_groups()]
    assert {len(group) for group in chosen} == groups
    if not groups:
        search.round()
        np.testing.assert_array_equal(search.actions(), start)


def test_three_routes_are_sorted_out():
    """Three pairs of customers 10 away from the depot in three directions, 1 apart; a vehicle takes two.

    One pair a route costs 3 (10 + 1 + sqrt(101)) = 63.15 units of a square with side 21. The start serves customers of
    different pairs together.
    """
    x, y = [0, 10, 10, -10, -10, 0, 1], [0, 0, 1, 0, 1, 10, 10]
    model = routing_agents.load("CVRP-20")
    start = np.array([1, 3, 0, 2, 5, 0, 4, 6, 0])
    coords = ((np.stack([x, y], axis=-1) + np.array([10, 0])) / 21).astype(np.float32)[None]
    instance = CVRPInstance(coords, np.array([[0, 1, 1, 1, 1, 1, 1]]), np.array([2]))
    found = model.improve(make_problem("CVRP", 6), instance, start, seconds=1)
    trips = np.split(found.actions, np.flatnonzero(found.actions == 0))
    assert {frozenset(trip[trip > 0].tolist()) for trip in trips} - {frozenset()} == {
        frozenset(pair) for pair in ((1, 2), (3, 4), (5, 6))
    }


class Stopped(WindowSearch):
    """Interrupted in its third round, after it has begun to change the tour."""

    rounds = 0

    def round(self):
        super().round()
        self.rounds += 1
        if self.rounds == 3:
            self.tour = self.tour[:5]
            raise KeyboardInterrupt


def test_an_interrupt_keeps_the_best_tour():
    problem, search = tour_search()
    first = search.cost()
    stopped = Stopped(problem, search.network, search.instance, search.actions(), 0)
    reports = []
    found = improve(stopped, 1000, lambda seconds, actions: reports.append(actions))
    assert found.interrupted
    assert found.rounds == 2
    assert problem.objective(search.instance, found.actions[None])[0] < first
    np.testing.assert_array_equal(reports[-1], found.actions)


@pytest.mark.parametrize("seconds", [0, -1.0, float("nan"), float("inf"), True, "60"])
def test_time_limits_are_positive(seconds):
    _, search = tour_search()
    with pytest.raises(ValueError, match="seconds must be a positive number of seconds, got"):
        improve(search, seconds)


@pytest.mark.parametrize("seconds", [np.float32(0.01), np.int64(1)])
def test_time_limits_may_be_numpy_numbers(seconds):
    _, search = tour_search(num_cities=4)
    assert improve(search, seconds).rounds


def test_what_cannot_be_improved():
    with pytest.raises(ValueError, match="tours of SPCTSP cannot be improved by search: .* only a visit reveals"):
        neighbourhoods_of(make_problem("SPCTSP", 10))
    problem, search = tour_search()
    other = TrainedModel(untrained("TSP"), problem, "here")
    with pytest.raises(ValueError, match="here was trained on TSP; subproblems of TSP are TSPFE"):
        other.improve(problem, search.instance, search.actions(), 1)
    model = TrainedModel(search.network, TSPFE(10), "here")
    with pytest.raises(ValueError, match="city 0 is visited twice|visited"):
        model.improve(problem, search.instance, np.zeros(60, dtype=int), 1)
    with pytest.raises(ValueError, match=r"expected one tour, of shape \(T,\), got \(1, 60\); pass actions\[0\]"):
        model.improve(problem, search.instance, search.actions()[None], 1)
    several = problem.generate(np.random.default_rng(0), 3)
    with pytest.raises(ValueError, match="the instance has 3 rows; improve takes one at a time"):
        model.improve(problem, several, search.actions(), 1)
    for seed in (-1, 1.5):
        with pytest.raises(ValueError, match=f"seed must be an integer from 0 to 2.63 - 1, got {seed}"):
            model.improve(problem, search.instance, search.actions(), 1, seed=seed)


def test_parts_without_weights(monkeypatch):
    monkeypatch.setattr(WindowSearch, "repaired_by", lambda problem: ("NONE", 30))
    with pytest.raises(
        ValueError, match=r"no weights for NONE, .* --generator windows .*, and give --repair runs/mine"
    ):
        load_repair(make_problem("TSP", 10))


def test_greedy_edges():
    """Cities at 0, 1, 2.5, 4.1 and 6 on a line: the edges 1, 1.5, 1.6, 1.9 in this order, then 6 back."""
    x = np.array([4.1, 0, 6, 2.5, 1])
    tour = greedy_tour(np.stack([x, np.zeros(5)], axis=-1))
    assert tour.tolist() in ([1, 4, 3, 0, 2], [2, 0, 3, 4, 1])
    same = np.zeros((20, 2))
    assert sorted(greedy_tour(same)) == list(range(20))


@pytest.fixture
def routes(tmp_path):
    path = tmp_path / "square.vrp"
    path.write_text(CVRP_TEXT)
    return path


def test_solve_improves_a_file(routes, tmp_path, monkeypatch):
    args = solve_script.Args((routes,), decoding="heuristic", improve=0.2, out=tmp_path / "out")
    (solved,) = solve_script.main(args)
    assert solved.cost == 200  # 30 + 40 + 50 for the customers that go together, 80 for the third
    # A disk that is full when the search ends: the tour of before it is there, the better one in the message.
    room = iter([data.write_tour])  # for one tour

    def write(*arguments):
        if (write_tour := next(room, None)) is None:
            raise OSError("No space left")
        write_tour(*arguments)

    monkeypatch.setattr(data, "write_tour", write)
    with pytest.raises(ValueError, match=r"not solved: .*No space left; the actions are: [0-3 ]+0"):
        solve_script.main(replace(args, out=tmp_path / "again"))
    assert (tmp_path / "again" / "square.sol").exists()


def test_large_files_are_searched_by_their_own_lengths(tmp_path, monkeypatch):
    """Cities on a 9 x 9 grid, lengths rounded up: each round of the search is measured as the file measures."""
    coords = np.random.default_rng(2).integers(0, 9, (40, 2))
    rows = "".join(f"{i} {x} {y}\n" for i, (x, y) in enumerate(coords, start=1))
    path = tmp_path / "grid.tsp"
    path.write_text(f"TYPE : TSP\nDIMENSION : 40\nEDGE_WEIGHT_TYPE : CEIL_2D\nNODE_COORD_SECTION\n{rows}EOF\n", "ascii")
    monkeypatch.setattr(sources, "MAX_MATRIX_NODES", 39)
    searches, take_up = [], WindowSearch.take_up
    monkeypatch.setattr(WindowSearch, "take_up", lambda self, actions: searches.append(self) or take_up(self, actions))
    (solved,) = solve_script.main(solve_script.Args((path,), decoding="heuristic", improve=0.5, out=tmp_path / "out"))
    (search,), file = searches, read_instance(path)
    assert search.instance.distances is None
    assert solved.cost == file.cost(search.actions()) == pytest.approx(search.cost() * file.scale)
    assert solved.cost < file.cost(greedy_tour(coords.astype(float)))


def test_solve_stops_after_an_interrupt(routes, tmp_path, monkeypatch):
    other = tmp_path / "other.vrp"
    other.write_text(CVRP_TEXT)
    stopped = lambda self, problem, instance, actions, *others: Improved(actions, 1.0, 1, True)  # noqa: E731
    monkeypatch.setattr(TrainedModel, "improve", stopped)
    with pytest.raises(ValueError, match=r"not solved: .*other.vrp: stopped"):
        solve_script.main(solve_script.Args((routes, other), improve=5, out=tmp_path / "out"))
    assert (tmp_path / "out" / "square.sol").exists()


def test_solve_refuses_searches(routes, tmp_path):
    out = tmp_path / "out"
    with pytest.raises(ValueError, match="--improve must be a positive number of at most .*, got 0"):
        solve_script.Args((routes,), improve=0)
    with pytest.raises(ValueError, match="--decoding heuristic is a start for --improve"):
        solve_script.Args((routes,), decoding="heuristic")
    problem = make_problem("SPCTSP", 10)
    save_npz(tmp_path / "one.npz", problem, problem.generate(np.random.default_rng(0), 1))
    with pytest.raises(ValueError, match=r"one.npz: --improve: tours of SPCTSP cannot be improved by search"):
        solve_script.main(solve_script.Args((tmp_path / "one.npz",), improve=1, out=out))
    with pytest.raises(ValueError, match=r"square.vrp: --repair: 'nowhere' is neither a run or checkpoint"):
        solve_script.main(solve_script.Args((routes,), improve=1, repair=Path("nowhere"), out=out))
    problem = make_problem("CVRP", 10)
    save_npz(tmp_path / "two.npz", problem, problem.generate(np.random.default_rng(0), 2))
    with pytest.raises(ValueError, match=r"two.npz holds 2 instances; --improve takes files with one"):
        solve_script.main(solve_script.Args((tmp_path / "two.npz",), improve=1, out=out))


@dataclass(frozen=True)
class Longest(TSP):
    """The cost falls with the length. It inherits the declarations of TSP, which are wrong for it."""

    def objective(self, instance, actions):
        return 100 - super().objective(instance, actions)


@dataclass(frozen=True)
class Fixed(TSP):
    """The tour of all cities in order is the only one that is allowed."""

    def objective(self, instance, actions):
        if (actions != np.arange(self.num_nodes)).any():
            raise InfeasibleTour(0, 1, "in order, please")
        return super().objective(instance, actions)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Longest, "TSP: the search on routes makes the cost 9.* from .*, which is no sum of lengths; set plain_routes"),
        (Fixed, r"breaks its rules \(row 0, step 1: in order, please\); set plain_routes and subproblem in Fixed"),
    ],
)
def test_problems_that_inherit_declarations_by_mistake(kind, message):
    problem = kind(12)
    instance = problem.generate(np.random.default_rng(0), 1)
    with pytest.raises(ValueError, match=message):
        load_repair(problem).improve(problem, instance, np.arange(12), 0.1)
