"""The jobs of `env_peers.py`: play a problem with many lanes, in one of several ways. Needs no package.

-> {"prepare": {"problem": "TSP", "num_nodes": 50, "lanes": 64, "seed": 0, "seconds": 0.3}}
<- {"ways": {"loop": 1.2, ...}}           and what the first round of each took beyond the second, to compile
-> {"time": "loop"}
<- {"steps": 128000, "seconds": 0.31}
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from worker import Answer, Job

clock = time.process_time if os.environ.get("CLOCK") == "processor" else time.perf_counter
Way = Callable[[int], tuple[int, float]]  # number of rounds to play -> transitions made, and seconds they took


def playing(prepare: Callable[[str, int, int, int], dict[str, Way]]) -> Callable[[Job], Answer]:
    """Return what answers the jobs.

    Args:
        prepare: From problem ("TSP", say), number of nodes, lanes and seed, make the ways to play it.
    """
    ways: dict[str, tuple[Way, int]] = {}

    def answer(job: Job) -> Answer:
        if "prepare" in job:
            wanted = job["prepare"]
            ways.clear()
            made = prepare(wanted["problem"], wanted["num_nodes"], wanted["lanes"], wanted["seed"])
            warm_up = {}
            for name, way in made.items():
                first, second = way(1)[1], way(1)[1]
                warm_up[name] = max(0.0, first - second)
                ways[name] = (way, max(1, round(wanted["seconds"] / second)))
            return {"ways": warm_up}
        way, rounds = ways[job["time"]]
        steps, seconds = way(rounds)
        return {"steps": steps, "seconds": seconds}

    return answer
