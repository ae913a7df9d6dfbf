"""The Pointer Network of Vinyals, Fortunato and Jaitly (2015), section 2, and the two models it is compared with.

An encoder reads the points, a decoder LSTM writes the answer. The three models differ in their output layer, which
converts the decoder's state to a choice: by a fixed dictionary (2.1), by a dictionary and attention to the input
(2.2), or by the attention itself (2.3), which is the Pointer Network.

Choices are numbered from 1 in the order of the points. Choice 0 is the end of the answer, and its beginning in the
decoder's input. B = instances, n = points, T = steps, d = units.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from routing_agents.policies.attention.operations import products, set_precision, take_nodes
from routing_agents.policies.pointer.encoders import ENCODERS, PointerConfig, run_lstm

PAPER_RANGE = 0.08  # largest absolute value of the paper's initial weights
END = 0
Holds = Literal["every", "some", "repeated"]  # every point once, some points once, or points any number of times


@dataclass(frozen=True)
class PointerEncoding:
    """Inputs of the decoder for B encoded instances."""

    inputs: Tensor  # (B, n + 1, d), inputs of the decoder: the beginning of the answer, then the points
    states: Tensor  # e, (B, n, d): the encoder's state at each point
    keys: Tensor  # keys of the attention, see `keys` of the three output layers
    last: tuple[Tensor, Tensor]  # (1, B, d) each: the decoder's first state
    absent: Tensor  # bool (B, n + 1), True for choices that an instance lacks

    def repeat(self, times: int) -> PointerEncoding:
        """Repeat the decoder's first state, so that it writes several answers for each instance."""
        hidden, cell = (state.repeat_interleave(times, dim=1) for state in self.last)
        return replace(self, last=(hidden, cell))

    def detach(self) -> PointerEncoding:
        """Return the same encoding, detached from the computation graph."""
        hidden, cell = self.last
        inputs, states, keys = self.inputs.detach(), self.states.detach(), self.keys.detach()
        return PointerEncoding(inputs, states, keys, (hidden.detach(), cell.detach()), self.absent)


class Attention(nn.Module):
    """Additive attention: u_ij = v' tanh(W1 e_j + W2 d_i), of Bahdanau et al. (2015)."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.project_key = nn.Linear(units, units, bias=False)  # W1
        self.project_query = nn.Linear(units, units, bias=False)  # W2
        self.combine = nn.Linear(units, 1, bias=False)  # v

    def forward(self, keys: Tensor, decoded: Tensor) -> Tensor:
        """Score keys W1 e (B, n, d) for decoder states d (B, T, d): u (B, T, n)."""
        mixed = keys[:, None] + self.project_query(decoded)[:, :, None]
        return self.combine(mixed.tanh())[..., 0]


class PointerAnswer(nn.Module):
    """Section 2.3: p(C_i = j | C_1 .. C_i-1, P) = softmax(u_i)_j, over the points and, if lengths vary, the end."""

    def __init__(self, config: PointerConfig, _: int = 0) -> None:
        super().__init__()
        self.attention = Attention(config.units)
        self.end = nn.Parameter(torch.empty(config.units))

    def keys(self, states: Tensor) -> Tensor:
        """Return a key of the end, then W1 e of the points: (B, n + 1, d)."""
        keys = self.attention.project_key(states)
        return torch.cat([self.end.to(keys.dtype).expand(len(keys), 1, -1), keys], dim=1)

    def forward(self, encoding: PointerEncoding, decoded: Tensor) -> Tensor:
        """Return u (B, T, n + 1)."""
        return self.attention(encoding.keys, decoded)


class DictionaryAnswer(nn.Module):
    """Sequence to sequence (section 2.1): p = softmax(W d_i), over a dictionary of fixed size."""

    def __init__(self, config: PointerConfig, fixed_size: int) -> None:
        super().__init__()
        self.dictionary = nn.Linear(config.units, fixed_size + 1)

    def keys(self, states: Tensor) -> Tensor:
        """Return no keys, (B, 0, d): there is no attention to the input."""
        return states[:, :0]

    def forward(self, encoding: PointerEncoding, decoded: Tensor) -> Tensor:
        """Return logits (B, T, n + 1)."""
        return self.dictionary(decoded)


class AttentionAnswer(nn.Module):
    """Content-based input attention (2.2): a_i = softmax(u_i), d'_i = sum_j a_ij e_j, p = softmax(W [d_i; d'_i]).

    The paper also feeds [d_i; d'_i] to the next step. This class does not, so that all steps are scored at once.
    """

    def __init__(self, config: PointerConfig, fixed_size: int) -> None:
        super().__init__()
        self.attention = Attention(config.units)
        self.dictionary = nn.Linear(2 * config.units, fixed_size + 1)

    def keys(self, states: Tensor) -> Tensor:
        """Return W1 e of the points: (B, n, d)."""
        return self.attention.project_key(states)

    def forward(self, encoding: PointerEncoding, decoded: Tensor) -> Tensor:
        """Return logits (B, T, n + 1)."""
        weights = self.attention(encoding.keys, decoded).softmax(dim=-1)
        return self.dictionary(torch.cat([decoded, weights @ encoding.states.to(weights.dtype)], dim=-1))


ANSWERS: dict[str, type[PointerAnswer | AttentionAnswer | DictionaryAnswer]] = {
    "pointer": PointerAnswer,
    "attention": AttentionAnswer,
    "sequence": DictionaryAnswer,
}


class PointerNetwork(nn.Module):
    """Encoder, decoder and one of the three output layers.

    Args:
        config: Kind and size of the network.
        holds: Content of an answer, see `Holds`.
        fixed_size: Number of points, if all instances have the same: size of the dictionary of the two comparisons.
        generator: Random number generator for the initial weights.

    Raises:
        ValueError: A comparison has no fixed size, or `holds` is unknown.
    """

    def __init__(
        self,
        config: PointerConfig,
        holds: Holds,
        fixed_size: int | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if holds not in get_args(Holds):
            raise ValueError(f"holds must be one of {', '.join(get_args(Holds))}; got {holds!r}")
        self.config = config
        self.ends = holds != "every"  # an answer with every point needs no end
        self.masks = config.mask_chosen and holds != "repeated"
        self.fixed_size = None if config.answer == "pointer" else fixed_size
        if config.answer != "pointer" and fixed_size is None:
            raise ValueError(
                f"answer {config.answer!r} has a dictionary with one word per point, so all instances need one "
                'size; for mixed sizes take answer "pointer"'
            )
        self.precision = "float32"  # see `multiply_in`
        self.encoder = ENCODERS[config.encoder](config)
        self.begin = nn.Parameter(torch.empty(config.units))  # the decoder's first input
        self.decoder = nn.LSTM(config.units, config.units, batch_first=True)
        self.answer = ANSWERS[config.answer](config, fixed_size or 0)
        self.initialise(generator)

    @torch.no_grad()
    def initialise(self, generator: torch.Generator | None) -> None:
        """Draw every parameter, except those of normalisations, uniformly: from +-0.08, or from +-1/sqrt(fan-in)."""
        for name, parameter in self.named_parameters():
            if "norm" in name:
                continue
            limit = PAPER_RANGE if self.config.initial == "paper" else fan_in(self, name) ** -0.5
            parameter.uniform_(-limit, limit, generator=generator)

    def multiply_in(self, precision: str) -> None:
        """Choose the precision of matrix products, LSTMs and attention, "float32" or "bfloat16"; logits are float32.

        LSTMs remain in float32 on processors for which oneDNN has no LSTM in bfloat16, see `run_lstm`.

        Raises:
            ValueError: The precision is another one.
        """
        set_precision(self, precision)

    def encode(self, points: Tensor, lengths: Tensor | None = None) -> PointerEncoding:
        """Encode instances; padding does not change their encoding.

        Args:
            points: Points (B, n, 2).
            lengths: Number of points of each instance, which come before the padding: int64 (B,); None if all have n.

        Raises:
            ValueError: The network has a fixed size, and the instances have another, or `lengths` is given.
        """
        batch_size, n, _ = points.shape
        if self.fixed_size is not None and (self.fixed_size != n or lengths is not None):
            raise ValueError(f'this network answers {self.fixed_size} points only; answer "pointer" takes any number')
        absent = torch.zeros(batch_size, n + 1, dtype=torch.bool, device=points.device)
        absent[:, END] = not self.ends
        if lengths is not None:
            absent[:, 1:] = torch.arange(n, device=points.device) >= lengths[:, None]
        inputs, states, last = self.encoder(points) if lengths is None else self.encode_padded(points, lengths)
        with products(points, self.precision):
            keys = self.answer.keys(states)
        begin = self.begin.to(inputs.dtype).expand(batch_size, 1, -1)
        return PointerEncoding(torch.cat([begin, inputs], dim=1), states, keys, last, absent)

    def encode_padded(self, points: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
        """Encode the instances of each size together, without the padding."""
        rows, parts = [], []
        for length in lengths.unique().tolist():
            same = (lengths == length).nonzero()[:, 0]
            inputs, states, last = self.encoder(points[same, :length])
            padding = (0, 0, 0, points.shape[1] - length)
            parts.append((nn.functional.pad(inputs, padding), nn.functional.pad(states, padding), *last))
            rows.append(same)
        back = torch.cat(rows).argsort()
        inputs, states, hidden, cell = zip(*parts, strict=True)
        last = torch.cat(hidden, dim=1)[:, back], torch.cat(cell, dim=1)[:, back]
        return torch.cat(inputs)[back], torch.cat(states)[back], last

    def decode(self, encoding: PointerEncoding, previous: Tensor) -> Tensor:
        """Return the logits of all steps of given answers, in one call.

        Args:
            encoding: Encoding of B instances.
            previous: Choice before each step: int64 (B, T); 0 at the beginning of the answer.

        Returns:
            float32 (B, T, n + 1), -inf for choices that the instance lacks.
        """
        return self.choose(encoding, self.advance(take_nodes(encoding.inputs, previous), encoding.last)[0])

    def advance(self, inputs: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Run the decoder over inputs (B, T, d); return its states d_i (B, T, d), and the last state to go on from."""
        return run_lstm(self.decoder, inputs, state, self.precision)

    def choose(self, encoding: PointerEncoding, decoded: Tensor) -> Tensor:
        """Convert decoder states (B, T, d) to logits float32 (B, T, n + 1)."""
        with products(decoded, self.precision):
            logits = self.answer(encoding, decoded)
        return logits.float().masked_fill(encoding.absent[:, None], -torch.inf)


def fan_in(model: nn.Module, name: str) -> int:
    """Return the number of inputs that a parameter multiplies; outside linear layers, the size of its last axis."""
    layer, parameter = model.get_submodule(name.rpartition(".")[0]), model.get_parameter(name)
    return layer.in_features if isinstance(layer, nn.Linear) else parameter.shape[-1]


def log_likelihood(
    model: PointerNetwork, points: Tensor, answers: Tensor, lengths: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Score right answers (equation 1): log p(C | P) = sum over i of log p(C_i | C_1 .. C_i-1, P).

    Args:
        model: Pointer network.
        points: Points (B, n, 2).
        answers: Right answers: int64 (B, T), indices of points, padded with -1.
        lengths: Number of points of each instance: int64 (B,); None if all have n.

    Returns:
        Terms of the sum, in nats, 0 after the end of an answer; and a bool mask, False after the end. Both are (B, T),
        or (B, T + 1) with the choice of the end.
    """
    targets = answers + 1  # padding becomes the end
    if model.ends:
        targets = nn.functional.pad(targets, (0, 1))
    previous = nn.functional.pad(targets, (1, -1))
    counts = targets > 0
    if model.ends:  # the first end counts too
        counts = nn.functional.pad(counts, (1, -1), value=True)
    logits = model.decode(model.encode(points, lengths), previous)
    if model.masks:
        logits = logits.masked_fill(chosen_before(previous, logits.shape[2]), -torch.inf)
    log_p = logits.log_softmax(dim=-1).gather(2, targets[..., None])[..., 0]
    return log_p.masked_fill(~counts, 0.0), counts


def chosen_before(previous: Tensor, num_choices: int) -> Tensor:
    """Return a mask of the points that were chosen before each step, without the end: bool (B, T, n + 1).

    Args:
        previous: Choice before each step: int64 (B, T).
        num_choices: Number of choices, n + 1.
    """
    chosen = torch.zeros(*previous.shape, num_choices, dtype=torch.uint8, device=previous.device)
    chosen = chosen.scatter(2, previous[..., None], 1).cummax(dim=1).values.bool()
    chosen[..., END] = False
    return chosen
