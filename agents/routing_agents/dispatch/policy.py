"""The policy of a trained network, and training data from the oracle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch

from routing_agents import checkpoint
from routing_agents.dispatch.network import RequestNetwork, Requests, open_requests
from routing_agents.header import CheckpointError, from_json
from routing_agents.policies.attention.encoder import ModelConfig
from routing_gym.arrays import concatenate, select
from routing_gym.dynamic import rules
from routing_gym.dynamic.days import NEVER, Day
from routing_gym.dynamic.observations import observe
from routing_gym.dynamic.oracle import dispatch_epochs
from routing_gym.dynamic.rules import DayState
from routing_gym.dynamic.solver import Limits, Tour, prize_collecting

Reading = Literal["logits", "prizes"]  # meaning of the scores

KIND = "dispatch"  # kind of network, in headers of checkpoints
PRIZE_UNIT = 1000.0  # seconds of driving that a score of 1 is worth


@dataclass(frozen=True)
class Learned:
    """The policy of a trained network.

    Attributes:
        network: Network that scores requests.
        reading: Meaning of the scores. "logits": requests with a positive score leave. "prizes": PyVRP decides which
            requests are worth it.
        limits: Limits of PyVRP's search in each epoch, for prizes.
    """

    network: RequestNetwork
    reading: Reading
    limits: Limits

    @torch.no_grad()
    def __call__(self, day: Day, state: DayState, rng: np.random.Generator) -> Any:
        requests = open_requests(observe(day, state))
        scores = self.network(requests)[0]
        must = rules.must_go(day, state)
        if self.reading == "logits":
            return must | requests.spread((scores > 0) & requests.free, day.num_slots)
        prizes = requests.spread((PRIZE_UNIT * scores).round().long(), day.num_slots)
        return must | worthwhile(day, state, prizes, self.limits)


def worthwhile(day: Day, state: DayState, prizes: Any, limits: Limits) -> Any:
    """Return a mask of the requests that PyVRP serves, which must leave or are worth their prize: bool (B, N)."""
    is_open, must, leaving = rules.open_requests(day, state), rules.must_go(day, state), rules.departure(day, state)
    served = np.zeros_like(is_open)
    for row in range(len(served)):
        tour = prize_collecting(day, row, is_open[row], must[row], int(leaving[row]), prizes[row], limits)
        served[row, [stop - 1 for stop in tour if stop]] = True
    return served


@dataclass(frozen=True)
class Lessons:
    """Epochs of days that are played with the oracle's decisions: S rows."""

    day: Day  # the known part of each day
    state: DayState
    requests: Requests
    leaves: torch.Tensor  # float32 (S, K), 1 where the oracle dispatches the request


def lessons(day: Day, tours: Sequence[Tour]) -> Lessons:
    """Play days by their routes in hindsight; return every epoch in which a request may wait or leave."""
    plan = np.stack([dispatch_epochs(day, row, tour) for row, tour in enumerate(tours)])
    plan[day.arrival == NEVER] = NEVER
    state, days, states, left = rules.initial(day), [], [], []
    while not rules.done(day, state).all():
        leaves = rules.must_go(day, state) | (rules.open_requests(day, state) & (plan <= state.epoch[:, None]))
        days.append(rules.known_part(day, state))
        states.append(state)
        left.append(leaves)
        state = rules.dispatch(state, leaves)
    known, every, chosen = concatenate(days), concatenate(states), np.concatenate(left)
    requests = open_requests(observe(known, every))
    rows = requests.free.any(dim=1).nonzero().squeeze(-1)
    kept = requests.take(rows)
    labels = torch.from_numpy(chosen)[rows].gather(1, kept.slot).float()
    return Lessons(select(known, rows.numpy()), select(every, rows.numpy()), kept, labels)


def load_policy(run: Path, limits: Limits) -> Learned:
    """Read the policy of a run's folder, or of one of its checkpoint files.

    Raises:
        CheckpointError: The file is not a checkpoint of dispatch.py.
    """

    def make(header: dict[str, Any]) -> tuple[RequestNetwork, Reading]:
        if header.get("network") != KIND or header["reading"] not in get_args(Reading):
            raise CheckpointError(f"no policy of dispatch.py: its network is {header.get('network')!r}")
        return RequestNetwork(from_json(ModelConfig, header["config"], "config")), header["reading"]

    network, reading, _ = checkpoint.load_network(run, "cpu", make)
    return Learned(network, reading, limits)
