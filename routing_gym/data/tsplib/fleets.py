"""Files with several vehicles or depots, pickup and delivery pairs, or prizes, in PyVRP's dialect of VRPLIB.

Sources: HFVRP (Pessoa et al. 2018), MDVRPTW (Vidal et al. 2013), SDVRPTW (Cordeau and Laporte 2001), PDPTW (Li and Lim
    2001), PCVRPTW (PyVRP, after Gehring and Homberger 1999). The sections of a file decide which attributes the problem
    has. Its TYPE decides how lengths are counted, following the published costs: in thousandths, rounded; for HFVRP in
    millionths, with costs in hundreds to two decimals; for PCVRPTW in tenths, truncated. EXPLICIT distances, which are
    also the durations, are counted in the file's unit.

Identical vehicles become one depot node. Whether a limited number of vehicles of several kinds suffices is a
bin-packing problem. Such files therefore become problems with PC, whose penalties are larger than the cost of any tour.
So do files in which a customer is within the limits only together with others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from routing_gym.arrays import FloatArray, IntArray
from routing_gym.data.tsplib.document import Document
from routing_gym.data.tsplib.fleet_checks import allowed, both, check_served
from routing_gym.data.tsplib.fleet_rules import Counting, FleetRules
from routing_gym.data.tsplib.fleet_stops import Stops, read_depots, read_stops
from routing_gym.data.tsplib.fleet_vehicles import ANY, Kind, check_depots, group, read_vehicles
from routing_gym.data.tsplib.instance import matrix_scale, places_of, scale_coords, scale_distances, unit_scale
from routing_gym.data.tsplib.metrics import TENTHS, file_distances
from routing_gym.data.tsplib.vehicle_routing import own_capacity
from routing_gym.files import UnsupportedFile
from routing_gym.problems import VRP, VRPInstance
from routing_gym.problems.checks import TOLERANCE
from routing_gym.problems.vrp.limits import MAX_LENGTH_OF_PAIRS

EXACT = Counting(unit=10**6, cost_unit=10**8, decimals=2)
THOUSANDTHS = Counting(unit=1000, cost_unit=1, decimals=0)
COUNTING = {
    "HFVRP": EXACT,
    "MDVRPTW": THOUSANDTHS,
    "SDVRPTW": THOUSANDTHS,
    "PDPTW": THOUSANDTHS,
    "PCVRPTW": Counting(unit=TENTHS, cost_unit=1, decimals=0),
}
FLEET_VALUES = (
    "CAPACITY",
    "VEHICLES",
    "SERVICE_TIME",
    "VEHICLES_FIXED_COST",
    "VEHICLES_UNIT_DISTANCE_COST",
    "VEHICLES_MAX_DURATION",
    "VEHICLES_MAX_DISTANCE",
)
FLEET_SECTIONS = (
    *("DEPOT_SECTION", "DEMAND_SECTION", "TIME_WINDOW_SECTION", "SERVICE_TIME_SECTION", "PICKUP_AND_DELIVERY_SECTION"),
    "PRIZE_SECTION",
    *("CAPACITY_SECTION", "VEHICLES_DEPOT_SECTION", "VEHICLES_ALLOWED_CLIENTS_SECTION"),
    *("VEHICLES_FIXED_COST_SECTION", "VEHICLES_UNIT_DISTANCE_COST_SECTION"),
    *("VEHICLES_MAX_DURATION_SECTION", "VEHICLES_MAX_DISTANCE_SECTION"),
)
WHOLE = Counting(unit=1, cost_unit=1, decimals=0)  # of EXPLICIT distances
MAX_EXTENT = 10**12  # in 1 / unit, so that sums of lengths stay far within int64
MAX_TIME = 2_000_000  # in 1 / unit, so that float32 distinguishes all times


def read_fleet(document: Document, kind: str, coords: FloatArray | None, matrix: IntArray | None) -> dict[str, Any]:
    """Return the fields of a `FileInstance`.

    Args:
        document: Parsed file.
        kind: TYPE of the file.
        coords: Coordinates of nodes 1 to DIMENSION, float64 (DIMENSION, 2); None if the file has none.
        matrix: Distances of these nodes, int64 (DIMENSION, DIMENSION); None for distances of coordinates.

    Raises:
        InvalidFile: A section contradicts others, or some customer or vehicle is useless.
        UnsupportedFile: A number is too large, or limits on length differ.
    """
    counting = COUNTING[kind] if matrix is None else WHOLE
    places = places_of(coords, matrix)
    depots = read_depots(document, len(places))
    stops = read_stops(document, [depot for depot, _ in depots], len(places))
    kinds = group(read_vehicles(document, depots, stops))
    check_depots(document, depots, kinds)
    ids = np.concatenate([[one.depot for one in kinds], stops.ids]).astype(np.int64)
    scale = unit_scale(places) if matrix is None else matrix_scale(matrix)
    if scale * counting.unit > MAX_EXTENT:
        line = document.section("NODE_COORD_SECTION" if matrix is None else "EDGE_WEIGHT_SECTION").line
        most = MAX_EXTENT // counting.unit
        raise UnsupportedFile(document.path, line, f"the nodes lie {scale:g} apart; at most {most} is supported")
    order = ids - 1
    legs = file_distances(places[order], "EUC_2D", counting.unit) if matrix is None else matrix[np.ix_(order, order)]
    windows = None if stops.windows is None else scale_windows(document, stops.windows[order], counting.unit)
    alone = check_served(document, kinds, stops, legs, windows, counting.unit, explicit=matrix is not None)
    problem, instance = make(kinds, stops, places[order], legs, windows, scale, counting, alone)
    durations, lengths = (np.array([getattr(one, key) for one in kinds]) for key in ("max_duration", "max_length"))
    rules = FleetRules(
        counting=counting,
        vehicles=tuple(kinds.values()),
        fixed_cost=np.array([one.fixed_cost for one in kinds]),
        cost_per_length=np.array([one.cost_per_length for one in kinds]),
        windows=windows,
        max_duration=limit(durations, counting.unit),
        max_length=limit(lengths, counting.unit),
        prize=None if stops.prize is None else np.concatenate([np.zeros(len(kinds), dtype=np.int64), stops.prize]),
    )
    return {
        "ids": ids,
        "coords": None if coords is None else coords[order],
        "matrix": None if matrix is None else legs,
        "scale": scale,
        "unit": counting.unit,
        "rules": rules,
        "problem": problem,
        "instance": instance,
    }


def limit(values: IntArray, unit: int) -> IntArray | None:
    """Return limits in 1 / unit; None if there are none."""
    return None if (values == ANY).all() else values * unit


def scale_windows(document: Document, windows: IntArray, unit: int) -> IntArray:
    """Return times in 1 / unit, after checking that float32 distinguishes them."""
    if (most := int(windows.max())) * unit > MAX_TIME:
        line = document.section("TIME_WINDOW_SECTION").line if "TIME_WINDOW_SECTION" in document.sections else None
        told = f"time {most} exceeds {MAX_TIME // unit}; choose a larger unit"
        raise UnsupportedFile(document.path, line, f"TIME_WINDOW_SECTION: {told}")
    return windows * unit


def make(
    kinds: dict[Kind, tuple[int, ...]],
    stops: Stops,
    coords: FloatArray,
    legs: IntArray,
    windows: IntArray | None,
    scale: float,
    counting: Counting,
    alone: bool,
) -> tuple[VRP, VRPInstance]:
    """Make the problem and its instance, a batch of one: D depot nodes, then n customers.

    For `alone`, see `check_served`: masks of problems without PC let every vehicle serve one customer alone.
    """
    depots, n, unit = len(kinds), len(stops.ids), counting.unit * scale
    zeros = np.zeros(n)
    several = len({kind.depot for kind in kinds}) > 1
    numbers = [min(len(some), n) for some in kinds.values()]
    alike = len({kind._replace(depot=0) for kind in kinds}) == 1
    first = next(iter(kinds))
    plain = alike and (first.fixed_cost, first.cost_per_length, first.allowed) == (0, 1, None)
    capacity = max(kind.capacity for kind in kinds)
    fields: dict[str, npt.NDArray[Any]] = {}
    settings: dict[str, Any] = {"several_depots": several}
    settings |= {"pairs": stops.pickup is not None, "time_windows": windows is not None}
    others = any(settings.values()) or first.max_length != ANY or stops.prize is not None
    fleet = settings["fleet"] = not plain or not others or (several and min(numbers) < n)
    limited = fleet and min(numbers) < n
    settings["penalties"] = limited or stops.prize is not None or not alone

    def rows(values: Sequence[float], dtype: type) -> npt.NDArray[Any]:
        return np.concatenate([values, zeros]).astype(dtype)[None]

    if fleet:
        fields["vehicle_capacity"] = rows([kind.capacity for kind in kinds], np.int64)
        fields["fixed_cost"] = rows([kind.fixed_cost / scale for kind in kinds], np.float32)
        fields["cost_per_length"] = rows([kind.cost_per_length for kind in kinds], np.float32)
        if any(kind.allowed is not None for kind in kinds):
            eligible = both(allowed(kinds, stops), stops.pickup)
            fields["eligible"] = np.pad(eligible, ((0, 0), (depots, 0)))[None]
    if limited:
        fields["num_vehicles"] = rows(numbers, np.int64)
    if settings["penalties"]:
        fields["penalty"] = np.concatenate([np.zeros(depots), penalties(kinds, stops, legs.max() / unit, scale)])
        fields["penalty"] = fields["penalty"].astype(np.float32)[None]
    if stops.pickup is not None:
        pickup = np.where(stops.pickup < 0, 0, depots + stops.pickup)
        fields["pickup"] = np.concatenate([np.zeros(depots, dtype=np.int64), pickup])[None]
    if windows is not None:
        fields |= time_fields(windows, unit)
    if first.max_length != ANY:
        fields["max_length"] = np.array(
            [(first.max_length * counting.unit + 0.5) / unit - TOLERANCE / 2], dtype=np.float32
        )
        settings["max_length"] = max(MAX_LENGTH_OF_PAIRS, float(fields["max_length"][0]))  # enough for generated ones
    demand = np.concatenate([np.zeros(depots, dtype=np.int64), stops.demand])[None]
    distances = scale_distances(legs, unit)
    instance = VRPInstance(scale_coords(coords), demand, np.array([capacity]), distances, **fields)
    return VRP(n, own_capacity(capacity), num_depots=depots, **settings), instance


def penalties(kinds: Iterable[Kind], stops: Stops, longest: float, scale: float) -> FloatArray:
    """Return the penalties of leaving customers out (n,): their prizes, or if 0, more than any tour and all prizes."""
    per_route = [2 * longest * kind.cost_per_length + kind.fixed_cost / scale for kind in kinds]
    prize = np.zeros(len(stops.ids)) if stops.prize is None else stops.prize / scale
    return np.where(prize > 0, prize, prize.sum() + len(prize) * max(per_route) + 1)


def time_fields(windows: IntArray, unit: float) -> dict[str, npt.NDArray[Any]]:
    """Return ready times, due times and service times of an instance whose length 1 is `unit`: (1, A) each.

    Masks have a tolerance of TOLERANCE / 2; half a unit of slack separates rounding errors from the next integer.
    """
    ends = (windows[:, 1] + 0.5) / unit - TOLERANCE / 2
    times = np.stack([windows[:, 0] / unit, np.maximum(ends, 0.0), windows[:, 2] / unit]).astype(np.float32)
    return dict(zip(("ready_time", "due_time", "service_time"), times[:, None], strict=True))
