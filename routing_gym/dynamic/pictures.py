"""Pictures of a day: a map for each epoch, with the routes that leave in colour and waiting requests in grey.

The depot is a square. Requests that leave are filled circles in the colour of their route; those that must leave have a
dark ring. Requests that wait are hollow grey circles. Pictures need matplotlib.
"""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from routing_gym.dynamic import rules
from routing_gym.dynamic.days import Day, routes_of
from routing_gym.dynamic.policies import Epoch
from routing_gym.files import write_atomically
from routing_gym.optional import require
from routing_gym.render.figure import COLOURS, DARK, GREY, new_figure, pixels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

EPOCHS_IN_A_LINE = 3
MILLISECONDS = 1500  # duration of a frame of an animation
INCHES_PER_EPOCH, INCHES_OF_TITLE, SIDE = 2.6, 0.3, 4.0  # SIDE: width of a picture of one epoch in inches


def draw_map(
    axes: Axes,
    day: Day,
    row: int,
    routes: Sequence[Sequence[int]],
    waits: npt.NDArray[np.bool_],
    urgent: npt.NDArray[np.bool_],
    title: str,
) -> None:
    """Draw one row's map.

    Args:
        axes: Axes to draw on.
        day: B days.
        row: Index of the day in the batch.
        routes: Routes as ids of requests.
        waits: bool (N,), requests that are drawn in grey.
        urgent: bool (N,), requests with a dark ring.
        title: Title above the map.

    Raises:
        ValueError: The day has no coordinates.
    """
    if day.coords is None:
        raise ValueError("the day has no coordinates to draw: give the static instance `coords`")
    (x, y), customer = day.coords[row].T, day.customer[row]
    rings = [DARK if ring else GREY for ring in urgent[waits]]
    axes.scatter(x[customer[waits]], y[customer[waits]], s=22, facecolors="none", edgecolors=rings or GREY, zorder=2)
    for number, route in enumerate(routes):
        slots = np.array(route) - 1
        colour = COLOURS[number % len(COLOURS)]
        stops = np.concatenate([[0], customer[slots], [0]])
        axes.plot(x[stops], y[stops], color=colour, lw=1.2, ls="-" if number < len(COLOURS) else "--", zorder=1)
        edges = [DARK if ring else colour for ring in urgent[slots]]
        axes.scatter(x[customer[slots]], y[customer[slots]], s=24, color=colour, edgecolors=edges, zorder=3)
    axes.plot(x[0], y[0], "s", ms=6, color=DARK, zorder=4)
    axes.set_title(title, fontsize=8)
    axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), aspect="equal", xticks=[], yticks=[])


def draw_epoch(axes: Axes, day: Day, row: int, epoch: Epoch) -> None:
    """Draw one row's epoch; see `draw_map`."""
    waits = rules.open_requests(day, epoch.state)[row] & ~epoch.chosen[row]
    title = f"Epoch {epoch.state.epoch[row]}: {epoch.chosen[row].sum()} leave, {waits.sum()} wait"
    draw_map(axes, day, row, routes_of(epoch.tours[row]), waits, rules.must_go(day, epoch.state)[row], title)


def draw_day(day: Day, row: int, epochs: Sequence[Epoch]) -> Figure:
    """Draw the epochs of one row side by side, three in a line.

    Raises:
        ImportError: matplotlib is missing.
        ValueError: The day has no coordinates.
    """
    lines = -(-len(epochs) // EPOCHS_IN_A_LINE)
    size = INCHES_PER_EPOCH * EPOCHS_IN_A_LINE, (INCHES_PER_EPOCH + INCHES_OF_TITLE) * lines
    figure = new_figure(size, layout="constrained")
    for place, epoch in enumerate(epochs):
        draw_epoch(figure.add_subplot(lines, EPOCHS_IN_A_LINE, place + 1), day, row, epoch)
    return figure


def save_animation(path: str | os.PathLike[str], day: Day, row: int, epochs: Sequence[Epoch]) -> None:
    """Write a GIF of one row's day; each epoch shows first the open requests, then the routes that leave.

    Args:
        path: File to write.
        day: B days.
        row: Index of the day in the batch.
        epochs: Epochs from `policies.epochs`.

    Raises:
        ImportError: matplotlib is missing.
        ValueError: The day has no coordinates.
    """
    require("matplotlib", "render")
    image = require("PIL.Image", "render")
    frames = []
    for epoch in epochs:
        before = replace(epoch, chosen=np.zeros_like(epoch.chosen), tours=np.zeros_like(epoch.tours))
        for part in (before, epoch):
            figure = new_figure((SIDE, SIDE + INCHES_OF_TITLE), layout="constrained")
            draw_epoch(figure.add_subplot(), day, row, part)
            frames.append(image.fromarray(pixels(figure)).quantize(64))
    data = io.BytesIO()
    frames[0].save(
        data, format="GIF", save_all=True, append_images=frames[1:], duration=MILLISECONDS, loop=0, optimize=True
    )
    write_atomically(Path(path), data.getvalue())
