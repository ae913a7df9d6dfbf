"""Export a trained attention model to ONNX, for use without torch.

    python agents/export_onnx.py TSP-50                 # published weights; writes onnx/tsp-50
    python agents/export_onnx.py runs/NAME --out deployed

The model becomes two graphs: `encoder.onnx` runs once per instance, `step.onnx` once per action. Their inputs have the
names, shapes and types of the observation, with a batch axis, for any number of instances and nodes; the mask is
boolean. The encoder's outputs are inputs of `step.onnx`, whose output is the logits, -inf for illegal actions.
docs/how-to/onnx.md shows how to run them with onnxruntime.
"""

from __future__ import annotations

import logging
import warnings
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np
import torch
import tyro
from torch import Tensor, nn

import routing_agents
from routing_agents import TrainedModel
from routing_agents.arguments import make_out_folder
from routing_agents.policies.attention.model import AttentionModel, Encoding
from routing_agents.terminal import command_line
from routing_gym.arrays import to_backend
from routing_gym.optional import require

SIZE, BATCH = 11, 3  # sizes of the traced example; no other axis of the graphs has one of these lengths


@dataclass(frozen=True)
class Args:
    """Arguments of the export."""

    model: tyro.conf.Positional[str]
    """Model to export: a problem and size such as TSP-50 (published weights), a run folder, or a checkpoint file."""
    out: Path | None = None
    """Folder for the two files. Default: onnx/NAME."""
    overwrite: bool = False
    """Overwrite existing files."""


class EncoderGraph(nn.Module):
    """Graph from the static observation to the tensors of the encoding."""

    def __init__(self, model: AttentionModel, keys: list[str]) -> None:
        super().__init__()
        self.model, self.keys = model, keys

    def forward(self, *static: Tensor) -> tuple[Tensor, ...]:
        return flatten(self.model.encode(dict(zip(self.keys, static, strict=True))))


class StepGraph(nn.Module):
    """Graph from the tensors of the encoding, the mask and the dynamic observation to the logits (B, A)."""

    def __init__(self, model: AttentionModel, keys: list[str]) -> None:
        super().__init__()
        self.model, self.keys = model, keys

    def forward(self, *inputs: Tensor) -> Tensor:
        encoding, changing = inputs[: -len(self.keys)], inputs[-len(self.keys) :]
        observation = {key: value[:, None] for key, value in zip(self.keys, changing, strict=True)}  # one query each
        return self.model.logits(unflatten(self.model, encoding), observation)[:, 0]


def flatten(encoding: Encoding) -> tuple[Tensor, ...]:
    """Return the tensors of an encoding in the order of `names`."""
    single = (encoding.fixed_query, encoding.keys, encoding.values, encoding.logit_keys)
    observed = (x.clone() for x in (*encoding.places, *encoding.depots))  # a graph's input cannot be its output
    return (*single, *encoding.node_queries, *encoding.edge_logits, *observed)


def unflatten(model: AttentionModel, tensors: tuple[Tensor, ...]) -> Encoding:
    """Rebuild an encoding from the tensors that `flatten` returns."""
    fixed_query, keys, values, logit_keys, *others = tensors
    remaining = iter(others)
    node_queries = tuple(islice(remaining, len(model.features.context_nodes)))
    edge_logits = tuple(islice(remaining, int(model.config.edge_logits)))
    places, depots = tuple(islice(remaining, int(model.config.nearness))), tuple(remaining)
    return Encoding(fixed_query, node_queries, keys, values, logit_keys, places, edge_logits, depots)


def names(model: AttentionModel, encoding: Encoding) -> list[str]:
    """Return the names of the tensors of an encoding."""
    queries = [f"query_of_{node}" for node in model.features.context_nodes]
    optional = {
        "edge_logits": encoding.edge_logits,
        "encoded_places": encoding.places,
        "encoded_depots": encoding.depots,
    }
    present = [name for name, tensors in optional.items() if tensors]
    return ["fixed_query", "keys", "values", "logit_keys", *queries, *present]


@torch.no_grad()
def export(trained: TrainedModel, out: Path) -> list[Path]:
    """Write both graphs.

    Args:
        trained: Model to export.
        out: Folder for the files; it must exist.

    Returns:
        Paths of the two files.

    Raises:
        ImportError: The extra `[onnx]` is not installed.
    """
    require("onnx", "onnx")
    require("onnxscript", "onnx")
    model, problem = trained.network, replace(trained.problem, num_nodes=SIZE)
    instance = to_backend(problem.generate(np.random.default_rng(0), BATCH), "torch")
    state = problem.initial(instance)
    static = problem.observe_static(instance)
    changing = {**problem.observe_dynamic(instance, state), "action_mask": problem.action_mask(instance, state)}
    # A model of several problems reads more observations than one problem has.
    static_keys = [key for key in model.features.static_keys if key in static]
    keys = ["action_mask", *(key for key in model.features.dynamic_keys if key in changing)]
    encoding = model.encode(static)
    encoded = names(model, encoding)
    changes = (changing[key].clone() for key in keys)  # observations that share a tensor would become one input
    files, inputs = [out / "encoder.onnx", out / "step.onnx"], tuple(static[key] for key in static_keys)
    write(EncoderGraph(model, static_keys), inputs, files[0], static_keys, encoded, problem.num_actions)
    step_inputs = (*flatten(encoding), *changes)
    write(StepGraph(model, keys), step_inputs, files[1], [*encoded, *keys], ["logits"], problem.num_actions)
    return files


def write(
    graph: nn.Module,
    inputs: tuple[Tensor, ...],
    path: Path,
    input_names: list[str],
    outputs: list[str],
    num_actions: int,
) -> None:
    """Trace and write one graph, with dynamic axes for the batch and the nodes."""
    open_axes = (BATCH, num_actions, num_actions + 1)  # TSP: the queries have one more row, for the placeholder
    shapes = tuple({i: torch.export.Dim.DYNAMIC for i, n in enumerate(x.shape) if n in open_axes} for x in inputs)
    for name in ("torch.onnx", "onnxscript"):  # they warn of missing torchvision, and of what they do not optimise
        logging.getLogger(name).setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's exporter warns of torch's own deprecations
        program = torch.onnx.export(
            graph,
            inputs,
            input_names=input_names,
            output_names=outputs,
            dynamic_shapes=(shapes,),
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    for node in program.model.graph:
        node.metadata_props.clear()  # they hold paths and lines of the source code on this machine
    program.save(path, external_data=False)


def main(args: Args) -> list[Path]:
    """Load the model, and write both graphs.

    Raises:
        ValueError: The model does not exist, or is not an attention model.
        FileExistsError: A file exists already.
        OSError: No file can be written to the folder.
        ImportError: The extra `[onnx]` is not installed.
    """
    trained = routing_agents.load(args.model)
    if not isinstance(getattr(trained, "network", None), AttentionModel):
        raise ValueError(f"{args.model} is no attention model; only those can be exported")
    # Not named after published weights: VRPB-50 and VRPL-50 share some, but their graphs read different observations.
    out = args.out or Path("onnx") / (Path(args.model).stem if Path(args.model).exists() else args.model.lower())
    if (there := [path for path in (out / "encoder.onnx", out / "step.onnx") if path.exists()]) and not args.overwrite:
        raise FileExistsError(f"{there[0]} exists; choose another --out, or give --overwrite")
    make_out_folder(out)
    files = export(trained, out)
    print(f"weights: {trained.path.stem}")
    print("\n".join(f"{path}: {path.stat().st_size / 1e3:,.0f} kB" for path in files))
    return files


if __name__ == "__main__":
    command_line(main, Args, __doc__)
