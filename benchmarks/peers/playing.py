"""Jobs of `env_peers.py` and `game_throughput.py`: play a problem with many lanes, in one of several ways.

-> {"prepare": {"problem": "TSP", "num_nodes": 50, "lanes": 64, "seed": 0, "seconds": 0.3}}
<- {"ways": {"loop": 1.2, ...}}           with the seconds of the first round beyond those of the second: compilation
-> {"time": "loop"}
<- {"steps": 128000, "seconds": 0.31}

Needs the standard library only.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from worker import Answer, Job

clock = time.process_time if os.environ.get("CLOCK") == "processor" else time.perf_counter
Way = Callable[[int], tuple[int, float]]  # number of rounds to play -> transitions made, and seconds they took


def playing(prepare: Callable[[str, int, int, int], dict[str, Way]]) -> Callable[[Job], Answer]:
    """Return the function that answers the jobs.

    Args:
        prepare: Function from problem (such as "TSP"), number of nodes, lanes and seed to the ways to play.
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
