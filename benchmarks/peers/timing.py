"""Jobs of `train_throughput.py`: run a task several times; the answer is the seconds of each run, and the peak memory.

The function that is built for a job is kept for later jobs of the same kind. The caller should discard the first runs
of a job.
"""

from __future__ import annotations

import json
import os
import resource
import time
from collections.abc import Callable
from typing import Any

import torch
from worker import Answer, Job

clock = time.process_time if os.environ.get("CLOCK") == "processor" else time.perf_counter
Prepare = Callable[[Job], tuple[Callable[[], object], dict[str, Any]]]  # function to time, and facts for the answer


def matrix_product(job: Job) -> tuple[Callable[[], object], dict[str, Any]]:
    """Prepare the matrix product whose rate stands for the peak of the machine."""
    size = 2048 if job["device"] == "cpu" else 8192
    a = torch.rand(size, size, device=job["device"]).to(getattr(torch, job["precision"]))
    return lambda: a @ a, {"operations": 2 * size**3}


def timed(run: Callable[[], object], cuda: bool) -> float:
    """Return the seconds of one run, until the device has finished it."""
    if cuda:
        torch.cuda.synchronize()
    started = clock()
    run()
    if cuda:
        torch.cuda.synchronize()
    return clock() - started


def timing(prepare: Prepare) -> Callable[[Job], Answer]:
    """Return the function that answers the jobs."""
    prepared: dict[str, Any] = {}

    def answer(job: Job) -> Answer:
        torch.set_num_threads(job.pop("threads"))
        repeats, cuda = job.pop("repeats"), job["device"] != "cpu"
        key = json.dumps(job)
        if key not in prepared:
            prepared[key] = (matrix_product if job["task"] == "matrix product" else prepare)(job)
        run, facts = prepared[key]
        seconds = [timed(run, cuda) for _ in range(repeats)]
        resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        peak = torch.cuda.max_memory_allocated() if cuda else resident
        return {"seconds": seconds, "peak_bytes": peak, **facts}

    return answer
