"""Games of several vehicles: the contract, one file per game, environments, heuristics and pictures."""

from routing_gym.multi_agent.competitive_op import CompetitiveOP, CompetitiveOPInstance
from routing_gym.multi_agent.game import Game

__all__ = ["CompetitiveOP", "CompetitiveOPInstance", "Game"]
