"""Contract tests for your own problems, games and vectorised environments.

`check_problem(MyProblem(10))`, `check_game(MyGame(4))` and `check_vector_env("my/Problem-10")` return None, or raise
`ContractViolation`, whose message names the fault and its location. They need no test framework.
"""

from routing_gym.testing.compare import ContractViolation
from routing_gym.testing.game import check_game
from routing_gym.testing.problem import check_problem
from routing_gym.testing.vector import check_vector_env

__all__ = ["ContractViolation", "check_game", "check_problem", "check_vector_env"]
