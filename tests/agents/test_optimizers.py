"""Muon against torch's own and against the singular value decomposition; which parameters it gets."""

from __future__ import annotations

import pytest
import torch

from routing_agents.optimizers import Muon, make_optimizers, orthogonalize
from routing_agents.policies.attention.features import features_named
from routing_agents.policies.attention.model import AttentionModel, ModelConfig
from routing_gym.problems import PROBLEMS


@pytest.mark.parametrize("shape", [(24, 8), (8, 24), (16, 16)])
def test_orthogonalized_matrix_keeps_its_directions(shape):
    """U S V' becomes U S' V' with all of S' near 1, however far apart S is."""
    generator = torch.Generator().manual_seed(1)
    u, _, vh = torch.linalg.svd(torch.randn(shape, generator=generator), full_matrices=False)
    matrix = u @ torch.diag(torch.logspace(0, -1.5, len(vh))) @ vh
    found = u.T @ orthogonalize(matrix) @ vh.T
    assert found.diagonal().min() > 0.6
    assert found.diagonal().max() < 1.3
    torch.testing.assert_close(found, torch.diag(found.diagonal()), rtol=0, atol=1e-5)


def test_no_gradient_moves_nothing():
    matrix = torch.nn.Parameter(torch.ones(4, 4))
    optimizer = Muon([matrix], lr=0.1)
    optimizer.step()  # no gradient at all
    matrix.grad = torch.zeros(4, 4)
    optimizer.step()
    assert torch.equal(matrix, torch.ones(4, 4))


def test_same_steps_as_torch():
    """torch.optim.Muon computes in bfloat16, of three digits."""
    generator = torch.Generator().manual_seed(1)
    start = [torch.randn(shape, generator=generator) for shape in ((24, 8), (8, 24), (16, 16))]
    ours, theirs = ([torch.nn.Parameter(matrix.clone()) for matrix in start] for _ in range(2))
    settings = {"lr": 0.1, "weight_decay": 0.0, "momentum": 0.95, "adjust_lr_fn": "match_rms_adamw"}
    optimizers = (Muon(ours, lr=0.1), torch.optim.Muon(theirs, **settings))
    for _ in range(5):
        for mine, other in zip(ours, theirs, strict=True):
            mine.grad = torch.randn(mine.shape, generator=generator)
            other.grad = mine.grad.clone()
        for optimizer in optimizers:
            optimizer.step()
    for mine, other, before in zip(ours, theirs, start, strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=5e-3)
        assert (mine - before).abs().mean() > 0.03


@pytest.mark.parametrize("name", PROBLEMS)
def test_muon_gets_the_matrices_between_embeddings(name):
    model = AttentionModel(features_named(name), ModelConfig(embed_dim=16, feed_forward_dim=8, num_layers=2))
    names = {id(parameter): key for key, parameter in model.named_parameters()}
    found = {
        kind: {names[id(p)] for group in optimizer.param_groups for p in group["params"]}
        for kind, optimizer in make_optimizers(model, "muon", 1e-3).items()
    }
    assert found["optimizer"] | found["muon"] == set(names.values())
    assert not found["optimizer"] & found["muon"]
    layer = ("project_qkv", "project_out", "expand", "contract")
    decoder = ("project_nodes", "project_mean", "project_context", "project_glimpse")
    expected = {f"layers.{i}.{part}.weight" for i in range(2) for part in layer}
    assert found["muon"] == expected | {f"{part}.weight" for part in decoder}
    (adam,) = make_optimizers(model, "adam", 1e-3).values()
    assert len(adam.param_groups[0]["params"]) == len(names)
