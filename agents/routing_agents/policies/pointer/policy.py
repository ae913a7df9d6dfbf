"""The pointer network as a policy for the TSP, trained by reinforcement (Bello et al. 2016, arXiv 1611.09940).

B = instances, K = tours of each, T = steps, A = cities, d = units.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from routing_agents.policies.attention.features import features_named
from routing_agents.policies.attention.operations import take_nodes
from routing_agents.policies.pointer.encoders import PointerConfig
from routing_agents.policies.pointer.model import PointerEncoding, PointerNetwork
from routing_agents.policies.protocol import PolicyNetwork


class PointerPolicy(PointerNetwork, PolicyNetwork):
    """The network of `agents/pointer_network.py` with the interface of a policy: it reads observations.

    The encoder reads the cities in the order of x, and the decoder's state depends on the tour so far. Any city may
    come first. The glimpses and clipped logits that Bello et al. add to the network are left out, so that the same
    weights serve both kinds of training.

    Args:
        config: Kind and size of the network; the answer is "pointer".
        generator: Random number generator for the initial weights.

    Raises:
        ValueError: The config has another answer, with a dictionary of fixed size.
    """

    problem = "TSP"  # problem of the tours
    features = features_named(problem)

    def __init__(self, config: PointerConfig, generator: torch.Generator | None = None) -> None:
        if config.answer != "pointer":
            raise ValueError(f"a policy points at cities, so its answer must be 'pointer'; got {config.answer!r}")
        super().__init__(config, "every", generator=generator)

    def encode(self, observation: dict[str, Tensor]) -> PointerEncoding:  # type: ignore[override]  # reads points there
        """Encode B instances from their static observation, reading the cities in the order of x.

        The encoding has the cities in the order of the observation.
        """
        coords = observation["coords"]
        by_x = coords[..., 0].argsort(dim=1)
        encoding = super().encode(take_nodes(coords, by_x))
        back = by_x.argsort(dim=1)
        back_from_1 = torch.nn.functional.pad(back + 1, (1, 0))  # 0 is the beginning or end of the answer
        return replace(
            encoding,
            inputs=take_nodes(encoding.inputs, back_from_1),
            states=take_nodes(encoding.states, back),
            keys=take_nodes(encoding.keys, back_from_1),
        )

    def inputs(self, encoding: PointerEncoding, observation: dict[str, Tensor]) -> Tensor:
        """Return the decoder's inputs for observations (B, ..., A): the start of the answer, or the current city."""
        not_started = observation["action_mask"].all(dim=-1)
        previous = (observation["current_node"] + 1).masked_fill(not_started, 0)
        return take_nodes(encoding.inputs, previous.flatten(1))

    def score(self, encoding: PointerEncoding, decoded: Tensor, mask: Tensor) -> Tensor:
        """Convert decoder states (B, Q, d) to logits float32 (B, Q, A), -inf where the mask (B, Q, A) is False."""
        return self.choose(encoding, decoded)[..., 1:].masked_fill(~mask, -torch.inf)

    def stepwise_logits(
        self, encoding: PointerEncoding, num_tours: int, skip: int = 0
    ) -> Callable[[dict[str, Tensor]], Tensor]:
        """Return a function that keeps the decoder's state between steps; see `PolicyNetwork.stepwise_logits`."""
        state = encoding.repeat(num_tours).last
        if skip:
            begin = encoding.inputs[:, :1].expand(-1, num_tours, -1)
            _, state = self.advance(begin.flatten(0, 1)[:, None], state)

        def logits(observation: dict[str, Tensor]) -> Tensor:
            nonlocal state
            inputs = self.inputs(encoding, observation)
            decoded, state = self.advance(inputs.flatten(0, 1)[:, None], state)
            return self.score(encoding, decoded.reshape(inputs.shape), observation["action_mask"])

        return logits

    def tour_logits(self, encoding: PointerEncoding, observation: dict[str, Tensor], skip: int = 0) -> Tensor:
        """Score all K tours at once, while the decoder runs step by step; see `PolicyNetwork.tour_logits`."""
        mask = observation["action_mask"]
        inputs = self.inputs(encoding, observation).unflatten(1, mask.shape[1:3])  # (B, K, T, d)
        decoded, _ = self.advance(inputs.flatten(0, 1), encoding.repeat(mask.shape[1]).last)
        decoded = decoded.reshape(inputs.shape)[:, :, skip:].flatten(1, 2)
        return self.score(encoding, decoded, mask[:, :, skip:].flatten(1, 2)).view_as(mask[:, :, skip:])
