"""Find and load trained models: the published weights, or those of a run."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from routing_agents.checkpoint import load_network
from routing_agents.header import CheckpointError
from routing_agents.policies.attention import saved
from routing_agents.policies.pointer import saved as pointer_saved
from routing_agents.policies.pointer.model import PointerNetwork
from routing_agents.runs import choose_device, command
from routing_agents.search.large_neighbourhood import neighbourhoods_of
from routing_agents.trained.model import TrainedModel
from routing_agents.trained.pointer import TrainedPointer
from routing_gym.data.own import smallest
from routing_gym.problem import AnyProblem
from routing_gym.problems import PROBLEMS, make_problem, near_problem

WEIGHTS = Path(__file__).parents[1] / "weights"


def load_repair(problem: AnyProblem, otherwise: TrainedModel | None = None, device: str = "cpu") -> TrainedModel:
    """Load the published weights whose `improve` improves tours of a problem.

    Args:
        problem: Problem of the tours.
        otherwise: Model to return if there are no such weights and it solves the subproblems.
        device: Device of the computation; see `load`.

    Raises:
        ValueError: Tours of the problem cannot be improved, or there are no weights for its subproblems.
    """
    kind = neighbourhoods_of(problem)
    name, size = kind.repaired_by(problem)
    try:
        path = find_weights(name, size)
    except ValueError:
        if otherwise is not None and name in otherwise.names:
            return otherwise
        options = " ".join(filter(None, [f"--env-id routing/{name}-{size}", kind.trained_with, "--name mine"]))
        raise ValueError(
            f"there are no weights for {name}, the problem of {problem.name}'s subproblems; train some: "
            f"{command('am_reinforce.py')} {options}, and give --repair runs/mine"
        ) from None
    return load(path, device)


def load(name: str | Path, device: str = "cpu", *, matrices: bool = False) -> TrainedModel:
    """Load a trained model.

    Args:
        name: A problem and a size, such as "TSP-50", for the published weights of the nearest size; or the name of
            published weights, such as "ovrpbltw-matrices-50"; or the folder of a run; or a checkpoint.
        device: Device of the computation: "cpu", "cuda", "cuda:1"; or "auto", for a GPU if there is one.
        matrices: Whether to prefer published weights that read matrices of lengths and durations.

    Raises:
        ValueError: The model or the device does not exist.
        CheckpointError: The checkpoint cannot be read.
    """
    device = choose_device(device, "device")
    path, asked = find_checkpoint(name, matrices=matrices)
    network, trained_on, header = load_network(path, device, rebuild)
    if isinstance(network, PointerNetwork):
        return TrainedPointer.of(network, trained_on, path, header)
    problem = trained_on
    of_several = header.get("variants") is True
    if of_several and asked is not None:
        problem = make_problem(asked, problem.num_nodes, matrices=problem.matrices)
    return TrainedModel(network, problem, path, of_several)


def find_checkpoint(name: str | Path, *, matrices: bool = False) -> tuple[Path, str | None]:
    """Return the path of a run or checkpoint; or of the published weights for a name such as "TSP-50", and its problem.

    Args:
        name: A path, a problem and a size, or the name of a published file such as "ovrpbltw-50".
        matrices: See `load`.

    Raises:
        TypeError: The name is neither a text nor a path.
        ValueError: The name is none of these.
    """
    if not isinstance(name, str | Path):
        raise TypeError(f"name: expected a problem and a size such as 'TSP-50', or a path; got {name!r}")
    match = re.fullmatch(r"(\w+)-([1-9]\d{0,6})", str(name))
    if match is not None and match[1] in PROBLEMS and not Path(name).exists():
        return find_weights(match[1], int(match[2]), matrices=matrices), match[1]
    return checkpoint_named(name), None


def checkpoint_named(name: str | Path) -> Path:
    """Return the path of a run or checkpoint, or of the published weights of exactly this name, such as "TSP-50".

    Raises:
        ValueError: The name is neither.
    """
    published = WEIGHTS / f"{str(name).lower()}.safetensors"
    for path in (Path(name), published):
        if path.exists():
            return path
    names = sorted(path.stem.upper() for path in WEIGHTS.glob("*.safetensors"))
    near = near_name(str(name), names)
    hint = f"; did you mean {near}? Published are" if near else ":"
    told = f"{str(name)!r} is neither a run or checkpoint, nor among the published weights"
    raise ValueError(f"{told}{hint} {', '.join(names)}")


def near_name(name: str, published: Sequence[str]) -> str | None:
    """Return a problem and a size, or published weights, that a misspelt name may stand for; None if none is near."""
    parts = re.fullmatch(r"([A-Z]+)[-_ ]?([1-9]\d{0,6})?", name.upper())
    problem = near_problem(parts[1]) if parts is not None else None
    if parts is None or problem is None:
        return next(iter(get_close_matches(name.upper(), published, 1)), None)
    near = f"{problem}-{parts[2] or 50}"
    try:
        find_weights(problem, 50)
    except ValueError:  # some problems have no weights
        return None
    return near if near != name else None


def rebuild(header: dict[str, Any]) -> tuple[Any, Any]:
    """Build the network that a header describes; return it, and the problem or task it was trained on.

    Raises:
        CheckpointError: The header describes a network of another kind, such as that of a game.
    """
    network = header.get("network")
    if network == pointer_saved.NETWORK:
        return pointer_saved.rebuild(header)
    if network is not None and "problem" not in header:
        told = f"holds a network of kind {network!r}, trained by {header.get('script', 'another script')}"
        raise CheckpointError(f"{told}, which solves no instances; give a run of am_reinforce.py")
    return saved.rebuild(header)


def find_weights(problem: str, num_nodes: int, folder: Path = WEIGHTS, *, matrices: bool = False) -> Path:
    """Return the path of the published weights for a problem, those of the nearest size by ratio.

    A problem without its own weights gets those of its family.

    Args:
        problem: Name of the problem, such as "TSP".
        num_nodes: Size of the instances to solve.
        folder: Folder of the weights, such as cvrp-50.safetensors, or cvrp-matrices-50.safetensors for a network that
            reads matrices.
        matrices: Whether to prefer weights that read matrices; if there are none, those that read coordinates are
            taken.

    Raises:
        ValueError: There are no weights for this problem.
    """
    families = PROBLEMS[problem].families if problem in PROBLEMS else ()
    covering = [name for name in families if problem in smallest(name).variants]
    kinds = ("-matrices", "") if matrices else ("",)
    names = [f"{name.lower()}{kind}" for kind in kinds for name in (problem, *covering)]
    paths = next(filter(None, (sorted(folder.glob(f"{name}-[0-9]*.safetensors")) for name in names)), [])
    if not paths:
        raise ValueError(
            f"no weights for {problem} in {folder}; train some: {command('am_reinforce.py')} "
            f"--env-id routing/{problem}-20 --name mine, and give --checkpoint runs/mine"
        )
    return min(paths, key=lambda path: abs(math.log(int(path.stem.rpartition("-")[2]) / num_nodes)))
