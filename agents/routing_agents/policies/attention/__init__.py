"""The attention model of Kool et al. (2019)."""
