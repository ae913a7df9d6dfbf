"""Training and decoding speed of the attention model, against rl4co and against the machine's matrix products.

    python benchmarks/training/train_throughput.py
    python benchmarks/training/train_throughput.py --rl4co-python .venv-rl4co/bin/python
    python benchmarks/training/train_throughput.py --device cuda --problems TSP-20 TSP-50 TSP-100 CVRP-100 --threads 1
        --batch-sizes 512 4096 --rl4co-python .venv-rl4co/bin/python      # on a GPU

rl4co is installed in its own virtual environment; without it, only our library is measured:

    python3 -m venv .venv-rl4co && .venv-rl4co/bin/pip install -r benchmarks/peers/requirements-rl4co.txt

Each library runs in its own process (benchmarks/peers/). The processes take turns, round after round, and medians are
reported. One training step is everything that `am_reinforce.py` does per batch: generate, encode, sample, baseline,
score, backward, optimiser; for rl4co see peers/train_rl4co.py. "2 x 1" threads are two single-threaded processes with
half the batch each, which exchange nothing: an upper bound of data-parallel training.

The time that arithmetic alone would take is the number of the model's own operations, divided by the measured rate of
one large matrix product of the same precision on the same number of threads. Its share of the time taken is reported.
With float32, all operations are in float32; with bfloat16, the encoder's products are in bfloat16 (rl4co: all under
autocast). Comparisons divide the speed of our fastest precision by that of rl4co's fastest. Precisions that the
processor emulates are skipped.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.arguments import check_problems
from benchmarks.output import OUT, Figures, finish
from benchmarks.training.operation_counts import task_operations
from benchmarks.worker_process import OURS, WorkerError, WorkerProcess, start
from routing_agents.runs import check_integers
from routing_agents.terminal import command_line
from routing_agents.training.tuning import fast_precision

RL4CO = "rl4co"


@dataclass(frozen=True)
class Args:
    """Arguments of the benchmark."""

    problems: tuple[str, ...] = ("TSP-20", "TSP-50", "CVRP-20", "CVRP-50")
    """What to solve, as in the ids after "routing/"."""
    tasks: tuple[str, ...] = ("rollout", "shared", "greedy")
    """Training with am_reinforce.py's rollout or shared baseline (the latter for ours alone), and greedy decoding."""
    num_starts: int = 8
    """Tours per instance of the shared baseline."""
    batch_sizes: tuple[int, ...] = (512,)
    """Instances per step."""
    threads: tuple[int, ...] = (1, 2)
    """Numbers of CPU threads."""
    precisions: tuple[str, ...] = ("float32", "bfloat16")
    """Precisions of the matrix products; bfloat16 is skipped on processors without instructions for it."""
    device: str = "cpu"
    """cpu or cuda."""
    rounds: int = 3
    """Timed rounds after one that is not; the median counts."""
    memory_problems: tuple[str, ...] = ("TSP-50",)
    """Where the peak memory of training with the rollout baseline is measured, each time in a fresh process."""
    keep_memory: bool = True
    """Have the allocator of our processes keep freed memory, as am_reinforce.py does."""
    clock: Literal["wall", "processor"] = "wall"
    """What seconds are: by the clock, or of the processor; the latter serves where other programs are busy."""
    rl4co_python: Path | None = None
    """The Python of a virtual environment with rl4co; without it, ours alone is measured."""
    out: Path = OUT / "train_throughput.json"
    """Where the figures go. The docs show those in benchmarks/results."""

    def __post_init__(self) -> None:
        check_problems(*self.problems)
        check_integers(self, "num_starts", "batch_sizes", "threads", "rounds")
        unknown = sorted(set(self.tasks) - {"rollout", "shared", "greedy"})
        if unknown:
            raise ValueError(f"--tasks are rollout, shared and greedy, got {', '.join(unknown)}")
        if self.clock == "processor" and (self.threads != (1,) or self.device != "cpu"):
            raise ValueError("--clock processor adds up the seconds of all threads: give --threads 1 --device cpu")
        odd = [size for size in self.batch_sizes if any(size % threads for threads in self.threads)]
        if odd:
            raise ValueError(f"--batch-sizes must be multiples of --threads, for as many processes; got {odd[0]}")


@dataclass(frozen=True)
class Configuration:
    """Participant of a round: a library with its precision, threads and processes."""

    library: str
    precision: str
    threads: int
    processes: int = 1


@contextmanager
def start_workers(args: Args, library: str, processes: int = 1) -> Iterator[list[WorkerProcess]]:
    """Start processes of a library, which end with the context."""
    python, script = (args.rl4co_python, "train_rl4co.py") if library == RL4CO else (None, "train_routing_gym.py")
    with ExitStack() as resources:
        yield [resources.enter_context(start(library, script, python, CLOCK=args.clock)) for _ in range(processes)]


def configurations(args: Args, task: str, threads: int) -> list[Configuration]:
    """List the configurations that take turns at one task."""
    single = [Configuration(OURS, precision, threads) for precision in args.precisions]
    several = [Configuration(OURS, precision, 1, threads) for precision in args.precisions if threads > 1]
    peer = [Configuration(RL4CO, precision, threads) for precision in args.precisions]
    return [*single, *several, *(peer if args.rl4co_python and task != "shared" else [])]


def run(
    args: Args,
    workers: dict[str, list[WorkerProcess]],
    configuration: Configuration,
    task: str,
    problem: str,
    batch_size: int,
) -> Figures:
    """Run a configuration once; return the answer of its first process, with the seconds of the slowest process."""
    job = {
        "task": task,
        "problem": problem,
        "batch_size": batch_size // configuration.processes,
        "num_starts": args.num_starts,
        "precision": configuration.precision,
        "threads": configuration.threads,
        "device": args.device,
        "keep_memory": args.keep_memory,
        "repeats": 1 if task in ("rollout", "shared") else 3,
    }
    busy = workers[configuration.library][: configuration.processes]
    for worker in busy:
        worker.ask(job)
    answers = [worker.answer("seconds", "peak_bytes") for worker in busy]
    return {**answers[0], "seconds": max(statistics.median(answer["seconds"]) for answer in answers)}


def measure(
    args: Args, workers: dict[str, list[WorkerProcess]], task: str, problem: str, batch_size: int, threads: int
) -> list[Figures]:
    """Measure all configurations of one task in turn, and the matrix products."""
    products = [Configuration(OURS, precision, threads) for precision in args.precisions]
    turns = [(c, task) for c in configurations(args, task, threads)] + [(c, "matrix product") for c in products]
    answers: dict[tuple[Configuration, str], list[Figures]] = {turn: [] for turn in turns}
    for _ in range(1 + args.rounds):
        for turn in turns:
            answers[turn].append(run(args, workers, *turn, problem, batch_size))
    seconds = {turn: [answer["seconds"] for answer in answers[turn][1:]] for turn in turns}
    facts = answers[turns[0]][0]  # the first turn is ours
    operations = task_operations(task, problem, facts["num_tours"], facts["num_steps"])
    rates = {
        c.precision: answers[c, "matrix product"][0]["operations"] / statistics.median(seconds[c, "matrix product"])
        for c in products
    }
    rows = []
    for configuration in configurations(args, task, threads):
        times = seconds[configuration, task]
        speed = batch_size / statistics.median(times)
        rows.append(
            {
                "task": task,
                "problem": problem,
                "batch_size": batch_size,
                **asdict(configuration),
                "instances_per_second": speed,
                "slowest_over_fastest": max(times) / min(times),
                "operations_per_instance": operations,
                "matrix_product_rate": rates[configuration.precision],
                "share_of_rate": operations * speed / rates[configuration.precision],
            }
        )
    return rows


def compare(rows: list[Figures]) -> list[Figures]:
    """Divide our highest speed by rl4co's on as many cores, task by task: with one process, and with any number.

    Returns:
        One entry per task, problem, batch size and number of cores for which there is a row of rl4co.
    """

    def cell(row: Figures) -> tuple[Any, ...]:
        return row["task"], row["problem"], row["batch_size"], row["threads"] * row["processes"]

    comparisons = []
    for key in dict.fromkeys(map(cell, rows)):
        speeds = [(row, row["instances_per_second"]) for row in rows if cell(row) == key]
        peer = max((speed for row, speed in speeds if row["library"] == RL4CO), default=None)
        if peer is None:
            continue
        task, problem, batch_size, cores = key
        ours = [(row["processes"], speed) for row, speed in speeds if row["library"] == OURS]
        comparisons.append(
            {
                "task": task,
                "problem": problem,
                "batch_size": batch_size,
                "cores": cores,
                "times_rl4co": max(speed for processes, speed in ours if processes == 1) / peer,
                "times_rl4co_any_processes": max(speed for _, speed in ours) / peer,
            }
        )
    return comparisons


def measure_memory(args: Args, problem: str) -> list[Figures]:
    """Measure the peak memory of training by library and precision, each in a fresh process."""
    rows = []
    for library in (OURS, RL4CO) if args.rl4co_python else (OURS,):
        for precision in args.precisions:
            configuration = Configuration(library, precision, args.threads[0])
            with start_workers(args, library) as workers:
                for _ in range(3):
                    answer = run(args, {library: workers}, configuration, "rollout", problem, args.batch_sizes[0])
            rows.append({"problem": problem, **asdict(configuration), "peak_bytes": answer["peak_bytes"]})
    for row in rows:
        peers = [peer["peak_bytes"] for peer in rows if peer["library"] == RL4CO]
        row["share_of_rl4co"] = row["peak_bytes"] / min(peers) if peers else None
    return rows


def tables(rows: list[Figures], comparisons: list[Figures], memory: list[Figures]) -> list[Table]:
    """Return tables of the speeds and, if they were measured, of the comparisons and the memory."""
    columns = ("task", "problem", "batch", "library", "precision", "threads", "instances/s", "share of peak")
    speed = Table(*columns, title="Speed")
    for row in rows:
        threads = f"{row['processes']} x {row['threads']}" if row["processes"] > 1 else str(row["threads"])
        cells = (row["task"], row["problem"], str(row["batch_size"]), row["library"], row["precision"], threads)
        speed.add_row(*cells, f"{row['instances_per_second']:,.0f}", f"{row['share_of_rate']:.0%}")
    columns = ("task", "problem", "batch", "cores", "x rl4co", "in processes")
    times = Table(*columns, title="Our fastest over rl4co's fastest, on as many cores")
    for row in comparisons:
        cells = (row["task"], row["problem"], str(row["batch_size"]), str(row["cores"]), f"{row['times_rl4co']:.2f}")
        times.add_row(*cells, f"{row['times_rl4co_any_processes']:.2f}" if row["cores"] > 1 else "")
    peaks = Table("problem", "library", "precision", "GB", "of rl4co's", title="Peak memory of training")
    for row in memory:
        share = "" if row["share_of_rl4co"] is None else f"{row['share_of_rl4co']:.0%}"
        peaks.add_row(row["problem"], row["library"], row["precision"], f"{row['peak_bytes'] / 1e9:.2f}", share)
    return [table for table in (speed, times, peaks) if table.row_count]


def without_emulated(args: Args) -> Args:
    """Return the arguments without bfloat16 if the device emulates it, which would take many times as long.

    Raises:
        ValueError: The device emulates bfloat16, and the arguments contain no other precision.
    """
    if "bfloat16" not in args.precisions or fast_precision(args.device) == "bfloat16":
        return args
    found = f"{args.device} has no instructions for bfloat16 and would emulate it"
    left = tuple(precision for precision in args.precisions if precision != "bfloat16")
    if not left:
        raise ValueError(f"--precisions bfloat16: {found}; choose float32")
    Console(stderr=True).print(f"bfloat16 is skipped: {found}")
    return replace(args, precisions=left)


def main(args: Args) -> Figures:
    """Measure, print tables, and write the figures."""
    args, rows, versions = without_emulated(args), [], None
    cells = list(itertools.product(args.tasks, args.problems, args.batch_sizes, args.threads))
    with ExitStack() as stack:
        workers = {}
        if args.rl4co_python:
            workers[RL4CO] = stack.enter_context(start_workers(args, RL4CO))
            versions = workers[RL4CO][0].versions
        workers[OURS] = stack.enter_context(start_workers(args, OURS, max(args.threads)))
        for cell in track(cells, "Speed", console=Console(stderr=True)):
            rows += measure(args, workers, *cell)
            finish(args, {"rl4co": versions, "rows": rows})
    memory = [row for problem in args.memory_problems for row in measure_memory(args, problem)]
    comparisons = compare(rows)
    figures = {"rl4co": versions, "rows": rows, "comparisons": comparisons, "memory": memory}
    return finish(args, figures, *tables(rows, comparisons, memory))


if __name__ == "__main__":
    command_line(main, Args, __doc__, (WorkerError,))
