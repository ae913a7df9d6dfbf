"""Neural networks that solve routing problems, and what the training scripts share."""
