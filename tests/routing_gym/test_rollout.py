"""`rollout` on NumPy: what it refuses. tests/routing_gym/test_jax_arrays.py compares it with JAX."""

import numpy as np
import pytest

from routing_gym import OP
from routing_gym.rollout import rollout

PROBLEM = OP(3, max_length=9.0)
INSTANCE = PROBLEM.generate(np.random.default_rng(0), 2)


def highest(observation):
    """Choose the legal action of the highest number: all customers, then the depot."""
    mask = observation["action_mask"]
    return mask.shape[1] - 1 - mask[:, ::-1].argmax(axis=1)


def test_rows_must_end_within_the_steps():
    assert rollout(PROBLEM, INSTANCE, highest).actions.tolist() == 2 * [[3, 2, 1, 0]]
    with pytest.raises(RuntimeError, match=r"OP\(.*\): not all rows have ended after 3 steps"):
        rollout(PROBLEM, INSTANCE, highest, max_steps=3)


@pytest.mark.parametrize(
    ("action", "found"),
    [
        (np.array(1), r"actions of shape \(\)"),
        (np.ones((2, 1), int), r"actions of shape \(2, 1\)"),
        ([1, 1], "list"),
    ],
)
def test_actions_have_one_entry_for_each_row(action, found):
    with pytest.raises(ValueError, match=f"returned {found}, expected actions of shape \\(2,\\)"):
        rollout(PROBLEM, INSTANCE, lambda _: action)
