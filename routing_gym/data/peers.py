"""Test sets of MVMoE and RouteFinder for the vehicle routing family, and of rl4co for the paper's problems.

- MVMoE (Zhou et al. 2024) pickles a list of instances: depot, customers, demands, capacity and, depending on the
  variant, the route limit, service times, and earliest and latest start of service. `load_pickle` reads them.
- RouteFinder (Berto et al. 2025) writes an .npz with `locs`, `demand_linehaul` and so on; demands are fractions of the
  capacity, and a missing attribute of an instance is infinite. A file with several depots has `num_depots`. The best
  known costs of `50.npz` are in `50_sol_pyvrp.npz`. rl4co's files of the same problems have demands of depots, too.
- rl4co's `generate_data` writes an .npz with the arrays of Kool et al.'s pickles, and `locs` for the coordinates. Its
  generators of instances, saved by `save_tensordict_to_npz`, have the same arrays; for CVRP, demands are fractions of
  the capacity, which has shape (N, 1). Those of PDP, MTSP and ATSP are read, too.
- An .npz with members such as `VRPTW/coords` holds several variants, named like the columns of this package.

The last may also hold the best known cost of each instance. Variants with different rules are refused: backhauls of
MVMoE may precede deliveries.

RouteFinder's mixed backhauls (class 2) are read as MB, with one difference: its environment checks a delivery against
the goods collected so far only, and not what is still to be delivered. With capacity 10, it allows a pickup of 4 before
two deliveries of 5; here, a vehicle that leaves with 10 cannot collect 4 first. Every tour of MB is legal there. Its
best known costs, by PyVRP, obey the stricter rule.
"""

from __future__ import annotations

import zipfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from routing_gym.arrays import batch_size
from routing_gym.data.npz import load_npz, read_arrays
from routing_gym.data.paper import Columns, to_instance
from routing_gym.files import InvalidFile
from routing_gym.problem import AnyProblem
from routing_gym.problems import CVRP, ATSPInstance, CVRPInstance, MTSPInstance, VRPInstance, make_problem
from routing_gym.problems.geometry import with_depot
from routing_gym.problems.vrp import CLOSING
from routing_gym.problems.vrp.attributes import preset_name

MAX_BYTES = 2**28  # maximum size of a file; 1,000 instances with 200 customers have 10 MB
MAX_UNPACKED = 2**30
SOLUTIONS = "_sol_pyvrp.npz"  # end of the name of RouteFinder's file of best known costs, after the stem
WHOLE = 1e-3  # maximum distance of demand times capacity from a whole number

LIMIT, WINDOWS = ("max_length",), ("service_time", "ready_time", "due_time")
VARIANTS = {  # columns in addition to CVRP's, in the order of MVMoE's pickles
    "OVRP": (),
    "VRPL": LIMIT,
    "VRPTW": WINDOWS,
    "OVRPL": LIMIT,
    "OVRPTW": WINDOWS,
    "VRPLTW": LIMIT + WINDOWS,
    "OVRPLTW": LIMIT + WINDOWS,
}
RL4CO = {  # arrays of a file, and the problems that it may hold
    frozenset({"locs"}): ("TSP",),
    frozenset({"depot", "locs", "demand", "capacity"}): ("CVRP", "SDVRP"),
    frozenset({"depot", "locs", "prize", "max_length"}): ("OP",),
    frozenset({"depot", "locs", "penalty", "deterministic_prize", "stochastic_prize"}): ("PCTSP", "SPCTSP"),
    frozenset({"depot", "locs"}): ("PDP",),
    frozenset({"locs", "num_agents"}): ("MTSP",),
    frozenset({"cost_matrix"}): ("ATSP",),
}
RENAMED = {
    "locs": "coords",
    "deterministic_prize": "expected_prize",
    "stochastic_prize": "real_prize",
    "num_agents": "num_salesmen",
    "cost_matrix": "distances",
}


@dataclass(frozen=True)
class PeerSet:
    """Instances of one problem from another project's file.

    Attributes:
        problem: Problem of the instances.
        instance: B instances, NumPy.
        best_known: float64 (B,), best known cost of each instance; None if the file has none.
    """

    problem: AnyProblem
    instance: Any
    best_known: npt.NDArray[np.float64] | None


def family_instance(columns: Columns) -> VRPInstance:
    """Make instances of the vehicle routing family.

    Args:
        columns: "depot" (N, 2), or (N, D, 2) for several depots, "coords" (N, n, 2), "demand" (N, n) and "capacity"
            (N,), whole numbers; and those that the variant has of "backhaul" (N, n), "max_length" (N,), "service_time",
            "ready_time" and "due_time" (N, n), and "closing" (N, D), the latest return, 3 by default.
    """
    depots = columns["depot"].reshape(len(columns["depot"]), -1, 2)
    num_depots = depots.shape[1]
    fields = {key: columns[key].astype(np.float32) for key in (*LIMIT, *WINDOWS) if key in columns}
    for key in set(WINDOWS) & set(fields):
        fields[key] = with_depot(fields[key], num_depots)
    if "due_time" in fields:
        fields["due_time"][:, :num_depots] = columns.get("closing", CLOSING)
    if "backhaul" in columns:
        fields["backhaul"] = with_depot(columns["backhaul"], num_depots)
    coords = np.concatenate([depots, columns["coords"]], axis=1).astype(np.float32)
    demand, capacity = columns["demand"].astype(np.int64), columns["capacity"].astype(np.int64)
    return VRPInstance(coords, with_depot(demand, num_depots), capacity, **fields)


def load_peer_npz(path: str | Path, name: str = "") -> PeerSet:
    """Read an .npz file of RouteFinder or rl4co, or one with several variants.

    Args:
        path: File to read.
        name: Name of the problem, such as "VRPTW". Required if the file holds several variants; with rl4co's files, it
            chooses between the problems with the same arrays, CVRP or SDVRP, and PCTSP or SPCTSP.

    Raises:
        InvalidFile: The file is damaged or has another layout, its rules differ from ours, or it does not hold `name`.
        OSError: The file cannot be opened.
    """
    path = Path(path)
    members = read_arrays(path, MAX_BYTES, MAX_UNPACKED)
    try:
        if frozenset(members) in RL4CO:
            found = rl4co(members, name)
        else:
            of_routefinder = "capacity_original" in members
            kind, columns = routefinder(members) if of_routefinder else one_variant(members, name)
            solutions = path.with_name(path.stem + SOLUTIONS)
            if of_routefinder and "best_known" not in columns and solutions.exists():
                columns["best_known"] = read_costs(solutions, len(columns["coords"]))
            found = family_set(kind, columns)
        if name not in ("", found.problem.name):
            raise ValueError(f"holds {found.problem.name}, not {name}")
        found.problem.validate(found.instance)
        num_instances = batch_size(found.instance)
        if found.best_known is not None and not are_costs(found.best_known, num_instances):
            raise ValueError(f"best known costs: expected {num_instances} positive numbers")
    except KeyError as error:
        raise InvalidFile(path, None, f"lacks {error}, without which no instance is complete") from error
    except IndexError as error:
        raise InvalidFile(path, None, "an array has fewer dimensions than expected") from error
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidFile(path, None, str(error)) from error
    return found


def family_set(name: str, columns: Columns) -> PeerSet:
    """Make instances of CVRP or the vehicle routing family; see `family_instance`."""
    instance: Any = family_instance(columns)
    num_customers = columns["coords"].shape[1]
    num_depots = instance.coords.shape[1] - num_customers
    problem = make_problem(name, num_customers, **({"num_depots": num_depots} if num_depots > 1 else {}))
    if name == CVRP.name:
        instance = CVRPInstance(instance.coords, instance.demand, instance.capacity)
    return PeerSet(problem, instance, columns.get("best_known"))


def load_any_npz(path: Path, name: str = "") -> PeerSet:
    """Read an .npz file of this package (`load_npz`) or of another project (`load_peer_npz`)."""
    return load_peer_npz(path, name) if is_peer_npz(path) else PeerSet(*load_npz(path), None)


def are_costs(costs: npt.NDArray[np.float64], num_instances: int) -> bool:
    """Return whether there is a positive cost for each instance."""
    return costs.shape == (num_instances,) and bool((np.isfinite(costs) & (costs > 0)).all())


def read_costs(path: Path, num_instances: int) -> npt.NDArray[np.float64]:
    """Return the costs of a file of solutions of RouteFinder.

    Raises:
        InvalidFile: The file is damaged, or it does not have one cost for each instance.
    """
    found = read_arrays(path, MAX_BYTES, MAX_UNPACKED).get("costs", np.zeros(0))
    costs: npt.NDArray[np.float64] = np.abs(found.reshape(-1).astype(np.float64))  # stored as rewards
    if not are_costs(costs, num_instances):
        told = f"found {len(costs)} costs, expected {num_instances} numbers other than 0, one for each instance"
        raise InvalidFile(path, None, f"{told}; without this file, the instances are read without best known costs")
    return costs


def one_variant(members: Columns, name: str) -> tuple[str, Columns]:
    """Return one variant of a file with members such as "VRPTW/coords"."""
    held = sorted({key.partition("/")[0] for key in members if "/" in key})
    if not held:
        told = "expected those of RouteFinder, of rl4co's TSP, CVRP, OP, PCTSP, PDP, MTSP or ATSP, or VARIANT/COLUMN"
        raise ValueError(f"found arrays {', '.join(sorted(members))}; {told}")
    if name not in held:
        raise ValueError(f"holds {', '.join(held)}; name one of them as the problem" + f", not {name}" * bool(name))
    if name not in (CVRP.name, *VARIANTS):
        raise ValueError(f"the rules of {name} differ from ours; choose one of {CVRP.name}, {', '.join(VARIANTS)}")
    given = {key.partition("/")[2]: values for key, values in members.items() if key.startswith(f"{name}/")}
    coords = given["coords"]
    columns = {"depot": coords[:, 0], "coords": coords[:, 1:], "demand": given["demand"], "capacity": given["capacity"]}
    columns |= {key: given[key] for key in VARIANTS.get(name, ())}
    if "reference_cost" in given:
        columns["best_known"] = given["reference_cost"].astype(np.float64)
    return name, columns


def rl4co(members: Columns, name: str) -> PeerSet:
    """Make the instances of a file of rl4co; `name` chooses between the problems with the same arrays."""
    known = RL4CO[frozenset(members)]
    found = name if name in known else known[0]
    columns = {RENAMED.get(key, key): values for key, values in members.items()}
    if "demand" in columns:
        columns |= whole_demands(columns["demand"].astype(np.float64), columns["capacity"].astype(np.float64))
    if "distances" in columns:
        distances = columns["distances"].astype(np.float32)
        return PeerSet(make_problem(found, distances.shape[1]), ATSPInstance(distances), None)
    coords = columns["coords"]
    if "num_salesmen" in columns:
        if not are_whole(columns["num_salesmen"].astype(np.float64)):
            raise ValueError("num_agents: expected whole numbers")
        instance = MTSPInstance(coords.astype(np.float32), columns["num_salesmen"].astype(np.int64))
        return PeerSet(make_problem(found, coords.shape[1] - 1), instance, None)
    problem = make_problem(found, coords.shape[1])
    if columns.keys() == {"depot", "coords"}:
        nodes = np.concatenate([columns["depot"][:, None], coords], axis=1).astype(np.float32)
        # All generated instances have the same pairs.
        paired = problem.from_uniforms(np.zeros((len(nodes), problem.num_uniforms)))
        return PeerSet(problem, replace(paired, coords=nodes), None)
    return PeerSet(problem, to_instance(found, columns), None)


def whole_demands(demand: npt.NDArray[np.float64], capacity: npt.NDArray[np.float64]) -> Columns:
    """Return rl4co's demands (N, n), of which some files hold fractions of the capacity, and capacities (N,).

    Raises:
        ValueError: They are not whole numbers.
    """
    capacities = capacity.reshape(-1)
    if len(capacities) != len(demand):
        raise ValueError(f"capacity: expected one for each of {len(demand)} instances, got {len(capacities)}")
    if not are_whole(capacities):
        raise ValueError("capacity: expected whole numbers")
    if (demand <= 1).all() and (capacity.ndim == 2 or not are_whole(demand)):  # fractions of the capacity
        demand = whole(demand * capacities[:, None], "demand times capacity")
    if not are_whole(demand):
        raise ValueError("demand: expected whole numbers, or fractions of the capacity, which are at most 1")
    return {"demand": demand, "capacity": capacities}


def are_whole(numbers: npt.NDArray[np.float64]) -> bool:
    """Return whether all numbers are finite and whole."""
    return bool((np.isfinite(numbers) & (numbers == np.rint(numbers))).all())


def whole(amounts: npt.NDArray[np.float64], told: str) -> npt.NDArray[np.float64]:
    """Round products of fractions and capacities to the nearest whole numbers.

    Raises:
        ValueError: An amount is not within `WHOLE` of a whole number; the message begins with `told`.
    """
    rounded = np.rint(amounts)
    if not (np.abs(amounts - rounded) < WHOLE).all():
        raise ValueError(f"{told}: expected whole numbers")
    return rounded


def routefinder(members: Columns) -> tuple[str, Columns]:
    """Return the variant of a file of RouteFinder, or of rl4co's in this layout, and its columns.

    All instances of a file have the same attributes, except that some may lack backhauls, which are drawn.
    """
    coords, windows, limit = members["locs"], members["time_windows"], members["distance_limit"].reshape(-1)
    given = members.get("num_depots", np.ones(1))
    num_depots = int(given.flat[0])
    num_customers = coords.shape[1] - num_depots
    if num_depots < 1 or num_customers < 1 or (given != num_depots).any():
        raise ValueError(f"num_depots: expected the same number everywhere, from 1 to {coords.shape[1] - 1}")
    capacity = members["capacity_original"].reshape(-1).astype(np.float64)
    delivered, fetched = (
        np.asarray(members[f"demand_{kind}"], dtype=np.float64) * capacity[:, None] for kind in ("linehaul", "backhaul")
    )
    if ((delivered > 0) & (fetched > 0)).any():
        raise ValueError("demand_linehaul, demand_backhaul: expected at most one of them above 0 for each customer")
    if np.isnan(limit).any() or np.isnan(windows).any():
        raise ValueError("distance_limit, time_windows: found nan; expected numbers, and inf for no limit")
    demand, backhaul = whole(delivered + fetched, "demand times capacity_original"), fetched > 0
    if demand.shape[1] == coords.shape[1]:
        if demand[:, :num_depots].any():
            raise ValueError("demand: expected 0 at depots")
        demand, backhaul = demand[:, num_depots:], backhaul[:, num_depots:]
    present = {
        "O": members["open_route"].reshape(-1).astype(bool),
        "L": np.isfinite(limit),
        "TW": np.isfinite(windows[..., 1]).all(axis=1),
    }
    for letter, rows in present.items():
        if rows.any() != rows.all():
            told = f"{letter}: found in {rows.sum()} of {len(coords)} instances, expected all or none"
            raise ValueError(f"{told}; write the instances of each variant to a file of their own")
    letters = {letter for letter, rows in present.items() if rows.all()} | ({"MD"} if num_depots > 1 else set())
    if backhaul.any():
        kinds = members.get("backhaul_class", np.ones(len(coords))).reshape(-1)[backhaul.any(axis=1)]
        if kinds[0] not in (1, 2) or (kinds != kinds[0]).any():
            raise ValueError("backhaul_class: expected 1 everywhere, or 2 (mixed backhauls) everywhere")
        letters.add("B" if kinds[0] == 1 else "MB")
    if "speed" in members and (members["speed"] != 1).any():
        raise ValueError("expected speed 1 everywhere: our times are in the unit of lengths")
    if "vehicle_capacity" in members and (members["vehicle_capacity"] != 1).any():
        raise ValueError("expected vehicle_capacity 1 everywhere: demands are shares of it")
    if windows[:, :num_depots, 0].any() or members["service_time"][:, :-num_customers].any():
        raise ValueError("time_windows, service_time: expected depots that open at 0, without service")
    columns: Columns = {"depot": coords[:, :num_depots], "coords": coords[:, num_depots:]}
    columns |= {"demand": demand, "capacity": capacity}
    if letters & {"B", "MB"}:
        columns["backhaul"] = backhaul
    if "L" in letters:
        columns["max_length"] = limit
    if "TW" in letters:
        opens, closes = windows[..., 0], windows[..., 1]
        columns |= {"ready_time": opens[:, num_depots:], "due_time": closes[:, num_depots:]}
        columns |= {"closing": closes[:, :num_depots], "service_time": members["service_time"][:, -num_customers:]}
    if "costs_bks" in members:
        columns["best_known"] = np.abs(members["costs_bks"].reshape(-1).astype(np.float64))  # stored as rewards
    return preset_name(frozenset(letters)) if letters else CVRP.name, columns


def is_peer_npz(path: Path) -> bool:
    """Return whether an .npz file is from another project: it lacks the header of `save_npz`."""
    try:
        with zipfile.ZipFile(path) as archive:
            return "problem.npy" not in archive.namelist()
    except (OSError, zipfile.BadZipFile):
        return False  # `load_npz` reports the error
