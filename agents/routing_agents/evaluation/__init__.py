"""Evaluation of several methods, in several processes and on several machines."""
