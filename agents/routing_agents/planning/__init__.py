"""Plan routes to a user's own stops with trained policies and classical solvers."""
