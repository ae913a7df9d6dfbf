"""Checkpoints of the attention model: description in the header, loading, and warm start of another run."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from routing_agents.checkpoint import group, last_run, load, load_network, load_weights, origin
from routing_agents.header import CheckpointError, from_json
from routing_agents.policies.attention.encoder import ModelConfig
from routing_agents.policies.attention.features import Features, features_of
from routing_agents.policies.attention.model import NETWORKS, AttentionModel
from routing_agents.policies.protocol import PolicyNetwork
from routing_agents.runs import BEST
from routing_gym.problem import AnyProblem
from routing_gym.problems import make_problem
from routing_gym.traits import Observations

USUAL = "attention"  # network of headers that name none
EDGE_NETWORKS = ("embed_edge", "embed_edge_logits")
EDGE_OUTPUTS = {f"{network}.2.{kind}" for network in EDGE_NETWORKS for kind in ("weight", "bias")}  # of the last layers
# These options may differ in a warm start, because they leave the shapes of the paper's layers unchanged.
MAY_DIFFER = ("normalization", "nearness", "edge_logits", "glimpse_layer")


def describe(problem: AnyProblem, model: AttentionModel) -> dict[str, Any]:
    """Return the part of the header from which `rebuild` builds problem and model."""
    about = {"problem": problem.name, "settings": asdict(problem), "observed": asdict(problem.observed)}
    return {**about, "model": asdict(model.config)}


def load_model(path: str | Path) -> tuple[AttentionModel, AnyProblem, dict[str, Any]]:
    """Load an attention model and the problem it was trained on; see `load_network`."""
    return load_network(Path(path), "cpu", rebuild)


def rebuild(header: dict[str, Any]) -> tuple[AttentionModel, AnyProblem]:
    """Build the network that a header describes, with fresh weights, and the problem it was trained on.

    The network reads the observations that the problem had when it was trained; all, if an older header has none.

    Raises:
        CheckpointError: The kind of network is unknown, or the problem lacks an observation.
    """
    name = header.get("network", USUAL)
    if name not in NETWORKS:
        raise CheckpointError(
            f"a network of kind {name!r}; known are {', '.join(NETWORKS)}, and those that are added to "
            "routing_agents.policies.attention.model.NETWORKS in a module that ROUTING_GYM_MODULES names"
        )
    problem = make_problem(header["problem"], **header["settings"])
    observed = from_json(Observations, header["observed"], "observed") if "observed" in header else None
    reads, has = features_of(problem, observed), features_of(problem)
    if missing := sorted({*reads.static_keys, *reads.dynamic_keys} - {*has.static_keys, *has.dynamic_keys}):
        raise CheckpointError(f"reads {', '.join(missing)}, which {problem.name} does not observe; train again")
    return NETWORKS[name](reads, from_json(ModelConfig, header["model"], "model")), problem


def warm_start(model: AttentionModel, path: Path) -> tuple[str, list[dict[str, Any]]]:
    """Copy the weights of another run, of any problem and size, where they fit.

    Args:
        model: Model that gets the weights whose names and shapes match; its other weights stay unchanged. Inputs that
            only this model reads start at 0: their columns of the weights, and the outputs of the edge networks.
            Columns of observations that it lacks are left out.
        path: Checkpoint file, or folder of a run for its best checkpoint.

    Returns:
        A sentence on the tensors that were kept, are new or were left out, and on another normalization; and the
        arguments, metrics and seconds of each run that led to these weights, from its checkpoint, the first run first.

    Raises:
        CheckpointError: The file cannot be read, or its network has other sizes or is of another kind; or `model` has
            the default normalization, and the network another one.
    """
    path = path / BEST if path.is_dir() else path
    tensors, header = load(path)
    check_start(model, header, path)
    weights, expected = group(tensors, "model"), model.state_dict()
    if isinstance(model, AttentionModel):  # other networks read the same inputs for every problem
        other, _ = rebuild(header)
        had, has = inputs_of(other.features, model), inputs_of(model.features, model)
        for name in has.keys() & weights.keys() & expected.keys():
            if had[name] != has[name] and other.features.coords == model.features.coords:
                weights[name] = with_inputs(weights[name], had[name], has[name])
        for name in EDGE_OUTPUTS & expected.keys() - weights.keys():
            expected[name] = torch.zeros_like(expected[name])
    kept = {name: weights[name] for name in expected if name in weights and weights[name].shape == expected[name].shape}
    if not kept:
        raise CheckpointError(f"{path}: has no weights of this network; give the folder of a run, or its {BEST}")
    new = [name for name in expected if name not in kept]
    unused = [name for name in weights if name not in expected]
    load_weights(model, {**expected, **kept}, path)
    history = [*header.get("history", []), last_run(header)]
    told = f"{path}: kept {len(kept)} tensors of {origin(header)}; new: {', '.join(new) or 'none'}"
    told += f"; left out: {', '.join(unused)}" if unused else ""
    norm, chosen = header["model"].get("normalization"), asdict(model.config).get("normalization")
    return told + (f"; normalization {chosen} instead of {norm}" if norm != chosen else ""), history


def check_start(model: AttentionModel, header: dict[str, Any], path: Path) -> None:
    """Check that a network can start from the weights of the network that a header describes; see `warm_start`.

    Raises:
        CheckpointError: That network has other sizes or is of another kind; or `model` has the default normalization,
            and that network another one.
    """
    wanted, found = asdict(model.config), header.get("model", {})
    sizes = [key for key in wanted if key not in MAY_DIFFER]
    if {*found} - {*MAY_DIFFER} != {*sizes}:
        told = f"it has {', '.join(found) or 'no sizes'}, and this one {', '.join(wanted)}"
        raise CheckpointError(f"{path}: a network of another kind: {told}; take a run of the same kind of network")
    if differ := {key: found[key] for key in sizes if found[key] != wanted[key]}:
        told = ", ".join(f"{key} {value}" for key, value in differ.items())
        raise CheckpointError(f"{path}: a network with {told}; add {as_options(differ, model)}")
    norm, chosen = found.get("normalization"), wanted.get("normalization")
    if norm != chosen and chosen == type(model.config)().normalization and found.get("encoder") != "lstm":
        told = f"with {chosen}, the default, its weights are worth little"
        option = as_options({"normalization": norm}, model)
        raise CheckpointError(f"{path}: a network with {norm} normalization; {told}: add {option}")
    if isinstance(model, AttentionModel):
        try:
            other, _ = rebuild(header)
        except CheckpointError as error:
            raise CheckpointError(f"{path}: {error}") from None
        if type(other) is not AttentionModel and type(other) is not type(model):
            raise CheckpointError(f"{path}: a network of kind {header['network']!r}; add --model {header['network']}")


def as_options(settings: dict[str, Any], model: Any) -> str:
    """Return the options of the script that trains `model` for settings of its network."""
    from routing_agents.arguments import flags  # imports tyro, which loading a network does not need

    is_pointer_policy = isinstance(model, PolicyNetwork) and not isinstance(model, AttentionModel)
    prefix = "--pointer." if is_pointer_policy else "--"
    return " ".join(flags(replace(model.config, **settings), model.config, prefix))


def inputs_of(features: Features, model: AttentionModel) -> dict[str, tuple[str, ...]]:
    """Return the names of the inputs of the weights whose width depends on the problem."""
    return {
        "embed_node.weight": features.node_inputs,
        "embed_depot.weight": features.depot_inputs,
        "project_context.weight": features.context_inputs(model.config.embed_dim),
    }


def with_inputs(weight: Tensor, had: tuple[str, ...], has: tuple[str, ...]) -> Tensor:
    """Convert a weight (d, len(had)) to one for other inputs, (d, len(has)), with 0 for new inputs."""
    other = weight.new_zeros(len(weight), len(has))
    both = [name for name in has if name in had]
    other[:, [has.index(name) for name in both]] = weight[:, [had.index(name) for name in both]]
    return other
