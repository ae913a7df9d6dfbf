"""What `env_peers.py` says to the scripts beside this one, and they to it: one JSON object per line. Needs no package.

    -> {"prepare": {"problem": "TSP", "num_nodes": 50, "lanes": 64, "seed": 0, "seconds": 0.3}}
    <- {"ways": ["loop", ...]}
    -> {"time": "loop"}
    <- {"steps": 128000, "seconds": 0.31}

Before the first request a script says what it is: {"versions": {"numpy": ...}}.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

Way = Callable[[int], tuple[int, float]]  # number of rounds to play -> transitions made, and seconds they took


def serve(packages: tuple[str, ...], prepare: Callable[[str, int, int, int], dict[str, Way]]) -> None:
    """Answer until the input ends.

    Args:
        packages: Whose versions to tell.
        prepare: From problem ("TSP" or "CVRP"), number of nodes, lanes and seed, make the ways to play it.
    """
    answer({"versions": {name: version(name) for name in packages}})
    ways: dict[str, tuple[Way, int]] = {}
    for line in sys.stdin:
        request = json.loads(line)
        if "prepare" in request:
            wanted = request["prepare"]
            made = prepare(wanted["problem"], wanted["num_nodes"], wanted["lanes"], wanted["seed"])
            ways = {name: (way, rounds_within(way, wanted["seconds"])) for name, way in made.items()}
            answer({"ways": list(ways)})
        else:
            way, rounds = ways[request["time"]]
            steps, seconds = way(rounds)
            answer({"steps": steps, "seconds": seconds})


def rounds_within(way: Way, seconds: float) -> int:
    """Play twice, the first time to compile and warm up; return how many rounds take about so long."""
    way(1)
    return max(1, round(seconds / way(1)[1]))


def answer(message: dict[str, Any]) -> None:
    """Send one line."""
    print(json.dumps(message), flush=True)
