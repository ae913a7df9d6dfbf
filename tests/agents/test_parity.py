"""The released weights of Kool et al. (2019) in our model, on our environments, give the published costs."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from array_api_compat import array_namespace

import import_original
from helpers import SHARED
from routing_agents.header import CheckpointError
from routing_agents.policies.attention.decoding import solve
from routing_agents.policies.attention.saved import load_model
from routing_gym.arrays import gather, scatter, select, to_backend
from routing_gym.data.paper import paper_test_set
from routing_gym.problems import CVRP, SDVRP, make_problem
from routing_gym.problems.cvrp import share

REFERENCE = SHARED / "reference" / "original_weights_n20.json"
RUNS = {
    "tsp_20": "TSP",
    "cvrp_20": "CVRP",
    "sdvrp_20": "SDVRP",
    "op_dist_20": "OP",
    "pctsp_det_20": "PCTSP",
    "pctsp_stoch_20": "SPCTSP",
}
EXACT_MEANS = {"cvrp_20": 6.414, "sdvrp_20": 6.378}  # with integer capacities, from the reference's note

needs_shared = pytest.mark.skipif(not REFERENCE.exists(), reason=f"{REFERENCE} is not there")


def as_float(x):
    xp = array_namespace(x)
    return xp.astype(x, xp.float32)


def zeros(x):
    return array_namespace(x).zeros_like(x)


@dataclass(frozen=True)
class OriginalCVRP(CVRP):
    """CVRP with the original code's float32 capacity rule: loads are sums of shares, compared with 1."""

    def initial(self, instance):
        state = super().initial(instance)
        return replace(state, load=as_float(state.load))

    def action_mask(self, instance, state):
        fits = share(instance.demand, instance.capacity[:, None]) + state.load[:, None] <= 1
        may_return = (state.node != 0) | (state.num_served == self.num_nodes)
        return scatter(fits & ~state.served, zeros(state.node), may_return)

    def step(self, instance, state, action):
        new_state, cost = super().step(instance, replace(state, load=zeros(action)), action)
        taken = gather(share(instance.demand, instance.capacity[:, None]), action)
        return replace(new_state, load=(state.load + taken) * (action != 0)), cost

    def observe_dynamic(self, instance, state):
        return {"current_node": state.node, "free_capacity": (1 - state.load)[:, None]}


@dataclass(frozen=True)
class OriginalSDVRP(SDVRP):
    """SDVRP with the original code's float32 deliveries."""

    def initial(self, instance):
        state = super().initial(instance)
        remaining = share(instance.demand, instance.capacity[:, None])
        return replace(state, load=as_float(state.load), remaining_demand=remaining, undelivered=(remaining > 0).sum(1))

    def action_mask(self, instance, state):
        return super().action_mask(
            SimpleNamespace(capacity=array_namespace(instance.capacity).ones_like(instance.capacity)), state
        )

    def step(self, instance, state, action):
        needed = gather(state.remaining_demand, action)
        delivered = array_namespace(needed).minimum(needed, 1 - state.load)
        remaining = scatter(state.remaining_demand, action, needed - delivered)
        whole = replace(state, load=zeros(action), remaining_demand=zeros(instance.demand))
        new_state, cost = super().step(instance, whole, action)
        load = (state.load + delivered) * (action != 0)
        return replace(new_state, load=load, remaining_demand=remaining, undelivered=(remaining > 0).sum(1)), cost

    def observe_dynamic(self, instance, state):
        free = (1 - state.load)[:, None]
        return {"current_node": state.node, "free_capacity": free, "remaining_demand": state.remaining_demand}


ORIGINAL_RULES = {"cvrp_20": OriginalCVRP(20), "sdvrp_20": OriginalSDVRP(20)}


@pytest.fixture(scope="module", params=RUNS)
def run(request):
    """A set of weights, the first 1,000 instances of its test set, and what the authors' code made of them."""
    name = RUNS[request.param]
    model = import_original.load_original(SHARED / "data" / "kool" / request.param / "epoch-99.pt", name)
    instance = to_backend(select(paper_test_set(name, 20), slice(0, 1000)), "torch")
    return request.param, model, instance, json.loads(REFERENCE.read_text())["runs"][request.param]


@needs_shared
def test_same_costs_and_tours_as_the_authors_code(run):
    """Costs of instances 0 to 19 within 1e-4, the tour of instance 0, the mean over 1,000."""
    key, model, instance, expected = run
    problem = ORIGINAL_RULES.get(key, make_problem(RUNS[key], 20))
    found = solve(model, problem, instance)
    np.testing.assert_allclose(found.cost[:20], expected["first"], atol=1e-4)
    assert found.cost.double().mean().item() == pytest.approx(expected["mean"], abs=1e-4)
    tour, reference = (
        np.trim_zeros(np.asarray(actions), "b").tolist() for actions in (found.actions[0], expected["tour0"])
    )
    assert tour == reference


@needs_shared
def test_exact_capacities_are_no_worse(run):
    """Under our integer rules CVRP and SDVRP reach the means that the reference's note gives."""
    key, model, instance, expected = run
    problem = make_problem(RUNS[key], 20)
    found = solve(model, problem, instance)
    np.testing.assert_allclose(problem.objective(instance, found.actions), found.cost, atol=1e-5)
    assert found.cost.double().mean().item() == pytest.approx(EXACT_MEANS.get(key, expected["mean"]), abs=3e-3)


@needs_shared
def test_import_writes_a_checkpoint(tmp_path):
    """The imported checkpoint loads like any other, with the same weights."""
    file = SHARED / "data" / "kool" / "cvrp_20" / "epoch-99.pt"
    import_original.main(import_original.Args(file=file, problem="cvrp", out=tmp_path / "cvrp"))
    model, problem, _ = load_model(tmp_path / "cvrp")
    assert problem == CVRP(20)
    expected = import_original.load_original(file, "CVRP").state_dict()
    assert all(torch.equal(expected[key], value) for key, value in model.state_dict().items())


@pytest.fixture
def original(tmp_path):
    """The parameters of a tiny original checkpoint: one layer, two heads, d = 4."""
    d = 4
    parameters = {
        "init_embed.weight": torch.rand(d, 2),
        "init_embed.bias": torch.rand(d),
        "W_placeholder": torch.rand(2 * d),
        "project_node_embeddings.weight": torch.rand(3 * d, d),
        "project_fixed_context.weight": torch.rand(d, d),
        "project_step_context.weight": torch.rand(d, 2 * d),
        "project_out.weight": torch.rand(d, d),
        "embedder.layers.0.0.module.W_out": torch.rand(2, 2, d),
        "embedder.layers.0.2.module.0.weight": torch.rand(8, d),
        "embedder.layers.0.2.module.0.bias": torch.rand(8),
        "embedder.layers.0.2.module.2.weight": torch.rand(d, 8),
        "embedder.layers.0.2.module.2.bias": torch.rand(d),
    }
    for key in ("W_query", "W_key", "W_val"):
        parameters[f"embedder.layers.0.0.module.{key}"] = torch.rand(2, d, 2)
    for sublayer in (1, 3):
        for key in ("weight", "bias", "running_mean", "running_var"):
            parameters[f"embedder.layers.0.{sublayer}.normalizer.{key}"] = torch.rand(d)
    return parameters, tmp_path / "epoch.pt"


def test_faults_are_listed_by_name(original):
    parameters, path = original
    torch.save({"model": parameters}, path)
    assert import_original.load_original(path, "TSP").config.num_heads == 2
    later = {"embedder.layers.0.1.normalizer.num_batches_tracked": torch.tensor(3)}  # of newer versions of PyTorch
    torch.save({"model": parameters | later}, path)
    assert import_original.load_original(path, "TSP").config.num_heads == 2
    parameters["stranger"] = torch.zeros(1)
    parameters["init_embed.bias"][0] = torch.nan
    parameters["project_out.weight"] = torch.zeros(3, 3)
    del parameters["W_placeholder"], parameters["embedder.layers.0.0.module.W_key"]
    torch.save({"model": parameters}, path)
    with pytest.raises(CheckpointError, match=r"project_out.weight has shape \(3, 3\), expected \(4, 4\)") as caught:
        import_original.load_original(path, "TSP")
    missing = ("missing W_placeholder", "missing embedder.layers.0.0.module.W_key")
    for fault in (*missing, "unexpected stranger", "init_embed.bias holds what is no finite real number"):
        assert fault in str(caught.value)


def test_small_files_that_claim_large_networks(original):
    """One number seen as 10^12, and layers of one number each, 200 and 20,000: refused before anything is built."""
    parameters, path = original
    hidden = "embedder.layers.0.2.module.0.weight"
    torch.save({"model": {**parameters, hidden: torch.zeros(1).expand(10**6, 10**6)}}, path)
    with pytest.raises(CheckpointError, match=r"its tensors claim 4,000,000,\d+,\d+ bytes, but the file holds"):
        import_original.load_original(path, "TSP")
    for number, message in (
        (200, "names 200 layers, but does not hold so many"),
        (20_000, "num_layers 20000; expected"),
    ):
        one = {f"embedder.layers.{layer}.x": torch.zeros(1) for layer in range(number)}
        torch.save({"model": {**parameters, **one}}, path)
        with pytest.raises(ValueError, match=message):
            import_original.load_original(path, "TSP")


def test_files_that_are_no_checkpoints(tmp_path):
    path = tmp_path / "epoch.pt"
    for content in (b"", b"text", b"PK\x03\x04broken"):
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match="not a checkpoint that can be read safely"):
            import_original.read(path)
    sparse = torch.zeros(1).to_sparse()
    for content in ({"weights": {}}, {"model": {1: torch.zeros(1)}}, {"model": {"a": sparse}}):
        torch.save(content, path)
        with pytest.raises(CheckpointError, match='expected a dict with the parameters under "model"'):
            import_original.read(path)
    torch.save({"model": {"a": torch.zeros(1)}}, path)
    with pytest.raises(CheckpointError, match="not an attention model"):
        import_original.load_original(path, "TSP")


class Bomb:
    def __reduce__(self):
        import os

        return os.system, ("touch exploded",)


def test_pickle_that_runs_code_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"model": {"a": Bomb()}}, tmp_path / "epoch.pt")
    with pytest.raises(CheckpointError, match="not a checkpoint that can be read safely"):
        import_original.read(tmp_path / "epoch.pt")
    assert not (tmp_path / "exploded").exists()
