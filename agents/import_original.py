"""Import weights released with the original code of Kool et al. (2019).

    python agents/import_original.py epoch-99.pt --problem cvrp --out runs/original-cvrp-20

The result is a checkpoint like any other: `solve.py --checkpoint` and `evaluate.py` take its folder.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
import tyro
from torch import Tensor

from routing_agents.checkpoint import prefixed, save
from routing_agents.header import CheckpointError
from routing_agents.policies.attention.features import features_named
from routing_agents.policies.attention.model import AttentionModel, ModelConfig
from routing_agents.policies.attention.saved import describe
from routing_agents.terminal import command_line
from routing_gym.problems import make_problem

RENAMED = {  # our name: name in the original code, both without ".weight" / ".bias"
    "embed_node": "init_embed",
    "embed_depot": "init_embed_depot",
    "project_nodes": "project_node_embeddings",
    "project_mean": "project_fixed_context",
    "project_context": "project_step_context",
    "project_glimpse": "project_out",
    "project_step": "project_node_step",
}
RENAMED_IN_LAYER = {
    "attention_norm.norm": "1.normalizer",
    "expand": "2.module.0",
    "contract": "2.module.2",
    "feed_forward_norm.norm": "3.normalizer",
}


@dataclass(frozen=True)
class Args:
    """Arguments of the importer."""

    file: tyro.conf.Positional[Path]
    """Checkpoint of the original code, such as pretrained/cvrp_20/epoch-99.pt."""
    problem: Literal["tsp", "cvrp", "sdvrp", "op", "pctsp", "spctsp"]
    """Problem that the weights were trained on."""
    out: Path
    """Folder to make for the checkpoint."""
    num_nodes: int = 20
    """Number of nodes that the weights were trained on; the checkpoint notes it, and the weights fit any."""


def read(path: Path) -> dict[str, Tensor]:
    """Read the parameters of an original checkpoint without running any code that it might hold.

    Raises:
        CheckpointError: The file is damaged, holds more than tensors, or has no "model".
        FileNotFoundError: The file does not exist.
    """
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:  # the restricted unpickler raises various errors on damaged bytes
        raise CheckpointError(f"{path}: not a checkpoint that can be read safely ({type(error).__name__})") from error
    parameters = content.get("model") if isinstance(content, dict) else None
    if not isinstance(parameters, dict) or not all(
        isinstance(name, str) and isinstance(value, Tensor) and value.layout == torch.strided and not value.is_quantized
        for name, value in parameters.items()
    ):
        raise CheckpointError(
            f'{path}: expected a dict with the parameters under "model", dense tensors, as the original code saves'
        )
    claimed, held = sum(value.nbytes for value in parameters.values()), path.stat().st_size
    if claimed > held:  # tensors may be views that repeat a few numbers
        raise CheckpointError(f"{path}: its tensors claim {claimed:,} bytes, but the file holds {held:,}")
    return parameters


def sizes(original: dict[str, Tensor], path: Path) -> ModelConfig:
    """Derive the sizes of the network from its parameters.

    Raises:
        CheckpointError: The parameters that determine the sizes are missing or have wrong shapes.
    """
    query = original.get("embedder.layers.0.0.module.W_query")
    hidden = original.get("embedder.layers.0.2.module.0.weight")
    if query is None or hidden is None or query.dim() != 3 or hidden.dim() != 2:
        raise CheckpointError(
            f"{path}: not an attention model: needs embedder.layers.0.0.module.W_query (heads, d, d / heads) "
            "and embedder.layers.0.2.module.0.weight (hidden, d)"
        )
    layers = {int(match[1]) for name in original if (match := re.match(r"embedder\.layers\.(\d+)\.", name))}
    if "embedder.layers.0.1.normalizer.running_mean" in original:
        normalization = "batch"
    else:
        normalization = "instance" if "embedder.layers.0.1.normalizer.weight" in original else "none"
    return ModelConfig(
        embed_dim=query.shape[1],
        num_heads=query.shape[0],
        num_layers=len(layers),
        feed_forward_dim=hidden.shape[0],
        normalization=normalization,
    )


def sources(ours: str, shape: torch.Size, config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Return the names and shapes of the original parameters that make up one of ours."""
    d, heads = config.embed_dim, config.num_heads
    if ours == "placeholder":
        return {"W_placeholder": tuple(shape)}
    layer = re.fullmatch(r"layers\.(\d+)\.(.+)\.(\w+)", ours)
    if layer is None:
        name, _, kind = ours.rpartition(".")
        return {f"{RENAMED[name]}.{kind}": tuple(shape)}
    prefix = f"embedder.layers.{layer[1]}."
    if layer[2] == "project_qkv":  # the original stores the heads separately
        return {f"{prefix}0.module.{key}": (heads, d, d // heads) for key in ("W_query", "W_key", "W_val")}
    if layer[2] == "project_out":
        return {f"{prefix}0.module.W_out": (heads, d // heads, d)}
    return {f"{prefix}{RENAMED_IN_LAYER[layer[2]]}.{layer[3]}": tuple(shape)}


def join(ours: str, parts: list[Tensor]) -> Tensor:
    """Convert parameters of the original code to one of ours."""
    if ours.endswith("project_qkv.weight"):  # three (H, d, d/H) become (3 d, d)
        return torch.cat([part.transpose(1, 2).flatten(0, 1) for part in parts])
    if ours.startswith("layers.") and ours.endswith("project_out.weight"):  # (H, d/H, d) becomes (d, d)
        return parts[0].flatten(0, 1).T.contiguous()
    return parts[0]


def convert(original: dict[str, Tensor], model: AttentionModel, path: Path) -> None:
    """Copy the original parameters into a model, all or none.

    Raises:
        CheckpointError: Parameters are missing, unexpected, misshaped or not finite; the message lists them all.
    """
    left = {name: value for name, value in original.items() if not name.endswith("num_batches_tracked")}
    faults, weights = [], {}
    for ours, expected in model.state_dict().items():
        if ours.endswith("num_batches_tracked"):  # only a count, which old versions of PyTorch did not keep
            weights[ours] = expected
            continue
        parts = []
        for name, shape in sources(ours, expected.shape, model.config).items():
            found = left.pop(name, None)
            if found is None:
                faults.append(f"missing {name}")
            elif tuple(found.shape) != shape:
                faults.append(f"{name} has shape {tuple(found.shape)}, expected {shape}")
            elif found.is_complex() or not found.isfinite().all():
                faults.append(f"{name} holds what is no finite real number")
            else:
                parts.append(found.float())
        if not faults:
            weights[ours] = join(ours, parts)
    faults += [f"unexpected {name}" for name in left]
    if faults:
        raise CheckpointError(f"{path}: {'; '.join(sorted(faults))}")
    model.load_state_dict(weights)


def load_original(path: Path, problem_name: str) -> AttentionModel:
    """Return the model of an original checkpoint, in evaluation mode.

    Args:
        path: Checkpoint of the original code.
        problem_name: Name of the problem, such as "TSP" or "CVRP".

    Raises:
        CheckpointError: The file cannot be read, or its parameters do not fit.
    """
    original = read(path)
    config = sizes(original, path)
    if config.num_layers * 4 * config.embed_dim**2 > sum(value.numel() for value in original.values()):
        raise CheckpointError(f"{path}: names {config.num_layers} layers, but does not hold so many")
    model = AttentionModel(features_named(problem_name), config)
    convert(original, model, path)
    return model.eval()


def main(args: Args) -> Path:
    """Convert one checkpoint; return the file written."""
    problem = make_problem(args.problem.upper(), args.num_nodes)
    model = load_original(args.file, problem.name)
    if args.out.exists():
        raise FileExistsError(f"{args.out} exists; choose another --out")
    args.out.mkdir(parents=True)
    target = args.out / "best.safetensors"
    header = {**describe(problem, model), "source": f"original weights of Kool et al. (2019), {args.file.name}"}
    save(target, prefixed("model", model.state_dict()), header)
    print(f"{target}: {sum(p.numel() for p in model.parameters()):,} parameters")
    return target


if __name__ == "__main__":
    command_line(main, Args, __doc__)
