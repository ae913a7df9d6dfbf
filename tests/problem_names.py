"""What tests over all problems run over: one name of each class, of the VRP family the one with its first attributes.

The combinations of all its attributes are for `routing_gym/problems/test_vrp_rules.py`, and `COMBINED` for contracts.
"""

from routing_gym.problems import LISTED, PROBLEMS

ONE_OF_EACH = [*({PROBLEMS[name]: name for name in LISTED} | {PROBLEMS["OVRPBLTW"]: "OVRPBLTW"}).values()]
COMBINED = ["PCHFMDOVRPMBLTW", "PDMDVRPLTW"]  # all attributes, but for B
