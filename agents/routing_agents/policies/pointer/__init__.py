"""The pointer network of Vinyals et al. (2015)."""
