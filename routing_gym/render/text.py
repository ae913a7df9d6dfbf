"""A tour as the trips of vehicles: what each visits, how long it is, what it loads; and all of that in words."""

from __future__ import annotations

from typing import Any

from routing_gym.arrays import Array, batch_size, euclidean, map_arrays, to_numpy
from routing_gym.problem import AnyProblem
from routing_gym.problems.checks import as_tours

Trip = list[int]  # nodes in order; with a depot, the first is 0 and so is the last once the vehicle is back

MAX_NODES_IN_LINE = 40


def to_text(problem: AnyProblem, instance: Any, tour: Array, cost: float | None = None) -> str:
    """Describe a tour in a few lines: cost, trips with their loads or prizes, the unvisited.

    Takes the arguments of `draw`, and raises its ValueError.
    """
    instance = one_row(instance)
    actions, step_cost, done = replay(problem, instance, tour)
    trips = split_trips(problem, actions, done)
    state = "complete" if done else "incomplete"
    lines = [f"{headline(problem, step_cost if cost is None else cost)}, steps {len(actions)}, {state}"]
    amounts = trip_amounts(instance, trips)
    for number, (trip, amount) in enumerate(zip(driven(problem, trips), amounts, strict=True), start=1):
        lines.append(f"trip {number}: {' -> '.join(shorten(trip))}; {amount}length {length(instance, trip):.3f}")
    visited = {node for trip in trips for node in trip}
    unvisited = [node for node in range(int(problem.has_depot), problem.num_actions) if node not in visited]
    if unvisited:
        lines.append(f"unvisited: {', '.join(shorten(unvisited))}")
    return "\n".join(lines)


def one_row(instance: Any) -> Any:
    """Bring an instance to NumPy, refusing a batch of several.

    Raises:
        ValueError: With the number of rows.
    """
    num_rows = batch_size(instance)
    if num_rows != 1:
        raise ValueError(f"instance: expected one row, got {num_rows}; pick one with `select`")
    return map_arrays(to_numpy, instance)


def replay(problem: AnyProblem, instance: Any, tour: Array) -> tuple[list[int], float, bool]:
    """Take the actions of a tour until the episode is done.

    Returns:
        The actions taken, the sum of their costs, and whether the episode is done.

    Raises:
        ValueError: The tour has a wrong shape, type or range.
    """
    values = to_numpy(tour)
    if values.ndim != 1:
        raise ValueError(f"tour: expected shape (T,), got {values.shape}")
    actions = as_tours(values[None], 1, problem.num_actions)[0] if len(values) else values
    state, cost = problem.initial(instance), 0.0
    for step, action in enumerate(actions):
        state, step_cost = problem.step(instance, state, action[None])
        cost += float(step_cost[0])
        if problem.done(instance, state)[0]:
            return actions[: step + 1].tolist(), cost, True
    return actions.tolist(), cost, False


def split_trips(problem: AnyProblem, actions: list[int], done: bool) -> list[Trip]:
    """Cut the actions of an episode where they pass the depot; empty trips are left out."""
    if not problem.has_depot:
        closed = done and not is_open(problem)
        return [actions + actions[:1] if closed else actions] if actions else []
    trips, trip = [], [0]
    for node in actions:
        trip.append(node)
        if node == 0:
            trips.append(trip)
            trip = [0]
    trips.append(trip)
    return [trip for trip in trips if any(trip)]


def driven(problem: AnyProblem, trips: list[Trip]) -> list[Trip]:
    """Leave the way back to the depot out of trips, where nobody drives it."""
    cut = problem.has_depot and is_open(problem)
    return [trip[:-1] if cut and trip[-1] == 0 else trip for trip in trips]


def is_open(problem: AnyProblem) -> bool:
    """Say whether nobody drives home."""
    return bool(getattr(problem, "open_routes", False))


def headline(problem: AnyProblem, cost: float) -> str:
    """Name the problem and the cost, or the prize where costs are negative prizes."""
    label, value = ("prize", abs(cost)) if problem.maximises else ("cost", cost)
    number = f"{value:.0f}" if float(value).is_integer() and value >= 100 else f"{value:.3f}"
    return f"{problem.name}-{problem.num_nodes}: {label} {number}"


def length(instance: Any, trip: Trip) -> float:
    """Length of a trip in the metric of the instance."""
    origin, destination = trip[:-1], trip[1:]
    if getattr(instance, "distances", None) is not None:
        return float(instance.distances[0, origin, destination].sum())
    return float(euclidean(instance.coords[0, origin], instance.coords[0, destination]).sum())


def trip_amounts(instance: Any, trips: list[Trip]) -> list[str]:
    """Say what each trip delivers or collects, as in "load 29 of 30, "."""
    if getattr(instance, "backhaul", None) is not None:
        demand, backhaul, capacity = instance.demand[0], instance.backhaul[0], int(instance.capacity[0])
        parts = [(demand[trip] * ~backhaul[trip], demand[trip] * backhaul[trip]) for trip in trips]
        return [f"delivers {out.sum()} and fetches {back.sum()} of {capacity}, " for out, back in parts]
    if hasattr(instance, "demand"):
        remaining, capacity = instance.demand[0].copy(), int(instance.capacity[0])
        loads = []
        for trip in trips:
            load = 0
            for node in trip:
                delivered = min(int(remaining[node]), capacity - load)
                remaining[node] -= delivered
                load += delivered
            loads.append(f"load {load} of {capacity}, ")
        return loads
    for field in ("real_prize", "expected_prize", "prize"):
        if hasattr(instance, field):
            return [f"prize {getattr(instance, field)[0, trip].sum():.3f}, " for trip in trips]
    return [""] * len(trips)


def shorten(nodes: Trip) -> list[str]:
    """Write nodes out, leaving out the middle of long lists."""
    words = [str(node) for node in nodes]
    if len(words) <= MAX_NODES_IN_LINE:
        return words
    half = MAX_NODES_IN_LINE // 2
    return [*words[:half], f"({len(words) - 2 * half} more)", *words[-half:]]
