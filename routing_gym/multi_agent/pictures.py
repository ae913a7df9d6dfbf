"""Figures of a game: the paths of the vehicles and the customers that they have collected.

Vehicles are squares with the line of their path, each in its own colour (those of `render`). Customers are
circles whose area increases with their prize. Available customers are grey and hollow; collected ones have the colour
of a vehicle that collected them, with that of another around it if there were several. Figures need matplotlib; text
does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from routing_gym.multi_agent.competitive_op import MARGIN
from routing_gym.multi_agent.game import AnyGame
from routing_gym.render.figure import AXES_BOX, COLOURS, DARK, GREY, frame, new_figure, pixels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LARGEST = 150.0  # area of a marker, in square points


def draw(
    game: AnyGame, instance: Any, states: Sequence[Any], title: str | None = None, axes: Axes | None = None
) -> Figure:
    """Draw one game after its latest state.

    Args:
        game: Game of the instance.
        instance: One row of the game's instance dataclass, NumPy.
        states: All states so far, from the initial one on, one row each.
        title: Title; by default the game and the collected prize.
        axes: Axes to draw on; by default those of a new figure, which is not managed by pyplot.

    Raises:
        ImportError: matplotlib is missing.
    """
    if axes is None:
        axes = new_figure().add_axes(AXES_BOX)
    colours = np.array([COLOURS[agent % len(COLOURS)] for agent in range(game.num_agents)])
    trail = np.stack([state.position[0] for state in states])  # (T + 1, m, 2)
    for agent, colour in enumerate(colours):
        axes.plot(*trail[:, agent].T, color=colour, lw=1.5, zorder=2)
        x, y = trail[-1, agent]
        axes.plot(x, y, "s", ms=7, color=colour, mec=DARK, zorder=4)
    draw_customers(axes, instance, collectors(game, instance, states), colours)
    axes.set_title(headline(game, instance, states) if title is None else title)
    frame(axes, instance.coords[0])
    figure = axes.get_figure(root=True)
    assert figure is not None
    return figure


def draw_customers(axes: Axes, instance: Any, collected_by: dict[int, list[int]], colours: npt.NDArray[Any]) -> None:
    """Draw customers with areas by prize and colours by the vehicles that have collected them."""
    for customer, (x, y) in enumerate(instance.coords[0]):
        agents = collected_by.get(customer, [])
        inside, around = (colours[agents[0]], colours[agents[-1]]) if agents else ("white", GREY)
        area = LARGEST * (0.1 + 0.9 * instance.prize[0, customer] / 100)
        axes.scatter(x, y, s=area, c=[inside], edgecolors=[around], linewidths=1.5, zorder=3)


def to_rgb_array(game: AnyGame, instance: Any, states: Sequence[Any]) -> npt.NDArray[np.uint8]:
    """Return the figure of `draw` as pixels: uint8 (660, 600, 3)."""
    return pixels(draw(game, instance, states))


def to_text(game: AnyGame, instance: Any, states: Sequence[Any]) -> str:
    """Describe a game in a few lines: each vehicle's position and collected customers. See `draw` for the arguments."""
    collected_by = collectors(game, instance, states)
    lines = [headline(game, instance, states)]
    for agent, (x, y) in enumerate(states[-1].position[0]):
        customers = [str(customer) for customer, agents in collected_by.items() if agent in agents]
        lines.append(f"vehicle {agent} at ({x:.3f}, {y:.3f}): customers {', '.join(customers) or 'none'}")
    return "\n".join(lines)


def headline(game: AnyGame, instance: Any, states: Sequence[Any]) -> str:
    """Return a title with the game, the tick, the collected prize and the total prize."""
    left, everything = (float(game.remaining(instance, state)[0]) for state in (states[-1], states[0]))
    tick = len(states) - 1
    return f"{game.name}, {game.num_agents} vehicles: tick {tick}, prize {everything - left:.2f} of {everything:.2f}"


def collectors(game: AnyGame, instance: Any, states: Sequence[Any]) -> dict[int, list[int]]:
    """Return the vehicles that have collected each customer, in the order of collection.

    They are the vehicles nearest to the customer in the tick of its collection: all that reached it; with velocities,
    all within the radius.
    """
    found = {}
    radius = getattr(game, "radius", 0.0) * (1 + MARGIN) if getattr(game, "control", "") == "velocity" else 0.0
    for before, after in pairwise(states):
        for customer in np.flatnonzero(before.available[0] & ~after.available[0]):
            distance = np.linalg.norm(after.position[0] - instance.coords[0, customer], axis=-1)
            found[int(customer)] = np.flatnonzero(distance <= max(radius, distance.min() + 1e-9)).tolist()
    return found
