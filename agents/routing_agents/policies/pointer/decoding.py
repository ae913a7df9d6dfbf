"""Decoding of answers: beam search, with greedy decoding as the case of width 1 (Vinyals et al. 2015, 2.3)."""

from __future__ import annotations

from typing import get_args

import numpy as np
import torch
from torch import Tensor

from routing_agents.policies.attention.operations import take_nodes
from routing_agents.policies.pointer.model import END, PointerNetwork
from routing_agents.policies.pointer.sequences import PADDING, Answers, Order, Points, rename, sorting
from routing_agents.policies.pointer.tasks import Task, check_points

MEMORY_ELEMENTS = 2**24  # elements of the attention's largest array, (B, width, n + 1, d), at a time


@torch.inference_mode()
def beam_search(
    model: PointerNetwork, points: Tensor, max_length: int, width: int = 1, each_once: bool = False
) -> Tensor:
    """Find probable answers, keeping the best `width` beginnings at each step.

    Args:
        model: Pointer network, in evaluation mode.
        points: Points: float32 (B, n, 2), on any device.
        max_length: Number of steps after which an answer is cut off.
        width: Number of beginnings kept; 1 is greedy decoding.
        each_once: Whether to choose no point twice, so that tours are valid; networks trained with a mask never do.

    Returns:
        The most probable answer found: int64 (B, T), T at most `max_length`, padded with -1.
    """
    batch_size, n, _ = points.shape
    encoding = model.encode(points)
    state = encoding.repeat(width).last
    device = points.device
    score = torch.full((batch_size, width), -torch.inf, device=device)
    score[:, 0] = 0.0
    answers = torch.zeros(batch_size, width, 0, dtype=torch.int64, device=device)
    previous = torch.zeros(batch_size, width, dtype=torch.int64, device=device)
    ended = torch.zeros(batch_size, width, dtype=torch.bool, device=device)
    used = torch.zeros(batch_size, width, n + 1, dtype=torch.bool, device=device)
    only_end = torch.arange(n + 1, device=device) != END
    for _ in range(max_length):
        inputs = take_nodes(encoding.inputs, previous)
        decoded, state = model.advance(inputs.reshape(batch_size * width, 1, -1), state)
        logits = model.choose(encoding, decoded.reshape(batch_size, width, -1))
        log_p = logits.masked_fill(used, -torch.inf).log_softmax(dim=-1)
        log_p = torch.where(ended[..., None], torch.zeros_like(log_p).masked_fill(only_end, -torch.inf), log_p)
        score, flat = (score[..., None] + log_p).flatten(1).topk(width, dim=1)
        beam, previous = flat // (n + 1), flat % (n + 1)
        rows = (beam + torch.arange(batch_size, device=device)[:, None] * width).flatten()
        state = (state[0][:, rows], state[1][:, rows])
        answers = torch.cat([answers.flatten(0, 1)[rows].view(batch_size, width, -1), previous[..., None]], dim=2)
        ended = ended.flatten()[rows].view(batch_size, width) | (previous == END)
        used = used.flatten(0, 1)[rows].view(batch_size, width, -1)
        if each_once or model.masks:
            used.scatter_(2, previous[..., None], previous[..., None] != END)
        if model.ends and ended.all():
            break
    return answers[:, 0] - 1


def predict(
    model: PointerNetwork,
    task: Task,
    points: Points,
    *,
    order: Order = "sorted",
    width: int = 1,
    each_once: bool = False,
) -> Answers:
    """Predict the answers of a batch of instances of one size, in chunks.

    Args:
        model: Pointer network, in evaluation mode.
        task: Task for which the network was trained.
        points: Points (B, n, 2).
        order: Order in which the network reads the points, as in training: "sorted" for the order of x, or "given".
            Answers have the indices of `points`.
        width: See `beam_search`.
        each_once: See `beam_search`.

    Returns:
        int64 (B, T), padded with -1.

    Raises:
        ValueError: There are too few points for the task, a coordinate is not finite, or the width or the order is
            invalid.
    """
    check_points(points, task.fewest)
    if width < 1:
        raise ValueError(f"width must be at least 1, got {width}")
    if order not in get_args(Order):
        raise ValueError(f"order must be one of {', '.join(get_args(Order))}; got {order!r}")
    n = points.shape[1]
    names = sorting(points) if order == "sorted" else np.broadcast_to(np.arange(n), points.shape[:2])
    shown = np.take_along_axis(points, names[..., None], axis=1)
    longest = task.longest(n) + (task.holds != "every")  # the end
    size = max(1, MEMORY_ELEMENTS // (width * (n + 1) * model.config.units))
    table = np.full((len(points), longest), PADDING, dtype=np.int64)
    for first in range(0, len(points), size):
        part = torch.as_tensor(shown[first : first + size], dtype=torch.float32, device=model.begin.device)
        answers = beam_search(model, part, longest, width, each_once).cpu().numpy()
        table[first : first + len(part), : answers.shape[1]] = answers
    return rename(table, names)


def evaluate(
    model: PointerNetwork, task: Task, points: Points, right: Answers, *, order: Order = "sorted", width: int = 1
) -> dict[str, float]:
    """Measure a network on solved instances of one size.

    If answers hold every point, as in the TSP, decoding chooses each point once. "valid" is then the share of answers
    that hold every point without this restriction, which is 1 by construction for a network that masks.

    Args:
        model: Pointer network, in evaluation mode.
        task: Task for which the network was trained.
        points: Points (B, n, 2).
        right: Right answers (B, T).
        order: See `predict`.
        width: See `predict`.

    Returns:
        The task's metrics.
    """
    predicted = predict(model, task, points, order=order, width=width)
    metrics = task.metrics(points, predicted, right)
    if task.holds == "every" and not model.masks:
        kept = predict(model, task, points, order=order, width=width, each_once=True)
        metrics = {**task.metrics(points, kept, right), "valid": metrics["valid"]}
    return {name: float(value) for name, value in metrics.items()}
