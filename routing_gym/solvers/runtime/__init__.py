"""How solvers are run: their protocol, worker processes, cache and progress bar."""
