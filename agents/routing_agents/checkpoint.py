"""Checkpoints: safetensors files of tensors and a JSON header, written completely or not at all.

Nothing is unpickled, so that a file from an untrusted source can at worst cause an error.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as serialize
from torch import Tensor, nn

from routing_agents.header import FORMAT, CheckpointError, converted, read_header
from routing_agents.optimizers import expected_state, load_optimizer, optimizer_tensors
from routing_agents.runs import BEST, LAST, changed, option
from routing_gym.files import write_atomically

NetworkT = TypeVar("NetworkT", bound=nn.Module)
T = TypeVar("T")
MOST_FAULTS = 8  # in a message
DTYPES = ("BF16", "F16", "F32", "F64", "I64")  # types of tensors that are read; torch supports few operations on others


def save(path: Path, tensors: dict[str, Tensor], header: dict[str, Any]) -> None:
    """Write a checkpoint, completely or not at all.

    Args:
        path: File to write.
        tensors: Tensors by name; a name begins with its group and a dot ("model.", "optimizer.", "baseline.").
        header: Header, of values that JSON can hold.

    Raises:
        OSError: The file cannot be written; an earlier file at `path` is unchanged.
    """
    contiguous = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    write_atomically(path, serialize(contiguous, metadata={"format": FORMAT, "header": json.dumps(header)}))


def load(path: Path, device: str = "cpu") -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read the tensors and the header of a checkpoint.

    Raises:
        CheckpointError: The file is missing, damaged, or not a checkpoint.
    """
    if not path.is_file():
        raise CheckpointError(f"{path}: no such file; give a checkpoint such as runs/NAME/best.safetensors")
    try:
        with safe_open(path, framework="pt", device=device) as file:
            header = read_header(path, file.metadata() or {})
            for name in file.keys():  # noqa: SIM118
                if (dtype := file.get_slice(name).get_dtype()) not in DTYPES:
                    raise CheckpointError(f"{path}: {name} holds {dtype}; expected {', '.join(DTYPES)}")
            # Copied from the mapped file, which Windows could not replace by the next checkpoint.
            return {name: file.get_tensor(name).clone() for name in file.keys()}, header  # noqa: SIM118
    except SafetensorError as error:
        raise CheckpointError(
            f"{path}: not a whole safetensors file ({error}); it is damaged or of another format; "
            "weights of the original code (.pt) go through import_original.py"
        ) from error


def load_network(
    path: Path,
    device: str,
    make: Callable[[dict[str, Any]], tuple[NetworkT, T]],
    name: str = "model",
) -> tuple[NetworkT, T, dict[str, Any]]:
    """Load a network from a checkpoint, in evaluation mode.

    Args:
        path: Checkpoint, or folder of a run (for its best checkpoint).
        device: Device of the network.
        make: Function that builds from the header the network, without its weights, and the problem, task or game that
            it was trained on.
        name: Group of the weights.

    Returns:
        The network, its problem, task or game, and the whole header.

    Raises:
        CheckpointError: The file cannot be read, its header does not describe a network, or the weights do not fit.
    """
    path = path / BEST if path.is_dir() else path
    tensors, header = load(path, device)
    weights = group(tensors, name)
    try:
        with torch.device("meta"):  # shapes without memory: a header may claim any size
            network, trained_on = make(header)
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from None
    except (KeyError, TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise CheckpointError(f"{path}: its header does not describe a known network ({error})") from error
    if path.name == LAST and weights.keys().isdisjoint(network.state_dict()):  # it is a part of them
        raise CheckpointError(f"{path}: it is for --resume; give the run's folder, whose {BEST} has the network alone")
    check_weights(network, weights, path)
    wanted = network.float().state_dict()  # whatever torch's default dtype is
    # Assigned, not copied into `to_empty`, which imports sympy for meta tensors: most of the time of a first load.
    # They are copies: those that were read are parts of the file, mapped into memory.
    copies = {name: weights[name].to(wanted[name].dtype, copy=True) for name in wanted}
    network.load_state_dict(copies, assign=True)
    return network.eval(), trained_on, header


def check_beside_resume(args: Any, given: Iterable[str]) -> None:
    """Check that of the options given, all may be given together with `--resume`.

    Raises:
        ValueError: The others are named.
    """
    allowed = {option(name) for name in ("resume", *args.beside_resume)}
    if others := [one for one in given if one not in allowed]:
        raise ValueError(f"--resume uses the run's own arguments; leave out {', '.join(others)}")


def load_run(args: Any) -> tuple[Path, dict[str, Tensor], dict[str, Any]]:
    """Read the checkpoint from which the run in the folder `args.resume` is resumed.

    Args:
        args: Arguments of the command line: only `--resume` and those in `args.beside_resume` may be given.

    Returns:
        Path of the checkpoint, its tensors and its header.

    Raises:
        ValueError: Other arguments are given, or the folder holds no run.
        CheckpointError: The file is damaged, or holds weights only.
    """
    check_beside_resume(args, map(option, changed(args)))
    path = args.resume / LAST
    if not path.is_file():
        raise ValueError(f"--resume takes the folder of a run, which holds {LAST}; {args.resume} does not")
    tensors, header = load(path)
    if type(header.get("step")) is not int:
        raise CheckpointError(f"{path}: holds weights only; a run is resumed from its {LAST}")
    return path, tensors, header


def read_arguments(header: dict[str, Any], path: Path, read: Callable[[dict[str, Any]], T]) -> T:
    """Return the arguments of a run, which `read` builds from the JSON object in the header.

    Raises:
        CheckpointError: The arguments are missing, or those of another version.
    """
    try:
        return read(header["args"])
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: its arguments are not those of this version: {error}") from error


def read_sums(header: dict[str, Any], path: Path) -> dict[str, float]:
    """Return the sums of the metrics of an unfinished epoch.

    Raises:
        KeyError: The header has none.
        CheckpointError: A sum is not a number.
    """
    try:
        sums: dict[str, float] = converted(dict[str, float], header["sums"], "sums")
    except ValueError as error:
        raise CheckpointError(f"{path}: {error}") from error
    return sums


def check_tensors(expected: dict[str, Tensor], found: dict[str, Tensor], path: Path, complaint: str) -> None:
    """Check that tensors have the expected names, shapes and kinds (floating point or not).

    Args:
        expected: Expected tensors by name; their values are ignored.
        found: Tensors of a checkpoint by name.
        path: Path of the checkpoint, for errors.
        complaint: Beginning of the error, such as "the state of muon does not fit".

    Raises:
        CheckpointError: Tensors differ; the message names the first ones.
    """
    faults = [f"missing {name}" for name in expected.keys() - found.keys()]
    faults += [f"unexpected {name}" for name in found.keys() - expected.keys()]
    for name in expected.keys() & found.keys():
        one, wanted = found[name], expected[name]
        if one.shape != wanted.shape:
            faults.append(f"{name} has shape {tuple(one.shape)}, expected {tuple(wanted.shape)}")
        elif one.is_floating_point() != wanted.is_floating_point():
            faults.append(f"{name} holds {one.dtype}, expected {wanted.dtype}")
    if faults:
        more = f"; and {len(faults) - MOST_FAULTS} more" if len(faults) > MOST_FAULTS else ""
        raise CheckpointError(f"{path}: {complaint}: {'; '.join(sorted(faults)[:MOST_FAULTS])}{more}")


def fitting(name: str, like: Tensor, tensors: dict[str, Tensor], path: Path) -> Tensor:
    """Return a tensor of a checkpoint, which must have the shape of another, on the device of the other.

    Raises:
        KeyError: The checkpoint has no tensor of that name.
        CheckpointError: The shape or the kind differs.
    """
    check_tensors({name: like}, {name: tensors[name]}, path, "the state of the run does not fit")
    return tensors[name].to(like.device)


def check_weights(model: nn.Module, weights: dict[str, Tensor], path: Path) -> None:
    """Check that weights fit a model and are finite.

    Raises:
        CheckpointError: Weights do not fit, or are not finite; the message names the first ones.
    """
    check_tensors(model.state_dict(), weights, path, "the weights do not fit the model")
    if infinite := sorted(name for name, tensor in weights.items() if not tensor.isfinite().all()):
        raise CheckpointError(f"{path}: {', '.join(infinite[:MOST_FAULTS])} is not finite; take another checkpoint")


def load_weights(model: nn.Module, weights: dict[str, Tensor], path: Path) -> None:
    """Copy weights into a model, all or none.

    Raises:
        CheckpointError: See `check_weights`.
    """
    check_weights(model, weights, path)
    model.load_state_dict(weights)


def origin(header: dict[str, Any]) -> str:
    """Return a text about the problem or task that the network of a checkpoint was trained on."""
    if "problem" in header:
        return f"{header['problem']} with {header.get('settings', {}).get('num_nodes')!r} nodes"
    return f"the task {header.get('task')}"  # pointer network trained on solved examples


def last_run(header: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments, metrics and seconds in the header of a run's checkpoint, and what it is a mean of."""
    last: dict[str, Any] = {key: header[key] for key in ("args", "metrics", "seconds", "mean") if key in header}
    size = last.get("args", {}).get("batch_size")
    if "step" in header and type(size) is int:  # the latest weights of a run, not the best, have no metrics
        last.setdefault("metrics", {"instances": header["step"] * size})
    return last


def group(tensors: dict[str, Tensor], name: str) -> dict[str, Tensor]:
    """Return the tensors of one group, without the group in their names."""
    prefix = name + "."
    return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}


def prefixed(name: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Add the name of a group to the names of tensors: the inverse of `group`."""
    return {f"{name}.{key}": value for key, value in tensors.items()}


def training_state(model: nn.Module, optimizers: dict[str, torch.optim.Optimizer]) -> dict[str, Tensor]:
    """Return the tensors for `restore_training`: the weights, and the states of the optimisers by name."""
    tensors = prefixed("model", model.state_dict())
    for name, optimizer in optimizers.items():
        tensors |= prefixed(name, optimizer_tensors(optimizer))
    return tensors


def restore_training(
    model: nn.Module, optimizers: dict[str, torch.optim.Optimizer], tensors: dict[str, Tensor], step: int, path: Path
) -> None:
    """Restore the result of `training_state` after `step` steps.

    Raises:
        CheckpointError: A tensor is missing, unexpected, or does not fit the model.
    """
    load_weights(model, group(tensors, "model"), path)
    for name, optimizer in optimizers.items():
        restore_optimizer(optimizer, group(tensors, name), step > 0, path, name)


def restore_optimizer(
    optimizer: torch.optim.Optimizer, state: dict[str, Tensor], has_stepped: bool, path: Path, name: str
) -> None:
    """Restore the result of `optimizer_tensors`.

    Raises:
        CheckpointError: A tensor is missing, unexpected, or does not fit the parameters.
    """
    expected = expected_state(optimizer) if has_stepped else {}
    if state:  # a parameter that never had a gradient has no state, such as a frozen one
        known = {key.partition(".")[0] for key in state}
        expected = {key: value for key, value in expected.items() if key.partition(".")[0] in known}
    check_tensors(expected, state, path, f"the state of {name} does not fit")
    load_optimizer(optimizer, state)
