"""Text description of a tour: the routes of its vehicles with their lengths and loads."""

from __future__ import annotations

from typing import Any

from routing_gym.arrays import Array, batch_size, euclidean, map_arrays, to_numpy
from routing_gym.problem import AnyProblem
from routing_gym.problems.checks import as_tours
from routing_gym.traits import Route

MAX_NODES_IN_LINE = 40


def to_text(problem: AnyProblem, instance: Any, tour: Array, cost: float | None = None) -> str:
    """Describe a tour in a few lines: cost, routes with their loads or prizes, unvisited nodes.

    See `draw` for the arguments and the ValueError.
    """
    instance = one_row(instance)
    actions, step_cost, done = replay(problem, instance, tour)
    routes = problem.routes(instance, actions)
    state = "complete" if done else "incomplete"
    lines = [f"{headline(problem, step_cost if cost is None else cost)}, steps {len(actions)}, {state}"]
    for number, route in enumerate(routes, start=1):
        nodes = " -> ".join(shorten(route.nodes))
        lines.append(f"route {number}: {nodes}; {describe(route)}length {length(instance, route.nodes):.3f}")
    visited = {node for route in routes for node in route.nodes}
    unvisited = [node for node in range(problem.num_depots, problem.num_actions) if node not in visited]
    if unvisited:
        lines.append(f"unvisited: {', '.join(shorten(unvisited))}")
    return "\n".join(lines)


def one_row(instance: Any) -> Any:
    """Convert an instance to NumPy and check that it has one row.

    Raises:
        ValueError: It has several rows. The message has their number.
    """
    num_rows = batch_size(instance)
    if num_rows != 1:
        raise ValueError(f"instance: expected one row, got {num_rows}; pick one with `select`")
    return map_arrays(to_numpy, instance)


def replay(problem: AnyProblem, instance: Any, tour: Array) -> tuple[list[int], float, bool]:
    """Replay the actions of a tour until the episode is done.

    Returns:
        The replayed actions, the sum of their costs, and whether the episode is done.

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


def headline(problem: AnyProblem, cost: float) -> str:
    """Return the problem's name and the cost, or the prize if costs are negative prizes."""
    label, value = ("prize", 0.0 - cost) if problem.maximises else ("cost", cost)
    number = f"{value:.0f}" if float(value).is_integer() and value >= 100 else f"{value:.3f}"
    return f"{problem.name}-{problem.num_nodes}: {label} {number}"


def length(instance: Any, nodes: list[int]) -> float:
    """Return the length of a route in the metric of the instance."""
    origin, destination = nodes[:-1], nodes[1:]
    if instance.distances is not None:
        return float(instance.distances[0, origin, destination].sum())
    return float(euclidean(instance.coords[0, origin], instance.coords[0, destination]).sum())


def describe(route: Route) -> str:
    """Return the amounts that the vehicle of a route carries or collects, as in "load 29 of 30, "."""
    words = []
    for name, (amount, most) in route.amounts.items():
        number = f"{amount:.3f}" if isinstance(amount, float) else str(amount)
        words.append(f"{name} {number}" + ("" if most is None else f" of {most}"))
    return "".join(f"{word}, " for word in words)


def shorten(nodes: list[int]) -> list[str]:
    """Return the numbers of nodes as text, without the middle of long lists."""
    words = [str(node) for node in nodes]
    if len(words) <= MAX_NODES_IN_LINE:
        return words
    half = MAX_NODES_IN_LINE // 2
    return [*words[:half], f"({len(words) - 2 * half} more)", *words[-half:]]
