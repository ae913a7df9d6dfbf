"""Observations of the dynamic environments: padded requests with features, the clock, and optional durations.

Times are shares of the depot's closing time, demands shares of the capacity. Slots without an open request are 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from routing_gym.arrays import BoolArray
from routing_gym.dynamic import rules
from routing_gym.dynamic.days import Day, DaySource
from routing_gym.problems.geometry import MAX_FLOAT

Arrays = dict[str, npt.NDArray[Any]]


def space(source: DaySource, with_durations: bool) -> dict[str, spaces.Space[Any]]:
    """Return the spaces of the observations that both forms share."""
    slots, places = source.num_slots, source.num_locations

    def positive(*shape: int) -> spaces.Box:
        return spaces.Box(0.0, MAX_FLOAT, shape, np.float32)

    shared: dict[str, spaces.Space[Any]] = {
        "time_window": positive(slots, 2),
        "service_time": positive(slots),
        "demand": spaces.Box(0.0, 1.0, (slots,), np.float32),
        "depot_durations": positive(slots, 2),
        "departure": positive(1),
        "epochs_left": spaces.Box(0.0, 1.0, (1,), np.float32),
    }
    if source.has_coords:
        shared |= {
            "coords": spaces.Box(0.0, 1.0, (slots, 2), np.float32),
            "depot": spaces.Box(0.0, 1.0, (2,), np.float32),
        }
    if with_durations:
        shared |= {
            "durations": positive(places, places),
            "customer": spaces.Box(0, places - 1, (slots,), np.int64),
        }
    return shared


def features(day: Day, with_durations: bool) -> Arrays:
    """Return the static features of all requests of a day; `hide` sets those in `REQUESTS` to 0 if not open."""
    closing, capacity = day.closing[:, None], day.capacity[:, None]
    there, back = day.depot_durations()
    shown: Arrays = {
        "time_window": (day.time_window / closing[..., None]).astype(np.float32),
        "service_time": (day.service_time / closing).astype(np.float32),
        "demand": (day.demand / capacity).astype(np.float32),
        "depot_durations": (np.stack([there, back], axis=-1) / closing[..., None]).astype(np.float32),
    }
    if day.coords is not None:
        rows = np.arange(len(day.customer))[:, None]
        shown |= {"coords": day.coords[rows, day.customer], "depot": day.coords[:, 0].copy()}
    if with_durations:
        shown |= {"durations": (day.durations / closing[..., None]).astype(np.float32), "customer": day.customer}
    return shown


REQUESTS = ("time_window", "service_time", "demand", "depot_durations", "coords", "customer")  # one row per slot


def hide(shown: Arrays, is_open: BoolArray) -> Arrays:
    """Return a copy of features with zeros in the slots that are not open; `is_open` is bool (B, N)."""
    places, hidden = np.flatnonzero(is_open), {}
    for key, values in shown.items():
        if key in REQUESTS:
            flat = (is_open.size, *values.shape[2:])
            hidden[key] = np.zeros_like(values)
            hidden[key].reshape(flat)[places] = values.reshape(flat)[places]  # few are open: faster than np.where
        else:
            hidden[key] = values.copy()
    return hidden


def observe(day: Day, state: rules.DayState) -> Arrays:
    """Return the observations that all dispatching environments share, including the mask, of B days, for policies."""
    is_open = rules.open_requests(day, state)
    mask = 2 * is_open.view(np.int8) - rules.must_go(day, state).view(np.int8)
    return hide(features(day, with_durations=False), is_open) | clock(day, state) | {"action_mask": mask}


def clock(day: Day, state: rules.DayState) -> Arrays:
    """Return the departure time of this epoch's vehicles, and the share of epochs left, including this one."""
    num_epochs = day.last_epoch - day.first_epoch + 1
    left = (day.last_epoch + 1 - state.epoch) / num_epochs
    return {
        "departure": (rules.departure(day, state) / day.closing).astype(np.float32)[:, None],
        "epochs_left": left.astype(np.float32)[:, None],
    }
