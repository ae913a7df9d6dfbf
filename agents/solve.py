"""Solve instances from files with a trained model.

    python agents/solve.py berlin52.tsp A-n32-k5.vrp eil51-gen2-50.oplib      # with the weights in agents/routing_agents/weights
    python agents/solve.py --checkpoint runs/NAME berlin52.tsp

Prints the cost in the file's own integers, the best known one where it lies beside the file, and the
gap; writes each tour (TSPLIB .tour, CVRPLIB and OPLib .sol) and a picture.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from routing_agents.attention.decoding import GREEDY, Decoding, familiar, solve
from routing_agents.attention.model import AttentionModel
from routing_agents.checkpoint import load_model
from routing_agents.trained import find_weights
from routing_agents.tuning import keep_freed_memory
from routing_gym import data, render
from routing_gym.arrays import to_backend
from routing_gym.problem import Problem


@dataclass(frozen=True)
class Args:
    """Arguments of the solver."""

    files: tyro.conf.Positional[tuple[Path, ...]]
    """TSPLIB .tsp, CVRPLIB .vrp or OPLib .oplib files."""
    checkpoint: Annotated[Path | None, tyro.conf.arg(metavar="RUN|FILE")] = None
    """The folder of a run, or a checkpoint in it; by default the weights in agents/routing_agents/weights for the file's problem
    and the nearest size."""
    decoding: Literal["greedy", "starts", "sampling"] = "starts"
    """One greedy tour; greedy tours from many first nodes (sampled tours where the first node matters);
    or sampled tours. The last two under all eight symmetries of the square; the best tour counts."""
    tours: int = 128
    """Tours per symmetry, but for greedy."""
    batch_size: int | None = None
    """Tours decoded at a time; by default 1,024, or as many as free memory holds. Sampled tours depend on it."""
    seed: int = 1
    """Of the sampled tours."""
    out: Path = Path("solutions")
    """Folder for tours and pictures."""
    overwrite: bool = False
    """Replace tours and pictures that are there."""


@dataclass(frozen=True)
class Solved:
    """What came of one file."""

    file: data.FileInstance
    cost: int
    seconds: float
    weights: Path
    written: Path

    @property
    def gap(self) -> float | None:
        """Relative distance to the best known cost; positive where it is worse."""
        if not self.file.best_known:  # unknown, or zero
            return None
        worse_by = self.cost - self.file.best_known
        return (-worse_by if self.file.maximises else worse_by) / self.file.best_known


def choose_decoding(args: Args, problem: Problem[Any, Any]) -> Decoding:
    """Turn the arguments into a way of decoding that the problem allows."""
    if args.decoding == "greedy":
        return GREEDY
    if args.decoding == "starts" and problem.any_first_node:
        return Decoding(min(args.tours, problem.num_nodes), force_starts=True, symmetries=8)
    return Decoding(args.tours, sample=True, symmetries=8)


def solve_file(args: Args, file: data.FileInstance, weights: Path) -> Solved:
    """Solve one instance; write its tour and its picture."""
    model, _ = load(weights)
    tour_path, picture = outputs(args, file)
    started = time.perf_counter()
    instance = to_backend(familiar(file.instance), "torch")
    generator = torch.Generator().manual_seed(args.seed)
    found = solve(model, file.problem, instance, choose_decoding(args, file.problem), generator, args.batch_size)
    seconds = time.perf_counter() - started
    actions = found.actions[0].numpy()
    cost = data.write_tour(tour_path, file, actions)
    render.save(picture, file.problem, file.instance, actions, title=f"{file.name}: {cost}")
    return Solved(file, cost, seconds, weights, tour_path)


@cache
def load(weights: Path) -> tuple[AttentionModel, Problem[Any, Any]]:
    """Read a checkpoint, once for all files."""
    return load_model(weights)[:2]


def outputs(args: Args, file: data.FileInstance) -> tuple[Path, Path]:
    """Return where the tour and the picture of a file go."""
    ending = ".sol" if file.problem.has_depot else ".tour"
    return args.out / (file.path.stem + ending), args.out / (file.path.stem + ".png")


def read_files(args: Args) -> list[tuple[data.FileInstance, Path]]:
    """Read all files, choose their weights and check where the results go, before any work is done.

    Raises:
        ValueError: No file, one that cannot be read, of another problem than the model, or without weights;
            or the results of two files, or a result and a best known tour, would have one name.
        FileExistsError: A result is there already.
        OSError: The folder for the results cannot be made.
    """
    if not args.files:
        raise ValueError("name at least one .tsp, .vrp or .oplib file")
    files = [data.read_instance(path) for path in args.files]
    chosen = [args.checkpoint or find_weights(file.problem.name, file.problem.num_nodes) for file in files]
    sources: dict[Path, Path] = {}
    for file, weights in zip(files, chosen, strict=True):
        trained_on = load(weights)[1].name
        if file.problem.name != trained_on:
            raise ValueError(f"{file.path} is a {file.problem.name}, but {weights} was trained on {trained_on}")
        for path in outputs(args, file):
            if path in sources:
                raise ValueError(
                    f"the results of {sources[path]} and {file.path} would both be {path}; solve them apart"
                )
            sources[path] = file.path
            if path.resolve().parent == file.path.resolve().parent:
                raise ValueError(f"{path} would pass for the best known tour of {file.path}; choose another --out")
            if path.exists() and not args.overwrite:
                raise FileExistsError(f"{path} exists; choose another --out, or give --overwrite")
    args.out.mkdir(parents=True, exist_ok=True)
    return list(zip(files, chosen, strict=True))


def main(args: Args) -> list[Solved]:
    """Solve the files and print a table."""
    keep_freed_memory()
    files = read_files(args)
    console = Console()
    table = Table("instance", "cost", "best known", "gap", "seconds", "weights", Column("tour", overflow="fold"))
    solved = []
    with console.status("solving") as status:
        for number, (file, weights) in enumerate(files, start=1):
            status.update(escape(f"solving {file.name} ({number} of {len(files)})"))
            one = solve_file(args, file, weights)
            solved.append(one)
            gap = "-" if one.gap is None else f"{one.gap:.2%}"
            known = "-" if file.best_known is None else str(file.best_known)
            cells = (file.name, str(one.cost), known, gap, f"{one.seconds:.2f}", weights.stem, str(one.written))
            table.add_row(*map(escape, cells))
    console.print(table)
    console.print(f"Pictures of the tours are in {args.out}.", soft_wrap=True, markup=False)
    return solved


if __name__ == "__main__":
    try:
        main(tyro.cli(Args, description=__doc__))
    except (ValueError, OSError, ImportError, MemoryError) as error:
        sys.exit(f"solve: {error}")
    except KeyboardInterrupt:
        sys.exit("solve: stopped; the tours and pictures of the files before are written")
