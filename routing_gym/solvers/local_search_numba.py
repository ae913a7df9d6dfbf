"""2-opt and Or-opt compiled by numba: the moves of `local_search.improve_all`, in the same order.

The sums are written as there, bracket by bracket, so that both find the same best move to the last bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit  # type: ignore[import-not-found, unused-ignore]

from routing_gym.solvers.local_search import LONGEST_SEGMENT, MIN_GAIN


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def improve_all(tours: Any, distances: Any, reverses: bool, moves_segments: bool) -> None:
    """Improve tours int64 (B, n) in place; see `local_search.improve_all`."""
    for row in range(len(tours)):
        while improve(tours[row], distances[row], reverses, moves_segments):
            pass


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def improve(tour: Any, distances: Any, reverses: bool, moves_segments: bool) -> bool:
    """Make the best move; say whether there was one."""
    size = len(tour)
    ring = np.append(tour, tour[0])  # spares the inner loops a modulo
    edge = np.empty(size)
    for i in range(size):
        edge[i] = distances[ring[i], ring[i + 1]]
    best, best_length, best_turned, best_i, best_j = -MIN_GAIN, -1, False, 0, 0  # length 0 is a reversal
    if reverses:
        for i in range(size):
            to_i, to_next = distances[ring[i]], distances[ring[i + 1]]
            for j in range(i + 1, size):
                change = (to_i[ring[j]] + to_next[ring[j + 1]]) - (edge[i] + edge[j])
                if change < best:
                    best, best_length, best_i, best_j = change, 0, i, j
    if moves_segments:
        for length in range(1, min(LONGEST_SEGMENT, size - 2) + 1):
            for turned in range(min(length, 2)):
                change, i, j = segment_move(ring, distances, edge, length, turned == 1)
                if change < best:
                    best, best_length, best_turned, best_i, best_j = change, length, turned == 1, i, j
    if best_length < 0:
        return False
    if best_length == 0:
        tour[best_i + 1 : best_j + 1] = tour[best_i + 1 : best_j + 1][::-1].copy()
    else:
        move_segment(tour, best_length, best_turned, best_i, best_j)
    return True


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def segment_move(ring: Any, distances: Any, edge: Any, length: int, turned: bool) -> tuple[float, int, int]:
    """Find the best Or-opt move of one length: its change, the segment's start, and where it goes."""
    size = len(ring) - 1
    best, best_start, best_after = np.inf, 0, 0
    for start in range(size):
        previous, last = (start - 1) % size, (start + length - 1) % size
        removed = (edge[previous] + edge[last]) - distances[ring[previous], ring[last + 1]]
        head, tail = (ring[last], ring[start]) if turned else (ring[start], ring[last])
        to_head, to_tail = distances[head], distances[tail]
        for after in range(size):
            offset = after - start if after >= start else after - start + size
            if offset < length or offset == size - 1:  # an edge at or in the segment itself
                continue
            change = ((to_head[ring[after]] + to_tail[ring[after + 1]]) - edge[after]) - removed
            if change < best:
                best, best_start, best_after = change, start, after
    return best, best_start, best_after


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def move_segment(tour: Any, length: int, turned: bool, start: int, after: int) -> None:
    """Put the segment after the place `after`, in place; the new tour begins as `local_search` has it."""
    size = len(tour)
    old = tour.copy()
    before = (after - start) % size - length + 1
    for place in range(size):
        if place < before:
            offset = place + length
        elif place < before + length:
            offset = length - 1 - (place - before) if turned else place - before
        else:
            offset = place
        tour[place] = old[(start + offset) % size]
