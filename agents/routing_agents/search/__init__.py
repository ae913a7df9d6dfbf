"""Search with a policy: beam search, simulation-guided and active search, large-neighbourhood search."""
