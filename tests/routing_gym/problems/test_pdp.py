"""Pickup and delivery: values worked out by hand."""

import numpy as np
import pytest

from routing_gym import PDP, InfeasibleTour, InvalidInstance, PDPInstance
from routing_gym.arrays import cast_instance, to_backend

PROBLEM = PDP(4)
# On a line: the depot at 0, pickups at 0.4 and 0.1, their deliveries at 0.2 and 0.3.
COORDS = np.array([[[0.0, 0.5], [0.4, 0.5], [0.1, 0.5], [0.2, 0.5], [0.3, 0.5]]], dtype=np.float32)
PICKUP = np.array([[0, 0, 0, 1, 2]])


@pytest.fixture(params=["numpy", "torch"])
def instance(request):
    if request.param == "torch":
        pytest.importorskip("torch")
    return to_backend(cast_instance(PDPInstance(COORDS, PICKUP)), request.param)


def test_there_and_back(instance):
    """On the way there 0.1, 0.3, 0.4, on the way back 0.2: 0.8. Far pickup first: 0.4 + 0.2 + 0.1 + 0.2 + 0.3 = 1.2."""
    assert float(PROBLEM.objective(instance, np.array([[2, 4, 1, 3, 0]]))[0]) == pytest.approx(0.8)
    assert float(PROBLEM.objective(instance, np.array([[1, 3, 2, 4, 0, 0]]))[0]) == pytest.approx(1.2)


def test_a_delivery_waits_for_its_pickup(instance):
    state, costs, masks = PROBLEM.initial(instance), [], []
    for action in (2, 4, 1, 3, 0):
        masks.append(PROBLEM.action_mask(instance, state)[0].tolist())
        state, cost = PROBLEM.step(instance, state, instance.pickup[:, 0] + action)
        costs.append(float(cost[0]))
    assert costs == pytest.approx([0.1, 0.2, 0.1, 0.2, 0.2], abs=1e-6)
    assert bool(PROBLEM.done(instance, state)[0])
    assert masks == [
        [False, True, True, False, False],
        [False, True, False, False, True],
        [False, True, False, False, False],
        [False, False, False, True, False],
        [True, False, False, False, False],
    ]


def test_pairs_of_generated_instances():
    """Customer i + n / 2 is the delivery of customer i; of five customers, the last is neither."""
    generated = PDP(5).generate(np.random.default_rng(0), 2)
    assert generated.pickup.tolist() == [[0, 0, 0, 1, 2, 0]] * 2


def test_one_pickup_may_serve_several_deliveries():
    instance = PDPInstance(COORDS, np.array([[0, 0, 1, 1, 1]]))
    PROBLEM.validate(instance)
    state = PROBLEM.initial(instance)
    assert PROBLEM.action_mask(instance, state)[0].tolist() == [False, True, False, False, False]
    state, _ = PROBLEM.step(instance, state, np.array([1]))
    assert PROBLEM.action_mask(instance, state)[0].tolist() == [False, False, True, True, True]


def test_wrong_order(instance):
    with pytest.raises(InfeasibleTour, match="row 0, step 1: node 4 comes before its pickup, node 2; visit that one"):
        PROBLEM.objective(instance, np.array([[1, 4, 2, 3, 0]]))


@pytest.mark.parametrize(
    ("pickup", "message"),
    [
        ([0, 0, 1, 2, 0], "row 0, node 3 has its pickup at node 2, which is a delivery itself"),
        ([0, 0, 2, 0, 0], "row 0, node 2 has its pickup at node 2, which is a delivery itself, or the same node"),
        ([1, 0, 0, 0, 0], "row 0, node 0 has its pickup at node 1, but the depot gets nothing"),
        ([0, 0, 0, 0, 5], r"pickup: row 0, index \(4,\) is 5, expected in \[0, 4\]"),
    ],
)
def test_bad_pairs(pickup, message):
    with pytest.raises(InvalidInstance, match=message):
        PROBLEM.validate(PDPInstance(COORDS, np.array([pickup])))


def test_why_illegal(instance):
    state = PROBLEM.initial(instance)
    assert PROBLEM.why_illegal(instance, state, 0, 0) == "customers remain; the tour ends at the depot"
    assert PROBLEM.why_illegal(instance, state, 0, 3) == "customer 3 comes after its pickup, customer 1"
    state, _ = PROBLEM.step(instance, state, instance.pickup[:, 0] + 2)
    assert PROBLEM.why_illegal(instance, state, 0, 2) == "customer 2 is already visited"
