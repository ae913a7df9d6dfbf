"""The jobs of `env_peers.py`: play a problem with many lanes, in one of several ways. Needs no package.

-> {"prepare": {"problem": "TSP", "num_nodes": 50, "lanes": 64, "seed": 0, "seconds": 0.3}}
<- {"ways": ["loop", ...]}
-> {"time": "loop"}
<- {"steps": 128000, "seconds": 0.31}
"""

from __future__ import annotations

from collections.abc import Callable

from worker import Answer, Job

Way = Callable[[int], tuple[int, float]]  # number of rounds to play -> transitions made, and seconds they took


def playing(prepare: Callable[[str, int, int, int], dict[str, Way]]) -> Callable[[Job], Answer]:
    """Return what answers the jobs.

    Args:
        prepare: From problem ("TSP" or "CVRP"), number of nodes, lanes and seed, make the ways to play it.
    """
    ways: dict[str, tuple[Way, int]] = {}

    def answer(job: Job) -> Answer:
        if "prepare" in job:
            wanted = job["prepare"]
            ways.clear()
            made = prepare(wanted["problem"], wanted["num_nodes"], wanted["lanes"], wanted["seed"])
            ways.update({name: (way, rounds_within(way, wanted["seconds"])) for name, way in made.items()})
            return {"ways": list(ways)}
        way, rounds = ways[job["time"]]
        steps, seconds = way(rounds)
        return {"steps": steps, "seconds": seconds}

    return answer


def rounds_within(way: Way, seconds: float) -> int:
    """Play twice, the first time to compile and warm up; return how many rounds take about so long."""
    way(1)
    return max(1, round(seconds / way(1)[1]))
