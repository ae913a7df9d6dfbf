"""What tests over all problems run over: one name of each class, of the VRP family the one with every attribute."""

from routing_gym.problems import PROBLEMS

ONE_OF_EACH = [*{kind: name for name, kind in PROBLEMS.items()}.values()]
assert "OVRPBLTW" in ONE_OF_EACH  # the last of its family
