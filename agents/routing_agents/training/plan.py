"""Plans: runs that are trained one after the other, each in its own process, for hours or days.

A plan is a TOML file with one table for each run. The keys of a table are the arguments of am_reinforce.py, and its
name is that of the run's folder. After any interruption, the same command continues the plan: the next run and its
checkpoint are read from the folders.
"""

from __future__ import annotations

import dataclasses
import io
import json
import signal
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import filelock

from routing_agents import checkpoint, runs
from routing_agents.arguments import flags
from routing_agents.header import from_json
from routing_agents.policies.attention.encoder import ModelConfig
from routing_agents.runs import LAST, LOCK, option
from routing_agents.terminal import plain_console
from routing_agents.training.report import METRICS, check_log, read_metrics
from routing_agents.training.stopping import StopRequest, hours, reason_to_stop
from routing_gym.files import write_atomically

ATTEMPTS = 3  # largest number of consecutive starts of a run that end before an epoch is complete
POLL_SECONDS = 2.0
NOT_IN_A_PLAN = {"name": "the table has the name", "runs": "give --runs beside --plan", "resume": "runs are resumed"}
NOT_IN_A_PLAN |= {"plan": "plans hold runs only"}


@dataclass(frozen=True)
class Entry:
    """One run of a plan.

    Attributes:
        folder: Folder of the run.
        args: Arguments of the run.
    """

    folder: Path
    args: Any

    @property
    def name(self) -> str:
        """Name of the table, and of the folder."""
        return self.folder.name

    def rows(self) -> list[dict[str, float]]:
        """Return the rows of the run's log.

        Raises:
            ValueError: A line is damaged.
        """
        return read_metrics(self.folder / METRICS)

    def step(self) -> int:
        """Return the number of steps in the run's checkpoint; -1 without one."""
        path = self.folder / LAST
        return int(checkpoint.load(path)[1]["step"]) if path.is_file() else -1

    def ended(self) -> bool:
        """Return whether the run has made all its steps or ended early; epochs after its checkpoint do not count."""
        step, args = self.step(), self.args
        rows = [row for row in self.rows() if row["epoch"] * args.steps_per_epoch <= step]
        return step >= args.total_steps or bool(reason_to_stop(rows, args.patience, args.hours))

    def command(self, script: str) -> list[str]:
        """Return the command that starts or resumes the run."""
        if self.step() >= 0:
            return [sys.executable, script, "--resume", str(self.folder)]
        where = ["--name", self.name, "--runs", str(self.folder.parent)]
        return [sys.executable, script, *flags(self.args, type(self.args)()), *where]


def read_plan(path: Path, folder: Path, args_type: type[Any]) -> list[Entry]:
    """Read the runs of a plan, in its order.

    Args:
        path: TOML file to read.
        folder: Folder in which run folders are made.
        args_type: Dataclass of the arguments of a run.

    Raises:
        ValueError: The file is not a plan; the message has the table and the key.
    """
    try:
        tables = tomllib.loads(path.read_bytes().decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: no TOML file: {error}") from None
    if not tables:
        raise ValueError(f"{path}: holds no run; write a table of arguments for each, such as [tsp-50]")
    entries: list[Entry] = []
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise ValueError(f"{path}: {name} stands outside of a table; each run is a table, such as [tsp-50]")
        try:
            entry = read_entry(folder / runs.checked_name(name), table, args_type)
            weights = entry.args.init_from
            if weights is not None and not (entry.folder / LAST).is_file():  # a run that has begun needs them no more
                earlier = (one.args for one in entries if weights.resolve().is_relative_to(one.folder.resolve()))
                entry.args.check_initial_weights(next(earlier, None))
        except (TypeError, ValueError, ImportError, OSError) as error:
            raise ValueError(f"{path}: [{name}]: {error}") from None
        entries.append(entry)
    return entries


def read_entry(folder: Path, table: dict[str, Any], args_type: type[Any]) -> Entry:
    """Read the arguments of a run; those of the network are at the same level as the others, like on the command line.

    Raises:
        ValueError: An argument is unknown, or its value is invalid.
    """
    fields = {field.name: field for field in dataclasses.fields(args_type)}
    network = [field.name for field in dataclasses.fields(ModelConfig)]
    given: dict[str, Any] = {}
    for key, value in table.items():
        name = key.replace("-", "_")
        if name in NOT_IN_A_PLAN:
            raise ValueError(f"leave out {key}: {NOT_IN_A_PLAN[name]}")
        if name not in network and (name not in fields or name == "attention"):
            known = ", ".join(one.replace("_", "-") for one in (*fields, *network) if one not in NOT_IN_A_PLAN)
            raise ValueError(f"no argument {key}; there are {known.replace('attention, ', '')}")
        if name == "env_kwargs" and isinstance(value, dict):
            value = {setting: value_text(one) for setting, one in value.items()}
        (given.setdefault("attention", {}) if name in network else given)[name] = value
    usual = dataclasses.asdict(args_type().attention)
    values = given | {"attention": usual | given.get("attention", {})}
    init_from = values.pop("init_from", None)
    if init_from is not None and not isinstance(init_from, str):
        raise ValueError(f"init-from is {init_from!r}; expected the path of a run or of a checkpoint, as a text")
    args = from_json(args_type, values)
    args.make_problem()
    runs.choose_device(args.device)
    check_log(args)
    return Entry(folder, dataclasses.replace(args, init_from=init_from and Path(init_from)))


def value_text(value: Any) -> str:
    """Return a setting of a problem as it is written on the command line."""
    return value if isinstance(value, str) else json.dumps(value)


def check_unchanged(entry: Entry) -> None:
    """Check that a run in progress was started with the arguments that the plan gives.

    Raises:
        ValueError: An argument differs; the message has the first one.
    """
    path = entry.folder / "args.json"
    if not path.is_file():
        return
    try:
        found = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"[{entry.name}]: {path}: not the arguments of a run ({error}); delete the folder") from error
    wanted = json.loads(json.dumps(entry.args.chosen().as_started()))
    for key in (key for key in found if key in wanted and key != "name"):
        by_machine = key == "precision" and wanted[key] == "auto"
        if not by_machine and found[key] != wanted[key]:
            raise ValueError(
                f"[{entry.name}]: {entry.folder} was started with {option(key)} {found[key]}, the plan says "
                f"{wanted[key]}; give the table another name, or delete the folder"
            )


def follow(args: Any, script: str) -> int:
    """Train the runs of the plan `args.plan` in turn, each to its end; return the exit status.

    A run that ends with an error is started again, and given up if it makes no progress; the plan then continues with
    the next run. Ctrl-C or SIGTERM stops and saves the run in progress, and ends the plan.

    Args:
        args: Arguments of the command line: only `plan` and `runs` may be given.
        script: Path of the script that trains a run.

    Raises:
        ValueError: Other arguments are given, the plan is faulty, or it was changed for a run in progress.
    """
    if others := [option(name) for name in runs.changed(args) if name not in ("plan", "runs")]:
        raise ValueError(f"--plan holds the arguments of the runs; leave out {', '.join(others)}")
    entries = read_plan(args.plan, args.runs, type(args))
    for entry in entries:
        check_unchanged(entry)
    args.runs.mkdir(parents=True, exist_ok=True)
    failed = []
    with StopRequest() as stop:
        for entry in entries:
            done = train(entry, entries, script, stop)
            write_progress(entries, args.runs)
            if stop.requested:
                again = runs.command(Path(script).name, "--plan", args.plan, "--runs", args.runs)
                print(f"Stopped. Go on with: {again}")
                return 0
            failed += [] if done else [entry.name]
    plain_console().print(progress_table(entries))
    if failed:
        print(f"Failed, see above: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def train(entry: Entry, entries: list[Entry], script: str, stop: StopRequest) -> bool:
    """Train one run until it ends or is stopped; return False if it failed."""
    attempts = 0
    while attempts < ATTEMPTS:
        before = entry.step()
        wait_for_others(entry, stop)
        if stop.requested or entry.ended():
            return True
        command = entry.command(script)
        print(f"[{entry.name}] {' '.join(command[1:])}", flush=True)
        with subprocess.Popen(command, start_new_session=True) as process:  # Ctrl-C reaches this process only
            status = watch(process, entries, entry, stop)
        if status == 0 or stop.requested:
            return True
        attempts = 1 if entry.step() > max(before, 0) else attempts + 1
        print(f"[{entry.name}] ended with status {status}", file=sys.stderr, flush=True)
    return False


def wait_for_others(entry: Entry, stop: StopRequest) -> None:
    """Wait while another process trains the run, for example one left by a plan that was killed."""
    if not entry.folder.is_dir():
        return
    lock = filelock.FileLock(entry.folder / LOCK)
    told = False
    while not stop.requested:
        try:
            with lock.acquire(timeout=POLL_SECONDS if told else 0):
                return
        except filelock.Timeout:
            if not told:
                print(f"[{entry.name}] another process is training it: waiting until that ends", flush=True)
            told = True


def watch(process: subprocess.Popen[bytes], entries: list[Entry], entry: Entry, stop: StopRequest) -> int:
    """Wait for the end of a run, update the progress, and forward a request to stop; return the exit status."""
    seen, told = len(entry.rows()), False
    while True:
        try:
            return process.wait(POLL_SECONDS)
        except subprocess.TimeoutExpired:
            pass
        if stop.requested and not told:
            if not runs.WINDOWS:  # Windows would kill it; there, the Ctrl-C has reached the run, too
                process.send_signal(signal.SIGTERM)
            told = True
        if len(entry.rows()) != seen:
            seen = len(entry.rows())
            write_progress(entries, entry.folder.parent)


def progress_table(entries: list[Entry]) -> str:
    """Return the progress and the best evaluation of each run as a Markdown table."""
    lines = ["| run | problem | epochs | instances | hours | best cost | gap |", "|---|---|---|---|---|---|---|"]
    for entry in entries:
        rows = entry.rows()
        cells = [entry.name, entry.args.env_id.removeprefix("routing/"), f"{len(rows)} of {entry.args.epochs}"]
        if not rows:
            lines.append(f"| {' | '.join(cells)} | | | | |")
            continue
        best = min(rows, key=lambda row: row["greedy"])
        problem = runs.problem_of(entry.args.env_id, entry.args.env_kwargs)
        _, cost = runs.shown_cost(problem, best["greedy"])
        cells += [f"{rows[-1]['instances']:,.0f}", f"{hours(rows)[-1]:.2f}", f"{cost:.4f}"]
        cells += [f"{best['gap']:.2%}" if "gap" in best else ""]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def write_progress(entries: list[Entry], folder: Path) -> None:
    """Write the table to progress.md and the curves to progress.png."""
    write_atomically(folder / "progress.md", (progress_table(entries) + "\n").encode())
    started = [entry for entry in entries if entry.rows()]
    if not started:
        return
    from matplotlib.figure import Figure  # slow, and only the process that draws needs it

    figure = Figure(figsize=(6, 2.4 * len(started)), layout="constrained")
    panels = figure.subplots(len(started), squeeze=False)[:, 0]
    for entry, axes in zip(started, panels, strict=True):
        rows = entry.rows()
        name, sign = runs.shown_cost(runs.problem_of(entry.args.env_id, entry.args.env_kwargs), 1)
        has_gap = all("gap" in row for row in rows)
        y = [100 * row["gap"] if has_gap else sign * row["greedy"] for row in rows]
        axes.plot(hours(rows), y, marker=".")
        axes.set(title=entry.name, ylabel="gap [%]" if has_gap else f"greedy {name}")
        axes.grid(alpha=0.3)
    panels[-1].set_xlabel("hours of training")
    picture = io.BytesIO()
    figure.savefig(picture, dpi=100)
    write_atomically(folder / "progress.png", picture.getvalue())
