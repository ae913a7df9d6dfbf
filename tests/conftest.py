"""Settings that must be in place before NumPy, torch or matplotlib are imported."""

import os

import pytest
from hypothesis import settings

os.environ["MPLBACKEND"] = "Agg"  # no windows, also on a desktop
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # the workers share the cores; torch would take them all in each

settings.register_profile("routing-gym", deadline=None)  # shared machines stall; slow is no failure
settings.load_profile("routing-gym")


@pytest.fixture(params=["numpy", "torch"])
def backend(request):
    if request.param == "torch":
        pytest.importorskip("torch")
    return request.param
