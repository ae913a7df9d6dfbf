"""Adapters of other packages: fast-tsp, hygese, OR-Tools and PyVRP."""
