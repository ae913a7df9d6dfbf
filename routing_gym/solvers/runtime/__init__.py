"""Infrastructure of solvers: their protocol, executors, cache and progress bar."""
