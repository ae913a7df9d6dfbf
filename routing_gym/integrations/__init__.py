"""Adapters to reinforcement-learning libraries, one module each; a module needs its library to import."""
