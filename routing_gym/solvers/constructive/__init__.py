"""Construction heuristics and local search, in NumPy."""
