"""Tours whose steps run in arrays that are always the same, as a CUDA graph needs them; here without a graph."""

from __future__ import annotations

import dataclasses

import pytest
import torch

import am_reinforce
from benchmarks.training.cuda_graphs import GraphTrainer


@pytest.mark.parametrize("env_id", ["routing/TSP-10", "routing/SDVRP-10", "routing/PDOVRPLTW-10", "routing/ATSP-10"])
def test_tours_are_those_of_the_rules(env_id: str) -> None:
    args = am_reinforce.Args(env_id=env_id, batch_size=4, num_tours=3, held_out=4, device="cpu", precision="float32")
    trainer = GraphTrainer(args)
    trainer.update()  # checks the first tours
    (player,) = trainer.loss.players.values()
    first = player.cost.clone()
    trainer.update()
    assert not torch.equal(player.cost, first), "other instances are played in the same arrays"
    played = player.play(player.instance, player.encoding)
    with pytest.raises(RuntimeError, match="cost something else by the rules"):
        player.check(dataclasses.replace(played, cost=played.cost + 1))
