"""Pictures of instances and answers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from routing_agents.policies.pointer.sequences import PADDING, Answers, Points
from routing_agents.policies.pointer.tasks import Task
from routing_gym.render.figure import new_figure


def draw(task: Task, points: Points, right: Answers, predicted: Answers) -> Figure:
    """Draw some instances (B, n, 2), one above the other."""
    figure = new_figure((7.5, 2.6 * len(points)), layout="constrained")
    for row, axes in enumerate(figure.subplots(len(points), 3, squeeze=False)):
        draw_row(axes, task, points[row], (None, right[row], predicted[row]))
    return figure


def draw_row(axes: npt.NDArray[np.object_], task: Task, points: Points, answers: tuple[Answers | None, ...]) -> None:
    """Draw one instance (n, 2) three times: the input, the right answer, the network's."""
    for axis, answer, title in zip(axes, answers, ("input", "answer", "network's answer"), strict=True):
        draw_answer(axis, task, points, answer)
        axis.set_title(title, fontsize="medium")


def draw_answer(axis: Axes, task: Task, points: Points, answer: Answers | None) -> None:
    """Draw points (n, 2), and an answer (T,) as a closed line, or as triangles if the task has triangles."""
    axis.plot(*points.T, "o", color="black", markersize=3)
    axis.set(xlim=(-0.05, 1.05), ylim=(-0.05, 1.05), aspect="equal", xticks=(), yticks=())
    if answer is None or not (indices := answer[answer != PADDING]).size:
        return
    pieces = [indices] if not task.triangles else [indices[i : i + 3] for i in range(0, len(indices) - 2, 3)]
    for piece in pieces:
        axis.plot(*points[np.append(piece, piece[0])].T, color="tab:blue", linewidth=1.2)
