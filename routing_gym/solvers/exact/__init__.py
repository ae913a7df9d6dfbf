"""Exact solvers: dynamic programming and mixed-integer programs."""
