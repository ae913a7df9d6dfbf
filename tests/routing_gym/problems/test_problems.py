"""The rules of the six problems: values worked out by hand, exact solutions, and masks written a second time."""

import itertools
import re
from dataclasses import asdict, dataclass, replace
from functools import cached_property

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from problem_names import ONE_OF_EACH
from routing_gym import (
    CVRP,
    OP,
    PCTSP,
    SDVRP,
    SPCTSP,
    TSP,
    CompetitiveOP,
    CVRPInstance,
    InfeasibleTour,
    InvalidInstance,
    OPInstance,
    PCTSPInstance,
    SPCTSPInstance,
    TSPInstance,
    make_problem,
)
from routing_gym.arrays import cast_instance, select, to_backend, to_numpy
from routing_gym.data import load_npz, save_npz
from routing_gym.problems.checks import leg_lengths
from routing_gym.problems.cvrp import default_capacity
from routing_gym.problems.geometry import expected_length, symmetry
from routing_gym.problems.op import legal_tour
from routing_gym.rollout import rollout
from routing_gym.solvers import HeldKarp
from routing_gym.testing.exhaustive import check_exhaustively, legal_sequences


def batch(backend, instance_type, **fields):
    """One instance from plain lists, on a backend."""
    return to_backend(
        cast_instance(instance_type(**{key: np.array([value]) for key, value in fields.items()})), backend
    )


def tours(backend, *rows):
    if backend == "torch":
        import torch

        return torch.tensor(rows)
    return np.array(rows)


def play(problem, instance, actions):
    """Take actions in an instance of one row; return the costs of the steps, the masks before them, and the end."""
    state, costs, masks = problem.initial(instance), [], []
    backend = "numpy" if isinstance(instance.coords, np.ndarray) else "torch"
    for action in actions:
        masks.append(to_numpy(problem.action_mask(instance, state))[0].astype(int).tolist())
        state, cost = problem.step(instance, state, tours(backend, action))
        costs.append(float(cost[0]))
    masks.append(to_numpy(problem.action_mask(instance, state))[0].astype(int).tolist())
    return costs, masks, bool(problem.done(instance, state)[0])


def test_numbers_that_float32_cannot_hold_are_refused():
    """1e300 became infinite; what is infinite already is for `validate` to refuse."""
    coords = np.zeros((1, 3, 2))
    with pytest.raises(ValueError, match="^distances: 1e\\+300 is too large for float32, .*; choose a larger unit"):
        cast_instance(TSPInstance(coords, distances=np.array([[[0, 1e300, 1], [1, 0, 1], [1, 1, 0]]])))
    assert np.isinf(cast_instance(TSPInstance(np.full((1, 3, 2), np.inf))).coords).all()


def test_instances_may_cache_what_they_compute():
    @dataclass(frozen=True)
    class Cached(TSPInstance):
        @cached_property
        def centre(self):
            return self.coords.mean(axis=1)

    instance = Cached(np.zeros((1, 3, 2)))
    assert instance.centre.shape == (1, 2)
    assert cast_instance(instance).coords.dtype == np.float32


def test_masked_numbers_are_missing():
    """NumPy would play the hidden values."""
    with pytest.raises(ValueError, match="coords: masked values are missing; fill them in"):
        cast_instance(TSPInstance(np.ma.masked_equal(np.zeros((1, 3, 2), np.float32), 0)))


@pytest.mark.parametrize("problem", [CVRP(4), SDVRP(4)], ids=str)
def test_demands_whose_sum_leaves_int64_are_refused(problem):
    """4 x 2^61 = 2^63 is one more than int64 holds."""
    demand = np.full((1, 5), 2**61)
    demand[:, 0] = 0
    instance = problem.instance_type(np.zeros((1, 5, 2), dtype=np.float32), demand, np.array([2**62]))
    with pytest.raises(InvalidInstance, match=r"capacity: row 0 is .*, expected in \[1, 1.09951e\+12\]"):
        problem.validate(instance)


# --- TSP

SQUARE = [[0, 0], [1, 0], [1, 1], [0, 1]]


def test_tsp_around_the_square(backend):
    """Four sides of 1: the first city costs nothing, the last pays the edge there and the closing edge."""
    instance = batch(backend, TSPInstance, coords=np.array(SQUARE, float))
    costs, masks, done = play(TSP(4), instance, [2, 1, 0, 3])
    assert costs == [0, 1, 1, 2]
    assert masks == [[1, 1, 1, 1], [1, 1, 0, 1], [1, 0, 0, 1], [0, 0, 0, 1], [0, 0, 0, 1]]
    assert done
    assert TSP(4).objective(instance, tours(backend, [2, 1, 0, 3])).item() == 4


def test_tsp_in_a_metric_of_its_own(backend):
    """Distances 1 + 2 + 4 + 8 there, 15 the other way round too: the coordinates do not count."""
    distances = np.zeros((4, 4))
    for origin, destination, length in ((0, 1, 1), (1, 2, 2), (2, 3, 4), (3, 0, 8)):
        distances[origin, destination] = distances[destination, origin] = length
    instance = batch(backend, TSPInstance, coords=np.array(SQUARE, float), distances=distances)
    costs, _, _ = play(TSP(4), instance, [0, 1, 2, 3])
    assert costs == [0, 1, 2, 12]
    assert TSP(4).objective(instance, tours(backend, [0, 3, 2, 1])).item() == 15


def test_tsp_before_its_first_action():
    observation = TSP(4).observe(instance := TSP(4).generate(np.random.default_rng(0), 2), TSP(4).initial(instance))
    assert observation["current_node"].tolist() == observation["first_node"].tolist() == [0, 0]
    assert observation["action_mask"].tolist() == [[1, 1, 1, 1]] * 2


@pytest.mark.parametrize(
    ("tour", "message"),
    [
        ([0, 1, 1, 2], "row 0, step 2: node 1 is already visited; visit each node once"),
        ([0, 1, 2], "row 0, step 3: node 3 is not visited; visit every node"),
        ([0, 1, 2, 4], "row 0, step 3: node 4 does not exist; nodes are 0 to 3"),
        ([0, 1, 2, -1], "row 0, step 3: node -1 does not exist"),
    ],
)
def test_tsp_refuses(backend, tour, message):
    instance = batch(backend, TSPInstance, coords=np.array(SQUARE, float))
    with pytest.raises(InfeasibleTour, match=message):
        TSP(4).objective(instance, tours(backend, tour))


# --- CVRP and SDVRP: depot at 0, customers at 0.5 to the right and to the top

TWO = {"coords": [[0, 0], [0.5, 0], [0, 0.5]], "capacity": 5}


def test_overweight_pair_needs_two_trips(backend):
    """Loads 3 + 3 exceed capacity 5: two round trips of 2 x 0.5 = 2.0."""
    instance = batch(backend, CVRPInstance, demand=[0, 3, 3], **TWO)
    costs, masks, done = play(CVRP(2), instance, [1, 0, 2, 0])
    assert costs == [0.5, 0.5, 0.5, 0.5]
    assert masks == [[0, 1, 1], [1, 0, 0], [0, 0, 1], [1, 0, 0], [1, 0, 0]]
    assert done
    assert CVRP(2).objective(instance, tours(backend, [1, 0, 2, 0])).item() == pytest.approx(2.0)
    message = "row 0, step 1: load 6 exceeds capacity 5 at node 2; return to the depot (0) first."
    with pytest.raises(InfeasibleTour, match=f"^{re.escape(message)}$") as caught:
        CVRP(2).objective(instance, tours(backend, [1, 2, 0, 0]))
    assert (caught.value.row, caught.value.step) == (0, 1)


def test_pair_that_fits_exactly_needs_one_trip(backend):
    """Loads 3 + 2 = 5 are the capacity: 0.5 + sqrt(0.5) + 0.5."""
    instance = batch(backend, CVRPInstance, demand=[0, 3, 2], **TWO)
    costs, masks, done = play(CVRP(2), instance, [1, 2, 0])
    assert sum(costs) == pytest.approx(1 + 0.5**0.5)
    assert masks == [[0, 1, 1], [1, 0, 1], [1, 0, 0], [1, 0, 0]]
    assert done


def test_cvrp_observes_shares_of_the_capacity(backend):
    """Demand 3 and 2 of 5 are 0.6 and 0.4; after serving the first, 2 of 5 are free."""
    instance = batch(backend, CVRPInstance, demand=[0, 3, 2], **TWO)
    state, _ = CVRP(2).step(instance, CVRP(2).initial(instance), tours(backend, 1))
    observation = CVRP(2).observe(instance, state)
    assert to_numpy(observation["demand"])[0] == pytest.approx([0, 0.6, 0.4])
    assert to_numpy(observation["free_capacity"])[0] == pytest.approx([0.4])


@pytest.mark.parametrize(
    ("tour", "message"),
    [
        ([1, 0, 2], "row 0, step 2: the tour ends at node 2; return to the depot"),
        ([1, 0], "row 0, step 2: node 2 is not visited; visit every node"),
        ([1, 0, 1, 0, 2, 0], "row 0, step 2: node 1 is already visited"),
        ([1, 0, 3, 0], "row 0, step 2: node 3 does not exist; nodes are 0 to 2"),
    ],
)
def test_cvrp_refuses(backend, tour, message):
    instance = batch(backend, CVRPInstance, demand=[0, 3, 3], **TWO)
    with pytest.raises(InfeasibleTour, match=message):
        CVRP(2).objective(instance, tours(backend, tour))


def test_infeasible_tour_names_the_row_of_the_batch():
    instance = batch("numpy", CVRPInstance, demand=[0, 3, 3], **TWO)
    with pytest.raises(InfeasibleTour, match="row 2, step 1: load 6"):
        CVRP(2).objective(select(instance, [0, 0, 0]), np.array([[1, 0, 2, 0], [2, 0, 1, 0], [2, 1, 0, 0]]))


def test_a_delivery_may_be_split(backend):
    """Demands 3 + 3, capacity 5: 3 and 2 on the first trip, the last 1 on the second.

    0.5 + sqrt(0.5) + 0.5 for the first trip, 2 x 0.5 for the second.
    """
    instance = batch(backend, CVRPInstance, demand=[0, 3, 3], **TWO)
    costs, masks, done = play(SDVRP(2), instance, [1, 2, 0, 2, 0])
    assert sum(costs) == pytest.approx(2 + 0.5**0.5)
    assert masks == [[0, 1, 1], [1, 0, 1], [1, 0, 0], [0, 0, 1], [1, 0, 0], [1, 0, 0]]
    assert done
    objective = SDVRP(2).objective(instance, tours(backend, [1, 2, 0, 2, 0]))
    assert objective.item() == pytest.approx(2 + 0.5**0.5)


def test_sdvrp_observes_what_remains(backend):
    """After delivering 3 of 5 and 2 of 3: 1 of 5 remains, and the vehicle is empty."""
    instance = batch(backend, CVRPInstance, demand=[0, 3, 3], **TWO)
    state = SDVRP(2).initial(instance)
    for node in (1, 2):
        state, _ = SDVRP(2).step(instance, state, tours(backend, node))
    observation = SDVRP(2).observe(instance, state)
    assert to_numpy(observation["remaining_demand"])[0] == pytest.approx([0, 0, 0.2])
    assert to_numpy(observation["free_capacity"])[0] == pytest.approx([0])


@pytest.mark.parametrize(
    ("tour", "message"),
    [
        ([1, 1, 0, 2, 0], "row 0, step 1: nothing is left to deliver at node 1; leave it out"),
        ([1, 2, 2, 0], r"row 0, step 2: the vehicle is empty; return to the depot \(0\) first"),
        ([1, 2, 0], "row 0, step 3: node 2 still needs 1; serve all demand"),
        ([1, 2, 0, 2], "row 0, step 3: the tour ends at node 2"),
    ],
)
def test_sdvrp_refuses(backend, tour, message):
    instance = batch(backend, CVRPInstance, demand=[0, 3, 3], **TWO)
    with pytest.raises(InfeasibleTour, match=message):
        SDVRP(2).objective(instance, tours(backend, tour))


# --- OP: depot at 0, customers at 0.25 and 0.75 to the right

LINE = {"coords": [[0, 0], [0.25, 0], [0.75, 0]], "prize": [0, 0.5, 1.0]}


@pytest.mark.parametrize(
    ("max_length", "mask"),
    [
        (0.4, [1, 0, 0]),  # too short to reach anyone: the tour stays at the depot
        (0.499998, [1, 0, 0]),  # 0.25 + 0.25 is more, by more than 1e-6
        (0.5, [1, 1, 0]),
        (1.499998, [1, 1, 0]),
        (1.5, [1, 1, 1]),
    ],
)
def test_op_leaves_out_those_from_whom_the_way_back_is_too_far(backend, max_length, mask):
    instance = batch(backend, OPInstance, max_length=max_length, **LINE)
    _, masks, _ = play(OP(2), instance, [0])
    assert masks == [mask, [1, 0, 0]]


@pytest.mark.parametrize(("over", "legal"), [(0.5e-6, True), (2e-6, False), (8e-6, False)])
def test_op_has_one_limit_in_mask_objective_and_solvers(backend, over, legal):
    """Out to 0.75 and back is 1.5. In the mask the limit was 1e-6 less, in `objective` 1e-5 more than the maximum."""
    exact = LINE | {"max_length": 1.5 - over}
    instance, problem, tour = batch(backend, OPInstance, **exact), OP(2), tours(backend, [2, 0])
    assert bool(problem.action_mask(instance, problem.initial(instance))[0, 2]) == legal
    assert HeldKarp().solve(problem, instance).cost.tolist() == [-1.5 if legal else -0.5]
    if legal:
        assert problem.objective(instance, tour).item() == -1.0
    else:
        with pytest.raises(InfeasibleTour, match="length 1.5 exceeds the maximum"):
            problem.objective(instance, tour)


@pytest.mark.parametrize(("prize", "legal"), [(0.9999995, True), (0.999992, False)])
def test_pctsp_has_one_least_prize_in_mask_objective_and_solvers(backend, prize, legal):
    """Customer 1 alone is almost enough. `objective` took 0.999992, which the mask forbids."""
    nodes = {"coords": [[0, 0], [0.25, 0], [0.75, 0]], "penalty": [0.0, 0.0, 0.0]}
    instance = batch(backend, PCTSPInstance, expected_prize=[0.0, prize, 0.5], **nodes)
    problem, tour = PCTSP(2), tours(backend, [1, 0])
    _, masks, _ = play(problem, instance, [1])
    assert masks[1][0] == legal
    assert HeldKarp().solve(problem, instance).cost.tolist() == [0.5 if legal else 1.5]
    if legal:
        assert problem.objective(instance, tour).item() == 0.5
    else:
        with pytest.raises(InfeasibleTour, match="prize 0.999992 is below 1"):
            problem.objective(instance, tour)


def test_pctsp_pays_small_penalties_beside_a_huge_one(backend):
    """Customer 1 costs 10^9 to skip, so it is visited; 2 costs 0.25. Out and back is 0.5, together 0.75."""
    nodes = {"coords": [[0, 0], [0.25, 0], [0.75, 0]], "expected_prize": [0.0, 1.0, 0.0]}
    instance = batch(backend, PCTSPInstance, penalty=[0.0, 1e9, 0.25], **nodes)
    assert play(PCTSP(2), instance, [1, 0])[0] == [0.25, 0.5]
    assert PCTSP(2).objective(instance, tours(backend, [1, 0])).item() == 0.75
    assert HeldKarp().solve(PCTSP(2), instance).cost.tolist() == [0.75]
    with pytest.raises(InvalidInstance, match=r"penalty: .* expected in \[0, 1e\+09\]"):
        PCTSP(2).validate(batch("numpy", PCTSPInstance, penalty=[0.0, 1e10, 0.25], **nodes))


def test_op_collects_prizes(backend):
    """Out to 0.25 and 0.75 and back is 1.5 of 1.6; prizes 0.5 + 1; the return ends it. 0.75, then 0.1 remain."""
    instance = batch(backend, OPInstance, max_length=1.6, **LINE)
    problem, state, left = OP(2), OP(2).initial(instance), []
    costs, masks, done = play(problem, instance, [2, 1, 0])
    assert costs == [-1, -0.5, 0]
    assert masks == [[1, 1, 1], [1, 1, 0], [1, 0, 0], [1, 0, 0]]
    assert done
    for action in (2, 1, 0):
        state, _ = problem.step(instance, state, tours(backend, action))
        left.append(problem.observe(instance, state)["remaining_length"].item())
    assert left == pytest.approx([0.85, 0.35, 0.1], abs=1e-6)
    assert problem.objective(instance, tours(backend, [2, 1, 0])).item() == -1.5


def test_op_may_stay_at_the_depot(backend):
    """No prize: return 0, within one step."""
    instance = batch(backend, OPInstance, max_length=0.1, **LINE)
    costs, _, done = play(OP(2), instance, [0])
    assert (costs, done) == ([0], True)
    assert OP(2).objective(instance, tours(backend, [0])).item() == 0


@pytest.mark.parametrize(
    ("tour", "message"),
    [
        ([2, 0], "row 0, step 0: with the direct way back, length 1.5 exceeds the maximum 1.4; leave out some nodes"),
        ([1, 0, 2, 0], "row 0, step 2: node 2 comes after the return to the depot; the tour ends there"),
        ([1, 1, 0], "row 0, step 1: node 1 is already visited"),
        ([1], "row 0, step 0: the tour ends at node 1"),
        ([], "row 0, step 0: the tour is empty"),
    ],
)
def test_op_refuses(tour, message):
    instance = batch("numpy", OPInstance, max_length=1.4, **LINE)
    with pytest.raises(InfeasibleTour, match=message):
        OP(2).objective(instance, np.array([tour], dtype=np.int64))


def test_op_budget_is_in_the_metric_of_the_file(backend):
    """In integers, both ways of 3 fit a budget of 6, although the coordinates are 0.25 apart."""
    distances = [[0, 3, 5], [3, 0, 2], [5, 2, 0]]
    instance = batch(backend, OPInstance, max_length=6.5, distances=np.array(distances, float), **LINE)
    costs, masks, _ = play(OP(2), instance, [1, 0])
    assert masks == [[1, 1, 0], [1, 0, 0], [1, 0, 0]]
    assert costs == [-0.5, 0]
    with pytest.raises(InfeasibleTour, match="length 10 exceeds the maximum 6.5"):
        OP(2).objective(instance, tours(backend, [2, 1, 0]))


def test_op_keeps_the_direct_way_back_open_where_a_detour_is_shorter(backend):
    """From 1 directly back is 5, by way of 2 it is 1 + 1. The tour 1, 2, 0 is 3 long, and 1 + 5 exceeds the limit of 4.

    Backwards, 1 + 1 and then 2 + 5 are too long as well, so the best is to visit 2 alone.
    """
    distances = np.array([[0, 1, 1], [5, 0, 1], [1, 1, 0]], dtype=float)
    instance = batch(backend, OPInstance, max_length=4.0, distances=distances, **LINE)
    assert play(OP(2), instance, [2, 0])[1] == [[1, 0, 1], [1, 0, 0], [1, 0, 0]]
    with pytest.raises(InfeasibleTour, match="row 0, step 0: with the direct way back, length 6 exceeds the maximum 4"):
        OP(2).objective(instance, tours(backend, [1, 2, 0]))
    with pytest.raises(InfeasibleTour, match="row 0, step 1: with the direct way back, length 7 exceeds"):
        OP(2).objective(instance, tours(backend, [2, 1, 0]))
    assert HeldKarp().solve(OP(2), instance).cost.tolist() == [-1.0]


def test_legal_tours_take_the_better_direction():
    """1, 2, 0 is 7 long, and 2, 1, 0 is 3: within 4, the first one keeps customer 1 only."""
    distances = np.array([[0, 1, 1], [1, 0, 5], [1, 1, 0]], dtype=float)
    instance = batch("numpy", OPInstance, max_length=4.0, distances=distances, **LINE)
    assert legal_tour(OP(2), instance, [1, 2, 0]) == legal_tour(OP(2), instance, [2, 1, 0]) == [2, 1, 0]


def test_op_has_one_rule_for_any_distances():
    """Uniform distances, both ways different: legal sequences, `objective` and Held and Karp agree on the best."""
    problem, rng = OP(4, max_length=1.5), np.random.default_rng(0)
    distances = (rng.random((8, 5, 5)) * (1 - np.eye(5))).astype(np.float32)
    instance = replace(problem.generate(rng, 8), distances=distances)
    check_exhaustively(problem, instance)
    for row, cost in enumerate(HeldKarp().solve(problem, instance).cost):
        legal = legal_sequences(problem, select(instance, [row]), problem.horizon)
        assert cost == pytest.approx(min(costs.min() for _, costs in legal))


# --- PCTSP and SPCTSP: depot at 0, customers at 0.25, 0.5 and 0.75

PRIZES = {
    "coords": [[0, 0], [0.25, 0], [0.5, 0], [0.75, 0]],
    "expected_prize": [0, 0.5, 0.5, 0.25],
    "penalty": [0, 0.125, 0.25, 2.0],
}


def test_pctsp_returns_once_the_prize_is_one(backend):
    """0.5 + 0.5 = 1 after two customers; length 1.0, and the penalty of 2 for the third on the last step."""
    instance = batch(backend, PCTSPInstance, **PRIZES)
    costs, masks, done = play(PCTSP(3), instance, [1, 2, 0])
    assert costs == [0.25, 0.25, 2.5]
    assert masks == [[0, 1, 1, 1], [0, 0, 1, 1], [1, 0, 0, 1], [1, 0, 0, 0]]
    assert done
    assert PCTSP(3).objective(instance, tours(backend, [1, 2, 0])).item() == 3.0


def test_pctsp_may_return_when_nobody_is_left(backend):
    """Prizes of 0.1 each never reach 1, but after all of them the depot is legal."""
    few = PRIZES | {"expected_prize": [0, 0.1, 0.1, 0.1]}
    instance = batch(backend, PCTSPInstance, **few)
    _, masks, done = play(PCTSP(3), instance, [3, 2, 1, 0])
    assert [mask[0] for mask in masks] == [0, 0, 0, 1, 1]
    assert done
    assert PCTSP(3).objective(instance, tours(backend, [3, 2, 1, 0])).item() == 1.5
    with pytest.raises(InfeasibleTour, match="row 0, step 2: prize 0.2 is below 1; visit more customers"):
        PCTSP(3).objective(instance, tours(backend, [3, 2, 0]))


def test_spctsp_counts_the_real_prize_and_shows_the_expected(backend):
    """The first customer alone yields 1.0, twice what was expected."""
    instance = batch(backend, SPCTSPInstance, real_prize=[0, 1.0, 0, 0.5], **PRIZES)
    costs, masks, done = play(SPCTSP(3), instance, [1, 0])
    assert costs == [0.25, 0.25 + 0.25 + 2]
    assert [mask[0] for mask in masks] == [0, 1, 1]
    assert done
    observation = SPCTSP(3).observe(instance, SPCTSP(3).initial(instance))
    assert to_numpy(observation["prize"])[0].tolist() == [0, 0.5, 0.5, 0.25]
    assert observation["remaining_prize"].item() == 1
    with pytest.raises(InfeasibleTour, match="prize 0.5 is below 1"):
        SPCTSP(3).objective(instance, tours(backend, [2, 3, 0]))


# --- what is drawn


def test_sizes_pass_through_the_points_of_the_paper():
    assert [default_capacity(n) for n in (20, 50, 100)] == [30, 40, 50]
    assert [expected_length(n) for n in (20, 50, 100)] == [2, 3, 4]
    assert (CVRP(50).capacity, OP(100).max_length, PCTSP(20).penalty_scale) == (40, 4, 2)


def test_uniforms_become_an_instance():
    """Demand 1 + floor(9u): 1 for 0, 5 for 0.5, 9 for 0.999. The depot has coordinates but no demand."""
    uniforms = np.array([[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.0, 0.5, 0.999]])
    instance = CVRP(3, capacity=12).from_uniforms(uniforms)
    expected = np.array([[[0.1, 0.2], [0.3, 0.4], [0.5, 0.6], [0.7, 0.8]]], dtype=np.float32)
    assert np.array_equal(instance.coords, expected)
    assert instance.demand.tolist() == [[0, 1, 5, 9]]
    assert instance.capacity.tolist() == [12]


def test_op_prizes():
    """Customers at distance 0.3 and 0.6 of the depot.

    distance: (1 + floor(99 / 2)) / 100 = 0.5 and (1 + 99) / 100 = 1. uniform: (1 + floor(100u)) / 100, so
    0.26 for u = 0.25 and 1 for u = 0.999.
    """
    uniforms = np.array([[0.0, 0.0, 0.3, 0.0, 0.0, 0.6, 0.25, 0.999]])
    prizes = {kind: OP(2, prize=kind).from_uniforms(uniforms).prize[0] for kind in ("constant", "uniform", "distance")}
    assert prizes["constant"].tolist() == [0, 1, 1]
    assert prizes["uniform"] == pytest.approx([0, 0.26, 1.0])
    assert prizes["distance"] == pytest.approx([0, 0.5, 1.0])


def test_pctsp_prizes_and_penalties():
    """n = 2: penalties 3K/n u = 3u with K = 2, then prizes 4/n u = 2u, then real prizes 2u x expected."""
    uniforms = np.array([[*[0.0] * 6, 0.5, 0.1, 0.25, 0.5, 0.5, 0.25]])
    instance = SPCTSP(2).from_uniforms(uniforms)
    assert instance.penalty[0] == pytest.approx([0, 1.5, 0.3])
    assert instance.expected_prize[0] == pytest.approx([0, 0.5, 1.0])
    assert instance.real_prize[0] == pytest.approx([0, 0.5, 0.5])


# --- bad input


@pytest.mark.parametrize(
    ("name", "num_nodes", "message"),
    [
        ("TSP", 1, "TSP: num_nodes must be at least 2, got 1"),
        ("PCTSP", 2.0, "PCTSP: num_nodes must be an integer, got 2.0"),
        ("SDVRP", True, "SDVRP: num_nodes must be an integer, got True"),
        ("VRP", 10, "unknown problem 'VRP'; choose one of TSP, CVRP"),
        ("tsp", 10, r"unknown problem 'tsp'; did you mean TSP\?$"),
        ("cvrp", 10, r"unknown problem 'cvrp'; did you mean CVRP\?$"),
        ("CVRPTW", 10, "unknown problem 'CVRPTW'; the VRP family calls it VRPTW; choose one of"),
        ("cvrptw", 10, "unknown problem 'cvrptw'; the VRP family calls it VRPTW; choose one of"),
        ("CCVRP", 10, "unknown problem 'CCVRP'; choose one of .* register one of your own"),  # the cumulative CVRP
        ("MTVRP", 10, "'MTVRP'; MTVRP is the VRP family, whose names list the attributes; choose one of"),
    ],
)
def test_bad_sizes(name, num_nodes, message):
    with pytest.raises(ValueError, match=message):
        make_problem(name, num_nodes)


@pytest.mark.parametrize(
    "drawn", [*(make_problem(name, 20) for name in ONE_OF_EACH), CompetitiveOP(5)], ids=lambda drawn: drawn.name
)
def test_arguments_of_generate(drawn):
    rng = np.random.default_rng(0)
    drawn.generate(rng, np.int64(2))
    for arguments, message in (
        ((64, rng), r"rng must be a numpy\.random\.Generator, got 64; as in generate\(np\.random\.default"),
        ((0, 64), r"rng must be a numpy\.random\.Generator, got 0"),
        ((rng, [64]), r"batch_size must be an integer, got \[64\]; as in"),
        ((rng, 6.0), r"batch_size must be an integer, got 6\.0"),
        ((rng, True), "batch_size must be an integer, got True"),
    ):
        with pytest.raises(TypeError, match=f"generate: {message}"):
            drawn.generate(*arguments)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("CVRP", {"capacity": 10**30}, "CVRP: capacity must be .* and at most [0-9]+, got 1000"),
        ("CVRP", {"capacity": 8}, "CVRP: capacity must be an integer of at least 9.* got 8"),
        ("SDVRP", {"capacity": 20.5}, "SDVRP: capacity must be an integer of at least 9.* got 20.5"),
        ("OP", {"prize": "unit"}, "OP: prize must be one of constant, uniform, distance; got 'unit'"),
        ("OP", {"max_length": 0}, "OP: max_length must be positive and finite, got 0"),
        ("OP", {"max_length": float("nan")}, "OP: max_length must be positive and finite, got nan"),
        ("PCTSP", {"penalty_scale": float("inf")}, "PCTSP: penalty_scale must be positive and finite, got inf"),
    ],
)
def test_bad_settings(name, settings, message):
    with pytest.raises(ValueError, match=message):
        make_problem(name, 10, **settings)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("TSP", {}),
        ("CVRP", {"capacity": np.int64(30)}),
        ("SDVRP", {"capacity": np.uint8(30)}),
        ("OP", {"max_length": np.float32(2.5)}),
        ("PCTSP", {"penalty_scale": np.float64(2)}),
        ("SPCTSP", {}),
    ],
)
def test_settings_may_be_numpy_scalars(name, settings, tmp_path):
    """They become Python's numbers, which go into files, JSON and Gymnasium's spaces."""
    problem = make_problem(name, np.int64(10), **settings)
    assert asdict(problem) == asdict(make_problem(name, 10, **{key: value.item() for key, value in settings.items()}))
    save_npz(tmp_path / "set.npz", problem, problem.generate(np.random.default_rng(0), 2))
    assert load_npz(tmp_path / "set.npz")[0] == problem
    gym.make(f"routing/{name}", num_nodes=np.int64(10), **settings).reset()


def test_unknown_setting():
    with pytest.raises(TypeError, match="OP has no setting capacity; it has matrices, prize, max_length"):
        make_problem("OP", 10, capacity=9)


def broken(name, field, change):
    """Three instances of a problem with two customers, one array of which is changed."""
    problem = make_problem(name, 2)
    instance = problem.generate(np.random.default_rng(0), 3)
    values = getattr(instance, field)
    return problem, replace(instance, **{field: change(None if values is None else values.copy())})


def put(index, value):
    def change(array):
        array[index] = value
        return array

    return change


@pytest.mark.parametrize(
    ("name", "field", "change", "message"),
    [
        ("TSP", "coords", put((1, 0, 1), np.nan), r"coords: row 1, index \(0, 1\) is nan, expected in \[0, 1\]"),
        ("TSP", "coords", put((2, 1, 0), np.inf), r"coords: row 2, index \(1, 0\) is inf"),
        ("OP", "coords", put((0, 2, 0), 1.5), r"coords: row 0, index \(2, 0\) is 1.5.*scale both axes"),
        ("CVRP", "coords", lambda x: x[:, :2], r"coords: expected shape \(B, 3, 2\), got \(3, 2, 2\)"),
        ("CVRP", "coords", lambda x: x[:0], "coords: the batch is empty"),
        ("CVRP", "coords", lambda x: x.tolist(), "coords: expected a float32 array, got list$"),
        ("CVRP", "coords", lambda x: x.astype(float), "coords: expected a float32 array, got dtype float64"),
        (
            "CVRP",
            "demand",
            put((0, 1), -1),
            r"demand: row 0, index \(1,\) is -1, expected in \[0, 1.09951e\+12\]",
        ),
        ("CVRP", "demand", put((2, 2), 21), "demand: row 2, customer 2 has demand 21, expected 0 to the capacity 20"),
        ("SDVRP", "demand", put((2, 2), 0), "demand: row 2, customer 2 has demand 0, expected 1 to the capacity 20"),
        ("CVRP", "demand", put((1, 0), 3), r"demand: row 1 gives the depot \(index 0\) 3, expected 0"),
        ("CVRP", "demand", lambda x: x.astype(np.float32), "demand: expected integers .*, got floating-point numbers"),
        ("CVRP", "demand", lambda x: x[:2], "the arrays of an instance must have one batch size, got .*'demand': 2"),
        ("CVRP", "capacity", put(0, 0), r"capacity: row 0 is 0, expected in \[1, 1.09951e\+12\]"),
        ("CVRP", "capacity", lambda x: x[:, None], r"capacity: expected shape \(B,\), got \(3, 1\)"),
        ("OP", "prize", put((0, 1), -0.5), r"prize: row 0, index \(1,\) is -0.5"),
        ("OP", "max_length", put(1, np.nan), "max_length: row 1 is nan, expected finite and at least 0"),
        ("PCTSP", "penalty", put((0, 0), 0.5), r"penalty: row 0 gives the depot \(index 0\) 0.5"),
        ("PCTSP", "expected_prize", put((1, 1), np.inf), r"expected_prize: row 1, index \(1,\) is inf"),
        ("SPCTSP", "real_prize", put((1, 1), -1), r"real_prize: row 1, index \(1,\) is -1"),
        ("SPCTSP", "real_prize", lambda x: x[0, 1], "real_prize: expected a float32 array, got float32"),
        ("TSP", "distances", lambda _: np.ones((3, 2, 2), np.float32), "distances: the way from a node to itself"),
        ("TSP", "distances", lambda _: np.ones((3, 2, 3), np.float32), r"distances: expected shape \(B, 2, 2\)"),
    ],
)
def test_bad_instances(name, field, change, message):
    problem, instance = broken(name, field, change)
    with pytest.raises(InvalidInstance, match=message):
        problem.validate(instance)


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (np.array([0, 1]), r"actions: expected shape \(1, T\), got \(2,\)"),
        (np.array([[0], [1]]), r"actions: expected shape \(1, T\), got \(2, 1\)"),
        (np.array([[0.0, 1.0]]), "actions: expected integers, got float64"),
    ],
)
def test_bad_tours(actions, message):
    instance = TSP(2).generate(np.random.default_rng(0), 1)
    with pytest.raises(ValueError, match=message):
        TSP(2).objective(instance, actions)


# --- exact solutions, by means that know nothing of steps and masks


def length(coords, nodes):
    points = coords[[*nodes]].astype(float)
    return float(np.linalg.norm(points - np.roll(points, -1, axis=0), axis=1).sum())


def best_round_trip(coords, customers):
    """Shortest tour from the depot through some customers: all orders."""
    return min(length(coords, (0, *order)) for order in itertools.permutations(customers))


def subsets(items):
    return itertools.chain.from_iterable(itertools.combinations(items, size) for size in range(len(items) + 1))


def exact_tsp(instance):
    """All tours that start at city 0."""
    cities = range(1, len(instance.coords[0]))
    return min(length(instance.coords[0], (0, *order)) for order in itertools.permutations(cities))


def exact_cvrp(instance):
    """Best partition of the customers into trips that fit, by recursion over who rides with the first one."""
    coords, demand, capacity = instance.coords[0], instance.demand[0], instance.capacity[0]

    def best(customers):
        if not customers:
            return 0.0
        first, *others = customers
        trips = [(first, *rest) for rest in subsets(others)]
        fitting = [trip for trip in trips if demand[[*trip]].sum() <= capacity]
        rests = [tuple(customer for customer in customers if customer not in trip) for trip in fitting]
        return min(best_round_trip(coords, trip) + best(rest) for trip, rest in zip(fitting, rests, strict=True))

    return best(tuple(range(1, len(demand))))


def exact_op(instance):
    """The largest prize of a set of customers whose shortest tour is short enough."""
    sets = subsets(range(1, len(instance.prize[0])))
    return -max(
        instance.prize[0, [*chosen]].astype(float).sum()
        for chosen in sets
        if best_round_trip(instance.coords[0], chosen) <= instance.max_length[0]
    )


def exact_pctsp(instance):
    """The cheapest set of customers that yields enough: shortest tour plus the penalties of the others."""
    customers = range(1, len(instance.penalty[0]))
    prize, penalty = instance.expected_prize[0].astype(float), instance.penalty[0].astype(float)
    return min(
        best_round_trip(instance.coords[0], chosen) + penalty.sum() - penalty[[*chosen]].sum()
        for chosen in subsets(customers)
        if prize[[*chosen]].sum() >= 1 or len(chosen) == len(customers)
    )


@pytest.mark.parametrize(
    ("problem", "exact"),
    [
        (TSP(6), exact_tsp),
        (CVRP(5, capacity=12), exact_cvrp),
        (OP(6, max_length=1.5), exact_op),
        (OP(5, prize="uniform", max_length=2.0), exact_op),
        (PCTSP(6), exact_pctsp),
        (PCTSP(5, penalty_scale=0.2), exact_pctsp),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_the_best_legal_sequence_is_the_exact_solution(problem, exact):
    instances = problem.generate(np.random.default_rng(7), 4)
    for row in range(4):
        one = select(instances, [row])
        best = min(costs.min() for _, costs in legal_sequences(problem, one, problem.horizon))
        assert best == pytest.approx(exact(one), abs=1e-5)


# --- masks and ends, written a second time from the history of an episode, in plain Python


def distance(instance, origin, destination):
    return float(
        np.linalg.norm(instance.coords[0, origin].astype(float) - instance.coords[0, destination].astype(float))
    )


def expected_tsp(problem, instance, history):
    done = len(history) == problem.num_nodes
    return {history[-1]} if done else set(range(problem.num_nodes)) - set(history), done


def expected_cvrp(problem, instance, history):
    served, load = set(history) - {0}, 0
    for node in history:
        load = 0 if node == 0 else load + instance.demand[0, node]
    node = history[-1] if history else 0
    customers = {c for c in range(1, problem.num_actions) if c not in served}
    fitting = {c for c in customers if load + instance.demand[0, c] <= instance.capacity[0]}
    return fitting | ({0} if node != 0 or not customers else set()), node == 0 and not customers


def expected_sdvrp(problem, instance, history):
    remaining, goods = instance.demand[0].copy(), instance.capacity[0]
    for node in history:
        delivered = min(goods, remaining[node])
        remaining[node] -= delivered
        goods = instance.capacity[0] if node == 0 else goods - delivered
    node = history[-1] if history else 0
    customers = set(np.flatnonzero(remaining).tolist()) if goods > 0 else set()
    return customers | ({0} if node != 0 or not remaining.any() else set()), node == 0 and not remaining.any()


def expected_op(problem, instance, history):
    if 0 in history:
        return {0}, True
    way = [0, *history]
    so_far = sum(distance(instance, *leg) for leg in itertools.pairwise(way))
    legal, unclear = {0}, set()
    for c in set(range(1, problem.num_actions)) - set(history):
        slack = instance.max_length[0] - so_far - distance(instance, way[-1], c) - distance(instance, c, 0)
        (unclear if abs(slack) < 1e-5 else legal if slack > 0 else set()).add(c)
    return legal, False, unclear


def expected_pctsp(problem, instance, history):
    if 0 in history:
        return {0}, True
    prize = (instance.real_prize if problem.name == "SPCTSP" else instance.expected_prize)[0].astype(float)
    unvisited = set(range(1, problem.num_actions)) - set(history)
    enough = prize[[*history]].sum() - 1
    unclear = {0} if abs(enough) < 1e-5 and unvisited else set()
    return unvisited | ({0} if enough >= 0 or not unvisited else set()), False, unclear


EXPECTED = {
    "TSP": expected_tsp,
    "CVRP": expected_cvrp,
    "SDVRP": expected_sdvrp,
    "OP": expected_op,
    "PCTSP": expected_pctsp,
    "SPCTSP": expected_pctsp,
}


@pytest.mark.parametrize("name", EXPECTED)
@given(data=st.data(), num_nodes=st.integers(2, 8), seed=st.integers(0, 2**32 - 1))
def test_masks_follow_from_the_history(name, data, num_nodes, seed):
    """Random instances and random legal actions; nodes within 1e-5 of a limit may be either."""
    problem = make_problem(name, num_nodes)
    instance = problem.generate(np.random.default_rng(seed), 1)
    state, history = problem.initial(instance), []
    for _ in range(problem.horizon + 1):
        legal, done, *unclear = EXPECTED[name](problem, instance, history)
        found = set(np.flatnonzero(problem.action_mask(instance, state)[0]).tolist())
        assert found ^ legal <= (unclear[0] if unclear else set())
        assert problem.done(instance, state)[0] == done
        if done:
            return
        action = data.draw(st.sampled_from(sorted(found)))
        for node in set(range(problem.num_actions)) - found:
            reason = problem.why_illegal(instance, state, 0, node)
            assert re.search(rf"\b{node}\b|\bdepot\b", reason), f"{reason}: neither node {node} nor the depot is named"
        state, _ = problem.step(instance, state, np.array([action]))
        history.append(action)
    pytest.fail(f"not done within the horizon of {problem.horizon}")


@given(
    num_nodes=st.integers(1, 6),
    demands=st.lists(st.integers(0, 9), min_size=6, max_size=6),
    capacity=st.integers(9, 30),
    seed=st.integers(0, 1000),
)
def test_cvrp_with_any_demands_ends_within_the_horizon(num_nodes, demands, capacity, seed):
    """Customers without demand included: CVRP visits them too."""
    problem = CVRP(num_nodes)
    rng = np.random.default_rng(seed)
    instance = replace(
        problem.generate(rng, 1),
        demand=np.array([[0, *demands[:num_nodes]]]),
        capacity=np.array([capacity]),
    )
    problem.validate(instance)
    state, actions = problem.initial(instance), []
    while not problem.done(instance, state)[0]:
        assert len(actions) < problem.horizon
        actions.append(rng.choice(np.flatnonzero(problem.action_mask(instance, state)[0])))
        state, _ = problem.step(instance, state, np.array([actions[-1]]))
    assert problem.objective(instance, np.array([actions])).shape == (1,)


@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_prizes_from_outside_become_familiar(backend):
    """Generated prizes are at most 1: 5 and 2.5 become 1 and 0.5; 0.5 and 0.25 stay, and so do other problems."""
    if backend == "torch":
        pytest.importorskip("torch")
    prize = np.array([[0, 5, 2.5], [0, 0.5, 0.25]], dtype=np.float32)
    instance = to_backend(replace(OP(2).generate(np.random.default_rng(0), 2), prize=prize), backend)
    rescaled = OP(2).rescale(instance)
    assert rescaled.prize.tolist() == [[0, 1, 0.5], [0, 0.5, 0.25]]
    assert all((getattr(rescaled, key) == getattr(instance, key)).all() for key in ("coords", "max_length"))
    other = CVRP(2).generate(np.random.default_rng(0), 2)
    assert CVRP(2).rescale(other) is other


@pytest.mark.parametrize(("max_length", "scale"), [(8.0, 0.5), (2.5, 0.8), (1.6, 1.25), (0.5, 1.4)])
def test_lengths_of_op_become_familiar_and_its_tours_stay_feasible(max_length, scale):
    """The default is 2 with 20 customers. Tours of exactly the maximum length are legal with each scale."""

    def choose(observation):
        return np.argmax(observation["action_mask"] * rng.random((200, 21)), axis=1)

    problem, rng = OP(20, max_length=max_length), np.random.default_rng(0)
    instance = problem.generate(rng, 200)
    tours = np.stack([np.append(rng.permutation(20)[:3] + 1, 0) for _ in range(200)])
    exact = replace(instance, max_length=leg_lengths(instance, tours).sum(axis=1).astype(np.float32))
    seen = problem.rescale(instance)
    np.testing.assert_allclose(seen.coords - 0.5, scale * (instance.coords - 0.5), atol=1e-7)
    np.testing.assert_allclose(seen.max_length, scale * max_length, rtol=1e-6)
    for original in (instance, exact):
        played = rollout(problem, problem.rescale(original), choose)
        problem.objective(original, played.actions)  # raises if a tour is too long
    seen = problem.rescale(exact)
    state = problem.initial(seen)
    for action in tours.T:
        assert problem.action_mask(seen, state)[np.arange(200), action].all()
        state, _ = problem.step(seen, state, action)


def test_large_penalties_become_familiar():
    """Generated penalties are below 3 K / n = 2 with K = 2 and three customers; in row 0, the median is 4."""
    problem = PCTSP(3)
    usual = problem.generate(np.random.default_rng(0), 2)
    np.testing.assert_array_equal(problem.rescale(usual).penalty, usual.penalty)
    large = replace(usual, penalty=np.array([[0, 1, 4, 8], [0, 1, 1, 8]], np.float32))
    seen = problem.rescale(large)
    assert seen.penalty.tolist() == [[0, 0.5, 2, 4], [0, 1, 1, 8]]
    np.testing.assert_allclose(seen.coords[0], 0.25 + large.coords[0] / 2)
    np.testing.assert_array_equal(seen.coords[1], large.coords[1])
    tours = np.array([[2, 3, 0], [1, 3, 0]])
    np.testing.assert_allclose(problem.objective(seen, tours) / problem.objective(large, tours), [0.5, 1], rtol=1e-6)


@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_symmetries_of_the_square(backend):
    """(0.2, 0.3): mirrored 0.8 and 0.7; 4 swaps first, so 5 = 4 + 1 gives (0.3, 0.2) and then (0.7, 0.2)."""
    move = (lambda x: x) if backend == "numpy" else pytest.importorskip("torch").as_tensor
    expected = [[0.2, 0.3], [0.8, 0.3], [0.2, 0.7], [0.8, 0.7], [0.3, 0.2], [0.7, 0.2], [0.3, 0.8], [0.7, 0.8]]
    point = move(np.array([[[0.2, 0.3]]], dtype=np.float32))
    seen = [to_numpy(symmetry(point, index))[0, 0] for index in range(8)]
    np.testing.assert_allclose(seen, expected, atol=1e-7)
    all_rows = symmetry(move(np.tile(to_numpy(point), (8, 1, 1))), np.arange(8))
    np.testing.assert_array_equal(to_numpy(all_rows)[:, 0], seen)


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_no_rows_have_no_objectives(name):
    """As where a solver failed on all."""
    problem = make_problem(name, 4)
    nobody = select(problem.generate(np.random.default_rng(0), 1), slice(0, 0))
    assert problem.objective(nobody, np.zeros((0, 5), dtype=np.int64)).shape == (0,)
