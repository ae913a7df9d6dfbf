"""Pictures of a day: a map for each epoch, with the routes that leave in colour, and in grey what waits.

Depot: a square. Requests that leave: filled circles in the colour of their route; those that must leave have a dark
ring. Requests that wait: hollow grey circles. Pictures need matplotlib.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from routing_gym.dynamic import rules
from routing_gym.dynamic.days import Day
from routing_gym.dynamic.policies import Epoch
from routing_gym.optional import require
from routing_gym.render.figure import COLOURS, DARK, GREY, PIXELS_PER_INCH

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INCHES_PER_EPOCH, INCHES_OF_TITLE = 2.6, 0.3


def draw_epoch(axes: Axes, day: Day, row: int, epoch: Epoch) -> None:
    """Draw one row's epoch.

    Raises:
        ValueError: The day has no coordinates.
    """
    if day.coords is None:
        raise ValueError("draw_epoch: the day has no coordinates; give the static instance some")
    coords, customer = day.coords[row], day.customer[row]
    waits = rules.open_requests(day, epoch.state)[row] & ~epoch.chosen[row]
    urgent = rules.must_go(day, epoch.state)[row]
    x, y = coords.T
    axes.scatter(x[customer[waits]], y[customer[waits]], s=22, facecolors="none", edgecolors=GREY, zorder=2)
    routes = [list(ids) for is_route, ids in groupby(epoch.tours[row].tolist(), bool) if is_route]
    for number, route in enumerate(routes):
        slots = np.array(route) - 1
        colour = COLOURS[number % len(COLOURS)]
        stops = np.concatenate([[0], customer[slots], [0]])
        axes.plot(x[stops], y[stops], color=colour, lw=1.2, ls="-" if number < len(COLOURS) else "--", zorder=1)
        edges = [DARK if urgent[slot] else colour for slot in slots]
        axes.scatter(x[customer[slots]], y[customer[slots]], s=24, color=colour, edgecolors=edges, zorder=3)
    axes.plot(x[0], y[0], "s", ms=6, color=DARK, zorder=4)
    number = int(epoch.state.epoch[row])
    axes.set_title(f"Epoch {number}: {int(epoch.chosen[row].sum())} leave, {int(waits.sum())} wait", fontsize=8)
    axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), aspect="equal", xticks=[], yticks=[])


def draw_day(day: Day, row: int, epochs: Sequence[Epoch], columns: int = 3) -> Figure:
    """Draw the epochs of one row side by side, `columns` in a line.

    Raises:
        ImportError: matplotlib is missing.
        ValueError: The day has no coordinates.
    """
    figure_class = require("matplotlib.figure", "render").Figure
    lines = -(-len(epochs) // columns)
    size = (INCHES_PER_EPOCH * columns, (INCHES_PER_EPOCH + INCHES_OF_TITLE) * lines)
    figure: Figure = figure_class(figsize=size, dpi=PIXELS_PER_INCH, layout="constrained")
    for place, epoch in enumerate(epochs):
        draw_epoch(figure.add_subplot(lines, columns, place + 1), day, row, epoch)
    return figure


def to_pixels(figure: Figure) -> npt.NDArray[np.uint8]:
    """Return the pixels of a figure: uint8 (height, width, 3)."""
    require("matplotlib.backends.backend_agg", "render").FigureCanvasAgg(figure).draw()
    canvas: Any = figure.canvas
    return np.array(canvas.buffer_rgba())[..., :3]
