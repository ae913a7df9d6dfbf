"""The games. Each file holds one: its source, instance, state, rules, and what agents see of it."""

from routing_gym.games.competitive_op import CompetitiveOP, CompetitiveOPInstance, CompetitiveOPState

__all__ = ["CompetitiveOP", "CompetitiveOPInstance", "CompetitiveOPState"]
