"""`noisy-steps`: several local DP-SGD steps a round, noise at every step (P1, Algorithm 2)."""
