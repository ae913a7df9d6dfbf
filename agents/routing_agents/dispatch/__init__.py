"""Learned dispatching for the dynamic VRPTW: the network over requests, and what makes a policy of it."""
