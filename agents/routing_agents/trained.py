"""The weights that come with this repository: one file per problem and size, with a card beside each."""

from __future__ import annotations

import math
from pathlib import Path

WEIGHTS = Path(__file__).parent / "weights"


def find_weights(problem: str, num_nodes: int, folder: Path = WEIGHTS) -> Path:
    """Return the published weights for a problem, those of the nearest size by ratio.

    Args:
        problem: Its name, such as "TSP".
        num_nodes: Size of the instances to solve.
        folder: Where the weights are.

    Raises:
        ValueError: There are none for this problem.
    """
    paths = sorted(folder.glob(f"{problem.lower()}-*.safetensors"))
    if not paths:
        raise ValueError(
            f"no weights for {problem} in {folder}; train some: python agents/am_reinforce.py --env-id "
            f"routing/{problem}-20 --name mine, and give --checkpoint runs/mine"
        )
    return min(paths, key=lambda path: abs(math.log(int(path.stem.rpartition("-")[2]) / num_nodes)))
