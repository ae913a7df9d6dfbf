"""Games of several vehicles: the contract, one file per game, and what plays and shows them."""

from routing_gym.multi_agent.competitive_op import CompetitiveOP, CompetitiveOPInstance
from routing_gym.multi_agent.game import Game

__all__ = ["CompetitiveOP", "CompetitiveOPInstance", "Game"]
