"""Exported graphs decode the tours of the model itself."""

import dataclasses

import numpy as np
import pytest
import torch

import export_onnx
import routing_agents
from helpers import ROOT
from routing_agents.policies.attention.features import features_named, features_of
from routing_agents.policies.attention.model import AttentionModel, ModelConfig
from routing_gym.problems import make_problem

TINY = {"embed_dim": 16, "num_heads": 2, "num_layers": 1, "feed_forward_dim": 16}


@pytest.mark.parametrize(
    ("name", "family", "settings", "options"),
    [
        ("SDVRP", "SDVRP", {}, {}),  # with a depot, features, a scalar, demand per step
        # several depot nodes; edges; observations of the family that the problem lacks
        ("HFVRPTW", "PCHFMDOVRPMBLTW", {"matrices": True}, {"nearness": True, "edge_logits": True}),
    ],
)
def test_tours_are_those_of_the_model(name, family, settings, options, tmp_path):
    pytest.importorskip("onnxscript", reason="no onnxscript: pip install -e '.[onnx]'")
    features = features_of(make_problem(family, 20, **settings))
    network = AttentionModel(features, ModelConfig(**TINY, **options), torch.Generator().manual_seed(1)).eval()
    trained = routing_agents.TrainedModel(network, make_problem(name, 20, **settings), tmp_path)
    check_tours(export_onnx.export(trained, tmp_path), trained)


def test_tours_are_those_of_published_weights(tmp_path):
    """Of a problem without a depot."""
    pytest.importorskip("onnxscript", reason="no onnxscript: pip install -e '.[onnx]'")
    files = export_onnx.main(export_onnx.Args("TSP-20", out=tmp_path / "new"))
    check_tours(files, routing_agents.load("TSP-20"))
    assert all(str(ROOT).encode() not in path.read_bytes() for path in files)  # no paths of this machine


def check_tours(files, trained):
    """Compare tours, for other numbers of instances and nodes than the graphs were traced with."""
    onnxruntime = pytest.importorskip("onnxruntime", reason="no onnxruntime: pip install -e '.[onnx]'")
    encoder, step = map(onnxruntime.InferenceSession, files)
    for size in (20, 31):
        problem = dataclasses.replace(trained.problem, num_nodes=size)
        instance = problem.generate(np.random.default_rng(size), 40)
        expected = trained.solve_batch(problem, instance).actions.numpy()
        actions = decode(encoder, step, problem, instance)
        assert (actions == expected[:, : actions.shape[1]]).all()
        assert problem.objective(instance, actions).shape == (40,)


def decode(encoder, step, problem, instance):
    """Decode greedily."""
    static, state, actions = problem.observe_static(instance), problem.initial(instance), []
    outputs = encoder.run(None, {key.name: static[key.name] for key in encoder.get_inputs()})
    encoding = dict(zip((key.name for key in encoder.get_outputs()), outputs, strict=True))
    while not problem.done(instance, state).all():
        changing = {**problem.observe_dynamic(instance, state), "action_mask": problem.action_mask(instance, state)}
        given = {**encoding, **changing}
        (logits,) = step.run(None, {key.name: given[key.name] for key in step.get_inputs()})
        action = logits.argmax(axis=-1)
        state, _ = problem.step(instance, state, action)
        actions.append(action)
    return np.stack(actions, axis=1)


def test_files_that_are_there_are_kept(tmp_path):
    (tmp_path / "step.onnx").write_text("mine")
    with pytest.raises(FileExistsError, match="step.onnx exists; choose another --out"):
        export_onnx.main(export_onnx.Args("TSP-20", out=tmp_path))
    assert (tmp_path / "step.onnx").read_text() == "mine"


@pytest.mark.parametrize(
    "options", [{}, {"nearness": True}, {"edge_logits": True}, {"nearness": True, "edge_logits": True}]
)
def test_an_encoding_survives_its_list(options):
    model = AttentionModel(features_named("ATSP"), ModelConfig(**options))
    encoding = model.encode({"distances": torch.rand(2, 5, 5)})
    listed = export_onnx.flatten(encoding)
    again = export_onnx.flatten(export_onnx.unflatten(model, listed))
    assert all(torch.equal(a, b) for a, b in zip(listed, again, strict=True))
    assert len(export_onnx.names(model, encoding)) == len(listed)
