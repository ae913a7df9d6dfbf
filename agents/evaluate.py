"""Compare solvers and trained models on the same instances, in a table and a plot.

    python agents/evaluate.py paper/TSP-20 fast-tsp runs/NAME:num_tours=1280,sample=true
    python agents/evaluate.py random/CVRP-50 pyvrp:time_limit=1 runs/NAME:symmetries=8
    python agents/evaluate.py eil51.tsp fast-tsp trained:beam=10 --out results

Instances: `paper/ID` are the test sets of Kool et al. (2019), and `random/ID` are generated with --seed. A path is a
TSPLIB, CVRPLIB or OPLib file, an .npz file (of this library, RouteFinder or rl4co), or a .pkl file of the original
code, POMO or MVMoE (with --problem). Costs are those of the environment: lengths of a file are in a unit that the table
states (solve.py prints the file's own integers).

Methods: the name of a classical solver, the path of a run or checkpoint, published weights such as TSP-50, or `trained`
for the published weights of the nearest size, each with settings after a colon. Gaps are relative to --reference. Its
default is the best known costs, if the file holds them, else the first method; list the best method first. Ties count
as wins. Total seconds are summed over all processes.

Solutions of solvers are kept in --cache, so that a second run, or one after an interruption, does not repeat them.
Several machines: `--executor ray --address HOST:6379`, or `--shard 1/8` to `--shard 8/8` and then `--merge`, each with
the same --out; see docs/how-to/several-machines.md.
"""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from routing_agents import cli
from routing_agents.arguments import make_out_folder
from routing_agents.evaluation.costs import Shard, merge_shards, write_shard
from routing_agents.evaluation.decoding import CHUNK_SIZE, fingerprint
from routing_agents.evaluation.methods import TRAINED, Setup, digest_of, labels, make_method, parse_method
from routing_agents.runs import changed, check_integers, choose_device, command, option, read_settings
from routing_agents.terminal import command_line
from routing_agents.training import distributed
from routing_agents.training.tuning import keep_freed_memory
from routing_gym import data
from routing_gym.arrays import batch_size, select
from routing_gym.data.paper import paper_test_set
from routing_gym.data.peers import is_peer_npz, load_any_npz
from routing_gym.evaluate import Table, compare
from routing_gym.files import write_atomically
from routing_gym.problem import AnyProblem
from routing_gym.problems import make_problem
from routing_gym.solvers import SOLVERS, Solution
from routing_gym.solvers.runtime.base import FEASIBLE
from routing_gym.solvers.runtime.executors import ExecutorName, executor_of, usable_cores

BEST_KNOWN = "best known"  # method in the table: the best known costs that a file holds


@dataclass(frozen=True)
class Args:
    """Arguments of an evaluation."""

    instances: tyro.conf.Positional[str]
    """Test set (paper/TSP-20), generated instances (random/TSP-20; on streets: random/VRPTW-matrices-50), or a file."""
    methods: tyro.conf.Positional[tuple[str, ...]] = (TRAINED,)
    """Solvers and checkpoints, such as fast-tsp:time_limit=0.1 or runs/NAME:num_tours=128,sample=true; TSP-50 stands
    for published weights, and `trained` for those of the problem with the nearest size."""
    reference: str = ""
    """Method that gaps are relative to. Default: the best known costs, if the file has them, else the first method."""
    problem: str = ""
    """Problem of a .pkl file, such as CVRP or OVRPTW, or one of the problems that an .npz file holds."""
    env_kwargs: dict[str, str] = field(default_factory=dict)
    """Settings of the problem of generated instances, such as `--env-kwargs prize uniform`."""
    size: int = 1000
    """Number of instances: the first ones of a test set or of a file with several, or generated ones."""
    seed: int = 1234
    """Random seed for generated instances, sampled tours and randomised solvers."""
    batch_size: int | None = None
    """Number of tours that a model decodes at a time. Default: 1024, or fewer where instances are large. Sampled
    tours depend on it."""
    workers: int | None = None
    """Number of worker processes. Default: the number of cores, on Ray that of the cluster."""
    executor: ExecutorName | None = None
    """Where instances are solved. Default: in worker processes by solvers that take one instance at a time, in this
    process by all other methods."""
    address: str | None = None
    """Address of a Ray cluster: auto, HOST:6379 or ray://HOST:10001. Default: Ray starts on this machine."""
    device: str = "cpu"
    """Device of models: cpu, cuda, or auto. On Ray, each worker has a GPU of its own unless it is cpu."""
    chunk_size: int = CHUNK_SIZE
    """Number of instances that a worker decodes at a time. Sampled tours depend on it."""
    tours: Path | None = None
    """Folder that keeps the tours of models, chunk by chunk, for the next run."""
    shard: str = ""
    """Part of the instances to solve, such as 3/8; writes their costs to --out. Under torchrun: one per process."""
    merge: bool = False
    """Read the costs of all shards from --out, instead of solving, and write the table."""
    cache: Path = Path("runs/.references")
    """Folder in which solutions of solvers are kept for the next run."""
    out: Path | None = None
    """Folder for table.md, table.csv, table.json and gap.png, and for the costs of shards."""

    advanced = ("env_kwargs", "address", "device", "chunk_size", "tours", "shard", "merge")

    def __post_init__(self) -> None:
        check_integers(self, "seed", least=0)
        for name, value in (("size", self.size), ("workers", self.workers), ("chunk-size", self.chunk_size)):
            if value is not None and value < 1:
                raise ValueError(f"--{name} must be at least 1, got {value}")
        names = [parse_method(text)[0] for text in self.methods]
        if not self.methods:
            raise ValueError(f"name at least one method: a solver ({', '.join(SOLVERS)}) or a checkpoint's path")
        if twice := [text for text in self.methods if self.methods.count(text) > 1]:
            raise ValueError(f"{twice[0]} is given twice; leave one out")
        if self.reference and self.reference not in self.methods:
            raise ValueError(f"--reference {self.reference!r} must be one of the methods: {', '.join(self.methods)}")
        useless = [name for name in changed(self) if name in ("batch_size", "tours", "device")]
        if useless and all(name in SOLVERS for name in names):
            given = f"{option(useless[0])} {getattr(self, useless[0])}"
            raise ValueError(f"{given} has no effect: no method is a model; leave it out")
        if self.shard and self.merge:
            raise ValueError("--shard solves a part, and --merge puts all parts together; choose one of them")
        if (self.shard or self.merge) and self.out is None:
            raise ValueError("--shard and --merge need --out, the folder of the shards")


@dataclass(frozen=True)
class TestSet:
    """Instances to be solved.

    Attributes:
        problem: Problem of the instances.
        instance: Batch of B instances, as NumPy arrays.
        remarks: Remarks on the costs by name, such as the unit of length; they are printed with the table.
        best_known: Best known costs, float64 (B,), if a file has them.
    """

    problem: AnyProblem
    instance: Any
    remarks: dict[str, Any] = field(default_factory=dict)
    best_known: np.ndarray | None = None


def read_instances(args: Args) -> TestSet:
    """Return the instances specified by `args`.

    Raises:
        ValueError: The test set does not exist, the file cannot be read, or `--problem` has no effect.
    """
    source, _, name = args.instances.partition("/")
    path = Path(args.instances)
    if args.problem and path.suffix != ".pkl" and not (path.suffix == ".npz" and is_peer_npz(path)):
        raise ValueError(f"--problem {args.problem} has no effect: {args.instances} names its problem; leave it out")
    if source in ("paper", "random") and not path.exists():
        match = re.fullmatch(r"([^-]*)(-matrices)?-(\d+)", name)
        if match is None or (match[2] and source == "paper"):
            on_streets = ", or VRPTW-matrices-50 (on streets)" if source == "random" else ""
            raise ValueError(f"{args.instances!r}: expected {source}/ID with an ID such as TSP-20{on_streets}")
        kind, size = match[1], int(match[3])
        if args.env_kwargs and source == "paper":
            raise ValueError(f"--env-kwargs has no effect: {args.instances} is a fixed test set; leave it out")
        settings = ({"matrices": True} if match[2] else {}) | read_settings(args.env_kwargs)
        problem = make_problem(kind, size, **settings)
        if source == "paper":
            return TestSet(problem, select(paper_test_set(kind, size), slice(0, args.size)))
        return TestSet(problem, problem.generate(np.random.default_rng(args.seed), args.size))
    if path.suffix == ".pkl" and not args.problem:
        raise ValueError(f"{path} does not name its problem; give it, for example --problem TSP")
    if path.suffix == ".npz":
        found = load_any_npz(path, args.problem)
        best_known = None if found.best_known is None else found.best_known[: args.size]
        return TestSet(found.problem, select(found.instance, slice(0, args.size)), {}, best_known)
    if path.suffix == ".pkl":
        problem, instance = data.load_pickle(path, args.problem)
        return TestSet(problem, select(instance, slice(0, args.size)))
    if not path.exists():
        raise ValueError(f"no file {args.instances}; for a test set write paper/ID or random/ID, such as random/TSP-20")
    if path.suffix.lower() == ".csv":
        raise ValueError(f"{path}: tables are not compared; solve one with {command('solve.py', path)}")
    file = data.read_instance(path)
    best_known = None if file.best_cost is None else np.array([file.best_cost])
    if file.scores is not None:
        remarks = {"depot's score, not counted": int(file.scores[0])}
        return TestSet(file.problem, file.instance, remarks, best_known)
    remarks = {"unit of length": f"{file.scale:g}"}
    if file.rules is not None:
        checker = command("solve.py")
        remarks["not checked"] = f"limits that only the file states, such as VEHICLES; {checker} checks them"
    return TestSet(file.problem, file.instance, remarks, best_known)


def commit() -> str:
    """Return the checked-out commit, marked if files have changed; for an installed package, its version."""
    if Path(__file__).parent == cli.INSTALLED:
        return version("routing-gym")
    describe = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(describe, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def choose_shard(args: Args) -> Shard | None:
    """Return the part of the instances to solve: that of `--shard`, or one part per process of torchrun; None for all.

    Raises:
        ValueError: `--shard` is invalid, or torchrun has started several processes that would do the same work.
    """
    if args.shard:
        distributed.check_alone()
        return Shard.parse(args.shard)
    if args.out is None or args.merge or not distributed.launched():
        distributed.check_alone()
        return None
    return Shard(int(os.environ["RANK"]) + 1, int(os.environ["WORLD_SIZE"]))


def make_setup(args: Args, first_row: int) -> Setup:
    """Return the settings and resources that all methods share.

    Raises:
        ValueError: The device or the cluster does not exist.
    """
    on_ray = args.executor == "ray"  # the workers compute, and this process may have no GPU
    return Setup(
        seed=args.seed,
        tours_at_once=args.batch_size,
        workers=args.workers or usable_cores(),
        executor=executor_of(args),
        cache=args.cache,
        tours=args.tours,
        chunk_size=args.chunk_size,
        device=args.device if on_ray else distributed.own_device(choose_device(args.device)),
        first_row=first_row,
    )


def main(args: Args) -> Table | None:
    """Solve with every method; print the table, and write it to `--out`. A shard writes its costs and no table.

    Raises:
        ValueError: A method failed on every instance; see also `read_instances` and `make_method`.
    """
    keep_freed_memory()
    shard = choose_shard(args)
    test_set = read_instances(args)
    problem, instance = test_set.problem, test_set.instance
    num_rows = batch_size(instance)
    rows = slice(0, num_rows) if shard is None else shard.rows(num_rows, args.chunk_size)
    setup = make_setup(args, rows.start)
    methods = {} if args.merge else {text: make_method(text, setup, problem) for text in args.methods}
    if args.out is not None:
        make_out_folder(args.out)
    asked = {name: getattr(args, name) for name in ("instances", "methods", "problem", "seed", "chunk_size")}
    asked |= {"methods": list(args.methods), "tours at once": args.batch_size, "size": num_rows}
    asked |= {"hash of the instances": fingerprint(instance)[:16]}
    asked |= {f"weights of {text}": digest_of(text, problem) for text in methods}
    part = select(instance, rows)
    names = dict(zip(args.methods, labels(args.methods), strict=True))
    solutions = {names[text]: method(problem, part) for text, method in methods.items()}
    if shard is not None and args.out is not None:
        print(f"{write_shard(args.out, shard, rows, asked, solutions)}: rows {rows.start:,} to {rows.stop:,}")
        check_solved(solutions)
        return None
    if args.merge and args.out is not None:
        solutions = merge_shards(args.out, asked, num_rows)
    table = make_table(args, test_set, solutions, names)
    try:
        if args.out is not None:
            for suffix, text in (("md", table.markdown()), ("csv", table.csv()), ("json", table.json())):
                write_atomically(args.out / f"table.{suffix}", text.encode())
            table.plot(args.out / "gap.png")
    finally:
        print(table.text())  # printed last, so that a closed pipe does not prevent the files
    check_solved(solutions)
    return table


def check_solved(solutions: dict[str, Solution]) -> None:
    """Check that each method has solved an instance.

    Raises:
        ValueError: Methods have solved none; the message names them.
    """
    if useless := [name for name, solution in solutions.items() if solution.failed.all()]:
        raise ValueError(f"failed on every instance: {', '.join(useless)}")


def make_table(args: Args, test_set: TestSet, solutions: dict[str, Solution], names: dict[str, str]) -> Table:
    """Compare the methods, with the names that they have in the table, and the best known costs if there are any."""
    reference = names[args.reference or args.methods[0]]
    if test_set.best_known is not None:
        cost = test_set.best_known
        known = Solution(np.full((len(cost), 1), -1), cost, np.full(len(cost), np.nan), (FEASIBLE,) * len(cost))
        solutions = {BEST_KNOWN: known, **solutions}
        reference = names[args.reference] if args.reference else BEST_KNOWN
    about = {"instances": args.instances, **test_set.remarks, "seed": args.seed, "commit": commit()}
    return compare(test_set.problem, solutions, reference, about)


if __name__ == "__main__":
    stopped = "stopped; what the solvers have solved is kept in --cache, and finished chunks of models in --tours"
    command_line(main, Args, __doc__, (TypeError, RuntimeError), stopped=stopped)
