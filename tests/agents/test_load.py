"""`routing_agents.load` and `solve`, on arrays in a user's own units."""

import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

import routing_agents
from routing_agents import checkpoint
from routing_agents.policies.attention.decoding import solve
from routing_agents.policies.attention.saved import load_model
from routing_agents.search.beam import Beam, simulation_guided_search
from routing_agents.trained import WEIGHTS
from routing_gym import InvalidInstance, TSPInstance
from routing_gym.arrays import to_backend
from routing_gym.data import from_columns
from routing_gym.problems import make_problem

LINE = [(0, 0), (300, 0), (600, 0)]  # there and back: 1,200


@pytest.fixture(scope="module")
def models():
    return {name: routing_agents.load(f"{name}-20") for name in ("TSP", "CVRP", "SDVRP", "OP", "PCTSP", "SPCTSP")}


def test_tsp_in_own_units(models, tmp_path):
    """A square of side 300 in the corner of nowhere: 1,200 round, 1,448 across."""
    coords = np.array([(0, 0), (300, 300), (300, 0), (0, 300)]) - 70_000
    solution = models["TSP"].solve(coords)
    assert solution.cost == pytest.approx(1200)
    assert repr(solution) == "SolvedInstance(TSP, 4 nodes, cost 1200)"
    assert sorted(solution.tour) == [0, 1, 2, 3]
    assert abs(solution.tour.index(0) - solution.tour.index(1)) == 2  # opposite corners
    assert solution.routes == [[*solution.tour, solution.tour[0]]]
    solution.save(tmp_path / "tour.png")
    assert (tmp_path / "tour.png").read_bytes()[:4] == solution._repr_png_()[:4] == b"\x89PNG"


def test_cvrp_with_exact_capacity(models):
    """Demands 2 and 3 fill a vehicle of 5 exactly; one of 4 drives twice: 600 + 1,200."""
    solution = models["CVRP"].solve(LINE, demand=[0, 2, 3], capacity=5)
    assert solution.cost == pytest.approx(1200)
    assert solution.routes in ([[0, 1, 2, 0]], [[0, 2, 1, 0]])
    solution = models["CVRP"].solve(LINE, demand=[0, 2, 3], capacity=4)
    assert solution.cost == pytest.approx(1800)
    assert len(solution.routes) == 2
    assert solution.tour in ([0, 1, 0, 2, 0], [0, 2, 0, 1, 0])


@pytest.mark.parametrize("library", [None, "pandas", "polars"])
def test_a_table_has_the_columns_by_name(models, library):
    table = dict(zip("xy", np.array(LINE).T, strict=True)) | {"demand": [0, 2, 3]}
    if library:
        table = pytest.importorskip(library).DataFrame(table)
    assert models["CVRP"].solve(table, capacity=4).cost == pytest.approx(1800)
    told = "in `coords` and in an argument, too; leave one of them out"
    with pytest.raises(ValueError, match=f"^demand: {told}"):
        models["CVRP"].solve(table, demand=[0, 1, 1], capacity=4)
    with pytest.raises(ValueError, match=f"^x: {told}"):
        models["TSP"].solve(LINE, x=[1, 2, 3])
    with pytest.raises(ValueError, match="TSP has no demand; it takes x, y"):
        models["TSP"].solve(table)
    with pytest.raises(ValueError, match="TSP needs x, y; x, y missing, lat, lon unknown"):
        models["TSP"].solve({"lat": [60, 60, 61], "lon": [10, 12, 10]})


def test_an_instance_of_ones_own(models):
    own = from_columns("CVRP", dict(zip("xy", np.array(LINE).T, strict=True)) | {"demand": [0, 2, 3], "capacity": 4})
    assert models["CVRP"].solve(own).cost == pytest.approx(1800)
    with pytest.raises(ValueError, match="was trained on TSP; the instances are CVRP"):
        models["TSP"].solve(own)
    drawn = make_problem("CVRP", 5).generate(np.random.default_rng(0), 1)
    with pytest.raises(TypeError, match="coords: .*tsp-20.* solves TSP; expected a TSPInstance, got a CVRPInstance"):
        models["TSP"].solve(drawn)


@pytest.mark.parametrize("capacity", [4, 4.0, np.int64(4), np.array([4]), torch.tensor(4), [4]])
def test_a_number_of_any_library(models, capacity):
    assert models["CVRP"].solve(LINE, demand=[0, 2, 3], capacity=capacity).cost == pytest.approx(1800)


def test_a_column_is_no_number(models):
    with pytest.raises(ValueError, match="capacity: found 3 values; expected one positive number for the whole inst"):
        models["CVRP"].solve(LINE, demand=[0, 2, 3], capacity=[4, 4, 4])


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("VRPTW", {"ready_time": 4, "due_time": 4, "service_time": 4}),  # the network sees a quarter of all lengths
        ("OP", {"prize": 10}),
    ],
)
def test_costs_of_a_batch_are_those_of_its_instances(name, changes):
    problem = make_problem(name, 10)
    drawn = problem.generate(np.random.default_rng(0), 3)
    instance = replace(drawn, **{field: by * getattr(drawn, field) for field, by in changes.items()})
    found = routing_agents.load(f"{name}-20").solve_batch(problem, instance)
    expected = problem.objective(instance, found.actions.numpy())
    torch.testing.assert_close(found.cost, torch.from_numpy(expected).float())


def test_op_and_pctsp_in_own_units(models):
    """OP: 700 reach the first node and back, prize 40. PCTSP: both prizes, 1,200; one, 600 and a penalty of 9."""
    assert models["OP"].solve(LINE, prize=[0, 40, 100], max_length=700).cost == 40
    assert models["OP"].solve(LINE, prize=[0, 40, 100], max_length=1200).cost == 140
    values = {"prize": [0, 5, 5], "penalty": [0, 9, 9]}
    assert models["PCTSP"].solve(LINE, **values, required_prize=10).cost == pytest.approx(1200)
    assert models["PCTSP"].solve(LINE, **values, required_prize=5).cost == pytest.approx(609)


def test_an_instance_on_any_backend(models):
    instance = make_problem("TSP", 12).generate(np.random.default_rng(0), 1)
    found = models["TSP"].solve(instance)
    assert found.cost == models["TSP"].solve(TSPInstance(torch.tensor(instance.coords))).cost
    assert found.cost == pytest.approx(models["TSP"].solve(instance.coords[0].astype(float)).cost, rel=0.2)
    batch = make_problem("TSP", 12).generate(np.random.default_rng(0), 4)
    for decoding in ("greedy", "sampling"):
        assert models["TSP"].solve_batch(make_problem("TSP", 12), batch, decoding).cost.shape == (4,)
    with pytest.raises(ValueError, match="has 4 rows; solve_batch takes several"):
        models["TSP"].solve(batch)


def test_an_instance_with_several_depots():
    """Routes begin and end at depots 0 to 2; the customers are rows 3 to 14, each once."""
    instance = make_problem("MDVRP", 12).generate(np.random.default_rng(0), 1)
    solution = routing_agents.load("MDVRP-50").solve(instance, decoding="greedy")
    other = make_problem("MDVRP", 12, num_depots=5).generate(np.random.default_rng(0), 1)
    with pytest.raises(ValueError, match="5 without demand come first, expected 3: call solve_batch"):
        routing_agents.load("MDVRP-50").solve(other)
    assert sorted(node for node in solution.tour if node > 2) == list(range(3, 15))
    assert all(route[0] == route[-1] < 3 <= min(route[1:-1]) for route in solution.routes)
    assert solution.tour[0] == solution.routes[0][0]


def test_malformed_batches_are_refused(models):
    """What solvers refuse, networks refuse, too, instead of returning tours that mean nothing."""
    problem, model = make_problem("TSP", 12), models["TSP"]
    coords = problem.generate(np.random.default_rng(0), 4).coords
    for bad, message in (
        (coords * 100, r"coords: row 0, index \(0, 0\) is .*, expected in \[0, 1\]"),
        (coords * np.nan, "coords: row 0, index .* is nan"),
        (coords[:, :10], r"coords: expected shape \(B, 12, 2\), got \(4, 10, 2\)"),
    ):
        with pytest.raises(InvalidInstance, match=message):
            model.solve_batch(problem, TSPInstance(bad))
    with pytest.raises(TypeError, match="instance: expected a TSPInstance, got ndarray"):
        model.solve_batch(problem, coords)


def test_tours_found_on_a_gpu(models, monkeypatch):
    """A tensor there has no `numpy()` before `cpu()`; so has the one that takes its place here."""

    class OnGPU(torch.Tensor):
        def numpy(self):
            raise TypeError("can't convert cuda:0 device type tensor to numpy")

        def cpu(self):
            return self.as_subclass(torch.Tensor)

    solve_batch = routing_agents.TrainedModel.solve_batch

    def on_gpu(*arguments):
        found = solve_batch(*arguments)
        return replace(found, actions=found.actions.as_subclass(OnGPU))

    monkeypatch.setattr(routing_agents.TrainedModel, "solve_batch", on_gpu)
    assert models["TSP"].solve(LINE).cost == pytest.approx(1200)
    instance = make_problem("TSP", 5).generate(np.random.default_rng(0), 1)
    assert sorted(models["TSP"].solve(instance).tour) == list(range(5))


def test_beam_search_is_a_decoding():
    """It is the search of `evaluate.py`, never worse than its greedy tours; stochastic problems have none."""
    problem = make_problem("CVRP", 12)
    instance = problem.generate(np.random.default_rng(4), 1)
    model = routing_agents.load("CVRP-20")
    beam, greedy = (model.solve(instance, decoding=decoding) for decoding in ("beam", "greedy"))
    expected = simulation_guided_search(model.network, problem, to_backend(instance, "torch"), 4, 4, symmetries=8)
    assert (beam.actions == expected.actions[0].numpy()).all()
    assert beam.cost <= greedy.cost
    assert model.solve_batch(problem, instance, Beam(1, 1, 1)).cost == pytest.approx(greedy.cost)
    with pytest.raises(ValueError, match="SPCTSP is stochastic: comparing its tours would use values"):
        routing_agents.load("SPCTSP-20").solve(
            make_problem("SPCTSP", 5).generate(np.random.default_rng(1), 1), decoding="beam"
        )


@pytest.mark.parametrize(
    ("name", "coords", "others", "message"),
    [
        ("TSP", [[1, 2, 3], [4, 5, 6]], {}, r"coords has shape \(2, 3\); expected \(nodes, 2\)"),
        ("TSP", "cities.csv", {}, "coords: not numbers"),
        ("TSP", [(0, 0), (np.nan, 1), (2, 2)], {}, "x of row 1 is nan; expected a number"),
        ("TSP", [(0, 0)], {}, "1 rows; TSP needs at least 2"),
        ("TSP", LINE, {"demand": [0, 1, 1]}, "TSP has no demand; it takes x, y"),
        ("TSP", LINE, {"decoding": "best"}, "decoding must be one of greedy, starts, sampling, beam, or a Decoding"),
        ("CVRP", LINE, {"demand": [0, 1, 1]}, "CVRP needs x, y, demand, capacity; capacity missing$"),
        ("CVRP", LINE, {"demands": [0, 1, 1], "capacity": 2}, "demand missing, demands unknown"),
        ("CVRP", LINE, {"demand": [0, 1], "capacity": 3}, "different lengths: {'x': 3, 'y': 3, 'demand': 2}"),
        ("CVRP", LINE, {"demand": [1, 1, 1], "capacity": 3}, "demand of row 0, the depot, is 1; set it to 0"),
        ("CVRP", LINE, {"demand": [0, 1.5, 1], "capacity": 3}, "demand of row 1 is 1.5; expected an integer"),
        ("CVRP", LINE, {"demand": [0, 4, 1], "capacity": 3}, "customer 1 has demand 4, expected 0 to the capacity 3"),
        ("CVRP", LINE, {"demand": [0, -4, 1], "capacity": 3}, "demand of row 1 is -4; expected a number from 0 to"),
        (
            "CVRP",
            LINE,
            {"demand": [0, 1, 1], "capacity": "3"},
            "capacity must be a positive number of at most 1e.100, got '3'",
        ),
        (
            "OP",
            LINE,
            {"prize": [0, 1, 1], "max_length": 0},
            "max_length must be a positive number of at most 1e.100, got 0",
        ),
        ("TSP", [(-1.7e308, 0), (1.7e308, 0)], {}, "x of row 0 is -1.7e.308; expected a number from -1e.100 to 1e.100"),
        ("TSP", np.array(LINE) * 1j, {}, "coords: not numbers .found complex128"),
        ("TSP", np.ma.masked_equal(LINE, LINE[1][0]), {}, "x of row 1 is nan; expected a number"),
        ("TSP", torch.zeros(3, 2, requires_grad=True), {}, "coords: not numbers .*detach"),
        ("TSP", LINE, {"seed": 1.5}, "seed must be an integer from 0 to"),
        ("OP", LINE, {"prize": [0, 1, 1], "max_length": 1e99}, "max_length: found up to .* expected at most 1e.09"),
        ("PCTSP", LINE, {"prize": [0, 1, 1], "penalty": [0, 1e30, 1], "required_prize": 1}, "penalty: found up to"),
        ("PCTSP", LINE, {"prize": [0, 1, 1], "penalty": [0, 1, 1], "required_prize": 1e-300}, "prize: found up to 1e"),
        ("SPCTSP", LINE, {"prize": [0, 1, 1]}, "SPCTSP needs .*; penalty, required_prize, real_prize missing"),
    ],
)
def test_bad_input(models, name, coords, others, message):
    with pytest.raises(ValueError, match=message):
        models[name].solve(coords, **others)


def test_load(tmp_path):
    model = routing_agents.load("TSP-33")  # the nearest by ratio: 50 / 33 < 33 / 20
    assert "TSP, trained with 50 nodes" in repr(model)
    assert repr(routing_agents.load(str(model.path))) == repr(model)
    meant = {"TSP": "TSP-50", "TSP50": "TSP-50", "VRPTW": "VRPTW-50", "ovrp-20": "OVRP-20", "VRP-20": "CVRP-20"}
    for name, near in {**meant, "runs/none": None}.items():
        hint = rf"; did you mean {near}\? Published are" if near else ":"
        told = f"neither a run or checkpoint, nor among the published weights{hint} ATSP-20, ATSP-50, CVRP-100"
        with pytest.raises(ValueError, match=told):
            routing_agents.load(name)
    for name in ("TSP-0", "../TSP-20"):
        with pytest.raises(ValueError, match="neither a run or checkpoint, nor among the published weights"):
            routing_agents.load(name)
    for device, message in (
        ("gpu", "device must be cpu, cuda, cuda:1 etc. or auto, got 'gpu'"),
        ("cuda:9", "torch finds"),
    ):
        with pytest.raises(ValueError, match=message):
            routing_agents.load("TSP-20", device)


def test_a_picture_needs_a_folder(models, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none/tour\.png: there is no folder .*none; make it first"):
        models["TSP"].solve(LINE).save(tmp_path / "none" / "tour.png")


def test_the_functions_below_take_numpy_and_names(models):
    """`load_model` takes a str, `decoding.solve` instances on NumPy."""
    network, problem, _ = load_model(str(models["TSP"].path))
    instance = problem.generate(np.random.default_rng(0), 2)
    assert torch.equal(solve(network, problem, instance).cost, models["TSP"].solve_batch(problem, instance).cost)


def test_without_torch():
    """The error names the extra; so does one without safetensors."""
    code = "import sys; sys.modules['torch'] = None; from routing_agents import load"
    failed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert 'ImportError: routing_agents needs torch: pip install ".[agents]"' in failed.stderr


def test_a_loaded_model_is_no_part_of_its_file(models, tmp_path):
    """What is overwritten in place after the model was loaded does not change it."""
    network = models["TSP"].network
    weights = {f"model.{key}": value.clone() for key, value in network.state_dict().items()}
    path = tmp_path / "own.safetensors"
    checkpoint.save(path, weights, checkpoint.load(WEIGHTS / "tsp-20.safetensors")[1])
    loaded = routing_agents.load(path)
    before = [value.clone() for value in loaded.network.parameters()]
    with path.open("r+b") as file:
        file.seek(-100_000, os.SEEK_END)
        file.write(bytes(100_000))
    assert all(torch.equal(one, two) for one, two in zip(before, loaded.network.parameters(), strict=True))


@pytest.mark.parametrize("name", [None, 50])
def test_a_name_is_a_text_or_a_path(name):
    with pytest.raises(TypeError, match=f"name: expected a problem and a size such as 'TSP-50', or a path; got {name}"):
        routing_agents.load(name)
