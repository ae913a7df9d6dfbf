"""One door to all solvers, for one's own stops."""
