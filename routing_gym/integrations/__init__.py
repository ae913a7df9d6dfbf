"""Adapters to reinforcement-learning libraries, one module each; importing a module requires its library."""
