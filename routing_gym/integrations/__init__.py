"""Adapters to reinforcement-learning libraries, one module each, which needs its library to import."""
