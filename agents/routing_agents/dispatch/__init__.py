"""Learned dispatching for the dynamic VRPTW: the network over requests, and policies that use it."""
