"""A contract suite for problems, games and vector environments; run it on your own.

`check_problem(MyProblem(10))`, `check_game(MyGame(4))` and `check_vector_env("my/Problem-10")` return None, or raise
`ContractViolation`, which says what is broken and where. They need no test framework.
"""

from routing_gym.testing.compare import ContractViolation
from routing_gym.testing.game import check_game
from routing_gym.testing.problem import check_problem
from routing_gym.testing.vector import check_vector_env

__all__ = ["ContractViolation", "check_game", "check_problem", "check_vector_env"]
