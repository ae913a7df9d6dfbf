"""Min-max multiple TSP: values worked out by hand."""

import numpy as np
import pytest

from routing_gym import MTSP, InfeasibleTour, InvalidInstance, MTSPInstance
from routing_gym.arrays import cast_instance, to_backend

PROBLEM = MTSP(3, num_salesmen=2)
# The depot in the middle, a customer on either side of it, and one above.
COORDS = np.array([[[0.5, 0.5], [0.9, 0.5], [0.1, 0.5], [0.5, 0.8]]], dtype=np.float32)


@pytest.fixture(params=["numpy", "torch"])
def instance(request):
    if request.param == "torch":
        pytest.importorskip("torch")
    return to_backend(cast_instance(MTSPInstance(COORDS, np.array([2]))), request.param)


def test_the_longest_tour_counts(instance):
    """0.4 + 0.4 to the right; left, up and home 0.4 + sqrt(0.16 + 0.09) + 0.3 = 1.2.

    All by one: 0.4 to the right, 0.8 to the left, 0.5 up, 0.3 home: 2.0.
    """
    cost = PROBLEM.objective(instance, np.array([[1, 0, 2, 3, 0]]))
    assert float(cost[0]) == pytest.approx(1.2)
    assert float(PROBLEM.objective(instance, np.array([[2, 3, 0, 0, 1, 0]]))[0]) == pytest.approx(1.2)
    assert float(PROBLEM.objective(instance, np.array([[1, 2, 3, 0]]))[0]) == pytest.approx(2.0)


def test_steps_pay_for_what_lengthens_the_longest_tour(instance):
    """Right 0.4, home 0.4; then left 0.4 and up 0.5 are 0.9, 0.1 more than 0.8; home makes 1.2, 0.3 more."""
    state, costs, masks = PROBLEM.initial(instance), [], []
    for action in (1, 0, 2, 3, 0):
        masks.append(PROBLEM.action_mask(instance, state)[0].tolist())
        actions = instance.num_salesmen * 0 + action
        state, cost = PROBLEM.step(instance, state, actions)
        costs.append(float(cost[0]))
    assert costs == pytest.approx([0.4, 0.4, 0.0, 0.1, 0.3], abs=1e-6)
    assert bool(PROBLEM.done(instance, state)[0])
    assert masks == [
        [False, True, True, True],  # nobody's tour is empty
        [True, False, True, True],
        [False, False, True, True],
        [False, False, False, True],  # the last salesman visits whoever is left
        [True, False, False, False],
    ]


def test_observations(instance):
    """After the first tour of 0.8 and a leg of 0.4: one of two salesmen is left."""
    state = PROBLEM.initial(instance)
    for action in (1, 0, 2):
        state, _ = PROBLEM.step(instance, state, instance.num_salesmen * 0 + action)
    seen = PROBLEM.observe_dynamic(instance, state)
    values = {key: float(value[0, 0]) for key, value in seen.items() if key != "current_node"}
    expected = {"equal_share": 0.5, "salesmen_left": 0.5, "current_length": 0.4, "longest_length": 0.8}
    assert values == pytest.approx(expected)


def test_too_many_tours(instance):
    reason = r"row 0, step 4: salesman 3 leaves the depot for node 3, but there are 2; return to the depot \(0\) less"
    with pytest.raises(InfeasibleTour, match=reason):
        PROBLEM.objective(instance, np.array([[1, 0, 2, 0, 3, 0]]))


def test_bad_input():
    with pytest.raises(ValueError, match="MTSP: num_salesmen must be at most 2147483647, got 1000000000000"):
        MTSP(3, num_salesmen=10**12)
    with pytest.raises(ValueError, match="MTSP: num_salesmen must be an integer of at least 1, got 0"):
        MTSP(3, num_salesmen=0)
    with pytest.raises(InvalidInstance, match="num_salesmen: row 0 is 0, expected in"):
        PROBLEM.validate(MTSPInstance(COORDS, np.array([0])))
    why = PROBLEM.why_illegal
    state = PROBLEM.initial(instance := MTSPInstance(COORDS, np.array([1])))
    assert why(instance, state, 0, 0) == "the salesman is at the depot and customers remain"
    state, _ = PROBLEM.step(instance, state, np.array([1]))
    assert why(instance, state, 0, 0) == "this is the last salesman and customers remain"
    assert why(instance, state, 0, 1) == "customer 1 is already visited"
