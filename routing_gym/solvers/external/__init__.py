"""Adapters to other packages: fast-tsp, hygese, OR-Tools and PyVRP."""
