"""Optimisers of the attention model: Adam, or Muon for its matrices and Adam for the rest; and their states."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

LEARNING_RATES = {"muon": 3e-3, "adam": 5e-4}  # on TSP-20, Muon is about as good with 2e-3 and 4e-3, worse with 1e-3
QUINTIC = (3.4445, -4.7750, 2.0315)  # coefficients of the iteration, chosen by Jordan et al. for its slope at zero
ITERATIONS = 5
# Layers whose inputs or output are numbers, not embeddings.
NUMBERS = {"embed_node", "embed_depot", "embed_edge", "embed_edge_logits", "project_step", "value"}


def make_optimizers(model: nn.Module, name: str, learning_rate: float) -> dict[str, torch.optim.Optimizer]:
    """Build Adam, or Muon for the matrices between embeddings and Adam for every other parameter.

    Returns:
        Optimisers by the name of their state in a checkpoint; "optimizer" is Adam.
    """
    if name == "adam":
        return {"optimizer": torch.optim.Adam(model.parameters(), learning_rate)}
    matrices: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for key, parameter in model.named_parameters():
        is_matrix = parameter.ndim == 2 and not NUMBERS & {*key.split(".")}
        (matrices if is_matrix else others).append(parameter)
    return {"optimizer": torch.optim.Adam(others, learning_rate), "muon": Muon(matrices, learning_rate)}


class Muon(torch.optim.Optimizer):
    """Muon: momentum that is orthogonalised, matrix by matrix, before each step (Jordan et al. 2024).

    A matrix then learns equally fast in all directions, not only in the few that dominate its gradient.
    The steps are scaled to the size of Adam's (Liu et al. 2025), so that one learning rate works for both.

    torch.optim.Muon computes the same, but always in bfloat16. On a CPU that emulates bfloat16, its step takes half a
    second; the step of this class, in float32, takes 20 ms.

    Args:
        params: Matrices to optimise.
        lr: Learning rate.
        momentum: Nesterov momentum of the gradients.
    """

    def __init__(self, params: list[nn.Parameter], lr: float, momentum: float = 0.95) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """Update the matrices that have a gradient."""
        for group in self.param_groups:
            for matrix in group["params"]:
                if matrix.grad is None:
                    continue
                state = self.state[matrix]
                if not state:
                    state["average"] = torch.zeros_like(matrix)
                average = state["average"].lerp_(matrix.grad, 1 - group["momentum"])
                direction = orthogonalize(matrix.grad.lerp(average, group["momentum"]))
                matrix.add_(direction, alpha=-group["lr"] * 0.2 * math.sqrt(max(matrix.shape)))


def orthogonalize(matrix: Tensor) -> Tensor:
    """Return an approximation of U V' of a matrix U S V', by Newton-Schulz iteration.

    The singular values of the result are between 0.6 and 1.3, which works as well as 1 and takes fewer products.
    Those of `matrix` below 0.003 of its Frobenius norm become less than 0.6.
    """
    a, b, c = QUINTIC
    wide = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    x = wide / wide.norm().clamp(min=1e-7)
    for _ in range(ITERATIONS):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x if wide is matrix else x.T


STATES: dict[type[torch.optim.Optimizer], tuple[str, ...]] = {  # tensors for each parameter
    torch.optim.Adam: ("step", "exp_avg", "exp_avg_sq"),
    torch.optim.SGD: (),
    Muon: ("average",),
}


def expected_state(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return meta tensors, without memory, with the names and shapes of `optimizer_tensors` after a step."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    return {
        f"{i}.{key}": torch.empty(() if key == "step" else parameter.shape, device="meta")
        for i, parameter in enumerate(parameters)
        for key in STATES[type(optimizer)]
    }


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the state of an optimiser as tensors by "index.key"."""
    return {f"{i}.{key}": value for i, state in optimizer.state_dict()["state"].items() for key, value in state.items()}


def load_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Restore the result of `optimizer_tensors`."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        index, key = name.split(".")
        state.setdefault(int(index), {})[key] = value
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
