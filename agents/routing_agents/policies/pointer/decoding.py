"""Answers from a trained network: beam search, of which greedy decoding is the narrowest (Vinyals et al. 2015, 2.3)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from routing_agents.policies.attention.encoder import take_nodes
from routing_agents.policies.pointer.model import END, PointerNetwork
from routing_agents.policies.pointer.sequences import PADDING, Answers, Order, Points, rename, sorting
from routing_agents.policies.pointer.tasks import Task

MEMORY_ELEMENTS = 2**24  # of the attention's largest array, (B, width, n + 1, d), in one go


@torch.inference_mode()
def beam_search(
    model: PointerNetwork, points: Tensor, max_length: int, width: int = 1, each_once: bool = False
) -> Tensor:
    """Find probable answers, keeping the best `width` beginnings at each step.

    Args:
        model: The network, in evaluation mode.
        points: float32 (B, n, 2), on any device.
        max_length: Steps after which an answer is cut off.
        width: Beginnings kept; 1 is greedy decoding.
        each_once: No point twice, so that tours come out valid; a network that was trained so never does.

    Returns:
        The best answer found: int64 (B, T), T at most `max_length`, padded with -1.
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
    """Answer a batch of instances of one size, a part at a time.

    Args:
        model: The network, in evaluation mode.
        task: What it was trained for.
        points: (B, n, 2).
        order: "sorted" shows the network the points in the order of x, as it was trained; the answer keeps their own.
        width: As of `beam_search`.
        each_once: As of `beam_search`.

    Returns:
        int64 (B, T), padded with -1.
    """
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

    Where an answer holds every point, as in TSP, decoding is restricted to that; "valid" is the share of answers that
    hold every point without, which is 1 by construction for a network that masks.

    Args:
        model: The network, in evaluation mode.
        task: What it was trained for.
        points: (B, n, 2).
        right: Right answers (B, T).
        order: As of `predict`.
        width: As of `predict`.

    Returns:
        The task's metrics.
    """
    predicted = predict(model, task, points, order=order, width=width)
    metrics = task.metrics(points, predicted, right)
    if task.holds == "every" and not model.masks:
        kept = predict(model, task, points, order=order, width=width, each_once=True)
        metrics = {**task.metrics(points, kept, right), "valid": metrics["valid"]}
    return {name: float(value) for name, value in metrics.items()}
