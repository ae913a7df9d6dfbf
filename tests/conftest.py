"""Settings that must be in place before NumPy, torch or matplotlib are imported."""

import multiprocessing
import os
import time
from importlib.util import find_spec

import pytest
from hypothesis import settings

os.environ["MPLBACKEND"] = "Agg"  # no windows, also on a desktop
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")  # JAX compiles faster
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # the workers share the cores; torch would take them all in each

# Processes are forked from one that has imported what they need, instead of importing it each; Adam imports _dynamo.
multiprocessing.set_forkserver_preload(["routing_gym.solvers", "routing_agents.training.loop", "torch._dynamo"])

settings.register_profile("routing-gym", deadline=None)  # shared machines stall; slow is no failure
settings.load_profile("routing-gym")


@pytest.fixture(params=["numpy", "torch"])
def backend(request):
    if request.param == "torch":
        pytest.importorskip("torch")
    return request.param


@pytest.fixture
def processor_time(monkeypatch):
    """Let time limits of searches and of PyVRP count processor time: no result depends on a busy machine.

    OR-Tools has its own clock: its limit is twenty times as long, and it is stopped as Ctrl-C stops it.
    """
    from routing_gym.solvers.external import plans

    solve = plans.SOLVERS["ortools"]

    def solve_ortools(task, seconds, seed, stop=lambda: False):
        ends = time.thread_time() + seconds
        return solve(task, 20 * seconds, seed, lambda: stop() or time.thread_time() > ends)

    monkeypatch.setitem(plans.SOLVERS, "ortools", solve_ortools)
    monkeypatch.setattr(time, "perf_counter", time.thread_time)


@pytest.fixture(autouse=True, scope="session")
def references(tmp_path_factory):
    """Let all runs share their reference solutions, which each folder of runs would otherwise compute again."""
    if find_spec("torch") is None:
        yield
        return
    from routing_agents import runs

    folder, solve = tmp_path_factory.mktemp("references"), runs.reference_cost
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "reference_cost", lambda problem, instance, cache: solve(problem, instance, folder))
        yield
