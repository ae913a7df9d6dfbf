"""Environment steps per second of routing-gym, rl4co and Jumanji: the whole loop of a random policy, on one core each.

    python3 -m venv .venv-rl4co && .venv-rl4co/bin/pip install -r benchmarks/peers/requirements-rl4co.txt
    python3 -m venv .venv-jumanji && .venv-jumanji/bin/pip install -r benchmarks/peers/requirements-jumanji.txt
    python benchmarks/environments/env_peers.py
    python benchmarks/environments/env_peers.py --peers rl4co --problems PDP-50 --out FILE    # what Jumanji has not

Each library runs in its own process and virtual environment (`benchmarks/peers/`), all pinned to the same core with
one thread. They take turns several times, and medians are reported. All play the same problem: uniform coordinates, and
for 50 customers demands of 1 to 9 and a capacity of 40. The time includes drawing instances and actions, steps and
resets. A step counts if it moves a lane whose episode is not over.

Each library plays in several ways: as shipped, and as fast as possible without changes to its environment. The ratios
compare ours to the fastest way of a peer, and to the way as shipped:

- rl4co resets whole batches, so its counterpart here is `routing_gym.rollout`. It ships a policy that calls
  `torch.multinomial`; drawing the rank of a legal node with one random number per lane is faster.
- Jumanji's lanes are reset automatically, so its counterpart is the vector environment with `copy=False`. As
  shipped: the jitted step called from Python, with a policy that draws a number per node. Faster: the cheap
  policy, and many steps compiled into one `jax.lax.scan`, which only a policy written in JAX can use.

Our own compiled loop, on JAX, plays the same as Jumanji's, with the same policy, and resets only the lanes that ended;
`compiled_times_fastest` compares it to the fastest way of a peer. It needs the extra [jax] in this environment.

"Transitions alone" leaves out actions and resets. Jumanji's step draws an instance per lane at every step, needed
or not, so it is also measured with its resets, which is how users call it.
"""

from __future__ import annotations

import os
import shutil
import statistics
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.arguments import check_problems
from benchmarks.output import OUT, Figures, finish
from benchmarks.worker_process import ONE_THREAD, OURS, WorkerError, WorkerProcess, start
from routing_agents.runs import check_integers, check_numbers
from routing_agents.terminal import command_line

ROOT = Path(__file__).parents[2]
OURS_COMPILED = f"{OURS}-jax"
PEERS = ("rl4co", "jumanji")
LOOPS = {"rl4co": "rollout", "jumanji": "vector env, copy=False"}  # our counterpart of each peer
SHIPPED = {"rl4co": "loop, its own policy", "jumanji": "call per step, its own policy"}
ALONE = "transitions alone"


@dataclass(frozen=True)
class Args:
    """Arguments of the benchmark."""

    rl4co_python: Path = ROOT / ".venv-rl4co" / "bin" / "python"
    """Python of the virtual environment with rl4co."""
    jumanji_python: Path = ROOT / ".venv-jumanji" / "bin" / "python"
    """Python of the virtual environment with Jumanji."""
    peers: tuple[Literal["rl4co", "jumanji"], ...] = PEERS
    """Whom to measure beside ours; our compiled loop comes with Jumanji."""
    problems: tuple[str, ...] = ("TSP-50", "CVRP-50")
    """What to step, as in the ids after "routing/". Jumanji has TSP and CVRP, rl4co also PDP, MTSP, ATSP and the VRP
    family."""
    lanes: tuple[int, ...] = (1, 64, 1024, 8192)
    """Numbers of lanes."""
    repeats: int = 5
    """Runs of each way to play, in turn with the others; the median counts."""
    seconds: float = 0.2
    """Approximate seconds of a run; at least one batch of episodes."""
    seed: int = 0
    """Random seed for instances and actions."""
    clock: Literal["wall", "processor"] = "wall"
    """What seconds are: by the clock, or of the processor; the latter serves where other programs are busy."""
    out: Path = OUT / "env_peers.json"
    """Where the figures go. The docs show those in benchmarks/results."""

    def __post_init__(self) -> None:
        check_problems(*self.problems)
        if not self.peers:
            raise ValueError(f"--peers: name at least one of {', '.join(PEERS)}")
        check_integers(self, "lanes", "repeats")
        check_numbers(self, "seconds")


@contextmanager
def start_workers(args: Args) -> Iterator[dict[str, WorkerProcess]]:
    """Start the processes of all libraries, pinned to one core.

    Raises:
        WorkerError: A virtual environment or `taskset` is missing, or a process does not start.
    """
    if shutil.which("taskset") is None:
        raise WorkerError("taskset not found; it is part of util-linux, and this benchmark runs on Linux only")
    pin = ("taskset", "--cpu-list", str(max(os.sched_getaffinity(0))))
    pythons: dict[str, Path | None] = {OURS: None}
    if "rl4co" in args.peers:
        pythons["rl4co"] = args.rl4co_python
    if "jumanji" in args.peers:
        pythons |= {OURS_COMPILED: None, "jumanji": args.jumanji_python}
    environment = {**ONE_THREAD, "CLOCK": args.clock}
    with ExitStack() as resources:
        yield {
            name: resources.enter_context(
                start(name, f"{name.replace('-', '_')}_worker.py", python, pin, **environment)
            )
            for name, python in pythons.items()
        }


def prepare(worker: WorkerProcess, problem: str, lanes: int, args: Args) -> dict[str, float]:
    """Set up a problem; return the ways to play it, with the seconds that each took to compile."""
    name, num_nodes = problem.split("-")
    settings = {"num_nodes": int(num_nodes), "lanes": lanes, "seed": args.seed, "seconds": args.seconds}
    ways: dict[str, float] = worker.do({"prepare": {"problem": name, **settings}}, "ways")["ways"]
    return ways


def rate(worker: WorkerProcess, way: str) -> float:
    """Play in one way; return the steps per second."""
    played = worker.do({"time": way}, "steps", "seconds")
    return float(played["steps"]) / float(played["seconds"])


def measure(workers: dict[str, WorkerProcess], args: Args, problem: str, lanes: int) -> list[Figures]:
    """Measure all ways to play one problem with one number of lanes, in turn."""
    compiling = {
        (name, way): seconds
        for name, worker in workers.items()
        for way, seconds in prepare(worker, problem, lanes, args).items()
    }
    rates: dict[tuple[str, str], list[float]] = {key: [] for key in compiling}
    for _ in range(args.repeats):
        for (name, way), measured in rates.items():
            measured.append(rate(workers[name], way))
    return [
        {
            "problem": problem,
            "lanes": lanes,
            "library": name,
            "way": way,
            "steps_per_second": statistics.median(measured),
            "most_steps_per_second": max(measured),
            "seconds_to_compile": compiling[name, way],
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
        if not theirs:
            continue
        loops = {way: rate for way, rate in theirs.items() if not way.startswith(ALONE)}
        fastest = max(loops, key=lambda way: loops[way])
        fastest_alone = max(rate for way, rate in theirs.items() if way.startswith(ALONE))
        ours, compiled = rate_of[OURS, counterpart], rate_of.get((OURS_COMPILED, "scan"))
        comparisons.append(
            {
                "problem": problem,
                "lanes": lanes,
                "peer": peer,
                "ours": counterpart,
                "fastest_way": fastest,
                "times_fastest": ours / loops[fastest],
                "times_shipped": ours / loops[SHIPPED[peer]],
                "compiled_times_fastest": None if compiled is None else compiled / loops[fastest],
                "default_vector_env_times_fastest": rate_of[OURS, "vector env"] / loops[fastest],
                "transitions_alone_times": rate_of[OURS, ALONE] / fastest_alone,
            }
        )
    return comparisons


def tables(rows: list[Figures], comparisons: list[Figures], lanes: tuple[int, ...]) -> tuple[Table, Table]:
    """Return tables of the rates and of the comparisons."""
    rate_of = {(row["problem"], row["library"], row["way"], row["lanes"]): row["steps_per_second"] for row in rows}
    rates = Table("problem", "library", "way", *map(str, lanes), title="Steps per second, by number of lanes")
    for problem, library, way in dict.fromkeys(key[:3] for key in rate_of):
        rates.add_row(problem, library, way, *(f"{rate_of[problem, library, way, count]:,.0f}" for count in lanes))
    columns = ("problem", "lanes", "peer", "fastest loop", "as shipped", "alone", "compiled, fastest loop")
    times = Table(*columns, title="Times as fast as the peer")
    for row in comparisons:
        keys = ("times_fastest", "times_shipped", "transitions_alone_times", "compiled_times_fastest")
        ratios = ("-" if row[key] is None else f"{row[key]:.1f}" for key in keys)
        times.add_row(row["problem"], str(row["lanes"]), row["peer"], *ratios)
    return rates, times


def main(args: Args) -> Figures:
    """Measure, print tables, and write the figures."""
    rows, comparisons = [], []
    settings = [(problem, lanes) for problem in args.problems for lanes in args.lanes]
    with start_workers(args) as workers:
        peers = {name: worker.versions for name, worker in workers.items() if name != OURS}
        for problem, lanes in track(settings, "Measuring", console=Console(stderr=True)):
            measured = measure(workers, args, problem, lanes)
            rows += measured
            comparisons += compare(measured)
    figures = {"rows": rows, "comparisons": comparisons}
    return finish(args, figures, *tables(rows, comparisons, args.lanes), about={"peers": peers})


if __name__ == "__main__":
    command_line(main, Args, __doc__, (WorkerError,), stopped="stopped; nothing written")
