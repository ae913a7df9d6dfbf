"""Shared modules of the training scripts: loop, losses, baselines, reports, plans of runs, several processes."""
