"""Solvers on a Ray cluster of two nodes on this machine; runs in the environment of `make test-integrations`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from shuffling import Shuffle, batch

from routing_gym.arrays import select
from routing_gym.solvers import make_solver
from routing_gym.solvers.runtime import on_ray
from routing_gym.solvers.runtime.on_ray import OnRay
from routing_gym.solvers.runtime.work import Inline

ray = pytest.importorskip("ray", reason="Ray is in the environment of make test-integrations")
pytestmark = pytest.mark.filterwarnings("default")  # Ray's own
ROOT = Path(__file__).parents[3]
SEARCHED = os.pathsep.join(map(str, (ROOT, ROOT / "agents", Path(__file__).parent)))  # where nodes find our modules


@pytest.fixture(scope="module")
def cluster():
    """Two nodes with one CPU each."""
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", SEARCHED)
        patch.setenv("RAY_worker_niceness", "0")  # by default, workers wait for all other programs
        less = {"include_dashboard": False, "include_log_monitor": False, "no_monitor": True}  # starts faster
        made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, **less})
        made.add_node(num_cpus=1)
        yield made
        ray.shutdown()
        made.shutdown()


def same(found, expected):
    np.testing.assert_array_equal(found.actions, expected.actions)
    np.testing.assert_array_equal(found.cost, expected.cost)
    assert found.status == expected.status


def test_ray_equals_processes_bit_for_bit(cluster):
    """Rows one at a time; then chunks of a batched solver with random draws, from row 7 of a larger batch on."""
    problem, instance = batch(*[0] * 40)
    on_cluster = OnRay(2, cluster.address)
    same(Shuffle().solve(problem, instance, executor=on_cluster), Shuffle().solve(problem, instance, num_workers=1))
    solver = make_solver("random-insertion")
    whole = solver.solve(problem, instance)
    part = solver.solve(problem, select(instance, slice(7, 40)), executor=OnRay(1, cluster.address), first_row=7)
    np.testing.assert_array_equal(part.cost, whole.cost[7:])


def test_a_policy_decodes_on_ray_what_it_decodes_here(cluster):
    """Three chunks of sampled tours; the weights travel with the work."""
    torch = pytest.importorskip("torch")
    from routing_agents.evaluation.decoding import DecodeWork, decode_all
    from routing_agents.evaluation.methods import plain_decoder
    from routing_agents.policies.attention.features import features_named
    from routing_agents.policies.attention.model import AttentionModel, ModelConfig
    from routing_agents.trained import TrainedModel

    problem, instance = batch(*[0] * 10)
    config = ModelConfig(embed_dim=16, num_heads=4, num_layers=1, feed_forward_dim=16)
    network = AttentionModel(features_named("TSP"), config, torch.Generator().manual_seed(1))
    model = TrainedModel(network, problem, Path("none"))
    decoder, _ = plain_decoder("model", {"num_tours": 3, "sample": True}, model, problem)
    work = DecodeWork("model", problem, decoder, seed=5)
    same(decode_all(work, instance, OnRay(1, cluster.address), chunk_size=4), decode_all(work, instance, chunk_size=4))


def test_rows_that_fail_cost_themselves_only(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(on_ray, "ATTEMPTS", 2)
    problem, instance = batch(0, 1, 2, 3, 0)
    found = Shuffle(time_limit=0.3, folder=str(tmp_path)).solve(problem, instance, executor=OnRay(2, cluster.address))
    assert found.failed.tolist() == [False, True, True, True, False]
    assert found.status[1] == "RuntimeError: no luck"
    assert found.status[2] == "timed out: stopped after 1 s"
    assert found.status[3].startswith("died: its worker ended 2 times: ")


def test_a_killed_worker_costs_nothing(cluster, tmp_path):
    """The second row kills its worker when it is tried first, together with the row that waits there; both go again."""
    problem, instance = batch(0, 4, *[0] * 6)
    found = Shuffle(folder=str(tmp_path)).solve(problem, instance, executor=OnRay(1, cluster.address))
    assert (tmp_path / "killed").exists()
    same(found, Shuffle(folder=str(tmp_path)).solve(problem, instance, executor=Inline()))


DRIVER = """
import signal
import sys
from shuffling import Shuffle, batch
from routing_gym.solvers.runtime import cache
from routing_gym.solvers.runtime.on_ray import OnRay

signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell starts in the background ignores it
cache.SAVE_INTERVAL = cache.SAVE_SHARE = 0
folder, address = sys.argv[1:]
solver = Shuffle(pause=0.05, time_limit=2.0)
found = solver.solve(*batch(*[0] * 40), executor=OnRay(1, address), cache=folder)
print("failed", found.failed.sum())
"""


def test_a_stopped_driver_is_continued_by_the_next_run(cluster, tmp_path):
    """Ctrl-C, and kill -9, once the cache holds some rows: no worker stays, and the next run solves the others only."""
    problem, instance = batch(*[0] * 40)
    on_ray.connect(cluster.address, None)
    known = [0]
    for number in (signal.SIGINT, signal.SIGKILL):
        command = [sys.executable, "-c", DRIVER, str(tmp_path), cluster.address]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as driver:
            wait_for(lambda: rows_in(tmp_path) > known[-1])
            driver.send_signal(number)
        assert driver.returncode == (1 if number == signal.SIGINT else -number)
        known.append(rows_in(tmp_path))
        wait_for(lambda: ray.available_resources().get("CPU") == 2)
    assert 0 < known[1] < known[2] < 40
    solver = Shuffle(pause=0.05, time_limit=2.0)
    found = solver.solve(problem, instance, executor=OnRay(1, cluster.address), cache=tmp_path)
    same(found, solver.solve(problem, instance, executor=Inline()))


def wait_for(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def rows_in(folder):
    """Count the rows in the one file of a solver's cache."""
    for file in folder.glob("*.npz"):
        with np.load(file) as content:
            return len(content["key"])
    return 0


def test_a_full_object_store_is_named(cluster, monkeypatch):
    """Ray raises this where the disk is full, too."""
    on_ray.connect(cluster.address, None)

    def put(value):
        raise ray.exceptions.OutOfDiskError

    monkeypatch.setattr(ray, "put", put)
    with pytest.raises(MemoryError, match="Ray's object store is full, and so is the disk .*: free space there, or"):
        Shuffle().solve(*batch(0), executor=OnRay(1, cluster.address))


def test_a_node_that_lacks_a_package_is_named(cluster, monkeypatch):
    """The nodes look for themselves: what this process pretends to have is missing there, or has another version."""
    on_ray.connect(cluster.address, None)
    monkeypatch.setitem(sys.modules, "no_such_package", type(sys)("no_such_package"))
    sys.modules["no_such_package"].__version__ = "1.0"
    with pytest.raises(ValueError, match="lacks no_such_package; install no_such_package 1.0 on every node"):
        on_ray.check_nodes(ray, ("no_such_package",))
    monkeypatch.setattr("routing_gym.__version__", "0.0.0")
    with pytest.raises(ValueError, match=r"has routing_gym [\d.]+\S*; install routing_gym 0.0.0 on every node"):
        on_ray.check_nodes(ray, ())


def test_more_workers_than_the_cluster_has_room_for(cluster):
    with pytest.raises(ValueError, match="9 workers with 1 CPU each do not fit on the cluster, which has room for 2"):
        Shuffle().solve(*batch(0), executor=OnRay(9, cluster.address))


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("localhost:1", "no Ray cluster answers at localhost:1 .*; start one with ray start --head"),
        ("nowhere", "address 'nowhere': expected auto, HOST:6379 or ray://HOST:10001"),
        ("http://host:80", "address 'http://host:80': expected auto, HOST:6379"),
    ],
)
def test_wrong_addresses(address, message, monkeypatch):
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(ValueError, match=message):
        Shuffle().solve(*batch(0), executor=OnRay(2, address))


def test_a_killed_node_costs_nothing(cluster):
    """The raylet of the second node is killed while rows are solved: those on it are solved on the first one.

    The tests after this one have the first node only.
    """
    problem, instance = batch(*[0] * 60)
    solver = Shuffle(pause=0.05)
    results = {}
    for row, result in solver.work(problem, 0).solve(instance, range(60), OnRay(2, cluster.address)):
        results[row] = result
        if len(results) == 10:
            cluster.remove_node(*cluster.worker_nodes, allow_graceful=False)  # kill -9
    expected = solver.solve(problem, instance, executor=Inline())
    np.testing.assert_array_equal([results[row].actions for row in range(60)], expected.actions)


def test_another_version_of_ray_is_refused(cluster, monkeypatch):
    """Ray compares its version with the cluster's when it connects."""
    ray.shutdown()
    monkeypatch.setattr("ray.__version__", "0.0.1")
    with pytest.raises(ValueError, match=r"the Ray cluster at .* cannot be used \(Version mismatch"):
        Shuffle().solve(*batch(0), executor=OnRay(2, cluster.address))
