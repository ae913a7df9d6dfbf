"""A small static instance, and a day on it that is reckoned by hand."""

from dataclasses import replace

import numpy as np
import pytest

from routing_gym.dynamic import ResampledDays, StaticInstance
from routing_gym.dynamic.days import NEVER


@pytest.fixture(scope="session")
def settings():
    """Two customers 10 and 20 away; from 1 to 2 it is 12, from 2 to 1 it is 14, home 10 and 25."""
    static = StaticInstance(
        np.array([[0, 10, 20], [10, 0, 12], [25, 14, 0]]),
        time_window=np.array([[0, 400], [40, 150], [100, 300]]),
        demand=np.array([0, 2, 2]),
        service_time=np.array([0, 5, 5]),
        capacity=5,
        coords=np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]]),
    )
    return {"static": static, "epoch_duration": 50, "margin": 0, "max_requests": 2}


@pytest.fixture
def day(settings):
    """Three epochs, leaving at 0, 50, 100; requests 1 and 2 arrive at once, 3 in epoch 1."""
    drawn = ResampledDays(**settings).draw([np.random.default_rng(0)])
    assert (drawn.first_epoch[0], drawn.last_epoch[0]) == (0, 2)
    return replace(
        drawn,
        arrival=np.array([[0, 0, 1, NEVER, NEVER, NEVER]]),
        customer=np.array([[1, 2, 1, 0, 0, 0]]),
        time_window=np.array([[[100, 150], [100, 300], [60, 90], [0, 0], [0, 0], [0, 0]]]),
        demand=np.array([[2, 2, 2, 0, 0, 0]]),
        service_time=np.array([[5, 5, 5, 0, 0, 0]]),
    )
