"""Solving of instances for evaluate.py and solve.py, in several processes and on several machines."""
