"""What training scripts share: the loop, checkpoints, runs, baselines, optimisers, several processes."""
