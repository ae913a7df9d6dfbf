"""Operations on tensors that the encoder and the decoder share.

B = instances, A = nodes, Q = queries per instance, d = embedding size, H = heads, d_k = d / H.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor, nn

PRECISIONS = ("float32", "bfloat16")
FEW_NODES = 32  # see `attend`
FEW_NUMBERS = 2**14  # see `mask_bias`


def set_precision(network: nn.Module, precision: str) -> None:
    """Set the attribute `precision` of all layers of a network that have it: "float32" or "bfloat16".

    Raises:
        ValueError: The precision is another one.
    """
    if precision not in PRECISIONS:
        raise ValueError(f"precision must be {' or '.join(PRECISIONS)}, got {precision!r}")
    for layer in network.modules():
        if "precision" in vars(layer):
            vars(layer)["precision"] = precision


def products(x: Tensor, precision: str) -> AbstractContextManager[None]:
    """Return a context manager in which matrix products have the chosen precision."""
    return torch.autocast(x.device.type, torch.bfloat16) if precision == "bfloat16" else nullcontext()


def attend(query: Tensor, key: Tensor, value: Tensor, shift: Tensor | None = None) -> Tensor:
    """Return softmax(query key' / sqrt(d_k) + shift) value, for query (B, H, Q, d_k), key and value (B, H, A, d_k).

    With gradients, several queries and few nodes, separate products are faster than torch's fused attention on a CPU.
    """
    if query.shape[2] == 1 or key.shape[2] > FEW_NODES or not (key.requires_grad and key.is_cpu):
        return F.scaled_dot_product_attention(query, key, value, attn_mask=shift)
    scores = (query / math.sqrt(query.shape[3])) @ key.transpose(2, 3)
    return (scores if shift is None else scores.add_(shift)).softmax(dim=-1) @ value


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """Split the last axis into heads: (B, Q, d) -> (B, H, Q, d/H)."""
    return x.view(*x.shape[:2], num_heads, -1).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """Concatenate the heads: (B, H, Q, d/H) -> (B, Q, d)."""
    return x.transpose(1, 2).flatten(2)


def take_nodes(x: Tensor, index: Tensor) -> Tensor:
    """Select nodes: x (B, A, d), index (B, Q) -> (B, Q, d)."""
    num_instances, num_nodes, _ = x.shape
    if num_instances == 1:
        return torch.embedding(x[0], index)
    starts = torch.arange(0, num_instances * num_nodes, num_nodes, device=x.device)[:, None]
    return torch.embedding(x.flatten(0, 1), index + starts)  # copies rows: faster than gather on a CPU


def mask_bias(mask: Tensor) -> Tensor:
    """Convert a mask to numbers that are added to the scores: -inf for illegal actions, 0 for legal ones.

    On a CPU, `torch.where` is faster for small masks, and arithmetic for large ones.
    """
    if mask.numel() < FEW_NUMBERS and mask.is_cpu:
        return torch.where(mask, 0.0, -torch.inf)
    return mask.float().sub_(1).mul_(torch.finfo(torch.float32).max).mul_(2.0)
