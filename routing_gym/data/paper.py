"""Test sets of Kool et al. (2019), reproduced bit for bit.

Their `generate_data.py` seeds NumPy's legacy generator with 1234 (validation: 4321) before each set of 10,000 and
stores float64; NumPy guarantees that the numbers of this generator never change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from routing_gym.problems import CVRPInstance, OPInstance, PCTSPInstance, SPCTSPInstance, TSPInstance
from routing_gym.problems.geometry import with_depot
from routing_gym.problems.op import PrizeKind, distance_prize

Columns = dict[str, npt.NDArray[Any]]

LENGTHS = {20: 2.0, 50: 3.0, 100: 4.0}  # OP: maximum length; PCTSP: factor K of the penalties
CAPACITIES = {20: 30.0, 50: 40.0, 100: 50.0}
TEST_SEED = 1234
NAMES = ("TSP", "CVRP", "SDVRP", "OP", "PCTSP", "SPCTSP")


def paper_test_set(
    name: str, num_nodes: int, *, prize: PrizeKind = "distance", seed: int = TEST_SEED, size: int = 10_000
) -> Any:
    """Draw a test set of the paper again, as one batch of instances.

    Args:
        name: "TSP", "CVRP", "SDVRP", "OP", "PCTSP" or "SPCTSP".
        num_nodes: Number of cities (TSP) or customers (others): 20, 50 or 100.
        prize: Kind of OP's prizes: "constant", "uniform" or "distance".
        seed: Random seed: 1234 for the test sets, 4321 for the validation sets.
        size: Number of instances. A smaller set is not the beginning of a larger one.

    Returns:
        Instances of the problem, NumPy, float32 and int64.

    Raises:
        ValueError: The paper has no such name, size or prize.
    """
    return to_instance(name, paper_columns(name, num_nodes, prize=prize, seed=seed, size=size))


def paper_columns(
    name: str, num_nodes: int, *, prize: PrizeKind = "distance", seed: int = TEST_SEED, size: int = 10_000
) -> Columns:
    """Draw the columns that the original code stores, in its order and precision; see `paper_test_set` for arguments.

    Returns:
        Columns for `to_instance`, as float64, and "demand" as int64.
    """
    check_name(name)
    if num_nodes not in LENGTHS:
        raise ValueError(f"the paper has no test set with num_nodes={num_nodes!r}; choose 20, 50 or 100")
    if prize not in get_args(PrizeKind):
        raise ValueError(f"prize must be one of {', '.join(get_args(PrizeKind))}; got {prize!r}")
    rng = np.random.RandomState(seed)
    per_node = (size, num_nodes)
    if name == "TSP":
        return {"coords": rng.uniform(size=(*per_node, 2))}
    columns: Columns = {"depot": rng.uniform(size=(size, 2)), "coords": rng.uniform(size=(*per_node, 2))}
    if name in ("CVRP", "SDVRP"):
        columns["demand"] = rng.randint(1, 10, size=per_node, dtype=np.int64)
        columns["capacity"] = np.full(size, CAPACITIES[num_nodes])
    elif name == "OP":
        if prize == "distance":
            columns["prize"] = distance_prize(np.concatenate([columns["depot"][:, None], columns["coords"]], axis=1))
        elif prize == "uniform":
            columns["prize"] = (1 + rng.randint(0, 100, size=per_node, dtype=np.int64)) / 100.0
        else:
            columns["prize"] = np.ones(per_node)
        columns["max_length"] = np.full(size, LENGTHS[num_nodes])
    else:
        columns["penalty"] = rng.uniform(size=per_node) * (LENGTHS[num_nodes] * 3 / num_nodes)
        columns["expected_prize"] = rng.uniform(size=per_node) * 4 / num_nodes
        columns["real_prize"] = rng.uniform(size=per_node) * columns["expected_prize"] * 2
    return columns


def check_name(name: str) -> None:
    """Check that the paper has test sets of a problem.

    Raises:
        ValueError: The paper has no such test set; the message lists the paper's problems.
    """
    if name not in NAMES:
        raise ValueError(f"the paper has no test set of {name!r}; choose one of {', '.join(NAMES)}")


def to_instance(name: str, columns: Mapping[str, npt.NDArray[Any]]) -> Any:
    """Make N instances from the columns of the original code.

    Args:
        name: Name of the problem.
        columns: "coords" (N, n, 2); with a depot "depot" (N, 2); CVRP and SDVRP: "demand" (N, n) and "capacity" (N,),
            whole numbers; OP: "prize" (N, n) and "max_length" (N,); PCTSP and SPCTSP: "penalty", "expected_prize" and
            "real_prize" (N, n), the last of which PCTSP ignores.
    """
    check_name(name)
    with np.errstate(over="ignore"):  # values too large for float32 become infinite, and `validate` refuses them
        values = {key: column.astype(np.float32) for key, column in columns.items()}
    if name == "TSP":
        return TSPInstance(values["coords"])
    coords = np.concatenate([values["depot"][:, None], values["coords"]], axis=1)
    if name in ("CVRP", "SDVRP"):
        demand, capacity = columns["demand"].astype(np.int64), columns["capacity"].astype(np.int64)
        return CVRPInstance(coords, with_depot(demand), capacity)
    if name == "OP":
        return OPInstance(coords, with_depot(values["prize"]), values["max_length"])
    expected, penalty = with_depot(values["expected_prize"]), with_depot(values["penalty"])
    if name == "PCTSP":
        return PCTSPInstance(coords, expected, penalty)
    return SPCTSPInstance(coords, expected, penalty, real_prize=with_depot(values["real_prize"]))
