"""`agents/jax_reinforce.py`: the network is torch's, a run learns and leaves a checkpoint that torch reads."""

import dataclasses
import json
import math

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from helpers import AGENTS
from routing_agents import load
from routing_agents.policies.attention.features import features_named
from routing_agents.policies.attention.model import AttentionModel, ModelConfig
from routing_agents.policies.attention.saved import load_model
from routing_gym.arrays import to_backend
from routing_gym.problems import make_problem

jax = pytest.importorskip("jax")
pytest.importorskip("optax")
import jax_reinforce  # noqa: E402

WEIGHTS = AGENTS / "routing_agents" / "weights"
TINY = jax_reinforce.Args(
    env_id="routing/TSP-5", epochs=2, steps_per_epoch=2, batch_size=4, num_tours=3, held_out=8, name="run"
)


@pytest.mark.parametrize("size", [20, 50])  # without nearness, and with it
@pytest.mark.parametrize("name", ["TSP", "CVRP"])
def test_published_weights_decode_the_same_tours_as_in_torch(name, size):
    problem, path = make_problem(name, size), WEIGHTS / f"{name.lower()}-{size}.safetensors"
    instance = problem.generate(np.random.default_rng(0), 40)
    theirs = load(path).solve_batch(problem, instance)
    ours = jax_reinforce.make_greedy(problem)(*jax_reinforce.load(path, problem), to_backend(instance, "jax"))
    steps = theirs.actions.shape[1]
    assert np.array_equal(np.asarray(ours.actions)[:, :steps], theirs.actions.numpy())
    assert np.allclose(ours.cost, theirs.cost.numpy(), atol=1e-5)


def test_training_normalises_by_the_batch_and_moves_the_statistics_as_torch_does():
    problem = make_problem("CVRP", 6)
    weights, stats = jax_reinforce.initial_weights(problem, jax.random.key(0))
    model = AttentionModel(features_named("CVRP"), ModelConfig(nearness=True)).train()
    counts = {key: x for key, x in model.state_dict().items() if key.endswith("num_batches_tracked")}
    model.load_state_dict({key: torch.tensor(np.asarray(x)) for key, x in (weights | stats).items()} | counts)
    instance = problem.generate(np.random.default_rng(0), 16)
    theirs = model.encode(problem.observe_static(to_backend(instance, "torch")))
    encode = jax.jit(jax_reinforce.encode, static_argnums=3)
    ours, moved = encode(weights, stats, problem.observe_static(to_backend(instance, "jax")), True)
    assert np.allclose(ours["logit_keys"], theirs.logit_keys.detach().numpy(), atol=1e-4)
    for key, x in moved.items():
        assert np.allclose(x, model.state_dict()[key].numpy(), atol=1e-5), key


@pytest.fixture
def one_layer(monkeypatch):
    """A third of the network, and of the time that compiling it takes."""
    monkeypatch.setattr(jax_reinforce, "LAYERS", 1)
    monkeypatch.setitem(jax_reinforce.CONFIG, "num_layers", 1)


def test_a_run_leaves_what_torch_reads(tmp_path, capsys, one_layer):
    folder = jax_reinforce.main(dataclasses.replace(TINY, runs=tmp_path))
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [row["epoch"] for row in rows] == [1, 2]
    assert "compiled in" in capsys.readouterr().out
    _, problem, header = load_model(folder / "best.safetensors")
    assert problem == make_problem("TSP", 5)
    held_out = problem.generate(np.random.default_rng(jax_reinforce.HELD_OUT), 8)
    found = load(folder / "best.safetensors").solve_batch(problem, held_out)
    assert float(found.cost.mean()) == pytest.approx(header["metrics"]["greedy"], abs=1e-5)
    assert header["metrics"]["greedy"] == min(row["greedy"] for row in rows)


def test_adam_on_cvrp_goes_on_from_a_checkpoint(tmp_path, one_layer):
    """A run of one step from the weights of another: Adam's step of 1e-5 moves every weight that has a gradient."""
    problem = make_problem("CVRP", 4)
    weights, stats = jax_reinforce.initial_weights(problem, jax.random.key(0))
    (tmp_path / "begin").mkdir()
    jax_reinforce.save(tmp_path / "begin" / "best.safetensors", problem, weights, stats, {})
    args = dataclasses.replace(TINY, optimizer="adam", env_id="routing/CVRP-4", epochs=1, steps_per_epoch=1)
    args = dataclasses.replace(args, runs=tmp_path, init_from=tmp_path / "begin", learning_rate=1e-5)
    found, _ = jax_reinforce.load(jax_reinforce.main(args) / "best.safetensors", problem)
    assert found.keys() == weights.keys()
    assert all(np.allclose(found[name], weights[name], atol=2e-5) for name in weights)
    assert [name for name in weights if not (np.asarray(found[name]) != np.asarray(weights[name])).any()] == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"env_id": "routing/TSP-²"}, "--env-id must be routing/TSP-NODES or routing/CVRP-NODES, got 'routing/TSP-²'"),
        ({"env_id": "routing/TSP-٣"}, "--env-id must be routing/TSP-NODES or routing/CVRP-NODES, got 'routing/TSP-٣'"),
        ({"env_id": "routing/OP-20"}, "--env-id must be routing/TSP-NODES or routing/CVRP-NODES, got 'routing/OP-20'"),
        ({"num_tours": 1}, "--num-tours must be at least 2 and at most 1000000, got 1"),
        ({"held_out": 10**12}, "--held-out must be at least 1 and at most 1000000, got 1000000000000"),
        ({"max_grad_norm": math.nan}, "--max-grad-norm must be positive, got nan"),
        ({"name": "../.."}, r"--name '../..': use letters, digits"),
        ({"init_from": WEIGHTS / "cvrp-20.safetensors"}, "trained on CVRP, not on TSP"),
        ({"init_from": WEIGHTS / "nowhere.safetensors"}, "nowhere.safetensors: not a checkpoint"),
    ],
)
def test_bad_arguments(changes, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        jax_reinforce.main(dataclasses.replace(TINY, runs=tmp_path, **changes))
    assert not list(tmp_path.iterdir())


def test_existing_run_is_left_alone(tmp_path):
    (tmp_path / "run").mkdir()
    with pytest.raises(FileExistsError, match="run exists; choose another --name, and --init-from to begin with its"):
        jax_reinforce.main(dataclasses.replace(TINY, runs=tmp_path))


@pytest.mark.parametrize("header", ["[]", '{"a": ' * 100_000, "9" * 5000])
def test_headers_of_strangers(header, tmp_path):
    save_file({"x": np.zeros(1)}, tmp_path / "odd.safetensors", metadata={"header": header})
    with pytest.raises(ValueError, match="odd.safetensors: not a checkpoint"):
        jax_reinforce.load(tmp_path / "odd.safetensors", make_problem("TSP", 4))
