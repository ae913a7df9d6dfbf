"""Environment steps per second beside rl4co and Jumanji: the whole loop of a random policy, on one core each.

    python3 -m venv .venv-rl4co && .venv-rl4co/bin/pip install -r benchmarks/peers/requirements-rl4co.txt
    python3 -m venv .venv-jumanji && .venv-jumanji/bin/pip install -r benchmarks/peers/requirements-jumanji.txt
    python benchmarks/env_peers.py                              # writes benchmarks/results/env_peers.json

Each library runs in a process and a virtual environment of its own (`benchmarks/peers/`), all pinned to the same
core with one thread; they take turns several times, and medians count. All play the same problem: uniform
coordinates, and for 50 customers demands of 1 to 9 and a capacity of 40. Drawing instances and actions, stepping
and starting anew count as time; a step counts if it moves a lane whose episode is not over.

Each library plays in several ways: as it ships, and as fast as we could make it go without touching its
environment. The ratios say how ours compares to the fastest way of a peer, and to the way it ships:

- rl4co resets whole batches, so its counterpart here is `routing_gym.rollout`. It ships a policy that calls
  `torch.multinomial`; drawing the rank of a legal node with one random number per lane is faster.
- Jumanji's lanes start anew by themselves, so its counterpart is the vector environment with `copy=False`. As
  shipped: the jitted step called from Python, with a policy that draws a number per node. Faster: the cheap
  policy, and many steps compiled into one `jax.lax.scan`, which only a policy written in JAX can use.

"Transitions alone" leaves out actions and resets; Jumanji's step draws an instance per lane at every step, needed
or not, so that it is also measured with its resets, as users call it.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import tyro
from rich.console import Console
from rich.progress import track
from rich.table import Table

from hardware import describe_machine

ROOT = Path(__file__).parents[1]
PEERS = Path(__file__).parent / "peers"
OURS = "routing-gym"
LOOPS = {"rl4co": "rollout", "jumanji": "vector env, copy=False"}  # our counterpart of each
SHIPPED = {"rl4co": "loop, its own policy", "jumanji": "call per step, its own policy"}
ALONE = "transitions alone"
ONE_THREAD = {
    **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "JAX_PLATFORMS": "cpu",
    "CUDA_VISIBLE_DEVICES": "",
}
Figures = dict[str, Any]


class PeerError(RuntimeError):
    """A peer cannot be started, or does not answer as it should."""


@dataclass(frozen=True)
class Args:
    """Arguments of the benchmark."""

    rl4co_python: Path = ROOT / ".venv-rl4co" / "bin" / "python"
    """Python of the virtual environment with rl4co."""
    jumanji_python: Path = ROOT / ".venv-jumanji" / "bin" / "python"
    """Python of the virtual environment with Jumanji."""
    problems: tuple[str, ...] = ("TSP-50", "CVRP-50")
    """What to step: TSP or CVRP, and the number of cities or customers."""
    lanes: tuple[int, ...] = (1, 64, 1024, 8192)
    """Numbers of lanes."""
    repeats: int = 5
    """Runs of each way to play, in turn with the others; the median counts."""
    seconds: float = 0.2
    """Of a run, about; at least one batch of episodes."""
    seed: int = 0
    """Of instances and actions."""
    out: Path = ROOT / "benchmarks" / "results" / "env_peers.json"
    """Where the figures go."""


def bar(problem: str, peer: str, lanes: int) -> float | None:
    """How many times as fast as the peer we want to be; None where nothing is asked."""
    if peer == "jumanji":
        return 5.0 if lanes >= 64 else None
    if lanes < 1024:
        return 1.5 if lanes in (1, 64) else None
    return 3.0 if problem == "TSP-50" else 2.0


class Worker:
    """A process that plays with one library; speaks as `peers/worker.py` says."""

    def __init__(self, name: str, command: list[str], errors: TextIO, resources: ExitStack) -> None:
        self.name = name
        self.errors = errors
        self.process = resources.enter_context(
            subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.errors,
                text=True,
                env={**os.environ, **ONE_THREAD},
            )
        )
        resources.callback(self.process.kill)
        self.versions = self.read("versions")["versions"]

    def read(self, *keys: str) -> Figures:
        """Read an answer.

        Raises:
            PeerError: It has ended, or says something else.
        """
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            status = self.process.wait()
            self.errors.seek(0)
            lines = self.errors.read().strip().splitlines()
            raise PeerError(f"{self.name} ended with status {status}: {lines[-1] if lines else 'no message'}")
        try:
            message = json.loads(line)
        except json.JSONDecodeError:
            message = None
        if not isinstance(message, dict) or set(message) != set(keys):
            raise PeerError(f"{self.name}: expected a JSON object with {', '.join(keys)}; got {line.strip()!r}")
        return message

    def send(self, request: Figures) -> None:
        """Send a request."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()

    def prepare(self, problem: str, lanes: int, args: Args) -> list[str]:
        """Set up a problem; return the ways to play it."""
        name, num_nodes = problem.split("-")
        settings = {"num_nodes": int(num_nodes), "lanes": lanes, "seed": args.seed, "seconds": args.seconds}
        self.send({"prepare": {"problem": name, **settings}})
        return list(self.read("ways")["ways"])

    def rate(self, way: str) -> float:
        """Play; return the steps per second."""
        self.send({"time": way})
        message = self.read("steps", "seconds")
        return float(message["steps"]) / float(message["seconds"])


@contextmanager
def start_workers(args: Args) -> Iterator[dict[str, Worker]]:
    """Start all sides, pinned to one core.

    Raises:
        PeerError: A virtual environment or `taskset` is missing, or a side does not start.
    """
    pythons = {OURS: Path(sys.executable), "rl4co": args.rl4co_python, "jumanji": args.jumanji_python}
    for name, python in pythons.items():
        if not python.exists():
            folder, requirements = f".venv-{name}", f"benchmarks/peers/requirements-{name}.txt"
            raise PeerError(
                f"{python} does not exist; make it with `python3 -m venv {folder} && {folder}/bin/pip install -r "
                f"{requirements}`, or name another with --{name}-python"
            )
    if shutil.which("taskset") is None:
        raise PeerError("taskset not found; it is part of util-linux, and this benchmark runs on Linux only")
    core = str(max(os.sched_getaffinity(0)))
    with ExitStack() as resources:
        workers = {}
        for name, python in pythons.items():
            script = PEERS / f"{name.replace('-', '_')}_worker.py"
            command = ["taskset", "--cpu-list", core, str(python), "-W", "ignore", str(script)]
            errors = resources.enter_context(tempfile.TemporaryFile("w+"))  # unlike a pipe, takes any number of lines
            workers[name] = Worker(name, command, errors, resources)
        yield workers


def measure(workers: dict[str, Worker], args: Args, problem: str, lanes: int) -> list[Figures]:
    """Measure all ways to play one problem with one number of lanes, in turn."""
    rates: dict[tuple[str, str], list[float]] = {
        (name, way): [] for name, worker in workers.items() for way in worker.prepare(problem, lanes, args)
    }
    for _ in range(args.repeats):
        for (name, way), measured in rates.items():
            measured.append(workers[name].rate(way))
    return [
        {
            "problem": problem,
            "lanes": lanes,
            "library": name,
            "way": way,
            "steps_per_second": statistics.median(measured),
            "fastest_over_slowest": max(measured) / min(measured),
        }
        for (name, way), measured in rates.items()
    ]


def compare(rows: list[Figures]) -> list[Figures]:
    """Compare our counterpart to each peer, for one problem and number of lanes."""
    rate_of = {(row["library"], row["way"]): row["steps_per_second"] for row in rows}
    problem, lanes = rows[0]["problem"], rows[0]["lanes"]
    comparisons = []
    for peer, counterpart in LOOPS.items():
        theirs = {way: rate for (library, way), rate in rate_of.items() if library == peer}
        loops = {way: rate for way, rate in theirs.items() if not way.startswith(ALONE)}
        fastest = max(loops, key=lambda way: loops[way])
        fastest_alone = max(rate for way, rate in theirs.items() if way.startswith(ALONE))
        ours, wanted = rate_of[OURS, counterpart], bar(problem, peer, lanes)
        comparisons.append(
            {
                "problem": problem,
                "lanes": lanes,
                "peer": peer,
                "ours": counterpart,
                "fastest_way": fastest,
                "times_fastest": ours / loops[fastest],
                "times_shipped": ours / loops[SHIPPED[peer]],
                "default_vector_env_times_fastest": rate_of[OURS, "vector env"] / loops[fastest],
                "transitions_alone_times": rate_of[OURS, ALONE] / fastest_alone,
                "bar": wanted,
                "reached": None if wanted is None else ours / loops[fastest] >= wanted,
                "reached_as_shipped": None if wanted is None else ours / loops[SHIPPED[peer]] >= wanted,
            }
        )
    return comparisons


def print_tables(figures: Figures) -> None:
    """Print the figures."""
    lanes = figures["arguments"]["lanes"]
    rate_of = {
        (row["problem"], row["library"], row["way"], row["lanes"]): row["steps_per_second"] for row in figures["rows"]
    }
    rates = Table("problem", "library", "way", *map(str, lanes), title="Steps per second, by number of lanes")
    for problem, library, way in dict.fromkeys(key[:3] for key in rate_of):
        rates.add_row(problem, library, way, *(f"{rate_of[problem, library, way, count]:,.0f}" for count in lanes))
    header = ("problem", "lanes", "peer", "fastest loop", "as shipped", "alone", "bar", "")
    times = Table(*header, title="Times as fast as the peer")
    for row in figures["comparisons"]:
        ratios = (f"{row[key]:.1f}" for key in ("times_fastest", "times_shipped", "transitions_alone_times"))
        verdict = {True: "reached", False: "as shipped" if row["reached_as_shipped"] else "MISSED", None: ""}
        wanted = "" if row["bar"] is None else str(row["bar"])
        times.add_row(row["problem"], str(row["lanes"]), row["peer"], *ratios, wanted, verdict[row["reached"]])
    Console().print(rates, times)


def main(args: Args) -> Figures:
    """Measure, print tables, and write the figures."""
    machine = describe_machine()
    rows, comparisons = [], []
    settings = [(problem, lanes) for problem in args.problems for lanes in args.lanes]
    with start_workers(args) as workers:
        machine["peers"] = {name: worker.versions for name, worker in workers.items() if name != OURS}
        for problem, lanes in track(settings, "Measuring", console=Console(stderr=True)):
            measured = measure(workers, args, problem, lanes)
            rows += measured
            comparisons += compare(measured)
    arguments = {"problems": args.problems, "lanes": args.lanes, "repeats": args.repeats, "seconds": args.seconds}
    figures = {"machine": machine, "arguments": arguments, "rows": rows, "comparisons": comparisons}
    print_tables(figures)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(figures, indent=2) + "\n")
    return figures


if __name__ == "__main__":
    try:
        main(tyro.cli(Args, description=__doc__))
    except (PeerError, OSError) as error:
        sys.exit(f"env_peers: {error}")
    except KeyboardInterrupt:
        sys.exit("env_peers: stopped; nothing written")
