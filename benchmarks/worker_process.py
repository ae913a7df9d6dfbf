"""Communication of a benchmark with libraries, each in a process with its own Python; see also `peers/worker.py`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

PEERS = Path(__file__).parent / "peers"
OURS = "routing-gym"
ONE_THREAD = {
    **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "JAX_PLATFORMS": "cpu",
    "CUDA_VISIBLE_DEVICES": "",
}
Message = dict[str, Any]


class WorkerError(RuntimeError):
    """A library cannot be started, or its answer is invalid."""


class WorkerProcess:
    """A process of one library."""

    def __init__(self, name: str, process: subprocess.Popen[str], errors: TextIO) -> None:
        self.name, self.process, self.errors = name, process, errors
        self.versions: dict[str, str] = self.answer("versions")["versions"]

    def ask(self, job: Message) -> None:
        """Send a job without waiting for its answer."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # `answer` raises an error with the reason
            print(json.dumps(job), file=self.process.stdin, flush=True)

    def answer(self, *keys: str) -> Message:
        """Wait for an answer.

        Raises:
            WorkerError: The process has ended (the message has its last line), or some of the keys are missing.
        """
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            status = self.process.wait()
            self.errors.seek(0)
            last_words = self.errors.read().strip().splitlines() or ["no message"]
            raise WorkerError(f"{self.name} ended with status {status}: {last_words[-1]}")
        try:
            message = json.loads(line)
        except json.JSONDecodeError:
            message = None
        if not isinstance(message, dict) or not set(keys) <= set(message):
            raise WorkerError(f"{self.name}: expected a JSON object with {', '.join(keys)}; got {line.strip()!r}")
        return message

    def do(self, job: Message, *keys: str) -> Message:
        """Send a job and wait for its answer."""
        self.ask(job)
        return self.answer(*keys)


def check_python(name: str, python: Path) -> str:
    """Check that the Python of a library's virtual environment can be run; return how to make the environment.

    Raises:
        WorkerError: It does not exist, or is no program.
    """
    hint = (
        f"make its environment with `python3 -m venv .venv-{name} && .venv-{name}/bin/pip install -r "
        f"benchmarks/peers/requirements-{name}.txt`, or name another with --{name}-python"
    )
    if not python.exists():
        raise WorkerError(f"{python} does not exist; {hint}")
    if not (python.is_file() and os.access(python, os.X_OK)):
        raise WorkerError(f"{python} is no program that can be run; {hint}")
    return hint


@contextmanager
def start(
    name: str, script: str, python: Path | None = None, prefix: tuple[str, ...] = (), **environment: str
) -> Iterator[WorkerProcess]:
    """Start a process of a library, and kill it at the end of the context.

    Args:
        name: Name of the library.
        script: Name of a script in `PEERS`.
        python: Python of the library's virtual environment; by default the running one.
        prefix: Words of the command before the Python.
        environment: Environment variables to set.

    Raises:
        WorkerError: The process does not start.
    """
    hint = check_python(name, python) if python else ""
    command = [*prefix, str(python or sys.executable), "-W", "ignore", str(PEERS / script)]
    with (
        tempfile.TemporaryFile("w+") as errors,  # unlike a pipe, takes any number of lines
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, **environment},
        ) as process,
    ):
        try:
            try:
                worker = WorkerProcess(name, process, errors)
            except WorkerError as error:
                raise WorkerError(f"{error}; {hint}" if python else str(error)) from None
            yield worker
        finally:
            process.kill()
