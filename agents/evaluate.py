"""Compare solvers and trained models on the same instances: one table, one plot.

    python agents/evaluate.py paper/TSP-20 fast-tsp runs/NAME:num_tours=1280,sample=true
    python agents/evaluate.py random/CVRP-50 pyvrp:time_limit=1 runs/NAME:symmetries=8
    python agents/evaluate.py eil51.tsp fast-tsp trained:beam=10 --out results

Instances: `paper/ID` are the paper's test sets, `random/ID` are drawn with --seed, and a path is a TSPLIB, CVRPLIB or
OPLib file, an .npz (ours or RouteFinder's), or a .pkl of the original code, POMO or MVMoE (with --problem). If a
file holds best known costs, gaps refer to these. Costs are the environment's: lengths of a file are
in a unit that the table names (solve.py gives the file's own integers). Methods: the name of a classical solver, the
path of a run or checkpoint, or `trained` for the published weights, each with settings after a colon. Gaps refer to the
first method, or to --reference; put the best one first. Wins count ties. Total seconds add up those of all processes.
Solved instances are kept in --cache, so that a second run, or one after an interrupt, does not solve them again.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro
from rich.markup import escape
from rich.progress import Progress

from routing_agents.policies.attention.decoding import Decoding, first_nodes, solve
from routing_agents.search.active import active_search
from routing_agents.search.beam import beam_search, simulation_guided_search
from routing_agents.terminal import command_line, plain_console
from routing_agents.trained import TrainedModel, find_weights, load
from routing_agents.trained.pointer import TrainedPointer
from routing_agents.training import distributed
from routing_agents.training.tuning import keep_freed_memory
from routing_gym import arrays, data
from routing_gym.arrays import select, to_backend
from routing_gym.data.npz import load_npz
from routing_gym.data.paper import paper_test_set
from routing_gym.data.peers import is_peer_npz
from routing_gym.evaluate import Table, compare
from routing_gym.files import printable, write_atomically
from routing_gym.problem import AnyProblem
from routing_gym.problems import make_problem
from routing_gym.rollout import Rollout
from routing_gym.solvers import SOLVERS, Solution, make_solver
from routing_gym.solvers.runtime.base import FEASIBLE

TRAINED = "trained"
BEST_KNOWN = "best known"  # the costs that lie beside the instances of a file
SEARCHES = {"beam": "expansion", "active": "embeddings"}  # settings that name a search, and what may stand beside each
Method = Callable[[AnyProblem, Any], Solution]


@dataclass(frozen=True)
class Args:
    """Arguments of an evaluation."""

    instances: tyro.conf.Positional[str]
    """Test set (paper/TSP-20), generated instances (random/TSP-20), or a file."""
    methods: tyro.conf.Positional[tuple[str, ...]] = (TRAINED,)
    """Solvers and checkpoints, such as fast-tsp:time_limit=0.1 or runs/NAME:num_tours=128,sample=true; `trained` stands
    for the published weights of the problem with the nearest size."""
    reference: str = ""
    """Method that gaps are relative to. Default: the first."""
    problem: str = ""
    """Problem of a .pkl file, such as CVRP or OVRPTW, or one of the problems that an .npz file holds."""
    size: int = 1000
    """Number of instances: the first ones of a test set, or generated ones."""
    seed: int = 1234
    """Random seed for generated instances, sampled tours and randomised solvers."""
    batch_size: int | None = None
    """Number of tours that a model decodes at a time. Default: 1,024, or fewer where instances are large. Sampled
    tours depend on it."""
    workers: int = os.cpu_count() or 1
    """Number of processes for solvers that take one instance at a time."""
    cache: Path = Path("runs/.references")
    """Folder in which solutions of solvers are kept for the next run."""
    out: Path | None = None
    """Folder for table.md, table.csv, table.json and gap.png."""


@dataclass(frozen=True)
class TestSet:
    """Instances to be solved.

    Attributes:
        problem: The rules.
        instance: B instances, NumPy.
        remarks: What to know of their costs.
        best_known: float64 (B,), best known costs, if a file has them.
    """

    problem: AnyProblem
    instance: Any
    remarks: dict[str, Any] = field(default_factory=dict)
    best_known: np.ndarray | None = None


def read_instances(args: Args) -> TestSet:
    """Return the instances that `args` names.

    Raises:
        ValueError: No such set, or the file cannot be read.
    """
    source, _, name = args.instances.partition("/")
    path = Path(args.instances)
    if source in ("paper", "random") and not path.exists():
        kind, _, size = name.partition("-")
        if not size.isdigit():
            raise ValueError(f"{args.instances!r}: expected {source}/ID with an ID such as TSP-20")
        problem = make_problem(kind, int(size))
        if source == "paper":
            return TestSet(problem, select(paper_test_set(kind, int(size)), slice(0, args.size)))
        return TestSet(problem, problem.generate(np.random.default_rng(args.seed), args.size))
    if path.suffix == ".pkl":
        if not args.problem:
            raise ValueError(f"{path} does not say what it holds: give --problem TSP, say")
        problem, instance = data.load_pickle(path, args.problem)
        return TestSet(problem, select(instance, slice(0, args.size)))
    if path.suffix == ".npz" and is_peer_npz(path):
        found = data.load_peer_npz(path, args.problem)
        best_known = None if found.best_known is None else found.best_known[: args.size]
        return TestSet(found.problem, select(found.instance, slice(0, args.size)), {}, best_known)
    if path.suffix == ".npz":
        problem, instance = load_npz(path)
        return TestSet(problem, select(instance, slice(0, args.size)))
    if not path.exists():
        raise ValueError(f"no file {args.instances}; for a test set write paper/ID or random/ID, such as random/TSP-20")
    file = data.read_instance(path)
    if file.scores is None:
        return TestSet(file.problem, file.instance, {"unit of length": f"{file.scale:g}"})
    return TestSet(file.problem, file.instance, {"depot's score, not counted": int(file.scores[0])})


def parse_method(text: str) -> tuple[str, dict[str, Any]]:
    """Split NAME:key=value,key=value into the name and its settings.

    Raises:
        ValueError: A setting without a value, an empty one, or one that is set twice.
    """
    name, colon, listed = text.partition(":")
    settings: dict[str, Any] = {}
    for setting in listed.split(",") if colon else ():
        key, equals, value = setting.partition("=")
        if not setting:
            raise ValueError(f"{text!r}: a setting is empty; write {name}:SETTING=VALUE, or leave the colon out")
        if key in settings:
            raise ValueError(f"{text!r}: {key} is set twice; leave one out")
        if not equals:
            raise ValueError(f"{text!r}: {setting!r} has no value; write {name}:{setting}=VALUE")
        try:
            settings[key] = json.loads(value)
        except json.JSONDecodeError:
            settings[key] = value
    return name, settings


def make_method(text: str, args: Args, problem: AnyProblem) -> Method:
    """Build one method and check that it can solve the problem, before any work is done.

    Raises:
        ValueError: Neither a solver nor a checkpoint, unsuitable for the problem, or a wrong setting.
        ImportError: A solver's package is missing.
    """
    name, settings = parse_method(text)
    if name in SOLVERS:
        solver = make_solver(name, **settings)
        solver.check(problem)
        solver.load()
        return partial(solver.solve, seed=args.seed, num_workers=args.workers, progress=True, cache=args.cache)
    path = find_weights(problem.name, problem.num_nodes) if name == TRAINED else Path(name)
    if name == TRAINED:
        plain_console(stderr=True).print(printable(f"{TRAINED}: {path}"), soft_wrap=True)
    if not path.exists():
        raise ValueError(f"{name!r} is neither a solver ({', '.join(SOLVERS)}) nor a checkpoint's path")
    model = load(path)
    model.check(problem)
    searches = any(key in settings and settings.keys() <= {key, option} for key, option in SEARCHES.items())
    return (make_search if searches else make_decoder)(text, settings, model, args, problem)


def make_search(text: str, settings: dict[str, Any], model: TrainedModel, args: Args, problem: AnyProblem) -> Method:
    """Build active search or a beam search.

    Raises:
        ValueError: A setting is of a wrong kind, or the model or the problem does not allow the search.
    """
    embeddings = settings.pop("embeddings", False)
    if not isinstance(embeddings, bool):
        raise ValueError(f"{text!r}: embeddings must be true or false, got {embeddings!r}")
    for key, value in settings.items():
        if type(value) is not int or value < 1:
            raise ValueError(f"{text!r}: {key} must be an integer of at least 1, got {value!r}")
    completing = "".join(settings.keys() & {"active", "expansion"})  # one of them, or neither
    if isinstance(model, TrainedPointer):
        if completing:
            raise ValueError(f"{text!r}: a pointer network has beam alone; leave {completing} out")
        decoding = Decoding(settings["beam"], force_starts=settings["beam"] > 1)
        return partial(timed, text, pointer_decoder(model, decoding), several=False, batch_size=None)
    if completing and problem.stochastic:
        raise ValueError(f"{text!r}: completing tours of {problem.name} shows prizes early; take beam alone")
    decode: Callable[..., Rollout]
    if completing == "active":
        generator = torch.Generator().manual_seed(args.seed)
        iterations = settings["active"]
        decode = partial(
            active_search, model.network, iterations=iterations, generator=generator, embeddings=embeddings
        )
    elif completing == "expansion":
        width, expansion = settings["beam"], settings["expansion"]
        decode = partial(simulation_guided_search, model.network, width=width, expansion=expansion)
    else:
        decode = partial(beam_search, model.network, width=settings["beam"])
    return partial(timed, text, decode, several=settings != {"beam": 1}, batch_size=args.batch_size)


def make_decoder(text: str, settings: dict[str, Any], model: TrainedModel, args: Args, problem: AnyProblem) -> Method:
    """Build what decodes as the fields of `Decoding` say.

    Raises:
        ValueError: An unknown or wrong setting.
    """
    known = [field.name for field in fields(Decoding)]
    if unknown := sorted(settings.keys() - set(known)):
        raise ValueError(
            f"{text!r}: no setting {', '.join(unknown)}; a model has {', '.join(known)}; or beam, and expansion; "
            "or active, and embeddings"
        )
    try:
        decoding = Decoding(**settings)
        if decoding.force_starts:
            first_nodes(problem, decoding.num_tours)
    except ValueError as error:
        raise ValueError(f"{text!r}: {error}") from error
    if isinstance(model, TrainedPointer):
        return partial(timed, text, pointer_decoder(model, decoding), several=False, batch_size=None)
    generator = torch.Generator().manual_seed(args.seed)
    decode = partial(solve, model.network, decoding=decoding, generator=generator)
    several = decoding.num_tours * decoding.symmetries > 1
    return partial(timed, text, decode, several=several, batch_size=args.batch_size)


def pointer_decoder(model: TrainedPointer, decoding: Decoding) -> Callable[..., Rollout]:
    """Return what solves a batch with a pointer network, called as the attention model's decoders are."""

    def decode(problem: AnyProblem, instance: Any, batch_size: int | None, progress: Callable[[int], None]) -> Rollout:
        return model.solve_batch(problem, instance, decoding, progress=progress)

    return decode


def labels(methods: tuple[str, ...]) -> list[str]:
    """Shorten the paths of checkpoints to the names of their runs, where these tell the methods apart."""
    short = []
    for text in methods:
        name, colon, settings = text.partition(":")
        path = Path(name)
        run = path.parent.name if path.name in ("best.safetensors", "last.safetensors") else path.stem
        short.append(text if name in (*SOLVERS, TRAINED) else run + colon + settings)
    return [one if short.count(one) == 1 else text for one, text in zip(short, methods, strict=True)]


def timed(
    label: str,
    decode: Callable[..., Rollout],
    problem: AnyProblem,
    instance: Any,
    *,
    several: bool,
    batch_size: int | None,
) -> Solution:
    """Decode with a progress bar and a clock, and have the tours rescored.

    The best of several tours of a stochastic problem is a bound: no policy could choose it.
    """
    with Progress(console=plain_console(stderr=True)) as progress:
        task = progress.add_task(escape(printable(label)), total=arrays.batch_size(instance))
        started = time.perf_counter()
        found = decode(
            problem,
            to_backend(problem.rescale(instance), "torch"),
            batch_size=batch_size,
            progress=lambda done: progress.advance(task, done),
        )
        seconds = time.perf_counter() - started
    return Solution.score(problem, instance, found.actions.numpy(), seconds, is_bound=several and problem.stochastic)


def commit() -> str:
    """Return the commit that is checked out, marked where files are changed."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def check_options(args: Args) -> None:
    """Refuse options that have no effect.

    Raises:
        ValueError: With the option.
    """
    path = Path(args.instances)
    if args.problem and path.suffix != ".pkl" and not (path.suffix == ".npz" and is_peer_npz(path)):
        raise ValueError(f"--problem {args.problem} has no effect: {args.instances} says what it holds; leave it out")
    if args.batch_size is not None and all(parse_method(text)[0] in SOLVERS for text in args.methods):
        raise ValueError(f"--batch-size {args.batch_size} has no effect: no method is a model; leave it out")


def main(args: Args) -> Table:
    """Solve with every method; print the table and write it where asked."""
    keep_freed_memory()
    distributed.check_alone()
    if args.size < 1:
        raise ValueError(f"--size must be at least 1, got {args.size}")
    if not args.methods:
        raise ValueError(f"name at least one method: a solver ({', '.join(SOLVERS)}) or a checkpoint's path")
    if args.reference and args.reference not in args.methods:
        raise ValueError(f"--reference {args.reference!r} must be one of the methods: {', '.join(args.methods)}")
    check_options(args)
    test_set = read_instances(args)
    problem, instance = test_set.problem, test_set.instance
    methods = {text: make_method(text, args, problem) for text in args.methods}
    if args.out is not None:
        args.out.mkdir(parents=True, exist_ok=True)
    names = dict(zip(methods, labels(tuple(methods)), strict=True))
    solutions = {names[text]: method(problem, instance) for text, method in methods.items()}
    reference = names[args.reference or args.methods[0]]
    if test_set.best_known is not None:
        cost = test_set.best_known
        known = Solution(np.full((len(cost), 1), -1), cost, np.full(len(cost), np.nan), (FEASIBLE,) * len(cost))
        solutions = {BEST_KNOWN: known, **solutions}
        reference = names[args.reference] if args.reference else BEST_KNOWN
    about = {"instances": args.instances, **test_set.remarks, "seed": args.seed, "commit": commit()}
    table = compare(problem, solutions, reference, about)
    if args.out is not None:
        for suffix, text in (("md", table.markdown()), ("csv", table.csv()), ("json", table.json())):
            write_atomically(args.out / f"table.{suffix}", text.encode())
        table.plot(args.out / "gap.png")
    print(table.text())  # last: a pipe that is closed loses nothing
    return table


if __name__ == "__main__":
    command_line(main, Args, __doc__, (TypeError,), stopped="stopped; what the solvers have solved is kept in --cache")
