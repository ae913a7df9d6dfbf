"""Protocol between a benchmark and the process of one library: one JSON object per line.

    <- {"versions": {"numpy": ...}}       once, at the start
    -> a job
    <- its answer

`worker_process.py` is the other end. `playing.py` has the jobs of `env_peers.py` and `game_throughput.py`, `timing.py`
those of `train_throughput.py`. Needs the standard library only.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

Job = dict[str, Any]
Answer = dict[str, Any]


def serve(packages: tuple[str, ...], answer: Callable[[Job], Answer]) -> None:
    """Print the versions of some packages, then answer jobs until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # text that libraries print must not mix with the answers

    def say(message: Answer) -> None:
        print(json.dumps(message), file=answers, flush=True)

    say({"versions": {name: version(name) for name in packages}})
    for line in sys.stdin:
        say(answer(json.loads(line)))
