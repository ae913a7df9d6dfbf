"""Sizes of the pointer network, and its two encoders. n = points, d = units; see `model.py`."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from routing_agents.policies.attention.encoder import NORMALIZATIONS, Encoder, ModelConfig
from routing_agents.policies.attention.features import Features
from routing_agents.policies.attention.operations import products
from routing_agents.policies.attention.sizes import check_sizes

POINTS = Features(depot=False, context_nodes=())  # coordinates are all that the encoder reads
INITIAL = ("fan-in", "paper")
Answer = Literal["pointer", "attention", "sequence"]


@dataclass(frozen=True)
class PointerConfig:
    """Kind and size of the network.

    Attributes:
        encoder: Encoder: "lstm" (Vinyals et al. 2015), or "transformer", the attention model's, which ignores the
            points' order.
        answer: Output layer: "pointer", or one with which Vinyals et al. compare it, for instances of one size:
            "attention" (content-based, to a dictionary) or "sequence".
        units: Size d of embeddings, states and attention; Vinyals et al. use 256 or 512.
        mask_chosen: Whether points that were chosen before are masked, also in training, for tasks whose answers never
            repeat a point; the network of Vinyals et al. has to learn that.
        initial: Distribution of the initial weights: "fan-in" for +-1/sqrt(fan-in), "paper" for +-0.08.
        num_layers: Number of the transformer's layers.
        num_heads: Number of the transformer's attention heads; divides `units`.
        normalization: Normalisation in the transformer, see `ModelConfig`; "batch" is the attention model's.
    """

    encoder: Literal["lstm", "transformer"] = "transformer"
    answer: Answer = "pointer"
    units: int = 128
    mask_chosen: bool = True
    initial: Literal["fan-in", "paper"] = "fan-in"
    num_layers: int = 3
    num_heads: int = 8
    normalization: Literal["batch", "instance", "layer", "none"] = "layer"

    def __post_init__(self) -> None:
        check_sizes(self.num_layers, {"units": self.units, "num_heads": self.num_heads})
        choices: dict[str, Collection[str]] = {
            "encoder": ENCODERS,
            "answer": get_args(Answer),
            "initial": INITIAL,
            "normalization": NORMALIZATIONS,
        }
        for name, known in choices.items():
            if getattr(self, name) not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}; got {getattr(self, name)!r}")
        if self.encoder == "transformer" and self.units % self.num_heads:
            raise ValueError(f"units {self.units} is not a multiple of num_heads {self.num_heads}")


class LSTMEncoder(nn.Module):
    """Encoder that reads the embedded points in their given order."""

    def __init__(self, config: PointerConfig) -> None:
        super().__init__()
        self.precision = "float32"  # see `PointerNetwork.multiply_in`
        self.embed = nn.Linear(2, config.units)
        self.lstm = nn.LSTM(config.units, config.units, batch_first=True)

    def forward(self, points: Tensor) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
        """Return the decoder's inputs and the encoder's states (B, n, d), and the last state (1, B, d), (1, B, d)."""
        with products(points, self.precision):
            embedded = self.embed(points)
        states, last = run_lstm(self.lstm, embedded, None, self.precision)
        return embedded, states, last


class TransformerEncoder(nn.Module):
    """Encoder of Kool et al. (2019), which ignores the order; the mean embedding gives the decoder's first state."""

    def __init__(self, config: PointerConfig) -> None:
        super().__init__()
        d = config.units
        layers = ModelConfig(d, config.num_heads, config.num_layers, 4 * d, normalization=config.normalization)
        self.encoder = Encoder(POINTS, layers)
        self.first_state = nn.Linear(d, 2 * d)

    def forward(self, points: Tensor) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
        """Return the same as `LSTMEncoder.forward`; the decoder's inputs are the encoder's states."""
        states = self.encoder.encode_nodes({"coords": points})
        hidden, cell = self.first_state(states.mean(dim=1))[None].chunk(2, dim=-1)
        return states, states, (hidden.tanh().contiguous(), cell.contiguous())


ENCODERS: dict[str, type[LSTMEncoder | TransformerEncoder]] = {"lstm": LSTMEncoder, "transformer": TransformerEncoder}


def run_lstm(
    lstm: nn.LSTM, inputs: Tensor, state: tuple[Tensor, Tensor] | None, precision: str
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Run an LSTM in bfloat16 if requested and supported by the device, otherwise in float32.

    On x86 processors without AVX-512, oneDNN has no LSTM in bfloat16, but torch's autocast calls it and fails.
    """
    if inputs.is_cpu and not (torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()):
        precision = "float32"
    if precision == "float32":
        inputs = inputs.float()
        state = None if state is None else (state[0].float(), state[1].float())
    with products(inputs, precision):
        return lstm(inputs, state)
