"""Test sets of MVMoE, RouteFinder and rl4co: instances by hand, and what is refused."""

from __future__ import annotations

import pickle
from copy import deepcopy

import numpy as np
import pytest

from helpers import ROOT
from routing_gym import InfeasibleTour, data, make_problem
from routing_gym.data.paper import paper_columns
from routing_gym.testing.compare import difference

FAMILY = ROOT.parent / "shared" / "reference" / "vrp_family_50.npz"


def test_a_pickle_of_mvmoe(tmp_path):
    """Depot at the origin, customers 0.5 to the right and above; the tour there and back twice has length 2.

    The first customer opens at 1: service from 1 to 1.2, back at 1.7.
    """
    row = ([[0.0, 0.0]], [[0.5, 0.0], [0.0, 0.5]], [3, 4], 5.0, 3.0, [0.2, 0.2], [1.0, 0.0], [1.5, 2.0])
    rows = [row, (*deepcopy(row[:2]), [1, 1], *deepcopy(row[3:]))]  # no list twice
    (tmp_path / "set.pkl").write_bytes(pickle.dumps(rows))
    problem, instance = data.load_pickle(tmp_path / "set.pkl", "VRPLTW")
    assert problem.name == "VRPLTW"
    assert instance.due_time.tolist() == [[3.0, 1.5, 2.0]] * 2  # the depot closes at 3
    assert instance.max_length.tolist() == [3.0, 3.0]
    assert problem.objective(instance, np.array([[1, 0, 2, 0]] * 2)).tolist() == [2.0, 2.0]
    with pytest.raises(data.InvalidFile, match=r"instance 0: found a tuple of 8, expected \(depot, .*due_time\)"):
        data.load_pickle(tmp_path / "set.pkl", "VRPTW")


def routefinder(**changes):
    """Two instances: a delivery of 3 and a pickup of 4 for a capacity of 5, open routes, windows, no limit."""
    shares = {"demand_linehaul": [[0.6, 0.0]] * 2, "demand_backhaul": [[0.0, 0.8]] * 2}
    arrays = {
        "locs": np.array([[[0.0, 0.0], [0.5, 0.0], [0.5, 0.5]]] * 2, dtype=np.float32),
        **{key: np.array(values, dtype=np.float32) for key, values in shares.items()},
        "backhaul_class": np.ones((2, 1)),
        "distance_limit": np.full((2, 1), np.inf),
        "time_windows": np.array([[[0.0, 4.6], [1.0, 1.2], [0.0, 2.0]]] * 2),
        "service_time": np.array([[0.0, 0.2, 0.2]] * 2),
        "capacity_original": np.full((2, 1), 5.0),
        "open_route": np.ones((2, 1), dtype=bool),
        "speed": np.ones((2, 1)),
        "costs_bks": np.array([-1.0, -1.0]),
    }
    return {**arrays, **changes}


def test_a_file_of_routefinder(tmp_path):
    """Open route depot - delivery - pickup: 0.5 + 0.5 = 1, the best known cost."""
    np.savez_compressed(tmp_path / "50.npz", **routefinder())
    found = data.load_peer_npz(tmp_path / "50.npz")
    assert found.problem.name == "OVRPBTW"
    assert found.instance.demand.tolist() == [[0, 3, 4]] * 2
    assert found.instance.backhaul.tolist() == [[False, False, True]] * 2
    assert found.instance.due_time[:, 0].tolist() == pytest.approx([4.6, 4.6])
    assert found.problem.objective(found.instance, np.array([[1, 2, 0]] * 2)).tolist() == found.best_known.tolist()
    with pytest.raises(data.InvalidFile, match=r"50\.npz: holds OVRPBTW, not CVRP"):
        data.load_peer_npz(tmp_path / "50.npz", "CVRP")


def test_several_depots_of_routefinder(tmp_path):
    """The second depot is at the first customer's place: from there, the open route to the second has length 0.5."""
    shares = {f"demand_{kind}": routefinder()[f"demand_{kind}"] for kind in ("linehaul", "backhaul")}
    two = {
        "locs": np.array([[[0.0, 0.0], [0.5, 0.0], [0.5, 0.0], [0.5, 0.5]]] * 2),
        "num_depots": np.full((2, 1), 2),
        "time_windows": np.array([[[0.0, 4.6], [0.0, 4.5], [1.0, 1.2], [0.0, 2.0]]] * 2),
        "service_time": np.array([[0.0, 0.0, 0.2, 0.2]] * 2),
    }
    np.savez(tmp_path / "50.npz", **routefinder(**two, **shares))
    found = data.load_peer_npz(tmp_path / "50.npz")
    assert found.problem == make_problem("MDOVRPBTW", 2, num_depots=2)
    assert found.instance.demand.tolist() == [[0, 0, 3, 4]] * 2
    assert found.instance.due_time == pytest.approx(np.array([[4.6, 4.5, 1.2, 2.0]] * 2))
    assert found.problem.objective(found.instance, np.array([[1, 2, 3, 1]] * 2)).tolist() == [0.5, 0.5]


def test_mixed_backhauls_of_routefinder(tmp_path):
    """Capacity 10, a pickup of 4 and two deliveries of 5: the pickup is first in RouteFinder's environment only."""
    shares = {"demand_linehaul": [[0.0, 0.5, 0.5]] * 2, "demand_backhaul": [[0.4, 0.0, 0.0]] * 2}
    mixed = {key: np.array(values) for key, values in shares.items()} | {
        "locs": np.array([[[0.0, 0.0], [0.1, 0.0], [0.2, 0.0], [0.3, 0.0]]] * 2),
        "backhaul_class": np.full((2, 1), 2),
        "capacity_original": np.full((2, 1), 10.0),
        "time_windows": np.array([[[0.0, np.inf]] * 4] * 2),
        "service_time": np.zeros((2, 4)),
    }
    np.savez(tmp_path / "50.npz", **routefinder(**mixed))
    found = data.load_peer_npz(tmp_path / "50.npz")
    assert found.problem.name == "OVRPMB"
    assert found.problem.objective(found.instance, np.array([[2, 1, 3, 0]] * 2)) == pytest.approx([0.5, 0.5])
    with pytest.raises(InfeasibleTour, match="load 14 exceeds capacity 10"):
        found.problem.objective(found.instance, np.array([[1, 2, 3, 0]] * 2))


def test_some_instances_without_backhauls(tmp_path):
    """RouteFinder draws backhauls with probability 0.2, so that small instances may have none."""
    none = {
        "demand_linehaul": np.array([[0.6, 0.0], [0.6, 0.8]]),
        "demand_backhaul": np.array([[0.0, 0.8], [0.0, 0.0]]),
    }
    np.savez(tmp_path / "50.npz", **routefinder(**none))
    found = data.load_peer_npz(tmp_path / "50.npz")
    assert found.problem.name == "OVRPBTW"
    assert found.instance.backhaul.tolist() == [[False, False, True], [False, False, False]]


def test_a_file_of_rl4co_in_the_layout_of_routefinder(tmp_path):
    """Its demands have a column for the depot, and there is no class of backhauls."""
    arrays = routefinder()
    del arrays["backhaul_class"]
    np.savez(tmp_path / "50.npz", **arrays)
    for kind in ("demand_linehaul", "demand_backhaul"):
        arrays[kind] = np.pad(arrays[kind], ((0, 0), (1, 0)))
    np.savez(tmp_path / "wide.npz", **arrays)
    found, wide = (data.load_peer_npz(tmp_path / name) for name in ("50.npz", "wide.npz"))
    assert found.problem == wide.problem == make_problem("OVRPBTW", 2)
    assert difference(found.instance, wide.instance) is None


def test_best_known_costs_beside_a_file_of_routefinder(tmp_path):
    arrays = routefinder()
    del arrays["costs_bks"]
    np.savez(tmp_path / "50.npz", **arrays)
    assert data.load_peer_npz(tmp_path / "50.npz").best_known is None
    np.savez(tmp_path / "50_sol_pyvrp.npz", costs=np.array([-1.0, -1.5]), actions=np.zeros((2, 3)), time=1.0)
    assert data.load_peer_npz(tmp_path / "50.npz").best_known.tolist() == [1.0, 1.5]
    for costs, number in (([-1.0], 1), ([-1.0, -np.inf], 2), ([], 0)):
        np.savez(tmp_path / "50_sol_pyvrp.npz", costs=np.array(costs))
        with pytest.raises(data.InvalidFile, match=rf"50_sol_pyvrp\.npz: found {number} costs, expected 2 numbers"):
            data.load_peer_npz(tmp_path / "50.npz")


@pytest.mark.parametrize("name", ["TSP", "CVRP", "SDVRP", "OP", "PCTSP", "SPCTSP"])
def test_files_of_rl4co(name, tmp_path):
    """Its generator writes the arrays of the paper's under other names; the instances are those of the paper."""
    names = {"coords": "locs", "expected_prize": "deterministic_prize", "real_prize": "stochastic_prize"}
    columns = paper_columns(name, 20, size=3)
    np.savez(tmp_path / "20.npz", **{names.get(key, key): value.astype(np.float32) for key, value in columns.items()})
    found = data.load_peer_npz(tmp_path / "20.npz", name)
    assert found.problem == make_problem(name, 20)
    assert difference(found.instance, data.paper_test_set(name, 20, size=3)) is None
    with pytest.raises(data.InvalidFile, match=r"20\.npz: holds .*, not VRPTW"):
        data.load_peer_npz(tmp_path / "20.npz", "VRPTW")


@pytest.mark.parametrize(
    ("name", "arrays"),
    [
        ("PDP", lambda instance: {"depot": instance.coords[:, 0], "locs": instance.coords[:, 1:]}),
        ("MTSP", lambda instance: {"locs": instance.coords, "num_agents": instance.num_salesmen}),
        ("ATSP", lambda instance: {"cost_matrix": instance.distances}),
    ],
    ids=["PDP", "MTSP", "ATSP"],
)
def test_generated_instances_of_rl4co(name, arrays, tmp_path):
    """Arrays of its `PDPGenerator`, `MTSPGenerator` and `ATSPGenerator`."""
    problem = make_problem(name, 6)
    instance = problem.generate(np.random.default_rng(0), 3)
    np.savez(tmp_path / "6.npz", **arrays(instance))
    found = data.load_peer_npz(tmp_path / "6.npz")
    assert found.problem == problem
    assert difference(found.instance, instance) is None


@pytest.mark.parametrize("capacity", [np.full((2, 1), 30.0), np.full(2, 30.0)], ids=["(N, 1)", "(N,)"])
@pytest.mark.parametrize("name", ["CVRP", "SDVRP"])
def test_fractions_of_the_capacity_in_a_file_of_rl4co(name, capacity, tmp_path):
    """Its generator divides demands by the capacity: in float32, 7 / 30 times 30 is not exactly 7."""
    demand = np.array([[7, 9, 1], [3, 30, 5]])
    arrays = {"locs": np.zeros((2, 3, 2)), "depot": np.ones((2, 2)), "demand": demand / 30, "capacity": capacity}
    np.savez(tmp_path / "3.npz", **{key: values.astype(np.float32) for key, values in arrays.items()})
    found = data.load_peer_npz(tmp_path / "3.npz", name)
    assert found.problem == make_problem(name, 3)
    assert found.instance.demand.tolist() == [[0, 7, 9, 1], [0, 3, 30, 5]]
    assert found.instance.capacity.tolist() == [30, 30]


@pytest.mark.parametrize(
    ("demand", "capacity", "message"),
    [
        ([[0.5]], [[5.0]], "demand times capacity: expected whole numbers"),
        ([[1.5]], [30.0], "demand: expected whole numbers, or fractions of the capacity, which are at most 1"),
        ([[3.0]], [30.5], "capacity: expected whole numbers"),
        ([[np.nan]], [30.0], "demand: expected whole numbers"),
        ([[np.inf]], [30.0], "demand"),
        ([[31.0]], [30.0], "demand"),
        ([[3.0]], [30.0, 30.0], "capacity: expected one for each of 1 instances, got 2"),
    ],
)
def test_refused_demands_of_rl4co(demand, capacity, message, tmp_path):
    arrays = {"locs": np.zeros((1, 1, 2)), "depot": np.ones((1, 2)), "demand": np.array(demand)}
    np.savez(tmp_path / "bad.npz", **arrays, capacity=np.array(capacity))
    with pytest.raises(data.InvalidFile, match=rf"bad\.npz: .*{message}"):
        data.load_peer_npz(tmp_path / "bad.npz")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"backhaul_class": np.array([[1], [2]])}, r"backhaul_class: expected 1 everywhere, or 2"),
        ({"backhaul_class": np.full((2, 1), 3)}, r"backhaul_class: expected 1 everywhere, or 2"),
        ({"num_depots": np.full((2, 1), 3)}, "num_depots: expected the same number everywhere, from 1 to 2"),
        ({"num_depots": np.array([[1], [2]])}, "num_depots: expected the same number everywhere, from 1 to 2"),
        ({"demand_linehaul": np.full((2, 3), 0.6), "demand_backhaul": np.zeros((2, 3))}, "expected 0 at depots"),
        ({"open_route": np.array([[True], [False]])}, "O: found in 1 of 2 .*; write the instances of each"),
        ({"speed": np.full((2, 1), 2.0)}, "expected speed 1"),
        ({"vehicle_capacity": np.full((2, 1), 0.5)}, "expected vehicle_capacity 1"),
        ({"demand_linehaul": np.full((2, 2), 0.6), "demand_backhaul": np.full((2, 2), 0.2)}, "expected at most one of"),
        ({"distance_limit": np.full((2, 1), np.nan)}, "distance_limit, time_windows: found nan"),
        ({"service_time": np.full((2, 3), 0.2)}, "expected depots that open at 0, without service"),
        ({"time_windows": np.full((2, 3, 2), 0.5)}, "expected depots that open at 0, without service"),
        ({"capacity_original": np.full((2, 1), 4.0)}, "expected whole numbers"),
        ({"costs_bks": np.array([np.nan, 1.0])}, "expected 2 positive numbers"),
        ({"costs_bks": np.array([-np.inf, 1.0])}, "expected 2 positive numbers"),
        ({"locs": np.zeros((3, 3, 2))}, "demand"),
        ({"locs": np.zeros((2, 3))}, "."),
    ],
)
def test_refused(tmp_path, changes, message):
    np.savez(tmp_path / "bad.npz", **routefinder(**changes))
    with pytest.raises(data.InvalidFile, match=rf"bad\.npz: .*{message}"):
        data.load_peer_npz(tmp_path / "bad.npz")


def test_other_archives_are_refused(tmp_path):
    lacking = routefinder()
    del lacking["service_time"]
    contents = {
        "lacks 'service_time', without which": lacking,
        "found arrays x; expected those of RouteFinder, of rl4co's TSP, .* or ATSP": {"x": np.zeros(3)},
        "coords: row 0, index": {"depot": np.zeros((2, 2)), "locs": np.full((2, 4, 2), np.nan)},
        r"coords: expected shape .*, got \(2, 5, 3\)": {"depot": np.zeros((2, 3)), "locs": np.zeros((2, 4, 3))},
        "num_agents: expected whole numbers": {"locs": np.zeros((2, 4, 2)), "num_agents": np.full(2, 2.5)},
        "distances: row 0": {"cost_matrix": np.full((2, 3, 3), -1.0)},
        "an array has fewer dimensions than expected": {"cost_matrix": np.zeros(3)},
        "holds CVRP, VRPB; name one of them as the problem": {"VRPB/coords": np.zeros(3), "CVRP/coords": np.zeros(3)},
        "demand times capacity: expected whole numbers": {
            "depot": np.zeros((2, 2)),
            "locs": np.zeros((2, 1, 2)),
            "demand": np.full((2, 1), 0.5),
            "capacity": np.ones(2),
        },
        "unpack to .* bytes; at most": {"locs": np.zeros(2**27 + 1)},
    }
    for message, arrays in contents.items():
        np.savez_compressed(tmp_path / "bad.npz", **arrays)
        with pytest.raises(data.InvalidFile, match=message):
            data.load_peer_npz(tmp_path / "bad.npz")


@pytest.mark.skipif(not FAMILY.exists(), reason="no ../shared/reference/vrp_family_50.npz")
def test_the_first_instances_of_mvmoe():
    """500 instances of each variant; the mean best known cost of VRPTW, computed from the file by hand, is 14.58."""
    found = data.load_peer_npz(FAMILY, "VRPTW")
    assert found.instance.coords.shape == (500, 51, 2)
    assert found.best_known.mean() == pytest.approx(14.58, abs=0.005)
