"""The attention model of Kool et al. (2019): network, features, decoding, search and baselines."""
