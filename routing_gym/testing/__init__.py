"""A contract suite for problems and vector environments; run it on your own.

`check_problem(MyProblem(10))` and `check_vector_env("my/Problem-10")` return None, or raise
`ContractViolation`, which says what is broken and where. They need no test framework.
"""

from routing_gym.testing.compare import ContractViolation
from routing_gym.testing.problem import check_problem
from routing_gym.testing.vector import check_vector_env

__all__ = ["ContractViolation", "check_problem", "check_vector_env"]
