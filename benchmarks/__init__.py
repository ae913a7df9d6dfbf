"""Benchmarks: scripts in folders by subject, their helpers, and the figures in `results`."""
