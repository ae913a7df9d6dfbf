"""Trained models that solve instances."""

from routing_agents.trained.loading import WEIGHTS, checkpoint_named, find_checkpoint, find_weights, load, load_repair
from routing_agents.trained.model import SolvedInstance, Strategy, TrainedModel, choose_decoding

__all__ = [
    "WEIGHTS",
    "SolvedInstance",
    "Strategy",
    "TrainedModel",
    "checkpoint_named",
    "choose_decoding",
    "find_checkpoint",
    "find_weights",
    "load",
    "load_repair",
]
