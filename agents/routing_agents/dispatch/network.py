"""Network that scores open requests by attention over all of them, with the encoder layers of the attention model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from routing_agents.policies.attention.encoder import EncoderLayer, ModelConfig

NUM_FEATURES = 13
TIME_UNITS = 10.0  # an hour of a day of ten hours is 1
MANY = 50.0  # typical number of open requests
HIDDEN = -1e9  # added to the attention scores of padding; -inf would give NaN if no request is open

SMALL = ModelConfig(embed_dim=64, num_heads=4, num_layers=2, feed_forward_dim=128, normalization="layer")


@dataclass(frozen=True)
class Requests:
    """The open requests of B epochs without gaps, at most K."""

    features: Tensor  # float32 (B, K, NUM_FEATURES)
    exists: Tensor  # bool (B, K)
    free: Tensor  # bool (B, K), may wait or leave
    slot: Tensor  # int64 (B, K), their slots in observations and actions

    def take(self, rows: Tensor) -> Requests:
        """Return some rows."""
        return Requests(*(values[rows] for values in vars(self).values()))

    def spread(self, values: Tensor, num_slots: int) -> Any:
        """Return an array (B, N) with the values (B, K) in the slots of the requests, and zeros elsewhere."""
        spread = torch.zeros(len(values), num_slots, dtype=values.dtype)
        rows, places = self.exists.nonzero(as_tuple=True)
        spread[rows, self.slot[rows, places]] = values[rows, places]
        return spread.numpy()


def open_requests(observation: dict[str, Any]) -> Requests:
    """Collect the open requests of a batch of observations, relative to the depot and the departure.

    Args:
        observation: NumPy arrays (B, ...) of an environment with coordinates and `action="dispatch"`.
    """
    is_open = observation["action_mask"] > 0
    counts = is_open.sum(axis=1)
    slot = np.argsort(~is_open, axis=1, kind="stable")[:, : max(1, int(counts.max()))]
    exists = np.arange(slot.shape[1]) < counts[:, None]

    def pick(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return values[np.arange(len(slot))[:, None], slot]

    departure = observation["departure"][:, :, None]
    window, depot = pick(observation["time_window"]), pick(observation["depot_durations"])
    service = pick(observation["service_time"])[..., None]
    latest = np.minimum(window[..., 1:], 1.0 - service - depot[..., 1:])
    must = pick(observation["action_mask"])[..., None] == 1
    shape = (*slot.shape, 1)
    parts = (
        pick(observation["coords"]) - observation["depot"][:, None],
        TIME_UNITS * (window - departure),
        TIME_UNITS * service,
        TIME_UNITS * depot,
        TIME_UNITS * (latest - depot[..., :1] - departure),  # how long it can wait
        pick(observation["demand"])[..., None],
        must,
        np.broadcast_to(observation["epochs_left"][:, :, None], shape),
        np.broadcast_to(TIME_UNITS * departure, shape),
        np.broadcast_to(counts[:, None, None] / MANY, shape),
    )
    features = np.concatenate(parts, axis=-1, dtype=np.float32) * exists[..., None]
    free = exists & ~must[..., 0]
    return Requests(*map(torch.from_numpy, (features.astype(np.float32), exists, free, slot)))


class RequestNetwork(nn.Module):
    """Network that computes scores of requests (B, K), and a value of the epoch (B,).

    Args:
        config: Sizes; the normalisation must be "layer" or "none", which padding does not affect.
        generator: Random number generator for the initial weights.
    """

    def __init__(self, config: ModelConfig = SMALL, generator: torch.Generator | None = None) -> None:
        super().__init__()
        if config.normalization not in ("layer", "none"):
            raise ValueError(f"normalization must be layer or none, got {config.normalization!r}: rows are padded")
        self.config = config
        self.embed = nn.Linear(NUM_FEATURES, config.embed_dim)
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.num_layers))
        size = config.embed_dim
        self.head = nn.Sequential(nn.Linear(2 * size, size), nn.ReLU(), nn.Linear(size, 1))
        self.value = nn.Sequential(nn.Linear(size, size), nn.ReLU(), nn.Linear(size, 1))
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                if "norm" not in name:
                    bound = parameter.shape[-1] ** -0.5
                    parameter.copy_(bound * (2 * torch.rand(parameter.shape, generator=generator) - 1))

    def forward(self, requests: Requests) -> tuple[Tensor, Tensor]:
        shift = HIDDEN * (~requests.exists)[:, None, None, :].float()
        x = self.embed(requests.features)
        for layer in self.layers:
            x = layer(x, shift)
        exists = requests.exists[..., None].float()
        mean = (x * exists).sum(dim=1) / exists.sum(dim=1).clamp(min=1.0)
        scores = self.head(torch.cat([x, mean[:, None].expand_as(x)], dim=-1)).squeeze(-1)
        return scores, self.value(mean).squeeze(-1)
