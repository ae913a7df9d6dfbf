"""The asking half of a benchmark that times several libraries, each in a process of its own Python."""

from __future__ import annotations

import contextlib
import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any


class Worker:
    """A process of one library that times jobs; see peers/timing_worker.py."""

    def __init__(self, python: str | Path, script: Path) -> None:
        self.name = f"{python} {script}"
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  (closed by `close`)
        self.process = subprocess.Popen(
            [str(python), str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
        )

    def ask(self, job: dict[str, Any]) -> None:
        """Hand over a job and go on."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # `answer` says why
            print(json.dumps(job), file=self.process.stdin, flush=True)

    def answer(self) -> dict[str, Any]:
        """Wait for the answer to a job.

        Raises:
            RuntimeError: The process has ended instead; with its last words.
        """
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            self.errors.seek(0)
            last_words = self.errors.read().strip().splitlines() or [f"exit status {self.process.returncode}"]
            raise RuntimeError(f"{self.name}: {last_words[-1]}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """End the process, and with it what it holds."""
        self.process.kill()
        self.process.communicate()
        self.errors.close()
