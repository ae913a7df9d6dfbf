"""Pointer Networks (Vinyals, Fortunato and Jaitly 2015): networks that answer with indices of their input."""
