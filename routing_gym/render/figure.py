"""Figures of an instance and a tour, for every problem.

The depot is a square. Customers are circles whose area increases with their demand or prize, if the instance has
one; unvisited customers are grey and hollow. Each route has its own colour (Paul Tol's "muted" scheme, which
colour-blind readers can distinguish); routes from the tenth on are dashed. An SDVRP customer that several routes serve
has the first route's colour inside and the last route's around it. Thin arrows lead from PDP's pickups to their
deliveries. TSPFE's fixed edges are broad bands under the tour. Backhauls are triangles. A time window is the dark arc
of a dial around its customer; one turn, clockwise from the top, lasts from the depot's opening to its closing.

The drawing depends only on the instance's fields and the contract of `Problem`, so a new problem needs no code here.
Nodes without coordinates are placed on a circle, in order, and edges have arrows; the drawn lengths then have no
meaning. Figures need matplotlib; text does not. Only `show` uses pyplot, for its windows.
"""

from __future__ import annotations

import io
import os
import warnings
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from routing_gym.arrays import Array
from routing_gym.files import write_atomically
from routing_gym.optional import require
from routing_gym.problem import AnyProblem, instance_fields
from routing_gym.render.text import headline, one_row, replay

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#332288", "#CC6677", "#117733", "#DDAA33", "#88CCEE", "#882255", "#44AA99", "#AA4499", "#999933")
GREY, DARK, BAND = "#999999", "#222222", "#E2D3A4"
INCHES, PIXELS_PER_INCH = (6.0, 6.6), 100  # video encoders need even numbers of pixels
WINDOW = "routing-gym"
NO_WINDOW = 'notebooks open no window, so nothing is shown; use render_mode="rgb_array", or render.draw'
TINY = np.finfo(np.float32).tiny
AXES_BOX = (0.02, 0.08, 0.96, 0.87)  # left, bottom, width, height in shares of the figure


def draw(
    problem: AnyProblem,
    instance: Any,
    tour: Array,
    cost: float | None = None,
    title: str | None = None,
    axes: Axes | None = None,
) -> Figure:
    """Draw one instance and the actions taken so far.

    Args:
        problem: Problem of the instance.
        instance: One row of the problem's instance dataclass, on any backend.
        tour: Actions, integers (T,), possibly empty. An unfinished tour is drawn open with a ring around its current
            node; actions after the end are ignored.
        cost: Cost in the title, in any unit; by default the sum of the step costs.
        title: Title; by default the problem and the cost (OP: the prize).
        axes: Axes to draw on; by default those of a new figure, which is not managed by pyplot.

    Raises:
        ImportError: matplotlib is missing.
        ValueError: The instance has several rows, or the tour a wrong shape, type or range.
    """
    if axes is None:
        axes = new_figure().add_axes(AXES_BOX)
    instance = one_row(instance)
    actions, step_cost, done = replay(problem, instance, tour)
    routes = [route.nodes for route in problem.routes(instance, actions)]
    coords = positions(problem, instance)
    observed = problem.observed
    if observed.pairs:
        draw_pairs(axes, coords, getattr(instance, observed.pairs)[0])
    if "due_time" in [column.name for column in problem.columns]:
        draw_windows(axes, instance, coords, problem.num_depots)
    if observed.partner:
        draw_fixed_edges(axes, coords, getattr(instance, observed.partner)[0])
    draw_routes(axes, coords, routes, problem.num_depots)
    if observed.per_edge:
        draw_directions(axes, coords, routes)
    draw_nodes(axes, problem, instance, coords, routes)
    if not done and (actions or problem.has_depot):
        node = actions[-1] if actions else 0
        axes.plot(*coords[node], "o", ms=16, mfc="none", mec=DARK, ls="none", label="current", zorder=5)
    text = title if title is not None else headline(problem, step_cost if cost is None else cost)
    axes.set_title(text, parse_math=False)  # the name of an instance may hold a $
    frame(axes, coords)
    figure = axes.get_figure(root=True)
    assert figure is not None
    return figure


def to_rgb_array(problem: AnyProblem, instance: Any, tour: Array, cost: float | None = None) -> npt.NDArray[np.uint8]:
    """Return the figure of `draw` as pixels: uint8 (660, 600, 3)."""
    return pixels(draw(problem, instance, tour, cost))


def save(
    path: str | os.PathLike[str],
    problem: AnyProblem,
    instance: Any,
    tour: Array,
    cost: float | None = None,
    title: str | None = None,
) -> None:
    """Save the figure of `draw` as a PNG file. The file appears, or replaces an older one, only when complete.

    Raises:
        ValueError: The name does not end in .png.
        OSError: The file cannot be written.
    """
    path = Path(path)
    if path.suffix.lower() != ".png":
        raise ValueError(f"{path}: pictures are saved as PNG; choose a name that ends in .png")
    write_atomically(path, png(draw(problem, instance, tour, cost, title)))


def show(problem: AnyProblem, instance: Any, tour: Array, cost: float | None = None, window: str = WINDOW) -> None:
    """Show the figure of `draw` in a window, without blocking; later calls with the same name reuse the window.

    Without a display, it does nothing.

    Warns:
        UserWarning: In a notebook, nothing is shown.
    """
    matplotlib = require("matplotlib", "render")
    from matplotlib import pyplot
    from matplotlib.backends.registry import backend_registry

    backend, gui_framework = backend_registry.resolve_backend(matplotlib.get_backend())
    if gui_framework is None:
        if backend.endswith("inline"):
            warnings.warn(NO_WINDOW, stacklevel=1)  # one location, so that an episode warns once
        return
    figure = pyplot.figure(window, INCHES, clear=True)
    draw(problem, instance, tour, cost, axes=figure.add_axes(AXES_BOX))
    pyplot.pause(0.001)


def positions(problem: AnyProblem, instance: Any) -> npt.NDArray[np.float32]:
    """Return the position of each node of a one-row instance: (A, 2). Nodes without coordinates form a circle."""
    if "coords" in instance_fields(problem):
        return np.asarray(instance.coords[0])
    angle = np.linspace(0, 2 * np.pi, problem.num_actions, endpoint=False)
    return (0.5 + 0.5 * np.stack([np.cos(angle), np.sin(angle)], axis=1)).astype(np.float32)


def new_figure(size: tuple[float, float] = INCHES, **options: Any) -> Figure:
    """Create a figure that notebooks display. Unlike pyplot's figures, it is freed with its last reference.

    Args:
        size: Width and height in inches.
        **options: Other arguments of `matplotlib.figure.Figure`.

    Raises:
        ImportError: matplotlib is missing.
    """
    require("matplotlib", "render")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(size, PIXELS_PER_INCH, **options)
    FigureCanvasAgg(figure)
    # Notebooks display only pyplot's figures. A subclass, which needs an optional package, could not be pickled.
    figure._repr_png_ = partial(png, figure)  # type: ignore[attr-defined]
    return figure


def png(figure: Figure) -> bytes:
    """Return a figure as PNG data."""
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=PIXELS_PER_INCH)
    return picture.getvalue()


def pixels(figure: Figure) -> npt.NDArray[np.uint8]:
    """Return the pixels of a figure made by `new_figure`: uint8 (height, width, 3)."""
    figure.canvas.draw()
    return np.array(np.asarray(figure.canvas.buffer_rgba())[..., :3])  # type: ignore[attr-defined]


def draw_routes(axes: Axes, coords: Array, routes: list[list[int]], num_depots: int) -> None:
    """Draw a line for each route; if there are several, their edges from and to a depot are thin."""
    from matplotlib.collections import LineCollection

    width = 1.8 if len(coords) <= 200 else 1.0
    for number, nodes in enumerate(routes):
        start, stop = (1, len(nodes) - int(nodes[-1] < num_depots)) if num_depots else (0, len(nodes))
        points = coords[nodes]
        parts = [points[: start + 1], points[start:stop], points[stop - 1 :]]
        widths = [width / 2, width, width / 2] if len(routes) > 1 else [width]
        style = "-" if number < len(COLOURS) else (0, (4, 1.5))
        colour = COLOURS[number % len(COLOURS)]
        axes.add_collection(LineCollection(parts, linewidths=widths, colors=colour, linestyles=[style], zorder=2))


def draw_directions(axes: Axes, coords: npt.NDArray[np.float32], routes: list[list[int]]) -> None:
    """Draw an arrow head in the middle of each edge."""
    style: dict[str, Any] = {"angles": "xy", "scale": 60, "width": 0.009, "headlength": 4, "headaxislength": 4}
    for number, nodes in enumerate(routes):
        start, way = coords[nodes[:-1]], np.diff(coords[nodes], axis=0)
        head = way / np.maximum(np.linalg.norm(way, axis=1, keepdims=True), TINY)  # some nodes may share a location
        axes.quiver(*(start + way / 2).T, *head.T, color=COLOURS[number % len(COLOURS)], pivot="mid", zorder=2, **style)


def draw_pairs(axes: Axes, coords: npt.NDArray[np.float32], pickup: npt.NDArray[np.int64]) -> None:
    """Draw an arrow from each pickup to each of its deliveries, from marker to marker."""
    radius = same_size(len(coords)) ** 0.5 / 2 + 1  # points
    look = {"arrowstyle": "-|>", "color": GREY, "alpha": 0.6, "shrinkA": radius, "shrinkB": radius, "zorder": 1}
    for delivery in np.flatnonzero(pickup):
        axes.annotate("", coords[delivery], coords[pickup[delivery]], arrowprops=look)
    axes.plot([], [], "-", color=GREY, alpha=0.6, label="pickup to delivery")


def draw_windows(axes: Axes, instance: Any, coords: npt.NDArray[np.float32], first: int) -> None:
    """Draw a dial around each node from `first` on: its time window as a share of the first depot's."""
    from matplotlib.collections import LineCollection
    from matplotlib.transforms import Affine2D

    figure = axes.get_figure(root=True)
    assert figure is not None
    opens, closes = instance.ready_time[0].astype(np.float64), instance.due_time[0].astype(np.float64)
    whole_day = np.array([opens[0], max(closes[0], opens[0] + 1e-9)])
    radius = largest_marker(len(coords)) ** 0.5 / 2 + 2.5  # points
    for low, high, colour in ((whole_day[:1], whole_day[1:], "#DDDDDD"), (opens[first:], closes[first:], DARK)):
        share = (np.linspace(low, high, 40, axis=-1) - whole_day[0]) / (whole_day[1] - whole_day[0])
        turn = 2 * np.pi * np.clip(share, 0.0, 1.0)
        arcs = radius * np.stack([np.sin(turn), np.cos(turn)], axis=-1)
        style: dict[str, Any] = {"linewidths": 2.5, "colors": colour, "capstyle": "butt", "zorder": 2.5}
        dials = LineCollection(list(arcs), offsets=coords[first:], offset_transform=axes.transData, **style)
        dials.set_transform(Affine2D().scale(1 / 72) + figure.dpi_scale_trans)
        axes.add_collection(dials, autolim=False)
    axes.plot([], [], color=DARK, lw=2.5, label="time window")


def draw_fixed_edges(axes: Axes, coords: npt.NDArray[np.float32], partner: npt.NDArray[np.int64]) -> None:
    """Draw a broad band between the ends of each fixed edge."""
    ends = np.flatnonzero(partner > np.arange(len(partner)))
    for number, (x, y) in enumerate(np.stack([coords[ends], coords[partner[ends]]], axis=2)):
        axes.plot(x, y, color=BAND, lw=7, solid_capstyle="round", zorder=1, label="" if number else "fixed edge")


def draw_nodes(
    axes: Axes, problem: AnyProblem, instance: Any, coords: npt.NDArray[np.float32], routes: list[list[int]]
) -> None:
    """Draw the depot and the customers, sized by their demand or prize and coloured by their routes."""
    first_route = np.full(len(coords), -1)
    last_route = first_route.copy()
    for number, route in enumerate(routes):
        last_route[route] = number
        first_route[route] = np.where(first_route[route] < 0, number, first_route[route])
    nodes = np.arange(problem.num_depots, len(coords))
    visited, unvisited = nodes[first_route[nodes] >= 0], nodes[first_route[nodes] < 0]
    inside, around = (np.array(COLOURS)[route[visited] % len(COLOURS)] for route in (first_route, last_route))
    if problem.has_depot:
        axes.plot(*coords[: problem.num_depots].T, "s", ms=9, color=DARK, ls="none", label="depot", zorder=4)
    sizes = node_sizes(axes, problem, instance)
    edge = min(1.5, 0.2 * float(sizes.max()) ** 0.5)
    other, what = other_kind(problem, instance)
    for marker, kind in (("o", ~other), ("^", other)):
        some = kind[visited]
        x, y = coords[visited[some]].T
        look: dict[str, Any] = {"marker": marker, "linewidths": edge, "zorder": 3}
        axes.scatter(x, y, s=sizes[visited[some]], c=inside[some], edgecolors=around[some], **look)
        left = unvisited[kind[unvisited]]
        if len(left):
            x, y = coords[left].T
            label = "unvisited" if marker == "o" else None
            axes.scatter(x, y, s=sizes[left], c="white", edgecolors=GREY, label=label, **look)
    if other.any():
        axes.plot([], [], "^", ms=7, color=GREY, ls="none", label=what)


def other_kind(problem: AnyProblem, instance: Any) -> tuple[npt.NDArray[np.bool_], str]:
    """Return a mask of the nodes that are drawn as triangles, and their label."""
    flag = next((column.name for column in problem.columns if column.kind == "flag" and column.target), None)
    if flag is not None:
        return getattr(instance, flag)[0], flag
    if problem.observations.pairs:
        return getattr(instance, problem.observations.pairs)[0] > 0, "delivery"
    return np.zeros(problem.num_actions, dtype=bool), ""


def same_size(num_nodes: int) -> float:
    """Return the area of every marker if all nodes have the same size, in square points."""
    return 0.35 * largest_marker(num_nodes)


def largest_marker(num_nodes: int) -> float:
    """Return the area of the largest marker in square points."""
    return min(max(6000 / num_nodes, 12.0), 150.0)


def node_sizes(axes: Axes, problem: AnyProblem, instance: Any) -> npt.NDArray[np.float64]:
    """Return the marker area of every node in square points; if they differ, add examples to the legend."""
    num_nodes = problem.num_actions
    largest = largest_marker(num_nodes)
    sized = (column for column in problem.columns if column.per == "node" and column.kind in ("amount", "prize"))
    column = next(sized, None)
    values = None if column is None else getattr(instance, column.target or column.name)[0]
    if column is None or values is None or len(np.unique(values[problem.num_depots :])) < 2:
        return np.full(num_nodes, same_size(num_nodes))
    highest = values.max()
    for share, unit in ((1 / 3, f"{column.name} "), (1, "")):
        size = (largest * (0.1 + 0.9 * share)) ** 0.5
        axes.plot([], [], "o", ms=size, color=GREY, ls="none", label=f"{unit}{share * highest:.2g}")
    return np.asarray(largest * (0.1 + 0.9 * values / highest))


def frame(axes: Axes, coords: npt.NDArray[np.float32]) -> None:
    """Set the axes to the unit square, extended to nodes outside, at equal scales, and put the legend below."""
    low, high = min(0.0, float(coords.min())), max(1.0, float(coords.max()))
    margin = 0.03 * (high - low)
    axes.set(
        xlim=(low - margin, high + margin), ylim=(low - margin, high + margin), aspect="equal", xticks=[], yticks=[]
    )
    axes.spines[:].set_color("#CCCCCC")
    if axes.get_legend_handles_labels()[0]:
        style = {"fontsize": 9, "frameon": False, "handletextpad": 0.2, "columnspacing": 1.4}
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=6, **style)
