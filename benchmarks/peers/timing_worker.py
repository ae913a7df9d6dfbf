"""The half of `train_throughput.py` that runs inside a worker process, the same for every library.

A worker reads one job per line (JSON), runs it, and answers with one line: the seconds of each run, the
largest memory the process has used, and what the library adds. What is built for a job is kept for the next
of its kind; the first runs of a job are for the asker to discard.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

Job = dict[str, Any]
Prepare = Callable[[Job], tuple[Callable[[], object], dict[str, Any]]]  # what to time, and facts for the answer


def matrix_product(job: Job) -> tuple[Callable[[], object], dict[str, Any]]:
    """Prepare the product that stands for the peak of the machine."""
    size = 2048 if job["device"] == "cpu" else 8192
    a = torch.rand(size, size, device=job["device"]).to(getattr(torch, job["precision"]))
    return lambda: a @ a, {"operations": 2 * size**3}


def timed(run: Callable[[], object], cuda: bool) -> float:
    """Return the seconds of one run, to its end on the device."""
    if cuda:
        torch.cuda.synchronize()
    started = time.perf_counter()
    run()
    if cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - started


def serve(prepare: Prepare) -> None:
    """Answer jobs until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    prepared: dict[str, Any] = {}
    for line in sys.stdin:
        job = json.loads(line)
        torch.set_num_threads(job.pop("threads"))
        repeats, cuda = job.pop("repeats"), job["device"] != "cpu"
        key = json.dumps(job)
        if key not in prepared:
            prepared[key] = (matrix_product if job["task"] == "matrix product" else prepare)(job)
        run, facts = prepared[key]
        seconds = [timed(run, cuda) for _ in range(repeats)]
        resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        peak = torch.cuda.max_memory_allocated() if cuda else resident
        print(json.dumps({"seconds": seconds, "peak_bytes": peak, **facts}), file=answers, flush=True)
