"""What training scripts share: the loop, losses and baselines, reports, plans of runs, several processes."""
