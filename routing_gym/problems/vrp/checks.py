"""Checks of the VRP family: instances, and the routes of complete tours, in NumPy."""

from __future__ import annotations

import numpy as np

from routing_gym.arrays import Array, BoolArray, IntArray, batch_size, to_numpy
from routing_gym.problem import InfeasibleTour, InvalidInstance
from routing_gym.problems.checks import TOLERANCE, check_returns, leg_lengths
from routing_gym.problems.geometry import lengths_from
from routing_gym.problems.vrp.attribute import Walk
from routing_gym.problems.vrp.batches import VRPInstance
from routing_gym.problems.vrp.contract import Family
from routing_gym.problems.vrp.ways import durations_from, lengths_home


def check_each_alone(problem: Family, instance: VRPInstance) -> None:
    """Check that a vehicle can serve each customer alone, unless customers may be left out.

    Raises:
        InvalidInstance: A customer cannot be served alone. The message names the row, the customer and the remedy.
    """
    if problem.penalties:
        return
    if not problem.depot_choice and not problem.pairs:
        check_limits_alone(problem, instance)
        return
    state = problem.initial(instance)
    alone = problem.customers(instance, state)[:, None] if problem.num_depots == 1 else state.alone
    if instance.num_vehicles is not None:
        alone = alone & (instance.num_vehicles[:, : problem.num_depots, None] >= problem.num_nodes)
    missing = ~alone.any(axis=1)
    missing[:, : problem.num_depots] = False
    if problem.pairs:  # deliveries come with their pickups
        missing &= instance.pickup == 0
    if missing.any():
        row, node = map(int, np.argwhere(missing)[0])
        fleet = f" of a type with at least {problem.num_nodes} vehicles" if instance.num_vehicles is not None else ""
        what = "it and its delivery" if problem.pairs else "it"
        raise InvalidInstance(
            f"row {row}, node {node}: no vehicle{fleet} can serve {what} alone; change the capacity, the limits or "
            f"`eligible`, leave the customer out, or choose a problem with PC"
        )


def check_limits_alone(problem: Family, instance: VRPInstance) -> None:
    """Check that a vehicle can serve each customer alone from one depot, with half the tolerance of the masks.

    Raises:
        InvalidInstance: A customer cannot be served alone. The message names the row, the customer, the values and the
            remedy.
    """

    def refuse(bad: Array, field: str, say: str, *values: Array) -> None:
        if bad.any():
            row, node = map(int, np.argwhere(bad)[0])
            numbers = [f"{np.broadcast_to(value, bad.shape)[row, node]:.6g}" for value in values]
            raise InvalidInstance(f"{field}: row {row}, node {node}: {say.format(*numbers)}")

    margin = TOLERANCE / 4
    depot = np.zeros(batch_size(instance), dtype=np.int64)
    out = lengths_from(instance, depot).astype(np.float64)
    back = lengths_home(problem, instance)[:, 0].astype(np.float64)
    if instance.max_length is not None:
        limit = instance.max_length[:, None]
        say = "a route to it alone is {} long, above the limit {}; raise the limit, or leave the customer out"
        refuse(out + back > limit + margin, "max_length", say, out + back, limit)
    if instance.ready_time is not None:
        ready, due = instance.ready_time.astype(np.float64), instance.due_time.astype(np.float64)
        refuse(ready > due, "due_time", "the window closes at {}, before it opens at {}; exchange them?", due, ready)
        arrival = ready[:, :1] + durations_from(instance, depot)
        back = lengths_home(problem, instance, times=True)[:, 0]
        remedy = "let it close later, or choose a problem with PC"
        say = f"the way from the depot takes until {{}}, and the window closes at {{}}; {remedy}"
        refuse(arrival > due + margin, "due_time", say, arrival, due)
        if not problem.open_routes:
            home = np.maximum(arrival, ready) + instance.service_time + back
            say = f"a vehicle that serves it alone is back at {{}}, and the depot closes at {{}}; {remedy}"
            refuse(home > due[:, :1] + margin, "due_time", say, home, due[:, :1])


def make_walk(problem: Family, instance: VRPInstance, tours: IntArray) -> Walk:
    """Convert complete tours to a `Walk`.

    Raises:
        InfeasibleTour: A tour does not end at a depot, or a route does not end at its own depot.
    """
    check_returns(tours, problem.num_depots)
    before = np.pad(tours, ((0, 0), (1, 0)))[:, :-1]
    at_depot, away = tours < problem.num_depots, before >= problem.num_depots
    start, current = np.zeros_like(tours), np.zeros_like(tours[:, 0])
    if problem.num_depots > 1:
        for step, node in enumerate(tours.T):
            wrong = at_depot[:, step] & away[:, step] & (node != current)
            if wrong.any():
                row = int(np.argmax(wrong))
                found = f"the route began at depot {current[row]} and ends at depot {node[row]}"
                raise InfeasibleTour(row, step, f"{found}; return to its own")
            current = np.where(at_depot[:, step], node, current)
            start[:, step] = current
    drives = (~at_depot | away) & ~(at_depot & problem.open_routes)
    travels = legs = leg_lengths(instance, np.pad(tours, ((0, 0), (1, 0))))[:, :-1] * drives
    if instance.durations is not None:
        travels = to_numpy(instance.durations)[np.arange(len(tours))[:, None], before, tours] * drives.astype(float)
    return Walk(tours, before, start, at_depot, ~at_depot & ~away, legs, travels)


def check_ended(problem: Family, walk: Walk, visited: BoolArray) -> BoolArray:
    """Check that no customer follows the end of a tour, and that a tour which leaves customers out has an end.

    Returns:
        Mask of the customers left out: bool (B, A).

    Raises:
        InfeasibleTour: A customer follows the end (its step is reported), or a customer is left out without an end (the
            customer is named).
    """
    ends = walk.at_depot & (walk.before == walk.tours)
    after = (np.cumsum(ends, axis=1) > 0) & ~walk.at_depot
    if after.any():
        row, step = map(int, np.argwhere(after)[0])
        found = f"node {walk.tours[row, step]} comes after the end of the tour"
        raise InfeasibleTour(row, step, f"{found}, which is the depot twice; leave out one of them")
    left_out = ~visited
    left_out[:, : problem.num_depots] = False
    open_ended = left_out.any(axis=1) & ~ends.any(axis=1)
    if open_ended.any():
        row = int(np.argmax(open_ended))
        found = f"node {np.argmax(left_out[row])} is not visited; visit it, or end the tour by the depot twice"
        raise InfeasibleTour(row, walk.tours.shape[1], found)
    return left_out
